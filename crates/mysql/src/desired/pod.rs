//! What all pods of an instance have in common: the agent, the passwords, the volumes, who they run as.

use ballast_operator::resources::Resources;
use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, KeyToPath,
        PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec,
        ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{Role, agent, labels, secret_name};
use crate::validate::Placement;

/// The container that counts, in every pod.
pub(crate) const CONTAINER: &str = "mysql";
/// The container that copies the agent into a pod.
pub(crate) const INSTALLER: &str = "install";
/// The name of the server's port.
pub(crate) const PORT_NAME: &str = "mysql";
/// The port that the server listens on.
pub(crate) const PORT: i32 = 3306;

/// The user of the official images, of both.
const USER: i64 = 999;

/// For the user alone: passwords.
const PRIVATE: i32 = 0o440;

/// What differs between pods.
pub(crate) struct Shape<'s> {
    pub(crate) instance: &'s str,
    pub(crate) role: Role,
    /// The image that has the server and its tools.
    pub(crate) image: &'s str,
    /// The image that has the agent.
    pub(crate) agent_image: &'s str,
    pub(crate) command: Vec<String>,
    /// The passwords that are needed.
    pub(crate) secrets: &'static [&'static str],
    /// The volumes that are mounted.
    pub(crate) mounts: Vec<Mount>,
    pub(crate) placement: &'s Placement,
    pub(crate) resources: ResourceRequirements,
}

/// A volume at its place.
pub(crate) enum Mount {
    Claim { path: &'static str, claim: String, read_only: bool },
    Script { config_map: String, key: String },
}

/// A pod that runs the agent in the server's image. `adjust` adds to the container what only this one has.
pub(crate) fn template(
    shape: Shape<'_>,
    adjust: impl FnOnce(&mut Container, &mut PodSpec),
) -> PodTemplateSpec {
    let mut volumes = vec![empty("ballast"), empty("run"), empty("tmp")];
    let mut mounts =
        vec![at("ballast", agent::PROGRAM, true), at("run", agent::RUN, false), at("tmp", "/tmp", false)];
    if !shape.secrets.is_empty() {
        volumes.push(passwords(shape.instance, shape.secrets));
        mounts.push(at("secrets", agent::SECRETS, true));
    }
    for (place, mount) in shape.mounts.into_iter().enumerate() {
        let name = format!("volume-{place}");
        let (volume, path, read_only) = mounted(&name, mount);
        volumes.push(volume);
        mounts.push(at(&name, path, read_only));
    }
    let mut container = Container {
        name: CONTAINER.to_owned(),
        image: Some(shape.image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(shape.command),
        volume_mounts: Some(mounts),
        resources: Some(shape.resources).filter(|resources| *resources != ResourceRequirements::default()),
        security_context: Some(unprivileged()),
        ..Container::default()
    };
    let Placement { node_selector, tolerations, affinity, priority_class_name } = shape.placement.clone();
    let mut pod = PodSpec {
        // Nothing in here has anything to say to the API server.
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        init_containers: Some(vec![installer(shape.agent_image)]),
        volumes: Some(volumes),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            // A large volume is not gone through file by file at each start.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        node_selector,
        tolerations,
        affinity,
        priority_class_name,
        ..PodSpec::default()
    };
    adjust(&mut container, &mut pod);
    pod.containers = vec![container];
    let labels = labels(shape.instance, Some(shape.role));
    // What `kubectl logs` and `kubectl exec` mean without being told.
    let annotations = [("kubectl.kubernetes.io/default-container".to_owned(), CONTAINER.to_owned())].into();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod),
    }
}

/// Copies the agent into the pod: the server's image need not have it.
fn installer(image: &str) -> Container {
    Container {
        name: INSTALLER.to_owned(),
        image: Some(image.to_owned()),
        // It may be on the machines and nowhere else.
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(agent::install()),
        volume_mounts: Some(vec![at("ballast", agent::PROGRAM, false)]),
        resources: Some(requests("10m", "32Mi")),
        security_context: Some(unprivileged()),
        ..Container::default()
    }
}

fn unprivileged() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        // What is written is on a volume: the data, the socket, what is temporary.
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        ..SecurityContext::default()
    }
}

/// What a pod is sure to get. No limit: one that is too low ends it in the middle of what it does.
pub(crate) fn requests(cpu: &str, memory: &str) -> ResourceRequirements {
    Resources { requests: Resources::of(&[("cpu", cpu), ("memory", memory)], &[]).requests, limits: None }
        .into()
}

fn at(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn empty(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

fn passwords(instance: &str, keys: &[&str]) -> Volume {
    Volume {
        name: "secrets".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret_name(instance)),
            default_mode: Some(PRIVATE),
            items: Some(keys.iter().map(|key| file(key, key)).collect()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn file(key: &str, path: &str) -> KeyToPath {
    KeyToPath { key: key.to_owned(), path: path.to_owned(), mode: None }
}

fn mounted(name: &str, mount: Mount) -> (Volume, &'static str, bool) {
    let volume = Volume { name: name.to_owned(), ..Volume::default() };
    match mount {
        Mount::Claim { path, claim, read_only } => {
            let source =
                PersistentVolumeClaimVolumeSource { claim_name: claim, read_only: read_only.then_some(true) };
            (Volume { persistent_volume_claim: Some(source), ..volume }, path, read_only)
        }
        Mount::Script { config_map, key } => {
            let source = ConfigMapVolumeSource {
                name: config_map,
                items: Some(vec![file(&key, agent::SCRIPT_FILE)]),
                // A pod that waits for a ConfigMap waits in silence. The agent says what is not there.
                optional: Some(true),
                ..ConfigMapVolumeSource::default()
            };
            (Volume { config_map: Some(source), ..volume }, agent::SCRIPT, true)
        }
    }
}
