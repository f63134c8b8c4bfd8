//! The backups of an instance: which there are, which are recorded, which may go, and whether they are as they should be.

use ballast_operator::{
    ConditionStatus, DataReason, Effect, EventType, KindRef, Object, Plan, Removal, Target, Trouble, View,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube_core::ResourceExt as _;

use crate::{
    INSTANTIATE, LABEL, MANUAL, ROLE, VOLUME_GONE,
    desired::{self, Role},
    resource::{Cause, MySQL, MySQLBackup, MySQLBackupStatus, Outcome, Scheduled},
    schedule::Schedule,
    validate::{BACKUP_NAME_MESSAGE, Instance, MAX_BACKUP_NAME, is_label},
};

/// How late a backup may be tried before it counts as missed: a CronJob's controller and a scheduler need their time.
const GRACE: SignedDuration = SignedDuration::from_mins(10);
/// How many records of failures are kept: what is wrong is in the last ones.
const FAILURES: usize = 3;

/// What came of a backup that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Absent,
    Running,
    Complete,
    Failed(String),
}

/// The name of the backup before a change of the version, and what of it is not random. One for each change.
pub(crate) fn upgrade_name(resource: &MySQL) -> (String, String) {
    let generation = resource.metadata.generation.unwrap_or_default();
    let prefix = format!("upgrade-{}-", resource.name_any());
    (format!("{prefix}{}-{generation}", life(resource, 6)), prefix)
}

/// The name of the last backup, and what of it is not random. One for each life.
pub(crate) fn final_name(resource: &MySQL) -> (String, String) {
    let prefix = format!("final-{}-", resource.name_any());
    (format!("{prefix}{}", life(resource, 8)), prefix)
}

/// What tells this instance from others of its name that were and will be.
fn life(resource: &MySQL, letters: usize) -> String {
    let uid = resource.metadata.uid.as_deref().unwrap_or_default();
    uid.chars().filter(char::is_ascii_alphanumeric).take(letters).collect()
}

pub(crate) fn before_upgrade(view: &View<MySQL>) -> Made {
    made(view, &upgrade_name(&view.resource).0)
}

pub(crate) fn before_deletion(view: &View<MySQL>) -> Made {
    made(view, &final_name(&view.resource).0)
}

fn made(view: &View<MySQL>, name: &str) -> Made {
    let Some(Ok(backup)) = view.children.get::<MySQLBackup>(name) else { return Made::Absent };
    if backup.metadata.deletion_timestamp.is_some() {
        // It is not to be counted on, and another one is made when it is gone.
        return Made::Running;
    }
    let status = backup.status.unwrap_or_default();
    match status.outcome {
        None => Made::Running,
        Some(_) if is_volume_gone(&status) => Made::Failed(status.message),
        Some(Outcome::Complete) => Made::Complete,
        Some(Outcome::Failed) => Made::Failed(status.message),
    }
}

/// All of this instance, the oldest first.
fn all(view: &View<MySQL>) -> Vec<MySQLBackup> {
    let mut backups: Vec<MySQLBackup> = view.children.list();
    backups.retain(|backup| backup.spec.instance == view.name());
    backups.sort_by_key(|backup| (began(backup), ended(backup), backup.name_any()));
    backups
}

/// Since when there is the data that there is, or would be: before there is a volume nothing is from before this instance.
/// One that goes may be that of an instance that went.
fn since(view: &View<MySQL>) -> Option<Timestamp> {
    let claim = view.children.get::<PersistentVolumeClaim>(&desired::data_claim_name(view.name()));
    let stays = |claim: &PersistentVolumeClaim| claim.metadata.deletion_timestamp.is_none();
    let made = match claim.and_then(Result::ok).filter(stays) {
        Some(claim) => claim.metadata.creation_timestamp,
        None => view.resource.metadata.creation_timestamp.clone(),
    };
    made.map(|since| since.0)
}

/// Those of the data that there is: a volume that was made anew holds nothing of what was backed up before.
fn of_this_data(view: &View<MySQL>) -> Vec<MySQLBackup> {
    let since = since(view);
    let mut backups = all(view);
    backups.retain(|backup| match backup.spec.reason {
        // Times are of whole seconds, and in the one in which data came other data may have gone.
        Cause::BeforeDeletion => began(backup) > since,
        _ => began(backup) >= since,
    });
    backups
}

fn began(backup: &MySQLBackup) -> Option<Timestamp> {
    let started = backup.status.as_ref().and_then(|status| status.started_at.as_ref());
    started.or(backup.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// When what came of it was known. The times of Kubernetes are of whole seconds, in which much may happen.
fn ended(backup: &MySQLBackup) -> Option<Timestamp> {
    let status = backup.status.as_ref()?;
    let known = status.ended_at.as_ref().map(|time| time.0);
    // Who wrote no such time yet knew this one.
    known.or_else(|| status.completed_at.as_ref().map(|time| time.0)).or_else(|| began(backup))
}

/// What came of it, and is still so: one whose volume is gone is as good as one that failed.
fn outcome(backup: &MySQLBackup) -> Option<Outcome> {
    let status = backup.status.as_ref()?;
    if is_volume_gone(status) { Some(Outcome::Failed) } else { status.outcome }
}

/// Whether the file of a backup went with its volume.
pub(crate) fn is_volume_gone(status: &MySQLBackupStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Degraded" && condition.reason == VOLUME_GONE)
}

fn completed(backup: &MySQLBackup) -> Option<&Time> {
    let complete = outcome(backup) == Some(Outcome::Complete);
    backup.status.as_ref().filter(|_| complete)?.completed_at.as_ref()
}

/// The last complete one that was made before a change of the version.
pub(crate) fn last_before_upgrade(view: &View<MySQL>) -> Option<String> {
    let complete = |backup: &&MySQLBackup| {
        backup.spec.reason == Cause::BeforeUpgrade
            && outcome(backup) == Some(Outcome::Complete)
            && backup.metadata.deletion_timestamp.is_none()
    };
    of_this_data(view).iter().rev().find(complete).map(kube_core::ResourceExt::name_any)
}

/// The newest complete one that is there to stay, of whatever was ever on the volume.
pub(crate) fn newest(view: &View<MySQL>) -> Option<String> {
    newest_of(all(view).iter())
}

/// The newest complete one of some. One that goes already is not to be counted on.
fn newest_of<'b>(backups: impl Iterator<Item = &'b MySQLBackup>) -> Option<String> {
    backups
        .filter(|backup| completed(backup).is_some() && backup.metadata.deletion_timestamp.is_none())
        .max_by_key(|backup| completed(backup).map(|time| time.0))
        .map(kube_core::ResourceExt::name_any)
}

/// When the last complete one was made.
pub(crate) fn last_complete(view: &View<MySQL>) -> Option<Time> {
    of_this_data(view).iter().filter_map(completed).max_by_key(|time| time.0).cloned()
}

/// The names of the Jobs that the CronJob made, by the clock or by hand, as far as a record can have them.
pub(crate) fn jobs(view: &View<MySQL>) -> Vec<String> {
    let mut names = all_jobs(view);
    names.retain(|name| is_label(name, MAX_BACKUP_NAME));
    names
}

/// What is said of a Job that can't have a record, which is called as its Job is.
pub(crate) fn unrecorded(view: &View<MySQL>) -> Option<Trouble> {
    let (name, why) = all_jobs(view).into_iter().find_map(|name| {
        let why = if is_label(&name, MAX_BACKUP_NAME) {
            format!("the MySQLBackup {name} {}", speaks_of_another(view, &name)?)
        } else {
            BACKUP_NAME_MESSAGE.to_owned()
        };
        Some((name, why))
    })?;
    let message = format!(
        "what comes of the Job {name} is not recorded: {why}. Delete it, and make one by another name"
    );
    Some(Trouble::new("JobNotRecorded", message))
}

/// Of what the record speaks that is called as a Job is, where it is not that Job.
fn speaks_of_another(view: &View<MySQL>, name: &str) -> Option<String> {
    let record = view.children.get::<MySQLBackup>(name)?.ok()?;
    if record.spec.instance != view.name() {
        return Some(format!("is of {}", record.spec.instance));
    }
    let job = view.children.get::<Job>(name)?.ok()?;
    let made = |time: Option<Time>| time.map(|time| time.0);
    // A record is made after its Job, by the same clock.
    let earlier = made(record.metadata.creation_timestamp)? < made(job.metadata.creation_timestamp)?;
    earlier.then(|| "is of an earlier Job of that name".to_owned())
}

fn all_jobs(view: &View<MySQL>) -> Vec<String> {
    let cron_job = desired::cron_job_name(view.name());
    let kind = KindRef::of::<Job>();
    let of_cron_job = |object: &Object| {
        object.controller().is_some_and(|owner| owner.kind == "CronJob" && owner.name == cron_job)
            && object.label(ROLE) == Some(Role::Backup.word())
            && object.label(LABEL) == Some(view.name())
    };
    view.children.objects(&kind).filter(|job| of_cron_job(job)).map(|job| job.name().to_owned()).collect()
}

/// Whether a person made a Job, and not the clock.
fn is_by_hand(view: &View<MySQL>, job: &str) -> bool {
    let job = view.children.object(&KindRef::of::<Job>(), job);
    job.is_some_and(|job| job.value()["metadata"]["annotations"][INSTANTIATE] == MANUAL)
}

/// Makes a record of each Job that has none.
pub(crate) fn record(plan: &mut Plan, view: &View<MySQL>) {
    for name in jobs(view) {
        if view.children.object(&KindRef::of::<MySQLBackup>(), &name).is_none() {
            let record = if is_by_hand(view, &name) {
                desired::record_by_hand(view, name)
            } else {
                desired::backup(view, name, None, Cause::Scheduled, None)
            };
            plan.apply(Object::of(&record), "what came of a Job is to be known after it is gone");
        }
    }
}

/// Removes what the retention does not keep.
pub(crate) fn retain(plan: &mut Plan, view: &View<MySQL>, instance: &Instance) {
    let backups = all(view);
    // What people asked for themselves is theirs to delete.
    let ours = |backup: &&MySQLBackup| {
        matches!(backup.spec.reason, Cause::Scheduled | Cause::BeforeUpgrade)
            && backup.metadata.deletion_timestamp.is_none()
    };
    // Those of a new volume are no substitute for the last of the one before: somebody may find out late what was lost.
    let since = since(view);
    let last = newest_of(backups.iter());
    let last_before = newest_of(backups.iter().filter(|backup| began(backup) < since));
    let newest = |wanted: Outcome| {
        let of_outcome = move |backup: &&MySQLBackup| outcome(backup) == Some(wanted);
        backups.iter().rev().filter(ours).filter(of_outcome)
    };
    for (place, backup) in newest(Outcome::Complete).enumerate() {
        let restoring = backup.status.as_ref().is_some_and(|status| !status.restoring.is_empty());
        let name = Some(backup.name_any());
        if name == last || name == last_before || restoring {
            continue;
        }
        let age = completed(backup).map(|at| view.now.duration_since(at.0));
        if place >= instance.keep {
            remove(plan, view, backup, format!("the newest {} are kept", instance.keep));
        } else if let (Some(age), Some(longest)) = (age, instance.keep_for)
            && age > longest
        {
            remove(plan, view, backup, format!("they are kept for {} hours", longest.as_hours()));
        }
    }
    for backup in newest(Outcome::Failed).skip(FAILURES) {
        remove(plan, view, backup, format!("the records of the last {FAILURES} failures are kept"));
    }
}

fn remove(plan: &mut Plan, view: &View<MySQL>, backup: &MySQLBackup, rule: String) {
    let kind = KindRef::of::<MySQLBackup>();
    if let Some(seen) = view.children.object(&kind, &backup.name_any()) {
        let right = Removal::Data(DataReason::Retention { rule: rule.clone() });
        plan.then(Effect::Remove { target: Target::of(&kind, seen), right }, rule);
    }
}

/// The schedule that holds, and since when.
pub(crate) fn scheduled(view: &View<MySQL>, instance: &Instance) -> Option<Scheduled> {
    let schedule = instance.schedule.as_ref()?;
    let old = view.resource.status.as_ref().and_then(|status| status.schedule.clone());
    let now = Timestamp::from_second(view.now.as_second()).unwrap_or(view.now);
    let new = || Scheduled { schedule: schedule.clone(), since: Time(now) };
    Some(old.filter(|old| old.schedule == *schedule).unwrap_or_else(new))
}

/// Whether backups are as they should be: a condition's status, reason and message.
pub(crate) struct Healthy {
    pub(crate) status: ConditionStatus,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// When that may change by time alone.
    pub(crate) look_again: Option<SignedDuration>,
}

pub(crate) fn healthy(view: &View<MySQL>, instance: &Instance) -> Healthy {
    let backups = of_this_data(view);
    let schedule = scheduled(view, instance);
    let due = schedule.as_ref().and_then(|holds| {
        let schedule = Schedule::parse(&holds.schedule)?;
        let late = view.now.checked_sub(GRACE).ok()?;
        Some((schedule.last(holds.since.0, late), schedule.next(late)?))
    });
    let (last_due, next_due) = due.map_or((None, None), |(last, next)| (last, Some(next)));
    let look_again = next_due
        .and_then(|next| next.checked_add(GRACE).ok())
        .map(|late| late.duration_since(view.now) + SignedDuration::from_secs(1));
    let said = |status, reason, message: String| Healthy { status, reason, message, look_again };
    let finished =
        backups.iter().filter(|backup| outcome(backup).is_some()).max_by_key(|backup| ended(backup));
    if let Some(failed) = finished.filter(|backup| outcome(backup) == Some(Outcome::Failed)) {
        let why = failed.status.as_ref().map(|status| status.message.clone()).unwrap_or_default();
        let message = format!("the last backup, {}, failed: {why}", failed.name_any());
        return said(ConditionStatus::False, "BackupFailed", message);
    }
    let tried = |since: Timestamp| backups.iter().any(|backup| began(backup) >= Some(since));
    if let Some(due) = last_due.filter(|due| !tried(*due)) {
        let cron_job = desired::cron_job_name(&instance.name);
        let unfinished =
            |backup: &&MySQLBackup| backup.spec.reason == Cause::Scheduled && outcome(backup).is_none();
        let why = match backups.iter().find(unfinished).map(kube_core::ResourceExt::name_any) {
            // There is one at a time.
            Some(job) => format!(
                "{job} is still being made: `kubectl describe job {job}` says how it fares; deleted, it makes room"
            ),
            None => format!("`kubectl describe cronjob {cron_job}` says why"),
        };
        let message = format!(
            "the backup that was due at {due} was not tried: {why}; one is made by hand with `kubectl create job \
             --from=cronjob/{cron_job} NAME`"
        );
        return said(ConditionStatus::False, "BackupMissed", message);
    }
    match finished {
        Some(complete) => {
            let size = complete.status.as_ref().and_then(|status| status.size.clone()).unwrap_or_default();
            let message = format!("the last backup, {}, is complete: {size}", complete.name_any());
            said(ConditionStatus::True, "BackupComplete", message)
        }
        None if schedule.is_some() => {
            let next = next_due.map(|next| format!("; the first is due at {next}")).unwrap_or_default();
            said(ConditionStatus::Unknown, "NoneYet", format!("no backup was made yet{next}"))
        }
        None => said(
            ConditionStatus::Unknown,
            "NotScheduled",
            "no backup was made, and none is scheduled: set backupSchedule".to_owned(),
        ),
    }
}

/// Says where the condition turned: people want to hear of it.
pub(crate) fn announce(plan: &mut Plan, view: &View<MySQL>, healthy: &Healthy) {
    let conditions = view.resource.status.iter().flat_map(|status| &status.conditions);
    let old = conditions.into_iter().find(|condition| condition.type_ == "BackupHealthy");
    let was = old.map_or("", |old| old.status.as_str());
    let because = format!("BackupHealthy was {}", old.map_or("not known", |old| &old.status));
    match healthy.status {
        ConditionStatus::False if was != "False" || old.is_some_and(|old| old.reason != healthy.reason) => {
            plan.turn(EventType::Warning, healthy.reason, "Backup", healthy.message.clone(), because);
        }
        ConditionStatus::True if was != "True" => {
            plan.turn(EventType::Normal, "BackupComplete", "Backup", healthy.message.clone(), because);
        }
        _ => {}
    }
}
