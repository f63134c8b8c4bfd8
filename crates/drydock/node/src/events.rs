//! Events about pods and claims. Told once and forgotten: no decision waits for one, and one that can't be written is lost.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;

use crate::Clock;
use crate::pods::status::time;

/// How many events may wait; a node whose API is away for long forgets the newest.
const WAITING: usize = 1024;
/// After this many different events the counts begin anew.
const REMEMBERED: usize = 4096;

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Warning,
}

struct Told {
    component: &'static str,
    kind: Kind,
    reason: &'static str,
    message: String,
    about: ObjectReference,
}

/// Who tells.
#[derive(Clone)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Told>,
}

impl Recorder {
    /// A recorder, and the work that writes what it is told.
    pub fn new(client: kube::Client, node: String, clock: Clock) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, told) = mpsc::channel(WAITING);
        (Self { queue }, write(client, node, clock, told))
    }

    /// Says something about a pod, or one of its containers.
    pub fn pod(
        &self,
        pod: &Pod,
        field: Option<String>,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let meta = &pod.metadata;
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: field,
        };
        self.about(about, "kubelet", kind, reason, message);
    }

    /// Says something about any object, in the name of one of this node's parts.
    pub fn about(
        &self,
        about: ObjectReference,
        component: &'static str,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let mut message = message.into();
        // The API takes no more.
        if message.len() > 1024 {
            let end = (0..=1020).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
            message.push_str("...");
        }
        if self.queue.try_send(Told { component, kind, reason, message, about }).is_err() {
            tracing::warn!(reason, "an event is lost: too many wait to be written");
        }
    }
}

async fn write(client: kube::Client, node: String, clock: Clock, mut told: mpsc::Receiver<Told>) {
    let mut known: BTreeMap<(String, String, &'static str, String), (String, i32)> = BTreeMap::new();
    while let Some(Told { component, kind, reason, message, about }) = told.recv().await {
        let now = clock();
        // What is said of objects without a namespace is in `default`.
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let key = (
            about.uid.clone().unwrap_or_default(),
            about.field_path.clone().unwrap_or_default(),
            reason,
            message.clone(),
        );
        if let Some((name, count)) = known.get_mut(&key) {
            *count += 1;
            let patch = json!({"count": *count, "lastTimestamp": time(now)});
            if events.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.is_ok() {
                continue;
            }
        }
        let name = format!("{}.{:016x}", about.name.clone().unwrap_or_default(), now.as_nanosecond());
        let event = event(&name, &namespace, (component, &node), kind, reason, message, about, now);
        match events.create(&PostParams::default(), &event).await {
            Ok(_) => {
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(key, (name, 1));
            }
            Err(error) => tracing::debug!(%error, reason, "an event was not written"),
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "an event has as many parts")]
fn event(
    name: &str,
    namespace: &str,
    (component, node): (&str, &str),
    kind: Kind,
    reason: &str,
    message: String,
    about: ObjectReference,
    now: Timestamp,
) -> Event {
    let mut event = Event {
        involved_object: about,
        type_: Some(if kind == Kind::Normal { "Normal" } else { "Warning" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        source: Some(EventSource { component: Some(component.to_owned()), host: Some(node.to_owned()) }),
        first_timestamp: Some(time(now)),
        last_timestamp: Some(time(now)),
        count: Some(1),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    };
    event.metadata.name = Some(name.to_owned());
    event.metadata.namespace = Some(namespace.to_owned());
    event
}
