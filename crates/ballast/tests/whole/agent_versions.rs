//! `ballast agent` and two versions of a real MariaDB: what one keeps of the past, and what the other may open.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use ballast_mysql::ServerStatus;
use serde_json::Value;

use crate::agent_backup_servers::{Server, Stage, open_directory};
use crate::support::forward::Forward;
use crate::support::user::User;
use crate::support::{Cluster, eventually};

const SECRET: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: credentials}
stringData: {root: "it's \\ the \"root\"\n of #all", user: theUser}
"#;

const OLD: Server =
    Server { name: "mariadb", image: "mariadb:10.11", client: "mariadb", dump: "mariadb-dump", more: "" };
const NEW: Server = Server { image: "mariadb:11.8", ..OLD };

/// Tables that keep what their rows were: by columns that nobody sees, by named ones, and in partitions that are made as time
/// goes by.
const PAST: &str = r"
USE `wei``rd ü`;
CREATE TABLE prices (id INT PRIMARY KEY, price DECIMAL(8, 2), name VARCHAR(20) WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING;
CREATE TABLE named (
  id INT PRIMARY KEY, word VARCHAR(20) CHARACTER SET utf8mb4,
  since TIMESTAMP(6) GENERATED ALWAYS AS ROW START, until TIMESTAMP(6) GENERATED ALWAYS AS ROW END,
  PERIOD FOR SYSTEM_TIME (since, until)
) WITH SYSTEM VERSIONING;
CREATE TABLE parts (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING
  PARTITION BY SYSTEM_TIME (PARTITION past HISTORY, PARTITION now CURRENT);
SET timestamp = UNIX_TIMESTAMP() - 500000;
CREATE TABLE days (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME INTERVAL 1 DAY AUTO;
INSERT INTO days VALUES (1, 1), (2, 2);
SET timestamp = UNIX_TIMESTAMP() + 200000;
UPDATE days SET n = n + 1;
SET timestamp = DEFAULT;
CREATE TABLE plain (id INT PRIMARY KEY, n INT) ENGINE = Aria WITH SYSTEM VERSIONING;
INSERT INTO prices VALUES (1, 1.5, 'a'), (2, 2.5, 'b'), (3, 3.5, 'c');
INSERT INTO named (id, word) VALUES (1, 'ä'), (2, 'b');
INSERT INTO parts VALUES (1, 1), (2, 2);
INSERT INTO plain VALUES (1, 1), (2, 2);
UPDATE prices SET price = price + 1 WHERE id < 3;
UPDATE prices SET price = price + 1 WHERE id < 2;
UPDATE named SET word = '漢' WHERE id = 1;
UPDATE parts SET n = n + 1;
UPDATE plain SET n = n + 1;
DELETE FROM prices WHERE id = 2;
DELETE FROM named WHERE id = 2;
DELETE FROM parts WHERE id = 2;
DELETE FROM plain WHERE id = 2;
";
/// All that they hold: what is, and what was.
const PAST_AND_PRESENT: &str = r"
SET time_zone = '+00:00';
USE `wei``rd ü`;
SELECT 'prices', p.*, ROW_START, ROW_END FROM prices FOR SYSTEM_TIME ALL p ORDER BY id, ROW_END;
SELECT 'named', n.* FROM named FOR SYSTEM_TIME ALL n ORDER BY id, until;
SELECT 'parts', p.*, ROW_START, ROW_END FROM parts FOR SYSTEM_TIME ALL p ORDER BY id, ROW_END;
SELECT 'days', d.*, ROW_START, ROW_END FROM days FOR SYSTEM_TIME ALL d ORDER BY id, ROW_END;
SELECT 'plain', p.*, ROW_START, ROW_END FROM plain FOR SYSTEM_TIME ALL p ORDER BY id, ROW_END;
SELECT 'now', COUNT(*) FROM prices UNION ALL SELECT 'now', COUNT(*) FROM named
UNION ALL SELECT 'now', COUNT(*) FROM parts UNION ALL SELECT 'now', COUNT(*) FROM plain;
";
const BY_TRANSACTION: &str = r"
USE `wei``rd ü`;
CREATE TABLE numbered (
  id INT, since BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, until BIGINT UNSIGNED GENERATED ALWAYS AS ROW END,
  PERIOD FOR SYSTEM_TIME (since, until)
) WITH SYSTEM VERSIONING;
";

struct Versions<'a> {
    old: Stage<'a>,
    new: Stage<'a>,
}

impl Versions<'_> {
    fn walk(&self) {
        for directory in ["volume", "restored", "newer", "newer-restored", "across", "backup"] {
            open_directory(&self.old.work.join(directory));
        }
        let backup = self.keeps_what_rows_were(&self.old, "old", "/work/volume", "/work/restored");
        self.keeps_what_rows_were(&self.new, "new", "/work/newer", "/work/newer-restored");
        self.is_restored_again(&backup);
    }

    fn dump(&self, stage: &Stage<'_>, of: &str, host: &str) -> Value {
        let to = ["--host", host, "--password-file", "/credentials/root", "--to", "/work/backup"];
        stage.once(of, &[&["dump", "mariadb"][..], &to].concat())
    }

    fn restore(&self, stage: &Stage<'_>, of: &str, backup: &Value, volume: &str) -> Value {
        let file = format!("/work/backup/{}", backup["file"].as_str().unwrap());
        let words = [&["restore", "mariadb", "--from", &file][..], &stage.prepared(volume)].concat();
        stage.once(of, &words)
    }

    fn end(&self, pod: &str) {
        self.old.cluster.kubectl(&format!("delete pod {pod} --grace-period=20 --timeout=30s")).ok();
    }

    /// Backed up and restored, tables hold what they held at any time. What can't be kept is no backup.
    fn keeps_what_rows_were(&self, stage: &Stage<'_>, of: &str, volume: &str, other: &str) -> Value {
        let host = stage.serve(of, volume);
        let server = stage.name(of);
        stage.sql(&server, PAST).ok();
        let held = stage.asks(&server, PAST_AND_PRESENT);
        assert_eq!(held.lines().count(), 6 + 3 + 4 + 4 + 4 + 4, "{held}");
        let backup = self.dump(stage, &format!("{of}-dump"), &host);
        assert_eq!((&backup["ok"], &backup["rows"]), (&true.into(), &21.into()), "{backup}");
        assert_eq!(stage.manifest(&format!("{of}-dump"))["history"], true);

        stage.sql(&server, BY_TRANSACTION).ok();
        let refused = self.dump(stage, &format!("{of}-refused"), &host);
        assert_eq!((&refused["ok"], &refused["reason"]), (&false.into(), &"Refused".into()), "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("\"numbered\" of \"wei`rd ü\" keeps its history by numbers"), "{message}");
        self.end(&server);

        let restored = self.restore(stage, &format!("{of}-restore"), &backup, other);
        assert_eq!((&restored["ok"], &restored["rows"]), (&true.into(), &21.into()), "{restored}");
        let again = format!("{of}-restored");
        stage.serve(&again, other);
        assert_eq!(stage.asks(&stage.name(&again), PAST_AND_PRESENT), held);
        self.end(&stage.name(&again));
        backup
    }

    /// The same restore once more, by another version: the volume says what wrote its data, before an upgrade and after.
    fn is_restored_again(&self, backup: &Value) {
        let across = self.restore(&self.new, "across", backup, "/work/across");
        assert_eq!((&across["ok"], &across["reason"]), (&false.into(), &"Refused".into()), "{across}");
        assert!(across["message"].as_str().unwrap().contains("for rows of the past"), "{across}");
        assert_eq!(fs::read_dir(self.new.work.join("across")).unwrap().count(), 0, "nothing was touched");
        let (held, volume) = (&backup["version"], "/work/restored");
        let again = self.restore(&self.new, "again-new", backup, volume);
        assert_eq!((&again["before"], &again["version"]), (&true.into(), held), "{again}");
        let upgraded = self.is_upgraded(volume, held.as_str().unwrap());
        let again = self.restore(&self.old, "again-old", backup, volume);
        assert_eq!((&again["before"], &again["version"]), (&true.into(), &upgraded.into()), "{again}");
        self.new.serve("after", volume);
        let present = "SELECT COUNT(*) FROM `wei``rd ü`.prices";
        assert_eq!(self.new.asks(&self.new.name("after"), present), "2\n");
        let passing = "SELECT COUNT(*) FROM mysql.user WHERE user = 'ballast-upgrade'";
        assert_eq!(self.new.asks(&self.new.name("after"), passing), "0\n", "whom the tool worked as is gone");
    }

    /// The newer one opens the data where it is asked to, and only then. That its tool does not come to its end is said
    /// as a failure for as long as it is so. Gives the version.
    fn is_upgraded(&self, volume: &str, held: &str) -> String {
        let mut words = vec!["run", "mariadb", "--listen", "0.0.0.0:8083"];
        words.extend(self.new.prepared(volume));
        let refused = self.new.name("unasked");
        self.new.pod(&refused, "Never", &words);
        let path = ".status.containerStatuses[0].state.terminated.message";
        let message = eventually("it is refused", || {
            Some(self.new.cluster.field(&format!("pod/{refused}"), path))
                .filter(|message| !message.is_empty())
        });
        assert!(message.contains(&format!("the data of MariaDB {held}, which MariaDB 11.8.")), "{message}");
        assert!(message.contains("Take the version that wrote it, or ask for the upgrade"), "{message}");

        // A database has the name of the file in which the tool notes how far it came.
        self.old.serve("in-the-way", volume);
        self.old.sql(&self.old.name("in-the-way"), "CREATE DATABASE mariadb_upgrade_info").ok();
        self.end(&self.old.name("in-the-way"));
        words.push("--upgrade");
        let name = self.new.name("upgraded");
        self.new.pod(&name, "Always", &words);
        let said = eventually("the upgrade failed", || {
            let status = self.status(&name)?;
            status.failed.then_some(status)
        });
        assert!(!said.ready && said.message.contains("did not come to its end: FATAL ERROR"), "{said:?}");
        self.new.sql(&name, "DROP DATABASE mariadb_upgrade_info").ok();
        let said = eventually("the upgrade succeeded", || self.status(&name).filter(|status| status.ready));
        assert!(!said.failed && !said.denied && said.message.is_empty(), "{said:?}");
        assert!(said.data_bytes > 0 && said.free_bytes > 0, "{said:?}");
        assert!(said.flavour == "mariadb" && said.version.starts_with("11.8."), "{said:?}");
        self.end(&name);
        said.version
    }

    /// What the agent says of a server, as the operators read it.
    fn status(&self, pod: &str) -> Option<ServerStatus> {
        let cluster: &Cluster = self.new.cluster;
        if cluster.field(&format!("pod/{pod}"), ".status.containerStatuses[0].state.running").is_empty() {
            return None;
        }
        let forward = Forward::to(cluster, &format!("pod/{pod}"), "8083");
        let (mut connection, mut answer) = (forward.connect(), String::new());
        connection.write_all(b"GET /status HTTP/1.0\r\n\r\n").ok()?;
        let _cut_off = connection.read_to_string(&mut answer);
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }
}

#[test]
fn what_was_is_kept_and_a_newer_version_opens_it_only_where_asked() {
    let user = User::Plain;
    user.pull_this();
    user.pull(&[OLD.image, NEW.image]);
    let directory = user.directory();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(SECRET).ok();
    let stage = |server| Stage { cluster: &cluster, work: directory.path().to_owned(), server };
    Versions { old: stage(&OLD), new: stage(&NEW) }.walk();
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
