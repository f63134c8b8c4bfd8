//! What `make bench` prints.
//!
//! Each table is measured in one run on one machine, and says its goal beside the figure. Nothing here fails on
//! a slow machine: a benchmark is not a test. With `--real KUBECONFIG` the API and the reconciling are measured on that
//! cluster too, and with `--sample-controller PROGRAM` Kubernetes' own sample-controller beside it.

mod api;
mod backup;
mod node;
mod reconcile;
mod sample_controller;
mod start;
mod started;
mod table;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// Measures how fast Ballast starts and reconciles.
#[derive(Debug, Parser)]
struct Arguments {
    /// The binary to start [default: the one beside this program]
    #[arg(long)]
    ballast: Option<PathBuf>,
    /// How many Memcacheds to create.
    #[arg(long, default_value_t = 1000)]
    resources: usize,
    /// How long to listen to a converged operator, in seconds.
    #[arg(long, default_value_t = 60)]
    quiet: u64,
    /// The kubeconfig of a real cluster to measure beside.
    #[arg(long)]
    real: Option<PathBuf>,
    /// Measure no pods.
    #[arg(long)]
    no_node: bool,
    /// How large the database is that is dumped and restored, in MB; none where it is 0.
    #[arg(long, default_value_t = 1074)]
    backup: usize,
    /// Measure backups alone.
    #[arg(long, conflicts_with = "only_api")]
    only_backup: bool,
    /// Measure the API server alone.
    #[arg(long)]
    only_api: bool,
    /// The real cluster has a node, with the images there: measure pods on it too.
    #[arg(long, requires = "real")]
    real_node: bool,
    /// Kubernetes' sample-controller, to be measured on the real cluster.
    #[arg(long, requires = "real")]
    sample_controller: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let ballast = match arguments.ballast {
        Some(program) => program,
        None => std::env::current_exe()?.with_file_name("ballast"),
    };
    if arguments.only_backup {
        return backup::measure(&ballast, arguments.backup).await;
    }
    api::measure(&ballast, arguments.real.as_deref()).await?;
    if arguments.only_api {
        return Ok(());
    }
    start::binary(&ballast)?.print();
    start::in_process().await?.print();
    if !arguments.no_node {
        node::measure(&ballast, arguments.real.as_deref().filter(|_| arguments.real_node)).await?;
        if arguments.backup > 0 {
            backup::measure(&ballast, arguments.backup).await?;
        }
    }
    let mut reconciling = table::Table::new(
        "from creation to children and status written",
        ["on", "resources", "seconds", "per second", "requests each", "goal"],
    );
    reconcile::on_drydock(arguments.resources, arguments.quiet, &mut reconciling).await?;
    if let Some(kubeconfig) = &arguments.real {
        reconcile::on_real(kubeconfig, arguments.resources, &mut reconciling).await?;
        if let Some(program) = &arguments.sample_controller {
            sample_controller::measure(program, kubeconfig, arguments.resources, &mut reconciling).await?;
        }
    }
    reconciling.print();
    Ok(())
}
