//! What a running `ballast up` leaves behind for `ballast status` and `ballast down` to find it by.
//!
//! A cluster has its record beside its kubeconfig, and one that is kept in its directory too, `running`. It is there
//! from before the cluster is until everything of it has ended. A crash leaves it.
//!
//! **What always holds.** A data directory is locked by the process whose record is in it, for as long as that is there:
//! nobody finds one without a record that is taken, or loses its own record to another. A process that is found by a record is the very one that wrote it: it is told by the boot
//! of the machine and the moment of its start as well as by its number, and held by a descriptor. A number that was
//! given to another process since is nobody's here, and no signal goes to it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::configuration::{Place, Up, Which};
use crate::failure::{Advise as _, Explain as _, Failure};
use crate::operators;
use crate::version::Version;

/// What the record of a kept cluster is called.
const NAME: &str = "running";
/// What to do where it can't be written there.
const MAKE_ROOM: &str =
    "make room there and let it be written, or name another directory with --data-dir DIR";
/// What to do where it can't be written beside a kubeconfig.
const ELSEWHERE: &str = "make room there and let it be written, or say where else with --kubeconfig FILE";

/// A `ballast up`, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its process.
    pub process: u32,
    /// When that started, in ticks since the boot of the machine.
    started: u64,
    /// Which boot.
    boot: String,
    /// Since when the cluster is there.
    pub since: Timestamp,
    /// Ballast's version.
    pub version: String,
    /// That of the Kubernetes it serves.
    pub kubernetes: String,
    /// Where the cluster is kept, if it is.
    pub directory: Option<PathBuf>,
    /// Where the API is served. Not yet, while it is starting.
    pub url: Option<String>,
    /// The administrator's kubeconfig. It may not be there yet, while it is starting.
    pub kubeconfig: PathBuf,
    /// The operators in it.
    pub operators: Vec<String>,
    /// Whether it runs pods.
    pub node: bool,
}

impl Record {
    /// Of this process, which is starting.
    ///
    /// # Errors
    /// The system does not say which process this is.
    pub fn of_this_process(up: &Up, kubeconfig: &Path) -> Result<Self, Failure> {
        let Version { version, kubernetes, .. } = Version::current();
        let process = std::process::id();
        let operators = if up.operators { operators::names() } else { Vec::new() };
        Ok(Record {
            process,
            started: started(process).ok_or_else(|| Failure::new("/proc does not know this process"))?,
            boot: boot().what("can't read which boot of the machine this is")?,
            since: Timestamp::now(),
            version: version.to_owned(),
            kubernetes: kubernetes.to_owned(),
            directory: match &up.place {
                Place::Directory(directory) => Some(directory.clone()),
                Place::Memory => None,
            },
            url: None,
            kubeconfig: kubeconfig.to_owned(),
            operators: operators.into_iter().map(str::to_owned).collect(),
            node: up.pods.is_some(),
        })
    }

    fn read(path: &Path) -> Result<Option<Self>, Failure> {
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).what(format!("can't read {}", path.display())),
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .what(format!("{} is no record of a `ballast up`", path.display()))
                .advise("remove it, if nothing runs there"),
        }
    }

    /// The process that wrote it, if it still runs.
    ///
    /// # Errors
    /// The system does not say.
    fn running(&self) -> Result<Option<Process>, Failure> {
        let what = || format!("can't look for process {}", self.process);
        if boot().what(what())? != self.boot {
            return Ok(None);
        }
        let Some(number) = i32::try_from(self.process).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let descriptor = match pidfd_open(number, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Ok(None),
            other => other.what(what())?,
        };
        // The descriptor holds whoever has the number now; whether it is the one who wrote this is seen only then.
        Ok((started(self.process) == Some(self.started)).then(|| Process(descriptor)))
    }
}

/// Which boot of the machine this is.
fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// When a process started that has not ended.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may hold anything. Behind it come the state, as the third field, and all others.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        return None;
    }
    fields.get(22 - 3)?.parse().ok()
}

/// A process that runs, whatever number it has.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Asks it to stop.
    ///
    /// # Errors
    /// It belongs to somebody else.
    pub fn terminate(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.0, Signal::TERM) {
            // It has ended by itself.
            Err(Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// The system does not say.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(poll(&mut asked, Some(&Timespec::default()))? > 0)
    }
}

/// A `ballast up` that runs.
#[derive(Debug)]
pub struct Running {
    /// What it says of itself.
    pub record: Record,
    /// Its process.
    pub process: Process,
    /// Where the record is.
    path: PathBuf,
}

impl Running {
    /// When it last said something, by its record. None where that is gone.
    pub fn last_word(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).and_then(|found| found.modified()).ok()
    }
}

/// The one that is meant, if it runs.
///
/// # Errors
/// Its record can't be read.
pub fn find(which: &Which) -> Result<Option<Running>, Failure> {
    let path = match which {
        Which::Directory(directory) => directory.join(NAME),
        Which::Kubeconfig(file) => beside(file),
    };
    let Some(record) = Record::read(&path)? else { return Ok(None) };
    Ok(record.running()?.map(|process| Running { record, process, path }))
}

/// The `ballast up` that has this kubeconfig, if it runs.
pub fn of_kubeconfig(kubeconfig: &Path) -> Option<Running> {
    let file = std::path::absolute(kubeconfig).ok()?;
    find(&Which::Kubeconfig(file)).ok().flatten()
}

/// What becomes of a cluster that stopped in order.
pub(crate) fn what_is_left(directory: Option<&Path>) -> String {
    match directory {
        Some(directory) => format!("its cluster is kept in {}", directory.display()),
        None => "its cluster was kept in memory, and is gone".to_owned(),
    }
}

fn beside(kubeconfig: &Path) -> PathBuf {
    let mut name = kubeconfig.file_name().map(OsString::from).unwrap_or_default();
    name.push(".");
    name.push(NAME);
    kubeconfig.with_file_name(name)
}

/// A record on disk, in each of its places. It goes when this is dropped, and then the cluster's directory is let go.
#[derive(Debug)]
pub struct Left {
    /// Where it is, and what to do where it can't be written.
    places: Vec<(PathBuf, &'static str)>,
    /// Of the cluster's directory, if it has one.
    _lock: Option<File>,
}

impl Left {
    /// Leaves a record, in the place of one that a crash left.
    ///
    /// # Errors
    /// It can't be written.
    pub fn of(record: &Record, lock: Option<File>) -> Result<Self, Failure> {
        let kept = record.directory.as_ref().map(|directory| (directory.join(NAME), MAKE_ROOM));
        let places = kept.into_iter().chain([(beside(&record.kubeconfig), ELSEWHERE)]).collect();
        let left = Left { places, _lock: lock };
        left.now(record)?;
        Ok(left)
    }

    /// Says something else from now on.
    ///
    /// # Errors
    /// It can't be written.
    pub fn now(&self, record: &Record) -> Result<(), Failure> {
        self.places.iter().try_for_each(|(path, next)| {
            write(path, record).what(format!("can't write {}", path.display())).advise(*next)
        })
    }

    /// Says the same again, so that whoever waits sees that something is still done.
    pub fn again(&self) {
        for (path, _) in &self.places {
            let touched = File::open(path).and_then(|record| record.set_modified(SystemTime::now()));
            if let Err(error) = touched {
                tracing::debug!(%error, path = %path.display(), "nobody is told that something is done");
            }
        }
    }
}

/// Whole or not at all, for its owner only.
fn write(path: &Path, record: &Record) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let private = |path: &Path| File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut file = tempfile::Builder::new().make_in(directory, private)?;
    serde_json::to_writer_pretty(&mut file, record)?;
    file.write_all(b"\n")?;
    file.persist(path)?;
    Ok(())
}

impl Drop for Left {
    fn drop(&mut self) {
        let own = std::process::id();
        for (path, _) in &self.places {
            // Another that began in the same moment has written over it: that one runs on.
            if matches!(Record::read(path), Ok(Some(theirs)) if theirs.process != own) {
                continue;
            }
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!(%error, path = %path.display(), "the record is not there any more");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::ground;
    use drydock::OpenError;

    fn record() -> Record {
        let process = std::process::id();
        Record {
            process,
            started: started(process).unwrap(),
            boot: boot().unwrap(),
            since: Timestamp::UNIX_EPOCH,
            version: "1".into(),
            kubernetes: "1".into(),
            directory: None,
            url: None,
            kubeconfig: "/nonexistent/kubeconfig".into(),
            operators: vec![],
            node: false,
        }
    }

    #[test]
    fn a_number_that_another_process_has_now_is_nobodys() {
        assert!(record().running().unwrap().is_some());
        let (mut earlier, mut rebooted, mut gone) = (record(), record(), record());
        earlier.started -= 1;
        rebooted.boot = "another".into();
        // Beyond the largest number that a process can have.
        gone.process = 1 << 23;
        for other in [earlier, rebooted, gone] {
            assert!(other.running().unwrap().is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_record_is_found_by_directory_or_kubeconfig_and_goes_with_its_cluster() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        for (directory, kubeconfig) in
            [(Some(&data), "data/kubeconfig"), (Some(&data), "elsewhere/kubeconfig"), (None, "passing")]
        {
            let kubeconfig = place.path().join(kubeconfig);
            let record = Record { directory: directory.cloned(), kubeconfig: kubeconfig.clone(), ..record() };
            let which = [directory.cloned().map(Which::Directory), Some(Which::Kubeconfig(kubeconfig))];
            let left = Left::of(&record, None).unwrap();
            for one in which.iter().flatten() {
                let found = find(one).unwrap().unwrap();
                assert_eq!(found.record, record, "{one:?}");
                File::open(&found.path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
                left.again();
                assert!(found.last_word().unwrap().elapsed().unwrap().as_secs() < 60, "it has just said so");
            }
            assert!(find(&Which::Kubeconfig(place.path().join("data/other"))).unwrap().is_none());
            drop(left);
            for one in which.iter().flatten() {
                assert!(find(one).unwrap().is_none(), "{one:?}");
            }
        }
    }

    #[test]
    fn who_ends_takes_nobody_elses_record_away() {
        let place = tempfile::tempdir().unwrap();
        let kubeconfig = place.path().join("kubeconfig");
        let own = Record { kubeconfig: kubeconfig.clone(), ..record() };
        let left = Left::of(&own, None).unwrap();
        let init = Record { process: 1, started: started(1).unwrap(), ..own };
        write(&beside(&kubeconfig), &init).unwrap();
        drop(left);
        assert_eq!(Record::read(&beside(&kubeconfig)).unwrap(), Some(init));
    }

    #[test]
    fn a_directory_is_let_go_with_its_record() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("data");
        let kubeconfig = place.path().join("kubeconfig");
        let record = Record { directory: Some(directory.clone()), kubeconfig, ..record() };
        let left = Left::of(&record, Some(ground::take_whole(&directory).unwrap())).unwrap();
        assert!(matches!(ground::take_whole(&directory), Err(OpenError::InUse(_))));
        drop(left);
        ground::take_whole(&directory).unwrap();
    }
}
