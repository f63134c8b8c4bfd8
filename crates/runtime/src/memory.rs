//! What is remembered about one object between rounds.
//!
//! **What always holds.** Memory may change when something is looked at, never what is decided: whoever forgets all
//! of it and begins anew ends at the same place. What is here is either about time (failures in a row, contests), or
//! keeps a round from looking at a world older than its own last write, or says what came of the last round.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use ballast_operator::{Answer, KindRef, Outcome, Question};
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

    /// Something is expected of a cache, instead of what was expected of it for this object before.
    pub(crate) fn expect(&mut self, kind: &KindRef, key: &Key, what: What) {
        self.expected.retain(|expected| expected.key != *key || expected.kind != *kind);
        self.expected.push(Expected { kind: kind.clone(), key: key.clone(), what });
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

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
