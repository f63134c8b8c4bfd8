//! One connection to a port of a pod, passed on both ways.

use std::error::Error;
use std::sync::Arc;

use drydock_sandbox as sandbox;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{Body, Refusal, find, full};
use crate::Shared;

/// Connects as a program in the pod would. The error is what clients are told.
pub(crate) async fn connect(pod: &sandbox::Pod, port: u16) -> Result<TcpStream, String> {
    pod.connect(port).await.map_err(|error| {
        let why = words(error.source().unwrap_or(&error));
        format!(
            "error forwarding port {port} to pod {}, uid : failed to execute portforward in network namespace: \
             failed to connect to localhost:{port} inside namespace: dial tcp4 127.0.0.1:{port}: connect: {why}",
            pod.id()
        )
    })
}

/// What went wrong, without the number that the system has for it.
fn words(error: &(dyn Error + 'static)) -> String {
    let why = error.to_string().to_lowercase();
    why.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Turns the request into a connection to the pod's own address, as others in the cluster have it.
pub(crate) async fn dial(
    shared: &Arc<Shared>,
    namespace: &str,
    pod: &str,
    port: &str,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let port: u16 = port.parse().map_err(|_| Refusal::bad(format!("{port:?} is no port")))?;
    if request.headers().get(header::UPGRADE).is_none_or(|protocol| protocol != "tcp") {
        return Err(Refusal::bad("Upgrade request required"));
    }
    let sandbox = find(shared, namespace, pod, "")?.sandbox;
    let address = sandbox.ok_or_else(|| Refusal::bad(format!("pod {pod:?} is not running")))?.address();
    let to_pod = TcpStream::connect((address, port)).await.map_err(|error| {
        let why = format!("dial tcp {address}:{port}: connect: {}", words(&error));
        Refusal(StatusCode::BAD_GATEWAY, why)
    })?;
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        drydock_splice::splice(TokioIo::new(upgraded), to_pod).await;
    });
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("tcp"));
    Ok(response)
}
