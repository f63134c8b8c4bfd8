//! Two processes, one of which works.

use ballast_runtime::{Bind, LeaderElection, NoEngine, Options, RunError};
use drydock::{Drydock, Fault};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    log,
    notebook::{NotebookOperator, notebook},
    support::*,
};

fn in_namespace(namespace: &str, identity: &str) -> Options {
    let (namespace, identity) = (namespace.into(), identity.into());
    let election = LeaderElection { namespace, name: "ballast".into(), identity };
    Options { leader_election: Some(election), ..options() }
}

fn start(drydock: &Drydock, identity: &str) -> Running {
    run_with(drydock, NotebookOperator, NoEngine, in_namespace("default", identity))
}

/// What `/readyz` says.
async fn readyz(at: std::net::SocketAddr) -> String {
    crate::outside::get(at, "/readyz").await
}

async fn lease(drydock: &Drydock) -> k8s_openapi::api::coordination::v1::LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(drydock.client(), "default");
    leases.get("ballast").await.unwrap().spec.unwrap()
}

async fn working(running: &Running) {
    eventually("it works", async || running.health.is_working().then_some(())).await;
}

#[tokio::test]
async fn the_work_is_handed_over_when_the_first_stops() {
    let drydock = cluster().await;
    let first = start(&drydock, "first");
    working(&first).await;
    let second = start(&drydock, "second");
    eventually("it is ready", async || second.health.is_ready().then_some(())).await;
    assert!(!second.health.is_working(), "only one works");
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    first.stop().await.unwrap();
    assert_eq!(lease(&drydock).await.holder_identity.as_deref(), Some(""), "it is let go");
    working(&second).await;
    let spec = lease(&drydock).await;
    assert_eq!(spec.holder_identity.as_deref(), Some("second"));
    assert_eq!(spec.lease_transitions, Some(1));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    create(&drydock, &notebook("b", 1)).await;
    until(&drydock, "b", "Ready", "True Written").await;
    second.stop().await.unwrap();
}

#[tokio::test]
async fn who_loses_the_lease_stops_and_says_so() {
    let drydock = cluster().await;
    let running = start(&drydock, "first");
    working(&running).await;
    assert!(running.metrics.text().contains(r#"leader_election_master_status{name="ballast"} 1"#));
    let leases: Api<Lease> = Api::namespaced(drydock.client(), "default");
    let stolen = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    leases.patch("ballast", &PatchParams::default(), &stolen).await.unwrap();
    let ended =
        tokio::time::timeout(std::time::Duration::from_secs(10), running.ended).await.unwrap().unwrap();
    assert!(matches!(ended, Err(RunError::LeaseLost { .. })), "{ended:?}");
    assert!(!running.health.is_ready());
    let before = requests(&drydock).len();
    create(&drydock, &notebook("a", 1)).await;
    rest(&drydock).await;
    assert_eq!(requests(&drydock).len(), before);
}

#[tokio::test]
async fn a_lease_that_can_not_be_taken_at_first_is_taken_later() {
    let drydock = cluster().await;
    drydock.faults().order(Fault::internal_error().resource("coordination.k8s.io/leases").user(OPERATOR));
    let running = start(&drydock, "first");
    working(&running).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_has_no_place_is_not_stood_by_for() {
    let (drydock, log) = (cluster().await, log::warnings());
    let health = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = health.local_addr().unwrap();
    let options = Options { health_address: Bind::On(health), ..in_namespace("nowhere", "first") };
    let running = run_with(&drydock, NotebookOperator, NoEngine, options);
    let expected = "namespaces \"nowhere\" not found; create the namespace nowhere, or name another with \
                    --leader-election-namespace";
    let said = eventually("it is not ready for want of the namespace", async || {
        let said = readyz(at).await;
        said.contains("not found").then_some(said)
    })
    .await;
    assert!(said.starts_with("HTTP/1.1 500"), "{said}");
    assert!(said.contains(&format!("[-]lease failed: {expected}\n")), "{said}");
    assert!(
        crate::outside::get(at, "/healthz").await.starts_with("HTTP/1.1 200"),
        "a restart would not help"
    );
    assert!(!running.health.is_ready());
    let lines = log.lines(&["the lease can't be taken", "nowhere"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && !lines[0].contains("Status"), "{lines:?}");
    // It is mended without a restart.
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(drydock.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "nowhere"}})).unwrap();
    namespaces.create(&Default::default(), &namespace).await.unwrap();
    working(&running).await;
    assert!(readyz(at).await.ends_with("\r\n\r\nok"));
    running.stop().await.unwrap();
}
