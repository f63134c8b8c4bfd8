//! The prover: which runs there are, which of them are done, and by whom.

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use ballast_operator::{Object, Operator};
use ballast_runtime::NoEngine;
use drydock::Snapshot;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::PostParams};
use parking_lot::Mutex;

use crate::{
    Check, Coverage, Finding, Life, Proven, Report, Service, State,
    clock::BEGINNING,
    cluster::Cluster,
    kubelet,
    member::{By, Member},
    run::{Disturbance, How, Lived, Outcome, Point, Run, Start, WatchFault, WriteFault},
    service::ActionFault,
};

/// The variable that asks for every possible run: `BALLAST_PROVE=all`.
pub const PROVE_ALL: &str = "BALLAST_PROVE";

/// Something that must hold of what the operator says. The text says what is wrong.
pub type Invariant = Arc<dyn Fn(&State) -> Result<(), String> + Send + Sync>;

/// Whether an object that held data, and that the operator deleted, was to go for the sake of what is there now.
pub type Release = Arc<dyn Fn(&Object, &State) -> bool + Send + Sync>;

/// How many runs of each sort are done where not all are: as many as fit into a test that people run all day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Crashes right after a write.
    pub crashes: usize,
    /// Writes that fail.
    pub write_faults: usize,
    /// Watches that fail.
    pub watch_faults: usize,
    /// Actions of the service that fail.
    pub action_faults: usize,
}

const MANY: usize = usize::MAX;
/// After how many runs it is said how far it is.
const SOME: usize = 100;

impl Sample {
    /// All of them.
    pub const ALL: Sample =
        Sample { crashes: MANY, write_faults: MANY, watch_faults: MANY, action_faults: MANY };
}

impl Default for Sample {
    fn default() -> Self {
        Sample { crashes: 24, write_faults: 20, watch_faults: 12, action_faults: 12 }
    }
}

/// What is proven.
pub(crate) struct Subject {
    pub(crate) members: Vec<Box<dyn Member>>,
    pub(crate) invariants: Vec<(String, Invariant)>,
    pub(crate) releases: Vec<Release>,
    service: Arc<dyn Service>,
}

/// Runs operators through lives, and through everything that can go wrong in them.
pub struct Prove {
    name: &'static str,
    subject: Subject,
    lives: Vec<Life>,
    sample: Sample,
    anyones: bool,
}

impl Prove {
    /// Proves the operator that `make` gives. It is called for every start: each is a new process.
    pub fn new<O: Operator>(make: impl Fn() -> O + Send + Sync + 'static) -> Self {
        let all = std::env::var(PROVE_ALL).is_ok_and(|value| value == "all");
        Prove {
            name: O::NAME,
            subject: Subject {
                members: vec![Box::new(By(make))],
                invariants: Vec::new(),
                releases: Vec::new(),
                service: Arc::new(NoEngine),
            },
            lives: Vec::new(),
            sample: if all { Sample::ALL } else { Sample::default() },
            anyones: all,
        }
    }

    /// With this operator in the same process: they are started and crash together, and both are held to everything.
    #[must_use]
    pub fn beside<O: Operator>(mut self, make: impl Fn() -> O + Send + Sync + 'static) -> Self {
        self.subject.members.push(Box::new(By(make)));
        self
    }

    /// What holds data may be deleted by an operator, though its resource stays, where this says so.
    #[must_use]
    pub fn lets_go(mut self, release: impl Fn(&Object, &State) -> bool + Send + Sync + 'static) -> Self {
        self.subject.releases.push(Arc::new(release));
        self
    }

    /// Through this life, too.
    #[must_use]
    pub fn life(mut self, life: Life) -> Self {
        self.lives.push(life);
        self
    }

    /// This must hold wherever everything has come to rest, and right after every status that the operator writes:
    /// `Ready` is not said before it is so.
    #[must_use]
    pub fn holds(
        mut self,
        name: impl Into<String>,
        invariant: impl Fn(&State) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.subject.invariants.push((name.into(), Arc::new(invariant)));
        self
    }

    /// With this service behind the operator's questions and actions.
    #[must_use]
    pub fn service(mut self, service: impl Service) -> Self {
        self.subject.service = Arc::new(service);
        self
    }

    /// That many runs, evenly spread, where not all are asked for by `BALLAST_PROVE=all`.
    #[must_use]
    pub fn sample(mut self, sample: Sample) -> Self {
        if self.sample != Sample::ALL {
            self.sample = sample;
        }
        self
    }

    /// Does the runs, on all processors.
    pub fn run(&self) -> Report {
        let began = Instant::now();
        let mut report =
            Report { operator: self.name, lives: Vec::new(), findings: Vec::new(), took: began.elapsed() };
        match block_on(self.beginning()) {
            Err(why) => report.findings.push(Finding {
                check: Check::Run,
                life: String::new(),
                act: String::new(),
                run: "before the first act".to_owned(),
                what: why,
                rounds: String::new(),
            }),
            Ok(start) => self.lives.iter().for_each(|life| self.prove(life, &start, &mut report)),
        }
        report.took = began.elapsed();
        report
    }

    /// A cluster that knows the operator's resource and has a node, and in which nothing has happened yet.
    async fn beginning(&self) -> Result<Start, String> {
        let at: Timestamp = BEGINNING.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let service = self.subject.service.fork();
        let cluster = Cluster::start(None, at, service).await.map_err(|error| error.to_string())?;
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.person.clone());
        for member in &self.subject.members {
            let definition = member.definition();
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .map_err(|error| error.to_string())?;
        }
        kubelet::register(&cluster.person, &at.to_string()).await.map_err(|error| error.to_string())?;
        cluster.rest().await.map_err(|error| error.to_string())?;
        let snapshot: Snapshot =
            cluster.drydock.snapshot(cluster.drydock.revision()).map_err(|error| error.to_string())?;
        let (at, service) = (cluster.clock.timestamp(), cluster.service.fork());
        Ok(Start { snapshot, at, service, act: 0, how: How::Ahead })
    }

    /// What they watch, each once.
    fn watched(&self) -> Vec<String> {
        let mut all: Vec<String> = self.subject.members.iter().flat_map(|member| member.watched()).collect();
        all.sort();
        all.dedup();
        all
    }

    fn prove(&self, life: &Life, start: &Start, report: &mut Report) {
        let run = |words: String, expected| Run {
            subject: &self.subject,
            life,
            since: start.snapshot.revision(),
            words,
            expected,
            anyones: self.anyones,
        };
        let undisturbed = run("undisturbed".to_owned(), &[]);
        let Outcome { findings, lived, points, .. } =
            block_on(undisturbed.live(start.clone(), &Disturbance::None));
        let clean = findings.is_empty();
        report.findings.extend(findings);
        let writes = lived.iter().map(|act| act.writes.len()).sum();
        let mut proven = Proven {
            life: life.name.clone(),
            acts: life.acts.len(),
            writes,
            crashes: Coverage::default(),
            write_faults: Coverage::default(),
            watch_faults: Coverage::default(),
            action_faults: Coverage::default(),
        };
        // What does not hold undisturbed is no measure for the rest.
        if clean {
            let sorts = [
                ("crashes", crashes(&points), self.sample.crashes, &mut proven.crashes),
                (
                    "writes that fail",
                    write_faults(&lived),
                    self.sample.write_faults,
                    &mut proven.write_faults,
                ),
                (
                    "watches that fail",
                    watch_faults(&lived, &self.watched()),
                    self.sample.watch_faults,
                    &mut proven.watch_faults,
                ),
                (
                    "actions that fail",
                    action_faults(&lived),
                    self.sample.action_faults,
                    &mut proven.action_faults,
                ),
            ];
            for (sort, cases, limit, coverage) in sorts {
                coverage.of = cases.len();
                let chosen: Vec<&Case> = spread(cases.len(), limit).map(|place| &cases[place]).collect();
                coverage.done = chosen.len();
                let done = AtomicUsize::new(0);
                let outcomes = side_by_side(&chosen, |case| {
                    let run = run(case.words.clone(), &lived);
                    let outcome = block_on(run.live(case.start.clone(), &case.disturbance));
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    // Who waits for minutes wants to see that it goes on.
                    if self.anyones && done.is_multiple_of(SOME) {
                        println!("{}, \"{}\": {sort}, {done} of {}", self.name, life.name, chosen.len());
                    }
                    outcome
                });
                for (case, outcome) in chosen.iter().zip(outcomes) {
                    coverage.struck += usize::from(outcome.struck || case.disturbance == Disturbance::None);
                    report.findings.extend(outcome.findings);
                }
            }
        }
        report.lives.push(proven);
    }
}

/// One disturbed run.
struct Case {
    start: Start,
    disturbance: Disturbance,
    words: String,
}

fn crashes(points: &[Point]) -> Vec<Case> {
    let count = points.len();
    let case = |(place, point): (usize, &Point)| Case {
        start: point.start.clone(),
        disturbance: Disturbance::None,
        words: format!("crashed after write {} of {count}, {}", place + 1, point.what),
    };
    points.iter().enumerate().map(case).collect()
}

fn write_faults(lived: &[Lived]) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut number = 0;
    for act in lived {
        for (place, write) in act.writes.iter().enumerate() {
            number += 1;
            // What an engine does is no request.
            if write.verb == "ACT" {
                continue;
            }
            let same = act.writes[..=place].iter().filter(|other| other.resource == write.resource);
            let (resource, nth) = (write.resource.clone(), same.count() as u64);
            cases.extend(WriteFault::ALL.map(|fault| Case {
                start: act.before.clone(),
                words: format!("write {number}, {write}, {}", fault.words()),
                disturbance: Disturbance::Write { fault, resource: resource.clone(), nth },
            }));
        }
    }
    cases
}

fn watch_faults(lived: &[Lived], watched: &[String]) -> Vec<Case> {
    let mut cases = Vec::new();
    for act in lived {
        for resource in watched {
            cases.extend(WatchFault::ALL.map(|fault| Case {
                start: act.before.clone(),
                words: format!("the watch of {resource} {}", fault.words()),
                disturbance: Disturbance::Watch { fault, resource: resource.clone() },
            }));
        }
    }
    cases
}

fn action_faults(lived: &[Lived]) -> Vec<Case> {
    let mut cases = Vec::new();
    for act in lived {
        for (place, action) in act.writes.iter().filter(|write| write.verb == "ACT").enumerate() {
            cases.extend(ActionFault::ALL.map(|fault| Case {
                start: act.before.clone(),
                words: format!("{action} {}", fault.words()),
                disturbance: Disturbance::Action { fault, nth: place as u64 + 1 },
            }));
        }
    }
    cases
}

/// At most `limit` of `total` places, evenly spread. The place within each stretch shifts, so that not always the
/// same of several neighbours is taken.
fn spread(total: usize, limit: usize) -> impl Iterator<Item = usize> {
    let limit = limit.min(total);
    let stretch = total.checked_div(limit).unwrap_or(0).max(1);
    (0..limit).map(move |place| place * total / limit + place % stretch)
}

/// Runs something of virtual time to its end.
fn block_on<T>(future: impl Future<Output = T>) -> T
where
    T: From<Stopped>,
{
    match tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build() {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => T::from(Stopped(error.to_string())),
    }
}

/// The machine would not do it.
struct Stopped(String);

impl<T> From<Stopped> for Result<T, String> {
    fn from(stopped: Stopped) -> Self {
        Err(stopped.0)
    }
}

impl From<Stopped> for Outcome {
    fn from(Stopped(what): Stopped) -> Self {
        let (life, act, run) = (String::new(), String::new(), "before it began".to_owned());
        let finding = Finding { check: Check::Run, life, act, run, what, rounds: String::new() };
        Outcome { findings: vec![finding], ..Outcome::default() }
    }
}

/// Does all of `work`, as many at a time as there are processors, and gives the results in order.
fn side_by_side<W: Sync, T: Send>(work: &[W], each: impl Fn(&W) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(work.len()));
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(work.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((place, item)) = {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    work.get(place).map(|item| (place, item))
                } {
                    let result = each(item);
                    results.lock().push((place, result));
                }
            });
        }
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_all_there_is() {
        assert_eq!(spread(3, 10).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(spread(10, usize::MAX).count(), 10);
        assert_eq!(spread(0, 5).count(), 0);
        assert_eq!(spread(20, 4).collect::<Vec<_>>(), [0, 6, 12, 18]);
        for (total, limit) in [(7, 3), (215, 20), (100, 99)] {
            let places: Vec<usize> = spread(total, limit).collect();
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
            assert!(places.iter().all(|place| *place < total), "{places:?}");
        }
    }

    #[test]
    fn work_that_is_done_side_by_side_comes_back_in_order() {
        let numbers: Vec<usize> = (0..100).collect();
        assert_eq!(side_by_side(&numbers, |number| number * 2), (0..200).step_by(2).collect::<Vec<_>>());
    }
}
