//! What a pod's status says, read once for all operators.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodSpec};

use crate::Trouble;

/// The reason of trouble with an image that is not to be had.
pub const IMAGE_PULL_FAILED: &str = "ImagePullFailed";

/// How much of a termination message is repeated.
const LAST_WORDS: usize = 500;

/// Whether Kubernetes says that it is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether it ended for good, such as one that was evicted. It stays until someone removes it.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether it is on its way out.
pub fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The image that one of its containers is to run.
pub fn image<'p>(pod: &'p Pod, container: &str) -> Option<&'p str> {
    image_in(pod.spec.as_ref()?, container)
}

/// The image that a container is to run, in a pod's specification or a template of it.
pub fn image_in<'p>(spec: &'p PodSpec, container: &str) -> Option<&'p str> {
    spec.containers.iter().find(|known| known.name == container)?.image.as_deref()
}

/// Why it waits for a machine, where it does.
pub fn unschedulable(pod: &Pod) -> Option<String> {
    if is_ready(pod) {
        return None;
    }
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let waits = conditions.into_iter().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    Some(waits.message.clone().unwrap_or_else(|| "no machine takes them".to_owned()))
}

/// What is wrong with pods of which `container` counts. The first that fails stands for all.
pub fn trouble(pods: &[Pod], container: &str) -> Option<Trouble> {
    let failing: Vec<Trouble> = pods.iter().filter_map(|pod| trouble_of(pod, container)).collect();
    let first = failing.first()?;
    let message = format!("{} of {} pods fail: {}", failing.len(), pods.len(), first.message);
    Some(Trouble::new(first.reason, message))
}

/// What is wrong with a pod, with its name.
fn trouble_of(pod: &Pod, container: &str) -> Option<Trouble> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    // While a container that comes first fails, the one that counts waits for it and says nothing.
    let first = status.init_container_statuses.iter().flatten().find(|status| fails(status));
    let mut statuses = status.container_statuses.iter().flatten();
    let container = first.or_else(|| statuses.find(|status| status.name == container))?;
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    match reason {
        // The two take turns while the kubelet tries again; their texts too. One word for both, or the status would
        // be written at every turn.
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => {
            let image = &container.image;
            let text =
                format!("{name}: the image {image} can't be pulled; `kubectl describe pod {name}` says why");
            Some(Trouble::new(IMAGE_PULL_FAILED, text))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            let text =
                waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or("it says nothing more");
            Some(Trouble::new("ContainerNotStarted", format!("{name}: {reason}: {text}")))
        }
        _ => {
            let last = crash_loop(container)?;
            // What could not even be started has no log: its reason is all that there is.
            let text = match (last.reason.as_deref(), last.message.as_deref()) {
                (Some("StartError" | "ContainerCannotRun"), Some(message)) => {
                    format!("{name} keeps crashing: {message}")
                }
                (reason, said) => format!(
                    "{name} keeps crashing: {}, exit code {}{}; `kubectl logs -p {name}` says why",
                    reason.unwrap_or("it ended"),
                    last.exit_code,
                    said.map(last_words).unwrap_or_default()
                ),
            };
            Some(Trouble::new("CrashLoop", text))
        }
    }
}

/// Whether a container neither runs nor did what it was for.
fn fails(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.waiting.is_some())
        || ended(state).is_some_and(|ended| ended.exit_code != 0)
}

/// What a container said in its termination message, as far as it fits.
fn last_words(said: &str) -> String {
    let said: String = said.trim().chars().take(LAST_WORDS).collect();
    if said.is_empty() { said } else { format!(": {said}") }
}

/// How a container that keeps ending ended last. One that runs again and is not ready yet still counts: between two
/// crashes nothing is healed. But who ended in order may have been told to, with its machine for one: such an end counts
/// only where the next start has to wait for it.
fn crash_loop(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    if container.ready || container.restart_count == 0 {
        return None;
    }
    let state = container.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    let last = ended(state).or_else(|| ended(container.last_state.as_ref()));
    last.filter(|last| last.exit_code != 0 || waiting == Some("CrashLoopBackOff"))
}

fn ended(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state?.terminated.as_ref()
}
