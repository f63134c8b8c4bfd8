//! What is remembered about one object between rounds.
//!
//! **What always holds.** Memory may change when something is looked at, never what is decided: whoever forgets all
//! of it and begins anew ends at the same place. What is here is either about time (failures in a row, contests), or
//! keeps a round from looking at a world older than its own last write, or says what came of the last round.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use ballast_operator::{Answer, Failed, Failure, KindRef, Outcome, Question};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    cache::{Cache, revision},
    contest::Contests,
    key::Key,
};

/// How many of our own writes are told from other people's. A round has a handful.
const ECHOES_KEPT: usize = 64;

/// What is remembered about one object.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What came of the last round.
    pub(crate) outcome: Option<Outcome>,
    /// Rounds in a row that failed.
    pub(crate) failures: u32,
    /// Rounds in a row that changed something.
    pub(crate) busy: u32,
    /// Before when what others do to the children is no reason to look again.
    pub(crate) busy_until: Option<Instant>,
    /// Who keeps writing over our fields.
    pub(crate) contests: Contests,
    expected: Vec<Expected>,
    echoes: VecDeque<Box<str>>,
    answers: HashMap<(String, String), (Instant, Answer)>,
}

/// Something that was written, and has to be in a cache before it can be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) kind: KindRef,
    pub(crate) key: Key,
    pub(crate) what: What,
}

/// What is expected of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It has shown this revision.
    Revision(u64),
    /// The object with this uid is not there.
    Gone(Box<str>),
    /// Nobody knows what came of the write: only the server can say.
    Unknown,
}

impl Expected {
    /// Whether the cache is as new as that.
    pub(crate) fn is_met_by(&self, cache: &Cache) -> bool {
        match &self.what {
            What::Revision(revision) => cache.has_shown(self.key.namespace.as_deref(), *revision),
            What::Gone(uid) => cache.get(&self.key).is_none_or(|entry| entry.uid != *uid),
            What::Unknown => false,
        }
    }
}

impl Memory {
    /// An object was written, and has this revision now.
    pub(crate) fn wrote(&mut self, kind: &KindRef, key: &Key, version: &str) {
        if self.echoes.len() == ECHOES_KEPT {
            self.echoes.pop_front();
        }
        self.echoes.push_back(version.into());
        self.expect(kind, key, What::Revision(revision(version)));
    }

    /// Something is expected of a cache, instead of what was expected of it for this object before. Gives that.
    pub(crate) fn expect(&mut self, kind: &KindRef, key: &Key, what: What) -> Option<What> {
        let before = self.expected.iter().position(|expected| expected.key == *key && expected.kind == *kind);
        let before = before.map(|place| self.expected.swap_remove(place).what);
        self.expected.push(Expected { kind: kind.clone(), key: key.clone(), what });
        before
    }

    /// Nothing came of a write: what was expected before it is expected again.
    pub(crate) fn expect_again(&mut self, kind: &KindRef, key: &Key, before: Option<What>) {
        self.expected.retain(|expected| expected.key != *key || expected.kind != *kind);
        if let Some(what) = before {
            self.expected.push(Expected { kind: kind.clone(), key: key.clone(), what });
        }
    }

    /// A step failed: for the how manieth time in a row.
    pub(crate) fn failed_again(&self, step: String, failure: Failure) -> Failed {
        let last = self.outcome.as_ref().and_then(|outcome| outcome.failed.as_ref());
        let same = last.filter(|last| last.step == step && last.failure.class == failure.class);
        Failed { step, failure, times: same.map_or(0, |last| last.times).saturating_add(1) }
    }

    /// What is still to be waited for. What has come is forgotten.
    pub(crate) fn outstanding(&mut self, is_met: impl Fn(&Expected) -> bool) -> Vec<Expected> {
        self.expected.retain(|expected| !is_met(expected));
        self.expected.clone()
    }

    /// The server itself was asked: this is no longer to be waited for.
    pub(crate) fn settled(&mut self, settled: &Expected) {
        self.expected.retain(|expected| expected != settled);
    }

    /// Before when what others do to the children has to wait, for the sake of the server.
    pub(crate) fn hold_until(&self, now: Instant) -> Option<Instant> {
        let busy = self.busy_until.filter(|until| *until > now);
        self.contests.hold_until(now).max(busy)
    }

    /// Whether a change at this revision is one of our own.
    pub(crate) fn is_own(&self, version: &str) -> bool {
        self.echoes.iter().any(|own| **own == *version)
    }

    /// An answer that is not older than the question allows.
    pub(crate) fn answer(&self, question: &Question, now: Instant) -> Option<Answer> {
        let (at, answer) = self.answers.get(&asked(question))?;
        (now.duration_since(*at) < question.max_age).then(|| answer.clone())
    }

    /// Keeps the answers of a round. Those to questions that are no longer put are forgotten.
    pub(crate) fn keep_answers(&mut self, answers: &[(&Question, Answer)], now: Instant) {
        let mut kept = HashMap::new();
        for (question, answer) in answers.iter().filter(|(question, _)| !question.max_age.is_zero()) {
            let asked = asked(question);
            let at = match self.answers.get(&asked) {
                Some((at, old)) if old == answer && now.duration_since(*at) < question.max_age => *at,
                _ => now,
            };
            kept.insert(asked, (at, answer.clone()));
        }
        self.answers = kept;
    }
}

fn asked(question: &Question) -> (String, String) {
    (question.subject.clone(), question.what.to_string())
}

/// The memories of all objects of one operator.
#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<HashMap<Key, Arc<Mutex<Memory>>>>);

impl Memories {
    /// What is remembered about an object.
    pub(crate) fn of(&self, key: &Key) -> Arc<Mutex<Memory>> {
        Arc::clone(self.0.lock().entry(key.clone()).or_default())
    }

    /// The object is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_operator::{Class, Failure};
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn map(name: &str) -> (KindRef, Key) {
        (KindRef::of::<ConfigMap>(), Key::new(Some("default"), name))
    }

    #[test]
    fn the_last_write_to_an_object_is_what_is_waited_for() {
        let mut memory = Memory::default();
        let (kind, key) = map("a");
        memory.wrote(&kind, &key, "7");
        memory.wrote(&kind, &key, "9");
        let outstanding = memory.outstanding(|_| false);
        assert_eq!(outstanding.len(), 1);
        assert_eq!(outstanding[0].what, What::Revision(9));
        assert!(memory.is_own("7") && memory.is_own("9") && !memory.is_own("8"));
        assert!(memory.outstanding(|_| true).is_empty());
    }

    #[test]
    fn a_write_that_was_refused_leaves_what_was_waited_for() {
        let mut memory = Memory::default();
        let (kind, key) = map("a");
        memory.wrote(&kind, &key, "7");
        let before = memory.expect(&kind, &key, What::Unknown);
        memory.expect_again(&kind, &key, before);
        assert_eq!(memory.outstanding(|_| false)[0].what, What::Revision(7));
    }

    #[test]
    fn what_is_remembered_of_own_writes_is_bounded() {
        let mut memory = Memory::default();
        let (kind, key) = map("a");
        (0..1000).for_each(|revision| memory.wrote(&kind, &key, &revision.to_string()));
        assert_eq!(memory.echoes.len(), ECHOES_KEPT);
        assert!(memory.is_own("999"));
    }

    #[test]
    fn the_same_failure_in_a_row_is_counted() {
        let mut memory = Memory::default();
        let mut times = Vec::new();
        for (step, class) in [
            ("apply a", Class::Retry),
            ("apply a", Class::Retry),
            ("apply b", Class::Retry),
            ("apply b", Class::Bug),
        ] {
            let failed = memory.failed_again(step.to_owned(), Failure::new(class, "no"));
            times.push(failed.times);
            memory.outcome = Some(Outcome { failed: Some(failed), contested: Vec::new() });
        }
        assert_eq!(times, [1, 2, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_used_again_while_it_is_fresh() {
        let mut memory = Memory::default();
        let question = Question::new("q", "pod-0", &json!("members"), Duration::from_secs(5)).unwrap();
        let answer = Answer::Said(json!(3));
        memory.keep_answers(&[(&question, answer.clone())], Instant::now());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(memory.answer(&question, Instant::now()), Some(answer.clone()));
        // Using it does not make it younger.
        memory.keep_answers(&[(&question, answer)], Instant::now());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(memory.answer(&question, Instant::now()), None);
    }
}
