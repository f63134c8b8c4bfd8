//! The client that servers are measured by: requests written by hand, answers read no further than they must be.
//!
//! It speaks HTTP/1.1 over TLS on connections that stay, and the same to every server. One thread serves all
//! connections of a measurement, so that the server has most of the machine.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use memchr::memmem;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// As much as is read at once.
const PIECE: usize = 64 << 10;

/// An API server to be measured.
pub struct Server {
    pub client: Client,
    pub port: u16,
    host: String,
    token: String,
    tls: Arc<ClientConfig>,
}

impl Server {
    /// The one that a kubeconfig leads to. Its user must have a token.
    pub async fn of(kubeconfig: &Path) -> Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig)?;
        let users = serde_json::to_value(&read.auth_infos)?;
        let token = users.pointer("/0/user/token").and_then(|token| token.as_str()).context("no token")?;
        let token = token.to_owned();
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let mut roots = RootCertStore::empty();
        for certificate in config.root_cert.iter().flatten() {
            roots.add(certificate.clone().into())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = config.cluster_url.host().context("no host")?.to_owned();
        let port = config.cluster_url.port_u16().unwrap_or(443);
        Ok(Self { client: Client::try_from(config)?, port, host, token, tls: Arc::new(tls) })
    }

    /// A connection, with all that has to be said before the first request.
    pub async fn connect(&self) -> Result<Connection> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await?;
        Ok(Connection { stream, buffer: Vec::with_capacity(2 * PIECE), at: 0 })
    }

    /// A request, as it is sent.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let Self { host, token, .. } = self;
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: bench\r\nAuthorization: Bearer {token}\r\n\
             Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// How much of an answer is yet to come.
enum Rest {
    Bytes(usize),
    Chunks,
}

/// A connection with one request at a time.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    /// Up to where the buffer has been used.
    at: usize,
}

impl Connection {
    /// Sends a request, and reads its answer to the end. An answer that is no success is an error.
    pub async fn ask(&mut self, request: &[u8]) -> Result<()> {
        match self.begin(request).await? {
            Rest::Bytes(count) => self.skip(count).await,
            Rest::Chunks => {
                while let Some(length) = self.chunk().await? {
                    self.skip(length + 2).await?;
                }
                Ok(())
            }
        }
    }

    /// Sends a request whose answer goes on in pieces.
    pub async fn follow(&mut self, request: &[u8]) -> Result<()> {
        ensure!(matches!(self.begin(request).await?, Rest::Chunks), "the answer has an end");
        Ok(())
    }

    /// The next piece of such an answer, added to `text`. False at its end.
    pub async fn chunk_into(&mut self, text: &mut Vec<u8>) -> Result<bool> {
        let Some(length) = self.chunk().await? else { return Ok(false) };
        while self.unread().len() < length + 2 {
            self.read().await?;
        }
        text.extend_from_slice(&self.buffer[self.at..self.at + length]);
        self.at += length + 2;
        Ok(true)
    }

    async fn begin(&mut self, request: &[u8]) -> Result<Rest> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let head = self.until(b"\r\n\r\n").await?;
        let status = head.get(9..12).unwrap_or_default().to_owned();
        let mut rest = Rest::Bytes(0);
        for line in head.lines().skip(1) {
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-length") {
                rest = Rest::Bytes(value.trim().parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                rest = Rest::Chunks;
            }
        }
        if !status.starts_with('2') {
            if self.unread().is_empty() {
                self.read().await?;
            }
            bail!("{head}{}", String::from_utf8_lossy(self.unread()));
        }
        Ok(rest)
    }

    /// The length of the next chunk; none after the last.
    async fn chunk(&mut self) -> Result<Option<usize>> {
        let line = self.until(b"\r\n").await?;
        let length = usize::from_str_radix(line.trim(), 16)?;
        if length == 0 {
            self.until(b"\r\n").await?;
            return Ok(None);
        }
        Ok(Some(length))
    }

    /// What there is up to `end` and with it.
    async fn until(&mut self, end: &[u8]) -> Result<String> {
        loop {
            if let Some(place) = memmem::find(self.unread(), end) {
                let text = String::from_utf8_lossy(&self.unread()[..place + end.len()]).into_owned();
                self.at += place + end.len();
                return Ok(text);
            }
            self.read().await?;
        }
    }

    async fn skip(&mut self, mut count: usize) -> Result<()> {
        loop {
            let there = self.unread().len().min(count);
            self.at += there;
            count -= there;
            if count == 0 {
                return Ok(());
            }
            self.read().await?;
        }
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    async fn read(&mut self) -> Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.reserve(PIECE);
        ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server hung up");
        Ok(())
    }
}
