//! From a server to nothing: what becomes of the data when a MySQL is deleted.

use std::time::Duration;

use ballast_operator::{
    DataReason, Effect, EventType, KindRef, Object, Operator as _, Plan, Removal, Target, Trouble, View, pod,
};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::{CronJob, Job},
    core::v1::{Namespace, PersistentVolumeClaim, Secret},
};
use kube_core::{Resource, ResourceExt as _};

use crate::{
    MADE_FOR, MySQLOperator, SKIP_FINAL_BACKUP, backups,
    backups::Made,
    desired,
    resource::{Cause, DeletionPolicy, MySQL, MySQLBackup, MySQLStatus},
    server,
};

/// Why somebody who reads the status of an instance that goes finds no last backup of it.
const NO_FINAL_BACKUP: &str = "NoFinalBackup";
/// How soon to look again at what nobody tells us of.
const AGAIN: Duration = Duration::from_secs(30);
/// How soon to go on with what was said: whoever waits for a namespace to go waits for this.
const SOON: Duration = Duration::from_secs(1);

pub(crate) fn retire(plan: &mut Plan, view: &View<MySQL>) {
    let Some(finalizer) = MySQLOperator::FINALIZER else { return };
    if !view.resource.finalizers().iter().any(|taken| taken == finalizer) {
        return;
    }
    let policy = view.resource.spec.deletion_policy;
    if namespace_goes(view) {
        // The volume may be gone before the instance is.
        let held_data = served(view) || may_hold_data(view);
        if policy == DeletionPolicy::Snapshot && held_data && !is_told(view) {
            // Not by an event, which can't be written there either; and before it is gone.
            let message =
                "the namespace is being deleted, and nothing can be started in it: no last backup is made";
            say(plan, view, message.to_owned(), Some(Trouble::new(NO_FINAL_BACKUP, message)));
            plan.then(Effect::LookAgain(SOON), "a status that is written makes no noise here");
            return;
        }
        return release(plan, finalizer);
    }
    if policy == DeletionPolicy::Snapshot && !take_the_last_backup(plan, view) {
        return;
    }
    remove::<StatefulSet>(
        plan,
        view,
        &desired::server_name(view.name()),
        &Removal::Child,
        "nobody needs the server any more",
    );
    if policy != DeletionPolicy::Retain {
        let right = Removal::Data(DataReason::DeletionPolicy);
        let because = match policy {
            DeletionPolicy::Snapshot => "a complete backup is kept, or nobody wants one",
            _ => "deletionPolicy is Delete",
        };
        remove::<PersistentVolumeClaim>(plan, view, &desired::data_claim_name(view.name()), &right, because);
        remove::<Secret>(
            plan,
            view,
            &desired::secret_name(view.name()),
            &right,
            "the passwords open nothing any more",
        );
    }
    if policy == DeletionPolicy::Delete {
        let right = Removal::Data(DataReason::DeletionPolicy);
        // The volume first: a backup whose volume goes needs nobody to remove its file.
        let claim = desired::backup_claim_name(view.name());
        remove::<PersistentVolumeClaim>(plan, view, &claim, &right, "deletionPolicy is Delete");
        let backups: Vec<MySQLBackup> = view.children.list();
        for backup in backups.iter().filter(|backup| backup.spec.instance == view.name()) {
            remove::<MySQLBackup>(plan, view, &backup.name_any(), &right, "deletionPolicy is Delete");
        }
    }
    let note = match policy {
        DeletionPolicy::Snapshot => "removed the server and its volume; the backups are kept",
        DeletionPolicy::Retain => "removed the server; its volume, its passwords and its backups are kept",
        DeletionPolicy::Delete => "removed the server, its volume and its backups",
    };
    plan.event(EventType::Normal, "Retired", "Delete", note, "people see it with kubectl get events");
    release(plan, finalizer);
}

fn release(plan: &mut Plan, finalizer: &str) {
    plan.then(Effect::Release { finalizer: finalizer.to_owned() }, "nothing is left to be decided");
}

fn namespace_goes(view: &View<MySQL>) -> bool {
    let namespace = view.namespace().and_then(|name| view.children.object(&KindRef::of::<Namespace>(), name));
    namespace.is_some_and(|namespace| namespace.is_being_deleted())
}

/// Whether people were told that no last backup is made.
fn is_told(view: &View<MySQL>) -> bool {
    let conditions = view.resource.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.reason == NO_FINAL_BACKUP)
}

/// Whether the volume may go. Otherwise what is missing is begun, or waited for.
fn take_the_last_backup(plan: &mut Plan, view: &View<MySQL>) -> bool {
    let annotations = view.resource.annotations();
    if annotations.get(SKIP_FINAL_BACKUP).is_some_and(|value| value == "true") {
        let note = format!("no last backup is made: {SKIP_FINAL_BACKUP} is true");
        plan.event(EventType::Warning, NO_FINAL_BACKUP, "Delete", note, "people should know of it");
        return true;
    }
    if !may_hold_data(view) {
        return true;
    }
    remove_cron_job(plan, view, "the last backup is the last");
    let (name, prefix) = backups::final_name(&view.resource);
    let way_out =
        format!("`kubectl annotate mysql {} {SKIP_FINAL_BACKUP}=true` lets it go without", view.name());
    let deadline = view.resource.spec.final_backup_deadline_seconds.max(60);
    let overdue = view
        .resource
        .metadata
        .deletion_timestamp
        .as_ref()
        .is_some_and(|since| view.now.duration_since(since.0).as_secs() > deadline);
    let trouble = match backups::before_deletion(view) {
        Made::Complete => return true,
        Made::Absent => {
            let backup =
                desired::backup(view, name.clone(), Some(prefix), Cause::BeforeDeletion, Some(deadline));
            plan.apply(Object::of(&backup), "deletionPolicy is Snapshot");
            None
        }
        Made::Running if overdue => Some(Trouble::new(
            "FinalBackupOverdue",
            format!("the last backup, {name}, is not complete after {deadline} s: {way_out}"),
        )),
        Made::Running => None,
        Made::Failed(why) => Some(Trouble::new(
            "FinalBackupFailed",
            format!(
                "the last backup, {name}, failed: {why}. Delete that MySQLBackup to have it tried again; {way_out}"
            ),
        )),
    };
    let serves = server::server_pod(view).is_some_and(|found| pod::is_ready(&found));
    let message = match &trouble {
        Some(trouble) => trouble.message.clone(),
        None if !serves => format!("the last backup, {name}, waits for the server to serve; {way_out}"),
        None => format!("the last backup, {name}, is being made"),
    };
    say(plan, view, message, trouble);
    plan.then(Effect::LookAgain(AGAIN), "a deadline makes no noise");
    false
}

/// An instance may go before anybody here heard its server. The last backup is made of what Kubernetes says is ready: then
/// a query succeeded.
fn learned(view: &View<MySQL>, status: MySQLStatus) -> MySQLStatus {
    let ready = server::server_pod(view).is_some_and(|found| pod::is_ready(&found));
    let set = view.children.get::<StatefulSet>(&desired::server_name(view.name())).and_then(Result::ok);
    match set.filter(|_| ready && status.flavour.is_none()) {
        Some(live) => MySQLStatus {
            flavour: desired::flavour_of(&live),
            image: desired::image_of(&live).map(str::to_owned),
            ..status
        },
        None => status,
    }
}

/// What is said of an instance that goes.
fn say(plan: &mut Plan, view: &View<MySQL>, message: String, trouble: Option<Trouble>) {
    let old = learned(view, view.resource.status.clone().unwrap_or_default());
    let mut conditions = view
        .conditions()
        .set("Ready", false, "Deleting", "it is being deleted")
        .set("Progressing", trouble.is_none(), "Deleting", message.clone())
        // What becomes of the data comes before what else went wrong.
        .degraded(trouble.or(view.last_trouble()));
    if let Some(backups) = old.conditions.iter().find(|condition| condition.type_ == "BackupHealthy") {
        let status = match backups.status.as_str() {
            "True" => ballast_operator::ConditionStatus::True,
            "False" => ballast_operator::ConditionStatus::False,
            _ => ballast_operator::ConditionStatus::Unknown,
        };
        conditions = conditions.set("BackupHealthy", status, &backups.reason, backups.message.clone());
    }
    let status = MySQLStatus {
        phase: "Deleting".to_owned(),
        message,
        observed_generation: view.generation(),
        conditions: conditions.into_list(),
        ..old
    };
    plan.report(view, status);
}

/// Whether anything can be on the volume that somebody put there: a server was started on it, or it was here before.
/// That nobody here ever reached that server is no evidence: others may have.
fn may_hold_data(view: &View<MySQL>) -> bool {
    let claim =
        view.children.object(&KindRef::of::<PersistentVolumeClaim>(), &desired::data_claim_name(view.name()));
    let Some(claim) = claim else { return false };
    let uid = view.resource.metadata.uid.as_deref();
    let made_for = claim.value()["metadata"]["annotations"][MADE_FOR].as_str();
    // Without a pod to judge by, there may have been one: but not before the StatefulSet was seen by those who make it, nor
    // without a volume.
    let ran = server::ran(view).unwrap_or_else(|| {
        let pending = claim.value()["status"]["phase"] == "Pending";
        let set = view.children.object(&KindRef::of::<StatefulSet>(), &desired::server_name(view.name()));
        !pending && set.is_some_and(|set| !set.value()["status"]["observedGeneration"].is_null())
    });
    served(view) || made_for != uid || desired::is_opened(claim) || ran
}

/// Whether a server ever served, or was filled.
pub(crate) fn served(view: &View<MySQL>) -> bool {
    let status = view.resource.status.as_ref();
    status.is_some_and(|status| status.version.is_some() || status.restored_from.is_some())
}

/// Removes the CronJob, where there is one of ours.
pub(crate) fn remove_cron_job(plan: &mut Plan, view: &View<MySQL>, because: &str) {
    remove::<CronJob>(plan, view, &desired::cron_job_name(view.name()), &Removal::Child, because);
}

/// Removes a Job, where there is one of ours.
pub(crate) fn remove_job(plan: &mut Plan, view: &View<MySQL>, name: &str, because: &str) {
    remove::<Job>(plan, view, name, &Removal::Child, because);
}

fn remove<K>(plan: &mut Plan, view: &View<MySQL>, name: &str, right: &Removal, because: &str)
where
    K: Resource<DynamicType = ()>,
    K::Scope: ballast_operator::Scope,
{
    let kind = KindRef::of::<K>();
    let Some(seen) = view.children.object(&kind, name).filter(|seen| !seen.is_being_deleted()) else {
        return;
    };
    // A stranger's stays, and so does a volume that was never ours.
    let ours = match right {
        Removal::Child => view.controls(seen),
        Removal::Data(_) => {
            seen.label(crate::LABEL) == Some(view.name()) || seen.label(".spec.instance") == Some(view.name())
        }
    };
    if ours {
        plan.then(Effect::Remove { target: Target::of(&kind, seen), right: right.clone() }, because);
    }
}
