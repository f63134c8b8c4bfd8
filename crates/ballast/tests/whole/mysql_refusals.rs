//! What people may write into a MySQL: what can't be is refused at the door in words, by the real kubectl, and what is
//! odd and can be works on a real MySQL from its first day to its restore.

#[path = "../../../mysql/tests/support/reserved.rs"]
mod reserved;
use crate::support::Cluster;
use crate::support::mysql::{Instance, back_up, is_complete};
use crate::support::user::User;
use crate::support::writer::{TABLE, holds};
use serde_json::{Value, json};

/// An instance with some fields otherwise. `null` takes one away.
fn instance(name: &str, more: &Value) -> String {
    let mut spec = json!({"databaseName": "shop", "databaseUser": "seller", "storageSize": "1Gi"});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object("MySQL", name, &spec)
}

fn object(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "operators.example.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        .to_string()
}

#[track_caller]
fn refused(cluster: &Cluster, yaml: &str, expected: &str) {
    let said = cluster.kubectl_with(&["create", "-f", "-"], yaml).refused();
    assert!(said.contains(expected), "{expected:?} is not in {said:?}");
    assert!(said.len() < 4000, "what is wrong is lost in it: {said}");
}

fn fields() -> Vec<(Value, &'static str)> {
    let long = "x".repeat(300);
    vec![
        (json!({"databaseName": null}), "spec.databaseName: Required value"),
        (json!({"databaseUser": null}), "spec.databaseUser: Required value"),
        (json!({"databaseName": 5}), "spec.databaseName in body must be of type string"),
        (json!({"colour": "red"}), "unknown field \"spec.colour\""),
        (json!({"storageSize": "255Mi"}), "storageSize must be at least 256Mi"),
        (json!({"storageSize": "0"}), "storageSize must be at least 256Mi"),
        (json!({"storageSize": "-1Gi"}), "an amount is a number with an optional suffix"),
        (json!({"storageSize": "1e99999999"}), "an amount is a number with an optional suffix"),
        (json!({"storageSize": "much"}), "an amount is a number with an optional suffix"),
        (json!({"backupSchedule": "at night"}), "backupSchedule must be five fields"),
        (json!({"backupSchedule": "61 * * * *"}), "backupSchedule must be five fields"),
        (json!({"backupSchedule": "* * * * * ; reboot"}), "backupSchedule must be five fields"),
        (json!({"backupSchedule": "30-10 * * * *"}), "a range in backupSchedule must go upwards"),
        (json!({"mysqlVersion": "latest"}), "mysqlVersion must be two or three numbers"),
        (json!({"mysqlVersion": "8.0;id"}), "mysqlVersion must be two or three numbers"),
        (json!({"mysqlVersion": "8.0@sha256:0"}), "mysqlVersion must be two or three numbers"),
        (json!({"flavour": "Oracle"}), "spec.flavour: Unsupported value: \"Oracle\""),
        (json!({"image": "mysql:8.0"}), "image must be the name of an image without a tag"),
        (json!({"image": "my sql"}), "image must be the name of an image without a tag"),
        (json!({"storageClassName": "Fast One"}), "spec.storageClassName"),
        (json!({"storageClassName": long}), "spec.storageClassName: Too long"),
        (json!({"initScript": {}}), "initScript must have either inline or configMap"),
        (json!({"initScript": {"inline": ""}}), "spec.initScript.inline"),
        (
            json!({"initScript": {"inline": "SELECT 1", "configMap": {"name": "a"}}}),
            "initScript must have either inline or configMap",
        ),
        (json!({"initScript": {"configMap": {"name": "a", "key": "../b"}}}), "spec.initScript.configMap.key"),
        (json!({"restoreFrom": {}}), "restoreFrom must have either backup or volume"),
        (json!({"restoreFrom": {"backup": "It's"}}), "spec.restoreFrom.backup"),
        (
            json!({"restoreFrom": {"volume": {"claimName": "a"}}}),
            "spec.restoreFrom.volume.file: Required value",
        ),
        (
            json!({"restoreFrom": {"volume": {"claimName": "a", "file": "../../etc/shadow"}}}),
            "file must be a path on the volume",
        ),
        (
            json!({"restoreFrom": {"volume": {"claimName": "a", "file": "/etc/shadow"}}}),
            "file must be a path on the volume",
        ),
        (
            json!({"restoreFrom": {"volume": {"claimName": "a", "file": "b", "sha256": "zz"}}}),
            "spec.restoreFrom.volume.sha256",
        ),
        (json!({"backup": {"storageSize": "1k"}}), "storageSize must be at least 1Mi"),
        (json!({"backup": {"storageClassName": "-"}}), "spec.backup.storageClassName"),
        (json!({"backup": {"retention": {"count": 0}}}), "spec.backup.retention.count"),
        (json!({"backup": {"retention": {"count": 1001}}}), "spec.backup.retention.count"),
        (json!({"backup": {"retention": {"age": "1y"}}}), "age must be a number of hours, days or weeks"),
        (json!({"backup": {"retention": {"age": "0d"}}}), "age must be a number of hours, days or weeks"),
        (json!({"deletionPolicy": "Forget"}), "spec.deletionPolicy: Unsupported value: \"Forget\""),
        (json!({"finalBackupDeadlineSeconds": 59}), "spec.finalBackupDeadlineSeconds"),
        (json!({"finalBackupDeadlineSeconds": 604_801}), "spec.finalBackupDeadlineSeconds"),
        (json!({"resources": {"limits": {"memory": "lots"}}}), "spec.resources"),
        (json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}), "spec.resources"),
        (json!({"resources": {"limits": {"gpu": "1"}}}), "spec.resources"),
        (json!({"nodeSelector": {"a": 1}}), "spec.nodeSelector.a in body must be of type string"),
        (json!({"tolerations": "all"}), "spec.tolerations in body must be of type array"),
        (json!({"priorityClassName": "Very High"}), "spec.priorityClassName"),
        (json!({"paused": "yes"}), "spec.paused in body must be of type boolean"),
    ]
}

#[test]
fn what_can_not_be_is_refused_at_the_door_and_nothing_is_made() {
    let cluster = Cluster::start();
    for (more, expected) in fields() {
        refused(&cluster, &instance("bad", &more), expected);
    }
    for name in ["", "x ", "a\nb", "a\0b", "a\u{7f}b", "🐬"] {
        let quoted = json!({"databaseName": name});
        refused(&cluster, &instance("bad", &quoted), "databaseName must have 1 to 64 characters");
        let quoted = json!({"databaseUser": name});
        refused(&cluster, &instance("bad", &quoted), "databaseUser must have 1 to 32 characters");
    }
    refused(
        &cluster,
        &instance("bad", &json!({"databaseName": "ä".repeat(65)})),
        "spec.databaseName: Too long",
    );
    refused(
        &cluster,
        &instance("bad", &json!({"databaseUser": "ä".repeat(33)})),
        "spec.databaseUser: Too long",
    );
    for name in ["it's", "\"shop\"", "a\\b", "'; DROP DATABASE mysql; --"] {
        refused(
            &cluster,
            &instance("bad", &json!({"databaseName": name})),
            "databaseName must not hold ', \" or \\",
        );
    }
    for name in reserved::DATABASES {
        let expected = "databaseName must not be one of the server's own";
        refused(&cluster, &instance("bad", &json!({"databaseName": name})), expected);
    }
    for name in reserved::USERS {
        let expected = "databaseUser must not be one of the server's own";
        refused(&cluster, &instance("bad", &json!({"databaseUser": name})), expected);
    }
    for name in [" seller", "'seller'"] {
        let expected = "databaseUser must not begin with a space, nor begin and end with '";
        refused(&cluster, &instance("bad", &json!({"databaseUser": name})), expected);
    }
    let too_long = "a".repeat(40);
    for name in [too_long.as_str(), "a.b", "-a", "A"] {
        let said = cluster.kubectl_with(&["create", "-f", "-"], &instance(name, &json!({}))).refused();
        assert!(said.contains(name) && said.contains("name"), "{said}");
    }
    for (spec, expected) in [
        (json!({}), "spec.instance: Required value"),
        (json!({"instance": "It's"}), "spec.instance"),
        (json!({"instance": "shop", "deadlineSeconds": 5}), "spec.deadlineSeconds"),
        (json!({"instance": "shop", "deletionPolicy": "Maybe"}), "spec.deletionPolicy: Unsupported value"),
        (json!({"instance": "shop", "reason": "Why not"}), "spec.reason: Unsupported value"),
    ] {
        refused(&cluster, &object("MySQLBackup", "bad", &spec), expected);
    }
    // Who is refused reads what the field is for, not what its words are.
    let explained = cluster.kubectl("explain mysql.spec.flavour").ok();
    assert!(explained.contains("Follows from `mysqlVersion`"), "{explained}");
    let kinds = "get mysqls,mysqlbackups,secrets,pvc,statefulsets,jobs,cronjobs -o name";
    assert_eq!(cluster.kubectl(kinds).ok(), "", "something was made");

    // What an instance began with stays, and so does its last good state.
    cluster.kubectl_with(&["create", "-f", "-"], &instance("good", &json!({}))).ok();
    cluster.becomes("mysql/good", ".status.observedGeneration", "1");
    for (patch, expected) in [
        (json!({"databaseName": "other"}), "databaseName can't be changed"),
        (json!({"databaseUser": "other"}), "databaseUser can't be changed"),
        (json!({"storageSize": "512Mi"}), "a volume can grow and can't shrink"),
        (json!({"flavour": "MariaDB"}), "flavour can't be changed"),
        (json!({"storageClassName": "other"}), "storageClassName can't be changed"),
        (json!({"initScript": {"inline": "SELECT 1"}}), "initScript can't be changed"),
        (json!({"restoreFrom": {"backup": "other"}}), "restoreFrom can't be changed"),
    ] {
        let patch = json!({"spec": patch}).to_string();
        let said =
            cluster.kubectl_with(&["patch", "mysql", "good", "--type=merge", "-p", &patch], "").refused();
        assert!(said.contains(expected), "{expected:?} is not in {said:?}");
    }
    assert_eq!(cluster.field("mysql/good", ".metadata.generation"), "1");
}

/// Names that are legal, and that nobody should be able to do anything with.
const DATABASE: &str = " ``; DROP DATABASE mysql; -- $(id) größe 表 %_";
const USER: &str = "'root'@'%'; \\ \"$HOME\" `表` --";

#[test]
fn odd_names_work_on_a_real_mysql_from_its_first_day_to_its_restore() {
    let user = User::is_me();
    user.pull_this();
    user.pull(&["mysql:9.7"]);
    let mut cluster = user.up(&["--memory"]);
    let of = |name| Instance { cluster: &cluster, name, client: "mysql", user: USER, database: DATABASE };
    let (shop, copy) = (of("shop"), of("copy"));
    let odd = json!({"databaseName": DATABASE, "databaseUser": USER, "mysqlVersion": "9.7", "deletionPolicy": "Delete"});
    cluster.apply(&instance("shop", &odd)).ok();
    shop.serves();
    assert_eq!(shop.field(".status.flavour"), "MySQL");
    shop.sql(&format!("{TABLE} INSERT INTO numbered VALUES (1), (2);")).ok();
    assert_eq!(shop.sql("SELECT DATABASE(), USER() LIKE '% --@%';").ok(), format!("{DATABASE}\t1\n"));
    let denied = shop.sql("CREATE DATABASE another;").refused();
    assert!(denied.contains("Access denied for user"), "{denied}");
    assert!(shop.sql("SELECT COUNT(*) FROM mysql.user;").refused().contains("command denied"));

    back_up(&cluster, "shop", "odd");
    is_complete(&cluster, "odd");
    assert_eq!(cluster.field("mysqlbackup/odd", ".status.tables[0].database"), DATABASE);
    let mut restored = odd;
    restored["restoreFrom"] = json!({"backup": "odd"});
    cluster.apply(&instance("copy", &restored)).ok();
    copy.serves();
    holds(copy, &[1, 2]);
    cluster.kubectl("delete mysql shop copy --timeout=60s").ok();
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
