//! A cluster begins at once.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;

#[tokio::test]
async fn a_cluster_begins_fast() {
    let first = Instant::now();
    let cluster = Cluster::new().await;
    eprintln!("first {:?}", first.elapsed());
    let second = Instant::now();
    let _another = Cluster::new().await;
    eprintln!("second {:?}", second.elapsed());
    let again = Instant::now();
    cluster.api.bootstrap().await.unwrap();
    eprintln!("again {:?}", again.elapsed());
    assert!(again.elapsed() < Duration::from_secs(1));
}
