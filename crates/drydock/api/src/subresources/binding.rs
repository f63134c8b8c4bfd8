//! `pods/binding`: a Pod is given to a node.

use http::StatusCode;
use serde_json::{Value, json};

use super::read_body;
use crate::{
    call::Call,
    failure::Failure,
    object::{self, meta},
    response::Answer,
};

/// Gives the Pod to the node that the Binding names.
pub(super) async fn bind(call: &Call<'_>) -> Result<Answer, Failure> {
    let binding = read_body(call)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    let target = binding["target"]["kind"].as_str().unwrap_or_default();
    if node.is_empty() || !matches!(target, "" | "Node") {
        let error = if node.is_empty() {
            drydock_schema::FieldError::required("target.name", "")
        } else {
            drydock_schema::FieldError::new(
                drydock_schema::FieldErrorKind::NotSupported,
                "target.kind",
                Some(target.into()),
                r#"supported values: "Node""#,
            )
        };
        return Err(Failure::Invalid {
            kind: crate::failure::GroupResource::new("", "Binding"),
            name: call.name().to_owned(),
            errors: vec![error],
        });
    }
    call.update(Some("binding"), |live| {
        let mut pod = live.clone();
        check(call, live, &binding, &node)?;
        pod["spec"]["nodeName"] = node.clone().into();
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        scheduled(&mut pod, &object::time(call.now));
        Ok(call.manage(Some(live), pod, Some("binding")))
    })
    .await?;
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(call.plain(StatusCode::CREATED, &status))
}

fn check(call: &Call<'_>, live: &Value, binding: &Value, node: &str) -> Result<(), Failure> {
    let uid = meta(binding, "uid");
    if !uid.is_empty() && uid != meta(live, "uid") {
        return Err(call.conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta(live, "uid")
        )));
    }
    let name = call.name();
    if object::is_terminating(live) {
        return Err(call.conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let current = live["spec"]["nodeName"].as_str().unwrap_or_default();
    if !current.is_empty() {
        return Err(call.conflict(format!("pod {name} is already assigned to node {current:?}")));
    }
    let _ = node;
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
