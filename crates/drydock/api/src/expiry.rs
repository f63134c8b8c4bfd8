//! Events are news: an hour after its last change one is taken away.
//!
//! **Always holds:** nothing is asked through the API for this. Whoever serves it lets
//! [`Api::expire_events`] run; it sleeps until the oldest event is due.

use std::time::Duration;

use drydock_store::{Change, Expect, Page, Range, Stored};
use jiff::Timestamp;
use serde_json::Value;

use crate::{Api, failure::Failure, object};

/// As long as the real server keeps an event (`--event-ttl`).
const LIFETIME: Duration = Duration::from_secs(3600);

/// Events that are due within so short a time go together.
const BREATH: Duration = Duration::from_secs(1);

impl Api {
    /// Takes events away as they grow old, until it is dropped.
    pub async fn expire_events(&self) {
        loop {
            let wait = self.expire_due_events().await.max(BREATH);
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes the events away that are due, and gives how long none will be.
    pub(crate) async fn expire_due_events(&self) -> Duration {
        let now = self.now();
        let range = Range { resource: "/events".into(), namespace: None };
        let events = self.store().list(&range, Page::default()).map(|listing| listing.items);
        // One that is yet to come has its whole life before it.
        let mut soonest = LIFETIME;
        for stored in events.unwrap_or_default() {
            let left = object::read_stored(&stored).map(|event| left(&event, now));
            match left {
                Ok(Some(left)) => soonest = soonest.min(left),
                Ok(None) => {
                    if let Err(failure) = self.expire(&stored).await {
                        tracing::warn!(%failure, key = %stored.key, "an old event could not be taken away");
                    }
                }
                Err(failure) => tracing::warn!(%failure, key = %stored.key, "an event can't be read"),
            }
        }
        soonest
    }

    /// Nobody is asked, not even finalizers: so it is where the storage itself forgets.
    async fn expire(&self, stored: &Stored) -> Result<(), Failure> {
        let Some(kind) = self.registry().find("", "v1", "events") else { return Ok(()) };
        let draft = object::draft(&kind, object::read_stored(stored)?)?;
        let change = Change::Delete(draft);
        // One that was changed meanwhile has another hour.
        let _ = self.store().commit(stored.key.clone(), Expect::At(stored.revision), change).await;
        Ok(())
    }
}

/// How long an event is still kept; `None` when it is over.
fn left(event: &Value, now: Timestamp) -> Option<Duration> {
    let metadata = &event["metadata"];
    let managed = metadata["managedFields"].as_array().into_iter().flatten().map(|entry| &entry["time"]);
    let times = managed.chain([&metadata["creationTimestamp"]]);
    let changed = times.filter_map(|time| time.as_str()?.parse::<Timestamp>().ok()).max()?;
    let age = now.duration_since(changed).unsigned_abs();
    if now < changed { Some(LIFETIME) } else { LIFETIME.checked_sub(age).filter(|left| !left.is_zero()) }
}
