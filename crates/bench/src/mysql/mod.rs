//! What databases cost: beside the same server started by hand, beside the server's own tools, and in the operators'
//! own process.

pub mod backup;
pub mod operators;
pub mod serving;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{AttachParams, AttachedProcess, DynamicObject, PostParams},
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::{node::custom, started};

const IMAGE: &str = "mariadb:11.8";
const BALLAST: &str = concat!("ballast:", env!("CARGO_PKG_VERSION"));
/// What takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(120);

fn pull(ballast: &Path) -> Result<()> {
    started::pull(ballast, &[IMAGE, BALLAST])
}

fn instances(client: &Client) -> Api<DynamicObject> {
    custom(client, "operators.example.com", "v1alpha1", "MySQL")
}

/// A MySQL that leaves nothing behind; gives when it was asked for.
async fn create(client: &Client, name: &str, more: &Value) -> Result<Instant> {
    let mut resource = json!({
        "apiVersion": "operators.example.com/v1alpha1", "kind": "MySQL", "metadata": {"name": name},
        "spec": {
            "databaseName": "shop", "databaseUser": "clerk", "mysqlVersion": "11.8", "storageSize": "1Gi",
            "deletionPolicy": "Delete",
        },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        resource["spec"][field] = value.clone();
    }
    let resource = serde_json::from_value(resource)?;
    let began = Instant::now();
    instances(client).create(&PostParams::default(), &resource).await?;
    Ok(began)
}

/// A container to run scripts in.
struct Inside {
    pods: Api<Pod>,
    pod: &'static str,
}

impl Inside {
    /// Runs a script, and gives the seconds that it took.
    async fn run(&self, script: &str) -> Result<f64> {
        let how = AttachParams::default().stderr(true).stdout(true);
        let began = Instant::now();
        let mut process = self.pods.exec(self.pod, ["sh", "-c", script], &how).await?;
        let (output, complaint) = tokio::join!(read(process.stdout()), read(process.stderr()));
        let status = ended(&mut process).await?;
        let seconds = began.elapsed().as_secs_f64();
        ensure!(status == "Success", "{script}: {}{}", output?, complaint?);
        Ok(seconds)
    }

    /// Runs a script again and again until it succeeds.
    async fn until(&self, script: &str) -> Result<()> {
        let began = Instant::now();
        while let Err(why) = self.run(script).await {
            if began.elapsed() > PATIENCE {
                return Err(why.context(format!("{} is not there after {PATIENCE:?}", self.pod)));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
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
