//! Who else writes the fields that are ours, and how often.
//!
//! One hand edit is put right and said in an event. One that comes back again and again is a contest: two programs
//! that both believe a field to be theirs. It is in the outcome of the round, for the operator to say in the status,
//! and it is answered ever more slowly: a war of writes is worse than a field that is wrong for a minute.

use std::time::Duration;

use ballast_operator::{Contest, Rival};
use tokio::time::Instant;

/// How often a field has to flip to be contested. Twice may be a person who tries again.
const CONTESTED_FROM: u32 = 3;
/// After how long without a flip a contest is over.
const OVER_AFTER: Duration = Duration::from_secs(600);
/// The pause before the first answer in a contest; it doubles with every flip.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The flips of one object's children.
#[derive(Debug, Default)]
pub(crate) struct Contests(Vec<Flips>);

#[derive(Debug)]
struct Flips {
    object: String,
    rival: Rival,
    times: u32,
    last: Instant,
}

impl Contests {
    /// Fields of an object were taken back.
    pub(crate) fn flipped(&mut self, object: &str, rivals: &[Rival], now: Instant) {
        self.0.retain(|flips| now.duration_since(flips.last) < OVER_AFTER);
        for rival in rivals {
            match self.0.iter_mut().find(|flips| flips.object == object && flips.rival == *rival) {
                Some(flips) => {
                    flips.times += 1;
                    flips.last = now;
                }
                None => {
                    let (object, rival) = (object.to_owned(), rival.clone());
                    self.0.push(Flips { object, rival, times: 1, last: now });
                }
            }
        }
    }

    fn under_way(&self, now: Instant) -> impl Iterator<Item = &Flips> {
        let live = move |flips: &&Flips| {
            flips.times >= CONTESTED_FROM && now.duration_since(flips.last) < OVER_AFTER
        };
        self.0.iter().filter(live)
    }

    /// What is contested now, in a settled order.
    pub(crate) fn contested(&self, now: Instant) -> Vec<Contest> {
        let contest = |flips: &Flips| Contest {
            object: flips.object.clone(),
            path: flips.rival.path.clone(),
            manager: flips.rival.manager.clone(),
            times: flips.times,
        };
        let mut contests: Vec<Contest> = self.under_way(now).map(contest).collect();
        contests.sort();
        contests
    }

    /// Before when the next flip is not to be answered.
    pub(crate) fn hold_until(&self, now: Instant) -> Option<Instant> {
        let pause = |flips: &Flips| {
            let doublings = (flips.times - CONTESTED_FROM).min(16);
            flips.last + FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
        };
        self.under_way(now).map(pause).max().filter(|until| *until > now)
    }

    /// When what is contested now will be over, if nothing flips again.
    pub(crate) fn over_in(&self, now: Instant) -> Option<Duration> {
        self.under_way(now).map(|flips| (flips.last + OVER_AFTER).duration_since(now)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flip(contests: &mut Contests, times: u32) {
        let rival = Rival { manager: "kubectl-edit".into(), path: ".spec.replicas".into() };
        for _ in 0..times {
            contests.flipped("Deployment default/sample", std::slice::from_ref(&rival), Instant::now());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hand_edit_is_no_contest() {
        let mut contests = Contests::default();
        flip(&mut contests, 2);
        assert_eq!(contests.contested(Instant::now()), []);
        assert_eq!(contests.hold_until(Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_that_keeps_flipping_is_contested_until_it_rests() {
        let mut contests = Contests::default();
        flip(&mut contests, 3);
        let contested = contests.contested(Instant::now());
        assert_eq!((contested[0].path.as_str(), contested[0].times), (".spec.replicas", 3));
        tokio::time::sleep(contests.over_in(Instant::now()).unwrap()).await;
        assert_eq!(contests.contested(Instant::now()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_contest_is_answered_ever_more_slowly() {
        let mut contests = Contests::default();
        let mut pauses = Vec::new();
        flip(&mut contests, 2);
        for _ in 0..8 {
            flip(&mut contests, 1);
            let now = Instant::now();
            pauses.push(contests.hold_until(now).unwrap().duration_since(now).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
