//! The MySQLBackups that the operator itself makes: records of Jobs, and backups before something is changed.

use ballast_operator::View;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::kept;
use crate::resource::{Cause, Fate, MySQL, MySQLBackup, MySQLBackupSpec};

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
