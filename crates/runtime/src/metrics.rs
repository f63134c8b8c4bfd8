//! Metrics under the names and labels that controller-runtime uses, so that existing dashboards and alerts work.
//!
//! Labels are few and fixed: an object's name or an error's text is never one.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use ballast_operator::EventType;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

use crate::{process::Process, queue::Load};

/// How rounds end, as controller-runtime counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Result {
    Success,
    Error,
    Requeue,
    RequeueAfter,
}

impl Result {
    const ALL: [Result; 4] = [Result::Success, Result::Error, Result::Requeue, Result::RequeueAfter];

    fn as_str(self) -> &'static str {
        match self {
            Result::Success => "success",
            Result::Error => "error",
            Result::Requeue => "requeue",
            Result::RequeueAfter => "requeue_after",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    controller: &'static str,
    reason: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQueue {
    controller: &'static str,
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPriority {
    controller: &'static str,
    name: &'static str,
    priority: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRequest {
    code: String,
    host: Arc<str>,
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLease {
    name: String,
}

type Seconds = Gauge<f64, AtomicU64>;

/// controller-runtime's buckets of seconds for a round.
const ROUND_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];
/// Its buckets of seconds for a queue: from ten nanoseconds by tens.
const QUEUE_SECONDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// All metrics of a process. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    /// What is asked before the metrics are shown.
    loads: Mutex<Vec<LoadOf>>,
    reconciles: Family<ByResult, Counter>,
    errors: Family<ByController, Counter>,
    terminal: Family<ByController, Counter>,
    panics: Family<ByController, Counter>,
    timeouts: Family<ByController, Counter>,
    seconds: Family<ByController, Histogram, Buckets>,
    concurrency: Family<ByController, Gauge>,
    active: Family<ByController, Gauge>,
    depth: Family<ByPriority, Gauge>,
    adds: Family<ByQueue, Counter>,
    waited: Family<ByQueue, Histogram, Buckets>,
    worked: Family<ByQueue, Histogram, Buckets>,
    unfinished: Family<ByQueue, Seconds>,
    longest: Family<ByQueue, Seconds>,
    retries: Family<ByQueue, Counter>,
    requests: Family<ByRequest, Counter>,
    leading: Family<ByLease, Gauge>,
    slow_paths: Family<ByLease, Counter>,
    events: Family<ByReason, Counter>,
}

struct LoadOf {
    name: &'static str,
    load: Box<dyn Fn() -> (Load, u64) + Send + Sync>,
}

impl Default for Metrics {
    fn default() -> Self {
        let inner = Inner {
            registry: Mutex::new(Registry::default()),
            loads: Mutex::default(),
            reconciles: Family::default(),
            errors: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            seconds: Family::new_with_constructor(Buckets(&ROUND_SECONDS)),
            concurrency: Family::default(),
            active: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            waited: Family::new_with_constructor(Buckets(&QUEUE_SECONDS)),
            worked: Family::new_with_constructor(Buckets(&QUEUE_SECONDS)),
            unfinished: Family::default(),
            longest: Family::default(),
            retries: Family::default(),
            requests: Family::default(),
            leading: Family::default(),
            slow_paths: Family::default(),
            events: Family::default(),
        };
        inner.register();
        Metrics(Arc::new(inner))
    }
}

impl Inner {
    /// Counters are registered without `_total`: the text has it all the same.
    fn register(&self) {
        let mut registry = self.registry.lock();
        let mut add =
            |name: &str, help: &str, metric: Box<dyn Register>| metric.register(name, help, &mut registry);
        let runtime = "controller_runtime";
        add(
            &format!("{runtime}_reconcile"),
            "Total number of reconciliations per controller",
            Box::new(self.reconciles.clone()),
        );
        add(
            &format!("{runtime}_reconcile_errors"),
            "Total number of reconciliation errors per controller",
            Box::new(self.errors.clone()),
        );
        add(
            &format!("{runtime}_terminal_reconcile_errors"),
            "Total number of terminal reconciliation errors per controller",
            Box::new(self.terminal.clone()),
        );
        add(
            &format!("{runtime}_reconcile_panics"),
            "Total number of reconciliation panics per controller",
            Box::new(self.panics.clone()),
        );
        add(
            &format!("{runtime}_reconcile_timeouts"),
            "Total number of reconciliation timeouts per controller",
            Box::new(self.timeouts.clone()),
        );
        add(
            &format!("{runtime}_reconcile_time_seconds"),
            "Length of time per reconciliation per controller",
            Box::new(self.seconds.clone()),
        );
        add(
            &format!("{runtime}_max_concurrent_reconciles"),
            "Maximum number of concurrent reconciles per controller",
            Box::new(self.concurrency.clone()),
        );
        add(
            &format!("{runtime}_active_workers"),
            "Number of currently used workers per controller",
            Box::new(self.active.clone()),
        );
        add("workqueue_depth", "Current depth of the queue", Box::new(self.depth.clone()));
        add("workqueue_adds", "Total number of adds handled by the queue", Box::new(self.adds.clone()));
        add(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in the queue before it is taken",
            Box::new(self.waited.clone()),
        );
        add(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item takes",
            Box::new(self.worked.clone()),
        );
        add(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work are under way that work_duration does not show yet",
            Box::new(self.unfinished.clone()),
        );
        add(
            "workqueue_longest_running_processor_seconds",
            "How many seconds the longest running worker has been running",
            Box::new(self.longest.clone()),
        );
        add(
            "workqueue_retries",
            "Total number of retries handled by the queue",
            Box::new(self.retries.clone()),
        );
        add(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host",
            Box::new(self.requests.clone()),
        );
        add(
            "leader_election_master_status",
            "Whether this process holds the lease: 1 when it does, 0 when it does not",
            Box::new(self.leading.clone()),
        );
        add(
            "leader_election_slowpath",
            "Total number of renewals of the lease that had to look at it before",
            Box::new(self.slow_paths.clone()),
        );
        add(
            "ballast_events",
            "Number of events said by a controller, by their type and reason",
            Box::new(self.events.clone()),
        );
        registry.register_collector(Box::new(Process));
    }
}

/// A metric that can be registered, whatever its type.
trait Register {
    fn register(self: Box<Self>, name: &str, help: &str, registry: &mut Registry);
}

impl<M: prometheus_client::registry::Metric> Register for M {
    fn register(self: Box<Self>, name: &str, help: &str, registry: &mut Registry) {
        registry.register(name, help, *self);
    }
}

impl Metrics {
    /// The metrics of one operator. Its series begin at zero, so that a rate can be taken from the first.
    pub(crate) fn controller(&self, name: &'static str, concurrency: usize) -> ControllerMetrics {
        let by = ByController { controller: name };
        for result in Result::ALL {
            let _ = self.0.reconciles.get_or_create(&ByResult { controller: name, result: result.as_str() });
        }
        for counters in [&self.0.errors, &self.0.terminal, &self.0.panics, &self.0.timeouts] {
            let _ = counters.get_or_create(&by);
        }
        self.0.concurrency.get_or_create(&by).set(i64::try_from(concurrency).unwrap_or(i64::MAX));
        let _ = self.0.active.get_or_create(&by);
        let _ = self.0.seconds.get_or_create(&by);
        let queue = ByQueue { controller: name, name };
        let _ = self.0.retries.get_or_create(&queue);
        for durations in [&self.0.waited, &self.0.worked] {
            let _ = durations.get_or_create(&queue);
        }
        let rounds = Counter::default();
        self.0.registry.lock().register(
            format!("{name}_controller_reconcile"),
            "Number of reconcile operations",
            rounds.clone(),
        );
        ControllerMetrics { metrics: self.clone(), by, queue, rounds }
    }

    /// Where a queue's load is read when the metrics are shown.
    pub(crate) fn queue(&self, name: &'static str, load: impl Fn() -> (Load, u64) + Send + Sync + 'static) {
        self.0.loads.lock().push(LoadOf { name, load: Box::new(load) });
    }

    /// A request was answered, or not: then the code is `<error>`.
    pub(crate) fn request(&self, code: Option<u16>, host: &Arc<str>, method: &http::Method) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let labels = ByRequest { code, host: Arc::clone(host), method: method.to_string() };
        self.0.requests.get_or_create(&labels).inc();
    }

    /// Whether the lease is held.
    pub(crate) fn leading(&self, lease: &str, leads: bool) {
        let by = ByLease { name: lease.to_owned() };
        self.0.leading.get_or_create(&by).set(i64::from(leads));
        let _ = self.0.slow_paths.get_or_create(&by);
    }

    /// The holder of the lease had to look at it before it could renew it.
    pub(crate) fn slow_path(&self, lease: &str) {
        self.0.slow_paths.get_or_create(&ByLease { name: lease.to_owned() }).inc();
    }

    /// All metrics as text, as `/metrics` shows them.
    pub fn text(&self) -> String {
        for LoadOf { name, load } in self.0.loads.lock().iter() {
            let (load, adds) = load();
            let by = ByQueue { controller: name, name };
            let depth = ByPriority { controller: name, name, priority: "0" };
            self.0.depth.get_or_create(&depth).set(i64::try_from(load.ready).unwrap_or(i64::MAX));
            self.0.unfinished.get_or_create(&by).set(load.unfinished.as_secs_f64());
            self.0.longest.get_or_create(&by).set(load.longest.as_secs_f64());
            let counted = self.0.adds.get_or_create(&by).get();
            self.0.adds.get_or_create(&by).inc_by(adds.saturating_sub(counted));
        }
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = encode(&mut text, &self.0.registry.lock());
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// The metrics of one operator.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    metrics: Metrics,
    by: ByController,
    queue: ByQueue,
    rounds: Counter,
}

impl ControllerMetrics {
    /// A worker took a key that had waited that long.
    pub(crate) fn began(&self, waited: Duration) {
        let inner = &self.metrics.0;
        inner.active.get_or_create(&self.by).inc();
        inner.waited.get_or_create(&self.queue).observe(waited.as_secs_f64());
    }

    /// A worker is done with it.
    pub(crate) fn ended(&self, worked: Duration) {
        let inner = &self.metrics.0;
        inner.active.get_or_create(&self.by).dec();
        inner.worked.get_or_create(&self.queue).observe(worked.as_secs_f64());
    }

    /// A round ended so.
    pub(crate) fn round(&self, result: Result, took: Duration) {
        let inner = &self.metrics.0;
        self.rounds.inc();
        let labels = ByResult { controller: self.by.controller, result: result.as_str() };
        inner.reconciles.get_or_create(&labels).inc();
        inner.seconds.get_or_create(&self.by).observe(took.as_secs_f64());
        if result == Result::Error {
            inner.errors.get_or_create(&self.by).inc();
        }
    }

    /// Something was said. Reasons are words of the operators' own, so there are few of them.
    pub(crate) fn said(&self, type_: EventType, reason: &str) {
        let r#type = match type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let labels = ByReason { controller: self.by.controller, reason: reason.to_owned(), r#type };
        self.metrics.0.events.get_or_create(&labels).inc();
    }

    /// A failure that waits for a change.
    pub(crate) fn terminal(&self) {
        self.metrics.0.terminal.get_or_create(&self.by).inc();
    }

    /// A round that will be tried again.
    pub(crate) fn retry(&self) {
        self.metrics.0.retries.get_or_create(&self.queue).inc();
    }

    /// A round that panicked.
    pub(crate) fn panicked(&self) {
        self.metrics.0.panics.get_or_create(&self.by).inc();
    }

    /// A round that took too long.
    pub(crate) fn timed_out(&self) {
        self.metrics.0.timeouts.get_or_create(&self.by).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_and_labels_are_those_that_dashboards_know() {
        let metrics = Metrics::default();
        let memcached = metrics.controller("memcached", 16);
        metrics.queue("memcached", || (Load { ready: 2, ..Load::default() }, 5));
        memcached.began(Duration::from_millis(1));
        memcached.round(Result::Error, Duration::from_millis(3));
        memcached.round(Result::RequeueAfter, Duration::from_millis(3));
        memcached.terminal();
        memcached.retry();
        memcached.panicked();
        memcached.timed_out();
        memcached.ended(Duration::from_millis(4));
        metrics.request(Some(200), &Arc::from("10.0.0.1:6443"), &http::Method::GET);
        metrics.leading("ballast", true);
        metrics.slow_path("ballast");
        memcached.said(EventType::Warning, "CrashLoop");
        let text = metrics.text();
        for line in [
            r#"controller_runtime_reconcile_total{controller="memcached",result="success"} 0"#,
            r#"controller_runtime_reconcile_total{controller="memcached",result="error"} 1"#,
            r#"controller_runtime_reconcile_total{controller="memcached",result="requeue"} 0"#,
            r#"controller_runtime_reconcile_total{controller="memcached",result="requeue_after"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="memcached"} 1"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="memcached"} 1"#,
            r#"controller_runtime_reconcile_panics_total{controller="memcached"} 1"#,
            r#"controller_runtime_reconcile_timeouts_total{controller="memcached"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="memcached"} 2"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.005",controller="memcached"} 2"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="memcached"} 16"#,
            r#"controller_runtime_active_workers{controller="memcached"} 0"#,
            r#"ballast_events_total{controller="memcached",reason="CrashLoop",type="Warning"} 1"#,
            r#"workqueue_depth{controller="memcached",name="memcached",priority="0"} 2"#,
            r#"workqueue_adds_total{controller="memcached",name="memcached"} 5"#,
            r#"workqueue_queue_duration_seconds_count{controller="memcached",name="memcached"} 1"#,
            r#"workqueue_work_duration_seconds_count{controller="memcached",name="memcached"} 1"#,
            r#"workqueue_unfinished_work_seconds{controller="memcached",name="memcached"} 0.0"#,
            r#"workqueue_longest_running_processor_seconds{controller="memcached",name="memcached"} 0.0"#,
            r#"workqueue_retries_total{controller="memcached",name="memcached"} 1"#,
            r#"rest_client_requests_total{code="200",host="10.0.0.1:6443",method="GET"} 1"#,
            r#"leader_election_master_status{name="ballast"} 1"#,
            r#"leader_election_slowpath_total{name="ballast"} 1"#,
            "memcached_controller_reconcile_total 2",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in:\n{text}");
        }
    }

    #[test]
    fn series_begin_at_zero_and_the_process_is_among_them() {
        let metrics = Metrics::default();
        let _memcached = metrics.controller("memcached", 16);
        let text = metrics.text();
        for beginning in [
            r#"workqueue_queue_duration_seconds_count{controller="memcached",name="memcached"} 0"#,
            r#"workqueue_work_duration_seconds_count{controller="memcached",name="memcached"} 0"#,
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_start_time_seconds ",
        ] {
            assert!(
                text.lines().any(|found| found.starts_with(beginning)),
                "no line {beginning} in:\n{text}"
            );
        }
    }
}
