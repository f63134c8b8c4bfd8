//! Who a container's program is, and what it may do.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

/// A user by number, as the container sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Further groups. Ignored where the node itself has one user only.
    pub groups: Vec<u32>,
}

/// More of a passwd file is not read: real ones have some hundred lines.
const MOST_BYTES: u64 = 1 << 20;

/// The home directory that a passwd file says, `/` without one. What the file is, is a container's to say: it may be one
/// whose opening waits for somebody, and then it is none.
pub(crate) fn home(passwd: &Path, uid: u32) -> String {
    let text = regular(passwd).unwrap_or_default();
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(':'));
    let home = lines.find_map(|mut fields| {
        let found = fields.nth(2)?.parse() == Ok(uid);
        found.then(|| fields.nth(2).unwrap_or_default().to_owned())
    });
    home.filter(|home| !home.is_empty()).unwrap_or_else(|| "/".to_owned())
}

/// Reads the beginning of a regular file.
fn regular(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Capabilities by the names that Kubernetes uses: the kernel's, without `CAP_`.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What containers may do unless they say otherwise: what Docker and containerd grant.
const USUAL: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(u64);

impl Default for Capabilities {
    fn default() -> Self {
        USUAL.iter().fold(Self::NONE, |set, name| set.with(name))
    }
}

impl Capabilities {
    /// None at all.
    pub const NONE: Self = Self(0);
    /// All that there are.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);

    /// The number of a name, with or without `CAP_`, in any case.
    fn bit(name: &str) -> Option<usize> {
        let name = name.to_ascii_uppercase();
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        NAMES.iter().position(|known| *known == name)
    }

    /// Whether a name is a capability's; `ALL` is.
    pub fn is_known(name: &str) -> bool {
        name.eq_ignore_ascii_case("ALL") || Self::bit(name).is_some()
    }

    /// This set and one more, or `ALL`. Unknown names add nothing.
    #[must_use]
    pub fn with(self, name: &str) -> Self {
        if name.eq_ignore_ascii_case("ALL") {
            return Self::ALL;
        }
        Self(self.0 | Self::bit(name).map_or(0, |bit| 1 << bit))
    }

    /// This set less one, or less `ALL`. Unknown names take nothing.
    #[must_use]
    pub fn without(self, name: &str) -> Self {
        if name.eq_ignore_ascii_case("ALL") {
            return Self::NONE;
        }
        Self(self.0 & !Self::bit(name).map_or(0, |bit| 1 << bit))
    }

    /// No program that this process runs gets more than these, not even one of root's.
    pub(crate) fn bound(self) -> rustix::io::Result<()> {
        for bit in 0..64u32 {
            let capability = CapabilitySet::from_bits_retain(1 << bit);
            match rustix::thread::capability_is_in_bounding_set(capability) {
                // The kernel knows no more than this.
                Err(_) => break,
                Ok(true) if self.0 & (1 << bit) == 0 => {
                    rustix::thread::remove_capability_from_bounding_set(capability)?;
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// This process, now its user, keeps these and no others. Without root's number it has none to keep.
    pub(crate) fn keep(self, uid: u32) -> rustix::io::Result<()> {
        rustix::thread::clear_ambient_capability_set()?;
        let have = rustix::thread::capabilities(None)?.permitted;
        let kept =
            if uid == 0 { have & CapabilitySet::from_bits_retain(self.0) } else { CapabilitySet::empty() };
        rustix::thread::set_capabilities(
            None,
            CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_what_a_regular_passwd_file_says() {
        let directory = tempfile::tempdir().unwrap();
        let passwd = directory.path().join("passwd");
        let check = |uid: u32, expected: &str| assert_eq!(home(&passwd, uid), expected, "{uid}");
        check(0, "/");
        fs::write(
            &passwd,
            b"# 0:0:0:0:0:/no\nroot:x:0:0:r\xf6\xf6t:/root:/bin/sh\nno\napp:x:7:7::/app\nx:x:8:8::\n",
        )
        .unwrap();
        for (uid, expected) in [(0, "/root"), (7, "/app"), (8, "/"), (9, "/")] {
            check(uid, expected);
        }
        fs::remove_file(&passwd).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &passwd, Mode::RWXU).unwrap();
        check(0, "/");
    }

    #[test]
    fn capabilities_are_added_and_taken_by_kubernetes_names() {
        let usual = Capabilities::default();
        assert_eq!(usual.without("ALL").with("NET_BIND_SERVICE").0, 1 << 10);
        assert_eq!(usual.with("net_admin").without("CAP_NET_ADMIN"), usual);
        assert_eq!(usual.with("NOPE"), usual);
        assert_eq!(usual.with("ALL"), Capabilities::ALL);
        assert!(Capabilities::is_known("SYS_PTRACE") && !Capabilities::is_known("NOPE"));
    }
}
