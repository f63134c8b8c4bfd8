//! A pod's status, as the API shows it.

use drydock_images::Reference;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus, VolumeMount, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::observed::{
    Ended, Failure, Observed, Sandbox, Seen, State, ephemeral_containers, init_containers, is_sidecar,
};
use super::phase::{self, Phase};
use super::quality;

/// The conditions that the node keeps; those of others are left alone.
const DISRUPTED: &str = "DisruptionTarget";
const SCHEDULED: &str = "PodScheduled";
const SANDBOX: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const CONTAINERS: &str = "ContainersReady";
const READY: &str = "Ready";

/// What the status says now.
pub(crate) fn of(pod: &Pod, observed: &Observed, host_ip: &str, now: Timestamp) -> PodStatus {
    let fresh = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&fresh);
    let old = pod.status.clone().unwrap_or_default();
    let computed = match phase::of(spec, observed) {
        // Of one that is deleted nothing is started again.
        Phase::Running if pod.metadata.deletion_timestamp.is_some() && observed.cleared => {
            phase::at_last(spec, observed)
        }
        phase => phase,
    };
    let phase = match old.phase.as_deref() {
        // No pod leaves a phase that is final, whoever set it.
        Some("Failed") => Phase::Failed,
        Some("Succeeded") => Phase::Succeeded,
        _ => computed,
    };
    // Whoever hears that a pod is over begins another in its place: not while something of it still runs.
    let held = phase.is_over()
        && !old.phase.as_deref().is_some_and(phase::is_final)
        && observed.containers.values().any(Seen::is_running);
    let init: Vec<ContainerStatus> = init_containers(spec)
        .iter()
        .map(|container| container_status(container, observed, true, is_sidecar(container)))
        .collect();
    let mut mains: Vec<ContainerStatus> = spec
        .containers
        .iter()
        .map(|container| container_status(container, observed, !init.is_empty(), true))
        .collect();
    let mut ephemeral: Vec<ContainerStatus> = ephemeral_containers(spec)
        .iter()
        .map(|container| ContainerStatus {
            // Nobody asks whether they are.
            ready: false,
            started: None,
            ..container_status(container, observed, !init.is_empty(), true)
        })
        .collect();
    ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    let failed = observed.failed.as_ref().filter(|_| !held);
    let (reason, message) = match failed {
        Some(failure) => (Some(failure.reason.to_owned()), Some(failure.message.clone())),
        None => (old.reason.clone(), old.message.clone()),
    };
    let pod_ip = match observed.sandbox {
        Sandbox::Up(address) => Some(address.to_string()),
        // A pod that ended keeps showing the address that it had.
        Sandbox::None | Sandbox::Gone => {
            let had = observed.address.map(|address| address.to_string()).or_else(|| old.pod_ip.clone());
            had.filter(|_| phase.is_over() || observed.cleared)
        }
    };
    let disrupted = failed.filter(|failure| failure.is_disruption());
    let conditions = conditions(pod, spec, observed, phase, disrupted, [&mains, &init], now);
    mains.sort_by(|a, b| a.name.cmp(&b.name));
    PodStatus {
        phase: old.phase.filter(|_| held).or_else(|| Some(phase.name().to_owned())),
        reason,
        message,
        conditions: Some(conditions),
        host_ip: Some(host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: host_ip.to_owned() }]),
        pod_ips: pod_ip.as_ref().map(|ip| vec![PodIP { ip: ip.clone() }]),
        pod_ip,
        start_time: old.start_time.or(observed.seen.map(time)),
        qos_class: Some(old.qos_class.unwrap_or_else(|| quality::of(spec).name().to_owned())),
        init_container_statuses: Some(init).filter(|list| !list.is_empty()),
        container_statuses: Some(mains),
        ephemeral_container_statuses: Some(ephemeral).filter(|list| !list.is_empty()),
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    }
}

/// A time as the API keeps it: whole seconds.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(
        at.round(jiff::TimestampRound::new().smallest(jiff::Unit::Second).mode(jiff::RoundMode::Floor))
            .unwrap_or(at),
    )
}

fn container_status(
    container: &Container,
    observed: &Observed,
    has_init: bool,
    probed: bool,
) -> ContainerStatus {
    let fresh = Seen::default();
    let seen = observed.of(&container.name).unwrap_or(&fresh);
    let image = container.image.clone().unwrap_or_default();
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: if seen.asked.is_empty() { image } else { whole(&seen.asked) },
        image_id: seen.image_id.clone(),
        restart_count: seen.restarts,
        started: Some(false),
        ..ContainerStatus::default()
    };
    let mut state = ContainerState::default();
    match if seen.hooking { &State::New } else { &seen.state } {
        State::New => {
            let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
            state.waiting = Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message: None });
        }
        State::Waiting { reason, message } => {
            let message = Some(message.clone()).filter(|message| !message.is_empty());
            state.waiting = Some(ContainerStateWaiting { reason: Some(reason.clone()), message });
        }
        State::Running { id, since } => {
            state.running = Some(ContainerStateRunning { started_at: Some(time(*since)) });
            status.container_id = Some(id.clone());
            status.started = Some(seen.started);
            status.ready = probed && seen.started && seen.ready;
        }
        State::Ended(ended) => {
            state.terminated = Some(terminated(ended));
            status.container_id = Some(ended.id.clone());
            // What only prepares is ready when it is done.
            status.ready = !probed && ended.code == 0;
        }
    }
    status.state = Some(state);
    if let Some(last) = &seen.last {
        status.last_state =
            Some(ContainerState { terminated: Some(terminated(last)), ..ContainerState::default() });
        status.container_id = status.container_id.or_else(|| Some(last.id.clone()));
    }
    // What was never made has none of it.
    if status.container_id.is_some() {
        let resources = container.resources.clone().unwrap_or_default();
        status.allocated_resources = resources.requests.clone();
        status.resources = Some(resources);
        status.volume_mounts =
            container.volume_mounts.as_ref().map(|list| list.iter().map(mounted).collect());
    }
    status
}

/// An image's name as a container runtime says it, with its registry.
fn whole(image: &str) -> String {
    let Ok(reference) = Reference::parse(image) else { return image.to_owned() };
    if reference.digest().is_some() { reference.to_string() } else { reference.tagged() }
}

fn mounted(mount: &VolumeMount) -> VolumeMountStatus {
    let read_only = mount.read_only.filter(|read_only| *read_only);
    VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only,
        recursive_read_only: read_only.map(|_| "Disabled".to_owned()),
    }
}

fn terminated(ended: &Ended) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(ended.id.clone()),
        exit_code: ended.code,
        finished_at: Some(time(ended.finished)),
        message: Some(ended.message.clone()).filter(|message| !message.is_empty()),
        reason: Some(ended.reason.clone()),
        signal: None,
        started_at: Some(time(ended.started)),
    }
}

/// A condition without its time.
struct Said {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

fn conditions(
    pod: &Pod,
    spec: &PodSpec,
    observed: &Observed,
    phase: Phase,
    disrupted: Option<&Failure>,
    [mains, init]: [&[ContainerStatus]; 2],
    now: Timestamp,
) -> Vec<PodCondition> {
    let waiting: Vec<&str> = init
        .iter()
        .zip(init_containers(spec))
        .filter(
            |(status, container)| {
                if is_sidecar(container) { status.started != Some(true) } else { !status.ready }
            },
        )
        .map(|(status, _)| status.name.as_str())
        .collect();
    let unready: Vec<&str> =
        mains.iter().filter(|status| !status.ready).map(|status| status.name.as_str()).collect();
    let completed = phase == Phase::Succeeded;
    let said = |kind, holds, reason, message| Said { kind, holds, reason, message };
    let yes = |kind| said(kind, true, None, None);
    let initialized = if completed {
        said(INITIALIZED, true, Some("PodCompleted"), None)
    } else if waiting.is_empty() || mains.iter().any(|status| status.container_id.is_some()) {
        yes(INITIALIZED)
    } else {
        let message = format!("containers with incomplete status: [{}]", waiting.join(" "));
        said(INITIALIZED, false, Some("ContainersNotInitialized"), Some(message))
    };
    let containers = match phase {
        Phase::Succeeded => said(CONTAINERS, false, Some("PodCompleted"), None),
        Phase::Failed => said(CONTAINERS, false, Some("PodFailed"), None),
        _ if unready.is_empty() => yes(CONTAINERS),
        _ => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            said(CONTAINERS, false, Some("ContainersNotReady"), Some(message))
        }
    };
    let old = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let gates = gates(spec, old);
    let ready = match &gates {
        Some(message) if containers.holds => {
            said(READY, false, Some("ReadinessGatesNotReady"), Some(message.clone()))
        }
        _ => said(READY, containers.holds, containers.reason, containers.message.clone()),
    };
    let sandbox = said(SANDBOX, matches!(observed.sandbox, Sandbox::Up(_)), None, None);
    let disrupted = disrupted
        .map(|failure| said(DISRUPTED, true, Some("TerminationByKubelet"), Some(failure.message.clone())));
    [sandbox, initialized, ready, containers, yes(SCHEDULED)]
        .into_iter()
        .chain(disrupted)
        .map(|said| {
            let status = if said.holds { "True" } else { "False" };
            let before = old.iter().find(|condition| condition.type_ == said.kind);
            let since = before
                .filter(|condition| condition.status == status)
                .and_then(|c| c.last_transition_time.clone());
            PodCondition {
                type_: said.kind.to_owned(),
                status: status.to_owned(),
                reason: said.reason.map(str::to_owned),
                message: said.message,
                last_transition_time: Some(since.unwrap_or_else(|| time(now))),
                last_probe_time: None,
                observed_generation: pod.metadata.generation,
            }
        })
        .collect()
}

/// Why the conditions that others must set keep the pod from being ready.
fn gates(spec: &PodSpec, conditions: &[PodCondition]) -> Option<String> {
    let gates = spec.readiness_gates.as_deref().unwrap_or_default();
    let closed: Vec<String> = gates
        .iter()
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match conditions.iter().find(|condition| condition.type_ == *kind) {
                None => {
                    Some(format!("corresponding condition of pod readiness gate {kind:?} does not exist."))
                }
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    (!closed.is_empty()).then(|| closed.join(", "))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
