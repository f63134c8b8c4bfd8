//! Own writes that must be seen in the caches before the same key is decided again.
//!
//! A controller that decides on a cache which lacks its own last write creates pods twice, or scales by old
//! numbers. So each write is noted with the version it got, and the key is held until the cache of that kind
//! has come that far. Resource versions are numbers that grow with every write to a kind; that is all this
//! relies on.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::cache::Progress;

/// After this long a key is decided on whatever is known: client-go's time-out for expectations.
const GIVE_UP: Duration = Duration::from_secs(300);

/// How soon a held key is looked at again, should the change that frees it reach nobody who would queue it.
pub const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The writes of one controller, by the key they were made for.
pub struct Awaited<K>(Mutex<HashMap<K, Pending>>);

struct Pending {
    since: Instant,
    writes: Vec<(Arc<dyn Progress>, u64)>,
}

impl<K> Default for Awaited<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + Hash + Clone> Awaited<K> {
    /// Notes a write that got this version, to be seen in this cache.
    pub fn note(&self, key: &K, cache: &Arc<dyn Progress>, version: u64) {
        if cache.seen() >= version {
            return;
        }
        let mut all = self.0.lock();
        let pending =
            all.entry(key.clone()).or_insert_with(|| Pending { since: Instant::now(), writes: Vec::new() });
        match pending.writes.iter_mut().find(|(noted, _)| Arc::ptr_eq(noted, cache)) {
            Some((_, highest)) => *highest = version.max(*highest),
            None => pending.writes.push((cache.clone(), version)),
        }
    }

    /// Whether a write for this key is not yet to be seen.
    pub fn holds(&self, key: &K) -> bool {
        let mut all = self.0.lock();
        let Some(pending) = all.get_mut(key) else { return false };
        pending.writes.retain(|(cache, version)| cache.seen() < *version);
        if pending.writes.is_empty() || pending.since.elapsed() > GIVE_UP {
            all.remove(key);
            return false;
        }
        true
    }

    /// Forgets a key that is gone.
    pub fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Fake(AtomicU64);
    impl Progress for Fake {
        fn seen(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_held_until_its_highest_write_is_seen() {
        let fake = Arc::new(Fake(AtomicU64::new(5)));
        let cache: Arc<dyn Progress> = fake.clone();
        let awaited = Awaited::<&str>::default();
        awaited.note(&"a", &cache, 5);
        assert!(!awaited.holds(&"a"));
        awaited.note(&"a", &cache, 8);
        awaited.note(&"a", &cache, 7);
        fake.0.store(7, Ordering::SeqCst);
        assert!(awaited.holds(&"a"));
        assert!(!awaited.holds(&"b"));
        fake.0.store(8, Ordering::SeqCst);
        assert!(!awaited.holds(&"a"));
        awaited.note(&"a", &cache, 9);
        tokio::time::advance(GIVE_UP + Duration::from_secs(1)).await;
        assert!(!awaited.holds(&"a"));
    }
}
