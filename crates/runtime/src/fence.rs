//! Whether this process may write.
//!
//! A process that lost its lease may not know it yet: it may have been asleep. So the right to write ends by
//! itself, at a time before which nobody else can have taken the lease, unless it is renewed. Every write asks.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Whether this process may write. Clones share the answer.
#[derive(Clone, Debug)]
pub(crate) struct Fence(Arc<Mutex<Right>>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Right {
    /// There is no lease to hold.
    Always,
    /// Not now.
    None,
    /// Until then.
    Until(Instant),
}

/// This process does not hold the lease at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is not held, so nothing is written")]
pub(crate) struct NotHeld;

impl Fence {
    /// No lease is needed.
    pub(crate) fn open() -> Self {
        Fence(Arc::new(Mutex::new(Right::Always)))
    }

    /// Nothing is written until a lease is held.
    pub(crate) fn closed() -> Self {
        Fence(Arc::new(Mutex::new(Right::None)))
    }

    /// The lease is held until then.
    pub(crate) fn extend(&self, until: Instant) {
        *self.0.lock() = Right::Until(until);
    }

    /// The lease is not held.
    pub(crate) fn close(&self) {
        *self.0.lock() = Right::None;
    }

    /// Whether it may be written now.
    pub(crate) fn check(&self) -> Result<(), NotHeld> {
        match *self.0.lock() {
            Right::Always => Ok(()),
            Right::Until(until) if Instant::now() < until => Ok(()),
            Right::Until(_) | Right::None => Err(NotHeld),
        }
    }
}
