//! The end of a container, and what a worker hears and remembers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use drydock_sandbox as sandbox;
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStateTerminated};

use super::decide::Stopping;
use super::hooks::run_hook;
use super::observed::{Ended, ImageState, Sandbox, State, Unhealthy};
use super::record::{ContainerNote, shown_id};
use super::signals;
use super::worker::{Told, Worker};
use crate::events::Kind;
use crate::logs;
use crate::logs::lines::{Shown, Wish};
use crate::probes::ask::{Bad, Target};
use crate::probes::tracker;
use crate::probes::watch::{Found, What};

const TERM: i32 = 15;
const KILL: i32 = 9;
/// What a container gets to end by itself even when its hook took all the time.
const LEAST: Duration = Duration::from_secs(2);
/// How long a signal that could not be sent waits for the next try.
const AGAIN: Duration = Duration::from_secs(1);
/// What is meant by a time to end that no clock can count to: longer than any machine runs.
const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// How much of a termination message is kept, and of a log that stands for it: the end of either.
const WORDS: u64 = 4096;
/// How much the messages of all containers of a pod may be together: each has its part, and is cut where that ends.
const ALL_WORDS: usize = 12 * 1024;
const LOG_WORDS: usize = 2048;
const LOG_LINES: usize = 80;
/// How much of a log is read for that: lines of the longest kind, with their times.
const LOG_READ: u64 = 64 * 1024;
/// What a kubelet says of a container that it can't find any more.
const LOST: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";

impl Worker {
    pub(super) async fn hear(&mut self, told: Told) {
        match told {
            Told::Pulled { container, result } => self.pulled(&container, result),
            Told::Ended { container, id, exit } => self.ended(&container, &id, exit).await,
            Told::Hooked { container, id, result } => {
                if self.is_current(&container, &id) {
                    self.hooked(&container, result);
                }
            }
            Told::HookInTheClear { address } => {
                let message = format!(
                    "request to HTTPS lifecycle hook {address} got HTTP response, retry with HTTP succeeded"
                );
                self.say(Kind::Warning, "LifecycleHTTPFallback", message);
            }
            Told::HookFailed { container } => {
                self.say_of(&container, Kind::Warning, "FailedPreStopHook", "PreStopHook failed");
            }
        }
    }

    /// The hook after a start is done: the container counts from now on, or goes.
    fn hooked(&mut self, name: &str, result: Result<(), String>) {
        self.hooks.remove(name);
        let spec = self.container(name);
        let seen = self.seen(name);
        seen.hooking = false;
        let Err(error) = result else {
            let has = |probe: fn(&Container) -> bool| spec.as_ref().is_some_and(probe);
            seen.started = !has(|spec| spec.startup_probe.is_some());
            seen.ready = !has(|spec| spec.readiness_probe.is_some());
            if let (true, Some(started)) = (seen.started, self.started.get(name)) {
                started.send_replace(true);
            }
            return;
        };
        let message = "FailedPostStartHook".to_owned();
        seen.unhealthy = Some(Unhealthy { message, grace: None });
        // What the hook said may be a secret, and an event is none.
        tracing::debug!(container = name, error, "the hook after the start failed");
        self.say_of(name, Kind::Warning, "FailedPostStartHook", "PostStartHook failed");
    }

    /// Whether something is about the start of a container that runs now.
    fn is_current(&self, container: &str, id: &str) -> bool {
        let shown = shown_id(&self.uid, id);
        let seen = self.observed.of(container);
        seen.is_some_and(|seen| matches!(&seen.state, State::Running { id, .. } if *id == shown))
    }

    /// Takes what a probe found.
    pub(super) fn find(&mut self, found: Found) {
        let Found { container, id, kind, what } = found;
        if !self.is_current(&container, &id) {
            return;
        }
        let stopping = self.observed.of(&container).is_some_and(|seen| seen.stopping);
        match what {
            What::Warning(why) => {
                let message = format!("{} probe warning: {why}", kind.name());
                self.say_of(&container, Kind::Warning, "ProbeWarning", message);
            }
            What::Bad(bad) => {
                if !stopping {
                    let (kind, unknown) = (kind.name(), "errored and resulted in unknown state");
                    let message = match bad {
                        Bad::Failed(why) => format!("{kind} probe failed: {why}"),
                        Bad::Unasked(why) => format!("{kind} probe {unknown}: {why}"),
                    };
                    self.say_of(&container, Kind::Warning, "Unhealthy", message);
                }
            }
            What::Verdict(good) => match kind {
                tracker::Kind::Readiness => self.seen(&container).ready = good,
                tracker::Kind::Startup if good => {
                    self.seen(&container).started = true;
                    if let Some(started) = self.started.get(&container) {
                        started.send_replace(true);
                    }
                }
                tracker::Kind::Startup | tracker::Kind::Liveness if !good => {
                    let spec = self.container(&container);
                    let probe = spec.and_then(|spec| match kind {
                        tracker::Kind::Startup => spec.startup_probe,
                        _ => spec.liveness_probe,
                    });
                    let grace = probe.and_then(|probe| probe.termination_grace_period_seconds);
                    let message = format!(
                        "Container {container} failed {} probe, will be restarted",
                        kind.name().to_lowercase()
                    );
                    self.seen(&container).unhealthy = Some(Unhealthy { message, grace });
                }
                tracker::Kind::Startup | tracker::Kind::Liveness => {}
            },
        }
    }

    /// Has a container end: its hook, a signal, time, and the signal that nobody survives.
    pub(super) fn stop(&mut self, name: &str, grace: i64, why: Stopping) {
        let spec = self.container(name);
        let live = self.live.lock();
        let (Some(container), Some(pod)) = (live.containers.get(name).cloned(), live.sandbox.clone()) else {
            return;
        };
        drop(live);
        // As its image had it when it was started: it may be another's by now, or this node did not start it.
        let signal = ContainerNote::of(&container).and_then(|note| signals::number(&note.stop_signal?));
        if why == Stopping::WithPod {
            self.observed.ending.get_or_insert(self.shared.now());
        }
        let message = match why {
            Stopping::WithPod => format!("Stopping container {name}"),
            Stopping::ToRestart(message) => message,
        };
        self.say_of(name, Kind::Normal, "Killing", message);
        let seen = self.seen(name);
        (seen.stopping, seen.hooking) = (true, false);
        if let Some(hook) = self.hooks.remove(name) {
            hook.abort();
        }
        let hook = spec.as_ref().and_then(|spec| spec.lifecycle.as_ref()?.pre_stop.clone());
        let grace = time_to_end(grace);
        let (tell, of) = (self.tell.clone(), name.to_owned());
        let task = tokio::spawn(async move {
            let end = tokio::time::Instant::now() + grace;
            if let (Some(hook), Some(spec), false) = (hook, spec, grace.is_zero()) {
                let target = Target { pod, container: container.clone(), spec };
                let hooked = tokio::time::timeout(grace, run_hook(&target, &hook, &tell)).await;
                if let Ok(Err(error)) = hooked {
                    tracing::debug!(container = of, error, "the hook before the stop failed");
                    let _gone = tell.send(Told::HookFailed { container: of });
                }
            }
            let end = if grace.is_zero() { end } else { end.max(tokio::time::Instant::now() + LEAST) };
            if end > tokio::time::Instant::now() {
                let asked = container.signal(signal.unwrap_or(TERM)).await;
                if asked.is_err() {
                    // It is asked all the same, in the words that everyone knows.
                    let _late = tokio::time::timeout_at(end, send(&container, TERM)).await;
                }
                tokio::time::sleep_until(end).await;
            }
            send(&container, KILL).await;
        });
        self.stops.insert(name.to_owned(), task.abort_handle());
    }

    async fn ended(&mut self, name: &str, id: &str, exit: Result<sandbox::Exit, sandbox::Error>) {
        if !self.is_current(name, id) {
            return;
        }
        let tasks = self.tasks.remove(name).into_iter().flatten();
        for task in tasks.chain(self.stops.remove(name)).chain(self.hooks.remove(name)) {
            task.abort();
        }
        self.started.remove(name);
        let restart = self.observed.of(name).map_or(0, |seen| seen.restarts);
        let now = self.shared.now();
        let exit = exit.unwrap_or_else(|error| {
            // Its pod's init is gone, and with it all processes: as if each had been killed.
            tracing::warn!(%error, container = id, "a pod's init has ended");
            // Who is heard of last may be of the sandbox before.
            if self.observed.of(name).is_some_and(|seen| seen.here) {
                self.observed.sandbox = Sandbox::Gone;
            }
            let started = match self.observed.of(name).map(|seen| &seen.state) {
                Some(State::Running { since, .. }) => *since,
                _ => now,
            };
            sandbox::Exit { code: 128 + KILL, signal: Some(KILL), oom_killed: false, started, finished: now }
        });
        let message = self.last_words(name, restart, exit.code);
        let ended = self.ending(id, &exit, message);
        let seen = self.seen(name);
        seen.state = State::Ended(ended);
        seen.image = ImageState::Unknown;
        (seen.started, seen.ready, seen.stopping, seen.unhealthy) = (false, false, false, None);
        seen.hooking = false;
    }

    fn ending(&self, id: &str, exit: &sandbox::Exit, message: String) -> Ended {
        let reason = match (exit.oom_killed, exit.code) {
            (true, _) => "OOMKilled",
            (false, 0) => "Completed",
            (false, _) => "Error",
        };
        Ended {
            id: shown_id(&self.uid, id),
            code: exit.code,
            signal: exit.signal,
            reason: reason.to_owned(),
            message,
            started: exit.started,
            finished: exit.finished,
        }
    }

    /// What a container left as its last words: its termination log, or the end of its log where the pod says so.
    fn last_words(&self, name: &str, restart: i32, code: i32) -> String {
        let directory = self.shared.pod_directory(&self.uid);
        let path = directory.join("containers").join(name).join(restart.to_string());
        let mut words = String::from_utf8_lossy(&end(&path, WORDS)).into_owned();
        let policy = self.container(name).and_then(|container| container.termination_message_policy);
        if words.is_empty() && code != 0 && policy.as_deref() == Some("FallbackToLogsOnError") {
            words = log_end(&logs::file(&self.shared.logs, &self.pod, name, restart));
        }
        words.truncate(words.floor_char_boundary(ALL_WORDS / self.containers().max(1)));
        words
    }

    /// How many containers the pod has, of whatever sort.
    fn containers(&self) -> usize {
        let Some(spec) = &self.pod.spec else { return 0 };
        let started_first = spec.init_containers.as_ref().map_or(0, Vec::len);
        let beside = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
        spec.containers.len() + started_first + beside
    }

    /// Takes from the API what only it remembers: how often containers were started, and how they ended before.
    pub(super) fn remember(&mut self) {
        let Some(status) = self.pod.status.clone() else { return };
        let lists =
            [status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses];
        for shown in lists.into_iter().flatten().flatten() {
            let ended =
                |state: Option<ContainerState>| state.and_then(|state| state.terminated).map(from_api);
            // One that ran then and is not found now has ended, and nobody knows how.
            let lost = shown.state.as_ref().and_then(|state| state.running.as_ref()).map(|ran| Ended {
                id: shown.container_id.clone().unwrap_or_default(),
                code: 128 + KILL,
                signal: None,
                reason: "ContainerStatusUnknown".to_owned(),
                message: LOST.to_owned(),
                started: ran.started_at.as_ref().map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0),
                finished: self.shared.now(),
            });
            let now = ended(shown.state).or(lost);
            let last = ended(shown.last_state);
            if now.is_none() && last.is_none() && shown.restart_count == 0 {
                continue;
            }
            let seen = self.seen(&shown.name);
            seen.restarts = shown.restart_count;
            seen.asked = shown.image;
            seen.image_id = shown.image_id;
            seen.last = last;
            if let Some(ended) = now {
                seen.state = State::Ended(ended);
            }
        }
    }

    /// Goes on with a pod of an earlier run.
    pub(super) fn adopt(&mut self, pod: sandbox::Pod) {
        let containers = pod.containers().unwrap_or_default();
        let alive = pod.is_alive();
        self.observed.sandbox = if alive { Sandbox::Up(pod.address()) } else { Sandbox::Gone };
        self.observed.address = Some(pod.address());
        self.live.lock().sandbox = Some(pod);
        let mut latest: BTreeMap<String, (ContainerNote, sandbox::Container)> = BTreeMap::new();
        for container in containers {
            let Some(note) = ContainerNote::of(&container) else { continue };
            if latest.get(&note.name).is_none_or(|(known, _)| known.restart < note.restart) {
                latest.insert(note.name.clone(), (note, container));
            }
        }
        for (name, (note, container)) in latest {
            let seen = self.seen(&name);
            if seen.restarts > note.restart {
                continue;
            }
            seen.restarts = note.restart;
            seen.here = alive;
            seen.asked = note.image;
            seen.image_id = note.image_id;
            let shown = shown_id(&self.uid, container.id());
            let before = std::mem::replace(
                &mut self.seen(&name).state,
                State::Running { id: shown.clone(), since: container.started() },
            );
            if let State::Ended(ended) = before
                && ended.id != shown
            {
                self.seen(&name).last = Some(ended);
            }
            match container.exit() {
                Some(exit) => {
                    let message = self.last_words(&name, note.restart, exit.code);
                    let ended = self.ending(container.id(), &exit, message);
                    self.seen(&name).state = State::Ended(ended);
                    let mut live = self.live.lock();
                    live.restarts.insert(name.clone(), note.restart);
                    live.containers.insert(name, container);
                }
                None => {
                    if let Some(spec) = self.container(&name) {
                        self.attend(&spec, container, false);
                    }
                }
            }
        }
    }
}

/// The time that a container gets: what was asked for, as far as it can be waited for.
fn time_to_end(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(AGES)
}

fn from_api(state: ContainerStateTerminated) -> Ended {
    let time = |time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0)
    };
    Ended {
        id: state.container_id.unwrap_or_default(),
        code: state.exit_code,
        signal: state.signal,
        reason: state.reason.unwrap_or_default(),
        message: state.message.unwrap_or_default(),
        started: time(state.started_at),
        finished: time(state.finished_at),
    }
}

/// The last bytes of a file; none of one that can't be read.
fn end(path: &Path, most: u64) -> Vec<u8> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    read().unwrap_or_default()
}

/// Sends a signal. A machine that has no room for it now may have it later, and nobody else would send it again.
async fn send(container: &sandbox::Container, signal: i32) {
    while let Err(sandbox::Error::Machine { what, source }) = container.signal(signal).await {
        tracing::warn!(what, error = %source, "a container is not signalled now");
        tokio::time::sleep(AGAIN).await;
    }
}

/// The last lines of a log, without what the format adds.
fn log_end(path: &Path) -> String {
    let mut shown = Shown::new(Wish { tail: Some(LOG_LINES), ..Wish::default() });
    shown.take(&end(path, LOG_READ));
    let all = shown.end();
    String::from_utf8_lossy(&all[all.len().saturating_sub(LOG_WORDS)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_gets_the_time_that_was_asked_for_as_far_as_there_is_a_clock() {
        for (seconds, expected) in [(-1, 0), (0, 0), (30, 30), (i64::MAX, AGES.as_secs())] {
            let grace = time_to_end(seconds);
            assert_eq!(grace.as_secs(), expected);
            assert!(tokio::time::Instant::now().checked_add(grace).is_some(), "{seconds}");
        }
    }

    #[test]
    fn the_end_of_a_file_is_read_and_of_a_log_what_was_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let check = |text: &str, expected: &str| {
            std::fs::write(&path, text).unwrap();
            assert_eq!(log_end(&path), expected);
        };
        let line = |tag: char, text: &str| format!("2024-01-01T00:00:00.000000000Z stdout {tag} {text}\n");
        check(&(line('F', "one") + &line('F', "two")), "one\ntwo\n");
        check(&line('F', "").repeat(100), &"\n".repeat(LOG_LINES));
        // One line that was too long for one.
        let long = line('P', &"a b c d ".repeat(2048)) + &line('F', "end");
        check(&long.repeat(9), &format!("c d {}end\n", "a b c d ".repeat(255)));
        assert_eq!(end(&path, 4), b"end\n");
        assert_eq!(end(&path.join("none"), 4), b"");
    }
}
