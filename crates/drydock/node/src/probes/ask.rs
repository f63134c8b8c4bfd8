//! One question to a container.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use drydock_sandbox as sandbox;
use k8s_openapi::api::core::v1::{Container, ExecAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::AsyncReadExt;

use super::health;
use super::page::http_get;

/// How much of what a program says is kept for the event.
const KEPT: usize = 10 * 1024;

/// The place where a container is asked.
#[derive(Clone)]
pub(crate) struct Target {
    pub pod: sandbox::Pod,
    pub container: sandbox::Container,
    pub spec: Container,
}

/// Why there was no good answer, in the words of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// The container answered badly, or not at all.
    Failed(String),
    /// It could not be asked. That says nothing about the container.
    Unasked(String),
}

impl Bad {
    /// The words alone.
    pub fn into_words(self) -> String {
        match self {
            Self::Failed(words) | Self::Unasked(words) => words,
        }
    }
}

/// A good answer may come with a warning.
pub(crate) type Answer = Result<Option<String>, Bad>;

/// Asks once.
pub(crate) async fn ask(target: &Target, probe: &Probe, timeout: Duration) -> Answer {
    if let Some(action) = &probe.exec {
        return exec(target, action, timeout).await.map(|()| None);
    }
    if let Some(action) = &probe.http_get {
        return http_get(target, action, timeout).await;
    }
    if let Some(action) = &probe.tcp_socket {
        let address = address(target, action.host.as_deref(), &action.port)?;
        return dial(target, address, timeout).await.map(|_| None).map_err(Bad::Failed);
    }
    if let Some(action) = &probe.grpc {
        let port = port(&target.spec, &IntOrString::Int(action.port))?;
        let address = SocketAddr::new(target.pod.address().into(), port);
        let service = action.service.as_deref().unwrap_or_default();
        return health::check(target, address, service, timeout).await.map(|()| None).map_err(Bad::Failed);
    }
    Err(Bad::Unasked("missing probe handler".to_owned()))
}

/// Runs a program; what it says when it fails.
pub(crate) async fn exec(target: &Target, action: &ExecAction, timeout: Duration) -> Result<(), Bad> {
    let args = action.command.clone().unwrap_or_default();
    let shown = args.join(" ");
    let run = async {
        let config = sandbox::ExecConfig { args, ..sandbox::ExecConfig::default() };
        let unasked = |error: sandbox::Error| Bad::Unasked(error.to_string());
        let mut program = target.container.exec(config).await.map_err(unasked)?;
        let (out, err) = (program.streams.stdout.take(), program.streams.stderr.take());
        let read = async |reader: Option<sandbox::Reader>| {
            let mut text = Vec::new();
            if let Some(reader) = reader {
                let _ended = reader.take(KEPT as u64).read_to_end(&mut text).await;
            }
            text
        };
        let (mut said, complained) = tokio::join!(read(out), read(err));
        said.extend(complained);
        let exit = program.wait().await.map_err(unasked)?;
        if exit.code == 0 {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        Err(Bad::Failed(match said.is_empty() {
            true => format!("command {shown:?} exited with {}", exit.code),
            false => said,
        }))
    };
    match tokio::time::timeout(timeout, run).await {
        Ok(answer) => answer,
        Err(_) => {
            let words = format!("command timed out: {shown:?} timed out after {}s", timeout.as_secs());
            Err(Bad::Failed(words))
        }
    }
}

pub(super) async fn dial(
    target: &Target,
    address: SocketAddr,
    timeout: Duration,
) -> Result<tokio::net::TcpStream, String> {
    match tokio::time::timeout(timeout, target.pod.dial(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(sandbox::Error::Machine { source, .. })) => {
            let text = source.to_string().to_lowercase();
            let text = text.split(" (os error").next().unwrap_or_default();
            Err(format!("dial tcp {address}: connect: {text}"))
        }
        Ok(Err(error)) => Err(format!("dial tcp {address}: {error}")),
        Err(_) => Err(format!("dial tcp {address}: i/o timeout")),
    }
}

pub(super) fn address(target: &Target, host: Option<&str>, port: &IntOrString) -> Result<SocketAddr, Bad> {
    let ip: IpAddr = match host.filter(|host| !host.is_empty()) {
        Some(host) => host.parse().map_err(|_| Bad::Failed(format!("{host:?} is no address")))?,
        None => target.pod.address().into(),
    };
    Ok(SocketAddr::new(ip, self::port(&target.spec, port)?))
}

/// A port by number, or by the name that the container gives it.
pub(crate) fn port(container: &Container, port: &IntOrString) -> Result<u16, Bad> {
    let found = match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .and_then(|port| u16::try_from(port.container_port).ok())
            .or_else(|| name.parse().ok()),
    };
    found.filter(|port| *port > 0).ok_or_else(|| {
        Bad::Unasked(match port {
            IntOrString::Int(number) => format!("invalid port number: {number}"),
            IntOrString::String(name) => format!("couldn't find port: {name:?}"),
        })
    })
}
