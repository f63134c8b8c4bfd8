//! What must hold of what is said about databases, at every moment at which something is said.

use ballast_mysql::{Cause, DeletionPolicy, LastWords, MySQL, MySQLBackup, Outcome};
use ballast_operator::{Object, pod};
use ballast_proving::{Prove, State};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::ResourceExt as _;

/// Holds a prover to all of them.
pub fn held(prove: Prove) -> Prove {
    prove
        .holds("Ready is evident", ready_is_evident)
        .holds("complete is proved", complete_is_proved)
        .holds("lastBackup is a backup's", last_backup_is_one)
        .holds("data is kept", data_is_kept)
        .holds("an upgrade has a way back", upgrade_has_a_way_back)
        .holds("the script ran once", script_ran_once)
        .lets_go(a_newer_one_is_left)
}

fn is_complete(backup: &MySQLBackup) -> bool {
    backup.status.as_ref().is_some_and(|status| status.outcome == Some(Outcome::Complete))
}

fn complete_of(state: &State, instance: &str) -> Vec<MySQLBackup> {
    let mut backups = state.list::<MySQLBackup>();
    backups.retain(|backup| backup.spec.instance == instance && is_complete(backup));
    backups
}

/// A server of the image that the status names is ready; and where it began with a backup, that was restored.
fn ready_is_evident(state: &State) -> Result<(), String> {
    for mysql in state.list::<MySQL>() {
        let (name, status) = (mysql.name_any(), mysql.status.clone().unwrap_or_default());
        if !status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        {
            continue;
        }
        let server: Option<Pod> = state.get(Some("default"), &format!("mysql-{name}-0"));
        let up = server.is_some_and(|found| {
            pod::is_ready(&found) && pod::image(&found, "mysql") == status.image.as_deref()
        });
        if !up {
            return Err(format!("{name} is Ready without a ready server of {:?}", status.image));
        }
        let restore: Option<Job> = state.get(Some("default"), &format!("mysql-restore-{name}"));
        let restored =
            restore.is_some_and(|job| job.status.is_some_and(|status| status.succeeded == Some(1)));
        if mysql.spec.restore_from.is_some() && !restored {
            return Err(format!("{name} is Ready, and its backup was not restored"));
        }
    }
    Ok(())
}

/// A pod said so in its last words, with that checksum.
fn complete_is_proved(state: &State) -> Result<(), String> {
    let pods: Vec<Pod> = state.list();
    for backup in state.list::<MySQLBackup>().into_iter().filter(is_complete) {
        let (name, sum) = (backup.name_any(), backup.status.and_then(|status| status.sha256));
        let sum = sum.ok_or_else(|| format!("{name} is complete and has no checksum"))?;
        let mut own = pods.iter().filter(|pod| {
            pod.metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.kind == "Job" && owner.name == name)
        });
        let said = |pod: &Pod| -> Option<LastWords> {
            let ended = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?;
            serde_json::from_str(ended.terminated.as_ref()?.message.as_deref()?).ok()
        };
        // A Job that is gone can't be asked any more.
        let gone = state.get::<Job>(Some("default"), &name).is_none();
        if !gone && !own.any(|pod| said(pod).is_some_and(|words| words.ok && words.sha256 == sum)) {
            return Err(format!("{name} is complete, and no pod says so"));
        }
    }
    Ok(())
}

fn last_backup_is_one(state: &State) -> Result<(), String> {
    for mysql in state.list::<MySQL>() {
        let Some(last) = mysql.status.as_ref().and_then(|status| status.last_backup.clone()) else {
            continue;
        };
        let complete = complete_of(state, &mysql.name_any());
        let at = |backup: &MySQLBackup| backup.status.as_ref().and_then(|status| status.completed_at.clone());
        if !complete.iter().any(|backup| at(backup).as_ref() == Some(&last)) {
            return Err(format!("there is no complete backup of {}, the lastBackup", last.0));
        }
    }
    Ok(())
}

/// A volume that a server served from stays until its policy is satisfied.
fn data_is_kept(state: &State) -> Result<(), String> {
    for mysql in state.list::<MySQL>() {
        let (name, served) = (mysql.name_any(), mysql.status.is_some_and(|status| status.version.is_some()));
        let claim: Option<PersistentVolumeClaim> = state.get(Some("default"), &format!("mysql-pvc-{name}"));
        let there = claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none());
        let last = complete_of(state, &name).iter().any(|backup| backup.spec.reason == Cause::BeforeDeletion);
        let may_go = mysql.metadata.deletion_timestamp.is_some()
            && (last || mysql.spec.deletion_policy == DeletionPolicy::Delete);
        if served && !there && !may_go {
            return Err(format!("the volume of {name} is gone or goes"));
        }
    }
    Ok(())
}

fn upgrade_has_a_way_back(state: &State) -> Result<(), String> {
    for mysql in state.list::<MySQL>() {
        let name = mysql.name_any();
        let set: Option<StatefulSet> = state.get(Some("default"), &format!("mysql-{name}"));
        let pod = set.and_then(|set| set.spec?.template.spec);
        let mut words = pod
            .iter()
            .flat_map(|pod| &pod.containers)
            .flat_map(|container| container.command.iter().flatten());
        let complete = complete_of(state, &name);
        let back = complete.iter().any(|backup| backup.spec.reason == Cause::BeforeUpgrade);
        if words.any(|word| word == "--upgrade") && !back {
            return Err(format!("{name} is upgraded, and there is no complete backup from before"));
        }
    }
    Ok(())
}

/// The script adds a row, so that a backup with two has it twice.
fn script_ran_once(state: &State) -> Result<(), String> {
    for backup in state.list::<MySQLBackup>() {
        if backup.status.as_ref().and_then(|status| status.rows).is_some_and(|rows| rows > 1) {
            return Err(format!("the script was run more than once before {}", backup.name_any()));
        }
    }
    Ok(())
}

/// A backup may go where a newer complete one of its instance is left, or where it was none.
fn a_newer_one_is_left(object: &Object, after: &State) -> bool {
    let Ok(backup) = object.read::<MySQLBackup>() else { return false };
    let at = |backup: &MySQLBackup| {
        backup.status.as_ref().and_then(|status| status.completed_at.clone()).map(|at| at.0)
    };
    !is_complete(&backup)
        || complete_of(after, &backup.spec.instance).iter().any(|left| at(left) > at(&backup))
}
