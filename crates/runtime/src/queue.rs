//! Which objects are to be looked at, and when.
//!
//! **What always holds.** A key is in the queue at most once, and is given to at most one worker at a time; what
//! arrives while a worker has it makes it come back once that worker is done. Keys come out in the order in which
//! they became ready. Every key has one timer at most, and looking at the object replaces it.
//!
//! **What it does not do.** It does not run anything and knows no failures: whoever took a key says in
//! [`Next`] when it is to come back.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// How many causes of one look are told apart. Past that they are "many".
const CAUSES_KEPT: usize = 16;

/// Why an object is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The resource itself changed, at this revision.
    Resource(Box<str>),
    /// Something around it changed, at this revision.
    Child(Box<str>),
    /// It is time: the plan or a failure asked for it.
    Time,
    /// More causes than are told apart.
    Many,
}

/// When a key is to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// When something changes, and in no case because of time.
    Change,
    /// When something changes, or after this time.
    After(Duration),
    /// The object was not looked at: its timer stays as it is.
    AsItWas,
}

/// A key that a worker has, and why.
#[derive(Debug)]
pub(crate) struct Taken<K> {
    pub(crate) key: K,
    pub(crate) causes: Vec<Cause>,
    /// How long it waited.
    pub(crate) waited: Duration,
}

/// What is in the queue at a moment, for those who measure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) ready: usize,
    pub(crate) running: usize,
    /// The sum of the times that workers have been at it.
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
}

/// Which objects are to be looked at, and when.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    timers: BTreeMap<(Instant, u64), K>,
    items: HashMap<K, Item>,
    timers_made: u64,
    adds: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Item {
    causes: Vec<Cause>,
    /// Since when there has been a cause.
    since: Option<Instant>,
    /// Since when a worker has had it.
    running: Option<Instant>,
    timer: Option<(Instant, u64)>,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        let state = State {
            ready: VecDeque::new(),
            timers: BTreeMap::new(),
            items: HashMap::new(),
            timers_made: 0,
            adds: 0,
            closed: false,
        };
        Queue { state: Mutex::new(state), wake: Notify::new() }
    }

    /// There is a cause to look at an object.
    pub(crate) fn add(&self, key: K, cause: Cause) {
        if self.state.lock().add(key, cause, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// The next key, once there is one. `None` after the queue was closed.
    pub(crate) async fn take(&self) -> Option<Taken<K>> {
        loop {
            let notified = self.wake.notified();
            let due = {
                let mut state = self.state.lock();
                if state.closed {
                    return None;
                }
                let now = Instant::now();
                state.ring(now);
                if let Some(taken) = state.take(now) {
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                state.timers.first_key_value().map(|((due, _), _)| *due)
            };
            match due {
                Some(due) => tokio::select! {
                    () = notified => {}
                    () = tokio::time::sleep_until(due) => {}
                },
                None => notified.await,
            }
        }
    }

    /// A worker is done with a key. Gives how long it had it.
    pub(crate) fn done(&self, key: &K, next: Next) -> Duration {
        let mut state = self.state.lock();
        let now = Instant::now();
        let worked = state.done(key, next, now);
        drop(state);
        self.wake.notify_one();
        worked
    }

    /// No key is given out any more.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_waiters();
        self.wake.notify_one();
    }

    /// How often a key was added that was not there.
    pub(crate) fn adds(&self) -> u64 {
        self.state.lock().adds
    }

    /// What is in the queue now.
    pub(crate) fn load(&self) -> Load {
        let state = self.state.lock();
        let now = Instant::now();
        let mut load = Load { ready: state.ready.len(), ..Load::default() };
        for running in state.items.values().filter_map(|item| item.running) {
            let time = now.duration_since(running);
            load.running += 1;
            load.unfinished += time;
            load.longest = load.longest.max(time);
        }
        load
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// True when a worker should wake up for it.
    fn add(&mut self, key: K, cause: Cause, now: Instant) -> bool {
        let item = self.items.entry(key.clone()).or_default();
        if item.causes.len() < CAUSES_KEPT {
            item.causes.push(cause);
        } else if let Some(last) = item.causes.last_mut() {
            *last = Cause::Many;
        }
        if item.since.is_some() {
            return false;
        }
        item.since = Some(now);
        self.adds += 1;
        if item.running.is_some() {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Timers that are due become causes.
    fn ring(&mut self, now: Instant) {
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            if let Some(item) = self.items.get_mut(&key) {
                item.timer = None;
            }
            self.add(key, Cause::Time, now);
        }
    }

    fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        let key = self.ready.pop_front()?;
        let item = self.items.entry(key.clone()).or_default();
        item.running = Some(now);
        let waited = item.since.take().map_or(Duration::ZERO, |since| now.duration_since(since));
        Some(Taken { causes: std::mem::take(&mut item.causes), key, waited })
    }

    fn done(&mut self, key: &K, next: Next, now: Instant) -> Duration {
        let Some(item) = self.items.get_mut(key) else { return Duration::ZERO };
        let worked = item.running.take().map_or(Duration::ZERO, |running| now.duration_since(running));
        if next != Next::AsItWas
            && let Some(timer) = item.timer.take()
        {
            self.timers.remove(&timer);
        }
        if let Next::After(pause) = next {
            self.timers_made += 1;
            let timer = (now + pause, self.timers_made);
            item.timer = Some(timer);
            self.timers.insert(timer, key.clone());
        }
        if item.since.is_some() {
            self.ready.push_back(key.clone());
        } else if item.timer.is_none() {
            // Nothing is known of it any more, so nothing is kept.
            self.items.remove(key);
        }
        worked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue(keys: &[&'static str]) -> Queue<&'static str> {
        let queue = Queue::new();
        keys.iter().for_each(|key| queue.add(*key, Cause::Time));
        queue
    }

    async fn next(queue: &Queue<&'static str>) -> &'static str {
        queue.take().await.unwrap().key
    }

    /// Whether nothing comes within a time.
    async fn quiet(queue: &Queue<&'static str>, time: Duration) -> bool {
        tokio::time::timeout(time, queue.take()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_come_out_once_and_in_order() {
        let queue = queue(&["a", "b", "a", "c", "b"]);
        assert_eq!([next(&queue).await, next(&queue).await, next(&queue).await], ["a", "b", "c"]);
        assert!(quiet(&queue, SECOND).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_while_a_key_is_out_brings_it_back_once_it_is_done() {
        let queue = queue(&["a"]);
        assert_eq!(next(&queue).await, "a");
        queue.add("a", Cause::Child("7".into()));
        queue.add("a", Cause::Child("8".into()));
        assert!(quiet(&queue, SECOND).await, "two workers must not have the same key");
        queue.done(&"a", Next::Change);
        let taken = queue.take().await.unwrap();
        assert_eq!(taken.causes, [Cause::Child("7".into()), Cause::Child("8".into())]);
        assert_eq!(taken.waited, SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_comes_back_after_its_time_and_no_sooner() {
        let queue = queue(&["a"]);
        next(&queue).await;
        queue.done(&"a", Next::After(10 * SECOND));
        assert!(quiet(&queue, 9 * SECOND).await);
        assert_eq!(queue.take().await.unwrap().causes, [Cause::Time]);
    }

    #[tokio::test(start_paused = true)]
    async fn looking_replaces_the_timer() {
        let queue = queue(&["a"]);
        next(&queue).await;
        queue.done(&"a", Next::After(10 * SECOND));
        queue.add("a", Cause::Resource("2".into()));
        next(&queue).await;
        queue.done(&"a", Next::Change);
        assert!(quiet(&queue, 60 * SECOND).await);
    }

    #[tokio::test(start_paused = true)]
    async fn not_looking_leaves_the_timer() {
        let queue = queue(&["a"]);
        next(&queue).await;
        queue.done(&"a", Next::After(10 * SECOND));
        queue.add("a", Cause::Resource("2".into()));
        next(&queue).await;
        queue.done(&"a", Next::AsItWas);
        assert!(quiet(&queue, 9 * SECOND).await);
        assert_eq!(next(&queue).await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_waits_for_its_time_does_not_hold_up_others() {
        let queue = queue(&["slow", "quick"]);
        assert_eq!(next(&queue).await, "slow");
        queue.done(&"slow", Next::After(100 * SECOND));
        assert_eq!(next(&queue).await, "quick");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_waits_is_woken() {
        let queue = Arc::new(queue(&[]));
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.take().await.map(|taken| taken.key) }
        });
        tokio::time::sleep(SECOND).await;
        queue.add("a", Cause::Time);
        assert_eq!(waiting.await.unwrap(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn every_worker_is_woken_for_every_key() {
        let queue = Arc::new(queue(&[]));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.take().await.map(|taken| taken.key) })
            })
            .collect();
        tokio::time::sleep(SECOND).await;
        ["a", "b", "c"].into_iter().for_each(|key| queue.add(key, Cause::Time));
        for worker in workers {
            tokio::time::timeout(SECOND, worker).await.unwrap().unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_gives_nothing_to_anyone() {
        let queue = Arc::new(queue(&[]));
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.take().await.is_none() }
        });
        tokio::time::sleep(SECOND).await;
        queue.add("a", Cause::Time);
        queue.close();
        tokio::time::sleep(SECOND).await;
        assert!(queue.take().await.is_none());
        let _ = waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_with_is_not_remembered() {
        let queue = queue(&["a", "b"]);
        next(&queue).await;
        next(&queue).await;
        queue.done(&"a", Next::Change);
        queue.done(&"b", Next::After(SECOND));
        assert_eq!(queue.state.lock().items.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_load_is_measured() {
        let queue = queue(&["a", "b", "c"]);
        next(&queue).await;
        tokio::time::sleep(2 * SECOND).await;
        next(&queue).await;
        tokio::time::sleep(SECOND).await;
        let load = queue.load();
        assert_eq!(load, Load { ready: 1, running: 2, unfinished: 4 * SECOND, longest: 3 * SECOND });
    }
}
