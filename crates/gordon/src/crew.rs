//! What the view shows of the pods: who lives, who ended, who is too many, whose turn it is.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use ballast_operator::{KindRef, Object, View, pod};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::{
    Gordon, Wanted,
    desired::{ATTEMPT, CONTAINER, names},
};

/// The wait before the second successor in a row; it doubles with each that follows.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait: as the kubelet's own for a container that keeps crashing.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// A pod that lived that long did not end soon: the next one begins to count anew.
const GOOD_LIFE: Duration = Duration::from_secs(600);

/// The pods of a Gordon that are not on their way out.
pub(crate) struct Crew {
    /// Those that have not ended, by name.
    pub(crate) living: Vec<Pod>,
    /// Those that have, by name.
    pub(crate) ended: Vec<Ended>,
    /// The names that can be given to new ones.
    free: Vec<String>,
}

/// A pod that ended, and stays until it is removed.
pub(crate) struct Ended {
    pub(crate) pod: Pod,
    /// How many ended before it, one soon after the other.
    attempt: u32,
    /// Whether it was long before it did.
    lived_well: bool,
    /// When it did.
    at: Timestamp,
}

impl Crew {
    pub(crate) fn look(view: &View<Gordon>) -> Self {
        let kind = KindRef::of::<Pod>();
        let taken: BTreeSet<&str> = view.children.objects(&kind).map(|object| object.name()).collect();
        let free = names(&view.resource).filter(|name| !taken.contains(name.as_str())).collect();
        let ours = view.children.objects(&kind).filter(|object| view.controls(object));
        let mut staying: Vec<Pod> = ours.filter_map(|object| Object::read(object).ok()).collect();
        staying.retain(|staying| !pod::is_going(staying));
        staying.sort_by_key(order);
        let (ended, living): (Vec<Pod>, Vec<Pod>) = staying.into_iter().partition(pod::is_finished);
        Crew { living, ended: ended.into_iter().map(Ended::of).collect(), free }
    }

    /// Names for that many new pods; fewer where pods that are on their way out hold too many.
    pub(crate) fn names(&self, count: usize) -> Vec<String> {
        self.free.iter().take(count).cloned().collect()
    }

    /// Those that are to go because there are too many: of another image first, then not ready, then the last made.
    pub(crate) fn surplus(&self, wanted: &Wanted) -> Vec<&Pod> {
        let count = self.living.len().saturating_sub(wanted.replicas);
        let mut all: Vec<&Pod> = self.living.iter().collect();
        all.sort_by_key(|living| {
            (!is_outdated(living, wanted), pod::is_ready(living), Reverse(order(living)))
        });
        all.truncate(count);
        all
    }

    /// Those of another image that are to go now: the ones that are of no use to anybody, or else one, when all are
    /// ready.
    pub(crate) fn turn(&self, wanted: &Wanted) -> Vec<&Pod> {
        let outdated: Vec<&Pod> = self.living.iter().filter(|living| is_outdated(living, wanted)).collect();
        let idle: Vec<&Pod> = outdated.iter().filter(|old| !pod::is_ready(old)).copied().collect();
        if !idle.is_empty() {
            return idle;
        }
        let settled = self.living.len() == wanted.replicas && self.living.iter().all(pod::is_ready);
        outdated.into_iter().take(usize::from(settled)).collect()
    }

    pub(crate) fn ready(&self) -> usize {
        self.living.iter().filter(|living| pod::is_ready(living)).count()
    }
}

impl Ended {
    fn of(pod: Pod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let attempt = annotations.and_then(|all| all.get(ATTEMPT)).and_then(|text| text.parse().ok());
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let began =
            pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0).or(made);
        let ends = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let ends = ends.filter_map(|container| {
            Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
        });
        let at = ends.max().or(began).unwrap_or(Timestamp::UNIX_EPOCH);
        let lived = at.duration_since(began.unwrap_or(at)).unsigned_abs();
        Ended { attempt: attempt.unwrap_or(0), lived_well: lived >= GOOD_LIFE, at, pod }
    }

    /// What its successor's attempt is.
    pub(crate) fn next_attempt(&self) -> u32 {
        if self.lived_well { 1 } else { self.attempt.saturating_add(1) }
    }

    /// How long to wait before it gets a successor. The first gets one at once.
    pub(crate) fn wait(&self, now: Timestamp) -> Duration {
        if self.lived_well || self.attempt == 0 {
            return Duration::ZERO;
        }
        let doubled = FIRST_WAIT.saturating_mul(1 << (self.attempt - 1).min(16)).min(LONGEST_WAIT);
        let passed = now.duration_since(self.at);
        if passed.is_negative() { doubled } else { doubled.saturating_sub(passed.unsigned_abs()) }
    }
}

/// Whether it runs another image than the wanted one.
pub(crate) fn is_outdated(living: &Pod, wanted: &Wanted) -> bool {
    pod::image(living, CONTAINER) != Some(wanted.image.as_str())
}

/// By number, where the names have one: 10 comes after 9.
fn order(pod: &Pod) -> (usize, String) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    (name.len(), name)
}
