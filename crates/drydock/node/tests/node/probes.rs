//! Probes of all kinds.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::cluster::{Cluster, condition, script, state};

crate::tests![
    a_pod_is_ready_while_its_probe_says_so,
    a_container_that_fails_its_liveness_probe_is_started_again,
    a_startup_probe_holds_the_others_back,
    a_program_that_takes_too_long_is_ended,
    a_program_that_says_much_is_heard_out,
    a_page_is_asked_for,
    a_page_without_end_is_a_page,
    pages_are_followed_on_their_own_host,
    a_page_behind_tls_is_asked_for_whatever_its_certificate,
    a_program_that_needs_a_moment_is_ready_in_a_moment_and_nobody_complains,
    what_never_answers_is_never_ready_and_is_started_again,
    what_can_not_be_asked_does_not_count,
    what_the_node_is_short_of_is_held_against_no_container,
    health_is_asked_for_over_grpc,
];

async fn a_pod_is_ready_while_its_probe_says_so(cluster: Arc<Cluster>) {
    let mut spec = script("sleep 0.5; touch /tmp/ready; sleep 3; rm /tmp/ready; sleep 1000");
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    cluster.pod("moody", spec).await;
    cluster.until_phase("moody", "Running").await;
    cluster.until_ready("moody").await;
    let pod = cluster.until_pod("moody", "it is unready", |pod| condition(pod, "Ready") == "False").await;
    assert_eq!(state(&pod, "main"), "running");
    let conditions = pod.status.unwrap().conditions.unwrap();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [main]"));
    cluster.until_event("moody", "Unhealthy", "Readiness probe failed: cat: can't open '/tmp/ready'").await;
}

async fn a_container_that_fails_its_liveness_probe_is_started_again(cluster: Arc<Cluster>) {
    let mut spec = script("touch /tmp/alive; sleep 1; rm /tmp/alive; sleep 1000");
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["cat", "/tmp/alive"]}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1});
    cluster.pod("frail", spec).await;
    let again = |pod: &k8s_openapi::api::core::v1::Pod| {
        let list = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        list.is_some_and(|list| list[0].restart_count >= 1)
    };
    let pod = cluster.until_pod("frail", "it is started again", again).await;
    let last =
        pod.status.unwrap().container_statuses.unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("Error")));
    cluster.until_event("frail", "Killing", "Container main failed liveness probe, will be restarted").await;
}

async fn a_startup_probe_holds_the_others_back(cluster: Arc<Cluster>) {
    let mut spec = script("sleep 1; touch /tmp/started; sleep 1000");
    let container = &mut spec["containers"][0];
    container["startupProbe"] = json!({"exec": {"command": ["cat", "/tmp/started"]}, "periodSeconds": 1});
    container["livenessProbe"] =
        json!({"exec": {"command": ["cat", "/tmp/started"]}, "periodSeconds": 1, "failureThreshold": 1});
    cluster.pod("slow", spec).await;
    let pod = cluster.until_phase("slow", "Running").await;
    assert_eq!(pod.status.unwrap().container_statuses.unwrap()[0].started, Some(false));
    let pod = cluster.until_ready("slow").await;
    assert_eq!(pod.status.unwrap().container_statuses.unwrap()[0].restart_count, 0);
}

async fn a_program_that_takes_too_long_is_ended(cluster: Arc<Cluster>) {
    let mut spec = script("exec sleep 2000");
    spec["terminationGracePeriodSeconds"] = json!(0);
    let action = json!({"command": ["sleep", "1000"]});
    spec["containers"][0]["livenessProbe"] =
        json!({"exec": action, "periodSeconds": 1, "failureThreshold": 100});
    cluster.pod("stuck", spec).await;
    let events: Api<Event> = Api::default_namespaced(cluster.client.clone());
    let events = &events;
    let message = cluster
        .until("it was asked in vain three times", || async move {
            let list = events.list(&ListParams::default()).await.unwrap().items.into_iter();
            let mut list = list.filter(|event| event.involved_object.name.as_deref() == Some("stuck"));
            list.find(|event| event.reason.as_deref() == Some("Unhealthy") && event.count >= Some(3))?.message
        })
        .await;
    let expected = r#"Liveness probe failed: command timed out: "sleep 1000" timed out after 1s"#;
    assert_eq!(message, expected);
    let (_, running) = crate::remote::exec(&cluster, "stuck", "ps").await;
    assert!(running.contains("sleep 2000"), "{running}");
    assert!(running.matches("sleep 1000").count() <= 1, "those of earlier questions are left: {running}");
    let pod = cluster.pods().get("stuck").await.unwrap();
    assert_eq!(state(&pod, "main"), "running");
}

async fn a_program_that_says_much_is_heard_out(cluster: Arc<Cluster>) {
    let mut spec = script("exec sleep 1000");
    spec["terminationGracePeriodSeconds"] = json!(0);
    let much = json!({"exec": {"command": ["head", "-c", "200000", "/dev/zero"]}});
    spec["containers"][0]["lifecycle"] = json!({"postStart": much});
    spec["containers"][0]["readinessProbe"] = much;
    cluster.pod("talkative", spec).await;
    cluster.until_ready("talkative").await;
    assert_eq!(cluster.events("talkative", "FailedPostStartHook").await, [""; 0]);
}

async fn a_page_is_asked_for(cluster: Arc<Cluster>) {
    let mut spec = script("mkdir /www; echo ok > /www/health; exec httpd -f -p 8080 -h /www");
    spec["terminationGracePeriodSeconds"] = json!(0);
    let container = &mut spec["containers"][0];
    container["ports"] = json!([{"containerPort": 8080, "name": "http"}]);
    container["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": "http"}});
    cluster.pod("web", spec.clone()).await;
    cluster.until_ready("web").await;
    spec["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/nope", "port": 8080}, "periodSeconds": 1});
    cluster.pod("lost", spec).await;
    cluster
        .until_event("lost", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404")
        .await;
}

/// Serves some pages in the clear: `/endless` never ends, others lead to others.
async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut asked = [0; 1024];
            let length = stream.read(&mut asked).await.unwrap();
            let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
            // One who ends its question early wants no answer.
            let Some(path) = asked.split(' ').nth(1) else { return };
            let answer = match path {
                "/" | "/endless" => "200 OK\r\n\r\n",
                "/here" => "302 Found\r\nLocation: /named\r\n\r\n",
                "/named" if asked.to_lowercase().contains("host: somebody\r\n") => "200 OK\r\n\r\n",
                "/lost" => "301 Moved Permanently\r\nLocation: nowhere\r\n\r\n",
                "/circle" => "307 Temporary Redirect\r\nLocation: /circle\r\n\r\n",
                "/away" => "302 Found\r\nLocation: http://elsewhere.test/\r\n\r\nit is not here",
                _ => "404 Not Found\r\n\r\n",
            };
            stream.write_all(format!("HTTP/1.0 {answer}").as_bytes()).await.unwrap();
            while path == "/endless" && stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {}
            let _gone = stream.shutdown().await;
        });
    }
}

/// A pod whose probe asks for a page of a server that this test has.
async fn asks(cluster: &Cluster, name: &str, address: std::net::SocketAddr, path: &str) {
    let mut spec = script("exec sleep 1000");
    spec["terminationGracePeriodSeconds"] = json!(0);
    let headers = json!([{"name": "Host", "value": "somebody"}]);
    let action = json!({"host": address.ip(), "port": address.port(), "path": path, "httpHeaders": headers});
    spec["containers"][0]["readinessProbe"] = json!({"httpGet": action, "periodSeconds": 1});
    cluster.pod(name, spec).await;
}

async fn a_page_without_end_is_a_page(cluster: Arc<Cluster>) {
    let listener = TcpListener::bind((cluster.host.address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener));
    asks(&cluster, "endless", address, "/endless").await;
    cluster.until_ready("endless").await;
}

async fn pages_are_followed_on_their_own_host(cluster: Arc<Cluster>) {
    let listener = TcpListener::bind((cluster.host.address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener));
    asks(&cluster, "here", address, "/here").await;
    cluster.until_ready("here").await;
    for (name, words) in [
        ("lost", "HTTP probe failed with statuscode: 404"),
        ("circle", r#"Get "/circle": stopped after 10 redirects"#),
    ] {
        asks(&cluster, name, address, &format!("/{name}")).await;
        cluster.until_event(name, "Unhealthy", &format!("Readiness probe failed: {words}")).await;
    }
    // Whoever leads elsewhere has answered.
    asks(&cluster, "away", address, "/away").await;
    cluster.until_ready("away").await;
    let words = "Readiness probe warning: Probe terminated redirects, Response body: it is not here";
    assert_eq!(cluster.until_event("away", "ProbeWarning", "").await, words);
    for ready in ["here", "away"] {
        assert_eq!(cluster.events(ready, "Unhealthy").await, [""; 0], "{ready}");
    }
}

async fn a_page_behind_tls_is_asked_for_whatever_its_certificate(cluster: Arc<Cluster>) {
    let certified = rcgen::generate_simple_self_signed(["somebody.else".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((cluster.host.address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Who speaks in the clear is not answered.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut asked = [0; 1024];
            let length = stream.read(&mut asked).await.unwrap();
            let found = asked[..length].starts_with(b"GET /health ");
            let status = if found { "200 OK" } else { "404 Not Found" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _gone = stream.shutdown().await;
        }
    });
    let ask = |path: &str, scheme: &str| {
        let mut spec = script("sleep 1000");
        spec["terminationGracePeriodSeconds"] = json!(0);
        let action = json!({"host": address.ip(), "port": address.port(), "path": path, "scheme": scheme});
        spec["containers"][0]["readinessProbe"] = json!({"httpGet": action, "periodSeconds": 1});
        spec
    };
    cluster.pod("secret", ask("/health", "HTTPS")).await;
    cluster.until_ready("secret").await;
    cluster.pod("secret-lost", ask("/nope", "HTTPS")).await;
    let lost = "Readiness probe failed: HTTP probe failed with statuscode: 404";
    cluster.until_event("secret-lost", "Unhealthy", lost).await;
    cluster.pod("clear", ask("/health", "HTTP")).await;
    let unanswered = format!("Readiness probe failed: Get \"http://{address}/health\":");
    cluster.until_event("clear", "Unhealthy", &unanswered).await;
}

async fn a_program_that_needs_a_moment_is_ready_in_a_moment_and_nobody_complains(cluster: Arc<Cluster>) {
    let mut spec = script("sleep 0.3; exec httpd -f -p 80");
    spec["terminationGracePeriodSeconds"] = json!(0);
    for kind in ["livenessProbe", "readinessProbe"] {
        spec["containers"][0][kind] = json!({"tcpSocket": {"port": 80}, "periodSeconds": 5});
    }
    cluster.pod("moment", spec).await;
    cluster.until_phase("moment", "Running").await;
    let began = std::time::Instant::now();
    cluster.until_ready("moment").await;
    assert!(began.elapsed() < std::time::Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(cluster.events("moment", "Unhealthy").await, [""; 0]);
}

async fn what_never_answers_is_never_ready_and_is_started_again(cluster: Arc<Cluster>) {
    let mut spec = script("exec nc -ll -p 80 -e sleep 1000");
    spec["terminationGracePeriodSeconds"] = json!(0);
    let probe = json!({"httpGet": {"port": 80, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1});
    spec["containers"][0]["readinessProbe"] = probe.clone();
    cluster.pod("mute", spec.clone()).await;
    let text = cluster.until_event("mute", "Unhealthy", "Readiness probe failed").await;
    assert!(
        text.ends_with("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
        "{text}"
    );
    let pod = cluster.pods().get("mute").await.unwrap();
    assert_eq!((state(&pod, "main").as_str(), condition(&pod, "Ready").as_str()), ("running", "False"));
    cluster.delete("mute", Some(0)).await;
    cluster.until_gone("mute").await;
    spec["containers"][0]["livenessProbe"] = probe;
    cluster.pod("mute", spec).await;
    cluster.until_event("mute", "Killing", "Container main failed liveness probe, will be restarted").await;
}

async fn what_can_not_be_asked_does_not_count(cluster: Arc<Cluster>) {
    let mut spec = script("sleep 1000");
    spec["terminationGracePeriodSeconds"] = json!(0);
    let container = &mut spec["containers"][0];
    container["livenessProbe"] =
        json!({"exec": {"command": ["nope"]}, "periodSeconds": 1, "failureThreshold": 1});
    container["readinessProbe"] = json!({"httpGet": {"port": "nope"}, "periodSeconds": 1});
    cluster.pod("unasked", spec).await;
    let unknown = "probe errored and resulted in unknown state";
    let liveness = format!("Liveness {unknown}: exec: \"nope\": executable file not found in $PATH");
    cluster.until_event("unasked", "Unhealthy", &liveness).await;
    let readiness = format!("Readiness {unknown}: couldn't find port: \"nope\"");
    cluster.until_event("unasked", "Unhealthy", &readiness).await;
    assert_eq!(cluster.events("unasked", "Killing").await, [""; 0]);
    let pod = cluster.pods().get("unasked").await.unwrap();
    assert_eq!((state(&pod, "main").as_str(), condition(&pod, "Ready").as_str()), ("running", "False"));
}

/// A server of gRPC's health: of `good` it says that it serves, of `bad` that it does not, and knows no other.
async fn health(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let answer = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            let asked = request.into_body().collect().await.unwrap().to_bytes();
            let (code, body): (u16, _) = match &asked[5..] {
                b"\x0a\x04good" => (0, vec![0, 0, 0, 0, 2, 8, 1]),
                b"\x0a\x03bad" => (0, vec![0, 0, 0, 0, 2, 8, 2]),
                b"\x0a\x04long" => (0, [vec![0, 0, 80, 0, 0], vec![0; 5 << 20]].concat()),
                _ => (5, Vec::new()),
            };
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", code.into());
            trailers.insert("grpc-message", "unknown service".parse().unwrap());
            let body = Full::new(Bytes::from(body)).with_trailers(async { Some(Ok(trailers)) });
            http::Response::builder().header("content-type", "application/grpc").body(body)
        });
        let stream = TokioIo::new(stream);
        tokio::spawn(
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer),
        );
    }
}

async fn what_the_node_is_short_of_is_held_against_no_container(cluster: Arc<Cluster>) {
    /// Puts the limit back however this ends.
    struct Short(Rlimit);
    impl Drop for Short {
        fn drop(&mut self) {
            setrlimit(Resource::Nofile, self.0).unwrap();
        }
    }
    let mut spec = script("exec httpd -f -p 8080 -h /");
    let asked = json!({"periodSeconds": 1, "failureThreshold": 1});
    let with = |mut probe: Value, how: &str, what: Value| {
        probe[how] = what;
        probe
    };
    let web = &mut spec["containers"][0];
    web["livenessProbe"] = with(asked.clone(), "httpGet", json!({"path": "/etc/passwd", "port": 8080}));
    web["readinessProbe"] = with(asked.clone(), "tcpSocket", json!({"port": 8080}));
    cluster.pod("short", spec).await;
    cluster.until_ready("short").await;
    let all = getrlimit(Resource::Nofile);
    let short = Short(all);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..all }).unwrap();
    for kind in ["Liveness", "Readiness"] {
        let unknown = format!("{kind} probe errored and resulted in unknown state");
        cluster.until_event("short", "Unhealthy", &unknown).await;
    }
    drop(short);
    let complaints = cluster.events("short", "Unhealthy").await;
    assert!(complaints.iter().all(|words| words.contains("unknown state")), "{complaints:?}");
    assert!(cluster.events("short", "Killing").await.is_empty());
    let pod = cluster.pods().get("short").await.unwrap();
    assert_eq!((state(&pod, "main").as_str(), condition(&pod, "Ready").as_str()), ("running", "True"));
}

async fn health_is_asked_for_over_grpc(cluster: Arc<Cluster>) {
    // Pods in the node's own network have its address, where this test can listen.
    let listener = TcpListener::bind((cluster.host.address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(health(listener));
    let ask = |port: u16, service: &str| {
        let mut spec = script("sleep 1000");
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec["hostNetwork"] = json!(true);
        let action = json!({"port": port, "service": service});
        spec["containers"][0]["readinessProbe"] = json!({"grpc": action, "periodSeconds": 1});
        spec
    };
    cluster.pod("serving", ask(address.port(), "good")).await;
    cluster.until_ready("serving").await;
    let fails = async |name: &str, port: u16, service: &str, words: &str| {
        cluster.pod(name, ask(port, service)).await;
        cluster.until_event(name, "Unhealthy", &format!("Readiness probe failed: {words}")).await;
    };
    fails("not-serving", address.port(), "bad", r#"service unhealthy (responded with "NOT_SERVING")"#).await;
    let unknown = "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service";
    fails("unknown", address.port(), "other", unknown).await;
    let long = "error: health rpc probe failed: rpc error: code = ResourceExhausted desc = grpc: received message larger";
    fails("long", address.port(), "long", long).await;
    let nobody = TcpListener::bind((cluster.host.address(), 0)).await.unwrap().local_addr().unwrap();
    let refused =
        format!("timeout: failed to connect service \"{nobody}\" within 1s: context deadline exceeded");
    fails("nobody", nobody.port(), "", &refused).await;
}
