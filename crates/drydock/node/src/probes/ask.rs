//! One question to a container.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use drydock_sandbox as sandbox;
use k8s_openapi::api::core::v1::{Container, ExecAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;

use super::health;
use super::page::http_get;
use crate::pods::start::chain;

/// How much of what a program says is kept for the event.
const KEPT: usize = 10 * 1024;
const KILL: i32 = 9;

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

impl From<String> for Bad {
    fn from(words: String) -> Self {
        Self::Failed(words)
    }
}

impl Bad {
    /// The same in other words.
    pub fn said(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Failed(why) => Self::Failed(words(why)),
            Self::Unasked(why) => Self::Unasked(words(why)),
        }
    }

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
        return dial(target, address, timeout).await.map(|_| None);
    }
    if let Some(action) = &probe.grpc {
        let port = port(&target.spec, &IntOrString::Int(action.port))?;
        let address = SocketAddr::new(target.pod.address().into(), port);
        let service = action.service.as_deref().unwrap_or_default();
        return health::check(target, address, service, timeout).await.map(|()| None);
    }
    Err(Bad::Unasked("missing probe handler".to_owned()))
}

/// Runs a program; what it says when it fails. One that takes too long is ended, and so is one whose answer nobody waits
/// for any more.
pub(crate) async fn exec(target: &Target, action: &ExecAction, timeout: Duration) -> Result<(), Bad> {
    let args = action.command.clone().unwrap_or_default();
    let shown = args.join(" ");
    let config = sandbox::ExecConfig { args, ..sandbox::ExecConfig::default() };
    let (tell, ended) = oneshot::channel();
    tokio::spawn(run(target.container.clone(), config, tell));
    let ended = tokio::time::timeout(timeout, ended).await.map_err(|_| {
        let words = format!("command timed out: {shown:?} timed out after {}s", timeout.as_secs());
        Bad::Failed(words)
    })?;
    let ended = ended.map_err(|error| Bad::Unasked(error.to_string()))?;
    let (said, exit) = ended.map_err(|error| Bad::Unasked(error.to_string()))?;
    if exit.code == 0 {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    Err(Bad::Failed(match said.is_empty() {
        true => format!("command {shown:?} exited with {}", exit.code),
        false => said,
    }))
}

/// How a program ended, and the beginning of what it said.
type Ended = Result<(Vec<u8>, sandbox::Exit), sandbox::Error>;

/// Runs a program to its end, or for as long as somebody wants to hear of it. It may be given up before it has begun, so
/// this goes on by itself.
async fn run(container: sandbox::Container, config: sandbox::ExecConfig, mut tell: oneshot::Sender<Ended>) {
    let ended = match container.exec(config).await {
        Ok(mut program) => tokio::select! {
            ended = finish(&mut program) => ended,
            () = tell.closed() => {
                let _gone = program.signal(KILL).await;
                return;
            }
        },
        Err(error) => Err(error),
    };
    let _given_up = tell.send(ended);
}

/// Waits for a program's end; the beginning of what it said. The rest is read as well: who writes where nobody reads is
/// ended for it.
async fn finish(program: &mut sandbox::Exec) -> Ended {
    let read = async |reader: Option<sandbox::Reader>| {
        let mut text = Vec::new();
        if let Some(mut reader) = reader {
            let _ended = (&mut reader).take(KEPT as u64).read_to_end(&mut text).await;
            let _ended = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
        }
        text
    };
    let (out, err) = (program.streams.stdout.take(), program.streams.stderr.take());
    let (mut said, complained) = tokio::join!(read(out), read(err));
    said.extend(complained);
    Ok((said, program.wait().await?))
}

pub(super) async fn dial(
    target: &Target,
    address: SocketAddr,
    timeout: Duration,
) -> Result<tokio::net::TcpStream, Bad> {
    match tokio::time::timeout(timeout, target.pod.dial(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(sandbox::Error::Unreached { source, .. })) => {
            Err(Bad::Failed(format!("dial tcp {address}: connect: {}", sandbox::words(&source))))
        }
        Ok(Err(error)) => Err(Bad::Unasked(format!("dial tcp {address}: {}", chain(&error)))),
        Err(_) => Err(Bad::Failed(format!("dial tcp {address}: i/o timeout"))),
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
