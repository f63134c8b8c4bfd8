//! The columns of pods: how a pod is, in one word.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    AGE,
    About::{Field, Said},
    NAME, Printer, age,
    core::or_none,
    name, since, text, wide,
};
use crate::{Kind, json};

pub(crate) const POD: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", Said("The aggregate readiness state of this pod for accepting traffic.")),
        text("Status", Said("The aggregate status of the containers in this pod.")),
        text(
            "Restarts",
            Said(
                "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
            ),
        ),
        AGE,
        wide(text("IP", Field("io.k8s.api.core.v1.PodStatus", "podIP"))),
        wide(text("Node", Field("io.k8s.api.core.v1.PodSpec", "nodeName"))),
        wide(text("Nominated Node", Field("io.k8s.api.core.v1.PodStatus", "nominatedNodeName"))),
        wide(text("Readiness Gates", Field("io.k8s.api.core.v1.PodSpec", "readinessGates"))),
    ],
    cells: |pod, now| {
        let summary = Summary::of(pod);
        let address = json::list(&pod["status"], "podIPs").first().map(|address| json::text(address, "ip"));
        vec![
            name(pod),
            format!("{}/{}", summary.ready, summary.total).into(),
            summary.reason.clone().into(),
            summary.restarts(now).into(),
            age(pod, now),
            or_none(address.unwrap_or_default().to_owned()).into(),
            or_none(json::text(&pod["spec"], "nodeName").to_owned()).into(),
            or_none(json::text(&pod["status"], "nominatedNodeName").to_owned()).into(),
            gates(pod).into(),
        ]
    },
};

/// What the states of its containers make of a pod.
struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<String>,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let sidecars: Vec<_> = json::list(spec, "initContainers")
            .iter()
            .filter(|container| json::text(container, "restartPolicy") == "Always")
            .map(|container| json::text(container, "name"))
            .collect();
        let mut summary = Self {
            ready: 0,
            total: json::list(spec, "containers").len() + sidecars.len(),
            reason: first_reason(status),
            restarts: 0,
            last_restart: None,
        };
        let initializing = summary.init_containers(spec, status, &sidecars);
        if !initializing || has_condition(status, "Initialized") {
            summary.containers(status, &sidecars);
        }
        let over = matches!(json::text(status, "phase"), "Succeeded" | "Failed");
        if pod["metadata"].get("deletionTimestamp").is_some() {
            if json::text(status, "reason") == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !over {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Answers whether the pod is still being prepared.
    fn init_containers(&mut self, spec: &Value, status: &Value, sidecars: &[&str]) -> bool {
        for (index, container) in json::list(status, "initContainerStatuses").iter().enumerate() {
            self.count_restarts(container);
            let state = &container["state"];
            let terminated = state.get("terminated").filter(|state| state.is_object());
            if terminated.is_some_and(|state| state["exitCode"] == 0) {
                continue;
            }
            if sidecars.contains(&json::text(container, "name"))
                && container["started"].as_bool() == Some(true)
            {
                self.ready += usize::from(container["ready"].as_bool() == Some(true));
                continue;
            }
            let waiting = json::text(&state["waiting"], "reason");
            self.reason = match terminated {
                Some(state) => format!("Init:{}", ended(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", json::list(spec, "initContainers").len()),
            };
            return true;
        }
        false
    }

    fn containers(&mut self, status: &Value, sidecars: &[&str]) {
        self.restarts = 0;
        self.last_restart = None;
        for container in json::list(status, "initContainerStatuses") {
            if sidecars.contains(&json::text(container, "name")) {
                self.count_restarts(container);
            }
        }
        let mut running = false;
        for container in json::list(status, "containerStatuses").iter().rev() {
            self.count_restarts(container);
            let state = &container["state"];
            let waiting = json::text(&state["waiting"], "reason");
            let terminated = state.get("terminated").filter(|state| state.is_object());
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(state) = terminated {
                self.reason = ended(state);
            } else if container["ready"].as_bool() == Some(true) && state["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if has_condition(status, "Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or_default();
        if let Some(time) = container["lastState"]["terminated"]["finishedAt"].as_str()
            && self.last_restart.as_deref().is_none_or(|last| last < time)
        {
            self.last_restart = Some(time.to_owned());
        }
    }

    fn restarts(&self, now: Timestamp) -> String {
        match &self.last_restart {
            Some(time) if self.restarts != 0 => format!("{} ({} ago)", self.restarts, since(Some(time), now)),
            _ => self.restarts.to_string(),
        }
    }
}

fn first_reason(status: &Value) -> String {
    let gated = json::list(status, "conditions").iter().any(|condition| {
        json::text(condition, "type") == "PodScheduled"
            && json::text(condition, "reason") == "SchedulingGated"
    });
    if gated {
        return "SchedulingGated".to_owned();
    }
    match json::text(status, "reason") {
        "" => json::text(status, "phase").to_owned(),
        reason => reason.to_owned(),
    }
}

fn ended(state: &Value) -> String {
    match (json::text(state, "reason"), state["signal"].as_i64().unwrap_or_default()) {
        ("", 0) => format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or_default()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn has_condition(status: &Value, kind: &str) -> bool {
    json::list(status, "conditions")
        .iter()
        .any(|condition| json::text(condition, "type") == kind && json::text(condition, "status") == "True")
}

fn gates(pod: &Value) -> String {
    let gates = json::list(&pod["spec"], "readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met =
        gates.iter().filter(|gate| has_condition(&pod["status"], json::text(gate, "conditionType"))).count();
    format!("{met}/{}", gates.len())
}

/// How a pod that is over ended: its row is marked, so that clients can leave it out.
pub(super) fn over<'a>(kind: &Kind, object: &'a Value) -> Option<&'a str> {
    if &*kind.kind != "Pod" || !kind.group.is_empty() {
        return None;
    }
    Some(json::text(&object["status"], "phase")).filter(|phase| matches!(*phase, "Succeeded" | "Failed"))
}
