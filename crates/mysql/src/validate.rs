//! From the specs that people write to an instance and a backup as they must be: parsed, defaulted, impossible states
//! gone.
//!
//! The schema says the same as this module, and a test holds them to it. The messages stand here once; the schema
//! takes them from here. What the schema alone can say, because it is about a change, stands there: names that can't be
//! changed, volumes that can't shrink.

use std::collections::BTreeMap;

use ballast_operator::{
    image::is_repository,
    resources::{MAX_AMOUNT, NOT_AN_AMOUNT, Resources, parse},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};
use kube_core::ResourceExt as _;

use crate::{
    desired,
    flavour::{Flavour, Server, Version},
    resource::{
        Backups, DeletionPolicy, InitScript, MySQL, MySQLBackup, MySQLBackupSpec, MySQLSpec, RestoreFrom,
        Retention, VolumeFile,
    },
    schedule::{NOT_A_SCHEDULE, Schedule},
};

/// The longest name of a CronJob is 52 characters, and `mysql-backup-` stands before ours.
pub(crate) const MAX_NAME: usize = 39;
/// The longest name of a MySQLBackup, whose Job's pods have it in a label.
pub(crate) const MAX_BACKUP_NAME: usize = 63;
/// The servers take no longer names of databases.
pub(crate) const MAX_DATABASE: usize = 64;
/// Nor of users.
pub(crate) const MAX_USER: usize = 32;
/// An empty server with its logs needs some 200 MB.
pub(crate) const SMALLEST_DATA: &str = "256Mi";
pub(crate) const SMALLEST_BACKUP: &str = "1Mi";

/// Databases that are the server's own, or ours. The server takes some of them in any case.
pub(crate) const RESERVED_DATABASES: [&str; 6] =
    ["mysql", "information_schema", "performance_schema", "sys", "ballast", "lost+found"];
/// Users that are the server's own, or ours.
pub(crate) const RESERVED_USERS: [&str; 7] =
    ["root", "mysql.sys", "mysql.session", "mysql.infoschema", "mariadb.sys", "event_scheduler", "ballast"];

/// Characters that no name can have, as a CEL string has them.
pub(crate) const NAMES_CONTROL: &str = "\\\\p{Cc}";
/// The servers keep names in an encoding that ends with the first plane of Unicode.
pub(crate) const NAMES_PLANE: &str = "[\\\\x{10000}-\\\\x{10FFFF}]";

pub(crate) const VERSION: &str = "^[1-9][0-9]?[.][0-9]{1,2}([.][0-9]{1,3})?(-[A-Za-z0-9._-]{1,32})?$";
pub(crate) const FILE: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$";
pub(crate) const AGE: &str = "^[1-9][0-9]{0,3}[hdw]$";

pub(crate) const NAME_MESSAGE: &str = "the name must hold only lower-case letters, digits and '-', begin and end with a \
     letter or digit, and be at most 39 characters long: a Service and a CronJob are named after it";
pub(crate) const BACKUP_NAME_MESSAGE: &str = "the name must hold only lower-case letters, digits and '-', begin and end \
     with a letter or digit, and be at most 63 characters long: a Job has the same name";
pub(crate) const DATABASE_NAME: &str = "databaseName must have 1 to 64 characters of Unicode's first plane, no control \
     characters, and no space at its end";
pub(crate) const DATABASE_QUOTES: &str = "databaseName must not hold ', \" or \\: the tools of both servers can't dump \
     the routines and events of such a database, so there would be no backup of it";
pub(crate) const DATABASE_RESERVED: &str = "databaseName must not be one of the server's own: mysql, information_schema, \
     performance_schema, sys, ballast, lost+found";
pub(crate) const DATABASE_USER: &str = "databaseUser must have 1 to 32 characters of Unicode's first plane, no control \
     characters, and no space at its end";
pub(crate) const USER_RESERVED: &str = "databaseUser must not be one of the server's own: root, mysql.sys, mysql.session, \
     mysql.infoschema, mariadb.sys, event_scheduler, ballast";
pub(crate) const USER_LOCKED_OUT: &str = "databaseUser must not begin with a space, nor begin and end with ': the servers \
     take such a name and let nobody in by it";
pub(crate) const SIZE_TOO_SMALL: &str =
    "storageSize must be at least 256Mi: an empty server needs nearly as much";
pub(crate) const BACKUP_SIZE_TOO_SMALL: &str = "storageSize must be at least 1Mi";
pub(crate) const SHRINKS: &str = "a volume can grow and can't shrink: make another MySQL with the smaller size and restore \
     a backup into it";
pub(crate) const VERSION_MESSAGE: &str = "mysqlVersion must be two or three numbers with points between them, such as 8.0, \
     8.4.3 or 11.8: a tag without the second number would change what runs without anybody asking";
pub(crate) const IMAGE_NOT_A_REPOSITORY: &str = "image must be the name of an image without a tag, such as \
     registry.example.com/mysql; the tag is taken from mysqlVersion";
pub(crate) const NOT_A_FILE: &str = "file must be a path on the volume, such as backup-20300101-020000.sql.zst, without a \
     name that begins with '.'";
pub(crate) const NOT_AN_AGE: &str = "age must be a number of hours, days or weeks, such as 36h, 30d or 8w";
pub(crate) const ONE_SCRIPT: &str = "initScript must have either inline or configMap";
pub(crate) const ONE_SOURCE: &str = "restoreFrom must have either backup or volume";
pub(crate) const DATABASE_FIXED: &str =
    "databaseName can't be changed: make the other database by SQL, or another MySQL";
pub(crate) const USER_FIXED: &str =
    "databaseUser can't be changed: make the other user by SQL, or another MySQL";
pub(crate) const FLAVOUR_FIXED: &str =
    "flavour can't be changed: neither server opens what the other wrote; make another MySQL and load a dump";
pub(crate) const CLASS_FIXED: &str =
    "storageClassName can't be changed: make another MySQL and restore a backup into it";
pub(crate) const SCRIPT_FIXED: &str =
    "initScript can't be changed: it is run once, when the instance is made";
pub(crate) const RESTORE_FIXED: &str =
    "restoreFrom can't be changed: it says what the instance began with; make another MySQL";
pub(crate) const BACKUP_FIXED: &str = "what a MySQLBackup is of, and why, can't be changed: make another one";

/// Something in a spec that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Problem {
    /// The field.
    pub path: String,
    /// What is wrong with it, in the words that the schema uses.
    pub message: String,
}

/// An instance as it must be. Every value of this type can be made, as far as anybody can know beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// The resource's name, after which everything is named.
    pub name: String,
    /// The database that is there from the beginning.
    pub database: String,
    /// The user that it belongs to.
    pub user: String,
    /// The size of the volume.
    pub size: String,
    /// The storage class of the volume, where it is not the default.
    pub class: Option<String>,
    /// The server that is wanted.
    pub server: Server,
    /// Its image, with the tag.
    pub image: String,
    /// What configures it first.
    pub script: Option<InitScript>,
    /// What it begins with.
    pub restore: Option<RestoreFrom>,
    /// When backups are made, as it was written.
    pub schedule: Option<String>,
    /// The size of the volume for backups.
    pub backup_size: String,
    /// The storage class of that volume.
    pub backup_class: Option<String>,
    /// How many backups are kept.
    pub keep: usize,
    /// And for how long.
    pub keep_for: Option<SignedDuration>,
    /// What becomes of the data in the end.
    pub policy: DeletionPolicy,
    /// How long the last backup may take, in seconds.
    pub deadline: i64,
    /// What the server may use.
    pub resources: ResourceRequirements,
    /// Where its pods run.
    pub placement: Placement,
    /// Whether nothing is to be changed.
    pub paused: bool,
}

/// Where pods run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Labels of machines.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that are put up with.
    pub tolerations: Option<Vec<Toleration>>,
    /// Where they would rather run.
    pub affinity: Option<Affinity>,
    /// Their priority.
    pub priority_class_name: Option<String>,
}

/// What is wrong, gathered.
#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn unless(&mut self, right: bool, path: &str, message: impl Into<String>) {
        if !right {
            self.0.push(Problem { path: path.to_owned(), message: message.into() });
        }
    }
}

impl TryFrom<&MySQL> for Instance {
    type Error = Vec<Problem>;

    fn try_from(resource: &MySQL) -> Result<Self, Vec<Problem>> {
        let (name, spec) = (resource.name_any(), &resource.spec);
        let mut problems = Problems::default();
        problems.unless(is_label(&name, MAX_NAME), "metadata.name", NAME_MESSAGE);
        check_names(&mut problems, spec);
        check_storage(&mut problems, spec);
        check_sources(&mut problems, spec);
        problems.unless(
            spec.backup_schedule.as_deref().is_none_or(|text| Schedule::parse(text).is_some()),
            "spec.backupSchedule",
            NOT_A_SCHEDULE,
        );
        problems.unless(
            spec.image.as_deref().is_none_or(is_repository),
            "spec.image",
            IMAGE_NOT_A_REPOSITORY,
        );
        problems.unless(
            (60..=604_800).contains(&spec.final_backup_deadline_seconds),
            "spec.finalBackupDeadlineSeconds",
            "it must be 60 to 604800",
        );
        let retention = spec.backup.as_ref().and_then(|backup| backup.retention.as_ref());
        let (keep, keep_for) = check_retention(&mut problems, retention);
        for (below, message) in spec.resources.iter().flat_map(Resources::problems) {
            problems.unless(false, &format!("spec.resources.{below}"), message);
        }
        let class = spec.priority_class_name.as_deref();
        problems.unless(class.is_none_or(is_object_name), "spec.priorityClassName", "it is no name");
        let version = Version::parse(&spec.mysql_version).filter(|_| is_version(&spec.mysql_version));
        problems.unless(version.is_some(), "spec.mysqlVersion", VERSION_MESSAGE);
        let (Some(version), true) = (version, problems.0.is_empty()) else { return Err(problems.0) };
        let server =
            Server { flavour: spec.flavour.unwrap_or_else(|| Flavour::of_version(&version)), version };
        Ok(instance(name, spec, server, keep, keep_for))
    }
}

fn instance(
    name: String,
    spec: &MySQLSpec,
    server: Server,
    keep: usize,
    keep_for: Option<SignedDuration>,
) -> Instance {
    let repository = spec.image.clone().unwrap_or_else(|| server.flavour.traits().image.to_owned());
    let backup = spec.backup.clone().unwrap_or_default();
    Instance {
        name,
        database: spec.database_name.clone(),
        user: spec.database_user.clone(),
        size: spec.storage_size.clone(),
        class: spec.storage_class_name.clone(),
        server,
        image: format!("{repository}:{}", spec.mysql_version),
        script: spec.init_script.clone(),
        restore: spec.restore_from.clone(),
        schedule: spec.backup_schedule.clone(),
        backup_size: backup.storage_size.unwrap_or_else(|| spec.storage_size.clone()),
        backup_class: backup.storage_class_name,
        keep,
        keep_for,
        policy: spec.deletion_policy,
        deadline: spec.final_backup_deadline_seconds,
        resources: spec.resources.clone().map_or_else(usual_resources, Into::into),
        placement: Placement {
            node_selector: spec.node_selector.clone(),
            tolerations: spec.tolerations.clone(),
            affinity: spec.affinity.clone(),
            priority_class_name: spec.priority_class_name.clone(),
        },
        paused: spec.paused,
    }
}

/// What both servers need with their own defaults. No limit: one that is too low ends the server in the middle of a
/// transaction, and nobody here knows what is too low.
fn usual_resources() -> ResourceRequirements {
    desired::requests("100m", "512Mi")
}

fn check_names(problems: &mut Problems, spec: &MySQLSpec) {
    let (database, user) = (&spec.database_name, &spec.database_user);
    problems.unless(is_identifier(database, MAX_DATABASE), "spec.databaseName", DATABASE_NAME);
    problems.unless(!database.contains(['\'', '"', '\\']), "spec.databaseName", DATABASE_QUOTES);
    let lower = database.to_ascii_lowercase();
    problems.unless(!RESERVED_DATABASES.contains(&&*lower), "spec.databaseName", DATABASE_RESERVED);
    problems.unless(is_identifier(user, MAX_USER), "spec.databaseUser", DATABASE_USER);
    problems.unless(!RESERVED_USERS.contains(&&**user), "spec.databaseUser", USER_RESERVED);
    problems.unless(is_let_in(user), "spec.databaseUser", USER_LOCKED_OUT);
}

fn check_storage(problems: &mut Problems, spec: &MySQLSpec) {
    check_size(problems, "spec.storageSize", &spec.storage_size, SMALLEST_DATA, SIZE_TOO_SMALL);
    let class = spec.storage_class_name.as_deref();
    problems.unless(class.is_none_or(is_object_name), "spec.storageClassName", "it is no name");
    let Some(Backups { storage_size, storage_class_name, .. }) = &spec.backup else { return };
    if let Some(size) = storage_size {
        check_size(problems, "spec.backup.storageSize", size, SMALLEST_BACKUP, BACKUP_SIZE_TOO_SMALL);
    }
    let class = storage_class_name.as_deref();
    problems.unless(class.is_none_or(is_object_name), "spec.backup.storageClassName", "it is no name");
}

fn check_size(problems: &mut Problems, path: &str, size: &str, smallest: &str, too_small: &str) {
    let amount = parse(size).filter(|_| size.chars().count() <= MAX_AMOUNT);
    problems.unless(amount.is_some(), path, NOT_AN_AMOUNT);
    problems.unless(amount.is_none() || amount >= parse(smallest), path, too_small);
}

fn check_sources(problems: &mut Problems, spec: &MySQLSpec) {
    if let Some(InitScript { inline, config_map }) = &spec.init_script {
        problems.unless(inline.is_some() != config_map.is_some(), "spec.initScript", ONE_SCRIPT);
        let length = inline.as_ref().is_none_or(|text| (1..=262_144).contains(&text.chars().count()));
        problems.unless(length, "spec.initScript.inline", "it must have 1 to 262144 characters");
        if let Some(map) = config_map {
            problems.unless(is_object_name(&map.name), "spec.initScript.configMap.name", "it is no name");
            problems.unless(is_config_key(&map.key), "spec.initScript.configMap.key", "it is no key");
        }
    }
    if let Some(RestoreFrom { backup, volume }) = &spec.restore_from {
        problems.unless(backup.is_some() != volume.is_some(), "spec.restoreFrom", ONE_SOURCE);
        let named = backup.as_deref().is_none_or(is_object_name);
        problems.unless(named, "spec.restoreFrom.backup", "it is no name");
        if let Some(VolumeFile { claim_name, file, sha256 }) = volume {
            problems.unless(is_object_name(claim_name), "spec.restoreFrom.volume.claimName", "it is no name");
            problems.unless(is_file(file), "spec.restoreFrom.volume.file", NOT_A_FILE);
            let digits = sha256.as_deref().is_none_or(is_sha256);
            problems.unless(digits, "spec.restoreFrom.volume.sha256", "it is no SHA-256");
        }
    }
}

fn check_retention(
    problems: &mut Problems,
    retention: Option<&Retention>,
) -> (usize, Option<SignedDuration>) {
    let usual = crate::resource::usual_count();
    let count = retention.map_or(usual, |retention| retention.count);
    problems.unless((1..=1000).contains(&count), "spec.backup.retention.count", "it must be 1 to 1000");
    let age = retention.and_then(|retention| retention.age.as_deref());
    let keep_for = age.and_then(parse_age);
    problems.unless(age.is_none() || keep_for.is_some(), "spec.backup.retention.age", NOT_AN_AGE);
    (usize::try_from(count).unwrap_or(1), keep_for)
}

fn parse_age(text: &str) -> Option<SignedDuration> {
    let unit = text.chars().last()?;
    let number = text.strip_suffix(unit)?;
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 7 * 24,
        _ => return None,
    };
    let right = (1..=4).contains(&number.len()) && !number.starts_with('0');
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<i64>().ok().filter(|_| right && digits)?;
    Some(SignedDuration::from_hours(number * hours))
}

/// What the servers take as a name between backquotes. Longer ones they cut or refuse.
fn is_identifier(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.chars().count())
        && !text.ends_with(' ')
        && !text.contains(|letter: char| letter.is_control() || letter > '\u{ffff}')
}

/// MySQL takes away a space before a name when a user is made, and both take away quotes around it when one comes.
fn is_let_in(user: &str) -> bool {
    let quoted = user.len() > 1 && user.starts_with('\'') && user.ends_with('\'');
    !quoted && !user.starts_with(' ')
}

fn is_version(text: &str) -> bool {
    let (numbers, rest) = match text.split_once('-') {
        Some((numbers, rest)) => (numbers, Some(rest)),
        None => (text, None),
    };
    let parts: Vec<&str> = numbers.split('.').collect();
    let digits = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let numbers = match parts.as_slice() {
        [major, minor] => digits(major, 2) && digits(minor, 2),
        [major, minor, patch] => digits(major, 2) && digits(minor, 2) && digits(patch, 3),
        _ => false,
    };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let rest = rest.is_none_or(|rest| (1..=32).contains(&rest.len()) && rest.bytes().all(word));
    numbers && rest && !text.starts_with('0')
}

pub(crate) fn is_label(text: &str, longest: usize) -> bool {
    let word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(word)
        && bytes.last().is_some_and(word)
        && bytes.iter().all(|byte| word(byte) || *byte == b'-')
}

fn is_object_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_label(label, 253))
}

fn is_config_key(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.len() <= 253 && text.bytes().all(word) && text.bytes().any(|byte| byte != b'.')
}

fn is_file(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let name = |name: &str| !name.is_empty() && !name.starts_with('.') && name.bytes().all(word);
    text.len() <= 512 && text.split('/').all(name)
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A backup as it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The resource's name, which is its Job's.
    pub name: String,
    /// The rest of what is wanted.
    pub spec: MySQLBackupSpec,
}

impl TryFrom<&MySQLBackup> for Wanted {
    type Error = Vec<Problem>;

    fn try_from(resource: &MySQLBackup) -> Result<Self, Vec<Problem>> {
        let (name, spec) = (resource.name_any(), resource.spec.clone());
        let mut problems = Problems::default();
        problems.unless(is_label(&name, MAX_BACKUP_NAME), "metadata.name", BACKUP_NAME_MESSAGE);
        problems.unless(is_label(&spec.instance, MAX_NAME), "spec.instance", "it is no name of a MySQL");
        problems.unless(
            spec.deadline_seconds.is_none_or(|seconds| (60..=604_800).contains(&seconds)),
            "spec.deadlineSeconds",
            "it must be 60 to 604800",
        );
        if problems.0.is_empty() { Ok(Wanted { name, spec }) } else { Err(problems.0) }
    }
}
