//! One pod's worker: observes, has it decided, carries out, and tells the API.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drydock_images::Resolved;
use drydock_sandbox as sandbox;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::decide::{Action, decide};
use super::observed::{
    Blocked, Failure, ImageState, Observed, Sandbox, Seen, State, ephemeral_containers, full_name,
};
use super::{Live, Sight, record, status, usage};
use crate::events::Kind;
use crate::fetch::{Tokens, words};
use crate::probes::watch::Found;
use crate::volumes::Prepared;
use crate::volumes::claims::Claimed;
use crate::{Shared, logs};

/// A status that says only that things have begun waits this long for what comes of them.
const BEGINNING: Duration = Duration::from_millis(40);
/// How long a write may take before it is tried again.
const WRITE: Duration = Duration::from_secs(10);
/// A step that failed is tried again after this, doubling, and at last every two minutes.
const RETRY: SignedDuration = SignedDuration::from_millis(500);
const RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(120);

/// What a worker hears from the tasks that it started.
pub(crate) enum Told {
    Pulled {
        container: String,
        result: Result<Box<Resolved>, (String, String)>,
    },
    Ended {
        container: String,
        id: String,
        exit: Result<sandbox::Exit, sandbox::Error>,
    },
    /// The hook after a start is done.
    Hooked {
        container: String,
        id: String,
        result: Result<(), String>,
    },
    /// A hook was to ask over TLS, and was answered in the clear.
    HookInTheClear {
        address: SocketAddr,
    },
    /// The hook before a stop failed.
    HookFailed {
        container: String,
    },
}

/// See the module.
pub(crate) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) uid: String,
    pub(super) pod: Arc<Pod>,
    sight: watch::Receiver<Sight>,
    pub(super) live: Arc<Mutex<Live>>,
    pub(super) observed: Observed,
    pub(super) images: BTreeMap<String, Resolved>,
    pub(super) prepared: Prepared,
    /// The pod's claims, once they are there.
    pub(super) claimed: Option<Claimed>,
    pub(super) tokens: Tokens,
    pub(super) tell: mpsc::UnboundedSender<Told>,
    told: mpsc::UnboundedReceiver<Told>,
    pub(super) found: mpsc::UnboundedSender<Found>,
    findings: mpsc::UnboundedReceiver<Found>,
    /// The tasks of a container's current start.
    pub(super) tasks: BTreeMap<String, Vec<AbortHandle>>,
    pub(super) stops: BTreeMap<String, AbortHandle>,
    /// The hooks after a start that are not done.
    pub(super) hooks: BTreeMap<String, AbortHandle>,
    /// Who waits for a container to count as started.
    pub(super) started: BTreeMap<String, watch::Sender<bool>>,
    written: Option<Value>,
    write_failed: u32,
    halting: watch::Receiver<Option<Duration>>,
}

impl Worker {
    pub fn new(
        shared: Arc<Shared>,
        uid: String,
        sight: watch::Receiver<Sight>,
        live: Arc<Mutex<Live>>,
    ) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let (found, findings) = mpsc::unbounded_channel();
        let pod = Arc::clone(&sight.borrow().pod);
        let halting = shared.halting.subscribe();
        Self {
            shared,
            halting,
            uid,
            pod,
            sight,
            live,
            observed: Observed::default(),
            images: BTreeMap::new(),
            prepared: Prepared::default(),
            claimed: None,
            tokens: Tokens::default(),
            tell,
            told,
            found,
            findings,
            tasks: BTreeMap::new(),
            stops: BTreeMap::new(),
            hooks: BTreeMap::new(),
            started: BTreeMap::new(),
            written: None,
            write_failed: 0,
        }
    }

    /// Runs until nothing of the pod is left, here and in the API.
    pub async fn run(mut self, adopted: Option<sandbox::Pod>) {
        self.observed.seen = Some(self.shared.now());
        self.remember();
        if let Some(pod) = adopted {
            self.adopt(pod);
        }
        let mut refresh = tokio::time::interval(self.shared.refresh);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        refresh.tick().await;
        let mut turns = [refresh, tokio::time::interval(usage::PERIOD)];
        let mut began = false;
        loop {
            self.show_ports();
            let halting = *self.halting.borrow_and_update();
            self.observed.halting = halting.map(|limit| i64::try_from(limit.as_secs()).unwrap_or(i64::MAX));
            let next = decide(&self.pod, &self.observed, self.shared.now());
            let acted = !next.actions.is_empty();
            for action in next.actions {
                if action == Action::Delete {
                    self.write_status().await;
                    if self.delete().await {
                        record::remove_files(&self.shared, &self.uid, Some(&self.logs())).await;
                        return;
                    }
                } else {
                    self.carry_out(action).await;
                }
            }
            if self.observed.absent && self.observed.cleared {
                record::remove_files(&self.shared, &self.uid, Some(&self.logs())).await;
                return;
            }
            if acted && !self.is_stuck() {
                continue;
            }
            let running = self.observed.containers.values().any(Seen::is_running);
            if self.observed.halting.is_some() && !running {
                self.write_status().await;
                return;
            }
            let pulling = self.observed.containers.values().any(|seen| seen.image == ImageState::Pulling);
            if pulling && !began {
                began = true;
                if let Ok(Some(told)) = tokio::time::timeout(BEGINNING, self.told.recv()).await {
                    self.hear(told).await;
                    continue;
                }
            }
            let retry = self.write_status().await;
            // What was decided before it was carried out knows of no step that failed.
            let wake = [next.look_again, retry, self.blocked_until()].into_iter().flatten().min();
            self.listen(wake, &mut turns).await;
        }
    }

    /// Whether deciding again at once would decide the same.
    fn is_stuck(&self) -> bool {
        self.blocked_until().is_some() || self.write_failed > 0
    }

    /// When a step that failed is to be tried again, where that is yet to come.
    fn blocked_until(&self) -> Option<Timestamp> {
        let now = self.shared.now();
        self.observed.blocked.as_ref().map(|blocked| blocked.until).filter(|until| now < *until)
    }

    async fn listen(&mut self, wake: Option<Timestamp>, [refresh, measure]: &mut [tokio::time::Interval; 2]) {
        let limited = self.is_limited();
        let pause = wake.map(|at| at.duration_since(self.shared.now()).unsigned_abs());
        let pause = pause.filter(|_| wake.is_some_and(|at| at > self.shared.now()));
        let timer = async {
            match (wake, pause) {
                (Some(_), Some(pause)) => tokio::time::sleep(pause).await,
                (Some(_), None) => {}
                (None, _) => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(told) = self.told.recv() => self.hear(told).await,
            Some(found) = self.findings.recv() => self.find(found),
            changed = self.sight.changed() => if changed.is_ok() && self.see() { refresh.reset_immediately() },
            Ok(()) = self.halting.changed() => {}
            () = timer => {}
            _ = refresh.tick() => if self.observed.volumes_ready && !self.observed.cleared { self.refresh().await },
            _ = measure.tick(), if limited => self.measure().await,
        }
        // Whatever else has happened by now is looked at together.
        while let Ok(told) = self.told.try_recv() {
            self.hear(told).await;
        }
        while let Ok(found) = self.findings.try_recv() {
            self.find(found);
        }
    }

    /// Takes the pod as the API shows it now. Whether something is said of it that was not: volumes may show that, and
    /// it is how people ask for what they show to be looked at.
    fn see(&mut self) -> bool {
        let sight = self.sight.borrow_and_update().clone();
        let hurried = |pod: &Pod| {
            pod.metadata.deletion_timestamp.as_ref().and(pod.metadata.deletion_grace_period_seconds)
        };
        if let (Some(new), old) = (hurried(&sight.pod), hurried(&self.pod))
            && old.is_none_or(|old| new < old)
        {
            self.hurry();
        }
        if sight.absent && !self.observed.absent {
            self.hurry();
        }
        self.observed.absent |= sight.absent;
        let said = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
        let more = said(&sight.pod) != said(&self.pod);
        self.pod = sight.pod;
        more
    }

    /// There is less time than before: whoever is being stopped is stopped anew.
    fn hurry(&mut self) {
        self.observed.ending = None;
        for (name, stop) in std::mem::take(&mut self.stops) {
            stop.abort();
            if let Some(seen) = self.observed.containers.get_mut(&name) {
                seen.stopping = false;
            }
        }
    }

    async fn carry_out(&mut self, action: Action) {
        match action {
            Action::PrepareVolumes => self.prepare_volumes().await,
            Action::MakeSandbox => self.make_sandbox().await,
            Action::Pull(container) => self.pull(&container),
            Action::Start(container) => self.start(&container).await,
            Action::Hold { container, reason, message } => self.hold(&container, reason, message),
            Action::Stop { container, grace, why } => self.stop(&container, grace, why),
            Action::Fail(failure) => self.fail(failure),
            Action::Clear => self.clear().await,
            Action::Delete => {}
        }
    }

    pub(super) fn say(&self, kind: Kind, reason: &'static str, message: impl Into<String>) {
        self.shared.recorder.pod(&self.pod, None, kind, reason, message);
    }

    /// Says something about a container.
    pub(super) fn say_of(
        &self,
        container: &str,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.shared.recorder.pod(&self.pod, Some(self.field(container)), kind, reason, message);
    }

    /// A container's place in the pod, as events show it.
    pub(super) fn field(&self, container: &str) -> String {
        let init = self.pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
        let is_init = init.is_some_and(|init| init.iter().any(|init| init.name == container));
        let list = match self.ephemeral(container) {
            Some(_) => "ephemeralContainers",
            None if is_init => "initContainers",
            None => "containers",
        };
        format!("spec.{list}{{{container}}}")
    }

    pub(super) fn container(&self, name: &str) -> Option<Container> {
        let spec = self.pod.spec.as_ref()?;
        let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let found = all.find(|container| container.name == name).cloned();
        found.or_else(|| ephemeral_containers(spec).into_iter().find(|container| container.name == name))
    }

    /// A container of this name that was added to look into the pod.
    pub(super) fn ephemeral(&self, name: &str) -> Option<&EphemeralContainer> {
        let spec = self.pod.spec.as_ref()?;
        spec.ephemeral_containers.iter().flatten().find(|container| container.name == name)
    }

    pub(super) fn seen(&mut self, container: &str) -> &mut Seen {
        self.observed.containers.entry(container.to_owned()).or_default()
    }

    pub(super) fn logs(&self) -> std::path::PathBuf {
        logs::pod_directory(&self.shared.logs, &self.pod)
    }

    /// A step of the pod failed: it is tried again later.
    pub(super) fn block(&mut self, reason: &'static str, message: String) {
        let attempts = self.observed.blocked.as_ref().map_or(0, |blocked| blocked.attempts) + 1;
        let delay = (RETRY * 2i32.saturating_pow(attempts.min(10) - 1)).min(RETRY_LONGEST);
        self.observed.blocked = Some(Blocked { until: self.shared.now() + delay, attempts });
        self.say(Kind::Warning, reason, message);
    }

    fn hold(&mut self, container: &str, reason: &'static str, message: String) {
        let name = full_name(&self.pod);
        match reason {
            "CrashLoopBackOff" => {
                let text = format!("Back-off restarting failed container {container} in pod {name}");
                self.say_of(container, Kind::Warning, "BackOff", text);
            }
            _ => {
                let image =
                    self.container(container).and_then(|container| container.image).unwrap_or_default();
                self.say_of(container, Kind::Normal, "BackOff", format!("Back-off pulling image {image:?}"));
                self.say_of(container, Kind::Warning, "Failed", format!("Error: {reason}"));
            }
        }
        self.wait_with(container, reason, message);
    }

    /// A container waits; how it ended before stays known.
    pub(super) fn wait_with(&mut self, container: &str, reason: &str, message: String) {
        self.live.lock().waiting.insert(container.to_owned(), reason.to_owned());
        let seen = self.seen(container);
        let waiting = State::Waiting { reason: reason.to_owned(), message };
        if let State::Ended(ended) = std::mem::replace(&mut seen.state, waiting) {
            seen.last = Some(ended);
        }
    }

    fn fail(&mut self, failure: Failure) {
        let kind = if failure.reason == Failure::EVICTED { Kind::Warning } else { Kind::Normal };
        self.say(kind, failure.reason, failure.message.clone());
        self.observed.failed = Some(failure);
    }

    async fn clear(&mut self) {
        let sandbox = self.live.lock().sandbox.clone();
        if let Some(sandbox) = sandbox
            && let Err(error) = sandbox.stop().await
        {
            self.block("FailedKillPod", format!("error killing pod: {error}"));
            return;
        }
        {
            let mut live = self.live.lock();
            live.sandbox = None;
            live.containers.clear();
        }
        record::remove_files(&self.shared, &self.uid, None).await;
        self.observed.sandbox = Sandbox::None;
        self.observed.volumes_ready = false;
        self.observed.cleared = true;
        self.show_ports();
    }

    /// Writes the status if it changed; when to try again if that failed.
    async fn write_status(&mut self) -> Option<Timestamp> {
        if self.observed.absent {
            return None;
        }
        let now = self.shared.now();
        let status = status::of(&self.pod, &self.observed, &self.shared.host_ip(), now);
        let patch = patch(&self.uid, &status);
        if self.written.as_ref() == Some(&patch) || (self.written.is_none() && shows(&self.pod, &status)) {
            self.write_failed = 0;
            return None;
        }
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.namespace());
        let name = self.name();
        let parameters = PatchParams::default();
        let strategic = Patch::Strategic(&patch);
        let write = pods.patch_status(&name, &parameters, &strategic);
        let error = match tokio::time::timeout(WRITE, write).await {
            Ok(Ok(_)) => {
                self.written = Some(patch);
                self.write_failed = 0;
                return None;
            }
            Ok(Err(kube::Error::Api(answer))) if answer.code == 404 || answer.code == 409 => {
                // Another pod of that name, or none: the watch will say so.
                tracing::debug!(pod = %full_name(&self.pod), error = answer.message, "the status has no reader");
                self.write_failed = 0;
                return Some(now + SignedDuration::from_secs(1));
            }
            Ok(Err(error)) => words(&error),
            Err(_) => "no answer".to_owned(),
        };
        tracing::warn!(pod = %full_name(&self.pod), error, "the status was not written");
        self.write_failed = (self.write_failed + 1).min(7);
        Some(now + SignedDuration::from_millis(100 << self.write_failed))
    }

    pub(super) fn namespace(&self) -> String {
        self.pod.metadata.namespace.clone().unwrap_or_default()
    }

    pub(super) fn name(&self) -> String {
        self.pod.metadata.name.clone().unwrap_or_default()
    }

    /// Removes the pod from the API: nothing of it is left here. True when that is done.
    async fn delete(&mut self) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.namespace());
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        match tokio::time::timeout(WRITE, pods.delete(&self.name(), &parameters)).await {
            Ok(Ok(answer)) => {
                // With finalizers it stays until those who put them there are done.
                let held = answer
                    .left()
                    .and_then(|pod| pod.metadata.finalizers)
                    .is_some_and(|list| !list.is_empty());
                self.observed.released = true;
                !held
            }
            Ok(Err(kube::Error::Api(answer))) if answer.code == 404 || answer.code == 409 => true,
            Ok(Err(_)) | Err(_) => {
                self.write_failed = (self.write_failed + 1).min(7);
                tokio::time::sleep(Duration::from_millis(100 << self.write_failed)).await;
                false
            }
        }
    }
}

/// The status as a patch that removes what is not said any more, and leaves the conditions of others alone.
fn patch(uid: &str, status: &PodStatus) -> Value {
    let mut status = serde_json::to_value(status).unwrap_or_default();
    if let Some(map) = status.as_object_mut() {
        for field in ["reason", "message", "podIP", "podIPs"] {
            map.entry(field).or_insert(Value::Null);
        }
        // Addresses are merged by what they are: one that is no longer the pod's would stay, and be another's by then.
        for field in ["podIPs", "hostIPs"] {
            if let Some(addresses) = map.get_mut(field).and_then(Value::as_array_mut) {
                addresses.insert(0, json!({"$patch": "replace"}));
            }
        }
        for condition in map.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(condition) = condition.as_object_mut() {
                for field in ["reason", "message"] {
                    condition.entry(field).or_insert(Value::Null);
                }
            }
        }
    }
    json!({"metadata": {"uid": uid}, "status": status})
}

/// Whether the API shows this status already.
fn shows(pod: &Pod, status: &PodStatus) -> bool {
    pod.status.as_ref().is_some_and(|shown| {
        let text = |status: &PodStatus| {
            let mut status = status.clone();
            status.conditions.iter_mut().flatten().for_each(|condition| condition.last_probe_time = None);
            let ours =
                ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"];
            if let Some(list) = &mut status.conditions {
                list.retain(|condition| ours.contains(&condition.type_.as_str()));
                list.sort_by(|a, b| a.type_.cmp(&b.type_));
            }
            serde_json::to_value(status).unwrap_or_default()
        };
        text(shown) == text(status)
    })
}
