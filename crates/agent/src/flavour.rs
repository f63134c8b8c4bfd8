//! The servers that are known, in one table: what they are called, how they are started and stopped.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::version::Version;

/// Where MySQL and MariaDB listen to who is beside them, where they are attended. Their clients look there by
/// themselves.
pub(crate) const SOCKET: &str = "/run/mysqld/mysqld.sock";

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
    /// MySQL, which MariaDB is not.
    Mysql,
    /// A member of an etcd cluster.
    Etcd,
}

/// A row of the table.
struct Traits {
    name: &'static str,
    /// The program, found as a shell finds it.
    program: &'static str,
    /// What `--version` says before the version.
    before_version: &'static str,
    /// How many numbers of a version must be the same for two to share their data in both directions.
    series: usize,
    /// What asks it to end soon and in order.
    stop: Signal,
    /// What its data directory has once it holds data.
    proof: &'static str,
    /// Arguments that are the agent's to give.
    reserved: &'static [&'static str],
}

impl Flavour {
    fn traits(self) -> Traits {
        match self {
            Flavour::Postgres => Traits {
                name: "PostgreSQL",
                program: "postgres",
                before_version: "(PostgreSQL) ",
                series: 1,
                // Fast: TERM would wait for every client to go by itself.
                stop: Signal::SIGINT,
                proof: "PG_VERSION",
                reserved: &[
                    "-D",
                    "--data_directory",
                    "--data-directory",
                    "-cdata_directory",
                    "data_directory",
                ],
            },
            Flavour::Mariadb => Traits {
                name: "MariaDB",
                program: "mariadbd",
                before_version: " Ver ",
                series: 2,
                stop: Signal::SIGTERM,
                proof: "mysql",
                reserved: &["--datadir", "-h", "--socket", "-S"],
            },
            Flavour::Mysql => Traits {
                name: "MySQL",
                program: "mysqld",
                before_version: " Ver ",
                series: 2,
                stop: Signal::SIGTERM,
                proof: "mysql.ibd",
                reserved: &["--datadir", "-h", "--socket", "-S"],
            },
            Flavour::Etcd => Traits {
                name: "etcd",
                program: "etcd",
                before_version: "etcd Version: ",
                series: 2,
                stop: Signal::SIGTERM,
                proof: "member",
                reserved: &["--data-dir", "-data-dir", "--name", "-name"],
            },
        }
    }

    /// The server's program.
    pub(crate) fn program(self) -> &'static str {
        self.traits().program
    }

    /// How many numbers of a version make a series.
    pub(crate) fn series(self) -> usize {
        self.traits().series
    }

    /// What the data directory has once it holds data.
    pub(crate) fn proof(self) -> &'static str {
        self.traits().proof
    }

    /// Whether the server itself brings data of an older series up to its own.
    pub(crate) fn upgrades_itself(self) -> bool {
        self != Flavour::Postgres
    }

    /// Whether the agent stands by the server while it runs.
    pub(crate) fn is_attended(self) -> bool {
        matches!(self, Flavour::Mariadb | Flavour::Mysql)
    }

    /// What the server gets when this process gets a signal.
    pub(crate) fn signal_for(self, signal: Signal) -> Signal {
        match signal {
            Signal::SIGTERM | Signal::SIGINT => self.traits().stop,
            other => other,
        }
    }

    /// The first argument of a person's that is the agent's to give.
    pub(crate) fn reserved(self, arguments: &[OsString]) -> Option<&'static str> {
        given(self.traits().reserved, arguments)
    }

    /// What the server is called with: a person's arguments, then the agent's, which are the last word. Some of the
    /// former must come first to be understood.
    pub(crate) fn arguments(self, data: &Path, member: Option<&str>, given: &[OsString]) -> Vec<OsString> {
        let mut arguments = given.to_vec();
        match self {
            Flavour::Postgres => {
                // Otherwise nobody but the pod itself is heard. A person may say otherwise behind it.
                arguments.splice(0..0, ["-c".into(), "listen_addresses=*".into()]);
                // A person's configuration file may name another directory, which counts for more than -D.
                arguments.extend(["-D".into(), data.into()]);
                arguments.extend(["-c".into(), option("data_directory=", data)]);
            }
            Flavour::Mariadb | Flavour::Mysql => {
                // Some configurations hear nobody but the pod itself; nor is who asks looked up by name, for accounts
                // have none. A person may say otherwise behind it.
                let which_files = |word: &&OsString| {
                    ["--defaults-", "--no-defaults"]
                        .iter()
                        .any(|name| word.to_string_lossy().starts_with(name))
                };
                let first = arguments.iter().take_while(which_files).count();
                arguments.splice(first..first, ["--bind-address=*".into(), "--skip-name-resolve".into()]);
                arguments.push(option("--datadir=", data));
            }
            Flavour::Etcd => {
                arguments.push(option("--data-dir=", data));
                arguments.extend(member.map(|name| format!("--name={name}").into()));
            }
        }
        arguments
    }

    /// What a server says of itself: its flavour and its version.
    pub(crate) fn of_version(self, said: &str) -> Option<(Flavour, Version)> {
        let line = said.lines().next()?;
        let (_, rest) = line.split_once(self.traits().before_version)?;
        let version = Version::parse(rest)?;
        // Each of the two can be called as the other is.
        let flavour = match self {
            Flavour::Mariadb | Flavour::Mysql if line.contains("MariaDB") => Flavour::Mariadb,
            Flavour::Mariadb | Flavour::Mysql => Flavour::Mysql,
            other => other,
        };
        Some((flavour, version))
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.traits().name)
    }
}

/// The first of these options that is among the arguments.
pub(crate) fn given<'name>(names: &[&'name str], arguments: &[OsString]) -> Option<&'name str> {
    let is = |argument: &OsString, name: &str| {
        let argument = argument.to_string_lossy();
        let short = name.len() == 2 && argument.starts_with(name);
        short || argument.split('=').next() == Some(name)
    };
    names.iter().copied().find(|name| arguments.iter().any(|argument| is(argument, name)))
}

/// An option and a path, which may be no text.
pub(crate) fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_what_it_says_of_itself() {
        use Flavour::{Etcd, Mariadb, Mysql, Postgres};
        for (asked, said, expected) in [
            (Postgres, "postgres (PostgreSQL) 17.12 (Debian 17.12-0+deb13u1)\n", Some((Postgres, "17.12"))),
            (Mysql, "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))\n", Some((Mysql, "9.7.4"))),
            (
                Mysql,
                "mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu\n",
                Some((Mariadb, "10.11.19")),
            ),
            (Mariadb, "mariadbd  Ver 11.8.6-MariaDB-0+deb13u1 from Debian\n", Some((Mariadb, "11.8.6"))),
            (Etcd, "etcd Version: 3.5.16\nGit SHA: 5d4dd1d\n", Some((Etcd, "3.5.16"))),
            (Etcd, "usage: etcd\n", None),
        ] {
            let found = asked.of_version(said).map(|(flavour, version)| (flavour, version.to_string()));
            assert_eq!(found, expected.map(|(flavour, version)| (flavour, version.to_owned())), "{said}");
        }
    }

    #[test]
    fn where_the_data_is_nobody_else_says() {
        for (flavour, arguments, expected) in [
            (Flavour::Postgres, "-c shared_buffers=1GB", None),
            (Flavour::Postgres, "-D /elsewhere", Some("-D")),
            (Flavour::Postgres, "-D/elsewhere", Some("-D")),
            (Flavour::Postgres, "-c data_directory=/elsewhere", Some("data_directory")),
            (Flavour::Mysql, "--port=3307 --datadir=/elsewhere", Some("--datadir")),
            (Flavour::Mariadb, "--datadirectory-is-none", None),
            (Flavour::Etcd, "--name a", Some("--name")),
            (Flavour::Etcd, "--namespace=a", None),
        ] {
            let words: Vec<OsString> = arguments.split_whitespace().map(OsString::from).collect();
            assert_eq!(flavour.reserved(&words), expected, "{arguments}");
        }
    }

    #[test]
    fn the_agents_directory_is_the_last_word() {
        let given = ["-c".into(), "config_file=/etc/postgresql.conf".into()];
        let arguments = Flavour::Postgres.arguments(Path::new("/volume/data"), None, &given);
        assert_eq!(arguments.last().unwrap(), "data_directory=/volume/data");
    }
}
