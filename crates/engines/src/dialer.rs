//! How a connection to a pod comes about.

use std::{io, net::IpAddr, time::Duration};

use futures::future::BoxFuture;
use kube::Client;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use crate::PortForward;

/// Where to: a port of a pod. Some dialers go by the address, others by the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's address.
    pub address: String,
    /// The port.
    pub port: u16,
}

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection, however it came about.
pub type Connection = Box<dyn Stream>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The pod is there, and nobody listens.
    #[error("the connection is refused")]
    Refused,
    /// There is no way to the pod from here: of the service nothing is known.
    #[error("there is no way to it from here")]
    NoWay(#[source] io::Error),
    /// What should be an address is none.
    #[error("{0:?} is no address")]
    NoAddress(String),
}

/// Makes connections to pods. It may take as long as it likes: whoever asks has a deadline.
pub trait Dialer: Send + Sync + 'static {
    /// A connection to a port of a pod.
    fn dial<'a>(&'a self, to: &'a Place) -> BoxFuture<'a, Result<Connection, DialError>>;
}

/// Why nobody can be asked, as engines tell it to operators.
pub(crate) enum Missed {
    /// The pod is there, and nobody listens.
    Refused,
    /// Of the service nothing is known.
    Unreachable(String),
}

/// A connection, if there is one within this time.
pub(crate) async fn reach(
    dialer: &impl Dialer,
    place: &Place,
    within: Duration,
) -> Result<Connection, Missed> {
    match timeout(within, dialer.dial(place)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(DialError::Refused)) => Err(Missed::Refused),
        Ok(Err(error @ DialError::NoWay(_))) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            Err(Missed::Unreachable(format!("{error}: {cause}")))
        }
        Ok(Err(error)) => Err(Missed::Unreachable(error.to_string())),
        Err(_) => Err(Missed::Unreachable(format!("no connection within {within:?}"))),
    }
}

/// How pods are reached from where this process is. That is known, never tried out: seen from elsewhere a pod's
/// address may be another machine's, and what that one says, or refuses, would be taken for the pod's.
#[derive(Clone)]
pub enum Reach {
    /// By address: this process is in the cluster's network.
    Address(PodAddress),
    /// Through the API: it is somewhere else.
    Forward(PortForward),
}

impl Reach {
    /// From inside the cluster's network.
    pub fn inside() -> Self {
        Reach::Address(PodAddress)
    }

    /// From wherever this client reaches the API.
    pub fn outside(client: Client) -> Self {
        Reach::Forward(PortForward::new(client))
    }
}

impl Dialer for Reach {
    fn dial<'a>(&'a self, to: &'a Place) -> BoxFuture<'a, Result<Connection, DialError>> {
        match self {
            Reach::Address(by_address) => by_address.dial(to),
            Reach::Forward(by_forward) => by_forward.dial(to),
        }
    }
}

/// Goes to the pod's address, for whoever is in the cluster's network.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodAddress;

impl Dialer for PodAddress {
    fn dial<'a>(&'a self, to: &'a Place) -> BoxFuture<'a, Result<Connection, DialError>> {
        Box::pin(async move {
            let address: IpAddr = to.address.parse().map_err(|_| DialError::NoAddress(to.address.clone()))?;
            match TcpStream::connect((address, to.port)).await {
                Ok(stream) => Ok(Box::new(stream) as Connection),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(DialError::Refused),
                Err(error) => Err(DialError::NoWay(error)),
            }
        })
    }
}
