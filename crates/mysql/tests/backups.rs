//! What the operator decides about backups: records, retention, and whether they are as they should be.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use ballast_mysql::MySQLOperator;
use ballast_staging::{Stage, same_text};
use support::{COMPLETE, backup, sample, settled};

const JOB: &str = r"
apiVersion: batch/v1
kind: Job
metadata:
  name: manual-backup
  labels: {mysql-instance: shop, mysql.operators.example.com/role: backup}
  ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: mysql-backup-shop, uid: c, controller: true}]
";

#[test]
fn a_job_that_was_made_from_the_cron_job_is_recorded() {
    let mut stage = settled(JOB);
    insta::assert_snapshot!("record", stage.child("MySQLBackup", "manual-backup"));
    stage.lose("MySQLBackup", "manual-backup");
    assert!(
        stage.effects().contains("create  apply MySQLBackup default/manual-backup"),
        "{}",
        stage.effects()
    );
    let strange = JOB.replace("CronJob", "Workflow");
    assert!(!settled(&strange).child("MySQLBackup", "manual-backup").contains("kind: MySQLBackup"));
}

#[test]
fn a_job_that_a_person_made_is_theirs_to_delete() {
    let by_hand =
        JOB.replace("  labels:", "  annotations: {cronjob.kubernetes.io/instantiate: manual}\n  labels:");
    let mut stage = settled(&by_hand);
    let record = stage.child("MySQLBackup", "manual-backup");
    assert!(record.contains("reason: Requested") && record.contains("instantiate: manual"), "{record}");
    stage.meanwhile("{kind: MySQL, spec: {backupSchedule: null, backup: {retention: {count: 1}}}}");
    stage.meanwhile(&backup("manual-backup", "Requested", "2029-12-01T01:00:00Z", COMPLETE));
    stage.meanwhile(&nights([COMPLETE; 6])).rest();
    assert_eq!(left(&stage), ["f"]);
    assert!(stage.child("MySQLBackup", "manual-backup").contains("kind: MySQLBackup"));
}

#[test]
fn a_job_whose_name_no_record_can_have_is_told_and_holds_nothing_up() {
    let stage = settled(&JOB.replace("manual-backup", "manual.backup"));
    let said = stage.condition("Degraded");
    assert!(
        said.starts_with("True JobNotRecorded: what comes of the Job manual.backup is not recorded: "),
        "{said}"
    );
    assert!(stage.condition("Ready").starts_with("True"), "{}", stage.condition("Ready"));
    assert_eq!(stage.effects(), "");
}

#[test]
fn a_job_whose_name_another_record_has_is_told() {
    let made = |at: &str| JOB.replace("  labels:", &format!("  creationTimestamp: '{at}'\n  labels:"));
    let record = backup("manual-backup", "Requested", "2030-01-01T02:00:00Z", COMPLETE);
    for (record, at, why) in [
        (record.clone(), "2030-01-01T02:00:00Z", None),
        (record.clone(), "2030-01-01T02:00:01Z", Some("is of an earlier Job of that name")),
        (record.replace("instance: shop,", "instance: other,"), "2030-01-01T02:00:00Z", Some("is of other")),
    ] {
        let stage = settled(&format!("{record}\n---\n{}", made(at)));
        let said = stage.condition("Degraded");
        match why {
            None => assert!(said.starts_with("False"), "{said}"),
            Some(why) => assert_eq!(
                said,
                format!(
                    "True JobNotRecorded: what comes of the Job manual-backup is not recorded: the MySQLBackup manual-backup \
                     {why}. Delete it, and make one by another name"
                )
            ),
        }
    }
}

#[test]
fn the_last_backup_is_the_last_complete_one() {
    let mut stage = settled(&backup("one", "Scheduled", "2030-01-01T02:00:00Z", COMPLETE));
    assert!(stage.status().contains("lastBackup: \"2030-01-01T02:00:00Z\""), "{}", stage.status());
    assert_eq!(
        stage.condition("BackupHealthy"),
        "True BackupComplete: the last backup, one, is complete: 12Mi"
    );
    stage.meanwhile(&backup(
        "two",
        "Scheduled",
        "2030-01-01T03:00:00Z",
        "outcome: Failed, message: 'DiskFull: no space'",
    ));
    let steps = stage.plan().steps;
    let told = steps.iter().find(|step| step.headline() == "event Warning BackupFailed");
    assert!(told.is_some_and(|step| step.effect.is_report()), "it is said also where a step fails");
    stage.rest();
    assert!(stage.status().contains("lastBackup: \"2030-01-01T02:00:00Z\""), "{}", stage.status());
    assert_eq!(
        stage.condition("BackupHealthy"),
        "False BackupFailed: the last backup, two, failed: DiskFull: no space"
    );
    stage.lose("MySQLBackup", "one").rest();
    assert!(!stage.status().contains("lastBackup"), "none is left: {}", stage.status());
    stage.meanwhile(&backup("three", "Requested", "2030-01-01T04:00:00Z", COMPLETE)).rest();
    assert!(stage.condition("BackupHealthy").starts_with("True BackupComplete"));
    same_text(
        &stage.events.join("\n"),
        "
        Warning BackupFailed: the last backup, two, failed: DiskFull: no space
        Normal BackupComplete: the last backup, three, is complete: 12Mi
        ",
    );
}

#[test]
fn of_two_backups_in_one_second_the_last_is_the_one_that_ended_last() {
    let ended = |name: &str, fraction: u32, fields: &str| {
        let at = "2030-01-01T02:00:00";
        backup(name, "Requested", &format!("{at}Z"), &format!("endedAt: '{at}.{fraction:06}Z', {fields}"))
    };
    let failed = "outcome: Failed, message: 'DiskFull: no space'";
    for (bad, good) in [("a", "b"), ("b", "a")] {
        let mut stage = settled(&ended(good, 100_000, COMPLETE));
        stage.meanwhile(&ended(bad, 300_000, failed)).rest();
        let said = format!("False BackupFailed: the last backup, {bad}, failed: DiskFull: no space");
        assert_eq!(stage.condition("BackupHealthy"), said);
        stage.meanwhile(&ended("aa", 500_000, COMPLETE)).rest();
        let said = "True BackupComplete: the last backup, aa, is complete: 12Mi";
        assert_eq!(stage.condition("BackupHealthy"), said);
    }
}

#[test]
fn a_backup_that_went_with_its_volume_is_none() {
    let mut stage = settled(&backup("one", "Scheduled", "2030-01-01T02:00:00Z", COMPLETE));
    let gone = "message: its volume is gone, conditions: [{type: Degraded, status: 'True', reason: VolumeGone, message: x, lastTransitionTime: '2030-01-01T03:00:00Z'}]";
    stage.meanwhile(&backup("one", "Scheduled", "2030-01-01T02:00:00Z", gone)).rest();
    assert!(!stage.status().contains("lastBackup"), "{}", stage.status());
    assert_eq!(
        stage.condition("BackupHealthy"),
        "False BackupFailed: the last backup, one, failed: its volume is gone"
    );
}

#[test]
fn a_backup_that_is_not_tried_is_missed() {
    let mut stage = settled("");
    let healthy = |stage: &mut Stage<MySQLOperator>| stage.rest().condition("BackupHealthy");
    assert!(
        healthy(&mut stage)
            .starts_with("Unknown NoneYet: no backup was made yet; the first is due at 2030-01-02T02:00:00Z")
    );
    // Noon to ten past two.
    stage.later(14 * 3600 + 600);
    assert!(
        healthy(&mut stage)
            .starts_with("False BackupMissed: the backup that was due at 2030-01-02T02:00:00Z was not tried"),
        "{}",
        healthy(&mut stage)
    );
    assert!(stage.events.join("\n").contains("Warning BackupMissed"));
    assert_eq!(stage.effects(), "");
    stage.meanwhile(&backup("late", "Scheduled", "2030-01-02T02:15:00Z", COMPLETE));
    assert!(healthy(&mut stage).starts_with("True"));
    stage.later(24 * 3600);
    assert!(healthy(&mut stage).starts_with("False BackupMissed"));
}

#[test]
fn one_that_never_ends_does_not_hide_that_the_next_is_missed() {
    let mut stage = settled(&backup("one", "Scheduled", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(&backup("stuck", "Scheduled", "2030-01-02T02:00:00Z", "message: running"));
    // Noon to ten past two.
    stage.later(14 * 3600 + 600).rest();
    assert!(
        stage.condition("BackupHealthy").starts_with("True"),
        "it was begun in time, and may take its time"
    );
    stage.later(24 * 3600).rest();
    assert_eq!(
        stage.condition("BackupHealthy"),
        "False BackupMissed: the backup that was due at 2030-01-03T02:00:00Z was not tried: stuck is still being made: \
         `kubectl describe job stuck` says how it fares; deleted, it makes room; one is made by hand with `kubectl create \
         job --from=cronjob/mysql-backup-shop NAME`"
    );
    assert!(stage.events.join("\n").contains("Warning BackupMissed"), "{:?}", stage.events);
    assert!(stage.status().contains("lastBackup: \"2030-01-01T02:00:00Z\""));
}

#[test]
fn what_was_backed_up_before_the_volume_was_made_is_no_backup_of_what_is_on_it() {
    let mut stage = settled(&backup("final", "BeforeDeletion", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(&backup("before", "BeforeUpgrade", "2030-01-01T03:00:00Z", COMPLETE));
    let made = |at: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: mysql-pvc-shop, creationTimestamp: '{at}'}}}}"
        )
    };
    stage.meanwhile(&made("2029-01-01T00:00:00Z")).rest();
    assert!(
        stage.condition("BackupHealthy").starts_with("True BackupComplete"),
        "what was kept is the same data"
    );
    let mut stage = settled(&backup("final", "BeforeDeletion", "2030-01-01T02:00:00Z", COMPLETE));
    stage.meanwhile(&made("2030-01-01T11:59:00Z")).rest();
    assert!(
        stage.condition("BackupHealthy").starts_with("Unknown NoneYet"),
        "{}",
        stage.condition("BackupHealthy")
    );
    assert!(!stage.status().contains("lastBackup"), "{}", stage.status());
}

#[test]
fn a_new_instance_is_told_of_no_backup_of_one_before_it() {
    let fresh = || {
        let mut stage = sample(&backup("final", "BeforeDeletion", "2030-01-01T02:00:00Z", COMPLETE));
        stage.meanwhile("{kind: MySQL, metadata: {creationTimestamp: '2030-01-01T02:00:00Z'}}");
        stage
    };
    let mut stage = fresh();
    let plan = stage.plan().to_string();
    assert!(plan.contains("Normal Created") && !plan.contains("BackupComplete"), "{plan}");
    stage.round();
    assert!(!stage.status().contains("lastBackup"), "{}", stage.status());
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, creationTimestamp: \
                 '2030-01-01T02:00:00Z'}}";
    stage.meanwhile(claim).round();
    assert!(!stage.status().contains("lastBackup"), "{}", stage.status());
    // The volume of the one before is still on its way.
    let going = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, creationTimestamp: \
                 '2030-01-01T01:00:00Z', deletionTimestamp: '2030-01-01T02:00:00Z'}}";
    let mut stage = fresh();
    let plan = stage.meanwhile(going).plan().to_string();
    assert!(!plan.contains("BackupComplete"), "{plan}");
}

#[test]
fn while_paused_the_clocks_backups_are_recorded_and_kept() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {paused: true, backup: {retention: {count: 1}}}}").rest();
    stage.meanwhile(JOB).rest();
    assert!(stage.child("MySQLBackup", "manual-backup").contains("kind: MySQLBackup"));
    stage.meanwhile(&nights([COMPLETE; 6])).rest();
    assert_eq!(left(&stage).len(), 6, "nothing is removed");
    assert_eq!(stage.effects(), "");
}

#[test]
fn what_was_due_before_the_schedule_was_made_is_not_missed() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {backupSchedule: '0 11 * * *'}}").rest();
    assert!(
        stage.condition("BackupHealthy").starts_with("Unknown NoneYet"),
        "{}",
        stage.condition("BackupHealthy")
    );
}

#[test]
fn without_a_schedule_nobody_says_that_all_is_well() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {backupSchedule: null}}").rest();
    assert!(stage.condition("BackupHealthy").starts_with("Unknown NotScheduled"));
    assert!(!stage.child("CronJob", "mysql-backup-shop").contains("kind: CronJob"));
    stage.later(30 * 24 * 3600);
    assert_eq!(stage.effects(), "");
}

/// The names of the backups that are still there.
fn left(stage: &Stage<MySQLOperator>) -> Vec<&'static str> {
    let names = ["a", "b", "c", "d", "e", "f"];
    names.into_iter().filter(|name| stage.child("MySQLBackup", name).contains("kind: MySQLBackup")).collect()
}

/// Backups of six nights, as their status has it.
fn nights(each: [&str; 6]) -> String {
    let night = |(place, fields): (usize, &str)| {
        backup(
            ["a", "b", "c", "d", "e", "f"][place],
            "Scheduled",
            &format!("2029-12-{:02}T02:00:00Z", place + 1),
            fields,
        )
    };
    each.into_iter().enumerate().map(night).collect::<Vec<_>>().join("\n---\n")
}

fn keep(rule: &str, each: [&str; 6]) -> Vec<&'static str> {
    let mut stage = settled("");
    stage.meanwhile(&format!(
        "{{kind: MySQL, spec: {{backupSchedule: null, backup: {{retention: {rule}}}}}}}"
    ));
    stage.meanwhile(&nights(each)).rest();
    left(&stage)
}

const FAILED: &str = "outcome: Failed, message: x";

#[test]
fn the_newest_are_kept() {
    assert_eq!(keep("{count: 2}", [COMPLETE; 6]), ["e", "f"]);
    assert_eq!(
        keep("{count: 2}", [COMPLETE, COMPLETE, COMPLETE, FAILED, FAILED, FAILED]),
        ["b", "c", "d", "e", "f"]
    );
    assert_eq!(keep("{count: 7}", [COMPLETE; 6]), ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(keep("{count: 7, age: 28d}", [COMPLETE; 6]), ["e", "f"]);
}

#[test]
fn the_last_complete_one_is_never_deleted() {
    assert_eq!(keep("{count: 1, age: 1h}", [COMPLETE; 6]), ["f"]);
    assert_eq!(
        keep("{count: 1, age: 1h}", [COMPLETE, FAILED, FAILED, FAILED, FAILED, FAILED]),
        ["a", "d", "e", "f"]
    );
    assert_eq!(
        keep("{count: 1, age: 1h}", [COMPLETE, "message: running", FAILED, FAILED, FAILED, FAILED]),
        ["a", "b", "d", "e", "f"]
    );
}

#[test]
fn one_that_goes_already_is_not_the_last_that_there_is() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {backupSchedule: null, backup: {retention: {count: 1, age: 1h}}}}");
    stage.meanwhile(&nights([COMPLETE; 6]));
    let going = backup("x", "Requested", "2030-01-01T02:00:00Z", COMPLETE);
    stage.meanwhile(&going.replace("labels:", "deletionTimestamp: '2030-01-01T03:00:00Z', labels:")).rest();
    assert_eq!(left(&stage), ["f"]);
}

#[test]
fn the_last_one_of_the_volume_before_is_never_deleted() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {backupSchedule: null, backup: {retention: {count: 1}}}}");
    stage.meanwhile("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: mysql-pvc-shop, creationTimestamp: '2029-12-03T12:00:00Z'}}");
    stage.meanwhile(&nights([COMPLETE; 6])).rest();
    assert_eq!(left(&stage), ["c", "f"]);
}

#[test]
fn one_that_is_being_restored_from_is_never_deleted() {
    let read = format!("{COMPLETE}, restoring: [copy]");
    assert_eq!(keep("{count: 1}", [COMPLETE, &read, COMPLETE, COMPLETE, COMPLETE, COMPLETE]), ["b", "f"]);
}

#[test]
fn what_people_asked_for_is_theirs_to_delete() {
    let mut stage = settled("");
    stage.meanwhile("{kind: MySQL, spec: {backupSchedule: null, backup: {retention: {count: 1}}}}");
    stage.meanwhile(&nights([COMPLETE; 6]).replace("Scheduled", "Requested")).rest();
    assert_eq!(left(&stage).len(), 6);
}

#[test]
fn a_removal_gives_its_rule() {
    let mut stage = settled("");
    stage
        .meanwhile("{kind: MySQL, spec: {backup: {retention: {count: 5}}}}")
        .meanwhile(&nights([COMPLETE; 6]));
    let plan = stage.plan().to_string();
    assert!(
        plan.contains("remove  MySQLBackup default/a") && plan.contains("the newest 5 are kept"),
        "{plan}"
    );
}
