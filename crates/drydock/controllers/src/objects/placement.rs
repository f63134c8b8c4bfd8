//! What a pod asks of the node it is put on.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::meta::{Pairs, nullable};
use super::node::{Effect, Taint};
use super::quantity::{Quantity, thousandths, units};
use super::selector::LabelSelector;

/// Amounts of resources, by name: cpu in thousandths, everything else in whole units. Sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amounts(Vec<(Box<str>, i64)>);

impl Amounts {
    /// How much there is of this.
    pub fn get(&self, name: &str) -> i64 {
        self.0.binary_search_by(|(own, _)| (**own).cmp(name)).map_or(0, |at| self.0[at].1)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Makes the amount of one resource what `change` says.
    pub fn update(&mut self, name: &str, change: impl FnOnce(i64) -> i64) {
        match self.0.binary_search_by(|(own, _)| (**own).cmp(name)) {
            Ok(at) => self.0[at].1 = change(self.0[at].1),
            Err(at) => self.0.insert(at, (name.into(), change(0))),
        }
    }

    /// Adds the other's amounts.
    pub fn add(&mut self, other: &Amounts) {
        other.iter().for_each(|(name, amount)| self.update(name, |own| own.saturating_add(amount)));
    }

    /// Takes the larger of both, for each resource.
    pub fn at_least(&mut self, other: &Amounts) {
        other.iter().for_each(|(name, amount)| self.update(name, |own| own.max(amount)));
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let read = Option::<BTreeMap<Box<str>, Quantity>>::deserialize(input)?.unwrap_or_default();
        let amount = |(name, amount): (Box<str>, Quantity)| {
            let read = if &*name == "cpu" { thousandths(&amount.0) } else { units(&amount.0) };
            (name, read)
        };
        Ok(Self(read.into_iter().map(amount).collect()))
    }
}

/// Where a pod may and would rather be. Most pods do not say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// Labels that the node must have.
    #[serde(deserialize_with = "nullable")]
    pub node_selector: Pairs,
    /// Nodes and pods to be near to or far from.
    #[serde(deserialize_with = "nullable")]
    pub affinity: Affinity,
    /// Which taints do not keep it away.
    #[serde(deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
    /// How it is to be spread.
    #[serde(deserialize_with = "nullable")]
    pub topology_spread_constraints: Vec<SpreadConstraint>,
}

/// `affinity` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// About nodes.
    #[serde(deserialize_with = "nullable")]
    pub node_affinity: NodeAffinity,
    /// Pods to be with.
    #[serde(deserialize_with = "nullable")]
    pub pod_affinity: PodAffinity,
    /// Pods to be away from.
    #[serde(deserialize_with = "nullable")]
    pub pod_anti_affinity: PodAffinity,
}

/// Which nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// The only ones it may be on.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    /// Those it would rather be on.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution", deserialize_with = "nullable")]
    pub preferred: Vec<PreferredNode>,
}

/// Nodes that fulfil any of the terms.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<NodeTerm>,
}

/// Nodes that fulfil all of these.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm {
    /// About labels.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<NodeRequirement>,
    /// About fields, of which there is one: `metadata.name`.
    #[serde(deserialize_with = "nullable")]
    pub match_fields: Vec<NodeRequirement>,
}

/// One requirement of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeRequirement {
    /// The label or field.
    pub key: Box<str>,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: Box<str>,
    /// What is compared with.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<Box<str>>,
}

impl NodeRequirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|one| &**one == value);
        let number = |text: &str| text.parse::<i64>().ok();
        let compared = |holds: fn(i64, i64) -> bool| {
            let own = value.and_then(number);
            let bound = self.values.first().and_then(|bound| number(bound));
            own.zip(bound).is_some_and(|(own, bound)| holds(own, bound))
        };
        match &*self.operator {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared(|own, bound| own > bound),
            "Lt" => compared(|own, bound| own < bound),
            _ => false,
        }
    }
}

impl NodeTerm {
    /// Whether the node fulfils all of it. A term that asks for nothing is fulfilled by nobody.
    pub fn matches(&self, name: &str, labels: &Pairs) -> bool {
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !empty
            && self.match_expressions.iter().all(|one| one.holds(labels.get(&one.key)))
            && self.match_fields.iter().all(|one| one.holds((&*one.key == "metadata.name").then_some(name)))
    }
}

/// Nodes it would rather be on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PreferredNode {
    /// How much.
    pub weight: i64,
    /// Which.
    pub preference: NodeTerm,
}

/// Which pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    /// What must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", deserialize_with = "nullable")]
    pub required: Vec<PodTerm>,
    /// What would be better.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution", deserialize_with = "nullable")]
    pub preferred: Vec<PreferredPods>,
}

/// Pods, and how near is near.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTerm {
    /// Which pods; none without a selector.
    pub label_selector: Option<LabelSelector>,
    /// In which namespaces; the pod's own when nothing is said.
    #[serde(deserialize_with = "nullable")]
    pub namespaces: Vec<Box<str>>,
    /// In namespaces with these labels.
    pub namespace_selector: Option<LabelSelector>,
    /// Nodes with the same value of this label are near to each other.
    pub topology_key: Box<str>,
}

/// Pods it would rather be near to, or far from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredPods {
    /// How much.
    pub weight: i64,
    /// Which.
    pub pod_affinity_term: PodTerm,
}

/// A taint that does not keep the pod away.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Which taint; any when empty.
    pub key: Box<str>,
    /// `Exists`, or equality.
    pub operator: Box<str>,
    /// The value.
    pub value: Box<str>,
    /// Which effect.
    pub effect: Effect,
    /// For how long it does not send the pod away; for ever when not said.
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether it is about this taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect == Effect::Any || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && (&*self.operator == "Exists" || self.value == taint.value)
    }
}

/// How pods are spread over nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    /// By how much the fullest and the emptiest may differ.
    pub max_skew: i64,
    /// Nodes with the same value of this label are one place.
    pub topology_key: Box<str>,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: Box<str>,
    /// Which pods are counted.
    pub label_selector: Option<LabelSelector>,
    /// Labels of the pod itself that the counted ones must have, too.
    #[serde(deserialize_with = "nullable")]
    pub match_label_keys: Vec<Box<str>>,
    /// The emptiest counts as empty as long as there are fewer places than this.
    pub min_domains: Option<i64>,
    /// `Honor` leaves nodes out whose taints the pod does not tolerate.
    pub node_taints_policy: Box<str>,
    /// `Ignore` counts nodes that the pod's selector leaves out.
    pub node_affinity_policy: Box<str>,
}
