//! What must be asked of a running service before deciding, and what came back.
//!
//! What is asked is a value of an engine's own type, carried here as JSON: this crate knows no engine. Whoever
//! asks and whoever answers share that type.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Class, Failure};

/// Something only the running service knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The name under which the answer is found. Unique among the questions of one round.
    pub id: String,
    /// Who is asked: a pod's name, or whatever the engine understands.
    pub subject: String,
    /// What is asked, in the engine's own words.
    pub what: Value,
    /// How old an answer may be. Zero: ask now.
    pub max_age: Duration,
}

impl Question {
    /// A question in an engine's own words.
    ///
    /// # Errors
    /// When the words are no JSON.
    pub fn new<Q: Serialize>(
        id: impl Into<String>,
        subject: impl Into<String>,
        what: &Q,
        max_age: Duration,
    ) -> Result<Self, Failure> {
        let what = serde_json::to_value(what).map_err(|error| Failure::new(Class::Bug, error.to_string()))?;
        Ok(Question { id: id.into(), subject: subject.into(), what, max_age })
    }
}

/// What came back. A service that does not answer is an answer too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It said this, in the engine's own words.
    Said(Value),
    /// It said nothing.
    Silent {
        /// Why, as far as is known: refused, timed out, no such pod.
        why: String,
    },
}

/// All answers of one round. A question that was not put counts as silence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers(BTreeMap<String, Answer>);

impl Answers {
    /// No question, no answer.
    pub fn none() -> Self {
        Answers::default()
    }

    /// Puts down the answer to a question.
    pub fn insert(&mut self, id: impl Into<String>, answer: Answer) {
        self.0.insert(id.into(), answer);
    }

    /// The answer to a question, where it was put.
    pub fn get(&self, id: &str) -> Option<&Answer> {
        self.0.get(id)
    }

    /// What the service said, as its type. `Err` says why nothing is known: silence, or words not understood.
    ///
    /// # Errors
    /// [`Class::Retry`] for silence, [`Class::Bug`] for words that are not the engine's.
    pub fn read<A: DeserializeOwned>(&self, id: &str) -> Result<A, Failure> {
        match self.get(id) {
            None => Err(Failure::new(Class::Retry, "it was not asked")),
            Some(Answer::Silent { why }) => Err(Failure::new(Class::Retry, why.clone())),
            Some(Answer::Said(value)) => {
                A::deserialize(value).map_err(|error| Failure::new(Class::Bug, error.to_string()))
            }
        }
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Answer)> {
        self.0.iter().map(|(id, answer)| (id.as_str(), answer))
    }
}

impl FromIterator<(String, Answer)> for Answers {
    fn from_iter<I: IntoIterator<Item = (String, Answer)>>(answers: I) -> Self {
        Answers(answers.into_iter().collect())
    }
}
