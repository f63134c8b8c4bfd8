//! Runs a script in a server exactly once.
//!
//! What was begun and what was done is a row in a table of the server's own database, which no dump holds. A script
//! whose row says begun and not done was cut off, or failed: how far it came nobody knows, so it is never begun again
//! by itself, and a person is told what to do.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::error::{BackupError, on};
use super::login::Connection;
use super::manifest::sha256_of;
use super::stop::Stop;
use super::tools::Tools;
use crate::process::Signals;
use crate::sql::mysql_text;

const TABLE: &str = "mysql.ballast_scripts";

/// A script to be run.
#[derive(Debug)]
pub struct Script {
    /// In which server.
    pub server: Connection,
    /// The database that it begins in.
    pub database: Option<String>,
    /// What it is known by.
    pub name: String,
    /// Where it is.
    pub file: PathBuf,
}

/// What became of a script.
#[derive(Debug, PartialEq, Eq)]
pub enum Ran {
    /// It was run.
    Now,
    /// It had been run before, and was not run again.
    Before {
        /// Whether it was the same text.
        same: bool,
    },
}

/// Runs a script unless it was run before.
///
/// # Errors
/// It failed, or it was begun before and not done.
pub fn script(script: &Script, signals: &Signals) -> Result<Ran, BackupError> {
    let text = fs::read(&script.file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BackupError::NoScript(script.file.clone()),
        _ => on("can't read", script.file.clone())(error),
    })?;
    Stop::guard(signals, |stop| run(script, &text, stop))
}

fn run(script: &Script, text: &[u8], stop: &Stop) -> Result<Ran, BackupError> {
    let tools = Tools::new(&script.server, stop)?;
    tools.server()?;
    let (name, sha256) = (mysql_text(&script.name), sha256_of(text));
    let found = tools.rows(&format!(
        "CREATE TABLE IF NOT EXISTS {TABLE} (name VARCHAR(255) NOT NULL PRIMARY KEY, sha256 CHAR(64) NOT NULL, \
         began TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, done TIMESTAMP NULL, said TEXT NULL) ENGINE=InnoDB;\n\
         SELECT sha256, done IS NOT NULL, IFNULL(said, '') FROM {TABLE} WHERE name = {name};\n"
    ))?;
    match found.first().map(Vec::as_slice) {
        None => {}
        Some([held, done, _]) if done == "1" => return Ok(Ran::Before { same: *held == sha256 }),
        Some(row) => {
            return Err(begun(&script.name, row.last().map(String::as_str).filter(|said| !said.is_empty())));
        }
    }
    // Of two at once one fails here.
    tools.rows(&format!("INSERT INTO {TABLE} (name, sha256) VALUES ({name}, '{sha256}');\n"))?;
    let ran = tools.client(script.database.as_deref(), |mut stdin| {
        stdin.write_all(text).map_err(|error| tools.client_broken(error))
    });
    match ran {
        Ok(_) => {
            tools.rows(&format!("UPDATE {TABLE} SET done = CURRENT_TIMESTAMP WHERE name = {name};\n"))?;
            Ok(Ran::Now)
        }
        Err(BackupError::Tool { said, .. }) => {
            // For whoever comes next. Where that fails, too, this one has said it.
            let text = mysql_text(&said);
            let _lost = tools.rows(&format!("UPDATE {TABLE} SET said = {text} WHERE name = {name};\n"));
            Err(begun(&script.name, Some(&said)))
        }
        Err(error) => Err(error),
    }
}

fn begun(name: &str, said: Option<&str>) -> BackupError {
    let what = said.map_or("was begun before and never done".to_owned(), |said| format!("failed: {said}"));
    let name = mysql_text(name);
    BackupError::Begun(format!(
        "the script {name} {what}. It is not run again by itself, for nobody knows how far it came: look at what it \
         did, and then either have it run anew by DELETE FROM {TABLE} WHERE name = {name}, or call it done by \
         UPDATE {TABLE} SET done = NOW() WHERE name = {name}"
    ))
}
