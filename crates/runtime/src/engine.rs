//! How a running service is asked and told things.

use ballast_operator::{Action, Answer, Children, Class, Failure, Question};
use futures::future::BoxFuture;

/// Which resource a question or an action is about, and what is around it: where pods are is written there.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The resource's namespace.
    pub namespace: Option<&'a str>,
    /// The resource's name.
    pub name: &'a str,
    /// What the view shows around it.
    pub children: &'a Children,
}

/// Talks to a running service on behalf of plans. One per operator.
pub trait Engine: Send + Sync + 'static {
    /// Puts a question to the service. A service that does not answer is an answer too.
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer>;

    /// Does what only the service can do.
    fn act<'a>(&'a self, about: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>>;
}

/// The engine of operators that need none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEngine;

impl Engine for NoEngine {
    fn ask<'a>(&'a self, _: About<'a>, _: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Silent { why: "nobody here can ask it".to_owned() } })
    }

    fn act<'a>(&'a self, _: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Err(Failure::new(Class::Bug, format!("nobody here can {}", action.name))) })
    }
}
