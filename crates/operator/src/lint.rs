//! A linter for plans.
//!
//! It finds what is wrong with a plan whatever it is about: the mistakes that operators make. Tests hold every
//! plan to it, and the runtime does in debug builds.

use std::{collections::BTreeSet, fmt};

use crate::{Effect, How, KindRef, Object, Operator, Plan, Relation, Removal, View};

/// Something wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The step's place in the plan, where it is about one.
    pub step: Option<usize>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {}: {}", step + 1, self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Everything that is wrong with an operator's plan for a view.
pub fn lint<O: Operator>(operator: &O, view: &View<O::Resource>, plan: &Plan) -> Vec<Finding> {
    let relations = operator.relations();
    let mut claims = operator.claims(&view.resource);
    claims.extend(operator.further_claims(view));
    let mut findings = Findings(Vec::new());
    let mut applied = BTreeSet::new();
    for (place, step) in plan.steps.iter().enumerate() {
        if step.because.trim().is_empty() {
            findings.at(place, "it gives no reason");
        }
        if let Effect::Hold { finalizer } | Effect::Release { finalizer } = &step.effect
            && O::FINALIZER != Some(finalizer.as_str())
        {
            findings.at(place, format!("{finalizer} is not the finalizer that the operator says it takes"));
        }
        match &step.effect {
            Effect::Apply(object) => {
                if !applied.insert(object.to_string()) {
                    findings.at(place, format!("{object} is applied twice"));
                }
                let claimed =
                    claims.iter().any(|claim| claim.name == object.name() && is(&claim.kind, object));
                if !claimed {
                    findings.at(
                        place,
                        format!("{object} is applied and not claimed: a stranger would not be seen"),
                    );
                }
                lint_apply(&mut findings, place, object, view, &relations);
            }
            Effect::Remove { target, right } => {
                let relation = relations.iter().find(|relation| relation.kind == target.kind);
                match relation.map(|relation| (&relation.how, relation.removes)) {
                    None => findings.at(place, format!("{target} is of a kind that is not in the relations")),
                    Some((How::Observed { .. }, false)) => {
                        findings.at(place, format!("{target} is only observed, and removed"));
                    }
                    Some((_, false)) => {
                        findings.at(
                            place,
                            format!("{target} is of a kind that the relations say is never removed"),
                        );
                    }
                    Some((How::Kept { .. }, true)) if *right == Removal::Child => {
                        findings.at(place, format!("{target} holds data and is removed like a child"));
                    }
                    Some(_) => {}
                }
                if target.uid.is_empty() || target.resource_version.is_empty() {
                    findings.at(place, format!("{target} is removed without having been seen"));
                }
            }
            Effect::Release { .. } if place + 1 != plan.steps.len() => {
                findings.at(place, "the finalizer is released before the last step");
            }
            Effect::Hold { finalizer } if view.is_being_deleted() => {
                findings.at(place, format!("{finalizer} is taken while the resource is being deleted"));
            }
            Effect::Relist(kind) if !relations.iter().any(|relation| relation.kind == *kind) => {
                findings.at(place, format!("{kind} is not in the relations, and to be listed anew"));
            }
            Effect::LookAgain(after) if after.is_zero() => {
                findings.at(place, "looking again at once is a busy loop");
            }
            _ => {}
        }
    }
    let statuses = plan.steps.iter().filter(|step| matches!(step.effect, Effect::Status(_))).count();
    match statuses {
        0 if !view.is_being_deleted() => findings.whole("there is no status"),
        0 | 1 => {}
        _ => findings.whole("there is more than one status"),
    }
    findings.0
}

fn lint_apply<R>(
    findings: &mut Findings,
    place: usize,
    object: &Object,
    view: &View<R>,
    relations: &[Relation],
) where
    R: kube_core::Resource<DynamicType = ()>,
{
    let Some(relation) = relations.iter().find(|relation| is(&relation.kind, object)) else {
        return findings.at(place, format!("{object} is of a kind that is not in the relations"));
    };
    if relation.kind.namespaced && object.namespace() != view.namespace() {
        findings.at(place, format!("{object} is in another namespace than its resource"));
    }
    let owned = view.resource.meta().uid.is_none() || view.controls(object);
    match &relation.how {
        How::Owned if !owned || object.controller().is_none() => {
            findings.at(place, format!("{object} has no owner reference to its resource"));
        }
        How::Kept { .. } if !object.owner_references().is_empty() => {
            findings.at(place, format!("{object} holds data and has an owner reference"));
        }
        How::Kept { label } if object.label(label) != Some(view.name()) => {
            findings
                .at(place, format!("{object} holds data and lacks the label {label} by which it is found"));
        }
        How::Observed { .. } => findings.at(place, format!("{object} is only observed, and applied")),
        How::Owned | How::Kept { .. } => {}
    }
    if object.value().get("stringData").is_some()
        || object.value().get("data").is_some() && object.is_secret()
    {
        findings.at(place, format!("{object} carries secret values: mint them"));
    }
    if object.value().get("status").is_some() {
        findings.at(place, format!("{object} carries a status, which an apply does not write"));
    }
}

fn is(kind: &KindRef, object: &Object) -> bool {
    kind.is(object.api_version(), object.kind())
}

struct Findings(Vec<Finding>);

impl Findings {
    fn at(&mut self, step: usize, what: impl Into<String>) {
        self.0.push(Finding { step: Some(step), what: what.into() });
    }

    fn whole(&mut self, what: impl Into<String>) {
        self.0.push(Finding { step: None, what: what.into() });
    }
}
