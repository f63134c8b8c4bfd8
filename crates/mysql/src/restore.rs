//! Whether an instance that begins with a backup has it.

use ballast_operator::{Trouble, View};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod},
};

use crate::{
    backups,
    desired::{self, agent::Source},
    flavour::{Server, Version},
    jobs::{self, Progress},
    resource::{MySQL, MySQLBackup, MySQLBackupStatus, Outcome, RestoreFrom},
    validate::Instance,
};

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Restore {
    /// The server may start: nothing was to be restored, or this was.
    Done(Option<String>),
    /// What is to be restored is not there yet.
    Waiting(Trouble),
    /// It will not be restored until somebody changes something.
    Refused(Trouble),
    /// It is to be begun, from this.
    Begin(Source),
    /// It is under way.
    Running,
    /// It failed, and is tried again; or its pod can't start.
    TriedAgain(Trouble),
}

pub(crate) fn restore(view: &View<MySQL>, instance: &Instance) -> Restore {
    let Some(from) = &instance.restore else { return Restore::Done(None) };
    let what = describe(from);
    let told = view.resource.status.as_ref().and_then(|status| status.restored_from.as_ref());
    if told.is_some() {
        return Restore::Done(Some(what));
    }
    let name = desired::restore_name(&instance.name);
    let job = view.children.get::<Job>(&name).and_then(Result::ok);
    if view.children.get::<StatefulSet>(&desired::server_name(&instance.name)).is_some() {
        // There is no server before it is done; but one may have begun empty since, where the volume was lost.
        let done = job.is_some_and(|job| jobs::progress(&job) == Progress::Complete);
        return Restore::Done(done.then_some(what));
    }
    if let Some(job) = job {
        let pods = jobs::pods(view, &name);
        return match jobs::progress(&job) {
            Progress::Running => running(view, instance, &what, &pods),
            Progress::Complete => Restore::Done(Some(what)),
            Progress::Failed => {
                let why = jobs::why_failed(&pods).or_else(|| jobs::given_up(&job));
                let why = with_remedy(instance, why.unwrap_or_else(|| "nobody said why".to_owned()));
                Restore::Refused(Trouble::new(
                    "RestoreFailed",
                    format!(
                        "{what} was not restored, and nothing of it is kept: {why}. Delete the Job {name} to have it tried again"
                    ),
                ))
            }
        };
    }
    match from {
        RestoreFrom { backup: Some(backup), .. } => of_backup(view, instance, backup),
        RestoreFrom { volume: Some(volume), .. } => {
            let claim = volume.claim_name.clone();
            match view.children.get::<PersistentVolumeClaim>(&claim) {
                None => Restore::Waiting(Trouble::new(
                    "VolumeNotFound",
                    format!("there is no PersistentVolumeClaim {claim} in this namespace to restore from"),
                )),
                Some(_) => Restore::Begin(Source {
                    claim,
                    file: volume.file.clone(),
                    sha256: volume.sha256.clone(),
                    manifest_sha256: None,
                }),
            }
        }
        RestoreFrom { .. } => Restore::Done(None),
    }
}

/// What hinders it now comes before what failed earlier.
fn running(view: &View<MySQL>, instance: &Instance, what: &str, pods: &[Pod]) -> Restore {
    if let Some(Trouble { reason, message }) = jobs::stuck(pods, view.now) {
        let name = desired::restore_name(&instance.name);
        let message = format!(
            "{what} is not restored yet: {message}. Once that is put right it goes on; for another mysqlVersion, or another \
             place, delete the Job {name}"
        );
        return Restore::TriedAgain(Trouble::new(reason, message));
    }
    jobs::why_tried_again(pods).map_or(Restore::Running, |why| {
        let why = with_remedy(instance, why);
        let message = format!("{what} was not restored, which is tried again: {why}");
        Restore::TriedAgain(Trouble::new("RestoreFailed", message))
    })
}

/// A volume that is too small for what is restored can grow.
fn with_remedy(instance: &Instance, why: String) -> String {
    if why.starts_with("VolumeFull: ") {
        return format!("{why}. Raise storageSize, which is {}", instance.size);
    }
    why
}

fn describe(from: &RestoreFrom) -> String {
    match (&from.backup, &from.volume) {
        (Some(backup), _) => format!("the MySQLBackup {backup}"),
        (None, Some(volume)) => format!("{} on the volume {}", volume.file, volume.claim_name),
        (None, None) => "nothing".to_owned(),
    }
}

fn of_backup(view: &View<MySQL>, instance: &Instance, name: &str) -> Restore {
    let status = match view.children.get::<MySQLBackup>(name) {
        Some(Ok(backup)) => backup.status.unwrap_or_default(),
        _ => {
            let message = format!("there is no MySQLBackup {name} in this namespace to restore from");
            return Restore::Waiting(Trouble::new("BackupNotFound", message));
        }
    };
    if backups::is_volume_gone(&status) {
        let message = format!("the MySQLBackup {name} can't be restored from: {}", status.message);
        return Restore::Waiting(Trouble::new("VolumeNotFound", message));
    }
    match status.outcome {
        None => {
            let message = format!("the MySQLBackup {name} is not complete yet: {}", status.message);
            Restore::Waiting(Trouble::new("BackupNotComplete", message))
        }
        Some(Outcome::Failed) => {
            let message = format!(
                "the MySQLBackup {name} is not complete and never will be: make another MySQL that restores from a \
                 complete one"
            );
            Restore::Refused(Trouble::new("BackupNotComplete", message))
        }
        Some(Outcome::Complete) => match unfit(instance, &status) {
            Some(why) => {
                Restore::Refused(Trouble::new("RestoreRefused", format!("the MySQLBackup {name} is {why}")))
            }
            None => source(&status).map_or_else(
                || {
                    Restore::Refused(Trouble::new(
                        "RestoreRefused",
                        format!("the MySQLBackup {name} names no file"),
                    ))
                },
                Restore::Begin,
            ),
        },
    }
}

/// Why a dump can't be loaded into the wanted server, as far as that is certain before anybody looked into its image: what
/// that has need not be what its tag says, and the agent refuses what is too new for it before anything is touched.
fn unfit(instance: &Instance, status: &MySQLBackupStatus) -> Option<String> {
    let wrote = Server { flavour: status.flavour?, version: Version::parse(status.version.as_deref()?)? };
    (wrote.flavour != instance.server.flavour).then(|| {
        format!(
            "of {wrote}, which {} does not take: make another MySQL with mysqlVersion {}.{} or newer",
            instance.server, wrote.version.major, wrote.version.minor
        )
    })
}

fn source(status: &MySQLBackupStatus) -> Option<Source> {
    Some(Source {
        claim: status.claim.clone()?,
        file: status.file.clone()?,
        sha256: status.sha256.clone(),
        manifest_sha256: status.manifest_sha256.clone(),
    })
}
