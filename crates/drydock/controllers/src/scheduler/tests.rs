use std::fmt::Write as _;

use serde_json::{Value, json};

use super::*;

/// A cluster in lines, one thing each: `node a cpu=2 memory=4Gi pods=10 zone=x taint=k=v:NoSchedule notready
/// cordoned`, `pod p on=a cpu=500m app=x owner=u`, and the pod that is placed last: `new p …`.
#[track_caller]
fn check(lines: &str, expected: &str) {
    check_with(lines, json!({}), expected);
}

#[track_caller]
fn check_with(lines: &str, spec: Value, expected: &str) {
    check_claims(lines, spec, Storage::default(), expected);
}

#[track_caller]
fn check_claims(lines: &str, spec: Value, storage: Storage, expected: &str) {
    let (mut nodes, mut pods, mut new) = (Vec::new(), Vec::new(), None);
    for line in lines.trim().lines() {
        let mut words = line.split_whitespace();
        let (kind, name) = (words.next().unwrap(), words.next().unwrap());
        let words: Vec<(&str, &str)> = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
        if kind == "node" {
            nodes.push(Arc::new(node(name, &words)));
            continue;
        }
        let spec = if kind == "new" { spec.clone() } else { json!({}) };
        let pod = Arc::new(pod(name, &words, spec));
        if kind == "new" {
            new = Some(pod);
        } else {
            let node = Arc::from(&*pod.spec.node_name);
            pods.push((pod, node));
        }
    }
    let namespaces =
        ["default", "other"].map(|name| (Arc::from(name), [("name", name)].into_iter().collect()));
    let cluster = Cluster::new(nodes, pods, namespaces.into(), storage);
    let shown = match decide(&new.unwrap(), &cluster) {
        Decision::Bind(node) => format!("to {node}"),
        Decision::Prepare(node, steps) => {
            let step = |step: Step| match step {
                Step::Bind(claim, volume) => format!("{} gets {}", claim.metadata.name, volume.metadata.name),
                Step::Provision(claim) => format!("{} is provisioned", claim.metadata.name),
                Step::Wait => "wait".to_owned(),
            };
            let steps: Vec<String> = steps.into_iter().map(step).collect();
            format!("{} on {node}", steps.join(", "))
        }
        Decision::Wait(why) => why,
    };
    assert_eq!(shown, expected, "{lines}");
}

fn node(name: &str, words: &[(&str, &str)]) -> Node {
    let mut labels = json!({ "kubernetes.io/hostname": name });
    let mut node = json!({
        "metadata": { "name": name },
        "spec": { "taints": [] },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
                    "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    for (word, value) in words {
        match *word {
            "cpu" | "memory" | "pods" => node["status"]["allocatable"][word] = (*value).into(),
            "notready" => node["status"]["conditions"][0]["status"] = "False".into(),
            "lost" => node["status"]["conditions"][0]["status"] = "Unknown".into(),
            "cordoned" => node["spec"]["unschedulable"] = true.into(),
            "zone" => labels["topology.kubernetes.io/zone"] = (*value).into(),
            "taint" => {
                let (key, effect) = value.split_once(':').unwrap();
                let taint = json!({ "key": key, "value": "", "effect": effect });
                node["spec"]["taints"].as_array_mut().unwrap().push(taint);
            }
            label => labels[label] = (*value).into(),
        }
    }
    node["metadata"]["labels"] = labels;
    serde_json::from_value(node).unwrap()
}

fn pod(name: &str, words: &[(&str, &str)], mut spec: Value) -> Pod {
    let mut metadata = json!({ "name": name, "namespace": "default", "uid": name, "labels": {} });
    let mut container = json!({ "name": "c", "resources": { "requests": {} }, "ports": [] });
    let mut status = json!({});
    for (word, value) in words {
        match *word {
            "on" => spec["nodeName"] = (*value).into(),
            "in" => metadata["namespace"] = (*value).into(),
            "port" => {
                container["ports"] = json!([{ "hostPort": value.parse::<i32>().unwrap(), "protocol": "TCP" }])
            }
            "cpu" | "memory" => container["resources"]["requests"][word] = (*value).into(),
            "ended" => status["phase"] = "Succeeded".into(),
            "owner" => metadata["ownerReferences"] = json!([{ "uid": value, "controller": true }]),
            "away" => {
                let term = json!({ "labelSelector": { "matchLabels": { "app": value } },
                                   "topologyKey": "kubernetes.io/hostname" });
                spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!([term]);
            }
            label => metadata["labels"][label] = (*value).into(),
        }
    }
    spec["containers"] = json!([container]);
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

/// What follows the reasons when nothing can be done about them.
const HOPELESS: &str = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
const NO_VICTIMS: &str = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";

#[test]
fn without_nodes_a_pod_is_told_that_there_are_none() {
    check("new p", "no nodes available to schedule pods");
}

#[test]
fn what_does_not_fit_is_told_in_kubernetes_words() {
    let told = |why: &str, rest: &str| format!("0/1 nodes are available: {why}. {rest}");
    check("node a cpu=1\nnew p cpu=2", &told("1 Insufficient cpu", HOPELESS));
    check("node a cpu=2\npod x on=a cpu=1500m\nnew p cpu=1", &told("1 Insufficient cpu", NO_VICTIMS));
    check(
        "node a memory=1Mi cpu=1\nnew p cpu=2 memory=1Gi",
        &told("1 Insufficient cpu, 1 Insufficient memory", HOPELESS),
    );
    check("node a pods=1\npod x on=a\nnew p", &told("1 Too many pods", NO_VICTIMS));
    check("node a cordoned\nnew p", &told("1 node(s) were unschedulable", HOPELESS));
    check("node a notready\nnew p", &told("1 node(s) had untolerated taint(s)", HOPELESS));
    check("node a lost\nnew p", &told("1 node(s) had untolerated taint(s)", HOPELESS));
    check("node a taint=k:NoExecute\nnew p", &told("1 node(s) had untolerated taint(s)", HOPELESS));
    check(
        "node a\npod x on=a port=80\nnew p port=80",
        &told("1 node(s) didn't have free ports for the requested pod ports", NO_VICTIMS),
    );
    check(
        "node a\npod x on=a app=m\nnew p app=m away=m",
        &told("1 node(s) didn't match pod anti-affinity rules", NO_VICTIMS),
    );
    check(
        "node a\npod x on=a away=m\nnew p app=m",
        &told("1 node(s) didn't satisfy existing pods anti-affinity rules", NO_VICTIMS),
    );
}

#[test]
fn several_nodes_are_counted_by_reason() {
    check(
        "node a cpu=1\nnode b cordoned\nnode c cpu=3\npod x on=c cpu=2\nnew p cpu=2",
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, \
         2 Preemption is not helpful for scheduling.",
    );
}

#[test]
fn pods_that_ended_take_nothing() {
    check("node a cpu=1\npod x on=a cpu=1 ended\nnew p cpu=1", "to a");
}

#[test]
fn the_emptier_node_is_better_and_siblings_are_spread() {
    check("node a\nnode b\npod x on=a cpu=2\nnew p", "to b");
    check("node a\nnode b\npod x on=a owner=s\npod y on=b cpu=1\nnew p owner=s", "to b");
    let mut lines = String::from("node a\nnode b\nnode c\n");
    for (at, expected) in ["to a", "to b", "to c", "to a"].iter().enumerate() {
        check(&format!("{lines}new p{at} owner=s"), expected);
        writeln!(lines, "pod p{at} on={} owner=s", &expected[3..]).unwrap();
    }
}

#[test]
fn tolerations_selectors_and_affinity_choose() {
    let two = "node a taint=k:NoSchedule disk=ssd size=3\nnode b disk=hdd size=9\nnew p";
    check(two, "to b");
    let spec =
        json!({ "tolerations": [{ "key": "k", "operator": "Exists" }], "nodeSelector": { "disk": "ssd" } });
    check_with(two, spec, "to a");
    let affinity = |required: Value| {
        json!({ "tolerations": [{ "operator": "Exists" }], "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": required } } } })
    };
    let term = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
    check_with(two, affinity(json!([term("size", "Lt", &["5"])])), "to a");
    check_with(two, affinity(json!([term("disk", "NotIn", &["ssd"])])), "to b");
    check_with(two, affinity(json!([term("disk", "In", &["x"]), term("size", "Gt", &["8"])])), "to b");
    let by_name = json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] }]);
    check_with(two, affinity(by_name), "to a");
    check_with(
        "node a\nnew p",
        affinity(json!([{}])),
        &format!("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. {HOPELESS}"),
    );
    let preferred = json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 5, "preference": term("disk", "In", &["ssd"]) }] } } });
    check_with("node a\nnode b disk=ssd\nnew p", preferred, "to b");
    check("node a taint=k:PreferNoSchedule\nnode b\nnew p", "to b");
}

#[test]
fn pods_go_where_others_are_or_are_not() {
    let nodes = "node a zone=x\nnode b zone=x\nnode c zone=y";
    let term = |key: &str| json!({ "labelSelector": { "matchLabels": { "app": "m" } }, "topologyKey": key });
    let required = |kind: &str, term: Value| json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } });
    let zone = "topology.kubernetes.io/zone";
    let with = format!("{nodes}\npod x on=a app=m cpu=1\nnew p");
    check_with(&with, required("podAffinity", term("kubernetes.io/hostname")), "to a");
    check_with(&with, required("podAffinity", term(zone)), "to b");
    check_with(&with, required("podAntiAffinity", term(zone)), "to c");
    let mut elsewhere = term(zone);
    elsewhere["namespaceSelector"] = json!({ "matchLabels": { "name": "other" } });
    check_with(&with, required("podAntiAffinity", elsewhere.clone()), "to b");
    let others = format!("{nodes}\npod x on=c app=m in=other cpu=1\nnew p");
    check_with(&others, required("podAffinity", elsewhere), "to c");
    // The first of a group may go anywhere, a pod that waits for another may not.
    check_with("node a zone=x\nnew p app=m", required("podAffinity", term(zone)), "to a");
    check_with(
        "node a zone=x\nnew p",
        required("podAffinity", term(zone)),
        &format!("0/1 nodes are available: 1 node(s) didn't match pod affinity rules. {HOPELESS}"),
    );
    let preferred = json!({ "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 100, "podAffinityTerm": term("kubernetes.io/hostname") }] } } });
    check_with("node a\nnode b\npod x on=a app=m\npod y on=b cpu=1\nnew p", preferred, "to b");
}

#[test]
fn spread_constraints_hold() {
    let constraint = |when: &str| {
        json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": when, "labelSelector": { "matchLabels": { "app": "m" } } }] })
    };
    let lines = "node a zone=x\nnode b zone=y\npod x on=a app=m\npod y on=b cpu=2\nnew p app=m";
    check_with(lines, constraint("DoNotSchedule"), "to b");
    check_with(lines, constraint("ScheduleAnyway"), "to b");
    check_with(
        "node a zone=x\nnode b zone=y cordoned\npod x on=a app=m\nnew p app=m",
        constraint("DoNotSchedule"),
        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) were \
         unschedulable. no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims \
         found for incoming pod, 1 Preemption is not helpful for scheduling.",
    );
}

/// A claim `c`, a class `later` that waits and `by-hand` that nobody serves, and volumes.
fn storage(claim: Value, volumes: Vec<Value>) -> Storage {
    let mut object = json!({
        "metadata": { "name": "c", "namespace": "default", "uid": "c", "annotations": {} },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Pending" },
    });
    for (field, value) in claim.as_object().unwrap() {
        let place = match field.as_str() {
            "phase" => &mut object["status"],
            field if field.contains('/') => &mut object["metadata"]["annotations"],
            "deletionTimestamp" => &mut object["metadata"],
            _ => &mut object["spec"],
        };
        place[field] = value.clone();
    }
    let claim: Arc<Claim> = Arc::new(serde_json::from_value(object).unwrap());
    let class = |name: &str, provisioner: &str| -> Arc<Class> {
        let class = json!({
            "metadata": { "name": name }, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        });
        Arc::new(serde_json::from_value(class).unwrap())
    };
    let classes = [class("later", "x.io/disk"), class("by-hand", "kubernetes.io/no-provisioner")];
    Storage {
        claims: [(claim.metadata.key(), claim)].into(),
        volumes: volumes.into_iter().map(|one| Arc::new(serde_json::from_value(one).unwrap())).collect(),
        classes: classes.map(|class| (class.metadata.name.clone(), class)).into(),
    }
}

fn volume_on(node: &str) -> Value {
    let term = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] });
    json!({
        "metadata": { "name": "v" },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "nodeAffinity": { "required": { "nodeSelectorTerms": [term] } },
        },
        "status": { "phase": "Available" },
    })
}

#[test]
fn a_pod_goes_where_its_claims_can_be() {
    let spec = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] });
    let check = |claim: Value, volumes: Vec<Value>, expected: &str| {
        check_claims("node a\nnode b\nnew p", spec.clone(), storage(claim, volumes), expected);
    };
    let mut bound = json!({ "volumeName": "v", "pv.kubernetes.io/bind-completed": "yes" });
    check(bound.clone(), vec![volume_on("b")], "wait on b");
    bound["phase"] = json!("Bound");
    check(bound.clone(), vec![volume_on("b")], "to b");
    let told = |why: &str| {
        let rest = "no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
        format!("0/2 nodes are available: 2 {why}. {rest}")
    };
    check(
        bound.clone(),
        vec![volume_on("gone")],
        &told("node(s) didn't match PersistentVolume's node affinity"),
    );
    let missing = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    check(bound, Vec::new(), &told(missing));
    check(json!({ "storageClassName": "later" }), Vec::new(), "c is provisioned on a");
    let selected = json!({ "storageClassName": "later", "volume.kubernetes.io/selected-node": "b" });
    check(selected, Vec::new(), "wait on b");
    check(json!({ "storageClassName": "by-hand" }), vec![volume_on("b")], "c gets v on b");
    let none = "node(s) didn't find available persistent volumes to bind";
    check(json!({ "storageClassName": "by-hand" }), Vec::new(), &told(none));
}

#[test]
fn a_pod_whose_claims_are_not_ready_waits_for_them() {
    let spec = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] });
    let check = |spec: &Value, claim: Value, why: &str| {
        let expected = format!("0/1 nodes are available: {why}. not found");
        check_claims("node a\nnew p", spec.clone(), storage(claim, Vec::new()), &expected);
    };
    check(&spec, json!({}), "pod has unbound immediate PersistentVolumeClaims");
    let named = json!({ "storageClassName": "later", "volumeName": "v" });
    check(&spec, named, "pod has unbound immediate PersistentVolumeClaims");
    let lost = json!({ "volumeName": "v", "phase": "Lost" });
    check(&spec, lost, "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"");
    let going = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
    check(&spec, going, "persistentvolumeclaim \"c\" is being deleted");
    let other = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "d" } }] });
    check(&other, json!({}), "persistentvolumeclaim \"d\" not found");
    let own = json!({ "volumes": [{ "name": "v", "ephemeral": {} }] });
    let waits = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"";
    check(&own, json!({}), waits);
}

#[test]
fn a_claim_for_one_pod_is_not_for_another() {
    let spec = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] });
    let alone = json!({ "storageClassName": "later", "accessModes": ["ReadWriteOncePod"] });
    check_claims("node a\nnew p", spec.clone(), storage(alone.clone(), Vec::new()), "c is provisioned on a");
    let mut user = pod("user", &[("on", "a")], spec.clone());
    user.metadata.namespace = "default".into();
    let node = Arc::new(node("a", &[]));
    let cluster = Cluster::new(
        vec![node],
        [(Arc::new(user), "a".into())],
        Default::default(),
        storage(alone, Vec::new()),
    );
    let Decision::Wait(why) = decide(&pod("p", &[], spec), &cluster) else { panic!("it goes somewhere") };
    let in_use = "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    assert_eq!(why, format!("0/1 nodes are available: {in_use}. {NO_VICTIMS}"));
}
