//! Who a container's program is, and what it may do.

use std::fs;
use std::path::Path;

use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use crate::error::StartError;

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

impl User {
    /// Reads an image's user, `name`, `name:group`, `uid` or `uid:gid`, with the files of its tree.
    ///
    /// A number needs no entry; its group is then the one that the passwd file says, or 0. Further groups are
    /// those that the group file lists for the user, unless a group is given.
    pub fn resolve(tree: &Path, text: &str) -> Result<Self, StartError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let passwd = entries(&tree.join("etc/passwd"));
        let groups = entries(&tree.join("etc/group"));
        let user = if user.is_empty() { "0" } else { user };
        let entry = passwd.iter().find(|entry| {
            entry.first().is_some_and(|name| name == user) || entry.get(2).is_some_and(|uid| uid == user)
        });
        let uid = match entry.and_then(|entry| entry.get(2)).unwrap_or(&user.to_owned()).parse() {
            Ok(uid) => uid,
            Err(_) => return Err(StartError::NoSuchUser(user.to_owned())),
        };
        if let Some(group) = group.filter(|group| !group.is_empty()) {
            let gid = groups
                .iter()
                .find(|entry| entry.first().is_some_and(|name| name == group))
                .and_then(|entry| entry.get(2)?.parse().ok())
                .or_else(|| group.parse().ok())
                .ok_or_else(|| StartError::NoSuchGroup(group.to_owned()))?;
            return Ok(Self { uid, gid, groups: Vec::new() });
        }
        let gid = entry.and_then(|entry| entry.get(3)?.parse().ok()).unwrap_or(0);
        let name = entry.and_then(|entry| entry.first());
        let mut further: Vec<u32> = groups
            .iter()
            .filter(|entry| {
                name.is_some_and(|name| {
                    entry.get(3).is_some_and(|members| members.split(',').any(|member| member == name))
                })
            })
            .filter_map(|entry| entry.get(2)?.parse().ok())
            .filter(|group| *group != gid)
            .collect();
        further.sort_unstable();
        Ok(Self { uid, gid, groups: further })
    }

    /// The home directory that a tree's passwd file says, `/` without one.
    pub fn home(tree: &Path, uid: u32) -> String {
        entries(&tree.join("etc/passwd"))
            .into_iter()
            .find(|entry| entry.get(2).and_then(|text| text.parse().ok()) == Some(uid))
            .and_then(|entry| entry.get(5).filter(|home| !home.is_empty()).cloned())
            .unwrap_or_else(|| "/".to_owned())
    }
}

/// The lines of a passwd or group file, by field.
fn entries(path: &Path) -> Vec<Vec<String>> {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(':'))
        .map(|line| line.split(':').map(str::to_owned).collect())
        .collect()
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

    fn check(text: &str, expected: Result<(u32, u32, &[u32]), &str>) {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("etc")).unwrap();
        fs::write(
            tree.path().join("etc/passwd"),
            "root:x:0:0:root:/root:/bin/sh\nmemcache:x:11211:11212::/nonexistent:/bin/false\n",
        )
        .unwrap();
        fs::write(tree.path().join("etc/group"), "root:x:0:\nwheel:x:10:root,memcache\nmemcache:x:11212:\n")
            .unwrap();
        let found = User::resolve(tree.path(), text);
        match expected {
            Ok((uid, gid, groups)) => {
                assert_eq!(found, Ok(User { uid, gid, groups: groups.to_vec() }), "{text}");
            }
            Err(message) => assert_eq!(found.unwrap_err().to_string(), message, "{text}"),
        }
    }

    #[test]
    fn an_image_user_is_a_name_or_a_number_with_or_without_a_group() {
        check("", Ok((0, 0, &[10])));
        check("memcache", Ok((11211, 11212, &[10])));
        check("11211", Ok((11211, 11212, &[10])));
        check("memcache:wheel", Ok((11211, 10, &[])));
        check("4711:10", Ok((4711, 10, &[])));
        check("4711", Ok((4711, 0, &[])));
        check("nope", Err("unable to find user nope: no matching entries in passwd file"));
        check("0:nope", Err("unable to find group nope: no matching entries in group file"));
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
