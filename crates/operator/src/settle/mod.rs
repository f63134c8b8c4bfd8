//! Which steps of a plan would change anything.
//!
//! The decision is made from the view alone: what our field manager owns on the live object is in its
//! `managedFields`, and it is held against what the plan wants. When both are the same set of fields with the
//! same values, an apply would be a request for nothing, and is skipped. There is no schema here: which lists
//! are maps and by which keys, and which values are atomic, the server has already said in `fieldsV1`.
//!
//! **What always holds.** A step that would change something is never skipped. A step that would change nothing
//! may, in the rare case of a server default inside an atomic value that this module does not know, be taken for
//! a change; the server then answers with the object as it was.

mod differences;
mod fields;
mod obstacles;
mod same;

use std::fmt;

use serde_json::{Value, json};

use crate::{Effect, Object, Operator, Plan, Step, View, object::HIDDEN};

pub use differences::differences;
pub use fields::{Rival, compare, rivals};
pub use obstacles::{Obstacles, obstacles};

/// One field that would be different.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `.spec.template.spec.containers[name="memcached"].image`
    pub path: String,
    /// What it is. `None` when it is not there.
    pub is: Option<Value>,
    /// What it would be. `None` when it would go.
    pub becomes: Option<Value>,
}

/// How an object would change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is not there yet.
    Create,
    /// It is there, and these fields would be different. Empty when only the ownership of fields would change.
    Fields(Vec<Difference>),
}

/// What would come of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing would change: the step is skipped.
    Nothing,
    /// An object would change so.
    Change(Change),
    /// It is done whenever it is asked for: an action, an event, a removal.
    Done,
    /// It is about time only, and changes nothing.
    Timing,
    /// It must not be done: the object under that name is somebody else's.
    Refused {
        /// Why, for people.
        why: String,
    },
}

/// A step with what would come of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled<'p> {
    /// The step.
    pub step: &'p Step,
    /// What would come of it.
    pub verdict: Verdict,
}

impl Settled<'_> {
    /// Whether carrying the step out would change anything.
    pub fn is_effect(&self) -> bool {
        matches!(self.verdict, Verdict::Change(_) | Verdict::Done)
    }
}

/// Decides for each step of an operator's plan what would come of it.
pub fn settle<'p, O: Operator>(plan: &'p Plan, view: &View<O::Resource>) -> Vec<Settled<'p>> {
    settle_as(plan, view, O::FIELD_MANAGER)
}

/// [`settle`], for a field manager by name.
pub fn settle_as<'p, R>(plan: &'p Plan, view: &View<R>, manager: &str) -> Vec<Settled<'p>>
where
    R: kube_core::Resource<DynamicType = ()> + serde::Serialize,
{
    plan.steps.iter().map(|step| Settled { step, verdict: verdict(&step.effect, view, manager) }).collect()
}

impl Plan {
    /// The steps that would change anything. At the fixpoint there are none.
    pub fn effects<O: Operator>(&self, view: &View<O::Resource>) -> Vec<Settled<'_>> {
        settle::<O>(self, view).into_iter().filter(Settled::is_effect).collect()
    }
}

fn verdict<R>(effect: &Effect, view: &View<R>, manager: &str) -> Verdict
where
    R: kube_core::Resource<DynamicType = ()> + serde::Serialize,
{
    match effect {
        Effect::Apply(want) => settle_apply(want, view, manager),
        Effect::Mint { secret, key, .. } => {
            let wanted = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}});
            let live =
                Object::new(wanted).ok().and_then(|wanted| view.children.counterpart(&wanted).cloned());
            let there =
                live.is_some_and(|live| live.value().get("data").is_some_and(|data| data.get(key).is_some()));
            if there { Verdict::Nothing } else { Verdict::Done }
        }
        Effect::Status(want) => settle_status(want, view, manager),
        Effect::Hold { finalizer } => done_if(!has_finalizer(view, finalizer)),
        Effect::Release { finalizer } => done_if(has_finalizer(view, finalizer)),
        Effect::Remove { .. } | Effect::Act(_) | Effect::Event { .. } => Verdict::Done,
        Effect::LookAgain(_) | Effect::Relist(_) => Verdict::Timing,
    }
}

fn done_if(done: bool) -> Verdict {
    if done { Verdict::Done } else { Verdict::Nothing }
}

fn has_finalizer<R: kube_core::Resource>(view: &View<R>, finalizer: &str) -> bool {
    view.resource.meta().finalizers.iter().flatten().any(|taken| taken == finalizer)
}

fn settle_apply<R>(want: &Object, view: &View<R>, manager: &str) -> Verdict
where
    R: kube_core::Resource<DynamicType = ()>,
{
    let Some(live) = view.children.counterpart(want) else { return Verdict::Change(Change::Create) };
    // An object that wants the resource as its controller is an owned one, and must already be ours.
    if view.controls(want) && !view.controls(live) {
        let whose = match live.controller() {
            Some(owner) => format!("it belongs to {} {}", owner.kind, owner.name),
            None => "it was not made by this resource".to_owned(),
        };
        return Verdict::Refused { why: format!("{live} exists and {whose}") };
    }
    match compare(live.value(), want.value(), manager, None) {
        None => Verdict::Nothing,
        Some(differences) => Verdict::Change(Change::Fields(differences)),
    }
}

fn settle_status<R>(want: &Value, view: &View<R>, manager: &str) -> Verdict
where
    R: kube_core::Resource + serde::Serialize,
{
    let live = serde_json::to_value(&view.resource).unwrap_or_default();
    if live.get("status").is_some_and(|is| same::values("status", is, want)) {
        return Verdict::Nothing;
    }
    // A status that others write into too (a condition of their own) equals ours in the fields that are ours.
    match compare(&live, &json!({"status": want}), manager, Some("status")) {
        None => Verdict::Nothing,
        Some(_) => Verdict::Change(Change::Fields(differences(live.get("status"), Some(want), ".status"))),
    }
}

impl fmt::Display for Settled<'_> {
    /// `change Deployment default/sample`, and beneath it the fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headline = self.step.headline();
        let because = &self.step.because;
        match &self.verdict {
            Verdict::Nothing => write!(f, "keep    {headline}"),
            Verdict::Timing | Verdict::Done => write!(f, "do      {headline}  {because}"),
            Verdict::Refused { why } => write!(f, "refuse  {headline}  {why}"),
            Verdict::Change(Change::Create) => write!(f, "create  {headline}  {because}"),
            Verdict::Change(Change::Fields(differences)) => {
                write!(f, "change  {headline}  {because}")?;
                let secret = matches!(&self.step.effect, Effect::Apply(object) if object.is_secret());
                for difference in differences {
                    write!(f, "\n          ")?;
                    if secret
                        && (difference.path.starts_with(".data")
                            || difference.path.starts_with(".stringData"))
                    {
                        write!(f, "~ {}: {HIDDEN}", difference.path)?;
                    } else {
                        write!(f, "{difference}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.is, &self.becomes) {
            (None, Some(becomes)) => write!(f, "+ {}: {becomes}", self.path),
            (Some(is), None) => write!(f, "- {}: {is}", self.path),
            (Some(is), Some(becomes)) if is == becomes => write!(f, "~ {}: {is} (taken over)", self.path),
            (Some(is), Some(becomes)) => write!(f, "~ {}: {is} → {becomes}", self.path),
            (None, None) => write!(f, "- {}", self.path),
        }
    }
}
