//! A MySQL on a stage, and a server that answers.

use ballast_mysql::{MySQLBackupOperator, MySQLOperator, ServerStatus, Told};
use ballast_operator::{Answer, Answers, Operator};
use ballast_staging::Stage;
use serde::Serialize;

/// The seed's instance.
pub const SAMPLE: &str = r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: shop, uid: 0a1b2c3d-0000-4000-8000-000000000001}
spec: {databaseName: myapp, databaseUser: myuser, storageSize: 10Gi, backupSchedule: '0 2 * * *', mysqlVersion: '8.0'}
---
apiVersion: v1
kind: Namespace
metadata: {name: default, namespace: null}
"#;

/// What Kubernetes reports when the server is up.
pub const UP: &str = r"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: mysql-shop}
status: {observedGeneration: 9, replicas: 1, updatedReplicas: 1, readyReplicas: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: mysql-shop-0, labels: {app: mysql, mysql-instance: shop}}
spec: {containers: [{name: mysql, image: 'mysql:8.0'}]}
status:
  podIP: 10.0.0.1
  conditions: [{type: Ready, status: 'True'}]
  containerStatuses: [{name: mysql, ready: true, restartCount: 0, image: x, imageID: x, state: {running: {}}}]
";

pub fn sample(more: &str) -> Stage<MySQLOperator> {
    Stage::new(MySQLOperator::default(), &format!("{SAMPLE}\n---\n{more}"))
}

pub fn serves(flavour: &str, version: &str) -> Told {
    Told::Fares(ServerStatus {
        flavour: flavour.to_owned(),
        version: version.to_owned(),
        ready: true,
        denied: false,
        failed: false,
        message: String::new(),
        data_bytes: 1 << 30,
        free_bytes: 9 << 30,
    })
}

/// Whoever is asked says this.
pub fn told<O: Operator>(stage: &mut Stage<O>, said: &impl Serialize) {
    stage.answers = Answers::none();
    for question in stage.operator.questions(&stage.view) {
        stage.answers.insert(question.id, Answer::Said(serde_json::to_value(said).unwrap()));
    }
}

/// The pod runs this image now, and the server in it says that it is this.
pub fn runs(stage: &mut Stage<MySQLOperator>, image: &str, flavour: &str, version: &str) {
    stage.meanwhile(&UP.replace("mysql:8.0", image));
    told(stage, &serves(flavour, version));
}

/// The Job that looks into an image ended, and its pod said this in the end.
pub fn looked(stage: &mut Stage<MySQLOperator>, said: &str) {
    stage.meanwhile(
        "{apiVersion: batch/v1, kind: Job, metadata: {name: mysql-version-shop}, status: {conditions: [{type: Complete, \
         status: 'True'}]}}",
    );
    stage.meanwhile(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: mysql-version-shop-x, labels: {{mysql-instance: shop}}, \
         ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: mysql-version-shop, controller: true}}]}}, \
         status: {{containerStatuses: [{{name: mysql, ready: false, restartCount: 0, image: x, imageID: x, state: \
         {{terminated: {{exitCode: 0, message: '{said}'}}}}}}]}}}}"
    ));
}

/// A sample whose server is up and answers.
pub fn settled(more: &str) -> Stage<MySQLOperator> {
    let mut stage = sample(more);
    stage.rest();
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest().events.clear();
    stage
}

/// A backup of the sample: `fields` are those of its status.
pub fn backup(name: &str, reason: &str, at: &str, fields: &str) -> String {
    format!(
        "{{apiVersion: operators.example.com/v1alpha1, kind: MySQLBackup, metadata: {{name: {name}, \
         creationTimestamp: '{at}', labels: {{mysql-instance: shop}}}}, spec: {{instance: shop, reason: {reason}}}, \
         status: {{startedAt: '{at}', completedAt: '{at}', {fields}}}}}"
    )
}

/// A backup that is complete.
pub const COMPLETE: &str = "outcome: Complete, size: 12Mi, flavour: MySQL, version: 8.0.40, claim: backup-pvc-shop, \
     file: backup-20300101-020000.sql.zst, sha256: aa, manifestSha256: bb";

/// A MySQLBackup on a stage.
pub fn backup_stage(more: &str) -> Stage<MySQLBackupOperator> {
    Stage::new(MySQLBackupOperator::default(), more)
}
