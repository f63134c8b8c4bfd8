//! What is said of a resource: a status with conditions, and events where one of them turned.
//!
//! Every resource of ours says three things of itself: `Ready` (it is as asked for), `Progressing` (a change is on its
//! way), `Degraded` (something is wrong that will not pass by itself). What makes them hold is each operator's own
//! knowledge. How they are kept, what the last round adds to them and which of their changes are news is here.
//!
//! **What always holds:** an event tells a turn, not a state. A condition that stays as it was is not told again,
//! however often its message changes, so that a plan at the fixpoint has no event.

use std::fmt::Display;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::object::HasStatus;
use serde::Serialize;
use serde_json::Value;

use crate::{Class, ConditionStatus, Conditions, Effect, EventType, Failed, Plan, View};

/// After so many rounds in a row, what may pass by itself has not.
const LASTING: u32 = 3;

/// Something that will not pass by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One CamelCase word for programs.
    pub reason: &'static str,
    /// A sentence for people, if possible with what to do.
    pub message: String,
}

impl Trouble {
    /// The step of a plan that can't be carried out.
    pub const STEP_FAILED: &'static str = "StepFailed";

    /// Trouble for this reason.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Trouble { reason, message: message.into() }
    }
}

/// A status with conditions.
pub trait Conditioned {
    /// What is known of the resource.
    fn conditions(&self) -> &[Condition];
}

impl<R> View<R>
where
    R: kube_core::Resource<DynamicType = ()>,
{
    /// What came of the steps of the last round, where that is worth a person's attention.
    ///
    /// A failure that asks only for another try is given a few: a server that is busy for a second is daily fare.
    pub fn last_trouble(&self) -> Option<Trouble> {
        let outcome = self.last_outcome.as_ref()?;
        let lasting = |failed: &&Failed| failed.failure.class != Class::Retry || failed.times >= LASTING;
        if let Some(failed) = outcome.failed.as_ref().filter(lasting) {
            let message = format!("{}: {}", failed.step, failed.failure.message);
            return Some(Trouble::new(Trouble::STEP_FAILED, message));
        }
        let contest = outcome.contested.first()?;
        let message = format!("{} keeps changing {} of {}", contest.manager, contest.path, contest.object);
        Some(Trouble::new("FieldContested", message))
    }
}

impl<R> View<R>
where
    R: kube_core::Resource<DynamicType = ()> + HasStatus<Status: Conditioned>,
{
    /// The conditions of a status in the making, which know since when each holds.
    pub fn conditions(&self) -> Conditions {
        Conditions::from(self.last_conditions(), self.generation(), self.now)
    }

    fn last_conditions(&self) -> &[Condition] {
        self.resource.status().map(Conditioned::conditions).unwrap_or_default()
    }
}

impl Conditions {
    /// `Degraded`, if there is trouble.
    #[must_use]
    pub fn degraded(self, trouble: Option<Trouble>) -> Self {
        match trouble {
            Some(trouble) => self.set("Degraded", true, trouble.reason, trouble.message),
            None => self.set("Degraded", false, "AsExpected", "nothing is known to be wrong"),
        }
    }

    /// All three, of a spec that can't be acted upon. The schema lets no such spec in, but a definition can be older
    /// than its operator.
    #[must_use]
    pub fn invalid_spec(self, problems: impl IntoIterator<Item: Display>) -> Self {
        let problems: Vec<String> = problems.into_iter().map(|problem| problem.to_string()).collect();
        self.set("Ready", ConditionStatus::Unknown, "InvalidSpec", "the spec can't be understood")
            .set("Progressing", false, "InvalidSpec", "nothing is changed until the spec is")
            .degraded(Some(Trouble::new("InvalidSpec", problems.join("; "))))
    }
}

impl Plan {
    /// Adds a status, after an event for each of its conditions that turned in a way that people want to hear of.
    pub fn report<R>(&mut self, view: &View<R>, status: R::Status) -> &mut Self
    where
        R: kube_core::Resource<DynamicType = ()> + HasStatus<Status: Conditioned + Serialize>,
    {
        for new in status.conditions() {
            let old = view.last_conditions().iter().find(|old| old.type_ == new.type_);
            if let Some((type_, reason)) = news(old, new) {
                let because = format!("{} was {}", new.type_, old.map_or("not known", |old| &old.status));
                self.event(type_, reason, "Reconcile", new.message.clone(), because);
            }
        }
        let value = serde_json::to_value(status).unwrap_or(Value::Null);
        self.then(Effect::Status(value), "what people and programs read of it")
    }
}

/// The event that a condition's turn is worth: its type and reason.
fn news<'a>(old: Option<&Condition>, new: &'a Condition) -> Option<(EventType, &'a str)> {
    let was = old.map_or("", |old| old.status.as_str());
    match (new.type_.as_str(), was, new.status.as_str()) {
        ("Ready", was, "True") if was != "True" => Some((EventType::Normal, "Ready")),
        ("Degraded", was, "True") if was != "True" || old.is_some_and(|old| old.reason != new.reason) => {
            Some((EventType::Warning, &new.reason))
        }
        ("Degraded", "True", "False") => Some((EventType::Normal, "Recovered")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{Contest, Failure, Outcome};

    /// One condition, written `Degraded=True CrashLoop`.
    fn condition(text: &str) -> Option<Condition> {
        let (type_, rest) = text.split_once('=')?;
        let (status, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let status = match status {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        let all = Conditions::from(&[], None, Timestamp::UNIX_EPOCH).set(type_, status, reason, "");
        all.into_list().pop()
    }

    fn check(old: &str, new: &str, expected: &str) {
        let new = condition(new).unwrap();
        let told = news(condition(old).as_ref(), &new);
        assert_eq!(told.map(|(type_, reason)| format!("{type_} {reason}")).unwrap_or_default(), expected);
    }

    #[test]
    fn an_event_tells_a_turn_not_a_state() {
        check("", "Ready=True", "Normal Ready");
        check("Ready=False", "Ready=True", "Normal Ready");
        check("Ready=Unknown", "Ready=True", "Normal Ready");
        check("Ready=True Before", "Ready=True Now", "");
        check("Ready=True", "Ready=False", "");
        check("", "Degraded=True CrashLoop", "Warning CrashLoop");
        check("Degraded=False AsExpected", "Degraded=True CrashLoop", "Warning CrashLoop");
        check("Degraded=True CrashLoop", "Degraded=True CrashLoop", "");
        check("Degraded=True CrashLoop", "Degraded=True NameTaken", "Warning NameTaken");
        check("Degraded=True CrashLoop", "Degraded=False AsExpected", "Normal Recovered");
        check("", "Degraded=False AsExpected", "");
        check("Progressing=False", "Progressing=True", "");
    }

    fn last(outcome: Outcome) -> Option<String> {
        let mut view = View::new(ConfigMap::default(), Timestamp::UNIX_EPOCH);
        view.last_outcome = Some(outcome);
        view.last_trouble().map(|trouble| format!("{}: {}", trouble.reason, trouble.message))
    }

    #[test]
    fn what_may_pass_is_given_three_rounds() {
        let failed = |class, times| {
            let failure = Failure::new(class, "too busy");
            let failed = Failed { step: "apply Service default/x".to_owned(), failure, times };
            last(Outcome { failed: Some(failed), contested: Vec::new() })
        };
        let said = Some("StepFailed: apply Service default/x: too busy".to_owned());
        assert_eq!([failed(Class::Retry, 2), failed(Class::Retry, 3)], [None, said.clone()]);
        assert_eq!([failed(Class::Terminal, 1), failed(Class::Bug, 1)], [said.clone(), said]);
        assert_eq!(last(Outcome::default()), None);
    }

    #[test]
    fn who_writes_over_a_field_again_and_again_is_named() {
        let contest = Contest {
            object: "Deployment default/x".to_owned(),
            path: ".spec.replicas".to_owned(),
            manager: "hpa".to_owned(),
            times: 4,
        };
        let said = last(Outcome { failed: None, contested: vec![contest] });
        assert_eq!(
            said.as_deref(),
            Some("FieldContested: hpa keeps changing .spec.replicas of Deployment default/x")
        );
    }
}
