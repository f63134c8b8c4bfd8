//! temporary
#![expect(clippy::unwrap_used, reason = "temporary")]
use ballast_memcached::{Memcached, MemcachedOperator};
use ballast_runtime::*;
use kube::{Api, CustomResourceExt, api::*};
use futures::StreamExt;
use serde_json::json;
#[tokio::main]
async fn main() {
    let count: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let ns = "runtime-rate";
    let dry; let client; let op_client;
    if std::env::var("KUBECONFIG").is_ok() {
        client = kube::Client::try_default().await.unwrap(); op_client = kube::Client::try_default().await.unwrap(); dry=None;
    } else {
        let d = drydock::Drydock::builder().controllers(false).start().await.unwrap();
        client = d.client(); op_client = d.client_as(drydock::Identity::admin("op")); dry = Some(d);
    }
    let crds: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> = Api::all(client.clone());
    let _ = crds.create(&PostParams::default(), &Memcached::crd()).await.map_err(|e| println!("{e}"));
    kube::runtime::wait::await_condition(crds, "memcacheds.cache.example.com", kube::runtime::wait::conditions::is_crd_established()).await.unwrap();
    let nss: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let _ = nss.create(&PostParams::default(), &serde_json::from_value(json!({"metadata":{"name":ns}})).unwrap()).await;
    let manager = Manager::new(op_client, Options { namespaces: Namespaces::parse(ns), ..Options::default() }).register(MemcachedOperator, NoEngine);
    let metrics = manager.metrics(); let health = manager.health();
    let stop = tokio_util::sync::CancellationToken::new();
    let run = tokio::spawn(manager.run(stop.clone()));
    while !health.is_working() { tokio::time::sleep(std::time::Duration::from_millis(5)).await; }
    let api: Api<Memcached> = Api::namespaced(client.clone(), ns);
    let t = std::time::Instant::now();
    futures::stream::iter(0..count).for_each_concurrent(16, |i| { let api = api.clone(); async move {
        let m: Memcached = serde_json::from_value(json!({"apiVersion":"cache.example.com/v1alpha1","kind":"Memcached","metadata":{"name":format!("m{i}")},"spec":{"size":3,"version":"1.6.39"}})).unwrap();
        api.create(&PostParams::default(), &m).await.unwrap();
    }}).await;
    println!("created in {:?}", t.elapsed());
    loop {
        let done = api.list(&Default::default()).await.unwrap().items.iter().filter(|m| m.status.is_some()).count();
        if done == count { break; }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let e = t.elapsed();
    println!("done in {e:?}: {:.0}/s", count as f64 / e.as_secs_f64());
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let show = || metrics.text().lines().filter(|l| l.starts_with("rest_client") || l.starts_with("controller_runtime_reconcile_total") || l.starts_with("memcached_c")).map(|l| l.to_owned()).collect::<Vec<_>>();
    let a = show(); println!("{a:#?}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|l| l.starts_with("VmRSS")).unwrap());
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    println!("same after ten seconds: {}", show() == a);
    stop.cancel(); run.await.unwrap().unwrap();
    if dry.is_none() { let _ = nss.delete(ns, &Default::default()).await; }
}
