//! The flight recorder: what was seen, planned and done of each object in its last rounds, as text.
//!
//! **What always holds.** Memory is bounded, whatever happens. There are no secrets in it: it keeps plans as they
//! print, which never shows one, and of objects only which there were.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
};

use jiff::Timestamp;
use parking_lot::Mutex;

/// How many rounds of one object are kept.
const ROUNDS: usize = 8;
/// How many bytes of text are kept in all.
const BYTES: usize = 2 << 20;

/// One round of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// When it began.
    pub at: Timestamp,
    /// The name that stands on all its log lines.
    pub id: String,
    /// What was seen: one line per object.
    pub view: String,
    /// What was planned: one line per step.
    pub plan: String,
    /// What came of it.
    pub outcome: String,
}

impl Round {
    fn bytes(&self) -> usize {
        self.id.len() + self.view.len() + self.plan.len() + self.outcome.len()
    }
}

/// The last rounds of each object.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Tape>);

#[derive(Debug, Default)]
struct Tape {
    rounds: BTreeMap<String, VecDeque<Round>>,
    /// Who wrote, oldest first: the order in which rounds are forgotten.
    order: VecDeque<String>,
    bytes: usize,
}

impl Recorder {
    /// Keeps a round of `object`, as in `memcached default/sample`. One that is like the last, and in which nothing
    /// came to pass, takes its place.
    pub(crate) fn record(&self, object: &str, round: Round) {
        let mut tape = self.0.lock();
        let tape = &mut *tape;
        let rounds = tape.rounds.entry(object.to_owned()).or_default();
        if let Some(last) = rounds.back_mut()
            && (&last.view, &last.plan, &last.outcome) == (&round.view, &round.plan, &round.outcome)
        {
            last.at = round.at;
            last.id = round.id;
            return;
        }
        tape.bytes += round.bytes();
        rounds.push_back(round);
        if rounds.len() > ROUNDS {
            tape.bytes -= rounds.pop_front().map_or(0, |oldest| oldest.bytes());
            // Its place in the order is the object's oldest; the new one takes a new place.
            if let Some(place) = tape.order.iter().position(|other| other == object) {
                tape.order.remove(place);
            }
        }
        tape.order.push_back(object.to_owned());
        while tape.bytes > BYTES {
            let Some(oldest) = tape.order.pop_front() else { return };
            if let Some(rounds) = tape.rounds.get_mut(&oldest) {
                tape.bytes -= rounds.pop_front().map_or(0, |round| round.bytes());
                if rounds.is_empty() {
                    tape.rounds.remove(&oldest);
                }
            }
        }
    }

    /// The objects of which there is something.
    pub fn objects(&self) -> Vec<String> {
        self.0.lock().rounds.keys().cloned().collect()
    }

    /// The last rounds of an object, oldest first.
    pub fn rounds(&self, object: &str) -> Vec<Round> {
        self.0.lock().rounds.get(object).into_iter().flatten().cloned().collect()
    }

    /// The last rounds of an object, or of all, as text.
    pub fn text(&self, object: Option<&str>) -> String {
        let tape = self.0.lock();
        let mut text = String::new();
        for (name, rounds) in tape.rounds.iter().filter(|(name, _)| object.is_none_or(|only| only == *name)) {
            for Round { at, id, view, plan, outcome } in rounds {
                let _ = writeln!(text, "# {name}  {at}  {id}\n{view}{plan}{outcome}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(number: usize, text: &str) -> Round {
        Round {
            at: Timestamp::UNIX_EPOCH,
            id: number.to_string(),
            view: String::new(),
            plan: text.into(),
            outcome: number.to_string(),
        }
    }

    #[test]
    fn the_last_rounds_of_each_object_are_kept() {
        let recorder = Recorder::default();
        (0..20).for_each(|number| recorder.record("a", round(number, "x")));
        recorder.record("b", round(0, "y"));
        let ids: Vec<String> = recorder.rounds("a").into_iter().map(|round| round.id).collect();
        assert_eq!(ids, ["12", "13", "14", "15", "16", "17", "18", "19"]);
        assert_eq!(recorder.objects(), ["a", "b"]);
    }

    #[test]
    fn a_round_like_the_last_takes_its_place() {
        let recorder = Recorder::default();
        recorder.record("a", round(1, "x"));
        recorder.record("a", Round { id: "2".into(), ..round(1, "x") });
        let ids: Vec<String> = recorder.rounds("a").into_iter().map(|round| round.id).collect();
        assert_eq!(ids, ["2"]);
    }

    #[test]
    fn memory_is_bounded() {
        let recorder = Recorder::default();
        let long = "x".repeat(10_000);
        for number in 0..1000 {
            recorder.record(&format!("object-{number}"), round(number, &long));
        }
        assert!(recorder.text(None).len() < BYTES + BYTES / 10);
        assert!(recorder.objects().len() > 100, "the newest are kept");
        assert!(recorder.rounds("object-999").len() == 1);
    }
}
