//! Pods that several budgets select: such a pod cannot be evicted, which is told once for each set of budgets.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::selects;
use crate::machinery::cache::{Cache, Object};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::Error;
use crate::objects::meta::{Meta, Pairs};
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::selector::LabelSelector;
use crate::objects::workload::Budget;

/// Tells of pods that several budgets select.
pub struct Overlaps {
    recorder: Recorder,
    budgets: Arc<Cache<Budget>>,
    pods: Arc<Cache<Pod>>,
    told: Mutex<HashMap<Key, Told>>,
}

/// What was told of a pod: its uid, and the names of its budgets.
type Told = (Box<str>, Vec<Arc<str>>);

impl Overlaps {
    /// The controller, listening to these informers.
    pub fn new(
        recorder: Recorder,
        budgets: &mut Informer<Budget>,
        pods: &mut Informer<Pod>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let (keys, known) = (queue.clone(), budgets.cache.clone());
        pods.on_change(move |change| {
            if labelled(change.before) != labelled(change.after)
                && change.both().any(|pod| selecting(&known, &pod.metadata).len() > 1)
            {
                change.both().for_each(|pod| keys.add(pod.metadata.key()));
            }
        });
        let (keys, known) = (queue.clone(), pods.cache.clone());
        budgets.on_change(move |change| {
            if asking(change.before) == asking(change.after) {
                return;
            }
            for budget in change.both() {
                let Some(labels) = budget.selection() else { continue };
                let selected = known.labelled(&budget.metadata.namespace, labels, |pod| {
                    selects(budget, &pod.metadata.labels)
                });
                selected.iter().for_each(|pod| keys.add(pod.metadata.key()));
            }
        });
        let (budgets, pods) = (budgets.cache.clone(), pods.cache.clone());
        Self { recorder, budgets, pods, told: Mutex::default() }
    }

    /// Tells of one pod, if several budgets select it and that was not told of them.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let pod = self.pods.get(key);
        let names = pod.as_ref().map_or_else(Vec::new, |pod| selecting(&self.budgets, &pod.metadata));
        let mut told = self.told.lock();
        let Some(pod) = pod.filter(|_| names.len() > 1) else {
            told.remove(key);
            return Ok(Next::OnChange);
        };
        let message = overlap(&pod.metadata, &names);
        let new = (pod.metadata.uid.clone(), names);
        if told.get(key) != Some(&new) {
            self.recorder.record(&*pod, Severity::Warning, "MultiplePodDisruptionBudgets", message);
            told.insert(key.clone(), new);
        }
        Ok(Next::OnChange)
    }
}

/// Which pod it is, and by what it is selected.
fn labelled(pod: Option<&Arc<Pod>>) -> Option<(&str, &Pairs)> {
    pod.map(|pod| (&*pod.metadata.uid, &pod.metadata.labels))
}

/// What a budget selects by, if it is there and selects anything.
fn asking(budget: Option<&Arc<Budget>>) -> Option<&LabelSelector> {
    budget.and_then(|budget| budget.spec.selector.as_ref())
}

/// The names of the budgets that select a pod, in their order.
fn selecting(budgets: &Cache<Budget>, pod: &Meta) -> Vec<Arc<str>> {
    let found = budgets.selecting(&pod.namespace, &pod.labels, |budget| selects(budget, &pod.labels));
    let mut names: Vec<Arc<str>> = found.iter().map(|budget| budget.metadata.name.clone()).collect();
    names.sort();
    names
}

/// What is said of it, in Kubernetes' words.
fn overlap(pod: &Meta, names: &[Arc<str>]) -> String {
    let chosen = names.first().map_or("", |name| &**name);
    format!(
        "Pod \"{}\"/\"{}\" matches multiple PodDisruptionBudgets.  Chose \"{chosen}\" arbitrarily.",
        pod.namespace, pod.name
    )
}
