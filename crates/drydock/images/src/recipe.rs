//! What an image is made of.
//!
//! A recipe is data: which Debian packages, from which suites, who runs what in the tree. Versions are not in
//! it; they are found in the package index when an image is asked for. [`builtin`] is the table, one row each;
//! a program adds rows of its own, [`Recipe::of_program`] makes one around an executable.

use std::path::PathBuf;

use serde::Serialize;

use crate::config::{Config, DEFAULT_PATH, Port};

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
    /// The Debian suites to look in; the first is what `latest` means.
    pub suites: Vec<String>,
    /// What else a tag may say about it and be right: `1.6-slim`.
    pub variants: Vec<String>,
    /// The path of a BusyBox in the tree; its applets are linked beside it where nothing else has the name.
    pub busybox: Option<String>,
    /// Files that no package brings.
    pub files: Vec<RecipeFile>,
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
}

/// Where the version of an image comes from.
#[derive(Clone, Debug, Serialize)]
pub enum Versioned {
    /// It is the version of this package.
    ByPackage(String),
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
            ..Config::default()
        }
    }

    /// Whether it answers to a whole name.
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.also.iter().any(|other| other == name)
    }

    fn empty() -> Recipe {
        Recipe {
            name: String::new(),
            also: Vec::new(),
            version: Versioned::As(String::new()),
            packages: Vec::new(),
            // Stable first; what was stable before; what is newest, for a version that nothing released has.
            suites: words("trixie bookworm sid"),
            variants: Vec::new(),
            busybox: None,
            files: Vec::new(),
            user: None,
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: Vec::new(),
            working_dir: String::new(),
            ports: Vec::new(),
        }
    }
}

/// The table.
pub fn builtin() -> Vec<Recipe> {
    vec![memcached(), busybox()]
}

/// As the official image: the same user, entrypoint and port. A BusyBox stands for the shell and the tools that
/// the official one has from its Debian, for `kubectl exec`, probes and hooks.
fn memcached() -> Recipe {
    // Arguments that begin with an option are memcached's; anything else is a command of its own.
    let entrypoint = "#!/bin/sh\nset -e\ncase \"$1\" in -*) set -- memcached \"$@\" ;; esac\nexec \"$@\"\n";
    Recipe {
        name: "docker.io/library/memcached".to_owned(),
        version: Versioned::ByPackage("memcached".to_owned()),
        packages: words("memcached busybox-static"),
        variants: words("debian slim"),
        busybox: Some("/bin/busybox".to_owned()),
        files: vec![RecipeFile {
            path: "/usr/local/bin/docker-entrypoint.sh".to_owned(),
            mode: 0o755,
            source: Source::Text(entrypoint.to_owned()),
        }],
        user: Some(User { name: "memcache".to_owned(), uid: 11211, gid: 11211 }),
        entrypoint: words("docker-entrypoint.sh"),
        command: words("memcached"),
        ports: vec![Port::tcp(11211)],
        ..Recipe::empty()
    }
}

fn busybox() -> Recipe {
    Recipe {
        name: "docker.io/library/busybox".to_owned(),
        version: Versioned::ByPackage("busybox-static".to_owned()),
        packages: words("busybox-static"),
        variants: words("glibc"),
        busybox: Some("/bin/busybox".to_owned()),
        command: words("sh"),
        ..Recipe::empty()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;

    #[test]
    fn every_row_has_a_whole_name_of_its_own_and_something_to_run() {
        let rows = builtin();
        for row in &rows {
            let names: Vec<&String> = std::iter::once(&row.name).chain(&row.also).collect();
            for name in names {
                assert_eq!(&Reference::parse(name).unwrap().name(), name);
                assert_eq!(rows.iter().filter(|other| other.answers_to(name)).count(), 1, "{name}");
            }
            assert!(!row.entrypoint.is_empty() || !row.command.is_empty());
            assert!(!row.suites.is_empty());
        }
    }
}
