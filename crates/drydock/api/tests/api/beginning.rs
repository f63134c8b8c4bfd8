//! A cluster begins, and begins again.

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
