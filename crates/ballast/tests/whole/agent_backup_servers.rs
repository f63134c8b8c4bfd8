//! Backups by `ballast agent` in pods, of real MariaDB and MySQL servers: taken, restored, compared; and scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::support::user::User;
use crate::support::{Cluster, eventually};
use serde_json::Value;

/// As `ballast manifests` names it.
const BALLAST: &str = concat!("ballast:", env!("CARGO_PKG_VERSION"));

const SECRET: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: credentials}
stringData: {root: "it's \\ the \"root\"\n of #all", user: "o'x %s"}
"#;

/// What is hard to dump, to read and to put back. Both understand it.
const DATA: &str = include_str!("agent_backup_servers.sql");
const DATABASE: &str = "wei`rd ü";

pub struct Server {
    pub name: &'static str,
    pub image: &'static str,
    pub client: &'static str,
    pub dump: &'static str,
    /// What only this one has.
    pub more: &'static str,
}

const SERVERS: [Server; 2] = [
    Server {
        name: "mariadb",
        image: "mariadb:11.8",
        client: "mariadb",
        dump: "mariadb-dump",
        more: "CREATE SEQUENCE counts START WITH 100; SELECT NEXTVAL(counts);",
    },
    Server { name: "mysql", image: "mysql:9", client: "mysql", dump: "mysqldump", more: "" },
];

/// Numbers, times and text in UTF-8, with all that is hard to write.
const UTF8: &str = r#"
CREATE TABLE `größe` (
  id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, `naïve 漢` VARCHAR(60) DEFAULT 'żółć' COMMENT 'über',
  t LONGTEXT CHARACTER SET utf8mb3, a CHAR(20) CHARACTER SET ascii, e ENUM('日本', 'x''y') DEFAULT '日本', s SET('ä', 'ß'),
  j JSON, n DECIMAL(20, 5), f DOUBLE, g FLOAT, y YEAR, d DATE, h TIME(6), w DATETIME(3), ts TIMESTAMP(6) NULL,
  up VARCHAR(61) GENERATED ALWAYS AS (CONCAT(`naïve 漢`, 'ö')) STORED, KEY (`naïve 漢`), CHECK (`naïve 漢` <> 'verboten ü')
) DEFAULT CHARSET = utf8mb4 COMMENT 'it''s;
INSERT INTO `größe` VALUES (1);';
INSERT INTO `größe` (`naïve 漢`, t, a, s, j, n, f, g, y, d, h, w, ts) VALUES
  ('😀 it''s \\ "x"; --', 'zeile\r\n\t\0\Z漢\\', 'plain', 'ä,ß', '{"ü": "😀\\n"}', -1.5, 1e300, 0.1, 2030, '2020-02-29',
   '-23:59:59.123456', '2020-02-29 01:02:03.004', '2020-02-29 01:02:03.000004'),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  ('', '', '', '', '[]', 0, 0, -0.0, 1901, '1000-01-01', '00:00:00', '1000-01-01', '1970-01-02');
INSERT INTO `größe` (t) SELECT REPEAT(CONCAT('漢\'', seq, '\n'), 3000) FROM seq_1_to_300;
CREATE TABLE parts (c VARCHAR(10) CHARACTER SET utf8mb4) PARTITION BY LIST COLUMNS (c)
  (PARTITION p VALUES IN ('ä'), PARTITION q VALUES IN ('b'));
INSERT INTO parts VALUES ('ä'), ('b');
CREATE VIEW `sicht ß` AS SELECT id, 'ß' AS `ä` FROM `größe` WHERE `naïve 漢` <> 'ü';
DELIMITER ;;
CREATE PROCEDURE `prüft`() BEGIN
/*!40101 SET NAMES binary */;
SELECT 'äöü'; END;;
CREATE TRIGGER `ändert` BEFORE INSERT ON `größe` FOR EACH ROW SET NEW.a = IF(NEW.t = 'böse', 'gut', NEW.a);;
CREATE EVENT `täglich` ON SCHEDULE EVERY 1 DAY DO SELECT 'ü';;
DELIMITER ;
"#;

/// Bytes of every kind: each there is, ends of nothing, and quotes where a letter would go on.
const BYTES: &str = r"
CREATE TABLE bytes (
  id INT PRIMARY KEY, f BINARY(4), v VARBINARY(300) NOT NULL, t TINYBLOB, b BLOB, m MEDIUMBLOB, l LONGBLOB DEFAULT NULL,
  text VARCHAR(20), KEY (v), KEY (b(10))
) DEFAULT CHARSET = utf8mb4;
SET @all = (SELECT GROUP_CONCAT(CHAR(seq) ORDER BY seq SEPARATOR '') FROM seq_0_to_255);
INSERT INTO bytes VALUES
  (-1, UNHEX('00'), @all, SUBSTR(@all, 2), CONCAT(@all, REVERSE(@all)), UNHEX('E2275C'), UNHEX('F09F985C27'), 'ä\'漢'),
  (-2, UNHEX('C327C35C'), '', UNHEX('FF'), UNHEX('C3'), UNHEX('E6BC'), NULL, NULL),
  (-3, NULL, UNHEX('5C'), UNHEX('27'), UNHEX('275C'), UNHEX('0A0D1A00'), UNHEX('EDA080'), '');
INSERT INTO bytes SELECT seq, UNHEX(SUBSTR(MD5(seq), 1, 8)), UNHEX(SHA2(seq, 512)), UNHEX(SHA1(seq)), UNHEX(MD5(seq)),
  REPEAT(UNHEX(MD5(seq)), 100), NULL, CONCAT('ß', seq) FROM seq_1_to_3000;
";

/// What is neither, or can't be said in bytes.
const OTHERS: [&str; 3] = ["c BIT(3)", "c TEXT CHARACTER SET latin1", "c VARBINARY(3) DEFAULT 'x'"];

/// Tables that are written to until somebody says that it is enough.
const TWO_TABLES: &str = r"
CREATE DATABASE moment;
USE moment;
CREATE TABLE going (n INT) ENGINE = InnoDB;
INSERT INTO going VALUES (1);
CREATE TABLE one (n INT PRIMARY KEY AUTO_INCREMENT) ENGINE = @@;
CREATE TABLE two LIKE one;
DELIMITER ;;
CREATE PROCEDURE writes() BEGIN
  WHILE EXISTS (SELECT * FROM going) DO
    START TRANSACTION; INSERT INTO one VALUES (); INSERT INTO two VALUES (); COMMIT;
  END WHILE;
END;;
DELIMITER ;
";

const LOADED_OTHERWISE: &str = r"-- MariaDB dump
CREATE DATABASE `wei``rd ü`;
USE `wei``rd ü`;
CREATE TABLE `lengths` (
  `metres` float
);
INSERT INTO `lengths` VALUES (1.5),(1.23456789012);
-- Dump completed on 2026-01-31 23:59:59
";

/// A cluster and a directory that its pods see as /work.
pub struct Stage<'a> {
    pub cluster: &'a Cluster,
    pub work: PathBuf,
    pub server: &'a Server,
}

impl Stage<'_> {
    pub fn pod(&self, name: &str, policy: &str, words: &[&str]) {
        let Server { image, .. } = self.server;
        let command: Vec<&str> = ["/ballast/ballast", "agent"].iter().chain(words).copied().collect();
        let (command, work) = (serde_json::to_string(&command).unwrap(), self.work.display());
        let yaml = format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  securityContext: {{runAsUser: 999, runAsGroup: 999}}
  initContainers:
  - {{name: agent, image: "{BALLAST}", args: [agent, install, /ballast], volumeMounts: [{{name: ballast, mountPath: /ballast}}]}}
  containers:
  - name: it
    image: {image}
    command: {command}
    volumeMounts:
    - {{name: work, mountPath: /work}}
    - {{name: ballast, mountPath: /ballast}}
    - {{name: credentials, mountPath: /credentials}}
  volumes:
  - {{name: work, hostPath: {{path: "{work}", type: Directory}}}}
  - {{name: ballast, emptyDir: {{}}}}
  - {{name: credentials, secret: {{secretName: credentials}}}}
"#
        );
        self.cluster.apply(&yaml).ok();
    }

    pub fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.server.name)
    }

    /// A server on a volume, and its address.
    pub fn serve(&self, of: &str, volume: &str) -> String {
        let name = self.name(of);
        let mut words = vec!["run", self.server.name];
        words.extend(self.prepared(volume));
        self.pod(&name, "Always", &words);
        self.asks(&name, "SELECT 1");
        self.cluster.field(&format!("pod/{name}"), ".status.podIP")
    }

    pub fn prepared<'a>(&self, volume: &'a str) -> Vec<&'a str> {
        let more =
            "--superuser-password-file /credentials/root --user owner --user-password-file /credentials/user";
        [&["--volume", volume, "--database", DATABASE][..], &more.split(' ').collect::<Vec<_>>()].concat()
    }

    pub fn sql(&self, pod: &str, statements: &str) -> crate::support::Said {
        let client = format!(
            "MYSQL_PWD=\"$(cat /credentials/root)\" {} --default-character-set=utf8mb4 -N -h 127.0.0.1 -u root",
            self.server.client
        );
        self.cluster.kubectl_with(&["exec", "-i", pod, "-c", "it", "--", "sh", "-c", &client], statements)
    }

    /// What a statement answers, once the server does.
    pub fn asks(&self, pod: &str, statement: &str) -> String {
        eventually(&format!("{pod} answers {statement:?}"), || {
            let answer = self.sql(pod, statement);
            answer.status.success().then_some(answer.stdout)
        })
    }

    /// Runs the agent once, and gives what it leaves as its last message.
    pub fn once(&self, of: &str, words: &[&str]) -> Value {
        let name = self.name(of);
        self.pod(&name, "Never", words);
        let mut last = Value::Null;
        let message = eventually(&format!("{name} has ended"), || {
            let status = self.cluster.field(&format!("pod/{name}"), ".status");
            let status: Value = serde_json::from_str(&status).unwrap_or_default();
            if last != status {
                println!("{name}: {status}");
                last.clone_from(&status);
            }
            let message = status.pointer("/containerStatuses/0/state/terminated/message")?.as_str()?;
            Some(message.to_owned())
        });
        serde_json::from_str(&message).unwrap_or_else(|_| panic!("{message}"))
    }

    fn walk(&self) {
        for directory in [
            "volume",
            "restored",
            "killed",
            "second",
            "backup",
            "kept",
            "kept-restored",
            "other",
            "tool",
            "differs",
        ] {
            open_directory(&self.work.join(directory));
        }
        fs::write(
            self.work.join("init.sql"),
            "CREATE TABLE once (n INT PRIMARY KEY);\nINSERT INTO once VALUES (1);\n",
        )
        .unwrap();
        fs::write(
            self.work.join("long.sql"),
            "CREATE TABLE begun (n INT);\nINSERT INTO begun VALUES (1);\nDO SLEEP(3600);\nINSERT INTO begun VALUES (2);\n",
        )
        .unwrap();
        fs::write(self.work.join("wrong.sql"), "SELECT 1;\nCREATE USER x IDENTIFED BY 'hidden';\n").unwrap();

        let host = self.serve("server", "/work/volume");
        let server = self.name("server");
        self.sql(&server, &format!("USE `wei``rd ü`;\n{DATA}\n{}", self.server.more)).ok();
        self.scripts(&host);
        self.is_of_one_moment(&host);
        let backup = self.backs_up(&host, "one");
        self.refuses_what_is_loaded_otherwise(&server);
        self.restores(&backup);
        self.restores_after_kills(&backup);
        self.refuses(&backup);
        if self.server.name == "mariadb" {
            self.dumps_what_is_as_it_is_kept();
        }
    }

    fn scripts(&self, host: &str) {
        let to = ["--host", host, "--password-file", "/credentials/root", "--database", DATABASE];
        let words =
            |name, file| [&["script", self.server.name, "--name", name, "--file", file][..], &to].concat();
        let script = |of, name, file| self.once(of, &words(name, file));
        assert_eq!(script("script-1", "init", "/work/init.sql")["before"], false);
        let again = script("script-2", "init", "/work/init.sql");
        assert_eq!((&again["before"], &again["same"]), (&true.into(), &true.into()), "{again}");
        let failed = script("script-3", "wrong", "/work/wrong.sql");
        assert_eq!(failed["reason"], "ScriptInterrupted");
        let message = failed["message"].as_str().unwrap();
        assert!(message.contains("ERROR 1064 (42000) at line 2") && !message.contains("hidden"), "{message}");
        let refused = script("script-4", "wrong", "/work/init.sql");
        assert_eq!(refused["message"], failed["message"], "what went wrong is not forgotten");

        // Killed half way.
        let (killed, server) = (self.name("script-5"), self.name("server"));
        let rows = "SELECT COUNT(*) FROM `wei``rd ü`.begun";
        self.pod(&killed, "Never", &words("long", "/work/long.sql"));
        eventually("it is half way", || (self.sql(&server, rows).stdout == "1\n").then_some(()));
        self.cluster.kubectl(&format!("delete pod {killed} --force --grace-period=0")).ok();
        let refused = script("script-6", "long", "/work/long.sql");
        assert_eq!(refused["reason"], "ScriptInterrupted", "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("the script 'long' was begun before and never done"), "{message}");
        assert_eq!(self.asks(&server, rows), "1\n");
        self.sql(&server, "DROP TABLE `wei``rd ü`.begun").ok();
        assert_eq!(self.asks(&self.name("server"), "SELECT COUNT(*) FROM `wei``rd ü`.once"), "1\n");
    }

    /// Somebody writes all the while, to two tables in each transaction, or to one after the other where there are none:
    /// a backup has what was there at one moment, and the writer goes on after it.
    fn is_of_one_moment(&self, host: &str) {
        let server = self.name("server");
        let versioned = ("versioned", "MyISAM WITH SYSTEM VERSIONING", 1);
        let versioned = Some(versioned).filter(|_| self.server.name == "mariadb");
        for (of, engine, most) in
            [("transactions", "InnoDB", 0), ("locks", "MyISAM", 1)].into_iter().chain(versioned)
        {
            self.sql(&server, &TWO_TABLES.replace("@@", engine)).ok();
            let to = ["--host", host, "--password-file", "/credentials/root", "--database", "moment", "--to"];
            let rows = "SELECT COUNT(*) FROM moment.two";
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| self.sql(&server, "CALL moment.writes()").ok());
                eventually("it writes", || (self.asks(&server, rows) != "0\n").then_some(()));
                let dump = [&["dump", self.server.name][..], &to, &["/work/backup"]].concat();
                let backup = self.once(of, &dump);
                let after: i64 = self.asks(&server, rows).trim().parse().unwrap();
                self.sql(&server, "DELETE FROM moment.going").ok();
                writer.join().unwrap();
                assert_eq!(backup["ok"], true, "{backup}");
                let manifest = self.manifest(of);
                let rows = |name| {
                    let mut tables = manifest["tables"].as_array().unwrap().iter();
                    tables
                        .find(|table| table["name"] == name)
                        .and_then(|table| table["rows"].as_i64())
                        .unwrap()
                };
                let (one, two) = (rows("one"), rows("two"));
                assert!(0 < two && two < after, "{of}: it went on writing, from {two} to {after}");
                assert!(
                    (0..=most).contains(&(one - two)),
                    "{of}: {one} rows in one table, {two} in the other"
                );
            });
            self.sql(&server, "DROP DATABASE moment").ok();
        }
    }

    /// A backup; gives its last message.
    fn backs_up(&self, host: &str, of: &str) -> Value {
        let to = ["--host", host, "--password-file", "/credentials/root", "--to", "/work/backup"];
        let words = [&["dump", self.server.name][..], &to].concat();
        let backup = self.once(of, &words);
        assert_eq!(backup["ok"], true, "{backup}");
        assert_eq!(backup["flavour"], self.server.name);
        let manifest = self.manifest(of);
        let tables = manifest["tables"].as_array().unwrap();
        let rows = |name: &str| tables.iter().find(|table| table["name"] == name).unwrap()["rows"].clone();
        assert_eq!([rows("hard"), rows("nothing"), rows("plain"), rows("once")], [3, 0, 2, 1]);
        assert_eq!(rows("nobodys"), 1, "in a database that is called nearly as one of the server's");
        backup
    }

    /// The last line that the agent printed.
    pub fn manifest(&self, of: &str) -> Value {
        let log = self.cluster.kubectl(&format!("logs {}", self.name(of))).ok();
        serde_json::from_str(log.lines().last().unwrap()).unwrap()
    }

    /// What is kept in UTF-8 is dumped as it is kept: the same dump as one in letters, which is taken as soon as there
    /// is something else on the server. Bytes are no letters.
    fn dumps_what_is_as_it_is_kept(&self) {
        let host = self.serve("kept", "/work/kept");
        let server = self.name("kept");
        let sql = |statements: &str| self.sql(&server, &format!("USE `wei``rd ü`;\n{statements}")).ok();
        let to = ["--host", &host, "--password-file", "/credentials/root", "--database", DATABASE, "--to"];
        let dump = |of: &str, wording: &Value| {
            let backup = self.once(of, &[&["dump", self.server.name][..], &to, &["/work/backup"]].concat());
            assert_eq!(backup["ok"], true, "{backup}");
            let manifest = self.manifest(of);
            assert_eq!(manifest["wording"], *wording, "{of}");
            let same = ["contentBytes", "databases", "definitions", "events", "tables"];
            (backup, same.map(|field| manifest[field].clone()))
        };
        let as_kept = Value::from("asKept");
        sql(UTF8);
        let (_, text) = dump("text", &as_kept);
        for (number, other) in OTHERS.iter().enumerate() {
            sql(&format!("CREATE OR REPLACE DATABASE other; CREATE TABLE other.other ({other})"));
            assert_eq!(dump(&format!("other-{number}"), &Value::Null).1, text, "in letters it is the same");
        }
        sql(&format!("DROP DATABASE other;\n{BYTES}"));
        let (backup, _) = dump("bytes", &as_kept);

        let file = format!("/work/backup/{}", backup["file"].as_str().unwrap());
        let words =
            [&["restore", self.server.name, "--from", &file][..], &self.prepared("/work/kept-restored")];
        let restored = self.once("restore-kept", &words.concat());
        assert_eq!((&restored["ok"], &restored["rows"]), (&true.into(), &backup["rows"]), "{restored}");
        // The servers themselves say the same of what they hold.
        self.serve("kept-restored", "/work/kept-restored");
        let again = self.name("kept-restored");
        let checksums = "CHECKSUM TABLE `wei``rd ü`.bytes, `wei``rd ü`.`größe` EXTENDED; \
            SELECT BIT_XOR(CRC32(CONCAT_WS('/', id, f, v, t, b, m, l, text))) FROM `wei``rd ü`.bytes";
        let [before, after] = [&server, &again].map(|pod| self.asks(pod, checksums));
        assert_eq!(before, after);
        assert!(!before.contains("NULL") && before.lines().count() == 3, "{before}");
        for pod in [server, self.name("restore-kept"), again] {
            self.cluster.kubectl(&format!("delete pod {pod} --grace-period=20 --timeout=30s")).ok();
        }
    }

    fn restores(&self, backup: &Value) {
        let file = format!("/work/backup/{}", backup["file"].as_str().unwrap());
        let known = ["--manifest-sha256", backup["manifestSha256"].as_str().unwrap()];
        let mut words = vec!["restore", self.server.name, "--from", &file];
        words.extend(known);
        words.extend(self.prepared("/work/restored"));
        let restored = self.once("restore-1", &words);
        assert_eq!((&restored["ok"], &restored["before"]), (&true.into(), &false.into()), "{restored}");
        assert_eq!(restored["rows"], backup["rows"]);
        let again = self.once("restore-2", &words);
        assert_eq!((&again["ok"], &again["before"]), (&true.into(), &true.into()), "{again}");

        let host = self.serve("restored", "/work/restored");
        let (old, new) = (self.name("server"), self.name("restored"));
        for question in [
            "SELECT * FROM `wei``rd ü`.hard ORDER BY id",
            "SHOW CREATE TABLE `wei``rd ü`.hard",
            "SELECT * FROM `wei``rd ü`.seen",
            "SELECT `wei``rd ü`.more(41)",
            "SELECT * FROM `wei``rd ü`.above",
            "SHOW GRANTS FOR owner",
        ] {
            assert_eq!(self.asks(&old, question), self.asks(&new, question), "{question}");
        }
        // Somebody stands in for an account that is not in a backup, and that is all.
        let gone = self.asks(&new, "SHOW CREATE USER gone; SHOW GRANTS FOR gone");
        assert!(gone.contains("ACCOUNT LOCK") && gone.contains(" ON `wei``rd ü`.* TO "), "{gone}");
        assert!(!gone.contains("ALL PRIVILEGES ON *.*"), "{gone}");
        // What was restored can be backed up, and holds the same.
        self.backs_up(&host, "two");
        // It does not touch what is there.
        let mut words = vec!["restore", self.server.name, "--from", &file];
        words.extend(self.prepared("/work/volume"));
        let deadline = format!("delete pod {old} --grace-period=20 --timeout=30s");
        self.cluster.kubectl(&deadline).ok();
        let refused = self.once("restore-3", &words);
        assert_eq!(refused["reason"], "Refused", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("did not come from this backup"), "{refused}");
    }

    /// Killed at some moments of it, the next one has a whole volume.
    fn restores_after_kills(&self, backup: &Value) {
        let file = format!("/work/backup/{}", backup["file"].as_str().unwrap());
        let mut words = vec!["restore", self.server.name, "--from", &file];
        words.extend(self.prepared("/work/killed"));
        for moment in [400, 1200, 2000, 2800, 3600] {
            let name = self.name(&format!("killed-{moment}"));
            self.pod(&name, "Never", &words);
            eventually(&format!("{name} was started"), || {
                let state = self.cluster.field(&format!("pod/{name}"), ".status.containerStatuses[0].state");
                (state.contains("running") || state.contains("terminated")).then_some(())
            });
            sleep(Duration::from_millis(moment));
            self.cluster.kubectl(&format!("delete pod {name} --force --grace-period=0")).ok();
        }
        let restored = self.once("restore-5", &words);
        assert_eq!((&restored["ok"], &restored["rows"]), (&true.into(), &backup["rows"]), "{restored}");
        let left: Vec<_> =
            fs::read_dir(self.work.join("killed")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the marker and the data: {left:?}");
    }

    /// A dump that is whole, and says of a number more than a server keeps of it: what was loaded is not what the backup
    /// holds, and becomes nobody's data.
    fn refuses_what_is_loaded_otherwise(&self, server: &str) {
        let tool = self.work.join("tool").join(self.server.dump);
        let script = format!("#!/bin/sh\ncat <<'END'\n{LOADED_OTHERWISE}END\n");
        fs::write(&tool, script).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let line = format!(
            "PATH=/work/tool:$PATH exec /ballast/ballast agent dump {} --host 127.0.0.1 \
             --password-file /credentials/root --to /work/other",
            self.server.name
        );
        let log = self.cluster.kubectl_with(&["exec", server, "-c", "it", "--", "sh", "-c", &line], "").ok();
        let manifest: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(manifest["tables"][0]["rows"], 2, "{manifest}");

        let file = format!("/work/other/{}", manifest["file"].as_str().unwrap());
        let words = [&["restore", self.server.name, "--from", &file][..], &self.prepared("/work/differs")];
        let refused = self.once("restore-6", &words.concat());
        assert_eq!(
            (&refused["ok"], &refused["reason"]),
            (&false.into(), &"RestoreDiffers".into()),
            "{refused}"
        );
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("the rows of the table \"lengths\""), "{message}");
        let left: Vec<_> = fs::read_dir(self.work.join("differs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["ballast-volume.json"], "a marker that says that there is nothing");
    }

    fn refuses(&self, backup: &Value) {
        let file = self.work.join("backup").join(backup["file"].as_str().unwrap());
        let from = format!("/work/backup/{}", backup["file"].as_str().unwrap());
        let mut words = vec!["restore", self.server.name, "--from", &from];
        words.extend(self.prepared("/work/second"));
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&file, bytes).unwrap();
        let refused = self.once("restore-4", &words);
        assert_eq!(refused["reason"], "BackupDamaged", "{refused}");
        assert_eq!(fs::read_dir(self.work.join("second")).unwrap().count(), 0, "nothing was touched");
    }
}

#[test]
fn backups_of_real_servers_are_taken_restored_and_hold_the_same() {
    // Servers do not run as root, and need a user of their own.
    let user = User::Plain;
    SERVERS.iter().for_each(|server| user.pull(&[server.image]));
    let directory = user.directory();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(SECRET).ok();
    std::thread::scope(|scope| {
        for server in &SERVERS {
            let work = directory.path().join(server.name);
            open_directory(&work);
            let stage = Stage { cluster: &cluster, work, server };
            scope.spawn(move || stage.walk());
        }
    });
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

pub fn open_directory(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}
