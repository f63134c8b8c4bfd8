//! Deployments, replica sets, stateful sets and daemon sets.

use drydock_schema::FieldError;
use serde_json::{Value, json};

use super::{
    PLAIN, Rules, at_most_all, counted, immutable, in_order, name_of_pods, not_negative, not_supported,
    number_or_percent, pod, selector, showing, storage,
};
use crate::{json, names, path::Path, selector::LabelSelector};

pub(crate) const DEPLOYMENT: Rules = Rules {
    default: default_deployment,
    create: empty_status,
    status: keep_labels,
    validate: validate_deployment,
    validate_update: |new, old, errors| {
        validate_deployment(new, errors);
        immutable(new, old, "/spec/selector", "spec.selector", errors);
    },
    warnings: named_template_warnings,
    ..PLAIN
};

pub(crate) const REPLICA_SET: Rules = Rules {
    default: default_replica_set,
    create: |object| json::set(object, "status", json!({"replicas": 0})),
    validate: validate_replica_set,
    validate_update: |new, old, errors| {
        validate_replica_set(new, errors);
        immutable(new, old, "/spec/selector", "spec.selector", errors);
    },
    warnings: named_template_warnings,
    ..PLAIN
};

pub(crate) const STATEFUL_SET: Rules = Rules {
    default: default_stateful_set,
    create: |object| {
        json::set(object, "status", json!({"availableReplicas": 0, "replicas": 0}));
        without_max_unavailable(object, None);
    },
    update: |new, old| without_max_unavailable(new, Some(old)),
    validate: validate_stateful_set,
    validate_update: update_stateful_set,
    validate_status: validate_stateful_set_status,
    warnings: stateful_set_warnings,
    ..PLAIN
};

pub(crate) const REVISION: Rules = Rules {
    validate: |object, errors| {
        revision_number(object, errors);
        match object.get("data") {
            None | Some(Value::Null) => errors.push(FieldError::required("data", "data is mandatory")),
            Some(Value::Object(_)) => {}
            Some(_) => errors.push(FieldError::required("data", "data must be a valid JSON object")),
        }
    },
    validate_update: |new, old, errors| {
        revision_number(new, errors);
        immutable(new, old, "/data", "data", errors);
    },
    ..PLAIN
};

pub(crate) const DAEMON_SET: Rules = Rules {
    default: default_daemon_set,
    create: |object| {
        let status = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0});
        json::set(object, "status", status);
        set_template_generation(object, 1);
    },
    update: |new, old| {
        let changed = !json::same(&new["spec"]["template"], &old["spec"]["template"]);
        let generation =
            json::text(&old["metadata"]["annotations"], TEMPLATE_GENERATION).parse().unwrap_or(1);
        set_template_generation(new, if changed { generation + 1 } else { generation });
    },
    validate: validate_daemon_set,
    validate_update: |new, old, errors| {
        validate_daemon_set(new, errors);
        immutable(new, old, "/spec/selector", "spec.selector", errors);
    },
    warnings: |new, old| {
        let generation = |set: &Value| set["metadata"]["annotations"][TEMPLATE_GENERATION].clone();
        template_warnings(new, old.is_none_or(|old| generation(new) != generation(old)))
    },
    ..PLAIN
};

/// What is worth saying about a template that is new, or may be.
fn template_warnings(object: &Value, is_new: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if is_new {
        let path = Path::new("spec.template");
        pod::template_warnings(&object["spec"]["template"], &path, &mut warnings);
    }
    warnings
}

fn named_template_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    name_of_pods(new, old, &mut warnings);
    warnings.extend(template_warnings(new, counted(new, old)));
    warnings
}

/// Of a set that is changed the claims' specification is called `Spec`, as with Kubernetes.
fn stateful_set_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = template_warnings(new, counted(new, old));
    let list = Path::new("spec.volumeClaimTemplates");
    for (index, claim) in json::list(&new["spec"], "volumeClaimTemplates").iter().enumerate() {
        let at = list.index(index);
        let at = if old.is_some() { at.field("Spec") } else { at };
        storage::claim_warnings(&claim["spec"], &at, &mut warnings);
    }
    if new["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
    warnings
}

/// An annotation that says how often the template has changed; long out of use, and still written.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn revision_number(revision: &Value, errors: &mut Vec<FieldError>) {
    if let Some(number) = revision["revision"].as_i64().filter(|number| *number < 0) {
        errors.push(FieldError::invalid("revision", number, "must be greater than or equal to 0"));
    }
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations =
        json::object_at(object, "metadata").and_then(|metadata| json::object_at(metadata, "annotations"));
    if let Some(annotations) = annotations {
        json::set(annotations, TEMPLATE_GENERATION, generation.to_string());
    }
}

fn empty_status(object: &mut Value) {
    json::set(object, "status", json!({}));
}

/// The status of a deployment does not change its labels.
fn keep_labels(new: &mut Value, old: &Value) {
    let labels = old["metadata"].get("labels").cloned();
    if let Some(metadata) = new.get_mut("metadata") {
        match labels {
            Some(labels) => json::set(metadata, "labels", labels),
            None => {
                json::remove(metadata, "labels");
            }
        }
    }
}

fn default_deployment(object: &mut Value) {
    let Some(spec) = json::object_at(object, "spec") else { return };
    json::default(spec, "replicas", 1);
    if let Some(strategy) = json::object_at(spec, "strategy") {
        json::default_text(strategy, "type", "RollingUpdate");
        if json::text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = json::object_at(strategy, "rollingUpdate")
        {
            json::default(rolling, "maxUnavailable", "25%");
            json::default(rolling, "maxSurge", "25%");
        }
    }
    json::default(spec, "revisionHistoryLimit", 10);
    json::default(spec, "progressDeadlineSeconds", 600);
    default_template(spec);
}

fn default_replica_set(object: &mut Value) {
    let Some(spec) = json::object_at(object, "spec") else { return };
    json::default(spec, "replicas", 1);
    default_template(spec);
}

fn default_stateful_set(object: &mut Value) {
    let Some(spec) = json::object_at(object, "spec") else { return };
    json::default_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = json::object_at(spec, "updateStrategy") {
        if json::text(strategy, "type").is_empty() {
            json::set(strategy, "type", "RollingUpdate");
            json::default(strategy, "rollingUpdate", json!({}));
        }
        if json::text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = strategy.get_mut("rollingUpdate")
        {
            json::default(rolling, "partition", 0);
        }
    }
    if let Some(policy) = json::object_at(spec, "persistentVolumeClaimRetentionPolicy") {
        json::default_text(policy, "whenDeleted", "Retain");
        json::default_text(policy, "whenScaled", "Retain");
    }
    json::default(spec, "replicas", 1);
    json::default(spec, "revisionHistoryLimit", 10);
    json::default(spec, "serviceName", "");
    default_template(spec);
    for claim in json::list_mut(spec, "volumeClaimTemplates") {
        json::default(claim, "apiVersion", "v1");
        json::default(claim, "kind", "PersistentVolumeClaim");
        storage::default_claim(claim);
    }
}

fn default_daemon_set(object: &mut Value) {
    let Some(spec) = json::object_at(object, "spec") else { return };
    if let Some(strategy) = json::object_at(spec, "updateStrategy") {
        json::default_text(strategy, "type", "RollingUpdate");
        if json::text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = json::object_at(strategy, "rollingUpdate")
        {
            json::default(rolling, "maxUnavailable", 1);
            json::default(rolling, "maxSurge", 0);
        }
    }
    json::default(spec, "revisionHistoryLimit", 10);
    default_template(spec);
}

/// The template of a specification, which may be missing.
fn default_template(spec: &mut Value) {
    if let Some(template) = json::object_at(spec, "template") {
        json::default(template, "metadata", json!({}));
        pod::default_template(template);
    }
}

fn validate_deployment(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    not_negative(spec, "replicas", &path, errors);
    validate_selector_and_template(spec, "deployment", errors);
    validate_strategy(&spec["strategy"], &path.field("strategy"), errors);
    not_negative(spec, "minReadySeconds", &path, errors);
    not_negative(spec, "revisionHistoryLimit", &path, errors);
    not_negative(spec, "progressDeadlineSeconds", &path, errors);
    let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64()
        && deadline <= ready
    {
        let at = path.field("progressDeadlineSeconds");
        errors.push(FieldError::invalid(at, deadline, "must be greater than minReadySeconds"));
    }
}

fn validate_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let rolling = strategy.get("rollingUpdate");
    match json::text(strategy, "type") {
        "Recreate" => {
            if rolling.is_some() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(path.field("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => {
            let at = path.field("rollingUpdate");
            let part =
                |field: &str| rolling.and_then(|rolling| rolling.get(field)).cloned().unwrap_or_default();
            let (unavailable, surge) = (part("maxUnavailable"), part("maxSurge"));
            number_or_percent(&unavailable, &at.field("maxUnavailable"), errors);
            number_or_percent(&surge, &at.field("maxSurge"), errors);
            if is_zero(&unavailable) && is_zero(&surge) {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(at.field("maxUnavailable"), unavailable.clone(), detail));
            }
            at_most_all(&unavailable, &at.field("maxUnavailable"), errors);
        }
        _ => {
            let error = not_supported(path, "", &["Recreate", "RollingUpdate"]);
            let shown =
                in_order(&[("Type", &strategy["type"]), ("RollingUpdate", &strategy["rollingUpdate"])]);
            errors.push(showing(error, shown));
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim_end_matches('%').parse::<i64>().unwrap_or_default() == 0,
        other => other.as_i64().unwrap_or_default() == 0,
    }
}

fn validate_replica_set(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    not_negative(spec, "replicas", &path, errors);
    not_negative(spec, "minReadySeconds", &path, errors);
    validate_selector_and_template(spec, "deployment", errors);
}

fn validate_daemon_set(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    validate_selector_and_template(spec, "daemonset", errors);
    not_negative(spec, "minReadySeconds", &path, errors);
    validate_daemon_strategy(&spec["updateStrategy"], &path.field("updateStrategy"), errors);
    not_negative(spec, "revisionHistoryLimit", &path, errors);
}

/// Of the two bounds exactly one is not zero.
fn validate_daemon_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match json::text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (at, rolling) = (path.field("rollingUpdate"), &strategy["rollingUpdate"]);
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            for (field, bound) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                number_or_percent(bound, &at.field(field), errors);
                at_most_all(bound, &at.field(field), errors);
            }
            match (is_zero(unavailable), is_zero(surge)) {
                (false, false) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(at.field("maxSurge"), surge.clone(), detail));
                }
                (true, true) => {
                    let detail = "cannot be 0 when maxSurge is 0";
                    errors.push(FieldError::required(at.field("maxUnavailable"), detail));
                }
                _ => {}
            }
        }
        _ => {
            let error = not_supported(path, "", &["RollingUpdate", "OnDelete"]);
            let shown =
                in_order(&[("Type", &strategy["type"]), ("RollingUpdate", &strategy["rollingUpdate"])]);
            errors.push(showing(error, shown));
        }
    }
}

fn validate_stateful_set(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let at = path.field("volumeClaimTemplates");
    for (index, claim) in json::list(spec, "volumeClaimTemplates").iter().enumerate() {
        storage::validate_claim_spec(&claim["spec"], &at.index(index).field("spec"), errors);
    }
    let service = json::text(spec, "serviceName");
    if !service.is_empty() {
        let wrong = names::dns_label(service);
        let at = path.field("serviceName");
        errors.extend(wrong.into_iter().map(|message| FieldError::invalid(at, service, message)));
    }
    validate_stateful_set_spec(spec, errors);
}

/// What is checked again when a stateful set changes: not what can't change.
fn validate_stateful_set_spec(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let policy = json::text(spec, "podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(path.field("podManagementPolicy"), policy, detail));
    }
    validate_update_strategy(&spec["updateStrategy"], &path.field("updateStrategy"), errors);
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    let at = path.field("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let policy = json::text(retention, field);
        if retention.is_object() && !["Retain", "Delete"].contains(&policy) {
            errors.push(not_supported(at.field(field), policy, &["Retain", "Delete"]));
        }
    }
    not_negative(spec, "replicas", &path, errors);
    not_negative(spec, "minReadySeconds", &path, errors);
    if let Some(start) = spec["ordinals"]["start"].as_i64().filter(|start| *start < 0) {
        let at = path.field("ordinals.start");
        errors.push(FieldError::invalid(at, start, "must be greater than or equal to 0"));
    }
    validate_selector_and_template(&with_own_volumes(spec), "statefulset", errors);
}

fn validate_update_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let rolling = strategy.get("rollingUpdate").filter(|rolling| rolling.is_object());
    match (json::text(strategy, "type"), rolling) {
        ("RollingUpdate", Some(rolling)) => {
            let at = path.field("rollingUpdate");
            not_negative(rolling, "partition", &at, errors);
        }
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            let error = FieldError::invalid(path.field("rollingUpdate"), rolling.clone(), detail);
            let shown = in_order(&[
                ("Partition", &rolling["partition"]),
                ("MaxUnavailable", &rolling["maxUnavailable"]),
            ]);
            errors.push(showing(error, shown));
        }
        ("RollingUpdate" | "OnDelete", None) => {}
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            let error = FieldError::invalid(path, strategy.clone(), detail);
            let shown =
                in_order(&[("Type", &strategy["type"]), ("RollingUpdate", &strategy["rollingUpdate"])]);
            errors.push(showing(error, shown));
        }
    }
}

/// Pods go one after another: what would say otherwise is dropped, as Kubernetes does unless it is told to heed it.
fn without_max_unavailable(set: &mut Value, old: Option<&Value>) {
    let pointer = "/spec/updateStrategy/rollingUpdate";
    let had =
        |old: &Value| old.pointer(pointer).is_some_and(|rolling| rolling.get("maxUnavailable").is_some());
    if !old.is_some_and(had)
        && let Some(rolling) = set.pointer_mut(pointer)
    {
        json::remove(rolling, "maxUnavailable");
    }
}

/// The specification as its pods will be: with a volume for each claim, and without the names that each pod gets
/// of its own.
fn with_own_volumes(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims: Vec<Value> = json::list(&spec, "volumeClaimTemplates")
        .iter()
        .map(|claim| {
            let name = json::text(&claim["metadata"], "name");
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    if let Some(pod) = spec.pointer_mut("/template/spec") {
        json::remove(pod, "hostname");
        json::remove(pod, "subdomain");
        if !claims.is_empty() {
            let others = json::list(pod, "volumes").iter();
            let others = others.filter(|other| claims.iter().all(|claim| claim["name"] != other["name"]));
            let all: Vec<Value> = claims.iter().chain(others).cloned().collect();
            json::set(pod, "volumes", all);
        }
    }
    spec
}

fn validate_stateful_set_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, path) = (&new["status"], Path::new("status"));
    let all = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    for field in all.into_iter().chain(["observedGeneration", "collisionCount"]) {
        not_negative(status, field, &path, errors);
    }
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    for field in &all[1..] {
        if count(field) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(path.field(field), count(field), detail));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let detail = "cannot be greater than status.readyReplicas";
        errors.push(FieldError::invalid(path.field("availableReplicas"), count("availableReplicas"), detail));
    }
    if count("collisionCount") < old["status"]["collisionCount"].as_i64().unwrap_or_default() {
        let at = path.field("collisionCount");
        errors.push(FieldError::invalid(at, count("collisionCount"), "cannot be decremented"));
    }
}

fn update_stateful_set(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_stateful_set_spec(&new["spec"], errors);
    let mut same = new["spec"].clone();
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        match old["spec"].get(field) {
            Some(value) => json::set(&mut same, field, value.clone()),
            None => {
                json::remove(&mut same, field);
            }
        }
    }
    if !json::same(&same, &old["spec"]) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", detail));
    }
}

/// What is selected must be what the template makes.
fn validate_selector_and_template(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let at = path.field("selector");
    let given = spec.get("selector").filter(|selector| selector.is_object());
    match given {
        None => errors.push(FieldError::required(at, "")),
        Some(given) => {
            selector::validate(given, &at, errors);
            if selector::is_empty(given) {
                let detail = format!("empty selector is invalid for {kind}");
                errors.push(FieldError::invalid(at, given.clone(), detail));
            }
        }
    }
    let template = &spec["template"];
    let at = path.field("template");
    match (given, LabelSelector::from_object(given)) {
        (Some(_), Some(selector)) if !selector.is_empty() => {
            let labels = &template["metadata"]["labels"];
            if !selector.matches(|key| labels.get(key).and_then(Value::as_str)) {
                let detail = "`selector` does not match template `labels`";
                let metadata = at.field("metadata");
                errors.push(FieldError::invalid(metadata.field("labels"), labels.clone(), detail));
            }
        }
        (Some(given), None) => {
            errors.push(FieldError::invalid(path.field("selector"), given.clone(), "invalid label selector"));
            return;
        }
        (None, _) => {
            let labels = template["metadata"].get("labels").cloned().unwrap_or_default();
            let metadata = at.field("metadata");
            let detail = "`selector` does not match template `labels`";
            errors.push(FieldError::invalid(metadata.field("labels"), labels, detail));
        }
        _ => {}
    }
    pod::validate_template(template, &at, errors);
    let at = at.field("spec");
    let policy = json::text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        errors.push(not_supported(at.field("restartPolicy"), policy, &["Always"]));
    }
    if template["spec"].get("activeDeadlineSeconds").is_some() {
        let name = match kind {
            "daemonset" => "DaemonSet",
            "statefulset" => "StatefulSet",
            _ => "ReplicaSet",
        };
        let detail = format!("activeDeadlineSeconds in {name} is not Supported");
        errors.push(FieldError::forbidden(at.field("activeDeadlineSeconds"), detail));
    }
}
