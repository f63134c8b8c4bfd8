//! The passwords that a server is to know: those in the files that it was started with, also when they change.
//!
//! The superuser's is changed by whoever is let in with the one before. Where the server knows neither what the file
//! holds nor what it held, nobody can help but the person who knows it. The user's follows the file at each start, too.
//!
//! **What always holds.** What was changed was changed by the server's own word; until then the password before counts.

use std::path::PathBuf;

use crate::backup::{Address, BackupError, Connection, Login};
use crate::flavour::{Flavour, SOCKET};
use crate::secret::Secret;
use crate::sql::mysql_text;

/// What is to be known.
pub(crate) struct Passwords {
    flavour: Flavour,
    superuser: Secret,
    user: Option<(String, Secret)>,
    login: Login,
}

/// Passwords that the server does not know yet.
pub(crate) struct Newer {
    superuser: Option<Secret>,
    user: Option<Secret>,
}

/// What a superuser is called who is there for a while.
const PASSING: &str = "ballast-upgrade";

/// A superuser who is there for a while.
pub(crate) struct Passing {
    pub(crate) login: Login,
    pub(crate) comes: String,
    pub(crate) goes: String,
}

impl Passwords {
    pub(crate) fn new(
        flavour: Flavour,
        superuser: Secret,
        user: Option<(String, Secret)>,
    ) -> Result<Passwords, BackupError> {
        let login = login(flavour, "root", &superuser)?;
        Ok(Passwords { flavour, superuser, user, login })
    }

    /// How the superuser is let in.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// A superuser who is there for a while, and the statements by which it comes and goes, a line each: for a program
    /// that writes the password that it is given to a file, and reads another one there where there is a quote in it.
    pub(crate) fn passing(&self) -> Result<Passing, BackupError> {
        let password = Secret::random()?;
        let (user, identified) = (format!("'{PASSING}'@'localhost'"), mysql_text(password.expose()));
        Ok(Passing {
            login: login(self.flavour, PASSING, &password)?,
            comes: format!(
                "CREATE OR REPLACE USER {user} IDENTIFIED BY {identified}; GRANT ALL ON *.* TO {user} WITH GRANT OPTION;\n"
            ),
            goes: format!("DROP USER {user};\n"),
        })
    }

    /// How the user is.
    pub(crate) fn user_login(&self) -> Option<Result<Login, BackupError>> {
        self.user.as_ref().map(|(user, password)| login(self.flavour, user, password))
    }

    /// What the files hold by now, where that is something else. `again`: the user's is to be set in any case.
    pub(crate) fn newer(&self, again: bool) -> Option<Newer> {
        let user = self.user.as_ref();
        let user = user.and_then(|(_, known)| known.changed().or_else(|| again.then(|| known.clone())));
        let newer = Newer { superuser: self.superuser.changed(), user };
        (newer.superuser.is_some() || newer.user.is_some()).then_some(newer)
    }

    /// The statements by which the server learns it, in one line.
    pub(crate) fn statements(&self, newer: &Newer) -> String {
        // Whatever the server is set to, a backslash escapes here.
        let mut sql = "SET NAMES utf8mb4; SET SESSION sql_mode = '';".to_owned();
        if let Some(password) = &newer.superuser {
            let password = mysql_text(password.expose());
            sql += &format!(
                " ALTER USER IF EXISTS 'root'@'localhost' IDENTIFIED BY {password}, 'root'@'%' IDENTIFIED BY {password};"
            );
        }
        if let (Some(password), Some((user, _))) = (&newer.user, &self.user) {
            let (user, password) = (mysql_text(user), mysql_text(password.expose()));
            sql += &format!(" ALTER USER IF EXISTS {user}@'%' IDENTIFIED BY {password};");
        }
        sql + "\n"
    }

    /// The server knows it now.
    pub(crate) fn learned(&mut self, newer: Newer) -> Result<(), BackupError> {
        if let (Some(password), Some((_, known))) = (newer.user, self.user.as_mut()) {
            *known = password;
        }
        newer.superuser.map_or(Ok(()), |password| self.log_in_with(password))
    }

    /// The server does not know the superuser's: where the file holds another by now, that one is tried.
    pub(crate) fn denied(&mut self) -> Result<(), BackupError> {
        self.superuser.changed().map_or(Ok(()), |password| self.log_in_with(password))
    }

    fn log_in_with(&mut self, password: Secret) -> Result<(), BackupError> {
        self.login = login(self.flavour, "root", &password)?;
        self.superuser = password;
        Ok(())
    }
}

fn login(flavour: Flavour, user: &str, password: &Secret) -> Result<Login, BackupError> {
    Login::new(&Connection {
        flavour,
        address: Address::Socket(PathBuf::from(SOCKET)),
        user: user.to_owned(),
        password: password.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_files_hold_by_now_is_what_the_server_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let (root, user) = (directory.path().join("root"), directory.path().join("user"));
        fs::write(&root, "one").unwrap();
        fs::write(&user, "two").unwrap();
        let read = |path| Secret::read(path).unwrap();
        let mut passwords =
            Passwords::new(Flavour::Mariadb, read(&root), Some(("o'x".to_owned(), read(&user)))).unwrap();
        assert!(passwords.newer(false).is_none());
        let said = |passwords: &Passwords, newer: &Newer| {
            let said = passwords.statements(newer);
            assert_eq!(said.find('\n'), Some(said.len() - 1), "{said}");
            said.replace("SET NAMES utf8mb4; SET SESSION sql_mode = ''; ", "").trim_end().to_owned()
        };
        let again = passwords.newer(true).unwrap();
        assert_eq!(said(&passwords, &again), "ALTER USER IF EXISTS 'o\\'x'@'%' IDENTIFIED BY 'two';");
        fs::write(&root, "it's\nnew").unwrap();
        let newer = passwords.newer(false).unwrap();
        assert_eq!(
            said(&passwords, &newer),
            "ALTER USER IF EXISTS 'root'@'localhost' IDENTIFIED BY 'it\\'s\\nnew', 'root'@'%' IDENTIFIED BY 'it\\'s\\nnew';"
        );
        assert!(passwords.newer(false).is_some(), "until it is learned it is tried again");
        passwords.learned(newer).unwrap();
        assert!(passwords.newer(false).is_none());
        // What can be no password changes nothing.
        fs::write(&user, "").unwrap();
        assert!(passwords.newer(false).is_none());
        fs::remove_file(&root).unwrap();
        assert!(passwords.newer(false).is_none());
    }

    #[test]
    fn who_is_there_for_a_while_comes_and_goes_in_a_line_each() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::write(&root, "it's").unwrap();
        let passwords = Passwords::new(Flavour::Mariadb, Secret::read(&root).unwrap(), None).unwrap();
        let passing = passwords.passing().unwrap();
        let user = "'ballast-upgrade'@'localhost'";
        assert!(passing.comes.starts_with(&format!("CREATE OR REPLACE USER {user} IDENTIFIED BY 'A-")));
        assert!(passing.comes.ends_with(&format!("; GRANT ALL ON *.* TO {user} WITH GRANT OPTION;\n")));
        assert_eq!(passing.goes, format!("DROP USER {user};\n"));
    }
}
