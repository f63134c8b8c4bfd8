//! Backups by `ballast agent` with stand-ins for a server's tools: scripts that fail in every way that tools fail.
//! What real servers make of it is in `agent_backup_servers.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::support::disk::Disk;
use crate::support::machine;
use crate::support::{Process, ballast, eventually, said};
use serde_json::Value;
use tempfile::TempDir;

/// A client that knows what is asked before a backup.
const CLIENT: &str = r#"
asked=$(cat)
case $asked in
  *"VERSION()"*) echo 11.8.6-MariaDB-0+deb13u1 ;;
  *schema_name*) echo shop ;;
esac
"#;
const BEGINS: &str = r"
echo '-- MariaDB dump'
echo 'USE `shop`;'
echo 'CREATE TABLE `orders` ('; echo ');'
echo 'INSERT INTO `orders` VALUES (1,'\''it\'\''s'\''),(2,NULL);'
";
const ENDS: &str = "\necho '-- Dump completed on 2026-01-31 23:59:59'\n";
/// More than a piece, and it compresses to half of it at best.
const MUCH: &str = r#"
printf 'INSERT INTO `orders` VALUES (3,0x'; od -An -v -tx1 /dev/urandom | tr -d ' \n' | head -c 30000000; echo ');'
"#;

struct Stage(TempDir);

impl Stage {
    fn new(dump: &str) -> Self {
        let stage = Stage(tempfile::tempdir().unwrap());
        fs::create_dir(stage.path("bin")).unwrap();
        fs::create_dir(stage.path("backup")).unwrap();
        stage.script("mariadb", CLIENT);
        stage.script("mariadb-dump", dump);
        fs::write(stage.path("password"), "it's \"secret\" \\#\n").unwrap();
        fs::write(stage.path("termination-log"), "").unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\nstage={}\n{text}", self.0.path().display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn agent(&self, words: &[&str]) -> Command {
        let mut command = ballast();
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        command.arg("agent").args(words).arg("--termination-log").arg(self.path("termination-log"));
        command
    }

    fn dump_to(&self, directory: &Path) -> Command {
        let (password, to) = (self.path("password"), directory.to_str().unwrap().to_owned());
        let password = password.to_str().unwrap();
        self.agent(&["dump", "mariadb", "--host", "mysql-shop", "--password-file", password, "--to", &to])
    }

    fn dump(&self) -> Command {
        self.dump_to(&self.path("backup"))
    }

    fn message(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("termination-log")).unwrap()).unwrap()
    }

    /// The reason for which there is no backup, and that there is none.
    #[track_caller]
    fn fails(&self) -> (String, String) {
        self.fails_by(&mut self.dump())
    }

    #[track_caller]
    fn fails_by(&self, dump: &mut Command) -> (String, String) {
        let line = said(dump, "").refused();
        assert_eq!(self.names(), [""; 0], "{line}");
        let message = self.message();
        assert_eq!(message["ok"], false);
        let text = message["message"].as_str().unwrap().to_owned();
        assert!(line.contains(&text), "{line}");
        (message["reason"].as_str().unwrap().to_owned(), text)
    }

    fn names(&self) -> Vec<String> {
        names(&self.path("backup"))
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_is_proved_and_says_what_it_holds() {
    let stage = Stage::new(&format!("{BEGINS}{MUCH}{ENDS}"));
    let printed = said(&mut stage.dump(), "").ok();
    let manifest: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    let (message, names) = (stage.message(), stage.names());
    assert_eq!(names.len(), 2);
    assert_eq!(names[1], format!("{}.json", names[0]));
    assert_eq!(printed, fs::read_to_string(stage.path("backup").join(&names[1])).unwrap() + "\n");
    assert_eq!(manifest["tables"][0]["rows"], 3);
    assert_eq!((&message["ok"], &message["rows"]), (&true.into(), &3.into()), "{message}");
    assert_eq!(message["file"], names[0].as_str());
    assert_eq!(message["sha256"], manifest["sha256"]);

    let file = stage.path("backup").join(&names[0]);
    let known = message["manifestSha256"].as_str().unwrap();
    let verify = ["verify-backup", file.to_str().unwrap(), "--manifest-sha256", known];
    said(&mut stage.agent(&verify), "").ok();
    assert_eq!(stage.message()["rows"], 3);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    said(&mut stage.agent(&verify), "").refused();
    assert_eq!(stage.message()["reason"], "BackupDamaged");

    let directory = stage.path("backup");
    let remove = ["remove-backup", &names[0], "--from", directory.to_str().unwrap()];
    said(&mut stage.agent(&remove), "").ok();
    said(&mut stage.agent(&remove), "").ok();
    assert_eq!(stage.names(), [""; 0]);
}

#[test]
fn what_was_dumped_as_it_is_kept_is_no_backup_where_that_is_not_utf8_in_the_end() {
    let says = "\necho \"$*\" > $stage/arguments; echo '/*!40101 SET NAMES binary */;'\n";
    let counts = |number: &str| CLIENT.replace("esac", &format!("  *COUNT*) {number} ;;\nesac"));
    let stage = Stage::new(&format!("{}{ENDS}", BEGINS.replacen("dump'\n", &format!("dump'{says}"), 1)));
    stage.script("mariadb", &counts("echo 0"));
    said(&mut stage.dump(), "").ok();
    let arguments = || fs::read_to_string(stage.path("arguments")).unwrap();
    assert!(arguments().contains("=binary") && !arguments().contains("--hex-blob"), "{}", arguments());

    fs::remove_dir_all(stage.path("backup")).unwrap();
    fs::create_dir(stage.path("backup")).unwrap();
    fs::remove_file(stage.path("arguments")).unwrap();
    stage.script("mariadb", &counts("if test -e $stage/arguments; then echo 1; else echo 0; fi"));
    let (reason, message) = stage.fails();
    assert_eq!(reason, "DumpIncomplete");
    assert!(message.contains("a column was made that is neither bytes nor in UTF-8"), "{message}");

    stage.script("mariadb", &counts("echo 1"));
    said(&mut stage.dump(), "").ok();
    assert!(arguments().contains("=utf8mb4") && arguments().contains("--hex-blob"), "{}", arguments());
}

/// Where tables keep what their rows were, that is dumped, or there is no backup: one without it looks as whole.
#[test]
fn what_rows_were_is_dumped_or_there_is_no_backup() {
    let versioned =
        |row: &str| CLIENT.replace("esac", &format!("  *\"= 'SYSTEM VERSIONED'\"*) {row} ;;\nesac"));
    let tool = |help: &str| {
        let helps = format!("case \"$*\" in *--help) echo '{help}'; exit ;; esac");
        format!("{helps}\necho \"$*\" > $stage/arguments\n{BEGINS}{ENDS}")
    };
    let knows = tool("  -H, --dump-history");
    let stage = Stage::new(&knows);
    let asked = || fs::read_to_string(stage.path("arguments")).unwrap().contains(" --dump-history ");
    let manifest =
        |printed: String| -> Value { serde_json::from_str(printed.lines().last().unwrap()).unwrap() };
    let plain = manifest(said(&mut stage.dump(), "").ok());
    assert_eq!((asked(), &plain["history"]), (false, &Value::Null), "no table keeps any");
    stage.script("mariadb", &versioned("printf 'other\\tprices\\tbigint\\n'"));
    said(&mut stage.dump(), "").ok();
    assert!(!asked(), "it is in no database that is dumped");
    stage.script("mariadb", &versioned("printf 'shop\\tprices\\tNULL\\n'"));
    let with = manifest(said(&mut stage.dump(), "").ok());
    assert_eq!((asked(), &with["history"]), (true, &true.into()));

    let clear = || {
        fs::remove_dir_all(stage.path("backup")).unwrap();
        fs::create_dir(stage.path("backup")).unwrap();
    };
    clear();
    stage.script("mariadb-dump", &tool("  -h, --host=name"));
    assert_eq!(said(&mut stage.dump(), "").code(), 3, "another try comes to the same end");
    let (reason, message) = stage.fails();
    assert_eq!(reason, "Refused");
    assert!(
        message.contains("the table \"prices\" of \"shop\" keeps its history, which mariadb-dump dumps from")
    );
    assert!(message.ends_with("(ALTER TABLE … DROP SYSTEM VERSIONING)"), "{message}");

    stage.script("mariadb-dump", &knows);
    stage.script("mariadb", &versioned("printf 'shop\\tprices\\tbigint\\n'"));
    let (reason, message) = stage.fails();
    assert!(reason == "Refused" && message.contains(" by numbers of transactions, "), "{message}");

    fs::remove_file(stage.path("arguments")).unwrap();
    stage.script("mariadb", &versioned("test ! -e $stage/arguments || printf 'shop\\tprices\\tNULL\\n'"));
    let (reason, message) = stage.fails();
    assert!(
        reason == "DumpIncomplete" && message.contains("a table was made that keeps its history"),
        "{message}"
    );
}

#[test]
fn a_dump_that_ended_in_an_error_is_no_backup() {
    let complains = "\necho 'mariadb-dump: Error 2013: Lost connection' >&2\nexit 3\n";
    for (dump, reason, expected) in [
        (
            format!("{BEGINS}{complains}"),
            "ToolFailed",
            "ended with code 3: mariadb-dump: Error 2013: Lost connection",
        ),
        (format!("{BEGINS}{ENDS}{complains}"), "ToolFailed", "code 3"),
        (complains.to_owned(), "ToolFailed", "code 3"),
        (format!("{BEGINS}\nkill -9 $$"), "ToolFailed", "was ended by SIGKILL"),
        (BEGINS.to_owned(), "DumpIncomplete", "without the line that ends one"),
        (String::new(), "DumpIncomplete", "stops after 0 bytes"),
        ("\necho 'Access denied'".to_owned(), "DumpIncomplete", "without the line that ends one"),
        (
            format!("\necho 'INSERT INTO `t` SELECT 1;'{ENDS}"),
            "DumpIncomplete",
            "can't be understood near byte",
        ),
    ] {
        let (found, message) = Stage::new(&dump).fails();
        assert_eq!(found, reason, "{dump}: {message}");
        assert!(message.contains(expected), "{dump}: {message}");
    }
    let stage = Stage::new("");
    stage.script("mariadb", "\necho \"ERROR 1045 (28000): Access denied for user 'root'\" >&2; exit 1");
    let (reason, message) = stage.fails();
    assert!(reason == "ToolFailed" && message.ends_with("Access denied for user 'root'"), "{message}");
    stage.script("mariadb", "\ncat > /dev/null; echo 9.7.4");
    let (reason, message) = stage.fails();
    assert!(reason == "OtherServer" && message.contains("is not MariaDB: it says \"9.7.4\""), "{message}");
    fs::remove_file(stage.path("bin/mariadb")).unwrap();
    // The machine may have one.
    assert_eq!(stage.fails_by(stage.dump().env("PATH", stage.path("bin"))).0, "ServerUnprepared");
}

#[test]
fn a_disk_that_is_full_half_way_leaves_no_backup_and_no_rubbish() {
    let stage = Stage::new(&format!("{BEGINS}{MUCH}{ENDS}"));
    let disk = Disk::of_megabytes(4);
    let failed = said(&mut disk.command(&stage.dump_to(disk.path())), "").refused();
    assert!(failed.contains("No space left on device"), "{failed}");
    assert_eq!(stage.message()["reason"], "VolumeFull");
    assert_eq!(names(&disk.reached()), [""; 0]);
    stage.script("mariadb-dump", &format!("{BEGINS}{ENDS}"));
    said(&mut disk.command(&stage.dump_to(disk.path())), "").ok();
    assert_eq!(names(&disk.reached()).len(), 2);
}

#[test]
fn killed_at_any_moment_what_is_called_a_backup_is_one_and_the_next_sweeps_the_rest() {
    let stage = Stage::new(&format!("{BEGINS}{MUCH}\nsleep 0.1\n{ENDS}"));
    for moment in 0..12 {
        let mut agent = Process::start(stage.dump());
        sleep(Duration::from_millis(60 * moment));
        machine::kill_all(machine::family(agent.id()).into_iter().map(|(pid, _)| pid));
        agent.end();
    }
    said(&mut stage.dump(), "").ok();
    let names = stage.names();
    assert!(!names.iter().any(|name| name.ends_with(".partial")), "{names:?}");
    let backups: Vec<&String> = names.iter().filter(|name| name.ends_with(".zst")).collect();
    assert_eq!(names.len(), 2 * backups.len(), "{names:?}");
    for backup in backups {
        let file = stage.path("backup").join(backup);
        said(&mut stage.agent(&["verify-backup", file.to_str().unwrap()]), "").ok();
    }
}

#[test]
fn an_end_asked_for_half_way_ends_the_tool_too_and_leaves_nothing() {
    let stage = Stage::new(&format!("{BEGINS}\ntouch $stage/half\nexec sleep 600"));
    let mut agent = Process::start(stage.dump());
    eventually("half of it is there", || stage.path("half").exists().then_some(()));
    assert!(stage.names()[0].ends_with(".sql.zst.partial"), "{:?}", stage.names());
    let tools = machine::family(agent.id());
    agent.signal("TERM");
    assert_eq!(agent.end().0, 1);
    assert_eq!(stage.message()["reason"], "Stopped");
    assert_eq!(stage.names(), [""; 0]);
    let left: Vec<u32> = machine::processes().into_iter().map(|(pid, _, _)| pid).collect();
    assert!(tools.iter().all(|(pid, _)| !left.contains(pid)), "{tools:?}");
}

#[test]
fn the_password_is_in_memory_and_nowhere_else() {
    let stage = Stage::new(&format!(
        "cat \"${{1#--defaults-file=}}\" > $stage/options; stat -L -c %a \"${{1#--defaults-file=}}\" > $stage/mode
         tr '\\0' '\\n' < /proc/$$/environ > $stage/seen; cat /proc/$$/cmdline /proc/$PPID/cmdline >> $stage/seen
         cat /proc/$PPID/environ >> $stage/seen
         echo \"$@\" > $stage/arguments
         {BEGINS}{ENDS}"
    ));
    said(&mut stage.dump(), "").ok();
    let read = |name: &str| fs::read_to_string(stage.path(name)).unwrap();
    assert_eq!(
        read("options"),
        "[client]\nuser=\"root\"\npassword=\"it's \\\"secret\\\" \\\\#\"\nprotocol=tcp\nhost=\"mysql-shop\"\nport=3306\n"
    );
    assert_eq!(read("mode"), "600\n");
    assert!(!read("seen").contains("secret"));
    assert!(
        read("arguments").ends_with(" --single-transaction --databases -- shop\n"),
        "{}",
        read("arguments")
    );
    for name in [stage.names()[1].clone(), "../termination-log".to_owned()] {
        assert!(!fs::read_to_string(stage.path("backup").join(name)).unwrap().contains("secret"));
    }
}
