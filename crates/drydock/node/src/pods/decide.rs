//! What to do next about a pod. A function of the pod, what the node knows of it, and the time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::backoff;
use super::observed::{
    Failure, ImageState, Observed, Restart, Sandbox, Seen, State, ephemeral_containers, full_name,
    init_containers, is_sidecar,
};
use super::phase;

/// How long a container has to end by itself where nothing is said; Kubernetes' default.
const GRACE: i64 = 30;
/// What a pod still gets that was taken from the API without being asked to end.
const FORCED: i64 = 2;
/// What a pod still gets that has taken more than it may, as with a kubelet.
const EVICTED: i64 = 1;
/// What a container still gets whose turn to end comes when the pod's time is over, as with a kubelet.
const LEAST: i64 = 2;
/// When at last a pod's containers have ended, after its time is over: a hook may have taken all of it, and who waited
/// for that container is then asked to end in the same way, each of them with a little time for its hook and for itself.
pub(crate) const LATEST: Duration = Duration::from_secs(3 * LEAST.unsigned_abs());
/// Pulling again waits this long, doubling.
const PULL_FIRST: SignedDuration = SignedDuration::from_secs(10);
const PULL_LONGEST: SignedDuration = SignedDuration::from_secs(300);
/// How long the failure itself is shown before the waiting for the next attempt is.
const PULL_SHOWN: SignedDuration = SignedDuration::from_secs(2);

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Bring the pod's volumes about.
    PrepareVolumes,
    /// Make the pod's namespaces; whatever is left of earlier ones goes first.
    MakeSandbox,
    /// Have a container's image.
    Pull(String),
    /// Start a container.
    Start(String),
    /// Show that a container waits.
    Hold { container: String, reason: &'static str, message: String },
    /// End a container.
    Stop { container: String, grace: i64, why: Stopping },
    /// End the pod.
    Fail(Failure),
    /// Remove what the pod has on this machine.
    Clear,
    /// Remove the pod from the API.
    Delete,
}

/// Why a container is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// The pod ends.
    WithPod,
    /// It is started again; the event's text.
    ToRestart(String),
}

/// What to do, and when to think again if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Next {
    pub actions: Vec<Action>,
    pub look_again: Option<Timestamp>,
}

impl Next {
    fn at(&mut self, time: Timestamp) {
        self.look_again = Some(self.look_again.map_or(time, |earlier| earlier.min(time)));
    }
}

/// Decides.
pub(crate) fn decide(pod: &Pod, observed: &Observed, now: Timestamp) -> Next {
    let mut next = Next::default();
    let Some(spec) = &pod.spec else { return next };
    let deleting = observed.absent || pod.metadata.deletion_timestamp.is_some();
    let ended_in_api =
        pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(phase::is_final);
    let over = observed.failed.is_some() || phase::of(spec, observed).is_over();
    if deleting || ended_in_api || over {
        end(pod, spec, observed, deleting, now, &mut next);
        return next;
    }
    if let Some(limit) = observed.halting {
        if Restart::of(spec) == Restart::Never && observed.containers.values().any(Seen::is_running) {
            next.actions.push(Action::Fail(shut_down(limit)));
            return next;
        }
        let grace = spec.termination_grace_period_seconds.unwrap_or(GRACE).min(limit);
        stop(spec, observed, grace, now, &mut next);
        return next;
    }
    if let Some(deadline) = deadline(pod, spec, observed) {
        if now >= deadline {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            next.actions.push(Action::Fail(Failure { reason: "DeadlineExceeded", message, grace: None }));
            return next;
        }
        next.at(deadline);
    }
    if let Some(message) = observed.exceeded.clone() {
        let failure = Failure { reason: Failure::EVICTED, message, grace: Some(EVICTED) };
        next.actions.push(Action::Fail(failure));
        return next;
    }
    if let Some(blocked) = observed.blocked.as_ref().filter(|blocked| now < blocked.until) {
        next.at(blocked.until);
        return next;
    }
    if !observed.volumes_ready {
        next.actions.push(Action::PrepareVolumes);
    } else if !matches!(observed.sandbox, Sandbox::Up(_)) {
        next.actions.push(Action::MakeSandbox);
    } else {
        containers(pod, spec, observed, now, &mut next);
    }
    next
}

/// A pod that is not begun again is over with its node, and did not do so by itself: as a kubelet says it.
fn shut_down(limit: i64) -> Failure {
    let message = "Pod was terminated in response to imminent node shutdown.".to_owned();
    Failure { reason: Failure::SHUT_DOWN, message, grace: Some(limit) }
}

fn deadline(pod: &Pod, spec: &PodSpec, observed: &Observed) -> Option<Timestamp> {
    let seconds = spec.active_deadline_seconds?;
    let told = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    told.or(observed.seen)?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Everything ends: the containers, then their place, then the pod in the API.
fn end(pod: &Pod, spec: &PodSpec, observed: &Observed, deleting: bool, now: Timestamp, next: &mut Next) {
    let asked =
        pod.metadata.deletion_grace_period_seconds.filter(|_| pod.metadata.deletion_timestamp.is_some());
    let mut grace = asked.or(spec.termination_grace_period_seconds).unwrap_or(GRACE);
    if observed.absent {
        grace = grace.min(FORCED);
    }
    for limit in [observed.failed.as_ref().and_then(|failure| failure.grace), observed.halting] {
        grace = grace.min(limit.unwrap_or(grace));
    }
    if stop(spec, observed, grace, now, next) {
        return;
    }
    if !observed.cleared {
        next.actions.push(Action::Clear);
    } else if deleting && !observed.absent && !observed.released {
        next.actions.push(Action::Delete);
    }
}

/// Containers end: first what the pod is for, then what served it, one after the other. Together they have the pod's
/// time, and when it is over all that are left end at once. True while one is left.
fn stop(spec: &PodSpec, observed: &Observed, mut grace: i64, now: Timestamp, next: &mut Next) -> bool {
    let ephemeral = ephemeral_containers(spec);
    let mains = spec.containers.iter().chain(&ephemeral);
    let mains = mains.chain(init_containers(spec).iter().filter(|init| !is_sidecar(init)));
    let sidecars = init_containers(spec).iter().rev().filter(|init| is_sidecar(init));
    let running = |container: &&Container| observed.of(&container.name).is_some_and(Seen::is_running);
    let mut left: Vec<&Container> = mains.filter(running).collect();
    if left.is_empty() {
        left = sidecars.filter(running).collect();
        let since = observed.ending.unwrap_or(now);
        let over = since.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        if now < over && left.len() > 1 {
            left.truncate(1);
            next.at(over);
        }
        grace = over.duration_since(now).as_secs().max(LEAST.min(grace));
    }
    for container in &left {
        if observed.of(&container.name).is_some_and(|seen| !seen.stopping) {
            let why = Stopping::WithPod;
            next.actions.push(Action::Stop { container: container.name.clone(), grace, why });
        }
    }
    !left.is_empty()
}

fn containers(pod: &Pod, spec: &PodSpec, observed: &Observed, now: Timestamp, next: &mut Next) {
    let mut step = Step { pod, spec, observed, now, next };
    // Before all others: it may be these that do not come about. Each is started once.
    for ephemeral in &ephemeral_containers(spec) {
        step.keep(ephemeral, Restart::Never);
    }
    // A sandbox that is new begins anew, as with everything that only one sandbox has.
    let begun = |container: &Container| observed.of(&container.name).is_some_and(|seen| seen.here);
    let past_init = spec.containers.iter().any(begun);
    for init in init_containers(spec) {
        let seen = observed.of(&init.name);
        if is_sidecar(init) {
            step.keep(init, Restart::Always);
            if !past_init && !seen.is_some_and(|seen| seen.is_running() && seen.started) {
                return;
            }
        } else if !past_init && !seen.is_some_and(|seen| seen.here && phase::succeeded(seen)) {
            let restart =
                if Restart::of(spec) == Restart::Never { Restart::Never } else { Restart::OnFailure };
            match seen.filter(|seen| !seen.here && seen.ended().is_some()) {
                // What it did for an earlier sandbox is done again, however that went.
                Some(seen) => step.start(init, seen),
                None => step.keep(init, restart),
            }
            return;
        }
    }
    for container in &spec.containers {
        step.keep(container, Restart::of(spec));
        if observed.of(&container.name).is_some_and(|seen| seen.hooking) {
            return;
        }
    }
}

struct Step<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    observed: &'a Observed,
    now: Timestamp,
    next: &'a mut Next,
}

impl Step<'_> {
    /// Sees to it that a container runs, as far as its restart policy says that it should.
    fn keep(&mut self, container: &Container, restart: Restart) {
        let fresh = Seen::default();
        let seen = self.observed.of(&container.name).unwrap_or(&fresh);
        if seen.is_running() {
            self.judge(container, seen);
            return;
        }
        if let Some(ended) = seen.ended() {
            if !restart.after(ended.code) {
                return;
            }
            if let Some((until, delay)) = seen.backoff.waits(ended.finished, self.now) {
                let message = format!(
                    "back-off {} restarting failed container={} pod={}",
                    backoff::seconds(delay),
                    container.name,
                    full_name(self.pod)
                );
                self.hold(container, seen, "CrashLoopBackOff", message);
                self.next.at(until);
                return;
            }
        }
        if let Some(retry) = seen.retry.filter(|retry| self.now < *retry) {
            self.next.at(retry);
            return;
        }
        self.start(container, seen);
    }

    /// Ends a running container that a probe condemned, or that is another now.
    fn judge(&mut self, container: &Container, seen: &Seen) {
        if seen.stopping {
            return;
        }
        let pods_grace = self.spec.termination_grace_period_seconds.unwrap_or(GRACE);
        let (grace, message) = if let Some(unhealthy) = &seen.unhealthy {
            (unhealthy.grace.unwrap_or(pods_grace), unhealthy.message.clone())
        } else if container.image.as_deref().unwrap_or_default() != seen.asked {
            (pods_grace, format!("Container {} definition changed, will be restarted", container.name))
        } else {
            return;
        };
        let why = Stopping::ToRestart(message);
        self.next.actions.push(Action::Stop { container: container.name.clone(), grace, why });
    }

    fn start(&mut self, container: &Container, seen: &Seen) {
        match &seen.image {
            ImageState::Unknown => self.next.actions.push(Action::Pull(container.name.clone())),
            ImageState::Pulling => {}
            ImageState::Here => self.next.actions.push(Action::Start(container.name.clone())),
            ImageState::Failed { reason, message, at } => {
                let until = *at + pull_delay(seen.pull_failures);
                if self.now >= until {
                    self.next.actions.push(Action::Pull(container.name.clone()));
                    return;
                }
                self.next.at(until);
                if reason != "ErrImagePull" {
                    return;
                }
                if self.now < *at + PULL_SHOWN {
                    self.next.at(*at + PULL_SHOWN);
                    return;
                }
                let image = container.image.as_deref().unwrap_or_default();
                let message = format!("Back-off pulling image {image:?}: {reason}: {message}");
                self.hold(container, seen, "ImagePullBackOff", message);
            }
        }
    }

    fn hold(&mut self, container: &Container, seen: &Seen, reason: &'static str, message: String) {
        let shown = State::Waiting { reason: reason.to_owned(), message: message.clone() };
        if seen.state != shown {
            self.next.actions.push(Action::Hold { container: container.name.clone(), reason, message });
        }
    }
}

fn pull_delay(failures: u32) -> SignedDuration {
    (PULL_FIRST * 2i32.saturating_pow(failures.saturating_sub(1).min(6))).min(PULL_LONGEST)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
