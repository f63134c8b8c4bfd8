//! Events: what a controller did, told on the object it did it for.
//!
//! Telling never holds up doing: events go through a bounded channel to one task, and are dropped when that
//! can't keep up. The same event again raises the count of the first instead of adding one, and an object
//! that says too much is not heard for a while, as in Kubernetes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cache::Kind;
use super::rest::{PatchType, Rest, json_bytes};
use crate::Clock;
use crate::objects::resource::{Key, Resource};

const EVENTS: Resource = Resource::fixed("", "v1", "Event", "events", true);

/// The component that schedules.
const SCHEDULER: &str = "default-scheduler";

/// Events that wait to be written.
const CHANNEL: usize = 8192;

/// How many different events are remembered for counting.
const REMEMBERED: usize = 4096;

/// Events an object may cause at once, and how long until it may cause one more: Kubernetes' numbers.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something went as it should.
    Normal,
    /// Something did not.
    Warning,
}

struct Event {
    resource: &'static Resource,
    key: Key,
    uid: Box<str>,
    version: Box<str>,
    severity: Severity,
    reason: &'static str,
    message: String,
    /// When it was, where that is not when it is written.
    at: Option<Timestamp>,
}

/// Records events for one controller.
#[derive(Clone)]
pub struct Recorder(mpsc::Sender<Event>);

impl Recorder {
    /// A recorder that writes as `component`, until told to stop.
    pub fn start(component: &'static str, rest: Rest, clock: Clock, shutdown: CancellationToken) -> Self {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        tokio::spawn(async move {
            let writer =
                Writer { component, rest, clock, told: HashMap::new(), budgets: HashMap::new(), serial: 0 };
            shutdown.run_until_cancelled(writer.run(receiver)).await;
        });
        Self(sender)
    }

    /// Records an event about an object.
    pub fn record<T: Kind>(&self, about: &T, severity: Severity, reason: &'static str, message: String) {
        self.record_at(about, severity, reason, message, None);
    }

    /// The same about something that was earlier: what others say of what follows from it sorts after it.
    pub fn record_at<T: Kind>(
        &self,
        about: &T,
        severity: Severity,
        reason: &'static str,
        message: String,
        at: Option<Timestamp>,
    ) {
        let meta = about.meta();
        let event = Event {
            resource: T::resource(),
            key: meta.key(),
            uid: meta.uid.clone(),
            version: meta.resource_version.clone(),
            severity,
            reason,
            message,
            at,
        };
        if self.0.try_send(event).is_err() {
            tracing::debug!(reason, "an event was dropped");
        }
    }
}

struct Writer {
    component: &'static str,
    rest: Rest,
    clock: Clock,
    told: HashMap<(Box<str>, &'static str, String), (Key, i32)>,
    budgets: HashMap<(Box<str>, Key), (f64, Instant)>,
    serial: u64,
}

impl Writer {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        while let Some(event) = events.recv().await {
            if !self.may_speak((event.uid.clone(), event.key.clone())) {
                continue;
            }
            if let Err(error) = self.write(event).await
                && !error.namespace_terminating()
                && !error.not_found()
            {
                tracing::debug!(component = self.component, %error, "an event was not written");
            }
        }
    }

    fn may_speak(&mut self, of: (Box<str>, Key)) -> bool {
        if self.budgets.len() > REMEMBERED {
            self.budgets.retain(|_, (_, last)| last.elapsed() < REFILL);
        }
        let (left, last) = self.budgets.entry(of).or_insert_with(|| (BURST, Instant::now()));
        *left = (*left + last.elapsed().as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        *last = Instant::now();
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }

    async fn write(&mut self, event: Event) -> Result<(), super::rest::Error> {
        let now = event.at.unwrap_or_else(|| (self.clock)());
        let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let known = (event.uid.clone(), event.reason, event.message.clone());
        if let Some((key, count)) = self.told.get_mut(&known) {
            *count += 1;
            let patch = json!({ "count": *count, "lastTimestamp": seconds });
            match self.rest.patch(&EVENTS, key, PatchType::Strategic, &patch).await {
                Err(error) if error.not_found() => {}
                other => return other.map(drop),
            }
        }
        // Events of cluster-scoped objects live in `default`.
        let namespace: Arc<str> =
            if event.key.namespace.is_empty() { "default".into() } else { event.key.namespace.clone() };
        // Events are listed by name, so that the time in it puts them in order.
        let at = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let mut name = format!("{}.{at:016x}", event.key.name);
        let body = self.body(&event, &namespace, &name, seconds);
        match self.rest.create(&EVENTS, &namespace, json_bytes(&body)?).await {
            // Another was at the same time: a clock may stand still.
            Err(error) if error.conflict() => {
                self.serial += 1;
                name = format!("{name}.{}.{}", self.component, self.serial);
                let body = self.body(&event, &namespace, &name, seconds);
                self.rest.create(&EVENTS, &namespace, json_bytes(&body)?).await?;
            }
            other => drop(other?),
        }
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        self.told.insert(known, (Key::new(namespace, name), 1));
        Ok(())
    }

    fn body(&self, event: &Event, namespace: &str, name: &str, now: Timestamp) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": {
                "apiVersion": event.resource.api_version(),
                "kind": event.resource.kind,
                "namespace": &*event.key.namespace,
                "name": &*event.key.name,
                "uid": event.uid,
                "resourceVersion": event.version,
            },
            "reason": event.reason,
            "message": event.message,
            "type": match event.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            // The scheduler speaks through the newer interface of events, which has no source.
            "source": if self.component == SCHEDULER { json!({}) } else { json!({ "component": self.component }) },
            "reportingComponent": self.component,
            "reportingInstance": "",
        })
    }
}
