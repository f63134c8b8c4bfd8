//! What tests see of each request and can do to it.
//!
//! An [`Interceptor`] is asked before a request takes effect, after it did, and before each event of
//! a watch is sent. It can refuse, cut the connection, or wait: a hook that does not return yet is a
//! slow server. The [`RequestLog`] keeps what was asked and answered.
//!
//! **Always holds:** without an interceptor and without a log a request pays nothing for them.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use futures::future::BoxFuture;
use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::request::{RequestInfo, Verb};

/// A request as hooks see it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// What is asked.
    pub info: &'a RequestInfo,
    /// Who asks; empty when nobody knows.
    pub user: &'a str,
    /// With which program.
    pub user_agent: &'a str,
}

/// What is done with a request before it takes effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// Let it go on.
    Proceed,
    /// Answer with this HTTP status instead; nothing takes effect.
    Fail {
        /// The HTTP status code.
        code: u16,
        /// What the `Status` says.
        message: String,
    },
    /// Cut the connection; nothing takes effect.
    Cut,
}

/// What is done with an answer after the request took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// Send it.
    Deliver,
    /// Send a failure with this HTTP status instead.
    Fail {
        /// The HTTP status code.
        code: u16,
        /// What the `Status` says.
        message: String,
    },
    /// Cut the connection: the client never learns that it took effect.
    Cut,
}

/// What is done with an event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnEvent {
    /// Send it.
    Deliver,
    /// End the watch here, in order.
    End,
    /// Cut the connection here.
    Cut,
    /// End the watch with the error that its revision is too old.
    Expire,
}

/// Looks at requests, and interferes.
pub trait Interceptor: Send + Sync {
    /// Before the request takes effect; the caller is known and allowed to ask.
    fn before<'a>(&'a self, request: Seen<'a>) -> BoxFuture<'a, Before> {
        let _ = request;
        Box::pin(async { Before::Proceed })
    }

    /// After the request took effect, with the HTTP status it would be answered with.
    fn after<'a>(&'a self, request: Seen<'a>, status: u16) -> BoxFuture<'a, After> {
        let _ = (request, status);
        Box::pin(async { After::Deliver })
    }

    /// Whether [`Interceptor::event`] is to be asked at all. Events that nobody asks about are sent
    /// together.
    fn follows_watches(&self) -> bool {
        true
    }

    /// Before the `number`-th event of a watch is sent, counted from 1, bookmarks included.
    fn event<'a>(&'a self, request: Seen<'a>, number: u64) -> BoxFuture<'a, OnEvent> {
        let _ = (request, number);
        Box::pin(async { OnEvent::Deliver })
    }
}

/// One answered request.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Counted from 1.
    pub number: u64,
    /// When the answer was ready.
    pub at: Timestamp,
    /// The HTTP method.
    pub method: Method,
    /// The path, decoded.
    pub path: String,
    /// The query, as sent.
    pub query: String,
    /// What was to be done.
    pub verb: Verb,
    /// Group and plural, with the subresource: `apps/deployments/status`; empty for other paths.
    pub resource: String,
    /// The namespace; empty when there is none.
    pub namespace: String,
    /// The object's name; empty when there is none.
    pub name: String,
    /// Who asked.
    pub user: String,
    /// With which program.
    pub user_agent: String,
    /// The HTTP status answered with; 0 when the connection was cut.
    pub status: u16,
    /// The size of the request's body.
    pub received: usize,
    /// The size of the answer's body; 0 for watches.
    pub sent: usize,
}

/// The last requests.
#[derive(Debug)]
pub struct RequestLog {
    capacity: usize,
    count: AtomicU64,
    entries: Mutex<VecDeque<LogEntry>>,
}

impl RequestLog {
    /// Keeps the last `capacity` requests; none at all when it is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, count: AtomicU64::new(0), entries: Mutex::new(VecDeque::new()) }
    }

    /// How many requests were answered, kept or not.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The requests that are kept, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<LogEntry> {
        self.entries.lock().iter().cloned().collect()
    }

    /// Forgets what is kept; the count goes on.
    pub fn clear(&self) {
        self.entries.lock().clear();
    }

    /// Keeps one more request; `entry` is made only if it is kept.
    pub(crate) fn add(&self, entry: impl FnOnce(u64) -> LogEntry) {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if self.capacity == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        if entries.len() == self.capacity {
            entries.pop_front();
        }
        entries.push_back(entry(number));
    }
}
