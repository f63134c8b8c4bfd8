//! A volume that is full, with a real MariaDB: it is said with its remedy, what was acknowledged stays, and a larger
//! volume heals it.

use crate::support::Cluster;
use crate::support::mysql::{Instance, LONG, back_up, is_complete};
use crate::support::user::User;
use crate::support::writer::holds;

fn instance(name: &str, size: &str, class: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {{name: {name}}}
spec:
  databaseName: shop
  databaseUser: seller
  storageSize: {size}
  storageClassName: {class}
  mysqlVersion: "11.8"
  backup: {{storageSize: 64Mi, storageClassName: standard}}
{more}
"#
    )
}

fn grow(cluster: &Cluster, name: &str, size: &str) {
    let patch = format!(r#"{{"spec":{{"storageSize":"{size}"}}}}"#);
    cluster.kubectl_with(&["patch", "mysql", name, "--type=merge", "-p", &patch], "").ok();
    cluster.becomes(&format!("pvc/mysql-pvc-{name}"), ".status.capacity.storage", size);
}

/// Writes rows of four megabytes until there is no room for another.
fn fill(shop: Instance<'_>) -> Vec<u32> {
    shop.sql("CREATE TABLE numbered (n INT PRIMARY KEY, t LONGBLOB);").ok();
    let password = shop.password("password");
    let mut acknowledged = Vec::new();
    for number in 1..100 {
        let statement = format!("INSERT INTO numbered VALUES ({number}, REPEAT('x', 4 << 20));");
        if !shop.sql_with(&password, &statement).status.success() {
            return acknowledged;
        }
        acknowledged.push(number);
    }
    panic!("there is always room");
}

/// Waits until something is wrong, and gives what is said of it.
#[track_caller]
fn is_degraded(instance: Instance<'_>, reason: &str) -> String {
    let Instance { cluster, name, .. } = instance;
    cluster.kubectl(&format!("wait --for=condition=Degraded mysql/{name} {LONG}")).ok();
    let said = instance.condition("Degraded");
    assert!(said.starts_with(&format!("True {reason}: ")), "{said}");
    said
}

/// MariaDB itself gives up where it can't even roll back. Whatever it does, it is said what is needed.
fn is_full(cluster: &Cluster) {
    let shop = Instance::shop(cluster, "shop");
    shop.serves();
    let acknowledged = fill(shop);
    assert!(acknowledged.len() > 5, "there was room for some: {acknowledged:?}");
    let low = is_degraded(shop, "StorageLow");
    assert!(low.to_lowercase().ends_with("raise storagesize, which is 256mi"), "{low}");
    grow(cluster, "shop", "512Mi");
    cluster.kubectl(&format!("wait --for=condition=Degraded=False mysql/shop {LONG}")).ok();
    shop.serves();
    holds(shop, &acknowledged);
    shop.sql("INSERT INTO numbered VALUES (1000, REPEAT('x', 4 << 20));").ok();
}

/// A class whose volumes don't grow.
const FIXED: &str = r"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fixed}
provisioner: drydock.local/directory
";

/// A volume that can't grow is said to be one, and nobody disturbs the server for it.
fn can_not_grow(large: Instance<'_>) {
    let cluster = large.cluster;
    let pod = cluster.field("pod/mysql-large-0", ".metadata.uid");
    let patch = r#"{"spec":{"storageSize":"2Gi"}}"#;
    cluster.kubectl_with(&["patch", "mysql", "large", "--type=merge", "-p", patch], "").ok();
    let refused = is_degraded(large, "StepFailed");
    assert!(refused.contains("mysql-pvc-large") && refused.contains("must support resize"), "{refused}");
    assert!(large.condition("Ready").starts_with("True "), "{}", large.condition("Ready"));
    assert_eq!(large.sql("SELECT COUNT(*) FROM numbered;").ok(), "32\n");
    assert_eq!(cluster.field("pod/mysql-large-0", ".metadata.uid"), pod, "it is the same pod");
}

/// What is restored may need more than there is.
fn is_too_small(cluster: &Cluster) {
    let (large, copy) = (Instance::shop(cluster, "large"), Instance::shop(cluster, "copy"));
    large.serves();
    let rows = "CREATE TABLE numbered (n INT PRIMARY KEY, t LONGBLOB); \
                INSERT INTO numbered SELECT seq, REPEAT('x', 4 << 20) FROM seq_1_to_32;";
    large.sql(rows).ok();
    back_up(cluster, "large", "much");
    is_complete(cluster, "much");
    cluster.apply(&instance("copy", "256Mi", "hard-size", "  restoreFrom: {backup: much}")).ok();
    let failed = is_degraded(copy, "RestoreFailed");
    assert!(
        failed.contains("VolumeFull: nothing was restored: the volume is nearly full: of 256 MiB "),
        "{failed}"
    );
    assert!(failed.contains("Raise storageSize, which is 256Mi"), "{failed}");
    grow(cluster, "copy", "768Mi");
    cluster.kubectl("delete job mysql-restore-copy").ok();
    copy.serves();
    holds(copy, &(1..=32).collect::<Vec<u32>>());
    can_not_grow(large);
}

#[test]
fn a_full_volume_is_said_with_its_remedy_and_a_larger_one_heals_it() {
    let user = User::is_me();
    user.pull_this();
    user.pull(&["mariadb:11.8"]);
    let mut cluster = user.up(&["--memory"]);
    cluster.apply(&instance("shop", "256Mi", "hard-size", "")).ok();
    cluster.apply(FIXED).ok();
    cluster.apply(&instance("large", "1Gi", "fixed", "")).ok();
    std::thread::scope(|scope| {
        scope.spawn(|| is_full(&cluster));
        scope.spawn(|| is_too_small(&cluster));
    });
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
