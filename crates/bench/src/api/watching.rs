//! One write, seen by many.

use std::{
    io::Write,
    net::TcpListener,
    sync::LazyLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use memchr::{memchr, memmem::Finder};
use serde_json::json;
use tokio::{io::AsyncReadExt, net::TcpStream};

use super::{
    MAPS,
    connection::{Connection, Server},
    load::{Load, alone, listening, together},
};

pub const WATCHERS: usize = 100;
/// Each writes one object, again and again.
const WRITERS: u32 = 16;
pub const WRITES_PER_SECOND: u32 = 1000;
const WRITES: usize = 3000;
/// Each writer writes as often as the others.
const SEEN: usize = WRITES / WRITERS as usize * WRITERS as usize;
/// A server that has not told all by then does not keep up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the watchers let pieces come before they read them. It counts as lateness.
const REST: Duration = Duration::from_micros(500);
/// What stands before the moment of a write in an event.
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"at\":\""));
/// An event's bytes, and how many events go to a socket at once, where there is nothing but sockets.
const BYTES: usize = 600;
const STEP: usize = 4;

/// What came of it.
pub struct Seen {
    /// From a write's being sent to each watcher's having read of it.
    pub seen: Load,
    /// From a write's being sent to its being answered; none where nothing answers.
    pub answered: Option<Load>,
}

/// Makes what is written again and again.
pub fn prepare(server: &Server) -> Result<()> {
    alone(write(server, Instant::now(), "POST", WRITERS as usize, Duration::ZERO)).map(drop)
}

/// How long each write took to each watcher.
pub fn measure(server: &Server) -> Result<Seen> {
    let began = Instant::now();
    // What watches begin with is of this measurement.
    alone(write(server, began, "PUT", WRITERS as usize, Duration::ZERO))?;
    std::thread::scope(|threads| {
        let (ready, begin) = std::sync::mpsc::channel();
        let watching = threads.spawn(move || {
            listening(REST, async {
                let path = format!("{MAPS}?watch=true&resourceVersion=0&labelSelector=for%3Dwatchers");
                let request = server.request("GET", &path, "");
                let mut watches = together((0..WATCHERS).map(|_| watch(server, &request))).await?;
                ready.send(())?;
                let seen = watches.iter_mut().map(|watch| watch.seen(began));
                let seen = tokio::time::timeout(PATIENCE, together(seen)).await;
                seen.context("the server does not keep up")?
            })
        });
        if begin.recv().is_err() {
            // Whoever would have said that watches are there says what ails them.
            return Err(all_of(watching.join()).err().unwrap_or_else(|| anyhow::anyhow!("no watch")));
        }
        let pause = Duration::from_secs(1) / WRITES_PER_SECOND;
        let answered = Some(alone(write(server, began, "PUT", WRITES, pause))?);
        Ok(Seen { seen: all_of(watching.join())?, answered })
    })
}

/// What all watchers saw.
fn all_of(watched: std::thread::Result<Result<Vec<Vec<f64>>>>) -> Result<Load> {
    let times = watched.map_err(|_| anyhow::anyhow!("the watchers panicked"))??;
    Ok(Load::of(times.concat(), 1.0))
}

/// The least that any server takes on this machine: lines of the same size at the same pace from one thread to as many
/// sockets, with nothing asked, stored or encrypted. A machine on which this is late is late for everybody.
pub fn bare() -> Result<Seen> {
    let began = Instant::now();
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::scope(|threads| {
        let watching = threads.spawn(move || {
            listening(REST, async {
                let connect = async || Ok(Watcher::of(TcpStream::connect(address).await?));
                let mut watches = together((0..WATCHERS).map(|_| connect())).await?;
                together(watches.iter_mut().map(|watch| watch.seen(began))).await
            })
        });
        let mut sockets = Vec::new();
        for _ in 0..WATCHERS {
            let (socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            sockets.push(socket);
        }
        let (first, mut lines) = (Instant::now(), Vec::new());
        for number in 0..SEEN {
            let turn = first + Duration::from_secs(1) / WRITES_PER_SECOND * number as u32;
            std::thread::sleep(turn.saturating_duration_since(Instant::now()));
            let line = json!({"at": began.elapsed().as_nanos().to_string()}).to_string();
            writeln!(lines, "{line:BYTES$}")?;
            if number % STEP == STEP - 1 {
                sockets.iter_mut().try_for_each(|socket| socket.write_all(&lines))?;
                lines.clear();
            }
        }
        Ok(Seen { seen: all_of(watching.join())?, answered: None })
    })
}

/// Writes so many times, and gives how long each took.
async fn write(server: &Server, began: Instant, method: &str, count: usize, pause: Duration) -> Result<Load> {
    let first = Instant::now();
    let writers = (0..WRITERS).map(|writer| async move {
        let mut connection = server.connect().await?;
        let mut times = Vec::new();
        for number in 0..count / WRITERS as usize {
            let turn = pause * (number as u32 * WRITERS + writer);
            tokio::time::sleep_until((first + turn).into()).await;
            let name = format!("watched-{writer}");
            let data = json!({"at": began.elapsed().as_nanos().to_string()});
            let metadata = json!({"name": name, "labels": {"for": "watchers"}});
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            let path = if method == "POST" { MAPS.to_owned() } else { format!("{MAPS}/{name}") };
            let request = server.request(method, &path, &body.to_string());
            let sent = Instant::now();
            connection.ask(&request).await?;
            times.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    });
    let times = together(writers).await?.concat();
    Ok(Load::of(times, first.elapsed().as_secs_f64()))
}

/// What a watcher reads from.
trait Source {
    /// Adds what comes next to `text`. False at the end.
    async fn piece(&mut self, text: &mut Vec<u8>) -> Result<bool>;
}

impl Source for Connection {
    async fn piece(&mut self, text: &mut Vec<u8>) -> Result<bool> {
        self.chunk_into(text).await
    }
}

impl Source for TcpStream {
    async fn piece(&mut self, text: &mut Vec<u8>) -> Result<bool> {
        text.reserve(STEP * BYTES * 2);
        Ok(self.read_buf(text).await? > 0)
    }
}

/// A watcher costs as little as it can: it has the machine in common with the server.
struct Watcher<S> {
    source: S,
    text: Vec<u8>,
    /// Up to where it was read.
    at: usize,
}

/// A watch that has told what there was.
async fn watch(server: &Server, request: &[u8]) -> Result<Watcher<Connection>> {
    let mut watch = Watcher::of(server.connect().await?);
    watch.source.follow(request).await?;
    for _ in 0..WRITERS {
        watch.moment().await?;
    }
    Ok(watch)
}

impl<S: Source> Watcher<S> {
    fn of(source: S) -> Self {
        Self { source, text: Vec::new(), at: 0 }
    }

    /// The moment of the next event's write.
    async fn moment(&mut self) -> Result<Duration> {
        loop {
            let unread = &self.text[self.at..];
            if let Some(end) = memchr(b'\n', unread) {
                let said = || format!("no moment in {}", String::from_utf8_lossy(&unread[..end]));
                let mark = MARK.find(&unread[..end]).with_context(said)? + MARK.needle().len();
                let digits = unread[mark..].iter().take_while(|byte| byte.is_ascii_digit());
                let nanoseconds = digits.fold(0, |sum: u64, byte| sum * 10 + u64::from(byte - b'0'));
                self.at += end + 1;
                return Ok(Duration::from_nanos(nanoseconds));
            }
            self.text.drain(..self.at);
            self.at = 0;
            ensure!(self.source.piece(&mut self.text).await?, "the watch ended");
        }
    }

    async fn seen(&mut self, began: Instant) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(SEEN);
        while times.len() < SEEN {
            let moment = self.moment().await?;
            times.push((began.elapsed() - moment).as_secs_f64() * 1e3);
        }
        Ok(times)
    }
}
