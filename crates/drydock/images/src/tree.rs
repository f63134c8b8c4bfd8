//! Carries a recipe out: an empty directory becomes a tree that its entrypoint runs in.
//!
//! No script of any package is run. What those would have made that a service needs is made here: users, places
//! for temporary files, the links by which `/bin` is `/usr/bin`. The C library of Debian finds its libraries
//! without a cache, so there is none.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::layer::{self, Budget, LayerError, Limits, Rules};
use crate::linkage::{self, LinkageError};
use crate::packages::{Fetched, PackagesError};
use crate::progress::{Progress, Report};
use crate::recipe::{Recipe, RecipeFile, Source};
use crate::rooted::{self, Missing};

/// Directories of every tree, with their modes.
const DIRECTORIES: &[(&str, u32)] = &[
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/sbin", 0o755),
    ("usr/lib", 0o755),
    ("usr/lib64", 0o755),
    ("usr/local", 0o755),
    ("usr/local/bin", 0o755),
    ("etc", 0o755),
    ("dev", 0o755),
    ("home", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

/// Links of every tree. They are there before anything is unpacked: a package that ships `/lib` is meant for them.
const LINKS: &[(&str, &str)] = &[
    ("bin", "usr/bin"),
    ("sbin", "usr/sbin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("var/run", "../run"),
];

/// What nobody reads in a container. Licences stay.
const UNWANTED: &[&str] = &[
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/doc-base",
];

/// Where Debian's static BusyBox is.
const BUSYBOX: &str = "/bin/busybox";

/// Why a recipe can't be carried out.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A package can't be had.
    #[error("a package can't be had")]
    Packages(#[from] PackagesError),
    /// A package can't be unpacked.
    #[error("the package {package} can't be unpacked")]
    Unpack {
        /// Which.
        package: String,
        /// Why.
        #[source]
        error: LayerError,
    },
    /// Something of the tree can't be made.
    #[error("can't make {path:?}")]
    Make {
        /// What.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It would not run.
    #[error("the tree that was made would not run")]
    Linkage(#[from] LinkageError),
}

/// Makes the tree of `recipe` in the empty directory `tree`.
pub(crate) fn make(
    tree: &Path,
    recipe: &Recipe,
    packages: &[Fetched],
    report: Report<'_>,
) -> Result<(), TreeError> {
    skeleton(tree)?;
    let mut budget = Budget::new(&Limits::default());
    for (fetched, number) in packages.iter().zip(1..) {
        let package = fetched.package.to_string();
        report(&Progress::Unpack { number, of: packages.len(), package });
        unpack(tree, fetched, recipe, &mut budget)?;
    }
    users(tree, recipe)?;
    for directory in &recipe.directories {
        let path = PathBuf::from(directory);
        open_directory(tree, &path, recipe).map_err(|error| TreeError::Make { path, error })?;
    }
    for file in &recipe.files {
        let path = PathBuf::from(&file.path);
        write(tree, file).map_err(|error| TreeError::Make { path, error })?;
    }
    for directory in &recipe.programs {
        let path = PathBuf::from(directory);
        link_programs(tree, &path).map_err(|error| TreeError::Make { path, error })?;
    }
    if recipe.busybox {
        link_applets(tree).map_err(|error| TreeError::Make { path: PathBuf::from(BUSYBOX), error })?;
    }
    report(&Progress::Check);
    let runs = recipe.entrypoint.first().into_iter().chain(recipe.command.first()).chain(&recipe.tools);
    for program in runs {
        linkage::check(tree, program)?;
    }
    Ok(())
}

fn skeleton(tree: &Path) -> Result<(), TreeError> {
    let make = |path: &str, how: &dyn Fn(&Path) -> io::Result<()>| {
        let path = tree.join(path);
        how(&path).map_err(|error| TreeError::Make { path, error })
    };
    make("", &|root| rooted::chmod_directory(root, 0o755))?;
    for (directory, mode) in DIRECTORIES {
        make(directory, &|path| {
            fs::create_dir(path)?;
            rooted::chmod_directory(path, *mode)
        })?;
    }
    for (link, target) in LINKS {
        make(link, &|path| symlink(target, path))?;
    }
    let nsswitch = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n";
    for (file, text) in [
        ("etc/nsswitch.conf", nsswitch),
        ("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n"),
        // The node mounts its own over these.
        ("etc/hosts", "127.0.0.1 localhost\n"),
        ("etc/hostname", ""),
        ("etc/resolv.conf", ""),
    ] {
        make(file, &|path| create(path, 0o644, &mut text.as_bytes()))?;
    }
    Ok(())
}

/// The package's files, by the same hand that applies layers: `dpkg-deb` opens the package, and no more.
fn unpack(tree: &Path, fetched: &Fetched, recipe: &Recipe, budget: &mut Budget) -> Result<(), TreeError> {
    let no_program = |error| PackagesError::NoProgram { program: "dpkg-deb", error };
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(&fetched.file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(no_program)?;
    let wanted = |path: &Path| is_wanted(path) && !recipe.unwanted.iter().any(|other| is_below(path, other));
    let rules = Rules { whiteouts: false, through_links: true, wanted: &wanted };
    let mut stream = child.stdout.take().ok_or_else(|| no_program(io::ErrorKind::BrokenPipe.into()))?;
    let applied = layer::apply(tree, &mut stream, &rules, budget)
        .and_then(|()| io::copy(&mut stream, &mut io::sink()).map(drop).map_err(LayerError::Damaged));
    drop(stream);
    let status = child.wait().map_err(no_program)?;
    let whole = applied.and_then(|()| match status.success() {
        true => Ok(()),
        false => Err(LayerError::Damaged(io::Error::other(format!("dpkg-deb: {status}")))),
    });
    whole.map_err(|error| TreeError::Unpack { package: fetched.package.to_string(), error })
}

fn is_wanted(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "copyright")
        || !UNWANTED.iter().any(|unwanted| path.starts_with(unwanted))
}

/// Whether a path of the tree is a recipe's, or below it.
fn is_below(path: &Path, pattern: &str) -> bool {
    let mut components = path.iter();
    pattern
        .split('/')
        .filter(|part| !part.is_empty())
        .all(|part| components.next().is_some_and(|component| part == "*" || component == part))
}

/// The directories of the tree that a recipe's path means.
fn directories_of(tree: &Path, pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.iter().filter(|part| *part != "/") {
        let mut deeper = Vec::new();
        for directory in found {
            if part != "*" {
                deeper.push(directory.join(part));
                continue;
            }
            for entry in fs::read_dir(rooted::resolve(tree, &directory)?)? {
                deeper.push(directory.join(entry?.file_name()));
            }
        }
        found = deeper;
    }
    found.retain(|directory| rooted::resolve(tree, directory).is_ok_and(|place| place.is_dir()));
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

/// The links by which a shell finds programs that are somewhere else.
fn link_programs(tree: &Path, pattern: &Path) -> io::Result<()> {
    for directory in directories_of(tree, pattern)? {
        for entry in fs::read_dir(rooted::resolve(tree, &directory)?)? {
            let name = entry?.file_name();
            symlink(directory.join(&name), tree.join("usr/local/bin").join(&name))?;
        }
    }
    Ok(())
}

/// A directory that the user of the image writes to. Who may give it away does; otherwise it is everybody's, as
/// `/tmp` is.
fn open_directory(tree: &Path, path: &Path, recipe: &Recipe) -> io::Result<()> {
    let Some((parent, name)) = rooted::parent(tree, path, Missing::Create)? else { return Ok(()) };
    let place = parent.join(name);
    if !place.is_dir() {
        fs::create_dir(&place)?;
    }
    rooted::chmod_directory(&place, 0o1777)?;
    if let Some(user) = &recipe.user {
        let _not_mine_to_give = std::os::unix::fs::chown(&place, Some(user.uid), Some(user.gid));
    }
    Ok(())
}

/// Root, nobody, and who the recipe says.
fn users(tree: &Path, recipe: &Recipe) -> Result<(), TreeError> {
    let mut passwd = "root:x:0:0:root:/root:/bin/sh\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        .to_owned();
    let mut group = "root:x:0:\nnogroup:x:65534:\n".to_owned();
    if let Some(user) = &recipe.user {
        passwd.push_str(&format!("{0}:x:{1}:{2}::/home/{0}:/bin/sh\n", user.name, user.uid, user.gid));
        group.push_str(&format!("{}:x:{}:\n", user.name, user.gid));
    }
    for (path, text) in [("etc/passwd", passwd), ("etc/group", group)] {
        let path = tree.join(path);
        layer::clear(&path)
            .and_then(|()| create(&path, 0o644, &mut text.as_bytes()))
            .map_err(|error| TreeError::Make { path, error })?;
    }
    Ok(())
}

fn write(tree: &Path, file: &RecipeFile) -> io::Result<()> {
    let Some((parent, name)) = rooted::parent(tree, Path::new(&file.path), Missing::Create)? else {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    };
    let place = parent.join(name);
    layer::clear(&place)?;
    match &file.source {
        Source::Text(text) => create(&place, file.mode, &mut text.as_bytes()),
        Source::Local(path) => create(&place, file.mode, &mut fs::File::open(path)?),
        Source::Link(to) => symlink(to, &place),
    }
}

fn create(place: &Path, mode: u32, content: &mut impl io::Read) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(place)?;
    io::copy(content, &mut file)?;
    file.flush()?;
    Ok(rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode))?)
}

/// BusyBox knows its own applets; it is asked, being static and of this machine's kind.
fn link_applets(tree: &Path) -> io::Result<()> {
    let program = rooted::resolve(tree, Path::new(BUSYBOX))?;
    let output = Command::new(&program).arg("--list").stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("busybox --list: {}", output.status)));
    }
    let (Some(directory), Some(own)) = (program.parent(), program.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    };
    for applet in String::from_utf8_lossy(&output.stdout).lines().filter(|applet| !applet.contains('/')) {
        match symlink(own, directory.join(applet)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
