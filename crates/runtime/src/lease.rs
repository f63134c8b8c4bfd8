//! Which of several processes works: the one that holds a Lease.
//!
//! The Lease is client-go's: the same fields, the same times, so that a process written in Go and one of ours can
//! stand in for each other.
//!
//! **What always holds.** The [`Fence`] is open only for as long as nobody else can have taken the lease: until
//! [`RENEW_DEADLINE`] after the beginning of the last successful renewal, which is less than [`DURATION`]. Others'
//! clocks are not trusted: a lease is free when it has not changed for its duration by our own clock.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    fence::Fence,
    metrics::Metrics,
    sources::{Clock, Random, fraction},
};

/// How long others wait before they take a lease that is not renewed.
pub(crate) const DURATION: Duration = Duration::from_secs(15);
/// How long the holder goes on without a renewal.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often the holder renews and others try.
pub(crate) const RETRY: Duration = Duration::from_secs(2);
/// How long releasing may take: whoever waits for it gets the lease by itself soon.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// Which lease, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who holds it: unique to this process.
    pub identity: String,
}

/// Where the Lease is kept.
pub(crate) trait LeaseStore: Send + Sync + 'static {
    /// The Lease, if there is one.
    fn get(&self) -> BoxFuture<'_, Result<Option<Lease>, kube::Error>>;
    /// Makes it, unless it is there.
    fn create(&self, lease: Lease) -> BoxFuture<'_, Result<Lease, kube::Error>>;
    /// Puts it in the place of the one with its resourceVersion.
    fn replace(&self, lease: Lease) -> BoxFuture<'_, Result<Lease, kube::Error>>;
}

/// A Lease on the server.
pub(crate) struct Remote {
    api: Api<Lease>,
    name: String,
}

impl Remote {
    pub(crate) fn new(client: Client, election: &LeaderElection) -> Self {
        Remote { api: Api::namespaced(client, &election.namespace), name: election.name.clone() }
    }
}

impl LeaseStore for Remote {
    fn get(&self) -> BoxFuture<'_, Result<Option<Lease>, kube::Error>> {
        Box::pin(self.api.get_opt(&self.name))
    }

    fn create(&self, lease: Lease) -> BoxFuture<'_, Result<Lease, kube::Error>> {
        Box::pin(async move { self.api.create(&PostParams::default(), &lease).await })
    }

    fn replace(&self, lease: Lease) -> BoxFuture<'_, Result<Lease, kube::Error>> {
        Box::pin(async move { self.api.replace(&self.name, &PostParams::default(), &lease).await })
    }
}

/// One process's part in the election.
pub(crate) struct Candidate {
    pub(crate) election: LeaderElection,
    pub(crate) store: Box<dyn LeaseStore>,
    pub(crate) fence: Fence,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    seen: Option<SeenLease>,
}

/// The Lease as it last changed, and when that was by our clock.
struct SeenLease {
    lease: Lease,
    since: Instant,
}

impl Candidate {
    pub(crate) fn new(
        election: LeaderElection,
        store: Box<dyn LeaseStore>,
        fence: Fence,
        metrics: Metrics,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        metrics.leading(&election.name, false);
        Candidate { election, store, fence, metrics, clock, random, seen: None }
    }

    /// Waits until the lease is held. False when it was asked to stop before.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        loop {
            let attempt = tokio::time::timeout(RENEW_DEADLINE, self.attempt());
            let held = tokio::select! {
                () = stop.cancelled() => return false,
                attempt = attempt => attempt == Ok(true),
            };
            if held {
                tracing::info!(
                    lease = self.election.name,
                    identity = self.election.identity,
                    "holds the lease"
                );
                return true;
            }
            // Those who wait together must not knock together.
            let pause = RETRY.mul_f64(1.0 + 0.2 * fraction(&*self.random));
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Keeps the lease until it is lost, or until it is asked to stop. False when it was lost.
    pub(crate) async fn keep(&mut self, stop: &CancellationToken) -> bool {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return true,
                () = tokio::time::sleep(RETRY) => {}
            }
            let began = Instant::now();
            let deadline = renewed + RENEW_DEADLINE;
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(true) => renewed = began,
                Ok(false) if self.is_anothers() || Instant::now() >= deadline => break,
                Ok(false) => {}
                Err(_) => break,
            }
        }
        self.fence.close();
        self.metrics.leading(&self.election.name, false);
        tracing::error!(lease = self.election.name, "lost the lease");
        false
    }

    /// Lets the lease go, so that the next one need not wait.
    pub(crate) async fn release(&mut self) {
        self.fence.close();
        self.metrics.leading(&self.election.name, false);
        let Some(SeenLease { lease, .. }) = self.seen.take() else { return };
        if !self.is_ours(&lease) {
            return;
        }
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        let now = micro(self.clock.now());
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: transitions,
            ..LeaseSpec::default()
        };
        let replaced = self.store.replace(Lease { spec: Some(spec), ..lease });
        match tokio::time::timeout(RELEASE_WITHIN, replaced).await {
            Ok(Ok(_)) => tracing::info!(lease = self.election.name, "let the lease go"),
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be let go; it runs out by itself"),
            Err(_) => tracing::warn!("the lease could not be let go in time; it runs out by itself"),
        }
    }

    /// Takes or renews the lease, if that is possible now.
    async fn attempt(&mut self) -> bool {
        let began = Instant::now();
        match self.take_or_renew().await {
            Ok(true) => {
                self.fence.extend(began + RENEW_DEADLINE);
                self.metrics.leading(&self.election.name, true);
                true
            }
            Ok(false) => false,
            Err(error) => {
                // The next attempt reads it anew: it is not what we took it for.
                tracing::warn!(lease = self.election.name, %error, "the lease could not be taken or renewed");
                if matches!(&error, kube::Error::Api(status) if status.code == 409) {
                    let _ = self.look().await;
                }
                false
            }
        }
    }

    async fn take_or_renew(&mut self) -> Result<bool, kube::Error> {
        // Who holds it renews without looking: the resourceVersion says whether somebody else was there.
        let held = self.seen.as_ref().filter(|seen| self.is_ours(&seen.lease)).map(|seen| seen.lease.clone());
        let lease = match held {
            Some(lease) => Some(lease),
            None => self.look().await?,
        };
        let Some(lease) = lease else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.election.name.clone()),
                    namespace: Some(self.election.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.spec(None)),
            };
            let created = self.store.create(lease).await?;
            self.saw(created);
            return Ok(true);
        };
        if !self.is_ours(&lease) && !self.is_free(&lease) {
            return Ok(false);
        }
        let spec = self.spec(Some(&lease));
        let replaced = self.store.replace(Lease { spec: Some(spec), ..lease }).await?;
        self.saw(replaced);
        Ok(true)
    }

    async fn look(&mut self) -> Result<Option<Lease>, kube::Error> {
        let lease = self.store.get().await?;
        match &lease {
            Some(lease) => self.saw(lease.clone()),
            None => self.seen = None,
        }
        Ok(lease)
    }

    fn saw(&mut self, lease: Lease) {
        let same = self.seen.as_ref().is_some_and(|seen| seen.lease.spec == lease.spec);
        let since = match &self.seen {
            Some(seen) if same => seen.since,
            _ => Instant::now(),
        };
        self.seen = Some(SeenLease { lease, since });
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.election.identity
    }

    fn is_anothers(&self) -> bool {
        let holder = self.seen.as_ref().map(|seen| holder(&seen.lease)).unwrap_or_default();
        !holder.is_empty() && holder != self.election.identity
    }

    /// Nobody holds it, or whoever does has not renewed it for its whole duration.
    fn is_free(&self, lease: &Lease) -> bool {
        if holder(lease).is_empty() {
            return true;
        }
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self.seen.as_ref().is_some_and(|seen| seen.since.elapsed() >= duration)
    }

    fn spec(&self, old: Option<&Lease>) -> LeaseSpec {
        let now = MicroTime(micro(self.clock.now()));
        let renews = old.is_some_and(|old| self.is_ours(old));
        let old = old.and_then(|old| old.spec.as_ref());
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        let acquired = old.and_then(|old| old.acquire_time.clone()).filter(|_| renews);
        LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if renews || old.is_none() { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn micro(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
