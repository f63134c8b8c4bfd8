//! A small resolver, and waiting for things.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;

pub const A: u16 = 1;

/// A question on the wire.
pub fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// An answer from the wire: its code, and addresses or names.
pub fn answer(bytes: &[u8]) -> (u8, Vec<String>) {
    let number = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let mut at = 12;
    while bytes[at] != 0 {
        at += 1 + usize::from(bytes[at]);
    }
    at += 5;
    let mut told = Vec::new();
    for _ in 0..number(6) {
        // All are about the question's name, which is pointed to.
        let (kind, length) = (number(at + 2), number(at + 10));
        let data = &bytes[at + 12..at + 12 + length];
        told.push(match data {
            [a, b, c, d] if kind == usize::from(A) => Ipv4Addr::new(*a, *b, *c, *d).to_string(),
            name => labels(name),
        });
        at += 12 + length;
    }
    (bytes[3] & 0xf, told)
}

fn labels(mut name: &[u8]) -> String {
    let mut labels = Vec::new();
    while let [length @ 1..=63, rest @ ..] = name {
        let (label, more) = rest.split_at(usize::from(*length));
        labels.push(String::from_utf8_lossy(label).into_owned());
        name = more;
    }
    labels.join(".")
}

/// Asks by UDP, again until there is an answer.
pub async fn ask(dns: SocketAddr, name: &str, kind: u16) -> (u8, Vec<String>) {
    until(async || {
        let socket = UdpSocket::bind("0.0.0.0:0").await.ok()?;
        socket.connect(dns).await.ok()?;
        socket.send(&question(name, kind)).await.ok()?;
        let mut buffer = vec![0; 4096];
        let received = tokio::time::timeout(Duration::from_secs(1), socket.recv(&mut buffer));
        let length = received.await.ok()?.ok()?;
        Some(answer(&buffer[..length]))
    })
    .await
}

/// Waits until there is something.
pub async fn until<T>(mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = condition().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap()
}
