//! A page that is asked for, in the clear or over TLS.
//!
//! As a kubelet does, it believes any certificate: the question is whether the program answers, asked at an address
//! for which hardly any certificate is.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{HTTPGetAction, HTTPHeader};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;

use super::ask::{Bad, Target, address, dial};

/// Asks for a page; anything from 200 to 399 is good.
pub(crate) async fn http_get(target: &Target, action: &HTTPGetAction, timeout: Duration) -> Result<(), Bad> {
    let address = address(target, action.host.as_deref(), &action.port)?;
    let path = action.path.clone().unwrap_or_default();
    let path = if path.starts_with('/') { path } else { format!("/{path}") };
    let secret = action.scheme.as_deref() == Some("HTTPS");
    let shown = format!("{}://{address}{path}", if secret { "https" } else { "http" });
    let get = async {
        let stream = dial(target, address, timeout).await.map_err(|why| format!("Get {shown:?}: {why}"))?;
        let failed = |error: &dyn std::error::Error| format!("Get {shown:?}: {error}");
        let stream = if secret {
            let name = ServerName::IpAddress(address.ip().into());
            Either::Right(connector()?.connect(name, stream).await.map_err(|error| failed(&error))?)
        } else {
            Either::Left::<TcpStream, _>(stream)
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let connection = tokio::spawn(connection);
        let mut request = http::Request::get(path.as_str());
        let headers: &[HTTPHeader] = action.http_headers.as_deref().unwrap_or_default();
        if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
            request = request.header("Host", address.to_string());
        }
        request = request
            .header("User-Agent", "kube-probe/1.34")
            .header("Accept", "*/*")
            .header("Connection", "close");
        for header in headers {
            request = request.header(header.name.as_str(), header.value.as_str());
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| failed(&error));
        let status = match answer {
            Ok(answer) => {
                let status = answer.status().as_u16();
                // Read so that the server is not cut off in the middle of its answer.
                let _body = answer.into_body().collect().await;
                Ok(status)
            }
            Err(error) => Err(error),
        };
        connection.abort();
        match status? {
            200..=399 => Ok(()),
            status => Err(format!("HTTP probe failed with statuscode: {status}")),
        }
    };
    let answer = tokio::time::timeout(timeout, get).await.unwrap_or_else(|_| {
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        Err(format!("Get {shown:?}: {late}"))
    });
    answer.map_err(Bad::Failed)
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
