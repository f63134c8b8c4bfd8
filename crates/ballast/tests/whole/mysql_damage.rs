//! Backups that go wrong, with real servers, through the operator: none is called complete, each says why, and what was
//! damaged afterwards is not restored from.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::support::machine::{family, kill};
use crate::support::mysql::{Holder, Instance, LONG, back_up, exec, is_complete, look_at};
use crate::support::user::User;
use crate::support::writer::{TABLE, holds};
use crate::support::{Cluster, Process, eventually, said};

fn instance(name: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {{name: {name}}}
spec: {{databaseName: shop, databaseUser: seller, storageSize: 1Gi, mysqlVersion: "11.8"{more}}}
"#
    )
}

/// Operators, and where their metrics are.
struct Operators {
    process: Process,
    metrics: SocketAddr,
}

impl Operators {
    fn of(cluster: &Cluster) -> Self {
        let definitions = said(crate::support::ballast().arg("crds"), "").ok();
        cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], &definitions).ok();
        let mut command = cluster.ballast();
        command.args(["run", "--health-probe-bind-address=0", "--metrics-bind-address=127.0.0.1:0"]);
        let process = Process::start(command);
        Operators { metrics: process.serves("metrics"), process }
    }

    /// How often an operator said a warning of this reason.
    fn warned(&self, reason: &str) -> u32 {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let series =
            format!(r#"ballast_events_total{{controller="mysql",reason="{reason}",type="Warning"}} "#);
        text.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |number| number.parse().unwrap())
    }
}

/// An instance with a complete backup `NAME-first`, then one that fails, and one that does not.
struct Trial<'a> {
    instance: Instance<'a>,
    /// When the complete one was made.
    last: String,
}

impl<'a> Trial<'a> {
    fn begin(cluster: &'a Cluster, name: &'a str) -> Self {
        let instance = Instance::shop(cluster, name);
        instance.serves();
        instance.sql(&format!("{TABLE} INSERT INTO numbered VALUES (1), (2), (3);")).ok();
        let first = format!("{name}-first");
        back_up(cluster, name, &first);
        is_complete(cluster, &first);
        let last = eventually("it is known", || {
            Some(instance.field(".status.lastBackup")).filter(|time| !time.is_empty())
        });
        assert_eq!(last, cluster.field(&format!("mysqlbackup/{first}"), ".status.completedAt"));
        Trial { instance, last }
    }

    fn bad(&self) -> String {
        format!("{}-bad", self.instance.name)
    }

    fn begin_bad(&self) {
        back_up(self.instance.cluster, self.instance.name, &self.bad());
    }

    /// The backup is not complete: everybody says so, and why.
    #[track_caller]
    fn fails(&self, why: &str) {
        let (Instance { cluster, name, .. }, bad) = (self.instance, self.bad());
        let object = format!("mysqlbackup/{bad}");
        let failed = format!("wait --for=jsonpath={{.status.outcome}}=Failed {object} {LONG}");
        cluster.kubectl(&failed).ok();
        let message = cluster.field(&object, ".status.message");
        assert!(message.contains(why), "{why:?} is not in {message:?}");
        for path in [".status.file", ".status.sha256", ".status.completedAt"] {
            assert_eq!(cluster.field(&object, path), "", "{path}");
        }
        let healthy = format!("False BackupFailed: the last backup, {bad}, failed: ");
        let condition = eventually("the condition turns", || {
            Some(self.instance.condition("BackupHealthy")).filter(|found| found.starts_with(&healthy))
        });
        assert!(condition.contains(why), "{condition}");
        assert_eq!(self.instance.field(".status.lastBackup"), self.last, "it has not moved");
        assert!(self.instance.condition("Ready").starts_with("True "), "the server goes on");
        let about = format!("get events --field-selector involvedObject.name={name},reason=BackupFailed");
        cluster.says(&about, &format!("the last backup, {bad}, failed: "));
    }

    /// The next one is complete, and that is all there is to say.
    fn heals(&self) {
        let (Instance { cluster, name, .. }, next) = (self.instance, format!("{}-next", self.instance.name));
        back_up(cluster, name, &next);
        is_complete(cluster, &next);
        let healthy = format!("True BackupComplete: the last backup, {next}, is complete");
        eventually("the condition turns back", || {
            self.instance.condition("BackupHealthy").starts_with(&healthy).then_some(())
        });
        let completed = cluster.field(&format!("mysqlbackup/{next}"), ".status.completedAt");
        assert_eq!(self.instance.field(".status.lastBackup"), completed);
        assert_eq!(cluster.field(&format!("mysqlbackup/{}", self.bad()), ".status.outcome"), "Failed");
    }
}

/// The tool itself gives up in the middle: a view of a table that is gone.
fn ends_in_an_error(trial: &Trial<'_>) {
    let view = "CREATE TABLE gone (n INT); CREATE VIEW seen AS SELECT * FROM gone; DROP TABLE gone;";
    trial.instance.sql(view).ok();
    trial.begin_bad();
    trial.fails("ToolFailed: there is no backup: mariadb-dump ended with code 2");
    trial.instance.sql("DROP VIEW seen;").ok();
    trial.heals();
}

/// More than the volume of the backups holds, and of a kind that can't be compressed.
fn has_no_room(trial: &Trial<'_>) {
    let much = "CREATE TABLE much (t BLOB); INSERT INTO much SELECT RANDOM_BYTES(1024) FROM seq_1_to_6000;";
    trial.instance.sql(much).ok();
    trial.begin_bad();
    trial.fails("VolumeFull: there is no backup: can't write");
    let Instance { cluster, .. } = trial.instance;
    let patch = r#"{"spec":{"backup":{"storageSize":"32Mi"}}}"#;
    cluster.kubectl_with(&["patch", "mysql", "full", "--type=merge", "-p", patch], "").ok();
    cluster.becomes("pvc/backup-pvc-full", ".status.capacity.storage", "32Mi");
    trial.heals();
}

/// Killed in the middle, as often as it is tried.
fn is_killed(trial: &Trial<'_>) {
    let Instance { cluster, .. } = trial.instance;
    let holder = Holder::of(trial.instance, "numbered");
    trial.begin_bad();
    let agent = "/ballast/ballast agent dump mariadb --host=mysql-killed ";
    for tried in 1..=3 {
        cluster.kubectl(&format!("wait --for=jsonpath={{.status.ready}}=1 job/killed-bad {LONG}")).ok();
        let pid = eventually("half of it is there", || {
            let all = family(cluster.up.id());
            let dump = all.iter().find(|(_, words)| words.starts_with(agent)).map(|(pid, _)| *pid)?;
            // The tool waits for the table that is held.
            let tool = family(dump).iter().any(|(_, words)| words.starts_with("mariadb-dump "));
            tool.then_some(dump)
        });
        kill(pid);
        cluster
            .kubectl(&format!("wait --for=jsonpath={{.status.failed}}={tried} job/killed-bad {LONG}"))
            .ok();
        assert_eq!(trial.instance.field(".status.lastBackup"), trial.last);
    }
    trial.fails("exit code 137");
    drop(holder);
    trial.heals();
}

/// Ways to damage a file that is whole in another directory too, and what is said of it then.
const DAMAGES: [(&str, &str); 5] = [
    ("head -c 100 kept/$F > $F", "is damaged: it has 100 bytes instead of "),
    (
        "cp kept/$F $F; at=$(($(wc -c < $F) / 2)); byte=$(dd if=$F bs=1 skip=$at count=1 2>&- | od -An -tu1); \
         printf \"\\\\$(printf %o $((byte ^ 4)))\" | dd of=$F bs=1 seek=$at conv=notrunc; ! cmp $F kept/$F",
        "is damaged: ",
    ),
    (": > $F", "is damaged: it has 0 bytes instead of "),
    ("cp kept/$F $F; sed -i s/numbered/numbings/ $F.json", ".json\" can't be believed: "),
    ("rm $F; cp kept/$F.json $F.json", "No such file or directory"),
];

/// A file is damaged after it was complete, in one way after the other: it is refused until it is whole again.
fn is_damaged_later(cluster: &Cluster) {
    let (copy, filed, file) = (
        Instance::shop(cluster, "copy"),
        Instance::shop(cluster, "filed"),
        cluster.field("mysqlbackup/shop-first", ".status.file"),
    );
    Instance::shop(cluster, "early").serves();
    holds(Instance::shop(cluster, "early"), &[1, 2, 3]);
    look_at(cluster, "hands", "backup-pvc-shop");
    exec(cluster, "hands", &format!("mkdir kept; cp {file} {file}.json kept"));
    for (nth, (damage, expected)) in DAMAGES.into_iter().enumerate() {
        exec(cluster, "hands", &format!("F={file}; {damage}"));
        if nth == 0 {
            cluster.apply(&instance("copy", ", restoreFrom: {backup: shop-first}")).ok();
        } else {
            cluster.kubectl("delete job mysql-restore-copy").ok();
        }
        cluster.kubectl(&format!("wait --for=create job/mysql-restore-copy {LONG}")).ok();
        cluster.kubectl(&format!("wait --for=condition=Failed job/mysql-restore-copy {LONG}")).ok();
        let condition = eventually(&format!("it is refused after {damage}"), || {
            Some(copy.condition("Degraded"))
                .filter(|said| said.starts_with("True RestoreFailed: ") && said.contains(expected))
        });
        let remedy = "Delete the Job mysql-restore-copy to have it tried again";
        assert!(condition.contains("and nothing of it is kept") && condition.contains(remedy), "{condition}");
        assert_eq!(cluster.field("job/mysql-restore-copy", ".status.failed"), "1", "it was tried once");
        assert_eq!(copy.field(".status.phase"), "Failed");
    }
    look_at(cluster, "eyes", "mysql-pvc-copy");
    assert_eq!(exec(cluster, "eyes", "ls -A"), "", "no data was touched");
    assert_eq!(cluster.kubectl("get statefulset mysql-copy --ignore-not-found").ok(), "");
    exec(cluster, "hands", "cp kept/* .");
    cluster.kubectl("delete job mysql-restore-copy").ok();
    copy.serves();
    holds(copy, &[1, 2, 3]);

    // Of a file on a volume nobody knows more than what is beside it.
    cluster.apply(&from_file("nowhere", "none", &file)).ok();
    cluster.apply(&from_file("filed", "backup-pvc-shop", &format!("kept/{file}"))).ok();
    filed.serves();
    holds(filed, &[1, 2, 3]);
    let missing = "True VolumeNotFound: there is no PersistentVolumeClaim none in this namespace";
    eventually("the volume is missed", || {
        Instance::shop(cluster, "nowhere").condition("Degraded").starts_with(missing).then_some(())
    });
}

fn from_file(name: &str, claim: &str, file: &str) -> String {
    instance(name, &format!(", restoreFrom: {{volume: {{claimName: {claim}, file: {file}}}}}"))
}

/// Of a backup that nobody made there is nothing to restore, until somebody makes it.
fn is_missed(cluster: &Cluster) {
    cluster.apply(&instance("early", ", restoreFrom: {backup: shop-first}")).ok();
    let missing = "True BackupNotFound: there is no MySQLBackup shop-first in this namespace to restore from";
    let early = Instance::shop(cluster, "early");
    eventually("it is missed", || early.condition("Degraded").starts_with(missing).then_some(()));
}

/// A backup that was due, and that nobody tried to make.
fn is_not_tried(cluster: &Cluster, operators: &Operators) {
    let late = Instance::shop(cluster, "late");
    cluster.apply(&instance("late", ", backupSchedule: 0 0 1 1 *, restoreFrom: {backup: none}")).ok();
    eventually("none is due yet", || {
        late.condition("BackupHealthy").starts_with("Unknown NoneYet").then_some(())
    });
    assert_eq!(operators.warned("BackupMissed"), 0);
    // As if it had been there for years.
    let since = r#"{"status":{"schedule":{"since":"2020-01-01T00:00:01Z"}}}"#;
    cluster
        .kubectl_with(&["patch", "mysql", "late", "--subresource=status", "--type=merge", "-p", since], "")
        .ok();
    eventually("it is missed", || {
        late.condition("BackupHealthy").starts_with("False BackupMissed: ").then_some(())
    });
    cluster.says("get events --field-selector involvedObject.name=late,reason=BackupMissed", "was not tried");
    assert_eq!(operators.warned("BackupMissed"), 1);
    cluster.kubectl(&format!("delete mysql late {LONG}")).ok();
}

#[test]
fn what_is_no_whole_backup_is_never_called_one_and_never_restored_from() {
    let user = User::is_me();
    user.pull_this();
    user.pull(&["mariadb:11.8", "busybox"]);
    let mut cluster = user.up(&["--memory", "--no-operators"]);
    let mut operators = Operators::of(&cluster);
    let small = ", backup: {storageClassName: hard-size, storageSize: 1Mi}";
    for yaml in [instance("shop", ""), instance("full", small), instance("killed", "")] {
        cluster.apply(&yaml).ok();
    }
    is_missed(&cluster);
    assert_eq!(operators.warned("BackupFailed"), 0);
    is_not_tried(&cluster, &operators);
    std::thread::scope(|scope| {
        let shop = Trial::begin(&cluster, "shop");
        scope.spawn(move || ends_in_an_error(&shop));
        scope.spawn(|| has_no_room(&Trial::begin(&cluster, "full")));
        scope.spawn(|| is_killed(&Trial::begin(&cluster, "killed")));
        scope.spawn(|| is_damaged_later(&cluster));
    });
    assert_eq!(operators.warned("BackupFailed"), 3);
    operators.process.signal("TERM");
    assert_eq!(operators.process.end().0, 0, "{}", operators.process.complaints());
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
