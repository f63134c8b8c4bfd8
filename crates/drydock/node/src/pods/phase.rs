//! A pod's phase, from its containers.

use k8s_openapi::api::core::v1::PodSpec;

use super::observed::{Observed, Restart, Seen, State, init_containers, is_sidecar};

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Nothing of it will run again.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Whether a phase in the API is one that no pod leaves.
pub(crate) fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Whether a container ended well.
pub(crate) fn succeeded(seen: &Seen) -> bool {
    matches!(&seen.state, State::Ended(ended) if ended.code == 0)
}

/// The phase of a pod of which nothing runs or will run again.
pub(crate) fn at_last(spec: &PodSpec, observed: &Observed) -> Phase {
    let well = |seen: &Seen| seen.ended().is_some_and(|ended| ended.code == 0);
    let all = spec.containers.iter().all(|container| observed.of(&container.name).is_some_and(well));
    if all && observed.failed.is_none() { Phase::Succeeded } else { Phase::Failed }
}

/// The phase that the containers make.
pub(crate) fn of(spec: &PodSpec, observed: &Observed) -> Phase {
    if observed.failed.is_some() {
        return Phase::Failed;
    }
    let restart = Restart::of(spec);
    let mut initializing = false;
    for init in init_containers(spec) {
        let seen = observed.of(&init.name);
        if is_sidecar(init) {
            initializing |= !seen.is_some_and(|seen| seen.started || seen.ended().is_some());
        } else if !seen.is_some_and(succeeded) {
            if restart == Restart::Never && seen.is_some_and(|seen| matches!(seen.state, State::Ended(_))) {
                return Phase::Failed;
            }
            initializing = true;
        }
    }
    let (mut waiting, mut running, mut stopped, mut well) = (0, 0, 0, 0);
    for container in &spec.containers {
        match observed.of(&container.name) {
            Some(seen) if seen.is_running() && !seen.hooking => running += 1,
            Some(seen) => match seen.ended() {
                Some(ended) => {
                    stopped += 1;
                    well += usize::from(ended.code == 0);
                }
                None => waiting += 1,
            },
            None => waiting += 1,
        }
    }
    if (initializing && running + stopped == 0) || waiting > 0 {
        Phase::Pending
    } else if running > 0 {
        Phase::Running
    } else if stopped > 0 {
        match restart {
            Restart::Always => Phase::Running,
            _ if stopped == well => Phase::Succeeded,
            Restart::Never => Phase::Failed,
            Restart::OnFailure => Phase::Running,
        }
    } else {
        Phase::Pending
    }
}
