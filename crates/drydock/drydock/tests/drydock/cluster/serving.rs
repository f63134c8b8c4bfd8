//! The API over TLS, found by a kubeconfig.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use drydock::{Drydock, Identity, KubeconfigError};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::support::*;

async fn client(kubeconfig: Kubeconfig) -> Client {
    Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap())
        .unwrap()
}

async fn served(drydock: &Drydock, address: &str, kubeconfig: &Path) -> Client {
    drydock.serve(TcpListener::bind(address).await.unwrap()).unwrap();
    drydock.write_kubeconfig(kubeconfig).unwrap();
    client(Kubeconfig::read_from(kubeconfig).unwrap()).await
}

#[tokio::test]
async fn a_written_kubeconfig_is_all_a_client_needs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kube/config");
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        let drydock = quiet().await;
        assert!(matches!(drydock.kubeconfig(), Err(KubeconfigError::NotServed)));
        let api: Api<ConfigMap> = Api::default_namespaced(served(&drydock, address, &path).await);
        create(&api, "over-tls").await.unwrap();
        assert_eq!(names(&config_maps(&drydock)).await, ["over-tls"]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let entry =
            drydock.requests().entries().into_iter().find(|entry| entry.verb.as_str() == "create").unwrap();
        assert_eq!(entry.user, drydock::ADMIN);
        // HTTP/2 has no `Host`; what the server says of itself is where it is.
        let request = http::Request::get("/.well-known/openid-configuration").body(Vec::new()).unwrap();
        let known: serde_json::Value = api.into_client().request(request).await.unwrap();
        assert_eq!(known["jwks_uri"], format!("{}/openid/v1/jwks", drydock.url().unwrap()));
    }
}

#[tokio::test]
async fn who_is_not_known_gets_nothing_but_health_and_version() {
    let drydock = Drydock::builder()
        .controllers(false)
        .token("sesame", Identity::user("ali", ["thieves"]))
        .start()
        .await
        .unwrap();
    drydock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    for (token, expected) in [("sesame", 403), ("simsim", 401), ("", 401)] {
        let config = drydock.kubeconfig_for("ali", token).unwrap();
        let mut config = Kubeconfig::from_yaml(&config).unwrap();
        if token.is_empty() {
            config.auth_infos[0].auth_info = Some(Default::default());
        }
        let client = client(config).await;
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        assert_eq!(code(&api.list(&Default::default()).await.unwrap_err()), expected, "{token:?}");
        if token != "simsim" {
            let health = http::Request::get("/readyz").body(Vec::new()).unwrap();
            assert_eq!(client.request_text(health).await.unwrap(), "ok");
            client.apiserver_version().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_same_kubeconfig_works_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let start = || Drydock::builder().controllers(false).data_dir(directory.path().join("data")).start();
    let first = start().await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(served(&first, "127.0.0.1:0", &path).await);
    create(&api, "a").await.unwrap();
    let address = first.url().unwrap().trim_start_matches("https://").to_owned();
    first.shutdown().await;
    let second = start().await.unwrap();
    second.serve(TcpListener::bind(&address).await.unwrap()).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client(Kubeconfig::read_from(&path).unwrap()).await);
    assert_eq!(names(&api).await, ["a"]);
    for entry in std::fs::read_dir(directory.path().join("data/keys")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600,
            "{}",
            path.display()
        );
    }
}

#[tokio::test]
async fn a_stop_ends_watches_in_order_and_frees_the_address() {
    let directory = tempfile::tempdir().unwrap();
    let drydock = quiet().await;
    let api: Api<ConfigMap> =
        Api::default_namespaced(served(&drydock, "127.0.0.1:0", &directory.path().join("config")).await);
    let url = drydock.url().unwrap();
    let watch = api.watch(&WatchParams::default(), "0").await.unwrap();
    let idle = config_maps(&drydock);
    names(&idle).await;
    tokio::time::timeout(Duration::from_secs(1), drydock.shutdown()).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), watch.try_collect::<Vec<_>>()).await.unwrap();
    assert!(ended.is_ok(), "{ended:?}");
    TcpListener::bind(url.trim_start_matches("https://")).await.unwrap();
}

#[tokio::test]
async fn who_forgets_the_s_is_told() {
    let drydock = quiet().await;
    let address = drydock.serve(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    // The request is never read, so the connection may also end in a reset.
    let _ = socket.read_to_string(&mut answer).await;
    assert!(answer.contains("Client sent an HTTP request to an HTTPS server."), "{answer}");
}
