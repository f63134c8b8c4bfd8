//! Deletion in all its forms.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn with_finalizer(cluster: &Cluster, name: &str) -> Value {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    cluster.must(&format!("POST {MAPS}"), body).await
}

#[tokio::test]
async fn an_object_with_a_finalizer_waits_until_it_is_taken_off() {
    let cluster = Cluster::new().await;
    with_finalizer(&cluster, "a").await;
    let deleted = cluster.must(&format!("DELETE {MAPS}/a"), Value::Null).await;
    assert_eq!(deleted["kind"], "ConfigMap");
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    let again = cluster.must(&format!("DELETE {MAPS}/a"), Value::Null).await;
    assert_eq!(again, deleted);
    cluster
        .check(
            &format!("POST {MAPS}"),
            &config_map("a", json!({})),
            r#"409 AlreadyExists: object is being deleted: configmaps "a" already exists"#,
        )
        .await;
    let mut watch = cluster
        .watch(&format!(
            "{MAPS}?watch=1&resourceVersion={}",
            deleted["metadata"]["resourceVersion"].as_str().unwrap()
        ))
        .await;
    cluster
        .check(&format!("PATCH {MAPS}/a"), r#"{"metadata":{"finalizers":null}}"#, "200 ConfigMap default/a")
        .await;
    assert_eq!(watch.line().await, "DELETED ConfigMap default/a");
    cluster.check(&format!("GET {MAPS}/a"), "", r#"404 NotFound: configmaps "a" not found"#).await;
}

#[tokio::test]
async fn preconditions_are_held() {
    let cluster = Cluster::new().await;
    let object = cluster
        .must(&format!("POST {MAPS}"), serde_json::from_str(&config_map("a", json!({}))).unwrap())
        .await;
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let delete = format!("DELETE {MAPS}/a");
    cluster.check(&delete, r#"{"preconditions":{"uid":"x"}}"#, &format!(r#"409 Conflict: Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (x) does not match the UID in record ({uid}). The object might have been deleted and then recreated"#)).await;
    cluster.check(&delete, r#"{"preconditions":{"resourceVersion":"1"}}"#, &format!(r#"409 Conflict: Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({version}). The object might have been modified"#)).await;
    cluster.check(&delete, r#"{"propagationPolicy":"Nope"}"#, r#"422 Invalid: DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Nope": supported values: "Foreground", "Background", "Orphan", "nil""#).await;
    let body = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
    cluster.check(&delete, &body.to_string(), "200 Success a").await;
}

#[tokio::test]
async fn the_garbage_collector_is_told_what_to_do_with_dependents() {
    let cluster = Cluster::new().await;
    for (policy, finalizers) in [("Foreground", json!(["foregroundDeletion"])), ("Orphan", json!(["orphan"]))]
    {
        let name = policy.to_lowercase();
        cluster
            .must(&format!("POST {MAPS}"), serde_json::from_str(&config_map(&name, json!({}))).unwrap())
            .await;
        let waits =
            cluster.must(&format!("DELETE {MAPS}/{name}?propagationPolicy={policy}"), Value::Null).await;
        assert_eq!(waits["metadata"]["finalizers"], finalizers);
        assert!(waits["metadata"]["deletionTimestamp"].is_string());
    }
    cluster.must(&format!("POST {MAPS}"), serde_json::from_str(&config_map("b", json!({}))).unwrap()).await;
    cluster
        .check(&format!("DELETE {MAPS}/b"), r#"{"propagationPolicy":"Background"}"#, "200 Success b")
        .await;
}

#[tokio::test]
async fn a_job_leaves_its_pods_behind_unless_the_delete_or_a_finalizer_says_otherwise() {
    const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
    const TOLD: &str = r#"299 - "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning""#;
    let cluster = Cluster::new().await;
    for (held, query, expected, told) in [
        ("", "", "orphan", true),
        ("example.com/hold", "", "example.com/hold orphan", true),
        ("foregroundDeletion", "", "foregroundDeletion", true),
        ("orphan", "", "orphan", true),
        ("", "?propagationPolicy=Orphan", "orphan", false),
        ("example.com/hold", "?propagationPolicy=Background", "example.com/hold", false),
        ("example.com/hold", "?orphanDependents=false", "example.com/hold", false),
    ] {
        for path in [format!("{JOBS}/j{query}"), format!("{JOBS}{query}")] {
            let finalizers: Vec<&str> = held.split_whitespace().collect();
            let job = json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "j", "finalizers": finalizers},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
            cluster.must(&format!("POST {JOBS}"), job).await;
            let answer = cluster.send(&format!("DELETE {path}"), "").await;
            let warnings: Vec<_> =
                answer.headers().get_all("warning").iter().map(|text| text.to_str().unwrap()).collect();
            assert_eq!(warnings, if told { vec![TOLD] } else { vec![] }, "{held:?} {path}");
            let waits = cluster.get(&format!("{JOBS}/j")).await;
            let expected: Vec<&str> = expected.split_whitespace().collect();
            assert_eq!(waits["metadata"]["finalizers"], json!(expected), "{held:?} {path}");
            cluster.must(&format!("PATCH {JOBS}/j"), json!({"metadata": {"finalizers": null}})).await;
        }
    }
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let cluster = Cluster::new().await;
    cluster.must(&format!("POST {MAPS}"), serde_json::from_str(&config_map("a", json!({}))).unwrap()).await;
    cluster.check(&format!("DELETE {MAPS}/a?dryRun=All"), "", "200 Success a").await;
    cluster.check(&format!("DELETE {MAPS}/a"), r#"{"dryRun":["All"]}"#, "200 Success a").await;
    cluster.check(&format!("GET {MAPS}/a"), "", "200 ConfigMap default/a").await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let cluster = Cluster::new().await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": app}}});
        cluster.must(&format!("POST {MAPS}"), body).await;
    }
    cluster.check(&format!("DELETE {MAPS}?labelSelector=app%3Dx"), "", "200 ConfigMapList [a c]").await;
    cluster.check(&format!("GET {MAPS}"), "", "200 ConfigMapList [b]").await;
    cluster
        .check(
            "DELETE /api/v1/configmaps",
            "",
            "405 MethodNotAllowed: the server does not allow this method on the requested resource",
        )
        .await;
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}})
}

async fn service_account(cluster: &Cluster) {
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    cluster.must("POST /api/v1/namespaces/default/serviceaccounts", body).await;
}

#[tokio::test]
async fn a_scheduled_pod_waits_for_its_node_and_others_go_at_once() {
    let cluster = Cluster::new().await;
    service_account(&cluster).await;
    cluster.must(&format!("POST {PODS}"), pod("free")).await;
    cluster.check(&format!("DELETE {PODS}/free"), "", "200 Pod default/free").await;
    cluster.check(&format!("GET {PODS}/free"), "", r#"404 NotFound: pods "free" not found"#).await;

    cluster.must(&format!("POST {PODS}"), pod("bound")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}});
    cluster.must(&format!("POST {PODS}/bound/binding"), binding.clone()).await;
    cluster
        .check(
            &format!("POST {PODS}/bound/binding"),
            &binding.to_string(),
            r#"409 Conflict: Operation cannot be fulfilled on pods/binding "bound": pod bound is already assigned to node "n1""#,
        )
        .await;
    let waits = cluster.must(&format!("DELETE {PODS}/bound"), Value::Null).await;
    assert_eq!(waits["metadata"]["deletionGracePeriodSeconds"], 30);
    let shorter = cluster.must(&format!("DELETE {PODS}/bound?gracePeriodSeconds=5"), Value::Null).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    cluster.check(&format!("DELETE {PODS}/bound?gracePeriodSeconds=0"), "", "200 Pod default/bound").await;
    cluster.check(&format!("GET {PODS}/bound"), "", r#"404 NotFound: pods "bound" not found"#).await;
}

#[tokio::test]
async fn a_grace_period_beyond_all_time_ends_with_it_and_can_be_shortened() {
    let cluster = Cluster::new().await;
    service_account(&cluster).await;
    let deleted = async |name: &str, seconds: i64| {
        let line = format!("DELETE {PODS}/{name}?gracePeriodSeconds={seconds}");
        let metadata = cluster.must(&line, Value::Null).await["metadata"].take();
        let at: Timestamp = metadata["deletionTimestamp"].as_str().unwrap().parse().unwrap();
        (metadata["deletionGracePeriodSeconds"].as_i64().unwrap(), at)
    };
    for (name, seconds) in [("long", 1_000_000_000_000), ("longest", i64::MAX)] {
        cluster.must(&format!("POST {PODS}"), pod(name)).await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
        cluster.must(&format!("POST {PODS}/{name}/binding"), binding).await;
        let (given, at) = deleted(name, seconds).await;
        assert_eq!((given, at.as_second()), (seconds, Timestamp::MAX.as_second()));
        let (given, at) = deleted(name, seconds - 1).await;
        assert_eq!((given, at.as_second()), (seconds - 1, Timestamp::MAX.as_second()));
        let asked = Timestamp::now().as_second();
        let (given, at) = deleted(name, 600).await;
        assert_eq!(given, 600);
        assert!((asked + 600..asked + 660).contains(&at.as_second()), "{at}");
    }
}

#[tokio::test]
async fn a_namespace_ends_when_its_content_is_gone() {
    let cluster = Cluster::new().await;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    let made = cluster.must("POST /api/v1/namespaces", body).await;
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "x");
    let ending = cluster.must("DELETE /api/v1/namespaces/x", Value::Null).await;
    assert_eq!(ending["status"]["phase"], "Terminating");
    cluster
        .check(
            "POST /api/v1/namespaces/x/configmaps",
            &config_map("a", json!({})),
            r#"403 Forbidden: configmaps "a" is forbidden: unable to create new content in namespace x because it is being terminated"#,
        )
        .await;
    let mut finalized = cluster.get("/api/v1/namespaces/x").await;
    finalized["spec"]["finalizers"] = json!([]);
    cluster.must("PUT /api/v1/namespaces/x/finalize", finalized).await;
    cluster.check("GET /api/v1/namespaces/x", "", r#"404 NotFound: namespaces "x" not found"#).await;
    cluster
        .check(
            "DELETE /api/v1/namespaces/default",
            "",
            r#"403 Forbidden: namespaces "default" is forbidden: this namespace may not be deleted"#,
        )
        .await;
}

#[tokio::test]
async fn an_eviction_asks_the_budget() {
    let cluster = Cluster::new().await;
    service_account(&cluster).await;
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({"app": "x"});
    cluster.must(&format!("POST {PODS}"), body).await;
    let ready =
        |is: &str| json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": is}]}});
    cluster.must(&format!("PATCH {PODS}/a/status"), ready("True")).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    cluster.must(&format!("POST {budgets}"), budget).await;
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1, "expectedPods": 1}});
    cluster.must(&format!("PATCH {budgets}/b/status"), status).await;
    let evict = format!("POST {PODS}/a/eviction");
    let eviction = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}"#;
    let (code, refused) = cluster.ask(&evict, eviction).await;
    assert_eq!(code, 429);
    assert_eq!(refused["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    cluster.must(&format!("PATCH {budgets}/b/status"), json!({"status": {"disruptionsAllowed": 1}})).await;
    cluster.check(&evict, eviction, "201 Success ").await;
    assert_eq!(cluster.get(&format!("{budgets}/b")).await["status"]["disruptionsAllowed"], 0);
    cluster.check(&format!("GET {PODS}/a"), "", r#"404 NotFound: pods "a" not found"#).await;
}

#[tokio::test]
async fn an_eviction_of_what_does_not_serve_costs_nothing_and_is_said_in_the_pod() {
    let cluster = Cluster::new().await;
    service_account(&cluster).await;
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({"app": "x"});
    body["metadata"]["finalizers"] = json!(["example.com/held"]);
    cluster.must(&format!("POST {PODS}"), body).await;
    let unready =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.must(&format!("PATCH {PODS}/a/status"), unready).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    cluster.must(&format!("POST {budgets}"), budget).await;
    let counts = |healthy: i64| json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": healthy, "expectedPods": 2}});
    let evict = format!("POST {PODS}/a/eviction");
    let eviction = r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}"#;
    // The others are too few already.
    cluster.must(&format!("PATCH {budgets}/b/status"), counts(0)).await;
    let (code, _) = cluster.ask(&evict, eviction).await;
    assert_eq!(code, 429);
    cluster.must(&format!("PATCH {budgets}/b/status"), counts(1)).await;
    cluster.check(&evict, eviction, "201 Success ").await;
    let evicted = cluster.get(&format!("{PODS}/a")).await;
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    let conditions = evicted["status"]["conditions"].as_array().unwrap();
    let said = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(said["reason"], "EvictionByEvictionAPI");
    assert_eq!(cluster.get(&format!("{budgets}/b")).await["status"]["disruptionsAllowed"], 0);
}

#[tokio::test]
async fn an_eviction_of_what_is_going_already_is_said_once_and_not_by_a_dry_run() {
    let cluster = Cluster::new().await;
    service_account(&cluster).await;
    let mut body = pod("a");
    body["spec"]["nodeName"] = "n1".into();
    cluster.must(&format!("POST {PODS}"), body).await;
    let going = cluster.must(&format!("DELETE {PODS}/a"), Value::Null).await;
    let evict = async |dry: &str| {
        let options = if dry.is_empty() { json!({}) } else { json!({ "dryRun": [dry] }) };
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options});
        cluster.must(&format!("POST {PODS}/a/eviction"), eviction).await
    };
    evict("All").await;
    assert_eq!(cluster.get(&format!("{PODS}/a")).await, going);
    evict("").await;
    let said = cluster.get(&format!("{PODS}/a")).await;
    let conditions = said["status"]["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("EvictionByEvictionAPI"))
    );
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        assert_eq!(said["metadata"][field], going["metadata"][field]);
    }
    evict("").await;
    assert_eq!(cluster.get(&format!("{PODS}/a")).await, said);
}

#[tokio::test]
async fn what_was_disrupted_before_its_eviction_has_been_so_since_then() {
    let cluster = Cluster::new().await;
    service_account(&cluster).await;
    let mut body = pod("a");
    body["spec"]["nodeName"] = "n1".into();
    cluster.must(&format!("POST {PODS}"), body).await;
    let before = "2020-01-01T00:00:00Z";
    let preempted = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": before});
    cluster.must(&format!("PATCH {PODS}/a/status"), json!({"status": {"conditions": [preempted]}})).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    cluster.must(&format!("POST {PODS}/a/eviction"), eviction).await;
    let evicted = cluster.get(&format!("{PODS}/a")).await;
    let said = &evicted["status"]["conditions"][0];
    assert_eq!(
        (said["reason"].as_str(), said["lastTransitionTime"].as_str()),
        (Some("EvictionByEvictionAPI"), Some(before))
    );
}
