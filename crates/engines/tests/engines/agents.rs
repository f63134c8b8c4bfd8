//! Whatever an agent does, there is an answer, and soon.

use std::{io, time::Duration};

use ballast_engines::{Connection, DialError, Dialer, Place, mysql::ask_server};
use ballast_mysql::Told;
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

/// What is at the other end.
#[derive(Clone, Copy)]
enum Peer {
    /// It says this to whoever asks rightly, and hangs up.
    Says(&'static str),
    /// It says this and stays.
    SaysAndStays(&'static str),
    /// It never stops.
    Floods,
    /// The connection never comes about.
    Away,
    NoWay,
    Refuses,
}

impl Dialer for Peer {
    fn dial<'a>(&'a self, _: &'a Place) -> BoxFuture<'a, Result<Connection, DialError>> {
        let peer = *self;
        Box::pin(async move {
            match peer {
                Peer::Away => std::future::pending::<()>().await,
                Peer::Refuses => return Err(DialError::Refused),
                Peer::NoWay => return Err(DialError::NoWay(io::Error::other("no route to host"))),
                Peer::Says(_) | Peer::SaysAndStays(_) | Peer::Floods => {}
            }
            let (ours, mut theirs) = tokio::io::duplex(4096);
            tokio::spawn(async move {
                let mut asked = [0; 22];
                theirs.read_exact(&mut asked).await.unwrap();
                assert_eq!(&asked, b"GET /status HTTP/1.0\r\n");
                match peer {
                    Peer::Says(text) => theirs.write_all(text.as_bytes()).await.unwrap(),
                    Peer::SaysAndStays(text) => {
                        theirs.write_all(text.as_bytes()).await.unwrap();
                        std::future::pending::<()>().await;
                    }
                    Peer::Floods => while theirs.write_all(&[b'x'; 4096]).await.is_ok() {},
                    Peer::Away | Peer::NoWay | Peer::Refuses => {}
                }
            });
            Ok(Box::new(ours) as Connection)
        })
    }
}

async fn told(peer: Peer) -> Told {
    let place =
        Place { namespace: "default".into(), pod: "p".into(), address: "10.0.0.1".into(), port: 8083 };
    let began = Instant::now();
    let told = ask_server(&peer, &place).await;
    assert!(began.elapsed() <= Duration::from_secs(4), "{:?}", began.elapsed());
    told
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_answers_is_believed() {
    let said = "HTTP/1.0 200 OK\r\n\r\n{\"flavour\":\"mariadb\",\"version\":\"11.8.6\",\"ready\":true,\"freeBytes\":7}";
    let Told::Fares(status) = told(Peer::Says(said)).await else { unreachable!() };
    assert_eq!(
        (&*status.flavour, &*status.version, status.ready, status.free_bytes),
        ("mariadb", "11.8.6", true, 7)
    );
}

#[tokio::test(start_paused = true)]
async fn silence_refusal_and_nonsense_are_answers() {
    assert_eq!(told(Peer::SaysAndStays("HTTP/1.0 200 OK")).await, Told::Silent);
    assert_eq!(told(Peer::Says("")).await, Told::Refuses);
    assert_eq!(told(Peer::Refuses).await, Told::Refuses);
    assert_eq!(told(Peer::Floods).await, Told::Babbles { said: "x".repeat(40) });
    assert_eq!(told(Peer::Away).await, Told::Unreachable { why: "no connection within 2s".to_owned() });
    let why = "there is no way to it from here: no route to host".to_owned();
    assert_eq!(told(Peer::NoWay).await, Told::Unreachable { why });
}
