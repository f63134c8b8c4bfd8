//! The same several times over, with what the machine's host took of the machine meanwhile.
//!
//! A machine that is one of many on its host is stopped at times, by milliseconds or tens of them, and whoever is served
//! in such a moment is late. That is in every figure; so a late one is printed beside what was taken, and all rounds are.

use std::time::Instant;

use anyhow::Result;

use super::{
    Measured, ROUNDS,
    load::Load,
    watching::{self, Seen, WATCHERS, WRITES_PER_SECOND},
};
use crate::{started::machine, table::Table};

const BARE: &str = "as many bytes to bare sockets, nothing stored";
const GOAL: &str = "seen, p99 under 10 ms";

/// What came of one.
struct Round {
    /// The share of the machine that its host took, in per cent.
    taken: f64,
    /// The share of a processor that the server used, in per cent; none where there is no server.
    processor: Option<f64>,
    times: Seen,
}

impl Round {
    fn of(server: Option<&Measured>) -> Result<Self> {
        let used = || server.map_or(0.0, Measured::processor);
        let (before, used_before, began) = (machine()?, used(), Instant::now());
        let times = match server {
            Some(server) => watching::measure(&server.server)?,
            None => watching::bare()?,
        };
        let processor = (used() - used_before) / began.elapsed().as_secs_f64() * 100.0;
        let now = machine()?;
        let [had, taken] = [0, 1].map(|index| now[index] - before[index]);
        Ok(Self { taken: taken / (had + taken) * 100.0, processor: server.map(|_| processor), times })
    }
}

/// Measures one after the other, then all of them again, and at last what the machine itself takes.
pub fn watches<'a>(servers: impl Iterator<Item = (&'a str, &'a Measured)>) -> Result<Table> {
    let servers: Vec<_> = servers.collect();
    servers.iter().try_for_each(|(_, measured)| watching::prepare(&measured.server))?;
    let whom = || servers.iter().map(|(who, measured)| (*who, Some(*measured))).chain([(BARE, None)]);
    let mut rounds: Vec<(&str, Vec<Round>)> = whom().map(|(who, _)| (who, Vec::new())).collect();
    for _ in 0..ROUNDS {
        for ((_, rounds), (_, server)) in rounds.iter_mut().zip(whom()) {
            rounds.push(Round::of(server)?);
        }
    }
    let title = format!(
        "{WRITES_PER_SECOND} writes a second, each to {WATCHERS} watchers: {ROUNDS} rounds, that in which the host \
         took least of the machine first"
    );
    let columns = [
        "by",
        "taken",
        "sent to seen, p99",
        "median",
        "sent to answered, p99",
        "median",
        "writes/s",
        "processor",
        "goal",
    ];
    let mut table = Table::new(&title, columns);
    for (who, mut rounds) in rounds {
        rounds.sort_by(|one, other| one.taken.total_cmp(&other.taken));
        table.row(row(who, &rounds));
    }
    Ok(table)
}

fn row(who: &str, rounds: &[Round]) -> [String; 9] {
    let all = |unit: &str, figure: &dyn Fn(&Round) -> Option<String>| {
        let figures: Vec<String> = rounds.iter().filter_map(figure).collect();
        if figures.is_empty() { String::new() } else { figures.join(", ") + unit }
    };
    let late = |share: f64| move |load: &Load| format!("{:.1}", load.all_but(share));
    let seen = |share| all(" ms", &|round| Some(late(share)(&round.times.seen)));
    let answered = |share| all(" ms", &|round| round.times.answered.as_ref().map(late(share)));
    let rate = |load: &Load| format!("{:.0}", load.per_second());
    [
        who.to_owned(),
        all(" %", &|round| Some(format!("{:.1}", round.taken))),
        seen(0.01),
        seen(0.5),
        answered(0.01),
        answered(0.5),
        all("", &|round| round.times.answered.as_ref().map(rate)),
        all(" %", &|round| round.processor.map(|share| format!("{share:.0}"))),
        if who == BARE { String::new() } else { GOAL.to_owned() },
    ]
}
