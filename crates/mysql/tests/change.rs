//! What the operator decides about a server that serves: upgrades, growth, trouble.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use ballast_mysql::{MySQLOperator, ServerStatus, Told};
use ballast_staging::{Stage, same_text};
use jiff::SignedDuration;
use support::{COMPLETE, backup, looked, runs, serves, settled, told};

/// The Job that looks into an image.
const LOOK: &str = "mysql-version-shop";
const NO_LOOK: &str = "there is no Job mysql-version-shop\n";

const CRASHING: &str = "{apiVersion: v1, kind: Pod, metadata: {name: mysql-shop-0}, status: {conditions: [], \
    containerStatuses: [{name: mysql, ready: false, restartCount: 3, image: x, imageID: x, state: {waiting: {reason: \
    CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, message: the data is too odd}}}]}}";

fn image(stage: &Stage<MySQLOperator>) -> String {
    let set = stage.child("StatefulSet", "mysql-shop");
    let line = set.lines().find(|line| line.contains("image: mysql:") || line.contains("image: mariadb:"));
    line.unwrap_or_default().rsplit_once("image: ").map(|(_, image)| image.to_owned()).unwrap_or_default()
}

#[test]
fn the_demos_patch_to_an_older_version_is_taken_and_not_carried_out() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '5.7'}}");
    same_text(
        &stage.effects(),
        r#"
        do      event Warning UpgradeRefused  Degraded was False
        change  status Ready=True Progressing=False Degraded=True BackupHealthy=Unknown  what people and programs read of it
                  ~ .status.conditions[type="BackupHealthy"].observedGeneration: 1 → 2
                  ~ .status.conditions[type="Degraded"].message: "nothing is known to be wrong" → "the change of the version is not carried out, and the server goes on as it is: MySQL 5.7 can't open what MySQL 8.0.40 wrote, which is newer: set mysqlVersion back to 8.0, or make another MySQL with mysqlVersion 5.7 and load a dump into it"
                  ~ .status.conditions[type="Degraded"].observedGeneration: 1 → 2
                  ~ .status.conditions[type="Degraded"].reason: "AsExpected" → "UpgradeRefused"
                  ~ .status.conditions[type="Degraded"].status: "False" → "True"
                  ~ .status.conditions[type="Progressing"].observedGeneration: 1 → 2
                  ~ .status.conditions[type="Ready"].observedGeneration: 1 → 2
                  ~ .status.observedGeneration: 1 → 2
        "#,
    );
    stage.rest();
    assert_eq!(image(&stage), "mysql:8.0");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.0'}}");
    assert!(stage.rest().condition("Degraded").starts_with("False"));
}

#[test]
fn an_image_that_was_edited_by_hand_is_put_back_and_no_upgrade() {
    let mut stage = settled("");
    stage.edited(
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: mysql-shop}, spec: {template: {spec: \
         {containers: [{name: mysql, image: 'mysql:8.4'}]}}}}",
    );
    assert!(stage.effects().contains(r#".image: "mysql:8.4" → "mysql:8.0""#), "{}", stage.effects());
    let events = &stage.rest().events;
    assert!(!events.iter().any(|event| event.contains("Upgrading")), "{events:?}");
    assert_eq!(image(&stage), "mysql:8.0");
}

/// A change to 8.4, up to where its backup is asked for.
fn upgrading() -> (Stage<MySQLOperator>, String) {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.4'}}").rest();
    looked(&mut stage, r#"{"ok":true,"flavour":"mysql","version":"8.4.3"}"#);
    stage.rest();
    let name = "upgrade-shop-0a1b2c-2".to_owned();
    (stage, name)
}

#[test]
fn before_anything_else_the_other_version_is_looked_for() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.4'}}").rest();
    insta::assert_snapshot!("look_job", stage.child("Job", LOOK));
    assert!(stage.condition("Ready").starts_with("True"));
    assert!(stage.condition("Progressing").starts_with("True Looking"), "{}", stage.condition("Progressing"));
    assert_eq!(stage.effects(), "");
    // Another one is wanted meanwhile: what is found in the first says nothing of it.
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.0.41'}}");
    let effects = stage.effects();
    assert!(effects.contains("remove") && effects.contains(LOOK), "{effects}");
    stage.rest();
    assert!(stage.child("Job", LOOK).contains("image: mysql:8.0.41"), "{}", stage.child("Job", LOOK));
    // It is set back, and nobody needs to know any more.
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.0'}}").rest();
    assert_eq!(stage.child("Job", LOOK), NO_LOOK);
    assert_eq!(image(&stage), "mysql:8.0");
}

#[test]
fn a_pod_that_is_seen_later_than_its_job_is_waited_for_and_one_that_is_gone_is_not() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.4'}}").rest();
    let done = stage.view.now;
    stage.meanwhile(&format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {LOOK}}}, status: {{completionTime: '{done}', conditions: \
         [{{type: Complete, status: 'True'}}]}}}}"
    ));
    assert_eq!(stage.effects(), "", "its pod may be seen in a moment");
    stage.view.now += SignedDuration::from_mins(3);
    let effects = stage.effects();
    assert!(effects.contains("remove") && effects.contains(LOOK), "{effects}");
}

#[test]
fn a_version_that_is_not_to_be_had_leaves_the_server_as_it_is() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.0.999'}}").rest();
    stage.meanwhile("{apiVersion: v1, kind: Pod, metadata: {name: mysql-version-shop-x, labels: {mysql-instance: shop}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: mysql-version-shop, controller: true}]}, status: {containerStatuses: [{name: mysql, ready: false, restartCount: 0, image: 'mysql:8.0.999', imageID: '', state: {waiting: {reason: ImagePullBackOff}}}]}}");
    assert_eq!(
        stage.rest().condition("Degraded"),
        "True VersionNotAvailable: there is no MySQL 8.0.999 to be had from mysql:8.0.999, so the server is left as it is: \
         1 of 1 pods fail: mysql-version-shop-x: the image mysql:8.0.999 can't be pulled; `kubectl describe pod \
         mysql-version-shop-x` says why. Set mysqlVersion to one that there is, or delete the Job \
         mysql-version-shop to have it looked for again"
    );
    assert!(stage.condition("Ready").starts_with("True"));
    assert!(stage.condition("Progressing").starts_with("False"), "{}", stage.condition("Progressing"));
    assert_eq!(image(&stage), "mysql:8.0");
    assert_eq!(stage.effects(), "");
    // There is such an image, and something else in it.
    looked(&mut stage, r#"{"ok":true,"flavour":"mysql","version":"8.0.41"}"#);
    let degraded = stage.rest().condition("Degraded");
    assert!(degraded.contains("the image mysql:8.0.999 has MySQL 8.0.41. Set mysqlVersion to"), "{degraded}");
    assert_eq!(image(&stage), "mysql:8.0");
    looked(&mut stage, r#"{"ok":true,"flavour":"mysql","version":"8.0.999"}"#);
    stage.rest();
    let name = "upgrade-shop-0a1b2c-2";
    assert!(stage.child("MySQLBackup", name).contains("BeforeUpgrade"), "there it is");
}

#[test]
fn an_upgrade_begins_with_a_backup() {
    let (mut stage, name) = upgrading();
    assert_eq!(image(&stage), "mysql:8.0");
    insta::assert_snapshot!("backup_before_upgrade", stage.child("MySQLBackup", &name));
    assert!(stage.condition("Ready").starts_with("True"));
    assert!(stage.condition("Progressing").starts_with("True BackingUp"));
    assert_eq!(stage.effects(), "");
    stage.meanwhile(&backup(&name, "BeforeUpgrade", "2030-01-01T12:00:00Z", COMPLETE)).rest();
    assert_eq!(image(&stage), "mysql:8.4");
    assert!(stage.child("StatefulSet", "mysql-shop").contains("--upgrade"));
    assert!(
        stage
            .condition("Progressing")
            .starts_with("True Upgrading: the data of MySQL 8.0.40 is opened by mysql:8.4"),
        "{}",
        stage.condition("Progressing")
    );
    runs(&mut stage, "mysql:8.4", "mysql", "8.4.3");
    stage.rest();
    assert_eq!(stage.condition("Ready"), "True Serving: MySQL 8.4.3 answers queries");
    assert!(stage.condition("Progressing").starts_with("False Settled"));
    assert!(
        stage.child("StatefulSet", "mysql-shop").contains("--upgrade"),
        "taking it away would restart the server"
    );
    assert_eq!(stage.child("Job", LOOK), NO_LOOK, "nobody needs to know any more");
    assert_eq!(stage.effects(), "");
}

#[test]
fn without_a_complete_backup_the_server_is_left_as_it_is() {
    let (mut stage, name) = upgrading();
    stage.meanwhile(&backup(
        &name,
        "BeforeUpgrade",
        "2030-01-01T12:00:00Z",
        "outcome: Failed, message: disk full",
    ));
    let degraded = stage.rest().condition("Degraded");
    assert!(degraded.starts_with("True UpgradeStopped: there is no complete backup to go back to, so the server is left as it is: disk full"), "{degraded}");
    assert_eq!(image(&stage), "mysql:8.0");
    stage.lose("MySQLBackup", &name).rest();
    assert!(stage.child("MySQLBackup", &name).contains("BeforeUpgrade"), "it is tried again");
}

#[test]
fn a_backup_that_somebody_deletes_is_no_way_back() {
    let (mut stage, name) = upgrading();
    let complete = backup(&name, "BeforeUpgrade", "2030-01-01T12:00:00Z", COMPLETE);
    stage
        .meanwhile(&complete.replace("labels:", "deletionTimestamp: '2030-01-01T12:30:00Z', labels:"))
        .rest();
    assert_eq!(image(&stage), "mysql:8.0");
    stage.lose("MySQLBackup", &name).rest();
    assert!(stage.child("MySQLBackup", &name).contains("BeforeUpgrade"), "another one is made");
}

#[test]
fn an_upgrade_that_fails_says_the_way_back_and_it_is_one() {
    let (mut stage, name) = upgrading();
    stage.meanwhile(&backup(&name, "BeforeUpgrade", "2030-01-01T12:00:00Z", COMPLETE)).rest();
    runs(&mut stage, "mysql:8.4", "mysql", "8.4.3");
    stage.meanwhile(CRASHING);
    stage.answers = ballast_operator::Answers::none();
    let degraded = stage.rest().condition("Degraded");
    assert!(degraded.starts_with("True UpgradeFailed: 1 of 1 pods fail: mysql-shop-0 keeps crashing: Error, exit code 1: the data is too odd"), "{degraded}");
    assert!(degraded.contains(&format!("The way back: set mysqlVersion to 8.0; where the new version already changed the data, make another MySQL with mysqlVersion 8.0.40 and restoreFrom.backup {name}")), "{degraded}");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.0'}}").rest();
    looked(&mut stage, r#"{"ok":true,"flavour":"mysql","version":"8.0.40"}"#);
    stage.rest();
    assert_eq!(image(&stage), "mysql:8.0", "no backup is needed to go back to what wrote the data");
    assert!(!stage.child("StatefulSet", "mysql-shop").contains("--upgrade"));
}

#[test]
fn a_change_within_a_series_has_its_backup_and_its_way_back_too() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.0.41'}}").rest();
    looked(&mut stage, r#"{"ok":true,"flavour":"mysql","version":"8.0.41"}"#);
    stage.rest();
    let name = "upgrade-shop-0a1b2c-2";
    stage.meanwhile(&backup(name, "BeforeUpgrade", "2030-01-01T12:00:00Z", COMPLETE)).rest();
    assert_eq!(image(&stage), "mysql:8.0.41");
    assert!(!stage.child("StatefulSet", "mysql-shop").contains("--upgrade"), "no leave is needed");
    runs(&mut stage, "mysql:8.0.41", "mysql", "8.0.41");
    stage.meanwhile(CRASHING);
    stage.answers = ballast_operator::Answers::none();
    let degraded = stage.rest().condition("Degraded");
    assert!(
        degraded.starts_with("True UpgradeFailed: ") && degraded.contains("the data is too odd"),
        "{degraded}"
    );
    assert!(degraded.contains("The way back: set mysqlVersion to 8.0.40; where"), "{degraded}");
    assert!(
        stage.condition("Progressing").starts_with("True Upgrading"),
        "{}",
        stage.condition("Progressing")
    );
    runs(&mut stage, "mysql:8.0.41", "mysql", "8.0.41");
    stage.meanwhile("{apiVersion: v1, kind: Pod, metadata: {name: mysql-shop-0}, status: {containerStatuses: [{name: mysql, ready: true, restartCount: 4, image: x, imageID: x, state: {running: {}}, lastState: null}]}}");
    told(&mut stage, &serves("mysql", "8.0.41"));
    assert!(stage.rest().condition("Degraded").starts_with("False"), "{}", stage.condition("Degraded"));
    assert_eq!(stage.child("Job", LOOK), NO_LOOK);
    assert_eq!(stage.effects(), "");
}

#[test]
fn which_one_of_a_series_an_image_has_counts_and_not_what_it_is_called() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {image: example.com/mysql}}").rest();
    looked(&mut stage, r#"{"ok":true,"flavour":"mysql","version":"8.0.45"}"#);
    stage.rest();
    assert!(
        stage.condition("Progressing").starts_with("True BackingUp"),
        "{}",
        stage.condition("Progressing")
    );
    looked(&mut stage, r#"{"ok":true,"flavour":"mysql","version":"8.0.36"}"#);
    let degraded = stage.rest().condition("Degraded");
    assert!(
        degraded.starts_with("True UpgradeRefused: ")
            && degraded.contains("MySQL 8.0.36 can't open what MySQL 8.0.40 wrote"),
        "{degraded}"
    );
    assert_eq!(image(&stage), "mysql:8.0");
    assert_eq!(stage.effects(), "", "it is not looked at again and again");
}

#[test]
fn data_that_can_not_be_brought_up_to_the_new_version_is_a_failed_upgrade() {
    let (mut stage, name) = upgrading();
    stage.meanwhile(&backup(&name, "BeforeUpgrade", "2030-01-01T12:00:00Z", COMPLETE)).rest();
    runs(&mut stage, "mysql:8.4", "mysql", "8.4.3");
    let Told::Fares(said) = serves("mysql", "8.4.3") else { return };
    let message = "the tool did not come to its end".to_owned();
    told(&mut stage, &Told::Fares(ServerStatus { ready: false, failed: true, message, ..said }));
    let degraded = stage.rest().condition("Degraded");
    assert!(
        degraded.starts_with(
            "True UpgradeFailed: the tool did not come to its end. The way back: set mysqlVersion to 8.0;"
        ),
        "{degraded}"
    );
    assert!(stage.condition("Ready").starts_with("False NotServing"), "{}", stage.condition("Ready"));
}

#[test]
fn a_kept_volume_that_an_older_version_wrote_says_which_version_to_begin_with() {
    let mut stage = settled("");
    stage.meanwhile(&CRASHING.replace(
        "the data is too odd",
        "\"the data was written by MySQL 5.7.44, which MySQL 8.0.40 must not open unasked; allow it with --upgrade\"",
    ));
    stage.answers = ballast_operator::Answers::none();
    let degraded = stage.rest().condition("Degraded");
    assert!(
        degraded.ends_with(
            "Set mysqlVersion to the version that wrote it first: from there it is changed after a backup"
        ),
        "{degraded}"
    );
}

fn agent_image(stage: &Stage<MySQLOperator>) -> String {
    let set = stage.child("StatefulSet", "mysql-shop");
    let line = set.lines().find(|line| line.contains("image: ballast:")).unwrap_or_default();
    line.trim().to_owned()
}

/// The operator comes from another image now.
fn newer_operator(stage: &mut Stage<MySQLOperator>) {
    stage.operator.agent_image = "ballast:new".to_owned();
    stage.rest();
}

#[test]
fn a_newer_operator_restarts_no_server() {
    let mut stage = settled("");
    newer_operator(&mut stage);
    assert_eq!(agent_image(&stage), "image: ballast:latest");
    assert!(stage.condition("Ready").starts_with("True"), "{}", stage.condition("Ready"));
    assert_eq!(stage.effects(), "");
    let cron_job = stage.child("CronJob", "mysql-backup-shop");
    assert!(cron_job.contains("image: ballast:new"), "what is yet to start has the newer one: {cron_job}");
    // It crashed, and comes up again by itself.
    stage.meanwhile(
        "{apiVersion: v1, kind: Pod, metadata: {name: mysql-shop-0}, status: {containerStatuses: [{name: mysql, ready: false, restartCount: 1, image: x, imageID: x, state: {waiting: {reason: CrashLoopBackOff}}}]}}",
    );
    assert_eq!(agent_image(stage.rest()), "image: ballast:latest");
    // Somebody else's fingers in what restarts nothing.
    stage.meanwhile(
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: mysql-shop}, spec: {replicas: 3}}",
    );
    assert_eq!(agent_image(stage.rest()), "image: ballast:latest");
}

#[test]
fn a_newer_agent_comes_with_a_pod_that_is_replaced_anyway() {
    let mut stage = settled("");
    newer_operator(&mut stage);
    stage.meanwhile("{kind: MySQL, spec: {resources: {requests: {cpu: '2'}}}}").rest();
    assert_eq!(agent_image(&stage), "image: ballast:new");

    let mut stage = settled("");
    newer_operator(&mut stage);
    stage.lose("Pod", "mysql-shop-0").rest();
    assert_eq!(agent_image(&stage), "image: ballast:new", "nothing runs that it could end");

    let mut stage = settled("");
    newer_operator(&mut stage);
    stage.meanwhile(
        "{apiVersion: v1, kind: Pod, metadata: {name: mysql-shop-0}, status: {containerStatuses: [{name: mysql, ready: false, restartCount: 0, image: x, imageID: x, state: {waiting: {reason: PodInitializing}}}]}}",
    );
    assert_eq!(agent_image(stage.rest()), "image: ballast:new", "the old one may not be to be had any more");
}

#[test]
fn the_annotation_restarts_the_server_whenever_it_changes() {
    let mut stage = settled("");
    newer_operator(&mut stage);
    stage
        .meanwhile("{kind: MySQL, metadata: {annotations: {mysql.operators.example.com/restart: once}}}")
        .rest();
    assert_eq!(agent_image(&stage), "image: ballast:new");
    let set = stage.child("StatefulSet", "mysql-shop");
    assert!(set.contains("mysql.operators.example.com/restart: once"), "{set}");
    runs(&mut stage, "mysql:8.0", "mysql", "8.0.40");
    stage.rest();
    stage.meanwhile("{kind: MySQL, metadata: {annotations: null}}");
    assert!(
        !stage.effects().contains("StatefulSet"),
        "that it is taken away is no reason: {}",
        stage.effects()
    );
}

#[test]
fn a_version_that_is_not_to_be_had_can_be_put_right_before_anything_served() {
    let mut stage = support::sample("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.99'}}").rest();
    assert_eq!(image(&stage), "mysql:8.99");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '8.4'}}").rest();
    assert_eq!(image(&stage), "mysql:8.4");
    assert!(!stage.child("StatefulSet", "mysql-shop").contains("--upgrade"));
}

#[test]
fn mariadb_is_told_by_its_version_and_never_opens_what_mysql_wrote() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '11.8'}}").rest();
    assert_eq!(image(&stage), "mysql:8.0");
    assert!(stage.condition("Degraded").contains("MariaDB 11.8 can't open what MySQL 8.0.40 wrote"));
    let mut stage = support::sample("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '11.8'}}").rest();
    let set = stage.child("StatefulSet", "mysql-shop");
    assert!(set.contains("image: mariadb:11.8") && set.contains("- mariadb\n"), "{set}");
}

#[test]
fn a_volume_grows_last_and_never_shrinks() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {storageSize: 20Gi}}");
    assert!(!stage.effects().contains("storage"), "a claim without a volume can't be changed");
    stage.meanwhile(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop}, status: {phase: Bound}}",
    );
    let effects = stage.effects();
    assert!(effects.contains(r#"~ .spec.resources.requests.storage: "10Gi" → "20Gi""#), "{effects}");
    stage.rest();
    stage.meanwhile("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop}, status: {capacity: {storage: 10Gi}}}");
    assert!(
        stage
            .rest()
            .condition("Progressing")
            .starts_with("True Growing: the volume of mysql-pvc-shop grows from 10Gi to 20Gi")
    );
    assert!(stage.condition("Ready").starts_with("True"));
    stage.meanwhile("{kind: MySQL, spec: {storageSize: 5Gi}}").rest();
    assert!(stage.child("PersistentVolumeClaim", "mysql-pvc-shop").contains("storage: 20Gi"));
}

#[test]
fn a_volume_that_is_nearly_full_is_told_until_there_is_plenty() {
    let mut stage = settled("");
    let mut free = |percent: u64| {
        let Told::Fares(said) = serves("mysql", "8.0.40") else { return String::new() };
        told(
            &mut stage,
            &Told::Fares(ServerStatus {
                data_bytes: (100 - percent) << 20,
                free_bytes: percent << 20,
                ..said
            }),
        );
        stage.rest().condition("Degraded").split(':').next().unwrap_or_default().to_owned()
    };
    assert_eq!(free(5), "False AsExpected");
    assert_eq!(free(4), "True StorageLow");
    assert_eq!(free(7), "True StorageLow");
    assert_eq!(free(10), "False AsExpected");
}

#[test]
fn a_step_that_fails_hides_nothing_that_is_wrong() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {mysqlVersion: '5.7'}}");
    stage.meanwhile(
        "{kind: Outcome, step: apply Service default/mysql-shop, class: Terminal, message: refused}",
    );
    let degraded = stage.plan().status().map(ToString::to_string).unwrap_or_default();
    assert!(degraded.contains(r#""reason":"UpgradeRefused""#), "{degraded}");
    assert!(
        degraded
            .contains("load a dump into it. Besides, StepFailed: apply Service default/mysql-shop: refused"),
        "{degraded}"
    );
}

#[test]
fn an_image_that_can_not_be_pulled_is_told() {
    let mut stage = support::sample("");
    stage.rest();
    stage.meanwhile("{apiVersion: v1, kind: Pod, metadata: {name: mysql-shop-0, labels: {mysql-instance: shop}}, spec: {containers: [{name: mysql, image: 'mysql:8.0'}]}, status: {containerStatuses: [{name: mysql, ready: false, restartCount: 0, image: 'mysql:8.0', imageID: x, state: {waiting: {reason: ImagePullBackOff}}}]}}");
    assert!(
        stage.rest().condition("Degraded").starts_with("True ImagePullFailed"),
        "{}",
        stage.condition("Degraded")
    );
}

#[test]
fn an_agent_that_can_not_be_had_is_told() {
    let mut stage = support::sample("");
    stage.rest();
    stage.meanwhile("{apiVersion: v1, kind: Pod, metadata: {name: mysql-shop-0, labels: {mysql-instance: shop}}, spec: {containers: [{name: mysql, image: 'mysql:8.0'}]}, status: {initContainerStatuses: [{name: install, ready: false, restartCount: 0, image: 'ballast:latest', imageID: x, state: {waiting: {reason: ErrImagePull}}}], containerStatuses: [{name: mysql, ready: false, restartCount: 0, image: 'mysql:8.0', imageID: x, state: {waiting: {reason: PodInitializing}}}]}}");
    assert_eq!(
        stage.rest().condition("Degraded"),
        "True ImagePullFailed: 1 of 1 pods fail: mysql-shop-0: the image ballast:latest can't be pulled; `kubectl \
         describe pod mysql-shop-0` says why"
    );
    assert!(!stage.condition("Ready").starts_with("True"));
}

#[test]
fn a_password_that_the_server_does_not_know_is_told_with_what_to_do() {
    let mut stage = settled("");
    let Told::Fares(said) = serves("mysql", "8.0.40") else { return };
    let message = "ERROR 1045 (28000): Access denied for user 'root'@'localhost'".to_owned();
    told(&mut stage, &Told::Fares(ServerStatus { ready: false, denied: true, message, ..said }));
    stage.rest();
    assert_eq!(
        stage.condition("Degraded"),
        "True PasswordUnknown: the server goes on, and does not let root in with root-password of the Secret \
         mysql-secret-shop, so no backup can be made: ERROR 1045 (28000): Access denied for user 'root'@'localhost'. Put \
         the password that it knows into that Secret; from then on a change of it is told to the server. Where nobody \
         knows it any more, make another MySQL with restoreFrom and the last backup of shop"
    );
    assert!(
        stage.condition("Ready").starts_with("False PasswordUnknown: ERROR 1045"),
        "{}",
        stage.condition("Ready")
    );
    assert_eq!(stage.effects(), "", "nothing is touched");
    told(&mut stage, &serves("mysql", "8.0.40"));
    assert!(stage.rest().condition("Degraded").starts_with("False"));
}
