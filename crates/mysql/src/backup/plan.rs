//! From what is seen to what is done about one backup.

use std::time::Duration;

use ballast_operator::{
    Answers, Effect, KindRef, Object, Operator as _, Plan, Removal, Target, Trouble, View,
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Namespace, PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use kube_core::ResourceExt as _;

use super::{
    MySQLBackupOperator,
    evidence::{self, Found, Proof},
};
use crate::{
    VOLUME_GONE, desired,
    jobs::{self, Progress},
    resource::{Cause, Fate, MySQL, MySQLBackup, MySQLBackupStatus, Outcome},
    status::with_what_failed,
    validate::{Placement, Wanted},
};

/// How often a Job that is the CronJob's is looked at: its changes are told to nobody here, those of its pods are.
const AGAIN: Duration = Duration::from_secs(10);

/// How often the volume of a complete one is looked for.
const NOW_AND_THEN: Duration = Duration::from_secs(60);

/// The Job that removes a backup's file. A backup's name leaves no room for another word.
pub(super) fn removal_name(resource: &MySQLBackup) -> String {
    format!("remove-{}", resource.metadata.uid.as_deref().unwrap_or_default())
}

pub(super) fn plan(operator: &MySQLBackupOperator, view: &View<MySQLBackup>, answers: &Answers) -> Plan {
    let mut plan = Plan::empty();
    if view.is_being_deleted() {
        clear_away(&mut plan, operator, view);
        return plan;
    }
    match Wanted::try_from(&view.resource) {
        Err(problems) => {
            let old = view.resource.status.clone().unwrap_or_default();
            let conditions = view.conditions().invalid_spec(&problems).into_list();
            plan.report(view, MySQLBackupStatus { conditions, ..old });
        }
        Ok(wanted) => {
            if let Some(finalizer) = MySQLBackupOperator::FINALIZER {
                let because = "the file goes before the resource that speaks of it";
                plan.then(Effect::Hold { finalizer: finalizer.to_owned() }, because);
            }
            let old = view.resource.status.clone().unwrap_or_default();
            match old.outcome {
                Some(_) => stay(&mut plan, view, old, answers),
                None => make(&mut plan, operator, view, &wanted, answers),
            }
        }
    }
    plan
}

/// What came of it does not change any more. Who is restored from it does.
fn stay(plan: &mut Plan, view: &View<MySQLBackup>, mut status: MySQLBackupStatus, answers: &Answers) {
    if status.tables.is_empty() {
        status.tables = evidence::late_tables(view, &status, answers);
    }
    finish(plan, view, status);
}

/// Who is being restored from it.
fn restoring(view: &View<MySQLBackup>) -> Vec<String> {
    let name = view.name();
    let instances: Vec<MySQL> = view.children.list();
    let from_here = |instance: &&MySQL| {
        let source = instance.spec.restore_from.as_ref().and_then(|from| from.backup.as_deref());
        let done = instance.status.as_ref().is_some_and(|status| status.restored_from.is_some());
        source == Some(name) && !done && instance.metadata.deletion_timestamp.is_none()
    };
    instances.iter().filter(from_here).map(kube_core::ResourceExt::name_any).collect()
}

fn make(
    plan: &mut Plan,
    operator: &MySQLBackupOperator,
    view: &View<MySQLBackup>,
    wanted: &Wanted,
    answers: &Answers,
) {
    let pending = |reason: &'static str, message: String| {
        (MySQLBackupStatus { message, ..MySQLBackupStatus::default() }, reason)
    };
    match evidence::job(view) {
        Found::Job(job) => match evidence::proof(view, &job, answers) {
            Proof::Complete(status) => return end(plan, view, *status),
            Proof::Failed(why) => return fail(plan, view, why, started_at(&job)),
            Proof::Unseen(ago) => {
                let (mut status, reason) =
                    pending("Running", "the backup is made; its pod is not seen yet".to_owned());
                status.started_at = started_at(&job);
                report(plan, view, status, reason, None);
                let because = "the Job is done, and its pod was not seen to be";
                plan.look_anew(KindRef::of::<Pod>(), ago, because);
            }
            Proof::Stuck(Trouble { reason, message }) => {
                let message = format!(
                    "the backup is not begun yet: {message}. Once that is put right it goes on; delete this MySQLBackup to \
                     give it up"
                );
                let (mut status, _) = pending(reason, message.clone());
                status.started_at = started_at(&job);
                report(plan, view, status, reason, Some(Trouble::new(reason, message)));
            }
            Proof::Running(failed) => {
                let message = match failed {
                    None => "the backup is being made".to_owned(),
                    Some(why) => format!("the backup is being made once more, for it failed: {why}"),
                };
                let (mut status, reason) = pending("Running", message);
                status.started_at = started_at(&job);
                report(plan, view, status, reason, None);
            }
        },
        Found::Stranger => {
            let message = format!(
                "the Job {} was not made for this backup and is left alone: delete it, or ask for a backup by another name",
                wanted.name
            );
            let (status, reason) = pending("NameTaken", message.clone());
            report(plan, view, status, reason, Some(Trouble::new("NameTaken", message)));
        }
        Found::Nothing
            if desired::is_record(&view.resource)
                && evidence::recent(view, view.resource.metadata.creation_timestamp.as_ref()).is_some() =>
        {
            let (status, reason) = pending("Running", "the backup's Job is not seen yet".to_owned());
            report(plan, view, status, reason, None);
        }
        Found::Nothing if desired::is_record(&view.resource) => {
            return fail(
                plan,
                view,
                "its Job was gone before anybody saw what it made: nothing is proved".to_owned(),
                None,
            );
        }
        Found::Nothing => begin(plan, operator, view, wanted),
    }
    plan.then(Effect::LookAgain(AGAIN), "not everything that is waited for makes a noise");
}

/// Begins, where there is a server to make a backup of.
fn begin(plan: &mut Plan, operator: &MySQLBackupOperator, view: &View<MySQLBackup>, wanted: &Wanted) {
    let name = &wanted.spec.instance;
    let instance = match view.children.get::<MySQL>(name) {
        Some(Ok(instance)) => instance,
        _ => {
            let trouble =
                Trouble::new("InstanceNotFound", format!("there is no MySQL {name} in this namespace"));
            let status =
                MySQLBackupStatus { message: trouble.message.clone(), ..MySQLBackupStatus::default() };
            return report(plan, view, status, trouble.reason, Some(trouble));
        }
    };
    let known = instance.status.as_ref();
    let server = known.and_then(|status| Some((status.flavour?, status.image.clone()?)));
    let Some((flavour, image)) = server else {
        let message = format!("the MySQL {name} did not serve yet");
        let status = MySQLBackupStatus { message, ..MySQLBackupStatus::default() };
        return report(plan, view, status, "InstanceNotReady", None);
    };
    let last = wanted.spec.reason == Cause::BeforeDeletion && instance.metadata.deletion_timestamp.is_some();
    let spec = instance.spec.clone();
    let placement = Placement {
        node_selector: spec.node_selector,
        tolerations: spec.tolerations,
        affinity: spec.affinity,
        priority_class_name: spec.priority_class_name,
    };
    let job = desired::dump_job(
        view,
        &operator.agent_image,
        (flavour, &image),
        &placement,
        wanted.spec.deadline_seconds,
        last,
    );
    plan.apply(Object::of(&job), format!("a backup of {name} is made"));
    let status = MySQLBackupStatus {
        message: "the backup is about to be made".to_owned(),
        ..MySQLBackupStatus::default()
    };
    report(plan, view, status, "Running", None);
}

fn started_at(job: &Job) -> Option<Time> {
    job.status.as_ref().and_then(|status| status.start_time.clone())
}

fn fail(plan: &mut Plan, view: &View<MySQLBackup>, why: String, started_at: Option<Time>) {
    let outcome = Some(Outcome::Failed);
    end(plan, view, MySQLBackupStatus { outcome, message: why, started_at, ..MySQLBackupStatus::default() });
}

/// What came of it is known now.
fn end(plan: &mut Plan, view: &View<MySQLBackup>, status: MySQLBackupStatus) {
    finish(plan, view, MySQLBackupStatus { ended_at: Some(MicroTime(view.now)), ..status });
}

fn counted(number: i64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Says what came of it.
fn finish(plan: &mut Plan, view: &View<MySQLBackup>, mut status: MySQLBackupStatus) {
    if let Some(trouble) = volume_gone(view, &status) {
        status.message.clone_from(&trouble.message);
        report(plan, view, status, trouble.reason, Some(trouble));
    } else if status.outcome == Some(Outcome::Complete) {
        status.message = format!(
            "{} holds {} of {}; it was read back and matched",
            status.file.as_deref().unwrap_or_default(),
            counted(status.rows.unwrap_or_default(), "row"),
            counted(status.table_count.unwrap_or_default(), "table")
        );
        report(plan, view, status, "Complete", None);
        plan.then(Effect::LookAgain(NOW_AND_THEN), "its volume goes without a noise here");
    } else {
        let trouble = Trouble::new("BackupFailed", status.message.clone());
        report(plan, view, status, "BackupFailed", Some(trouble));
    }
}

/// Where the volume that the file was on is gone, and perhaps another has its name.
fn volume_gone(view: &View<MySQLBackup>, status: &MySQLBackupStatus) -> Option<Trouble> {
    let (Some(Outcome::Complete), Some(name)) = (status.outcome, &status.claim) else { return None };
    let claim = view.children.object(&KindRef::of::<PersistentVolumeClaim>(), name);
    let made = claim.and_then(|claim| {
        let claim: PersistentVolumeClaim = claim.read().ok()?;
        claim.metadata.creation_timestamp
    });
    let message = match (claim, made, &status.completed_at) {
        (None, ..) => {
            format!("it was complete, and the PersistentVolumeClaim {name} that its file was on is gone")
        }
        (Some(_), Some(made), Some(completed)) if made.0 > completed.0 => format!(
            "it was complete, and the PersistentVolumeClaim {name} that its file was on is gone: the one that there is was \
             made later. Where the file is on it all the same, restoreFrom.volume takes it"
        ),
        _ => return None,
    };
    Some(Trouble::new(VOLUME_GONE, message))
}

fn report(
    plan: &mut Plan,
    view: &View<MySQLBackup>,
    status: MySQLBackupStatus,
    reason: &'static str,
    trouble: Option<Trouble>,
) {
    let complete = status.outcome == Some(Outcome::Complete) && trouble.is_none();
    let conditions = view
        .conditions()
        .set("Ready", complete, reason, status.message.clone())
        .set("Progressing", status.outcome.is_none() && trouble.is_none(), reason, status.message.clone())
        // What is proved is proved, whatever else goes wrong.
        .degraded(if complete { trouble } else { with_what_failed(view, trouble) });
    let status = MySQLBackupStatus {
        restoring: restoring(view),
        observed_generation: view.generation(),
        conditions: conditions.into_list(),
        ..status
    };
    plan.report(view, status);
}

/// The file goes before the resource, but not from under somebody who reads it.
fn clear_away(plan: &mut Plan, operator: &MySQLBackupOperator, view: &View<MySQLBackup>) {
    let Some(finalizer) = MySQLBackupOperator::FINALIZER else { return };
    if !view.resource.finalizers().iter().any(|taken| taken == finalizer) {
        return;
    }
    let release = |plan: &mut Plan, because: &str| {
        plan.then(Effect::Release { finalizer: finalizer.to_owned() }, because);
    };
    if goes::<Namespace>(view, view.namespace()) {
        return release(plan, "everything around it goes");
    }
    let status = view.resource.status.clone().unwrap_or_default();
    // A Job that outlived its record would be recorded again, with a file that is gone.
    if matches!(evidence::job(view), Found::Job(_)) {
        let kind = KindRef::of::<Job>();
        if let Some(seen) = view.children.object(&kind, view.name()).filter(|seen| !seen.is_being_deleted()) {
            let effect = Effect::Remove { target: Target::of(&kind, seen), right: Removal::Child };
            plan.then(effect, "a Job goes before the record of it");
        }
        return wait(plan, view, status, "its Job is being removed".to_owned(), None);
    }
    let (Some(claim), Some(file)) = (status.claim.clone(), status.file.clone()) else {
        return release(plan, "there is no file of it");
    };
    if view.resource.spec.deletion_policy == Fate::Retain {
        return release(plan, "the file is to stay");
    }
    if goes::<PersistentVolumeClaim>(view, Some(&claim)) {
        return release(plan, "the file goes with its volume");
    }
    let readers = restoring(view);
    if !readers.is_empty() {
        let message = format!("{} is being restored from it: it goes when that is done", readers.join(", "));
        wait(plan, view, status, message, None);
        return;
    }
    let name = removal_name(&view.resource);
    match view.children.get::<Job>(&name).and_then(Result::ok).map(|job| (jobs::progress(&job), job)) {
        None => {
            let job = desired::remove_job(view, name, &operator.agent_image, &claim, &file);
            plan.apply(Object::of(&job), format!("{file} goes first"));
            wait(plan, view, status, format!("{file} is being removed"), None);
        }
        Some((Progress::Running, _)) => match jobs::stuck(&jobs::pods(view, &name), view.now) {
            None => wait(plan, view, status, format!("{file} is being removed"), None),
            Some(trouble) => {
                let message = format!(
                    "{file} is not removed yet: {}. Once that is put right it goes on; or set spec.deletionPolicy to Retain",
                    trouble.message
                );
                wait(plan, view, status, message.clone(), Some(Trouble::new("RemovalFailed", message)));
            }
        },
        Some((Progress::Complete, _)) => release(plan, "the file is gone"),
        Some((Progress::Failed, job)) => {
            let why = jobs::why_failed(&jobs::pods(view, &name)).or_else(|| jobs::given_up(&job));
            let message = format!(
                "{file} could not be removed: {}. Delete the Job {name} to have it tried again, or set \
                 spec.deletionPolicy to Retain",
                why.unwrap_or_else(|| "nobody said why".to_owned())
            );
            wait(plan, view, status, message.clone(), Some(Trouble::new("RemovalFailed", message)));
        }
    }
}

/// Whether something is gone, or on its way. What nobody looked for is not.
fn goes<K>(view: &View<MySQLBackup>, name: Option<&str>) -> bool
where
    K: kube_core::Resource<DynamicType = ()>,
    K::Scope: ballast_operator::Scope,
{
    let kind = KindRef::of::<K>();
    let found = name.and_then(|name| view.children.object(&kind, name));
    match found {
        Some(found) => found.is_being_deleted(),
        // A namespace is there as long as something is in it.
        None => kind.namespaced,
    }
}

fn wait(
    plan: &mut Plan,
    view: &View<MySQLBackup>,
    status: MySQLBackupStatus,
    message: String,
    trouble: Option<Trouble>,
) {
    let complete = status.outcome == Some(Outcome::Complete);
    let conditions = view
        .conditions()
        .set("Ready", complete, "Deleting", "it is being deleted")
        .set("Progressing", trouble.is_none(), "Deleting", message.clone())
        .degraded(with_what_failed(view, trouble));
    let restoring = restoring(view);
    plan.report(view, MySQLBackupStatus { message, restoring, conditions: conditions.into_list(), ..status });
    plan.then(Effect::LookAgain(AGAIN), "not everything that is waited for makes a noise");
}
