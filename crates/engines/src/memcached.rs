//! memcached's text protocol, as far as it takes to know that a server serves: `version` and `stats`.

use std::{io, time::Duration};

use ballast_memcached::{Ask, Stats, Told};
use ballast_operator::{Action, Answer, Class, Failure, Question};
use ballast_runtime::{About, Engine};
use futures::future::BoxFuture;
use serde::Deserialize as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

use crate::dialer::{Missed, reach};
use crate::{Connection, Dialer, Place, PodAddress};

/// How long a connection may take, and then how long both answers together. A server that is well needs less than a
/// millisecond; the rest is for a machine that is busy. Twice this is less than the runtime waits for an answer.
const WITHIN: Duration = Duration::from_secs(2);
/// The longest line that is taken. memcached's are shorter than a hundred bytes.
const LONGEST_LINE: usize = 1024;
/// The most lines of `stats`. memcached has about a hundred.
const MOST_LINES: usize = 1024;
/// How much of what is not understood is repeated to people.
const QUOTED: usize = 40;

/// The engine of the memcached operator.
#[derive(Clone, Debug, Default)]
pub struct Memcached<D = PodAddress> {
    dialer: D,
}

impl<D: Dialer> Memcached<D> {
    /// An engine that reaches pods by this dialer.
    pub fn new(dialer: D) -> Self {
        Memcached { dialer }
    }

    /// Asks one server what it is and how it fares.
    pub async fn ask_server(&self, place: &Place) -> Told {
        let connection = match reach(&self.dialer, place, WITHIN).await {
            Ok(connection) => connection,
            Err(Missed::Refused) => return Told::Refuses,
            Err(Missed::Unreachable(why)) => return Told::Unreachable { why },
        };
        match timeout(WITHIN, converse(connection)).await {
            Ok(Ok((version, stats))) => Told::Serves { version, stats },
            Ok(Err(Misheard::HungUp)) => Told::Refuses,
            Ok(Err(Misheard::Lost(why))) => Told::Unreachable { why },
            Ok(Err(Misheard::NotUnderstood(said))) => Told::Babbles { said },
            Err(_) => Told::Silent,
        }
    }
}

impl<D: Dialer> Engine for Memcached<D> {
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let ask = match Ask::deserialize(&question.what) {
                Ok(ask) => ask,
                Err(error) => return Answer::Silent { why: format!("the question is none: {error}") },
            };
            let place = Place {
                namespace: about.namespace.unwrap_or_default().to_owned(),
                pod: question.subject.clone(),
                address: ask.address,
                port: ask.port,
            };
            match serde_json::to_value(self.ask_server(&place).await) {
                Ok(told) => Answer::Said(told),
                Err(error) => Answer::Silent { why: error.to_string() },
            }
        })
    }

    fn act<'a>(&'a self, _: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Err(Failure::new(Class::Bug, format!("memcached can't {}", action.name))) })
    }
}

/// Why there is no answer, though somebody is there.
#[derive(Debug, PartialEq, Eq)]
enum Misheard {
    /// The connection ended.
    HungUp,
    /// The way to it ended, by this: of who is there nothing is known.
    Lost(String),
    /// This was said instead.
    NotUnderstood(String),
}

impl From<io::Error> for Misheard {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
        match error.kind() {
            HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut => {
                Misheard::Lost(error.to_string())
            }
            _ => Misheard::HungUp,
        }
    }
}

async fn converse(connection: Connection) -> Result<(String, Stats), Misheard> {
    let mut connection = BufReader::new(connection);
    connection.write_all(b"version\r\nstats\r\n").await?;
    connection.flush().await?;
    let line = line(&mut connection).await?;
    let version = match line.strip_prefix("VERSION ") {
        Some(version) if !version.trim().is_empty() => version.trim().to_owned(),
        _ => return Err(not_understood(&line)),
    };
    Ok((version, stats(&mut connection).await?))
}

async fn stats(connection: &mut BufReader<Connection>) -> Result<Stats, Misheard> {
    let mut stats = Stats::default();
    for _ in 0..MOST_LINES {
        let line = line(connection).await?;
        if line == "END" {
            return Ok(stats);
        }
        let Some((name, value)) = line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' ')) else {
            return Err(not_understood(&line));
        };
        let place = match name {
            "get_hits" => &mut stats.get_hits,
            "get_misses" => &mut stats.get_misses,
            "evictions" => &mut stats.evictions,
            "bytes" => &mut stats.bytes,
            "limit_maxbytes" => &mut stats.limit_maxbytes,
            _ => continue,
        };
        *place = value.parse().map_err(|_| not_understood(&line))?;
    }
    Err(Misheard::NotUnderstood("stats without end".to_owned()))
}

/// The next line without its end. Who never ends one is not understood.
async fn line(connection: &mut BufReader<Connection>) -> Result<String, Misheard> {
    let mut bytes = Vec::new();
    let limit = LONGEST_LINE as u64;
    connection.take(limit).read_until(b'\n', &mut bytes).await?;
    if bytes.is_empty() {
        return Err(Misheard::HungUp);
    }
    let text = String::from_utf8_lossy(&bytes);
    match text.strip_suffix('\n') {
        Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
        None => Err(not_understood(&text)),
    }
}

fn not_understood(said: &str) -> Misheard {
    Misheard::NotUnderstood(said.chars().filter(|letter| !letter.is_control()).take(QUOTED).collect())
}
