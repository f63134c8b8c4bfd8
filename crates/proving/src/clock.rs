//! Time that passes only while everybody waits.

use jiff::Timestamp;
use tokio::time::Instant;

/// When every life begins.
pub(crate) const BEGINNING: &str = "2030-01-01T12:00:00Z";

/// The time in a run: where it began, and how far tokio's paused clock has moved since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualClock {
    began: Timestamp,
    at: Instant,
}

impl VirtualClock {
    /// A clock that shows `began` now.
    pub(crate) fn starting(began: Timestamp) -> Self {
        VirtualClock { began, at: Instant::now() }
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        let passed = i128::try_from(self.at.elapsed().as_nanos()).unwrap_or_default();
        Timestamp::from_nanosecond(self.began.as_nanosecond() + passed).unwrap_or(self.began)
    }
}

impl ballast_runtime::Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.timestamp()
    }
}
