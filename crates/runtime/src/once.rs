//! One look at one resource, without watching and without writing: what `ballast plan` shows.

use ballast_operator::{Answers, How, KindRef, Object, Operator, Plan, View};
use jiff::Timestamp;
use kube::{Client, api::ListParams, core::Request};
use serde_json::Value;

use crate::{About, engine::Engine, failure::Refusal, key::Key, watch::url, write::read};

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// There is no such resource.
    #[error("there is no {0}")]
    Missing(String),
    /// The resource can't be read as what it says it is.
    #[error("{0}")]
    Unreadable(String),
    /// The server refused, and this is what it said.
    #[error("{0}")]
    Refused(String),
}

impl From<Refusal> for LookError {
    fn from(refusal: Refusal) -> Self {
        LookError::Refused(refusal.failure.message)
    }
}

impl From<kube::Error> for LookError {
    fn from(error: kube::Error) -> Self {
        Refusal::from(error).into()
    }
}

/// What is seen of a resource, and what would be done about it. [`settle`](ballast_operator::settle) says which steps
/// would change anything.
#[derive(Clone, Debug)]
pub struct Looked<O: Operator> {
    /// What is seen.
    pub view: View<O::Resource>,
    /// What the service answered.
    pub answers: Answers,
    /// What would be done.
    pub plan: Plan,
}

/// Looks at a resource as it is in the cluster.
///
/// # Errors
/// When it is not there or the server refuses.
pub async fn look<O: Operator>(
    client: &Client,
    operator: &O,
    engine: &dyn Engine,
    key: &Key,
    now: Timestamp,
) -> Result<Looked<O>, LookError> {
    let own = KindRef::of::<O::Resource>();
    let object = read(client, &own, key).await?.ok_or_else(|| LookError::Missing(format!("{own} {key}")))?;
    look_at(client, operator, engine, &object, now).await
}

/// Looks at what is around a resource that reads so, whether or not the cluster has it so. `resource` is as the server
/// would have it: defaulted, and with its uid where it has one.
///
/// # Errors
/// When the resource can't be read, or the server refuses a look at what is around it.
pub async fn look_at<O: Operator>(
    client: &Client,
    operator: &O,
    engine: &dyn Engine,
    resource: &Object,
    now: Timestamp,
) -> Result<Looked<O>, LookError> {
    let resource: O::Resource = resource.read().map_err(|error| LookError::Unreadable(error.to_string()))?;
    let mut view = View::new(resource, now);
    let claims = operator.claims(&view.resource);
    for relation in operator.relations() {
        let mut how = ListParams::default();
        // The server selects by labels, and not by fields of its choosing.
        if let Some(label) = relation.label().filter(|label| !label.starts_with('.')) {
            how = how.labels(&format!("{label}={}", view.name()));
        }
        let request = Request::new(url(&relation.kind, view.namespace())).list(&how);
        let list: Value = client.request(request.map_err(kube::Error::BuildRequest)?).await?;
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        for item in items {
            let Ok(child) = Object::of_kind(&relation.kind, item) else { continue };
            let claimed =
                claims.iter().any(|claim| claim.kind == relation.kind && claim.name == child.name());
            let belongs = match relation.label() {
                Some(label) => child.label(label) == Some(view.name()),
                None => view.controls(&child),
            };
            if belongs || claimed {
                view.children.insert(&relation.kind, child);
            }
        }
    }
    // What stands under a claimed name without the label is seen too.
    for claim in claims.into_iter().chain(operator.further_claims(&view)) {
        let seen = view.children.object(&claim.kind, &claim.name).is_some();
        let labelled = operator
            .relations()
            .iter()
            .any(|relation| relation.kind == claim.kind && relation.how != How::Owned);
        let key = Key::new(view.namespace().filter(|_| claim.kind.namespaced), &claim.name);
        if labelled
            && !seen
            && let Some(stranger) = read(client, &claim.kind, &key).await?
        {
            view.children.insert(&claim.kind, stranger);
        }
    }
    let answers = ask(operator, engine, &view).await;
    let plan = operator.plan(&view, &answers);
    Ok(Looked { view, answers, plan })
}

async fn ask<O: Operator>(operator: &O, engine: &dyn Engine, view: &View<O::Resource>) -> Answers {
    let about = About { namespace: view.namespace(), name: view.name(), children: &view.children };
    let mut answers = Answers::none();
    for question in operator.questions(view) {
        let answer = engine.ask(about, &question).await;
        answers.insert(question.id, answer);
    }
    answers
}
