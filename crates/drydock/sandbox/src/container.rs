//! One container, and the programs run beside its own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use jiff::Timestamp;
use rustix::pipe::PipeFlags;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

use crate::attach::Pieces;
use crate::config::{ContainerConfig, ExecConfig, Exit, Usage};
use crate::error::Error;
use crate::pod::Pod;
use crate::process::AGAIN;
use crate::protocol::{Done, Ended, InitRequest, Started};
use crate::state;
use crate::wire::Line;

/// A container of a pod. Clones are the same container; dropping one does nothing to it.
#[derive(Clone)]
pub struct Container {
    pod: Pod,
    id: String,
    pid: i32,
    started: Timestamp,
}

impl Container {
    pub(crate) fn new(pod: Pod, id: String, pid: i32, started: Timestamp) -> Self {
        Self { pod, id, pid, started }
    }

    /// Its name in the pod.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its main process, as the node counts. It may have ended.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// When its program started.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// What it was made from.
    ///
    /// # Errors
    ///
    /// When its record can't be read.
    pub fn config(&self) -> Result<ContainerConfig, Error> {
        let path = self.directory().join("config.json");
        state::read(&path).map_err(Error::machine(format!("reading {}", path.display())))
    }

    fn directory(&self) -> PathBuf {
        self.pod.inner.host.inner.layout.container(self.pod.id(), &self.id)
    }

    /// How it ended, if it has; needs no init.
    pub fn exit(&self) -> Option<Exit> {
        state::read(&self.directory().join("exit.json")).ok()
    }

    /// Waits until it has ended, also where the machine is short of what it takes to ask for a while.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] when its pod's init has ended before it, so that nobody knows.
    pub async fn wait(&self) -> Result<Exit, Error> {
        loop {
            let error = match self.pod.ask::<Ended>(&InitRequest::Wait { id: self.id.clone() }).await {
                Ok((Ended::Exit(exit), _)) => return Ok(exit),
                Ok((Ended::Absent, _)) => Error::Name(format!("there is no container {}", self.id)),
                Err(error) => error,
            };
            match (self.exit(), error) {
                (Some(exit), _) => return Ok(exit),
                (None, Error::Machine { .. }) => tokio::time::sleep(AGAIN).await,
                (None, error) => return Err(error),
            }
        }
    }

    /// Sends its main process a signal. As PID 1 it gets only those that it handles, and SIGKILL.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub async fn signal(&self, signal: i32) -> Result<(), Error> {
        self.done(InitRequest::Signal { id: self.id.clone(), signal }).await.map(drop)
    }

    /// Goes on writing its log in a new file, after the old one was moved away.
    ///
    /// # Errors
    ///
    /// When the new file can't be made.
    pub async fn reopen_log(&self) -> Result<(), Error> {
        self.done(InitRequest::ReopenLog { id: self.id.clone() }).await.map(drop)
    }

    /// Removes what is left of it once it has ended: its writable layer, its records. Not its log.
    ///
    /// # Errors
    ///
    /// When it runs.
    pub async fn remove(&self) -> Result<(), Error> {
        if self.exit().is_none() && self.pod.is_alive() {
            return Err(Error::Name(format!("container {} runs", self.id)));
        }
        if self.pod.is_alive() {
            self.done(InitRequest::Forget { id: self.id.clone() }).await?;
        }
        self.pod.discard(&self.id).await
    }

    /// What it uses: all its processes where cgroups count, its main process elsewhere.
    pub fn usage(&self) -> Option<Usage> {
        let groups = &self.pod.inner.host.inner.cgroups;
        groups
            .as_ref()
            .and_then(|groups| groups.existing(self.pod.id(), &self.id).usage())
            .or_else(|| main_process_usage(self.pid))
    }

    async fn done(&self, request: InitRequest) -> Result<Vec<OwnedFd>, Error> {
        let (done, files) = self.pod.ask(&request).await?;
        match done {
            Done::Yes => Ok(files),
            Done::Absent => Err(Error::Name(format!("container {} does not run", self.id))),
            Done::Failed(why) => Err(Error::machine(format!("container {}", self.id))(io::Error::other(why))),
        }
    }

    /// Runs a further program in it.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] when there is no such program, or this user can't run it.
    pub async fn exec(&self, config: ExecConfig) -> Result<Exec, Error> {
        let failed = || Error::machine(format!("exec in container {}", self.id));
        let request = |config| InitRequest::Exec { id: self.id.clone(), config: Box::new(config) };
        let (tty, wants_input) = (config.tty, config.stdin);
        let mut line;
        let mut streams = Streams::default();
        if tty {
            line = self.pod.call(&request(config)).await?;
        } else {
            let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed()(error.into()));
            let (out, out_inside) = pipe()?;
            let (err, err_inside) = pipe()?;
            let input = if wants_input {
                let (inside, outside) = pipe()?;
                streams.stdin = Some(pipe::Sender::from_owned_fd(outside).map_err(failed())?);
                inside
            } else {
                OwnedFd::from(std::fs::File::open("/dev/null").map_err(failed())?)
            };
            streams.stdout = Some(Reader(pipe::Receiver::from_owned_fd(out).map_err(failed())?));
            streams.stderr = Some(Reader(pipe::Receiver::from_owned_fd(err).map_err(failed())?));
            let files = [input.as_fd(), out_inside.as_fd(), err_inside.as_fd()];
            line = self.pod.call_with(&request(config), &files).await?;
        }
        let gone = || Error::Gone(self.pod.id().to_owned());
        let (answer, files) = line.answer().await.map_err(failed())?.ok_or_else(gone)?;
        match answer {
            Started::Yes { pid, .. } => {
                if tty {
                    let terminal = files.into_iter().next().ok_or_else(gone)?;
                    streams.take_terminal(terminal, wants_input).map_err(failed())?;
                }
                Ok(Exec { pid, streams, line, pod: self.pod.clone() })
            }
            Started::No(error) => Err(error.into()),
            Started::Absent => Err(Error::Name(format!("container {} does not run", self.id))),
        }
    }

    /// Joins its outputs from now on, and its standard input when that is wanted.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub async fn attach(&self, stdin: bool) -> Result<Attached, Error> {
        let failed = || Error::machine(format!("attaching to container {}", self.id));
        let mut line = self.pod.call(&InitRequest::Attach { id: self.id.clone(), stdin }).await?;
        let answer = line.answer().await.map_err(failed())?;
        let (done, files) = answer.ok_or_else(|| Error::Gone(self.pod.id().to_owned()))?;
        match done {
            Done::Yes => {}
            Done::Absent => return Err(Error::Name(format!("container {} does not run", self.id))),
            Done::Failed(why) => return Err(failed()(io::Error::other(why))),
        }
        let mut files = files.into_iter();
        let rest = files.next().ok_or_else(|| failed()(io::Error::other("not all files came")))?;
        let way_in = files.next();
        // Only of a terminal: as long as a copy of a pipe is open, the container does not see its end.
        let terminal = way_in.as_ref().filter(|fd| rustix::termios::isatty(fd)).map(OwnedFd::try_clone);
        let terminal = terminal.transpose().map_err(failed())?;
        let stdin = way_in
            .filter(|_| stdin)
            .map(pipe::Sender::from_owned_fd_unchecked)
            .transpose()
            .map_err(failed())?;
        Ok(Attached { stdin, terminal: Terminal(terminal), pieces: Pieces::new(line.into_stream(), rest) })
    }
}

/// What the node's own records say of one process.
fn main_process_usage(pid: i32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    // Counted exactly here; the quicker figures elsewhere may lag behind by more than a small program has.
    let exact = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kilobytes: u64 = exact
        .lines()
        .find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB")?.trim().parse().ok())?;
    Some(Usage { memory: kilobytes * 1024, cpu_nanos: ticks * (1_000_000_000 / per_second) })
}

/// The caller's ends of a program's standard files.
#[derive(Default)]
pub struct Streams {
    /// What the program reads, when asked for; dropping it is its end, except with a terminal.
    pub stdin: Option<pipe::Sender>,
    /// What it writes; with a terminal, everything.
    pub stdout: Option<Reader>,
    /// What it complains; none with a terminal.
    pub stderr: Option<Reader>,
    /// Its terminal.
    pub terminal: Terminal,
}

impl Streams {
    fn take_terminal(&mut self, terminal: OwnedFd, wants_input: bool) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&terminal, true)?;
        if wants_input {
            self.stdin = Some(pipe::Sender::from_owned_fd_unchecked(terminal.try_clone()?)?);
        }
        self.stdout = Some(Reader(pipe::Receiver::from_owned_fd_unchecked(terminal.try_clone()?)?));
        self.terminal = Terminal(Some(terminal));
        Ok(())
    }
}

/// A program that runs beside a container's own.
pub struct Exec {
    /// Its process, as the node counts.
    pub pid: i32,
    /// Its standard files, to be taken. A program that writes to an output which was dropped is ended for it.
    pub streams: Streams,
    line: Line,
    pod: Pod,
}

impl Exec {
    /// Waits until it has ended. May be dropped and called again.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] when the pod has ended.
    pub async fn wait(&mut self) -> Result<Exit, Error> {
        match self.line.answer().await {
            Ok(Some((Ended::Exit(exit), _))) => Ok(exit),
            Ok(Some((Ended::Absent, _)) | None) => Err(Error::Gone(self.pod.id().to_owned())),
            Err(error) => Err(self.pod.unanswered(error)),
        }
    }

    /// Sends it a signal; fine when it has ended. SIGKILL ends what it started too, unless that has left its process
    /// group.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] when the pod has ended.
    pub async fn signal(&self, signal: i32) -> Result<(), Error> {
        let (done, _) = self.pod.ask(&InitRequest::SignalExec { pid: self.pid, signal }).await?;
        match done {
            Done::Yes | Done::Absent => Ok(()),
            Done::Failed(why) => Err(Error::machine("signalling a program")(io::Error::other(why))),
        }
    }
}

/// A container's standard files, shared with whoever else attached.
pub struct Attached {
    /// What the container reads, when asked for and it reads at all.
    pub stdin: Option<pipe::Sender>,
    /// Its terminal.
    pub terminal: Terminal,
    pieces: Pieces,
}

/// The terminal of a program, where it has one.
#[derive(Default)]
pub struct Terminal(Option<OwnedFd>);

impl Terminal {
    /// Tells it how large it is shown. Without one, nothing.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let Some(terminal) = &self.0 else { return Ok(()) };
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(terminal, size)?)
    }
}

/// What a container wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// To its standard output.
    Out(Vec<u8>),
    /// To its standard error.
    Err(Vec<u8>),
}

impl Attached {
    /// The next piece of what the container writes; none when it has ended.
    ///
    /// # Errors
    ///
    /// When the connection breaks before the container has ended.
    pub async fn next(&mut self) -> io::Result<Option<Piece>> {
        let piece = self.pieces.next().await?;
        Ok(piece.map(|(complaint, bytes)| if complaint { Piece::Err(bytes) } else { Piece::Out(bytes) }))
    }
}

/// What a program writes. A terminal that its last program has left ends like a file.
pub struct Reader(pipe::Receiver);

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buffer) {
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}
