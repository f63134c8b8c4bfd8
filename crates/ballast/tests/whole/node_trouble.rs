//! What is asked of the node and can't be, by the real kubectl: it is said, and everything else goes on.

use std::fs::File;
use std::process::Command;

use crate::support::machine::own_network;
use crate::support::user::User;
use crate::support::{Cluster, ballast, said};
use drydock_images::{Config, Content, Contents, FileEntry, Reference, write_oci_archive};

const IMAGES: [&str; 2] = ["busybox", "memcached:1.6.9"];

fn waiting(cluster: &Cluster, pod: &str, reason: &str) -> String {
    let state = ".status.containerStatuses[0].state.waiting";
    cluster.becomes(&format!("pod/{pod}"), &format!("{state}.reason"), reason);
    cluster.field(&format!("pod/{pod}"), &format!("{state}.message"))
}

#[test]
fn an_image_whose_user_is_none_does_not_run() {
    own_network(&IMAGES);
    let user = User::is_me();
    let directory = user.directory();
    let file = directory.path().join("ghost.tar");
    let files =
        [FileEntry { path: "/bin/true".into(), mode: 0o755, content: Content::Bytes(b"#!/bin/sh".to_vec()) }];
    let command = vec!["/bin/true".to_owned()];
    let config = Config { command, user: "ghost".to_owned(), ..Config::default() };
    let name = "example.com/ghost:1.0";
    let reference = Reference::parse(name).unwrap();
    write_oci_archive(File::create(&file).unwrap(), &Contents::Files(&files), &config, &reference).unwrap();
    said(user.ballast().args(["image", "import"]).arg(&file), "").ok();

    let cluster = user.up(&["--memory", "--no-operators"]);
    cluster.kubectl("run calm --image=busybox -- sleep 86400").ok();
    cluster.kubectl(&format!("run ghost --image={name}")).ok();
    let message = waiting(&cluster, "ghost", "CreateContainerError");
    assert!(message.contains("unable to find user ghost: no matching entries in passwd file"), "{message}");
    cluster.says("describe pod ghost", "unable to find user ghost");
    cluster.kubectl("wait --for=condition=Ready pod/calm --timeout=30s").ok();
    assert_eq!(cluster.field("pod/calm", ".status.containerStatuses[0].restartCount"), "0");
    cluster.kubectl("wait --for=condition=Ready node/ballast --timeout=30s").ok();
}

#[test]
fn a_tag_that_cannot_be_had_is_noted_or_refused() {
    own_network(&IMAGES);
    let user = User::is_me();
    let cluster = user.up(&["--memory", "--no-operators"]);
    cluster.kubectl("run near --image=memcached:1.6.9").ok();
    cluster.kubectl("wait --for=condition=Ready pod/near --timeout=30s").ok();
    let noted = cluster.says("describe pod near", "InexactImage");
    assert!(noted.contains("memcached:1.6."), "{noted}");
    let runs = cluster.field("pod/near", ".status.containerStatuses[0].imageID");
    assert!(runs.contains("memcached:1.6.") && runs.contains("@sha256:"), "{runs}");

    let cluster = user.up(&["--memory", "--no-operators", "--strict-images"]);
    cluster.kubectl("run near --image=memcached:1.6.9").ok();
    let message = waiting(&cluster, "near", "ErrImagePull");
    assert!(message.contains("1.6.9"), "{message}");
}

/// A user namespace in which there is root in name only, and in which no other can be made.
#[test]
fn a_machine_without_root_and_user_namespaces_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let up = ballast();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    command.arg(up.get_program()).args(["up", "--memory", "--listen", "127.0.0.1:0"]);
    for (name, value) in up.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("HOME", directory.path());
    let refused = said(&mut command, "").refused();
    let last = refused.lines().last().unwrap();
    assert_eq!(
        last,
        "error: pods need root or user namespaces, and this machine grants no user namespace: \
         /proc/sys/user/max_user_namespaces is 0; run no pods with --no-node"
    );
    let errors = refused.lines().filter(|line| line.starts_with("error:")).count();
    assert_eq!(errors, 1, "{refused}");
}
