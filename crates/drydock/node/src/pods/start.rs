//! Bringing a pod and its containers about.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drydock_images::{Pull, Reference, Resolved};
use drydock_sandbox as sandbox;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
use tokio::sync::watch;

use super::hooks::run_hook;
use super::observed::{Blocked, Ended, ImageState, Restart, Sandbox, State, is_sidecar};
use super::record::{ContainerNote, Note, container_id, shown_id};
use super::worker::{Told, Worker};
use crate::container::build::{Materials, Refused, build, pod_limits};
use crate::container::{environment, fields::Place, naming};
use crate::events::Kind;
use crate::probes;
use crate::probes::ask::Target;
use crate::volumes::{VolumeError, payload};
use crate::{Shared, logs, volumes};

/// A container that could not be started is tried again after this.
const RETRY: SignedDuration = SignedDuration::from_secs(10);
/// A sandbox that is gone when it is needed is made anew after this: whatever ended it may do so again.
const ANEW: SignedDuration = SignedDuration::from_millis(200);
/// What a running pod's volumes are to hold is asked for no longer than this.
const ANSWER: Duration = Duration::from_secs(10);
/// The exit code of what never ran, as container runtimes have it.
const NOT_RUN: i32 = 128;

impl Worker {
    fn place(&self) -> Place {
        let pod_ip = match self.observed.sandbox {
            Sandbox::Up(address) => Some(address.to_string()),
            Sandbox::None | Sandbox::Gone => None,
        };
        Place {
            host_ip: self.shared.host_ip(),
            pod_ip,
            cpu_millis: self.shared.machine.cores * 1000,
            memory: self.shared.machine.memory,
        }
    }

    /// Brings the volumes about: all of them, or the pod waits.
    pub(super) async fn prepare_volumes(&mut self) {
        let message = match self.fill_volumes().await {
            Ok(failed) => failed.first().map(ToString::to_string),
            Err(message) => Some(message),
        };
        if let Some(message) = message {
            self.block("FailedMount", message);
            return;
        }
        self.observed.volumes_ready = true;
        self.observed.blocked = None;
    }

    /// Fills the volumes that can be; those that can't.
    async fn fill_volumes(&mut self) -> Result<Vec<VolumeError>, String> {
        let fresh = PodSpec::default();
        let spec = self.pod.spec.as_ref().unwrap_or(&fresh);
        let list = spec.volumes.clone().unwrap_or_default();
        if list.is_empty() {
            return Ok(Vec::new());
        }
        let blame = |why: String| match list.first() {
            Some(volume) => format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name),
            None => why,
        };
        let sources = self.shared.fetch(&self.namespace(), &payload::wanted(&list)).await.map_err(blame)?;
        let pod = Arc::clone(&self.pod);
        let tokens = self.shared.fetch_tokens(&pod, &payload::tokens(&list), &mut self.tokens).await;
        let fresh = self.observed.sandbox == Sandbox::None && !self.observed.volumes_ready;
        if self.claimed.is_none() {
            let found = self.shared.fetch_claims(&pod).await?;
            let (root, pod) = (self.shared.storage.clone(), Arc::clone(&pod));
            let work = move || volumes::claims::open(&found, &root, &pod, fresh);
            let opened = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
            self.claimed = Some(opened.map_err(|error| error.to_string())?);
        }
        let (place, places) = (self.place(), self.shared.volume_places(&self.uid));
        let (now, claimed) = (self.shared.now(), self.claimed.clone().unwrap_or_default());
        let work =
            move || volumes::prepare((&pod, fresh), &place, &places, (&sources, &claimed), &tokens, now);
        let filled = tokio::task::spawn_blocking(work).await;
        let (prepared, failed) = filled.map_err(|error| error.to_string())?;
        self.prepared.update(prepared);
        Ok(failed)
    }

    /// Brings the volumes that the API fills up to date, each for itself. What fails now stays as it was, and is tried
    /// again at the next turn.
    pub(super) async fn refresh(&mut self) {
        let fresh = PodSpec::default();
        let spec = self.pod.spec.as_ref().unwrap_or(&fresh);
        let filled = |volume: &k8s_openapi::api::core::v1::Volume| {
            volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.projected.is_some()
                || volume.downward_api.is_some()
        };
        if !spec.volumes.iter().flatten().any(filled) {
            return;
        }
        // An API that does not answer holds nothing up.
        match tokio::time::timeout(ANSWER, self.fill_volumes()).await {
            Ok(Ok(failed)) => {
                for error in failed {
                    self.say(Kind::Warning, "FailedMount", error.to_string());
                }
            }
            Ok(Err(error)) => tracing::debug!(pod = self.uid, error, "volumes were not brought up to date"),
            Err(_) => tracing::debug!(pod = self.uid, "volumes were not brought up to date: no answer"),
        }
    }

    pub(super) async fn make_sandbox(&mut self) {
        let old = self.live.lock().sandbox.take();
        if old.is_some() || self.observed.containers.values().any(|seen| seen.ended().is_some()) {
            self.say(
                Kind::Normal,
                "SandboxChanged",
                "Pod sandbox changed, it will be killed and re-created.",
            );
        }
        if let Some(old) = old
            && let Err(error) = old.stop().await
        {
            self.live.lock().sandbox = Some(old);
            self.block("FailedKillPod", format!("error killing pod: {error}"));
            return;
        }
        let spec = self.pod.spec.clone().unwrap_or_default();
        let note = serde_json::to_string(&Note { logs: self.logs() }).unwrap_or_default();
        let config = sandbox::PodConfig {
            hostname: naming::hostname(&self.pod),
            host_network: naming::is_in_host_network(&self.pod),
            resolv_conf: Some(naming::resolver(&self.pod, &self.shared.cluster)),
            share_process_namespace: spec.share_process_namespace == Some(true),
            limits: pod_limits(&spec, self.shared.max_processes),
            note,
            ..sandbox::PodConfig::named(self.uid.clone())
        };
        match self.shared.host.create_pod(config).await {
            Ok(pod) => {
                self.observed.sandbox = Sandbox::Up(pod.address());
                self.observed.address = Some(pod.address());
                self.observed.blocked = None;
                self.observed.cleared = false;
                self.observed.containers.values_mut().for_each(|seen| seen.here = false);
                // What there is names the sandbox before.
                let _absent = fs::remove_file(self.hosts());
                let written = self.write_hosts(pod.address());
                self.live.lock().sandbox = Some(pod);
                if let Err(error) = written {
                    self.observed.sandbox = Sandbox::Gone;
                    self.block("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"));
                }
            }
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {}", chain(&error));
                self.block("FailedCreatePodSandBox", message);
            }
        }
    }

    fn hosts(&self) -> PathBuf {
        self.shared.pod_directory(&self.uid).join("etc-hosts")
    }

    /// Writes the names that the pod's containers know, whole or not at all, unless they are there. Whoever made the
    /// sandbox may have been killed before.
    fn write_hosts(&self, address: Ipv4Addr) -> io::Result<()> {
        let hosts = self.hosts();
        if hosts.exists() {
            return Ok(());
        }
        fs::create_dir_all(self.shared.pod_directory(&self.uid))?;
        fs::create_dir_all(self.logs())?;
        let part = hosts.with_extension("part");
        fs::write(&part, naming::hosts(&self.pod, &self.shared.cluster, address))?;
        fs::rename(part, hosts)
    }

    /// Has the image of a container found or made, elsewhere.
    pub(super) fn pull(&mut self, name: &str) {
        let Some(container) = self.container(name) else { return };
        self.seen(name).image = ImageState::Pulling;
        let image = container.image.clone().unwrap_or_default();
        let pull = match container.image_pull_policy.as_deref() {
            Some("Always") => Pull::Always,
            Some("Never") => Pull::Never,
            _ => Pull::IfNotPresent,
        };
        let (shared, tell, name) = (Arc::clone(&self.shared), self.tell.clone(), name.to_owned());
        let (pod, field) = (Arc::clone(&self.pod), self.field(&name));
        tokio::spawn(async move {
            let result = resolve(&shared, &pod, field, image, pull).await;
            // A worker that is gone needs no image.
            let _gone = tell.send(Told::Pulled { container: name, result });
        });
    }

    pub(super) fn pulled(&mut self, name: &str, result: Result<Box<Resolved>, (String, String)>) {
        let now = self.shared.now();
        match result {
            Ok(image) => {
                self.images.insert(name.to_owned(), *image);
                let seen = self.seen(name);
                seen.image = ImageState::Here;
                seen.pull_failures = 0;
            }
            Err((reason, message)) => {
                let seen = self.seen(name);
                seen.pull_failures += 1;
                seen.image = ImageState::Failed { reason: reason.clone(), message: message.clone(), at: now };
                self.say_of(name, Kind::Warning, "Failed", format!("Error: {reason}"));
                self.wait_with(name, &reason, message);
            }
        }
    }

    pub(super) async fn start(&mut self, name: &str) {
        let Some(container) = self.container(name) else { return };
        match self.try_start(&container).await {
            Ok(()) => {}
            Err(Refused { reason, message }) => {
                let retry = self.shared.now() + RETRY;
                self.seen(name).retry = Some(retry);
                self.say_of(name, Kind::Warning, "Failed", format!("Error: {message}"));
                self.wait_with(name, reason, message);
            }
        }
    }

    async fn try_start(&mut self, container: &Container) -> Result<(), Refused> {
        let name = container.name.clone();
        let refused = |reason, message: String| Refused { reason, message };
        let gone = || refused("CreateContainerError", "the pod's sandbox is gone".to_owned());
        let sandbox = self.live.lock().sandbox.clone().ok_or_else(gone)?;
        let image = self.images.get(&name).cloned().ok_or_else(gone)?;
        let unfit = |why| refused("CreateContainerConfigError", why);
        let beside = self.beside(&name).map_err(unfit)?;
        let wanted = environment::wanted(container);
        let mut sources = self.shared.fetch(&self.namespace(), &wanted).await.map_err(unfit)?;
        sources.services = self.shared.service_variables(&self.pod).await.map_err(unfit)?;
        self.write_hosts(sandbox.address())
            .map_err(|error| refused("CreateContainerError", error.to_string()))?;
        let now = self.shared.now();
        let seen = self.seen(&name);
        let begun = seen.ended().is_some();
        let restart = seen.restarts + i32::from(begun);
        let directory = self.shared.pod_directory(&self.uid);
        let termination_log = directory.join("containers").join(&name).join(restart.to_string());
        fresh_file(&termination_log).map_err(|error| refused("CreateContainerError", error.to_string()))?;
        let note = ContainerNote {
            name: name.clone(),
            restart,
            image: container.image.clone().unwrap_or_default(),
            image_id: image.image_id.clone(),
            termination_log: termination_log.clone(),
            stop_signal: image.config.stop_signal.clone(),
        };
        let id = container_id(&name, restart);
        let config = build(Materials {
            pod: &self.pod,
            container,
            image: &image,
            place: &self.place(),
            sources: &sources,
            volumes: &self.prepared,
            id: id.clone(),
            beside,
            note: serde_json::to_string(&note).unwrap_or_default(),
            log: logs::file(&self.shared.logs, &self.pod, &name, restart),
            termination_log,
            hosts: self.hosts(),
            machine_memory: self.shared.machine.memory,
            max_processes: self.shared.max_processes,
        })?;
        self.discard_old(&sandbox, &name, restart).await;
        let started = sandbox.start(config).await;
        // Every attempt counts for the waiting before the next, also one that does not come to run.
        let counts = !matches!(started, Err(sandbox::Error::Gone(_)));
        let seen = self.seen(&name);
        if let Some(finished) = seen.ended().map(|ended| ended.finished).filter(|_| counts) {
            seen.backoff.attempt(finished, now);
        }
        let running = match started {
            Ok(running) => running,
            Err(error) => {
                let message = format!("failed to start container {name:?}: {}", chain(&error));
                let reason = match &error {
                    sandbox::Error::Start(error) if error.reason() == "RunContainerError" => {
                        self.not_run(container, note, &id, message);
                        return Ok(());
                    }
                    sandbox::Error::Start(error) => error.reason(),
                    sandbox::Error::Gone(_) => {
                        // That is not the container's fault: it is started in the next one.
                        self.observed.sandbox = Sandbox::Gone;
                        self.observed.blocked = Some(Blocked { until: now + ANEW, attempts: 1 });
                        return Ok(());
                    }
                    _ => "RunContainerError",
                };
                return Err(refused(reason, message));
            }
        };
        let since = running.started();
        let shown = shown_id(&self.uid, &id);
        let seen = self.seen(&name);
        if let State::Ended(ended) = std::mem::replace(&mut seen.state, State::Running { id: shown, since }) {
            seen.last = Some(ended);
        }
        seen.restarts = restart;
        seen.here = true;
        seen.retry = None;
        seen.asked = note.image;
        seen.image_id = note.image_id;
        seen.stopping = false;
        seen.unhealthy = None;
        self.say_of(&name, Kind::Normal, "Created", format!("Created container: {name}"));
        self.say_of(&name, Kind::Normal, "Started", format!("Started container {name}"));
        self.attend(container, running, true);
        Ok(())
    }

    /// The container that one which was added to look into the pod is for, as the sandbox calls it.
    fn beside(&mut self, name: &str) -> Result<Option<String>, String> {
        let target = self.ephemeral(name).and_then(|container| container.target_container_name.clone());
        let Some(target) = target.filter(|target| !target.is_empty()) else { return Ok(None) };
        let seen = self.observed.of(&target).filter(|seen| seen.is_running());
        let seen = seen.ok_or_else(|| format!("unable to find target container {target:?}"))?;
        Ok(Some(container_id(&target, seen.restarts)))
    }

    /// A container was made, and what it should run can't be run: that is an end like others.
    fn not_run(&mut self, container: &Container, note: ContainerNote, id: &str, message: String) {
        let name = &container.name;
        self.say_of(name, Kind::Normal, "Created", format!("Created container: {name}"));
        self.say_of(name, Kind::Warning, "Failed", format!("Error: {message}"));
        let ended = Ended {
            id: shown_id(&self.uid, id),
            code: NOT_RUN,
            signal: None,
            reason: "StartError".to_owned(),
            message: message.clone(),
            started: Timestamp::UNIX_EPOCH,
            finished: self.shared.now(),
        };
        let again = is_sidecar(container)
            || self.pod.spec.as_ref().is_some_and(|spec| Restart::of(spec) != Restart::Never);
        let seen = self.seen(name);
        if let State::Ended(before) = std::mem::replace(&mut seen.state, State::Ended(ended)) {
            seen.last = Some(before);
        }
        seen.restarts = note.restart;
        seen.here = true;
        seen.retry = None;
        seen.image = ImageState::Unknown;
        seen.asked = note.image;
        seen.image_id = note.image_id;
        if again {
            self.wait_with(name, "RunContainerError", message);
        }
    }

    /// Watches over a container that runs: its end, its probes, and at its start its hook.
    pub(super) fn attend(&mut self, container: &Container, running: sandbox::Container, fresh: bool) {
        let name = container.name.clone();
        let Some(pod) = self.live.lock().sandbox.clone() else { return };
        let mut tasks = Vec::new();
        let (tell, ended, of) = (self.tell.clone(), running.clone(), name.clone());
        tokio::spawn(async move {
            let exit = ended.wait().await;
            // A worker that is gone has adopted its end already.
            let _gone = tell.send(Told::Ended { container: of, id: ended.id().to_owned(), exit });
        });
        // One that ran before this node did was asked then; what was found holds until it is found otherwise.
        let shown = self.pod.status.as_ref().filter(|_| !fresh).and_then(|status| {
            let shown = shown_id(&self.uid, running.id());
            let mut all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
            all.find(|status| status.name == name && status.container_id.as_ref() == Some(&shown))
        });
        let was = |found: Option<bool>| found == Some(true);
        let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.clone());
        let hook = hook.filter(|_| fresh);
        let ready = container.readiness_probe.is_none() || was(shown.map(|status| status.ready));
        let begun = container.startup_probe.is_none() || was(shown.and_then(|status| status.started));
        let (ready, begun) = (ready && hook.is_none(), begun && hook.is_none());
        let (started, waits) = watch::channel(begun);
        let (hooked, unhooked) = watch::channel(hook.is_none());
        let target = Target { pod, container: running.clone(), spec: container.clone() };
        let seen = self.seen(&name);
        seen.started = begun;
        seen.ready = ready;
        seen.hooking = hook.is_some();
        for (kind, probe) in probes_of(container) {
            if kind == probes::tracker::Kind::Startup && begun {
                continue;
            }
            let work = probes::watch::run(kind, probe, target.clone(), waits.clone(), self.found.clone());
            let mut unhooked = unhooked.clone();
            let work = async move {
                if unhooked.wait_for(|done| *done).await.is_ok() {
                    work.await;
                }
            };
            tasks.push(tokio::spawn(work).abort_handle());
        }
        if let Some(hook) = hook {
            let (tell, of, id) = (self.tell.clone(), name.clone(), running.id().to_owned());
            let work = async move {
                let result = run_hook(&target, &hook, &tell).await;
                hooked.send_replace(result.is_ok());
                let _gone = tell.send(Told::Hooked { container: of, id, result });
            };
            self.hooks.insert(name.clone(), tokio::spawn(work).abort_handle());
        }
        let restarts = self.seen(&name).restarts;
        let mut live = self.live.lock();
        live.restarts.insert(name.clone(), restarts);
        live.waiting.remove(&name);
        live.containers.insert(name.clone(), running);
        drop(live);
        self.started.insert(name.clone(), started);
        for task in self.tasks.insert(name, tasks).into_iter().flatten() {
            task.abort();
        }
    }

    /// Removes what is left of earlier starts: the sandbox's part, and logs but the last one's.
    async fn discard_old(&mut self, sandbox: &sandbox::Pod, name: &str, restart: i32) {
        let old = self.live.lock().containers.remove(name);
        if let Some(old) = old
            && let Err(error) = old.remove().await
        {
            tracing::debug!(%error, container = old.id(), "what is left of a container stays");
        }
        // A start that was broken off half way may have left the same name.
        let id = container_id(name, restart);
        if let Err(error) = sandbox.clear(&id).await {
            tracing::debug!(%error, container = id, "what is left of a start stays");
        }
        if restart >= 2 {
            let path = logs::file(&self.shared.logs, &self.pod, name, restart - 2);
            logs::rotate::remove(&path);
        }
    }
}

/// What a kubelet says while it looks for an image, and what came of it.
async fn resolve(
    shared: &Shared,
    pod: &k8s_openapi::api::core::v1::Pod,
    field: String,
    image: String,
    pull: Pull,
) -> Result<Box<Resolved>, (String, String)> {
    let say =
        |kind, reason, message: String| shared.recorder.pod(pod, Some(field.clone()), kind, reason, message);
    let reference = Reference::parse(&image).map_err(|error| {
        let message = error.kubelet_message();
        say(Kind::Warning, "InspectFailed", message.clone());
        ("InvalidImageName".to_owned(), message)
    })?;
    let began = tokio::time::Instant::now();
    // What is there already needs no turn.
    let images = Arc::clone(&shared.images);
    let (of, quick) = (reference.clone(), if pull == Pull::Always { None } else { Some(Pull::Never) });
    if let Some(quick) = quick {
        let here = move || images.resolve(&of, quick, &drydock_images::silently);
        if let Ok(Ok(resolved)) = tokio::task::spawn_blocking(here).await {
            say(Kind::Normal, "Pulled", format!("Container image {image:?} already present on machine"));
            note(&resolved, &say);
            return Ok(Box::new(resolved));
        }
    }
    if pull != Pull::Never {
        say(Kind::Normal, "Pulling", format!("Pulling image {image:?}"));
    }
    let turn = shared.pulls.acquire().await;
    let waited = began.elapsed();
    let images = Arc::clone(&shared.images);
    let work = move || {
        let report = |progress: &drydock_images::Progress| tracing::debug!(%progress, "pulling");
        images.resolve(&reference, pull, &report)
    };
    let result = tokio::task::spawn_blocking(work).await;
    drop(turn);
    match result {
        Ok(Ok(resolved)) => {
            let took = began.elapsed();
            let alone = took.saturating_sub(waited);
            let message = format!(
                "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {} bytes.",
                shown(alone),
                shown(took),
                resolved.bytes
            );
            say(Kind::Normal, "Pulled", message);
            note(&resolved, &say);
            Ok(Box::new(resolved))
        }
        Ok(Err(error)) => {
            let crate::ImageError { reason, message } = error;
            let text = match reason.as_str() {
                "ErrImageNeverPull" => message.clone(),
                _ => format!("Failed to pull image {image:?}: {message}"),
            };
            say(
                Kind::Warning,
                if reason == "ErrImageNeverPull" { "ErrImageNeverPull" } else { "Failed" },
                text,
            );
            Err((reason, message))
        }
        Err(error) => Err(("ErrImagePull".to_owned(), error.to_string())),
    }
}

/// Says where an image is not quite what its tag asks for.
fn note(image: &Resolved, say: &dyn Fn(Kind, &'static str, String)) {
    if let Some(note) = &image.note {
        say(Kind::Warning, "InexactImage", note.clone());
    }
}

/// A duration as Go prints it: `12ms`, `1.234s`.
fn shown(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{}ms", duration.as_millis())
    } else {
        format!("{}.{:03}s", duration.as_secs(), duration.subsec_millis())
    }
}

fn probes_of(container: &Container) -> Vec<(probes::tracker::Kind, Probe)> {
    use probes::tracker::Kind;
    [
        (Kind::Startup, &container.startup_probe),
        (Kind::Liveness, &container.liveness_probe),
        (Kind::Readiness, &container.readiness_probe),
    ]
    .into_iter()
    .filter_map(|(kind, probe)| probe.clone().map(|probe| (kind, probe)))
    .collect()
}

/// An empty file that everyone may write to.
fn fresh_file(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::File::create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
