//! What the operator decides when a MySQL is deleted.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use ballast_mysql::MySQLOperator;
use ballast_staging::{Stage, same_text};
use support::{COMPLETE, UP, backup, sample, settled};

const DELETED: &str = "{kind: MySQL, metadata: {deletionTimestamp: '2030-01-01T12:00:00Z'}}";
const FINAL: &str = "final-shop-0a1b2c3d";

/// A settled instance under a policy, that somebody deleted.
fn deleted(policy: &str) -> Stage<MySQLOperator> {
    let mut stage = settled(&backup("old", "Scheduled", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(&format!("{{kind: MySQL, spec: {{deletionPolicy: {policy}}}}}")).rest();
    stage.events.clear();
    stage.meanwhile(DELETED);
    stage
}

#[test]
fn under_snapshot_a_last_backup_is_made_and_kept_before_anything_goes() {
    let mut stage = deleted("Snapshot");
    same_text(
        &stage.plan().to_string(),
        "
        remove  CronJob default/mysql-backup-shop                               the last backup is the last
        apply   MySQLBackup default/final-shop-0a1b2c3d                         deletionPolicy is Snapshot
        status  Ready=False Progressing=True Degraded=False BackupHealthy=True  what people and programs read of it
        look    again in 30s                                                    a deadline makes no noise
        ",
    );
    stage.rest();
    assert_eq!(stage.effects(), "", "it is waited for");
    stage.meanwhile(&backup(FINAL, "BeforeDeletion", "2030-01-01T12:00:00Z", COMPLETE));
    same_text(
        &stage.plan().to_string(),
        "
        remove  StatefulSet default/mysql-shop                nobody needs the server any more
        remove  PersistentVolumeClaim default/mysql-pvc-shop  a complete backup is kept, or nobody wants one
        remove  Secret default/mysql-secret-shop              the passwords open nothing any more
        event   Normal Retired                                people see it with kubectl get events
        release mysql.operators.example.com/finalizer         nothing is left to be decided
        ",
    );
    stage.rest();
    assert!(stage.child("PersistentVolumeClaim", "backup-pvc-shop").contains("kind: PersistentVolumeClaim"));
    for name in [FINAL, "old"] {
        assert!(stage.child("MySQLBackup", name).contains("kind: MySQLBackup"));
    }
}

/// The last backup is complete, and somebody deletes it.
fn going() -> String {
    let complete = backup(FINAL, "BeforeDeletion", "2030-01-01T12:00:00Z", COMPLETE);
    complete.replace("labels:", "deletionTimestamp: '2030-01-01T12:30:00Z', labels:")
}

#[test]
fn a_last_backup_that_somebody_deletes_is_none() {
    let mut stage = deleted("Snapshot");
    stage.rest();
    stage.meanwhile(&going());
    assert!(!stage.plan().to_string().contains("remove"), "{}", stage.plan());
    stage.lose("MySQLBackup", FINAL);
    assert!(
        stage.plan().to_string().contains("apply   MySQLBackup"),
        "another one is made: {}",
        stage.plan()
    );
}

#[test]
fn a_last_backup_that_fails_keeps_everything() {
    let mut stage = deleted("Snapshot");
    stage.rest();
    stage.meanwhile(&backup(
        FINAL,
        "BeforeDeletion",
        "2030-01-01T12:00:00Z",
        "outcome: Failed, message: disk full",
    ));
    let degraded = stage.rest().condition("Degraded");
    assert!(degraded.starts_with("True FinalBackupFailed: the last backup, final-shop-0a1b2c3d, failed: disk full. Delete that MySQLBackup to have it tried again; `kubectl annotate mysql shop mysql.operators.example.com/skip-final-backup=true` lets it go without"), "{degraded}");
    assert!(stage.child("PersistentVolumeClaim", "mysql-pvc-shop").contains("kind: PersistentVolumeClaim"));
    assert!(stage.child("StatefulSet", "mysql-shop").contains("kind: StatefulSet"));
    stage.meanwhile(
        "{kind: MySQL, metadata: {annotations: {mysql.operators.example.com/skip-final-backup: 'true'}}}",
    );
    assert!(stage.plan().to_string().contains("release"));
}

#[test]
fn a_last_backup_that_takes_too_long_is_told_and_keeps_everything() {
    let mut stage = deleted("Snapshot");
    stage.rest();
    stage.later(3600);
    assert!(stage.rest().condition("Degraded").starts_with("False"));
    stage.later(1);
    assert!(
        stage.rest().condition("Degraded").starts_with("True FinalBackupOverdue: "),
        "{}",
        stage.condition("Degraded")
    );
    assert!(stage.child("PersistentVolumeClaim", "mysql-pvc-shop").contains("kind: PersistentVolumeClaim"));
}

#[test]
fn under_retain_what_holds_data_stays() {
    let stage = deleted("Retain");
    same_text(
        &stage.plan().to_string(),
        "
        remove  StatefulSet default/mysql-shop         nobody needs the server any more
        event   Normal Retired                         people see it with kubectl get events
        release mysql.operators.example.com/finalizer  nothing is left to be decided
        ",
    );
}

#[test]
fn under_delete_everything_goes() {
    let stage = deleted("Delete");
    same_text(
        &stage.plan().to_string(),
        "
        remove  StatefulSet default/mysql-shop                 nobody needs the server any more
        remove  PersistentVolumeClaim default/mysql-pvc-shop   deletionPolicy is Delete
        remove  Secret default/mysql-secret-shop               the passwords open nothing any more
        remove  PersistentVolumeClaim default/backup-pvc-shop  deletionPolicy is Delete
        remove  MySQLBackup default/old                        deletionPolicy is Delete
        event   Normal Retired                                 people see it with kubectl get events
        release mysql.operators.example.com/finalizer          nothing is left to be decided
        ",
    );
}

#[test]
fn in_a_namespace_that_goes_it_says_so_and_lets_go() {
    let mut stage = deleted("Snapshot");
    stage.meanwhile("{apiVersion: v1, kind: Namespace, metadata: {name: default, deletionTimestamp: '2030-01-01T12:00:00Z'}}");
    same_text(
        &stage.plan().to_string(),
        "
        event   Warning NoFinalBackup                                           Degraded was False
        status  Ready=False Progressing=False Degraded=True BackupHealthy=True  what people and programs read of it
        look    again in 1s                                                     a status that is written makes no noise here
        ",
    );
    assert_eq!(
        stage.rest().condition("Degraded"),
        "True NoFinalBackup: the namespace is being deleted, and nothing can be started in it: no last backup is made"
    );
    assert_eq!(stage.effects(), "", "it was let go after that");
    let mut stage = deleted("Snapshot");
    stage.lose("PersistentVolumeClaim", "mysql-pvc-shop");
    stage.meanwhile("{apiVersion: v1, kind: Namespace, metadata: {name: default, deletionTimestamp: '2030-01-01T12:00:00Z'}}");
    assert!(stage.rest().condition("Degraded").starts_with("True NoFinalBackup"), "the volume may go first");
    let mut stage = deleted("Delete");
    stage.meanwhile("{apiVersion: v1, kind: Namespace, metadata: {name: default, deletionTimestamp: '2030-01-01T12:00:00Z'}}");
    same_text(
        &stage.plan().to_string(),
        "release mysql.operators.example.com/finalizer  nothing is left to be decided",
    );
}

#[test]
fn what_never_served_has_nothing_to_back_up() {
    let mut stage = sample("");
    stage.rest();
    stage.meanwhile(DELETED);
    let plan = stage.plan().to_string();
    assert!(
        !plan.contains("apply") && plan.contains("remove  PersistentVolumeClaim default/mysql-pvc-shop"),
        "{plan}"
    );
}

/// A pod of the server whose container is so.
fn pod(container: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: mysql-shop-0, labels: {{mysql-instance: shop}}}}, status: \
         {{containerStatuses: [{{name: mysql, ready: false, image: x, imageID: x, {container}}}]}}}}"
    )
}

/// Whether a last backup is asked for before anything goes.
fn wants_a_last_backup(stage: &mut Stage<MySQLOperator>) -> bool {
    stage.meanwhile(DELETED);
    let plan = stage.plan().to_string();
    let (asks, removes) =
        (plan.contains("apply   MySQLBackup"), plan.contains("remove  PersistentVolumeClaim"));
    assert_ne!(asks, removes, "{plan}");
    asks
}

#[test]
fn a_server_that_nobody_here_reached_may_have_served_others() {
    for (container, ran) in [
        ("restartCount: 0, state: {waiting: {reason: ImagePullBackOff}}", false),
        ("restartCount: 0, state: {waiting: {reason: PodInitializing}}", false),
        ("restartCount: 0, state: {running: {}}", true),
        ("restartCount: 0, state: {terminated: {exitCode: 1}}", true),
        ("restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}", true),
    ] {
        let mut stage = sample("");
        stage.rest();
        stage.meanwhile(&pod(container));
        assert_eq!(wants_a_last_backup(&mut stage), ran, "{container}");
    }
    // It ran, and is another's turn now.
    let mut stage = sample("");
    stage.rest();
    stage.meanwhile(&pod("restartCount: 0, state: {running: {}}")).rest();
    stage.meanwhile(&pod("restartCount: 0, state: {waiting: {reason: ContainerCreating}}")).rest();
    assert!(wants_a_last_backup(&mut stage), "it is remembered on the volume");
}

#[test]
fn without_a_pod_to_judge_by_a_server_may_have_served() {
    let seen = "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: mysql-shop}, status: {observedGeneration: 1}}";
    let claim = |phase: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: mysql-pvc-shop}}, status: {{phase: {phase}}}}}"
        )
    };
    for (phase, expected) in [("Bound", true), ("Lost", true), ("Pending", false)] {
        let mut stage = sample("");
        stage.rest();
        stage.meanwhile(seen).meanwhile(&claim(phase));
        assert_eq!(wants_a_last_backup(&mut stage), expected, "{phase}");
    }
}

#[test]
fn the_last_backup_of_a_server_that_was_not_heard_yet_is_made_once_it_serves() {
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, labels: {mysql-instance: shop}, annotations: {mysql.operators.example.com/made-for: another}}}";
    let mut stage = sample(claim);
    stage.rest();
    stage.meanwhile(DELETED).rest();
    assert_eq!(
        stage.condition("Progressing"),
        "True Deleting: the last backup, final-shop-0a1b2c3d, waits for the server to serve; `kubectl annotate mysql shop \
         mysql.operators.example.com/skip-final-backup=true` lets it go without"
    );
    assert!(!stage.status().contains("flavour:"), "{}", stage.status());
    stage.meanwhile(UP).rest();
    let status = stage.status();
    assert!(status.contains("flavour: MySQL") && status.contains("image: mysql:8.0"), "{status}");
    assert!(stage.condition("Progressing").ends_with("is being made"), "{}", stage.condition("Progressing"));
}

#[test]
fn a_volume_that_was_there_before_is_not_taken_for_empty() {
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, labels: {mysql-instance: shop}, annotations: {mysql.operators.example.com/made-for: another}}}";
    // Made by an instance before this one; made by a person, who had it taken up.
    for claim in [claim, &claim.replace("mysql.operators.example.com/made-for", "note")] {
        let mut stage = sample(claim);
        stage.rest();
        assert!(stage.child("PersistentVolumeClaim", "mysql-pvc-shop").contains("made-for: "));
        stage.meanwhile(DELETED);
        let plan = stage.plan().to_string();
        assert!(
            plan.contains("apply   MySQLBackup") && !plan.contains("remove  PersistentVolumeClaim"),
            "{plan}"
        );
    }
}

#[test]
fn without_the_finalizer_there_is_nothing_to_do() {
    let mut stage = sample("");
    stage.meanwhile(DELETED);
    assert_eq!(stage.plan().to_string(), "nothing to do\n");
}
