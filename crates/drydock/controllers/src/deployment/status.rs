//! What a Deployment says of itself: counts, conditions, and when it must look again because a deadline
//! passes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::bounds::max_unavailable;
use super::plan::Sets;
use crate::objects::condition::{Condition, condition};
use crate::objects::workload::{Deployment, DeploymentStatus};

/// Condition types and reasons, as Kubernetes names them.
pub const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";

/// Whether lack of progress is to be told. The largest number means never.
pub fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

/// Whether all wanted pods are of the current template and available, and no others are left.
pub fn complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas;
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// A new condition.
pub fn new_condition(r#type: &str, status: &str, reason: &str, message: String, now: Timestamp) -> Condition {
    Condition { last_update_time: Some(now), ..Condition::new(r#type, status, reason, message, now) }
}

/// Puts a condition in, unless one of its type says the same for the same reason. Its transition time stays
/// while its status does.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Some(held) = condition(conditions, &new.r#type) {
        if held.status == new.status && held.reason == new.reason {
            return;
        }
        if held.status == new.status {
            new.last_transition_time = held.last_transition_time;
        }
    }
    conditions.retain(|held| held.r#type != new.r#type);
    conditions.push(new);
}

/// The counts and whether enough is available, on top of the conditions there are.
pub fn counted(
    deployment: &Deployment,
    sets: &Sets<'_>,
    conditions: &[Condition],
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |count: &dyn Fn(&crate::objects::workload::ReplicaSetStatus) -> i32| -> i32 {
        sets.observed().map(|set| count(&set.status)).sum()
    };
    let available = sum(&|status| status.available_replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: sum(&|status| status.replicas),
        updated_replicas: sets.new_observed().map_or(0, |set| set.status.replicas),
        ready_replicas: sum(&|status| status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: (sets.total() - available).max(0),
        conditions: conditions.to_vec(),
        collision_count: deployment.status.collision_count,
    };
    let enough = available >= deployment.spec.replicas - max_unavailable(deployment);
    let (is, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status.conditions, new_condition(AVAILABLE, is, reason, message.into(), now));
    status
}

/// The whole status during and after a roll-out: with progress, its lack, and failures of the sets.
pub fn rollout(
    deployment: &Deployment,
    sets: &Sets<'_>,
    conditions: &[Condition],
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = counted(deployment, sets, conditions, now);
    let deadline = has_deadline(deployment);
    if !deadline {
        status.conditions.retain(|condition| &*condition.r#type != PROGRESSING);
    }
    let current = condition(conditions, PROGRESSING).cloned();
    let settled = status.replicas == status.updated_replicas
        && current.as_ref().is_some_and(|condition| &*condition.reason == NEW_AVAILABLE);
    if deadline && !settled {
        let subject = match sets.new_name() {
            Some(name) => format!("ReplicaSet \"{name}\""),
            None => format!("Deployment \"{}\"", deployment.metadata.name),
        };
        if complete(deployment, &status) {
            let message = format!("{subject} has successfully progressed.");
            set_condition(
                &mut status.conditions,
                new_condition(PROGRESSING, "True", NEW_AVAILABLE, message, now),
            );
        } else if progressed(&deployment.status, &status) {
            let message = format!("{subject} is progressing.");
            let mut new = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
            // The update time moves with every progress, also when the reason is the same.
            if let Some(current) = current.filter(|current| &*current.status == "True") {
                new.last_transition_time = current.last_transition_time;
            }
            status.conditions.retain(|condition| &*condition.r#type != PROGRESSING);
            set_condition(&mut status.conditions, new);
        } else if timed_out(deployment, &status, now) {
            let message = format!("{subject} has timed out progressing.");
            set_condition(
                &mut status.conditions,
                new_condition(PROGRESSING, "False", TIMED_OUT, message, now),
            );
        }
    }
    let failure = sets.new_observed().into_iter().chain(sets.observed());
    let failure = failure.into_iter().find_map(|set| condition(&set.status.conditions, REPLICA_FAILURE));
    match failure {
        Some(failure) => {
            let mut failure = failure.clone();
            failure.last_update_time = failure.last_transition_time;
            set_condition(&mut status.conditions, failure);
        }
        None => status.conditions.retain(|condition| &*condition.r#type != REPLICA_FAILURE),
    }
    status
}

fn progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    new.updated_replicas > old.updated_replicas
        || new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

fn timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(held) = condition(&status.conditions, PROGRESSING) else { return false };
    match &*held.reason {
        NEW_AVAILABLE => false,
        TIMED_OUT => true,
        _ => deadline_of(deployment, held).is_some_and(|deadline| deadline < now),
    }
}

fn deadline_of(deployment: &Deployment, held: &Condition) -> Option<Timestamp> {
    let seconds = i64::from(deployment.spec.progress_deadline_seconds?);
    held.last_update_time?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// When to look again, so that a lack of progress is told in time. Never where no time that passes changes what is said:
/// a roll-out that came to its end, whatever became of its pods since, or to its deadline, or that nobody leads.
pub fn look_again(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let held = condition(&status.conditions, PROGRESSING)?;
    if !has_deadline(deployment)
        || complete(deployment, status)
        || matches!(&*held.reason, NEW_AVAILABLE | TIMED_OUT)
        || deployment.spec.paused
        || deployment.metadata.deleting()
    {
        return None;
    }
    let left = deadline_of(deployment, held)?.duration_since(now);
    // A second more: times in objects have whole seconds.
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}

/// The conditions after a look at whether roll-outs are held, so that the time of the hold does not count
/// as lack of progress.
pub fn with_pause(deployment: &Deployment, now: Timestamp) -> Vec<Condition> {
    let mut conditions = deployment.status.conditions.clone();
    if !has_deadline(deployment) {
        return conditions;
    }
    let reason = condition(&conditions, PROGRESSING).map(|held| held.reason.clone());
    let held = reason.as_deref() == Some("DeploymentPaused");
    if reason.as_deref() == Some(TIMED_OUT) || held == deployment.spec.paused {
        return conditions;
    }
    let (reason, message) = if deployment.spec.paused {
        ("DeploymentPaused", "Deployment is paused")
    } else {
        ("DeploymentResumed", "Deployment is resumed")
    };
    set_condition(&mut conditions, new_condition(PROGRESSING, "Unknown", reason, message.into(), now));
    conditions
}
