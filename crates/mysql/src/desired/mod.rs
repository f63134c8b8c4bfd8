//! The objects that an instance consists of: one file each, pure builders.

pub(crate) mod agent;
mod backup;
mod claim;
mod cron_job;
mod job;
mod pod;
mod script;
mod secret;
mod service;
mod stateful_set;

use std::collections::BTreeMap;

use ballast_operator::View;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;

use crate::{APP, LABEL, ROLE};

pub(crate) use backup::{backup, is_record, record_by_hand};
pub(crate) use claim::{backup_claim, data_claim, is_opened, requested};
pub(crate) use cron_job::cron_job;
pub(crate) use job::{dump_job, look_job, remove_job, restore_job, script_job};
pub(crate) use pod::{CONTAINER, requests};
pub(crate) use script::script;
pub(crate) use secret::secret;
pub(crate) use service::service;
pub(crate) use stateful_set::{agent_image_of, flavour_of, image_of, is_upgrade, stateful_set};

/// What a pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Backup,
    Restore,
    Script,
    Removal,
    Look,
}

impl Role {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Backup => "backup",
            Role::Restore => "restore",
            Role::Script => "init",
            Role::Removal => "removal",
            Role::Look => "version",
        }
    }
}

/// The StatefulSet and the Service.
pub(crate) fn server_name(instance: &str) -> String {
    format!("mysql-{instance}")
}

/// The one pod of the StatefulSet.
pub(crate) fn server_pod(instance: &str) -> String {
    format!("mysql-{instance}-0")
}

pub(crate) fn secret_name(instance: &str) -> String {
    format!("mysql-secret-{instance}")
}

pub(crate) fn data_claim_name(instance: &str) -> String {
    format!("mysql-pvc-{instance}")
}

pub(crate) fn backup_claim_name(instance: &str) -> String {
    format!("backup-pvc-{instance}")
}

pub(crate) fn cron_job_name(instance: &str) -> String {
    format!("mysql-backup-{instance}")
}

pub(crate) fn restore_name(instance: &str) -> String {
    format!("mysql-restore-{instance}")
}

/// The Job that runs the script, and the ConfigMap that holds it.
pub(crate) fn script_name(instance: &str) -> String {
    format!("mysql-init-{instance}")
}

/// The Job that looks into the image of another version.
pub(crate) fn look_name(instance: &str) -> String {
    format!("mysql-version-{instance}")
}

/// The labels by which the objects of an instance are found, with what a pod is for.
pub(crate) fn labels(instance: &str, role: Option<Role>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("app".to_owned(), APP.to_owned()),
        (LABEL.to_owned(), instance.to_owned()),
        ("app.kubernetes.io/name".to_owned(), APP.to_owned()),
        ("app.kubernetes.io/instance".to_owned(), instance.to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), "ballast".to_owned()),
    ]);
    labels.extend(role.map(|role| (ROLE.to_owned(), role.word().to_owned())));
    labels
}

/// The labels by which the server's pod is selected. They can't change in the life of a StatefulSet.
pub(crate) fn selector(instance: &str) -> BTreeMap<String, String> {
    let all = labels(instance, Some(Role::Server));
    all.into_iter().filter(|(name, _)| ["app", LABEL, ROLE].contains(&name.as_str())).collect()
}

/// Of what the resource owns.
fn owned<R>(view: &View<R>, name: String, instance: &str, role: Option<Role>) -> ObjectMeta
where
    R: Resource<DynamicType = ()>,
{
    ObjectMeta { owner_references: Some(vec![view.owner_reference()]), ..kept(view, name, instance, role) }
}

/// Of what holds data: nobody owns it.
fn kept<R>(view: &View<R>, name: String, instance: &str, role: Option<Role>) -> ObjectMeta
where
    R: Resource<DynamicType = ()>,
{
    ObjectMeta {
        name: Some(name),
        namespace: view.namespace().map(str::to_owned),
        labels: Some(labels(instance, role)),
        ..ObjectMeta::default()
    }
}
