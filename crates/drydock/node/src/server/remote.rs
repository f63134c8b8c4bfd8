//! Programs in containers, with their standard files at the other end of a connection.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use drydock_sandbox as sandbox;
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::channels::{Came, ERROR, Outgoing, RESIZE, STDERR, STDIN, STDOUT, split};
use super::{Body, Query, Refusal, channels, find, websocket};
use crate::Shared;

const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// Which of the standard files are wanted.
#[derive(Clone, Copy)]
struct Files {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Files {
    fn of(query: &Query) -> Result<Self, Refusal> {
        let tty = query.is(&["tty"]);
        let files = Self {
            stdin: query.is(&["input", "stdin"]),
            stdout: query.is(&["output", "stdout"]),
            stderr: query.is(&["error", "stderr"]) && !tty,
            tty,
        };
        if !files.stdin && !files.stdout && !files.stderr {
            return Err(Refusal::bad("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(files)
    }
}

fn running(
    shared: &Shared,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Result<sandbox::Container, Refusal> {
    let found = find(shared, namespace, pod, container)?;
    let running =
        found.container.map(|(container, _)| container).filter(|container| container.exit().is_none());
    running.ok_or_else(|| Refusal::absent(format!("container not found (\"{container}\")")))
}

/// Runs a program in a container.
pub(crate) async fn exec(
    shared: &Arc<Shared>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let container = running(shared, namespace, pod, container)?;
    let files = Files::of(query)?;
    let config = sandbox::ExecConfig {
        args: query.all("command").map(str::to_owned).collect(),
        env: if files.tty { vec![("TERM".to_owned(), "xterm".to_owned())] } else { Vec::new() },
        tty: files.tty,
        stdin: files.stdin,
        ..sandbox::ExecConfig::default()
    };
    let (response, _, socket) = websocket::accept(request, &PROTOCOLS)?;
    tokio::spawn(async move {
        let Some(socket) = socket.await else { return };
        let (incoming, outgoing) = split(socket);
        let status = match container.exec(config).await {
            Ok(program) => converse(program, files, incoming, &outgoing).await,
            Err(error) => failure(&format!("error executing command in container: {error}")),
        };
        outgoing.send(ERROR, status.to_string().as_bytes()).await;
        outgoing.close().await;
    });
    Ok(response)
}

/// Passes everything on until the program has ended; what is said about its end. It may read on after its outputs have
/// ended.
async fn converse(
    mut program: sandbox::Exec,
    files: Files,
    mut incoming: channels::Incoming,
    outgoing: &Outgoing,
) -> Value {
    let first = if files.stdout { STDOUT } else { STDERR };
    outgoing.send(first, &[]).await;
    let sandbox::Streams { stdin, stdout, stderr, terminal } = std::mem::take(&mut program.streams);
    let ended = async {
        let to = |wanted: bool| wanted.then_some(outgoing);
        tokio::join!(pass_on(stdout, STDOUT, to(files.stdout)), pass_on(stderr, STDERR, to(files.stderr)));
        program.wait().await
    };
    let exit = tokio::select! {
        exit = ended => exit,
        () = take_in(&mut incoming, stdin, |columns, rows| terminal.resize(columns, rows)) => {
            return failure("the client is gone");
        }
    };
    match exit {
        Ok(exit) => self::ended(exit.code),
        Err(error) => failure(&error.to_string()),
    }
}

/// Joins a container's own standard files.
pub(crate) async fn attach(
    shared: &Arc<Shared>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    // Who wants to join one that has ended is let in first, and told then.
    let missing =
        format!("unable to upgrade connection: container {container} not found in pod {pod}_{namespace}");
    let container = running(shared, namespace, pod, container);
    let files = Files::of(query)?;
    let (response, _, socket) = websocket::accept(request, &PROTOCOLS)?;
    tokio::spawn(async move {
        let Some(socket) = socket.await else { return };
        let (mut incoming, outgoing) = split(socket);
        let attached = match container {
            Ok(container) => container.attach(files.stdin).await.map_err(|error| detached(Err(error))),
            Err(_) => Err(failure(&missing)),
        };
        let mut attached = match attached {
            Ok(attached) => attached,
            Err(status) => {
                outgoing.send(ERROR, status.to_string().as_bytes()).await;
                outgoing.close().await;
                return;
            }
        };
        let stdin = attached.stdin.take();
        let terminal = std::mem::take(&mut attached.terminal);
        let outputs = async {
            while let Some(piece) = attached.next().await? {
                let (channel, bytes) = match piece {
                    sandbox::Piece::Out(bytes) if files.stdout => (STDOUT, bytes),
                    sandbox::Piece::Err(bytes) if files.stderr => (STDERR, bytes),
                    _ => continue,
                };
                if !outgoing.send(channel, &bytes).await {
                    break;
                }
            }
            io::Result::Ok(())
        };
        let heard = tokio::select! {
            heard = outputs => heard,
            () = take_in(&mut incoming, stdin, |columns, rows| terminal.resize(columns, rows)) => return,
        };
        outgoing.send(ERROR, detached(heard).to_string().as_bytes()).await;
        outgoing.close().await;
    });
    Ok(response)
}

/// Takes what the client says until it is gone. A program that does not read holds the client up, and nobody else.
async fn take_in(
    incoming: &mut channels::Incoming,
    mut stdin: Option<pipe::Sender>,
    resize: impl Fn(u16, u16) -> io::Result<()>,
) {
    while let Some(came) = incoming.next().await {
        match came {
            Came::Data(STDIN, bytes) => {
                if let Some(open) = &mut stdin
                    && open.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            Came::Closed(STDIN) => stdin = None,
            Came::Data(RESIZE, bytes) => {
                if let Some((columns, rows)) = size(&bytes) {
                    let _gone = resize(columns, rows);
                }
            }
            Came::Data(..) | Came::Closed(_) => {}
        }
    }
}

/// Passes on what a program writes, or reads it in vain where nobody wants it: who writes where nobody reads is ended
/// for it.
async fn pass_on(from: Option<impl AsyncRead + Unpin>, channel: u8, to: Option<&Outgoing>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if let Some(outgoing) = to
            && !outgoing.send(channel, &buffer[..count]).await
        {
            return;
        }
    }
}

/// The size of a terminal, as clients send it: `{"Width":80,"Height":24}`.
fn size(bytes: &[u8]) -> Option<(u16, u16)> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let number = |name: &str| u16::try_from(value[name].as_u64()?).ok();
    Some((number("Width")?, number("Height")?))
}

/// What is said when a container's outputs have ended: how the container did is told elsewhere.
fn detached(heard: Result<(), impl Display>) -> Value {
    match heard {
        Ok(()) => ended(0),
        Err(error) => failure(&format!("error attaching to container: {error}")),
    }
}

fn ended(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: command terminated with exit code {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

fn failure(message: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {message}"),
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_break_off_are_no_success() {
        assert_eq!(detached(Ok::<_, String>(()))["status"], "Success");
        let cut = detached(Err("its output broke off"));
        assert_eq!(cut["status"], "Failure");
        assert_eq!(
            cut["message"],
            "Internal error occurred: error attaching to container: its output broke off"
        );
    }
}
