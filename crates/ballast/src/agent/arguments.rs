//! What can be typed behind `ballast agent` that is done once and then told.

use std::path::PathBuf;

use ballast_agent::Flavour;
use clap::{Args, Subcommand, ValueEnum};

use crate::arguments::{AgentRunArguments, LogArguments};

/// `ballast agent dump` and what goes with it.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Take a backup of a server, and read it back
    Dump(DumpArguments),
    /// Fill an empty volume from a backup, and compare what came of it with what was backed up
    Restore(RestoreArguments),
    /// Read a backup from its beginning to its end, and say whether it is whole
    VerifyBackup(VerifyArguments),
    /// Remove a backup and its manifest
    RemoveBackup(RemoveArguments),
    /// Run a script in a server exactly once
    Script(ScriptArguments),
    /// Say which version of a server this image has
    Which(WhichArguments),
}

/// A server to talk to.
#[derive(Debug, Args)]
pub struct ServerArguments {
    /// Which server
    #[arg(value_enum, value_name = "SERVER")]
    pub server: SqlServer,
    /// Where it is
    #[arg(long, value_name = "NAME", required_unless_present = "socket")]
    pub host: Option<String>,
    /// Its port
    #[arg(long, value_name = "PORT", default_value_t = 3306)]
    pub port: u16,
    /// Its socket, where it is on this machine
    #[arg(long, value_name = "FILE", conflicts_with = "host")]
    pub socket: Option<PathBuf>,
    /// The user that it knows
    #[arg(long, value_name = "NAME", default_value = "root")]
    pub user: String,
    /// The file with the password of that user
    #[arg(long, value_name = "FILE")]
    pub password_file: PathBuf,
}

/// What every one of them has.
#[derive(Debug, Args)]
pub struct MessageArguments {
    /// Where to say what came of it, as JSON
    #[arg(long, value_name = "FILE", default_value = ballast_agent::DEFAULT_LOG)]
    pub termination_log: PathBuf,
    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// `ballast agent dump`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast agent dump mariadb --host mysql-shop \\
      --password-file /secrets/root-password --to /backup

The backup is a file backup-YYYYmmdd-HHMMSS.sql.zst (UTC), which `zstd -d` reads; beside it is its manifest, with the \
rows and a digest of every table. The manifest is printed. There is no such file unless the dump came to its end and \
all of it was read back from the disk.")]
pub struct DumpArguments {
    /// Which.
    #[command(flatten)]
    pub server: ServerArguments,
    /// A database; all but the server's own where none is named
    #[arg(long = "database", value_name = "NAME")]
    pub databases: Vec<String>,
    /// The directory to put it into
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Let nobody but superusers write to the server any more: this is its last backup
    #[arg(long)]
    pub stop_writes: bool,
    /// What to say.
    #[command(flatten)]
    pub message: MessageArguments,
}

/// `ballast agent restore`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast agent restore mariadb --from /backup/backup-20260131-235959.sql.zst \\
      --volume /var/lib/mysql --superuser-password-file /secrets/root-password \\
      --database shop --user shop --user-password-file /secrets/password

It takes what `ballast agent run` takes, so that the one finds what the other made. The volume holds data only when it \
was dumped once more and is what was backed up. Done again it finds that it was done.")]
pub struct RestoreArguments {
    /// What `run` takes.
    #[command(flatten)]
    pub run: AgentRunArguments,
    /// The backup
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// What is known of it.
    #[command(flatten)]
    pub known: KnownArguments,
}

/// What is known of a backup.
#[derive(Debug, Args)]
pub struct KnownArguments {
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,
    /// The SHA-256 that its manifest must have
    #[arg(long, value_name = "HEX")]
    pub manifest_sha256: Option<String>,
}

/// `ballast agent verify-backup`
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The backup
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What is known of it.
    #[command(flatten)]
    pub known: KnownArguments,
    /// What to say.
    #[command(flatten)]
    pub message: MessageArguments,
}

/// `ballast agent remove-backup`
#[derive(Debug, Args)]
pub struct RemoveArguments {
    /// The backups' file names; what is gone already is no failure
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// The directory that they are in
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// What to say.
    #[command(flatten)]
    pub message: MessageArguments,
}

/// `ballast agent script`
#[derive(Debug, Args)]
#[command(
    after_help = "The server keeps in mysql.ballast_scripts which scripts were begun and done. One that was begun and \
not done failed or was cut off, and is not run again before a person has removed its row."
)]
pub struct ScriptArguments {
    /// Which.
    #[command(flatten)]
    pub server: ServerArguments,
    /// The database to begin in
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,
    /// The script
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// What it is known by: under one name nothing is run twice
    #[arg(long, value_name = "NAME", default_value = "init")]
    pub name: String,
    /// What to say.
    #[command(flatten)]
    pub message: MessageArguments,
}

/// `ballast agent which`
#[derive(Debug, Args)]
pub struct WhichArguments {
    /// Which server
    #[arg(value_enum, value_name = "SERVER")]
    pub server: SqlServer,
    /// What to say.
    #[command(flatten)]
    pub message: MessageArguments,
}

/// A server of which there are backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SqlServer {
    /// MariaDB
    Mariadb,
    /// MySQL
    Mysql,
}

impl From<SqlServer> for Flavour {
    fn from(server: SqlServer) -> Flavour {
        match server {
            SqlServer::Mariadb => Flavour::Mariadb,
            SqlServer::Mysql => Flavour::Mysql,
        }
    }
}
