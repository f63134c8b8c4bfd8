//! What programs see of files, and as whom.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags};

use drydock_sandbox::{Capabilities, Mount, MountKind, User, Users};

use super::{Check, Place, checks, exec, output};

checks![
    writes_stay_in_the_container,
    a_read_only_root_takes_no_writes_but_volumes_do,
    links_in_a_tree_do_not_lead_out_of_it,
    a_volume_below_one_that_others_write_to_is_restricted_whatever_they_do,
    a_container_runs_as_its_user,
    capabilities_are_bounded,
    a_device_made_by_a_container_is_none,
    a_device_of_the_machine_is_one_to_a_privileged_container_alone,
];

async fn writes_stay_in_the_container(place: &Place) {
    let pod = place.pod("layers").await;
    place.script(&pod, "one", "echo mine > /etc/plain; touch /new").await;
    let (_, text) = place.script(&pod, "two", "cat /etc/plain; ls /new").await;
    assert!(text.starts_with("not a program\n") && text.contains("No such file"), "{text}");
    assert!(!place.directory.join("tree/new").exists());
    pod.stop().await.unwrap();
}

async fn a_read_only_root_takes_no_writes_but_volumes_do(place: &Place) {
    let pod = place.pod("readonly").await;
    let volume = place.directory.join("volume");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("file"), "old").unwrap();
    let mut config = place.container(
        "c",
        &["sh", "-c", "exec 2>&1; touch /x; echo new > /data/file; touch /fixed/file; cat /one/file"],
    );
    config.read_only_root = true;
    let bind = |destination: &str, source: &Path, read_only| Mount {
        destination: destination.into(),
        what: MountKind::Bind { source: source.to_owned(), read_only },
    };
    config.mounts = vec![
        bind("/data", &volume, false),
        bind("/fixed", &volume, true),
        bind("/one/file", &volume.join("file"), true),
    ];
    let (_, text) = place.to_the_end(&pod, config).await;
    assert_eq!(text, "touch: /x: Read-only file system\ntouch: /fixed/file: Read-only file system\nnew\n",);
    assert_eq!(std::fs::read_to_string(volume.join("file")).unwrap(), "new\n");
    pod.stop().await.unwrap();
}

async fn links_in_a_tree_do_not_lead_out_of_it(place: &Place) {
    let pod = place.pod("links").await;
    let volume = place.directory.join("escape");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("inside"), "").unwrap();
    let mut config = place.container("c", &["ls", "/etc/escaped/deep"]);
    config.mounts = vec![Mount {
        destination: "/opt/escape/deep".into(),
        what: MountKind::Bind { source: volume, read_only: false },
    }];
    let (_, text) = place.to_the_end(&pod, config).await;
    assert_eq!(text, "inside\n");
    assert!(!Path::new("/etc/escaped").exists());
    pod.stop().await.unwrap();
}

async fn a_volume_below_one_that_others_write_to_is_restricted_whatever_they_do(place: &Place) {
    let pod = place.pod("shared").await;
    let (shared, fixed) = (place.directory.join("shared"), place.directory.join("fixed"));
    for directory in [&fixed, &shared.join("conf")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::os::unix::fs::symlink("/data", shared.join("link")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (conf, link, ends) = (shared.join("conf"), shared.join("link"), Arc::clone(&over));
    // Who shares the volume has the path lead here and there.
    let other = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            rustix::fs::renameat_with(CWD, &conf, CWD, &link, RenameFlags::EXCHANGE).unwrap();
        }
    });
    let mut seen = Vec::new();
    for round in 0..30 {
        let mut config = place.container(&format!("c{round}"), &["cat", "/proc/self/mountinfo"]);
        config.mounts = [("/data", &shared, false), ("/data/conf", &fixed, true)]
            .map(|(destination, source, read_only)| Mount {
                destination: destination.into(),
                what: MountKind::Bind { source: source.clone(), read_only },
            })
            .to_vec();
        let (_, text) = place.to_the_end(&pod, config).await;
        // The fourth field is what is mounted, the sixth how.
        let mount = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mount.filter(|fields| fields[3].ends_with("/fixed")).map(|fields| fields[5].to_owned());
        seen.extend(mount);
    }
    over.store(true, Ordering::Relaxed);
    other.join().unwrap();
    let restricted = seen.iter().filter(|how| how.starts_with("ro,") && how.contains("nodev"));
    assert_eq!((seen.len(), restricted.count()), (30, 30), "{seen:?}");
    pod.stop().await.unwrap();
}

async fn a_container_runs_as_its_user(place: &Place) {
    let pod = place.pod("users").await;
    let mut config = place.container(
        "c",
        &["sh", "-c", "id -u; id -g; id -G; echo $HOME; touch /work/x && stat -c %u /work/x"],
    );
    config.user = User { uid: 1234, gid: 1234, groups: vec![77] };
    config.cwd = "/work".to_owned();
    let container_text = place.to_the_end(&pod, config.clone()).await.1;
    let groups = match place.host.abilities().users {
        Users::One => "1234",
        Users::All | Users::Below(_) => "1234 77",
    };
    assert_eq!(container_text, format!("1234\n1234\n{groups}\n/home/app\n1234\n"));

    config.id = "lives".to_owned();
    config.args = vec!["sleep".to_owned(), "600".to_owned()];
    config.log = Some(place.log("lives"));
    let container = pod.start(config).await.unwrap();
    let (code, out, _) = output(&container, exec(&["id", "-u"])).await;
    assert_eq!((code, out.as_str()), (0, "1234\n"), "so do programs beside it");
    pod.stop().await.unwrap();
}

async fn capabilities_are_bounded(place: &Place) {
    let pod = place.pod("powers").await;
    let script = "grep -E 'Cap(Bnd|Eff|Prm)|NoNew' /proc/self/status";
    let mut config = place.container("some", &["sh", "-c", script]);
    config.capabilities = Capabilities::NONE.with("NET_BIND_SERVICE").with("KILL");
    config.no_new_privileges = true;
    let (_, text) = place.to_the_end(&pod, config).await;
    let mask = "0000000000000420";
    assert_eq!(text, format!("CapPrm:\t{mask}\nCapEff:\t{mask}\nCapBnd:\t{mask}\nNoNewPrivs:\t1\n"));

    let mut config = place.container("none", &["sh", "-c", script]);
    config.user = User { uid: 1234, gid: 1234, groups: Vec::new() };
    let (_, text) = place.to_the_end(&pod, config).await;
    let nothing = "0000000000000000";
    assert!(text.starts_with(&format!("CapPrm:\t{nothing}\nCapEff:\t{nothing}\n")), "{text}");
    assert!(text.ends_with("CapBnd:\t00000000a80425fb\nNoNewPrivs:\t0\n"), "{text}");
    pod.stop().await.unwrap();
}

async fn a_device_made_by_a_container_is_none(place: &Place) {
    if !place.host.abilities().root {
        return;
    }
    let pod = place.pod("devices").await;
    let volume = place.directory.join("devices");
    std::fs::create_dir_all(&volume).unwrap();
    let script = "exec 2>&1; for d in / /dev /data; do mknod $d/zero2 c 1 5 && head -c 1 $d/zero2; done; head -c 1 /dev/zero | wc -c";
    let mut config = place.container("c", &["sh", "-c", script]);
    config.mounts = vec![Mount {
        destination: "/data".into(),
        what: MountKind::Bind { source: volume.clone(), read_only: false },
    }];
    let (_, text) = place.to_the_end(&pod, config).await;
    assert_eq!(text.matches("Permission denied").count(), 3, "{text}");
    assert!(text.ends_with("1\n"), "the given ones are: {text}");
    std::fs::remove_dir_all(volume).unwrap();
    pod.stop().await.unwrap();
}

async fn a_device_of_the_machine_is_one_to_a_privileged_container_alone(place: &Place) {
    let pod = place.pod("given").await;
    for (privileged, read_only, opens) in
        [(true, false, true), (true, true, true), (false, false, false), (false, true, false)]
    {
        let id = format!("c-{privileged}-{read_only}");
        let mut config = place.container(&id, &["sh", "-c", "head -c 1 /given | wc -c"]);
        config.privileged = privileged;
        config.mounts = vec![Mount {
            destination: "/given".into(),
            what: MountKind::Bind { source: "/dev/zero".into(), read_only },
        }];
        let (_, text) = place.to_the_end(&pod, config).await;
        assert_eq!(
            (text.ends_with("1\n"), text.contains("Permission denied")),
            (opens, !opens),
            "{id}: {text}"
        );
    }
    pod.stop().await.unwrap();
}
