//! A page that is asked for, in the clear or over TLS.
//!
//! As a kubelet does, it believes any certificate: the question is whether the program answers, asked at an address
//! for which hardly any certificate is.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{HTTPGetAction, HTTPHeader};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, InvalidMessage, SignatureScheme};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;
use url::{Host, Position, Url};

use super::ask::{Answer, Bad, Target, address, dial};

/// How much of a page is read, as by a kubelet: enough to say a word of it.
const READ: usize = 10 * 1024;
/// How many pages that lead from one to the next are asked for.
const PAGES: usize = 10;

/// Who asks: a probe, or a hook.
const PROBE: &str = "kube-probe/1.34";
const HOOK: &str = "kube-lifecycle/1.34";
/// What is said of a server that was spoken to over TLS and does not speak it.
const IN_THE_CLEAR: &str = "http: server gave HTTP response to HTTPS client";

/// Headers that follow from where a request goes and what is in it.
const FRAMING: [&str; 4] = ["Host", "Content-Length", "Transfer-Encoding", "Trailer"];

/// How a page is asked for.
struct Question<'a> {
    headers: Vec<&'a HTTPHeader>,
    agent: &'static str,
    timeout: Duration,
}

impl Question<'_> {
    /// The first value that was given for a header.
    fn first(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value.as_str())
    }

    /// The headers of the request but its host: what was given, and a kubelet's own where nothing was. Who asks and what
    /// is accepted are not said at all where an empty text was given.
    fn said(&self) -> Vec<(&str, &str)> {
        let own = [("User-Agent", self.agent), ("Accept", "*/*"), ("Connection", "close")];
        let own = own.into_iter().filter(|(name, _)| self.first(name).is_none());
        let given = self.headers.iter().map(|header| (header.name.as_str(), header.value.as_str()));
        let given = given.filter(|(name, _)| {
            let is = |other: &&str| name.eq_ignore_ascii_case(other);
            let withheld = ["User-Agent", "Accept"].iter().any(is) && self.first(name) == Some("");
            !withheld && !FRAMING.iter().any(is)
        });
        own.chain(given).collect()
    }
}

/// Why there was no answer.
struct Missed {
    bad: Bad,
    /// There was one, in the clear, where TLS was spoken.
    in_the_clear: bool,
}

impl From<Bad> for Missed {
    fn from(bad: Bad) -> Self {
        Self { bad, in_the_clear: false }
    }
}

impl From<String> for Missed {
    fn from(words: String) -> Self {
        Bad::from(words).into()
    }
}

/// Where a page is.
#[derive(Clone)]
struct Page {
    secret: bool,
    address: SocketAddr,
    path: String,
}

/// What came of asking for one.
struct Fetched {
    status: u16,
    /// Where it is instead.
    location: Option<String>,
    /// The beginning of it.
    body: Vec<u8>,
}

impl Page {
    fn of(target: &Target, action: &HTTPGetAction) -> Result<Self, Bad> {
        let address = address(target, action.host.as_deref(), &action.port)?;
        let path = action.path.clone().unwrap_or_default();
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        Ok(Self { secret: action.scheme.as_deref() == Some("HTTPS"), address, path })
    }

    fn url(&self) -> String {
        format!("{}://{}{}", if self.secret { "https" } else { "http" }, self.address, self.path)
    }

    /// The page that this one leads to, unless it is on another host.
    fn next(&self, location: &str) -> Result<Option<Self>, String> {
        let url = Url::parse(&self.url())
            .and_then(|own| own.join(location))
            .map_err(|error| format!("failed to parse Location header {location:?}: {error}"))?;
        let host: Option<IpAddr> = match url.host() {
            Some(Host::Ipv4(ip)) => Some(ip.into()),
            Some(Host::Ipv6(ip)) => Some(ip.into()),
            Some(Host::Domain(_)) | None => None,
        };
        if host != Some(self.address.ip()) {
            return Ok(None);
        }
        let unsupported = || format!("Get {location:?}: unsupported protocol scheme {:?}", url.scheme());
        let (true, Some(port)) = (url.scheme().starts_with("http"), url.port_or_known_default()) else {
            return Err(unsupported());
        };
        let address = SocketAddr::new(self.address.ip(), port);
        let path = url[Position::BeforePath..Position::AfterQuery].to_owned();
        Ok(Some(Self { secret: url.scheme() == "https", address, path }))
    }
}

/// Asks for a page; anything from 200 to 399 is good.
pub(crate) async fn http_get(target: &Target, action: &HTTPGetAction, timeout: Duration) -> Answer {
    let page = Page::of(target, action)?;
    let shown = page.url();
    let question = Question { headers: headers_of(action), agent: PROBE, timeout };
    let answer = tokio::time::timeout(timeout, follow(target, page, &question)).await;
    let fetched = answer.unwrap_or_else(|_| {
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        Err(format!("Get {shown:?}: {late}").into())
    });
    match fetched.map_err(|missed| missed.bad)? {
        Fetched { status: 200..=299, .. } => Ok(None),
        Fetched { status: 300..=399, body, .. } => Ok(Some(ended(&body))),
        Fetched { status, .. } => Err(Bad::Failed(format!("HTTP probe failed with statuscode: {status}"))),
    }
}

/// Asks for a page because a hook says so: whatever the answer is, it is one. A server that was to be asked over TLS and
/// does not speak it is asked in the clear, as by a kubelet; who that is, where that helped.
pub(crate) async fn visit(target: &Target, action: &HTTPGetAction) -> Result<Option<SocketAddr>, Bad> {
    let page = Page::of(target, action)?;
    let mut question = Question { headers: headers_of(action), agent: HOOK, timeout: Duration::MAX };
    let missed = match follow(target, page.clone(), &question).await {
        Ok(_) => return Ok(None),
        Err(missed) => missed,
    };
    if missed.in_the_clear {
        // That is for nobody else to read.
        question.headers.retain(|header| !header.name.eq_ignore_ascii_case("authorization"));
        let address = page.address;
        if follow(target, Page { secret: false, ..page }, &question).await.is_ok() {
            return Ok(Some(address));
        }
    }
    Err(missed.bad)
}

fn headers_of(action: &HTTPGetAction) -> Vec<&HTTPHeader> {
    action.http_headers.iter().flatten().collect()
}

/// Goes from page to page as long as they are on the same host; the last of them.
async fn follow(target: &Target, mut page: Page, question: &Question<'_>) -> Result<Fetched, Missed> {
    let mut host = question.first("host").filter(|host| !host.is_empty());
    let mut asked = 0;
    loop {
        let fetched = fetch(target, &page, question, host).await?;
        asked += 1;
        let (301..=303 | 307 | 308, Some(location)) = (fetched.status, &fetched.location) else {
            return Ok(fetched);
        };
        // Whoever leads elsewhere is there, at least.
        let Some(next) = page.next(location)? else { return Ok(fetched) };
        if asked == PAGES {
            return Err(format!("Get {location:?}: stopped after {PAGES} redirects").into());
        }
        page = next;
        // A name for the host is one for the pages that do not say where they are themselves.
        host = host.filter(|_| Url::parse(location).is_err());
    }
}

fn ended(body: &[u8]) -> String {
    format!("Probe terminated redirects, Response body: {}", String::from_utf8_lossy(body))
}

/// Asks for one page.
async fn fetch(
    target: &Target,
    page: &Page,
    question: &Question<'_>,
    host: Option<&str>,
) -> Result<Fetched, Missed> {
    let (shown, address) = (page.url(), page.address);
    let stream = dial(target, address, question.timeout).await;
    let stream = stream.map_err(|bad| bad.said(|why| format!("Get {shown:?}: {why}")))?;
    let failed = |error: &dyn std::error::Error| format!("Get {shown:?}: {error}");
    let stream = if page.secret {
        let name = ServerName::IpAddress(address.ip().into());
        let secret = connector()?.connect(name, stream).await.map_err(|error| match is_clear(&error) {
            true => Missed { bad: format!("Get {shown:?}: {IN_THE_CLEAR}").into(), in_the_clear: true },
            false => failed(&error).into(),
        });
        Either::Right(secret?)
    } else {
        Either::Left::<TcpStream, _>(stream)
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let mut request = http::Request::get(page.path.as_str())
        .header("Host", host.map_or_else(|| address.to_string(), str::to_owned));
    for (name, value) in question.said() {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
    // Ends with this question, whether or not the server has said everything.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let status = answer.status().as_u16();
    Ok(Fetched { status, location, body: beginning(answer.into_body()).await })
}

/// Whether what came where TLS was to begin is something else.
fn is_clear(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

/// Read, so that the server is not cut off in the middle of a short answer; what is beyond that nobody asked for.
async fn beginning(mut body: Incoming) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < READ
        && let Some(Ok(frame)) = body.frame().await
    {
        read.extend(frame.data_ref().into_iter().flatten());
    }
    read.truncate(READ);
    read
}

/// One for all: setting it up costs more than a question does.
fn connector() -> Result<TlsConnector, String> {
    static CONNECTOR: LazyLock<Result<TlsConnector, String>> = LazyLock::new(|| {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    });
    CONNECTOR.clone()
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leads_to_others_of_its_host() {
        let page =
            Page { secret: false, address: "10.0.0.1:8080".parse().unwrap(), path: "/a/b?c".to_owned() };
        let next = |location: &str| page.next(location).map(|next| next.map(|next| next.url()));
        for (location, expected) in [
            ("/", Some("http://10.0.0.1:8080/")),
            ("d?e=f#g", Some("http://10.0.0.1:8080/a/d?e=f")),
            ("//10.0.0.1/h", Some("http://10.0.0.1:80/h")),
            ("https://10.0.0.1", Some("https://10.0.0.1:443/")),
            ("http://10.0.0.1:9090/i", Some("http://10.0.0.1:9090/i")),
            ("http://10.0.0.2:8080/", None),
            ("http://localhost:8080/", None),
            ("mailto:somebody", None),
        ] {
            assert_eq!(next(location), Ok(expected.map(str::to_owned)), "{location}");
        }
        let other = r#"Get "ftp://10.0.0.1/": unsupported protocol scheme "ftp""#;
        assert_eq!(next("ftp://10.0.0.1/"), Err(other.to_owned()));
        assert!(next("http://[").unwrap_err().starts_with("failed to parse Location header"));
    }
    #[test]
    fn what_is_given_takes_the_place_of_what_a_kubelet_says() {
        let check = |given: &[(&str, &str)], expected: &str| {
            let header =
                |(name, value): &(&str, &str)| HTTPHeader { name: (*name).into(), value: (*value).into() };
            let headers: Vec<HTTPHeader> = given.iter().map(header).collect();
            let question =
                Question { headers: headers.iter().collect(), agent: PROBE, timeout: Duration::ZERO };
            let said: Vec<String> =
                question.said().iter().map(|(name, value)| format!("{name}: {value}")).collect();
            assert_eq!(said.join(", "), expected, "{given:?}");
        };
        check(&[], "User-Agent: kube-probe/1.34, Accept: */*, Connection: close");
        check(
            &[("user-agent", "me"), ("X-A", "1"), ("x-a", "2"), ("Host", "h"), ("Content-Length", "5")],
            "Accept: */*, Connection: close, user-agent: me, X-A: 1, x-a: 2",
        );
        check(
            &[("Accept", "text/plain")],
            "User-Agent: kube-probe/1.34, Connection: close, Accept: text/plain",
        );
        check(&[("accept", ""), ("User-Agent", "")], "Connection: close");
    }
}
