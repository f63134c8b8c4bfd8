//! A life of databases on a real node, under operators that crash.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ballast::operators::{self, Reach};
use ballast_operator::Object;
use ballast_proving::{State, canonical};
use ballast_runtime::{Namespaces, Options};
use http::{Method, Request};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::watch};
use tower::service_fn;

/// Longer than any act takes on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(180);
/// For so long the operators write nothing before an act is taken to be over: longer than they leave a server unasked
/// while something is on its way.
const REST: Duration = Duration::from_millis(2500);
/// The operators, as they own fields.
const MANAGERS: [&str; 2] = ["ballast-mysql", "ballast-mysqlbackup"];
/// What is compared at the end of an act: all that operators make. What a pod is made of is random.
const KINDS: [(&str, &str, &str); 9] = [
    ("operators.example.com", "v1alpha1", "MySQL"),
    ("operators.example.com", "v1alpha1", "MySQLBackup"),
    ("apps", "v1", "StatefulSet"),
    ("batch", "v1", "CronJob"),
    ("batch", "v1", "Job"),
    ("", "v1", "Service"),
    ("", "v1", "Secret"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "PersistentVolumeClaim"),
];
/// Lines that tell what a dump or a volume happened to be like.
const CHANCE: [&str; 6] =
    ["bytes:", "contentBytes:", "seconds:", "size:", "volumeName:", "storage.kubernetes.io"];

/// When operators crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crashes {
    Never,
    /// After every single write.
    AfterEach,
    /// Once in every act, after so many writes.
    After(usize),
}

impl fmt::Display for Crashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Crashes::Never => f.write_str("undisturbed"),
            Crashes::AfterEach => f.write_str("crashed after every write"),
            Crashes::After(place) => write!(f, "crashed after write {place} of every act"),
        }
    }
}

/// What people do, and how it is known to be done.
#[derive(Default)]
pub struct Life(Vec<Act>);

struct Act {
    name: &'static str,
    what: What,
}

type Sign = (&'static str, &'static str, &'static str);

enum What {
    Apply(String, Vec<Sign>),
    Delete(&'static str),
}

impl Life {
    pub fn new() -> Self {
        Life::default()
    }

    /// Applies an object, and waits until these fields read so; those of what is not there read empty.
    pub fn apply(mut self, name: &'static str, yaml: String, signs: &[Sign]) -> Self {
        self.0.push(Act { name, what: What::Apply(yaml, signs.to_vec()) });
        self
    }

    /// Deletes an object, and waits until it is gone.
    pub fn delete(mut self, name: &'static str, object: &'static str) -> Self {
        self.0.push(Act { name, what: What::Delete(object) });
        self
    }
}

/// What came of a life.
pub struct Lived {
    crashed: Crashes,
    /// What there was after each act.
    states: Vec<(&'static str, String)>,
    pub writes: usize,
    pub crashes: usize,
}

impl Lived {
    /// After each act there was the same as in another life.
    #[track_caller]
    pub fn is_like(&self, other: &Lived) {
        for ((act, here), (_, there)) in self.states.iter().zip(&other.states) {
            if here != there {
                let diff = similar::TextDiff::from_lines(there, here);
                let diff = diff.unified_diff().context_radius(6).header("undisturbed", "crashed").to_string();
                panic!("{}: after \"{act}\" the state is another\n{diff}", self.crashed);
            }
        }
        assert_eq!(self.states.len(), other.states.len());
    }
}

/// Lives a life in a namespace, which is gone afterwards.
pub fn live(kubeconfig: &Path, life: &Life, namespace: &str, crashes: Crashes) -> Lived {
    let person = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = person.block_on(client(kubeconfig));
    let life_of = LifeOf { client, namespace: namespace.to_owned(), kubeconfig };
    person.block_on(life_of.begin());
    let mut lived = Lived { crashed: crashes, states: Vec::new(), writes: 0, crashes: 0 };
    for act in &life.0 {
        let began = Instant::now();
        person.block_on(life_of.act(&act.what));
        let limit = match crashes {
            Crashes::Never => usize::MAX,
            Crashes::AfterEach => 1,
            Crashes::After(place) => place,
        };
        let mut process = Process::start(&life_of, limit);
        loop {
            let over = person.block_on(process.over(&life_of, &act.what));
            lived.writes += process.writes();
            process.kill();
            if over {
                break;
            }
            lived.crashes += 1;
            assert!(
                began.elapsed() < PATIENCE,
                "{crashes}: {} does not end: {}",
                act.name,
                person.block_on(life_of.seen())
            );
            let again = if crashes == Crashes::AfterEach { 1 } else { usize::MAX };
            process = Process::start(&life_of, again);
        }
        lived.states.push((act.name, person.block_on(life_of.seen())));
    }
    person.block_on(life_of.end());
    lived
}

async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Operators of their own, which end after so many writes.
struct Process {
    runtime: Runtime,
    writes: Arc<AtomicUsize>,
    crashed: watch::Receiver<bool>,
    limit: usize,
}

impl Process {
    fn start(life: &LifeOf<'_>, limit: usize) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let writes: Arc<AtomicUsize> = Arc::default();
        let (crash, crashed) = watch::channel(false);
        let crash = Arc::new(crash);
        let counted = Arc::clone(&writes);
        let options =
            Options { namespaces: Namespaces::These(vec![life.namespace.clone()]), ..Options::default() };
        runtime.block_on(async {
            let inner = client(life.kubeconfig).await;
            let reach = Reach::outside(inner.clone());
            let tapped = service_fn(move |request: Request<Body>| {
                let (inner, counted, crash) = (inner.clone(), Arc::clone(&counted), Arc::clone(&crash));
                async move {
                    let counts = is_state(&request);
                    let answer = inner.send(request).await?;
                    if counts
                        && answer.status().is_success()
                        && counted.fetch_add(1, Ordering::SeqCst) + 1 >= limit
                    {
                        // It is done, and nobody is told any more.
                        crash.send_replace(true);
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, kube::Error>(answer)
                }
            });
            drop(operators::run(Client::new(tapped, "default"), &reach, options));
        });
        Process { runtime, writes, crashed, limit }
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst).min(self.limit)
    }

    /// Waits for the end of an act, and says that it came; or that the process crashed before.
    async fn over(&mut self, life: &LifeOf<'_>, what: &What) -> bool {
        let mut crashed = self.crashed.clone();
        tokio::select! {
            biased;
            _ = crashed.wait_for(|crashed| *crashed) => false,
            () = async {
                life.until(what).await;
                let mut last = (self.writes(), Instant::now());
                while last.1.elapsed() < REST {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if self.writes() != last.0 {
                        last = (self.writes(), Instant::now());
                    }
                }
            } => true,
        }
    }

    /// As by `kill -9`.
    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// Whether a request changes what is, and does not only say what happened.
fn is_state(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    request.method() != Method::GET && !path.ends_with("/events") && !path.contains("/events/")
}

/// Where a life is lived.
struct LifeOf<'l> {
    client: Client,
    namespace: String,
    kubeconfig: &'l Path,
}

impl LifeOf<'_> {
    fn api(&self, (group, version, kind): (&str, &str, &str)) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// `mysql/shop`.
    fn named<'n>(&self, object: &'n str) -> (Api<DynamicObject>, &'n str) {
        let (kind, name) = object.split_once('/').unwrap();
        let kind = match kind {
            "mysql" => KINDS[0],
            "mysqlbackup" => KINDS[1],
            "job" => KINDS[4],
            "pvc" => KINDS[8],
            other => panic!("{other} has no kind here"),
        };
        (self.api(kind), name)
    }

    async fn begin(&self) {
        ballast::up::install(&self.client, ballast_packaging::foundation()).await.unwrap();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        ballast::up::install(&self.client, vec![namespace]).await.unwrap();
    }

    async fn end(&self) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
        let namespaces: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        // Nobody holds the finalizers any more.
        for kind in &KINDS[..2] {
            let api = self.api(*kind);
            for left in api.list(&ListParams::default()).await.unwrap() {
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let _ = api.patch(&left.metadata.name.unwrap(), &PatchParams::default(), &free).await;
            }
        }
        let _ = namespaces.delete(&self.namespace, &DeleteParams::default()).await;
    }

    async fn act(&self, what: &What) {
        match what {
            What::Apply(yaml, _) => {
                let object: Value = serde_saphyr::from_str(yaml).unwrap();
                let kind = KINDS.into_iter().find(|kind| object["kind"] == kind.2).unwrap();
                let name = object["metadata"]["name"].as_str().unwrap();
                self.api(kind)
                    .patch(name, &PatchParams::apply("person"), &Patch::Apply(&object))
                    .await
                    .unwrap();
            }
            What::Delete(object) => {
                let (api, name) = self.named(object);
                api.delete(name, &DeleteParams::default()).await.unwrap();
            }
        }
    }

    /// Waits for the signs that an act is over.
    async fn until(&self, what: &What) {
        let began = Instant::now();
        loop {
            let over = match what {
                What::Apply(_, signs) => {
                    let mut over = true;
                    for (object, path, expected) in signs {
                        let (api, name) = self.named(object);
                        let found = api.get_opt(name).await.unwrap();
                        over &= reads(&json!(found), path) == *expected;
                    }
                    over
                }
                What::Delete(object) => {
                    let (api, name) = self.named(object);
                    api.get_opt(name).await.unwrap().is_none()
                }
            };
            if over {
                return;
            }
            if began.elapsed() > PATIENCE {
                panic!("still not after {PATIENCE:?}:\n{}", self.seen().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What there is, without what is random.
    async fn seen(&self) -> String {
        let mut objects = Vec::new();
        for (group, version, kind) in KINDS {
            let listed = self.api((group, version, kind)).list(&ListParams::default()).await.unwrap();
            for mut object in listed
                .items
                .into_iter()
                .filter(|object| object.metadata.name.as_deref() != Some("kube-root-ca.crt"))
            {
                let api_version =
                    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
                object.types = Some(kube::api::TypeMeta { api_version, kind: kind.to_owned() });
                objects.push(Object::new(json!(object)).unwrap());
            }
        }
        let text = canonical(&State::of(objects), &MANAGERS).replace(&self.namespace, "(namespace)");
        let kept =
            text.lines().filter(|line| !CHANCE.iter().any(|chance| line.trim_start().starts_with(chance)));
        kept.map(without_chance).collect::<Vec<_>>().join("\n")
    }
}

/// `.status.phase`.
fn reads(object: &Value, path: &str) -> String {
    let found = path.trim_start_matches('.').split('.').fold(object, |value, field| &value[field]);
    match found {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A line without checksums, the names of files and their sizes.
fn without_chance(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let hex = word.chars().filter(char::is_ascii_hexdigit).count();
        let said = match word {
            _ if hex >= 64 => "(sum)",
            _ if word.contains("backup-20") => "(file)",
            other => other,
        };
        words.push(said.to_owned());
    }
    let line = words.join(" ");
    match line.split_once(" is complete: ") {
        Some((before, _)) => format!("{before} is complete"),
        None => line,
    }
}
