//! Says over HTTP how the server fares: to probes, and to the operator.
//!
//! | path | answer |
//! | --- | --- |
//! | `/healthz` | 200 as long as this process is there, which ends with its server |
//! | `/readyz` | 200 while clients are served, else 503 and why not |
//! | `/status` | all that is known, as JSON |
//!
//! **What always holds.** Nothing that is asked changes anything, and nothing secret is known here. An answer comes from
//! memory. Who asks slowly, at length or a hundred times at once is hung up on, the oldest first, and keeps nobody else
//! from an answer.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::status::Status;

/// A request has no body, and whoever asks is near.
const LONGEST_REQUEST: usize = 8 << 10;
const WITHIN: Duration = Duration::from_secs(2);
/// More than the probes and an operator ask at once.
const AT_ONCE: usize = 16;

/// Answers from here on, until the process ends.
pub(crate) fn listen(address: SocketAddr, status: &Arc<Status>) -> io::Result<SocketAddr> {
    let listener = match TcpListener::bind(address) {
        // Everywhere is both families of addresses, or the one that there is.
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
        }
        bound => bound,
    }?;
    let bound = listener.local_addr()?;
    let status = Arc::clone(status);
    thread::Builder::new().name("listens".to_owned()).spawn(move || {
        let mut open: VecDeque<Weak<TcpStream>> = VecDeque::new();
        let answering = Arc::new(());
        for connection in listener.incoming() {
            match connection {
                Ok(connection) => {
                    open.retain(|one| one.strong_count() > 0);
                    if open.len() >= AT_ONCE
                        && let Some(oldest) = open.pop_front().and_then(|one| one.upgrade())
                    {
                        // Whoever answers there finds it closed, if it is not by now.
                        let _hung_up = oldest.shutdown(Shutdown::Both);
                    }
                    let (connection, status) = (Arc::new(connection), Arc::clone(&status));
                    open.push_back(Arc::downgrade(&connection));
                    // Those that were hung up on take a moment to end, and the server needs threads, too.
                    while Arc::strong_count(&answering) > 2 * AT_ONCE {
                        thread::sleep(Duration::from_millis(1));
                    }
                    let busy = Arc::clone(&answering);
                    // Where there is no thread to be had, there is nobody to answer.
                    let _busy = thread::Builder::new().spawn(move || {
                        let _busy = busy;
                        answer(&connection, &status)
                    });
                }
                // Out of file descriptors: it may get better.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

/// Whoever hung up does not want to know.
fn answer(mut connection: &TcpStream, status: &Status) -> io::Result<()> {
    connection.set_write_timeout(Some(WITHIN))?;
    let (code, kind, body) = match asked(connection)?.as_deref() {
        Some("/healthz") => ("200 OK", "text/plain", "ok\n".to_owned()),
        Some("/readyz") => match status.serves() {
            Ok(()) => ("200 OK", "text/plain", "ok\n".to_owned()),
            Err(why) => ("503 Service Unavailable", "text/plain", format!("{why}\n")),
        },
        Some("/status") => ("200 OK", "application/json", format!("{}\n", status.document())),
        Some(_) => ("404 Not Found", "text/plain", "there are /healthz, /readyz and /status\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "GET one of /healthz, /readyz and /status\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes())?;
    connection.write_all(body.as_bytes())
}

/// The path that is asked for; nothing where that is no request for one.
fn asked(mut connection: &TcpStream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + WITHIN;
    let (mut request, mut piece) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > LONGEST_REQUEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        match connection.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => request.extend(piece.iter().take(length)),
        }
    }
    let text = String::from_utf8_lossy(&request);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    let path =
        path.filter(|_| method == Some("GET") && version.is_some_and(|word| word.starts_with("HTTP/")));
    Ok(path.map(|path| path.split('?').next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavour::Flavour;
    use crate::status::Heard;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        // Who is hung up on may be told so by a reset.
        let _cut_off = connection.read_to_string(&mut said);
        said
    }

    #[test]
    fn probes_and_operators_are_answered_and_nobody_else() {
        let status = Arc::new(Status::new(Flavour::Mysql, "/".into(), "it starts"));
        let address = listen("127.0.0.1:0".parse().unwrap(), &status).unwrap();
        // Who says nothing keeps nobody waiting.
        let silent: Vec<_> = (0..3 * AT_ONCE).map(|_| TcpStream::connect(address).unwrap()).collect();
        for (request, begins, ends) in [
            ("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\nok\n"),
            ("GET /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 503 ", "\r\n\r\nit starts\n"),
            ("GET /status?a HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "}\n"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ", "/status\n"),
            ("POST /status HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ", "/status\n"),
            ("\r\n\r\n", "HTTP/1.1 400 ", "/status\n"),
        ] {
            let said = ask(address, request);
            assert!(said.starts_with(begins) && said.ends_with(ends), "{request:?}: {said:?}");
        }
        let endless = format!("GET /status HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(100_000));
        assert_eq!(ask(address, &endless), "");
        status.hear(Heard::Answer, "");
        assert!(ask(address, "GET /readyz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        drop(silent);
    }
}
