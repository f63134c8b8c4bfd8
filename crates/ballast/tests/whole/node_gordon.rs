//! The third seed's section with real processes, by the real kubectl: as root, and as a plain user.

use std::io::{Read as _, Write as _};

use crate::support::forward::Forward;
use crate::support::machine::{Traces, kill, own_network, programs};
use crate::support::user::User;
use crate::support::{Cluster, eventually};

const SAMPLE: &str = "examples/seeds/gordon.yaml";
const IMAGES: [&str; 1] = ["prgcont/gordon:v1.0"];

/// Waits until that many are ready, by the Gordon and by its pods, and run; gives their processes.
#[track_caller]
fn settles(cluster: &Cluster, count: usize) -> Vec<u32> {
    let ready = "{range .items[*]}{.metadata.name}={.status.conditions[?(@.type==\"Ready\")].status} {end}";
    eventually(&format!("{count} gordons serve"), || {
        let running = programs(&cluster.up, "/gordon gordon-server");
        let pods = cluster.kubectl_with(&["get", "pods", "-o", &format!("jsonpath={ready}")], "").stdout;
        let all = pods.split_whitespace().filter(|pod| pod.starts_with("gordon-")).collect::<Vec<_>>();
        let serve = all.len() == count && all.iter().all(|pod| pod.ends_with("=True"));
        let said = cluster.field("gn/gordoncluster", ".status.conditions[?(@.type==\"Ready\")].status");
        let named = cluster.field("gn/gordoncluster", ".status.pods[*]").split_whitespace().count();
        (serve && running.len() == count && said == "True" && named == count).then_some(running)
    })
}

/// What a gordon says to a browser.
fn says(cluster: &Cluster, pod: &str) -> String {
    let forward = Forward::to(cluster, &format!("pod/{pod}"), "8080");
    let mut stream = forward.connect();
    stream.write_all(b"GET /kitchen HTTP/1.1\r\nHost: gordon\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn section(user: User) {
    let mut cluster = user.up(&["--memory"]);
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    settles(&cluster, 3);
    for pod in cluster.field("gn/gordoncluster", ".status.pods[*]").split_whitespace() {
        let answer = says(&cluster, pod);
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains(pod), "{pod}: {answer}");
    }

    cluster.kubectl("scale gn gordoncluster --replicas=5").ok();
    settles(&cluster, 5);
    cluster.kubectl("scale gn gordoncluster --replicas=2").ok();
    let two = settles(&cluster, 2);
    kill(two[0]);
    eventually("another serves in its place", || (!settles(&cluster, 2).contains(&two[0])).then_some(()));
    let first = cluster.kubectl("get pods -o jsonpath={.items[0].metadata.name}").ok();
    let uid = cluster.field(&format!("pod/{first}"), ".metadata.uid");
    cluster.kubectl(&format!("delete pod {first} --wait=false")).ok();
    eventually("another pod is in its place", || {
        settles(&cluster, 2);
        let uids = cluster.kubectl("get pods -o jsonpath={.items[*].metadata.uid}").ok();
        (!uids.contains(&uid)).then_some(())
    });

    cluster.kubectl(&format!("delete -f {SAMPLE} --timeout=20s")).ok();
    eventually("none runs any more", || {
        programs(&cluster.up, "/gordon gordon-server").is_empty().then_some(())
    });
    let traces = Traces::of(&cluster, user);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end(), (0, String::new()), "{}", cluster.up.complaints());
    traces.are_gone();
}

#[test]
fn gordons_serve_and_their_number_is_kept_whatever_ends_them() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(section);
}
