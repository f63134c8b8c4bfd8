//! A client that keeps a list of what was written through it, and stops whoever writes without end.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use drydock::{Drydock, Identity, Revision};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;
use tower::{BoxError, service_fn};

use crate::{clock::VirtualClock, service::Service};

/// How often an operator may write after one act. A sound one needs a dozen writes; one that needs hundreds for the
/// small lives that are proven will never be done.
const ENOUGH: usize = 400;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Person,
    Operator,
    Node,
}

impl Who {
    /// The user of that name.
    pub(crate) fn user(self) -> &'static str {
        match self {
            Who::Person => "person",
            Who::Operator => "operator",
            Who::Node => "node",
        }
    }
}

/// One write, and what the world was right after it.
#[derive(Clone)]
pub(crate) struct Write {
    pub(crate) who: Who,
    /// `PATCH`, or `ACT` for what an engine did.
    pub(crate) verb: String,
    /// `apps/deployments/status`; what an engine did by its name.
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// The answer's code; none where there was no answer.
    pub(crate) code: Option<u16>,
    /// Its own revision where the answer said it, or else the latest there was.
    pub(crate) revision: Revision,
    pub(crate) at: Timestamp,
    pub(crate) service: Arc<dyn Service>,
}

impl Write {
    /// Whether it is about what is, and not about what happened.
    pub(crate) fn is_state(&self) -> bool {
        !matches!(self.resource.as_str(), "events" | "events.k8s.io/events" | "coordination.k8s.io/leases")
    }

    /// Whether it took effect, as far as its writer knows.
    pub(crate) fn succeeded(&self) -> bool {
        self.code.is_some_and(|code| (200..300).contains(&code))
    }
}

impl fmt::Display for Write {
    /// `PATCH apps/deployments default/sample`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.verb, self.resource)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// Where clients come from. Clones share the list.
#[derive(Clone)]
pub(crate) struct Tap {
    drydock: Arc<Drydock>,
    clock: VirtualClock,
    service: Arc<dyn Service>,
    writes: Arc<Mutex<Vec<Write>>>,
    stopped: Arc<AtomicBool>,
}

impl Tap {
    pub(crate) fn new(drydock: Arc<Drydock>, clock: VirtualClock, service: Arc<dyn Service>) -> Self {
        Tap { drydock, clock, service, writes: Arc::default(), stopped: Arc::default() }
    }

    /// A client that may do anything, and whose writes are put down.
    pub(crate) fn client(&self, who: Who) -> Client {
        let inner = self.drydock.client_as(Identity::admin(who.user()));
        let tap = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (inner, tap) = (inner.clone(), tap.clone());
            async move { tap.pass(who, &inner, request).await }
        });
        Client::new(service, "default")
    }

    /// What was written since this was last asked.
    pub(crate) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut *self.writes.lock())
    }

    /// The last few writes of the operator, for a person to read.
    pub(crate) fn latest(&self, count: usize) -> Vec<String> {
        let writes = self.writes.lock();
        let own = writes.iter().rev().filter(|write| write.who == Who::Operator);
        let mut lines: Vec<String> = own.take(count).map(ToString::to_string).collect();
        lines.reverse();
        lines
    }

    /// Whether the operator was stopped because it wrote without end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    async fn pass(
        &self,
        who: Who,
        inner: &Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        if request.method() == Method::GET {
            return Ok(inner.send(request).await?);
        }
        if who == Who::Operator && self.writes.lock().len() >= ENOUGH {
            self.stopped.store(true, Ordering::Relaxed);
            return std::future::pending().await;
        }
        let (verb, path) = (request.method().to_string(), Path::parse(request.uri().path()));
        let before = self.drydock.revision();
        let answer = inner.send(request).await;
        let (answer, code, revision) = match answer {
            Err(error) => (Err(error.into()), None, None),
            Ok(answer) => {
                let (parts, body) = answer.into_parts();
                let bytes = body.collect().await?.to_bytes();
                // The answer to what changed nothing, or took the object away, bears an older one.
                let revision = revision_in(&bytes).filter(|own| *own > before);
                let code = parts.status.as_u16();
                (Ok(Response::from_parts(parts, Body::from(bytes))), Some(code), revision)
            }
        };
        let Path { resource, namespace, mut name } = path;
        if name.is_empty() {
            name = "(new)".to_owned();
        }
        self.put_down(Write {
            who,
            verb,
            resource,
            namespace,
            name,
            code,
            revision: revision.unwrap_or_else(|| self.drydock.revision()),
            at: self.clock.timestamp(),
            service: self.service.fork(),
        });
        answer
    }

    /// An engine did something on the operator's behalf.
    pub(crate) fn acted(&self, subject: &str, name: &str) {
        self.put_down(Write {
            who: Who::Operator,
            verb: "ACT".to_owned(),
            resource: name.to_owned(),
            namespace: None,
            name: subject.to_owned(),
            code: Some(200),
            revision: self.drydock.revision(),
            at: self.clock.timestamp(),
            service: self.service.fork(),
        });
    }

    fn put_down(&self, write: Write) {
        self.writes.lock().push(write);
    }
}

/// The revision that an answer bears, where it is an object. A `Status` bears none.
fn revision_in(answer: &[u8]) -> Option<Revision> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    answer.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok().map(Revision)
}

/// What a path of the API is about.
#[derive(Debug, Default, PartialEq)]
struct Path {
    resource: String,
    namespace: Option<String>,
    name: String,
}

impl Path {
    fn parse(path: &str) -> Path {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            other => ("", other),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let part = |place: usize| rest.get(place).copied().filter(|part| !part.is_empty());
        let resource: Vec<&str> =
            [Some(group).filter(|group| !group.is_empty()), part(0), part(2)].into_iter().flatten().collect();
        Path { resource: resource.join("/"), namespace, name: part(1).unwrap_or_default().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_is_written() {
        for (path, resource, namespace, name) in [
            ("/api/v1/namespaces/default/pods/a/status", "pods/status", Some("default"), "a"),
            ("/apis/apps/v1/namespaces/x/deployments", "apps/deployments", Some("x"), ""),
            ("/api/v1/namespaces/default", "namespaces", None, "default"),
            ("/apis/apps/v1/deployments", "apps/deployments", None, ""),
        ] {
            let expected = Path {
                resource: resource.into(),
                namespace: namespace.map(str::to_owned),
                name: name.into(),
            };
            assert_eq!(Path::parse(path), expected);
        }
    }
}
