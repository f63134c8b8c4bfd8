//! The schema and `validate` give the same answer.

#[path = "support/reserved.rs"]
mod reserved;

use ballast_mysql::{
    Backups, Cause, ConfigMapScript, DeletionPolicy, Fate, InitScript, Instance, MySQL, MySQLBackup,
    MySQLBackupSpec, MySQLSpec, RestoreFrom, Retention, VolumeFile, Wanted,
};
use ballast_staging::schema::{Definition, mostly, same_answer};
use proptest::{option, prelude::*};
use serde_json::{Value, json};

/// The seed's instance with some fields otherwise. `null` takes one away.
fn spec(more: Value) -> Value {
    let mut spec = json!({
        "databaseName": "myapp", "databaseUser": "myuser", "storageSize": "10Gi", "backupSchedule": "0 2 * * *",
        "mysqlVersion": "8.0",
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
    spec
}

#[track_caller]
fn check(more: Value, expected: &str) {
    Definition::of::<MySQL>().check("my-mysql-instance", &json!({"spec": spec(more)}), expected);
}

#[test]
fn the_seeds_instance_is_taken() {
    check(json!({}), "");
    check(json!({"storageSize": null, "backupSchedule": null, "mysqlVersion": null}), "");
    check(json!({"databaseName": null}), "spec.databaseName: Required value");
    check(json!({"mysqlVersion": "5.7"}), "");
}

#[test]
fn whatever_the_server_takes_as_a_name_is_taken() {
    for name in [
        "my`app",
        "it's \"mine\"",
        "größe",
        "a b",
        "; DROP TABLE x --",
        "$(reboot)",
        "表",
        "1",
        "a/b\\c",
        "%_",
    ] {
        check(json!({"databaseUser": name}), "");
        if !name.contains(['\'', '"', '\\']) {
            check(json!({"databaseName": name}), "");
        }
    }
    check(json!({"databaseUser": "'"}), "");
    for name in [" a", "'a'", "''"] {
        check(
            json!({"databaseUser": name}),
            "databaseUser must not begin with a space, nor begin and end with '",
        );
    }
    for name in ["o'x", "\"", "a/b\\c"] {
        check(json!({"databaseName": name}), "databaseName must not hold ', \" or \\");
    }
    check(json!({"databaseName": "ä".repeat(64), "databaseUser": "ä".repeat(32)}), "");
    check(json!({"databaseName": "x".repeat(65)}), "spec.databaseName: Too long");
    check(json!({"databaseUser": "x".repeat(33)}), "spec.databaseUser: Too long");
    for name in ["", "a ", "a\nb", "a\0", "\u{7f}", "🐬"] {
        check(
            json!({"databaseName": name}),
            "databaseName must have 1 to 64 characters of Unicode's first plane",
        );
        check(
            json!({"databaseUser": name}),
            "databaseUser must have 1 to 32 characters of Unicode's first plane",
        );
    }
}

#[test]
fn what_is_the_servers_own_is_refused() {
    for name in reserved::DATABASES {
        check(json!({"databaseName": name}), "databaseName must not be one of the server's own");
    }
    for name in reserved::USERS {
        check(json!({"databaseUser": name}), "databaseUser must not be one of the server's own");
    }
}

#[test]
fn a_schedule_that_is_none_is_refused() {
    for right in [
        "0 2 * * *",
        "*/5 0-6 1,15 jan-MAR mon-fri",
        "@daily",
        "@hourly",
        "0  0 * * ?",
        "59 23 31 12 6",
        "1-5/2 * * * *",
    ] {
        check(json!({"backupSchedule": right}), "");
    }
    for wrong in [
        "",
        "daily",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 7",
        "* * * foo *",
        "*/0 * * * *",
        "@every 1h",
        "@reboot",
        "TZ=UTC 0 2 * * *",
        "0 2 * * fri-mon",
        " 0 2 * * *",
    ] {
        check(json!({"backupSchedule": wrong}), "backupSchedule must be five fields");
    }
    check(json!({"backupSchedule": "30-10 * * * *"}), "a range in backupSchedule must go upwards");
}

#[test]
fn sizes_and_versions_out_of_range_are_refused() {
    check(json!({"storageSize": "1Mi"}), "storageSize must be at least 256Mi");
    check(json!({"storageSize": "lots"}), "an amount is a number with an optional suffix");
    check(json!({"storageSize": "1e999999999"}), "an amount is a number with an optional suffix");
    check(json!({"storageSize": "-10Gi"}), "an amount is a number with an optional suffix");
    for version in ["latest", "8", "", "8.0.0.1", "v8.0", "08.0", "8.0 ", "8.0-$(x)"] {
        check(json!({"mysqlVersion": version}), "mysqlVersion must be two or three numbers");
    }
    check(json!({"mysqlVersion": "8.4.3-oraclelinux9"}), "");
    check(json!({"image": "mysql:8.0"}), "image must be the name of an image without a tag");
    check(json!({"flavour": "Oracle"}), "spec.flavour: Unsupported value");
    check(json!({"backup": {"retention": {"count": 0}}}), "spec.backup.retention.count: Invalid value");
    check(json!({"backup": {"retention": {"age": "soon"}}}), "age must be a number of hours, days or weeks");
    check(json!({"finalBackupDeadlineSeconds": 5}), "spec.finalBackupDeadlineSeconds: Invalid value");
}

#[test]
fn a_script_and_a_source_are_one_thing_each() {
    check(
        json!({"initScript": {"inline": "SELECT 1", "configMap": {"name": "x"}}}),
        "initScript must have either",
    );
    check(json!({"initScript": {}}), "initScript must have either");
    check(json!({"restoreFrom": {}}), "restoreFrom must have either");
    check(
        json!({"restoreFrom": {"volume": {"claimName": "c", "file": "../x"}}}),
        "file must be a path on the volume",
    );
}

#[test]
fn what_can_not_be_changed_is_not() {
    let definition = Definition::of::<MySQL>();
    let check =
        |more: Value, expected: &str| definition.check_change(&spec(json!({})), &spec(more), expected);
    check(json!({"mysqlVersion": "5.7"}), "");
    check(json!({"storageSize": "11Gi"}), "");
    check(json!({"storageSize": "10240Mi"}), "");
    check(json!({"storageSize": "9Gi"}), "a volume can grow and can't shrink");
    check(json!({"databaseName": "other"}), "databaseName can't be changed");
    check(json!({"databaseUser": "other"}), "databaseUser can't be changed");
    check(json!({"flavour": "MariaDB"}), "flavour can't be changed");
    check(json!({"storageClassName": "fast"}), "storageClassName can't be changed");
    check(json!({"initScript": {"inline": "SELECT 1"}}), "initScript can't be changed");
    check(json!({"restoreFrom": {"backup": "x"}}), "restoreFrom can't be changed");
    let began = spec(json!({"restoreFrom": {"backup": "x"}, "backup": {"storageSize": "2Gi"}}));
    definition.check_change(&began, &spec(json!({})), "restoreFrom can't be changed");
    definition.check_change(
        &began,
        &spec(json!({"restoreFrom": {"backup": "x"}, "backup": {"storageSize": "1Gi"}})),
        "a volume can grow and can't shrink",
    );
    let backup = Definition::of::<MySQLBackup>();
    backup.check_change(
        &json!({"instance": "a", "reason": "Requested"}),
        &json!({"instance": "b", "reason": "Requested"}),
        "what a MySQLBackup is of, and why, can't be changed",
    );
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9_$` '\"]{0,70}",
        "\\PC{0,40}",
        ".{0,4}",
        prop_oneof![Just("root"), Just("sys"), Just("SYS"), Just("ballast"), Just("mariadb.sys")]
            .prop_map(String::from),
    ]
}

fn schedules() -> impl Strategy<Value = String> {
    let part = "([*?]|[0-9]{1,2}(-[0-9]{1,2})?|jan|FEB|mon(-fri)?|fri-mon|mar-dec)(/[0-9]{1,2})?";
    prop_oneof![
        proptest::collection::vec(prop_oneof![3 => Just("*".to_owned()), 2 => part], 5)
            .prop_map(|parts| parts.join(" ")),
        "[0-9*,/@ a-z-]{0,12}",
        prop_oneof![
            Just("@daily".to_owned()),
            Just("@every 1h".to_owned()),
            Just("1,2,3-9/2 * * * *".to_owned())
        ],
    ]
}

fn scripts() -> impl Strategy<Value = Option<InitScript>> {
    let map = (object_names(), mostly("init.sql".to_owned(), "[a-zA-Z._/-]{0,5}"))
        .prop_map(|(name, key)| ConfigMapScript { name, key });
    option::of(
        (option::of("[a-z]{0,3}"), option::of(map))
            .prop_map(|(inline, config_map)| InitScript { inline, config_map }),
    )
}

fn sources() -> impl Strategy<Value = Option<RestoreFrom>> {
    let file = mostly("backup.sql.zst".to_owned(), "[a-z./-]{0,6}");
    let sha = mostly(None, option::of(prop_oneof!["[0-9a-f]{64}", "[0-9a-g]{62,65}"]));
    let volume = (object_names(), file, sha).prop_map(|(claim_name, file, sha256)| VolumeFile {
        claim_name,
        file,
        sha256,
    });
    option::of(
        (option::of(object_names()), option::of(volume))
            .prop_map(|(backup, volume)| RestoreFrom { backup, volume }),
    )
}

fn object_names() -> impl Strategy<Value = String> {
    mostly("thing".to_owned(), prop_oneof!["[a-z0-9.-]{0,6}", "[a-z]{250,256}", "[A-Z]"])
}

fn backups() -> impl Strategy<Value = Option<Backups>> {
    let retention = (mostly(7, any::<i32>()), mostly(None, option::of("[0-9]{0,5}[hdwm]?")))
        .prop_map(|(count, age)| Retention { count, age });
    let all = (option::of(sizes()), option::of(object_names()), option::of(retention)).prop_map(
        |(storage_size, storage_class_name, retention)| Backups {
            storage_size,
            storage_class_name,
            retention,
        },
    );
    mostly(None, option::of(all))
}

fn sizes() -> impl Strategy<Value = String> {
    mostly("10Gi".to_owned(), prop_oneof!["[0-9]{1,3}(Mi|Gi|M|G|k|e9|)", "[0-9.KMGie-]{0,6}"])
}

prop_compose! {
    fn mysql()(
        name in mostly("sample".to_owned(), prop_oneof!["[a-z0-9-]{1,45}", "[a-z.A-Z]{1,5}"]),
        names in (mostly("myapp".to_owned(), names()), mostly("myuser".to_owned(), names())),
        storage_size in sizes(),
        backup_schedule in mostly(None, option::of(schedules())),
        mysql_version in mostly("8.0".to_owned(), prop_oneof![
            "[0-9]{1,3}(\\.[0-9]{1,3}){0,3}(-[a-z0-9._]{0,34})?", "[a-z0-9. -]{0,6}",
        ]),
        image in mostly(None, option::of("[a-z0-9:/.-]{0,8}")),
        storage_class_name in mostly(None, option::of(object_names())),
        init_script in mostly(None, scripts()),
        restore_from in mostly(None, sources()),
        backup in backups(),
        final_backup_deadline_seconds in mostly(3600, prop_oneof![0..100i64, any::<i64>()]),
        priority_class_name in mostly(None, option::of(object_names())),
    ) -> MySQL {
        let (database_name, database_user) = names;
        MySQL::new(&name, MySQLSpec {
            database_name, database_user, storage_size, backup_schedule, mysql_version, image, storage_class_name,
            init_script, restore_from, backup, final_backup_deadline_seconds, priority_class_name,
            flavour: None, deletion_policy: DeletionPolicy::Retain, resources: None, node_selector: None,
            tolerations: None, affinity: None, paused: false,
        })
    }
}

#[test]
fn schema_and_validate_give_the_same_answer() {
    same_answer(mysql(), |resource| Instance::try_from(resource));
}

prop_compose! {
    fn backup()(
        name in mostly("sample".to_owned(), prop_oneof!["[a-z0-9-]{1,66}", "[a-z.A-Z]{1,5}"]),
        instance in mostly("sample".to_owned(), prop_oneof!["[a-z0-9-]{0,45}", "[a-z.A-Z]{1,5}"]),
        deadline_seconds in mostly(None, option::of(prop_oneof![0..100i64, any::<i64>()])),
    ) -> MySQLBackup {
        MySQLBackup::new(&name, MySQLBackupSpec {
            instance, deadline_seconds, reason: Cause::Requested, deletion_policy: Fate::Delete,
        })
    }
}

#[test]
fn schema_and_validate_of_a_backup_give_the_same_answer() {
    same_answer(backup(), |resource| Wanted::try_from(resource));
}
