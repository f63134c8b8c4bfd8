//! What operators ask of the API server while Memcacheds serve and nothing is to be done.
//!
//! They are in this process, ask the servers by their pods' addresses and hold a lease, as they do in a cluster. From
//! outside of it each question to a server would be a request, too.

use std::{
    net::IpAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use ballast::operators::{self, Reach};
use ballast_memcached::Memcached;
use ballast_packaging::NAMESPACE;
use ballast_runtime::{LeaderElection, Options};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams, client::Body};
use tower::service_fn;

use crate::{
    node, reconcile,
    started::{Started, pull},
    table::Table,
};

/// How many Memcacheds there are.
const RESOURCES: usize = 3;
/// For so long nothing is asked before all is taken to be done: longer than servers are left unasked.
const SETTLED: Duration = Duration::from_secs(15);
/// What takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts for so many seconds.
pub async fn measure(ballast: &Path, seconds: u64) -> Result<()> {
    pull(ballast, &["memcached:1.6.9"])?;
    let (started, _) = Started::up(ballast, &["--memory", "--no-operators"])?;
    let client = reconcile::real(&started.kubeconfig).await?;
    ballast::up::install(&client, ballast_packaging::foundation()).await?;
    let asked = Arc::<Asked>::default();
    let election =
        LeaderElection { namespace: NAMESPACE.into(), name: "ballast".into(), identity: "bench".into() };
    let options = Options { leader_election: Some(election), ..Options::default() };
    let operators = operators::run(asked.counting(client.clone()), &Reach::inside(), options);
    reconcile::create_and_wait(&client, "default", RESOURCES).await?;
    node::until_ready(client.clone(), "app=memcached".into(), 3 * RESOURCES, None).await?;

    let mut table = Table::new(
        &format!("operators by pods' addresses, with {RESOURCES} Memcacheds of 3 pods that serve"),
        ["what", "measured", "goal"],
    );
    let what = format!("requests in {seconds} s beyond watches and the lease");
    if is_reached(&client).await? {
        served(&client).await?;
        asked.settle().await?;
        let [before, renewed] = asked.counts();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let [after, renewed_after] = asked.counts();
        table.row([what, (after - before).to_string(), "0".into()]);
        table.row([
            "requests for the lease".into(),
            (renewed_after - renewed).to_string(),
            "1 in 2 s".into(),
        ]);
    } else {
        table.row([what, "pods are not reached from here".into(), "0".into()]);
    }
    table.print();
    operators.stop().await;
    Ok(())
}

/// Whether pods' addresses lead there from this machine.
async fn is_reached(client: &Client) -> Result<bool> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let listed = pods.list(&ListParams::default().labels("app=memcached")).await?;
    let mut addresses = listed.items.into_iter().filter_map(|pod| pod.status?.pod_ip?.parse::<IpAddr>().ok());
    let Some(address) = addresses.next() else { return Ok(false) };
    Ok(tokio::task::spawn_blocking(move || node::ask((address, 11211).into())).await?.is_ok())
}

/// Waits until all servers have answered the operator.
async fn served(client: &Client) -> Result<()> {
    let resources: Api<Memcached> = Api::default_namespaced(client.clone());
    let serves = |one: &Memcached| one.status.as_ref().is_some_and(|status| status.servers.len() == 3);
    let began = Instant::now();
    while !resources.list(&ListParams::default()).await?.items.iter().all(serves) {
        ensure!(began.elapsed() < PATIENCE, "not all servers have answered");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The requests of a client: those for the lease, and all others that are no watches.
#[derive(Default)]
struct Asked {
    others: AtomicUsize,
    lease: AtomicUsize,
}

impl Asked {
    /// A client whose requests are counted.
    fn counting(self: &Arc<Self>, client: Client) -> Client {
        let asked = Arc::clone(self);
        let counted = service_fn(move |request: Request<Body>| {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            if path.contains("/leases") {
                asked.lease.fetch_add(1, Relaxed);
            } else if !query.contains("watch=true") {
                asked.others.fetch_add(1, Relaxed);
            }
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(counted, "default")
    }

    fn counts(&self) -> [usize; 2] {
        [&self.others, &self.lease].map(|count| count.load(Relaxed))
    }

    /// Waits until nothing was asked for a while.
    async fn settle(&self) -> Result<()> {
        let (began, mut last) = (Instant::now(), (self.counts()[0], Instant::now()));
        while last.1.elapsed() < SETTLED {
            ensure!(began.elapsed() < PATIENCE, "it never stops asking");
            tokio::time::sleep(Duration::from_millis(100)).await;
            if self.counts()[0] != last.0 {
                last = (self.counts()[0], Instant::now());
            }
        }
        Ok(())
    }
}
