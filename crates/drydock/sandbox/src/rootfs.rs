//! A container's file system: its tree with a writable layer, the kernel's own file systems, volumes.
//!
//! Everything is mounted in a mount namespace that only this container has, so it vanishes with its last process
//! and is never seen outside. The tree may hold hostile links: every path below it is resolved as if the tree
//! were `/`, and mounts are made on what was found, not on a name.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::config::{Mount, MountKind};
use crate::error::{StartError, words};
use crate::protocol::ContainerSetup;

/// Devices that every program may expect.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that a container may read and not write.
const READ_ONLY: [&str; 5] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

/// Parts that say too much about the machine.
const HIDDEN: [&str; 9] = [
    "proc/acpi",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/timer_list",
    "proc/sched_debug",
    "proc/scsi",
    "sys/firmware",
    "sys/devices/virtual/powercap",
];

/// Makes the container's file system in a new mount namespace and enters it.
pub(crate) fn enter(setup: &ContainerSetup) -> Result<(), StartError> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(StartError::step("mount namespace"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(StartError::step("mount namespace"))?;

    let path = setup.directory.join("root");
    writable_tree(setup, &path)?;
    let root = Root::open(&path).map_err(StartError::step("opening the root"))?;
    kernel_file_systems(&root, setup)?;
    let privileged = setup.config.privileged;
    for mount in in_order(setup) {
        match &mount.what {
            MountKind::Bind { source, read_only } => {
                root.bind(source, &mount.destination, guarded(*read_only, privileged))?;
            }
            MountKind::Part { source, below, read_only } => {
                // What was found is mounted, whatever its path leads to by then.
                let found = beneath(source, below).map_err(|error| {
                    refused(&source.join(below).display().to_string(), &mount.destination, error)
                })?;
                root.bind(Path::new(&name_of(&found)), &mount.destination, guarded(*read_only, privileged))?;
            }
        }
    }
    if !privileged {
        hide(&root)?;
    }
    drop(root);
    pivot(&path).map_err(StartError::step("pivot_root"))?;
    if setup.config.read_only_root {
        restrict("/", MountFlags::RDONLY).map_err(StartError::step("read-only root"))?;
    }
    Ok(())
}

/// What is mounted, in the order in which that is done: what is to be seen below something else comes after it, however
/// the pod lists them; and what a pod says of a path comes after what is there anyway.
fn in_order(setup: &ContainerSetup) -> Vec<Mount> {
    let read_only = setup.config.read_only_root;
    let etc = setup.etc.iter().map(|(name, source)| Mount {
        destination: Path::new("/etc").join(name),
        what: MountKind::Bind { source: source.clone(), read_only },
    });
    let mut mounts: Vec<Mount> = etc.chain(setup.config.mounts.iter().cloned()).collect();
    mounts.sort_by_key(|mount| clean(&mount.destination).components().count());
    mounts
}

/// What holds for every volume: a device made in it is not one. Otherwise a root that may make devices could make
/// the machine's disk. To a privileged container, which has the machine's devices, one that it is given is one.
fn guarded(read_only: bool, privileged: bool) -> MountFlags {
    let devices = if privileged { MountFlags::empty() } else { MountFlags::NODEV };
    let writes = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    devices | writes
}

/// The tree with a layer above it that takes the writes; or a copy of it.
fn writable_tree(setup: &ContainerSetup, root: &Path) -> Result<(), StartError> {
    let tree = &setup.config.rootfs;
    let upper = setup.directory.join("upper");
    let work = setup.directory.join("work");
    let failed = |error: io::Error| StartError::Mount {
        source_path: tree.display().to_string(),
        destination: "/".to_owned(),
        reason: words(&error),
    };
    let metadata = fs::metadata(tree).map_err(failed)?;
    for directory in [&upper, &work, &root.to_owned()] {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    // The top directory of the upper layer is the one that is seen, whatever the tree's own is.
    fs::set_permissions(&upper, metadata.permissions()).map_err(failed)?;
    let _same_owner = std::os::unix::fs::chown(&upper, Some(metadata.uid()), Some(metadata.gid()));
    if !setup.overlay {
        copy_tree(tree, &upper).map_err(failed)?;
        return rustix::mount::mount_bind(&upper, root)
            .and_then(|()| restrict(root, MountFlags::NODEV))
            .map_err(|error| failed(error.into()));
    }
    let options = overlay_options(tree, &upper, &work, setup.user_namespace).map_err(failed)?;
    rustix::mount::mount("overlay", root, "overlay", MountFlags::NODEV, options.as_c_str())
        .map_err(|error| failed(error.into()))
}

/// What the kernel is told about an overlay.
pub(crate) fn overlay_options(lower: &Path, upper: &Path, work: &Path, user: bool) -> io::Result<CString> {
    let mut options = b"lowerdir=".to_vec();
    options.extend(escape(lower));
    options.extend(b",upperdir=");
    options.extend(escape(upper));
    options.extend(b",workdir=");
    options.extend(escape(work));
    if user {
        options.extend(b",userxattr");
    }
    CString::new(options).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Overlay's options separate directories by colons and options by commas.
fn escape(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if b"\\:,".contains(byte) {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

/// Copies a tree with its links, permissions and, where allowed, owners.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::symlink_metadata(&source)?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_tree(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        } else {
            continue;
        }
        let _not_ours = std::os::unix::fs::lchown(&target, Some(metadata.uid()), Some(metadata.gid()));
        if !kind.is_symlink() {
            // After the owner: a change of owner takes the special bits away.
            fs::set_permissions(&target, fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
        }
    }
    Ok(())
}

fn kernel_file_systems(root: &Root, setup: &ContainerSetup) -> Result<(), StartError> {
    let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    root.mount("proc", Path::new("/proc"), strict, "")?;
    let read_only = if setup.config.privileged { strict } else { strict | MountFlags::RDONLY };
    if root.mount("sysfs", Path::new("/sys"), read_only, "").is_err() {
        // Where an outer container has hidden parts of it, the kernel gives no new one, only the old.
        root.bind(Path::new("/sys"), Path::new("/sys"), read_only)?;
    }
    if setup.config.privileged {
        root.bind(Path::new("/dev"), Path::new("/dev"), MountFlags::empty())?;
        return match root.find(Path::new("/dev/shm")) {
            Ok(_) => root.bind(&setup.shm, Path::new("/dev/shm"), strict),
            // This is the machine's own `/dev`: nothing is made in it.
            Err(_) => Ok(()),
        };
    }
    root.mount("tmpfs", Path::new("/dev"), MountFlags::NOSUID | MountFlags::NODEV, "mode=755,size=65536k")?;
    for device in DEVICES {
        let path = Path::new("/dev").join(device);
        root.bind(&path, &path, MountFlags::empty())?;
    }
    for (name, target) in [
        ("dev/ptmx", "pts/ptmx"),
        ("dev/fd", "/proc/self/fd"),
        ("dev/stdin", "/proc/self/fd/0"),
        ("dev/stdout", "/proc/self/fd/1"),
        ("dev/stderr", "/proc/self/fd/2"),
    ] {
        rustix::fs::symlinkat(target, &root.directory, name)
            .map_err(StartError::step(format!("link /{name}")))?;
    }
    let no_programs = MountFlags::NOSUID | MountFlags::NOEXEC;
    root.mount("devpts", Path::new("/dev/pts"), no_programs, "newinstance,ptmxmode=0666,mode=0620")?;
    root.bind(&setup.shm, Path::new("/dev/shm"), strict)?;
    root.mount("mqueue", Path::new("/dev/mqueue"), strict, "")
}

fn hide(root: &Root) -> Result<(), StartError> {
    for path in READ_ONLY {
        let path = Path::new(path);
        if root.find(path).is_ok() {
            root.bind_on_itself_read_only(path).map_err(StartError::step(format!("/{}", path.display())))?;
        }
    }
    for path in HIDDEN {
        let Ok(found) = root.find(Path::new(path)) else { continue };
        let destination = Path::new("/").join(path);
        let kind = rustix::fs::fstat(&found).map_err(StartError::step(format!("/{path}")))?.st_mode;
        if rustix::fs::FileType::from_raw_mode(kind).is_dir() {
            root.mount("tmpfs", &destination, MountFlags::RDONLY, "size=0")?;
        } else {
            root.bind(Path::new("/dev/null"), &destination, MountFlags::empty())?;
        }
    }
    Ok(())
}

/// Makes a directory `/` and lets go of everything else.
fn pivot(root: &Path) -> rustix::io::Result<()> {
    rustix::process::chdir(root)?;
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => rustix::mount::unmount(".", UnmountFlags::DETACH)?,
        // The very first file system of a machine can't be pivoted away from.
        Err(Errno::INVAL) => {
            rustix::mount::mount_move(root, "/")?;
            rustix::process::chroot(".")?;
        }
        Err(other) => return Err(other),
    }
    rustix::process::chdir("/")
}

/// Restricts a mount. In a user namespace the restrictions that it has already must be said again.
fn restrict(path: impl rustix::path::Arg + Copy, more: MountFlags) -> rustix::io::Result<()> {
    use rustix::fs::StatVfsMountFlags as Has;
    let has = rustix::fs::statvfs(path)?.f_flag;
    let mut flags = MountFlags::BIND | more;
    for (had, flag) in [
        (Has::RDONLY, MountFlags::RDONLY),
        (Has::NOSUID, MountFlags::NOSUID),
        (Has::NODEV, MountFlags::NODEV),
        (Has::NOEXEC, MountFlags::NOEXEC),
        (Has::NOATIME, MountFlags::NOATIME),
        (Has::NODIRATIME, MountFlags::NODIRATIME),
        (Has::RELATIME, MountFlags::RELATIME),
    ] {
        if has.contains(had) {
            flags |= flag;
        }
    }
    rustix::mount::mount_remount(path, flags, c"")
}

/// While somebody else on the machine mounts or renames, the kernel can't be sure that `..` stays inside, and asks to
/// be asked again. So often in a row nobody does.
const PATIENCE: u32 = 10_000;

/// What a mount point must be.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Directory,
    File,
}

/// The container's root while it is being furnished.
struct Root {
    directory: OwnedFd,
}

impl Root {
    fn open(path: &Path) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { directory: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// What a path of the container means, seen from outside.
    fn find(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut patience = PATIENCE;
        loop {
            match rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Err(Errno::AGAIN) if patience > 0 => patience -= 1,
                other => return other,
            }
            std::thread::yield_now();
        }
    }

    /// The same, and makes what is missing.
    fn place(&self, path: &Path, kind: Kind, links: usize) -> rustix::io::Result<OwnedFd> {
        match self.find(path) {
            Err(Errno::NOENT) if links > 0 => {}
            other => return other,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
        let directory = self.place(parent, Kind::Directory, links)?;
        let made = match kind {
            Kind::Directory => rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o755)),
            Kind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::WRONLY;
                rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o644)).map(drop)
            }
        };
        match made {
            Ok(()) => self.find(path),
            // A link to something that is not there yet.
            Err(Errno::EXIST) => {
                let target = rustix::fs::readlinkat(&directory, name, Vec::new())?;
                let target = parent.join(Path::new(OsStr::from_bytes(target.as_bytes())));
                self.place(&clean(&target), kind, links - 1)
            }
            Err(other) => Err(other),
        }
    }

    fn mount(
        &self,
        kind: &str,
        destination: &Path,
        flags: MountFlags,
        options: &str,
    ) -> Result<(), StartError> {
        let attempt = || -> rustix::io::Result<()> {
            let point = self.place(destination, Kind::Directory, 8)?;
            let options = CString::new(options).map_err(|_| Errno::INVAL)?;
            rustix::mount::mount(kind, name_of(&point), kind, flags, options.as_c_str())
        };
        attempt().map_err(|error| refused(kind, destination, error))
    }

    fn bind(&self, source: &Path, destination: &Path, restrictions: MountFlags) -> Result<(), StartError> {
        let attempt = || -> rustix::io::Result<()> {
            let tree = rustix::mount::open_tree(rustix::fs::CWD, source, COPY)?;
            let is_directory =
                rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&tree)?.st_mode).is_dir();
            let kind = if is_directory { Kind::Directory } else { Kind::File };
            put(&tree, &self.place(destination, kind, 8)?, restrictions)
        };
        attempt().map_err(|error| refused(&source.display().to_string(), destination, error))
    }

    fn bind_on_itself_read_only(&self, path: &Path) -> rustix::io::Result<()> {
        let point = self.find(path)?;
        let tree = rustix::mount::open_tree(&point, c"", COPY | OpenTreeFlags::AT_EMPTY_PATH)?;
        put(&tree, &point, MountFlags::RDONLY)
    }
}

/// A mount with all below it once more, which is nowhere yet.
const COPY: OpenTreeFlags =
    OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC).union(OpenTreeFlags::AT_RECURSIVE);

/// Puts such a copy where it is to be, and restricts it. Its path is not asked for it again: on the way to there others
/// may write, who would have something else restricted in its place.
fn put(tree: &OwnedFd, point: &OwnedFd, restrictions: MountFlags) -> rustix::io::Result<()> {
    let both_open = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", point, c"", both_open)?;
    if restrictions.is_empty() {
        return Ok(());
    }
    restrict(name_of(tree).as_str(), restrictions)
}

/// Opens what is at a path below a directory, and nothing outside of it.
fn beneath(directory: &Path, below: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let top = rustix::fs::open(directory, flags | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&top, below, flags, Mode::empty(), resolve)
}

fn refused(source: &str, destination: &Path, error: Errno) -> StartError {
    StartError::Mount {
        source_path: source.to_owned(),
        destination: destination.display().to_string(),
        reason: words(&error.into()),
    }
}

/// A name for exactly what a descriptor stands for, valid while it is open.
pub(crate) fn name_of(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// A path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}
