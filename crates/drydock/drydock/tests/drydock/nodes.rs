//! Logs, exec and port-forward through the API, to a node that says what it was asked.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use drydock::{Drydock, Identity, NodeStream, Nodes};
use futures::{StreamExt as _, future::BoxFuture};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};

/// A test that waits longer than this for an answer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node that can be reached by the name `n`.
struct FakeNode;

impl Nodes for FakeNode {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn NodeStream>>> {
        Box::pin(async move {
            if node != "n" {
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused"));
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let server = http1::Builder::new().serve_connection(TokioIo::new(theirs), service_fn(answer));
            tokio::spawn(server.with_upgrades());
            Ok(Box::new(ours) as Box<dyn NodeStream>)
        })
    }
}

/// A port that is dialled: the pod answers as the node does.
fn dialled(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    if request.uri().path().ends_with("/9") {
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        return answer.map(|_: Full<Bytes>| Full::from("dial tcp 10.0.0.1:9: connect: connection refused"));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let server =
            http1::Builder::new().serve_connection(upgrade.await.unwrap(), service_fn(answer_of_pod));
        server.with_upgrades().await
    });
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::UPGRADE, "tcp".parse().unwrap());
    answer.headers_mut().insert(header::CONNECTION, "Upgrade".parse().unwrap());
    answer
}

/// What is asked, and by whom and how, as the pod sees it.
async fn answer_of_pod(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key(header::UPGRADE) {
        return answer(request).await;
    }
    if request.uri().path() == "/old" {
        let mut moved = Response::new(Full::default());
        *moved.status_mut() = StatusCode::FOUND;
        moved.headers_mut().insert(header::LOCATION, "/new".parse().unwrap());
        return Ok(moved);
    }
    let (parts, mut body) = request.into_parts();
    if parts.uri.path() == "/first" {
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        return Ok(Response::new(Full::from(first)));
    }
    let body = body.collect().await.unwrap().to_bytes();
    if parts.uri.path() == "/length" {
        return Ok(Response::new(Full::from(body.len().to_string())));
    }
    let header = |name: &str| parts.headers.get(name).map_or("", |value| value.to_str().unwrap());
    let asked = format!(
        "{} {} by way of {} as {:?} with {:?}",
        parts.method,
        parts.uri,
        header("x-forwarded-uri"),
        header("authorization"),
        String::from_utf8_lossy(&body),
    );
    Ok(Response::new(Full::from(asked)))
}

/// Logs are the request itself. An upgraded connection begins with it, and repeats what it is told in capitals;
/// for port 9 it hangs up instead, whatever it is told.
async fn answer(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path().starts_with("/dial/") {
        return Ok(dialled(request));
    }
    let asked = format!("{} {}", request.method(), request.uri());
    let asked = match request.headers().get(header::AUTHORIZATION) {
        Some(_) => format!("{asked} with somebody's token"),
        None => asked,
    };
    if asked.contains("previous") {
        let mut answer =
            Response::new(Full::from("previous terminated container \"c\" in pod \"p\" not found"));
        *answer.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(answer);
    }
    if !request.headers().contains_key(header::UPGRADE) {
        return Ok(Response::new(Full::from(asked)));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        stream.write_all(format!("{asked}\n").as_bytes()).await.unwrap();
        if asked.ends_with("?port=9") {
            return;
        }
        let mut told = [0; 5];
        stream.read_exact(&mut told).await.unwrap();
        stream.write_all(&told.to_ascii_uppercase()).await.unwrap();
    });
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for name in [header::UPGRADE, header::CONNECTION, header::SEC_WEBSOCKET_PROTOCOL] {
        answer.headers_mut().insert(name.clone(), request.headers()[name].clone());
    }
    Ok(answer)
}

/// A cluster with pods: `p` on `n`, `two` with two containers, `far` on a node that is not reached, `lost` on one
/// that is none, `waits` on none.
async fn cluster() -> Drydock {
    let drydock = Drydock::builder().controllers(false).nodes(FakeNode).start().await.unwrap();
    let client = drydock.client();
    let post = async |path: &str, body: Value| {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        client.request::<Value>(request.unwrap()).await.unwrap();
    };
    for node in ["n", "other"] {
        post("/api/v1/nodes", json!({ "metadata": { "name": node } })).await;
    }
    post("/api/v1/namespaces/default/serviceaccounts", json!({ "metadata": { "name": "default" } })).await;
    let pods = [
        ("p", "n", "c"),
        ("two", "n", "a b"),
        ("far", "other", "c"),
        ("lost", "gone", "c"),
        ("waits", "", "c"),
    ];
    for (name, node, containers) in pods {
        let containers: Vec<Value> =
            containers.split(' ').map(|name| json!({ "name": name, "image": "i" })).collect();
        let mut spec = json!({ "containers": containers });
        if !node.is_empty() {
            spec["nodeName"] = node.into();
        }
        post("/api/v1/namespaces/default/pods", json!({ "metadata": { "name": name }, "spec": spec })).await;
        if node == "n" {
            let request = Request::patch(format!("/api/v1/namespaces/default/pods/{name}/status"))
                .header("content-type", "application/merge-patch+json")
                .body(json!({ "status": { "podIP": "10.0.0.1" } }).to_string().into_bytes());
            client.request::<Value>(request.unwrap()).await.unwrap();
        }
    }
    // With one pod behind it, and with none.
    for name in ["s", "empty"] {
        let ports = json!([{ "name": "web", "port": 80, "targetPort": 8080 }]);
        post(
            "/api/v1/namespaces/default/services",
            json!({ "metadata": { "name": name }, "spec": { "ports": ports } }),
        )
        .await;
    }
    let subset = json!({
        "addresses": [{ "ip": "10.0.0.1", "targetRef": { "kind": "Pod", "namespace": "default", "name": "p" } }],
        "ports": [{ "name": "web", "port": 8080 }],
    });
    for (name, subsets) in [("s", json!([subset])), ("empty", json!([]))] {
        let endpoints = json!({ "metadata": { "name": name }, "subsets": subsets });
        post("/api/v1/namespaces/default/endpoints", endpoints).await;
    }
    drydock
}

const UPGRADE: &[(&str, &str)] = &[
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-protocol", "v5.channel.k8s.io"),
];

async fn ask(
    client: &kube::Client,
    path: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, HeaderMap, Response<Body>) {
    let mut request = Request::get(format!("/api/v1/namespaces/default/pods/{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    (answer.status(), answer.headers().clone(), answer)
}

/// The code and the text of an answer, or a failure's message.
#[track_caller]
fn text(code: StatusCode, body: &Bytes) -> String {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let message =
        status["message"].as_str().map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    format!("{} {message}", code.as_u16()).trim_end().to_owned()
}

async fn check(client: &kube::Client, path: &str, headers: &[(&str, &str)], expected: &str) {
    let (code, _, answer) = ask(client, path, headers).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text(code, &body), expected, "{path}");
}

#[tokio::test]
async fn logs_are_asked_of_the_node() {
    let drydock = cluster().await;
    let client = drydock.client();
    check(&client, "p/log", &[], "200 GET /containerLogs/default/p/c").await;
    let options =
        "p/log?container=c&follow=true&tailLines=5&timestamps=1&sinceTime=2026-01-02T03:04:05Z&pretty=x";
    let asked = "200 GET /containerLogs/default/p/c?follow=true&tailLines=5&timestamps=true&sinceTime=2026-01-02T03%3A04%3A05Z";
    check(&client, options, &[("authorization", "Bearer x")], asked).await;
    check(&client, "two/log?container=b", &[], "200 GET /containerLogs/default/two/b").await;
    check(
        &client,
        "p/log?previous=true",
        &[],
        "400 previous terminated container \"c\" in pod \"p\" not found",
    )
    .await;
    let (_, headers, _) = ask(&client, "p/log", &[]).await;
    assert_eq!(headers[header::CONTENT_TYPE], "text/plain");
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_in_kubernetes_words() {
    let drydock = cluster().await;
    let client = drydock.client();
    let choose = "400 a container name must be specified for pod two, choose one of: [a b]";
    let cases = [
        ("two/log", choose),
        ("two/exec", choose),
        ("p/log?container=x", "400 container x is not valid for pod p"),
        ("p/attach?container=x", "400 container x is not valid for pod p"),
        ("waits/log", "204"),
        ("waits/exec", "400 pod waits does not have a host assigned"),
        ("waits/portforward", "400 pod waits does not have a host assigned"),
        ("none/exec", "404 pods \"none\" not found"),
        ("lost/exec", "404 nodes \"gone\" not found"),
        ("far/exec", "500 error dialing backend: connection refused"),
        ("far/log", "500 Get \"https://other:10250/containerLogs/default/far/c\": connection refused"),
        (
            "p/log?tailLines=-1",
            "422 PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
        ("p/log?limitBytes=x", "400 strconv.ParseInt: parsing \"x\": invalid syntax"),
    ];
    for (path, expected) in cases {
        check(&client, path, UPGRADE, expected).await;
    }
    check(&client, "p/exec?command=id", &[], "400 Upgrade request required").await;
    let nobody = drydock.client_as(Identity::user("nobody", [""; 0]));
    let forbidden = "403 pods \"p\" is forbidden: User \"nobody\" cannot get resource \"pods/exec\" in API group \"\" in the namespace \"default\"";
    check(&nobody, "p/exec?command=id", UPGRADE, forbidden).await;
}

#[tokio::test]
async fn an_upgraded_connection_goes_through_in_both_directions() {
    let drydock = cluster().await;
    let client = drydock.client();
    let cases = [
        (
            "p/exec?command=sh&command=-c&command=echo+hi%26&stdin=true&stdout=true&tty=true",
            "GET /exec/default/p/c?output=1&error=1&input=1&tty=1&command=sh&command=-c&command=echo%20hi%26\n",
        ),
        ("two/attach?container=a&stdout=true", "GET /attach/default/two/a?output=1&error=1\n"),
        ("p/portforward?ports=80&ports=443", "GET /portForward/default/p?port=80%2C443\n"),
    ];
    for (path, expected) in cases {
        let (code, headers, answer) = ask(&client, path, UPGRADE).await;
        assert_eq!(
            (code, headers[header::SEC_WEBSOCKET_PROTOCOL].to_str().unwrap()),
            (StatusCode::SWITCHING_PROTOCOLS, "v5.channel.k8s.io")
        );
        let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        stream.write_all(b"hello").await.unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).await.unwrap();
        assert_eq!(told, format!("{expected}HELLO"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_node_says_before_it_hangs_up_is_heard_by_a_caller_that_still_talks() {
    let drydock = cluster().await;
    drydock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&drydock.kubeconfig().unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let over_network = kube::Client::try_from(config).unwrap();
    for (way, client) in [("inside", drydock.client()), ("over the network", over_network)] {
        for round in 0..200 {
            let (_, _, answer) = ask(&client, "p/portforward?ports=9", UPGRADE).await;
            let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
            // Some of it is on its way, or unread, when the node is gone. Many a client listens no more when it
            // cannot write.
            let written = stream.write_all(&[b'x'; 256 * 1024]).await.map_err(|error| error.kind());
            let mut told = String::new();
            let heard = stream.read_to_string(&mut told).await.map_err(|error| error.kind());
            let asked = "GET /portForward/default/p?port=9\n";
            assert_eq!((written, heard), (Ok(()), Ok(asked.len())), "{way}, round {round}: {told:?}");
        }
    }
}

#[tokio::test]
async fn what_a_pod_serves_is_reached_through_the_api() {
    let drydock = cluster().await;
    let client = drydock.client();
    let from = "/api/v1/namespaces/default";
    let cases = [
        ("p:8080/proxy/a%20b/?limit=many", "/a%20b/?limit=many", "/pods/p:8080/proxy/a%20b/"),
        ("http:p:8080/proxy/", "/", "/pods/http:p:8080/proxy/"),
        ("../services/s:web/proxy/x", "/x", "/services/s:web/proxy/x"),
        ("../services/s:80/proxy/x", "/x", "/services/s:80/proxy/x"),
    ];
    for (path, asked, way) in cases {
        let path = path.strip_prefix("../").map_or(format!("pods/{path}"), str::to_owned);
        let request = Request::put(format!("{from}/{path}"))
            .header("authorization", "Bearer x")
            .header("accept", "text/html")
            .body(Body::from(b"told".to_vec()));
        let answer = client.send(request.unwrap()).await.unwrap();
        let code = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let expected = format!("200 PUT {asked} by way of {from}{way} as \"\" with \"told\"");
        assert_eq!(text(code, &body), expected, "{path}");
    }
    for (path, expected) in [("p:8080/proxy?a=b", "301 /?a=b"), ("p:8080/proxy/old", "302 /new")] {
        let (code, headers, _) = ask(&client, path, &[]).await;
        let to = headers[header::LOCATION].to_str().unwrap();
        let to = to.strip_prefix("/api/v1/namespaces/default/pods/p:8080/proxy").unwrap();
        assert_eq!(format!("{} {to}", code.as_u16()), expected, "{path}");
    }

    let (code, _, answer) = ask(&client, "p:8080/proxy/speak", UPGRADE).await;
    assert_eq!(code, StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).await.unwrap();
    assert_eq!(told, "GET /speak\nHELLO");
}

#[tokio::test]
async fn what_a_pod_is_sent_is_passed_on_as_it_comes_however_long_it_is() {
    let drydock = cluster().await;
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("api");
    drydock.serve_as(UnixListener::bind(&socket).unwrap(), Identity::admin("admin"));
    let put = async |path: &str, body: UnsyncBoxBody<Bytes, Infallible>| {
        let stream = UnixStream::connect(&socket).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::put(format!("/api/v1/namespaces/default/pods/p:8080/proxy/{path}"));
        let request = request.header(header::HOST, "api").body(body).unwrap();
        let answer = tokio::time::timeout(PATIENCE, sender.send_request(request)).await.expect("an answer");
        let mut answer = answer.unwrap();
        let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        text(answer.status(), &first)
    };
    let large = Full::from(vec![b'x'; 5 << 20]);
    assert_eq!(put("length", large.boxed_unsync()).await, format!("200 {}", 5 << 20));
    let frames = futures::stream::once(async { Ok(Frame::data(Bytes::from("begun"))) });
    let endless = StreamBody::new(frames.chain(futures::stream::pending()));
    assert_eq!(put("first", endless.boxed_unsync()).await, "200 begun");
}

#[tokio::test]
async fn what_no_pod_serves_is_refused_in_kubernetes_words() {
    let drydock = cluster().await;
    let client = drydock.client();
    let cases = [
        ("pods/ftp:p:80/proxy/", "400 invalid pod request \"ftp:p:80\""),
        ("pods/none:80/proxy/", "404 pods \"none\" not found"),
        ("pods/waits:80/proxy/", "400 address not allowed"),
        (
            "pods/p:9/proxy/",
            "503 error trying to reach service: dial tcp 10.0.0.1:9: connect: connection refused",
        ),
        ("services/a:b:c:d/proxy/", "400 invalid service request \"a:b:c:d\""),
        ("services/none/proxy/", "404 services \"none\" not found"),
        ("services/none:80/proxy/", "404 services \"none\" not found"),
        ("services/s:81/proxy/", "503 no service port 81 found for service \"s\""),
        ("services/empty:web/proxy/", "503 no endpoints available for service \"empty\""),
        ("services/s:other/proxy/", "503 no endpoints available for service \"s:other\""),
        ("configmaps/x/proxy/", "404 the server could not find the requested resource"),
    ];
    for (path, expected) in cases {
        let request = Request::get(format!("/api/v1/namespaces/default/{path}")).body(Body::empty()).unwrap();
        let answer = client.send(request).await.unwrap();
        let code = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text(code, &body), expected, "{path}");
    }
    let nobody = drydock.client_as(Identity::user("nobody", [""; 0]));
    let forbidden = "403 pods \"p:80\" is forbidden: User \"nobody\" cannot get resource \"pods/proxy\" in API group \"\" in the namespace \"default\"";
    check(&nobody, "p:80/proxy/", &[], forbidden).await;
}
