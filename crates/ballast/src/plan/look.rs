//! A view for one plan: the resource as the file would make it, and what the cluster has around it.
//!
//! **Guarantees.** Nothing is written: the resource is asked for as a dry run, everything else is read.

use ballast_operator::{How, KindRef, Object, Operator, View};
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, ValidationDirective};
use kube::core::ApiResource;
use kube::{Api, Client, Resource as _};
use serde_json::{Value, json};

use super::documents::Document;
use crate::failure::{Explain as _, Failure};

/// Where `kubectl apply` notes what the file said the last time.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The uid of what is not there yet.
const NO_UID: &str = "(known once it is made)";

/// The resource before and after the file, and what is around it.
pub struct Seen<R> {
    /// The resource as it is, if it is.
    pub live: Option<Object>,
    /// The resource as the file would make it.
    pub wanted: Object,
    /// What the operator would see.
    pub view: View<R>,
}

/// Looks at a cluster as if the file had been applied.
pub async fn look<O: Operator>(
    client: &Client,
    operator: &O,
    document: &Document,
    now: Timestamp,
) -> Result<Seen<O::Resource>, Failure> {
    let kind = KindRef::of::<O::Resource>();
    let namespace = document.text("/metadata/namespace");
    let api = api(client, &kind, Some(namespace));
    let name = document.text("/metadata/name");
    let live = api.get_opt(name).await.what(&document.place)?.map(|live| object(&kind, &live)).transpose()?;
    let wanted = api.patch(name, &as_kubectl(live.as_ref()), &patch(live.as_ref(), document)).await;
    let mut wanted = serde_json::to_value(wanted.what(&document.place)?).what(&document.place)?;
    if live.is_none() {
        wanted["metadata"]["uid"] = NO_UID.into();
    }
    let wanted = Object::of_kind(&kind, wanted).what(&document.place)?;
    let resource: O::Resource = wanted.read().what(&document.place)?;
    let mut view = View::new(resource, now);
    if live.is_some() {
        add_relations(client, operator, &mut view).await?;
    }
    add_claims(client, operator, &mut view).await?;
    Ok(Seen { live, wanted, view })
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

/// What the resource controls, and what carries its label.
async fn add_relations<O: Operator>(client: &Client, operator: &O, view: &mut View<O::Resource>) -> Result<(), Failure> {
    for relation in operator.relations() {
        let api = api(client, &relation.kind, view.namespace());
        let which = match relation.label() {
            Some(label) => ListParams::default().labels(&format!("{label}={}", view.name())),
            None => ListParams::default(),
        };
        let found = api.list(&which).await.what(format!("can't list {}", relation.kind.plural))?;
        for found in found {
            let found = object(&relation.kind, &found)?;
            if relation.how != How::Owned || view.controls(&found) {
                view.children.insert(&relation.kind, found);
            }
        }
    }
    Ok(())
}

/// What stands under the names that the resource claims.
async fn add_claims<O: Operator>(client: &Client, operator: &O, view: &mut View<O::Resource>) -> Result<(), Failure> {
    for claim in operator.claims(&view.resource) {
        if view.children.object(&claim.kind, &claim.name).is_some() {
            continue;
        }
        let namespace = view.resource.meta().namespace.clone();
        let api = api(client, &claim.kind, namespace.as_deref());
        let what = || format!("can't get {} {}", claim.kind, claim.name);
        if let Some(found) = api.get_opt(&claim.name).await.what(what())? {
            view.children.insert(&claim.kind, object(&claim.kind, &found)?);
        }
    }
    Ok(())
}

fn api(client: &Client, kind: &KindRef, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        api_version: kind.api_version(),
        kind: kind.kind.to_string(),
        plural: kind.plural.to_string(),
    };
    match namespace.filter(|_| kind.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn object(kind: &KindRef, found: &DynamicObject) -> Result<Object, Failure> {
    let value = serde_json::to_value(found).unwrap_or_else(|_| json!({}));
    Object::of_kind(kind, value).what("the server's answer")
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
