//! The columns of kinds that run pods.

use jiff::Timestamp;
use serde_json::Value;

use super::{AGE, Column, NAME, Printer, age, core::or_none, human, name, number, since, text, wide};
use crate::{json, selector::text_of};

const CONTAINERS: Column = wide(text("Containers", "The names of the containers in the template."));
const IMAGES: Column = wide(text("Images", "The images of the containers in the template."));
const SELECTOR: Column = wide(text("Selector", "The labels of the pods."));

pub(crate) const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", "How many pods are ready."),
        text("Up-to-date", "How many pods are of the latest template."),
        text("Available", "How many pods have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let mut cells = vec![
            name(object),
            format!("{}/{}", status(object, "readyReplicas"), replicas(object)).into(),
            status(object, "updatedReplicas").into(),
            status(object, "availableReplicas").into(),
            age(object, now),
        ];
        cells.extend(containers(&object["spec"]["template"]));
        cells.push(selector(&object["spec"]));
        cells
    },
};

pub(crate) const REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        number("Desired", "How many pods are wanted."),
        number("Current", "How many pods there are."),
        number("Ready", "How many pods are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let mut cells = vec![
            name(object),
            replicas(object).into(),
            status(object, "replicas").into(),
            status(object, "readyReplicas").into(),
            age(object, now),
        ];
        cells.extend(containers(&object["spec"]["template"]));
        cells.push(selector(&object["spec"]));
        cells
    },
};

pub(crate) const STATEFUL_SET: Printer = Printer {
    columns: &[NAME, text("Ready", "How many pods are ready."), AGE, CONTAINERS, IMAGES],
    cells: |object, now| {
        let ready = format!("{}/{}", status(object, "readyReplicas"), replicas(object));
        let mut cells = vec![name(object), ready.into(), age(object, now)];
        cells.extend(containers(&object["spec"]["template"]));
        cells
    },
};

pub(crate) const DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        number("Desired", "How many nodes should run a pod."),
        number("Current", "How many nodes run a pod."),
        number("Ready", "How many pods are ready."),
        number("Up-to-date", "How many pods are of the latest template."),
        number("Available", "How many pods have been ready for long enough."),
        text("Node Selector", "The labels of the nodes."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let template = &object["spec"]["template"];
        let mut cells = vec![
            name(object),
            status(object, "desiredNumberScheduled").into(),
            status(object, "currentNumberScheduled").into(),
            status(object, "numberReady").into(),
            status(object, "updatedNumberScheduled").into(),
            status(object, "numberAvailable").into(),
            super::core::labels(json::map(&template["spec"], "nodeSelector")).into(),
            age(object, now),
        ];
        cells.extend(containers(template));
        cells.push(selector(&object["spec"]));
        cells
    },
};

pub(crate) const JOB: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "What became of the job."),
        text("Completions", "How many pods have succeeded."),
        text("Duration", "How long it took."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let mut cells = vec![
            name(object),
            job_status(object).into(),
            completions(object).into(),
            duration(&object["status"], now).into(),
            age(object, now),
        ];
        cells.extend(containers(&object["spec"]["template"]));
        cells.push(selector(&object["spec"]));
        cells
    },
};

pub(crate) const CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        text("Schedule", "When it runs."),
        text("Timezone", "In whose time."),
        Column { kind: "boolean", ..text("Suspend", "Whether it is held.") },
        number("Active", "How many jobs are running."),
        text("Last Schedule", "When it last ran."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let last = match status["lastScheduleTime"].as_str() {
            Some(time) => since(Some(time), now),
            None => "<none>".to_owned(),
        };
        let suspended =
            spec["suspend"].as_bool().map_or("<unset>", |held| if held { "True" } else { "False" });
        let job = &spec["jobTemplate"]["spec"];
        let mut cells = vec![
            name(object),
            json::text(spec, "schedule").into(),
            or_none(json::text(spec, "timeZone").to_owned()).into(),
            suspended.into(),
            json::list(status, "active").len().into(),
            last.into(),
            age(object, now),
        ];
        cells.extend(containers(&job["template"]));
        cells.push(selector(job));
        cells
    },
};

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or_default()
}

fn status(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}

fn containers(template: &Value) -> [Value; 2] {
    let list = json::list(&template["spec"], "containers");
    let joined = |field: &str| {
        Value::from(list.iter().map(|container| json::text(container, field)).collect::<Vec<_>>().join(","))
    };
    [joined("name"), joined("image")]
}

fn selector(spec: &Value) -> Value {
    match text_of(spec.get("selector")) {
        Some(text) => or_none(text).into(),
        None => "<none>".into(),
    }
}

fn job_status(job: &Value) -> &'static str {
    let has = |kind: &str| {
        json::list(&job["status"], "conditions").iter().any(|condition| {
            json::text(condition, "type") == kind && json::text(condition, "status") == "True"
        })
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if job["metadata"].get("deletionTimestamp").is_some() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = status(job, "succeeded");
    match (job["spec"]["completions"].as_i64(), job["spec"]["parallelism"].as_i64().unwrap_or_default()) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(status: &Value, now: Timestamp) -> String {
    let time = |field: &str| status[field].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    match time("startTime") {
        Some(start) => human(time("completionTime").unwrap_or(now).duration_since(start).as_secs()),
        None => String::new(),
    }
}
