//! What an image is made of.
//!
//! A recipe is data: which Debian packages, from which suites, who runs what in the tree. Versions are not in
//! it; they are found in the package index when an image is asked for. [`builtin`] is the table, one row each;
//! a program adds rows of its own, [`Recipe::of_program`] makes one around an executable.
//!
//! Paths in a tree that depend on a version are written with `*` for one component: `/usr/lib/postgresql/*/bin`.

use std::path::PathBuf;

use serde::Serialize;

use crate::config::{Config, DEFAULT_PATH, Port};
pub use crate::table::builtin;
use crate::version::Version;

/// How one image is made.
#[derive(Clone, Debug, Serialize)]
pub struct Recipe {
    /// The name it answers to, whole: `docker.io/library/memcached`.
    pub name: String,
    /// Other names it answers to, whole too.
    pub also: Vec<String>,
    /// Where its version comes from.
    pub version: Versioned,
    /// The packages, without what they depend on.
    pub packages: Vec<String>,
    /// Packages that those depend on and that nothing which runs here needs.
    pub without: Vec<String>,
    /// Paths of packages that are left out, with all below them.
    pub unwanted: Vec<String>,
    /// The Debian suites to look in; the first is what `latest` means.
    pub suites: Vec<String>,
    /// What else a tag may say about it and be right: `1.6-slim`.
    pub variants: Vec<String>,
    /// Whether it gets Debian's static BusyBox, whose applets are linked beside it where nothing else has the name.
    pub busybox: bool,
    /// Files that no package brings.
    pub files: Vec<RecipeFile>,
    /// Directories that no package brings, the user's own where this process may say so and everybody's where not.
    pub directories: Vec<String>,
    /// Directories whose programs are linked to where a shell finds them.
    pub programs: Vec<String>,
    /// What people run in it beside what is run without a word. It is checked that they can.
    pub tools: Vec<String>,
    /// Who runs in it, written into its `/etc/passwd`; root where none is said.
    pub user: Option<User>,
    /// What a pod's `command` takes the place of.
    pub entrypoint: Vec<String>,
    /// What a pod's `args` take the place of.
    pub command: Vec<String>,
    /// `NAME=value`, beside the search path.
    pub env: Vec<String>,
    /// Empty is the root directory.
    pub working_dir: String,
    /// What it listens on.
    pub ports: Vec<Port>,
    /// What asks it to stop, where that is not SIGTERM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// Where the version of an image comes from.
#[derive(Clone, Debug, Serialize)]
pub enum Versioned {
    /// It is the version of this package.
    ByPackage(String),
    /// It is the version of a package that has its major version in its name, which the version of another tells:
    /// where `postgresql` is 17, of `postgresql-17`. That package is among the packages of the image.
    ByMajor {
        /// Whose version tells.
        told_by: String,
        /// What the name begins with: `postgresql-`.
        prefix: String,
    },
    /// It is always this.
    As(String),
}

/// A file that a recipe adds.
#[derive(Clone, Debug, Serialize)]
pub struct RecipeFile {
    /// Where it goes: `/usr/local/bin/docker-entrypoint.sh`.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub source: Source,
}

/// Where a recipe's file comes from.
#[derive(Clone, Debug, Serialize)]
pub enum Source {
    /// The recipe itself.
    Text(String),
    /// A file of this machine. The image is made anew when that changes.
    Local(PathBuf),
    /// Nothing but a link to this.
    Link(String),
}

/// A user of an image.
#[derive(Clone, Debug, Serialize)]
pub struct User {
    /// The user's name, and that of the group.
    pub name: String,
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// An executable of this machine that becomes an image.
#[derive(Clone, Debug)]
pub struct Program {
    /// The image's whole name.
    pub name: String,
    /// The image's version.
    pub version: String,
    /// The executable here.
    pub executable: PathBuf,
    /// Where it goes in the image.
    pub path: String,
    /// What it is called with.
    pub arguments: Vec<String>,
    /// Who runs it.
    pub user: Option<User>,
    /// What it listens on.
    pub ports: Vec<Port>,
}

impl Recipe {
    /// An image around one executable. Where that is linked dynamically, the C library and what the compiler
    /// needs come from Debian; a static one needs no package at all.
    pub fn of_program(program: Program) -> Recipe {
        let entrypoint = std::iter::once(program.path.clone()).chain(program.arguments).collect();
        Recipe {
            name: program.name,
            version: Versioned::As(program.version),
            packages: words("libc6 libgcc-s1"),
            files: vec![RecipeFile {
                path: program.path,
                mode: 0o755,
                source: Source::Local(program.executable),
            }],
            user: program.user,
            entrypoint,
            ports: program.ports,
            ..Recipe::empty()
        }
    }

    /// What runs in it, as an image's configuration says it.
    pub fn config(&self) -> Config {
        let path = format!("PATH={DEFAULT_PATH}");
        Config {
            entrypoint: self.entrypoint.clone(),
            command: self.command.clone(),
            env: std::iter::once(path).chain(self.env.iter().cloned()).collect(),
            user: self.user.as_ref().map(|user| user.name.clone()).unwrap_or_default(),
            working_dir: self.working_dir.clone(),
            ports: self.ports.clone(),
            stop_signal: self.stop_signal.clone(),
            ..Config::default()
        }
    }

    /// Whether it answers to a whole name.
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.also.iter().any(|other| other == name)
    }

    /// The packages of the image where it is of this version.
    pub(crate) fn packages_of(&self, version: &Version) -> Vec<String> {
        let named = match &self.version {
            Versioned::ByMajor { prefix, .. } => Some(by_major(prefix, version)),
            Versioned::ByPackage(_) | Versioned::As(_) => None,
        };
        let shell = self.busybox.then(|| "busybox-static".to_owned());
        named.into_iter().chain(self.packages.iter().cloned()).chain(shell).collect()
    }

    /// A recipe that says nothing yet.
    pub(crate) fn empty() -> Recipe {
        Recipe {
            name: String::new(),
            also: Vec::new(),
            version: Versioned::As(String::new()),
            packages: Vec::new(),
            without: Vec::new(),
            unwanted: Vec::new(),
            // Stable first; what was stable before; what is newest, for a version that nothing released has.
            suites: words("trixie bookworm sid"),
            variants: Vec::new(),
            busybox: false,
            files: Vec::new(),
            directories: Vec::new(),
            programs: Vec::new(),
            tools: Vec::new(),
            user: None,
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: Vec::new(),
            working_dir: String::new(),
            ports: Vec::new(),
            stop_signal: None,
        }
    }
}

/// `postgresql-17`
pub(crate) fn by_major(prefix: &str, version: &Version) -> String {
    format!("{prefix}{}", version.major())
}

/// What stands between spaces.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
