//! Conditions: what is known about a resource, since when, and of which generation.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

/// Whether something holds. What no one could verify is `Unknown`, never a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// No one could say.
    Unknown,
}

impl ConditionStatus {
    /// The word that Kubernetes uses.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { ConditionStatus::True } else { ConditionStatus::False }
    }
}

/// The conditions of a status in the making: those that are set here, and no others.
///
/// A condition that is set again keeps its transition time unless its status changed. Conditions that are not set
/// are not in the list: a status is applied, so what somebody else put beside ours stays theirs, and what was ours
/// and is not set any more goes.
#[derive(Clone, Debug)]
pub struct Conditions {
    old: Vec<Condition>,
    list: Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Conditions {
    /// Begins with the conditions that the resource has. `generation` is that of the spec the new ones speak of.
    pub fn from(old: &[Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Conditions { old: old.to_vec(), list: Vec::new(), generation, now }
    }

    /// Sets one condition. `reason` is one CamelCase word for programs, `message` a sentence for people.
    #[must_use]
    pub fn set(
        mut self,
        type_: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        let status = status.into().as_str();
        let old = self.old.iter().find(|condition| condition.type_ == type_);
        let since = match old {
            Some(old) if old.status == status => old.last_transition_time.clone(),
            // The server keeps whole seconds; more would never equal what it gives back.
            _ => Time(whole_seconds(self.now)),
        };
        let new = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            observed_generation: self.generation,
            last_transition_time: since,
        };
        self.list.retain(|condition| condition.type_ != type_);
        self.list.push(new);
        self
    }

    /// One of those that were set.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.list.iter().find(|condition| condition.type_ == type_)
    }

    /// All that were set, in the order in which they were.
    pub fn into_list(self) -> Vec<Condition> {
        self.list
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_transition_time_moves_only_with_the_status() {
        let first =
            Conditions::from(&[], Some(1), at(10)).set("Ready", false, "Starting", "0 of 3").into_list();
        let second =
            Conditions::from(&first, Some(2), at(20)).set("Ready", false, "Starting", "2 of 3").into_list();
        assert_eq!(second[0].last_transition_time.0, at(10));
        assert_eq!((second[0].message.as_str(), second[0].observed_generation), ("2 of 3", Some(2)));
        let third =
            Conditions::from(&second, Some(2), at(30)).set("Ready", true, "AllReady", "3 of 3").into_list();
        assert_eq!(third[0].last_transition_time.0, at(30));
    }

    #[test]
    fn a_condition_of_somebody_else_is_left_to_them() {
        let theirs = Conditions::from(&[], None, at(1)).set("BackedUp", true, "Done", "").into_list();
        let ours =
            Conditions::from(&theirs, Some(3), at(9)).set("Ready", ConditionStatus::Unknown, "NoAnswer", "");
        assert_eq!(ours.get("Ready").map(|condition| condition.status.as_str()), Some("Unknown"));
        assert_eq!(ours.into_list().len(), 1);
    }
}
