//! A queue of keys: each waits once, is worked on by one task at a time, and comes again later when it
//! failed, later each time.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rest::Error;

/// The pause after a first failure, and the longest. The first is client-go's; the last is shorter than
/// its quarter of an hour, since there is no periodic resync here that would find a repaired world sooner.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// When a key that went well is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something about it changes.
    OnChange,
    /// After this time, or sooner when something changes.
    After(Duration),
}

/// What a queue can hold.
pub trait QueueKey: Clone + Eq + Hash + Ord + Display + Send + Sync + 'static {}
impl<K: Clone + Eq + Hash + Ord + Display + Send + Sync + 'static> QueueKey for K {}

/// Keys that wait to be worked on.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

struct State<K> {
    /// In the order they came.
    ready: VecDeque<K>,
    waiting: HashSet<K>,
    running: HashSet<K>,
    /// Came in while they were running.
    again: HashSet<K>,
    delayed: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K: QueueKey> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            running: HashSet::new(),
            again: HashSet::new(),
            delayed: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }
}

impl<K: QueueKey> Queue<K> {
    /// Has the key worked on as soon as there is a worker.
    pub fn add(&self, key: K) {
        self.state.lock().add(key);
        self.wake.notify_one();
    }

    /// Has the key worked on after a while. The earlier of two times counts.
    pub fn add_after(&self, key: K, pause: Duration) {
        let at = Instant::now() + pause;
        let mut state = self.state.lock();
        match state.due.get(&key) {
            Some(due) if *due <= at => return,
            Some(due) => {
                let due = *due;
                state.delayed.remove(&(due, key.clone()));
            }
            None => {}
        }
        state.due.insert(key.clone(), at);
        state.delayed.insert((at, key));
        drop(state);
        self.wake.notify_one();
    }

    /// Works the queue with up to `workers` keys at a time until told to stop. A key whose work fails or
    /// panics is tried again after a pause of its own.
    pub async fn run<W, F>(
        self: Arc<Self>,
        name: &'static str,
        workers: usize,
        shutdown: CancellationToken,
        work: W,
    ) where
        W: Fn(K) -> F,
        F: Future<Output = Result<Next, Error>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        loop {
            let mut next_due = None;
            while tasks.len() < workers {
                match self.pop() {
                    Ok(key) => {
                        let reconcile = AssertUnwindSafe(work(key.clone())).catch_unwind();
                        tasks.spawn(async move { (key, reconcile.await) });
                    }
                    Err(due) => {
                        next_due = due;
                        break;
                    }
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(ended) = tasks.join_next() => match ended {
                    Ok((key, outcome)) => self.ended(name, key, outcome),
                    Err(error) => tracing::error!(controller = name, %error, "work was lost"),
                },
                () = self.wake.notified(), if tasks.len() < workers => {}
                () = sleep_until(next_due), if next_due.is_some() => {}
            }
        }
    }

    fn ended(&self, name: &'static str, key: K, outcome: std::thread::Result<Result<Next, Error>>) {
        let mut state = self.state.lock();
        state.running.remove(&key);
        if state.again.remove(&key) {
            state.add(key.clone());
        }
        let pause = match outcome {
            Ok(Ok(next)) => {
                state.failures.remove(&key);
                match next {
                    Next::OnChange => return,
                    Next::After(pause) => pause,
                }
            }
            failed => {
                let times = state.failures.entry(key.clone()).or_default();
                let pause = FIRST_PAUSE.saturating_mul(1 << (*times).min(16)).min(LONGEST_PAUSE);
                *times += 1;
                match failed {
                    Ok(Err(error)) if error.conflict() => {
                        tracing::debug!(controller = name, %key, %error, "changed in between");
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(controller = name, %key, %error, ?pause, "tried again later")
                    }
                    _ => tracing::error!(controller = name, %key, ?pause, "panicked"),
                }
                pause
            }
        };
        drop(state);
        self.add_after(key, pause);
    }

    /// The next key, or when there will be one.
    fn pop(&self) -> Result<K, Option<Instant>> {
        let mut state = self.state.lock();
        let now = Instant::now();
        while state.delayed.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = state.delayed.pop_first() {
                state.due.remove(&key);
                state.add(key);
            }
        }
        match state.ready.pop_front() {
            Some(key) => {
                state.waiting.remove(&key);
                state.running.insert(key.clone());
                Ok(key)
            }
            None => Err(state.delayed.first().map(|(due, _)| *due)),
        }
    }
}

impl<K: QueueKey> State<K> {
    fn add(&mut self, key: K) {
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn failure() -> Error {
        Error::Undecided("no".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time_and_again_when_it_changed_meanwhile() {
        let queue = Arc::new(Queue::<String>::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let stop = CancellationToken::new();
        for _ in 0..3 {
            queue.add("a".into());
        }
        let (inner, counted, end) = (queue.clone(), runs.clone(), stop.clone());
        let work = move |key: String| {
            let (queue, runs, stop) = (inner.clone(), counted.clone(), end.clone());
            async move {
                match runs.fetch_add(1, Ordering::SeqCst) {
                    0 => queue.add(key),
                    _ => stop.cancel(),
                }
                Ok(Next::OnChange)
            }
        };
        queue.run("test", 4, stop, work).await;
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_and_panics_come_again_with_a_growing_pause() {
        let queue = Arc::new(Queue::<String>::default());
        let times = Arc::new(Mutex::new(Vec::new()));
        let stop = CancellationToken::new();
        let start = Instant::now();
        queue.add("a".into());
        let (log, end) = (times.clone(), stop.clone());
        let work = move |_| {
            let mut times = log.lock();
            times.push(start.elapsed().as_millis());
            let run = times.len();
            let stop = end.clone();
            async move {
                match run {
                    1 => panic!("on purpose"),
                    2 | 3 => Err(failure()),
                    4 => Ok(Next::After(Duration::from_secs(7))),
                    _ => {
                        stop.cancel();
                        Ok(Next::OnChange)
                    }
                }
            }
        };
        queue.run("test", 4, stop, work).await;
        let times = times.lock().clone();
        let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses.len(), 4);
        for (pause, expected) in pauses.iter().zip([5, 10, 20, 7000]) {
            assert!((expected..expected + 3).contains(pause), "{pauses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_times_counts() {
        let queue = Queue::<String>::default();
        queue.add_after("a".into(), Duration::from_secs(9));
        queue.add_after("a".into(), Duration::from_secs(2));
        queue.add_after("a".into(), Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(queue.pop(), Ok("a".into()));
        assert_eq!(queue.pop(), Err(None));
    }
}
