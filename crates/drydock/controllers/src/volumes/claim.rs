//! What becomes of a claim. Pure: the same claim, volumes and classes, the same answer.

use std::sync::Arc;

use super::find::{For, find, mismatch};
use super::{BIND_COMPLETED, SELECTED_NODE};
use crate::machinery::recorder::Severity;
use crate::objects::storage::{Claim, Class, Volume};

/// What is told about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// How bad it is.
    pub severity: Severity,
    /// In a word.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
}

impl Told {
    /// Something that is as it should be.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    /// Something that is not.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}

/// What is to be done for a claim.
#[derive(Clone, Debug)]
pub enum Plan {
    /// It gets this volume, or has it.
    Bind(Arc<Volume>),
    /// It is of this class from now on: the default came later than the claim.
    Assign(Arc<str>),
    /// Somebody of this name makes a volume for it.
    Provision(Box<str>),
    /// It waits, and this is told.
    Wait(Option<Told>),
    /// Nothing can be done for it, and this is told; what it says of itself stays.
    Fail(Told),
    /// What it had is gone.
    Lose(Told),
}

/// Everything a decision about a claim is made from.
pub struct View<'a> {
    /// All volumes.
    pub volumes: &'a [Arc<Volume>],
    /// All classes.
    pub classes: &'a [Arc<Class>],
    /// The names of pods that use the claim and have no node.
    pub unplaced: &'a [Box<str>],
}

/// Decides.
pub fn decide(claim: &Claim, view: &View<'_>) -> Plan {
    if claim.metadata.annotations.get(BIND_COMPLETED).is_some() {
        bound(claim, view)
    } else if claim.spec.volume_name.is_empty() {
        unbound(claim, view)
    } else {
        named(claim, view)
    }
}

/// A claim that had a volume once.
fn bound(claim: &Claim, view: &View<'_>) -> Plan {
    if claim.spec.volume_name.is_empty() {
        let lost = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return Plan::Lose(Told::warning("ClaimLost", lost));
    }
    let Some(volume) = by_name(claim, view) else {
        let lost = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return Plan::Lose(Told::warning("ClaimLost", lost));
    };
    match &volume.spec.claim_ref {
        Some(of) if of.uid != claim.metadata.uid => {
            let taken = "Two claims are bound to the same volume, this one is bound incorrectly";
            Plan::Lose(Told::warning("ClaimMisbound", taken))
        }
        _ => Plan::Bind(volume.clone()),
    }
}

/// A claim that asks for a volume by its name.
fn named(claim: &Claim, view: &View<'_>) -> Plan {
    let Some(volume) = by_name(claim, view) else { return Plan::Wait(None) };
    if volume.spec.claim_ref.is_none() {
        return match mismatch(claim, volume) {
            None => Plan::Bind(volume.clone()),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {:?}: {why}", volume.metadata.name);
                Plan::Wait(Some(Told::warning("VolumeMismatch", message)))
            }
        };
    }
    if volume.is_for(claim) {
        return Plan::Bind(volume.clone());
    }
    let message = format!("volume {:?} already bound to a different claim.", volume.metadata.name);
    Plan::Wait(Some(Told::warning("FailedBinding", message)))
}

/// A claim that takes any volume.
fn unbound(claim: &Claim, view: &View<'_>) -> Plan {
    let class = view.classes.iter().find(|class| *class.metadata.name == *claim.class());
    let waits = class.is_some_and(|class| class.waits());
    let who = if waits { For::Later } else { For::Anyone };
    if let Some(volume) = find(claim, view.volumes, who) {
        return Plan::Bind(volume.clone());
    }
    if !claim.says_class()
        && let Some(default) = default_class(view.classes)
    {
        return Plan::Assign(default.metadata.name.clone());
    }
    if waits && claim.metadata.annotations.get(SELECTED_NODE).is_none() {
        return Plan::Wait(Some(waiting(view.unplaced)));
    }
    match (claim.class(), class) {
        ("", _) => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            Plan::Wait(Some(Told::normal("FailedBinding", message)))
        }
        (name, None) => {
            let message = format!("storageclass.storage.k8s.io {name:?} not found");
            Plan::Fail(Told::warning("ProvisioningFailed", message))
        }
        // Kubernetes' own are drivers that it had built in.
        (_, Some(class)) if class.provisioner.starts_with("kubernetes.io/") => {
            Plan::Fail(Told::warning("ProvisioningFailed", "no volume plugin matched"))
        }
        (_, Some(class)) => Plan::Provision(class.provisioner.clone()),
    }
}

fn by_name<'a>(claim: &Claim, view: &View<'a>) -> Option<&'a Arc<Volume>> {
    view.volumes.iter().find(|volume| *volume.metadata.name == *claim.spec.volume_name)
}

/// Of several defaults the youngest, then the first by name.
fn default_class(classes: &[Arc<Class>]) -> Option<&Arc<Class>> {
    let defaults = classes.iter().filter(|class| class.is_default());
    defaults.min_by(|one, other| {
        let (one, other) = (&one.metadata, &other.metadata);
        other.creation_timestamp.cmp(&one.creation_timestamp).then_with(|| one.name.cmp(&other.name))
    })
}

fn waiting(unplaced: &[Box<str>]) -> Told {
    match unplaced {
        [] => Told::normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        [pod] => Told::normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => Told::normal(
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    }
}

/// What is told while somebody else makes a volume.
pub fn provisioning(provisioner: &str) -> Told {
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    Told::normal("ExternalProvisioning", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A claim of one gibibyte with these fields of its own; a field of another name is an annotation.
    fn claim(more: Value) -> Claim {
        let mut claim = json!({
            "metadata": { "namespace": "n", "name": "c", "uid": "u", "annotations": {} },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        for (field, value) in more.as_object().unwrap() {
            let place =
                if field.contains('/') { &mut claim["metadata"]["annotations"] } else { &mut claim["spec"] };
            place[field] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn volume(name: &str, of: Value) -> Arc<Volume> {
        let volume = json!({
            "metadata": { "name": name },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "claimRef": of },
            "status": { "phase": "Available" },
        });
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn class(name: &str, provisioner: &str, waits: bool, default: bool) -> Arc<Class> {
        let annotations = json!({ "storageclass.kubernetes.io/is-default-class": default.to_string() });
        let mode = if waits { "WaitForFirstConsumer" } else { "Immediate" };
        let class = json!({
            "metadata": { "name": name, "annotations": annotations },
            "provisioner": provisioner,
            "volumeBindingMode": mode,
        });
        Arc::new(serde_json::from_value(class).unwrap())
    }

    #[track_caller]
    fn check(wish: Value, volumes: &[Arc<Volume>], unplaced: &[&str], expected: &str) {
        let classes = [
            class("now", "x.io/disk", false, false),
            class("later", "x.io/disk", true, false),
            class("old", "kubernetes.io/glusterfs", false, false),
        ];
        let unplaced: Vec<Box<str>> = unplaced.iter().map(|name| Box::from(*name)).collect();
        let view = View { volumes, classes: &classes, unplaced: &unplaced };
        assert_eq!(shown(decide(&claim(wish), &view)), expected);
    }

    fn shown(plan: Plan) -> String {
        let said = |told: Told| format!("{:?} {}: {}", told.severity, told.reason, told.message);
        match plan {
            Plan::Bind(volume) => format!("bind {}", volume.metadata.name),
            Plan::Assign(class) => format!("assign {class}"),
            Plan::Provision(by) => format!("provision by {by}"),
            Plan::Wait(None) => "wait".to_owned(),
            Plan::Wait(Some(told)) => format!("wait, {}", said(told)),
            Plan::Fail(told) => format!("fail, {}", said(told)),
            Plan::Lose(told) => format!("lose, {}", said(told)),
        }
    }

    #[test]
    fn a_claim_takes_a_volume_or_has_one_made_or_waits() {
        let free = [volume("v", json!(null))];
        check(json!({}), &free, &[], "bind v");
        check(
            json!({}),
            &[],
            &[],
            "wait, Normal FailedBinding: no persistent volumes available for this claim and no storage class is set",
        );
        check(json!({"storageClassName": "now"}), &free, &[], "provision by x.io/disk");
        check(
            json!({"storageClassName": "none"}),
            &free,
            &[],
            "fail, Warning ProvisioningFailed: storageclass.storage.k8s.io \"none\" not found",
        );
        check(
            json!({"storageClassName": "old"}),
            &free,
            &[],
            "fail, Warning ProvisioningFailed: no volume plugin matched",
        );
    }

    #[test]
    fn a_claim_that_waits_for_a_pod_says_which() {
        let later = json!({"storageClassName": "later"});
        let first =
            "wait, Normal WaitForFirstConsumer: waiting for first consumer to be created before binding";
        check(later.clone(), &[], &[], first);
        let pod = "wait, Normal WaitForPodScheduled: waiting for pod a to be scheduled";
        check(later.clone(), &[], &["a"], pod);
        let pods = "wait, Normal WaitForPodScheduled: waiting for pods a,b to be scheduled";
        check(later, &[], &["a", "b"], pods);
        let placed = json!({"storageClassName": "later", "volume.kubernetes.io/selected-node": "n"});
        check(placed, &[], &["a"], "provision by x.io/disk");
    }

    #[test]
    fn a_default_that_comes_later_is_the_class_of_those_who_said_none() {
        let classes = [class("b", "x.io/disk", false, true), class("a", "x.io/disk", false, true)];
        let view = View { volumes: &[], classes: &classes, unplaced: &[] };
        assert_eq!(shown(decide(&claim(json!({})), &view)), "assign a");
        let none = shown(decide(&claim(json!({"storageClassName": ""})), &view));
        assert!(none.starts_with("wait, Normal FailedBinding"), "{none}");
    }

    #[test]
    fn a_claim_may_name_its_volume() {
        let wish = json!({"volumeName": "v"});
        check(wish.clone(), &[], &[], "wait");
        check(wish.clone(), &[volume("v", json!(null))], &[], "bind v");
        check(wish.clone(), &[volume("v", json!({"namespace": "n", "name": "c"}))], &[], "bind v");
        check(
            wish,
            &[volume("v", json!({"namespace": "n", "name": "d"}))],
            &[],
            "wait, Warning FailedBinding: volume \"v\" already bound to a different claim.",
        );
        check(
            json!({"volumeName": "v", "storageClassName": "now"}),
            &[volume("v", json!(null))],
            &[],
            "wait, Warning VolumeMismatch: Cannot bind to requested volume \"v\": storageClassName does not match",
        );
    }

    #[test]
    fn what_a_claim_had_can_be_lost() {
        let had = |name: &str| json!({"volumeName": name, "pv.kubernetes.io/bind-completed": "yes"});
        let own = volume("v", json!({"namespace": "n", "name": "c", "uid": "u"}));
        check(had("v"), &[own], &[], "bind v");
        check(
            had("v"),
            &[],
            &[],
            "lose, Warning ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        );
        check(
            had(""),
            &[],
            &[],
            "lose, Warning ClaimLost: Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
        check(
            had("v"),
            &[volume("v", json!({"namespace": "n", "name": "c", "uid": "w"}))],
            &[],
            "lose, Warning ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly",
        );
    }
}
