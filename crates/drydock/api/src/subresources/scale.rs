//! `scale`: the number of replicas of anything that has one, in one form.

use drydock_kinds::{Kind, ScalePaths};
use drydock_merge::patch;
use drydock_schema::{FieldError, builtin, typed, unknown};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::read_body;
use crate::{
    body::{self, FieldValidation},
    call::Call,
    failure::{Failure, GroupResource},
    object::{self, meta, meta_mut},
    patch::{Patch, bearable, unpatchable},
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
            let validation = call.check_write_options("UpdateOptions")?;
            let mut body = read_body(call)?;
            check_type(&mut body)?;
            settle(call, &mut body, validation).map_err(|fault| body::mishandled("Scale", "v1", &fault))?;
            call.check_identity(&body)?;
            write(call, &paths, |_| Ok(body.clone())).await
        }
        Verb::Patch => {
            let (change, duplicates) = Patch::read(call)?;
            let validation = call.check_write_options("PatchOptions")?;
            match &change {
                Patch::Apply(applied) => {
                    call.judge_applied(duplicates, validation)?;
                    apply(call, &paths, applied).await
                }
                other => {
                    write(call, &paths, |scale| {
                        let mut wanted = patched(other, scale)?;
                        let shown = wanted.to_string();
                        settle(call, &mut wanted, validation).map_err(|fault| unpatchable(&shown, &fault))?;
                        call.check_identity(&wanted)?;
                        Ok(wanted)
                    })
                    .await
                }
            }
        }
        _ => Err(Failure::MethodNotAllowed),
    }
}

/// A patch of the Scale itself.
fn patched(change: &Patch, scale: &Value) -> Result<Value, Failure> {
    bearable(match change {
        Patch::Json(operations) => patch::json(scale, operations)?,
        Patch::Merge(change) | Patch::Strategic(change) | Patch::Apply(change) => {
            patch::require_object(change)?;
            patch::merge(scale, change)
        }
    })
}

async fn write(
    call: &Call<'_>,
    paths: &ScalePaths,
    propose: impl Fn(&Value) -> Result<Value, Failure>,
) -> Result<Answer, Failure> {
    let outcome = call
        .update(Some("scale"), |live| {
            let current = view(&call.kind, paths, live)?;
            let wanted = propose(&current)?;
            if !call.kind.is_custom() {
                check(call, &wanted)?;
            }
            let mut new = live.clone();
            let version = meta(&wanted, "resourceVersion");
            let version = if version.is_empty() { meta(live, "resourceVersion") } else { version };
            meta_mut(&mut new).insert("resourceVersion".into(), version.into());
            let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
            set(&mut new, &paths.spec, replicas.into());
            Ok(without_time(call.manage(Some(live), new, Some("scale"))))
        })
        .await?;
    let object = outcome.object(&call.kind)?;
    Ok(call.plain(StatusCode::OK, &view(&call.kind, paths, &object)?))
}

/// An applied Scale says one thing about the object: its number of replicas.
async fn apply(call: &Call<'_>, paths: &ScalePaths, applied: &Value) -> Result<Answer, Failure> {
    check(call, applied)?;
    let mut opinion = json!({
        "apiVersion": call.kind.api_version(),
        "kind": &*call.kind.kind,
        "metadata": {"name": call.name()},
    });
    if let Some(replicas) = applied["spec"].get("replicas") {
        set(&mut opinion, &paths.spec, replicas.clone());
    }
    let outcome = call.update(Some("scale"), |live| call.merged(Some(live), &opinion, Some("scale"))).await?;
    let object = outcome.object(&call.kind)?;
    Ok(call.plain(StatusCode::OK, &view(&call.kind, paths, &object)?))
}

/// The real server keeps no time for what is owned through `scale`, and lists it first.
fn without_time(mut object: Value) -> Value {
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        let by_scale = |entry: &Value| entry["subresource"] == "scale" && entry["operation"] == "Update";
        for entry in entries.iter_mut().filter(|entry| by_scale(entry)) {
            entry.as_object_mut().map(|entry| entry.remove("time"));
        }
        entries.sort_by_key(|entry| (entry["operation"] != "Apply", !by_scale(entry)));
    }
    object
}

/// A body that says it is something else is refused.
fn check_type(scale: &mut Value) -> Result<(), Failure> {
    let text = |field: &str| scale[field].as_str().unwrap_or_default().to_owned();
    let (version, name) = (text("apiVersion"), text("kind"));
    if !matches!(version.as_str(), "" | "autoscaling/v1") || !matches!(name.as_str(), "" | "Scale") {
        let short = version.rsplit('/').next().unwrap_or_default();
        let fault = body::other_type("autoscaling", "Scale", &version, &name);
        return Err(Failure::BadRequest(format!(
            "{name} in version {short:?} cannot be handled as a Scale: {fault}"
        )));
    }
    scale["apiVersion"] = "autoscaling/v1".into();
    scale["kind"] = "Scale".into();
    Ok(())
}

/// Known fields of the right types only.
fn settle(call: &Call<'_>, scale: &mut Value, validation: FieldValidation) -> Result<(), String> {
    let Some(schema) = builtin::definition("io.k8s.api.autoscaling.v1.Scale") else { return Ok(()) };
    typed::check(&schema, scale).map_err(|fault| fault.to_string())?;
    let unknown = unknown::prune(&schema, scale, unknown::Root::Resource);
    call.warn(body::judge(validation, body::Excess { unknown, ..Default::default() }, None)?);
    Ok(())
}

/// What is wrong with a Scale that is to be written to a built-in kind.
fn check(call: &Call<'_>, scale: &Value) -> Result<(), Failure> {
    let number = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if number >= 0 {
        return Ok(());
    }
    Err(Failure::Invalid {
        kind: GroupResource::new("autoscaling", "Scale"),
        name: call.name().to_owned(),
        errors: vec![FieldError::invalid("spec.replicas", number, "must be greater than or equal to 0")],
    })
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
