//! The workers of one operator: each takes an object from the queue, looks at it, and puts it back.
//!
//! **What always holds.** Every round is a task of its own: one that panics, or takes too long, ends that round and
//! nothing else. A failure is logged once, here.

use std::{any::Any, sync::Arc, time::Duration};

use ballast_operator::{Class, Failure, Operator};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::{
    key::Key,
    metrics::{ControllerMetrics, Result as Counted},
    queue::{Next, Queue, Taken},
    reconcile::{Controller, Ended},
    sources::round_id,
    telling,
};

/// One worker. Ends when the queue is closed.
pub(crate) async fn work<O: Operator>(
    controller: Arc<Controller<O>>,
    queue: Arc<Queue<Key>>,
    metrics: ControllerMetrics,
    timeout: Duration,
) {
    while let Some(Taken { key, causes, waited }) = queue.take().await {
        if let Some(next) = controller.passes_over(&key, &causes) {
            queue.done(&key, next);
            continue;
        }
        metrics.began(waited);
        let next = round(&controller, &key, &metrics, timeout).await;
        let worked = queue.done(&key, next);
        metrics.ended(worked);
    }
}

async fn round<O: Operator>(
    controller: &Arc<Controller<O>>,
    key: &Key,
    metrics: &ControllerMetrics,
    timeout: Duration,
) -> Next {
    let reconcile_id = round_id(&*controller.random);
    // A span is left out with the lines of its level. This one must be there for every line that is printed at all.
    let span = tracing::error_span!("reconcile", controller = O::NAME, object = %key, reconcile_id);
    let began = Instant::now();
    let task = {
        let (controller, key) = (Arc::clone(controller), key.clone());
        async move { controller.reconcile(&key, &reconcile_id).await }
    };
    // Whoever drops this worker drops the round with it.
    let mut task = AbortOnDropHandle::new(tokio::spawn(task.instrument(span.clone())));
    let ended = match tokio::time::timeout(timeout, &mut task).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => {
            metrics.panicked();
            controller.broken_off(key, Failure::new(Class::Bug, panic_text(error)))
        }
        Err(_) => {
            task.abort();
            metrics.timed_out();
            let text = format!("the round took longer than {}", telling::duration(timeout));
            controller.broken_off(key, Failure::new(Class::Retry, text))
        }
    };
    let took = began.elapsed();
    let _entered = span.enter();
    report(&ended, took);
    metrics.round(ended.result, took);
    match &ended.failure {
        Some(failure) if failure.class == Class::Terminal => metrics.terminal(),
        Some(_) => metrics.retry(),
        None if ended.result == Counted::Requeue => metrics.retry(),
        None => {}
    }
    ended.next
}

fn report(ended: &Ended, took: Duration) {
    let took = telling::duration(took);
    let again = match ended.next {
        Next::After(pause) => telling::duration(pause),
        Next::Change | Next::AsItWas => "when something changes".to_owned(),
    };
    match &ended.failure {
        Some(failure) if failure.class == Class::Retry => {
            tracing::warn!(error = %failure, class = %failure.class, again, took, "failed");
        }
        Some(failure) => {
            tracing::error!(error = %failure, class = %failure.class, again, took, "failed");
        }
        None => tracing::debug!(again, took, "looked at"),
    }
}

fn panic_text(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => format!("it panicked: {}", text_of(&*panic)),
        Err(error) => error.to_string(),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}
