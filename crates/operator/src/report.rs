//! What is said of a resource: a status with conditions, and events where one of them turned.
//!
//! Every resource of ours says three things of itself: `Ready` (it is as asked for), `Progressing` (a change is on its
//! way), `Degraded` (something is wrong that will not pass by itself). What makes them hold is each operator's own
//! knowledge. How they are kept, what the last round adds to them and which of their changes are news is here.
//!
//! **What always holds:** an event tells a turn, not a state. A condition that stays as it was is not told again,
//! however often its message changes, so that a plan at the fixpoint has no event. No trouble hides another: the first
//! gives `Degraded` its reason, the message has them all, and each is told when it comes.

use std::{fmt::Display, iter, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::object::HasStatus;
use serde::Serialize;
use serde_json::Value;

use crate::{Class, ConditionStatus, Conditions, Effect, EventType, Failed, Outcome, Plan, View};

/// After so many rounds in a row, what may pass by itself has not.
const LASTING: u32 = 3;
/// When to look again at what a process before this one found, and this one has not tried yet.
const SOON: Duration = Duration::from_secs(1);
/// What stands in the message of `Degraded` between one trouble and the reason of the next.
const BESIDES: &str = ". Besides, ";

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
    R: kube_core::Resource<DynamicType = ()> + HasStatus<Status: Conditioned>,
{
    /// What came of the steps of the last round, where that is worth a person's attention.
    ///
    /// A failure that asks only for another try is given a few: a server that is busy for a second is daily fare. One
    /// that was said is said until a round had none, so that it does not come and go with every process that begins.
    pub fn last_trouble(&self) -> Option<Trouble> {
        let said = self.last_conditions().iter().flat_map(troubles);
        let said = said.into_iter().find(|(reason, _)| *reason == Trouble::STEP_FAILED);
        last_trouble(self.last_outcome.as_ref(), said.map(|(_, message)| message))
    }

    /// The conditions of a status in the making, which know since when each holds.
    pub fn conditions(&self) -> Conditions {
        Conditions::from(self.last_conditions(), self.generation(), self.now)
    }

    fn last_conditions(&self) -> &[Condition] {
        self.resource.status().map(Conditioned::conditions).unwrap_or_default()
    }
}

impl Conditions {
    /// `Degraded`, if there is trouble: for the reason of the first, with the words of all.
    #[must_use]
    pub fn degraded(self, troubles: impl IntoIterator<Item = Trouble>) -> Self {
        let mut troubles = troubles.into_iter();
        let Some(first) = troubles.next() else {
            return self.set("Degraded", false, "AsExpected", "nothing is known to be wrong");
        };
        let more = troubles.map(|more| format!("{BESIDES}{}: {}", more.reason, more.message));
        let message = iter::once(first.message).chain(more).collect::<String>();
        self.set("Degraded", true, first.reason, message)
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
            for (type_, reason, note) in news(old, new) {
                let because = format!("{} was {}", new.type_, old.map_or("not known", |old| &old.status));
                self.turn(type_, reason, "Reconcile", note, because);
            }
        }
        let mut failing = status.conditions().iter().flat_map(troubles);
        let untried =
            view.last_outcome.is_none() && failing.any(|(reason, _)| reason == Trouble::STEP_FAILED);
        let value = serde_json::to_value(status).unwrap_or(Value::Null);
        self.then(Effect::Status(value), "what people and programs read of it");
        if untried {
            self.then(Effect::LookAgain(SOON), "whether the step still fails is not known yet");
        }
        self
    }
}

/// What came of the last round, where `said` is what the status says of a step that failed.
fn last_trouble(outcome: Option<&Outcome>, said: Option<&str>) -> Option<Trouble> {
    let Some(outcome) = outcome else {
        return said.map(|message| Trouble::new(Trouble::STEP_FAILED, message));
    };
    let lasting =
        |failed: &&Failed| said.is_some() || failed.failure.class != Class::Retry || failed.times >= LASTING;
    if let Some(failed) = outcome.failed.as_ref().filter(lasting) {
        let message = format!("{}: {}", failed.step, failed.failure.message);
        return Some(Trouble::new(Trouble::STEP_FAILED, message));
    }
    let contest = outcome.contested.first()?;
    let message = format!("{} keeps changing {} of {}", contest.manager, contest.path, contest.object);
    Some(Trouble::new("FieldContested", message))
}

/// What a condition says to be wrong: each trouble's reason, and its own words.
fn troubles(condition: &Condition) -> Vec<(&str, &str)> {
    if condition.type_ != "Degraded" || condition.status != "True" {
        return Vec::new();
    }
    let mut parts = condition.message.split(BESIDES);
    let first = (condition.reason.as_str(), parts.next().unwrap_or_default());
    let is_word = |reason: &str| reason.chars().all(char::is_alphanumeric);
    let more = parts.filter_map(|part| part.split_once(": ")).filter(|(reason, _)| is_word(reason));
    iter::once(first).chain(more).collect()
}

/// The events that a condition's turn is worth: type, reason and note of each.
fn news<'a>(old: Option<&Condition>, new: &'a Condition) -> Vec<(EventType, &'a str, &'a str)> {
    let was = old.map_or("", |old| old.status.as_str());
    match (new.type_.as_str(), was, new.status.as_str()) {
        ("Ready", was, "True") if was != "True" => vec![(EventType::Normal, "Ready", &new.message)],
        ("Degraded", _, "True") => {
            let known = old.map(troubles).unwrap_or_default();
            let is_new = |reason: &str| !known.iter().any(|(known, _)| *known == reason);
            let come = troubles(new).into_iter().filter(|(reason, _)| is_new(reason));
            come.map(|(reason, message)| (EventType::Warning, reason, message)).collect()
        }
        ("Degraded", "True", "False") => vec![(EventType::Normal, "Recovered", &new.message)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{Contest, Failure};

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
        let told: Vec<String> = news(condition(old).as_ref(), &new)
            .into_iter()
            .map(|(type_, reason, note)| format!("{type_} {reason} {note}").trim_end().to_owned())
            .collect();
        assert_eq!(told.join(", "), expected);
    }

    fn degraded(troubles: &[(&'static str, &str)]) -> Condition {
        let troubles = troubles.iter().map(|(reason, message)| Trouble::new(reason, *message));
        let all = Conditions::from(&[], None, Timestamp::UNIX_EPOCH).degraded(troubles);
        all.into_list().pop().unwrap()
    }

    #[test]
    fn no_trouble_hides_another() {
        let both = degraded(&[("CrashLoop", "it ends"), (Trouble::STEP_FAILED, "apply x: no; and: no")]);
        assert_eq!(both.reason, "CrashLoop");
        assert_eq!(both.message, "it ends. Besides, StepFailed: apply x: no; and: no");
        let one = degraded(&[(Trouble::STEP_FAILED, "apply x: no")]);
        let told = |old: Option<&Condition>, new| {
            let told = news(old, new).into_iter().map(|(_, reason, note)| format!("{reason}: {note}"));
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(None, &both), ["CrashLoop: it ends", "StepFailed: apply x: no; and: no"]);
        assert_eq!(told(Some(&one), &both), ["CrashLoop: it ends"]);
        assert_eq!(told(Some(&both), &one), Vec::<String>::new(), "what goes first gives no other its news");
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
        words(last_trouble(Some(&outcome), None))
    }

    fn words(trouble: Option<Trouble>) -> Option<String> {
        trouble.map(|trouble| format!("{}: {}", trouble.reason, trouble.message))
    }

    #[test]
    fn what_was_said_to_fail_is_said_until_a_round_went_well() {
        let said = Some("apply x: forbidden");
        assert_eq!(words(last_trouble(None, None)), None);
        assert_eq!(words(last_trouble(None, said)).as_deref(), Some("StepFailed: apply x: forbidden"));
        let failed =
            Failed { step: "apply y".to_owned(), failure: Failure::new(Class::Retry, "busy"), times: 1 };
        let once = Outcome { failed: Some(failed), contested: Vec::new() };
        assert_eq!(words(last_trouble(Some(&once), None)), None);
        assert_eq!(words(last_trouble(Some(&once), said)).as_deref(), Some("StepFailed: apply y: busy"));
        assert_eq!(words(last_trouble(Some(&Outcome::default()), said)), None);
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
