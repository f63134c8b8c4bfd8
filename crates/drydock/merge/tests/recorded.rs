//! Sequences of writes that were made to a real kube-apiserver (v1.34), made again here.
//!
//! Each step of `recorded.json` has the object as it was stored, what was sent, and what came
//! back. What the server defaulted is not ours to reproduce; everything else is: what the merged
//! object says, who owns what afterwards, whose time moved, and every word of an error.

#![expect(clippy::unwrap_used, reason = "a test that can't go on says where")]

use std::{fmt::Write, sync::Arc};

use drydock_merge::{
    fields::FieldSet,
    managed::{self, Apply, ApplyError, Update},
    patch,
};
use drydock_schema::{Schema, builtin};
use jiff::Timestamp;
use serde_json::{Value, json};

fn schema(kind: &str, api_version: &str) -> Arc<Schema> {
    match kind {
        "Shape" => {
            let schema: Value = serde_json::from_str(include_str!("shape.json")).unwrap();
            Schema::from_openapi(&schema).unwrap()
        }
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            builtin::definition_for(group, version, kind).unwrap()
        }
    }
}

/// What the endpoints of the recorded kinds leave alone.
fn ignored(kind: &str, subresource: Option<&str>) -> FieldSet {
    match (kind, subresource) {
        ("ConfigMap", _) => FieldSet::new(),
        (_, None) => FieldSet::of_names(&[&["status"]]),
        ("Deployment", Some(_)) => FieldSet::of_names(&[&["spec"], &["metadata", "labels"]]),
        (_, Some(_)) => FieldSet::of_names(&[&["spec"]]),
    }
}

fn check(name: &str) {
    let recorded: Value = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let sequence = recorded.as_array().unwrap().iter().find(|s| s["name"] == name).unwrap();
    let kind = sequence["kind"].as_str().unwrap();
    let api_version = sequence["apiVersion"].as_str().unwrap();
    let schema = schema(kind, api_version);
    let mut differences = String::new();
    let mut previous = Value::Null;
    for (i, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
        let mut step = step.clone();
        if step["live"] == json!("previous") {
            step["live"] = previous;
        }
        let after = if step["result"].is_null() { "live" } else { "result" };
        previous = step[after].clone();
        // A kind without a strategic merge patch says so before it comes to us.
        if step["code"] == json!(415) {
            continue;
        }
        for difference in replay(&schema, kind, api_version, &step) {
            writeln!(differences, "step {i} ({} by {}): {difference}", step["op"], step["manager"]).unwrap();
        }
    }
    assert!(differences.is_empty(), "{name}:\n{differences}");
}

fn replay(schema: &Schema, kind: &str, api_version: &str, step: &Value) -> Vec<String> {
    let live = Some(&step["live"]).filter(|live| !live.is_null());
    let body = &step["body"];
    let manager = step["manager"].as_str().unwrap();
    let subresource = step["subresource"].as_str();
    let ignore = ignored(kind, subresource);
    let now = newest_time(&step["result"]);
    let answer = match step["op"].as_str().unwrap() {
        "apply" => {
            let force = step["force"].as_bool().unwrap();
            let request = Apply {
                schema,
                live,
                applied: body,
                manager,
                api_version,
                subresource,
                force,
                now,
                ignore: &ignore,
            };
            managed::apply(request).map_err(|error| {
                let code = match &error {
                    ApplyError::Conflicts(_) => 409,
                    ApplyError::BadRequest(_) => 400,
                    _ => 500,
                };
                (code, error.to_string())
            })
        }
        "create" => Ok(body.clone()),
        "replace" => Ok(body.clone()),
        "merge" => patch::require_object(body)
            .map(|()| patch::merge(&step["live"], body))
            .map_err(|e| (e.code(), e.to_string())),
        "json" => patch::json(&step["live"], body).map_err(|e| (e.code(), e.to_string())),
        "strategic" => patch::strategic(schema, &step["live"], body).map_err(|e| (e.code(), e.to_string())),
        other => unreachable!("{other}"),
    };
    let answer = match (step["op"].as_str().unwrap(), answer) {
        ("apply", answer) => answer,
        // The rest of the write is the server's: what it stored is what is managed.
        (_, Ok(patched)) if !step["result"].is_null() => {
            let mut differences = Vec::new();
            compare("", live, &patched, &step["result"], &mut differences);
            if !differences.is_empty() {
                return differences;
            }
            let mut new = step["result"].clone();
            match patched["metadata"].get("managedFields") {
                Some(sent) => new["metadata"]["managedFields"] = sent.clone(),
                None => drop(new["metadata"].as_object_mut().unwrap().remove("managedFields")),
            }
            let request =
                Update { schema, live, new, manager, api_version, subresource, now, ignore: &ignore };
            Ok(managed::update(request))
        }
        (_, answer) => answer,
    };
    judge(step, live, answer)
}

fn judge(step: &Value, live: Option<&Value>, answer: Result<Value, (u16, String)>) -> Vec<String> {
    let mut differences = Vec::new();
    match answer {
        Err((code, message)) => {
            if step["code"] != json!(code) || !says(&message, step["error"].as_str().unwrap_or_default()) {
                differences.push(format!(
                    "\n  ours:   {code} {message}\n  theirs: {} {}",
                    step["code"],
                    step["error"].as_str().unwrap_or("no error")
                ));
            }
        }
        Ok(object)
            if step["code"] == json!(422) && step["error"].as_str().unwrap().contains("must be of type") =>
        {
            let error = step["error"].as_str().unwrap();
            for path in
                error.split("Invalid value: \"null\": ").skip(1).filter_map(|rest| rest.split(' ').next())
            {
                let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
                if object.pointer(&pointer) != Some(&Value::Null) {
                    differences.push(format!("{path} is not null: {object}"));
                }
            }
        }
        // Validation after the merge is not ours.
        Ok(_) if step["code"] == json!(422) && step["error"].as_str().unwrap().contains("is invalid: ") => {}
        Ok(object) => match step["error"].as_str() {
            Some(error) => differences.push(format!("ours is no error, theirs is {error}")),
            None => {
                let mut object = object;
                restore(&mut object, live, step);
                compare("", live, &object, &step["result"], &mut differences);
                let ours = &object["metadata"]["managedFields"];
                let theirs = &step["result"]["metadata"]["managedFields"];
                if ours != theirs {
                    differences.push(format!("\n  ours:   {ours}\n  theirs: {theirs}"));
                }
            }
        },
    }
    differences
}

/// What the endpoint leaves alone is put back by the kind, after us.
fn restore(object: &mut Value, live: Option<&Value>, step: &Value) {
    let left_alone = if step["subresource"] == json!("status") { "spec" } else { "status" };
    let Some(fields) = object.as_object_mut() else { return };
    match live.and_then(|live| live.get(left_alone)) {
        Some(value) => drop(fields.insert(left_alone.to_owned(), value.clone())),
        None => drop(fields.remove(left_alone)),
    }
}

/// Whether our message is theirs. Where there are several errors, the real server walks fields
/// in no order and stops at one that is not declared, so it may say less, and in another order.
fn says(ours: &str, theirs: &str) -> bool {
    if ours == theirs {
        return true;
    }
    let lines = |text: &str| -> Option<(String, Vec<String>)> {
        let (head, rest) = text.split_once("): ")?;
        let lines = rest.strip_prefix("errors:\n  ").unwrap_or(rest).split("\n  ");
        Some((head.to_owned(), lines.map(str::to_owned).collect()))
    };
    match (lines(ours), lines(theirs)) {
        (Some((our_head, ours)), Some((their_head, theirs))) => {
            our_head == their_head && theirs.iter().all(|line| ours.contains(line))
        }
        _ => false,
    }
}

/// Whether what we have is what they have. They may have more where the server filled in a
/// default: where nothing was before, or something else.
fn compare(path: &str, live: Option<&Value>, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, value) in ours {
                let path = format!("{path}.{name}");
                if is_the_servers(&path) {
                    continue;
                }
                match theirs.get(name) {
                    Some(theirs) => compare(&path, live.and_then(|l| l.get(name)), value, theirs, out),
                    None if is_empty(value) || goes_with_the_type(&path) => {}
                    None => out.push(format!("{path}: ours has {value}, theirs has not")),
                }
            }
            for (name, value) in theirs {
                let path = format!("{path}.{name}");
                if !ours.contains_key(name)
                    && !is_the_servers(&path)
                    && live.and_then(|l| l.get(name)) == Some(value)
                    && !is_default(&path, value)
                {
                    out.push(format!("{path}: theirs has {value}, ours has not"));
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (i, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                // Items move; what was live at this place says nothing.
                compare(&format!("{path}[{i}]"), None, ours, theirs, out);
            }
        }
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => {}
        (Value::Number(ours), Value::String(theirs))
            if path.contains("limits") && ours.to_string() == *theirs => {}
        (ours, theirs) if ours == theirs => {}
        (ours, theirs) if is_the_servers(path) && ours != theirs => {}
        (ours, theirs) => out.push(format!("{path}: ours is {ours}, theirs is {theirs}")),
    }
}

fn is_the_servers(path: &str) -> bool {
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"]
        .iter()
        .any(|name| path == format!(".metadata.{name}"))
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value.as_object().is_some_and(|v| v.is_empty())
        || value.as_array().is_some_and(Vec::is_empty)
}

/// What a Service that is no longer a NodePort loses.
fn goes_with_the_type(path: &str) -> bool {
    path == ".spec.externalTrafficPolicy" || path.ends_with(".nodePort")
}

/// Fields that go when their owner lets go and come back with the value they had.
fn is_default(path: &str, value: &Value) -> bool {
    (path == ".spec.replicas" && *value == json!(1))
        || path == ".spec.strategy"
        || path.starts_with(".spec.clusterIP")
        || path == ".spec.type"
}

fn newest_time(object: &Value) -> Timestamp {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["time"].as_str()?.parse().ok())
        .max()
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

#[test]
fn a_configmap_is_shared_taken_by_force_and_let_go() {
    check("configmap-shared-and-taken");
}

#[test]
fn updates_and_applies_own_a_configmap_side_by_side() {
    check("configmap-updates");
}

#[test]
fn containers_ports_and_environment_of_a_deployment_are_merged_by_their_keys() {
    check("deployment-containers");
}

#[test]
fn ports_of_a_service_are_told_apart_by_port_and_protocol() {
    check("service-ports");
}

#[test]
fn a_custom_resource_has_maps_sets_and_atomic_values() {
    check("shape-lists");
}

#[test]
fn the_eleventh_updater_makes_the_oldest_ancient() {
    check("shape-many-updaters");
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client_side() {
    check("configmap-from-client-side-apply");
}

#[test]
fn strategic_merge_patches_of_a_deployment_are_as_the_server_makes_them() {
    check("deployment-patched-strategically");
}

#[test]
fn json_and_merge_patches_of_a_custom_resource_are_as_the_server_makes_them() {
    check("shape-patched");
}

#[test]
fn who_creates_a_built_in_kind_owns_what_it_wrote_but_not_what_is_always_there() {
    for kind in [
        "cronjob",
        "endpoints",
        "endpointslice",
        "event",
        "lease",
        "networkpolicy",
        "poddisruptionbudget",
        "replicaset",
        "role",
        "rolebinding",
        "serviceaccount",
        "statefulset",
    ] {
        check(&format!("created-{kind}"));
    }
}

#[test]
fn writes_at_random_to_a_custom_resource_end_as_on_the_server() {
    check("shape-at-random-1");
    check("shape-at-random-2");
}
