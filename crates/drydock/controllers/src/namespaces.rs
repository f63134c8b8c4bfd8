//! Namespaces that are being deleted: everything in them goes first, pods before all else, and what is left
//! is told.
//!
//! What is there is asked of the server each time, kinds included: a kind that is missed would leave objects
//! in a namespace that does not exist. After the first round nothing is asked again until something in the
//! namespace has gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::Clock;
use crate::garbage::inventory::{Feed, Inventory, Offered};
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Propagation, Rest, json_bytes};
use crate::objects::condition::{Condition, condition};
use crate::objects::meta::Meta;
use crate::objects::resource::{Key, Resource};
use crate::objects::service::{Bare, Namespace, NamespaceStatus};

use crate::replica_set::whole_seconds;

/// The finalizer of namespaces that this controller removes.
const FINALIZER: &str = "kubernetes";

/// How soon a namespace is looked at after something in it has gone: a moment, for what goes together.
const SETTLE: Duration = Duration::from_millis(20);

/// The last line against a change that was missed. Kubernetes asks every few seconds instead.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// What came of deleting everything in a namespace.
#[derive(Debug, Default)]
pub struct Findings {
    /// The kinds could not be read.
    pub discovery: Option<String>,
    /// How many objects are left, by kind.
    pub remaining: BTreeMap<Remaining, usize>,
    /// How many of those wait for each finalizer.
    pub finalizers: BTreeMap<Box<str>, usize>,
    /// What went wrong.
    pub failures: Vec<String>,
}

/// A kind of which objects are left, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remaining(pub String);

impl Findings {
    /// Whether everything is gone, for certain.
    pub fn clean(&self) -> bool {
        self.discovery.is_none() && self.remaining.is_empty() && self.failures.is_empty()
    }

    /// Counts what is left of one kind.
    fn count(&mut self, resource: &Resource, left: &[Bare]) {
        if left.is_empty() {
            return;
        }
        self.remaining.insert(Remaining(format!("{}.{}", resource.plural, resource.group)), left.len());
        for finalizer in left.iter().flat_map(|object| &object.metadata.finalizers) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }
}

/// The status of a namespace that is being deleted, given what was found.
pub fn status(held: &NamespaceStatus, findings: &Findings, now: Timestamp) -> NamespaceStatus {
    let list = |items: Vec<String>| items.join(", ");
    let remaining = || {
        let each = findings
            .remaining
            .iter()
            .map(|(kind, count)| format!("{} has {count} resource instances", kind.0));
        format!("Some resources are remaining: {}", list(each.collect()))
    };
    let finalizers = || {
        let each =
            findings.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
        format!("Some content in the namespace has finalizers remaining: {}", list(each.collect()))
    };
    let failed = || {
        let mut failures = findings.failures.clone();
        failures.sort();
        format!("Failed to delete all resource types, {} remaining: {}", failures.len(), list(failures))
    };
    let some = |is: bool, told: &dyn Fn() -> String| is.then(told);
    let findings = [
        (
            "NamespaceDeletionDiscoveryFailure",
            findings.discovery.clone(),
            "DiscoveryFailed",
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            "GroupVersionParsingFailed",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            some(!findings.failures.is_empty(), &failed),
            "ContentDeletionFailed",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        (
            "NamespaceContentRemaining",
            some(!findings.remaining.is_empty(), &remaining),
            "SomeResourcesRemain",
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            some(!findings.finalizers.is_empty(), &finalizers),
            "SomeFinalizersRemain",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ];
    let mut conditions = held.conditions.clone();
    for (r#type, failure, reason, (fine, message)) in findings {
        let (is, reason, message) = match failure {
            Some(failure) => ("True", reason, failure),
            None => ("False", fine, message.to_owned()),
        };
        let since = condition(&conditions, r#type)
            .filter(|held| &*held.status == is)
            .and_then(|held| held.last_transition_time)
            .unwrap_or_else(|| whole_seconds(now));
        let new = Condition::new(r#type, is, reason, message, since);
        match conditions.iter_mut().find(|held| &*held.r#type == r#type) {
            Some(held) => *held = new,
            None => conditions.push(new),
        }
    }
    NamespaceStatus { phase: "Terminating".into(), conditions }
}

/// The controller.
pub struct Controller {
    rest: Rest,
    clock: Clock,
    namespaces: Arc<Cache<Namespace>>,
    inventory: Arc<Inventory>,
    queue: Arc<Queue<Key>>,
}

impl Controller {
    /// The controller, listening to this informer.
    pub fn new(
        rest: Rest,
        clock: Clock,
        namespaces: &mut Informer<Namespace>,
        inventory: Arc<Inventory>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let keys = queue.clone();
        namespaces.on_change(move |change| {
            // Only the beginning counts: what follows are this controller's own writes.
            if let Some(after) = change.after.filter(|after| after.metadata.deleting())
                && change.before.is_none_or(|before| !before.metadata.deleting())
            {
                keys.add(after.metadata.key());
            }
        });
        Self { rest, clock, namespaces: namespaces.cache.clone(), inventory, queue: queue.clone() }
    }

    /// Where changes of objects of any kind go.
    pub fn feed(&self) -> Feed {
        let (namespaces, queue) = (self.namespaces.clone(), self.queue.clone());
        Arc::new(move |_, before, after| {
            let Some(gone) = before.filter(|_| after.is_none()) else { return };
            if gone.namespace.is_empty() {
                return;
            }
            let key = Key::new("", gone.namespace.clone());
            if namespaces.get(&key).is_some_and(|namespace| namespace.metadata.deleting()) {
                queue.add_after(key, SETTLE);
            }
        })
    }

    /// Brings the deletion of one namespace on.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let known = self.namespaces.get(key);
        if known.is_none_or(|namespace| !namespace.metadata.deleting()) {
            return Ok(Next::OnChange);
        }
        let mut namespace: Namespace = match self.rest.get(Namespace::resource(), key, None).await {
            Err(error) if error.not_found() => return Ok(Next::OnChange),
            other => other?,
        };
        if !namespace.metadata.deleting() || namespace.spec.finalizers.is_empty() {
            return Ok(Next::OnChange);
        }
        if &*namespace.status.phase != "Terminating" {
            namespace.status.phase = "Terminating".into();
            namespace.metadata = self.write_status(&namespace).await?;
        }
        let findings = self.delete_content(&namespace).await;
        if findings.clean() {
            self.finalize(&namespace).await?;
            return Ok(Next::OnChange);
        }
        let status = status(&namespace.status, &findings, (self.clock)());
        if status != namespace.status {
            namespace.status = status;
            self.write_status(&namespace).await?;
        }
        match findings.failures.first().or(findings.discovery.as_ref()) {
            Some(failure) => Err(Error::Undecided(failure.clone())),
            None => Ok(Next::After(LOOK_AGAIN)),
        }
    }

    /// Deletes everything in the namespace: pods first, and the rest when they are gone.
    async fn delete_content(&self, namespace: &Namespace) -> Findings {
        let name = &*namespace.metadata.name;
        let mut findings = Findings::default();
        let kinds = match self.inventory.refresh(self.rest.client()).await {
            Ok(kinds) => kinds,
            Err(error) => {
                findings.discovery = Some(error.to_string());
                self.inventory.kinds()
            }
        };
        let deletable = |kind: &&Offered| kind.resource.namespaced && kind.can("delete") && kind.can("list");
        let is_pods = |kind: &&Offered| kind.resource.group.is_empty() && kind.resource.plural == "pods";
        for kind in kinds.iter().filter(deletable).filter(is_pods) {
            self.delete_kind(kind, name, &mut findings).await;
        }
        if !findings.remaining.is_empty() {
            return findings;
        }
        for kind in kinds.iter().filter(deletable).filter(|kind| !is_pods(kind)) {
            self.delete_kind(kind, name, &mut findings).await;
        }
        findings
    }

    async fn delete_kind(&self, kind: &Offered, namespace: &str, findings: &mut Findings) {
        match self.try_delete_kind(kind, namespace).await {
            Ok(left) => findings.count(&kind.resource, &left),
            // The kind itself went meanwhile.
            Err(error) if error.not_found() || error.code() == Some(405) => {}
            Err(error) => findings.failures.push(error.to_string()),
        }
    }

    /// Deletes all objects of a kind; returns those that are still there.
    async fn try_delete_kind(&self, kind: &Offered, namespace: &str) -> Result<Vec<Bare>, Error> {
        let held = self.list(&kind.resource, namespace).await?;
        // Those that are going wait for their finalizers; to ask again would not help.
        if held.iter().all(|object| object.metadata.deleting()) {
            return Ok(held);
        }
        if kind.can("deletecollection") {
            self.rest.delete_all(&kind.resource, namespace).await?;
        } else {
            for object in held.iter().filter(|object| !object.metadata.deleting()) {
                let key = object.metadata.key();
                match self.rest.delete_by_name(&kind.resource, &key, Some(Propagation::Background)).await {
                    Err(error) if !error.not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        self.list(&kind.resource, namespace).await
    }

    async fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Bare>, Error> {
        let (mut all, mut page) = (Vec::new(), String::new());
        loop {
            let list = self.rest.list_metadata(resource, namespace, &page).await?;
            all.extend(list.items);
            page = list.metadata.r#continue.into();
            if page.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Says that this controller is done with the namespace; with nobody else waiting, it goes.
    async fn finalize(&self, namespace: &Namespace) -> Result<(), Error> {
        let finalizers: Vec<_> =
            namespace.spec.finalizers.iter().filter(|finalizer| &***finalizer != FINALIZER).collect();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": namespace.metadata,
            "spec": { "finalizers": finalizers },
            "status": namespace.status,
        });
        let key = namespace.metadata.key();
        match self.rest.replace(Namespace::resource(), &key, Some("finalize"), json_bytes(&body)?).await {
            Err(error) if !error.not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn write_status(&self, namespace: &Namespace) -> Result<Meta, Error> {
        self.rest.replace_status(Namespace::resource(), &namespace.metadata, &namespace.status).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn tell(status: &NamespaceStatus) -> String {
        let line = |condition: &Condition| {
            format!("{}={} {}: {}", condition.r#type, condition.status, condition.reason, condition.message)
        };
        status.conditions.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_left_is_told_as_kubernetes_does() {
        let mut findings = Findings::default();
        let stuck = Bare { metadata: Meta { finalizers: vec!["x.io/hold".into()], ..Meta::default() } };
        findings
            .count(&Resource::fixed("", "v1", "ConfigMap", "configmaps", true), std::slice::from_ref(&stuck));
        findings.count(&Resource::fixed("x.io", "v1", "Thing", "things", true), &[stuck, Bare::default()]);
        let told = tell(&status(&NamespaceStatus::default(), &findings, NOW.parse().unwrap()));
        assert_eq!(
            told,
            "NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered\n\
             NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed\n\
             NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization\n\
             NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, things.x.io has 2 resource instances\n\
             NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: x.io/hold in 2 resource instances"
        );
        assert!(!findings.clean());
    }

    #[test]
    fn failures_are_told_and_times_move_only_with_the_status() {
        let findings = Findings { failures: vec!["b".into(), "a".into()], ..Findings::default() };
        let first = status(&NamespaceStatus::default(), &findings, NOW.parse().unwrap());
        assert!(tell(&first).contains("NamespaceDeletionContentFailure=True ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b"));
        let later = status(&first, &findings, "2026-01-02T00:00:00Z".parse().unwrap());
        assert_eq!(first, later);
    }
}
