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

/// Deletes the Pod if its disruption budget allows it.
pub(super) async fn evict(call: &Call<'_>) -> Result<Answer, Failure> {
    let eviction = read_body(call)?;
    let name = meta(&eviction, "name");
    if !name.is_empty() && name != call.name() {
        return Err(Failure::BadRequest("name in URL does not match name in Eviction object".into()));
    }
    let pod = object::read_stored(&*call.stored()?)?;
    let options = DeleteOptions::check(&eviction["deleteOptions"])?;
    let dry_run = call.dry_run() || options.is_dry_run();
    if counts(&pod) {
        spend(call, &pod, dry_run).await?;
    }
    call.delete_object(&options).await?;
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(call.plain(StatusCode::CREATED, &status))
}

/// A Pod that is over, not yet begun or already going needs no budget.
fn counts(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    !object::is_terminating(pod) && !matches!(phase, "Succeeded" | "Failed" | "Pending")
}

/// Takes one disruption off the Pod's budget.
async fn spend(call: &Call<'_>, pod: &Value, dry_run: bool) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS {
        let budgets = budgets(call, pod);
        let (stored, mut budget) = match budgets.len() {
            0 => return Ok(()),
            1 => match budgets.into_iter().next() {
                Some(one) => one,
                None => return Ok(()),
            },
            _ => {
                return Err(Failure::Unexpected(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                        .into(),
                ));
            }
        };
        if !is_ready(pod) && budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
            return Ok(());
        }
        allow(&budget)?;
        let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
        budget["status"]["disruptionsAllowed"] = left.into();
        budget["status"]["disruptedPods"][meta(pod, "name")] = object::time(call.now).into();
        if dry_run {
            return Ok(());
        }
        let Some(kind) = call.api.registry().find("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let change = Change::Put(object::draft(&kind, budget)?);
        match call.api.store().commit(stored.key.clone(), Expect::At(stored.revision), change).await {
            Ok(_) => return Ok(()),
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
    if allowed < 0 {
        let resource = crate::failure::GroupResource::new("policy", "poddisruptionbudgets");
        return Err(Failure::forbidden(
            resource,
            meta(budget, "name"),
            "pdb disruptions allowed is negative",
        ));
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
