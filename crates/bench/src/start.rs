//! How fast a cluster is there, and what it weighs.

use std::{path::Path, time::Instant};

use anyhow::Result;
use drydock::Drydock;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};

use crate::{
    started::{Started, resident},
    table::{Table, median},
};

/// Enough for a median that one hiccup does not move.
const RUNS: usize = 15;

/// `ballast up --memory --no-node`, from being started to `ready`.
pub fn binary(ballast: &Path) -> Result<Table> {
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (started, milliseconds) = Started::up(ballast, &["--memory", "--no-node"])?;
        times.push(milliseconds);
        sizes.push(resident(started.id())?);
    }
    let mut table = Table::new(
        "`ballast up --memory --no-node`, every operator in it (median of 15)",
        ["what", "measured", "goal"],
    );
    table.row(["start to ready".into(), format!("{:.0} ms", median(times)), "under 200 ms".into()]);
    table.row(["resident at ready".into(), format!("{:.1} MB", median(sizes)), "under 40 MB".into()]);
    Ok(table)
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
