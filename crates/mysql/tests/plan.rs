//! What the operator decides from nothing to a server that serves: YAML in, plan out as text.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use ballast_mysql::{ServerStatus, Told};
use ballast_staging::same_text;
use support::{COMPLETE, UP, backup, runs, sample, serves, settled, told};

#[test]
fn a_new_instance_gets_its_passwords_its_volumes_and_its_server() {
    same_text(
        &sample("").plan().to_string(),
        "
        hold    mysql.operators.example.com/finalizer                                     what becomes of the data is decided before the resource goes
        apply   Secret default/mysql-secret-shop                                          passwords are kept apart from everything else
        mint    Secret mysql-secret-shop, key root-password: a password of 24 characters  the root user has its own
        mint    Secret mysql-secret-shop, key password: a password of 24 characters       the user logs in with it
        apply   PersistentVolumeClaim default/mysql-pvc-shop                              the data has 10Gi
        apply   PersistentVolumeClaim default/backup-pvc-shop                             backups have 10Gi
        apply   Service default/mysql-shop                                                clients find the server under one name
        apply   StatefulSet default/mysql-shop                                            one server of mysql:8.0
        event   Normal Created                                                            people see it with kubectl describe
        status  Ready=False Progressing=True Degraded=False BackupHealthy=Unknown         what people and programs read of it
        look    again in 51001s                                                           a backup that is not tried makes no noise
        look    again in 1s                                                               whether a server serves is known only by asking it
        ",
    );
}

#[test]
fn the_objects_are_as_agreed() {
    let stage = settled("");
    for (kind, name) in [
        ("StatefulSet", "mysql-shop"),
        ("Service", "mysql-shop"),
        ("CronJob", "mysql-backup-shop"),
        ("Secret", "mysql-secret-shop"),
        ("PersistentVolumeClaim", "mysql-pvc-shop"),
    ] {
        insta::assert_snapshot!(kind.to_lowercase(), stage.child(kind, name));
    }
}

#[test]
fn at_the_fixpoint_a_plan_has_no_effects() {
    let stage = settled("");
    assert_eq!(stage.effects(), "");
}

#[test]
fn ready_is_said_when_a_query_succeeded() {
    let mut stage = sample("");
    stage.rest();
    assert_eq!(stage.condition("Ready"), "False Starting: there is no pod yet");
    stage.meanwhile(UP);
    assert_eq!(stage.rest().condition("Ready"), "Unknown NotVerified: mysql-shop-0 was not asked");
    told(&mut stage, &Told::Refuses);
    assert_eq!(stage.rest().condition("Ready"), "False Starting: the agent does not listen yet");
    let Told::Fares(said) = serves("mysql", "8.0.40") else { return };
    told(&mut stage, &Told::Fares(ServerStatus { ready: false, message: "it recovers".to_owned(), ..said }));
    assert_eq!(stage.rest().condition("Ready"), "False Starting: it recovers");
    told(&mut stage, &serves("mariadb", "10.11.2"));
    assert_eq!(
        stage.rest().condition("Ready"),
        "False NotServing: MariaDB 10.11.2 runs where MySQL was wanted"
    );
    told(&mut stage, &serves("mysql", "8.0.40"));
    assert_eq!(stage.rest().condition("Ready"), "True Serving: MySQL 8.0.40 answers queries");
    insta::assert_snapshot!("status_when_ready", stage.status());
}

#[test]
fn an_image_that_has_another_version_than_its_tag_says_is_told() {
    let mut stage = sample("");
    stage.rest();
    runs(&mut stage, "mysql:8.0", "mysql", "9.7.4");
    let ready = stage.rest().condition("Ready");
    assert_eq!(ready, "True Serving: MySQL 9.7.4 answers queries; the image mysql:8.0 has no 8.0");
    assert_eq!(stage.effects(), "", "it is as it was asked for, as far as anybody can have it");
}

#[test]
fn strange_names_reach_the_agent_as_one_word_each() {
    let mut stage = sample("");
    stage.meanwhile(r#"{kind: MySQL, spec: {databaseName: "a b`;$(x)", databaseUser: "--help"}}"#);
    stage.rest();
    let pod = stage.child("StatefulSet", "mysql-shop");
    assert!(pod.contains("--database=a b`;$$(x)") && pod.contains("--user=--help"), "{pod}");
}

#[test]
fn nothing_secret_is_in_a_plan_an_environment_or_a_command() {
    let stage = settled("");
    for (kind, name) in [("StatefulSet", "mysql-shop"), ("CronJob", "mysql-backup-shop")] {
        let child = stage.child(kind, name);
        assert!(
            !child.contains("env:") && !child.contains("bWludGVk") && child.contains("password-file="),
            "{child}"
        );
    }
    assert!(!format!("{:#}", stage.plan()).contains("bWludGVk"));
    assert!(!stage.status().contains("bWludGVk"));
}

#[test]
fn a_version_that_is_not_run_makes_nothing() {
    let mut stage = sample("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '5.7'}}");
    same_text(
        &stage.plan().to_string(),
        "
        event   Warning VersionNotSupported                                        Degraded was not known
        status  Ready=False Progressing=False Degraded=True BackupHealthy=Unknown  what people and programs read of it
        look    again in 51001s                                                    a backup that is not tried makes no noise
        ",
    );
    let degraded = stage.rest().condition("Degraded");
    assert!(
        degraded.contains("MySQL 5.7 is not run, MySQL 8.0 is the oldest that is: set mysqlVersion"),
        "{degraded}"
    );
}

#[test]
fn a_name_that_somebody_else_holds_is_left_alone() {
    for (kind, version, name) in [
        ("Secret", "v1", "mysql-secret-shop"),
        ("StatefulSet", "apps/v1", "mysql-shop"),
        ("PersistentVolumeClaim", "v1", "mysql-pvc-shop"),
    ] {
        let stranger = format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}}}}}");
        let mut stage = sample(&stranger);
        let plan = stage.plan().to_string();
        assert!(!plan.contains("apply"), "{plan}");
        let degraded = stage.rest().condition("Degraded");
        assert!(degraded.starts_with("True NameTaken: the ") && degraded.contains(name), "{degraded}");
    }
}

#[test]
fn a_server_that_serves_goes_on_beside_a_stranger_with_the_name_of_a_job() {
    for name in ["mysql-version-shop", "mysql-restore-shop", "mysql-init-shop"] {
        let stranger = format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, status: {{conditions: [{{type: Complete, status: \
             'True'}}]}}}}"
        );
        let mut stage = settled("");
        stage.meanwhile(&stranger).rest();
        assert!(stage.condition("Ready").starts_with("True Serving"), "{}", stage.condition("Ready"));
        let degraded = stage.condition("Degraded");
        assert!(degraded.starts_with("True NameTaken: the Job ") && degraded.contains(name), "{degraded}");
        assert!(stage.condition("Progressing").starts_with("False NameTaken"));
        assert_eq!(stage.effects(), "");
        stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.4'}}").rest();
        assert!(stage.child("StatefulSet", "mysql-shop").contains("image: mysql:8.0"), "{name}");
        stage.lose("Job", name).rest();
        assert!(!stage.condition("Degraded").contains("NameTaken"), "{}", stage.condition("Degraded"));
        let stage = sample(&stranger);
        assert!(!stage.plan().to_string().contains("apply"), "{}", stage.plan());
    }
}

#[test]
fn a_hand_edited_child_is_put_right_and_a_deleted_one_made_again() {
    let mut stage = settled("");
    stage.meanwhile(
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: mysql-shop}, spec: {replicas: 3}}",
    );
    assert!(stage.effects().contains("~ .spec.replicas: 3 → 1"), "{}", stage.effects());
    stage.rest();
    for (kind, name) in [
        ("Service", "mysql-shop"),
        ("CronJob", "mysql-backup-shop"),
        ("PersistentVolumeClaim", "backup-pvc-shop"),
    ] {
        stage.lose(kind, name);
        assert!(
            stage.effects().contains(&format!("create  apply {kind} default/{name}")),
            "{}",
            stage.effects()
        );
        stage.rest();
    }
}

#[test]
fn a_script_that_failed_is_told_also_while_paused() {
    let mut stage = sample("");
    stage.meanwhile("{kind: MySQL, spec: {initScript: {inline: SELECT 1}}}").rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-init-shop}, status: {conditions: [{type: Failed, status: 'True'}]}}").rest();
    assert!(
        stage.condition("Degraded").starts_with("True InitScriptFailed"),
        "{}",
        stage.condition("Degraded")
    );
    stage.meanwhile("{kind: MySQL, spec: {paused: true}}").rest();
    assert!(
        stage.condition("Degraded").starts_with("True InitScriptFailed"),
        "{}",
        stage.condition("Degraded")
    );
}

#[test]
fn while_paused_nothing_but_the_status_is_written() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {paused: true, mysqlVersion: '8.4', storageSize: 20Gi, backupSchedule: '@daily'}}");
    stage.lose("Service", "mysql-shop");
    for line in stage.effects().lines().filter(|line| !line.starts_with(' ')) {
        assert!(line.starts_with("change  status"), "{line}");
    }
    assert!(stage.rest().condition("Progressing").starts_with("False Paused"));
    assert!(stage.condition("Ready").starts_with("True"), "{}", stage.condition("Ready"));
}

#[test]
fn a_script_is_run_once_when_the_server_serves_and_ready_waits_for_it() {
    let mut stage = sample("");
    stage.meanwhile("{kind: MySQL, spec: {initScript: {inline: 'CREATE TABLE t (i INT)'}}}");
    stage.rest();
    assert!(!stage.child("Job", "mysql-init-shop").contains("kind: Job"));
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    assert_eq!(stage.condition("Ready"), "False Configuring: the init script is being run");
    insta::assert_snapshot!("script_job", stage.child("Job", "mysql-init-shop"));
    assert!(stage.child("ConfigMap", "mysql-init-shop").contains("CREATE TABLE t"));
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-init-shop}, status: {conditions: [{type: Complete, status: 'True'}]}}");
    stage.rest();
    assert!(stage.condition("Ready").starts_with("True Serving"), "{}", stage.condition("Ready"));
    stage.lose("Job", "mysql-init-shop");
    assert_eq!(stage.effects(), "", "what was done is remembered without its Job");
}

#[test]
fn a_script_is_run_once_in_the_life_of_the_volume_whoever_takes_it_up() {
    let mut stage = sample(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, labels: {app: mysql, \
         mysql-instance: shop}, annotations: {mysql.operators.example.com/made-for: an-earlier-one}}}",
    );
    stage.meanwhile("{kind: MySQL, spec: {initScript: {inline: 'CREATE TABLE t (i INT)'}}}").rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    let job = stage.rest().child("Job", "mysql-init-shop");
    assert!(job.contains("an-earlier-one") && !job.contains("--id=0a1b2c3d"), "{job}");
}

#[test]
fn a_script_that_failed_is_not_run_again_by_itself() {
    let mut stage = sample("");
    stage.meanwhile("{kind: MySQL, spec: {initScript: {configMap: {name: mine, key: a.sql}}}}");
    stage.rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    assert!(stage.child("Job", "mysql-init-shop").contains("name: mine"));
    stage.meanwhile(
        "
apiVersion: batch/v1
kind: Job
metadata: {name: mysql-init-shop}
status: {conditions: [{type: Failed, status: 'True', message: it has reached the limit}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: mysql-init-shop-x
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: mysql-init-shop, controller: true}]
status:
  containerStatuses:
  - {name: mysql, ready: false, restartCount: 0, image: x, imageID: x, state: {terminated: {exitCode: 1, message: '{\"ok\":false,\"reason\":\"Began\",\"message\":\"it began and did not end\"}'}}}
",
    );
    let degraded = stage.rest().condition("Degraded");
    assert!(
        degraded.starts_with("True InitScriptFailed: ")
            && degraded.contains("Began: it began and did not end"),
        "{degraded}"
    );
    assert!(stage.condition("Ready").starts_with("False InitScriptFailed"));
    assert_eq!(stage.effects(), "");
}

const RETRIED: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: JOB-x
  labels: {mysql-instance: shop}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: JOB, controller: true}]
status:
  containerStatuses:
  - {name: mysql, ready: false, restartCount: 0, image: x, imageID: x, state: {terminated: {exitCode: 1, finishedAt: '2030-01-01T12:00:00Z', message: 'WORDS'}}}
";

/// A pod of a Job that goes on trying, which failed with these last words.
fn retried(job: &str, reason: &str, message: &str) -> String {
    let words = format!(r#"{{"ok":false,"reason":"{reason}","message":"{message}"}}"#);
    RETRIED.replace("JOB", job).replace("WORDS", &words)
}

#[test]
fn a_script_that_failed_is_told_before_its_job_gives_up() {
    let configuring = || {
        let mut stage = sample("");
        stage.meanwhile("{kind: MySQL, spec: {initScript: {configMap: {name: mine, key: a.sql}}}}").rest();
        runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
        stage.rest();
        stage
    };
    let mut stage = configuring();
    let last = retried("mysql-init-shop", "ScriptInterrupted", "it failed: ERROR 1064. Do this");
    stage.meanwhile(&last.replace("exitCode: 1", "exitCode: 3")).rest();
    assert!(stage.condition("Ready").starts_with("False Configuring"), "its Job is about to give up");
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-init-shop}, status: {conditions: [{type: Failed, status: 'True', reason: PodFailurePolicy}]}}");
    assert_eq!(
        stage.rest().condition("Degraded"),
        "True InitScriptFailed: the init script was not run to its end, and is not run again by itself: \
         ScriptInterrupted: it failed: ERROR 1064. Do this (the script is a.sql of the ConfigMap mine). Put right what \
         it left, then delete the Job mysql-init-shop"
    );
    assert_eq!(stage.condition("Ready"), "False InitScriptFailed: the server serves, and is not configured");
    let mut stage = configuring();
    stage.meanwhile(&retried("mysql-init-shop", "VolumeUnusable", "no such file")).rest();
    assert_eq!(
        stage.condition("Degraded"),
        "True InitScriptFailed: the init script could not be begun, which is tried again: VolumeUnusable: no such \
         file (the script is a.sql of the ConfigMap mine)"
    );
    stage.meanwhile(&retried("mysql-init-shop", "x", "y").replace("exitCode: 1", "exitCode: 0")).rest();
    assert!(stage.condition("Degraded").starts_with("False"), "{}", stage.condition("Degraded"));
}

#[test]
fn a_script_that_is_not_there_is_looked_for_again() {
    let mut stage = sample("");
    stage.meanwhile("{kind: MySQL, spec: {initScript: {configMap: {name: mine, key: a.sql}}}}").rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    let last =
        retried("mysql-init-shop", "NoScript", "there is no script").replace("exitCode: 1", "exitCode: 3");
    let at = stage.view.now;
    stage.meanwhile(&last);
    stage.meanwhile(&format!("{{apiVersion: batch/v1, kind: Job, metadata: {{name: mysql-init-shop}}, status: {{conditions: [{{type: Failed, status: 'True', lastTransitionTime: '{at}'}}]}}}}"));
    assert_eq!(
        stage.rest().condition("Degraded"),
        "True InitScriptFailed: the init script is not there, and is looked for again (the script is a.sql of the ConfigMap \
         mine)"
    );
    assert_eq!(stage.later(9).effects(), "", "not all the time");
    let effects = stage.later(1).effects();
    assert!(effects.contains("remove") && effects.contains("mysql-init-shop"), "{effects}");
    stage.rest();
    assert!(!stage.child("Job", "mysql-init-shop").contains("conditions"), "another looks");
    assert!(stage.condition("Degraded").starts_with("False"), "{}", stage.condition("Degraded"));
}

#[test]
fn a_restore_that_failed_is_told_before_its_job_gives_up() {
    let mut stage = sample(&backup("before", "Requested", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(RESTORED).rest();
    stage.meanwhile(&retried("mysql-restore-shop", "BackupDamaged", "its checksum differs")).rest();
    assert_eq!(
        stage.condition("Degraded"),
        "True RestoreFailed: the MySQLBackup before was not restored, which is tried again: BackupDamaged: its checksum differs"
    );
    assert!(
        stage.condition("Progressing").starts_with("True Restoring"),
        "{}",
        stage.condition("Progressing")
    );
}

/// Pods of a Job that can't start.
fn stuck(job: &str) -> [(String, &'static str); 3] {
    let pod = |status: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {job}-x, labels: {{mysql-instance: shop}}, creationTimestamp: \
             '2030-01-01T11:59:00Z', ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: {job}, controller: \
             true}}]}}, status: {{{status}}}}}"
        )
    };
    let waits = |why: &str| {
        pod(&format!(
            "containerStatuses: [{{name: mysql, ready: false, restartCount: 0, image: 'mysql:8.0', imageID: '', state: \
             {{waiting: {{{why}}}}}}}]"
        ))
    };
    [
        (waits("reason: ImagePullBackOff"), "the image mysql:8.0 can't be pulled"),
        (waits("reason: CreateContainerConfigError, message: no such secret"), "no such secret"),
        (
            pod(
                "conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: 0/3 nodes}]",
            ),
            "no machine takes the pod",
        ),
    ]
}

#[test]
fn a_job_whose_pod_can_not_start_is_told() {
    for (pod, expected) in stuck("mysql-restore-shop") {
        let mut stage = sample(&backup("before", "Requested", "2030-01-01T02:00:00Z", COMPLETE));
        stage.meanwhile(RESTORED).rest();
        stage.meanwhile(&pod).rest();
        let said = stage.condition("Degraded");
        assert!(said.starts_with("True ") && said.contains(expected), "{said}");
        assert!(said.contains("the MySQLBackup before is not restored yet: "), "{said}");
        assert!(said.ends_with("delete the Job mysql-restore-shop"), "{said}");
        stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-restore-shop}, status: {conditions: [{type: Complete, status: 'True'}]}}");
        assert!(stage.rest().condition("Degraded").starts_with("False"), "{}", stage.condition("Degraded"));
    }
    for (pod, expected) in stuck("mysql-init-shop") {
        let mut stage = sample("");
        stage.meanwhile("{kind: MySQL, spec: {initScript: {inline: SELECT 1}}}").rest();
        runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
        stage.rest();
        stage.meanwhile(&pod).rest();
        let said = stage.condition("Degraded");
        assert!(said.starts_with("True InitScriptFailed: the init script is not begun yet: "), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    // A machine may take a moment to be found.
    let (pod, _) = &stuck("mysql-restore-shop")[2];
    let mut stage = sample(&backup("before", "Requested", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(RESTORED).rest();
    stage.meanwhile(&pod.replace("11:59:00Z", "11:59:30Z")).rest();
    assert!(stage.condition("Degraded").starts_with("False"), "{}", stage.condition("Degraded"));
}

const RESTORED: &str = "{kind: MySQL, spec: {restoreFrom: {backup: before}}}";

#[test]
fn an_instance_that_begins_with_a_backup_has_no_server_before_it_has_that() {
    let mut stage = sample("");
    stage.meanwhile(RESTORED).rest();
    assert_eq!(
        stage.condition("Degraded"),
        "True BackupNotFound: there is no MySQLBackup before in this namespace to restore from"
    );
    stage.meanwhile(&backup("before", "Requested", "2030-01-01T02:00:00Z", "message: it is being made"));
    assert!(
        stage.rest().condition("Ready").starts_with("False BackupNotComplete"),
        "{}",
        stage.condition("Ready")
    );
    stage.meanwhile(&backup("before", "Requested", "2030-01-01T02:00:00Z", COMPLETE));
    stage.rest();
    insta::assert_snapshot!("restore_job", stage.child("Job", "mysql-restore-shop"));
    assert!(!stage.child("StatefulSet", "mysql-shop").contains("kind: StatefulSet"));
    assert_eq!(stage.condition("Ready"), "False Restoring: the backup is verified and loaded");
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-restore-shop}, status: {conditions: [{type: Complete, status: 'True'}]}}");
    stage.rest();
    assert!(stage.child("StatefulSet", "mysql-shop").contains("kind: StatefulSet"));
    assert!(stage.status().contains("restoredFrom: the MySQLBackup before"), "{}", stage.status());
    stage.lose("Job", "mysql-restore-shop").lose("StatefulSet", "mysql-shop").lose("MySQLBackup", "before");
    stage.rest();
    assert!(stage.child("StatefulSet", "mysql-shop").contains("kind: StatefulSet"), "it is restored once");
}

#[test]
fn what_does_not_verify_or_does_not_fit_is_not_restored() {
    let failed = backup("before", "Requested", "2030-01-01T02:00:00Z", "outcome: Failed, message: disk full");
    let other = backup("before", "Requested", "2030-01-01T02:00:00Z", &COMPLETE.replace("MySQL", "MariaDB"));
    for (backup, reason) in [(failed, "BackupNotComplete"), (other, "RestoreRefused")] {
        let mut stage = sample(&backup);
        stage.meanwhile(RESTORED).rest();
        assert!(
            stage.condition("Degraded").starts_with(&format!("True {reason}: ")),
            "{}",
            stage.condition("Degraded")
        );
        assert!(!stage.child("Job", "mysql-restore-shop").contains("kind: Job"));
    }
    // What is in an image need not be what it is called: whether the backup is too new for it is found out in it.
    let newer = backup("before", "Requested", "2030-01-01T02:00:00Z", &COMPLETE.replace("8.0.40", "9.7.4"));
    let mut stage = sample(&newer);
    stage.meanwhile(RESTORED).rest();
    assert!(
        stage.child("Job", "mysql-restore-shop").contains("kind: Job"),
        "{}",
        stage.condition("Degraded")
    );
    let mut stage = sample(&backup("before", "Requested", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(RESTORED).rest();
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-restore-shop}, status: {conditions: [{type: Failed, status: 'True', message: too often}]}}");
    let degraded = stage.rest().condition("Degraded");
    assert!(degraded.starts_with("True RestoreFailed: the MySQLBackup before was not restored, and nothing of it is kept: too often"), "{degraded}");
    assert!(!stage.child("StatefulSet", "mysql-shop").contains("kind: StatefulSet"));
}

#[test]
fn a_file_on_a_volume_is_restored_too() {
    let (mut stage, sum) = (sample(""), "c".repeat(64));
    stage.meanwhile(&format!(
        "{{kind: MySQL, spec: {{restoreFrom: {{volume: {{claimName: old, file: a/b.sql.zst, sha256: {sum}}}}}}}}}"
    ));
    assert!(stage.rest().condition("Degraded").starts_with("True VolumeNotFound"));
    stage.meanwhile("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: old}}").rest();
    let job = stage.child("Job", "mysql-restore-shop");
    assert!(
        job.contains("--from=/backup/a/b.sql.zst")
            && job.contains(&format!("--sha256={sum}"))
            && job.contains("claimName: old"),
        "{job}"
    );
}

#[test]
fn where_pods_run_and_what_they_may_use_is_said_once() {
    let mut stage = sample(&backup("before", "Requested", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(
        "{kind: MySQL, spec: {restoreFrom: {backup: before}, initScript: {inline: SELECT 1}, nodeSelector: {disk: fast}, tolerations: [{key: dedicated, operator: Exists}], priorityClassName: high, affinity: {nodeAffinity: {}}, resources: {requests: {cpu: '2'}, limits: {memory: 4Gi}}}}",
    );
    stage.rest();
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-restore-shop}, status: {conditions: [{type: Complete, status: 'True'}]}}");
    stage.rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    for (kind, name, uses) in [
        ("Job", "mysql-restore-shop", true),
        ("StatefulSet", "mysql-shop", true),
        ("Job", "mysql-init-shop", false),
        ("CronJob", "mysql-backup-shop", false),
    ] {
        let child = stage.child(kind, name);
        for words in ["disk: fast", "key: dedicated", "priorityClassName: high", "nodeAffinity"] {
            assert!(child.contains(words), "{words} is not in {child}");
        }
        assert_eq!(child.contains("memory: 4Gi"), uses, "{child}");
    }
}
