//! The resource as the file would make it, by the server's own word.
//!
//! **Guarantees.** Nothing is written: the server is asked what `kubectl apply` would make of the file, as a dry run.

use ballast_operator::{KindRef, Object};
use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::documents::Document;
use crate::failure::{Explain as _, Failure};

/// Where `kubectl apply` notes what the file said the last time.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The uid of what is not there yet.
const NO_UID: &str = "(known once it is made)";

/// A resource before and after a file.
pub struct Admitted {
    /// As it is, if it is.
    pub live: Option<Object>,
    /// As the file would make it: admitted, defaulted, validated.
    pub wanted: Object,
}

/// Asks the server what it would make of a document.
///
/// # Errors
/// The server refuses it.
pub async fn admit(client: &Client, kind: &KindRef, document: &Document) -> Result<Admitted, Failure> {
    let (name, place) = (document.text("/metadata/name"), &document.place);
    let api = api(client, kind, document.text("/metadata/namespace"));
    let live = match api.get_opt(name).await.what(place)? {
        Some(live) => Some(object(kind, &live).what(place)?),
        None => None,
    };
    let wanted = api.patch(name, &as_kubectl(live.as_ref()), &patch(live.as_ref(), document)).await;
    let mut wanted = wanted.what(place)?;
    if live.is_none() {
        // A dry run makes one up.
        wanted.metadata.uid = Some(NO_UID.to_owned());
    }
    Ok(Admitted { wanted: object(kind, &wanted).what(place)?, live })
}

/// Under kubectl's own names, so that what would be taken over from kubectl is not.
fn as_kubectl(live: Option<&Object>) -> PatchParams {
    let strict = Some(ValidationDirective::Strict);
    match live.and_then(last_applied) {
        Some(_) => PatchParams {
            dry_run: true,
            field_manager: Some("kubectl-client-side-apply".to_owned()),
            field_validation: strict,
            force: false,
        },
        None => PatchParams {
            dry_run: true,
            field_manager: Some("kubectl".to_owned()),
            field_validation: strict,
            force: true,
        },
    }
}

/// What `kubectl apply` would send: by merge where it has applied before, by the server otherwise.
fn patch(live: Option<&Object>, document: &Document) -> Patch<Value> {
    match live.and_then(last_applied) {
        Some(before) => {
            // kubectl notes an empty map of annotations where the file had none.
            let mut now = document.value.clone();
            if now["metadata"]["annotations"].is_null() {
                now["metadata"]["annotations"] = json!({});
            }
            Patch::Merge(three_way(&before, &now))
        }
        None => Patch::Apply(document.value.clone()),
    }
}

fn last_applied(live: &Object) -> Option<Value> {
    let text = live.value().get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    serde_json::from_str(text).ok()
}

/// What the file says, and `null` for what the one before it said and this one does not.
fn three_way(before: &Value, now: &Value) -> Value {
    let (Some(before), Some(now)) = (before.as_object(), now.as_object()) else { return now.clone() };
    let mut patch = serde_json::Map::new();
    for (name, value) in now {
        let value = before.get(name).map_or_else(|| value.clone(), |before| three_way(before, value));
        patch.insert(name.clone(), value);
    }
    for name in before.keys().filter(|name| !now.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

fn api(client: &Client, kind: &KindRef, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        api_version: kind.api_version(),
        kind: kind.kind.to_string(),
        plural: kind.plural.to_string(),
    };
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

fn object(kind: &KindRef, answer: &DynamicObject) -> Result<Object, anyhow::Error> {
    Ok(Object::of_kind(kind, serde_json::to_value(answer)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_no_longer_says_is_taken_away() {
        for (before, now, expected) in [
            (json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
            (json!({"a": 1, "b": 1}), json!({"a": 1}), json!({"a": 1, "b": null})),
            (json!({"s": {"x": 1, "y": 1}}), json!({"s": {"y": 2}}), json!({"s": {"x": null, "y": 2}})),
            (json!({"l": [1]}), json!({"l": [2]}), json!({"l": [2]})),
        ] {
            assert_eq!(three_way(&before, &now), expected);
        }
    }
}
