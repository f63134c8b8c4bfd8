//! What a Job and its pods prove of a backup.
//!
//! **What always holds:** complete is what a pod of the Job said in its last words, and ended with code 0. What a Job
//! says of itself is no evidence, and neither is a manifest whose checksum those last words do not name.

use std::time::Duration;

use ballast_operator::{Answers, Question, Trouble, View};
use jiff::SignedDuration;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube_core::ResourceExt as _;

use crate::{
    LABEL, ROLE,
    ask::{Ask, LastWords, Manifest, server},
    desired::{self, CONTAINER, Role},
    jobs::{self, Progress, ended, last_words},
    resource::{MySQLBackup, MySQLBackupStatus, Outcome, TableDigest},
};

/// So many tables are shown. The manifest on the volume has them all.
const TABLES: usize = 1000;
/// A log does not change once its container ended.
const LASTING: Duration = Duration::from_secs(3600);
/// How far what is seen of one kind may be behind what is seen of another: they come by different watches, of which one
/// may have died silently and is begun anew after five minutes; and what is said of a backup that failed is never taken
/// back.
const BEHIND: SignedDuration = SignedDuration::from_mins(6);

/// What stands under the name of the backup's Job.
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// The Job that makes this backup: its own, or the CronJob's.
    Job(Box<Job>),
    /// Something else.
    Stranger,
}

pub(super) fn job(view: &View<MySQLBackup>) -> Found {
    let kind = ballast_operator::KindRef::of::<Job>();
    let Some(object) = view.children.object(&kind, view.name()) else { return Found::Nothing };
    let spec = &view.resource.spec;
    let of_cron_job = desired::is_record(&view.resource)
        && object.label(LABEL) == Some(&spec.instance)
        && object.label(ROLE) == Some(Role::Backup.word())
        && object.controller().is_some_and(|owner| {
            owner.kind == "CronJob" && owner.name == desired::cron_job_name(&spec.instance)
        });
    match object.read() {
        Ok(job) if of_cron_job || view.controls(object) => Found::Job(Box::new(job)),
        _ => Found::Stranger,
    }
}

/// How far a backup is.
pub(super) enum Proof {
    /// It is being made, where it was tried before in spite of what failed then.
    Running(Option<String>),
    /// It is to be made, and its pod can't start.
    Stuck(Trouble),
    /// It was made so long ago, and the pod that did is not seen yet.
    Unseen(SignedDuration),
    /// It is complete: this is what is known of it.
    Complete(Box<MySQLBackupStatus>),
    /// It failed, for this reason.
    Failed(String),
}

pub(super) fn proof(view: &View<MySQLBackup>, job: &Job, answers: &Answers) -> Proof {
    let pods = jobs::pods(view, view.name());
    if let Some((pod, words)) = pods.iter().find_map(|pod| Some((pod, proved(pod)?))) {
        return complete(view, pod, &words, answers);
    }
    match jobs::progress(job) {
        Progress::Running => match jobs::stuck(&pods, view.now) {
            Some(trouble) => Proof::Stuck(trouble),
            None => Proof::Running(jobs::why_tried_again(&pods)),
        },
        Progress::Failed => {
            let why = jobs::overdue(job).or_else(|| jobs::why_failed(&pods)).or_else(|| jobs::given_up(job));
            Proof::Failed(why.unwrap_or_else(|| "nobody said why".to_owned()))
        }
        Progress::Complete => match done_before_its_pods(view, job, &pods) {
            Some(ago) => Proof::Unseen(ago),
            None => Proof::Failed(
                "its Job succeeded, but no pod of it is left that says what was made: nothing is proved"
                    .to_owned(),
            ),
        },
    }
}

/// How long ago a Job was seen to be done, where that is not long, and none of its pods.
fn done_before_its_pods(view: &View<MySQLBackup>, job: &Job, pods: &[Pod]) -> Option<SignedDuration> {
    let ago = recent(view, job.status.as_ref()?.completion_time.as_ref())?;
    pods.iter().all(|pod| ended(pod).is_none()).then_some(ago)
}

/// How long ago something was, where it is so new that what belongs to it may not have been seen yet.
pub(super) fn recent(view: &View<MySQLBackup>, at: Option<&Time>) -> Option<SignedDuration> {
    Some(view.now.duration_since(at?.0)).filter(|ago| *ago < BEHIND)
}

/// The last words of a pod that made a backup and proved it.
fn proved(pod: &Pod) -> Option<LastWords> {
    let words = last_words(pod)?;
    let whole = words.ok && !words.file.is_empty() && words.sha256.len() == 64;
    (whole && ended(pod)?.exit_code == 0).then_some(words)
}

fn complete(view: &View<MySQLBackup>, pod: &Pod, words: &LastWords, answers: &Answers) -> Proof {
    let Some(server) = server(&words.flavour, &words.version) else {
        let said = format!("{} {}", words.flavour, words.version);
        return Proof::Failed(format!("it is of {said}, which is unknown here"));
    };
    let ended = ended(pod);
    Proof::Complete(Box::new(MySQLBackupStatus {
        outcome: Some(Outcome::Complete),
        claim: Some(desired::backup_claim_name(&view.resource.spec.instance)),
        file: Some(words.file.clone()),
        size: Some(size(words.bytes)),
        bytes: Some(words.bytes),
        content_bytes: Some(words.content_bytes),
        sha256: Some(words.sha256.clone()),
        manifest_sha256: Some(words.manifest_sha256.clone()).filter(|sum| !sum.is_empty()),
        rows: Some(words.rows),
        table_count: Some(words.tables),
        tables: tables(pod, &words.manifest_sha256, answers).unwrap_or_default(),
        #[expect(clippy::cast_possible_truncation, reason = "no backup takes 10¹⁸ seconds")]
        seconds: Some(words.seconds.ceil() as i64),
        flavour: Some(server.flavour),
        version: Some(words.version.clone()),
        started_at: ended.and_then(|ended| ended.started_at.clone()),
        completed_at: ended.and_then(|ended| ended.finished_at.clone()),
        ..MySQLBackupStatus::default()
    }))
}

/// What the manifest says of each table, where it is the one that the pod spoke of.
fn tables(pod: &Pod, sum: &str, answers: &Answers) -> Option<Vec<TableDigest>> {
    let manifest: Manifest = answers.read(&pod.name_any()).ok()?;
    (manifest.sha256 == sum).then(|| manifest.tables.into_iter().take(TABLES).collect())
}

/// The log of the pod that made the backup is asked for while its tables are not known.
pub(super) fn questions(view: &View<MySQLBackup>) -> Vec<Question> {
    let status = view.resource.status.as_ref();
    let wanted = status.is_none_or(|status| match status.outcome {
        None => true,
        Some(Outcome::Complete) => status.tables.is_empty() && status.table_count.unwrap_or(0) > 0,
        Some(Outcome::Failed) => false,
    });
    if !wanted || view.is_being_deleted() {
        return Vec::new();
    }
    let pods = jobs::pods(view, view.name());
    let Some(pod) = pods.iter().find(|pod| proved(pod).is_some()) else { return Vec::new() };
    let ask = Ask::Manifest { container: CONTAINER.to_owned() };
    Question::new(pod.name_any(), pod.name_any(), &ask, LASTING).into_iter().collect()
}

/// The tables of a backup that is known to be complete, where they were not known with it.
pub(super) fn late_tables(
    view: &View<MySQLBackup>,
    status: &MySQLBackupStatus,
    answers: &Answers,
) -> Vec<TableDigest> {
    let sum = status.manifest_sha256.as_deref().unwrap_or_default();
    let pods = jobs::pods(view, view.name());
    let found = pods.iter().filter(|pod| proved(pod).is_some()).find_map(|pod| tables(pod, sum, answers));
    found.unwrap_or_default()
}

/// A size for people: in the largest unit of which there are at least ten, or the next smaller.
fn size(bytes: i64) -> String {
    let units = [("Gi", 1_i64 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= 10 * unit) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_readable() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10Ki"),
            (20 << 20, "20Mi"),
            (9 << 30, "9216Mi"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
