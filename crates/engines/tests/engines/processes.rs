//! With real memcacheds: what the engine hears of them, and what the operator makes of that.

use std::{
    collections::HashMap,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use ballast_engines::{Connection, DialError, Dialer, Place, PodAddress, memcached};
use ballast_memcached::{Memcached, MemcachedOperator, Told};
use ballast_runtime::{Manager, Options};
use drydock::{Drydock, Identity, Verb};
use futures::future::BoxFuture;
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

/// Longer than anything takes that happens at all, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who the operator is, so that its requests can be told from the tests'.
const OPERATOR: &str = "operator";
/// The version whose servers hang from the start.
const HANGS: &str = "hangs";

/// A memcached of this machine.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/memcached");
        let output = Command::new(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    })
}

/// A memcached that runs, at the latest until this is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(program())
            .args(["-l", "127.0.0.1", "-U", "0", "-m", "64", "-u", "nobody", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Server { process, port }
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    fn place(&self) -> Place {
        let (namespace, pod, address) = ("default".into(), "pod-0".into(), "127.0.0.1".into());
        Place { namespace, pod, address, port: self.port }
    }

    async fn told(&self) -> Told {
        memcached::Memcached::new(PodAddress).ask_server(&self.place()).await
    }

    async fn serves(&self) -> (String, ballast_memcached::Stats) {
        eventually("the server serves", async || match self.told().await {
            Told::Serves { version, stats } => Some((version, stats)),
            _ => None,
        })
        .await
    }

    /// Says something to it, and gives the first line that it says.
    async fn say(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A stopped process dies by this too.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until something is seen.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut seen: impl FnMut() -> F) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = seen().await {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "it never came to pass that {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_real_server_serves_hangs_and_goes() {
    let server = Server::start();
    let (version, before) = server.serves().await;
    assert!(version.split('.').count() == 3, "{version}");
    assert_eq!(before.limit_maxbytes, 64 << 20);
    assert_eq!(server.say("set a 0 0 5\r\nhello\r\n").await, "STORED");
    assert_eq!(server.say("get a\r\n").await, "VALUE a 0 5");
    assert_eq!(server.say("get b\r\n").await, "END");
    let (_, stats) = server.serves().await;
    assert_eq!((stats.get_hits, stats.get_misses), (before.get_hits + 1, before.get_misses + 1));
    assert!(stats.bytes > 0);
    server.signal("STOP");
    assert_eq!(server.told().await, Told::Silent);
    server.signal("CONT");
    server.serves().await;
    server.signal("KILL");
    eventually("nobody listens", async || (server.told().await == Told::Refuses).then_some(())).await;
}

/// Runs a memcached for every pod, as a node would, and leads to it whoever dials the pod.
#[derive(Clone, Default)]
struct Node(Arc<Mutex<HashMap<String, Server>>>);

impl Node {
    async fn run(self, pods: Api<Pod>) {
        loop {
            if let Ok(list) = pods.list(&ListParams::default()).await {
                let names: Vec<String> =
                    list.items.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
                self.0.lock().unwrap().retain(|name, _| names.contains(name));
                for pod in list.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                    self.attend(&pods, pod).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn attend(&self, pods: &Api<Pod>, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap();
        if self.0.lock().unwrap().contains_key(&name) {
            return;
        }
        let server = Server::start();
        server.serves().await;
        let image = ballast_operator::pod::image(pod, "memcached").unwrap_or_default().to_owned();
        if image.ends_with(&format!(":{HANGS}")) {
            server.signal("STOP");
        }
        let number = self.0.lock().unwrap().len() + 1;
        self.0.lock().unwrap().insert(name.clone(), server);
        let now = jiff::Timestamp::now();
        let status = json!({"status": {
            "phase": "Running", "podIP": format!("10.9.0.{number}"), "podIPs": [{"ip": format!("10.9.0.{number}")}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [{
                "name": "memcached", "image": image, "imageID": image, "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": now}},
            }],
        }});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    }

    fn signal(&self, pod: &str, signal: &str) {
        self.0.lock().unwrap()[pod].signal(signal);
    }
}

impl Dialer for Node {
    fn dial<'a>(&'a self, to: &'a Place) -> BoxFuture<'a, Result<Connection, DialError>> {
        Box::pin(async move {
            assert_eq!(to.port, 11211);
            let port =
                self.0.lock().unwrap().get(&to.pod).map(|server| server.port).ok_or(DialError::Refused)?;
            let here = Place { address: "127.0.0.1".to_owned(), port, ..to.clone() };
            PodAddress.dial(&here).await
        })
    }
}

/// A cluster in memory with the operator in it, and a node that runs memcacheds.
struct Stage {
    drydock: Drydock,
    node: Node,
    caches: Api<Memcached>,
}

impl Stage {
    async fn start() -> Self {
        let drydock = Drydock::builder().requests(100_000).start().await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(drydock.client());
        definitions.create(&PostParams::default(), &Memcached::crd()).await.unwrap();
        let established = await_condition(definitions, Memcached::crd_name(), is_crd_established());
        tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
        let node = Node::default();
        tokio::spawn(node.clone().run(Api::namespaced(drydock.client(), "default")));
        let client = drydock.client_as(Identity::admin(OPERATOR));
        let engine = memcached::Memcached::new(node.clone());
        let manager = Manager::new(client, Options::default()).register(MemcachedOperator, engine);
        tokio::spawn(manager.run(CancellationToken::new()));
        let caches = Api::namespaced(drydock.client(), "default");
        Stage { drydock, node, caches }
    }

    async fn apply(&self, spec: Value) {
        let sample = json!({
            "apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": {"name": "sample"}, "spec": spec,
        });
        self.caches
            .patch("sample", &PatchParams::apply("test").force(), &Patch::Apply(sample))
            .await
            .unwrap();
    }

    /// Waits until a condition begins so, for the generation there is.
    async fn until(&self, type_: &str, reads: &str) -> Memcached {
        eventually(&format!("{type_} reads {reads}"), async || {
            let cache = self.caches.get("sample").await.unwrap();
            let found =
                cache.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)?;
            let text = format!("{} {}: {}", found.status, found.reason, found.message);
            (text.starts_with(reads) && found.observed_generation == cache.metadata.generation)
                .then_some(cache)
        })
        .await
    }

    /// How many requests the operator made that change something.
    fn writes(&self) -> usize {
        let entries = self.drydock.requests().entries();
        let reads = [Verb::Get, Verb::List, Verb::Watch];
        entries.iter().filter(|entry| entry.user == OPERATOR && !reads.contains(&entry.verb)).count()
    }
}

#[tokio::test]
async fn ready_is_what_the_servers_say_and_one_that_hangs_is_replaced() {
    let stage = Stage::start().await;
    stage.apply(json!({"size": 3, "version": "1.6.9"})).await;
    let cache = stage.until("Ready", "True AllNodesReady: 3 of 3 nodes ready").await;
    let status = cache.status.unwrap();
    assert_eq!((status.servers.len(), status.ready_replicas), (3, 3), "{status:?}");
    assert_eq!(status.statistics.unwrap().memory_limit, "192Mi");
    let version = status.version.unwrap();
    assert!(!version.contains(',') && version != "1.6.9", "what runs is what counts: {version}");

    // A quiet while in which servers are asked, and nothing is written, though their counters run.
    let before = stage.writes();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(stage.writes(), before);

    let hung = status.nodes[1].clone();
    stage.node.signal(&hung, "STOP");
    stage.until("Ready", &format!("False NotServing: 2 of 3 nodes ready: {hung} takes connections")).await;
    let cache = stage.until("Ready", "True AllNodesReady: 3 of 3 nodes ready").await;
    let status = cache.status.unwrap();
    assert!(!status.nodes.contains(&hung) && status.silent.is_empty(), "{status:?}");
    stage.until("Degraded", "False").await;
}

#[tokio::test]
async fn an_upgrade_to_a_version_that_hangs_takes_no_server_along() {
    let stage = Stage::start().await;
    stage.apply(json!({"size": 2, "version": "1.6.9"})).await;
    let first = stage.until("Ready", "True").await.status.unwrap().nodes;
    stage.apply(json!({"size": 2, "version": HANGS})).await;
    let cache = stage.until("Degraded", "True UpgradeStopped").await;
    let status = cache.status.unwrap();
    assert_eq!(status.ready_replicas, 2, "{status:?}");
    let deployments: Api<Deployment> = Api::namespaced(stage.drydock.client(), "default");
    let paused = async || deployments.get("sample").await.unwrap().spec.unwrap().paused == Some(true);
    eventually("the rollout is paused", async || paused().await.then_some(())).await;
    // Longer than a Deployment waits before it goes on by itself.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let nodes = stage.caches.get("sample").await.unwrap().status.unwrap().nodes;
    assert!(first.iter().all(|node| nodes.contains(node)) && nodes.len() == 3, "{first:?} {nodes:?}");

    stage.apply(json!({"size": 2, "version": "1.6.9"})).await;
    let cache = stage.until("Ready", "True").await;
    assert_eq!(cache.status.unwrap().nodes, first, "nobody who served was touched");
    assert!(!paused().await);
    stage.until("Degraded", "False").await;
    // One that works goes through, one at a time.
    stage.apply(json!({"size": 2, "version": "1.6.38"})).await;
    let nodes = stage.until("Ready", "True").await.status.unwrap().nodes;
    assert!(nodes.len() == 2 && first.iter().all(|node| !nodes.contains(node)), "{first:?} {nodes:?}");
}
