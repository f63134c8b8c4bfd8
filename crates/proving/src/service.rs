//! The running service, as a model: what it answers and what it does, without a process.

use std::{collections::BTreeMap, sync::Arc};

use ballast_operator::{Action, Answer, Class, Failure, Question};
use ballast_runtime::{About, Engine, NoEngine};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::Value;

use crate::tap::Tap;

/// A model of a running service, at the seam where engines stand.
///
/// The service outlives its operator: what it knows is not lost when the operator is started anew. A run that
/// begins in the middle of a life gets a [fork](Service::fork) of the service as it was at that moment.
pub trait Service: Engine {
    /// Another service that knows what this one knows now.
    fn fork(&self) -> Arc<dyn Service>;

    /// What it knows, in a form that is the same in every run that came to the same. It is compared as the state of
    /// the cluster is.
    fn state(&self) -> Value;

    /// What comes of a pod: of one that is to end, when its time has come; of any other, when it is started. It may be
    /// called again for the same pod, where nobody was told what came of it: as with a node, the first time counts.
    fn run(&self, pod: &Pod, mounted: &Mounted) -> Course {
        let _ = (pod, mounted);
        Course::Goes
    }
}

/// What a pod finds in its volumes.
#[derive(Clone, Debug, Default)]
pub struct Mounted {
    /// Claims, by their names: which of that name it is, by its uid.
    pub claims: BTreeMap<String, String>,
    /// What its Secrets and ConfigMaps hold, by the keys.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// What comes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// It goes as pods do: one that is to end ends well, any other is soon ready.
    Goes,
    /// It runs, and is never ready.
    Struggles,
    /// It ends.
    Ends {
        /// With this code.
        code: i32,
        /// And these last words.
        message: String,
    },
}

impl Service for NoEngine {
    fn fork(&self) -> Arc<dyn Service> {
        Arc::new(NoEngine)
    }

    fn state(&self) -> Value {
        Value::Null
    }
}

/// How an action fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionFault {
    /// Nothing is done.
    Before,
    /// It is done, and nobody is told.
    After,
}

impl ActionFault {
    pub(crate) const ALL: [ActionFault; 2] = [ActionFault::Before, ActionFault::After];

    pub(crate) fn words(self) -> &'static str {
        match self {
            ActionFault::Before => "fails before it is done",
            ActionFault::After => "is done and fails then",
        }
    }
}

/// An action that is to fail. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionOrder(Arc<Mutex<Option<(u64, ActionFault)>>>);

impl ActionOrder {
    /// Has the `nth` action from now on fail.
    pub(crate) fn order(&self, nth: u64, fault: ActionFault) {
        *self.0.lock() = Some((nth, fault));
    }

    /// Takes it back, and says whether it was still to come.
    pub(crate) fn lift(&self) -> bool {
        self.0.lock().take().is_some()
    }

    /// Counts an action, and says how it is to fail.
    fn count(&self) -> Option<ActionFault> {
        let mut ordered = self.0.lock();
        match ordered.take() {
            Some((1, fault)) => Some(fault),
            other => {
                *ordered = other.map(|(nth, fault)| (nth - 1, fault));
                None
            }
        }
    }
}

/// A service whose actions are put down like writes, and fail where that is ordered.
pub(crate) struct Tapped {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) tap: Tap,
    pub(crate) faults: ActionOrder,
}

impl Engine for Tapped {
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer> {
        self.service.ask(about, question)
    }

    fn act<'a>(&'a self, about: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let fault = self.faults.count();
            let lost = || Failure::new(Class::Retry, "the connection was cut");
            if fault == Some(ActionFault::Before) {
                return Err(lost());
            }
            self.service.act(about, action).await?;
            self.tap.acted(&action.subject, &action.name);
            if fault == Some(ActionFault::After) { Err(lost()) } else { Ok(()) }
        })
    }
}
