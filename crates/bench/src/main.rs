//! What `make bench` prints.
//!
//! Each table is measured in one run on one machine, and says its goal beside the figure. Nothing here fails on
//! a slow machine: a benchmark is not a test. With `--real KUBECONFIG` the API and the reconciling are measured on that
//! cluster too, and with `--sample-controller PROGRAM` Kubernetes' own sample-controller beside it.

mod api;
mod mysql;
mod node;
mod quiet;
mod reconcile;
mod sample_controller;
mod start;
mod started;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use tempfile::TempDir;

/// Measures how fast Ballast starts and reconciles.
#[derive(Debug, Parser)]
struct Arguments {
    /// The binary to start [default: the one beside this program]
    #[arg(long)]
    ballast: Option<PathBuf>,
    /// Measure this alone; may be given several times.
    #[arg(long, value_name = "WHAT")]
    only: Vec<Part>,
    /// How many Memcacheds to create.
    #[arg(long, default_value_t = 1000)]
    resources: usize,
    /// How long to listen to a converged operator, in seconds.
    #[arg(long, default_value_t = 60)]
    quiet: u64,
    /// The kubeconfig of a real cluster to measure beside.
    #[arg(long)]
    real: Option<PathBuf>,
    /// How large the database is that is dumped and restored, in MB.
    #[arg(long, default_value_t = 1074)]
    backup: usize,
    /// How many databases the operators have when they are weighed.
    #[arg(long, default_value_t = 100)]
    databases: usize,
    /// How often a database is started and killed.
    #[arg(long, default_value_t = 5)]
    servers: usize,
    /// The real cluster has a node, with the images there: measure pods on it too.
    #[arg(long, requires = "real")]
    real_node: bool,
    /// Kubernetes' sample-controller, to be measured on the real cluster.
    #[arg(long, requires = "real")]
    sample_controller: Option<PathBuf>,
}

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The API server.
    Api,
    /// How soon many watches are told of a write.
    Watches,
    /// How fast a cluster is there.
    Start,
    /// Pods and Services.
    Node,
    /// From a database's being applied to its first query, and after it was killed.
    MysqlServing,
    /// Dumps and restores of databases.
    MysqlBackup,
    /// What the operators weigh with many databases.
    MysqlMemory,
    /// What the operators write when databases serve and nothing is to be done.
    MysqlWrites,
    /// What the operators ask for when Memcacheds serve and nothing is to be done.
    MemcachedRequests,
    /// How fast resources are reconciled.
    Reconcile,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let ballast = match &arguments.ballast {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("ballast"),
    };
    let real = arguments.real.as_deref();
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let (requests, watches) = (wanted(Part::Api), wanted(Part::Watches));
    if requests || watches {
        api::measure(&ballast, real, requests, watches).await?;
    }
    if wanted(Part::Start) {
        start::binary(&ballast)?.print();
        start::in_process().await?.print();
    }
    if wanted(Part::Node) {
        node::measure(&ballast, real.filter(|_| arguments.real_node)).await?;
    }
    if wanted(Part::MysqlServing) {
        mysql::serving::measure(&ballast, arguments.servers).await?;
    }
    if wanted(Part::MysqlBackup) {
        mysql::backup::measure(&ballast, arguments.backup).await?;
    }
    if wanted(Part::MysqlMemory) {
        mysql::operators::memory(&ballast, arguments.databases).await?;
    }
    if wanted(Part::MysqlWrites) {
        mysql::operators::writes(&ballast, arguments.quiet).await?;
    }
    if wanted(Part::MemcachedRequests) {
        quiet::measure(&ballast, arguments.quiet).await?;
    }
    if wanted(Part::Reconcile) {
        reconcile(&arguments).await?;
    }
    Ok(())
}

async fn reconcile(arguments: &Arguments) -> Result<()> {
    let mut table = table::Table::new(
        "from creation to children and status written",
        ["on", "resources", "seconds", "per second", "requests each", "goal"],
    );
    reconcile::on_drydock(arguments.resources, arguments.quiet, &mut table).await?;
    if let Some(kubeconfig) = &arguments.real {
        reconcile::on_real(kubeconfig, arguments.resources, &mut table).await?;
        if let Some(program) = &arguments.sample_controller {
            sample_controller::measure(program, kubeconfig, arguments.resources, &mut table).await?;
        }
    }
    table.print();
    Ok(())
}

/// A directory on the disk that this program is on: `/tmp` may be memory, where nothing costs a flush.
fn directory() -> Result<TempDir> {
    let program = std::env::current_exe()?;
    Ok(tempfile::tempdir_in(program.parent().context("no directory")?)?)
}
