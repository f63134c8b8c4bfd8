//! Who a container runs as, looked up in the image's own `/etc/passwd` and `/etc/group`.

use std::io::{self, Read};
use std::path::Path;

use crate::rooted;

/// More of these files is not read: real ones have some hundred lines.
const MOST_BYTES: u64 = 1 << 20;

/// A user, as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's first group.
    pub gid: u32,
    /// The other groups that the image's `/etc/group` lists the user in.
    pub groups: Vec<u32>,
    /// The user's home directory; `/` where none is said.
    pub home: String,
}

/// A user that is none.
#[derive(Debug, thiserror::Error)]
pub enum UnknownUser {
    /// A name that the image's `/etc/passwd` does not have.
    #[error("unable to find user {0}: no matching entries in passwd file")]
    User(String),
    /// A name that the image's `/etc/group` does not have.
    #[error("unable to find group {0}: no matching entries in group file")]
    Group(String),
    /// One of the files can't be read.
    #[error("can't read {0} of the image")]
    Unreadable(&'static str, #[source] io::Error),
}

/// Looks `user` up as an image's configuration writes it: `name`, `uid`, `name:group`, `uid:gid`, or nothing for
/// root. A number needs no entry; its group is then 0, as Kubernetes has it.
///
/// # Errors
/// When a name is not there.
pub fn lookup(tree: &Path, user: &str) -> Result<Identity, UnknownUser> {
    let (user, group) = match user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (user, None),
    };
    let passwd = lines(tree, "/etc/passwd")?;
    let groups = lines(tree, "/etc/group")?;
    let user = if user.is_empty() { "0" } else { user };
    let entry = passwd.iter().find(|line| field(line, 0) == user || field(line, 2) == user);
    let (uid, name) = match (entry, user.parse::<u32>()) {
        (Some(line), _) => (field(line, 2).parse().ok(), field(line, 0)),
        (None, Ok(uid)) => (Some(uid), ""),
        (None, Err(_)) => (None, ""),
    };
    let uid = uid.ok_or_else(|| UnknownUser::User(user.to_owned()))?;
    let gid = match group.filter(|group| !group.is_empty()) {
        None => entry.and_then(|line| field(line, 3).parse().ok()).unwrap_or(0),
        Some(group) => groups
            .iter()
            .find(|line| field(line, 0) == group)
            .and_then(|line| field(line, 2).parse().ok())
            .or_else(|| group.parse().ok())
            .ok_or_else(|| UnknownUser::Group(group.to_owned()))?,
    };
    let member = |line: &&String| !name.is_empty() && field(line, 3).split(',').any(|member| member == name);
    let mut others: Vec<u32> =
        groups.iter().filter(member).filter_map(|line| field(line, 2).parse().ok()).collect();
    others.retain(|other| *other != gid);
    let home = entry.map(|line| field(line, 5)).filter(|home| home.starts_with('/')).unwrap_or("/");
    Ok(Identity { uid, gid, groups: others, home: home.to_owned() })
}

fn field(line: &str, place: usize) -> &str {
    line.split(':').nth(place).unwrap_or_default()
}

/// The lines of a file of the image; none when it has no such file.
fn lines(tree: &Path, path: &'static str) -> Result<Vec<String>, UnknownUser> {
    let mut bytes = Vec::new();
    match rooted::open(tree, Path::new(path)).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes)) {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(UnknownUser::Unreadable(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("etc")).unwrap();
        fs::write(
            temp.path().join("etc/passwd"),
            "root:x:0:0:root:/root:/bin/sh\nmemcache:x:11211:11212::/home/m:/bin/false\n",
        )
        .unwrap();
        fs::write(temp.path().join("etc/group"), "root:x:0:\nmemcache:x:11212:\nlog:x:4:a,memcache\n")
            .unwrap();
        let id = |uid, gid, groups: &[u32], home: &str| {
            Ok(Identity { uid, gid, groups: groups.to_vec(), home: home.to_owned() })
        };
        for (user, expected) in [
            ("", id(0, 0, &[], "/root")),
            ("memcache", id(11211, 11212, &[4], "/home/m")),
            ("11211", id(11211, 11212, &[4], "/home/m")),
            ("memcache:log", id(11211, 4, &[], "/home/m")),
            ("5:6", id(5, 6, &[], "/")),
            ("5", id(5, 0, &[], "/")),
            ("nobody", Err("unable to find user nobody: no matching entries in passwd file")),
            ("0:wheel", Err("unable to find group wheel: no matching entries in group file")),
        ] {
            let answer = lookup(temp.path(), user).map_err(|e| e.to_string());
            assert_eq!(answer, expected.map_err(str::to_owned), "{user}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(lookup(empty.path(), "").ok(), id(0, 0, &[], "/").ok());
    }
}
