//! What the proof of a backup costs: the server's own tools and `ballast agent`, on the same server, one after the
//! other.
//!
//! Both dump the same database through the same socket to the same disk. The tool's dump is written plainly and is not
//! synced, or goes through the compression that scripts use; the agent's is compressed, on disk, and read back. The tool
//! writes text letter by letter and bytes in digits, as those have it do who want to read both back anywhere; the agent
//! has it write what can be read back all the same as it is kept, and how long that takes without the agent is shown,
//! too. Both restores end with the data in a server; the agent, which is given what the operator gives it, also prepares
//! that server, dumps it once more, compares, and ends it with everything on disk.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::{BALLAST, IMAGE, Inside, pull};
use crate::{
    directory, reconcile,
    started::Started,
    table::{Table, median},
};

/// Dumps are quick enough to be taken several times.
const RUNS: usize = 3;
/// Bytes that the shop keeps of each order.
struct Payload {
    column: &'static str,
    value: &'static str,
    /// What a row of the table below takes in a dump.
    row: usize,
}

const NONE: Payload = Payload { column: "", value: "", row: 252 };
const BYTES: Payload = Payload { column: ", payload VARBINARY(64)", value: ", UNHEX(SHA1(seq))", row: 295 };

/// The tool, with all that is to be in a backup.
const DUMP: &str = "mariadb-dump --defaults-file=/work/client.cnf --single-transaction --routines --triggers --events \
    --quick --max-allowed-packet=1G --databases shop";
const IN_LETTERS: &str = "--hex-blob --default-character-set=utf8mb4";
const AS_KEPT: &str = "--default-character-set=binary";
const AGENT_DUMP: &str = "rm -f /work/backup-*; /ballast/ballast agent dump mariadb --socket /run/mysqld/mysqld.sock \
    --password-file /work/password --database shop --to /work";
const LOAD: &str = "mariadb --defaults-file=/work/client.cnf < /work/raw.sql";
const AGENT_LOAD: &str = "/ballast/ballast agent restore mariadb --from /work/backup-*.sql.zst --volume /work/three \
    --superuser-password-file /work/password \
    --manifest-sha256=$(sha256sum /work/backup-*.sql.zst.json | cut -d ' ' -f 1)";
const ASK: &str = "mariadb --defaults-file=/work/client.cnf -e 'SELECT 1'";

/// Measures on a database of some size.
pub async fn measure(ballast: &Path, megabytes: usize) -> Result<()> {
    pull(ballast)?;
    let work = directory()?;
    fs::write(work.path().join("password"), "bench")?;
    fs::write(work.path().join("client.cnf"), "[client]\nuser=root\npassword=bench\n")?;
    for name in ["", "one", "two", "three"] {
        let path = work.path().join(name);
        fs::create_dir_all(&path)?;
        fs::set_permissions(path, Permissions::from_mode(0o777))?;
    }
    let (started, _) = Started::up(ballast, &["--memory", "--no-operators"])?;
    let pods: Api<Pod> = Api::default_namespaced(reconcile::real(&started.kubeconfig).await?);
    for name in ["one", "two"] {
        pods.create(&PostParams::default(), &serde_json::from_value(pod(name, work.path()))?).await?;
    }
    let [one, two] = ["one", "two"].map(|pod| Inside { pods: pods.clone(), pod });
    let measured = compare(&one, &two, megabytes).await;
    // What servers wrote is theirs to remove.
    let cleared = one.run("rm -rf /work/*").await;
    measured?.print();
    cleared.map(drop)
}

/// A server on a directory: one to be dumped, one to be loaded.
fn pod(name: &str, work: &Path) -> Value {
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "securityContext": {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999},
            "initContainers": [{
                "name": "install", "image": BALLAST, "args": ["agent", "install", "/ballast"],
                "volumeMounts": [mount("ballast", "/ballast")],
            }],
            "containers": [{
                "name": "server", "image": IMAGE,
                "command": [
                    "/ballast/ballast", "agent", "run", "mariadb", "--volume", format!("/work/{name}"),
                    "--superuser-password-file", "/work/password",
                ],
                "volumeMounts": [mount("work", "/work"), mount("ballast", "/ballast"), mount("run", "/run/mysqld")],
            }],
            "volumes": [
                {"name": "work", "hostPath": {"path": work, "type": "Directory"}},
                {"name": "ballast", "emptyDir": {}}, {"name": "run", "emptyDir": {}},
            ],
        },
    })
}

async fn compare(one: &Inside, two: &Inside, megabytes: usize) -> Result<Table> {
    one.until(ASK).await?;
    two.until(ASK).await?;
    let letters = dumped(one, megabytes, &NONE).await?;
    let bytes = dumped(one, megabytes, &BYTES).await?;
    let (tool_load, agent_load) = (two.run(LOAD).await?, one.run(AGENT_LOAD).await?);
    let mut table = Table::new(
        &format!(
            "a database of {megabytes} MB, dumped (median of {RUNS}) and restored (once) by {IMAGE}'s tools and by the agent"
        ),
        ["what", "tool", "agent", "of the tool's throughput", "goal"],
    );
    let mut row = |what: &str, tool: f64, agent: f64, goal: &str| {
        let said = |seconds: f64| format!("{seconds:.1} s, {:.0} MB/s", megabytes as f64 / seconds);
        table.row([what.into(), said(tool), said(agent), format!("{:.2}", tool / agent), goal.into()]);
    };
    for (of, times) in [("text", letters), ("text and bytes", bytes)] {
        let tool = format!("backup of {of}, the tool's neither compressed nor synced");
        row(&tool, times.raw, times.agent, "0.90 or more");
        let tool = format!("backup of {of}, the tool's through gzip -1");
        row(&tool, times.compressed, times.agent, "for comparison");
        let tool = format!("backup of {of}, the tool's as it is kept");
        row(&tool, times.as_kept, times.agent, "for comparison");
    }
    row("restore, the agent's compared with the backup", tool_load, agent_load, "0.90 or more");
    Ok(table)
}

/// How long each way to dump a database takes.
struct Dumped {
    raw: f64,
    compressed: f64,
    as_kept: f64,
    agent: f64,
}

async fn dumped(server: &Inside, megabytes: usize, payload: &Payload) -> Result<Dumped> {
    let fill = fill(megabytes * 1_000_000 / payload.row, payload);
    server.run(&format!("mariadb --defaults-file=/work/client.cnf -e \"{fill}\"")).await?;
    let ways = [
        format!("{DUMP} {IN_LETTERS} | gzip -1 > /work/raw.sql.gz"),
        format!("{DUMP} {AS_KEPT} > /work/raw.sql"),
        format!("{DUMP} {IN_LETTERS} > /work/raw.sql"),
        AGENT_DUMP.to_owned(),
    ];
    let mut took = [const { Vec::new() }; 4];
    for _ in 0..RUNS {
        for (way, took) in ways.iter().zip(&mut took) {
            took.push(server.run(way).await?);
        }
    }
    let [compressed, as_kept, raw, agent] = took.map(median);
    Ok(Dumped { raw, compressed, as_kept, agent })
}

/// Orders of a shop: numbers, dates, texts that repeat and some that don't, and perhaps a few bytes.
fn fill(rows: usize, payload: &Payload) -> String {
    let Payload { column, value, .. } = payload;
    format!(
        "CREATE OR REPLACE DATABASE shop; USE shop; CREATE TABLE orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, \
         customer INT NOT NULL, created DATETIME NOT NULL, total DECIMAL(10, 2), status VARCHAR(16), \
         note VARCHAR(400){column}, KEY (customer)); INSERT INTO orders \
         SELECT seq, seq % 50000, '2024-01-01' + INTERVAL seq SECOND, (seq * 7919 % 100000) / 100, \
         ELT(1 + seq % 4, 'new', 'paid', 'shipped', 'it''s back'), CONCAT('order ', seq, ' of customer ', seq % 50000, \
         ' was placed through ', ELT(1 + seq % 3, 'the web shop', 'telephone', 'a partner agent'), \
         ' and is to be delivered to ', MD5(seq), '; please ring the bell ', REPEAT('and wait ', seq % 12)) \
         {value} FROM seq_1_to_{rows};"
    )
}
