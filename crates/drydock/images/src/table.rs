//! The recipes that every store has, one row each.
//!
//! Each is run as the official image is: the same user, paths, ports, names of programs and signal that stops it, so that
//! the manifests people have work. None has the official entrypoint of a database, which prepares data from environment variables:
//! those are started with an explicit command. A BusyBox stands for the shell and the tools that the official ones have
//! from their Debian, for `kubectl exec`, probes and hooks.

use crate::config::Port;
use crate::recipe::{Recipe, RecipeFile, Source, User, Versioned, words};

/// Where a shell looks first.
const LOCAL: &str = "/usr/local/bin";

/// The table.
pub fn builtin() -> Vec<Recipe> {
    vec![memcached(), busybox(), postgres(), mariadb(), mysql(), etcd()]
}

fn memcached() -> Recipe {
    // Arguments that begin with an option are memcached's; anything else is a command of its own.
    let entrypoint = "#!/bin/sh\nset -e\ncase \"$1\" in -*) set -- memcached \"$@\" ;; esac\nexec \"$@\"\n";
    Recipe {
        name: "docker.io/library/memcached".to_owned(),
        version: by_package("memcached"),
        packages: words("memcached"),
        variants: words("debian slim"),
        files: vec![RecipeFile { mode: 0o755, ..text(&format!("{LOCAL}/docker-entrypoint.sh"), entrypoint) }],
        user: user("memcache", 11211),
        entrypoint: words("docker-entrypoint.sh"),
        command: words("memcached"),
        ports: vec![Port::tcp(11211)],
        ..with_shell()
    }
}

fn busybox() -> Recipe {
    Recipe {
        name: "docker.io/library/busybox".to_owned(),
        version: by_package("busybox-static"),
        variants: words("glibc"),
        command: words("sh"),
        ..with_shell()
    }
}

/// Without the just-in-time compiler, which is most of what the package depends on: PostgreSQL goes without where the
/// file is not there. Debian's wrappers for many clusters on a machine and their certificate are left out too. The
/// locales are C and C.UTF-8, and what ICU knows.
fn postgres() -> Recipe {
    Recipe {
        name: "docker.io/library/postgres".to_owned(),
        version: Versioned::ByMajor { told_by: "postgresql".to_owned(), prefix: "postgresql-".to_owned() },
        // Where the locale C.UTF-8 is.
        packages: words("libc-bin"),
        without: words("libllvm14 libllvm19 locales postgresql-client-common postgresql-common ssl-cert"),
        unwanted: words(
            "/usr/lib/postgresql/*/lib/bitcode /usr/lib/postgresql/*/lib/llvmjit.so \
             /usr/lib/postgresql/*/lib/llvmjit_types.bc /usr/lib/postgresql/*/lib/pgxs",
        ),
        directories: words("/var/lib/postgresql /var/lib/postgresql/data /run/postgresql"),
        programs: words("/usr/lib/postgresql/*/bin"),
        tools: words("initdb pg_ctl psql pg_dump pg_restore pg_basebackup pg_isready"),
        user: user("postgres", 999),
        command: words("postgres"),
        env: words("LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data"),
        ports: vec![Port::tcp(5432)],
        // SIGTERM would wait for every client to go by itself.
        stop_signal: Some("SIGINT".to_owned()),
        ..with_shell()
    }
}

fn mariadb() -> Recipe {
    Recipe {
        name: "docker.io/library/mariadb".to_owned(),
        version: by_package("mariadb-server-core"),
        packages: words("mariadb-server-core mariadb-client"),
        files: vec![
            // What installing would have chosen.
            link("/etc/mysql/my.cnf", "mariadb.cnf"),
            // No name is looked up for a client: in a cluster most have none, and those that have change.
            text(
                "/etc/mysql/mariadb.conf.d/05-skipcache.cnf",
                "[mariadb]\nhost-cache-size=0\nskip-name-resolve\n",
            ),
        ],
        directories: words("/var/lib/mysql /run/mysqld"),
        tools: words("mariadb-install-db mariadb-upgrade mariadb mariadb-dump mariadb-admin mysql mysqldump"),
        user: user("mysql", 999),
        command: words("mariadbd"),
        ports: vec![Port::tcp(3306)],
        ..with_shell()
    }
}

fn mysql() -> Recipe {
    let configuration = "[mysqld]\nhost-cache-size=0\nskip-name-resolve\ndatadir=/var/lib/mysql\n\
                         socket=/var/run/mysqld/mysqld.sock\nsecure-file-priv=/var/lib/mysql-files\n\
                         pid-file=/var/run/mysqld/mysqld.pid\n\n[client]\nsocket=/var/run/mysqld/mysqld.sock\n\n\
                         !includedir /etc/mysql/conf.d/\n";
    Recipe {
        name: "docker.io/library/mysql".to_owned(),
        version: by_package("mysql-server-core"),
        packages: words("mysql-server-core mysql-client-core"),
        // No release of Debian has it.
        suites: words("sid"),
        variants: words("debian"),
        files: vec![text("/etc/my.cnf", configuration)],
        directories: words("/var/lib/mysql /var/lib/mysql-files /run/mysqld /etc/mysql/conf.d"),
        tools: words("mysql mysqldump mysqladmin"),
        user: user("mysql", 999),
        command: words("mysqld"),
        ports: vec![Port::tcp(3306), Port::tcp(33060)],
        ..with_shell()
    }
}

fn etcd() -> Recipe {
    let programs = ["etcd", "etcdctl"];
    Recipe {
        name: "quay.io/coreos/etcd".to_owned(),
        also: words("gcr.io/etcd-development/etcd registry.k8s.io/etcd"),
        version: by_package("etcd-server"),
        packages: words("etcd-server etcd-client"),
        // Kubernetes counts its own builds of a version: 3.5.16-0.
        variants: words("0 1 2 3 4"),
        files: programs.map(|name| link(&format!("{LOCAL}/{name}"), &format!("/usr/bin/{name}"))).to_vec(),
        directories: words("/var/lib/etcd /var/etcd"),
        tools: words("etcdctl"),
        command: vec![format!("{LOCAL}/etcd")],
        ports: vec![Port::tcp(2379), Port::tcp(2380)],
        ..with_shell()
    }
}

/// An image with a shell and its tools.
fn with_shell() -> Recipe {
    Recipe { busybox: true, ..Recipe::empty() }
}

fn by_package(name: &str) -> Versioned {
    Versioned::ByPackage(name.to_owned())
}

/// A user whose group has the same number.
fn user(name: &str, id: u32) -> Option<User> {
    Some(User { name: name.to_owned(), uid: id, gid: id })
}

fn text(path: &str, text: &str) -> RecipeFile {
    RecipeFile { path: path.to_owned(), mode: 0o644, source: Source::Text(text.to_owned()) }
}

fn link(path: &str, to: &str) -> RecipeFile {
    RecipeFile { path: path.to_owned(), mode: 0o777, source: Source::Link(to.to_owned()) }
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

    #[test]
    fn a_row_is_asked_to_stop_as_the_official_image_is() {
        for row in builtin() {
            let expected = row.name.ends_with("/postgres").then_some("SIGINT");
            assert_eq!(row.config().stop_signal.as_deref(), expected, "{}", row.name);
        }
    }
}
