//! What a MariaDB acknowledged is there after everything that ends a process: its agent, the node, all of them and the
//! API server at once; after its volume grew, and in a restore by a newer version. A kill of the server alone is in
//! `mysql.rs`.

use std::path::Path;

use crate::support::machine::{self, family, find_node, kill, kill_all, node_of};
use crate::support::mysql::{Instance, LONG, back_up, is_complete};
use crate::support::user::User;
use crate::support::writer::{Enough, TABLE, Writer, holds};
use crate::support::{Cluster, eventually};

const SHOP: &str = r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: shop}
spec: {databaseName: shop, databaseUser: seller, storageSize: 1Gi, mysqlVersion: "10.11"}
"#;
const COPY: &str = r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: copy}
spec: {databaseName: shop, databaseUser: other, storageSize: 1Gi, mysqlVersion: "11.8", restoreFrom: {backup: after}}
"#;

fn instance<'a>(cluster: &'a Cluster, name: &'a str) -> Instance<'a> {
    let user = if name == "copy" { "other" } else { "seller" };
    Instance { user, ..Instance::shop(cluster, name) }
}

/// The processes of a cluster and of its pods.
fn all(cluster: &Cluster, kept: &Path) -> Vec<(u32, String)> {
    family(cluster.up.id()).into_iter().chain(machine::of_directory(kept)).collect()
}

/// The one process of a pod that was begun with these words.
fn process(cluster: &Cluster, kept: &Path, words: &str) -> u32 {
    let mut found: Vec<u32> = all(cluster, kept)
        .into_iter()
        .filter(|(_, line)| line.starts_with(words))
        .map(|(pid, _)| pid)
        .collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 1, "{words}: {found:?}");
    found[0]
}

/// Kills one after the other while somebody writes, and all at once in the end.
fn killed(cluster: &Cluster, kept: &Path, writer: &Writer) {
    let shop = instance(cluster, "shop");
    std::thread::scope(|scope| {
        let _enough = Enough(writer);
        writer.begin(scope, shop);
        writer.goes_on();
        let server = process(cluster, kept, "mariadbd ");
        kill(process(cluster, kept, "/ballast/ballast agent run "));
        let before = writer.written().clone();
        writer.goes_on();
        holds(shop, &before);
        assert_ne!(process(cluster, kept, "mariadbd "), server, "no server goes on without its agent");
        let node = node_of(&cluster.up);
        kill(node);
        eventually("another node is there", || find_node(&cluster.up).filter(|found| *found != node));
        holds(shop, &writer.goes_on());
        process(cluster, kept, "mariadbd ");
        // As a machine that loses its power.
        writer.goes_on();
        kill_all(all(cluster, kept).into_iter().map(|(pid, _)| pid));
    });
}

/// Grows, is backed up, and lives on in another.
fn goes_on(cluster: &Cluster, writer: &Writer) {
    let (shop, copy) = (instance(cluster, "shop"), instance(cluster, "copy"));
    let before = writer.written().clone();
    std::thread::scope(|scope| {
        let _enough = Enough(writer);
        writer.begin(scope, shop);
        writer.goes_on();
        holds(shop, &before);
        let patch = ["patch", "mysql", "shop", "--type=merge", "-p", r#"{"spec":{"storageSize":"2Gi"}}"#];
        cluster.kubectl_with(&patch, "").ok();
        cluster.becomes("pvc/mysql-pvc-shop", ".status.capacity.storage", "2Gi");
        let acknowledged = writer.goes_on();
        holds(shop, &acknowledged);

        back_up(cluster, "shop", "after");
        is_complete(cluster, "after");
        cluster.apply(COPY).ok();
        copy.serves();
        assert!(copy.field(".status.version").starts_with("11.8."), "{}", copy.field(".status"));
        holds(copy, &acknowledged);
        eventually("it has grown", || {
            shop.condition("Progressing").starts_with("False Settled").then_some(())
        });
        holds(shop, &writer.goes_on());
    });
    cluster.kubectl(&format!("delete mysql copy --wait=false {LONG}")).ok();
}

#[test]
fn what_was_acknowledged_outlives_the_agent_the_node_and_a_kill_of_everything_at_once() {
    let user = User::is_me();
    user.pull_this();
    user.pull(&["mariadb:10.11", "mariadb:11.8"]);
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let flags = ["--data-dir", kept.path().to_str().unwrap()];
    let writer = Writer::default();

    let mut cluster = user.up(&flags);
    cluster.apply(SHOP).ok();
    let shop = instance(&cluster, "shop");
    shop.serves();
    shop.sql(TABLE).ok();
    killed(&cluster, kept.path(), &writer);
    cluster.up.end();

    let mut cluster = user.up(&flags);
    goes_on(&cluster, &writer);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
