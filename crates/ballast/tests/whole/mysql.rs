//! The life of a MySQL with a real MariaDB, by the real kubectl: installed, killed, backed up, restored, upgraded and
//! retired, while a client writes numbered rows. Each that was acknowledged is where it should be.

use crate::support::mysql::{Instance, LONG, back_up, is_complete};
use crate::support::user::User;
use crate::support::writer::{Enough, TABLE, Writer, holds};
use crate::support::{Cluster, eventually};
use serde_json::json;

/// Names of the kind that people do not have, and that servers take.
const DATABASE: &str = "my `shop`; $(KUBERNETES_PORT) $$ größe_%";
const USER: &str = "--it's \"me\" \\ $(HOME) `é`";

/// An instance, and what else its spec has.
fn instance(name: &str, version: &str, more: &str) -> String {
    let (database, user) = (json!(DATABASE), json!(USER));
    format!(
        r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {{name: {name}}}
spec:
  databaseName: {database}
  databaseUser: {user}
  storageSize: 1Gi
  mysqlVersion: "{version}"
{more}
"#
    )
}

/// An instance that begins with a backup.
fn restored(name: &str, version: &str, backup: &str) -> String {
    let more = format!(
        r#"
  restoreFrom: {{backup: {backup}}}
  deletionPolicy: Delete
  initScript: {{inline: "CREATE TABLE once (n INT PRIMARY KEY); INSERT INTO once VALUES (1);"}}"#
    );
    instance(name, version, &more)
}

/// What Kubernetes shows to people holds no password.
fn tells_no_secrets(cluster: &Cluster, passwords: &[String]) {
    let kinds = "get mysqls,mysqlbackups,statefulsets,jobs,pods,services,configmaps,events,pvc -o yaml";
    let mut shown = cluster.kubectl(kinds).ok();
    for pod in cluster.kubectl("get pods -o name").ok().lines() {
        shown += &cluster.kubectl(&format!("logs {pod} --all-containers")).stdout;
    }
    for password in passwords {
        assert!(password.len() >= 24 && !shown.contains(password.as_str()), "a password is shown");
    }
}

/// Deletes an instance, and gives the name of its last backup.
fn retire(instance: Instance<'_>) -> String {
    let Instance { cluster, .. } = instance;
    let uid: String =
        instance.field(".metadata.uid").chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    cluster.kubectl(&format!("delete mysql shop {LONG}")).ok();
    let last = format!("final-shop-{uid}");
    is_complete(cluster, &last);
    eventually("its server and its volume are gone", || {
        let left = cluster.kubectl("get statefulsets,pods,pvc,secrets -o name").ok();
        let gone = ["statefulset.apps/mysql-shop", "pod/mysql-shop-0", "mysql-pvc-shop", "mysql-secret-shop"];
        gone.iter().all(|name| !left.contains(name)).then_some(())
    });
    last
}

fn life(cluster: &Cluster) {
    let of = |name| Instance { cluster, name, client: "mariadb", user: USER, database: DATABASE };
    let (shop, copy, again) = (of("shop"), of("copy"), of("again"));
    cluster.apply(&instance("shop", "10.11", "")).ok();
    shop.serves();
    assert!(
        shop.condition("Ready").starts_with("True Serving: MariaDB 10.11."),
        "{}",
        shop.condition("Ready")
    );
    let passwords = [shop.password("password"), shop.password("root-password")];
    assert_ne!(passwords[0], passwords[1]);
    shop.sql(TABLE).ok();

    let (writer, mut last) = (Writer::default(), String::new());
    std::thread::scope(|scope| {
        let _enough = Enough(&writer);
        writer.begin(scope, shop);
        let before = writer.goes_on();
        let kill = ["exec", "mysql-shop-0", "--", "sh", "-c", "kill -9 $(pidof mariadbd)"];
        cluster.kubectl_with(&kill, "");
        let acknowledged = writer.goes_on();
        holds(shop, &before);

        back_up(cluster, "shop", "now");
        is_complete(cluster, "now");
        cluster.apply(&restored("copy", "10.11", "now")).ok();
        copy.serves();
        holds(copy, &acknowledged);
        cluster.becomes("mysql/copy", ".status.initScriptDone", "true");
        assert_eq!(copy.sql("SELECT * FROM once;").ok(), "1\n");

        cluster.replace_pod("mysql-shop-0");
        writer.goes_on();
        let patch = ["patch", "mysql", "shop", "--type=merge", "-p", r#"{"spec":{"mysqlVersion":"11.8"}}"#];
        cluster.kubectl_with(&patch, "").ok();
        cluster
            .kubectl(&format!("wait --for=jsonpath={{.status.image}}=mariadb:11.8 mysql/shop {LONG}"))
            .ok();
        shop.serves();
        assert!(shop.field(".status.version").starts_with("11.8."), "{}", shop.field(".status"));
        let acknowledged = writer.goes_on();
        holds(shop, &acknowledged);
        assert!(cluster.kubectl("get mysqlbackups").ok().contains("upgrade-shop-"));
        tells_no_secrets(cluster, &passwords);

        // Who still writes is told when that is too late.
        last = retire(shop);
    });
    let acknowledged = writer.written().clone();
    cluster.apply(&restored("again", "11.8", &last)).ok();
    again.serves();
    holds(again, &acknowledged);
    cluster.kubectl(&format!("delete mysql again copy {LONG}")).ok();
    eventually("nothing is left of what was to be deleted", || {
        let left = cluster.kubectl("get pods,pvc,secrets -o name").ok();
        (!left.contains("mysql-pvc-") && !left.contains("mysql-secret-")).then_some(())
    });
}

#[test]
fn what_a_mariadb_acknowledged_is_there_from_its_first_day_to_its_last_backup() {
    let user = User::is_me();
    user.pull_this();
    user.pull(&["mariadb:10.11", "mariadb:11.8"]);
    let mut cluster = user.up(&["--memory"]);
    life(&cluster);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
