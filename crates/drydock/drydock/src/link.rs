//! What connects a client to the API: the same HTTP either way, over memory, a socket or TLS.
//!
//! A client in the same process speaks HTTP/1.1 over a pair of pipes, one pair per connection, pooled as
//! sockets would be. That is a little more work than calling the API as a function, and it is the real thing:
//! a connection can be cut and can be upgraded.

use std::future::{Ready, ready};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use drydock_access::Identity;
use drydock_api::{Api, Caller, Cut, ResponseBody};
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceBuilder};

/// How much may be under way in each direction before the sender has to wait.
const PIPE: usize = 64 << 10;

/// The API and the tasks that serve it.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) api: Api,
    /// Everything that runs on behalf of this cluster.
    pub(crate) tasks: TaskTracker,
    /// No new work: finish what is under way.
    pub(crate) stopping: CancellationToken,
    /// Now.
    pub(crate) stopped: CancellationToken,
}

impl Link {
    /// Answers one request. An error is a connection to be cut.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        caller: Caller,
    ) -> Result<Response<Answered>, Cut> {
        let response = self.api.handle(request, caller).await;
        match response.extensions().get::<Cut>() {
            Some(cut) => Err(*cut),
            None => Ok(response.map(|body| Answered { body, cut: None })),
        }
    }

    /// A client in this process. It bears `identity`, and names itself `agent` where the request does not.
    pub(crate) fn client(&self, identity: Identity, agent: &'static str) -> kube::Client {
        let connector = Connector { link: self.clone(), identity: Arc::new(identity) };
        client_over(HttpClient::builder(TokioExecutor::new()).build(connector), agent)
    }

    async fn serve_pipe(self, pipe: DuplexStream, identity: Arc<Identity>) {
        let service = service_fn(|request| {
            let (link, identity) = (self.clone(), Arc::clone(&identity));
            async move { link.answer(request, Caller::Trusted((*identity).clone())).await }
        });
        let server = auto::Builder::new(TokioExecutor::new()).http1_only();
        self.drive(server.serve_connection_with_upgrades(TokioIo::new(pipe), service)).await;
    }

    /// Sees a connection through to its end: its own, or after its last answer when the link is stopping.
    pub(crate) async fn drive<C>(&self, connection: C)
    where
        C: GracefulConnection,
        C::Error: std::fmt::Display,
    {
        tokio::pin!(connection);
        let mut told = false;
        loop {
            tokio::select! {
                () = self.stopped.cancelled() => return,
                () = self.stopping.cancelled(), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::trace!(%error, "a connection ended");
                    }
                    return;
                }
            }
        }
    }
}

/// A client of an API that is [served](crate::Drydock::serve_as) on a socket among the files. All its requests
/// share one connection, which is made anew when it breaks.
pub fn client_at(socket: impl Into<PathBuf>, agent: &'static str) -> kube::Client {
    let connector = Socket(socket.into().into());
    let mut builder = HttpClient::builder(TokioExecutor::new());
    builder.http2_only(true).http2_adaptive_window(true);
    client_over(builder.build(connector), agent)
}

fn client_over<C>(http: HttpClient<C, kube::client::Body>, agent: &'static str) -> kube::Client
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    let service = ServiceBuilder::new()
        .map_request(move |mut request: Request<kube::client::Body>| {
            let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            // A path that was a URI's stays one behind a scheme and a host.
            if let Ok(absolute) = Uri::try_from(format!("http://drydock{path}")) {
                *request.uri_mut() = absolute;
            }
            request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
            request
        })
        .service(http);
    kube::Client::new(service, "default")
}

/// A body whose cut comes after what was said before it: HTTP throws away what it has yet to flush when a body
/// fails, so it is let do that first.
pub(crate) struct Answered {
    body: ResponseBody,
    cut: Option<Cut>,
}

impl Body for Answered {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(cut) = self.cut.take() {
            return Poll::Ready(Some(Err(cut)));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let Poll::Ready(Some(Err(cut))) = frame else { return frame };
        self.cut = Some(cut);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.cut.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Clone)]
struct Connector {
    link: Link,
    identity: Arc<Identity>,
}

impl Service<Uri> for Connector {
    type Response = Pipe<DuplexStream>;
    type Error = io::Error;
    type Future = Ready<Result<Pipe<DuplexStream>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        if self.link.stopping.is_cancelled() {
            return ready(Err(io::Error::new(io::ErrorKind::NotConnected, "this drydock has been stopped")));
        }
        let (ours, theirs) = tokio::io::duplex(PIPE);
        self.link.tasks.spawn(self.link.clone().serve_pipe(theirs, Arc::clone(&self.identity)));
        ready(Ok(Pipe(TokioIo::new(ours))))
    }
}

#[derive(Clone)]
struct Socket(Arc<Path>);

impl Service<Uri> for Socket {
    type Response = Pipe<UnixStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Pipe<UnixStream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = Arc::clone(&self.0);
        Box::pin(async move { Ok(Pipe(TokioIo::new(UnixStream::connect(path).await?))) })
    }
}

/// The client's end of a connection.
struct Pipe<S>(TokioIo<S>);

impl<S> Connection for Pipe<S> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl<S: AsyncRead + Unpin> hyper::rt::Read for Pipe<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Pipe<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
