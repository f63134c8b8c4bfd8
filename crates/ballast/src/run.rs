//! `ballast run`: the operators, against a cluster that is somewhere else.

use ballast_runtime::{Bind, LeaderElection, Options};

use crate::cluster::{self, Connected};
use crate::configuration::{Address, Run};
use crate::failure::{Advise as _, Explain as _, Failure};
use crate::operators;
use crate::signals::Signals;
use crate::up::Stopped;

/// Runs until a signal comes.
///
/// # Errors
/// There is no cluster, a port is taken, or the lease was lost.
pub async fn run(run: &Run) -> Result<Stopped, Failure> {
    let mut signals = Signals::listen()?;
    let metrics = bind(run.metrics.as_ref(), "metrics", "--metrics-bind-address").await?;
    let health = bind(run.health.as_ref(), "health probes", "--health-probe-bind-address").await?;
    let Some(connected) = signals.unless(cluster::connect(&run.cluster)).await else {
        return Ok(Stopped::InOrder);
    };
    let Connected { client, host, reach } = connected?;
    tracing::info!(operators = operators::names().join(", "), namespaces = %run.namespaces, "starting");
    let mut running = operators::run_with(
        &run.agent_image,
        client,
        &reach,
        Options { host, ..options(run, metrics, health) },
    );
    match signals.unless(running.ended()).await {
        Some(failure) => Err(failure),
        None => {
            tracing::info!("stopping");
            match signals.unless(running.stop()).await {
                Some(()) => Ok(Stopped::InOrder),
                None => Ok(Stopped::AtOnce),
            }
        }
    }
}

async fn bind(address: Option<&Address>, what: &str, flag: &str) -> Result<Bind, Failure> {
    let Some(address) = address else { return Ok(Bind::Nowhere) };
    let bound = address.bind().await.what(format!("can't listen on {address} for {what}"));
    bound.map(Bind::On).advise(format!("choose another address with {flag}, or 0 for none"))
}

fn options(run: &Run, metrics: Bind, health: Bind) -> Options {
    Options {
        namespaces: run.namespaces.clone(),
        leader_election: run.lease.as_ref().map(|lease| LeaderElection {
            namespace: lease.namespace.clone(),
            name: lease.name.clone(),
            // As client-go does: two processes on one machine are two.
            identity: format!("{}_{}", run.instance, uuid::Uuid::new_v4()),
        }),
        concurrency: run.concurrency.into(),
        metrics_address: metrics,
        health_address: health,
        serve_recorder: run.recorder,
        instance: run.instance.clone(),
        ..Options::default()
    }
}
