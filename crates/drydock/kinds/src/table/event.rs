//! The columns of events; those of both groups look the same.

use jiff::Timestamp;
use serde_json::Value;

use super::{About::Field, Column, NAME, Printer, since, text, wide};
use crate::{event, json};

const COLUMNS: &[Column] = &[
    text("Last Seen", Field("io.k8s.api.core.v1.Event", "lastTimestamp")),
    text("Type", Field("io.k8s.api.core.v1.Event", "type")),
    text("Reason", Field("io.k8s.api.core.v1.Event", "reason")),
    text("Object", Field("io.k8s.api.core.v1.Event", "involvedObject")),
    wide(text("Subobject", Field("io.k8s.api.core.v1.ObjectReference", "fieldPath"))),
    wide(text("Source", Field("io.k8s.api.core.v1.Event", "source"))),
    text("Message", Field("io.k8s.api.core.v1.Event", "message")),
    wide(text("First Seen", Field("io.k8s.api.core.v1.Event", "firstTimestamp"))),
    wide(text("Count", Field("io.k8s.api.core.v1.Event", "count"))),
    wide(NAME),
];

pub(crate) const CORE: Printer = Printer { columns: COLUMNS, cells };

pub(crate) const NEW: Printer = Printer {
    columns: COLUMNS,
    cells: |object, now| {
        let mut core = object.clone();
        event::to_core(&mut core);
        cells(&core, now)
    },
};

fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let time =
        |value: &Value| value.as_str().filter(|time| !time.is_empty()).map(|time| since(Some(time), now));
    let unknown = || "<unknown>".to_owned();
    let first = time(&event["firstTimestamp"]).or_else(|| time(&event["eventTime"])).unwrap_or_else(unknown);
    let mut last = time(&event["lastTimestamp"]).unwrap_or_else(|| first.clone());
    let mut count = event["count"].as_i64().unwrap_or_default().max(1);
    if let Some(series) = event.get("series").filter(|series| series.is_object()) {
        last = time(&series["lastObservedTime"]).unwrap_or_else(unknown);
        count = series["count"].as_i64().unwrap_or_default();
    }
    let about = &event["involvedObject"];
    let kind = json::text(about, "kind").to_lowercase();
    let target = match json::text(about, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        json::text(event, "type").into(),
        json::text(event, "reason").into(),
        target.into(),
        json::text(about, "fieldPath").into(),
        source(event).into(),
        json::text(event, "message").trim().into(),
        first.into(),
        count.into(),
        json::text(&event["metadata"], "name").into(),
    ]
}

fn source(event: &Value) -> String {
    let first_of = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { a.to_owned() };
    let component =
        first_of(json::text(&event["source"], "component"), json::text(event, "reportingComponent"));
    let instance = first_of(json::text(&event["source"], "host"), json::text(event, "reportingInstance"));
    if instance.is_empty() { component } else { format!("{component}, {instance}") }
}
