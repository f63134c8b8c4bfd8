//! Events: what people see with `kubectl describe` and `kubectl get events`.
//!
//! **What always holds.** Events never hold up a round and never make one fail: they are handed over, and sent in
//! the background. The same event said again within a while is not a new object but a count on the old one, written
//! ever more rarely. An object about which too much is said falls silent for a while.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ballast_operator::{EventType, KindRef};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{key::Key, metrics::ControllerMetrics, sources::Clock, write::Writer};

/// How many events may wait to be sent. More than that in a moment is not read by anyone.
const WAITING: usize = 2048;
/// How long a note in an event may be; the server refuses a longer one.
const LONGEST_NOTE: usize = 1024;
/// For how long the same thing said again is counted on the old event.
const SAME_WITHIN: Duration = Duration::from_secs(360);
/// How many events about one object may come at once.
const BURST: f64 = 25.0;
/// How long it takes until one more may come.
const REFILL: Duration = Duration::from_secs(60);
/// How many series and objects are remembered.
const REMEMBERED: usize = 4096;

/// Something to be said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    /// What it is about.
    pub(crate) regarding: ObjectReference,
    pub(crate) type_: EventType,
    pub(crate) reason: String,
    pub(crate) action: String,
    pub(crate) note: String,
}

impl Note {
    fn series(&self) -> SeriesKey {
        let about = self.regarding.uid.clone().unwrap_or_default();
        (about, self.type_.to_string(), self.reason.clone(), self.action.clone(), self.note.clone())
    }
}

type SeriesKey = (String, String, String, String, String);

/// Where things to be said are handed over.
#[derive(Clone)]
pub(crate) struct Sayer {
    notes: mpsc::Sender<Note>,
    metrics: ControllerMetrics,
}

impl Sayer {
    /// Says something, sooner or later; or not, when too much is being said.
    pub(crate) fn say(&self, note: Note) {
        self.metrics.said(note.type_, &note.reason);
        if let Err(error) = self.notes.try_send(note) {
            let note = error.into_inner();
            tracing::warn!(
                reason = note.reason,
                note = note.note,
                "an event is dropped: too many are waiting"
            );
        }
    }
}

/// A sayer, and the task that sends what it says. The task ends when all sayers are gone.
pub(crate) fn channel(
    writer: Writer,
    clock: Arc<dyn Clock>,
    reporter: Reporter,
    metrics: ControllerMetrics,
) -> (Sayer, impl Future<Output = ()> + Send) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Sayer { notes: sender, metrics }, send(receiver, writer, clock, Aggregator::new(reporter)))
}

async fn send(
    mut notes: mpsc::Receiver<Note>,
    writer: Writer,
    clock: Arc<dyn Clock>,
    mut aggregator: Aggregator,
) {
    let kind = KindRef::of::<Event>();
    while let Some(note) = notes.recv().await {
        let sent = match aggregator.take(note, clock.now()) {
            None => continue,
            Some(Order::Create(event)) => {
                writer.create(&kind, event.metadata.namespace.as_deref(), &event).await.map(drop)
            }
            Some(Order::Count { key, series }) => {
                writer.merge(&kind, &key, &json!({"series": series})).await.map(drop)
            }
        };
        if let Err(error) = sent {
            tracing::warn!(%error, "an event is lost");
        }
    }
}

/// Who reports.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    /// `ballast-memcached`.
    pub(crate) controller: String,
    /// Which process of it.
    pub(crate) instance: String,
}

/// What is sent.
#[derive(Debug, PartialEq)]
pub(crate) enum Order {
    /// A new event.
    Create(Box<Event>),
    /// The old one again.
    Count { key: Key, series: EventSeries },
}

/// Decides what is sent of what is said.
#[derive(Debug)]
pub(crate) struct Aggregator {
    reporter: Reporter,
    said: HashMap<SeriesKey, Said>,
    budgets: HashMap<String, Budget>,
}

#[derive(Debug)]
struct Said {
    key: Key,
    count: i32,
    last: Timestamp,
    /// When its count was last written, and what it was.
    written: (Timestamp, i32),
}

#[derive(Debug)]
struct Budget {
    left: f64,
    at: Timestamp,
}

impl Aggregator {
    pub(crate) fn new(reporter: Reporter) -> Self {
        Aggregator { reporter, said: HashMap::new(), budgets: HashMap::new() }
    }

    /// What is to be sent of something that is said now.
    pub(crate) fn take(&mut self, mut note: Note, now: Timestamp) -> Option<Order> {
        cut(&mut note.note, LONGEST_NOTE);
        self.forget_old(now);
        let series = note.series();
        let recent = self.said.get_mut(&series).filter(|said| since(said.last, now) < SAME_WITHIN);
        if let Some(said) = recent {
            said.count += 1;
            said.last = now;
            // Twice, four times, eight times; or after a long time.
            let doubled = said.count >= said.written.1.saturating_mul(2);
            if !doubled && since(said.written.0, now) < SAME_WITHIN {
                return None;
            }
            said.written = (now, said.count);
            let series = EventSeries { count: said.count, last_observed_time: MicroTime(micro(now)) };
            return Some(Order::Count { key: said.key.clone(), series });
        }
        if !self.may_say(&note, now) {
            return None;
        }
        let event = self.event(&note, now);
        let key =
            Key::new(event.metadata.namespace.as_deref(), event.metadata.name.as_deref().unwrap_or_default());
        self.said.insert(series, Said { key, count: 1, last: now, written: (now, 1) });
        Some(Order::Create(Box::new(event)))
    }

    fn may_say(&mut self, note: &Note, now: Timestamp) -> bool {
        let about = note.regarding.uid.clone().unwrap_or_default();
        let budget = self.budgets.entry(about).or_insert(Budget { left: BURST, at: now });
        let refilled = since(budget.at, now).as_secs_f64() / REFILL.as_secs_f64();
        budget.left = (budget.left + refilled).min(BURST);
        budget.at = now;
        if budget.left < 1.0 {
            return false;
        }
        budget.left -= 1.0;
        true
    }

    /// Keeps what is remembered small. Forgetting costs a second event at worst.
    fn forget_old(&mut self, now: Timestamp) {
        if self.said.len() >= REMEMBERED {
            self.said.retain(|_, said| since(said.last, now) < SAME_WITHIN);
        }
        if self.said.len() >= REMEMBERED {
            self.said.clear();
        }
        if self.budgets.len() >= REMEMBERED {
            self.budgets.retain(|_, budget| since(budget.at, now) < REFILL);
        }
        if self.budgets.len() >= REMEMBERED {
            self.budgets.clear();
        }
    }

    fn event(&self, note: &Note, now: Timestamp) -> Event {
        // An event about something without a namespace goes where Kubernetes puts them.
        let namespace = note.regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let mut name = note.regarding.name.clone().unwrap_or_default();
        // A name has at most 253 characters, and the time takes up to 17 of them.
        cut(&mut name, 236);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(micro(now))),
            type_: Some(note.type_.to_string()),
            reason: Some(note.reason.clone()),
            action: Some(note.action.clone()),
            note: Some(note.note.clone()),
            regarding: Some(note.regarding.clone()),
            reporting_controller: Some(self.reporter.controller.clone()),
            reporting_instance: Some(self.reporter.instance.clone()),
            ..Event::default()
        }
    }
}

fn since(then: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(then).unsigned_abs()
}

/// Events have microseconds, not more.
fn micro(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregator() -> Aggregator {
        Aggregator::new(Reporter { controller: "ballast-memcached".into(), instance: "pod-1".into() })
    }

    fn note(text: &str) -> Note {
        Note {
            regarding: ObjectReference {
                kind: Some("Memcached".into()),
                name: Some("sample".into()),
                namespace: Some("default".into()),
                uid: Some("u-1".into()),
                ..ObjectReference::default()
            },
            type_: EventType::Normal,
            reason: "Ready".into(),
            action: "Reconcile".into(),
            note: text.into(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(2_000_000_000 + second).unwrap()
    }

    #[test]
    fn an_event_has_all_that_the_server_asks_for() {
        let Some(Order::Create(event)) = aggregator().take(note("3 of 3 nodes ready"), at(0)) else {
            panic!()
        };
        assert_eq!(event.metadata.name.as_deref(), Some("sample.1bc16d674ec80000"));
        assert_eq!(event.reporting_controller.as_deref(), Some("ballast-memcached"));
        assert_eq!(event.reporting_instance.as_deref(), Some("pod-1"));
        assert!(event.event_time.is_some());
    }

    #[test]
    fn the_same_thing_again_is_a_count_that_is_written_ever_more_rarely() {
        let mut aggregator = aggregator();
        aggregator.take(note("x"), at(0));
        let counts: Vec<i32> = (1..100)
            .filter_map(|second| match aggregator.take(note("x"), at(second)) {
                Some(Order::Count { series, .. }) => Some(series.count),
                Some(Order::Create(_)) => panic!("a second event for the same thing"),
                None => None,
            })
            .collect();
        assert_eq!(counts, [2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn too_much_about_one_object_is_not_said() {
        let mut aggregator = aggregator();
        let said = (0..100).filter(|n| aggregator.take(note(&n.to_string()), at(0)).is_some()).count();
        assert_eq!(said, 25);
        assert!(aggregator.take(note("later"), at(60)).is_some(), "after a while there is room for one more");
        assert!(aggregator.take(note("and again"), at(61)).is_none());
        let mut other = note("other");
        other.regarding.uid = Some("u-2".into());
        assert!(aggregator.take(other, at(61)).is_some(), "others are not held back by it");
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let Some(Order::Create(event)) = aggregator().take(note(&"ä".repeat(2000)), at(0)) else { panic!() };
        assert_eq!(event.note.map(|note| note.len()), Some(1024));
    }
}
