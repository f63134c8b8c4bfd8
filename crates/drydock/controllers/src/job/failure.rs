//! What a failed pod means for its Job: the policy, and how long the next one waits. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::objects::job::{FailureAction, FailurePolicy, FailureRule, Job};
use crate::objects::pod::{Phase, Pod};

/// The pause after a first failure, and the longest: Kubernetes' numbers.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What a failed pod means.
#[derive(Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Which rule says so.
    pub action: FailureAction,
    /// Why the whole Job has failed, where it has.
    pub fails_job: Option<String>,
}

impl Meaning {
    /// Whether it counts against the limit.
    pub fn counts(&self) -> bool {
        self.action != FailureAction::Ignore
    }
}

/// What a failed pod means under a policy, if there is one.
pub fn meaning(policy: Option<&FailurePolicy>, pod: &Pod) -> Meaning {
    let rules = policy.iter().flat_map(|policy| &policy.rules).enumerate();
    for (at, rule) in rules {
        if let Some(found) = matching(rule, pod) {
            let told = || format!("{found} matching FailJob rule at index {at}");
            let fails_job = (rule.action == FailureAction::FailJob).then(told);
            return Meaning { action: rule.action, fails_job };
        }
    }
    Meaning { action: FailureAction::Count, fails_job: None }
}

/// What about the pod matches the rule, in words.
fn matching(rule: &FailureRule, pod: &Pod) -> Option<String> {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    if let Some(wanted) = &rule.on_exit_codes {
        let ended = pod.status.ended.iter().filter(|(container, code)| {
            *code != 0 && wanted.container_name.as_ref().is_none_or(|name| name == container)
        });
        let (container, code) = ended.into_iter().find(|(_, code)| match &*wanted.operator {
            "In" => wanted.values.contains(code),
            "NotIn" => !wanted.values.contains(code),
            _ => false,
        })?;
        return Some(format!(
            "Container {container} for pod {namespace}/{name} failed with exit code {code}"
        ));
    }
    let found = pod.status.conditions.iter().find(|(kind, status)| {
        rule.on_pod_conditions.iter().any(|pattern| {
            let wanted = if pattern.status.is_empty() { "True" } else { &*pattern.status };
            &*pattern.r#type == *kind && wanted == *status
        })
    })?;
    Some(format!("Pod {namespace}/{name} has condition {}", found.0))
}

/// Whether a pod has failed: one that is being deleted has, unless it is waited for.
pub fn failed(job: &Job, pod: &Pod) -> bool {
    pod.status.phase == Phase::Failed
        || (!job.replaces_only_failed() && pod.metadata.deleting() && pod.status.phase != Phase::Succeeded)
}

/// When a pod was over.
pub fn finished_at(pod: &Pod) -> Timestamp {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    let deleted = pod.metadata.deletion_timestamp.and_then(|at| at.checked_sub(grace).ok());
    let unready = pod.status.ready.filter(|ready| !ready.is).and_then(|ready| ready.since);
    pod.status
        .ended_at
        .or(unready)
        .or(deleted)
        .or(pod.metadata.creation_timestamp)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The failures since the last success: how many, and when the last was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many.
    pub count: u32,
    /// When the last was.
    pub last: Option<Timestamp>,
}

impl Failures {
    /// After these pods, which were not counted before, are over.
    pub fn after(self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let since = succeeded.iter().map(|pod| finished_at(pod)).max();
        let times =
            failed.iter().map(|pod| finished_at(pod)).filter(|at| since.is_none_or(|since| *at > since));
        let before = if since.is_some() { Self::default() } else { self };
        times.fold(before, |so_far, at| Self { count: so_far.count + 1, last: so_far.last.max(Some(at)) })
    }

    /// How long the next pod waits.
    pub fn pause(self, now: Timestamp) -> Duration {
        let (Some(last), Some(doublings)) = (self.last, self.count.checked_sub(1)) else {
            return Duration::ZERO;
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE);
        let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
        pause.saturating_sub(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &str) -> Pod {
        let text = format!(r#"{{"metadata":{{"name":"p","namespace":"n"}},"status":{status}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[track_caller]
    fn check(rules: &str, status: &str, expected: &str) {
        let policy: FailurePolicy = serde_json::from_str(&format!(r#"{{"rules":{rules}}}"#)).unwrap();
        let meaning = meaning(Some(&policy), &pod(status));
        let why = meaning.fails_job.map(|why| format!(": {why}")).unwrap_or_default();
        assert_eq!(format!("{:?}{why}", meaning.action), expected);
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules = r#"[{"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]},
            {"action":"FailJob","onExitCodes":{"operator":"In","values":[42]}},{"action":"FailIndex","onExitCodes":{"containerName":"c","operator":"NotIn","values":[1]}}]"#;
        let ended = |code: i32| {
            format!(
                r#"{{"phase":"Failed","containerStatuses":[{{"name":"c","state":{{"terminated":{{"exitCode":{code}}}}}}}]}}"#
            )
        };
        check(
            rules,
            &ended(42),
            "FailJob: Container c for pod n/p failed with exit code 42 matching FailJob rule at index 1",
        );
        check(rules, &ended(1), "Count");
        check(rules, &ended(3), "FailIndex");
        check(
            rules,
            r#"{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True"}]}"#,
            "Ignore",
        );
    }

    #[test]
    fn any_condition_of_the_pod_can_match_and_its_first_one_is_told() {
        let fatal = |patterns: &str| format!(r#"[{{"action":"FailJob","onPodConditions":[{patterns}]}}]"#);
        let told =
            |kind: &str| format!("FailJob: Pod n/p has condition {kind} matching FailJob rule at index 0");
        let status = r#"{"phase":"Failed","conditions":[{"type":"PodReadyToStartContainers","status":"False"},
            {"type":"Initialized","status":"True"},{"type":"Ready","status":"Unknown"},{"type":"x.io/a","status":"True"},
            {"type":"ContainersReady","status":"False"},{"type":"PodScheduled","status":"True"}]}"#;
        for (kind, is) in [
            ("PodReadyToStartContainers", "False"),
            ("Initialized", "True"),
            ("Ready", "Unknown"),
            ("x.io/a", "True"),
            ("ContainersReady", "False"),
            ("PodScheduled", "True"),
        ] {
            let pattern = |is: &str| format!(r#"{{"type":"{kind}","status":"{is}"}}"#);
            check(&fatal(&pattern(is)), status, &told(kind));
            for other in ["True", "False", "Unknown"].into_iter().filter(|other| *other != is) {
                check(&fatal(&pattern(other)), status, "Count");
            }
        }
        // The order is that of the pod, not that of the rule.
        let both = r#"{"type":"x.io/a","status":"True"},{"type":"Initialized","status":"True"}"#;
        check(&fatal(both), status, &told("Initialized"));
        check(&fatal(r#"{"type":"PodScheduled","status":""}"#), status, &told("PodScheduled"));
    }

    #[test]
    fn the_pause_doubles_with_each_failure_and_ends_with_a_success() {
        let at = |time: &str| {
            pod(&format!(
                r#"{{"containerStatuses":[{{"state":{{"terminated":{{"exitCode":1,"finishedAt":"2026-01-01T00:{time}Z"}}}}}}]}}"#
            ))
        };
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let (first, second) = (at("09:58"), at("09:59"));
        let one = Failures::default().after(&[], &[&first]);
        assert_eq!(one.pause(now), Duration::from_secs(8));
        let two = one.after(&[], &[&second]);
        assert_eq!((two.count, two.pause(now)), (2, Duration::from_secs(19)));
        assert_eq!(two.after(&[&at("10:00")], &[]).pause(now), Duration::ZERO);
        assert_eq!(two.after(&[&at("09:50")], &[&second]).count, 1);
        assert_eq!(Failures { count: 30, last: Some(now) }.pause(now), LONGEST_PAUSE);
    }
}
