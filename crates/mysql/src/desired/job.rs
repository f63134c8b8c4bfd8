//! The Jobs: to restore, to configure, to look into an image, to make a backup, to remove one.

use ballast_operator::View;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
};
use kube_core::Resource;

use super::{
    CONTAINER, Role,
    agent::{self, Source},
    backup_claim_name,
    claim::made_for,
    data_claim_name, look_name, owned,
    pod::{Mount, Shape, requests, template},
    restore_name, script_name,
};
use crate::{
    flavour::Flavour,
    resource::{MySQL, MySQLBackup},
    validate::{Instance, Placement},
};

/// How often what failed is tried again before somebody has to look. What the agent does is whole or not at all, so
/// another try never makes it worse.
const TRIES: i32 = 2;

/// Makes the data of an instance from a backup, before there is a server.
pub(crate) fn restore_job(
    view: &View<MySQL>,
    instance: &Instance,
    agent_image: &str,
    source: &Source,
) -> Job {
    let mounts = vec![
        Mount::Claim { path: agent::BACKUP, claim: source.claim.clone(), read_only: true },
        Mount::Claim { path: agent::DATA, claim: data_claim_name(&instance.name), read_only: false },
    ];
    let shape = Shape {
        instance: &instance.name,
        role: Role::Restore,
        image: &instance.image,
        agent_image,
        command: agent::restore(instance, source),
        secrets: &[agent::PASSWORD, agent::ROOT_PASSWORD],
        mounts,
        placement: &instance.placement,
        resources: instance.resources.clone(),
    };
    job(view, restore_name(&instance.name), shape)
}

/// Runs the script, once in the life of the volume, whoever takes it up later.
pub(crate) fn script_job(
    view: &View<MySQL>,
    instance: &Instance,
    agent_image: &str,
    image: &str,
    (config_map, key): (String, String),
) -> Job {
    let id = made_for(view, &data_claim_name(&instance.name));
    let shape = Shape {
        instance: &instance.name,
        role: Role::Script,
        image,
        agent_image,
        command: agent::script(instance, &id),
        secrets: &[agent::ROOT_PASSWORD],
        mounts: vec![Mount::Script { config_map, key }],
        placement: &instance.placement,
        resources: requests("100m", "128Mi"),
    };
    job(view, script_name(&instance.name), shape)
}

/// Says which server the wanted image has.
pub(crate) fn look_job(view: &View<MySQL>, instance: &Instance, agent_image: &str) -> Job {
    let shape = Shape {
        instance: &instance.name,
        role: Role::Look,
        image: &instance.image,
        agent_image,
        command: agent::which(instance.server.flavour),
        secrets: &[],
        mounts: Vec::new(),
        placement: &instance.placement,
        resources: requests("100m", "128Mi"),
    };
    job(view, look_name(&instance.name), shape)
}

/// What a Job that makes a backup looks like, whoever makes it.
pub(crate) fn dump_spec(
    instance: &str,
    agent_image: &str,
    (flavour, image): (Flavour, &str),
    placement: &Placement,
    deadline: Option<i64>,
    last: bool,
) -> JobSpec {
    let claim = backup_claim_name(instance);
    let shape = Shape {
        instance,
        role: Role::Backup,
        image,
        agent_image,
        command: agent::dump(instance, flavour, last),
        secrets: &[agent::ROOT_PASSWORD],
        mounts: vec![Mount::Claim { path: agent::BACKUP, claim, read_only: false }],
        placement,
        resources: requests("100m", "128Mi"),
    };
    spec(shape, deadline)
}

/// Makes the backup of a MySQLBackup. `last`: what clients are told is written is in it, for nobody writes any more.
pub(crate) fn dump_job(
    view: &View<MySQLBackup>,
    agent_image: &str,
    server: (Flavour, &str),
    placement: &Placement,
    deadline: Option<i64>,
    last: bool,
) -> Job {
    let instance = view.resource.spec.instance.as_str();
    Job {
        metadata: owned(view, view.name().to_owned(), instance, Some(Role::Backup)),
        spec: Some(dump_spec(instance, agent_image, server, placement, deadline, last)),
        status: None,
    }
}

/// Removes the file of a MySQLBackup that goes. Only the agent is needed for that.
pub(crate) fn remove_job(
    view: &View<MySQLBackup>,
    name: String,
    agent_image: &str,
    claim: &str,
    file: &str,
) -> Job {
    let instance = view.resource.spec.instance.as_str();
    let shape = Shape {
        instance,
        role: Role::Removal,
        image: agent_image,
        agent_image,
        command: agent::remove(file),
        secrets: &[],
        mounts: vec![Mount::Claim { path: agent::BACKUP, claim: claim.to_owned(), read_only: false }],
        placement: &Placement::default(),
        resources: requests("100m", "128Mi"),
    };
    Job {
        metadata: owned(view, name, instance, Some(Role::Removal)),
        spec: Some(spec(shape, None)),
        status: None,
    }
}

fn job<R: Resource<DynamicType = ()>>(view: &View<R>, name: String, shape: Shape<'_>) -> Job {
    Job {
        metadata: owned(view, name, shape.instance, Some(shape.role)),
        spec: Some(spec(shape, None)),
        status: None,
    }
}

/// What the agent says is final is said at once, and not after it was tried again.
fn no_use_to_try() -> PodFailurePolicy {
    let code = PodFailurePolicyOnExitCodesRequirement {
        container_name: Some(CONTAINER.to_owned()),
        operator: "In".to_owned(),
        values: vec![agent::FINAL],
    };
    let action = "FailJob".to_owned();
    PodFailurePolicy {
        rules: vec![PodFailurePolicyRule { action, on_exit_codes: Some(code), on_pod_conditions: None }],
    }
}

fn spec(shape: Shape<'_>, deadline: Option<i64>) -> JobSpec {
    JobSpec {
        backoff_limit: Some(TRIES),
        active_deadline_seconds: deadline,
        pod_failure_policy: Some(no_use_to_try()),
        template: template(shape, |_, pod| pod.restart_policy = Some("Never".to_owned())),
        ..JobSpec::default()
    }
}
