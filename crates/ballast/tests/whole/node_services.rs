//! Services and ports that lead to pods: from pods, themselves included, and from this machine; as root, and as a
//! plain user.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::machine::own_network;
use crate::support::user::User;
use crate::support::{Cluster, Said, eventually};

const IMAGES: [&str; 1] = ["busybox"];

/// Two that say who they are, who asks them, and ways that lead to them.
const PODS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: busybox
        command: [sh, -c, "mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {tcpSocket: {port: 8080}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: nobody}
spec: {selector: {app: nobody}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: port}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: [{containerPort: 8080, hostPort: 8081}]
    readinessProbe: {tcpSocket: {port: 8080}}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: busybox, command: [sleep, "86400"]}]}
"#;

/// Asks from a pod.
fn ask(cluster: &Cluster, pod: &str, place: &str) -> Said {
    cluster.kubectl(&format!("exec {pod} -- wget -q -O - -T 5 http://{place}/"))
}

/// Who answers how often.
fn answers(times: usize, ask: impl Fn() -> String) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        *counts.entry(ask().trim().to_owned()).or_default() += 1;
    }
    counts
}

/// Asks from this machine.
fn ask_here(address: &str, port: u16) -> String {
    let mut stream = TcpStream::connect((address, port)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split("\r\n\r\n").nth(1).unwrap().to_owned()
}

/// The API has endpoints as any Service has, and is there.
fn the_api_is_where_it_is_told(user: User, cluster: &Cluster, node: &str) {
    let port = cluster.field("service/kubernetes", ".spec.ports[0].targetPort");
    let told = format!("{node}:{port}");
    let path = ".subsets[*]['addresses','ports'][*]['ip','port','name']";
    assert_eq!(cluster.field("endpoints/kubernetes", path), format!("{node} {port} https"));
    let slices = "endpointslices -l kubernetes.io/service-name=kubernetes";
    let row = crate::support::table(&cluster.kubectl(&format!("get {slices} --no-headers")).ok()).remove(0);
    assert_eq!(row[..4], ["kubernetes", "IPv4", &port, node]);
    let described = cluster.kubectl("describe service kubernetes").ok();
    let line = described.lines().find_map(|line| line.strip_prefix("Endpoints:"));
    assert_eq!(line.map(str::trim), Some(&*told), "{described}");
    cluster.kubectl(&format!("exec client -- nc -w 5 {node} {port}")).ok();
    if user == User::Root {
        // By its certificate, too.
        let version = cluster.kubectl(&format!("--server=https://{told} get --raw /version")).ok();
        assert!(version.contains("gitVersion"), "{version}");
    }
}

fn reached(user: User) {
    own_network(&IMAGES);
    let cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(PODS).ok();
    cluster.becomes("deployment/web", ".status.readyReplicas", "2");
    cluster.kubectl("wait --for=condition=Ready pod/client pod/port --timeout=30s").ok();
    let names = cluster.kubectl("get pods -l app=web -o jsonpath={.items[*].metadata.name}").ok();
    let names: Vec<&str> = names.split_whitespace().collect();
    let address = cluster.field("service/web", ".spec.clusterIP");
    let node = cluster.field("pod/client", ".status.hostIP");
    let both: BTreeMap<String, usize> = names.iter().map(|name| ((*name).to_owned(), 3)).collect();

    eventually("the Service leads to both", || {
        let found = answers(4, || ask(&cluster, "client", "web").stdout);
        (found.len() == 2).then_some(())
    });
    assert_eq!(answers(6, || ask(&cluster, "client", "web").ok()), both, "from another pod");
    assert_eq!(
        answers(6, || ask(&cluster, "client", &format!("{node}:30080")).ok()),
        both,
        "by the node's port"
    );
    for name in &names {
        // Half of the time it is itself who answers.
        assert_eq!(answers(6, || ask(&cluster, name, &address).ok()), both, "from {name}");
    }
    assert_eq!(answers(4, || ask(&cluster, "client", "sticky").ok()).len(), 1, "one client, one endpoint");
    let named = ask(&cluster, "client", "headless:8080").ok();
    assert!(names.contains(&named.trim()), "{named}");
    let nobody = ask(&cluster, "client", "nobody").refused();
    assert!(nobody.contains("Connection refused"), "{nobody}");
    let port = format!("{node}:8081");
    assert_eq!(ask(&cluster, "client", &port).ok(), "port\n", "by a port of the node that is the pod's");
    if user == User::Root {
        assert_eq!(ask_here(&node, 8081), "port\n", "from this machine, by a port that is the pod's");
        assert_eq!(answers(6, || ask_here(&address, 80)), both, "from this machine");
        assert_eq!(answers(6, || ask_here(&node, 30080)), both, "from this machine, by the node's port");
    }

    the_api_is_where_it_is_told(user, &cluster, &node);

    cluster.kubectl("delete pod port").ok();
    eventually("the pod's port goes with it", || {
        ask(&cluster, "client", &port).to_string().contains("Connection refused").then_some(())
    });
    cluster.kubectl("scale deployment/web --replicas=0").ok();
    eventually("nobody is left, and that is said at once", || {
        ask(&cluster, "client", "web").to_string().contains("Connection refused").then_some(())
    });
}

#[test]
fn services_are_reached_when_run_by_root() {
    match User::is_me() {
        User::Root => reached(User::Root),
        User::Plain => eprintln!("NOT RUN: this needs root"),
    }
}

#[test]
fn services_are_reached_when_run_by_a_plain_user() {
    reached(User::Plain);
}
