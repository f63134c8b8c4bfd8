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
    core::Status,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    failure::words,
    fence::Fence,
    health::{Health, Standing},
    metrics::Metrics,
    sources::{Clock, Random, fraction},
    telling::News,
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
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    seen: Option<SeenLease>,
    /// When another was last seen to hold it.
    stood_by: Option<Instant>,
    news: News,
}

/// What came of an attempt to take or renew the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attempt {
    /// It is ours.
    Held,
    /// Somebody else holds it.
    Theirs { holder: String },
    /// It could not be read or written.
    Failed { why: String },
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
        health: Health,
        metrics: Metrics,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        metrics.leading(&election.name, false);
        health.stands(Standing::Unread);
        let (seen, stood_by, news) = (None, None, News::default());
        Candidate { election, store, fence, health, metrics, clock, random, seen, stood_by, news }
    }

    /// Waits until the lease is held. False when it was asked to stop before.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        loop {
            let attempt = tokio::time::timeout(RENEW_DEADLINE, self.attempt());
            let attempt = tokio::select! {
                () = stop.cancelled() => return false,
                attempt = attempt => attempt.unwrap_or_else(|_| Attempt::Failed {
                    why: format!("the server did not answer within {} seconds", RENEW_DEADLINE.as_secs()),
                }),
            };
            if self.stands(attempt) {
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

    /// Says where this process stands after an attempt to take the lease. True when it is held.
    fn stands(&mut self, attempt: Attempt) -> bool {
        let (now, lease) = (Instant::now(), &self.election.name);
        match attempt {
            Attempt::Held => {
                tracing::info!(lease, identity = self.election.identity, "holds the lease");
                self.news.over();
                self.health.stands(Standing::Held);
                return true;
            }
            Attempt::Theirs { holder } => {
                if self.news.is(&holder, now) {
                    tracing::info!(lease, holder, "stands by: another holds the lease");
                }
                self.stood_by = Some(now);
                self.health.stands(Standing::StandsBy { holder, read: now });
            }
            Attempt::Failed { why } => {
                if self.news.is(&why, now) {
                    tracing::warn!(lease, error = why, "the lease can't be taken");
                }
                // Who stands by goes on standing by for as long as the other can't have gone.
                if self.stood_by.is_none_or(|read| now.duration_since(read) > DURATION) {
                    self.health.stands(Standing::Unreachable { why });
                }
            }
        }
        false
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
                Ok(Attempt::Held) => {
                    renewed = began;
                    self.news.over();
                }
                Ok(Attempt::Failed { why }) if Instant::now() < deadline => {
                    if self.news.is(&why, began) {
                        tracing::warn!(lease = self.election.name, error = why, "the lease can't be renewed");
                    }
                }
                Ok(_) | Err(_) => break,
            }
        }
        self.fence.close();
        self.health.stands(Standing::Lost);
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
            Ok(Err(error)) => {
                tracing::warn!(error = words(&error), "the lease could not be let go; it runs out by itself");
            }
            Err(_) => tracing::warn!("the lease could not be let go in time; it runs out by itself"),
        }
    }

    /// Takes or renews the lease, if that is possible now.
    async fn attempt(&mut self) -> Attempt {
        let began = Instant::now();
        match self.take_or_renew().await {
            Ok(true) => {
                self.fence.extend(began + RENEW_DEADLINE);
                self.metrics.leading(&self.election.name, true);
                Attempt::Held
            }
            Ok(false) => self.theirs(),
            Err(error) => {
                // Somebody was faster: the lease is not what we took it for.
                if matches!(&error, kube::Error::Api(status) if status.code == 409)
                    && self.look().await.is_ok()
                    && self.is_anothers()
                {
                    return self.theirs();
                }
                Attempt::Failed { why: self.explain(&error) }
            }
        }
    }

    fn theirs(&self) -> Attempt {
        let holder = self.seen.as_ref().map(|seen| holder(&seen.lease)).unwrap_or_default();
        Attempt::Theirs { holder: holder.to_owned() }
    }

    /// What went wrong, and what a person can do about it.
    fn explain(&self, error: &kube::Error) -> String {
        let (said, namespace) = (words(error), &self.election.namespace);
        let other = "or name another with --leader-election-namespace";
        let advice = match error {
            kube::Error::Api(status) if is_missing_namespace(status) => {
                format!("; create the namespace {namespace}, {other}")
            }
            kube::Error::Api(status) if status.code == 403 => {
                format!("; allow get, create and update of leases in the namespace {namespace}, {other}")
            }
            _ => String::new(),
        };
        format!("{said}{advice}")
    }

    async fn take_or_renew(&mut self) -> Result<bool, kube::Error> {
        // Who holds it renews without looking: the resourceVersion says whether somebody else was there.
        let held = self.seen.as_ref().filter(|seen| self.is_ours(&seen.lease)).map(|seen| seen.lease.clone());
        if let Some(lease) = held {
            match self.replace(lease).await {
                // It was written or deleted by somebody, which need not be one who wants it.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                replaced => return replaced.map(|()| true),
            }
        }
        let Some(lease) = self.look().await? else {
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
        if self.is_ours(&lease) {
            self.metrics.slow_path(&self.election.name);
        }
        self.replace(lease).await?;
        Ok(true)
    }

    async fn replace(&mut self, lease: Lease) -> Result<(), kube::Error> {
        let spec = self.spec(Some(&lease));
        let replaced = self.store.replace(Lease { spec: Some(spec), ..lease }).await?;
        self.saw(replaced);
        Ok(())
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

/// A Lease that is not there is made; what is not found then is the place for it.
fn is_missing_namespace(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn micro(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
