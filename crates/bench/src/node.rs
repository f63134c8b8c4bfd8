//! How fast pods are there, what they weigh, and what a Service costs.
//!
//! The same measurements are made through the API alone wherever there is a cluster with a node; what concerns the
//! processes of the cluster itself only where this program started it.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

use crate::{
    reconcile,
    started::{Started, pull},
    table::{Table, median},
};

/// The images that are measured with.
const IMAGES: [&str; 3] = ["busybox:1.37", "memcached:1.6.9", "prgcont/gordon:v1.0"];
/// Runs of what is quick.
const RUNS: usize = 9;
/// Pods of what is many.
const MANY: usize = 100;
/// Connections of what is quickest.
const CONNECTIONS: usize = 2000;
/// How long idle pods are looked at.
const IDLE: Duration = Duration::from_secs(10);
/// What takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(120);

/// Everything, on a cluster of our own and beside it on a real one where that is given.
pub async fn measure(ballast: &Path, real: Option<&Path>) -> Result<()> {
    pull(ballast, &IMAGES)?;
    let mut table = Table::new("`ballast up --memory` with a node", ["what", "measured", "goal"]);
    let mut starts = Vec::new();
    for _ in 0..RUNS {
        let (started, milliseconds) = Started::up(ballast, &["--memory"])?;
        drop(started);
        starts.push(milliseconds);
    }
    table.row(["start to ready".into(), format!("{:.0} ms", median(starts)), "under 300 ms".into()]);
    let (started, _) = Started::up(ballast, &["--memory"])?;
    let client = reconcile::real(&started.kubeconfig).await?;
    let ours = pods(&client, Some(&started), &mut table).await?;
    drop(started);
    table.print();

    let mut table = Table::new("pods, from the request on", ["what", "drydock", "Kubernetes", "goal"]);
    let theirs = match real {
        Some(kubeconfig) => {
            let client = reconcile::real(kubeconfig).await?;
            ballast::up::install(&client, ballast_packaging::foundation()).await?;
            let reach = ballast::operators::Reach::outside(client.clone());
            let operators =
                ballast::operators::run(client.clone(), &reach, ballast_runtime::Options::default());
            let measured = pods(&client, None, &mut Table::new("", [])).await;
            operators.stop().await;
            Some(measured?)
        }
        None => None,
    };
    for (index, (what, value, goal)) in ours.into_iter().enumerate() {
        let beside =
            theirs.as_ref().and_then(|rows| rows.get(index)).map_or(String::new(), |row| row.1.clone());
        table.row([what, value, beside, goal]);
    }
    table.print();
    Ok(())
}

type Row = (String, String, String);

/// What is seen through the API; and what the cluster's own processes take, where they are ours.
async fn pods(client: &Client, started: Option<&Started>, table: &mut Table) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut say = |what: &str, value: String, goal: &str| rows.push((what.into(), value, goal.into()));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());

    let mut times = Vec::new();
    for _ in 0..RUNS {
        times.push(ready(client, &idle("one", 1), 1).await?);
        remove(&deployments, client, "one").await?;
    }
    say(
        "a Deployment of one pod, to Ready",
        format!("{:.0} ms", median(times)),
        "under 150 ms and its start",
    );

    let mut times = Vec::new();
    for _ in 0..RUNS {
        times.push(memcached(client).await?);
    }
    say("the seed's Memcached, to three ready pods", format!("{:.0} ms", median(times)), "under 1000 ms");

    let milliseconds = ready(client, &idle("many", MANY), MANY).await?;
    say(&format!("{MANY} pods, to Ready"), format!("{:.2} s", milliseconds / 1e3), "under 5 s");
    if let Some(started) = started {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = started.processor()?;
        tokio::time::sleep(IDLE).await;
        let share = (started.processor()? - before) / IDLE.as_secs_f64() * 100.0;
        let what = |what: &str| format!("{what} with {MANY} idle pods");
        table.row([
            what("memory of everything"),
            format!("{:.1} MB", started.memory()?),
            "under 100 MB".into(),
        ]);
        table.row([what("processor"), format!("{share:.2} % of a core"), "under 1 %".into()]);
    }
    remove(&deployments, client, "many").await?;

    let killed = match started {
        Some(started) => kill_gordons(client, started).await?,
        // Its nodes' processes are not ours to kill.
        None => String::new(),
    };
    say("a gordon's process killed, to Ready again", killed, "under 200 ms");
    say("a gordon deleted, to its replacement Ready", delete_gordons(client).await?, "under 200 ms");
    match through_service(client).await? {
        Some(added) => say("a connection through a Service adds", added, "under 100 µs"),
        None => say("a connection through a Service adds", "not reached from here".into(), "under 100 µs"),
    }
    Ok(rows)
}

/// Pods that do nothing.
fn idle(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "idle", "image": IMAGES[0], "command": ["sleep", "1000000"]}],
                },
            },
        },
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

/// Follows the pods of a label until there are as many ready ones other than `not`; gives when that was.
pub async fn until_ready(
    client: Client,
    label: String,
    count: usize,
    not: Option<String>,
) -> Result<Instant> {
    let others =
        move |pods: &Pods| pods.iter().filter(|(uid, _)| Some(*uid) != not.as_ref()).count() >= count;
    until(client, label, others).await.with_context(|| format!("{count} pods were to be ready"))
}

/// The ready pods, by uid, and how often their containers were started again.
type Pods = BTreeMap<String, i32>;

/// Follows the pods of a label until the ready ones are so; gives when that was.
async fn until(client: Client, label: String, are: impl Fn(&Pods) -> bool) -> Result<Instant> {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let changes = watcher(pods, watcher::Config::default().labels(&label)).touched_objects();
    let mut changes = std::pin::pin!(changes);
    let mut ready = Pods::new();
    let seen = async {
        while let Some(pod) = changes.next().await {
            let pod = pod?;
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            if is_ready(&pod) {
                ready.insert(uid, restarts(&pod));
            } else {
                ready.remove(&uid);
            }
            if are(&ready) {
                return Ok(Instant::now());
            }
        }
        bail!("the watch ended")
    };
    tokio::time::timeout(PATIENCE, seen).await.with_context(|| format!("the pods of {label}"))?
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.into_iter().flatten().map(|container| container.restart_count).sum()
}

/// Creates a Deployment and waits for its pods, in milliseconds.
async fn ready(client: &Client, deployment: &Value, count: usize) -> Result<f64> {
    let label = format!("app={}", deployment["metadata"]["name"].as_str().unwrap_or_default());
    let watching = tokio::spawn(until_ready(client.clone(), label, count, None));
    // The watch is on its way before there is anything to see.
    tokio::task::yield_now().await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let deployment = serde_json::from_value(deployment.clone())?;
    let began = Instant::now();
    deployments.create(&PostParams::default(), &deployment).await?;
    Ok(watching.await??.saturating_duration_since(began).as_secs_f64() * 1e3)
}

async fn remove(deployments: &Api<Deployment>, client: &Client, name: &str) -> Result<()> {
    deployments.delete(name, &DeleteParams::background()).await?;
    gone(client, &format!("app={name}")).await
}

async fn gone(client: &Client, label: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let began = Instant::now();
    while !pods.list_metadata(&ListParams::default().labels(label)).await?.items.is_empty() {
        ensure!(began.elapsed() < PATIENCE, "pods of {label} do not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The custom resources of a kind.
pub fn custom(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::default_namespaced_with(client.clone(), &resource)
}

/// Deletes a resource, and waits until it is gone with all that it owned.
pub async fn vanish(resources: &Api<DynamicObject>, name: &str) -> Result<()> {
    resources.delete(name, &DeleteParams::foreground()).await?;
    let began = Instant::now();
    while resources.get_opt(name).await?.is_some() {
        ensure!(began.elapsed() < PATIENCE, "{name} does not go");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The seed's Memcached, in milliseconds.
async fn memcached(client: &Client) -> Result<f64> {
    let resources = custom(client, "cache.example.com", "v1alpha1", "Memcached");
    let resource = json!({
        "apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached",
        "metadata": {"name": "memcached-sample"}, "spec": {"size": 3, "version": "1.6.9"},
    });
    let watching = tokio::spawn(until_ready(client.clone(), "app=memcached".into(), 3, None));
    tokio::task::yield_now().await;
    let resource = serde_json::from_value(resource)?;
    let began = Instant::now();
    resources.create(&PostParams::default(), &resource).await?;
    let milliseconds = watching.await??.saturating_duration_since(began).as_secs_f64() * 1e3;
    vanish(&resources, "memcached-sample").await?;
    Ok(milliseconds)
}

const GORDONS: &str = "gordon_cr=bench";

/// Makes so many gordons, and waits until they are ready.
async fn gordons(client: &Client, count: usize) -> Result<Api<DynamicObject>> {
    let resources = custom(client, "operator.prgcont.cz", "v1", "Gordon");
    let resource = json!({
        "apiVersion": "operator.prgcont.cz/v1", "kind": "Gordon",
        "metadata": {"name": "bench"}, "spec": {"gordon": {"replicas": count}},
    });
    let watching = tokio::spawn(until_ready(client.clone(), GORDONS.into(), count, None));
    resources.create(&PostParams::default(), &serde_json::from_value(resource)?).await?;
    watching.await??;
    Ok(resources)
}

/// Kills the processes of gordons, one after the other. Each once: who dies again soon has to wait, as it should.
async fn kill_gordons(client: &Client, started: &Started) -> Result<String> {
    let resources = gordons(client, RUNS).await?;
    let victims = started.programs("/gordon gordon-server")?;
    ensure!(victims.len() == RUNS, "{} processes of {RUNS} gordons are found", victims.len());
    let (mut times, mut kills) = (Vec::new(), 0);
    for victim in victims {
        kills += 1;
        let whole = move |pods: &Pods| pods.len() == RUNS && pods.values().sum::<i32>() == kills;
        let watching = tokio::spawn(until(client.clone(), GORDONS.into(), whole));
        tokio::task::yield_now().await;
        let began = Instant::now();
        let killed = Command::new("kill").args(["-KILL", &victim.to_string()]).status()?;
        ensure!(killed.success(), "a gordon can't be killed");
        times.push(watching.await??.saturating_duration_since(began).as_secs_f64() * 1e3);
    }
    vanish(&resources, "bench").await?;
    Ok(format!("{:.0} ms", median(times)))
}

/// Deletes one of three gordons, a few times.
async fn delete_gordons(client: &Client) -> Result<String> {
    let resources = gordons(client, 3).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let listed = pods.list(&ListParams::default().labels(GORDONS)).await?;
        let victim = listed.items.iter().find(|pod| is_ready(pod)).context("no gordon is ready")?;
        let name = victim.metadata.name.clone().unwrap_or_default();
        let watching =
            tokio::spawn(until_ready(client.clone(), GORDONS.into(), 3, victim.metadata.uid.clone()));
        tokio::task::yield_now().await;
        let began = Instant::now();
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
        times.push(watching.await??.saturating_duration_since(began).as_secs_f64() * 1e3);
    }
    vanish(&resources, "bench").await?;
    Ok(format!("{:.0} ms", median(times)))
}

/// What a Service adds to connecting to a memcached and asking it for its version; `None` where neither is reached
/// from this machine.
async fn through_service(client: &Client) -> Result<Option<String>> {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let mut server = idle("server", 1);
    server["spec"]["template"]["spec"]["containers"][0] = json!({
        "name": "memcached", "image": IMAGES[1], "readinessProbe": {"tcpSocket": {"port": 11211}},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 11211}]},
    });
    let service = services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    ready(client, &server, 1).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = pods.list(&ListParams::default().labels("app=server")).await?.items.into_iter().next();
    let pod_address = pod.and_then(|pod| pod.status?.pod_ip).context("the pod has no address")?;
    let address = service.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
    let places = [pod_address, address].map(|address| format!("{address}:11211"));
    let measured = tokio::task::spawn_blocking(move || compare(&places)).await??;
    services.delete("server", &DeleteParams::default()).await?;
    remove(&deployments, client, "server").await?;
    let added = |[direct, through]: [f64; 2]| {
        format!("{:.0} µs ({through:.0} µs with it, {direct:.0} µs without)", through - direct)
    };
    Ok(measured.map(added))
}

/// Medians of both places, asked in turn so that what else happens here happens to both; in microseconds.
fn compare(places: &[String; 2]) -> Result<Option<[f64; 2]>> {
    let places: Vec<SocketAddr> = places.iter().map(|place| place.parse()).collect::<Result<_, _>>()?;
    let began = Instant::now();
    while places.iter().any(|place| ask(*place).is_err()) {
        if began.elapsed() > Duration::from_secs(5) {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..CONNECTIONS {
        for (place, times) in places.iter().zip(&mut times) {
            times.push(ask(*place)?);
        }
    }
    Ok(Some(times.map(median)))
}

/// Connects to a memcached and asks it for its version, in microseconds.
pub fn ask(place: SocketAddr) -> Result<f64> {
    let began = Instant::now();
    let mut connection = TcpStream::connect_timeout(&place, Duration::from_secs(1))?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    connection.write_all(b"version\r\n")?;
    let mut answer = [0; 64];
    ensure!(connection.read(&mut answer)? > 0, "no answer");
    Ok(began.elapsed().as_secs_f64() * 1e6)
}
