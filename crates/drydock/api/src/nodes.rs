//! The way to the nodes: what only the node that runs a Pod can answer is asked there.

use std::io;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a node.
pub trait NodeStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> NodeStream for S {}

/// How nodes are reached.
///
/// What is at the other end speaks HTTP/1.1 with a kubelet's paths: `/containerLogs/NAMESPACE/POD/CONTAINER`,
/// `/exec/…`, `/attach/…`, `/portForward/NAMESPACE/POD`; and, of drydock's own, `/dial/NAMESPACE/POD/PORT`, which becomes
/// a connection to that port at the pod's address when it is upgraded to `tcp`. Callers have been authorized; the connection itself must
/// be one that nobody else can make.
pub trait Nodes: Send + Sync {
    /// Connects to the node of this name.
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn NodeStream>>>;
}

/// No node can be reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unreachable;

impl Nodes for Unreachable {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn NodeStream>>> {
        let why = format!("no connection to the node {node}");
        Box::pin(async move { Err(io::Error::new(io::ErrorKind::NotConnected, why)) })
    }
}
