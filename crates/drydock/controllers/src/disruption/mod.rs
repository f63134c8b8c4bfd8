//! PodDisruptionBudgets: how many pods may be taken away now.
//!
//! [`decide`](decide::decide) decides, by the sizes that [`Scales`] finds; this file gathers what it needs, says what
//! it decided and tells. [`Overlaps`] tells of pods that several budgets select.

mod decide;
mod overlaps;
mod scales;

use std::sync::Arc;

use crate::Clock;
use crate::garbage::inventory::Inventory;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Object, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest};
use crate::objects::meta::Pairs;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::workload::{Budget, Deployment, ReplicaSet};
use decide::{Decision, Known, View, decide, fail_safe, needs_scales};
pub use overlaps::Overlaps;
use scales::Scales;

/// What the controller listens to.
type Informers<'a> = (
    &'a mut Informer<Budget>,
    &'a mut Informer<Pod>,
    &'a mut Informer<ReplicaSet>,
    &'a mut Informer<Deployment>,
);

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    budgets: Arc<Cache<Budget>>,
    pods: Arc<Cache<Pod>>,
    scales: Scales,
    awaited: Awaited<Key>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        (budgets, pods, sets, deployments): Informers<'_>,
        inventory: Arc<Inventory>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        budgets.queue_each(queue);
        let (keys, known) = (queue.clone(), budgets.cache.clone());
        pods.on_change(move |change| {
            if let (Some(before), Some(after)) = (change.before, change.after)
                && before.ready() == after.ready()
                && before.metadata.deleting() == after.metadata.deleting()
                && before.metadata.labels == after.metadata.labels
                && before.metadata.owner_references == after.metadata.owner_references
            {
                return;
            }
            change.both().for_each(|pod| {
                let of = &pod.metadata;
                let concerned =
                    known.selecting(&of.namespace, &of.labels, |budget| selects(budget, &of.labels));
                concerned.iter().for_each(|budget| keys.add(budget.metadata.key()));
            });
        });
        // A share is one of the wanted number, which changes before any pod does.
        let (keys, known) = (queue.clone(), budgets.cache.clone());
        deployments.on_change(move |change| {
            if let (Some(before), Some(after)) = (change.before, change.after)
                && before.spec.replicas != after.spec.replicas
            {
                let labels = after.spec.template.labels();
                let concerned = known.selecting(&after.metadata.namespace, labels, |budget| {
                    needs_scales(budget) && selects(budget, labels)
                });
                concerned.iter().for_each(|budget| keys.add(budget.metadata.key()));
            }
        });
        // What controls a pod may be of a kind that has just come.
        let (keys, known) = (queue.clone(), budgets.cache.clone());
        inventory.on_change(move || {
            known.all(needs_scales).iter().for_each(|budget| keys.add(budget.metadata.key()));
        });
        let scales = Scales::new(rest.clone(), sets.cache.clone(), deployments.cache.clone(), inventory);
        Self {
            rest,
            recorder,
            clock,
            budgets: budgets.cache.clone(),
            pods: pods.cache.clone(),
            scales,
            awaited: Awaited::default(),
        }
    }

    /// Brings the status of one budget up to date.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(budget) = self.budgets.get(key) else {
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        let pods = budget.selection().map_or_else(Vec::new, |labels| {
            self.pods.labelled(&key.namespace, labels, |pod| selects(&budget, &pod.metadata.labels))
        });
        if pods.is_empty() {
            self.recorder.record(&*budget, Severity::Normal, "NoPods", "No matching pods found".into());
        }
        let scales = if needs_scales(&budget) { self.scales.of(&pods).await } else { Ok(Known::new()) };
        let now = (self.clock)();
        let decided = match &scales {
            Ok(scales) => decide(&View { budget: &budget, pods: &pods, scales, now }),
            Err(error) => Err(error.to_string()),
        };
        let Decision { status, kept, look_again } = match decided {
            Ok(decided) => {
                if needs_scales(&budget) && pods.iter().any(|pod| pod.metadata.controller().is_none()) {
                    self.recorder.record(&*budget, Severity::Warning, "UnmanagedPods", unmanaged(&budget));
                }
                decided
            }
            Err(message) => {
                let told = format!("Failed to calculate the number of expected pods: {message}");
                self.recorder.record(&*budget, Severity::Warning, "CalculateExpectedPodCountFailed", told);
                let status = fail_safe(&budget, &message, now);
                Decision { status, kept: Vec::new(), look_again: None }
            }
        };
        if status != budget.status {
            let written = self.rest.replace_status(Budget::resource(), &budget.metadata, &status).await?;
            let budgets: Arc<dyn Progress> = self.budgets.clone();
            self.awaited.note(key, &budgets, written.version());
        }
        // The eviction is out of the status now: this is said once.
        for pod in kept {
            self.recorder.record(&*pod, Severity::Warning, "NotDeleted", not_deleted(&budget));
        }
        // What could not be read now may be read later.
        scales.map(|_| look_again.map_or(Next::OnChange, Next::After))
    }
}

/// What is said of a pod that was to be evicted and was not, in Kubernetes' words: the namespace is said twice.
fn not_deleted(budget: &Budget) -> String {
    let namespace = &budget.metadata.namespace;
    format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't")
}

/// What is said of pods that nothing controls, in Kubernetes' words.
fn unmanaged(budget: &Budget) -> String {
    let selector = budget.spec.selector.clone().unwrap_or_default();
    let labels: String =
        selector.match_labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let each = selector.match_expressions.iter().map(|one| {
        let values: Vec<&str> = one.values.iter().map(|value| &**value).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            one.key,
            one.operator,
            values.join(" ")
        )
    });
    format!(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{}}},}}) were found to be unmanaged. As a result, the status of the \
         PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value.",
        each.collect::<String>()
    )
}

fn selects(budget: &Budget, labels: &Pairs) -> bool {
    budget.spec.selector.as_ref().is_some_and(|selector| selector.matches(labels))
}
