//! The columns of kinds that run pods.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    AGE,
    About::{Field, Said},
    Column, NAME, Printer, age,
    core::or_none,
    human, name, number, since, text, wide,
};
use crate::{json, selector::text_of};

const CONTAINERS: Column = wide(text("Containers", Said("Names of each container in the template.")));
const IMAGES: Column = wide(text("Images", Said("Images referenced by each container in the template.")));

pub(crate) const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", Said("Number of the pod with ready state")),
        text("Up-to-date", Field("io.k8s.api.apps.v1.DeploymentStatus", "updatedReplicas")),
        text("Available", Field("io.k8s.api.apps.v1.DeploymentStatus", "availableReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide(text("Selector", Field("io.k8s.api.apps.v1.DeploymentSpec", "selector"))),
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
        number("Desired", Field("io.k8s.api.apps.v1.ReplicaSetSpec", "replicas")),
        number("Current", Field("io.k8s.api.apps.v1.ReplicaSetStatus", "replicas")),
        number("Ready", Field("io.k8s.api.apps.v1.ReplicaSetStatus", "readyReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide(text("Selector", Field("io.k8s.api.apps.v1.ReplicaSetSpec", "selector"))),
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
    columns: &[NAME, text("Ready", Said("Number of the pod with ready state")), AGE, CONTAINERS, IMAGES],
    cells: |object, now| {
        let ready = format!("{}/{}", status(object, "readyReplicas"), replicas(object));
        let mut cells = vec![name(object), ready.into(), age(object, now)];
        cells.extend(containers(&object["spec"]["template"]));
        cells
    },
};

pub(crate) const REVISION: Printer = Printer {
    columns: &[
        NAME,
        text("Controller", Said("Controller of the object")),
        text("Revision", Said("revision indicates the revision of the state represented by Data.")),
        AGE,
    ],
    cells: |object, now| {
        let mut owners = json::list(&object["metadata"], "ownerReferences").iter();
        let owner = owners.find(|owner| owner["controller"].as_bool() == Some(true));
        let owner = owner.map_or("<none>".to_owned(), |owner| {
            let kind = match json::text(owner, "apiVersion").split_once('/') {
                Some((group, _)) => format!("{}.{group}", json::text(owner, "kind")),
                None => json::text(owner, "kind").to_owned(),
            };
            format!("{}/{}", kind.to_lowercase(), json::text(owner, "name"))
        });
        let revision = object["revision"].as_i64().unwrap_or_default();
        vec![name(object), owner.into(), revision.into(), age(object, now)]
    },
};

pub(crate) const DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        number("Desired", Field("io.k8s.api.apps.v1.DaemonSetStatus", "desiredNumberScheduled")),
        number("Current", Field("io.k8s.api.apps.v1.DaemonSetStatus", "currentNumberScheduled")),
        number("Ready", Field("io.k8s.api.apps.v1.DaemonSetStatus", "numberReady")),
        number("Up-to-date", Field("io.k8s.api.apps.v1.DaemonSetStatus", "updatedNumberScheduled")),
        number("Available", Field("io.k8s.api.apps.v1.DaemonSetStatus", "numberAvailable")),
        text("Node Selector", Field("io.k8s.api.core.v1.PodSpec", "nodeSelector")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide(text("Selector", Field("io.k8s.api.apps.v1.DaemonSetSpec", "selector"))),
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
        text("Status", Said("Status of the job.")),
        text("Completions", Field("io.k8s.api.batch.v1.JobStatus", "succeeded")),
        text("Duration", Said("Time required to complete the job.")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide(text("Selector", Field("io.k8s.api.batch.v1.JobSpec", "selector"))),
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
        text("Schedule", Field("io.k8s.api.batch.v1.CronJobSpec", "schedule")),
        text("Timezone", Field("io.k8s.api.batch.v1.CronJobSpec", "timeZone")),
        Column { kind: "boolean", ..text("Suspend", Field("io.k8s.api.batch.v1.CronJobSpec", "suspend")) },
        number("Active", Field("io.k8s.api.batch.v1.CronJobStatus", "active")),
        text("Last Schedule", Field("io.k8s.api.batch.v1.CronJobStatus", "lastScheduleTime")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide(text("Selector", Field("io.k8s.api.batch.v1.JobSpec", "selector"))),
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
