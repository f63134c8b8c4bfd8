//! How fast resources are reconciled, and what that asks of the API server.

use std::{
    collections::HashSet,
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use ballast::operators::{self, Reach};
use ballast_memcached::{Memcached, MemcachedSpec};
use ballast_packaging::{NAMESPACE, SERVICE_ACCOUNT};
use ballast_runtime::Options;
use drydock::{Drydock, Identity, Verb};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt, watcher},
};

use crate::table::Table;

/// Writers of resources: as many as `kubectl` and CI pipelines of a busy team.
const WRITERS: usize = 16;
/// A run that takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often the end is looked for.
const PAUSE: Duration = Duration::from_millis(20);

/// Everything in this process: API server, controllers, operators.
pub async fn on_drydock(count: usize, quiet: u64, table: &mut Table) -> Result<()> {
    let drydock = Drydock::builder().requests(count * 100).start().await?;
    let operator = Identity::service_account(NAMESPACE, SERVICE_ACCOUNT, "");
    ballast::up::install(&drydock.client(), ballast_packaging::foundation()).await?;
    let manager = operators::run(drydock.client_as(operator.clone()), &Reach::inside(), Options::default());
    let seconds = create_and_wait(&drydock.client(), "default", count).await?;
    settle(&drydock, &operator).await;
    let asked = asked(&drydock, &operator);
    let each = asked as f64 / count as f64;
    table.row(row("drydock, in memory", count, seconds, format!("{each:.1}"), "200 per second"));

    drydock.requests().clear();
    tokio::time::sleep(Duration::from_secs(quiet)).await;
    let mut silence = Table::new(
        "a converged operator; the pods are there, and nobody runs them",
        ["what", "measured", "goal"],
    );
    let after = self::asked(&drydock, &operator);
    silence.row([format!("requests in {quiet} s beyond watches"), after.to_string(), "0".into()]);
    silence.print();
    manager.stop().await;
    drydock.shutdown().await;
    Ok(())
}

/// The same operators on a real cluster.
pub async fn on_real(kubeconfig: &Path, count: usize, table: &mut Table) -> Result<()> {
    let client = real(kubeconfig).await?;
    ballast::up::install(&client, ballast_packaging::foundation()).await?;
    let manager = operators::run(client.clone(), &Reach::outside(client.clone()), Options::default());
    let seconds = create_and_wait(&client, "default", count).await?;
    let version = client.apiserver_version().await?.git_version;
    table.row(row(&format!("Kubernetes {version}"), count, seconds, "".into(), "200 per second"));
    manager.stop().await;
    let all: Api<Memcached> = Api::namespaced(client, "default");
    all.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// A client that is not held back: this is about the server and the operators.
pub async fn real(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A row of the table.
pub fn row(on: &str, count: usize, seconds: f64, each: String, goal: &str) -> [String; 6] {
    let rate = count as f64 / seconds;
    [on.into(), count.to_string(), format!("{seconds:.2}"), format!("{rate:.0}"), each, goal.into()]
}

/// Creates Memcacheds, and waits until all have a status and their children; in seconds.
pub async fn create_and_wait(client: &Client, namespace: &str, count: usize) -> Result<f64> {
    let resources: Api<Memcached> = Api::namespaced(client.clone(), namespace);
    let began = Instant::now();
    let create = futures::stream::iter(0..count)
        .map(|number| {
            let resources = resources.clone();
            async move {
                let spec =
                    MemcachedSpec { size: 3, version: Some("1.6.9".into()), image: None, resources: None };
                resources
                    .create(&PostParams::default(), &Memcached::new(&format!("cache-{number}"), spec))
                    .await
            }
        })
        .buffer_unordered(WRITERS)
        .map_err(anyhow::Error::from)
        .try_for_each(|_| std::future::ready(Ok(())));
    let all = async { tokio::try_join!(create, all_said(resources.clone(), count)) };
    let late = || format!("not all resources were reconciled in {PATIENCE:?}");
    tokio::time::timeout(PATIENCE, all).await.with_context(late)??;
    while !all_there(client, namespace, count).await? {
        ensure!(began.elapsed() < PATIENCE, late());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Waits until so many resources have a status that speaks of what they ask for.
async fn all_said(resources: Api<Memcached>, count: usize) -> Result<()> {
    let mut said = HashSet::new();
    let mut seen = pin!(watcher(resources, watcher::Config::default()).applied_objects());
    while said.len() < count {
        let resource = seen.try_next().await?.context("the watch ended")?;
        let status = resource.status.as_ref();
        if status.is_some_and(|status| status.observed_generation == resource.metadata.generation) {
            said.insert(resource.name_any());
        }
    }
    Ok(())
}

/// Whether every resource has its children.
async fn all_there(client: &Client, namespace: &str, count: usize) -> Result<bool> {
    let one = ListParams::default().limit(1);
    let ours = |remaining: Option<i64>| remaining.map_or(1, |more| more + 1) >= count as i64;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    Ok(ours(deployments.list(&one).await?.metadata.remaining_item_count)
        && ours(services.list(&one).await?.metadata.remaining_item_count)
        && ours(budgets.list(&one).await?.metadata.remaining_item_count))
}

/// What the operators asked for, watches aside.
fn asked(drydock: &Drydock, operator: &Identity) -> usize {
    let entries = drydock.requests().entries();
    entries.iter().filter(|entry| entry.user == operator.username && entry.verb != Verb::Watch).count()
}

/// Waits until the operators have asked for nothing for a second.
async fn settle(drydock: &Drydock, operator: &Identity) {
    let mut last = (asked(drydock, operator), Instant::now());
    while last.1.elapsed() < Duration::from_secs(1) {
        tokio::time::sleep(PAUSE).await;
        let now = asked(drydock, operator);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

/// The path as text, for a program's argument.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
