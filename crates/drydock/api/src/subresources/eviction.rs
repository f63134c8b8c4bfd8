//! `pods/eviction`: a deletion that asks the disruption budgets first.

use drydock_kinds::selector::LabelSelector;
use drydock_store::{Change, CommitError, Expect, Page, Range, Stored};
use http::StatusCode;
use serde_json::{Value, json};

use super::read_body;
use crate::{
    call::Call,
    delete::DeleteOptions,
    failure::{Cause, Failure},
    object::{self, meta},
    response::Answer,
};

/// How often a budget is asked again when somebody else was faster.
const ATTEMPTS: usize = 16;

/// Seconds after which a refused eviction may be tried again, when the budget is not up to date.
const RETRY_AFTER: u64 = 10;

/// How many Pods a budget may wait for to go: more means that nobody looks after it.
const MOST_DISRUPTED: usize = 2000;

/// What lets a Pod go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// Whatever becomes of it meanwhile.
    Given,
    /// Only as it was seen: it does not serve, and may begin to.
    AsSeen,
}

/// Deletes the Pod if its disruption budget allows it.
pub(super) async fn evict(call: &Call<'_>) -> Result<Answer, Failure> {
    let eviction = read_body(call)?;
    let name = meta(&eviction, "name");
    if !name.is_empty() && name != call.name() {
        return Err(Failure::BadRequest("name in URL does not match name in Eviction object".into()));
    }
    let options = DeleteOptions::check(&eviction["deleteOptions"])?.evicting();
    let dry_run = call.dry_run() || options.is_dry_run();
    for _ in 0..ATTEMPTS {
        let pod = object::read(&call.kind, &*call.stored()?)?;
        let leave = leave(call, &pod, dry_run).await?;
        let seen = meta(&pod, "resourceVersion");
        let of_our_own = leave == Leave::AsSeen && !options.is_about_a_version();
        let outcome = match of_our_own {
            true => call.delete_object(&options.clone().at(seen)).await,
            false => call.delete_object(&options).await,
        };
        match outcome {
            Err(Failure::Conflict(..)) if of_our_own => {}
            outcome => {
                outcome?;
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
                return Ok(call.plain(StatusCode::CREATED, &status));
            }
        }
    }
    Err(refusal(String::new(), Some(RETRY_AFTER)))
}

/// Asks the budget, where there is one to ask: a Pod that is over, not yet begun or already going needs none.
async fn leave(call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<Leave, Failure> {
    match pod["status"]["phase"].as_str().unwrap_or_default() {
        _ if object::is_terminating(pod) => Ok(Leave::Given),
        "Succeeded" | "Failed" => Ok(Leave::Given),
        "Pending" => Ok(Leave::AsSeen),
        _ => spend(call, pod, dry_run).await,
    }
}

/// Takes one disruption off the Pod's budget, if it counts.
async fn spend(call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<Leave, Failure> {
    for _ in 0..ATTEMPTS {
        let budgets = budgets(call, pod);
        let (stored, mut budget) = match budgets.len() {
            0 => return Ok(Leave::Given),
            1 => match budgets.into_iter().next() {
                Some(one) => one,
                None => return Ok(Leave::Given),
            },
            _ => {
                return Err(Failure::Unexpected(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                        .into(),
                ));
            }
        };
        if !is_ready(pod) && spares_the_unready(&budget) {
            return Ok(Leave::AsSeen);
        }
        allow(&budget)?;
        let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
        budget["status"]["disruptionsAllowed"] = left.into();
        budget["status"]["disruptedPods"][meta(pod, "name")] = object::time(call.now).into();
        if dry_run {
            return Ok(Leave::Given);
        }
        let Some(kind) = call.api.registry().find("policy", "v1", "poddisruptionbudgets") else {
            return Ok(Leave::Given);
        };
        let change = Change::Put(object::draft(&kind, budget)?);
        match call.api.store().commit(stored.key.clone(), Expect::At(stored.revision), change).await {
            Ok(_) => return Ok(Leave::Given),
            Err(CommitError::Conflict(_) | CommitError::Missing) => {}
            Err(error) => return Err(crate::write::commit_failure(&error)),
        }
    }
    Err(refusal(String::new(), Some(RETRY_AFTER)))
}

/// The budgets that cover a Pod.
fn budgets(call: &Call<'_>, pod: &Value) -> Vec<(std::sync::Arc<Stored>, Value)> {
    let range =
        Range { resource: "policy/poddisruptionbudgets".into(), namespace: Some(call.namespace().into()) };
    let items = call.api.store().list(&range, Page::default()).map(|l| l.items).unwrap_or_default();
    items
        .into_iter()
        .filter_map(|stored| object::read_stored(&stored).ok().map(|budget| (stored, budget)))
        .filter(|(_, budget)| {
            LabelSelector::from_object(budget["spec"].get("selector"))
                .is_some_and(|selector| selector.matches(|key| pod["metadata"]["labels"][key].as_str()))
        })
        .collect()
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether a Pod that is not ready may go at no cost: always, or while enough others are ready.
fn spares_the_unready(budget: &Value) -> bool {
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy"))
}

/// Refuses when the budget is spent, or not up to date.
fn allow(budget: &Value) -> Result<(), Failure> {
    let observed = budget["status"]["observedGeneration"].as_i64().unwrap_or(0);
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if observed < generation {
        let message =
            format!("The disruption budget {} is still being processed by the server.", meta(budget, "name"));
        return Err(refusal(message, Some(RETRY_AFTER)));
    }
    let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
    let wrong = match budget["status"]["disruptedPods"].as_object() {
        _ if allowed < 0 => Some("pdb disruptions allowed is negative"),
        Some(pods) if pods.len() > MOST_DISRUPTED => {
            Some("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        let resource = crate::failure::GroupResource::new("policy", "poddisruptionbudget");
        return Err(Failure::forbidden(resource, meta(budget, "name"), wrong));
    }
    if allowed > 0 {
        return Ok(());
    }
    let needed = budget["status"]["desiredHealthy"].as_i64().unwrap_or(0);
    let healthy = budget["status"]["currentHealthy"].as_i64().unwrap_or(0);
    let message = format!(
        "The disruption budget {} needs {needed} healthy pods and has {healthy} currently",
        meta(budget, "name")
    );
    Err(refusal(message, None))
}

fn refusal(message: String, retry_after: Option<u64>) -> Failure {
    Failure::TooManyRequests {
        message: "Cannot evict pod as it would violate the pod's disruption budget.".into(),
        retry_after: retry_after.unwrap_or(0),
        causes: vec![Cause { reason: "DisruptionBudget".into(), message, field: String::new() }],
    }
}
