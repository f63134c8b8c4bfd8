//! Logs, exec and port-forward, through the node's own server.

use std::sync::Arc;

use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::cluster::{Cluster, TOKEN, script, state};

crate::tests![
    logs_are_shown_as_wished_and_followed_to_the_end,
    the_log_of_the_start_before_is_kept,
    a_program_is_run_in_a_container,
    a_program_hears_all_of_its_input_whatever_becomes_of_its_outputs,
    a_terminal_is_a_terminal,
    much_goes_through_a_container_that_is_attached_to,
    who_only_listens_leaves_a_container_its_input,
    a_port_is_forwarded,
    last_words_of_a_pod_are_heard_by_a_caller_that_still_talks,
    strangers_are_turned_away,
];

async fn send(cluster: &Cluster, token: &str, request: http::request::Builder) -> http::Response<Incoming> {
    let stream = UnixStream::connect(cluster.directory.join("node.sock")).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = request.header("Host", "node").header("Authorization", format!("Bearer {token}"));
    sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

pub(crate) async fn get(cluster: &Cluster, path: &str, token: &str) -> (u16, String) {
    let response = send(cluster, token, http::Request::get(path)).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn logs_are_shown_as_wished_and_followed_to_the_end(cluster: Arc<Cluster>) {
    // Two outputs are two pipes: only time tells which was written to first.
    let mut spec = script("echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three; sleep 1; echo four");
    spec["restartPolicy"] = json!("Never");
    cluster.pod("talker", spec).await;
    cluster.until_phase("talker", "Running").await;
    let (status, text) = get(&cluster, "/containerLogs/default/talker/main?follow=true", TOKEN).await;
    assert_eq!((status, text.as_str()), (200, "one\ntwo\nthree\nfour\n"));
    let (_, text) = get(&cluster, "/containerLogs/default/talker/main?tailLines=2", TOKEN).await;
    assert_eq!(text, "three\nfour\n");
    let (_, text) =
        get(&cluster, "/containerLogs/default/talker/main?tailLines=1&timestamps=true", TOKEN).await;
    assert!(text.ends_with("Z four\n") && text.len() > 30, "{text}");
    let (status, text) = get(&cluster, "/containerLogs/default/talker/none", TOKEN).await;
    assert_eq!((status, text.as_str()), (404, "container \"none\" not found in pod \"talker\""));
    let (status, text) = get(&cluster, "/containerLogs/default/talker/main?previous=true", TOKEN).await;
    assert_eq!(status, 400);
    assert_eq!(text, "previous terminated container \"main\" in pod \"talker\" not found");
}

async fn the_log_of_the_start_before_is_kept(cluster: Arc<Cluster>) {
    let begin = "echo >> /data/ran; echo start $(wc -l < /data/ran)";
    let spec = |then: &str| {
        let mut spec = script(&format!("{begin}; {then}"));
        spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec
    };
    let logs = async |name: &str| {
        let log = format!("/containerLogs/default/{name}/main");
        let now = get(&cluster, &log, TOKEN).await;
        (now, get(&cluster, &format!("{log}?previous=true"), TOKEN).await)
    };
    let pair = |now: &str, before: &str| ((200, now.to_owned()), (200, before.to_owned()));
    cluster.pod("again", spec("test $(wc -l < /data/ran) = 1 && exit 1; exec sleep 1000")).await;
    let again = pair("start 2\n", "start 1\n");
    cluster.until("it has begun again", || async { (logs("again").await == again).then_some(()) }).await;
    // Of one that waits, what is shown as its last state is the last start.
    cluster.pod("twice", spec("exit 1")).await;
    cluster.until_pod("twice", "it waits", |pod| state(pod, "main") == "waiting CrashLoopBackOff").await;
    assert_eq!(logs("twice").await, pair("start 2\n", "start 2\n"));
    cluster.pod("never", json!({"containers": [{"name": "main", "image": "nobody/knows:this"}]})).await;
    cluster.until_pod("never", "it waits", |pod| state(pod, "main").starts_with("waiting ErrImage")).await;
    let (status, text) = get(&cluster, "/containerLogs/default/never/main?previous=true", TOKEN).await;
    assert_eq!(status, 400);
    assert_eq!(text, "previous terminated container \"main\" in pod \"never\" not found");
}

async fn strangers_are_turned_away(cluster: Arc<Cluster>) {
    assert_eq!(get(&cluster, "/healthz", "not-the-token").await, (401, "Unauthorized".to_owned()));
    assert_eq!(get(&cluster, "/healthz", TOKEN).await, (200, "ok".to_owned()));
}

type Socket = tokio_tungstenite::WebSocketStream<UnixStream>;

async fn connect(cluster: &Cluster, path: &str, protocol: &'static str) -> Socket {
    let stream = UnixStream::connect(cluster.directory.join("node.sock")).await.unwrap();
    let mut request = format!("ws://node{path}").into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("Authorization", format!("Bearer {TOKEN}").parse().unwrap());
    headers.insert("Sec-WebSocket-Protocol", protocol.parse().unwrap());
    tokio_tungstenite::client_async(request, stream).await.unwrap().0
}

/// What came on each channel until the end.
async fn hear(socket: &mut Socket) -> [String; 5] {
    hear_bytes(socket).await.map(|bytes| String::from_utf8(bytes).unwrap())
}

async fn hear_bytes<E>(socket: &mut (impl Stream<Item = Result<Message, E>> + Unpin)) -> [Vec<u8>; 5] {
    let mut channels: [Vec<u8>; 5] = Default::default();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message {
            channels[usize::from(bytes[0])].extend(&bytes[1..]);
        }
    }
    channels
}

/// Runs a script, in the form of a query, in a pod's container; its end and what it said.
pub(crate) async fn exec(cluster: &Cluster, pod: &str, script: &str) -> (String, String) {
    let path = format!("/exec/default/{pod}/main?command=sh&command=-c&command={script}&stdout=1");
    let [_, out, _, status, _] = hear(&mut connect(cluster, &path, "v5.channel.k8s.io").await).await;
    (status, out)
}

async fn a_program_is_run_in_a_container(cluster: Arc<Cluster>) {
    cluster.pod("target", script("sleep 1000")).await;
    cluster.until_ready("target").await;
    let path = "/exec/default/target/main?command=sh&command=-c&command=cat%3B%20echo%20bad%20%3E%262%3B%20exit%203&stdin=1&stdout=1&stderr=1";
    let mut socket = connect(&cluster, path, "v5.channel.k8s.io").await;
    socket.send(Message::Binary(b"\0hello\n".to_vec().into())).await.unwrap();
    socket.send(Message::Binary(vec![255, 0].into())).await.unwrap();
    let [_, out, err, status, _] = hear(&mut socket).await;
    assert_eq!((out.as_str(), err.as_str()), ("hello\n", "bad\n"));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(status["details"]["causes"][0]["message"], "3");
    let mut socket =
        connect(&cluster, "/exec/default/target/main?command=nope&stdout=1", "v4.channel.k8s.io").await;
    let [_, _, _, status, _] = hear(&mut socket).await;
    assert!(status.contains("executable file not found in $PATH"), "{status}");
}

async fn a_program_hears_all_of_its_input_whatever_becomes_of_its_outputs(cluster: Arc<Cluster>) {
    const MESSAGES: usize = 100;
    const LENGTH: usize = 32 << 10;
    cluster.pod("reader", script("sleep 1000")).await;
    cluster.until_ready("reader").await;
    for (file, begin, wanted) in [
        ("closed", "exec%20%3E%2Fdev%2Fnull%202%3E%261", "&stdout=1&stderr=1"),
        ("unwanted", "echo%20out%3B%20echo%20err%20%3E%262", ""),
    ] {
        let path = format!(
            "/exec/default/reader/main?command=sh&command=-c&command={begin}%3B%20cat%20%3E%20{file}&stdin=1{wanted}"
        );
        let (mut say, mut listen) = connect(&cluster, &path, "v5.channel.k8s.io").await.split();
        let saying = async {
            for _ in 0..MESSAGES {
                say.send(Message::Binary(vec![0; LENGTH + 1].into())).await?;
            }
            say.send(Message::Binary(vec![255, 0].into())).await
        };
        let ([_, out, err, status, _], said) = tokio::join!(hear_bytes(&mut listen), saying);
        let status = String::from_utf8(status).unwrap();
        assert!(status.contains("Success") && out.is_empty() && err.is_empty(), "{file}: {status}");
        let (_, size) = exec(&cluster, "reader", &format!("stat%20-c%20%25s%20{file}")).await;
        assert_eq!(size, format!("{}\n", MESSAGES * LENGTH), "{file}: {said:?}");
    }
}

async fn a_terminal_is_a_terminal(cluster: Arc<Cluster>) {
    cluster.pod("tty", script("sleep 1000")).await;
    cluster.until_ready("tty").await;
    let path = "/exec/default/tty/main?command=sh&command=-c&command=read%20x%3B%20stty%20size%3B%20tty&stdin=1&stdout=1&tty=1";
    let mut socket = connect(&cluster, path, "v5.channel.k8s.io").await;
    socket.send(Message::Binary(b"\x04{\"Width\":91,\"Height\":17}".to_vec().into())).await.unwrap();
    socket.send(Message::Binary(b"\0go\n".to_vec().into())).await.unwrap();
    let [_, out, _, status, _] = hear(&mut socket).await;
    assert!(out.contains("17 91\r\n") && out.contains("/dev/pts/"), "{out:?}");
    assert!(status.contains("Success"), "{status}");
}

async fn much_goes_through_a_container_that_is_attached_to(cluster: Arc<Cluster>) {
    const MESSAGES: usize = 100;
    const LENGTH: usize = 32 << 10;
    let mut spec = script("exec cat");
    spec["restartPolicy"] = json!("Never");
    (spec["containers"][0]["stdin"], spec["containers"][0]["stdinOnce"]) = (json!(true), json!(true));
    cluster.pod("echo", spec).await;
    cluster.until_phase("echo", "Running").await;
    let path = "/attach/default/echo/main?stdin=1&stdout=1&stderr=1";
    let (mut say, mut listen) = connect(&cluster, path, "v5.channel.k8s.io").await.split();
    let saying = async {
        for _ in 0..MESSAGES {
            say.send(Message::Binary(vec![0; LENGTH + 1].into())).await.unwrap();
        }
        say.send(Message::Binary(vec![255, 0].into())).await.unwrap();
    };
    let ([_, out, _, status, _], ()) = tokio::join!(hear_bytes(&mut listen), saying);
    assert!(out.len() == MESSAGES * LENGTH && out.iter().all(|byte| *byte == 0), "{}", out.len());
    assert!(String::from_utf8(status).unwrap().contains("Success"));
    cluster.until_phase("echo", "Succeeded").await;
}

async fn who_only_listens_leaves_a_container_its_input(cluster: Arc<Cluster>) {
    let mut spec = script("(while sleep 0.1; do echo tick; done) & exec cat");
    spec["restartPolicy"] = json!("Never");
    (spec["containers"][0]["stdin"], spec["containers"][0]["stdinOnce"]) = (json!(true), json!(true));
    cluster.pod("listen", spec).await;
    cluster.until_phase("listen", "Running").await;
    let path = "/attach/default/listen/main?stdout=1";
    let mut listener = connect(&cluster, path, "v5.channel.k8s.io").await;
    assert_eq!(listener.next().await.unwrap().unwrap(), Message::Binary(b"\x01tick\n".to_vec().into()));
    let mut writer = connect(&cluster, &format!("{path}&stdin=1"), "v5.channel.k8s.io").await;
    writer.send(Message::Binary(b"\0heard\n".to_vec().into())).await.unwrap();
    writer.send(Message::Binary(vec![255, 0].into())).await.unwrap();
    for socket in [&mut writer, &mut listener] {
        let [_, out, _, status, _] = hear(socket).await;
        assert!(out.contains("heard\n") && status.contains("Success"), "{out} {status}");
    }
    cluster.until_phase("listen", "Succeeded").await;
}

async fn a_port_is_forwarded(cluster: Arc<Cluster>) {
    cluster.pod("port", script("while true; do echo answered | nc -l -p 8080; done")).await;
    cluster.until_ready("port").await;
    let (data, error) = cluster
        .until("somebody listens", || async {
            let path = "/portForward/default/port?ports=8080";
            let [data, error, ..] = hear_bytes(&mut connect(&cluster, path, "v4.channel.k8s.io").await).await;
            (data.len() > 2).then_some((data, error))
        })
        .await;
    assert_eq!(data, [&8080u16.to_le_bytes()[..], b"answered\n"].concat());
    assert_eq!(error, 8080u16.to_le_bytes());
    let mut socket = connect(&cluster, "/portForward/default/port?ports=9", "v4.channel.k8s.io").await;
    let [_, error, ..] = hear_bytes(&mut socket).await;
    let error = String::from_utf8_lossy(&error);
    assert!(error.contains("connection refused"), "{error}");
}

async fn last_words_of_a_pod_are_heard_by_a_caller_that_still_talks(cluster: Arc<Cluster>) {
    cluster.pod("curt", script("exec nc -ll -p 8080 -e echo enough")).await;
    cluster.until_ready("curt").await;
    let dial = || async {
        let dial = http::Request::get("/dial/default/curt/8080").header("Upgrade", "tcp");
        let answer = send(&cluster, TOKEN, dial.header("Connection", "Upgrade")).await;
        (answer.status() == 101).then_some(answer)
    };
    cluster.until("somebody listens", dial).await;
    for round in 0..20 {
        let answer = cluster.until("a connection", dial).await;
        let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        let written = stream.write_all(&[b'x'; 256 << 10]).await.map_err(|error| error.kind());
        let mut told = String::new();
        let heard = stream.read_to_string(&mut told).await.map_err(|error| error.kind());
        assert_eq!((written, heard, told.as_str()), (Ok(()), Ok(7), "enough\n"), "round {round}");
    }
}
