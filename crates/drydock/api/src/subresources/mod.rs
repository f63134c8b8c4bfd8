//! Paths below an object that are more than a view of it, and kinds that are only ever answered.

mod binding;
mod eviction;
mod pass;
mod proxy;
mod scale;

use drydock_access::{reviews, token_request};
use http::StatusCode;
use serde_json::Value;

use crate::{auth::StoreLookup, body, call::Call, failure::Failure, request::Verb, response::Answer};

pub(crate) use scale::scale;

/// Answers a request to a subresource of this name.
pub(crate) async fn other(call: &Call<'_>, name: &str) -> Result<Answer, Failure> {
    match (name, call.info.verb) {
        ("token", Verb::Create) => token(call),
        ("eviction", Verb::Create) => eviction::evict(call).await,
        ("binding", Verb::Create) => binding::bind(call).await,
        ("finalize", Verb::Update) => call.put_body(Some("finalize")).await,
        ("ephemeralcontainers" | "resize", Verb::Get) => call.get(),
        ("ephemeralcontainers", Verb::Update) => call.put_body(Some(name)).await,
        ("ephemeralcontainers", Verb::Patch) => call.patch(Some(name)).await,
        ("resize", Verb::Update) => call.put_body(None).await,
        ("resize", Verb::Patch) => call.patch(None).await,
        ("log" | "exec" | "attach" | "portforward", _) => proxy::answer(call, name).await,
        ("proxy", _) => pass::answer(call).await,
        _ => Err(Failure::MethodNotAllowed),
    }
}

/// `serviceaccounts/token`.
fn token(call: &Call<'_>) -> Result<Answer, Failure> {
    let body = read_body(call)?;
    let request = token_request::TokenRequest {
        namespace: call.namespace(),
        name: call.name(),
        body: &body,
        id: &uuid::Uuid::new_v4().to_string(),
    };
    let answer =
        token_request::answer(call.api.tokens(), &request, call.now, &StoreLookup(call.api.store()))?;
    Ok(call.plain(StatusCode::CREATED, &answer))
}

/// Reads a body whose type the subresource decides.
fn read_body(call: &Call<'_>) -> Result<Value, Failure> {
    let media = body::media_type(call.headers)?;
    Ok(body::parse(media, &call.body).map_err(Failure::BadRequest)?.object)
}

/// Answers a kind that is never stored.
pub(crate) fn review(call: &Call<'_>) -> Result<Answer, Failure> {
    if call.info.verb != Verb::Create || call.subresource().is_some() || !call.name().is_empty() {
        return Err(Failure::MethodNotAllowed);
    }
    let review = call.decode("CreateOptions")?;
    let policy = call.api.policy();
    let answer = match &*call.kind.kind {
        "SubjectAccessReview" => reviews::subject_access(&policy, &review)?,
        "SelfSubjectAccessReview" => reviews::self_subject_access(&policy, call.identity, &review)?,
        "LocalSubjectAccessReview" => reviews::local_subject_access(&policy, call.namespace(), &review)?,
        "SelfSubjectRulesReview" => reviews::self_subject_rules(&policy, call.identity, &review)?,
        "SelfSubjectReview" => reviews::self_subject(call.identity, &review, call.now),
        "TokenReview" => {
            reviews::token(call.api.tokens(), &review, call.now, &StoreLookup(call.api.store()))?
        }
        _ => return Err(Failure::NoSuchResource),
    };
    Ok(call.plain(StatusCode::CREATED, &answer))
}
