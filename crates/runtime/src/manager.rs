//! All operators of a process, together: one set of watches, one lease, one pair of ports.
//!
//! The order of a life: the ports are bound, the watches begin, the caches fill, the lease is held, the workers work.
//! The order of an end: no new work is taken, what is under way may finish within a bound, the last events are sent,
//! the lease is let go. Losing the lease ends everything at once.

use std::{mem::take, sync::Arc, time::Duration};

use ballast_operator::{KindRef, Operator, Relation};
use futures::future::BoxFuture;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    cache::Listener,
    engine::Engine,
    events::{self, Reporter},
    fence::Fence,
    health::Health,
    http::{Bind, CantListen, Serves},
    key::Key,
    lease::{Candidate, LeaderElection, Remote},
    memory::Memories,
    metrics::Metrics,
    queue::Queue,
    reconcile::Controller,
    recorder::Recorder,
    requests::counted,
    route,
    sources::{Clock, Random, SystemClock, SystemRandom},
    telling,
    watch::{Caches, Namespaces, Wanted},
    work::work,
    write::Writer,
};

/// How long the last events may take to be sent at the end.
const LAST_EVENTS_WITHIN: Duration = Duration::from_secs(2);

/// How a manager works. Unless it is told otherwise it watches everything, needs no lease, and opens no port.
pub struct Options {
    /// Where resources are looked for.
    pub namespaces: Namespaces,
    /// The lease to hold before working, if one is to be held.
    pub leader_election: Option<LeaderElection>,
    /// How many objects of one operator are worked on at once.
    pub concurrency: usize,
    /// How long one round of one object may take.
    pub round_timeout: Duration,
    /// How long what is under way may take at the end.
    pub grace: Duration,
    /// How failures are waited out.
    pub backoff: Backoff,
    /// Where metrics are served.
    pub metrics_address: Bind,
    /// Where health is served.
    pub health_address: Bind,
    /// Whether the recorder is served beside the metrics. It shows what resources there are.
    pub serve_recorder: bool,
    /// Which process this is, in events: a pod's name.
    pub instance: String,
    /// The API server, in metrics.
    pub host: String,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where randomness comes from.
    pub random: Arc<dyn Random>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            namespaces: Namespaces::All,
            leader_election: None,
            // Rounds wait for the server most of the time.
            concurrency: 16,
            round_timeout: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            backoff: Backoff::default(),
            metrics_address: Bind::Nowhere,
            health_address: Bind::Nowhere,
            serve_recorder: false,
            instance: "ballast".to_owned(),
            host: "kubernetes.default.svc".to_owned(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }
}

/// Why a manager ended other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port could not be bound.
    #[error(transparent)]
    Listen(#[from] CantListen),
    /// The lease was lost. Somebody else works now; this process has to begin anew.
    #[error("the lease {name} was lost")]
    LeaseLost {
        /// Its name.
        name: String,
    },
}

/// All operators of a process.
pub struct Manager {
    client: Client,
    options: Options,
    registered: Vec<Registered>,
    metrics: Metrics,
    health: Health,
    recorder: Arc<Recorder>,
}

/// How an operator is set to work on a queue.
type Starter = Box<dyn FnOnce(&Start<'_>, &Arc<Queue<Key>>) -> Started + Send>;

/// One operator, before its resources are known.
struct Registered {
    resource: KindRef,
    relations: Vec<Relation>,
    queue: Arc<Queue<Key>>,
    start: Starter,
}

/// What an operator begins with.
struct Start<'s> {
    client: &'s Client,
    caches: &'s Arc<Caches>,
    fence: &'s Fence,
    options: &'s Options,
    metrics: &'s Metrics,
    recorder: &'s Arc<Recorder>,
}

/// An operator at work.
struct Started {
    workers: Vec<BoxFuture<'static, ()>>,
    /// Sends events; ends when the workers have.
    events: BoxFuture<'static, ()>,
}

impl Manager {
    /// A manager without operators.
    pub fn new(client: Client, options: Options) -> Self {
        Manager {
            client,
            options,
            registered: Vec::new(),
            metrics: Metrics::default(),
            health: Health::default(),
            recorder: Arc::default(),
        }
    }

    /// Adds an operator, and what talks to its services.
    #[must_use]
    pub fn register<O: Operator>(mut self, operator: O, engine: impl Engine) -> Self {
        let (resource, relations) = (KindRef::of::<O::Resource>(), operator.relations());
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let start = Box::new(move |start: &Start<'_>, queue: &Arc<_>| begin(operator, engine, start, queue));
        self.registered.push(Registered { resource, relations, queue: Arc::new(Queue::new()), start });
        self
    }

    /// The metrics of this process.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// The health of this process.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// What was seen, planned and done of each object.
    pub fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(&self.recorder)
    }

    /// Works until it is asked to stop.
    ///
    /// # Errors
    /// A port is taken, or the lease was lost.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let Manager { client, mut options, registered, metrics, health, recorder } = self;
        // Whatever ends this function ends all of these.
        let mut background = JoinSet::new();
        let shown = options.serve_recorder.then(|| Arc::clone(&recorder));
        let measures = Serves::Metrics { metrics: metrics.clone(), recorder: shown };
        serve(&mut background, measures, take(&mut options.metrics_address)).await?;
        serve(&mut background, Serves::Health(health.clone()), take(&mut options.health_address)).await?;

        let client = counted(client, metrics.clone(), options.host.as_str().into());
        let fence = if options.leader_election.is_some() { Fence::closed() } else { Fence::open() };
        let caches = Arc::new(caches_of(&registered, &options.namespaces));
        health.watch(Arc::clone(&caches), fence.clone());
        for feed in caches.feeds(&client, &options.random) {
            background.spawn(feed);
        }

        let mut candidate = candidate(&options, &client, &fence, &metrics, &health);
        if !prepare(&caches, candidate.as_mut(), &stop).await {
            return Ok(());
        }
        let crew = Crew::start(
            registered,
            &Start {
                client: &client,
                caches: &caches,
                fence: &fence,
                options: &options,
                metrics: &metrics,
                recorder: &recorder,
            },
        );
        match candidate {
            Some(candidate) => lead(candidate, crew, &stop, options.grace).await,
            None => {
                stop.cancelled().await;
                crew.finish(options.grace).await;
                Ok(())
            }
        }
    }
}

async fn serve(background: &mut JoinSet<()>, serves: Serves, bind: Bind) -> Result<(), CantListen> {
    if let Some(server) = serves.listen(bind).await? {
        background.spawn(server);
    }
    Ok(())
}

/// This process's part in the election, where there is one.
fn candidate(
    options: &Options,
    client: &Client,
    fence: &Fence,
    metrics: &Metrics,
    health: &Health,
) -> Option<Candidate> {
    let election = options.leader_election.clone()?;
    let store = Box::new(Remote::new(client.clone(), &election));
    let (clock, random) = (Arc::clone(&options.clock), Arc::clone(&options.random));
    let (fence, health, metrics) = (fence.clone(), health.clone(), metrics.clone());
    Some(Candidate::new(election, store, fence, health, metrics, clock, random))
}

/// Works for as long as the lease is held.
async fn lead(
    mut candidate: Candidate,
    crew: Crew,
    stop: &CancellationToken,
    grace: Duration,
) -> Result<(), RunError> {
    if !candidate.keep(stop).await {
        // Somebody else works now: nothing of ours may go on.
        crew.break_off().await;
        return Err(RunError::LeaseLost { name: candidate.election.name });
    }
    // The lease is kept until the last write is done.
    let still = CancellationToken::new();
    tokio::select! {
        () = crew.finish(grace) => {}
        _ = candidate.keep(&still) => {}
    }
    candidate.release().await;
    Ok(())
}

/// Everything that has to be before the workers work. False when it was asked to stop before.
async fn prepare(caches: &Caches, candidate: Option<&mut Candidate>, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => return false,
        () = caches.wait_synced() => {}
    }
    match candidate {
        Some(candidate) => candidate.acquire(stop).await,
        None => true,
    }
}

fn caches_of(registered: &[Registered], namespaces: &Namespaces) -> Caches {
    let mut wanted = Wanted::default();
    for Registered { resource, relations, .. } in registered {
        wanted.add(resource, relations);
    }
    wanted.caches(namespaces, |kind, labels| {
        let place = |label: &str| labels.iter().position(|known| known == label);
        let listener = |Registered { resource, relations, queue, .. }: &Registered| -> Option<Listener> {
            route::listener(kind, resource, relations, &place, queue)
        };
        registered.iter().filter_map(listener).collect()
    })
}

/// Starts one operator.
fn begin<O: Operator>(
    operator: O,
    engine: Arc<dyn Engine>,
    start: &Start<'_>,
    queue: &Arc<Queue<Key>>,
) -> Started {
    let Start { client, caches, fence, options, metrics, recorder } = *start;
    let writer = Writer::new(client.clone(), fence.clone(), O::FIELD_MANAGER);
    let reporter = Reporter { controller: O::FIELD_MANAGER.to_owned(), instance: options.instance.clone() };
    let counted = metrics.controller(O::NAME, options.concurrency);
    let (sayer, events) =
        events::channel(writer.clone(), Arc::clone(&options.clock), reporter, counted.clone());
    let controller = Arc::new(Controller {
        operator,
        engine,
        caches: Arc::clone(caches),
        writer,
        sayer,
        memories: Memories::default(),
        backoff: options.backoff,
        clock: Arc::clone(&options.clock),
        random: Arc::clone(&options.random),
        recorder: Arc::clone(recorder),
    });
    let measured = Arc::clone(queue);
    metrics.queue(O::NAME, move || (measured.load(), measured.adds()));
    let worker = |_| -> BoxFuture<'static, ()> {
        let (controller, queue) = (Arc::clone(&controller), Arc::clone(queue));
        Box::pin(work(controller, queue, counted.clone(), options.round_timeout))
    };
    Started { workers: (0..options.concurrency.max(1)).map(worker).collect(), events: Box::pin(events) }
}

/// All who work: one group of workers per operator, and who sends its events.
struct Crew {
    queues: Vec<Arc<Queue<Key>>>,
    workers: JoinSet<()>,
    senders: JoinSet<()>,
}

impl Crew {
    fn start(registered: Vec<Registered>, with: &Start<'_>) -> Self {
        let mut crew = Crew { queues: Vec::new(), workers: JoinSet::new(), senders: JoinSet::new() };
        for Registered { queue, start, .. } in registered {
            let Started { workers, events } = start(with, &queue);
            for worker in workers {
                crew.workers.spawn(worker);
            }
            crew.senders.spawn(events);
            crew.queues.push(queue);
        }
        crew
    }

    /// Lets what is under way finish, and the last events be sent.
    async fn finish(mut self, grace: Duration) {
        self.queues.iter().for_each(|queue| queue.close());
        let ended = async { while self.workers.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, ended).await.is_err() {
            let grace = telling::duration(grace);
            tracing::warn!(left = self.workers.len(), grace, "what is still under way is broken off");
            self.workers.shutdown().await;
        }
        let sent = async { while self.senders.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_EVENTS_WITHIN, sent).await.is_err() {
            tracing::debug!("the last events were not all sent");
        }
    }

    /// Ends everything now.
    async fn break_off(mut self) {
        self.queues.iter().for_each(|queue| queue.close());
        self.workers.shutdown().await;
        self.senders.shutdown().await;
    }
}
