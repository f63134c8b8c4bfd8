//! The operators are crashed while they lead real databases through their lives, and all ends as if they had not been:
//! the same objects, the same statuses, the same rows, by the digests of the backups.
//!
//! The operators run in this process, against a cluster with a node that is another's. A crash is the end of all that
//! they had under way, right after the API server did what they asked and before they are told so. A database can't be
//! brought back to a moment of the past, so a life is lived from its beginning for each sort of crash: after every
//! single write, and, with `BALLAST_PROVE=all`, after the first write of every act, after the second of every act, and
//! so on for as long as there are so many.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use crate::support::Cluster;
use crate::support::crashing::{self, Crashes, Life, Lived};
use crate::support::mysql::backup;
use crate::support::user::User;

/// An instance, and what else its spec has.
fn mysql(name: &str, version: &str, size: &str, more: &str) -> String {
    format!(
        "{{apiVersion: operators.example.com/v1alpha1, kind: MySQL, metadata: {{name: {name}}}, spec: {{databaseName: shop, \
         databaseUser: clerk, storageSize: {size}, mysqlVersion: '{version}', {more}}}}}"
    )
}

const SCRIPT: &str = "initScript: {inline: 'CREATE TABLE once (n INT AUTO_INCREMENT PRIMARY KEY); INSERT INTO once VALUES ();'}";

/// Created and configured, and backed up.
fn begun() -> Life {
    Life::new()
        .apply(
            "create and configure",
            mysql("shop", "10.11", "1Gi", SCRIPT),
            &[("mysql/shop", ".status.phase", "Ready"), ("mysql/shop", ".status.initScriptDone", "true")],
        )
        .apply("back up", backup("shop", "now"), &[("mysqlbackup/now", ".status.outcome", "Complete")])
}

/// And deleted after a last backup.
fn short() -> Life {
    begun().delete("delete", "mysql/shop")
}

/// All that can be done with a database.
fn long() -> Life {
    let copy = "restoreFrom: {backup: now}, deletionPolicy: Delete";
    begun()
        .apply("restore", mysql("copy", "10.11", "1Gi", copy), &[("mysql/copy", ".status.phase", "Ready")])
        .apply(
            "upgrade",
            mysql("shop", "11.8", "1Gi", SCRIPT),
            &[
                ("mysql/shop", ".status.image", "mariadb:11.8"),
                ("mysql/shop", ".status.phase", "Ready"),
                // The operators may have had to pause before the last thing that they do.
                ("job/mysql-version-shop", ".metadata.name", ""),
            ],
        )
        .apply(
            "grow",
            mysql("shop", "11.8", "2Gi", SCRIPT),
            &[
                ("pvc/mysql-pvc-shop", ".status.capacity.storage", "2Gi"),
                ("mysql/shop", ".status.phase", "Ready"),
            ],
        )
        .delete("delete the copy", "mysql/copy")
        .delete("delete", "mysql/shop")
}

/// A cluster with a node and without operators, and the images that are needed.
fn cluster(images: &[&str]) -> Cluster {
    let user = User::is_me();
    user.pull_this();
    user.pull(images);
    user.up(&["--memory", "--no-operators"])
}

/// Lives it in a namespace of its own.
fn live(cluster: &Cluster, life: &Life, namespace: &str, crashes: Crashes) -> Lived {
    crashing::live(&cluster.kubeconfig, life, namespace, crashes)
}

#[test]
fn operators_that_crash_after_every_write_leave_a_real_database_as_if_they_had_not() {
    let (cluster, life) = (cluster(&["mariadb:10.11"]), short());
    let (undisturbed, crashed) = std::thread::scope(|scope| {
        let undisturbed = scope.spawn(|| live(&cluster, &life, "undisturbed", Crashes::Never));
        let crashed = live(&cluster, &life, "crashed", Crashes::AfterEach);
        (undisturbed.join().unwrap(), crashed)
    });
    println!("{} writes undisturbed; {} crashes", undisturbed.writes, crashed.crashes);
    assert!(crashed.crashes >= 15, "only {} writes were crashed after", crashed.crashes);
    crashed.is_like(&undisturbed);
}

/// More writes than any act takes.
const ENOUGH: usize = 60;
/// Lives at a time.
const AT_ONCE: usize = 2;

#[test]
fn operators_that_crash_anywhere_in_a_real_life_leave_it_as_if_they_had_not() {
    // Minutes: one life for each place.
    if std::env::var("BALLAST_PROVE").ok().as_deref() != Some("all") {
        return;
    }
    let (cluster, life) = (cluster(&["mariadb:10.11", "mariadb:11.8"]), long());
    let began = Instant::now();
    let undisturbed = live(&cluster, &life, "undisturbed", Crashes::Never);
    println!("undisturbed: {} writes, {:.0} s", undisturbed.writes, began.elapsed().as_secs_f64());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place > done.load(Ordering::Relaxed).min(ENOUGH) {
                        return;
                    }
                    let crashes = if place == 0 { Crashes::AfterEach } else { Crashes::After(place) };
                    let lived = live(&cluster, &life, &format!("crashed-{place}"), crashes);
                    let seconds = began.elapsed().as_secs_f64();
                    println!("{crashes}: {} crashes, {seconds:.0} s so far", lived.crashes);
                    lived.is_like(&undisturbed);
                    if lived.crashes == 0 {
                        done.fetch_min(place, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}
