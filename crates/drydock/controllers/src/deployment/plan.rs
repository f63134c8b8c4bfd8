//! The decision about a Deployment: from it and its ReplicaSets to what each set shall be and what to say.
//! Pure: the same view gives the same plan, and on what the plan leads to it plans nothing.
//!
//! The sets are first copied into drafts; the stages below change the drafts as a roll-out goes, and what
//! differs in the end are the actions.

use std::time::Duration;

use jiff::Timestamp;

use super::bounds::{max_surge, max_unavailable, new_size, rolling, share};
use super::revision::{self, DESIRED, MAXIMUM, REVISION, hand_down};
use super::status::{self, PROGRESSING, complete, has_deadline, new_condition, set_condition};
use crate::objects::condition::{Condition, condition};
use crate::objects::meta::Pairs;
use crate::objects::workload::{Deployment, DeploymentStatus, ReplicaSet};
use crate::replica_set::whole_seconds;

/// What is known when a Deployment is decided on.
pub struct View<'a> {
    /// The Deployment.
    pub deployment: &'a Deployment,
    /// The sets it manages.
    pub sets: Vec<&'a ReplicaSet>,
    /// Whether pods of sets other than the current one are still there; only asked with `Recreate`.
    pub old_pods_running: bool,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Action<'a> {
    /// Create the ReplicaSet of the current template.
    Create {
        /// Its name.
        name: String,
        /// The hash that tells its pods from others.
        hash: String,
        /// Its size.
        replicas: i32,
        /// Its annotations.
        annotations: Pairs,
    },
    /// Change a set.
    Edit {
        /// Which.
        set: &'a ReplicaSet,
        /// Its new size, when that changes.
        replicas: Option<i32>,
        /// Its annotations, when they change.
        annotations: Option<Pairs>,
        /// How long its pods must be ready, when that changes.
        min_ready_seconds: Option<i32>,
    },
    /// Delete a set that nobody rolls back to.
    Delete(&'a ReplicaSet),
}

/// What to do, in order, and what to say when it is done.
#[derive(Debug)]
pub struct Plan<'a> {
    /// What to do.
    pub actions: Vec<Action<'a>>,
    /// What to say.
    pub status: DeploymentStatus,
    /// The revision to write on the Deployment, when it changes.
    pub revision: Option<String>,
    /// When to look again although nothing changed.
    pub look_again: Option<Duration>,
}

/// A set as it shall be.
struct Draft<'a> {
    /// As it is; `None` while it has to be created.
    origin: Option<&'a ReplicaSet>,
    name: String,
    replicas: i32,
    annotations: Pairs,
    min_ready_seconds: i32,
    delete: bool,
}

impl Draft<'_> {
    fn created(&self) -> Option<Timestamp> {
        self.origin.and_then(|set| set.metadata.creation_timestamp)
    }

    fn available(&self) -> i32 {
        self.origin.map_or(0, |set| set.status.available_replicas)
    }
}

/// The sets of a Deployment while it is decided on.
pub struct Sets<'a> {
    /// The older first.
    old: Vec<Draft<'a>>,
    new: Option<Draft<'a>>,
}

impl<'a> Sets<'a> {
    /// The oldest set of the current template is the new one; all others are old.
    fn sort(deployment: &Deployment, mut sets: Vec<&'a ReplicaSet>) -> Self {
        sets.sort_by_key(|set| (set.metadata.creation_timestamp, &*set.metadata.name));
        let mut drafts: Vec<_> = sets
            .into_iter()
            .map(|set| Draft {
                origin: Some(set),
                name: set.metadata.name.to_string(),
                replicas: set.spec.replicas,
                annotations: set.metadata.annotations.clone(),
                min_ready_seconds: set.spec.min_ready_seconds,
                delete: false,
            })
            .collect();
        let new = drafts
            .iter()
            .position(|draft| draft.origin.is_some_and(|set| set.spec.template == deployment.spec.template));
        let new = new.map(|at| drafts.remove(at));
        Self { old: drafts, new }
    }

    /// The sets as they are on the server.
    pub fn observed(&self) -> impl Iterator<Item = &'a ReplicaSet> {
        self.old.iter().chain(&self.new).filter_map(|draft| draft.origin)
    }

    /// The current set as it is on the server.
    pub fn new_observed(&self) -> Option<&'a ReplicaSet> {
        self.new.as_ref().and_then(|draft| draft.origin)
    }

    /// The name of the current set.
    pub fn new_name(&self) -> Option<&str> {
        self.new.as_ref().map(|draft| &*draft.name)
    }

    /// How many pods all sets together shall have.
    pub fn total(&self) -> i32 {
        self.old.iter().chain(&self.new).map(|draft| draft.replicas).sum()
    }

    fn new_size(&self) -> i32 {
        self.new.as_ref().map_or(0, |draft| draft.replicas)
    }

    fn new_available(&self) -> i32 {
        self.new.as_ref().map_or(0, Draft::available)
    }

    fn active(&self) -> impl Iterator<Item = &Draft<'a>> {
        self.old.iter().chain(&self.new).filter(|draft| draft.replicas > 0)
    }
}

/// Decides.
pub fn plan<'a>(view: View<'a>) -> Plan<'a> {
    let (deployment, now) = (view.deployment, whole_seconds(view.now));
    let mut stages = Stages {
        deployment,
        sets: Sets::sort(deployment, view.sets),
        conditions: status::with_pause(deployment, now),
        revision: None,
        now,
    };
    let status = if deployment.metadata.deleting() {
        stages.counted()
    } else if deployment.spec.paused || stages.was_scaled() {
        stages.renew();
        stages.scale();
        if deployment.spec.paused {
            stages.clean_up();
        }
        stages.counted()
    } else if rolling(deployment) {
        stages.renew();
        stages.create();
        stages.roll();
        stages.rollout()
    } else {
        stages.renew();
        stages.recreate(view.old_pods_running);
        stages.rollout()
    };
    let look_again = status::look_again(deployment, &status, view.now);
    Plan { revision: stages.revision.take(), actions: stages.actions(), status, look_again }
}

struct Stages<'a> {
    deployment: &'a Deployment,
    sets: Sets<'a>,
    conditions: Vec<Condition>,
    revision: Option<String>,
    now: Timestamp,
}

impl<'a> Stages<'a> {
    fn counted(&self) -> DeploymentStatus {
        status::counted(self.deployment, &self.sets, &self.conditions, self.now)
    }

    fn rollout(&self) -> DeploymentStatus {
        status::rollout(self.deployment, &self.sets, &self.conditions, self.now)
    }

    fn next_revision(&self) -> i64 {
        self.sets.old.iter().filter_map(|draft| draft.origin).map(revision::revision).max().unwrap_or(0) + 1
    }

    fn progress(&mut self, reason: &str, message: String) {
        if has_deadline(self.deployment) {
            set_condition(
                &mut self.conditions,
                new_condition(PROGRESSING, "True", reason, message, self.now),
            );
        }
    }

    fn set_revision(&mut self, revision: Option<String>) {
        let revision = revision.filter(|new| self.deployment.metadata.annotations.get(REVISION) != Some(new));
        self.revision = revision;
    }

    /// Brings the current set's annotations up to date and takes its revision over.
    fn renew(&mut self) {
        let revision = self.next_revision();
        let Some(new) = &mut self.sets.new else { return };
        hand_down(self.deployment, &mut new.annotations, revision);
        new.min_ready_seconds = self.deployment.spec.min_ready_seconds;
        let (revision, name) = (new.annotations.get(REVISION).map(str::to_owned), new.name.clone());
        self.set_revision(revision);
        if condition(&self.conditions, PROGRESSING).is_none() {
            self.progress("FoundNewReplicaSet", format!("Found new replica set \"{name}\""));
        }
    }

    /// Makes the set of the current template, where there is none.
    fn create(&mut self) {
        if self.sets.new.is_some() {
            return;
        }
        let deployment = self.deployment;
        let hash = deployment.spec.template.hash(deployment.status.collision_count);
        let name = set_name(&deployment.metadata.name, &hash);
        let revision = self.next_revision();
        let mut annotations = Pairs::default();
        hand_down(deployment, &mut annotations, revision);
        let mut draft = Draft {
            origin: None,
            name: name.clone(),
            replicas: new_size(deployment, 0, self.sets.total()),
            annotations,
            min_ready_seconds: deployment.spec.min_ready_seconds,
            delete: false,
        };
        note_sizes(deployment, &mut draft);
        self.sets.new = Some(draft);
        self.set_revision(Some(revision.to_string()));
        self.progress("NewReplicaSetCreated", format!("Created new replica set \"{name}\""));
    }

    /// One step of a rolling update: up where there is room, otherwise down where that is safe, otherwise
    /// clean up behind a finished one.
    fn roll(&mut self) {
        let deployment = self.deployment;
        let (wanted, size, total) = (deployment.spec.replicas, self.sets.new_size(), self.sets.total());
        if size != wanted {
            let to = if size > wanted { wanted } else { new_size(deployment, size, total) };
            if to != size {
                if let Some(new) = &mut self.sets.new {
                    resize(deployment, new, to);
                }
                return;
            }
        }
        if !self.roll_down() && complete(deployment, &deployment.status) {
            self.clean_up();
        }
    }

    /// Takes pods from old sets: first those that are not available anyway, then as many as availability
    /// allows. Unavailable pods of the new set are not taken as room, or a bad template would eat the good.
    fn roll_down(&mut self) -> bool {
        let deployment = self.deployment;
        let old: i32 = self.sets.old.iter().map(|draft| draft.replicas).sum();
        let floor = deployment.spec.replicas - max_unavailable(deployment);
        let mut room = self.sets.total() - floor - (self.sets.new_size() - self.sets.new_available());
        if old == 0 || room <= 0 {
            return false;
        }
        for draft in self.sets.old.iter_mut().filter(|draft| draft.replicas > 0) {
            let less = (draft.replicas - draft.available()).clamp(0, room.max(0));
            room -= less;
            let to = draft.replicas - less;
            resize(deployment, draft, to);
        }
        // What a set that shall have no pods still counts as available is on its way out.
        let staying =
            self.sets.old.iter().filter(|draft| draft.origin.is_some_and(|set| set.spec.replicas > 0));
        let available = staying.map(Draft::available).sum::<i32>() + self.sets.new_available();
        let mut spare = available - floor;
        for draft in self.sets.old.iter_mut().filter(|draft| draft.replicas > 0) {
            if spare <= 0 {
                break;
            }
            let less = draft.replicas.min(spare);
            spare -= less;
            let to = draft.replicas - less;
            resize(deployment, draft, to);
        }
        self.sets.old.iter().map(|draft| draft.replicas).sum::<i32>() < old
    }

    /// All old pods go before the first new one comes.
    fn recreate(&mut self, old_pods_running: bool) {
        let deployment = self.deployment;
        let mut scaled = false;
        for draft in self.sets.old.iter_mut().filter(|draft| draft.replicas > 0) {
            resize(deployment, draft, 0);
            scaled = true;
        }
        let counted: i32 =
            self.sets.old.iter().filter_map(|draft| draft.origin).map(|set| set.status.replicas).sum();
        if scaled || counted > 0 || old_pods_running {
            return;
        }
        self.create();
        if let Some(new) = &mut self.sets.new {
            resize(deployment, new, deployment.spec.replicas);
        }
        if complete(deployment, &deployment.status) {
            self.clean_up();
        }
    }

    /// Whether the size of the Deployment changed since its sets were last scaled.
    fn was_scaled(&self) -> bool {
        let wanted = self.deployment.spec.replicas;
        self.sets
            .active()
            .any(|set| revision::count(&set.annotations, DESIRED).is_some_and(|desired| desired != wanted))
    }

    /// Scales the sets with the Deployment: the only active one fully, several in proportion, so that a
    /// roll-out under way is neither hastened nor undone.
    fn scale(&mut self) {
        let deployment = self.deployment;
        let wanted = deployment.spec.replicas;
        match self.sets.active().count() {
            0 => {
                let latest = self.sets.old.iter_mut().max_by_key(|draft| draft.created());
                if let Some(draft) = self.sets.new.as_mut().or(latest) {
                    draft.replicas = wanted;
                    note_sizes(deployment, draft);
                }
                return;
            }
            1 => {
                let only =
                    self.sets.old.iter_mut().chain(&mut self.sets.new).find(|draft| draft.replicas > 0);
                if let Some(draft) = only {
                    draft.replicas = wanted;
                    note_sizes(deployment, draft);
                }
                return;
            }
            _ => {}
        }
        if self.saturated() {
            for draft in self.sets.old.iter_mut().filter(|draft| draft.replicas > 0) {
                resize(deployment, draft, 0);
            }
            return;
        }
        if rolling(deployment) {
            self.scale_in_proportion();
        }
    }

    fn saturated(&self) -> bool {
        let wanted = self.deployment.spec.replicas;
        self.sets.new.as_ref().is_some_and(|new| {
            new.replicas == wanted
                && revision::count(&new.annotations, DESIRED) == Some(wanted)
                && new.available() == wanted
        })
    }

    fn scale_in_proportion(&mut self) {
        let deployment = self.deployment;
        let allowed = match deployment.spec.replicas {
            0 => 0,
            wanted => wanted + max_surge(deployment),
        };
        let to_add = allowed - self.sets.total();
        let mut active: Vec<&mut Draft<'a>> =
            self.sets.old.iter_mut().chain(&mut self.sets.new).filter(|draft| draft.replicas > 0).collect();
        // The larger first; of equal ones the newer first when growing, the older first when shrinking.
        active.sort_by(|one, other| {
            let age = one.created().cmp(&other.created());
            other.replicas.cmp(&one.replicas).then(if to_add > 0 { age.reverse() } else { age })
        });
        let mut sizes = Vec::with_capacity(active.len());
        let mut added = 0;
        for draft in &active {
            let before = revision::count(&draft.annotations, MAXIMUM);
            let share = share(deployment, draft.replicas, before, to_add, added);
            added += share;
            sizes.push(draft.replicas + share);
        }
        if let Some(largest) = sizes.first_mut() {
            *largest = (*largest + to_add - added).max(0);
        }
        for (draft, size) in active.into_iter().zip(sizes) {
            draft.replicas = size;
            note_sizes(deployment, draft);
        }
    }

    /// Deletes the oldest old sets beyond the limit, of those that have no pods left.
    fn clean_up(&mut self) {
        let Some(limit) = self.deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX)
        else {
            return;
        };
        let mut alive: Vec<&mut Draft<'a>> = self
            .sets
            .old
            .iter_mut()
            .filter(|draft| draft.origin.is_some_and(|set| !set.metadata.deleting()))
            .collect();
        let excess = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        alive.sort_by_key(|draft| draft.origin.map(revision::revision));
        for draft in alive.into_iter().take(excess) {
            let unused = draft.origin.is_some_and(|set| {
                set.status.replicas == 0
                    && set.spec.replicas == 0
                    && set.metadata.generation <= set.status.observed_generation
            });
            draft.delete = unused && draft.replicas == 0;
        }
    }

    fn actions(self) -> Vec<Action<'a>> {
        let hash = self.deployment.spec.template.hash(self.deployment.status.collision_count);
        self.sets.new.into_iter().chain(self.sets.old).filter_map(|draft| action(draft, &hash)).collect()
    }
}

/// What makes the set on the server the draft.
fn action<'a>(draft: Draft<'a>, hash: &str) -> Option<Action<'a>> {
    let Some(set) = draft.origin else {
        let Draft { name, replicas, annotations, .. } = draft;
        return Some(Action::Create { name, hash: hash.to_owned(), replicas, annotations });
    };
    if draft.delete {
        return Some(Action::Delete(set));
    }
    let replicas = Some(draft.replicas).filter(|size| *size != set.spec.replicas);
    let annotations = Some(draft.annotations).filter(|own| *own != set.metadata.annotations);
    let min_ready_seconds = Some(draft.min_ready_seconds).filter(|own| *own != set.spec.min_ready_seconds);
    let changed = replicas.is_some() || annotations.is_some() || min_ready_seconds.is_some();
    changed.then_some(Action::Edit { set, replicas, annotations, min_ready_seconds })
}

/// Gives a set another size. One that keeps its size keeps its annotations, too.
fn resize(deployment: &Deployment, draft: &mut Draft<'_>, to: i32) {
    if draft.replicas != to {
        draft.replicas = to;
        note_sizes(deployment, draft);
    }
}

/// Notes the size of the Deployment on the set, so that a later change of it is recognised as scaling.
fn note_sizes(deployment: &Deployment, draft: &mut Draft<'_>) {
    let wanted = deployment.spec.replicas;
    draft.annotations.set(DESIRED, &wanted.to_string());
    draft.annotations.set(MAXIMUM, &(wanted + max_surge(deployment)).to_string());
}

/// The name of a set: the Deployment's and the hash, within the length a name may have.
fn set_name(deployment: &str, hash: &str) -> String {
    const LONGEST: usize = 253;
    let room = LONGEST.saturating_sub(hash.len() + 1);
    format!("{}-{hash}", &deployment[..deployment.len().min(room)])
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
