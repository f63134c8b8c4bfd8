//! Events have two groups and one store: `events.k8s.io/v1` is another spelling of the core kind.

use serde_json::Value;

use crate::json;

/// How a field is called in `events.k8s.io/v1`, and how in `v1`.
const RENAMED: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

pub(crate) fn to_core(object: &mut Value) {
    json::set(object, "apiVersion", "v1");
    for (new, core) in RENAMED {
        rename(object, new, core);
    }
}

pub(crate) fn from_core(object: &mut Value) {
    json::set(object, "apiVersion", "events.k8s.io/v1");
    for (new, core) in RENAMED {
        rename(object, core, new);
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = json::remove(object, from) {
        json::set(object, to, value);
    }
}
