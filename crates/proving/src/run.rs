//! One run of a life, or of what is left of it: acts, rests, checks.

use std::{sync::Arc, time::Duration};

use ballast_operator::Object;
use drydock::{Fault, Order, Revision, Snapshot};
use jiff::Timestamp;

use crate::{
    Check, Finding, Life, Service, State,
    canonical::canonical,
    checks::{self, Found},
    cluster::Cluster,
    prove::Subject,
    report::difference,
    service::ActionFault,
    tap::{Who, Write},
};

/// Where a run begins.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) snapshot: Snapshot,
    pub(crate) at: Timestamp,
    /// The service as it was then. Every run works on a fork of it.
    pub(crate) service: Arc<dyn Service>,
    /// The act that is under way, or the next.
    pub(crate) act: usize,
    pub(crate) how: How,
}

/// How much of the first act was done before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Nothing: the operator is started, everything rests, then the act is done.
    Ahead,
    /// Some of it: it is done again while the operator starts.
    Again,
    /// All of it.
    Done,
}

/// What goes wrong in the first act of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    None,
    /// The `nth` write of the operator to a resource fails.
    Write {
        fault: WriteFault,
        resource: String,
        nth: u64,
    },
    /// The `nth` action that the operator has the service do fails.
    Action {
        fault: ActionFault,
        nth: u64,
    },
    /// The operator's watch of a resource fails.
    Watch {
        fault: WatchFault,
        resource: String,
    },
}

/// How a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFault {
    Conflict,
    TooManyRequests,
    InternalError,
    CutBefore,
    CutAfter,
}

impl WriteFault {
    pub(crate) const ALL: [WriteFault; 5] = [
        WriteFault::Conflict,
        WriteFault::TooManyRequests,
        WriteFault::InternalError,
        WriteFault::CutBefore,
        WriteFault::CutAfter,
    ];

    fn fault(self) -> Fault {
        match self {
            WriteFault::Conflict => Fault::conflict(),
            WriteFault::TooManyRequests => Fault::too_many_requests(),
            WriteFault::InternalError => Fault::internal_error(),
            WriteFault::CutBefore => Fault::cut_before(),
            WriteFault::CutAfter => Fault::cut_after(),
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            WriteFault::Conflict => "is answered 409",
            WriteFault::TooManyRequests => "is answered 429",
            WriteFault::InternalError => "is answered 500",
            WriteFault::CutBefore => "is cut before it takes effect",
            WriteFault::CutAfter => "is cut after it took effect",
        }
    }
}

/// How a watch fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    /// Its first event is not delivered: the connection is cut.
    Cut,
    /// Its first event is not delivered: the revision is too old.
    Expired,
    /// Its events come seconds later.
    Late,
    /// It says nothing until everything else has come to rest.
    Stale,
}

/// Longer than a runtime waits for its own writes to come back.
const LATE: Duration = Duration::from_secs(3);

impl WatchFault {
    pub(crate) const ALL: [WatchFault; 4] =
        [WatchFault::Cut, WatchFault::Expired, WatchFault::Late, WatchFault::Stale];

    fn fault(self) -> Fault {
        match self {
            WatchFault::Cut => Fault::watch_cut(),
            WatchFault::Expired => Fault::watch_expired(),
            WatchFault::Late => Fault::watch_late(LATE),
            WatchFault::Stale => Fault::watch_stale(),
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            WatchFault::Cut => "is cut",
            WatchFault::Expired => "is too old",
            WatchFault::Late => "is late",
            WatchFault::Stale => "is stale",
        }
    }
}

impl Disturbance {
    fn order(&self, cluster: &Cluster) -> Option<Order> {
        let fault = match self {
            Disturbance::None => return None,
            Disturbance::Action { fault, nth } => {
                cluster.action_faults.order(*nth, *fault);
                return None;
            }
            Disturbance::Write { fault, resource, nth } => {
                fault.fault().resource(resource.as_str()).nth(*nth)
            }
            Disturbance::Watch { fault, resource } => fault.fault().resource(resource.as_str()),
        };
        Some(cluster.drydock.faults().order(fault.user(Who::Operator.user())))
    }
}

/// What an act was, for other runs to begin in it and to be held against it.
#[derive(Clone)]
pub(crate) struct Lived {
    /// Right before it.
    pub(crate) before: Start,
    /// What it came to.
    pub(crate) canonical: String,
    /// What the operator wrote.
    pub(crate) writes: Vec<Write>,
}

/// What came of a run.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) findings: Vec<Finding>,
    /// Whether the disturbance came to pass.
    pub(crate) struck: bool,
    /// Only of the undisturbed run: everything that other runs need of it.
    pub(crate) lived: Vec<Lived>,
    /// Only of the undisturbed run: what there was right after each write in question.
    pub(crate) points: Vec<Point>,
}

/// A moment at which the operator may crash.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) start: Start,
    /// What was written last.
    pub(crate) what: String,
}

/// Everything that a run of a life is about.
pub(crate) struct Run<'r> {
    pub(crate) subject: &'r Subject,
    pub(crate) life: &'r Life,
    /// The revision that the life begins after.
    pub(crate) since: Revision,
    /// What kind of run it is, in words.
    pub(crate) words: String,
    /// What the undisturbed life was. Nothing in the undisturbed life itself.
    pub(crate) expected: &'r [Lived],
    /// Whether a crash after anybody's write is wanted, or only after the operator's own.
    pub(crate) anyones: bool,
}

impl Run<'_> {
    /// Runs what is left of the life from `start` on.
    pub(crate) async fn live(&self, start: Start, disturbance: &Disturbance) -> Outcome {
        let mut outcome = Outcome::default();
        let (first, how) = (start.act, start.how);
        let cluster = match Cluster::start(Some(start.snapshot), start.at, start.service.fork()).await {
            Ok(cluster) => cluster,
            Err(error) => {
                outcome.findings.push(self.finding(first, (Check::Run, error.to_string())));
                return outcome;
            }
        };
        cluster.operate(&self.subject.members);
        if how == How::Ahead
            && let Err(restless) = cluster.rest().await
        {
            outcome.findings.push(self.finding(first, (Check::Rest, restless.to_string())));
            return outcome;
        }
        let none = Disturbance::None;
        for (act, (_, played)) in self.life.acts.iter().enumerate().skip(first) {
            let (play, disturbance) =
                if act == first { (how != How::Done, disturbance) } else { (true, &none) };
            let before = self.moment(&cluster, act);
            let order = disturbance.order(&cluster);
            if play && let Err(error) = played.play(&cluster.person).await {
                outcome.findings.push(self.finding(act, (Check::Run, error.to_string())));
                return outcome;
            }
            let rested = self.rest(&cluster, disturbance, order.as_ref()).await;
            outcome.struck |= order.is_some_and(|order| order.count() > 0);
            cluster.drydock.faults().clear();
            let still_to_come = cluster.action_faults.lift();
            outcome.struck |= matches!(disturbance, Disturbance::Action { .. }) && !still_to_come;
            let found = match rested {
                // What would be done next says best why.
                Err(restless) => {
                    let mut found = vec![(Check::Rest, restless)];
                    found.extend(self.fixpoint(&cluster, &cluster.state(self.since)).await);
                    found
                }
                Ok(()) => self.look(&cluster, act, before, disturbance, &mut outcome).await,
            };
            if !found.is_empty() {
                // What comes after a finding is mostly its consequence.
                let mut findings: Vec<Finding> =
                    found.into_iter().map(|found| self.finding(act, found)).collect();
                findings[0].rounds = cluster.last_rounds();
                outcome.findings.extend(findings);
                return outcome;
            }
        }
        outcome
    }

    async fn rest(
        &self,
        cluster: &Cluster,
        disturbance: &Disturbance,
        order: Option<&Order>,
    ) -> Result<(), String> {
        cluster.rest().await.map_err(|restless| restless.to_string())?;
        if let (Disturbance::Watch { fault: WatchFault::Stale, .. }, Some(order)) = (disturbance, order) {
            order.lift();
            cluster.rest().await.map_err(|restless| restless.to_string())?;
        }
        Ok(())
    }

    /// Everything that must hold after an act.
    async fn look(
        &self,
        cluster: &Cluster,
        act: usize,
        before: Option<Start>,
        disturbance: &Disturbance,
        outcome: &mut Outcome,
    ) -> Vec<Found> {
        let state = cluster.state(self.since);
        let writes = cluster.tap.take();
        let managers: Vec<&str> = self.subject.members.iter().map(|member| member.manager()).collect();
        let mut canonical = canonical(&state, &managers);
        let service = cluster.service.state();
        if !service.is_null() {
            canonical = format!("the service: {service:#}\n---\n{canonical}");
        }
        let mut found = Vec::new();
        if let Some(expected) = self.expected.get(act)
            && expected.canonical != canonical
        {
            found.push((Check::Same, difference(&expected.canonical, &canonical)));
        }
        found.extend(self.subject.members.iter().flat_map(|member| member.orphans(&state)));
        found.extend(checks::lingering(&state));
        found.extend(self.fixpoint(cluster, &state).await);
        found.extend(self.holds(&state, "at rest"));
        if let Some(before) = &before {
            found.extend(self.data(&State::new(&before.snapshot, self.since), &state, &writes));
        }
        // A view may rightly be behind while its watch is.
        if !matches!(disturbance, Disturbance::Watch { .. }) {
            let said: Vec<String> = self.subject.members.iter().map(|member| member.says()).collect();
            for write in writes.iter().filter(|write| is_crash_point(write) && said.contains(&write.resource))
            {
                found.extend(
                    self.holds(&cluster.state_at(write.revision, self.since), &format!("after {write}")),
                );
            }
        }
        if self.expected.is_empty()
            && let Some(before) = before
        {
            self.keep(cluster, act, before, canonical, writes, outcome);
        }
        found
    }

    async fn fixpoint(&self, cluster: &Cluster, state: &State) -> Vec<Found> {
        let now = cluster.clock.timestamp();
        let mut found = Vec::new();
        for member in &self.subject.members {
            found.extend(member.fixpoint(&cluster.service, state, now).await);
        }
        found
    }

    fn holds(&self, state: &State, when: &str) -> Vec<Found> {
        let broken = |(name, holds): &(String, crate::prove::Invariant)| {
            holds(state).err().map(|why| (Check::Holds, format!("{name}, {when}: {why}")))
        };
        self.subject.invariants.iter().filter_map(broken).collect()
    }

    /// What held data before and is gone now, though its resource is not, and nobody but the operator deleted it.
    fn data(&self, before: &State, after: &State, writes: &[Write]) -> Vec<Found> {
        let deleted = |object: &Object| {
            let named = |write: &&Write| write.name == object.name() && write.verb == "DELETE";
            writes.iter().filter(named).any(|write| write.who == Who::Operator)
        };
        let left = |object: &Object| after.objects().iter().any(|other| other.uid() == object.uid());
        let living = |object: &Object| {
            self.subject.members.iter().any(|member| member.holds_living_data(after, object))
        };
        let released = |object: &Object| self.subject.releases.iter().any(|release| release(object, after));
        let lost = before
            .objects()
            .iter()
            .filter(|object| living(object) && !left(object) && deleted(object) && !released(object));
        lost.map(|object| (Check::Data, format!("{object} was deleted, and its resource is still there")))
            .collect()
    }

    /// This moment, to begin another run at.
    fn moment(&self, cluster: &Cluster, act: usize) -> Option<Start> {
        Some(Start {
            snapshot: cluster.drydock.snapshot(cluster.drydock.revision()).ok()?,
            at: cluster.clock.timestamp(),
            service: cluster.service.fork(),
            act,
            how: How::Ahead,
        })
    }

    /// Keeps what other runs need of the undisturbed one.
    fn keep(
        &self,
        cluster: &Cluster,
        act: usize,
        before: Start,
        canonical: String,
        writes: Vec<Write>,
        outcome: &mut Outcome,
    ) {
        let persons = writes.iter().filter(|write| write.who == Who::Person && write.succeeded());
        let done = persons.map(|write| write.revision).max().unwrap_or(before.snapshot.revision());
        let start = |at: Revision| {
            // The service is as it was after the last write before that is known.
            let last = writes.iter().filter(|write| write.revision <= at).max_by_key(|write| write.revision);
            let known = last.map(|write| (write.at, &write.service));
            let (time, service) = known.unwrap_or((before.at, &before.service));
            Some(Start {
                snapshot: cluster.drydock.snapshot(at).ok()?,
                at: time,
                service: Arc::clone(service),
                act,
                how: if at < done { How::Again } else { How::Done },
            })
        };
        if self.anyones {
            let (first, last) = (before.snapshot.revision(), cluster.drydock.revision());
            for revision in (first.0 + 1..=last.0).map(Revision) {
                let own = writes.iter().find(|write| write.revision == revision);
                let what = own.map_or_else(|| format!("revision {revision}"), ToString::to_string);
                if own.is_none_or(Write::is_state)
                    && let Some(start) = start(revision)
                {
                    outcome.points.push(Point { start, what });
                }
            }
        } else {
            for write in writes.iter().filter(|write| is_crash_point(write)) {
                if let Some(start) = start(write.revision) {
                    outcome.points.push(Point { start, what: write.to_string() });
                }
            }
        }
        let writes = writes.into_iter().filter(is_crash_point).collect();
        outcome.lived.push(Lived { before, canonical, writes });
    }

    fn finding(&self, act: usize, (check, what): Found) -> Finding {
        let act = self.life.acts.get(act).map(|(name, _)| name.clone()).unwrap_or_default();
        Finding {
            check,
            life: self.life.name.clone(),
            act,
            run: self.words.clone(),
            what,
            rounds: String::new(),
        }
    }
}

fn is_crash_point(write: &Write) -> bool {
    write.who == Who::Operator && write.is_state() && write.succeeded()
}
