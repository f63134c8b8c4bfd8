//! A data directory that is full, read-only, damaged or of a later version: one line, exit code 1, nothing lost; and one
//! that becomes full while the cluster runs.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::disk::Disk;
use crate::support::user::User;
use crate::support::{Cluster, Process, ballast, said};

/// A cluster that is kept in a directory, by a command that starts it.
fn up(mut command: Command) -> Cluster {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let up = Process::start({
        command.arg("--kubeconfig").arg(&kubeconfig);
        command
    });
    assert_eq!(up.line(), format!("ready: export KUBECONFIG={}", kubeconfig.display()));
    Cluster { up, kubeconfig, directory }
}

fn words(data: &Path) -> Vec<&str> {
    vec!["up", "--no-node", "--no-operators", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]
}

/// Not started, for reasons that one line says.
#[track_caller]
fn refused(command: &mut Command, expected: &[&str]) {
    let said = said(command, "");
    assert_eq!((said.code(), said.stdout.as_str()), (1, ""), "{said}");
    assert_eq!(said.stderr.lines().count(), 1, "{said}");
    assert!(said.stderr.starts_with("error: "), "{said}");
    for words in expected {
        assert!(said.stderr.contains(words), "{words:?} is not in {said}");
    }
}

/// Larger than what may be left of the page that the log ends in.
fn config_map(cluster: &Cluster, name: &str) -> crate::support::Said {
    let large = "x".repeat(10_000);
    cluster.kubectl(&format!("create configmap {name} --from-literal=text=kept --from-literal=large={large}"))
}

#[test]
fn a_disk_that_becomes_full_refuses_writes_until_there_is_room_and_loses_nothing() {
    let disk = Disk::of_megabytes(4);
    let data = disk.path().join("data");
    let mut cluster = up(disk.ballast(&words(&data)));
    config_map(&cluster, "before").ok();
    disk.fill();
    let expected = "there is no room left where the cluster is kept: No space left on device. Reads go on";
    for _ in 0..2 {
        let refusal = config_map(&cluster, "one").refused();
        assert!(refusal.contains(expected), "{refusal}");
    }
    let refusal = cluster.kubectl("label configmap before colour=red").refused();
    assert!(
        refusal.starts_with(&format!("Error from server (InsufficientStorage): {expected}")),
        "{refusal}"
    );
    assert_eq!(cluster.field("configmap/before", ".data.text"), "kept", "reading goes on");
    assert_eq!(
        cluster.field("configmap/before", ".metadata.labels"),
        "",
        "nothing is seen that was not written"
    );
    disk.clear();
    config_map(&cluster, "after").ok();
    cluster.kubectl("label configmap before colour=red").ok();

    cluster.up.signal("KILL");
    cluster.up.end();
    let again = up(disk.ballast(&words(&data)));
    let there = again.kubectl("get configmaps before after -o name").ok();
    assert_eq!(there, "configmap/before\nconfigmap/after\n");
    assert_eq!(again.field("configmap/before", ".metadata.labels.colour"), "red");
    config_map(&again, "one").ok();
}

#[test]
fn a_full_disk_is_said_at_the_start_and_what_is_on_it_stays() {
    let disk = Disk::of_megabytes(4);
    let (data, fresh) = (disk.path().join("data"), disk.path().join("fresh"));
    let mut cluster = up(disk.ballast(&words(&data)));
    config_map(&cluster, "before").ok();
    cluster.up.signal("KILL");
    cluster.up.end();
    disk.fill();
    let full = ["No space left on device", "; make room there"];
    refused(&mut disk.ballast(&words(&data)), &full);
    refused(&mut disk.ballast(&words(&fresh)), &full);
    disk.clear();
    let again = up(disk.ballast(&words(&data)));
    assert_eq!(again.field("configmap/before", ".data.text"), "kept");
    up(disk.ballast(&words(&fresh)));
}

#[test]
fn a_directory_that_can_only_be_read_is_said_at_the_start() {
    let disk = Disk::of_megabytes(4);
    let (data, fresh) = (disk.path().join("data"), disk.path().join("fresh"));
    let mut cluster = up(disk.ballast(&words(&data)));
    config_map(&cluster, "before").ok();
    cluster.up.signal("TERM");
    cluster.up.end();
    disk.let_be_written(false);
    for place in [&data, &fresh] {
        refused(
            &mut disk.ballast(&words(place)),
            &[place.to_str().unwrap(), "Read-only file system", "; let it be written"],
        );
    }
    disk.let_be_written(true);
    assert_eq!(up(disk.ballast(&words(&data))).field("configmap/before", ".data.text"), "kept");
}

#[test]
fn where_nothing_can_be_kept_or_reached_nothing_is_begun() {
    let (user, place) = (User::Plain, User::Plain.directory());
    let (file, data) = (place.path().join("file"), place.path().join("data"));
    fs::write(&file, "").unwrap();
    refused(user.ballast().args(words(&file)), &[file.to_str().unwrap(), "Not a directory"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = user.ballast();
    command.args(["up", "--no-node", "--no-operators", "--listen", &address, "--data-dir"]).arg(&data);
    refused(&mut command, &["Address already in use"]);
    let made: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made, ["lock"]);
}

#[test]
fn a_directory_that_can_not_be_looked_into_is_not_said_to_be_lost() {
    let (user, data) = (User::Plain, User::Plain.directory());
    let flags = ["--no-node", "--no-operators", "--data-dir", data.path().to_str().unwrap()];
    let mut cluster = user.up(&flags);
    config_map(&cluster, "before").ok();
    cluster.up.signal("TERM");
    cluster.up.end();
    let store = data.path().join("store");
    fs::set_permissions(&store, Permissions::from_mode(0o000)).unwrap();
    let log = format!("{}: can't look at it: Permission denied", store.join("log").display());
    let again = "; start it as the user whose directory it is, ";
    refused(user.ballast().args(words(data.path())), &[&log, again]);
    fs::set_permissions(&store, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(user.up(&flags).field("configmap/before", ".data.text"), "kept");
}

#[test]
fn damage_and_later_versions_are_said_at_the_start_and_left_as_they_are() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let command = || {
        let mut command = ballast();
        command.args(words(&data));
        command
    };
    let mut cluster = up(command());
    for name in ["one", "another"] {
        config_map(&cluster, name).ok();
    }
    cluster.up.signal("KILL");
    cluster.up.end();
    let log = data.join("store/log");
    let whole = fs::read(&log).unwrap();
    let with = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 2;
        bytes
    };
    let place = log.to_str().unwrap();
    for (bytes, expected) in [
        (
            with(whole.len() / 2),
            [
                place,
                "damaged at offset",
                "; nothing was changed there: bring it back from a backup, name another",
            ],
        ),
        (with(0), [place, "damaged at offset 0: this is no log", "; nothing was changed there"]),
        (with(8), [place, "written in format version 3", "; start the ballast that wrote it"]),
        (whole[..20].to_vec(), [place, "20 bytes are too few", "; nothing was changed there"]),
    ] {
        fs::write(&log, &bytes).unwrap();
        refused(&mut command(), &expected);
        assert_eq!(fs::read(&log).unwrap(), bytes, "it was changed");
    }
    fs::write(&log, &whole).unwrap();
    // Keys are refused with their file, and none is made in the place of one that is gone.
    let next = "bring it back from a backup, remove all of keys/ to have new ones";
    for (key, expected) in [
        ("keys/ca.crt", "this is no certificate of the key that is beside it"),
        ("keys/ca.key", "this is no private key"),
        ("keys/service-accounts.key", "this is no private key"),
        ("keys/admin.token", "this is no token"),
    ] {
        let path = data.join(key);
        let kept = fs::read(&path).unwrap();
        fs::write(&path, "no key").unwrap();
        refused(&mut command(), &[&format!("{}: damaged: {expected}", path.display()), next]);
        assert_eq!(fs::read(&path).unwrap(), b"no key", "it was changed");
        fs::remove_file(&path).unwrap();
        refused(&mut command(), &[&format!("{}: it is gone", path.display()), next]);
        assert!(!path.exists(), "it was made anew");
        fs::write(&path, kept).unwrap();
    }

    // Nothing begins anew beside what is left of a cluster.
    fs::remove_file(&log).unwrap();
    refused(&mut command(), &[place, "it is gone, and with it every object", "bring it back from a backup"]);
    assert!(!log.exists());

    // What was cut off in the middle of a write was never acknowledged.
    fs::write(&log, [&whole[..], &[7; 100]].concat()).unwrap();
    let both = "configmap/one\nconfigmap/another\n";
    let mut again = up(command());
    assert_eq!(again.kubectl("get configmaps one another -o name").ok(), both);
    assert!(!again.up.complaints().contains("keys"), "{}", again.up.complaints());
    let token = fs::read(data.join("keys/admin.token")).unwrap();
    again.up.signal("KILL");
    again.up.end();

    // Without any of them there are new ones, which is said, and what the cluster holds is there.
    fs::remove_dir_all(data.join("keys")).unwrap();
    let anew = up(command());
    assert_eq!(anew.kubectl("get configmaps one another -o name").ok(), both);
    let said = anew.up.complaints();
    assert_eq!(said.matches("the cluster's keys were gone, and are made anew").count(), 1, "{said}");
    assert_ne!(fs::read(data.join("keys/admin.token")).unwrap(), token);
}
