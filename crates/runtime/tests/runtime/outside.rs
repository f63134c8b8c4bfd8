//! What can be seen from outside.

use ballast_runtime::{Bind, NoEngine, Options, RunError};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    notebook::{NotebookOperator, notebook},
    support::*,
};

pub async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn metrics_health_and_the_recorder_are_served() {
    let drydock = cluster().await;
    let [metrics, health] =
        [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let (metrics_at, health_at) = (metrics.local_addr().unwrap(), health.local_addr().unwrap());
    let options = Options {
        metrics_address: Bind::On(metrics),
        health_address: Bind::On(health),
        serve_recorder: true,
        host: "10.0.0.1:443".into(),
        ..options()
    };
    let running = run_with(&drydock, NotebookOperator, NoEngine, options);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    assert!(get(health_at, "/healthz").await.starts_with("HTTP/1.1 200 OK"));
    assert!(get(health_at, "/readyz").await.ends_with("\r\n\r\nok"));
    let text = get(metrics_at, "/metrics").await;
    for expected in [
        "notebook_controller_reconcile_total",
        r#"controller_runtime_reconcile_total{controller="notebook",result="success"}"#,
        r#"rest_client_requests_total{code="201",host="10.0.0.1:443",method="PATCH"} 1"#,
        r#"workqueue_depth{controller="notebook",name="notebook",priority="0"} 0"#,
    ] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
    let recorded = get(metrics_at, "/debug/recorder?object=notebook+default/a").await;
    assert!(recorded.contains("did     apply ConfigMap default/a-0"), "{recorded}");
    let unknown = get(metrics_at, "/debug/recorder?object=notebook+default/b").await;
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("notebook default/a"), "{unknown}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_that_says_which() {
    let drydock = cluster().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let options = Options { metrics_address: Bind::parse(&address), ..options() };
    let running = run_with(&drydock, NotebookOperator, NoEngine, options);
    let error = running.ended.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Listen(_)));
    assert!(error.to_string().contains(&address), "{error}");
    assert!(error.to_string().contains("--metrics-bind-address"), "{error}");
}
