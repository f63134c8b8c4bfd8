use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

/// Pods as text, one per line: name, node, phase, ready since, then `key=value` extras.
fn pods(text: &str) -> Vec<Arc<Pod>> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let mut pod = Pod::default();
        let name = words.next().unwrap();
        pod.metadata.name = name.into();
        pod.metadata.uid = name.into();
        pod.metadata.creation_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
        for word in words {
            let (key, value) = word.split_once('=').unwrap();
            match key {
                "node" => pod.spec.node_name = value.into(),
                "phase" => pod.status.phase = serde_json::from_value(value.into()).unwrap(),
                "ready" => {
                    let since = Some(format!("2026-01-01T{value}Z").parse().unwrap());
                    pod.status.ready = Some(crate::objects::pod::Ready { is: true, since });
                }
                "created" => {
                    pod.metadata.creation_timestamp = Some(format!("2026-01-01T{value}Z").parse().unwrap());
                }
                "cost" => {
                    pod.metadata.annotations.set("controller.kubernetes.io/pod-deletion-cost", value);
                }
                "restarts" => pod.status.restarts = value.parse().unwrap(),
                "label" => {
                    pod.metadata.labels.set("app", value);
                }
                other => panic!("{other}"),
            }
        }
        Arc::new(pod)
    };
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(read).collect()
}

fn set(replicas: i32) -> ReplicaSet {
    let text = format!(
        r#"{{"metadata":{{"name":"web-1","namespace":"n","uid":"u","generation":3}},
            "spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"web"}}}},
            "template":{{"metadata":{{"labels":{{"app":"web"}},"creationTimestamp":null}},"spec":{{"containers":[{{"name":"c"}}]}}}}}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn view<'a>(set: &'a ReplicaSet, active: &'a [Arc<Pod>], crowds: &'a HashMap<Box<str>, usize>) -> View<'a> {
    View { set, active, crowds, now: NOW.parse().unwrap() }
}

/// The pods as given, and the order in which they would be given up.
#[track_caller]
fn check(text: &str, order: &str) {
    let active = pods(text);
    let mut crowds = HashMap::new();
    for pod in &active {
        *crowds.entry(pod.spec.node_name.clone()).or_default() += 1;
    }
    let set = set(0);
    let Plan::Delete(given_up) = plan(&view(&set, &active, &crowds)) else { panic!("nothing is deleted") };
    let names: Vec<_> = given_up.iter().map(|pod| &*pod.metadata.name).collect();
    assert_eq!(names.join(" "), order);
}

#[test]
fn pods_without_a_node_then_pending_then_unready_ones_are_given_up_first() {
    check(
        "ready node=a phase=Running ready=00:30:00
         unready node=b phase=Running
         unknown node=c phase=Unknown
         pending node=d
         unassigned",
        "unassigned pending unknown unready ready",
    );
}

#[test]
fn cheap_pods_on_crowded_nodes_that_are_ready_for_a_short_time_are_given_up_first() {
    check(
        "dear node=a phase=Running ready=00:30:00 cost=5
         old node=b phase=Running ready=00:00:00
         crowded-1 node=c phase=Running ready=00:00:00
         crowded-2 node=c phase=Running ready=00:59:00
         cheap node=d phase=Running ready=00:00:00 cost=-1",
        "cheap crowded-2 crowded-1 old dear",
    );
}

#[test]
fn pods_that_restart_often_and_young_ones_are_given_up_first() {
    check(
        "old node=a phase=Running
         restarts node=b phase=Running restarts=3
         young node=c phase=Running created=00:59:59",
        "restarts young old",
    );
}

#[test]
fn pods_of_the_same_order_of_age_go_by_uid() {
    check(
        "b node=a phase=Running ready=00:10:00
         a node=b phase=Running ready=00:12:00",
        "a b",
    );
}

#[test]
fn what_is_missing_is_created_and_no_more_than_a_burst() {
    let none = HashMap::new();
    let two = pods("a\nb");
    assert!(matches!(plan(&view(&set(5), &two, &none)), Plan::Create(3)));
    assert!(matches!(plan(&view(&set(2), &two, &none)), Plan::Leave));
    assert!(matches!(plan(&view(&set(5000), &two, &none)), Plan::Create(500)));
}

#[test]
fn a_set_that_is_being_deleted_creates_and_deletes_nothing() {
    let mut set = set(5);
    set.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
    assert!(matches!(plan(&view(&set, &[], &HashMap::new())), Plan::Leave));
}

#[test]
fn the_status_counts_labels_readiness_and_availability() {
    let mut set = set(4);
    set.spec.min_ready_seconds = 60;
    let active = pods(
        "a node=a phase=Running ready=00:30:00 label=web
         b node=a phase=Running ready=00:59:50 label=web
         c node=a phase=Running label=web
         d node=a phase=Running label=other",
    );
    let none = HashMap::new();
    let (status, soon) = status(&view(&set, &active, &none), None);
    assert_eq!(
        serde_json::to_string(&status).unwrap(),
        r#"{"replicas":4,"fullyLabeledReplicas":3,"readyReplicas":2,"availableReplicas":1,"observedGeneration":3}"#
    );
    assert_eq!(soon, Some(Duration::from_secs(50)));
}

#[test]
fn a_failure_is_a_condition_until_it_is_over() {
    let mut set = set(1);
    let none = HashMap::new();
    let (failing, _) = status(&view(&set, &[], &none), Some(("FailedCreate", "quota".into())));
    assert_eq!(
        serde_json::to_string(&failing.conditions).unwrap(),
        r#"[{"type":"ReplicaFailure","status":"True","lastTransitionTime":"2026-01-01T01:00:00Z","reason":"FailedCreate","message":"quota"}]"#
    );
    set.status = failing;
    let (over, _) = status(&view(&set, &pods("a"), &none), None);
    assert_eq!(over.conditions, []);
}

#[test]
fn a_pod_is_the_template_with_an_owner_and_a_name_to_be_made() {
    let body = String::from_utf8(pod_body(&set(1)).unwrap()).unwrap();
    assert_eq!(
        body,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-1-","labels":{"app":"web"},"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-1","uid":"u"}]},"spec":{"containers":[{"name":"c"}]}}"#
    );
}
