//! How soon a database serves: from being applied, and after its pod was killed; beside the same server prepared,
//! started and killed by hand.
//!
//! By hand is in a pod that runs already, with a volume of the same kind and size: what is compared is all that the
//! operator, the API, the node and the agent add. Both are asked by the same client in the same pod, every 10 ms.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::{IMAGE, Inside, PATIENCE, create, instances, pull};
use crate::{
    node::{until_ready, vanish},
    reconcile,
    started::Started,
    table::{Table, median},
};

const HAND: &str = "hand";
const PREPARE: &str = "mariadb-install-db --datadir=/var/lib/mysql/data --auth-root-authentication-method=normal \
    --skip-test-db --skip-name-resolve > /dev/null 2>&1";
const START: &str = "{ setsid mariadbd --datadir=/var/lib/mysql/data > /dev/null 2>&1 & }";
/// Nobody reaps it in there, so that it is asked and not looked for.
const KILL: &str =
    "kill -9 $(pidof mariadbd); while mariadb -u root -e 'SELECT 1' > /dev/null 2>&1; do sleep 0.01; done";
const CLEAR: &str = "rm -rf /var/lib/mysql/data";
/// What there is to recover.
const ROWS: &str = "CREATE TABLE test_rows (n BIGINT PRIMARY KEY, t VARCHAR(100)); \
    INSERT INTO test_rows SELECT seq, REPEAT('a', 100) FROM seq_1_to_200000;";
const SERVER: &str = "mysql-instance=bench,mysql.operators.example.com/role=server";

/// Measures so many times.
pub async fn measure(ballast: &Path, runs: usize) -> Result<()> {
    pull(ballast)?;
    let (started, _) = Started::up(ballast, &["--memory"])?;
    let client = reconcile::real(&started.kubeconfig).await?;
    let hand = start_pod(&client).await?;
    let (mut by_hand, mut recovered) = (Vec::new(), Vec::new());
    let (mut applied, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let client_line = "mariadb -u root";
        by_hand.push(hand.run(&format!("{PREPARE} && {START} && {}", asked(client_line))).await?);
        hand.run(&format!("mariadb -u root -e \"CREATE DATABASE shop; USE shop; {ROWS}\"")).await?;
        hand.run(KILL).await?;
        recovered.push(hand.run(&format!("{START} && {}", asked(client_line))).await?);
        hand.run(KILL).await?;
        hand.run(CLEAR).await?;
        let (first, again) = operated(&client, &hand).await?;
        applied.push(first);
        killed.push(again);
    }
    let (by_hand, recovered) = (median(by_hand), median(recovered));
    let mut table = Table::new(
        &format!("a server of {IMAGE}, by hand and by the operator (median of {runs})"),
        ["what", "by hand", "operator", "goal"],
    );
    let mut row = |what: &str, hand: f64, operator: f64, goal: String| {
        table.row([what.into(), format!("{hand:.2} s"), format!("{operator:.2} s"), goal]);
    };
    row(
        "prepared and started, to the first query",
        by_hand,
        median(applied),
        format!("1.2 times and 0.5 s: {:.2} s", 1.2 * by_hand + 0.5),
    );
    row(
        "killed, to the next query",
        recovered,
        median(killed),
        format!("the server's own and 1 s: {:.2} s", recovered + 1.0),
    );
    table.print();
    Ok(())
}

/// Asks until there is an answer.
fn asked(client: &str) -> String {
    format!("until {client} -e 'SELECT 1' > /dev/null 2>&1; do sleep 0.01; done")
}

/// The pod in which a server is started by hand, and from which all are asked.
async fn start_pod(client: &Client) -> Result<Inside> {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": HAND},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": HAND},
        "spec": {
            "securityContext": {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999},
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "server", "image": IMAGE, "command": ["sleep", "1000000"],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/var/lib/mysql"}, {"name": "run", "mountPath": "/run/mysqld"},
                ],
            }],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": HAND}}, {"name": "run", "emptyDir": {}},
            ],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let hand = Inside { pods, pod: HAND };
    hand.until("true").await?;
    Ok(hand)
}

/// From being applied to the first query, and from being killed to the next, in seconds.
async fn operated(client: &Client, hand: &Inside) -> Result<(f64, f64)> {
    let began = create(client, "bench", &json!({})).await?;
    let password = password(client).await?;
    let line = format!("MYSQL_PWD={password} mariadb --connect-timeout=1 -h mysql-bench -u clerk shop");
    hand.run(&asked(&line)).await?;
    let first = began.elapsed().as_secs_f64();

    hand.run(&format!("{line} -e \"{ROWS}\"")).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let victim = pods.get("mysql-bench-0").await?.metadata.uid;
    let watching = tokio::spawn(until_ready(client.clone(), SERVER.to_owned(), 1, victim));
    tokio::task::yield_now().await;
    let began = Instant::now();
    pods.delete("mysql-bench-0", &DeleteParams::default().grace_period(0)).await?;
    watching.await??;
    hand.run(&asked(&line)).await?;
    let again = began.elapsed().as_secs_f64();
    vanish(&instances(client), "bench").await?;
    Ok((first, again))
}

/// The user's password, as soon as there is one.
async fn password(client: &Client) -> Result<String> {
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let began = Instant::now();
    loop {
        let data = secrets.get_opt("mysql-secret-bench").await?.and_then(|secret| secret.data);
        if let Some(password) = data.and_then(|mut data| data.remove("password")) {
            return String::from_utf8(password.0).context("a password that is no text");
        }
        ensure!(began.elapsed() < PATIENCE, "there is no password");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
