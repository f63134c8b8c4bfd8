//! The small web server that stands for `prgcont/gordon` where there is no registry to have it from.
//!
//! It says who it is and what it was asked for, at every path, and that it is well at `/healthz`. It keeps nothing,
//! reads no file and ends as soon as it is told to: a pod of it costs next to nothing.

use std::{convert::Infallible, future::Future, io, pin::pin, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

/// The port that it listens on in its image.
pub const PORT: u16 = 8080;

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait where no connection can be taken, as when there are too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `until` ends. `name` is who it says it is: the pod's host name.
///
/// # Errors
/// When connections can't be taken for a reason that will not pass.
pub async fn serve(listener: TcpListener, name: String, until: impl Future<Output = ()>) -> io::Result<()> {
    let mut until = pin!(until);
    loop {
        let accepted = tokio::select! {
            () = &mut until => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let name = name.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let answer = answer(&name, request.method(), request.uri().path());
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let mut server = http1::Builder::new();
                    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                    // A client that goes away in the middle is no concern of ours.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// What is said at a path.
fn answer(name: &str, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, path) => (StatusCode::OK, format!("gordon {name} at {path}\n")),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn said(method: Method, path: &str) -> (u16, String) {
        let response = answer("a", &method, path);
        let status = response.status().as_u16();
        let Ok(body) = response.into_body().collect().await;
        (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn it_says_who_it_is_and_that_it_is_well() {
        assert_eq!(said(Method::GET, "/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(said(Method::GET, "/any").await, (200, "gordon a at /any\n".to_owned()));
        assert_eq!(said(Method::POST, "/").await.0, 405);
    }

    #[tokio::test]
    async fn it_serves_until_it_is_told_to_end() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, "pod-0".to_owned(), async { drop(ended.await) }));
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("gordon pod-0 at /x\n"), "{text}");
        end.send(()).unwrap();
        server.await.unwrap().unwrap();
    }
}
