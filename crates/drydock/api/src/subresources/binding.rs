//! `pods/binding`: a Pod is given to a node.

use http::StatusCode;
use serde_json::{Value, json};

use super::read_body;
use crate::{
    call::Call,
    failure::{Failure, GroupResource, OPTIMISTIC_LOCK},
    object::{self, meta},
    response::Answer,
    write::Attempt,
};

/// How often a Pod is given to its node again when somebody else was faster.
const ATTEMPTS: usize = 16;

/// Gives the Pod to the node that the Binding names. Nobody owns what the Binding writes, and it is no
/// new generation of the Pod.
pub(super) async fn bind(call: &Call<'_>) -> Result<Answer, Failure> {
    let binding = read_body(call)?;
    let node = target(&binding)?;
    for _ in 0..ATTEMPTS {
        let stored = call.stored()?;
        let mut pod = object::read(&call.kind, &stored)?;
        check(call, &pod, &binding)?;
        pod["spec"]["nodeName"] = node.into();
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        scheduled(&mut pod, &object::time(call.now));
        if !call.dry_run() {
            match call.put(stored.revision, pod, None).await {
                Ok(_) => {}
                Err(Attempt::Lost) => continue,
                Err(Attempt::Failed(failure)) => return Err(failure),
            }
        }
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        return Ok(call.plain(StatusCode::CREATED, &status));
    }
    Err(conflict(call, OPTIMISTIC_LOCK))
}

/// The node that a Binding names.
fn target(binding: &Value) -> Result<&str, Failure> {
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        return Err(Failure::Unexpected(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        )));
    }
    match binding["target"]["name"].as_str() {
        None | Some("") => Err(Failure::Unexpected("target.name: Required value".into())),
        Some(node) => Ok(node),
    }
}

fn conflict(call: &Call<'_>, why: impl Into<String>) -> Failure {
    Failure::Conflict(GroupResource::new("", "pods/binding"), call.name().to_owned(), why.into())
}

fn check(call: &Call<'_>, pod: &Value, binding: &Value) -> Result<(), Failure> {
    let (uid, own, name) = (meta(binding, "uid"), meta(pod, "uid"), call.name());
    if !uid.is_empty() && uid != own {
        return Err(conflict(
            call,
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}"),
        ));
    }
    if object::is_terminating(pod) {
        return Err(conflict(call, format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Err(conflict(call, format!("pod {name} is already assigned to node {node:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(conflict(call, format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    Ok(())
}

fn scheduled(pod: &mut Value, now: &str) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": now,
    });
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    match pod["status"]["conditions"].as_array_mut() {
        None => pod["status"]["conditions"] = json!([condition]),
        Some(conditions) => match conditions.iter_mut().find(|c| c["type"] == "PodScheduled") {
            Some(own) => *own = condition,
            None => conditions.push(condition),
        },
    }
}
