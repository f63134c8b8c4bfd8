//! The accounts in whose names views, routines, triggers and events are carried out.
//!
//! A backup holds no accounts, and a server neither makes a view upon a view of an account that it lacks, nor lets anybody
//! use what is such an account's. So where a restored server lacks one there is another of its name: it is locked, nobody
//! knows its password, and it may do everything in the databases in which something is carried out in its name, and nothing
//! elsewhere.
//!
//! While the dump is read, it may do everything everywhere: what was made once under whatever rights can be made again.

use super::error::BackupError;
use super::manifest::Definers;
use super::tools::Tools;
use crate::secret::Secret;
use crate::sql::{mysql_pattern, mysql_text};

/// Whatever the server is set to, a backslash escapes here.
const PLAIN: &str = "SET NAMES utf8mb4;\nSET SESSION sql_mode = '';\n";

/// Makes those that the server lacks, and says which.
pub(super) fn stand_in(wanted: &Definers, tools: &Tools<'_>) -> Result<Definers, BackupError> {
    let accounts = tools.accounts()?;
    let mut lacking = wanted.clone();
    lacking.retain(|account, _| !accounts.contains(account));
    let mut sql = PLAIN.to_owned();
    for account in lacking.keys() {
        sql += &made(account, Secret::random()?.expose());
    }
    tools.rows(&sql)?;
    Ok(lacking)
}

/// Leaves them the databases that they have something in.
pub(super) fn confine(lacking: &Definers, tools: &Tools<'_>) -> Result<(), BackupError> {
    tools.rows(&confined(lacking)).map(drop)
}

fn made(account: &str, password: &str) -> String {
    let name = name(account);
    let make = if account.ends_with('@') {
        format!("CREATE ROLE {name}")
    } else {
        format!("CREATE USER {name} IDENTIFIED BY {} ACCOUNT LOCK", mysql_text(password))
    };
    format!("{make};\nGRANT ALL PRIVILEGES ON *.* TO {name};\n")
}

fn confined(lacking: &Definers) -> String {
    let mut sql = PLAIN.to_owned();
    for (account, databases) in lacking {
        let name = name(account);
        sql += &format!("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {name};\n");
        for database in databases {
            sql += &format!("GRANT ALL PRIVILEGES ON {}.* TO {name};\n", mysql_pattern(database));
        }
    }
    sql
}

/// An account as statements have it. A host has no `@` in it.
fn name(account: &str) -> String {
    match account.rsplit_once('@') {
        Some((role, "")) => mysql_text(role),
        Some((user, host)) => format!("{}@{}", mysql_text(user), mysql_text(host)),
        None => mysql_text(account),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_quoted_and_a_role_has_no_host() {
        assert_eq!(name("o'x@y@10.%"), "'o\\'x@y'@'10.%'");
        assert_eq!(name("readers@"), "'readers'");
        assert_eq!(
            made("gone@%", "secret"),
            "CREATE USER 'gone'@'%' IDENTIFIED BY 'secret' ACCOUNT LOCK;\nGRANT ALL PRIVILEGES ON *.* TO 'gone'@'%';\n"
        );
        assert!(made("readers@", "secret").starts_with("CREATE ROLE 'readers';\n"));
    }

    #[test]
    fn what_an_account_may_do_ends_with_the_databases_that_it_has_something_in() {
        let lacking = Definers::from([("gone@%".to_owned(), ["a_b".to_owned()].into())]);
        assert_eq!(
            confined(&lacking).strip_prefix(PLAIN),
            Some(
                "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'gone'@'%';\nGRANT ALL PRIVILEGES ON `a\\_b`.* TO 'gone'@'%';\n"
            )
        );
    }
}
