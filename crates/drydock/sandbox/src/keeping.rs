//! The keeper as its node sees it: started, watched, and started anew when it dies.
//!
//! Pods that run need no keeper, so they are untouched when it is killed. But without one no further pod can be made,
//! and none would be left to clean up after a node that dies. So its end is noticed at once, whoever started it, and
//! whoever finds none when it is needed does not wait for that.

use std::fs;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::error::Error;
use crate::keeper;
use crate::process::Process;
use crate::state::{self, HostRecord, Layout};

/// A keeper that dies sooner than this is not followed by another before it: it would die too.
const SOON: Duration = Duration::from_secs(1);

/// A host's keepers, one at a time.
pub(crate) struct Keeping {
    layout: Layout,
    program: Option<PathBuf>,
    outlive: bool,
    /// How many files a keeper may have open, and with it what it makes.
    files: Rlimit,
    /// Given to every keeper, and by a mortal one to the inits it makes: it ends with this process.
    lifeline: PipeReader,
    _alive: PipeWriter,
    state: Mutex<State>,
}

struct State {
    record: HostRecord,
    closed: bool,
}

impl Keeping {
    /// Takes over the keeper that the record names, or starts one.
    pub fn start(
        layout: Layout,
        program: Option<PathBuf>,
        outlive: bool,
        files: Rlimit,
        record: HostRecord,
    ) -> Result<Arc<Self>, Error> {
        let (lifeline, alive) = io::pipe().map_err(failed())?;
        let known = record.keeper.clone();
        let state = Mutex::new(State { record, closed: false });
        let keeping = Arc::new(Self { layout, program, outlive, files, lifeline, _alive: alive, state });
        match known {
            Some(keeper) if keeper.alive() => keeping.watch(keeper, None)?,
            _ => keeping.ensure()?,
        }
        Ok(keeping)
    }

    /// Sees to it that a keeper lives, unless nobody wants one any more.
    pub fn ensure(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.closed || state.record.keeper.as_ref().is_some_and(Process::alive) {
            return Ok(());
        }
        let (keeper, child) = self.start_one()?;
        state.record.keeper = Some(keeper.clone());
        self.watch(keeper, Some(child))?;
        state::write(&self.layout.host(), &state.record).map_err(Error::machine("writing the host's record"))
    }

    /// From here on the keeper may end.
    pub fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Waits for the keeper's end in a thread that has nothing else to do, and has it followed by another.
    fn watch(self: &Arc<Self>, keeper: Process, child: Option<Child>) -> Result<(), Error> {
        let (keeping, began) = (Arc::downgrade(self), Instant::now());
        let work = move || {
            keeper.wait();
            let _reaped = child.map(|mut child| child.wait());
            if keeping.upgrade().is_some_and(|keeping| !keeping.state.lock().closed) {
                tracing::warn!(pid = keeper.pid, "the keeper of the pods has died; another is started");
                std::thread::sleep(SOON.saturating_sub(began.elapsed()));
            }
            if let Some(Err(error)) = keeping.upgrade().map(|keeping| keeping.ensure()) {
                tracing::error!(%error, "there is no keeper; the next pod that is made tries again");
            }
        };
        let thread = std::thread::Builder::new().name("keeper-watch".to_owned());
        thread.spawn(work).map(drop).map_err(failed())
    }

    fn start_one(&self) -> Result<(Process, Child), Error> {
        let log = self.layout.keeper_log();
        let errors = fs::OpenOptions::new().create(true).append(true).open(&log).map_err(failed())?;
        let mut child = Command::new(self.program.as_deref().unwrap_or(Path::new("/proc/self/exe")))
            .arg0("drydock")
            .arg(keeper::ARGUMENT)
            .arg(&self.layout.root)
            .arg(if self.outlive { "lasting" } else { "mortal" })
            .current_dir("/")
            .env_clear()
            .stdin(self.lifeline.try_clone().map_err(failed())?)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(failed())?;
        let _as_this_process = prlimit(Some(Pid::from_child(&child)), Resource::Nofile, self.files);
        let mut word = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut word).map_err(failed())?;
        }
        if word != "ready\n" {
            let _gone = child.kill();
            let _reaped = child.wait();
            let said = fs::read_to_string(log).unwrap_or_default();
            let said = said.lines().last().unwrap_or("it said nothing");
            return Err(failed()(io::Error::other(format!("the program is no keeper: {said}"))));
        }
        let process = Process::of(i32::try_from(child.id()).unwrap_or(0)).map_err(failed())?;
        Ok((process, child))
    }
}

fn failed() -> impl FnOnce(io::Error) -> Error {
    Error::machine("starting the keeper")
}
