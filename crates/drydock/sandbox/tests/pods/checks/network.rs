//! Whom programs reach.

use drydock_sandbox::{PodConfig, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Check, Place, checks};

checks![
    pods_talk_to_each_other_and_to_the_node_by_address,
    a_connection_is_made_inside_the_pod,
    a_pod_in_the_nodes_network_has_its_address,
];

async fn pods_talk_to_each_other_and_to_the_node_by_address(place: &Place) {
    let server = place.pod("server").await;
    let client = place.pod("client").await;
    let mut config = place.container("c", &["httpd", "-f", "-p", "80", "-h", "/etc"]);
    config.user = User { uid: 1234, gid: 1234, groups: Vec::new() };
    server.start(config).await.unwrap();
    let address = server.address();
    let ask = format!("until wget -q -O - http://{address}/plain; do sleep 0.01; done");
    let (_, text) = place.script(&client, "ask", &ask).await;
    assert!(text.ends_with("not a program\n"), "{text}");

    let listener = tokio::net::TcpListener::bind((place.host.address(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let say = format!("echo from a pod | nc {} {port}", place.host.address());
    client.start(place.container("say", &["sh", "-c", &say])).await.unwrap();
    let (mut stream, from) = listener.accept().await.unwrap();
    assert_eq!(from.ip(), client.address());
    let mut buffer = [0; 11];
    stream.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"from a pod\n");

    // What neighbours remember of the node stays true when other pods come and go.
    let (_, text) = place.script(&client, "arp", "cat /proc/net/arp").await;
    let node = place.host.address().to_string();
    let node = text.lines().find(|line| line.split_whitespace().next() == Some(&node));
    assert!(node.is_some_and(|line| line.contains("02:64:72:79:00:01")), "{text}");

    // Every address of the services is the node's to listen on.
    let service = tokio::net::TcpListener::bind("10.96.7.8:80").await.unwrap();
    let say = "echo to a service | nc 10.96.7.8 80";
    client.start(place.container("service", &["sh", "-c", say])).await.unwrap();
    let mut text = String::new();
    service.accept().await.unwrap().0.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "to a service\n");

    // As root this machine reaches pods too, and the node reaches what listens on the machine's loopback.
    if place.host.abilities().root {
        let machine = place.host.machine_address().unwrap();
        let (_, text) = place.script(&client, "up", &format!("nc -w 1 {machine} 1 2>&1; echo $?")).await;
        assert!(text.contains("refused") || text == "1\n", "the machine answers: {text}");
        let outside = place.host.connect_outside(std::net::SocketAddr::from((address, 80))).await;
        let mut outside = outside.unwrap();
        outside.write_all(b"GET /plain HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        outside.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("not a program\n"), "{text}");
    }
    server.stop().await.unwrap();
    client.stop().await.unwrap();
}

async fn a_connection_is_made_inside_the_pod(place: &Place) {
    let pod = place.pod("dial").await;
    pod.start(place.container("c", &["httpd", "-f", "-p", "127.0.0.1:8080", "-h", "/"])).await.unwrap();
    let mut text = String::new();
    place
        .until("someone listens", async || match pod.connect(8080).await {
            Ok(mut stream) => {
                stream.write_all(b"GET /etc/plain HTTP/1.0\r\n\r\n").await.unwrap();
                stream.read_to_string(&mut text).await.is_ok()
            }
            Err(_) => false,
        })
        .await;
    assert!(text.ends_with("not a program\n"), "{text}");
    assert!(pod.connect(9).await.is_err());
    pod.stop().await.unwrap();
}

async fn a_pod_in_the_nodes_network_has_its_address(place: &Place) {
    let config = PodConfig { host_network: true, ..PodConfig::named("host") };
    let pod = place.host.create_pod(config).await.unwrap();
    assert_eq!(pod.address(), place.host.address());
    let (_, text) = place.script(&pod, "c", "ip -o -4 address | grep -c eth0; hostname").await;
    assert_eq!(text, "0\nhost\n", "it has no link of its own");
    pod.start(place.container("server", &["httpd", "-f", "-p", "8099", "-h", "/"])).await.unwrap();
    let other = place.pod("other").await;
    let ask = format!(
        "until wget -q -O - http://{}:8099/etc/plain 2>/dev/null; do sleep 0.01; done",
        pod.address()
    );
    let (_, text) = place.script(&other, "client", &ask).await;
    assert_eq!(text, "not a program\n");
    // Its going takes no address from anybody.
    pod.stop().await.unwrap();
    assert!(other.is_alive());
    let third = place.pod("third").await;
    assert!(![place.host.address(), other.address()].contains(&third.address()));
    other.stop().await.unwrap();
    third.stop().await.unwrap();
}
