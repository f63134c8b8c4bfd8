//! What there is on this machine.

use std::fs;
use std::path::Path;

/// Facts that a node's object shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    pub cores: u64,
    pub memory: u64,
    pub disk: u64,
    pub kernel: String,
    pub os_image: String,
    pub machine_id: String,
    pub boot_id: String,
}

/// How much of it is left.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Left {
    pub memory: u64,
    pub disk: u64,
    pub disk_of: u64,
    pub processes: u64,
    pub processes_of: u64,
}

impl Machine {
    pub fn look(directory: &Path) -> Self {
        let (disk, _) = disk(directory);
        let word = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
        Self {
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory: memory("MemTotal:"),
            disk,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            os_image: pretty.trim_matches('"').to_owned(),
            machine_id: word("/etc/machine-id"),
            boot_id: word("/proc/sys/kernel/random/boot_id"),
        }
    }
}

impl Left {
    pub fn look(directory: &Path) -> Self {
        let (disk_of, disk) = disk(directory);
        let number = |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let running =
            load.split_ascii_whitespace().nth(3).and_then(|pair| pair.split_once('/')?.1.parse().ok());
        Self {
            memory: memory("MemAvailable:"),
            disk,
            disk_of,
            processes: running.unwrap_or(0),
            processes_of: number("/proc/sys/kernel/pid_max").unwrap_or(u64::MAX),
        }
    }
}

/// A line of `/proc/meminfo`, in bytes.
fn memory(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib: Option<u64> = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// The size of a file system, and what is free of it.
fn disk(directory: &Path) -> (u64, u64) {
    rustix::fs::statvfs(directory)
        .map(|found| (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize))
        .unwrap_or_default()
}
