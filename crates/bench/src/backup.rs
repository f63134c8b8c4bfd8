//! What the proof of a backup costs: the server's own tools and `ballast agent`, on the same server, one after the
//! other.
//!
//! Both dump the same databases with the same options through the same socket. The tool's dump is written plainly and
//! is not synced; the agent's is compressed, on disk, and read back. Both restores end with the data in a server; the
//! agent's also prepares that server, dumps it once more, compares, and ends it with everything on disk.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{AttachParams, AttachedProcess, PostParams},
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::{
    reconcile,
    started::Started,
    table::{Table, median},
};

const IMAGE: &str = "mariadb:11.8";
const BALLAST: &str = concat!("ballast:", env!("CARGO_PKG_VERSION"));
/// Dumps are quick enough to be taken several times.
const RUNS: usize = 3;
/// What a row of the table below takes in a dump.
const ROW: usize = 295;
const PATIENCE: Duration = Duration::from_secs(60);

/// The tool with what the agent gives it.
const DUMP: &str = "mariadb-dump --defaults-file=/work/client.cnf --single-transaction --routines --triggers --events \
    --hex-blob --quick --default-character-set=utf8mb4 --max-allowed-packet=1G --databases shop > /work/raw.sql";
const AGENT_DUMP: &str = "rm -f /work/backup-*; /ballast/ballast agent dump mariadb --socket /work/one.sock \
    --password-file /work/password --database shop --to /work";
const LOAD: &str = "mariadb --defaults-file=/work/client.cnf --socket=/work/two.sock < /work/raw.sql";
const AGENT_LOAD: &str = "/ballast/ballast agent restore mariadb --from /work/backup-*.sql.zst --volume /work/three \
    --superuser-password-file /work/password";

/// Measures on a database of some size.
pub async fn measure(ballast: &Path, megabytes: usize) -> Result<()> {
    let made = Command::new(ballast).args(["image", "pull", IMAGE]).stdout(Stdio::null()).status()?;
    ensure!(made.success(), "the image {IMAGE} can't be made");
    let work = tempfile::tempdir()?;
    fs::write(work.path().join("password"), "bench")?;
    fs::write(
        work.path().join("client.cnf"),
        "[client]\nuser=root\npassword=bench\nsocket=/work/one.sock\n",
    )?;
    for directory in ["", "one", "two", "three"] {
        let path = work.path().join(directory);
        fs::create_dir_all(&path)?;
        fs::set_permissions(path, Permissions::from_mode(0o777))?;
    }
    let (started, _) = Started::up(ballast, &["--memory", "--no-operators"])?;
    let pods: Api<Pod> = Api::default_namespaced(reconcile::real(&started.kubeconfig).await?);
    pods.create(&PostParams::default(), &serde_json::from_value(pod(work.path()))?).await?;
    let servers = Servers { pods };
    let measured = servers.measure(megabytes).await;
    // What servers wrote is theirs to remove.
    servers.run("rm -rf /work/*").await?;
    measured?.print();
    Ok(())
}

/// Two servers on one directory: one to be dumped, one to be loaded.
fn pod(work: &Path) -> Value {
    let server = |name: &str, port: u16| {
        json!({
            "name": name, "image": IMAGE,
            "command": [
                "/ballast/ballast", "agent", "run", "mariadb", "--volume", format!("/work/{name}"),
                "--superuser-password-file", "/work/password", "--",
                format!("--socket=/work/{name}.sock"), format!("--port={port}"),
            ],
            "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "ballast", "mountPath": "/ballast"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "servers"},
        "spec": {
            "securityContext": {"runAsUser": 999, "runAsGroup": 999},
            "initContainers": [{
                "name": "install", "image": BALLAST, "args": ["agent", "install", "/ballast"],
                "volumeMounts": [{"name": "ballast", "mountPath": "/ballast"}],
            }],
            "containers": [server("one", 3306), server("two", 3307)],
            "volumes": [
                {"name": "work", "hostPath": {"path": work, "type": "Directory"}},
                {"name": "ballast", "emptyDir": {}},
            ],
        },
    })
}

struct Servers {
    pods: Api<Pod>,
}

impl Servers {
    async fn measure(&self, megabytes: usize) -> Result<Table> {
        let began = Instant::now();
        for socket in ["one", "two"] {
            let ask = format!(
                "mariadb --defaults-file=/work/client.cnf --socket=/work/{socket}.sock -e 'SELECT 1'"
            );
            while self.run(&ask).await.is_err() {
                ensure!(began.elapsed() < PATIENCE, "the servers do not answer");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        let fill = fill(megabytes * 1_000_000 / ROW);
        self.run(&format!("mariadb --defaults-file=/work/client.cnf -e \"{fill}\"")).await?;

        let (mut raw, mut agent) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            raw.push(self.run(DUMP).await?);
            agent.push(self.run(AGENT_DUMP).await?);
        }
        let mut table = Table::new(
            &format!("a database of {megabytes} MB, dumped and restored by {IMAGE}'s tools and by the agent"),
            ["what", "tool", "agent", "of the tool's throughput", "goal"],
        );
        table.row(row("backup, compressed and read back", median(raw), median(agent)));
        table.row(row(
            "restore, compared with the backup",
            self.run(LOAD).await?,
            self.run(AGENT_LOAD).await?,
        ));
        Ok(table)
    }

    /// Runs a script beside the servers, and gives the seconds that it took.
    async fn run(&self, script: &str) -> Result<f64> {
        let how = AttachParams::default().container("one").stderr(true).stdout(true);
        let began = Instant::now();
        let mut process = self.pods.exec("servers", ["sh", "-c", script], &how).await?;
        let (output, complaint) = tokio::join!(read(process.stdout()), read(process.stderr()));
        let status = ended(&mut process).await?;
        let seconds = began.elapsed().as_secs_f64();
        ensure!(status == "Success", "{script}: {}{}", output?, complaint?);
        Ok(seconds)
    }
}

async fn ended(process: &mut AttachedProcess) -> Result<String> {
    let status = process.take_status().context("no status")?.await.context("no status came")?;
    Ok(status.status.unwrap_or_default())
}

async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> Result<String> {
    let mut text = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut text).await?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn row(what: &str, tool: f64, agent: f64) -> [String; 5] {
    [
        what.into(),
        format!("{tool:.1} s"),
        format!("{agent:.1} s"),
        format!("{:.2}", tool / agent),
        "0.90 or more".into(),
    ]
}

/// Orders of a shop: numbers, dates, texts that repeat and some that don't, a few bytes.
fn fill(rows: usize) -> String {
    format!(
        "CREATE DATABASE shop; USE shop; CREATE TABLE orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL, \
         created DATETIME NOT NULL, total DECIMAL(10, 2), status VARCHAR(16), note VARCHAR(400), payload VARBINARY(64), \
         KEY (customer)); INSERT INTO orders (customer, created, total, status, note, payload) \
         SELECT seq % 50000, '2024-01-01' + INTERVAL seq SECOND, (seq * 7919 % 100000) / 100, \
         ELT(1 + seq % 4, 'new', 'paid', 'shipped', 'it''s back'), CONCAT('order ', seq, ' of customer ', seq % 50000, \
         ' was placed through ', ELT(1 + seq % 3, 'the web shop', 'telephone', 'a partner agent'), \
         ' and is to be delivered to ', MD5(seq), '; please ring the bell ', REPEAT('and wait ', seq % 12)), \
         UNHEX(SHA1(seq)) FROM seq_1_to_{rows};"
    )
}
