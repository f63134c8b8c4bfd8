//! Volumes of a hard size: whatever cuts short what is done to one, it is whole, or said to be gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drydock_node::{Node, Options, SaveError};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;

use crate::claims::{claim, clear, user};
use crate::cluster::{Cluster, script};

crate::tests![
    pods_that_share_a_volume_in_memory_begin_with_all_of_it,
    whoever_is_killed_in_between_leaves_a_volume_whole,
    a_volume_that_can_not_be_saved_keeps_no_other_from_it,
];

/// Enough for the one who reads them to be met by the next.
const MANY: usize = 3000;

/// A volume of a hard size, by its directories.
struct Volume {
    data: PathBuf,
    aside: PathBuf,
}

impl Volume {
    fn below(node: &Path, name: &str) -> Self {
        let volumes = node.join("volumes");
        Self { data: volumes.join(name), aside: volumes.join(format!(".{name}")) }
    }

    /// That of a claim which no pod uses.
    async fn of_claim(cluster: &Cluster, name: &str) -> Self {
        claim(cluster, name, "8Mi", json!({"storageClassName": drydock_node::HARD_CLASS})).await;
        user(cluster, "maker", name, "true").await;
        let volume = fs::read_dir(cluster.directory.join("volumes")).unwrap().flatten();
        let mut names = volume.filter_map(|entry| entry.file_name().into_string().ok());
        Self::below(&cluster.directory, &names.find(|name| name.starts_with("pvc-")).unwrap())
    }

    /// How often something is mounted there.
    fn mounts(&self) -> usize {
        let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
        all.lines().filter(|line| line.split(' ').nth(4) == self.data.to_str()).count()
    }

    /// Makes it what words like `memory=half` or `saved=whole` say, and nothing else.
    fn make(&self, state: &str) {
        while self.mounts() > 0 {
            rustix::mount::unmount(&self.data, UnmountFlags::DETACH).unwrap();
        }
        let _absent = fs::remove_dir_all(&self.aside);
        for directory in [&self.data, &self.aside] {
            fs::create_dir_all(directory).unwrap();
        }
        for (place, content) in state.split(' ').map(|word| word.split_once('=').unwrap()) {
            let directory = self.place(place);
            if place == "memory" {
                rustix::mount::mount("tmpfs", &directory, "tmpfs", MountFlags::empty(), None).unwrap();
            } else {
                fs::create_dir(&directory).unwrap();
            }
            let files = match content {
                "empty" => [].as_slice(),
                "half" => &["a"],
                "old" => &["a", "old"],
                _ => &["a", "b", "c"],
            };
            files.iter().for_each(|name| fs::write(directory.join(name), format!("{name}\n")).unwrap());
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        if name == "memory" { self.data.clone() } else { self.aside.join(name) }
    }

    /// What it is, in the same words.
    fn state(&self) -> String {
        let content = |place: &str| {
            if place == "memory" && self.mounts() == 0 {
                return None;
            }
            let mut names: Vec<_> =
                fs::read_dir(self.place(place)).ok()?.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            let word = match names.iter().map(|name| name.to_str().unwrap()).collect::<String>().as_str() {
                "" => "empty",
                "a" => "half",
                "aold" => "old",
                "abc" => "whole",
                other => panic!("{place} has {other}"),
            };
            Some(format!("{place}={word}"))
        };
        ["memory", "saved", "loaded", "saving"].into_iter().filter_map(content).collect::<Vec<_>>().join(" ")
    }
}

async fn pods_that_share_a_volume_in_memory_begin_with_all_of_it(cluster: Arc<Cluster>) {
    let volume = Volume::of_claim(&cluster, "data").await;
    volume.make("saved=empty");
    for number in 0..MANY {
        fs::write(volume.aside.join("saved").join(number.to_string()), "").unwrap();
    }
    let names = ["first", "second", "third", "fourth"];
    let seen = join_all(names.map(|name| user(&cluster, name, "data", "ls /data | wc -l"))).await;
    for pod in &seen {
        assert_eq!(cluster.log(pod, "main", 0), format!("{MANY}\n"));
    }
    assert_eq!(volume.mounts(), 1);
    assert!(!volume.aside.join("saved").exists());
    assert_eq!(fs::read_dir(volume.aside.join("loaded")).unwrap().count(), MANY);
    clear(&cluster).await;
}

/// Every state that a kill can leave, and what it is once the next pod has the volume.
const STATES: [(&str, &str); 14] = [
    // Bringing it into memory, the first time and a later one: nothing, half and all of it is read, `loaded` is half
    // removed and removed.
    ("saved=whole", MOUNTED),
    ("memory=empty saved=whole", MOUNTED),
    ("memory=half saved=whole", MOUNTED),
    ("memory=half saved=whole loaded=old", MOUNTED),
    ("memory=whole saved=whole loaded=half", MOUNTED),
    ("memory=whole saved=whole", MOUNTED),
    ("memory=whole loaded=old", "memory=whole loaded=old"),
    // Saving it: half and all of it is written, it is saved, unmounted, `loaded` is half removed.
    ("memory=whole loaded=old saving=half", "memory=whole loaded=old saving=half"),
    ("memory=whole loaded=old saving=whole", "memory=whole loaded=old saving=whole"),
    ("memory=whole saved=whole loaded=old", MOUNTED),
    ("saved=whole loaded=old", MOUNTED),
    ("saved=whole loaded=half", MOUNTED),
    // The machine is gone, and memory with it.
    ("loaded=old", "loaded=old"),
    ("loaded=old saving=whole", "loaded=old saving=whole"),
];
const MOUNTED: &str = "memory=whole loaded=whole";

async fn whoever_is_killed_in_between_leaves_a_volume_whole(cluster: Arc<Cluster>) {
    let volume = Volume::of_claim(&cluster, "data").await;
    for (number, (state, mounted)) in STATES.into_iter().enumerate() {
        volume.make(state);
        let name = format!("reader-{number}");
        if state.starts_with("loaded") {
            let mut spec = script("true");
            spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
            cluster.create::<Pod>(json!({"metadata": {"name": name}, "spec": spec})).await;
            cluster
                .until_event(&name, "FailedMount", "what it held was in the node's memory, and is gone")
                .await;
        } else {
            let pod = user(&cluster, &name, "data", "cat /data/*").await;
            assert_eq!(cluster.log(&pod, "main", 0), "a\nb\nc\n", "{state}");
        }
        assert_eq!(volume.state(), mounted, "{state}");
        cluster.delete(&name, Some(0)).await;
        cluster.until_gone(&name).await;
    }
    clear(&cluster).await;

    // The same for nodes that are told to stop before anybody wanted it.
    let directory = cluster.directory.with_file_name("stopping");
    let volume = Volume::below(&directory, "pvc-1");
    for (state, _) in STATES {
        volume.make(state);
        stop(&cluster, &directory).await.unwrap();
        // What is not in memory is left as it is.
        let expected = if state.starts_with("memory") { "saved=whole" } else { state };
        assert_eq!(volume.state(), expected, "{state}");
    }
    drydock_node::clear(&directory).unwrap();
}

/// Tells a node to stop before anybody wanted it.
async fn stop(cluster: &Cluster, directory: &Path) -> Result<(), SaveError> {
    let images = Arc::new(crate::store());
    let options = Options::new("stopping", cluster.client.clone(), cluster.host.clone(), images, directory);
    Node::start(options).unwrap().ender().end(Duration::ZERO, true).await
}

async fn a_volume_that_can_not_be_saved_keeps_no_other_from_it(cluster: Arc<Cluster>) {
    let directory = cluster.directory.with_file_name("failing");
    let volumes = ["pvc-1", "pvc-2", "pvc-3"].map(|name| Volume::below(&directory, name));
    // Each of them: nobody knows in which order it is done.
    for failing in 0..volumes.len() {
        volumes.iter().for_each(|volume| volume.make("memory=whole loaded=old"));
        // No directory is renamed to a file.
        fs::write(volumes[failing].place("saved"), "").unwrap();
        stop(&cluster, &directory).await.unwrap_err();
        for (number, volume) in volumes.iter().enumerate() {
            let state =
                if number == failing { "memory=whole loaded=old saving=whole" } else { "saved=whole" };
            assert_eq!(volume.state(), state, "{number} while {failing} fails");
        }
    }
    drydock_node::clear(&directory).unwrap();
}
