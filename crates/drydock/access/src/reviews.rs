//! Questions about access, answered.
//!
//! Each function takes the review as it was sent, decoded and defaulted, and gives it back with its
//! `status`, or says why the spec can't be answered.

use std::collections::BTreeMap;

use drydock_schema::FieldError;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::policy::meta;
use crate::token_request::seconds_text;
use crate::{Attributes, Identity, Lookup, Policy, Refusal, Tokens};

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// `SubjectAccessReview`: may that user?
///
/// # Errors
/// The spec is not valid.
pub fn subject_access(policy: &Policy, review: &Value) -> Result<Value, Refusal> {
    let mut errors = validate_attributes(review);
    errors.extend(validate_user(review));
    errors.extend(validate_metadata(review, &[], "must be empty"));
    valid(errors)?;
    Ok(answered(policy, &spec_identity(review), review))
}

/// `SelfSubjectAccessReview`: may I?
///
/// # Errors
/// The spec is not valid.
pub fn self_subject_access(policy: &Policy, caller: &Identity, review: &Value) -> Result<Value, Refusal> {
    let mut errors = validate_attributes(review);
    errors.extend(validate_metadata(review, &[], "must be empty"));
    valid(errors)?;
    Ok(answered(policy, caller, review))
}

/// `LocalSubjectAccessReview`: may that user, in this namespace?
///
/// # Errors
/// The spec is not valid or speaks of another namespace.
pub fn local_subject_access(policy: &Policy, namespace: &str, review: &Value) -> Result<Value, Refusal> {
    let mut review = review.clone();
    if meta(&review, "namespace").is_empty() {
        review["metadata"]["namespace"] = json!(namespace);
    }
    let own = meta(&review, "namespace");
    let mut errors = validate_attributes(&review);
    errors.extend(validate_user(&review));
    errors.extend(validate_metadata(&review, &["namespace"], "must be empty except for namespace"));
    if let Some(attributes) = present(&review, "resourceAttributes") {
        let asked = text(attributes, "namespace");
        if asked != own {
            let path = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(path, asked, "must match metadata.namespace"));
        }
    }
    if let Some(attributes) = present(&review, "nonResourceAttributes") {
        let shown = shown_non_resource(attributes);
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            shown,
            "disallowed on this kind of request",
        ));
    }
    valid(errors)?;
    if own != namespace {
        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(Refusal::BadRequest(message));
    }
    Ok(answered(policy, &spec_identity(&review), &review))
}

/// `SelfSubjectRulesReview`: what may I, in this namespace?
///
/// # Errors
/// No namespace is given.
pub fn self_subject_rules(policy: &Policy, caller: &Identity, review: &Value) -> Result<Value, Refusal> {
    let namespace = review.get("spec").map_or("", |spec| text(spec, "namespace"));
    if namespace.is_empty() {
        return Err(Refusal::BadRequest("no namespace on request".to_owned()));
    }
    let (rules, missing) = policy.held(caller, namespace);
    let part = |field: &str, omit: &[&str]| -> Vec<Value> {
        let rules = rules.iter().map(|rule| rule.to_value()).filter(|rule| rule.get(field).is_some());
        rules
            .map(|mut rule| {
                if let Some(rule) = rule.as_object_mut() {
                    rule.retain(|name, _| !omit.contains(&name.as_str()));
                }
                rule
            })
            .collect()
    };
    let mut status = json!({
        "resourceRules": part("resources", &["nonResourceURLs"]),
        "nonResourceRules": part("nonResourceURLs", &["apiGroups", "resources", "resourceNames"]),
        "incomplete": false,
    });
    if !missing.is_empty() {
        status["evaluationError"] =
            json!(drydock_schema::words::joined(missing.iter().map(|role| role.message())));
    }
    Ok(json!({
        "apiVersion": format!("{AUTHORIZATION}/v1"),
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}

/// `SelfSubjectReview`: who am I? The answer is in the version that the question was in.
#[must_use]
pub fn self_subject(caller: &Identity, review: &Value, now: Timestamp) -> Value {
    let version = match text(review, "apiVersion") {
        "" => format!("{AUTHENTICATION}/v1"),
        version => version.to_owned(),
    };
    json!({
        "apiVersion": version,
        "kind": "SelfSubjectReview",
        "metadata": {"creationTimestamp": seconds_text(now)},
        "status": {"userInfo": caller.user_info()},
    })
}

/// `TokenReview`: whose token is this?
///
/// # Errors
/// There is no token in it.
pub fn token(tokens: &Tokens, review: &Value, now: Timestamp, lookup: &dyn Lookup) -> Result<Value, Refusal> {
    let empty = Value::Null;
    let spec = review.get("spec").unwrap_or(&empty);
    let presented = text(spec, "token");
    if presented.is_empty() {
        return Err(Refusal::BadRequest("token is required for TokenReview in authentication".to_owned()));
    }
    let audiences = match strings(spec, "audiences") {
        none if none.is_empty() => tokens.audiences().to_vec(),
        some => some,
    };
    const NOT_KNOWN: &str = "invalid bearer token";
    let status = match tokens.authenticate(presented, &audiences, now, lookup) {
        Ok(Some(found)) => json!({
            "authenticated": true,
            "user": found.identity.user_info(),
            "audiences": found.audiences,
        }),
        Ok(None) => json!({"user": {}, "error": NOT_KNOWN}),
        Err(error) => json!({"user": {}, "error": format!("[{NOT_KNOWN}, {error}]")}),
    };
    let mut review = review.clone();
    review["status"] = status;
    Ok(review)
}

/// The review with the decision about what its spec asks.
fn answered(policy: &Policy, identity: &Identity, review: &Value) -> Value {
    let empty = Value::Null;
    let attributes = match present(review, "resourceAttributes") {
        Some(asked) => Attributes {
            identity,
            verb: text(asked, "verb"),
            group: text(asked, "group"),
            version: text(asked, "version"),
            resource: text(asked, "resource"),
            subresource: text(asked, "subresource"),
            namespace: text(asked, "namespace"),
            name: text(asked, "name"),
            path: None,
        },
        None => {
            let asked = present(review, "nonResourceAttributes").unwrap_or(&empty);
            Attributes::path(identity, text(asked, "verb"), text(asked, "path"))
        }
    };
    let decision = policy.authorize(&attributes);
    let mut status = Map::from_iter([("allowed".to_owned(), json!(decision.is_allowed()))]);
    if !decision.reason().is_empty() {
        status.insert("reason".to_owned(), json!(decision.reason()));
    }
    let mut review = review.clone();
    review["status"] = Value::Object(status);
    review
}

/// The user that a spec speaks of, with exactly the groups that it lists.
fn spec_identity(review: &Value) -> Identity {
    let empty = Value::Null;
    let spec = review.get("spec").unwrap_or(&empty);
    let extra = spec.get("extra").and_then(Value::as_object);
    let extra: BTreeMap<String, Vec<String>> =
        extra.into_iter().flatten().map(|(key, values)| (key.to_lowercase(), texts(values))).collect();
    Identity {
        username: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: strings(spec, "groups"),
        extra,
    }
}

fn validate_attributes(review: &Value) -> Vec<FieldError> {
    let resource = present(review, "resourceAttributes");
    let other = present(review, "nonResourceAttributes");
    let mut errors = Vec::new();
    if let (Some(_), Some(other)) = (resource, other) {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", shown_non_resource(other), detail));
    }
    if resource.is_none() && other.is_none() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", Value::Null, detail));
    }
    for selector in ["fieldSelector", "labelSelector"] {
        let Some(selector_value) =
            resource.and_then(|resource| resource.get(selector)).filter(|v| !v.is_null())
        else {
            continue;
        };
        let path = format!("spec.resourceAttributes.{selector}");
        let raw = text(selector_value, "rawSelector");
        let requirements =
            selector_value.get("requirements").and_then(Value::as_array).is_some_and(|r| !r.is_empty());
        match (raw.is_empty(), requirements) {
            (false, true) => {
                let detail = "may not specified at the same time as requirements";
                errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, detail));
            }
            (true, false) => {
                let detail = format!("when {path} is specified, requirements or rawSelector is required");
                errors.push(FieldError::required(format!("{path}.requirements"), detail));
            }
            _ => {}
        }
    }
    errors
}

fn validate_user(review: &Value) -> Option<FieldError> {
    let identity = spec_identity(review);
    (identity.username.is_empty() && identity.groups.is_empty())
        .then(|| FieldError::invalid("spec.user", "", "at least one of user or group must be specified"))
}

/// Reviews are never stored: metadata would promise otherwise.
fn validate_metadata(review: &Value, permitted: &[&str], detail: &str) -> Option<FieldError> {
    let metadata = review.get("metadata")?;
    let filled = |(name, value): (&String, &Value)| {
        let empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        !empty && name != "managedFields" && !permitted.contains(&name.as_str())
    };
    metadata
        .as_object()?
        .iter()
        .any(filled)
        .then(|| FieldError::invalid("metadata", metadata.clone(), detail))
}

fn valid(errors: Vec<FieldError>) -> Result<(), Refusal> {
    if errors.is_empty() {
        return Ok(());
    }
    // Kubernetes' own messages say no kind here.
    Err(Refusal::Invalid { group: AUTHORIZATION, kind: "", name: String::new(), errors })
}

/// Shown with the names that Kubernetes has for the fields inside.
fn shown_non_resource(attributes: &Value) -> Value {
    json!({"Path": text(attributes, "path"), "Verb": text(attributes, "verb")})
}

fn present<'a>(review: &'a Value, field: &str) -> Option<&'a Value> {
    review.get("spec")?.get(field).filter(|value| !value.is_null())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn strings(value: &Value, field: &str) -> Vec<String> {
    value.get(field).map(texts).unwrap_or_default()
}
