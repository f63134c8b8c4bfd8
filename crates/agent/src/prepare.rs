//! What has to be done, once, before a server can run on an empty directory: as data, for [`crate::run`] to carry out.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use crate::flavour::{Flavour, option};
use crate::secret::Secret;
use crate::sql::{Longest, Name, NameError, mysql_text, postgres_text};

/// PostgreSQL cuts longer names.
const POSTGRES_LONGEST: Longest = Longest::Bytes(63);
/// Neither MySQL nor MariaDB takes longer ones.
const MYSQL_LONGEST: Longest = Longest::Characters(64);
const MYSQL_LONGEST_USER: Longest = Longest::Characters(32);

/// A database that is there from the beginning, and the user that it belongs to.
#[derive(Debug)]
pub struct Database {
    /// Its name.
    pub name: String,
    /// The name of the user.
    pub user: String,
    /// The user's password.
    pub password: Secret,
}

/// One thing to do.
pub(crate) enum Step {
    /// Run a program to its end.
    Command {
        /// Its name, found as a shell finds it.
        program: &'static str,
        arguments: Vec<OsString>,
        /// What it reads.
        input: Input,
    },
    /// Add to a file in the directory.
    Append { file: &'static str, text: &'static str },
}

/// What a program reads, which may be secret.
pub(crate) enum Input {
    Nothing,
    /// Through its standard input.
    Standard(String),
    /// From a file in memory, which this option names.
    File {
        option: &'static str,
        text: String,
    },
}

/// The superuser's password and the first database, known to be what the server takes.
pub(crate) struct Contents {
    superuser: Secret,
    database: Option<(Name, Name, Secret)>,
}

impl Contents {
    pub(crate) fn new(
        flavour: Flavour,
        superuser: Secret,
        database: Option<Database>,
    ) -> Result<Contents, NameError> {
        let (longest, longest_user, taken) = match flavour {
            Flavour::Postgres => (POSTGRES_LONGEST, POSTGRES_LONGEST, "postgres"),
            _ => (MYSQL_LONGEST, MYSQL_LONGEST_USER, "root"),
        };
        let checked = |database: Database| {
            let (name, user) =
                (Name::new(&database.name, longest)?, Name::new(&database.user, longest_user)?);
            if user.text() == taken {
                return Err(NameError::Taken(database.user));
            }
            Ok((name, user, database.password))
        };
        Ok(Contents { superuser, database: database.map(checked).transpose()? })
    }

    pub(crate) fn superuser(&self) -> &Secret {
        &self.superuser
    }

    /// The user of the first database.
    pub(crate) fn user(&self) -> Option<(String, Secret)> {
        self.database.as_ref().map(|(_, user, password)| (user.text().to_owned(), password.clone()))
    }

    /// The name of the first database.
    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_ref().map(|(name, _, _)| name.text())
    }
}

/// The steps that make `data`, which is not there yet, into what `flavour` runs on. etcd makes its own.
pub(crate) fn steps(
    flavour: Flavour,
    data: &Path,
    given: &[OsString],
    contents: Option<&Contents>,
) -> Vec<Step> {
    match (flavour, contents) {
        (Flavour::Postgres, Some(contents)) => postgres(data, contents),
        (Flavour::Mariadb, Some(contents)) => mariadb(data, given, contents),
        (Flavour::Mysql, Some(contents)) => mysql(data, given, contents),
        (Flavour::Etcd, _) | (_, None) => Vec::new(),
    }
}

fn postgres(data: &Path, contents: &Contents) -> Vec<Step> {
    let initialise = [
        "--username=postgres",
        "--auth-local=peer",
        "--auth-host=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--data-checksums",
        "--no-instructions",
    ];
    let mut sql = format!("ALTER ROLE postgres PASSWORD {};\n", postgres_text(contents.superuser.expose()));
    if let Some((database, user, password)) = &contents.database {
        let (database, user) = (database.postgres(), user.postgres());
        let password = postgres_text(password.expose());
        let _infallible = writeln!(sql, "CREATE ROLE {user} LOGIN PASSWORD {password};");
        let _infallible = writeln!(sql, "CREATE DATABASE {database} OWNER {user};");
    }
    // A statement that failed would otherwise be passed over, and be shown in the log.
    let single = ["--single", "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "-D"];
    let single = single.map(OsString::from).into_iter().chain([data.into(), "postgres".into()]);
    vec![
        Step::Command {
            program: "initdb",
            arguments: [option("--pgdata=", data)]
                .into_iter()
                .chain(initialise.map(OsString::from))
                .collect(),
            input: Input::Nothing,
        },
        Step::Command { program: "postgres", arguments: single.collect(), input: Input::Standard(sql) },
        // Otherwise nobody but the pod itself is let in.
        Step::Append { file: "pg_hba.conf", text: "host all all all scram-sha-256\n" },
    ]
}

fn mariadb(data: &Path, given: &[OsString], contents: &Contents) -> Vec<Step> {
    let own = [
        option("--datadir=", data),
        "--auth-root-authentication-method=normal".into(),
        "--skip-test-db".into(),
        "--skip-name-resolve".into(),
    ];
    // The superusers without a password that are made for the names of this machine.
    let sql = format!(
        "FLUSH PRIVILEGES;\nDELETE FROM mysql.global_priv WHERE Host NOT IN ('localhost', '%');\n\
         DELETE FROM mysql.proxies_priv WHERE Host NOT IN ('localhost', '%');\n\
         FLUSH PRIVILEGES;\n{}",
        accounts(contents)
    );
    let arguments = given.iter().cloned().chain(own).collect();
    // The server that makes its tables reads this, too.
    let input = Input::File { option: "--extra-file=", text: sql };
    vec![Step::Command { program: "mariadb-install-db", arguments, input }]
}

fn mysql(data: &Path, given: &[OsString], contents: &Contents) -> Vec<Step> {
    let own = [
        option("--datadir=", data),
        "--initialize-insecure".into(),
        // Its standard input, which it would not read by itself.
        "--init-file=/proc/self/fd/0".into(),
    ];
    let arguments = given.iter().cloned().chain(own).collect();
    vec![Step::Command { program: "mysqld", arguments, input: Input::Standard(accounts(contents)) }]
}

/// The statements that both understand.
fn accounts(contents: &Contents) -> String {
    let password = mysql_text(contents.superuser.expose());
    // What follows is in this encoding, whatever the server's own is: MariaDB's was another before 11.6.
    let mut sql = "SET NAMES utf8mb4;\n".to_owned();
    sql += &spelled(&format!("ALTER USER 'root'@'localhost' IDENTIFIED BY {password}"));
    sql += &spelled(&format!("CREATE USER 'root'@'%' IDENTIFIED BY {password}"));
    sql += "GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;\n";
    if let Some((database, user, password)) = &contents.database {
        let (name, pattern) = (database.mysql(), database.mysql_pattern());
        let (user, password) = (mysql_text(user.text()), mysql_text(password.expose()));
        sql += &spelled(&format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"));
        sql += &spelled(&format!("CREATE USER {user}@'%' IDENTIFIED BY {password}"));
        sql += &spelled(&format!("GRANT ALL PRIVILEGES ON {pattern}.* TO {user}@'%'"));
    }
    sql
}

/// A statement in digits. Who reads a file of statements looks for their ends first, by rules of its own: MySQL finds
/// one within a name that has a semicolon and two backquotes; and `mariadb-install-db` leaves out lines with words that
/// it knows.
fn spelled(statement: &str) -> String {
    let mut digits = String::new();
    for byte in statement.bytes() {
        let _infallible = write!(digits, "{byte:02x}");
    }
    format!(
        "SET @spelled = CONVERT(0x{digits} USING utf8mb4);\nPREPARE spelled FROM @spelled;\nEXECUTE spelled;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret;

    fn contents(flavour: Flavour, name: &str, user: &str) -> Result<Contents, NameError> {
        let database = Database { name: name.into(), user: user.into(), password: secret::of("p'w") };
        Contents::new(flavour, secret::of("s\\w"), Some(database))
    }

    fn shown(flavour: Flavour) -> String {
        let contents = contents(flavour, "d_b", "o`\"x").unwrap();
        let mut text = String::new();
        for step in steps(flavour, Path::new("/v/data"), &["--port=1".into()], Some(&contents)) {
            match step {
                Step::Command { program, arguments, input } => {
                    let input = match input {
                        Input::Nothing => String::new(),
                        Input::Standard(text) | Input::File { text, .. } => text,
                    };
                    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
                    writeln!(text, "{program} {}\n{input}", words.join(" ")).unwrap();
                }
                Step::Append { file, text: more } => writeln!(text, "{file} += {more}").unwrap(),
            }
        }
        text
    }

    #[test]
    fn passwords_are_read_and_never_in_arguments() {
        for flavour in [Flavour::Postgres, Flavour::Mariadb, Flavour::Mysql] {
            let contents = contents(flavour, "d", "u").unwrap();
            for step in steps(flavour, Path::new("/v/data"), &[], Some(&contents)) {
                if let Step::Command { arguments, .. } = step {
                    let words = format!("{arguments:?}");
                    assert!(!words.contains("p'w") && !words.contains("s\\w"), "{words}");
                }
            }
        }
    }

    #[test]
    fn what_people_call_things_is_quoted() {
        let postgres = shown(Flavour::Postgres);
        assert!(postgres.contains("ALTER ROLE postgres PASSWORD E's\\\\w';\n"), "{postgres}");
        assert!(postgres.contains("CREATE ROLE \"o`\"\"x\" LOGIN PASSWORD E'p\\'w';\n"), "{postgres}");
        assert!(postgres.contains("CREATE DATABASE \"d_b\" OWNER \"o`\"\"x\";\n"), "{postgres}");
        for flavour in [Flavour::Mariadb, Flavour::Mysql] {
            let text = shown(flavour);
            assert!(text.contains(" --port=1 --datadir=/v/data "), "{text}");
            assert!(text.contains(&spelled("CREATE DATABASE `d_b` CHARACTER SET utf8mb4")), "{text}");
            assert!(text.contains(&spelled("GRANT ALL PRIVILEGES ON `d\\_b`.* TO 'o`\"x'@'%'")), "{text}");
        }
    }

    #[test]
    fn a_name_that_the_server_would_change_is_refused() {
        for (flavour, name, user) in [
            (Flavour::Postgres, "d", "postgres"),
            (Flavour::Mysql, "d", "root"),
            (Flavour::Mariadb, "", "u"),
            (Flavour::Mysql, "d", "a user of more than thirty-two letters"),
        ] {
            assert!(contents(flavour, name, user).is_err(), "{name} {user}");
        }
        let long = "ü".repeat(32);
        assert!(contents(Flavour::Postgres, &long, "u").is_err(), "it counts bytes");
        assert!(contents(Flavour::Mariadb, &long, &long).is_ok(), "it counts characters");
    }
}
