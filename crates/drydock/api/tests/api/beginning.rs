//! A cluster begins, and begins again.

use serde_json::json;

use crate::cluster::Cluster;

#[tokio::test]
async fn what_every_cluster_has_is_made_once() {
    let cluster = Cluster::new().await;
    let made = cluster.api.store().revision();
    cluster.api.bootstrap().await.unwrap();
    assert_eq!(cluster.api.store().revision(), made);
    cluster
        .check(
            "GET /api/v1/namespaces",
            "",
            "200 NamespaceList [default kube-node-lease kube-public kube-system]",
        )
        .await;
    cluster.check("GET /api/v1/services", "", "200 ServiceList [kubernetes]").await;
}

#[tokio::test]
async fn where_the_api_is_reached_is_told_as_a_real_server_tells_it() {
    let cluster = Cluster::new().await;
    let none = ("200 EndpointsList []", "200 EndpointSliceList []");
    let listed = async |(endpoints, slices): (&str, &str)| {
        cluster.check("GET /api/v1/endpoints", "", endpoints).await;
        cluster.check("GET /apis/discovery.k8s.io/v1/endpointslices", "", slices).await;
    };
    listed(none).await;
    cluster.api.served_at("127.0.0.1:7777".parse().unwrap()).await.unwrap();
    listed(none).await;
    let shown = async |address: &str| {
        let endpoints = cluster.get("/api/v1/namespaces/default/endpoints/kubernetes").await;
        let ports = json!([{"name": "https", "port": 7777, "protocol": "TCP"}]);
        assert_eq!(endpoints["subsets"], json!([{"addresses": [{"ip": address}], "ports": ports}]));
        assert_eq!(
            endpoints["metadata"]["labels"],
            json!({"endpointslice.kubernetes.io/skip-mirror": "true"})
        );
        let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        let slice = cluster.get(slice).await;
        assert_eq!(slice["endpoints"], json!([{"addresses": [address], "conditions": {"ready": true}}]));
        assert_eq!((&slice["ports"], &slice["addressType"]), (&ports, &json!("IPv4")));
        assert_eq!(slice["metadata"]["labels"], json!({"kubernetes.io/service-name": "kubernetes"}));
    };
    for address in ["10.244.0.1", "10.245.0.1"] {
        cluster.api.advertise(Some(format!("{address}:7777").parse().unwrap())).await.unwrap();
        shown(address).await;
    }
    let told = cluster.api.store().revision();
    cluster.api.advertise(Some("10.245.0.1:7777".parse().unwrap())).await.unwrap();
    assert_eq!(cluster.api.store().revision(), told, "nothing to tell");
    // As by a process that comes after this one.
    cluster.api.bootstrap().await.unwrap();
    listed(none).await;

    let elsewhere = Cluster::new().await;
    elsewhere.api.served_at("192.0.2.7:6443".parse().unwrap()).await.unwrap();
    let endpoints = elsewhere.get("/api/v1/namespaces/default/endpoints/kubernetes").await;
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], "192.0.2.7");
}

#[tokio::test]
async fn pods_and_whoever_checks_tokens_are_led_to_where_the_api_is_served() {
    let cluster = Cluster::new().await;
    let addresses = async || {
        let service = cluster.get("/api/v1/namespaces/default/services/kubernetes").await;
        let tokens = cluster.get("/.well-known/openid-configuration").await;
        let versions = cluster.get("/api").await;
        [
            service["spec"]["ports"][0]["targetPort"].to_string(),
            tokens["jwks_uri"].to_string(),
            versions["serverAddressByClientCIDRs"][0]["serverAddress"].to_string(),
        ]
    };
    let unserved = ["443", "\"https://kubernetes.default.svc/openid/v1/jwks\"", "\"kubernetes.default.svc\""];
    assert_eq!(addresses().await, unserved);
    cluster.api.served_at("127.0.0.1:7777".parse().unwrap()).await.unwrap();
    let served = ["7777", "\"https://127.0.0.1:7777/openid/v1/jwks\"", "\"127.0.0.1:7777\""];
    assert_eq!(addresses().await, served);
    cluster.api.served_at("127.0.0.1:8888".parse().unwrap()).await.unwrap();
    assert_eq!(addresses().await, served, "the first address counts");
}
