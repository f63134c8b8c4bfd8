//! The administrator's kubeconfig: where it is, and how long it stays.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use drydock::Drydock;
use tempfile::TempDir;

use crate::configuration::{KubeconfigFile, Place};
use crate::failure::{Advise as _, Explain as _, Failure};
use crate::{record, shell};

/// A kubeconfig on disk. One that is passing goes when this is dropped.
#[derive(Debug)]
pub struct Kubeconfig {
    /// Where it is.
    pub path: PathBuf,
    _directory: Option<TempDir>,
}

impl Kubeconfig {
    /// Finds the place for that of a cluster, where nothing is written over that somebody needs.
    ///
    /// # Errors
    /// There is something else, or no place.
    pub fn place(file: &KubeconfigFile, cluster: &Place) -> Result<Self, Failure> {
        match file {
            KubeconfigFile::At(path) => {
                check(path, cluster)?;
                Ok(Kubeconfig { path: path.clone(), _directory: None })
            }
            KubeconfigFile::Passing(under) => {
                let private = Permissions::from_mode(0o700);
                let made = tempfile::Builder::new().prefix("ballast-").permissions(private).tempdir_in(under);
                let directory = made
                    .what(format!("can't make a directory for the kubeconfig in {}", under.display()))
                    .advise("say where with --kubeconfig FILE")?;
                Ok(Kubeconfig { path: directory.path().join("kubeconfig"), _directory: Some(directory) })
            }
        }
    }

    /// Writes it, readable by its owner only.
    ///
    /// # Errors
    /// The file or its directory can't be written.
    pub fn write(&self, drydock: &Drydock) -> Result<(), Failure> {
        drydock
            .write_kubeconfig(&self.path)
            .what("can't write the kubeconfig")
            .advise("say where else with --kubeconfig FILE")
    }
}

/// A file that holds somebody's other clusters is not ours to write over, and neither is one that we can't read, or that
/// of another cluster that runs.
fn check(path: &Path, cluster: &Place) -> Result<(), Failure> {
    if let Some(other) = record::of_kubeconfig(path)
        // That it runs is said of its directory, too, and better.
        && !matches!(cluster, Place::Directory(own) if other.record.directory.as_ref() == Some(own))
    {
        let process = other.record.process;
        let what = format!("{} is the kubeconfig of a cluster that runs, process {process}", path.display());
        let stop = format!("stop that one with `ballast down --kubeconfig {}`", shell::word(path));
        return Err(Failure::new(what).advise(format!("name another file with --kubeconfig, or {stop}")));
    }
    // Where nothing can be seen, nothing is written over: whoever writes there says what is wrong.
    if !path.exists() {
        return Ok(());
    }
    let advice = "name another file with --kubeconfig, or move this one away";
    let bytes = std::fs::read(path).what(format!("can't read {}", path.display())).advise(advice)?;
    if std::str::from_utf8(&bytes).is_ok_and(is_ours) {
        return Ok(());
    }
    let what =
        format!("{} is there already, and it is no kubeconfig that `ballast up` wrote", path.display());
    Err(Failure::new(what).advise(advice))
}

fn is_ours(text: &str) -> bool {
    text.trim().is_empty()
        || kube::config::Kubeconfig::from_yaml(text).is_ok_and(|config| {
            !config.clusters.is_empty() && config.clusters.iter().all(|cluster| cluster.name == "drydock")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_up_wrote_is_written_over() {
        for (text, ours) in [
            ("", true),
            ("clusters:\n- name: drydock\n  cluster: {server: 'https://127.0.0.1:1'}\n", true),
            ("clusters:\n- name: production\n  cluster: {server: 'https://x'}\n", false),
            ("clusters: []\n", false),
            ("- a\n- list\n", false),
            ("dear diary", false),
        ] {
            assert_eq!(is_ours(text), ours, "{text}");
        }
    }
}
