//! What people write and read. The doc comments become `kubectl explain`.

mod backup;
mod mysql;
mod schema;

pub use backup::{Cause, Fate, MySQLBackup, MySQLBackupSpec, MySQLBackupStatus, Outcome, TableDigest};
pub(crate) use mysql::usual_count;
pub use mysql::{
    Backups, ConfigMapScript, DeletionPolicy, InitScript, MySQL, MySQLSpec, MySQLStatus, RestoreFrom,
    Retention, Scheduled, VolumeFile,
};
