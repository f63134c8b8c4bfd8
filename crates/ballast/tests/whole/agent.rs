//! `ballast agent` with stand-ins for the servers: scripts that are as slow, as clumsy and as wrong as a test needs.
//! What real servers make of it is in `agent_servers.rs`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::support::machine::{family, kill, kill_all};
use crate::support::user::{PLAIN, User};
use crate::support::{Process, Said, eventually, said};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Makes a data directory in some ten steps; what says that it is whole comes last.
const INITDB: &str = r#"
for word; do case $word in --pgdata=*) data=${word#--pgdata=} ;; esac; done
mkdir "$data" || exit 1
for step in 1 2 3 4 5 6 7 8; do echo $step > "$data/$step"; sleep 0.02; done
touch "$data/pg_hba.conf" "$data/PG_VERSION"
"#;
/// Keeps what it reads while it is prepared. As a server it says which signal ended it.
const POSTGRES: &str = r#"
if [ "$1" = --version ]; then echo "postgres (PostgreSQL) ${POSTGRES_VERSION:-17.12}"; exit; fi
if [ "$1" = --single ]; then shift $(($# - 2)); cat > "$1/statements"; exit; fi
while [ "$1" != -D ]; do echo "argument $1"; shift; done
[ "$(ls "$2" | wc -l)" = 11 ] || { echo "FATAL:  data directory is not whole" >&2; exit 3; }
trap 'echo fast; exit 0' INT
trap 'echo smart; exit 9' TERM
trap 'echo "FATAL:  told to fail" >&2; echo "LOG:  shut down" >&2; exit 7' USR1
echo serving
while true; do sleep 0.02; done
"#;

/// What is asked before a backup, and one of nothing.
const MARIADB: &str = r#"
case $(cat) in *"VERSION()"*) echo 10.11.19-MariaDB ;; *schema_name*) echo shop ;; esac
"#;
const MARIADB_DUMP: &str = r"
echo 'USE `shop`;'
echo '-- Dump completed on 2026-01-31 23:59:59'
";

/// A user who may run a database server, a volume, and a PATH with stand-ins.
struct Stage {
    user: User,
    directory: TempDir,
}

impl Stage {
    fn new() -> Self {
        let user = User::Plain;
        let stage = Stage { user, directory: user.directory() };
        fs::create_dir(stage.path("bin")).unwrap();
        stage.script("initdb", INITDB);
        stage.script("postgres", POSTGRES);
        stage.file("password", "it's \"secret\"\n");
        stage.file("termination-log", "");
        stage.volume("volume");
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn own(&self, path: &Path) {
        let owner = fs::metadata(self.directory.path()).unwrap();
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        self.own(&self.path(name));
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn volume(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
        self.own(&self.path(name));
    }

    /// `ballast agent run SERVER` on a volume.
    fn run(&self, server: &str, volume: &str, more: &[&str]) -> Command {
        // Who runs tests in the background may have signals ignored, and a shell can't heed what it began by ignoring.
        within(&["env", "--default-signal"], &self.command(server, volume, more))
    }

    fn command(&self, server: &str, volume: &str, more: &[&str]) -> Command {
        let mut command = self.user.ballast();
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        command.env("PATH", path).args(["agent", "run", server, "--volume"]).arg(self.path(volume));
        command.arg("--termination-log").arg(self.path("termination-log"));
        if server != "etcd" {
            command.arg("--superuser-password-file").arg(self.path("password"));
        }
        command.args(more);
        command
    }

    fn serving(&self, more: &[&str]) -> Process {
        let agent = Process::start(self.run("postgres", "volume", more));
        while agent.line() != "serving" {}
        agent
    }

    fn message(&self) -> String {
        fs::read_to_string(self.path("termination-log")).unwrap()
    }

    /// What it says when it does not run, which is also what it leaves as its last message.
    fn refused(&self, said: Said) -> String {
        let line = said.refused().lines().last().unwrap().to_owned();
        let line = line.strip_prefix("error: ").unwrap_or(&line).to_owned();
        assert_eq!(self.message(), line);
        line
    }
}

/// The same as the first process of a container, with which all of that ends.
fn contained(command: &Command) -> Command {
    within(&["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child"], command)
}

/// The same, started by another program.
fn within(starter: &[&str], command: &Command) -> Command {
    let mut started = Command::new(starter[0]);
    started.args(&starter[1..]).arg(command.get_program()).args(command.get_args());
    started.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => started.env(name, value),
            None => started.env_remove(name),
        };
    }
    if User::is_me() != User::Plain {
        started.uid(PLAIN).gid(PLAIN);
    }
    started
}

#[test]
fn signals_are_passed_on_and_the_code_comes_back() {
    let stage = Stage::new();
    for (signal, code, last, message) in [
        ("TERM", 0, "fast", ""),
        ("INT", 0, "fast", ""),
        ("USR1", 7, "", "PostgreSQL 17.12 ended with code 7: FATAL:  told to fail"),
        ("HUP", 129, "", ""),
    ] {
        stage.file("termination-log", "");
        let mut agent = stage.serving(&["--", "-c", "max_connections=50"]);
        agent.signal(signal);
        assert_eq!(agent.end(), (code, last.to_owned()), "{signal}: {}", agent.complaints());
        assert_eq!(stage.message(), message, "{signal}");
    }
    let mut agent = stage.serving(&[]);
    let servers = family(agent.id()).into_iter().filter(|(pid, _)| *pid != agent.id());
    servers.filter(|(_, words)| words.contains("listen_addresses")).for_each(|(pid, _)| kill(pid));
    assert_eq!(agent.end().0, 137);
    assert_eq!(stage.message(), "PostgreSQL 17.12 was ended by SIGKILL");
}

#[test]
fn a_volume_is_prepared_once_by_what_a_person_chose_and_by_a_password_that_nobody_sees() {
    let stage = Stage::new();
    let more = ["--database", "a \"b\"", "--user", "o'x", "--user-password-file"];
    let file = stage.path("password");
    let more = [&more[..], &[file.to_str().unwrap()]].concat();
    let mut agent = stage.serving(&more);
    let words: Vec<String> = family(agent.id()).into_iter().map(|(_, words)| words).collect();
    assert!(!words.iter().any(|words| words.contains("secret")), "{words:?}");
    agent.signal("TERM");
    agent.end();
    let data = stage.path("volume/data");
    assert_eq!(
        fs::read_to_string(data.join("statements")).unwrap(),
        "ALTER ROLE postgres PASSWORD E'it\\'s \"secret\"';\n\
         CREATE ROLE \"o'x\" LOGIN PASSWORD E'it\\'s \"secret\"';\n\
         CREATE DATABASE \"a \"\"b\"\"\" OWNER \"o'x\";\n"
    );
    assert_eq!(fs::read_to_string(data.join("pg_hba.conf")).unwrap(), "host all all all scram-sha-256\n");

    // It is there now: no other way to make it is tried.
    stage.script("initdb", "exit 1");
    // As a kubelet opens it to a group of the pod's.
    fs::set_permissions(&data, fs::Permissions::from_mode(0o2770)).unwrap();
    agent = stage.serving(&[]);
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    agent.signal("TERM");
    assert_eq!(agent.end().0, 0, "{}", agent.complaints());
}

#[test]
fn killed_at_any_moment_of_the_preparation_the_next_start_has_a_whole_volume() {
    let stage = Stage::new();
    for moment in 0..14 {
        let volume = format!("volume-{moment}");
        stage.volume(&volume);
        // Twice: the second finds what the first left.
        for _ in 0..2 {
            let mut agent = Process::start(contained(&stage.run("postgres", &volume, &[])));
            sleep(Duration::from_millis(20 * moment));
            // What is about to be started would not end with who starts it.
            agent.signal("STOP");
            kill_all(family(agent.id()).into_iter().map(|(pid, _)| pid));
            agent.end();
        }
        let mut agent = Process::start(stage.run("postgres", &volume, &[]));
        while agent.line() != "serving" {}
        let left: Vec<_> = fs::read_dir(stage.path(&volume)).unwrap().flatten().collect();
        assert_eq!(left.len(), 2, "the marker and the data: {left:?}");
        agent.signal("TERM");
        assert_eq!(agent.end().0, 0, "{}", agent.complaints());
    }
}

#[test]
fn an_end_asked_for_during_the_preparation_leaves_nothing_half_made() {
    let stage = Stage::new();
    stage.script("initdb", "\nmkdir ${1#--pgdata=}; sleep 600");
    let mut agent = Process::start(stage.run("postgres", "volume", &[]));
    eventually("it is being prepared", || {
        (fs::read_dir(stage.path("volume")).unwrap().count() == 2).then_some(())
    });
    agent.signal("TERM");
    assert_eq!(agent.end().0, 143);
    assert_eq!(stage.message(), "PostgreSQL was being prepared when SIGTERM came: it will begin again");
    let left: Vec<_> =
        fs::read_dir(stage.path("volume")).unwrap().flatten().map(|one| one.file_name()).collect();
    assert_eq!(left, ["ballast-volume.json"]);
}

#[test]
fn a_volume_in_use_is_not_used_by_another() {
    let stage = Stage::new();
    let mut agent = stage.serving(&[]);
    let refused = stage.refused(said(&mut stage.run("postgres", "volume", &[]), ""));
    assert!(refused.ends_with("is in use by another agent"), "{refused}");
    agent.signal("TERM");
    assert_eq!(agent.end().0, 0);
}

/// The data of a backup was opened by a newer version meanwhile, or the backup is restored anew by one: the volume goes on
/// to say what wrote it, so that nobody opens what is too new, or too old unasked.
#[test]
fn a_restore_that_finds_itself_done_leaves_what_the_volume_says_alone() {
    let stage = Stage::new();
    stage.script("mariadb", MARIADB);
    stage.script("mariadb-dump", MARIADB_DUMP);
    stage.volume("backup");
    let (password, backup) = (stage.path("password"), stage.path("backup"));
    let agent = |words: &[&str]| -> Value {
        let mut command = stage.user.ballast();
        command
            .env("PATH", format!("{}:/usr/bin:/bin", stage.path("bin").display()))
            .arg("agent")
            .args(words);
        command.arg("--termination-log").arg(stage.path("termination-log"));
        said(&mut command, "").ok();
        serde_json::from_str(&stage.message()).unwrap()
    };
    let (password, to) = (password.to_str().unwrap(), backup.to_str().unwrap());
    let made = agent(&["dump", "mariadb", "--host", "h", "--password-file", password, "--to", to]);
    let file = backup.join(made["file"].as_str().unwrap());

    stage.volume("volume/data");
    stage.volume("volume/data/mysql");
    let record = json!({"manifest_sha256": made["manifestSha256"], "events": true});
    stage.file("volume/data/ballast-restored.json", &record.to_string());
    let volume = stage.path("volume");
    let restore =
        ["restore", "mariadb", "--from", file.to_str().unwrap(), "--volume", volume.to_str().unwrap()];
    let restore = [&restore[..], &["--superuser-password-file", password]].concat();
    for (held, more, runs) in
        [("10.11.19", "", "11.8.6"), ("11.8.6", r#","upgrading":true"#, "11.8.6"), ("11.8.6", "", "10.11.19")]
    {
        let says =
            |whole| format!(r#"{{"format":1,"flavour":"mariadb","version":"{held}","whole":{whole}{more}}}"#);
        stage.script("mariadbd", &format!("\necho 'mariadbd  Ver {runs}-MariaDB for Linux'"));
        for whole in [true, false] {
            stage.file("volume/ballast-volume.json", &says(whole));
            let again = agent(&restore);
            assert_eq!((&again["before"], &again["version"]), (&true.into(), &held.into()), "{again}");
            let marker = fs::read_to_string(stage.path("volume/ballast-volume.json")).unwrap();
            assert_eq!(marker, says(true), "by {runs}");
        }
    }
}

#[test]
fn what_must_not_or_cannot_run_is_refused_in_one_line() {
    let stage = Stage::new();
    let mut agent = stage.serving(&[]);
    agent.signal("TERM");
    agent.end();
    stage.script("mysqld", "\necho 'mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu'");
    stage.script("mariadbd", "\necho 'mariadbd  Ver 11.8.6-MariaDB'");
    stage.script("etcd", "\necho 'etcd Version: 3.5.16'");
    stage.volume("empty");
    stage.volume("foreign");
    stage.file("foreign/ibdata1", "");
    stage.volume("closed");
    fs::set_permissions(stage.path("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    stage.file("nothing", "\n");
    let nothing = stage.path("nothing");
    let nothing = ["--database", "a", "--user", "a", "--user-password-file", nothing.to_str().unwrap()];
    for (server, volume, more, expected) in [
        ("mysql", "empty", &[][..], "MySQL can't run: mysqld of this image is not MySQL: it says"),
        (
            "mariadb",
            "volume",
            &[],
            "the volume holds the data of PostgreSQL 17.12, which MariaDB 11.8.6 must not open",
        ),
        ("postgres", "foreign", &[], "holds \"ibdata1\", which Ballast did not make: give an empty volume"),
        ("postgres", "closed", &[], "set the pod's securityContext.fsGroup or runAsUser"),
        ("postgres", "none", &[], "No such file or directory"),
        ("postgres", "empty", &["--", "-D", "/elsewhere"], "-D is for the agent to say"),
        ("postgres", "empty", &["--member", "a"], "PostgreSQL has no members"),
        ("postgres", "empty", &nothing, "is empty"),
        ("etcd", "empty", &[], "an etcd member needs a name"),
        (
            "etcd",
            "empty",
            &["--member", "a", "--", "--config-file=/a"],
            "with --config-file etcd heeds nothing else",
        ),
    ] {
        let refused = stage.refused(said(&mut stage.run(server, volume, more), ""));
        assert!(refused.contains(expected), "{server} {volume}: {refused}");
    }
    let mut elsewhere = stage.run("etcd", "empty", &["--member", "a"]);
    let refused = stage.refused(said(elsewhere.env("ETCD_CONFIG_FILE", "/a"), ""));
    assert!(refused.contains("with ETCD_CONFIG_FILE etcd heeds nothing else"), "{refused}");
    let mut later = stage.run("postgres", "volume", &["--upgrade"]);
    let refused = stage.refused(said(later.env("POSTGRES_VERSION", "18.6"), ""));
    assert!(refused.contains("PostgreSQL 17.12, which PostgreSQL 18.6 must not open: dump it"), "{refused}");
    stage.script("initdb", "\necho 'initdb: error: no locale' >&2; exit 1");
    let refused = stage.refused(said(&mut stage.run("postgres", "empty", &[]), ""));
    assert_eq!(
        refused,
        "PostgreSQL can't run: PostgreSQL could not be prepared: initdb ended with code 1: initdb: error: no locale"
    );
    fs::remove_file(stage.path("bin/initdb")).unwrap();
    let refused = stage.refused(said(&mut stage.run("postgres", "empty", &[]), ""));
    assert!(refused.contains("\"initdb\" can't be started in this image: No such file"), "{refused}");
    if User::is_me() == User::Root {
        let mut root = crate::support::ballast();
        let command = stage.command("postgres", "empty", &[]);
        let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap();
        root.env("PATH", path).args(command.get_args());
        let refused = stage.refused(said(&mut root, ""));
        assert!(refused.contains("PostgreSQL does not run as root: set "), "{refused}");
    }
}

#[test]
fn a_members_directory_is_its_own_and_never_begun_again() {
    let stage = Stage::new();
    stage.script(
        "etcd",
        r#"
if [ "$1" = --version ]; then echo 'etcd Version: 3.5.16'; exit; fi
for word; do case $word in --data-dir=*) data=${word#--data-dir=} ;; esac; done
sleep 0.3; mkdir -p "$data/member/wal"; echo "$@"; exec sleep 600
"#,
    );
    // Killed before it made anything: it begins again.
    let mut agent = Process::start(stage.run("etcd", "volume", &["--member", "a"]));
    eventually("it runs", || stage.path("volume/data").exists().then_some(()));
    kill_all(family(agent.id()).into_iter().map(|(pid, _)| pid));
    agent.end();
    let mut agent = Process::start(stage.run("etcd", "volume", &["--member", "a", "--", "--log-level=warn"]));
    let data = stage.path("volume/data");
    assert_eq!(agent.line(), format!("--log-level=warn --data-dir={} --name=a", data.display()));
    let marker = stage.path("volume/ballast-volume.json");
    eventually("the volume says so", || {
        fs::read_to_string(&marker).unwrap().contains("\"whole\":true").then_some(())
    });
    agent.signal("TERM");
    assert_eq!(agent.end().0, 143, "it ends by the signal, as it was asked to");
    assert_eq!(stage.message(), "");

    let refused = stage.refused(said(&mut stage.run("etcd", "volume", &["--member", "b"]), ""));
    assert!(refused.contains("(member \"a\"), which etcd 3.5.16 (member \"b\") must not open"), "{refused}");
    fs::remove_dir_all(data.join("member")).unwrap();
    let refused = stage.refused(said(&mut stage.run("etcd", "volume", &["--member", "a"]), ""));
    assert!(refused.ends_with("data/member\" is gone: restore it, or give an empty volume"), "{refused}");
}
