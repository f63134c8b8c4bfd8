//! The MySQLBackups that the operator itself makes: records of Jobs, and backups before something is changed.

use ballast_operator::View;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::ResourceExt as _;

use super::kept;
use crate::{
    INSTANTIATE, MANUAL,
    resource::{Cause, Fate, MySQL, MySQLBackup, MySQLBackupSpec},
};

/// The record of a Job that a person made from the CronJob. It is theirs, as if they had asked for it by a MySQLBackup; and
/// it is a record, which never makes a Job of its own.
pub(crate) fn record_by_hand(view: &View<MySQL>, name: String) -> MySQLBackup {
    let mut record = backup(view, name, None, Cause::Requested, None);
    record.annotations_mut().insert(INSTANTIATE.to_owned(), MANUAL.to_owned());
    record
}

/// Whether a MySQLBackup is the record of a Job of the CronJob.
pub(crate) fn is_record(backup: &MySQLBackup) -> bool {
    backup.spec.reason == Cause::Scheduled
        || backup.annotations().get(INSTANTIATE).is_some_and(|how| how == MANUAL)
}

/// `prefix` is what comes before what is random in the name, where something is: this tells whoever compares.
pub(crate) fn backup(
    view: &View<MySQL>,
    name: String,
    prefix: Option<String>,
    reason: Cause,
    deadline_seconds: Option<i64>,
) -> MySQLBackup {
    let instance = view.name();
    MySQLBackup {
        metadata: ObjectMeta { generate_name: prefix, ..kept(view, name, instance, None) },
        spec: MySQLBackupSpec {
            instance: instance.to_owned(),
            reason,
            deletion_policy: Fate::Delete,
            deadline_seconds,
        },
        status: None,
    }
}
