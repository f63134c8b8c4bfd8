//! Making a view: the resource, what is around it, what came of the last round, the time.
//!
//! **What always holds.** A view is never older than this process's own last write to anything in it. The caches
//! usually have it by the time they are asked. Where they have not, they are given a moment; where that does not
//! help, the server is asked for just those objects.

use std::{sync::Arc, time::Duration};

use ballast_operator::{
    Change, Children, Class, Effect, Failure, KindRef, Object, Operator, Outcome, Settled, Verdict, View,
};
use jiff::Timestamp;
use kube::Resource as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    cache::{Cache, Entry, revision},
    failure::Refusal,
    key::Key,
    memory::{Expected, Memory, What},
    watch::Caches,
    write::Writer,
};

/// How long a cache is waited for before the server is asked. A watch is usually a few milliseconds behind; one that
/// is half a second behind is in trouble.
const CATCH_UP: Duration = Duration::from_millis(500);

/// Why there is no view.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unseen {
    /// There is no such resource any more.
    #[error("the resource is gone")]
    Gone,
    /// The resource is not what the operator takes it for.
    #[error("the resource can't be read: {0}")]
    Unreadable(String),
    /// The server did not say.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Unseen {
    /// What it asks of us.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Unseen::Refused(refusal) => refusal.failure.clone(),
            Unseen::Unreadable(_) => Failure::new(Class::Terminal, self.to_string()),
            Unseen::Gone => Failure::new(Class::Retry, self.to_string()),
        }
    }
}

/// Where views come from.
pub(crate) struct Sight<'s, O: Operator> {
    pub(crate) operator: &'s O,
    pub(crate) caches: &'s Caches,
    pub(crate) writer: &'s Writer,
}

impl<O: Operator> Sight<'_, O> {
    /// What is to be seen of a resource now.
    pub(crate) async fn view(
        &self,
        key: &Key,
        memory: &Mutex<Memory>,
        now: Timestamp,
    ) -> Result<View<O::Resource>, Unseen> {
        let late = self.catch_up(memory).await;
        let read = self.ask(late, memory).await?;
        let own = KindRef::of::<O::Resource>();
        let live = read.iter().find(|(expected, _)| expected.kind == own && expected.key == *key);
        let resource: O::Resource = match live {
            Some((_, None)) => return Err(Unseen::Gone),
            Some((_, Some(object))) => object.read().map_err(|error| Unseen::Unreadable(error.why))?,
            None => {
                let entry = self.caches.of(&own).and_then(|cache| cache.get(key)).ok_or(Unseen::Gone)?;
                serde_json::from_slice(entry.json()).map_err(|error| Unseen::Unreadable(error.to_string()))?
            }
        };
        let mut view = View::new(resource, now);
        self.add_children(key, &mut view);
        for (expected, object) in read.into_iter().filter(|(expected, _)| expected.kind != own) {
            match object {
                Some(object) => view.children.insert(&expected.kind, object),
                None => {
                    view.children.remove(&expected.kind, &expected.key.name);
                }
            }
        }
        view.last_outcome = memory.lock().outcome.clone();
        Ok(view)
    }

    /// Waits for the caches to have our own writes, and gives what they still lack.
    async fn catch_up(&self, memory: &Mutex<Memory>) -> Vec<Expected> {
        let deadline = Instant::now() + CATCH_UP;
        loop {
            let late = memory.lock().outstanding(|expected| self.is_met(expected));
            // What nobody knows will not become known by waiting.
            let awaited = late.iter().find(|expected| expected.what != What::Unknown);
            let Some(cache) = awaited.and_then(|expected| self.caches.of(&expected.kind)) else {
                return late;
            };
            let mut moved = cache.moved();
            if awaited.is_some_and(|expected| expected.is_met_by(cache)) {
                continue;
            }
            if tokio::time::timeout_at(deadline, moved.changed()).await.is_err() {
                return memory.lock().outstanding(|expected| self.is_met(expected));
            }
        }
    }

    fn is_met(&self, expected: &Expected) -> bool {
        self.caches.of(&expected.kind).is_none_or(|cache: &Arc<Cache>| expected.is_met_by(cache))
    }

    fn shows(&self, kind: &KindRef, object: &Object) -> bool {
        self.caches.of(kind).is_none_or(|cache| cache.policy.shows(object))
    }

    /// Whether something stands where a plan would make something, and no watch shows it. The next view has it.
    pub(crate) async fn finds_strangers(
        &self,
        plan: &[Settled<'_>],
        memory: &Mutex<Memory>,
    ) -> Result<bool, Refusal> {
        let mut found = false;
        for settled in plan {
            let (Effect::Apply(object), Verdict::Change(Change::Create)) =
                (&settled.step.effect, &settled.verdict)
            else {
                continue;
            };
            let mut kinds = self.operator.relations().into_iter().map(|relation| relation.kind);
            let Some(kind) = kinds.find(|kind| kind.is(object.api_version(), object.kind())) else {
                continue;
            };
            if self.caches.of(&kind).is_none_or(|cache| cache.policy.selector().is_none()) {
                continue;
            }
            let key = Key::new(object.namespace(), object.name());
            if self.writer.read(&kind, &key).await?.is_some() {
                memory.lock().expect(&kind, &key, What::Unknown);
                found = true;
            }
        }
        Ok(found)
    }

    /// Asks the server for what the caches lack.
    async fn ask(
        &self,
        late: Vec<Expected>,
        memory: &Mutex<Memory>,
    ) -> Result<Vec<(Expected, Option<Object>)>, Refusal> {
        let mut read = Vec::with_capacity(late.len());
        for expected in late {
            tracing::debug!(kind = %expected.kind, object = %expected.key, "the watch is behind, so the server is asked");
            let object = self.writer.read(&expected.kind, &expected.key).await?;
            let cached = self.caches.of(&expected.kind).and_then(|cache| cache.get(&expected.key));
            let mut memory = memory.lock();
            match (&object, cached) {
                (None, None) => memory.settled(&expected),
                // The watch still shows what is gone: it is not to be believed until it shows that too.
                (None, Some(entry)) => {
                    memory.expect(&expected.kind, &expected.key, What::Gone(entry.uid.clone()));
                }
                // No watch will ever show it: it is read each time, until it is gone.
                (Some(object), _) if !self.shows(&expected.kind, object) => {}
                // From here on the cache has to be at least as new as what was read.
                (Some(object), _) => {
                    let read = What::Revision(revision(object.resource_version().unwrap_or_default()));
                    memory.expect(&expected.kind, &expected.key, read);
                }
            }
            drop(memory);
            read.push((expected, object));
        }
        Ok(read)
    }

    /// What the resource controls, what carries its label, and what stands under the names it claims.
    fn add_children(&self, key: &Key, view: &mut View<O::Resource>) {
        let uid = view.resource.meta().uid.clone().unwrap_or_default();
        for relation in self.operator.relations() {
            let Some(cache) = self.caches.of(&relation.kind) else { continue };
            let found = match relation.label() {
                Some(label) => cache.labelled(label, &key.name),
                None => cache.controlled_by(&uid),
            };
            let near = found.into_iter().filter(|(child, _)| {
                child.namespace.is_none() || key.namespace.is_none() || child.namespace == key.namespace
            });
            for (_, entry) in near {
                insert(&mut view.children, &relation.kind, &entry);
            }
        }
        let mut claims = self.operator.claims(&view.resource);
        claims.extend(self.operator.further_claims(view));
        for claim in claims {
            let Some(cache) = self.caches.of(&claim.kind) else { continue };
            if view.children.object(&claim.kind, &claim.name).is_none()
                && let Some(entry) = cache.get(&key.beside(&claim.name, claim.kind.namespaced))
            {
                insert(&mut view.children, &claim.kind, &entry);
            }
        }
    }
}

fn insert(children: &mut Children, kind: &KindRef, entry: &Entry) {
    match entry.object(kind) {
        Ok(object) => children.insert(kind, object),
        // It was an object when it came in.
        Err(error) => tracing::error!(%kind, %error, "an object in the cache can't be read"),
    }
}

/// Whether the outcome of a round is news to the plan that comes next. That the same happened once more is none.
pub(crate) fn is_news(before: Option<&Outcome>, after: &Outcome) -> bool {
    let what = |outcome: &Outcome| {
        let failed = outcome.failed.as_ref().map(|failed| (failed.step.clone(), failed.failure.clone()));
        let contested: Vec<_> = outcome
            .contested
            .iter()
            .map(|contest| (contest.object.clone(), contest.path.clone(), contest.manager.clone()))
            .collect();
        (failed, contested)
    };
    before.map(what).unwrap_or_default() != what(after)
}
