//! Reaching the cluster that was named.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_engines::Reach;
use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::configuration::Cluster;
use crate::failure::{Advise as _, Explain as _, Failure};

/// A server that is there answers its first request well within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who comes without credentials, where the server lets them in at all.
const ANONYMOUS: &str = "system:anonymous";

/// A cluster that has answered once.
pub struct Connected {
    /// To talk to it.
    pub client: Client,
    /// What it is called on the network: `127.0.0.1:6443`.
    pub host: String,
    /// How its pods are reached: from within it by their addresses, from anywhere else through its API.
    pub reach: Reach,
}

/// Reaches a cluster.
///
/// # Errors
/// The kubeconfig is none, or the cluster does not answer, or it does not know who we are.
pub async fn connect(cluster: &Cluster) -> Result<Connected, Failure> {
    let mut config = match cluster {
        Cluster::Kubeconfig(files) => from_files(files).await?,
        Cluster::Pod => Config::incluster()
            .what("no cluster: KUBECONFIG is not set, and what this pod knows of its cluster is not enough")
            .advise("mount the ServiceAccount's token, or name a cluster with KUBECONFIG")?,
    };
    let (url, from) = (config.cluster_url.to_string(), origin(cluster));
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    config.connect_timeout = Some(PATIENCE);
    let agent = HeaderValue::from_static(concat!("ballast/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let client = Client::try_from(config).what(format!("the cluster of {from} can't be used"))?;
    let which = format!("the cluster at {} ({from})", url.trim_end_matches('/'));
    match tokio::time::timeout(PATIENCE, recognised(&client)).await {
        Ok(answer) => answer.map_err(|error| {
            let (next, there) = (advice(&error), matches!(error, kube::Error::Api(_)));
            let what = format!("can't {} {which}", if there { "use" } else { "reach" });
            Failure::from(anyhow::Error::from(error).context(what)).advise(next)
        })?,
        Err(_) => {
            let silent = format!("can't reach {which}: no answer within {} seconds", PATIENCE.as_secs());
            return Err(Failure::new(silent).advise("is it running, and is it the one you mean?"));
        }
    };
    let reach = match cluster {
        Cluster::Pod => Reach::inside(),
        Cluster::Kubeconfig(_) => Reach::outside(client.clone()),
    };
    Ok(Connected { client, host, reach })
}

/// The server answers, and not only what it tells everybody: it knows us for somebody.
async fn recognised(client: &Client) -> Result<(), kube::Error> {
    client.apiserver_version().await?;
    let review = Api::<SelfSubjectReview>::all(client.clone());
    match review.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Err(kube::Error::Api(status)) if status.code != 401 && !status.message.contains(ANONYMOUS) => Ok(()),
        answer => answer.map(drop),
    }
}

/// What to do about a first request that failed.
fn advice(error: &kube::Error) -> &'static str {
    let said = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    if said.map(ToString::to_string).any(|text| text.contains("invalid peer certificate")) {
        return "does the kubeconfig have this cluster's certificate-authority-data?";
    }
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            "it is there, and does not take this kubeconfig's user: get a token or certificate for it"
        }
        _ => "is it running, and is it the one you mean?",
    }
}

fn origin(cluster: &Cluster) -> String {
    match cluster {
        Cluster::Pod => "the one this pod is in".to_owned(),
        Cluster::Kubeconfig(files) => {
            let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            format!("kubeconfig {}", names.join(":"))
        }
    }
}

async fn from_files(files: &[PathBuf]) -> Result<Config, Failure> {
    let next = "name a kubeconfig with KUBECONFIG, or start a cluster with `ballast up`";
    // Of several files those that are not there are passed over, as kubectl does.
    let there: Vec<&Path> =
        files.iter().map(PathBuf::as_path).filter(|file| files.len() == 1 || file.exists()).collect();
    let mut merged: Option<Kubeconfig> = None;
    for file in there {
        let what = format!("{} is no kubeconfig", file.display());
        let text = std::fs::read_to_string(file)
            .what(format!("can't read the kubeconfig {}", file.display()))
            .advise(next)?;
        let one = Kubeconfig::from_yaml(&text).what(&what).advise(next)?;
        if one.clusters.is_empty() && files.len() == 1 {
            return Err(Failure::new(format!("{what}: it names no cluster")).advise(next));
        }
        merged = Some(match merged {
            Some(before) => before.merge(one).what(&what).advise(next)?,
            None => one,
        });
    }
    let from = origin(&Cluster::Kubeconfig(files.to_vec()));
    let merged =
        merged.ok_or_else(|| Failure::new(format!("none of the files is there: {from}")).advise(next))?;
    Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await.what(from).advise(next)
}
