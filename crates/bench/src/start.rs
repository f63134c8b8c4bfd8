//! How fast a cluster is there, and what it weighs.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use drydock::Drydock;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};

use crate::table::{Table, median};

/// Enough for a median that one hiccup does not move.
const RUNS: usize = 15;

/// `ballast up --memory --no-node`, from being started to `ready`.
pub fn binary(ballast: &Path) -> Result<Table> {
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (milliseconds, megabytes) = once(ballast)?;
        times.push(milliseconds);
        sizes.push(megabytes);
    }
    let mut table = Table::new(
        "`ballast up --memory --no-node`, every operator in it (median of 15)",
        ["what", "measured", "goal"],
    );
    table.row(["start to ready".into(), format!("{:.0} ms", median(times)), "under 200 ms".into()]);
    table.row(["resident at ready".into(), format!("{:.1} MB", median(sizes)), "under 40 MB".into()]);
    Ok(table)
}

fn once(ballast: &Path) -> Result<(f64, f64)> {
    let began = Instant::now();
    let mut child = Command::new(ballast)
        .args(["up", "--memory", "--no-node", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("can't start {}: run `make build` first", ballast.display()))?;
    let measured = wait_for_ready(&mut child, began);
    // SIGTERM, so that it takes its kubeconfig away.
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    child.wait()?;
    measured
}

fn wait_for_ready(child: &mut Child, began: Instant) -> Result<(f64, f64)> {
    let output = child.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
    if !line.starts_with("ready") {
        bail!("ballast up said {line:?} instead of ready");
    }
    Ok((milliseconds, resident(child.id())?))
}

/// The resident memory of a process, in MB.
fn resident(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<f64>().ok())
        .context("no VmRSS")?;
    Ok(kilobytes * 1024.0 / 1e6)
}

/// A cluster in this process, from nothing to its first answer.
pub async fn in_process() -> Result<Table> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        let drydock = Drydock::builder().start().await?;
        let namespaces: Api<Namespace> = Api::all(drydock.client());
        namespaces.list(&ListParams::default()).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        drydock.shutdown().await;
    }
    let mut table =
        Table::new("a cluster in the test's own process (median of 15)", ["what", "measured", "goal"]);
    table.row(["start to first answer".into(), format!("{:.1} ms", median(times)), "under 20 ms".into()]);
    Ok(table)
}
