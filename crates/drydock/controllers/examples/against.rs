//! Runs the controllers against the cluster of the kubeconfig, each under the identity Kubernetes gives it.
//! For a cluster whose own controller manager is off: to see them work on a real API server, with its rights.

use drydock_controllers::{Options, SCHEDULER, WATCHER};
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let config = Config::infer().await?;
    let clients = move |name: &'static str| {
        let mut config = config.clone();
        let user = match name {
            WATCHER => "system:kube-controller-manager".to_owned(),
            SCHEDULER => "system:kube-scheduler".to_owned(),
            name => format!("system:serviceaccount:kube-system:{name}"),
        };
        config.auth_info.impersonate = Some(user);
        Client::try_from(config)
    };
    // A kubeconfig that gives no client gives none under any name.
    clients(WATCHER)?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        token.cancel();
    });
    let options = Options { root_ca: Some("-----BEGIN CERTIFICATE-----\n".into()), ..Options::default() };
    drydock_controllers::run(|name| clients(name).unwrap_or_else(|_| std::process::exit(1)), options, stop)
        .await;
    Ok(())
}
