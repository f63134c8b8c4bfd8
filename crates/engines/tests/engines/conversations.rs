//! Whatever is at the other end, there is an answer, and soon.

use std::{io, time::Duration};

use ballast_engines::{Connection, DialError, Dialer, Place, PodAddress, memcached::Memcached};
use ballast_memcached::{Stats, Told};
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

/// What is at the other end.
#[derive(Clone, Copy)]
enum Peer {
    /// It says this whatever it is asked, and stays.
    Says(&'static str),
    /// It says this and hangs up.
    SaysAndGoes(&'static str),
    /// It says this again and again.
    Repeats(&'static str),
    /// The connection never comes about.
    Away,
    NoWay,
    Refuses,
}

impl Dialer for Peer {
    fn dial<'a>(&'a self, _: &'a Place) -> BoxFuture<'a, Result<Connection, DialError>> {
        let peer = *self;
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(4096);
            match peer {
                Peer::Away => std::future::pending::<()>().await,
                Peer::Refuses => return Err(DialError::Refused),
                Peer::NoWay => return Err(DialError::NoWay(io::Error::other("no route to host"))),
                Peer::Says(_) | Peer::SaysAndGoes(_) | Peer::Repeats(_) => {}
            }
            tokio::spawn(async move {
                let mut asked = [0; 16];
                theirs.read_exact(&mut asked).await.unwrap();
                assert_eq!(&asked, b"version\r\nstats\r\n");
                match peer {
                    Peer::Says(text) => {
                        theirs.write_all(text.as_bytes()).await.unwrap();
                        std::future::pending::<()>().await;
                    }
                    Peer::SaysAndGoes(text) => theirs.write_all(text.as_bytes()).await.unwrap(),
                    Peer::Repeats(text) => while theirs.write_all(text.as_bytes()).await.is_ok() {},
                    _ => {}
                }
            });
            Ok(Box::new(ours) as Connection)
        })
    }
}

fn place(address: &str) -> Place {
    Place { namespace: "default".into(), pod: "pod-0".into(), address: address.into(), port: 11211 }
}

/// What is told of a peer, which never takes longer than the runtime waits.
async fn told(peer: Peer) -> Told {
    let began = Instant::now();
    let told = Memcached::new(peer).ask_server(&place("10.0.0.1")).await;
    assert!(began.elapsed() <= Duration::from_secs(4), "{:?}", began.elapsed());
    told
}

fn babbles(said: &str) -> Told {
    Told::Babbles { said: said.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_serves_says_its_version_and_its_numbers() {
    let said = "VERSION 1.6.38\r\nSTAT pid 1\r\nSTAT get_hits 3\r\nSTAT get_misses 1\r\nSTAT evictions 2\r\n\
                STAT bytes 100\r\nSTAT limit_maxbytes 67108864\r\nSTAT version 1.6.38\r\nEND\r\n";
    let stats = Stats { get_hits: 3, get_misses: 1, evictions: 2, bytes: 100, limit_maxbytes: 67_108_864 };
    assert_eq!(told(Peer::Says(said)).await, Told::Serves { version: "1.6.38".to_owned(), stats });
}

#[tokio::test(start_paused = true)]
async fn silence_is_an_answer() {
    assert_eq!(told(Peer::Says("")).await, Told::Silent);
    assert_eq!(told(Peer::Says("VERSION 1.6.38\r\n")).await, Told::Silent, "it stopped in the middle");
    assert_eq!(told(Peer::Says("VERSION 1.6")).await, Told::Silent);
    assert_eq!(told(Peer::Away).await, Told::Unreachable { why: "no connection within 2s".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn refusal_is_an_answer() {
    assert_eq!(told(Peer::Refuses).await, Told::Refuses);
    assert_eq!(told(Peer::SaysAndGoes("")).await, Told::Refuses);
    let why = "there is no way to it from here: no route to host".to_owned();
    assert_eq!(told(Peer::NoWay).await, Told::Unreachable { why });
}

#[tokio::test(start_paused = true)]
async fn nonsense_is_an_answer() {
    assert_eq!(told(Peer::Says("HTTP/1.1 400 Bad Request\r\n")).await, babbles("HTTP/1.1 400 Bad Request"));
    assert_eq!(told(Peer::Says("ERROR\r\n")).await, babbles("ERROR"));
    assert_eq!(told(Peer::Says("VERSION \r\n")).await, babbles("VERSION "));
    assert_eq!(told(Peer::SaysAndGoes("VERSION 1")).await, babbles("VERSION 1"));
    assert_eq!(told(Peer::Says("VERSION 1\r\nWAT\r\n")).await, babbles("WAT"));
    assert_eq!(told(Peer::Says("VERSION 1\r\nSTAT bytes lots\r\n")).await, babbles("STAT bytes lots"));
    assert_eq!(
        told(Peer::Says("\u{1b}[31mred\r\n")).await,
        babbles("[31mred"),
        "nobody's terminal is written to"
    );
    assert_eq!(told(Peer::Repeats("x")).await, babbles(&"x".repeat(40)), "a line without end");
    assert_eq!(told(Peer::Repeats("VERSION 1\r\n")).await, babbles("VERSION 1"));
    assert_eq!(told(Peer::Repeats("STAT a b\r\n")).await, babbles("STAT a b"));
}

#[tokio::test]
async fn no_name_is_resolved() {
    let told = Memcached::new(PodAddress).ask_server(&place("localhost")).await;
    assert_eq!(told, Told::Unreachable { why: "\"localhost\" is no address".to_owned() });
}
