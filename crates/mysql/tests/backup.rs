//! What the operator of MySQLBackups decides: when one is made, when it is proved, when its file goes.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use ballast_mysql::{Manifest, MySQLBackupOperator, TableDigest};
use ballast_operator::{Answers, Operator as _};
use ballast_staging::{Stage, same_text};
use support::{backup_stage, told};

const ASKED: &str = r"
apiVersion: operators.example.com/v1alpha1
kind: MySQLBackup
metadata: {name: now, uid: 0a1b2c3d-0000-4000-8000-000000000002}
spec: {instance: shop, reason: Requested, deletionPolicy: Delete}
---
apiVersion: v1
kind: Namespace
metadata: {name: default, namespace: null}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: backup-pvc-shop}
";

/// The instance that it is of.
const INSTANCE: &str = r"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: shop}
spec: {databaseName: myapp, databaseUser: myuser, nodeSelector: {disk: fast}}
status: {flavour: MySQL, version: 8.0.40, image: 'mysql:8.0'}
";

const SUM: &str = "1111111111111111111111111111111111111111111111111111111111111111";

fn asked() -> Stage<MySQLBackupOperator> {
    let mut stage = backup_stage(&format!("{ASKED}\n---\n{INSTANCE}"));
    stage.rest();
    stage
}

/// A pod of the backup's Job that ended so.
fn ended(code: i32, words: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata:
  name: now-x
  labels: {{batch.kubernetes.io/job-name: now}}
  ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: now, controller: true}}]
status:
  containerStatuses:
  - name: mysql
    ready: false
    restartCount: 0
    image: x
    imageID: x
    state: {{terminated: {{exitCode: {code}, startedAt: '2030-01-01T12:00:00Z', finishedAt: '2030-01-01T12:01:00Z', message: '{words}'}}}}
"
    )
}

fn good() -> String {
    format!(
        r#"{{"ok":true,"file":"backup-20300101-120000.sql.zst","bytes":20971520,"contentBytes":104857600,"sha256":"{SUM}","manifestSha256":"{SUM}","tables":2,"rows":7,"seconds":59.2,"flavour":"mysql","version":"8.0.40"}}"#
    )
}

fn job(condition: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: now}}, status: {{conditions: [{{type: {condition}, status: 'True', message: as it says}}]}}}}"
    )
}

fn manifest(sha256: &str) -> Manifest {
    let table = |name: &str, rows| TableDigest {
        database: "myapp".to_owned(),
        name: name.to_owned(),
        rows,
        digest: "00ff".to_owned(),
    };
    Manifest { sha256: sha256.to_owned(), tables: vec![table("a", 3), table("b", 4)] }
}

#[test]
fn a_backup_that_is_asked_for_gets_a_job() {
    let stage = backup_stage(&format!("{ASKED}\n---\n{INSTANCE}"));
    same_text(
        &stage.plan().to_string(),
        "
        hold    mysql.operators.example.com/backup           the file goes before the resource that speaks of it
        apply   Job default/now                              a backup of shop is made
        status  Ready=False Progressing=True Degraded=False  what people and programs read of it
        look    again in 10s                                 not everything that is waited for makes a noise
        ",
    );
    insta::assert_snapshot!("dump_job", asked().child("Job", "now"));
}

#[test]
fn only_the_last_backup_of_an_instance_that_goes_stops_its_writers() {
    let gone = "metadata: {name: shop, deletionTimestamp: '2030-01-01T12:00:00Z', finalizers: [x]}";
    for (reason, metadata, stops) in [
        ("BeforeDeletion", gone, true),
        ("BeforeDeletion", "metadata: {name: shop}", false),
        ("Requested", gone, false),
    ] {
        let backup = ASKED.replace("Requested", reason);
        let instance = INSTANCE.replace("metadata: {name: shop}", metadata);
        let mut stage = backup_stage(&format!("{backup}\n---\n{instance}"));
        stage.rest();
        assert_eq!(stage.child("Job", "now").contains("--stop-writes"), stops, "{reason} {metadata}");
    }
}

#[test]
fn it_waits_for_its_instance() {
    let mut stage = backup_stage(ASKED);
    assert!(stage.rest().condition("Degraded").starts_with("True InstanceNotFound"));
    stage.meanwhile(&INSTANCE.replace("status: {flavour: MySQL, version: 8.0.40, image: 'mysql:8.0'}", ""));
    assert!(
        stage.rest().condition("Ready").starts_with("False InstanceNotReady"),
        "{}",
        stage.condition("Ready")
    );
    assert!(!stage.child("Job", "now").contains("kind: Job"));
}

#[test]
fn complete_is_what_the_pod_proved() {
    let mut stage = asked();
    stage.meanwhile(&ended(0, &good()));
    told(&mut stage, &manifest(SUM));
    stage.rest();
    insta::assert_snapshot!("status_when_complete", stage.status());
    assert_eq!(stage.effects(), "");
    stage.lose("Job", "now").lose("Pod", "now-x").lose("MySQL", "shop");
    stage.answers = Answers::none();
    assert_eq!(stage.effects(), "", "what is proved is proved");
}

#[test]
fn what_a_pod_of_an_earlier_job_proved_is_no_proof() {
    let mut stage = asked();
    let earlier = ended(0, &good()).replace("name: now, controller", "name: now, uid: earlier, controller");
    stage.meanwhile(&earlier).rest();
    assert_eq!(stage.condition("Ready"), "False Running: the backup is being made");
    stage.meanwhile(&job("Failed")).rest();
    assert!(stage.condition("Ready").starts_with("False BackupFailed"), "{}", stage.condition("Ready"));
}

#[test]
fn with_its_volume_it_is_complete_no_longer() {
    let mut stage = asked();
    stage.meanwhile(&ended(0, &good())).rest();
    assert!(stage.condition("Ready").starts_with("True Complete"), "{}", stage.condition("Ready"));
    assert!(stage.plan().look_again().is_some(), "nobody tells it that the volume goes");
    stage.lose("PersistentVolumeClaim", "backup-pvc-shop").rest();
    let said = "VolumeGone: it was complete, and the PersistentVolumeClaim backup-pvc-shop that its file was on is gone";
    assert_eq!(stage.condition("Ready"), format!("False {said}"));
    assert_eq!(stage.condition("Degraded"), format!("True {said}"));
    let claim = |made: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: backup-pvc-shop, creationTimestamp: '2030-01-01T{made}Z'}}}}"
        )
    };
    stage.meanwhile(&claim("12:01:01")).rest();
    let said = stage.condition("Ready");
    assert!(said.starts_with("False VolumeGone: ") && said.contains("restoreFrom.volume takes it"), "{said}");
    stage.lose("PersistentVolumeClaim", "backup-pvc-shop").meanwhile(&claim("11:00:00")).rest();
    assert!(stage.condition("Ready").starts_with("True Complete"), "{}", stage.condition("Ready"));
}

#[test]
fn a_manifest_with_another_checksum_is_not_believed() {
    let mut stage = asked();
    stage.meanwhile(&ended(0, &good()));
    told(&mut stage, &manifest("2222"));
    stage.rest();
    assert!(
        stage.condition("Ready").starts_with("True Complete") && !stage.status().contains("digest"),
        "{}",
        stage.status()
    );
    told(&mut stage, &manifest(SUM));
    assert!(stage.rest().status().contains("digest"), "it is asked for again");
}

#[test]
fn a_pod_that_can_not_start_is_told() {
    let mut stage = asked();
    let waiting = "{name: mysql, ready: false, restartCount: 0, image: 'mysql:8.0', imageID: '', state: {waiting: {reason: ImagePullBackOff}}}";
    stage.meanwhile(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: now-x, labels: {{batch.kubernetes.io/job-name: now}}, ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: now, controller: true}}]}}, status: {{containerStatuses: [{waiting}]}}}}"));
    assert_eq!(
        stage.rest().condition("Degraded"),
        "True ImagePullFailed: the backup is not begun yet: 1 of 1 pods fail: now-x: the image mysql:8.0 can't be pulled; \
         `kubectl describe pod now-x` says why. Once that is put right it goes on; delete this MySQLBackup to give it up"
    );
    stage.meanwhile(&ended(0, &good())).rest();
    assert!(stage.condition("Degraded").starts_with("False"), "{}", stage.condition("Degraded"));
}

#[test]
fn a_job_that_succeeded_is_no_evidence() {
    let mut stage = asked();
    stage.meanwhile(&job("Complete"));
    assert_eq!(
        stage.rest().condition("Ready"),
        "False BackupFailed: its Job succeeded, but no pod of it is left that says what was made: nothing is proved"
    );
}

#[test]
fn what_is_seen_of_a_job_before_its_pod_is_waited_for() {
    let mut stage = asked();
    let done = format!("status: {{completionTime: '{}', ", stage.view.now);
    stage.meanwhile(&job("Complete").replace("status: {", &done));
    assert!(stage.rest().condition("Progressing").starts_with("True Running"));
    stage.meanwhile(&ended(0, &good()));
    assert!(stage.rest().condition("Ready").starts_with("True Complete"));

    let mut stage = asked();
    stage.meanwhile(&job("Complete").replace("status: {", &done)).rest();
    let relists = |stage: &Stage<MySQLBackupOperator>| {
        let plan = stage.operator.plan(&stage.view, &stage.answers).to_string();
        (plan.contains("relist  Pod"), plan.contains("again in 2s"))
    };
    assert_eq!(relists(&stage), (false, true), "it may come any moment");
    assert_eq!(relists(stage.later(2)), (true, true));
    // A watch that died is begun anew after five minutes, whoever asks for it.
    assert!(stage.later(330).rest().condition("Progressing").starts_with("True Running"));
    assert!(stage.later(31).rest().condition("Ready").starts_with("False BackupFailed: its Job succeeded"));
}

#[test]
fn damage_of_every_kind_is_never_complete() {
    for (code, words) in [
        (0, r#"{"ok":false,"reason":"Truncated","message":"the dump stops"}"#.to_owned()),
        (1, good()),
        (0, String::new()),
        (0, "backup done".to_owned()),
        (0, good().replace("backup-20300101-120000.sql.zst", "")),
        (0, good().replace(&format!("\"sha256\":\"{SUM}\""), "\"sha256\":\"\"")),
        (0, good().replace("\"mysql\"", "\"oracle\"")),
    ] {
        let mut stage = asked();
        stage.meanwhile(&ended(code, &words)).meanwhile(&job("Complete")).rest();
        assert!(
            stage.condition("Ready").starts_with("False BackupFailed"),
            "{words}: {}",
            stage.condition("Ready")
        );
        assert!(!stage.status().contains("completedAt"));
    }
}

#[test]
fn a_failure_says_what_the_pod_said() {
    let mut stage = asked();
    stage.meanwhile(&ended(1, r#"{"ok":false,"reason":"DiskFull","message":"the volume has no room"}"#));
    assert_eq!(
        stage.rest().condition("Progressing"),
        "True Running: the backup is being made once more, for it failed: DiskFull: the volume has no room"
    );
    stage.meanwhile(&job("Failed"));
    assert_eq!(stage.rest().condition("Degraded"), "True BackupFailed: DiskFull: the volume has no room");
    assert!(stage.events.contains(&"Warning BackupFailed: DiskFull: the volume has no room".to_owned()));
    let mut stage = asked();
    stage.meanwhile(&job("Failed"));
    assert_eq!(stage.rest().condition("Degraded"), "True BackupFailed: as it says");
}

#[test]
fn the_record_of_a_job_follows_that_job_and_never_makes_one() {
    let by_hand = "annotations: {cronjob.kubernetes.io/instantiate: manual}, uid";
    follows_its_job(&ASKED.replace("Requested", "Scheduled"));
    follows_its_job(&ASKED.replace("uid", by_hand));
}

fn follows_its_job(record: &str) {
    let theirs = "{apiVersion: batch/v1, kind: Job, metadata: {name: now, labels: {mysql-instance: shop, mysql.operators.example.com/role: backup}, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: mysql-backup-shop, uid: c, controller: true}]}}";
    let mut stage = backup_stage(&format!("{record}\n---\n{INSTANCE}\n---\n{theirs}"));
    assert!(stage.rest().condition("Progressing").starts_with("True Running"));
    stage.meanwhile(&ended(0, &good())).rest();
    assert!(stage.condition("Ready").starts_with("True Complete"));
    let mut stage = backup_stage(&format!("{record}\n---\n{INSTANCE}"));
    assert!(stage.rest().condition("Degraded").contains("its Job was gone before anybody saw what it made"));
    assert!(!stage.child("Job", "now").contains("kind: Job"));
}

#[test]
fn somebody_elses_job_is_left_alone() {
    let mut stage = backup_stage(&format!(
        "{ASKED}\n---\n{INSTANCE}\n---\n{{apiVersion: batch/v1, kind: Job, metadata: {{name: now}}}}"
    ));
    assert!(stage.rest().condition("Degraded").starts_with("True NameTaken"));
    stage.meanwhile(&ended(0, &good())).rest();
    assert!(stage.condition("Ready").starts_with("False NameTaken"), "nor is it evidence");
}

/// A complete backup that somebody deleted.
fn deleted() -> Stage<MySQLBackupOperator> {
    let mut stage = asked();
    stage.meanwhile(&ended(0, &good())).rest();
    stage.meanwhile("{kind: MySQLBackup, metadata: {deletionTimestamp: '2030-01-01T13:00:00Z'}}");
    let plan = stage.plan().to_string();
    assert!(
        plan.contains("remove  Job default/now") && !plan.contains("release"),
        "or it is recorded again: {plan}"
    );
    stage.lose("Job", "now");
    stage
}

const REMOVAL: &str = "remove-0a1b2c3d-0000-4000-8000-000000000002";

#[test]
fn the_file_goes_before_the_resource() {
    let mut stage = deleted();
    stage.rest();
    let job = stage.child("Job", REMOVAL);
    assert!(job.contains("--from=/backup\n        - --\n        - backup-20300101-120000.sql.zst"), "{job}");
    assert!(!stage.plan().to_string().contains("release"));
    stage.meanwhile(&job_of(REMOVAL, "Complete"));
    assert!(stage.plan().to_string().contains("release"));
}

fn job_of(name: &str, condition: &str) -> String {
    job(condition).replace("name: now", &format!("name: {name}"))
}

#[test]
fn a_file_that_can_not_be_removed_is_told_with_a_way_out() {
    let mut stage = deleted();
    stage.rest();
    stage.meanwhile(&job_of(REMOVAL, "Failed"));
    let degraded = stage.rest().condition("Degraded");
    assert!(
        degraded.starts_with("True RemovalFailed") && degraded.contains("set spec.deletionPolicy to Retain"),
        "{degraded}"
    );
    stage.meanwhile("{kind: MySQLBackup, spec: {deletionPolicy: Retain}}");
    assert!(stage.plan().to_string().contains("release"));
}

#[test]
fn it_does_not_go_from_under_somebody_who_is_restored_from_it() {
    let reader = "{apiVersion: operators.example.com/v1alpha1, kind: MySQL, metadata: {name: copy}, spec: {databaseName: a, databaseUser: b, restoreFrom: {backup: now}}}";
    let mut stage = asked();
    stage.meanwhile(&ended(0, &good())).meanwhile(reader).rest();
    assert!(stage.status().contains("- copy"), "{}", stage.status());
    stage.meanwhile("{kind: MySQLBackup, metadata: {deletionTimestamp: '2030-01-01T13:00:00Z'}}").rest();
    assert!(!stage.child("Job", REMOVAL).contains("kind: Job"));
    assert!(stage.condition("Progressing").contains("copy is being restored from it"));
    stage.meanwhile("{apiVersion: operators.example.com/v1alpha1, kind: MySQL, metadata: {name: copy}, status: {restoredFrom: the MySQLBackup now}}");
    stage.rest();
    assert!(stage.child("Job", REMOVAL).contains("kind: Job"));
}

#[test]
fn with_its_volume_or_its_namespace_it_goes_at_once() {
    let mut stage = deleted();
    stage.lose("PersistentVolumeClaim", "backup-pvc-shop");
    assert!(stage.plan().to_string().contains("release"));
    let mut stage = deleted();
    stage.meanwhile("{apiVersion: v1, kind: Namespace, metadata: {name: default, deletionTimestamp: '2030-01-01T13:00:00Z'}}");
    assert!(stage.plan().to_string().contains("release"));
}
