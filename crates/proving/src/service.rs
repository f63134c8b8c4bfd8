//! The running service, as a model: what it answers and what it does, without a process.

use std::sync::Arc;

use ballast_operator::{Action, Answer, Failure, Question};
use ballast_runtime::{About, Engine, NoEngine};
use futures::future::BoxFuture;

use crate::tap::Tap;

/// A model of a running service, at the seam where engines stand.
///
/// The service outlives its operator: what it knows is not lost when the operator is started anew. A run that
/// begins in the middle of a life gets a [fork](Service::fork) of the service as it was at that moment.
pub trait Service: Engine {
    /// Another service that knows what this one knows now.
    fn fork(&self) -> Arc<dyn Service>;
}

impl Service for NoEngine {
    fn fork(&self) -> Arc<dyn Service> {
        Arc::new(NoEngine)
    }
}

/// A service whose actions are put down like writes.
pub(crate) struct Tapped {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) tap: Tap,
}

impl Engine for Tapped {
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer> {
        self.service.ask(about, question)
    }

    fn act<'a>(&'a self, about: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            self.service.act(about, action).await?;
            self.tap.acted(&action.subject, &action.name);
            Ok(())
        })
    }
}
