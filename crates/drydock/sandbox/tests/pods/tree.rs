//! A tree with nothing but busybox.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const COMMANDS: [&str; 30] = [
    "sh", "sleep", "cat", "echo", "id", "ls", "touch", "true", "false", "kill", "ps", "nc", "hostname",
    "grep", "wc", "tty", "stty", "env", "pwd", "dd", "head", "tail", "mount", "chown", "httpd", "trap",
    "yes", "stat", "mknod", "wget",
];

/// Makes it. The machine must have a static busybox.
pub(crate) fn make(tree: &Path) {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("these tests need a static busybox: install busybox-static");
    for directory in ["bin", "etc", "tmp", "home/app", "opt"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    fs::copy(busybox, tree.join("bin/busybox")).unwrap();
    for command in COMMANDS {
        symlink("busybox", tree.join("bin").join(command)).unwrap();
    }
    fs::write(tree.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/home/app:/bin/sh\n")
        .unwrap();
    fs::write(tree.join("etc/group"), "root:x:0:\napp:x:1234:\n").unwrap();
    fs::write(tree.join("etc/plain"), "not a program\n").unwrap();
    fs::write(tree.join("etc/garbage"), [0u8, 1, 2, 3]).unwrap();
    fs::set_permissions(tree.join("etc/garbage"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(tree.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    // Where a careless mount would land on the machine itself.
    symlink("/tmp/../../../../../../etc/escaped", tree.join("opt/escape")).unwrap();
}

/// Makes a tree someone else's.
pub(crate) fn give_away(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path(), user);
        }
    }
}
