//! What becomes of a MySQL from its second day on, with a real MariaDB: it waits for its script, is backed up by the
//! clock, keeps as many backups as it was told, stays where a version is not to be had or does not serve, and goes in each
//! of the ways that there are.

use crate::support::mysql::{Holder, Instance, LONG, exec, look_at};
use crate::support::user::User;
use crate::support::{Cluster, Process, eventually};
use serde_json::Value;

const SHOP: &str = r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: shop}
spec:
  databaseName: shop
  databaseUser: seller
  storageSize: 1Gi
  mysqlVersion: "10.11"
  backupSchedule: "0 2 * * *"
  backup: {retention: {count: 1}}
  deletionPolicy: Retain
  initScript: {configMap: {name: begins, key: first.sql}}
"#;

const SCRIPT: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: begins}
data: {first.sql: 'CREATE TABLE kept (n INT PRIMARY KEY); INSERT INTO kept VALUES (1);'}
";

fn patch(cluster: &Cluster, spec: &str) {
    let patch = format!(r#"{{"spec":{spec}}}"#);
    cluster.kubectl_with(&["patch", "mysql", "shop", "--type=merge", "-p", &patch], "").ok();
}

/// Waits for what is wrong, and gives it in words.
#[track_caller]
fn is_degraded(shop: Instance<'_>, reason: &str) -> String {
    eventually(&format!("it is degraded: {reason}"), || {
        Some(shop.condition("Degraded")).filter(|said| said.starts_with(&format!("True {reason}: ")))
    })
}

/// The rows are there, and nobody ended the server meanwhile.
#[track_caller]
fn goes_on(shop: Instance<'_>, pod: &str) {
    assert_eq!(shop.sql("SELECT n FROM kept;").ok(), "1\n");
    assert_eq!(shop.cluster.field("pod/mysql-shop-0", ".metadata.uid"), pod, "it is the same pod");
}

/// The script is waited for, and run when it is there.
fn waits_for_its_script(shop: Instance<'_>) {
    let said = is_degraded(shop, "InitScriptFailed");
    assert!(said.contains("the script is first.sql of the ConfigMap begins"), "{said}");
    assert!(shop.condition("Ready").starts_with("False InitScriptFailed"), "{}", shop.condition("Ready"));
    shop.cluster.apply(SCRIPT).ok();
    shop.serves();
    assert_eq!(shop.sql("SELECT n FROM kept;").ok(), "1\n");
}

/// A backup by the CronJob, by hand.
fn back_up(shop: Instance<'_>, name: &str) -> String {
    let cluster = shop.cluster;
    cluster.kubectl(&format!("create job --from=cronjob/mysql-backup-shop {name}")).ok();
    is_made(cluster, name)
}

/// Waits for a backup, and gives its file.
fn is_made(cluster: &Cluster, name: &str) -> String {
    cluster.kubectl(&format!("wait --for=create mysqlbackup/{name} {LONG}")).ok();
    cluster.kubectl(&format!("wait --for=condition=Ready mysqlbackup/{name} {LONG}")).ok();
    cluster.field(&format!("mysqlbackup/{name}"), ".status.file")
}

/// A backup by the CronJob, as its clock makes one: nothing marks it as a person's.
fn as_by_the_clock(shop: Instance<'_>, name: &str) -> String {
    let cluster = shop.cluster;
    let dry = format!("create job --from=cronjob/mysql-backup-shop {name} --dry-run=client -o json");
    let mut job: Value = serde_json::from_str(&cluster.kubectl(&dry).ok()).unwrap();
    let annotations = job["metadata"]["annotations"].as_object_mut().unwrap();
    assert_eq!(annotations.remove("cronjob.kubernetes.io/instantiate"), Some("manual".into()));
    cluster.kubectl_with(&["create", "-f", "-"], &job.to_string()).ok();
    is_made(cluster, name)
}

/// One is kept of those that the clock made: of the other neither the record nor the file is there any more. What a person
/// made is theirs.
fn keeps_one_backup(shop: Instance<'_>, mine: &str, first: &str) {
    let cluster = shop.cluster;
    cluster.kubectl(&format!("wait --for=delete mysqlbackup/first {LONG}")).ok();
    let left = exec(cluster, "eyes", "ls -A");
    assert!(!left.contains(first) && left.contains(mine), "{first}, {mine}: {left}");
    assert_eq!(cluster.kubectl("get job first --ignore-not-found").ok(), "", "its Job goes with it");
    assert!(cluster.kubectl("get mysqlbackup mine").ok().contains("Complete"));
}

/// Nobody asked for it: the time did.
fn is_backed_up_by_the_clock(shop: Instance<'_>, before: &str) {
    let cluster = shop.cluster;
    let scheduled = "get jobs -o jsonpath={.items[*].metadata.annotations.batch\\.kubernetes\\.io/cronjob-scheduled-timestamp}";
    cluster
        .kubectl(&format!(
            "wait --for=jsonpath={{.status.lastScheduleTime}} cronjob/mysql-backup-shop {LONG}"
        ))
        .ok();
    assert!(!cluster.kubectl(scheduled).ok().is_empty());
    eventually("it is complete", || (*shop.field(".status.lastBackup") > *before).then_some(()));
}

/// Of a version that there is not it is said what to do, and nothing else is done.
fn stays_where_a_version_is_not_to_be_had(shop: Instance<'_>) {
    let cluster = shop.cluster;
    let pod = cluster.field("pod/mysql-shop-0", ".metadata.uid");
    patch(cluster, r#"{"mysqlVersion":"11.99"}"#);
    let said = is_degraded(shop, "VersionNotAvailable");
    assert!(
        said.contains("so the server is left as it is") && said.contains("Set mysqlVersion to"),
        "{said}"
    );
    assert!(shop.condition("Ready").starts_with("True "), "{}", shop.condition("Ready"));
    goes_on(shop, &pod);
    cluster.says("get events --field-selector involvedObject.name=shop", "VersionNotAvailable");
    patch(cluster, r#"{"mysqlVersion":"10.11"}"#);
    eventually("nothing is wrong any more", || {
        shop.condition("Degraded").starts_with("False ").then_some(())
    });
    goes_on(shop, &pod);
    cluster.kubectl(&format!("wait --for=delete job/mysql-version-shop {LONG}")).ok();
}

/// What is retained is taken up by the next of its name.
fn goes_and_comes_back(shop: Instance<'_>) {
    let cluster = shop.cluster;
    cluster.kubectl(&format!("delete mysql shop {LONG}")).ok();
    cluster.kubectl(&format!("wait --for=delete pod/mysql-shop-0 {LONG}")).ok();
    let left = cluster.kubectl("get pvc,secrets,mysqlbackups -o name").ok();
    for kept in
        ["/mysql-pvc-shop", "/backup-pvc-shop", "/mysql-secret-shop", "mysqlbackup.operators.example.com/"]
    {
        assert!(left.contains(kept), "{kept} is not in {left}");
    }
    assert!(!left.contains("final-shop-"), "{left}");
    // With its script, which was run on this volume once and is not run again: it would fail.
    cluster.apply(&SHOP.replace("Retain", "Snapshot")).ok();
    shop.serves();
    assert_eq!(shop.sql("SELECT n FROM kept;").ok(), "1\n");
}

/// The new server does not serve, and the old one must not open what it left: the way back is in the message, and it is
/// one.
fn finds_the_way_back(shop: Instance<'_>) {
    let cluster = shop.cluster;
    // What the new one makes in this place, and the old one does not.
    cluster.kubectl("exec mysql-shop-0 -- mkdir /var/lib/mysql/data/undo001").ok();
    patch(cluster, r#"{"mysqlVersion":"11.8"}"#);
    cluster.kubectl(&format!("wait --for=jsonpath={{.status.image}}=mariadb:11.8 mysql/shop {LONG}")).ok();
    let said = is_degraded(shop, "UpgradeFailed");
    assert!(
        said.contains("The way back: set mysqlVersion to 10.11; where the new version already"),
        "{said}"
    );
    let backups = cluster.kubectl("get mysqlbackups -o name").ok();
    let before_upgrade = |line: &str| {
        line.rsplit_once('/')
            .filter(|(_, name)| name.starts_with("upgrade-shop-"))
            .map(|(_, name)| name.to_owned())
    };
    let backup = backups.lines().find_map(before_upgrade).unwrap();
    let way = format!("restoreFrom.backup {backup}");
    assert!(said.ends_with(&way), "{said}");
    patch(cluster, r#"{"mysqlVersion":"10.11"}"#);
    let said = eventually("the old one does not open it", || {
        Some(shop.condition("Degraded"))
            .filter(|said| said.starts_with("True CrashLoop: ") && said.contains("which MariaDB 10.11."))
    });
    assert!(said.contains("must not open"), "{said}");
    assert!(said.ends_with(&way), "{said}");
    let copy = format!(
        "apiVersion: operators.example.com/v1alpha1\nkind: MySQL\nmetadata: {{name: copy}}\nspec: {{databaseName: shop, \
         databaseUser: seller, storageSize: 1Gi, mysqlVersion: '10.11', finalBackupDeadlineSeconds: 60, restoreFrom: {{backup: {backup}}}}}"
    );
    cluster.apply(&copy).ok();
    let copy = Instance::shop(cluster, "copy");
    copy.serves();
    assert_eq!(copy.sql("SELECT n FROM kept;").ok(), "1\n");

    wants_none(shop);
    cluster.kubectl(&format!("delete mysql shop {LONG}")).ok();
    let left = cluster.kubectl("get pvc,secrets,mysqlbackups -o name").ok();
    assert!(!left.contains("final-shop-") && left.contains("/backup-pvc-shop"), "{left}");
    cluster.kubectl(&format!("wait --for=delete pvc/mysql-pvc-shop {LONG}")).ok();
}

/// Who wants no last backup says so.
fn wants_none(instance: Instance<'_>) {
    let annotation = "mysql.operators.example.com/skip-final-backup=true";
    instance.cluster.kubectl(&format!("annotate mysql {} {annotation}", instance.name)).ok();
}

/// A last backup that can't be made is given up at its deadline, and the server and all that it holds stay.
fn gives_its_last_backup_up(copy: Instance<'_>) {
    let cluster = copy.cluster;
    // Who holds a table holds the dump up.
    let holder = Holder::of(copy, "kept");
    cluster.kubectl("delete mysql copy --wait=false").ok();
    let degraded = "--for=jsonpath={.status.conditions[?(@.type==\"Degraded\")].reason}=FinalBackupFailed";
    cluster.kubectl_with(&["wait", degraded, "mysql/copy", LONG], "").ok();
    let said = copy.condition("Degraded");
    assert!(said.contains("failed: it was not done within the 60 s of its deadline. Delete"), "{said}");
    assert!(said.contains("skip-final-backup=true"), "{said}");
    assert_eq!(copy.sql("SELECT 1;").ok(), "1\n", "it serves");
    cluster.kubectl("get pvc/mysql-pvc-copy secret/mysql-secret-copy").ok();
    wants_none(copy);
    cluster.kubectl(&format!("wait --for=delete mysql/copy pvc/mysql-pvc-copy {LONG}")).ok();
    drop(holder);
}

#[test]
fn its_later_days_are_as_the_book_has_them() {
    let user = User::is_me();
    user.pull_this();
    user.pull(&["mariadb:10.11", "mariadb:11.8", "busybox"]);
    let mut cluster = user.up(&["--memory"]);
    cluster.apply(SHOP).ok();
    let shop = Instance::shop(&cluster, "shop");
    waits_for_its_script(shop);
    let passwords = [shop.password("password"), shop.password("root-password")];
    let (mine, first) = (back_up(shop, "mine"), as_by_the_clock(shop, "first"));
    look_at(&cluster, "eyes", "backup-pvc-shop");
    let files = exec(&cluster, "eyes", "ls");
    assert!(files.contains(&mine) && files.contains(&first), "{mine}, {first}: {files}");
    let last = shop.field(".status.lastBackup");
    patch(&cluster, r#"{"backupSchedule":"* * * * *"}"#);
    stays_where_a_version_is_not_to_be_had(shop);
    is_backed_up_by_the_clock(shop, &last);
    keeps_one_backup(shop, &mine, &first);
    goes_and_comes_back(shop);
    finds_the_way_back(shop);
    gives_its_last_backup_up(Instance::shop(&cluster, "copy"));
    cluster.up.signal("TERM");
    let (code, _) = cluster.up.end();
    let log = cluster.up.complaints();
    assert_eq!(code, 0, "{log}");
    assert!(
        log.contains("mysql") && passwords.iter().all(|password| !log.contains(password)),
        "a password is in it"
    );
}

/// No Job can start there, and no event be written: who looks reads it in the status.
#[test]
fn in_a_namespace_that_goes_it_says_that_no_last_backup_is_made_and_lets_go() {
    let cluster = Cluster::start();
    cluster.kubectl("create namespace doomed").ok();
    let (shop, _) = SHOP.split_once("  deletionPolicy").unwrap();
    cluster.kubectl_with(&["apply", "-n", "doomed", "-f", "-"], shop).ok();
    cluster.kubectl(&format!("wait --for=create pvc/mysql-pvc-shop -n doomed {LONG}")).ok();
    // As if it had served: there is no node here.
    let served = r#"{"status":{"flavour":"MariaDB","version":"10.11.14"}}"#;
    let patch =
        ["patch", "mysql", "shop", "-n", "doomed", "--subresource=status", "--type=merge", "-p", served];
    cluster.kubectl_with(&patch, "").ok();
    let mut watch = cluster.command();
    let reasons = r#"jsonpath={.status.conditions[?(@.type=="Degraded")].reason}{"\n"}"#;
    watch.args(["get", "mysql", "-n", "doomed", "-w", "-o", reasons]);
    let watch = Process::start(watch);
    assert_ne!(watch.line(), "NoFinalBackup", "it is there, and not yet to go");
    cluster.kubectl("delete namespace doomed --timeout=60s").ok();
    while watch.line() != "NoFinalBackup" {}
}
