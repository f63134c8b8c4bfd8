//! What the agent is called with: every command line of every pod, and nothing else.
//!
//! **What always holds:** no password is among these words, only the names of files that hold one. What people call
//! things is one word each, joined to its option, so that a name that begins with a dash is none.

use crate::{flavour::Flavour, validate::Instance};

/// Where the volume with the data is mounted. The agent keeps a directory of its own below.
pub(crate) const DATA: &str = "/var/lib/mysql";
/// Where the volume with the backups is mounted.
pub(crate) const BACKUP: &str = "/backup";
/// Where the passwords are.
pub(crate) const SECRETS: &str = "/secrets";
/// Where the script is.
pub(crate) const SCRIPT: &str = "/script";
/// Where the agent itself is, once it is installed.
pub(crate) const PROGRAM: &str = "/ballast";
/// Where the server's socket is.
pub(crate) const RUN: &str = "/run/mysqld";

/// The key of the user's password.
pub(crate) const PASSWORD: &str = "password";
/// The key of the root user's password.
pub(crate) const ROOT_PASSWORD: &str = "root-password";
/// The name of the script's file.
pub(crate) const SCRIPT_FILE: &str = "init.sql";

/// The port that the agent beside a server answers on.
pub(crate) const PORT: u16 = 8083;

/// The code with which it ends where another try would only come to the same end.
pub(crate) const FINAL: i32 = 3;

/// Puts the agent where the other containers of the pod find it. Run by the image that has it.
pub(crate) fn install() -> Vec<String> {
    words(&["agent", "install", PROGRAM])
}

/// Runs the server. `upgrade`: data of an older series may be opened.
pub(crate) fn run(instance: &Instance, flavour: Flavour, upgrade: bool) -> Vec<String> {
    let mut words = command("run", Some(flavour));
    words.extend(on_volume(instance));
    words.push(format!("--listen=:{PORT}"));
    words.extend(upgrade.then(|| UPGRADE.to_owned()));
    words
}

/// The word that lets data of an older series be opened.
pub(crate) const UPGRADE: &str = "--upgrade";

/// Makes a backup of everything in the server, and proves it. `last`: nobody writes any more.
pub(crate) fn dump(instance: &str, flavour: Flavour, last: bool) -> Vec<String> {
    let mut words = command("dump", Some(flavour));
    words.extend(as_root(instance));
    words.push(format!("--to={BACKUP}"));
    words.extend(last.then(|| "--stop-writes".to_owned()));
    words
}

/// Verifies a backup, makes a volume's data from it, and proves that.
pub(crate) fn restore(instance: &Instance, source: &Source) -> Vec<String> {
    let mut words = command("restore", Some(instance.server.flavour));
    words.push(format!("--from={BACKUP}/{}", source.file));
    words.extend(source.sha256.iter().map(|sum| format!("--sha256={sum}")));
    words.extend(source.manifest_sha256.iter().map(|sum| format!("--manifest-sha256={sum}")));
    words.extend(on_volume(instance));
    words
}

/// What is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The claim of the volume.
    pub(crate) claim: String,
    /// The file on it.
    pub(crate) file: String,
    pub(crate) sha256: Option<String>,
    pub(crate) manifest_sha256: Option<String>,
}

/// Runs the script, once for each `id`, whatever happens.
pub(crate) fn script(instance: &Instance, id: &str) -> Vec<String> {
    let mut words = command("script", Some(instance.server.flavour));
    words.extend(as_root(&instance.name));
    words.push(format!("--database={}", literal(&instance.database)));
    words.extend([format!("--file={SCRIPT}/{SCRIPT_FILE}"), format!("--name={id}")]);
    words
}

/// Says which server there is in the image, and does nothing with it.
pub(crate) fn which(flavour: Flavour) -> Vec<String> {
    command("which", Some(flavour))
}

/// Removes a backup's file and its manifest.
pub(crate) fn remove(file: &str) -> Vec<String> {
    let mut words = command("remove-backup", None);
    words.extend([format!("--from={BACKUP}"), "--".to_owned(), file.to_owned()]);
    words
}

fn command(verb: &str, flavour: Option<Flavour>) -> Vec<String> {
    let program = format!("{PROGRAM}/ballast");
    let flavour = flavour.map(|flavour| flavour.traits().word);
    words(&[&program, "agent", verb]).into_iter().chain(flavour.map(str::to_owned)).collect()
}

fn on_volume(instance: &Instance) -> [String; 5] {
    [
        format!("--volume={DATA}"),
        format!("--superuser-password-file={SECRETS}/{ROOT_PASSWORD}"),
        format!("--database={}", literal(&instance.database)),
        format!("--user={}", literal(&instance.user)),
        format!("--user-password-file={SECRETS}/{PASSWORD}"),
    ]
}

/// A name as it reaches the agent: Kubernetes puts variables in the place of `$(NAME)`, and a dollar in that of two.
fn literal(name: &str) -> String {
    name.replace('$', "$$")
}

fn as_root(instance: &str) -> [String; 3] {
    [
        format!("--host={}", super::server_name(instance)),
        "--user=root".to_owned(),
        format!("--password-file={SECRETS}/{ROOT_PASSWORD}"),
    ]
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|&word| word.to_owned()).collect()
}
