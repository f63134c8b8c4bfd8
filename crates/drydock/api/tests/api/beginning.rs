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
