//! A MySQL, by kubectl.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};

use serde_json::json;

use super::{Cluster, Said};

/// Longer than a server takes to be prepared, filled and started on a machine that does much else.
pub const LONG: &str = "--timeout=180s";

/// A backup of an instance, as a person asks for it.
pub fn backup(instance: &str, name: &str) -> String {
    let (version, spec) = ("operators.example.com/v1alpha1", json!({"instance": instance}));
    json!({"apiVersion": version, "kind": "MySQLBackup", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

/// Asks for one.
#[track_caller]
pub fn back_up(cluster: &Cluster, instance: &str, name: &str) {
    cluster.apply(&backup(instance, name)).ok();
}

/// Waits until a backup is complete, and looks whether it says so for a reason.
#[track_caller]
pub fn is_complete(cluster: &Cluster, backup: &str) {
    let object = format!("mysqlbackup/{backup}");
    cluster.kubectl(&format!("wait --for=condition=Ready {object} {LONG}")).ok();
    for path in [
        ".status.sha256",
        ".status.tables[?(@.name==\"numbered\")].digest",
        ".status.completedAt",
        ".status.version",
    ] {
        assert_ne!(cluster.field(&object, path), "", "{path} of {object}");
    }
    for path in [".status.bytes", ".status.contentBytes", ".status.seconds"] {
        let number: f64 = cluster.field(&object, path).parse().unwrap();
        assert!(number > 0.0, "{path} of {object}");
    }
    let instance = cluster.field(&object, ".spec.instance");
    assert_eq!(cluster.field(&object, ".status.claim"), format!("backup-pvc-{instance}"));
    let flavour = cluster.field(&format!("mysql/{instance}"), ".status.flavour");
    assert!(["", &*cluster.field(&object, ".status.flavour")].contains(&&*flavour), "{flavour}");
    assert_eq!(cluster.field(&object, ".status.outcome"), "Complete");
}

/// A pod that sees a volume.
#[track_caller]
pub fn look_at(cluster: &Cluster, pod: &str, claim: &str) {
    let yaml = format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {pod}}}
spec:
  securityContext: {{runAsUser: 999, runAsGroup: 999}}
  containers:
  - {{name: main, image: busybox, command: [sleep, "86400"], workingDir: /seen, volumeMounts: [{{name: seen, mountPath: /seen}}]}}
  volumes: [{{name: seen, persistentVolumeClaim: {{claimName: {claim}}}}}]
"#
    );
    cluster.apply(&yaml).ok();
    cluster.kubectl(&format!("wait --for=condition=Ready pod/{pod} {LONG}")).ok();
}

/// Does something in it.
#[track_caller]
pub fn exec(cluster: &Cluster, pod: &str, text: &str) -> String {
    cluster.kubectl_with(&["exec", pod, "--", "sh", "-ec", text], "").ok()
}

/// An instance in a cluster, and the user that its database belongs to.
#[derive(Clone, Copy)]
pub struct Instance<'a> {
    pub cluster: &'a Cluster,
    pub name: &'a str,
    pub client: &'a str,
    pub user: &'a str,
    pub database: &'a str,
}

impl<'a> Instance<'a> {
    /// A MariaDB with the database `shop` of the user `seller`.
    pub fn shop(cluster: &'a Cluster, name: &'a str) -> Self {
        Instance { cluster, name, client: "mariadb", user: "seller", database: "shop" }
    }

    /// Waits until it says that it serves.
    #[track_caller]
    pub fn serves(&self) {
        self.cluster.kubectl(&format!("wait --for=condition=Ready mysql/{} {LONG}", self.name)).ok();
    }

    /// What its Secret holds.
    pub fn password(&self, key: &str) -> String {
        let template = format!("go-template={{{{index .data \"{key}\" | base64decode}}}}");
        let secret = format!("secret/mysql-secret-{}", self.name);
        self.cluster.kubectl_with(&["get", &secret, "-o", &template], "").ok()
    }

    /// A statement as its user, with the password of the Secret, through its Service.
    pub fn sql(&self, statement: &str) -> Said {
        self.sql_with(&self.password("password"), statement)
    }

    /// The same by who has looked up the password before.
    pub fn sql_with(&self, password: &str, statement: &str) -> Said {
        let line = format!(
            "IFS= read -r MYSQL_PWD; export MYSQL_PWD; \
             exec {} --default-character-set=utf8mb4 -N --connect-timeout=3 -h mysql-{} --user=\"$0\" --database=\"$1\"",
            self.client, self.name
        );
        let pod = format!("mysql-{}-0", self.name);
        let input = format!("{password}\n{statement}");
        self.cluster
            .kubectl_with(&["exec", "-i", &pod, "--", "sh", "-c", &line, self.user, self.database], &input)
    }

    /// A field of it.
    pub fn field(&self, path: &str) -> String {
        self.cluster.field(&format!("mysql/{}", self.name), path)
    }

    /// A condition in words.
    pub fn condition(&self, kind: &str) -> String {
        let of = |field| self.field(&format!(".status.conditions[?(@.type==\"{kind}\")].{field}"));
        format!("{} {}: {}", of("status"), of("reason"), of("message"))
    }
}

/// Somebody who holds a table, so that a dump comes no further than to it.
pub struct Holder(Child);

impl Holder {
    pub fn of(instance: Instance<'_>, table: &str) -> Self {
        let line = format!(
            "IFS= read -r MYSQL_PWD; export MYSQL_PWD; exec mariadb -N --unbuffered -h mysql-{} --user=seller shop",
            instance.name
        );
        let mut command = instance.cluster.command();
        command.args(["exec", "-i", &format!("mysql-{}-0", instance.name), "--", "sh", "-c", &line]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let words = format!("{}\nLOCK TABLES {table} WRITE; SELECT 1;\n", instance.password("password"));
        child.stdin.as_mut().unwrap().write_all(words.as_bytes()).unwrap();
        let mut answer = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"1\n");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
