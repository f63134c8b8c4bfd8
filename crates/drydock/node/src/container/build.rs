//! The sandbox's configuration of a container.

use std::path::{Path, PathBuf};

use drydock_images::{Config, Resolved};
use drydock_sandbox::{Capabilities, ContainerConfig, Limits, Mount, MountKind};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::ConfigError;
use super::environment::{self, Sources};
use super::expand::expand;
use super::fields::Place;
use super::user::{self, UserError};
use crate::pods::observed::{init_containers, is_sidecar};
use crate::pods::quality;
use crate::quantity;
use crate::volumes::Prepared;

const TERMINATION_LOG: &str = "/dev/termination-log";

/// Everything a container is made from.
pub(crate) struct Materials<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub image: &'a Resolved,
    pub place: &'a Place,
    pub sources: &'a Sources,
    pub volumes: &'a Prepared,
    pub id: String,
    /// Whose processes it is among.
    pub beside: Option<String>,
    pub note: String,
    pub log: PathBuf,
    /// The file that the container's last words go to.
    pub termination_log: PathBuf,
    /// The pod's hosts file.
    pub hosts: PathBuf,
    pub machine_memory: u64,
    pub max_processes: u64,
}

/// Why a container can't be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub reason: &'static str,
    pub message: String,
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Self {
        Self { reason: "CreateContainerConfigError", message: error.0 }
    }
}

impl From<UserError> for Refused {
    fn from(error: UserError) -> Self {
        match error {
            UserError::Forbidden(error) => error.into(),
            UserError::Unknown(message) => Self { reason: "CreateContainerError", message },
        }
    }
}

/// Builds it.
pub(crate) fn build(materials: Materials<'_>) -> Result<ContainerConfig, Refused> {
    let Materials { pod, container, image, place, sources, volumes, .. } = &materials;
    let fresh = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&fresh);
    let own = environment::of(pod, container, place, sources)?;
    let context = container.security_context.as_ref();
    let user = user::of(pod, container, &image.config.user, &image.tree)?;
    let privileged = context.and_then(|context| context.privileged) == Some(true);
    let args = arguments(container, &image.config, &own);
    if args.is_empty() {
        return Err(Refused { reason: "CreateContainerError", message: "no command specified".to_owned() });
    }
    let mut mounts = vec![bind(Path::new("/etc/hosts"), &materials.hosts, false)];
    let words = container.termination_message_path.as_deref().unwrap_or(TERMINATION_LOG);
    mounts.push(bind(Path::new(words), &materials.termination_log, false));
    mounts.extend(volumes.mounts(container, &own)?);
    Ok(ContainerConfig {
        id: materials.id.clone(),
        rootfs: image.tree.clone(),
        read_only_root: context.and_then(|context| context.read_only_root_filesystem) == Some(true),
        mounts,
        args,
        env: environment(&image.config, own, pod),
        cwd: container
            .working_dir
            .clone()
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| image.config.working_dir.clone()),
        user,
        capabilities: capabilities(container),
        no_new_privileges: context.and_then(|context| context.allow_privilege_escalation) == Some(false),
        privileged,
        rlimits: Vec::new(),
        limits: limits(container, materials.max_processes),
        oom_score_adj: Some(quality::oom_score(spec, container, materials.machine_memory)),
        log: Some(materials.log.clone()),
        tty: container.tty == Some(true),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        beside: materials.beside.clone(),
        note: materials.note.clone(),
    })
}

pub(crate) fn bind(destination: &Path, source: &Path, read_only: bool) -> Mount {
    Mount {
        destination: destination.to_owned(),
        what: MountKind::Bind { source: source.to_owned(), read_only },
    }
}

/// A pod's command takes the place of the image's entrypoint and command; its args that of the command.
fn arguments(container: &Container, image: &Config, env: &[(String, String)]) -> Vec<String> {
    let value = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let expanded = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|text| expand(text, &value)).collect()
    };
    let (command, args) = (expanded(&container.command), expanded(&container.args));
    match (command.is_empty(), args.is_empty()) {
        (false, _) => [command, args].concat(),
        (true, false) => [image.entrypoint.clone(), args].concat(),
        (true, true) => [image.entrypoint.clone(), image.command.clone()].concat(),
    }
}

/// The image's variables, the pod's over them, and the name of the host.
fn environment(image: &Config, own: Vec<(String, String)>, pod: &Pod) -> Vec<(String, String)> {
    let from_image = image.env.iter().filter_map(|text| text.split_once('='));
    let mut all: Vec<(String, String)> = from_image
        .filter(|(name, _)| !own.iter().any(|(known, _)| known == name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    all.extend(own);
    if !all.iter().any(|(name, _)| name == "HOSTNAME") {
        all.push(("HOSTNAME".to_owned(), super::naming::hostname(pod)));
    }
    all
}

fn capabilities(container: &Container) -> Capabilities {
    let Some(wish) = container.security_context.as_ref().and_then(|context| context.capabilities.as_ref())
    else {
        return Capabilities::default();
    };
    let (drop, add) = (wish.drop.iter().flatten(), wish.add.iter().flatten());
    let less = drop.fold(Capabilities::default(), |set, name| set.without(name));
    add.fold(less, |set, name| set.with(name))
}

fn limits(container: &Container, max_processes: u64) -> Limits {
    let resources = container.resources.as_ref();
    let limit = |name: &str| resources.and_then(|resources| resources.limits.as_ref()?.get(name));
    let request = |name: &str| resources.and_then(|resources| resources.requests.as_ref()?.get(name));
    Limits {
        memory: limit("memory").and_then(quantity::units),
        cpu_millis: limit("cpu").and_then(quantity::millis),
        // Who asks for nothing gets what is left by those who do.
        cpu_request_millis: request("cpu").or_else(|| limit("cpu")).and_then(quantity::millis).or(Some(0)),
        pids: Some(max_processes),
    }
}

/// Limits of a pod as a whole: it asks for what its containers do together, or one before them if that is more.
pub(crate) fn pod_limits(spec: &PodSpec, max_processes: u64) -> Limits {
    let request = |container: &Container| limits(container, 0).cpu_request_millis.unwrap_or(0);
    let (mut sidecars, mut most) = (0u64, 0);
    for container in init_containers(spec) {
        let with_it = sidecars.saturating_add(request(container));
        most = most.max(with_it);
        if is_sidecar(container) {
            sidecars = with_it;
        }
    }
    let together = spec.containers.iter().map(request).fold(sidecars, u64::saturating_add);
    Limits { cpu_request_millis: Some(most.max(together)), pids: Some(max_processes), ..Limits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(container: Value, expected: &[&str]) {
        let mut container = container;
        container["name"] = json!("c");
        let container: Container = serde_json::from_value(container).unwrap();
        let image = Config {
            entrypoint: vec!["/entry".to_owned()],
            command: vec!["default".to_owned()],
            ..Config::default()
        };
        assert_eq!(arguments(&container, &image, &[("A".to_owned(), "1".to_owned())]), expected);
    }

    #[test]
    fn the_pods_command_and_args_take_the_place_of_the_images() {
        check(json!({}), &["/entry", "default"]);
        check(json!({"args": ["x"]}), &["/entry", "x"]);
        check(json!({"command": ["c"]}), &["c"]);
        check(json!({"command": ["c"], "args": ["$(A)", "$(B)"]}), &["c", "1", "$(B)"]);
    }

    #[test]
    fn who_asks_for_no_processors_has_the_least_share() {
        let check = |resources: Value, expected: u64| {
            let container = json!({"name": "c", "resources": resources});
            let limits = limits(&serde_json::from_value(container).unwrap(), 7);
            assert_eq!(limits.cpu_request_millis, Some(expected), "{resources}");
        };
        check(json!({}), 0);
        check(json!({"requests": {"memory": "1Gi"}}), 0);
        check(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}), 100);
        check(json!({"limits": {"cpu": "1"}}), 1000);
    }

    #[test]
    fn a_pod_asks_for_what_runs_at_once() {
        let container = |cpu: &str, policy: Value| json!({"name": "c", "restartPolicy": policy, "resources": {"requests": {"cpu": cpu}}});
        let check = |before: Value, expected: u64| {
            let mains =
                json!([container("100m", Value::Null), container("200m", Value::Null), {"name": "c"}]);
            let spec = json!({"initContainers": before, "containers": mains});
            let limits = pod_limits(&serde_json::from_value(spec).unwrap(), 7);
            assert_eq!((limits.cpu_request_millis, limits.pids), (Some(expected), Some(7)), "{before}");
        };
        let (first, sidecar) = (|cpu| container(cpu, Value::Null), |cpu| container(cpu, json!("Always")));
        check(json!([]), 300);
        check(json!([first("200m"), first("50m")]), 300);
        check(json!([first("500m")]), 500);
        check(json!([sidecar("50m"), first("200m")]), 350);
        check(json!([sidecar("50m"), first("400m"), sidecar("10m")]), 450);
    }

    #[test]
    fn capabilities_are_dropped_before_others_are_added() {
        let container = json!({"name": "c", "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}});
        let container: Container = serde_json::from_value(container).unwrap();
        assert_eq!(capabilities(&container), Capabilities::NONE.with("NET_ADMIN"));
    }
}
