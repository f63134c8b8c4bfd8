//! What becomes of an instance whose volume goes.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use support::{COMPLETE, backup, runs, sample, settled};

#[test]
fn a_volume_that_is_lost_is_not_replaced_by_an_empty_one_in_silence() {
    let mut stage = settled(&backup("old", "Scheduled", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile("{kind: MySQL, spec: {initScript: {inline: 'CREATE TABLE t (i INT)'}}}").rest();
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-init-shop}, status: {conditions: [{type: Complete, status: 'True'}]}}").rest();
    assert!(stage.status().contains("initScriptDone: true"), "{}", stage.status());
    stage.lose("PersistentVolumeClaim", "mysql-pvc-shop").lose("Pod", "mysql-shop-0");
    stage.answers = ballast_operator::Answers::none();
    assert!(!stage.effects().contains("apply"), "{}", stage.effects());
    assert_eq!(
        stage.rest().condition("Degraded"),
        "True VolumeLost: the PersistentVolumeClaim mysql-pvc-shop, which the data was on, is gone, and no empty one takes \
         its place: make another MySQL with restoreFrom.backup old; or, where the volume itself is still there, make that \
         claim again with the label mysql-instance=shop; or say with `kubectl annotate mysql shop \
         mysql.operators.example.com/start-empty=true` that it is to begin empty"
    );
    assert!(stage.condition("Ready").starts_with("False VolumeLost"), "{}", stage.condition("Ready"));
    assert!(stage.status().contains("version: \"8.0.40\""), "{}", stage.status());

    let taken_up = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, labels: {mysql-instance: shop}}}";
    let mut stage = settled("");
    stage.lose("PersistentVolumeClaim", "mysql-pvc-shop").rest();
    assert!(stage.meanwhile(taken_up).rest().condition("Degraded").starts_with("False"));
    stage.meanwhile("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, deletionTimestamp: '2030-01-01T12:00:00Z'}}");
    assert!(!stage.rest().condition("Degraded").contains("VolumeLost"), "it is still there");
}

#[test]
fn a_server_whose_volume_is_being_deleted_is_left_as_it_is() {
    let mut stage = settled("");
    stage.meanwhile("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, deletionTimestamp: '2030-01-01T12:00:00Z'}}");
    stage.meanwhile("{kind: MySQL, spec: {resources: {limits: {memory: 4Gi}}, storageSize: 20Gi}}");
    for line in stage.effects().lines().filter(|line| !line.starts_with(' ')) {
        assert!(line.starts_with("change  status") || line.contains("event Warning"), "{line}");
    }
    let said = stage.rest().condition("Degraded");
    assert!(
        said.starts_with("True VolumeGoing: the PersistentVolumeClaim mysql-pvc-shop is being"),
        "{said}"
    );
    assert!(stage.condition("Ready").starts_with("True"), "it serves: {}", stage.condition("Ready"));
    stage.meanwhile("{kind: MySQL, spec: {paused: true}}").rest();
    assert!(stage.condition("Degraded").starts_with("True VolumeGoing"), "{}", stage.condition("Degraded"));
}

#[test]
fn what_begins_empty_is_not_said_to_be_restored() {
    let mut stage = sample(&backup("before", "Requested", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile("{kind: MySQL, spec: {restoreFrom: {backup: before}}}").rest();
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-restore-shop}, status: {conditions: [{type: Complete, status: 'True'}]}}").rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    assert!(stage.rest().status().contains("restoredFrom: the MySQLBackup before"), "{}", stage.status());
    stage.lose("PersistentVolumeClaim", "mysql-pvc-shop").lose("Pod", "mysql-shop-0").rest();
    stage.answers = ballast_operator::Answers::none();
    stage.meanwhile(
        "{kind: MySQL, metadata: {annotations: {mysql.operators.example.com/start-empty: 'true'}}}",
    );
    stage.rest();
    assert!(stage.child("PersistentVolumeClaim", "mysql-pvc-shop").contains("kind: PersistentVolumeClaim"));
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    assert!(!stage.rest().status().contains("restoredFrom"), "{}", stage.status());
}

#[test]
fn a_lost_volume_is_begun_anew_where_somebody_says_so() {
    let mut stage = sample("");
    stage.meanwhile("{kind: MySQL, spec: {initScript: {inline: 'CREATE TABLE t (i INT)'}}}").rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    stage.meanwhile("{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-init-shop}, status: {conditions: [{type: Complete, status: 'True'}]}}").rest();
    stage.lose("PersistentVolumeClaim", "mysql-pvc-shop").lose("Pod", "mysql-shop-0").rest();
    stage.answers = ballast_operator::Answers::none();
    stage.meanwhile(
        "{kind: MySQL, metadata: {annotations: {mysql.operators.example.com/start-empty: 'true'}}}",
    );
    let plan = stage.plan().to_string();
    assert!(!plan.contains("PersistentVolumeClaim") && plan.contains("Warning StartsEmpty"), "{plan}");
    stage.rest();
    assert!(stage.child("PersistentVolumeClaim", "mysql-pvc-shop").contains("kind: PersistentVolumeClaim"));
    assert!(!stage.status().contains("version:") && !stage.status().contains("initScriptDone"));
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    assert_eq!(stage.condition("Ready"), "False Configuring: the init script is being run");
    assert!(stage.child("Job", "mysql-init-shop").contains("kind: Job"), "an empty volume is configured");
}
