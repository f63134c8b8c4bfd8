//! What the API server asks of the node: logs, exec, attach, port-forward, and connections to pods.
//!
//! HTTP/1.1 on a socket in the file system, under the paths of a kubelet and one more. Every request bears the token that the
//! node was started with, if it was with one; whether a user may do what is asked was the API server's to find
//! out.
//!
//! | path | what |
//! | --- | --- |
//! | `/healthz` | `ok` |
//! | `/containerLogs/{namespace}/{pod}/{container}` | the log; `follow`, `previous`, `tailLines`, `sinceSeconds`, `sinceTime`, `timestamps`, `limitBytes` |
//! | `/exec/{namespace}/{pod}/{container}` | WebSocket; `command` (again for each word), `input`, `output`, `error`, `tty`, or the API's `stdin`, `stdout`, `stderr` |
//! | `/attach/{namespace}/{pod}/{container}` | WebSocket; as exec, without a command |
//! | `/portForward/{namespace}/{pod}` | WebSocket; SPDY in it, or one pair of channels for each of `ports` |
//! | `/dial/{namespace}/{pod}/{port}` | upgraded to `tcp`: a connection to the pod's address, which a kubelet leaves to the API server |

mod channels;
mod forward;
mod ports;
mod remote;
mod spdy;
mod websocket;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use drydock_sandbox as sandbox;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::Shared;
use crate::logs;
use crate::logs::lines::Wish;
use crate::pods::Live;

pub(crate) type Body = BoxBody<Bytes, io::Error>;

/// Answers until it is dropped.
pub(crate) async fn serve(shared: Arc<Shared>, listener: UnixListener, token: Option<String>) {
    let token: Option<Arc<str>> = token.map(Into::into);
    // Ends the connections with the server.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (shared, token) = (Arc::clone(&shared), token.clone());
                    let service = hyper::service::service_fn(move |request| {
                        let (shared, token) = (Arc::clone(&shared), token.clone());
                        async move { Ok::<_, std::convert::Infallible>(answer(&shared, token.as_deref(), request).await) }
                    });
                    let connection =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    connections.spawn(async move {
                        if let Err(error) = connection.with_upgrades().await {
                            tracing::debug!(%error, "a connection broke");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A refusal: its code and what it says.
pub(crate) struct Refusal(pub StatusCode, pub String);

impl Refusal {
    fn bad(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, message.into())
    }

    fn absent(message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, message.into())
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(full(self.1));
        *response.status_mut() = self.0;
        response
    }
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

async fn answer(shared: &Arc<Shared>, token: Option<&str>, request: Request<Incoming>) -> Response<Body> {
    if !token.is_none_or(|token| is_known(&request, token)) {
        return Refusal(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()).into_response();
    }
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let query = Query::of(request.uri().query().unwrap_or_default());
    let answered = match parts.as_slice() {
        ["healthz"] => Ok(Response::new(full("ok"))),
        ["containerLogs", namespace, pod, container] => show_logs(shared, namespace, pod, container, &query),
        ["exec", namespace, pod, container] => {
            remote::exec(shared, namespace, pod, container, &query, request).await
        }
        ["attach", namespace, pod, container] => {
            remote::attach(shared, namespace, pod, container, &query, request).await
        }
        ["portForward", namespace, pod] => forward::forward(shared, namespace, pod, &query, request),
        ["dial", namespace, pod, port] => ports::dial(shared, namespace, pod, port, request).await,
        _ => Err(Refusal::absent("404 page not found")),
    };
    answered.unwrap_or_else(Refusal::into_response)
}

/// Compares in a time that does not tell where the difference is.
fn is_known(request: &Request<Incoming>, token: &str) -> bool {
    let header = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    let same = given.bytes().zip(token.bytes()).fold(0u8, |difference, (a, b)| difference | (a ^ b));
    !token.is_empty() && given.len() == token.len() && same == 0
}

/// A request's parameters, in order.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn of(text: &str) -> Self {
        let word = |text: &str| {
            let text = text.replace('+', " ");
            percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (word(k), word(v)))
                .collect(),
        )
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn get<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// Whether any of these is set.
    pub fn is(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.get(name).is_some_and(|value| value == "1" || value == "true"))
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let parsed = self.get(name).filter(|text| !text.is_empty()).map(str::parse).transpose();
        parsed.map_err(|_| Refusal::bad(format!("invalid {name}")))
    }
}

/// A pod of this node, and what runs of it.
pub(crate) struct Found {
    pub pod: Arc<Pod>,
    pub sandbox: Option<sandbox::Pod>,
    pub live: Arc<Mutex<Live>>,
    /// The container that runs, or ran last, and how often it was started again.
    pub container: Option<(sandbox::Container, i32)>,
}

pub(crate) fn find(shared: &Shared, namespace: &str, name: &str, container: &str) -> Result<Found, Refusal> {
    let pods = shared.pods.lock();
    let handle = pods.values().find(|handle| {
        let sight = handle.pod.borrow();
        let meta = &sight.pod.metadata;
        !sight.absent && meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
    });
    let handle = handle.ok_or_else(|| Refusal::absent(format!("pod \"{name}\" not found")))?;
    let live = handle.live.lock();
    let restarts = live.restarts.get(container).copied().unwrap_or(0);
    Ok(Found {
        pod: Arc::clone(&handle.pod.borrow().pod),
        sandbox: live.sandbox.clone(),
        live: Arc::clone(&handle.live),
        container: live.containers.get(container).cloned().map(|found| (found, restarts)),
    })
}

/// What is wanted of a log.
fn wish(query: &Query, now: Timestamp) -> Result<Wish, Refusal> {
    let positive = |number: Option<i64>| number.and_then(|number| usize::try_from(number).ok());
    let since = match (query.number("sinceSeconds")?, query.get("sinceTime").filter(|text| !text.is_empty()))
    {
        // Whatever is longer ago than all time is all.
        (Some(seconds), _) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
        (None, Some(text)) => Some(text.parse().map_err(|_| Refusal::bad("invalid sinceTime"))?),
        (None, None) => None,
    };
    Ok(Wish {
        follow: query.is(&["follow"]),
        previous: query.is(&["previous"]),
        tail: positive(query.number("tailLines")?),
        since,
        timestamps: query.is(&["timestamps"]),
        limit: positive(query.number("limitBytes")?),
    })
}

fn show_logs(
    shared: &Arc<Shared>,
    namespace: &str,
    name: &str,
    container: &str,
    query: &Query,
) -> Result<Response<Body>, Refusal> {
    let found = find(shared, namespace, name, container)?;
    let known = found.pod.spec.as_ref().is_some_and(|spec| {
        let mut own = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let mut ephemeral = spec.ephemeral_containers.iter().flatten();
        own.any(|one| one.name == container) || ephemeral.any(|one| one.name == container)
    });
    if !known {
        return Err(Refusal::absent(format!("container \"{container}\" not found in pod \"{name}\"")));
    }
    let wish = wish(query, shared.now())?;
    let status = found.pod.status.as_ref();
    let shown = status.into_iter().flat_map(|status| {
        let ephemeral = &status.ephemeral_container_statuses;
        [&status.container_statuses, &status.init_container_statuses, ephemeral]
            .into_iter()
            .flatten()
            .flatten()
    });
    let shown = shown.into_iter().find(|status| status.name == container);
    let restarts = match (&found.container, shown) {
        (Some((_, restarts)), _) => *restarts,
        (None, Some(status)) => status.restart_count,
        (None, None) => 0,
    };
    // What this node says, and what it said before it was started again.
    let waiting = found.live.lock().waiting.get(container).cloned().or_else(|| {
        let shown = shown.filter(|_| found.container.is_none())?;
        shown.state.as_ref()?.waiting.as_ref()?.reason.clone()
    });
    // Of one that waits to be started again the last start is the one before.
    let ended =
        shown.is_some_and(|status| status.last_state.as_ref().is_some_and(|last| last.terminated.is_some()));
    let again = waiting.is_some() && (found.container.is_some() || ended);
    let restart = restarts - i32::from(wish.previous && !again);
    let path = logs::file(&shared.logs, &found.pod, container, restart);
    if restart < 0 || !path.exists() {
        if wish.previous {
            let message =
                format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
            return Err(Refusal::bad(message));
        }
        if found.container.is_none() {
            let reason = waiting.unwrap_or_else(|| "ContainerCreating".to_owned());
            let reason = match reason.as_str() {
                "ErrImagePull" | "ImagePullBackOff" => "trying and failing to pull image",
                reason => reason,
            };
            let message =
                format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}");
            return Err(Refusal::bad(message));
        }
    }
    let running = found.container.filter(|_| !wish.previous).map(|(container, _)| container);
    let (live, of) = (found.live, container.to_owned());
    let is_written = move || {
        running.as_ref().is_some_and(|running| {
            let live = live.lock();
            let current = live.containers.get(&of).is_some_and(|current| current.id() == running.id());
            current && running.exit().is_none()
        })
    };
    let (to, pieces) = mpsc::channel(16);
    tokio::spawn(logs::stream::send(path, wish, is_written, to));
    let pieces = futures::stream::unfold(pieces, |mut pieces| async {
        pieces.recv().await.map(|piece| (piece.map(Frame::data), pieces))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(pieces)));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::lines::Shown;

    #[test]
    fn lines_that_were_written_before_are_not_shown() {
        let log =
            "2024-01-01T00:00:00.000000000Z stdout F old\n2024-01-01T00:00:02.000000000Z stdout F new\n";
        let now = "2024-01-01T00:00:03Z".parse().unwrap();
        let check = |query: &str, expected: &str| {
            let wish = wish(&Query::of(query), now).map_err(|refusal| refusal.1).unwrap();
            let shown = Shown::new(wish).take(log.as_bytes());
            assert_eq!(String::from_utf8(shown).unwrap(), expected, "{query}");
        };
        check("", "old\nnew\n");
        check("sinceSeconds=1", "new\n");
        check("sinceSeconds=2", "new\n");
        check("sinceSeconds=3", "old\nnew\n");
        check("sinceSeconds=9223372036854775807", "old\nnew\n");
        check("sinceTime=2024-01-01T00:00:01Z", "new\n");
        check("sinceTime=2024-01-01T00:00:03Z", "");
    }
}
