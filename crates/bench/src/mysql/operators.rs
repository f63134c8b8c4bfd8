//! What the operators' own process weighs with many databases, and what it writes when there is nothing to do.
//!
//! `ballast run` is a process of its own here, as in a cluster, and counts its requests itself. Where it is weighed
//! nobody runs the pods: the API server and the controllers make all objects that there would be, so that everything
//! is in the operators' memory but what servers answer. Where its writes are counted, servers run and are asked.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};

use super::{PATIENCE, create, instances, pull};
use crate::{
    reconcile,
    started::{Started, resident},
    table::Table,
};

/// Databases that are created at a time.
const AT_ONCE: usize = 16;
/// For so long nothing is written before all is taken to be done: longer than servers are left unasked.
const SETTLED: Duration = Duration::from_secs(15);
/// Servers that run where writes are counted.
const SERVERS: usize = 3;

/// What the process weighs with so many databases.
pub async fn memory(ballast: &Path, count: usize) -> Result<()> {
    let (started, _) = Started::up(ballast, &["--memory", "--no-node", "--no-operators"])?;
    let operators = Operators::start(ballast, &started).await?;
    let empty = operators.settled(Duration::from_secs(2)).await.and(resident(operators.child.id()))?;
    let client = reconcile::real(&started.kubeconfig).await?;
    let schedule = json!({"backupSchedule": "0 2 * * *"});
    futures::stream::iter(0..count)
        .map(|number| {
            let (client, schedule) = (&client, &schedule);
            async move { create(client, &format!("shop-{number}"), schedule).await }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| std::future::ready(Ok(())))
        .await?;
    let said = |one: &DynamicObject| !one.data["status"]["observedGeneration"].is_null();
    wait(&started, count, said).await?;
    operators.settled(SETTLED).await?;
    let mut table = Table::new(
        "`ballast run` as its own process; the databases' pods are there, and nobody runs them",
        ["what", "measured", "goal"],
    );
    table.row(["resident with no database".into(), format!("{empty:.1} MB"), String::new()]);
    let full = resident(operators.child.id())?;
    table.row([format!("resident with {count} databases"), format!("{full:.1} MB"), "under 60 MB".into()]);
    table.print();
    Ok(())
}

/// What the process writes while servers run and nothing is to be done.
pub async fn writes(ballast: &Path, seconds: u64) -> Result<()> {
    pull(ballast)?;
    let (started, _) = Started::up(ballast, &["--memory", "--no-operators"])?;
    let operators = Operators::start(ballast, &started).await?;
    let client = reconcile::real(&started.kubeconfig).await?;
    for number in 0..SERVERS {
        create(&client, &format!("shop-{number}"), &json!({"backupSchedule": "0 2 1 1 *"})).await?;
    }
    wait(&started, SERVERS, |one| one.data["status"]["phase"] == "Ready").await?;
    operators.settled(SETTLED).await?;
    let before = operators.writes()?;
    ensure!(before > 0.0, "its writes are not counted");
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = operators.writes()?;
    let mut table = Table::new(
        &format!("`ballast run` with {SERVERS} databases that serve, in {seconds} s"),
        ["what", "measured", "goal"],
    );
    table.row(["writes".into(), format!("{:.0}", after - before), "0".into()]);
    table.print();
    Ok(())
}

/// Waits until all databases are so.
async fn wait(started: &Started, count: usize, are: impl Fn(&DynamicObject) -> bool) -> Result<()> {
    let instances = instances(&reconcile::real(&started.kubeconfig).await?);
    let began = Instant::now();
    loop {
        let listed = instances.list(&ListParams::default()).await?;
        if listed.items.iter().filter(|one| are(one)).count() >= count {
            return Ok(());
        }
        let statuses: Vec<&Value> = listed.items.iter().map(|one| &one.data["status"]["message"]).collect();
        ensure!(began.elapsed() < PATIENCE, "not all databases are there: {statuses:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A `ballast run` of our own.
struct Operators {
    child: Child,
    metrics: String,
}

impl Operators {
    async fn start(ballast: &Path, started: &Started) -> Result<Self> {
        let client = reconcile::real(&started.kubeconfig).await?;
        ballast::up::install(&client, ballast_packaging::foundation()).await?;
        // Somebody else may take the port in between; then the process says so and ends.
        let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let child = Command::new(ballast)
            .args(["run", "--health-probe-bind-address", "0", "--metrics-bind-address", &metrics])
            .env("KUBECONFIG", &started.kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let operators = Operators { child, metrics };
        let began = Instant::now();
        while operators.writes().is_err() {
            ensure!(began.elapsed() < PATIENCE, "`ballast run` does not come up");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(operators)
    }

    /// Its writes, as it counts them.
    fn writes(&self) -> Result<f64> {
        let mut connection = TcpStream::connect(&self.metrics)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        write!(connection, "GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.metrics)?;
        let mut text = String::new();
        connection.read_to_string(&mut text)?;
        let counted = text.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
        let writes = counted.filter(|line| !line.contains("method=\"GET\""));
        writes.map(|line| Ok(line.rsplit(' ').next().context("no count")?.parse::<f64>()?)).sum()
    }

    /// Waits until nothing was written for a while.
    async fn settled(&self, quiet: Duration) -> Result<()> {
        let (began, mut last) = (Instant::now(), (self.writes()?, Instant::now()));
        while last.1.elapsed() < quiet {
            ensure!(began.elapsed() < PATIENCE + quiet, "it never stops writing");
            tokio::time::sleep(Duration::from_millis(500)).await;
            let writes = self.writes()?;
            if writes != last.0 {
                last = (writes, Instant::now());
            }
        }
        Ok(())
    }
}

impl Drop for Operators {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
