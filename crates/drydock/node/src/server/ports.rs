//! One connection to a port of a pod, passed on both ways.

use drydock_sandbox as sandbox;
use tokio::net::TcpStream;

/// Connects as a program in the pod would. The error is what clients are told.
pub(crate) async fn connect(pod: &sandbox::Pod, port: u16) -> Result<TcpStream, String> {
    pod.connect(port).await.map_err(|error| {
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_else(|| error.to_string());
        let why = why.to_lowercase();
        let why = why.split(" (os error").next().unwrap_or_default();
        format!(
            "error forwarding port {port} to pod {}, uid : failed to execute portforward in network namespace: \
             failed to connect to localhost:{port} inside namespace: dial tcp4 127.0.0.1:{port}: connect: {why}",
            pod.id()
        )
    })
}
