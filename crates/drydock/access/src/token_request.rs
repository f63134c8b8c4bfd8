//! The `token` subresource of ServiceAccounts.

use drydock_schema::FieldError;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{Bound, Lookup, ObjectRef, Refusal, ServiceAccountClaims, Tokens};

const GROUP: &str = "authentication.k8s.io";
/// What is given when nothing is asked for: an hour.
const DEFAULT_SECONDS: i64 = 60 * 60;
const SHORTEST_SECONDS: i64 = 10 * 60;
const LONGEST_SECONDS: i64 = 1 << 32;
/// The odd number by which a kubelet says that an old client may not reload its token. Such a token
/// is good for a year and its use is warned about after the time that was asked for.
const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// A request for a token.
#[derive(Debug, Clone, Copy)]
pub struct TokenRequest<'a> {
    /// Namespace of the ServiceAccount, from the path.
    pub namespace: &'a str,
    /// Name of the ServiceAccount, from the path.
    pub name: &'a str,
    /// The `TokenRequest` that was sent.
    pub body: &'a Value,
    /// An id that no other token has.
    pub id: &'a str,
}

/// The `TokenRequest` with its token.
///
/// # Errors
/// The ServiceAccount or the object to bind to is not there or another one, or the spec asks for
/// what can't be given.
pub fn answer(
    tokens: &Tokens,
    request: &TokenRequest<'_>,
    now: Timestamp,
    lookup: &dyn Lookup,
) -> Result<Value, Refusal> {
    let field = |pointer: &str| request.body.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    for (what, own) in [("name", request.name), ("namespace", request.namespace)] {
        let given = field(&format!("/metadata/{what}"));
        if !given.is_empty() && given != own {
            let detail = format!("must match the service account {what} if specified");
            return Err(invalid(
                request.name,
                FieldError::invalid(format!("metadata.{what}"), given, detail),
            ));
        }
    }
    let uid = lookup.service_account_uid(request.namespace, request.name).ok_or_else(|| {
        Refusal::NotFound { group: "", resource: "serviceaccounts", name: request.name.to_owned() }
    })?;
    let given = field("/metadata/uid");
    if !given.is_empty() && given != uid {
        return Err(Refusal::Conflict {
            group: GROUP,
            kind: "TokenRequest".to_owned(),
            name: request.name.to_owned(),
            detail: format!(
                "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
            ),
        });
    }

    let seconds = lifetime(request.body)?;
    let audiences = match audiences(request.body) {
        none if none.is_empty() => tokens.audiences().to_vec(),
        some => some,
    };
    let bound = bound_object(request, lookup)?;
    let extend = matches!(bound, Bound::Pod(..))
        && seconds == WARN_ONLY_SECONDS
        && audiences.iter().all(|audience| tokens.audiences().contains(audience));
    let after =
        |seconds: i64| now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let claims = ServiceAccountClaims {
        namespace: request.namespace.to_owned(),
        name: request.name.to_owned(),
        uid: uid.clone(),
        audiences: audiences.clone(),
        issued_at: now,
        expires_at: after(if extend { EXTENDED_SECONDS } else { seconds }),
        warn_after: extend.then(|| after(seconds)),
        bound,
        id: request.id.to_owned(),
    };
    let token = tokens
        .issue(&claims)
        .map_err(|error| Refusal::Internal(format!("failed to generate token: {error}")))?;
    Ok(json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "TokenRequest",
        "metadata": {
            "name": request.name,
            "namespace": request.namespace,
            "uid": uid,
            "creationTimestamp": seconds_text(now),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": request.body.pointer("/spec/boundObjectRef"),
        },
        "status": {"token": token, "expirationTimestamp": seconds_text(after(seconds))},
    }))
}

/// `metav1.Time`: RFC 3339 without fractions.
pub(crate) fn seconds_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn lifetime(body: &Value) -> Result<i64, Refusal> {
    let asked = body.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let seconds = asked.unwrap_or(DEFAULT_SECONDS);
    let detail = match seconds {
        ..SHORTEST_SECONDS => "may not specify a duration less than 10 minutes",
        SHORTEST_SECONDS..=LONGEST_SECONDS => return Ok(seconds),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    Err(invalid("", FieldError::invalid("spec.expirationSeconds", seconds, detail)))
}

fn audiences(body: &Value) -> Vec<String> {
    let list = body.pointer("/spec/audiences").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn bound_object(request: &TokenRequest<'_>, lookup: &dyn Lookup) -> Result<Bound, Refusal> {
    let Some(reference) = request.body.pointer("/spec/boundObjectRef").filter(|value| !value.is_null())
    else {
        return Ok(Bound::Nothing);
    };
    let field = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or("");
    let (name, namespace) = (field("name"), request.namespace);
    let (group, version) = field("apiVersion").rsplit_once('/').unwrap_or(("", field("apiVersion")));
    let kind = field("kind");

    let (resource, found) = match (group, kind) {
        ("", "Pod") => ("pods", lookup.pod_uid(namespace, name)),
        ("", "Secret") => ("secrets", lookup.secret_uid(namespace, name)),
        ("", "Node") => ("nodes", lookup.node_uid(name)),
        _ => {
            let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            let message = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(Refusal::BadRequest(message));
        }
    };
    let uid = found.ok_or_else(|| Refusal::NotFound { group: "", resource, name: name.to_owned() })?;
    let placement = if kind == "Pod" { lookup.pod_placement(namespace, name) } else { None };
    if placement.as_ref().is_some_and(|placement| placement.service_account != request.name) {
        return Err(Refusal::BadRequest(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            request.name
        )));
    }
    let given = field("uid");
    if !given.is_empty() && given != uid {
        return Err(Refusal::Conflict {
            group: "",
            kind: kind.to_owned(),
            name: name.to_owned(),
            detail: format!(
                "the UID in the bound object reference ({given}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ),
        });
    }
    let object = ObjectRef { name: name.to_owned(), uid };
    Ok(match kind {
        "Pod" => {
            let node = placement.map(|placement| placement.node).filter(|node| !node.is_empty());
            Bound::Pod(
                object,
                node.map(|name| ObjectRef { uid: lookup.node_uid(&name).unwrap_or_default(), name }),
            )
        }
        "Secret" => Bound::Secret(object),
        _ => Bound::Node(object),
    })
}

fn invalid(name: &str, error: FieldError) -> Refusal {
    Refusal::Invalid { group: GROUP, kind: "TokenRequest", name: name.to_owned(), errors: vec![error] }
}
