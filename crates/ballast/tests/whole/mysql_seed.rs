//! The fourth seed's demo, command by command, with the real kubectl, a real MySQL and a real MariaDB.

use std::fs;
use std::process::Command;

use crate::support::forward::Forward;
use crate::support::mysql::{Instance, LONG};
use crate::support::user::User;
use crate::support::{Said, eventually, root, said, table};

/// The seed's own, which asks for 8.0.
const SAMPLE: &str = "examples/seeds/mysql.yaml";

/// What a server answers to the client of this machine.
fn ask(forward: &Forward, password: &str, statement: &str) -> Said {
    let words = [
        "-h",
        "127.0.0.1",
        "-P",
        &forward.port().to_string(),
        "-u",
        "myuser",
        "-N",
        "-e",
        statement,
        "myapp",
    ];
    said(Command::new("mysql").env("MYSQL_PWD", password).args(words), "")
}

#[test]
fn the_demo_of_the_seed_goes_from_its_first_command_to_its_last() {
    // Debian has no 8.0: what runs is said in the status.
    User::all().into_iter().for_each(|user| demo(user, "mysql", "8.0"));
}

#[test]
fn so_it_does_with_a_mariadb() {
    demo(User::is_me(), "mariadb", "10.11");
}

fn demo(user: User, flavour: &str, version: &str) {
    user.pull_this();
    user.pull(&[&format!("{flavour}:{version}")]);
    let mut cluster = user.up(&["--memory"]);
    let manifest = fs::read_to_string(root().join(SAMPLE)).unwrap();
    assert_eq!(manifest.matches("\"8.0\"").count(), 1, "{manifest}");
    let manifest = manifest.replace("\"8.0\"", &format!("{version:?}"));
    let sample = cluster.directory.path().join("mysql.yaml");
    fs::write(&sample, manifest).unwrap();
    let sample = sample.to_str().unwrap();
    let instance = Instance {
        cluster: &cluster,
        name: "my-mysql-instance",
        client: flavour,
        user: "myuser",
        database: "myapp",
    };
    assert!(cluster.kubectl("get crd").ok().contains("mysqls.operators.example.com "));

    let applied = cluster.kubectl(&format!("apply -f {sample}")).ok();
    assert_eq!(applied, "mysql.operators.example.com/my-mysql-instance created\n");
    instance.serves();
    assert_eq!(instance.field(".status.phase"), "Ready");
    assert_eq!(instance.field(".status.message"), "MySQL instance is running");
    assert_eq!(instance.field(".status.lastBackup"), "", "none was made");
    assert_eq!(instance.field(".metadata.finalizers[*]"), "mysql.operators.example.com/finalizer");
    let version = instance.field(".status.version");
    let shown = table(&cluster.kubectl("get mysqls").ok());
    assert_eq!(shown[0].join(" "), "NAME READY VERSION STORAGE LAST BACKUP AGE");
    assert_eq!(shown[1][..4], ["my-mysql-instance", "True", &*version, "10Gi"]);
    assert_eq!(cluster.kubectl("get deployments").ok(), "", "a server with a volume is a StatefulSet");
    for (kind, name) in [
        ("statefulsets", "mysql-my-mysql-instance"),
        ("services", "mysql-my-mysql-instance"),
        ("secrets", "mysql-secret-my-mysql-instance"),
        ("cronjobs", "mysql-backup-my-mysql-instance"),
        ("pvc", "mysql-pvc-my-mysql-instance"),
        ("pvc", "backup-pvc-my-mysql-instance"),
    ] {
        let words = format!("get {kind} -l app=mysql,mysql-instance=my-mysql-instance");
        let shown = cluster.kubectl(&words).ok();
        assert!(table(&shown).iter().any(|row| row[0] == name), "{name} is not in {shown}");
    }

    assert!(cluster.kubectl("get svc mysql-my-mysql-instance").ok().contains(" 3306/TCP "));
    let forward = Forward::to(&cluster, "svc/mysql-my-mysql-instance", "3306");
    let runs = ask(&forward, &instance.password("password"), "SELECT VERSION()").ok();
    assert!(runs.starts_with(&version), "{runs}");
    let denied = ask(&forward, "wrong", "SELECT 1").refused();
    assert!(denied.contains("Access denied for user 'myuser'"), "{denied}");
    instance.sql("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('kept');").ok();
    let wrong = instance.sql_with("wrong", "SELECT 1;").refused();
    assert!(wrong.contains("Access denied for user 'myuser'"), "{wrong}");

    let create = "create job --from=cronjob/mysql-backup-my-mysql-instance manual-backup";
    assert_eq!(cluster.kubectl(create).ok(), "job.batch/manual-backup created\n");
    cluster.kubectl(&format!("wait --for=condition=Complete job/manual-backup {LONG}")).ok();
    assert!(cluster.kubectl("get jobs").ok().contains("manual-backup"));
    let log = cluster.kubectl("logs job/manual-backup").ok();
    assert!(log.contains(r#""name":"notes","rows":1"#), "{log}");
    eventually("the backup is known to be complete", || {
        Some(instance.field(".status.lastBackup")).filter(|time| !time.is_empty())
    });
    let file = cluster.field("mysqlbackup/manual-backup", ".status.file");
    assert!(file.starts_with("backup-") && file.ends_with(".sql.zst"), "{file}");
    assert!(
        instance.condition("BackupHealthy").starts_with("True "),
        "{}",
        instance.condition("BackupHealthy")
    );

    let pod = cluster.field("pod/mysql-my-mysql-instance-0", ".metadata.uid");
    let change = r#"[{"op": "replace", "path": "/spec/mysqlVersion", "value":"5.7"}]"#;
    cluster.kubectl_with(&["patch", "mysql", "my-mysql-instance", "--type=json", "-p", change], "").ok();
    eventually("the change is refused in words", || {
        instance.condition("Degraded").starts_with("True UpgradeRefused: ").then_some(())
    });
    assert!(instance.condition("Ready").starts_with("True "), "{}", instance.condition("Ready"));
    assert_eq!(instance.sql("SELECT text FROM notes;").ok(), "kept\n");
    assert_eq!(cluster.field("pod/mysql-my-mysql-instance-0", ".metadata.uid"), pod, "it is the same pod");

    let watched = cluster.kubectl("get pods -w --request-timeout=1s").stdout;
    assert!(watched.contains("mysql-my-mysql-instance-0 "), "{watched}");

    cluster.kubectl(&format!("delete -f {sample} {LONG}")).ok();
    assert!(cluster.kubectl("get mysqlbackups").ok().contains("final-my-mysql-instance-"));
    drop(forward);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
