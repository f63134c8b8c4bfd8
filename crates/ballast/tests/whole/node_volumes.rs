//! Volumes over the ends and beginnings of a cluster, by the real kubectl: as root, and as a plain user.

use crate::support::machine::{self, Traces, family, kill, kill_all, node_of, own_network};
use crate::support::user::User;
use crate::support::{Cluster, eventually};

const IMAGES: [&str; 1] = ["busybox"];

/// Two pods, each with a volume of the default class and one of a hard size. Each life writes a line to both.
const SET: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      securityContext: {fsGroup: 2000}
      containers:
      - name: main
        image: busybox
        command: [sh, -c, "trap 'exit 0' TERM; echo $HOSTNAME | tee -a /data/lives >> /full/lives; while true; do sleep 0.05; done"]
        volumeMounts: [{name: data, mountPath: /data}, {name: full, mountPath: /full}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
  - metadata: {name: full}
    spec: {accessModes: [ReadWriteOncePod], storageClassName: hard-size, resources: {requests: {storage: 1Mi}}}
"#;

fn exec(cluster: &Cluster, pod: &str, text: &str) -> crate::support::Said {
    cluster.kubectl_with(&["exec", pod, "--", "sh", "-c", text], "")
}

/// Waits until both pods say that they have lived so often, in both volumes.
fn lived(cluster: &Cluster, times: usize) {
    for pod in ["db-0", "db-1"] {
        let expected = format!("{pod}\n").repeat(2 * times);
        eventually(&format!("{pod} has lived {times} times"), || {
            (exec(cluster, pod, "cat /data/lives /full/lives").stdout == expected).then_some(())
        });
    }
}

fn kept(user: User) {
    let directory = user.directory();
    let _ended = machine::Ended(directory.path());
    let flags = ["--no-operators", "--data-dir", directory.path().to_str().unwrap()];
    let mut cluster = user.up(&flags);
    cluster.apply(SET).ok();
    lived(&cluster, 1);
    let claims = cluster
        .kubectl("get pvc -o custom-columns=N:.metadata.name,P:.status.phase,C:.spec.storageClassName")
        .ok();
    for (claim, class) in [("data-db-0", "standard"), ("full-db-1", "hard-size")] {
        let row = claims.lines().find(|line| line.starts_with(claim)).unwrap();
        assert!(row.contains("Bound") && row.ends_with(class), "{claims}");
    }
    let full = exec(&cluster, "db-0", "dd if=/dev/zero of=/full/fill bs=64k count=100").refused();
    assert!(full.contains("No space left on device"), "{full}");
    exec(&cluster, "db-0", "dd if=/dev/zero of=/data/fill bs=64k count=100; rm /full/fill /data/fill").ok();

    // What there is not can't be had by growing either.
    let grow = r#"{"spec":{"resources":{"requests":{"storage":"1Ei"}}}}"#;
    for claim in ["data-db-0", "full-db-0"] {
        cluster.kubectl_with(&["patch", "pvc", claim, "-p", grow], "").ok();
        let said = cluster.says(
            &format!("get events --field-selector involvedObject.name={claim},reason=VolumeResizeFailed"),
            "1152921504606846976 bytes are more than ",
        );
        assert!(!said.contains("succeeded"), "{said}");
    }
    assert_eq!(cluster.field("pvc/data-db-0", ".status.capacity.storage"), "10Mi");

    // A pod goes, and its volumes stay.
    for pod in ["db-0", "db-1"] {
        cluster.replace_pod(pod);
    }
    lived(&cluster, 2);

    // Node and API server are killed: the pods are adopted.
    let (up, node) = (cluster.up.id(), node_of(&cluster.up));
    kill(up);
    kill(node);
    cluster.up.end();
    cluster = user.up(&flags);
    lived(&cluster, 2);
    // A file may be larger than the volume, where it has nothing.
    exec(&cluster, "db-1", "echo more >> /full/more; truncate -s 5M /full/sparse").ok();

    // A stop in order.
    let traces = Traces::of(&cluster, user);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    traces.are_gone();
    cluster = user.up(&flags);
    lived(&cluster, 3);
    let kept = exec(&cluster, "db-1", "cat /full/more; ls -A /full; stat -c %s /full/sparse").ok();
    assert_eq!(kept, "more\nlives\nmore\nsparse\n5242880\n");

    // As a machine that loses its power: what was in memory is gone, and nobody says otherwise.
    let all = family(cluster.up.id()).into_iter().chain(machine::of_directory(directory.path()));
    kill_all(all.map(|(pid, _)| pid));
    cluster.up.end();
    cluster = user.up(&flags);
    cluster.says("get events", "what it held was in the node's memory, and is gone");
    cluster.kubectl("delete sts db --cascade=foreground").ok();
    cluster.kubectl("delete pvc full-db-0 full-db-1").ok();
    cluster.apply(SET).ok();
    for pod in ["db-0", "db-1"] {
        eventually("what was on disk is there, and what was in memory begins anew", || {
            let said = exec(&cluster, pod, "wc -l < /data/lives; wc -l < /full/lives").stdout;
            (said == "4\n1\n").then_some(())
        });
    }

    // What is not needed any more leaves nothing.
    cluster.kubectl("delete sts db --cascade=foreground").ok();
    cluster.kubectl("delete pvc --all").ok();
    eventually("no volume is left", || cluster.kubectl("get pv -o name").ok().is_empty().then_some(()));
    let left = std::fs::read_dir(directory.path().join("node/files/volumes")).unwrap().count();
    assert_eq!(left, 0);
    let traces = Traces::of(&cluster, user);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    traces.are_gone();
}

#[test]
fn volumes_outlive_pods_nodes_and_clusters_and_what_is_lost_is_said() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(kept);
}
