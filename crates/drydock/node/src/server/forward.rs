//! Port-forward, over either of the two protocols that clients speak in a WebSocket.

use std::collections::BTreeMap;
use std::sync::Arc;

use drydock_sandbox as sandbox;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;

use super::channels::{self, Came, Outgoing, split};
use super::ports::connect;
use super::spdy::{Frame, Reader, Writer};
use super::{Body, Query, Refusal, find, websocket};
use crate::Shared;

/// kubectl's: SPDY in the WebSocket's messages. And the older one: two channels for each port.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const CHANNELS: &str = "v4.channel.k8s.io";

/// Forwards ports of a pod.
pub(crate) fn forward(
    shared: &Arc<Shared>,
    namespace: &str,
    pod: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let found = find(shared, namespace, pod, "")?;
    let sandbox = found.sandbox.ok_or_else(|| {
        Refusal::bad(format!(
            "unable to forward port because pod is not running. Current status={}",
            phase(&found.pod)
        ))
    })?;
    let mut ports = Vec::new();
    for text in query.all("ports").chain(query.all("port")).flat_map(|list| list.split(',')) {
        ports.push(text.parse::<u16>().map_err(|_| Refusal::bad(format!("{text:?} is no port")))?);
    }
    let (response, protocol, socket) = websocket::accept(request, &[TUNNEL, CHANNELS])?;
    if protocol == CHANNELS && ports.is_empty() {
        return Err(Refusal::bad("query parameter \"port\" is required"));
    }
    tokio::spawn(async move {
        let Some(socket) = socket.await else { return };
        let (incoming, outgoing) = split(socket);
        match protocol {
            TUNNEL => tunnel(sandbox, incoming, outgoing.clone()).await,
            _ => by_channels(sandbox, &ports, incoming, outgoing.clone()).await,
        }
        outgoing.close().await;
    });
    Ok(response)
}

fn phase(pod: &k8s_openapi::api::core::v1::Pod) -> String {
    pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_else(|| "Pending".to_owned())
}

/// Each port has a channel for data and one for errors, both of which begin with the port's number.
async fn by_channels(pod: sandbox::Pod, ports: &[u16], mut incoming: channels::Incoming, outgoing: Outgoing) {
    let mut inputs: BTreeMap<u8, mpsc::Sender<Vec<u8>>> = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, port) in ports.iter().copied().enumerate() {
        let Ok(data) = u8::try_from(number * 2) else { break };
        outgoing.send(data, &port.to_le_bytes()).await;
        outgoing.send(data + 1, &port.to_le_bytes()).await;
        let (input, from_client) = mpsc::channel::<Vec<u8>>(16);
        inputs.insert(data, input);
        let (pod, outgoing) = (pod.clone(), outgoing.clone());
        tasks.spawn(async move {
            let stream = match connect(&pod, port).await {
                Ok(stream) => stream,
                Err(message) => {
                    outgoing.send(data + 1, message.as_bytes()).await;
                    return;
                }
            };
            let (mut read, write) = stream.into_split();
            let up = tell(write, from_client);
            let down = async {
                let mut buffer = vec![0; 32 * 1024];
                while let Ok(count) = read.read(&mut buffer).await {
                    if count == 0 || !outgoing.send(data, &buffer[..count]).await {
                        return;
                    }
                }
            };
            tokio::select! {
                () = down => {}
                () = async { up.await; std::future::pending::<()>().await } => {}
            }
        });
    }
    loop {
        tokio::select! {
            came = incoming.next() => match came {
                Some(Came::Data(channel, bytes)) => {
                    if let Some(input) = inputs.get(&channel) {
                        let _gone = input.send(bytes).await;
                    }
                }
                Some(Came::Closed(channel)) => drop(inputs.remove(&channel)),
                None => return,
            },
            ended = tasks.join_next() => if ended.is_none() { return },
        }
    }
}

/// Tells a pod what a client says, until there is no more or nobody listens.
async fn tell(mut pod: OwnedWriteHalf, mut client: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = client.recv().await {
        if pod.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _gone = pod.shutdown().await;
}

/// What is known about a stream of a tunnel.
#[derive(Default)]
struct Streams {
    /// The error stream of a request, by the request's number.
    errors: BTreeMap<String, u32>,
    /// Where data of a stream goes.
    inputs: BTreeMap<u32, mpsc::Sender<Vec<u8>>>,
}

/// Each connection is two streams of SPDY that have the same request number: one for data, one for an error.
async fn tunnel(pod: sandbox::Pod, mut incoming: channels::Incoming, outgoing: Outgoing) {
    let writer = Arc::new(tokio::sync::Mutex::new(Writer::default()));
    let mut reader = Reader::default();
    let mut streams = Streams::default();
    // Ends the connections with the tunnel.
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(bytes) = incoming.bytes().await {
        reader.feed(&bytes);
        loop {
            let frame = match reader.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(error, "a tunnel is broken");
                    return;
                }
            };
            match frame {
                Frame::Open { stream, headers } => {
                    let reply = writer.lock().await.reply(stream);
                    if !outgoing.send_bytes(reply).await {
                        return;
                    }
                    let get = |name: &str| headers.get(name).cloned().unwrap_or_default();
                    let request = get("requestid");
                    if get("streamtype") == "error" {
                        streams.errors.insert(request, stream);
                    } else if let Ok(port) = get("port").parse::<u16>() {
                        let (input, from_client) = mpsc::channel(64);
                        streams.inputs.insert(stream, input);
                        let error = streams.errors.remove(&request);
                        tasks.spawn(connection(
                            pod.clone(),
                            port,
                            stream,
                            error,
                            from_client,
                            outgoing.clone(),
                        ));
                    }
                }
                Frame::Data { stream, bytes, last } => {
                    if let Some(input) = streams.inputs.get(&stream)
                        && !bytes.is_empty()
                    {
                        let _gone = input.send(bytes).await;
                    }
                    if last {
                        streams.inputs.remove(&stream);
                    }
                }
                Frame::Reset { stream } => drop(streams.inputs.remove(&stream)),
                Frame::Ping(number) => {
                    // The numbers of whoever began the connection are odd; even ones are answers to nobody.
                    if number % 2 == 1 && !outgoing.send_bytes(Writer::ping(number)).await {
                        return;
                    }
                }
                Frame::GoAway => return,
                Frame::Other => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }
}

async fn connection(
    pod: sandbox::Pod,
    port: u16,
    stream: u32,
    error: Option<u32>,
    from_client: mpsc::Receiver<Vec<u8>>,
    outgoing: Outgoing,
) {
    match connect(&pod, port).await {
        Ok(connected) => {
            let (mut read, write) = connected.into_split();
            let up = tell(write, from_client);
            let down = async {
                let mut buffer = vec![0; 32 * 1024];
                while let Ok(count) = read.read(&mut buffer).await {
                    if count == 0 || !outgoing.send_bytes(Writer::data(stream, &buffer[..count], false)).await
                    {
                        return;
                    }
                }
            };
            tokio::join!(up, async {
                down.await;
                outgoing.send_bytes(Writer::data(stream, &[], true)).await;
            });
        }
        Err(message) => {
            if let Some(error) = error {
                outgoing.send_bytes(Writer::data(error, message.as_bytes(), false)).await;
            }
            outgoing.send_bytes(Writer::data(stream, &[], true)).await;
        }
    }
    if let Some(error) = error {
        outgoing.send_bytes(Writer::data(error, &[], true)).await;
    }
}
