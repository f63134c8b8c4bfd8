//! What is asked of the node and can't be, by the real kubectl: it is said, and everything else goes on.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use crate::support::machine::own_network;
use crate::support::user::User;
use crate::support::{Cluster, ballast, eventually, said};
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

/// Making images from packages takes longer than anything else.
const MADE: &str = "--timeout=240s";

#[test]
fn an_image_is_made_when_it_is_first_needed_and_while_it_can_not_be_nobody_else_is_hurt() {
    let user = User::is_me();
    // No image has been made here yet, and at first packages are to be had from nowhere.
    let home = user.directory();
    let (settings, sources) = (home.path().join("apt.conf"), home.path().join("sources.list"));
    fs::write(&sources, "deb file:/nonexistent/debian trixie main\n").unwrap();
    let nowhere =
        format!("Dir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"/nonexistent\";\n", sources.display());
    fs::write(&settings, nowhere).unwrap();
    let calm = home.path().join("calm.tar");
    let mut places = ["/usr/bin/busybox", "/bin/busybox"].into_iter().map(PathBuf::from);
    let shell = places.find(|path| path.exists()).unwrap();
    let files = [FileEntry { path: "/bin/sh".into(), mode: 0o755, content: Content::File(shell) }];
    let command = ["/bin/sh", "-c", "exec sleep 86400"].map(str::to_owned).to_vec();
    let config = Config { command, ..Config::default() };
    let reference = Reference::parse("example.com/calm:1.0").unwrap();
    write_oci_archive(File::create(&calm).unwrap(), &Contents::Files(&files), &config, &reference).unwrap();
    said(user.ballast().env("HOME", home.path()).args(["image", "import"]).arg(&calm), "").ok();

    let mut cluster = user.up_with(&["--memory", "--no-operators"], |command| {
        command.env("HOME", home.path()).env("APT_CONFIG", &settings);
    });
    cluster.kubectl("run calm --image=example.com/calm:1.0").ok();
    cluster.kubectl("wait --for=condition=Ready pod/calm --timeout=30s").ok();
    let image = "busybox:1.37";
    cluster.kubectl(&format!("run lacking --image={image} -- sleep 86400")).ok();
    let message = waiting(&cluster, "lacking", "ErrImagePull");
    let what = format!("\"docker.io/library/{image}\": a package can't be had: ");
    assert!(message.contains(&what), "{message}");
    let later = waiting(&cluster, "lacking", "ImagePullBackOff");
    assert_eq!(later, format!("Back-off pulling image {image:?}: ErrImagePull: {message}"));
    let told = cluster.says("describe pod lacking", "Error: ImagePullBackOff");
    assert!(told.contains(&format!("Failed to pull image {image:?}: {message}")), "{told}");
    assert_eq!(cluster.field("pod/lacking", ".status.phase"), "Pending");
    assert_eq!(cluster.field("pod/calm", ".status.containerStatuses[0].restartCount"), "0");
    cluster.kubectl("wait --for=condition=Ready pod/calm node/ballast --timeout=30s").ok();

    // From here on they can be had, and the next attempt is told of as it goes on.
    cluster.up.complaints();
    fs::write(&settings, "").unwrap();
    cluster.kubectl(&format!("wait --for=condition=Ready pod/lacking {MADE}")).ok();
    let told = cluster.says("describe pod lacking", "Started container lacking");
    let events = [format!("Pulling image {image:?}"), format!("Successfully pulled image {image:?} in ")];
    assert!(events.iter().all(|event| told.contains(event)), "{told}");
    let said = cluster.up.complaints();
    let about = format!("image {image}: ");
    let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&about)).collect();
    let [first, .., last] = lines.as_slice() else { panic!("nothing is said while it is made: {said}") };
    assert!(first.starts_with("looking at what Debian "), "{lines:?}");
    assert!(last.starts_with("made in "), "{lines:?}");
    // What the node wrote down goes with this home, so it is to have cleared up by then.
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
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

#[test]
fn what_a_pod_needs_may_come_later() {
    own_network(&IMAGES);
    let cluster = User::is_me().up(&["--memory", "--no-operators"]);
    let patient = r#"
apiVersion: v1
kind: Pod
metadata: {name: patient}
spec:
  containers: [{name: c, image: busybox, command: [sleep, inf], volumeMounts: [{name: m, mountPath: /m}]}]
  volumes: [{name: m, configMap: {name: later}}]
"#;
    cluster.apply(patient).ok();
    let event = "get events --field-selector reason=FailedMount -o jsonpath={.items[0].count}";
    // It is tried again and again, and so not only when volumes are looked at, which is once a minute.
    eventually("a third try", || {
        let tries: u32 = cluster.kubectl(event).ok().trim().parse().ok()?;
        (tries >= 3).then_some(())
    });
    cluster.kubectl("create configmap later --from-literal=a=b").ok();
    cluster.kubectl("wait --for=condition=Ready pod/patient --timeout=30s").ok();
}
