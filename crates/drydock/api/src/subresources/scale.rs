//! `scale`: the number of replicas of anything that has one, in one form.

use drydock_kinds::{Kind, ScalePaths};
use drydock_merge::patch;
use drydock_schema::{FieldError, builtin, unknown};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::read_body;
use crate::{
    call::Call,
    failure::{Failure, GroupResource},
    object::{self, meta, meta_mut},
    patch::Patch,
    request::Verb,
    response::Answer,
};

/// Answers a request to `scale`.
pub(crate) async fn scale(call: &Call<'_>) -> Result<Answer, Failure> {
    let Some(paths) = call.kind.subresources.scale.clone() else { return Err(Failure::NoSuchResource) };
    match call.info.verb {
        Verb::Get => {
            let live = object::read(&call.kind, &*call.stored()?)?;
            Ok(call.plain(StatusCode::OK, &view(&call.kind, &paths, &live)?))
        }
        Verb::Update => {
            call.check_write_options("UpdateOptions")?;
            let body = read_body(call)?;
            write(call, &paths, |_| Ok(body.clone())).await
        }
        Verb::Patch => {
            let (change, _) = Patch::read(call, !call.kind.is_custom())?;
            call.check_patch_options(&change)?;
            write(call, &paths, |scale| patched(&change, scale)).await
        }
        _ => Err(Failure::MethodNotAllowed),
    }
}

/// A patch of the Scale itself.
fn patched(change: &Patch, scale: &Value) -> Result<Value, Failure> {
    match change {
        Patch::Json(operations) => Ok(patch::json(scale, operations)?),
        Patch::Merge(change) | Patch::Strategic(change) | Patch::Apply(change) => {
            patch::require_object(change)?;
            Ok(patch::merge(scale, change))
        }
    }
}

async fn write(
    call: &Call<'_>,
    paths: &ScalePaths,
    propose: impl Fn(&Value) -> Result<Value, Failure>,
) -> Result<Answer, Failure> {
    let outcome = call
        .update(Some("scale"), |live| {
            let current = view(&call.kind, paths, live)?;
            let mut wanted = propose(&current)?;
            if let Some(schema) = builtin::definition("io.k8s.api.autoscaling.v1.Scale") {
                unknown::prune(&schema, &mut wanted, unknown::Root::Resource);
            }
            check(call, &wanted)?;
            let mut new = live.clone();
            let version = meta(&wanted, "resourceVersion");
            let version = if version.is_empty() { meta(live, "resourceVersion") } else { version };
            meta_mut(&mut new).insert("resourceVersion".into(), version.into());
            let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
            set(&mut new, &paths.spec, replicas.into());
            Ok(call.manage(Some(live), new, Some("scale")))
        })
        .await?;
    let object = outcome.object(&call.kind)?;
    Ok(call.plain(StatusCode::OK, &view(&call.kind, paths, &object)?))
}

/// What is wrong with a Scale that is to be written.
fn check(call: &Call<'_>, scale: &Value) -> Result<(), Failure> {
    let name = meta(scale, "name");
    if !name.is_empty() && name != call.name() {
        return Err(Failure::BadRequest(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    let replicas = &scale["spec"]["replicas"];
    if !replicas.is_null() && !replicas.is_i64() && !replicas.is_u64() {
        return Err(Failure::BadRequest(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
            if replicas.is_string() { "string" } else { "value" }
        )));
    }
    let number = replicas.as_i64().unwrap_or(0);
    if number < 0 || number > i64::from(i32::MAX) {
        return Err(Failure::Invalid {
            kind: GroupResource::new("autoscaling", "Scale"),
            name: call.name().to_owned(),
            errors: vec![FieldError::invalid(
                "spec.replicas",
                number,
                "must be greater than or equal to 0",
            )],
        });
    }
    Ok(())
}

/// An object as its Scale.
fn view(kind: &Kind, paths: &ScalePaths, object: &Value) -> Result<Value, Failure> {
    let spec = at(object, &paths.spec).and_then(Value::as_i64);
    if spec.is_none() && kind.is_custom() {
        return Err(Failure::Internal(format!("the spec replicas field {:?} does not exist", paths.spec)));
    }
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let mut status = json!({"replicas": at(object, &paths.status).and_then(Value::as_i64).unwrap_or(0)});
    if let Some(selector) = paths.selector.as_deref().and_then(|path| at(object, path)) {
        let text = match selector {
            Value::String(text) => Some(text.clone()),
            other => drydock_kinds::selector::text_of(Some(other)),
        };
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            status["selector"] = text.into();
        }
    }
    let mut scale_spec = Map::new();
    if let Some(replicas) = spec.filter(|replicas| *replicas != 0) {
        scale_spec.insert("replicas".into(), replicas.into());
    }
    Ok(json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": scale_spec,
        "status": status,
    }))
}

/// The value at a path like `.spec.replicas`.
fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, field| value.get(field))
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for field in path.trim_start_matches('.').split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[field];
    }
    *place = value;
}
