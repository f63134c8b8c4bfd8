//! The pods and claims of a StatefulSet: names that stay, and what belongs to each. Pure.

use serde_json::{Map, Value, json};

use crate::machinery::cache::Kind;
use crate::objects::meta::OwnerReference;
use crate::objects::pod::Pod;
use crate::objects::stateful::{ClaimTemplate, Retention, StatefulSet};
use crate::objects::storage::Claim;
use crate::objects::template::{REPLACES, Template};

/// The label that says the name of a pod.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label that says the number of a pod.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// The label that says which revision a pod is of.
pub const REVISION: &str = "controller-revision-hash";

/// The number of a pod of this set; none when its name is not one the set gives.
pub fn ordinal(set: &StatefulSet, pod: &str) -> Option<i32> {
    let number = pod.strip_prefix(&*set.metadata.name)?.strip_prefix('-')?;
    (!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(())?;
    number.parse().ok()
}

/// The name of the pod of this number.
pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name)
}

/// The name of a pod's claim.
pub fn claim_name(set: &StatefulSet, template: &ClaimTemplate, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", template.metadata.name, set.metadata.name)
}

/// The revision a pod is of.
pub fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION).unwrap_or_default()
}

/// Whether a pod says its own name and has its own claims.
pub fn is_itself(set: &StatefulSet, pod: &Pod, ordinal: i32) -> bool {
    let labelled = pod.metadata.labels.get(POD_NAME) == Some(&*pod.metadata.name);
    let named = *pod.metadata.name == *pod_name(set, ordinal);
    let stored = set.spec.volume_claim_templates.iter().all(|template| {
        let claim = claim_name(set, template, ordinal);
        pod.spec.claims.iter().any(|(volume, own)| **volume == *template.metadata.name && **own == *claim)
    });
    labelled && named && stored
}

/// The patch that makes a pod itself again.
pub fn amendment(set: &StatefulSet, pod: &Pod, ordinal: i32) -> Value {
    let volumes: Vec<_> = volumes(set, ordinal).collect();
    json!({
        "metadata": { "uid": pod.metadata.uid, "labels": { POD_NAME: pod_name(set, ordinal), POD_INDEX: ordinal.to_string() } },
        "spec": { "volumes": volumes },
    })
}

/// The volumes that are claims of a pod.
fn volumes(set: &StatefulSet, ordinal: i32) -> impl Iterator<Item = Value> {
    set.spec.volume_claim_templates.iter().map(move |template| {
        let claim = claim_name(set, template, ordinal);
        json!({ "name": &*template.metadata.name, "persistentVolumeClaim": { "claimName": claim } })
    })
}

/// A new pod of the template, under its number.
pub fn pod_body(set: &StatefulSet, template: &Template, revision: &str, ordinal: i32) -> Value {
    let mut template = template.value();
    if let Some(fields) = template.as_object_mut() {
        fields.remove(REPLACES);
    }
    let name = pod_name(set, ordinal);
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    for (label, value) in [(POD_NAME, name.as_str()), (POD_INDEX, &ordinal.to_string()), (REVISION, revision)]
    {
        labels[label] = value.into();
    }
    metadata.insert("name".into(), name.as_str().into());
    metadata.insert("generateName".into(), format!("{}-", set.metadata.name).into());
    let owner = OwnerReference::to_controller(StatefulSet::resource(), &set.metadata);
    metadata.insert("ownerReferences".into(), json!([owner]));
    let mut spec = template["spec"].take();
    let own: Vec<Value> = volumes(set, ordinal).collect();
    if !own.is_empty() {
        let others = spec["volumes"].as_array().cloned().unwrap_or_default();
        let others = others.into_iter().filter(|other| own.iter().all(|one| one["name"] != other["name"]));
        spec["volumes"] = own.iter().cloned().chain(others).collect();
    }
    spec["hostname"] = name.into();
    if !set.spec.service_name.is_empty() {
        spec["subdomain"] = (&*set.spec.service_name).into();
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
}

/// A new claim of the template, for the pod of this number.
pub fn claim_body(set: &StatefulSet, template: &ClaimTemplate, ordinal: i32) -> Value {
    let mut labels = template.metadata.labels.clone();
    for (label, value) in set.spec.selector.match_labels.iter() {
        labels.set(label, value);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(set, template, ordinal),
            "namespace": &*set.metadata.namespace,
            "labels": labels,
            "annotations": template.metadata.annotations,
            "finalizers": template.metadata.finalizers,
        },
        "spec": template.spec,
    })
}

/// Who shall own a claim, where that differs from who does. The pod may not be there yet.
pub fn owners(set: &StatefulSet, ordinal: i32, pod: Option<&Pod>, claim: &Claim) -> Owners {
    let name = pod_name(set, ordinal);
    let pod_uid = pod.map_or("", |pod| &*pod.metadata.uid);
    let refers = |owner: &OwnerReference, api_version: &str, kind: &str, name: &str| {
        &*owner.api_version == api_version && &*owner.kind == kind && &*owner.name == name
    };
    let is_set = |owner: &OwnerReference| refers(owner, "apps/v1", "StatefulSet", &set.metadata.name);
    let is_pod = |owner: &OwnerReference| refers(owner, "v1", "Pod", &name);
    let held = &claim.metadata.owner_references;
    // What belonged to an earlier set or pod of the same name goes with that, or stays, as the collector finds.
    let stale = held.iter().any(|owner| {
        (is_set(owner) && owner.uid != set.metadata.uid) || (is_pod(owner) && *owner.uid != *pod_uid)
    });
    if stale {
        return Owners::AsTheyAre;
    }
    let policy = &set.spec.persistent_volume_claim_retention_policy;
    let keeps = policy.when_deleted == Retention::Retain && policy.when_scaled == Retention::Retain;
    let mut others = held.clone();
    others.retain(|owner| !is_set(owner) && !is_pod(owner));
    if !keeps && others.iter().any(|owner| owner.controller == Some(true)) {
        return if others.len() == held.len() { Owners::AsTheyAre } else { Owners::Foreign(others) };
    }
    let wanted = set.wants(ordinal);
    match (policy.when_scaled, policy.when_deleted, pod) {
        (Retention::Delete, _, Some(pod)) if !wanted => {
            others.push(OwnerReference::to_controller(Pod::resource(), &pod.metadata));
        }
        (Retention::Delete, Retention::Delete, _) if wanted => {
            others.push(OwnerReference::to_controller(StatefulSet::resource(), &set.metadata));
        }
        (Retention::Retain, Retention::Delete, _) => {
            others.push(OwnerReference::to_controller(StatefulSet::resource(), &set.metadata));
        }
        _ => {}
    }
    let same = others.len() == held.len()
        && others
            .iter()
            .all(|one| held.iter().any(|own| own.uid == one.uid && own.controller == one.controller));
    if same { Owners::AsTheyAre } else { Owners::Set(others) }
}

/// What is to be done about the owners of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Owners {
    /// Nothing.
    AsTheyAre,
    /// These shall it be.
    Set(Vec<OwnerReference>),
    /// These, since another controller manages the claim: the policy does not hold for it.
    Foreign(Vec<OwnerReference>),
}

/// Whether a claim belongs to an earlier pod of the same name, with which it will go. Only where claims go when
/// there are fewer pods.
pub fn is_stale(set: &StatefulSet, ordinal: i32, claim: &Claim) -> bool {
    set.spec.persistent_volume_claim_retention_policy.when_scaled == Retention::Delete
        && claim.metadata.owner_references.iter().any(|owner| {
            &*owner.api_version == "v1" && &*owner.kind == "Pod" && *owner.name == *pod_name(set, ordinal)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(policy: &str) -> StatefulSet {
        let text = format!(
            r#"{{"metadata":{{"name":"web","namespace":"n","uid":"s"}},"spec":{{"replicas":2,"serviceName":"svc",
                "selector":{{"matchLabels":{{"app":"web"}}}},"persistentVolumeClaimRetentionPolicy":{policy},
                "volumeClaimTemplates":[{{"metadata":{{"name":"data","labels":{{"a":"1"}}}},"spec":{{"accessModes":["ReadWriteOnce"]}}}}],
                "template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"c"}}],"volumes":[{{"name":"tmp","emptyDir":{{}}}},{{"name":"data","emptyDir":{{}}}}]}}}}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn pod(name: &str) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": name, "uid": "p" } })).unwrap()
    }

    #[test]
    fn only_names_with_a_number_are_members() {
        let set = set("{}");
        assert_eq!(ordinal(&set, "web-0"), Some(0));
        assert_eq!(ordinal(&set, "web-12"), Some(12));
        for other in ["web", "web-", "web-a", "web-+1", "web-1-2", "other-1", "web-99999999999"] {
            assert_eq!(ordinal(&set, other), None, "{other}");
        }
    }

    #[test]
    fn a_pod_gets_its_name_its_claims_and_its_host_name() {
        let set = set("{}");
        let body = pod_body(&set, &set.spec.template, "web-abc", 1);
        assert_eq!(
            body["metadata"]["labels"],
            json!({ "app": "web", POD_NAME: "web-1", POD_INDEX: "1", REVISION: "web-abc" })
        );
        assert_eq!(body["spec"]["hostname"], "web-1");
        assert_eq!(body["spec"]["subdomain"], "svc");
        assert_eq!(
            body["spec"]["volumes"],
            json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data-web-1" } }, { "name": "tmp", "emptyDir": {} }])
        );
        let claim = claim_body(&set, &set.spec.volume_claim_templates[0], 1);
        assert_eq!(claim["metadata"]["labels"], json!({ "a": "1", "app": "web" }));
    }

    #[track_caller]
    fn check(policy: &str, ordinal: i32, held: &str, expected: &str) {
        let claim: Claim =
            serde_json::from_str(&format!(r#"{{"metadata":{{"ownerReferences":{held}}}}}"#)).unwrap();
        let name = pod_name(&set("{}"), ordinal);
        let names = |owners: Vec<OwnerReference>| {
            owners.iter().map(|one| format!("{}/{}", one.kind, one.name)).collect::<Vec<_>>().join(" ")
        };
        let told = match owners(&set(policy), ordinal, Some(&pod(&name)), &claim) {
            Owners::AsTheyAre => "as they are".to_owned(),
            Owners::Set(owners) => format!("[{}]", names(owners)),
            Owners::Foreign(owners) => format!("foreign [{}]", names(owners)),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn claims_go_with_whoever_the_policy_says() {
        let set =
            r#"[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"s","controller":true}]"#;
        let pod = r#"[{"apiVersion":"v1","kind":"Pod","name":"web-2","uid":"p","controller":true}]"#;
        let (keep, both) = ("{}", r#"{"whenDeleted":"Delete","whenScaled":"Delete"}"#);
        let (deleted, scaled) = (r#"{"whenDeleted":"Delete"}"#, r#"{"whenScaled":"Delete"}"#);
        check(keep, 0, "[]", "as they are");
        check(keep, 0, set, "[]");
        check(deleted, 0, "[]", "[StatefulSet/web]");
        check(deleted, 0, set, "as they are");
        check(deleted, 2, "[]", "[StatefulSet/web]");
        check(scaled, 0, "[]", "as they are");
        check(scaled, 2, "[]", "[Pod/web-2]");
        check(scaled, 2, pod, "as they are");
        check(both, 0, "[]", "[StatefulSet/web]");
        check(both, 2, set, "[Pod/web-2]");
    }

    #[test]
    fn claims_of_others_are_left_to_them() {
        let other = r#"[{"apiVersion":"x.io/v1","kind":"Thing","name":"t","uid":"t","controller":true}]"#;
        let earlier =
            r#"[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"old","controller":true}]"#;
        let deleted = r#"{"whenDeleted":"Delete"}"#;
        check(deleted, 0, other, "as they are");
        check(deleted, 0, earlier, "as they are");
        check("{}", 0, other, "as they are");
    }
}
