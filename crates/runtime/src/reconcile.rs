//! One round of one object: what is seen, what is asked, what is decided, what is done.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use ballast_operator::{
    Answer, Answers, Class, Failure, KindRef, Operator, Outcome, Plan, Settled, View, lint, settle,
};
use futures::future::join_all;
use kube::Resource as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    backoff::Backoff,
    carry_out::{Carried, Hands},
    engine::Engine,
    events::Sayer,
    key::Key,
    memory::{Memories, Memory},
    metrics::Result as Counted,
    queue::{Cause, Next},
    recorder::{Recorder, Round},
    sources::{Clock, Random, fraction},
    view::{Sight, Unseen, is_news},
    watch::Caches,
    write::Writer,
};

/// How long a service may take to answer a question. One that takes longer is silent.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Who asks for a look after a step failed gets it, but what failed is tried again with it: how far the pause between two
/// tries may grow all the same.
const FAILED_LOOK: Duration = Duration::from_secs(10);
/// How many rounds in a row may change something before they are spaced. A plan settles in two or three; one that
/// does not is a mistake, and must not become a storm.
const BUSY_ROUNDS: u32 = 8;
/// How far they are spaced at most: a long operation of many short steps is no mistake.
const BUSY_PAUSE: Duration = Duration::from_secs(5);

/// One operator at work.
pub(crate) struct Controller<O: Operator> {
    pub(crate) operator: O,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) writer: Writer,
    pub(crate) sayer: Sayer,
    pub(crate) memories: Memories,
    pub(crate) backoff: Backoff,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) recorder: Arc<Recorder>,
}

/// How a round ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// When the object is to be looked at again.
    pub(crate) next: Next,
    /// How it counts.
    pub(crate) result: Counted,
    /// What failed, in the class that is acted upon.
    pub(crate) failure: Option<Failure>,
}

impl<O: Operator> Controller<O> {
    /// Whether there is nothing to look at: all that happened are our own writes, after which the object was looked
    /// at already; or it is contested, and its time has not come.
    pub(crate) fn passes_over(&self, key: &Key, causes: &[Cause]) -> Option<Next> {
        let memory = self.memories.of(key);
        let memory = memory.lock();
        let own = |cause: &Cause| match cause {
            Cause::Resource(version) | Cause::Child(version) => memory.is_own(version),
            Cause::Time | Cause::Many => false,
        };
        if !causes.is_empty() && causes.iter().all(own) {
            return Some(Next::AsItWas);
        }
        // Only what others do to the children has to wait.
        let others = causes.iter().all(|cause| matches!(cause, Cause::Child(_)) || own(cause));
        let now = Instant::now();
        let hold = memory.hold_until(now).filter(|_| others)?;
        Some(Next::After(hold.duration_since(now)))
    }

    /// One round.
    pub(crate) async fn reconcile(&self, key: &Key, round_id: &str) -> Ended {
        let memory = self.memories.of(key);
        let sight = Sight { operator: &self.operator, caches: &self.caches, writer: &self.writer };
        let (view, plan) = loop {
            let view = match sight.view(key, &memory, self.clock.now()).await {
                Ok(view) => view,
                Err(unseen) => return self.without_view(key, &memory, &unseen),
            };
            let answers = self.answers(&view, &memory).await;
            let plan = self.operator.plan(&view, &answers);
            // Whoever is found is in the next view, so that this comes to an end.
            match sight.finds_strangers(&settle::<O>(&plan, &view), &memory).await {
                Ok(true) => {}
                Ok(false) => break (view, plan),
                Err(refusal) => return self.without_view(key, &memory, &refusal.into()),
            }
        };
        self.warn_of_mistakes(&view, &plan);
        let settled = settle::<O>(&plan, &view);
        let carried = self.hands(key, &view, &memory).carry_out(&settled).await;
        self.record(key, round_id, &view, &plan, &settled, &carried);
        self.conclude(&memory, &view, &plan, carried)
    }

    fn without_view(&self, key: &Key, memory: &Mutex<Memory>, unseen: &Unseen) -> Ended {
        if let Unseen::Gone = unseen {
            tracing::debug!("gone");
            // While a watch still shows it, it has to be remembered that it is gone.
            let own = KindRef::of::<O::Resource>();
            if self.caches.of(&own).is_none_or(|cache| cache.get(key).is_none()) {
                self.memories.forget(key);
            }
            return Ended { next: Next::Change, result: Counted::Success, failure: None };
        }
        self.failed(memory, &unseen.failure(), false, None)
    }

    /// Puts the questions to the service, all at once. What is known and fresh enough is not asked again.
    async fn answers(&self, view: &View<O::Resource>, memory: &Mutex<Memory>) -> Answers {
        let questions = self.operator.questions(view);
        if questions.is_empty() {
            return Answers::none();
        }
        let about = crate::About { namespace: view.namespace(), name: view.name(), children: &view.children };
        let asked = questions.iter().map(async |question| {
            let known = memory.lock().answer(question, Instant::now());
            let answer = match known {
                Some(answer) => answer,
                None => tokio::time::timeout(ANSWER_WITHIN, self.engine.ask(about, question))
                    .await
                    .unwrap_or_else(|_| Answer::Silent {
                        why: format!("no answer within {ANSWER_WITHIN:?}"),
                    }),
            };
            (question, answer)
        });
        let answers = join_all(asked).await;
        memory.lock().keep_answers(&answers, Instant::now());
        answers.into_iter().map(|(question, answer)| (question.id.clone(), answer)).collect()
    }

    fn warn_of_mistakes(&self, view: &View<O::Resource>, plan: &Plan) {
        if cfg!(debug_assertions) {
            for finding in lint(&self.operator, view, plan) {
                tracing::warn!(%finding, "a mistake in the plan");
            }
        }
    }

    fn hands<'h>(
        &'h self,
        key: &'h Key,
        view: &'h View<O::Resource>,
        memory: &'h Mutex<Memory>,
    ) -> Hands<'h, O> {
        Hands {
            operator: &self.operator,
            key,
            view,
            memory,
            writer: &self.writer,
            engine: &*self.engine,
            sayer: &self.sayer,
            random: &*self.random,
        }
    }

    /// What came of the round is remembered, and says when the next one is.
    fn conclude(
        &self,
        memory: &Mutex<Memory>,
        view: &View<O::Resource>,
        plan: &Plan,
        carried: Carried,
    ) -> Ended {
        let now = Instant::now();
        for cache in plan.relists().filter_map(|kind| self.caches.of(kind)) {
            cache.list_anew();
        }
        let mut held = memory.lock();
        let failed = carried.failed.clone().map(|(step, failure)| held.failed_again(step, failure));
        let outcome = Outcome { failed, contested: held.contests.contested(now) };
        // The status was decided before the steps were carried out. What came of them is news to it.
        let news = is_news(view.last_outcome.as_ref(), &outcome);
        held.outcome = Some(outcome);
        let over = held.contests.over_in(now);
        held.busy = if carried.changed { held.busy.saturating_add(1) } else { 0 };
        let busy = held.busy;
        drop(held);
        if let Some((_, failure)) = carried.failed {
            let mut ended = self.failed(memory, &failure, news, carried.retry_after);
            if let (Next::After(pause), Some(asked)) = (ended.next, plan.look_again()) {
                let soonest = asked.max(FAILED_LOOK).max(carried.retry_after.unwrap_or_default());
                ended.next = Next::After(pause.min(soonest));
            }
            return ended;
        }
        memory.lock().failures = 0;
        let soonest = [plan.look_again(), over].into_iter().flatten().min();
        let (next, result) = match soonest {
            _ if carried.changed && busy > BUSY_ROUNDS => {
                let pause = self.backoff.pause(Class::Retry, busy - BUSY_ROUNDS, fraction(&*self.random));
                let pause = pause.min(BUSY_PAUSE);
                memory.lock().busy_until = Some(now + pause);
                (Next::After(pause), Counted::RequeueAfter)
            }
            _ if carried.changed || news => (Next::After(Duration::ZERO), Counted::Requeue),
            Some(after) => (Next::After(after), Counted::RequeueAfter),
            None => (Next::Change, Counted::Success),
        };
        Ended { next, result, failure: None }
    }

    /// A failure asks for a pause that fits its class. One that waits for a change is tried once more soon when it is
    /// news, so that the status says it: until then it counts as one that may pass.
    fn failed(
        &self,
        memory: &Mutex<Memory>,
        failure: &Failure,
        news: bool,
        retry_after: Option<Duration>,
    ) -> Ended {
        let mut memory = memory.lock();
        memory.failures = memory.failures.saturating_add(1);
        let class = if news && failure.class == Class::Terminal { Class::Retry } else { failure.class };
        let pause = self.backoff.pause(class, memory.failures, fraction(&*self.random));
        let pause = pause.max(retry_after.unwrap_or_default());
        let failure = Failure { class, ..failure.clone() };
        Ended { next: Next::After(pause), result: Counted::Error, failure: Some(failure) }
    }

    /// The round did not come to an end by itself.
    pub(crate) fn broken_off(&self, key: &Key, failure: Failure) -> Ended {
        let memory = self.memories.of(key);
        let ended = self.failed(&memory, &failure, false, None);
        let mut memory = memory.lock();
        let contested = memory.contests.contested(Instant::now());
        let failed = memory.failed_again("plan".to_owned(), failure);
        memory.outcome = Some(Outcome { failed: Some(failed), contested });
        ended
    }

    fn record(
        &self,
        key: &Key,
        id: &str,
        view: &View<O::Resource>,
        plan: &Plan,
        settled: &[Settled<'_>],
        carried: &Carried,
    ) {
        // Writing to a String can't fail.
        let mut seen = String::new();
        let meta = view.resource.meta();
        let own = KindRef::of::<O::Resource>();
        let _ = writeln!(seen, "saw     {own} {key} at {}", meta.resource_version.as_deref().unwrap_or("?"));
        for (_, child) in view.children.iter() {
            let _ = writeln!(seen, "saw     {child} at {}", child.resource_version().unwrap_or("?"));
        }
        let mut outcome = String::new();
        if !settled.iter().any(Settled::is_effect) {
            outcome.push_str("nothing to do\n");
        }
        for step in &carried.done {
            let _ = writeln!(outcome, "did     {step}");
        }
        if let Some((step, failure)) = &carried.failed {
            let _ = writeln!(outcome, "failed  {step}: {failure} ({})", failure.class);
        }
        let round = Round { at: view.now, id: id.to_owned(), view: seen, plan: plan.to_string(), outcome };
        self.recorder.record(&format!("{} {key}", O::NAME), round);
    }
}
