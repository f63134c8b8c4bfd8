//! The two small HTTP servers: metrics, and health.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::{exposition::Form, health::Health, metrics::Metrics, recorder::Recorder};

/// How long a client may take to send its request. Probes and scrapers are quick.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How many connections are served at once: a few scrapers and the kubelet.
const CONNECTIONS: usize = 64;

/// Where a server listens.
#[derive(Debug, Default)]
pub enum Bind {
    /// Nowhere.
    #[default]
    Nowhere,
    /// On this address: `:8080` is that port of all addresses.
    At(String),
    /// Where somebody listens already.
    On(TcpListener),
}

impl Bind {
    /// What a flag says: `:8080`, `127.0.0.1:8080`; `0` or nothing for nowhere.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "" | "0" => Bind::Nowhere,
            address => Bind::At(address.to_owned()),
        }
    }
}

/// A server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address} for {what} (choose another address with {flag}, or 0 for none)")]
pub struct CantListen {
    /// The address, as it was given.
    pub address: String,
    /// What would have been served there.
    pub what: &'static str,
    /// The flag that says where.
    pub flag: &'static str,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// What is served.
#[derive(Clone)]
pub(crate) enum Serves {
    /// `/metrics`, and the recorder for those who may see it.
    Metrics { metrics: Metrics, recorder: Option<Arc<Recorder>> },
    /// `/healthz` and `/readyz`.
    Health(Health),
}

impl Serves {
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            Serves::Metrics { .. } => ("metrics", "--metrics-bind-address"),
            Serves::Health(_) => ("health probes", "--health-probe-bind-address"),
        }
    }

    /// Begins to listen, where that is wanted. Gives the address and the task that serves.
    pub(crate) async fn listen(
        self,
        bind: Bind,
    ) -> Result<Option<impl Future<Output = ()> + Send>, CantListen> {
        let (what, flag) = self.words();
        let listener = match bind {
            Bind::Nowhere => return Ok(None),
            Bind::On(listener) => listener,
            Bind::At(address) => match everywhere_or_at(&address).await {
                Ok(listener) => listener,
                Err(source) => return Err(CantListen { address, what, flag, source }),
            },
        };
        // The port that it is: one may have asked for any.
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "serves {what}");
        }
        Ok(Some(accept(listener, self)))
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let (method, path, query) = (request.method(), request.uri().path(), request.uri().query());
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".to_owned());
        }
        let verbose = query.is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
        match (self, path) {
            (Serves::Metrics { metrics, .. }, "/metrics") => {
                let form = Form::wanted(request.headers());
                let mut response = text(StatusCode::OK, form.of(metrics.text()));
                let value = header::HeaderValue::from_static(form.content_type());
                response.headers_mut().insert(header::CONTENT_TYPE, value);
                response
            }
            (Serves::Metrics { recorder: Some(recorder), .. }, "/debug/recorder") => {
                let object = query.and_then(|query| query.strip_prefix("object=")).map(decoded);
                recorded(recorder, object.as_deref())
            }
            (Serves::Health(health), "/healthz") => checked(health.healthy(verbose)),
            (Serves::Health(health), "/readyz") => checked(health.ready(verbose)),
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        }
    }
}

/// As Go does: a port alone is that of all addresses of both families, or of the one that there is.
async fn everywhere_or_at(address: &str) -> std::io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else { return TcpListener::bind(address).await };
    match TcpListener::bind(format!("[::]:{port}")).await {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
            TcpListener::bind(format!("0.0.0.0:{port}")).await
        }
        bound => bound,
    }
}

/// What the recorder has, or that it has nothing.
fn recorded(recorder: &Recorder, object: Option<&str>) -> Response<Full<Bytes>> {
    let found = recorder.text(object);
    match object {
        _ if !found.is_empty() => text(StatusCode::OK, found),
        None => text(StatusCode::OK, "nothing is recorded yet\n".to_owned()),
        Some(name) => {
            let known = recorder.objects().join("\n");
            text(
                StatusCode::NOT_FOUND,
                format!("nothing is recorded of {name:?}; of these it is:\n{known}\n"),
            )
        }
    }
}

/// The name of an object as it stands in a query: `memcached+default/sample`. The few characters that a client may
/// have put otherwise are put back.
fn decoded(name: &str) -> String {
    name.replace('+', " ").replace("%20", " ").replace("%2F", "/").replace("%2f", "/")
}

fn checked(checked: crate::health::Checked) -> Response<Full<Bytes>> {
    let status = if checked.well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    text(status, checked.text)
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

async fn accept(listener: TcpListener, serves: Serves) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of file handles, or a client that is gone already: the next one may be better.
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let serves = serves.clone();
        connections.spawn(async move {
            let service = service_fn(|request: Request<hyper::body::Incoming>| {
                let answer = serves.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(REQUEST_WITHIN);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::trace!(%error, "a connection ended");
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn check(serves: &Serves, path: &str, status: u16, contains: &str) {
        let answer = serves.answer(&Request::get(path).body(()).unwrap());
        assert_eq!(answer.status().as_u16(), status, "{path}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains(contains), "{path}: {body}");
    }

    #[tokio::test]
    async fn each_path_has_its_answer() {
        let metrics = Serves::Metrics { metrics: Metrics::default(), recorder: None };
        check(&metrics, "/metrics", 200, "# TYPE process_cpu_seconds_total counter\n").await;
        check(&metrics, "/healthz", 404, "").await;
        check(&metrics, "/debug/recorder", 404, "").await;
        let health = Serves::Health(Health::default());
        check(&health, "/healthz", 200, "ok").await;
        check(&health, "/readyz", 500, "[-]caches failed").await;
        check(&health, "/healthz?verbose", 200, "[+]ping ok").await;
        let lost = Health::default();
        lost.stands(crate::health::Standing::Lost);
        check(&Serves::Health(lost), "/healthz", 500, "[-]lease failed: it is lost").await;
        let recorder = Serves::Metrics { metrics: Metrics::default(), recorder: Some(Arc::default()) };
        check(&recorder, "/debug/recorder", 200, "nothing is recorded yet").await;
        check(&recorder, "/debug/recorder?object=a%20b%2fc", 404, "nothing is recorded of \"a b/c\"").await;
    }

    #[tokio::test]
    async fn metrics_are_plain_unless_open_metrics_are_asked_for() {
        let serves = Serves::Metrics { metrics: Metrics::default(), recorder: None };
        for (accept, kind, open) in [
            ("*/*", "text/plain; version=0.0.4; charset=utf-8", false),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                true,
            ),
        ] {
            let request = Request::get("/metrics").header(header::ACCEPT, accept).body(()).unwrap();
            let answer = serves.answer(&request);
            assert_eq!(answer.headers()[header::CONTENT_TYPE], kind, "{accept}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.ends_with(b"# EOF\n"), open, "{accept}");
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let serves = Serves::Health(Health::default());
        let Err(error) = serves.listen(Bind::parse(&address)).await else { panic!("it listens twice") };
        assert_eq!(
            error.to_string(),
            format!(
                "can't listen on {address} for health probes (choose another address with \
                 --health-probe-bind-address, or 0 for none)"
            )
        );
    }

    #[tokio::test]
    async fn zero_is_not_at_all() {
        for text in ["0", "", " 0 "] {
            let serves = Serves::Health(Health::default());
            assert!(serves.listen(Bind::parse(text)).await.unwrap().is_none(), "{text:?}");
        }
    }
}
