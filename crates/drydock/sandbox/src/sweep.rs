//! Ending and removing: a pod, a container's cgroup, all that a state directory records.
//!
//! Used by a node that closes or starts, and by a mortal keeper whose node is gone. Everything here may be done
//! twice, and by the next when the first was interrupted. A record that can't be read holds nothing up: the processes
//! it was about are found by the sockets that they listen on.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cgroup;
use crate::error::{Error, is_shortage};
use crate::keeper;
use crate::netlink::Netlink;
use crate::network;
use crate::process::Process;
use crate::protocol::KeeperRequest;
use crate::removal::remove_all;
use crate::state::{self, HostRecord, InitRecord, Layout, PodRecord};
use crate::wire;

/// How long the kernel may take to let go of what a process held.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends and removes what a state directory records, the keeper included.
pub(crate) fn everything(layout: &Layout, outside: Option<&OwnedFd>) -> Result<(), Error> {
    let record: Option<HostRecord> = match state::read(&layout.host()) {
        Ok(record) => Some(record),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                let path = layout.host();
                tracing::warn!(path = %path.display(), %error, "can't be read: the pods that ran are ended, and begin again");
            }
            None
        }
    };
    let recorded = record.as_ref().and_then(|record| record.keeper.clone());
    let keeper = recorded.or_else(|| keeper::listener(&layout.root, "keeper.sock"));
    if let Some(keeper) = keeper.filter(Process::alive) {
        // It ends its pods too, also one whose init has not been written down yet.
        let ended = keeper::connect(&layout.root, "keeper.sock").and_then(|line| {
            line.set_read_timeout(Some(PATIENCE))?;
            wire::send(&line, &KeeperRequest::Shutdown, &[])?;
            wire::receive::<()>(&line).map(drop)
        });
        if let Err(error) = ended {
            // One whose node died is ending by itself.
            tracing::debug!(%error, "the keeper does not answer; it is killed");
        }
        if !keeper.kill(PATIENCE) {
            return Err(Error::machine("ending the keeper")(io::ErrorKind::TimedOut.into()));
        }
    }
    remains(layout, record.as_ref(), outside)
}

/// Ends and removes what a state directory records, but for the keeper. Whoever can't go outside is the keeper.
///
/// The host's record goes last: while it is there, whoever starts in this directory waits for the keeper it names.
pub(crate) fn remains(
    layout: &Layout,
    record: Option<&HostRecord>,
    outside: Option<&OwnedFd>,
) -> Result<(), Error> {
    for id in state::names(&layout.pods()).map_err(Error::machine("reading the pods"))? {
        pod(layout, &id, None)?;
    }
    remove_all(&layout.pods()).map_err(Error::machine("removing the pods' directory"))?;
    if let Some(record) = record {
        if let Some(groups) = &record.cgroups {
            for directory in groups.directories() {
                group(&directory)?;
            }
            if let Some(leaf) = groups.aside() {
                // Who closes is in it still, and leaves it by itself.
                let _in_use = fs::remove_dir(leaf);
            }
        }
        if let Some(uplink) = &record.uplink {
            match outside {
                Some(outside) => network::remove_uplink(&uplink.name, uplink.index, outside),
                None => network::remove_inner_end(),
            }
            .map_err(Error::machine(format!("removing the link {}", uplink.name)))?;
        }
    }
    for name in ["keeper.sock", "keeper.log", "host.new", "host.json"] {
        match fs::remove_file(layout.root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::machine(format!("removing {name}"))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes the pods that nobody can take up: of which no record was written yet, or not any more, when the node was
/// killed; or one that can't be read.
pub(crate) fn unrecorded(layout: &Layout) -> Result<(), Error> {
    for id in state::names(&layout.pods()).map_err(Error::machine("reading the pods"))? {
        let path = layout.pod_record(&id);
        match state::read::<PodRecord>(&path) {
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::debug!(pod = id, "was being made or removed, and is removed");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "can't be read: the pod is ended, and begins again");
            }
        }
        pod(layout, &id, None)?;
    }
    Ok(())
}

/// Ends a pod's processes and removes all that is its own.
pub(crate) fn pod(layout: &Layout, id: &str, link: Option<&str>) -> Result<(), Error> {
    let init = match state::read::<InitRecord>(&layout.init_record(id)) {
        Ok(record) => Some(record.process),
        Err(error) if is_shortage(&error) => {
            return Err(Error::machine(format!("looking for the init of pod {id}"))(error));
        }
        Err(_) => keeper::listener(&layout.pod(id), "init.sock"),
    };
    if init.is_some_and(|init| !init.kill(PATIENCE)) {
        return Err(Error::machine(format!("ending pod {id}"))(io::ErrorKind::TimedOut.into()));
    }
    if let Some(link) = link {
        self::link(link)?;
    }
    match rustix::mount::unmount(layout.shm(id), rustix::mount::UnmountFlags::DETACH) {
        // Mounted by an earlier run, in a namespace that is gone; or never.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        Err(error) => {
            return Err(Error::machine(format!("unmounting the shared memory of pod {id}"))(error.into()));
        }
    }
    if let Ok(record) = state::read::<PodRecord>(&layout.pod_record(id)) {
        for directory in &record.cgroups {
            group(directory)?;
        }
    }
    remove_all(&layout.pod(id)).map_err(Error::machine(format!("removing the files of pod {id}")))
}

/// Removes the node's end of a pod's link. The kernel does with the pod's network namespace, too, but some time later.
pub(crate) fn link(name: &str) -> Result<(), Error> {
    let removed = Netlink::open().and_then(|node| match node.index(name)? {
        Some(index) => node.delete(index),
        None => Ok(()),
    });
    match removed {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::NODEV.raw_os_error()) => {
            Err(Error::machine(format!("removing the link {name}"))(error))
        }
        _ => Ok(()),
    }
}

/// Removes a cgroup. The kernel takes a moment to notice that the last process is gone.
pub(crate) fn group(directory: &Path) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        match cgroup::remove(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => {
                return other.map_err(Error::machine(format!("removing the cgroup {}", directory.display())));
            }
        }
    }
}
