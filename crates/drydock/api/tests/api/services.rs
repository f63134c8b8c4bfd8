//! Services get addresses.

use serde_json::{Value, json};

use crate::cluster::Cluster;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (key, value) in spec.as_object().unwrap() {
        body["spec"][key] = value.clone();
    }
    body
}

#[tokio::test]
async fn each_service_has_its_own_address_and_gives_it_back() {
    let cluster = Cluster::new().await;
    assert_eq!(cluster.get(&format!("{SERVICES}/kubernetes")).await["spec"]["clusterIP"], "10.96.0.1");
    let one = cluster.must(&format!("POST {SERVICES}"), service("one", json!({}))).await;
    let two = cluster.must(&format!("POST {SERVICES}"), service("two", json!({}))).await;
    assert_ne!(one["spec"]["clusterIP"], two["spec"]["clusterIP"]);
    assert_eq!(one["spec"]["clusterIPs"], json!([one["spec"]["clusterIP"]]));
    assert_eq!(
        (&one["spec"]["ipFamilies"], &one["spec"]["ipFamilyPolicy"]),
        (&json!(["IPv4"]), &json!("SingleStack"))
    );
    let taken = one["spec"]["clusterIP"].as_str().unwrap();
    cluster
        .check(
            &format!("POST {SERVICES}"),
            &service("three", json!({"clusterIP": taken})).to_string(),
            &format!(r#"422 Invalid: Service "three" is invalid: spec.clusterIPs: Invalid value: ["{taken}"]: failed to allocate IP {taken}: provided IP is already allocated"#),
        )
        .await;
    cluster.must(&format!("DELETE {SERVICES}/one"), Value::Null).await;
    cluster.must(&format!("POST {SERVICES}"), service("three", json!({"clusterIP": taken}))).await;
    let headless =
        cluster.must(&format!("POST {SERVICES}"), service("headless", json!({"clusterIP": "None"}))).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
}

#[tokio::test]
async fn a_dry_run_keeps_no_address() {
    let cluster = Cluster::new().await;
    let tried = cluster.must(&format!("POST {SERVICES}?dryRun=All"), service("a", json!({}))).await;
    let address = tried["spec"]["clusterIP"].clone();
    let made = cluster.must(&format!("POST {SERVICES}"), service("a", json!({"clusterIP": address}))).await;
    assert_eq!(made["spec"]["clusterIP"], address);
}

#[tokio::test]
async fn a_service_on_nodes_has_a_port_of_theirs() {
    let cluster = Cluster::new().await;
    let made = cluster.must(&format!("POST {SERVICES}"), service("a", json!({"type": "NodePort"}))).await;
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 30000);
    let patched =
        cluster.must(&format!("PATCH {SERVICES}/a"), json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(patched["spec"]["ports"][0]["nodePort"], 30000);
    cluster
        .check(
            &format!("POST {SERVICES}"),
            &service("b", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]})).to_string(),
            r#"422 Invalid: Service "b" is invalid: spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated"#,
        )
        .await;
}

#[tokio::test]
async fn what_only_the_former_type_of_a_service_had_goes_and_can_be_had_again() {
    let cluster = Cluster::new().await;
    let (post, on_nodes) = (format!("POST {SERVICES}"), json!({"type": "LoadBalancer"}));
    let made = cluster.must(&post, service("a", on_nodes)).await;
    let port = made["spec"]["ports"][0]["nodePort"].clone();
    let to = async |kind: &str| {
        cluster.must(&format!("PATCH {SERVICES}/a"), json!({"spec": {"type": kind}})).await["spec"].clone()
    };
    assert_eq!(to("NodePort").await["allocateLoadBalancerNodePorts"], Value::Null);
    let within = to("ClusterIP").await;
    assert_eq!(
        (&within["ports"][0]["nodePort"], &within["externalTrafficPolicy"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(within["clusterIP"], made["spec"]["clusterIP"]);
    let ports = json!([{"port": 80, "nodePort": port}]);
    cluster.must(&post, service("b", json!({"type": "NodePort", "ports": ports}))).await;
}

#[tokio::test]
async fn one_port_of_the_nodes_serves_several_protocols() {
    let cluster = Cluster::new().await;
    let two = |first: Value, second: Value| {
        let port = |name: &str, protocol: &str, number: Value| {
            let mut port = json!({"name": name, "protocol": protocol, "port": 53});
            if !number.is_null() {
                port["nodePort"] = number;
            }
            port
        };
        json!({"type": "NodePort", "ports": [port("u", "UDP", first), port("t", "TCP", second)]})
    };
    let post = format!("POST {SERVICES}");
    let (none, some) = (Value::Null, json!(30053));
    for (first, second) in [(&some, &some), (&some, &none), (&none, &some), (&none, &none)] {
        let made = cluster.must(&post, service("dns", two(first.clone(), second.clone()))).await;
        let numbers = [0, 1].map(|index| made["spec"]["ports"][index]["nodePort"].as_u64().unwrap());
        assert_eq!(numbers[0], numbers[1], "{first} {second}");
        cluster.must(&format!("DELETE {SERVICES}/dns"), Value::Null).await;
    }
    let spared = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let made = cluster.must(&post, service("none", spared)).await;
    assert_eq!(made["spec"]["ports"][0].get("nodePort"), None);
}

#[tokio::test]
async fn an_address_is_kept_and_given_back_also_when_the_writer_goes_away() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::kept(directory.path()).await;
    let mut watch = cluster.watch(&format!("{SERVICES}?watch=1")).await;
    let post = format!("POST {SERVICES}");
    let with = |name: &str| service(name, json!({"clusterIP": "10.96.0.77"}));
    cluster.abandon(&post, with("one").to_string());
    watch.until("ADDED Service default/one").await;
    cluster
        .check(&post, &with("two").to_string(), r#"422 Invalid: Service "two" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.77"]: failed to allocate IP 10.96.0.77: provided IP is already allocated"#)
        .await;
    cluster.abandon(&format!("DELETE {SERVICES}/one"), "");
    cluster.eventually(&post, &with("two").to_string(), 201).await;
}
