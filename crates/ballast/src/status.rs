//! `ballast status`: what runs, and how it is, as a `ballast up` and its own API say.
//!
//! **What always holds.** Nothing is said to be well that did not say so itself just now: the operators and the node
//! through the API, each resource by its condition `Ready`, for the generation that it has now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::{SpanRound, Timestamp, Unit};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, ListParams, Request};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use crate::cluster::{self, Connected};
use crate::configuration::{Cluster, Environment, Which};
use crate::failure::{Advise as _, Explain as _, Failure};
use crate::image;
use crate::record::{self, Record};
use crate::shell;
use crate::terminal::{Colour, Tone, columns};

/// An API on this machine says all that is asked here well within this.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a `ballast up` is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(flatten)]
    record: Record,
    /// The length of the log on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operators_missing: Option<String>,
    nodes: Vec<Named>,
    pods: BTreeMap<String, usize>,
    images: Images,
    resources: Vec<Resource>,
}

/// Something with a name, and whether it is ready.
#[derive(Debug, Serialize)]
struct Named {
    name: String,
    ready: String,
}

#[derive(Debug, Serialize)]
struct Images {
    count: usize,
    bytes: u64,
}

/// A resource that Ballast looks after.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    kind: String,
    namespace: String,
    name: String,
    ready: String,
    reason: String,
    message: String,
}

/// Asks.
///
/// # Errors
/// Nothing runs, or it does not answer.
pub async fn status(which: &Which, environment: &Environment) -> Result<Status, Failure> {
    let Some(running) = record::find(which)? else {
        return Err(which.is_down());
    };
    let record = running.record;
    if record.url.is_none() {
        let starting = format!("process {} is still starting", record.process);
        return Err(Failure::new(starting).advise("ask again in a moment"));
    }
    let asking = async {
        let kubeconfig = Cluster::Kubeconfig(vec![record.kubeconfig.clone()]);
        let Connected { client, .. } = cluster::connect(&kubeconfig).await?;
        gather(record, &client, environment).await
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(status) => status,
        Err(_) => {
            Err(Failure::new(format!("it runs, and did not answer within {} seconds", PATIENCE.as_secs()))
                .advise("look at what it prints"))
        }
    }
}

async fn gather(record: Record, client: &Client, environment: &Environment) -> Result<Status, Failure> {
    let what = "it runs, and does not say how it is";
    let everywhere = ListParams::default();
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::all(client.clone()));
    let nodes = nodes.list(&everywhere).await.what(what)?;
    let pods = pods.list(&everywhere).await.what(what)?;
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods {
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_else(|| "Unknown".to_owned());
        *phases.entry(phase).or_default() += 1;
    }
    let kinds = ballast_packaging::parts()
        .into_iter()
        .map(|part| part.resource)
        .filter(|_| !record.operators.is_empty());
    let resources = try_join_all(kinds.map(|kind| async move {
        let kind = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind),
            &kind.plural,
        );
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let listed = all.list(&ListParams::default()).await?;
        Ok::<_, kube::Error>(listed.into_iter().map(move |object| resource(&kind.kind, &object)))
    }))
    .await
    .what(what)?;
    let images = image::store(environment, false)?.list().what("can't list images")?;
    let log = record.directory.as_ref().map(|directory| directory.join("store/log"));
    Ok(Status {
        bytes: log.and_then(|log| log.metadata().ok()).map(|found| found.len()),
        operators_missing: missing(&record, client).await?,
        nodes: nodes.into_iter().map(|node| named(&node)).collect(),
        pods: phases,
        images: Images { count: images.len(), bytes: images.iter().map(|image| image.record.bytes).sum() },
        resources: resources.into_iter().flatten().collect(),
        record,
    })
}

/// What keeps the operators from working, as they say.
async fn missing(record: &Record, client: &Client) -> Result<Option<String>, Failure> {
    if record.operators.is_empty() {
        return Ok(None);
    }
    let question = Request::new("/readyz").get("operators", &Default::default()).what("no question")?;
    match client.request_text(question).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => {
            let line = status.message.lines().next().unwrap_or_default();
            Ok(Some(line.trim_start_matches("[-]operators failed: ").to_owned()))
        }
        Err(error) => Err(error).what("it runs, and does not say how its operators are"),
    }
}

fn named(node: &Node) -> Named {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    Named {
        name: node.name_any(),
        ready: ready.map_or_else(|| "Unknown".to_owned(), |condition| condition.status.clone()),
    }
}

fn resource(kind: &str, object: &DynamicObject) -> Resource {
    let conditions = object.data["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let text = |field: &str| ready.and_then(|found| found[field].as_str()).unwrap_or_default().to_owned();
    let seen = ready.and_then(|found| found["observedGeneration"].as_i64());
    let current = seen.is_some() && seen == object.metadata.generation;
    let [ready, reason, message] = match current {
        true => [text("status"), text("reason"), text("message")],
        false => {
            ["Unknown".to_owned(), "NotSeenYet".to_owned(), "the operator has yet to look at it".to_owned()]
        }
    };
    let namespace = object.namespace().unwrap_or_default();
    Resource { kind: kind.to_owned(), namespace, name: object.name_any(), ready, reason, message }
}

impl Status {
    /// For people.
    pub fn text(&self, now: Timestamp, colour: Colour) -> String {
        let Record { process, since, version, kubernetes, .. } = &self.record;
        let mut text = format!(
            "{} since {} ({}), process {process}\n",
            colour.paint(Tone::Strong, format_args!("ballast {version} runs")),
            since.strftime("%Y-%m-%d %H:%M:%S UTC"),
            age(*since, now)
        );
        let url = self.record.url.as_deref().unwrap_or_default();
        let data = match (self.record.directory.as_deref().map(shell::word), self.bytes) {
            (Some(directory), Some(bytes)) => format!("{directory}, a log of {}", megabytes(bytes)),
            (Some(directory), None) => directory,
            (None, _) => "in memory: gone when it stops".to_owned(),
        };
        let operators = match (&self.record.operators[..], &self.operators_missing) {
            ([], _) => "none".to_owned(),
            (names, None) => format!("{}: at work", names.join(", ")),
            (names, Some(why)) => format!("{}: not at work, {why}", names.join(", ")),
        };
        let rows = [
            ["  cluster".to_owned(), format!("Kubernetes {kubernetes} at {url}")],
            ["  data".to_owned(), data],
            ["  kubeconfig".to_owned(), shell::word(&self.record.kubeconfig)],
            ["  operators".to_owned(), operators],
            ["  node".to_owned(), self.node()],
            ["  pods".to_owned(), self.pods()],
            ["  images".to_owned(), format!("{}, {}", self.images.count, megabytes(self.images.bytes))],
        ];
        text.push_str(&columns(&rows));
        if !self.resources.is_empty() {
            let heading = ["KIND", "NAMESPACE", "NAME", "READY", "REASON", "MESSAGE"].map(str::to_owned);
            let rows = self.resources.iter().map(|resource| {
                let Resource { kind, namespace, name, ready, reason, message } = resource;
                [kind, namespace, name, ready, reason, message].map(Clone::clone)
            });
            let _ = write!(text, "\n{}", columns(&[heading].into_iter().chain(rows).collect::<Vec<_>>()));
        }
        text
    }

    fn node(&self) -> String {
        let said: Vec<String> = self
            .nodes
            .iter()
            .map(|node| match node.ready.as_str() {
                "True" => format!("{}: ready", node.name),
                "False" => format!("{}: not ready", node.name),
                _ => format!("{}: nobody knows", node.name),
            })
            .collect();
        match (said.is_empty(), self.record.node) {
            (false, true) => said.join(", "),
            (_, false) => "none".to_owned(),
            (true, true) => "not there yet".to_owned(),
        }
    }

    fn pods(&self) -> String {
        let said: Vec<String> = self.pods.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        if said.is_empty() { "none".to_owned() } else { said.join(", ") }
    }

    /// For programs.
    ///
    /// # Errors
    /// A path is no text.
    pub fn json(&self) -> Result<String, Failure> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self).what("no JSON").advise("ask without -o json")?))
    }
}

/// In the two largest units that count.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    let unit = match seconds {
        ..60 => Unit::Second,
        60..86_400 => Unit::Minute,
        _ => Unit::Hour,
    };
    let span = jiff::Span::new().seconds(seconds);
    let rounded = span.round(SpanRound::new().smallest(unit).largest(Unit::Day).days_are_24_hours());
    rounded.map(|span| format!("{span:#}")).unwrap_or_default()
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_resource_is_as_it_says_of_its_present_generation() {
        let memcached = |generation: i64, conditions: serde_json::Value| -> Resource {
            let object = json!({
                "apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached",
                "metadata": {"name": "a", "namespace": "b", "generation": generation},
                "status": {"conditions": conditions},
            });
            resource("Memcached", &serde_json::from_value(object).unwrap())
        };
        let condition = json!([{"type": "Ready", "status": "True", "reason": "Up", "observedGeneration": 2}]);
        for (resource, expected) in [
            (memcached(2, condition.clone()), ["True", "Up"]),
            (memcached(3, condition), ["Unknown", "NotSeenYet"]),
            (memcached(1, json!([])), ["Unknown", "NotSeenYet"]),
        ] {
            assert_eq!([resource.ready.as_str(), resource.reason.as_str()], expected);
        }
    }

    #[test]
    fn ages_are_told_in_what_counts() {
        for (seconds, expected) in [(0, "0s"), (59, "59s"), (60, "1m"), (3723, "1h 2m"), (90_000, "1d 1h")] {
            let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(seconds);
            assert_eq!(age(Timestamp::UNIX_EPOCH, now), expected);
        }
    }
}
