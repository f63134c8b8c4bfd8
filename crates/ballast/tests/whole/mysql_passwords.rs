//! Passwords that change: in the Secret, and so in the server, without a restart.

use crate::support::mysql::{Instance, LONG};
use crate::support::user::User;
use crate::support::{Cluster, eventually};
use serde_json::json;

const SHOP: &str = r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: shop}
spec: {databaseName: shop, databaseUser: "it's me", storageSize: 1Gi, mysqlVersion: "VERSION"}
"#;

/// Puts passwords into the Secret.
fn change(cluster: &Cluster, passwords: &serde_json::Value) {
    let patch = json!({"stringData": passwords}).to_string();
    cluster.kubectl_with(&["patch", "secret", "mysql-secret-shop", "--type=merge", "-p", &patch], "").ok();
}

/// Has the node look at once at what the pod's volumes show, which it does of itself once a minute.
fn look(cluster: &Cluster) {
    let now = jiff::Timestamp::now();
    cluster.kubectl(&format!("annotate --overwrite pod mysql-shop-0 looked-at={now}")).ok();
}

/// Whether somebody is let in.
fn lets_in(shop: Instance<'_>, password: &str) -> bool {
    shop.sql_with(password, "SELECT 1;").status.success()
}

fn rotates(version: &str, client: &'static str) {
    let user = User::is_me();
    user.pull_this();
    user.pull(&[&format!("{}:{version}", if client == "mysql" { "mysql" } else { "mariadb" })]);
    let mut cluster = user.up(&["--memory"]);
    cluster.apply(&SHOP.replace("VERSION", version)).ok();
    let shop = Instance { cluster: &cluster, name: "shop", client, user: "it's me", database: "shop" };
    let root = Instance { user: "root", database: "mysql", ..shop };
    shop.serves();
    let minted = (shop.password("root-password"), shop.password("password"));
    assert!(lets_in(root, &minted.0) && lets_in(shop, &minted.1));

    // While it runs.
    let pod = shop.cluster.field("pod/mysql-shop-0", ".metadata.uid");
    change(&cluster, &json!({"root-password": "it's \\ \"new\"", "password": "größe %s"}));
    look(&cluster);
    eventually("the new ones are known", || {
        (lets_in(root, "it's \\ \"new\"") && lets_in(shop, "größe %s")).then_some(())
    });
    assert!(!lets_in(root, &minted.0) && !lets_in(shop, &minted.1), "the old ones are not");
    assert!(shop.condition("Ready").starts_with("True"), "{}", shop.condition("Ready"));
    assert_eq!(cluster.field("pod/mysql-shop-0", ".metadata.uid"), pod, "without a restart");
    let shown = cluster.kubectl("logs mysql-shop-0").ok();
    assert!(!shown.contains("größe") && !shown.contains("\"new\""), "{shown}");

    // While it does not: the user's follows at the next start. Root's nobody can help with but who knows it.
    shop.cluster.kubectl("patch mysql shop --type=merge -p {\"spec\":{\"paused\":true}}").ok();
    cluster.kubectl("scale statefulset mysql-shop --replicas=0").ok();
    cluster.kubectl(&format!("wait --for=delete pod/mysql-shop-0 {LONG}")).ok();
    change(&cluster, &json!({"password": "later"}));
    shop.cluster.kubectl("patch mysql shop --type=merge -p {\"spec\":{\"paused\":false}}").ok();
    shop.serves();
    eventually("the user's is known", || lets_in(shop, "later").then_some(()));
    assert!(lets_in(root, "it's \\ \"new\""));

    // A person changed root's in the server alone.
    let password = "it's \\ \"new\"";
    root.sql_with(
        password,
        "ALTER USER 'root'@'localhost' IDENTIFIED BY 'mine', 'root'@'%' IDENTIFIED BY 'mine';",
    )
    .ok();
    cluster.replace_pod("mysql-shop-0");
    let said = eventually("it is said", || {
        Some(shop.condition("Degraded")).filter(|said| said.starts_with("True PasswordUnknown: "))
    });
    assert!(said.contains("Put the password that it knows into that Secret"), "{said}");
    assert!(lets_in(shop, "later"), "clients are served all the while");
    change(&cluster, &json!({"root-password": "mine"}));
    look(&cluster);
    eventually("it serves again", || shop.condition("Ready").starts_with("True").then_some(()));
    eventually("that is over", || shop.condition("Degraded").starts_with("False").then_some(()));
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

#[test]
fn a_mariadb_is_told_of_passwords_that_change() {
    rotates("11.8", "mariadb");
}

#[test]
fn a_mysql_is_told_of_passwords_that_change() {
    rotates("9.7", "mysql");
}
