//! Faults to order: what goes wrong, on which request, and how often.
//!
//! ```no_run
//! # async fn example(drydock: drydock::Drydock) {
//! use drydock::Fault;
//! // The second write to a Deployment by this user is lost on the way back.
//! let order = drydock.faults().order(
//!     Fault::cut_after().resource("apps/deployments").user("system:serviceaccount:ops:ballast").nth(2),
//! );
//! // … run what is to be tested …
//! order.happened().await;
//! # }
//! ```
//!
//! **Always holds:** requests are counted from the moment the fault is ordered, and only those that match. A
//! fault without verbs of its own is about writes: what may change an object, which neither a dry run nor a
//! review does. Orders are looked at in the order in which they were given, and the first that is due is served.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drydock_api::{After, Before, Interceptor, OnEvent, RequestInfo, ResourcePath, Seen, Verb};
use futures::future::BoxFuture;
use tokio::sync::watch;

/// Groups whose objects are questions: creating one changes nothing.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

#[derive(Clone, Debug, PartialEq)]
enum What {
    /// An answer with this code; nothing takes effect.
    Refuse(u16),
    /// No answer; nothing takes effect.
    CutBefore,
    /// No answer, after it took effect.
    CutAfter,
    /// Something happens to an event of a watch.
    Event(OnEvent),
    /// An event comes later.
    Late(Duration),
    /// Events are withheld until the order is lifted.
    Held,
}

/// What is to go wrong, and when. Begins with a constructor and is narrowed from there; unless it is said
/// otherwise, it is the first matching request and that one only.
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until it is ordered"]
pub struct Fault {
    what: What,
    verbs: Vec<Verb>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    user: Option<String>,
    nth: u64,
    times: u64,
}

impl Fault {
    fn new(what: What) -> Fault {
        let (verbs, resource, namespace, name, user) = (Vec::new(), None, None, None, None);
        Fault { what, verbs, resource, namespace, name, user, nth: 1, times: 1 }
    }

    /// 409: somebody else was faster.
    pub fn conflict() -> Fault {
        Fault::new(What::Refuse(409))
    }

    /// 429 with `Retry-After`: later, please.
    pub fn too_many_requests() -> Fault {
        Fault::new(What::Refuse(429))
    }

    /// 500: the server failed.
    pub fn internal_error() -> Fault {
        Fault::new(What::Refuse(500))
    }

    /// The connection is cut before the request takes effect.
    pub fn cut_before() -> Fault {
        Fault::new(What::CutBefore)
    }

    /// The connection is cut after the request took effect, so that the client can't know. Counts only requests
    /// that succeed.
    pub fn cut_after() -> Fault {
        Fault::new(What::CutAfter)
    }

    /// A watch's connection is cut in the place of its event.
    pub fn watch_cut() -> Fault {
        Fault::new(What::Event(OnEvent::Cut))
    }

    /// A watch ends in order in the place of its event, as it does when its time is up.
    pub fn watch_end() -> Fault {
        Fault::new(What::Event(OnEvent::End))
    }

    /// A watch ends with 410 in the place of its event: where it was is forgotten, and the client has to list.
    pub fn watch_expired() -> Fault {
        Fault::new(What::Event(OnEvent::Expire))
    }

    /// An event, and everything behind it on its watch, comes that much later.
    pub fn watch_late(by: Duration) -> Fault {
        Fault::new(What::Late(by))
    }

    /// From this event on, what matching watches have to say is withheld until the order is
    /// [lifted](Order::lift): whoever reads them sees a stale world. Nothing is lost.
    pub fn watch_stale() -> Fault {
        Fault { times: u64::MAX, ..Fault::new(What::Held) }
    }

    /// Only requests with this verb; may be said several times. Also how a read is made to fail.
    pub fn verb(mut self, verb: Verb) -> Fault {
        self.verbs.push(verb);
        self
    }

    /// Only this resource, as in `apps/deployments`, `apps/deployments/status`, `pods`.
    pub fn resource(self, resource: impl Into<String>) -> Fault {
        let resource: String = resource.into();
        Fault { resource: Some(resource.trim_start_matches('/').to_owned()), ..self }
    }

    /// Only in this namespace.
    pub fn namespace(self, namespace: impl Into<String>) -> Fault {
        Fault { namespace: Some(namespace.into()), ..self }
    }

    /// Only the object with this name.
    pub fn name(self, name: impl Into<String>) -> Fault {
        Fault { name: Some(name.into()), ..self }
    }

    /// Only requests of this user.
    pub fn user(self, user: impl Into<String>) -> Fault {
        Fault { user: Some(user.into()), ..self }
    }

    /// The `nth` that matches, counted from 1, instead of the first.
    pub fn nth(self, nth: u64) -> Fault {
        Fault { nth, ..self }
    }

    /// That many in a row, instead of one.
    pub fn times(self, times: u64) -> Fault {
        Fault { times, ..self }
    }

    /// Every one from then on, until the order is lifted.
    pub fn always(self) -> Fault {
        self.times(u64::MAX)
    }

    fn matches(&self, seen: Seen<'_>) -> bool {
        let resource = seen.info.resource.as_ref();
        let same = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.is_meant(seen.info)
            && self
                .resource
                .as_ref()
                .is_none_or(|wanted| resource.is_some_and(|found| *wanted == path(found)))
            && same(&self.namespace, resource.and_then(|found| found.namespace.as_deref()))
            && same(&self.name, resource.and_then(|found| found.name.as_deref()))
            && same(&self.user, Some(seen.user))
    }

    fn is_meant(&self, info: &RequestInfo) -> bool {
        if is_of_watch(&self.what) {
            return info.verb == Verb::Watch;
        }
        if !self.verbs.is_empty() {
            return self.verbs.contains(&info.verb);
        }
        let changes = |resource: &ResourcePath| !REVIEWS.contains(&resource.group.as_str());
        info.verb.is_write() && info.options.dry_run.is_empty() && info.resource.as_ref().is_some_and(changes)
    }
}

/// `apps/deployments/status`; without a group `pods/status`.
fn path(resource: &ResourcePath) -> String {
    let parts =
        [Some(resource.group.as_str()), Some(resource.resource.as_str()), resource.subresource.as_deref()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// The faults that are ordered; clones share them.
#[derive(Clone, Default)]
pub struct Faults {
    orders: Arc<Mutex<Vec<Arc<Ordered>>>>,
}

struct Ordered {
    fault: Fault,
    /// How many requests matched so far.
    matched: Mutex<u64>,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, Default)]
struct Progress {
    happened: u64,
    lifted: bool,
}

/// A fault that was ordered. Dropping this does not take it back.
#[derive(Clone)]
pub struct Order {
    ordered: Arc<Ordered>,
}

impl Order {
    /// How often it has happened.
    pub fn count(&self) -> u64 {
        self.ordered.progress.borrow().happened
    }

    /// Waits until it has happened at least once.
    pub async fn happened(&self) {
        let mut progress = self.ordered.progress.subscribe();
        // The sender is in `self`: it can't be gone.
        let _ = progress.wait_for(|progress| progress.happened > 0).await;
    }

    /// Takes it back: it happens no more, and what it withheld is let go.
    pub fn lift(&self) {
        self.ordered.progress.send_modify(|progress| progress.lifted = true);
    }
}

impl Faults {
    /// Has `fault` happen, from now on counting.
    pub fn order(&self, fault: Fault) -> Order {
        let (progress, _) = watch::channel(Progress::default());
        let ordered = Arc::new(Ordered { fault, matched: Mutex::new(0), progress });
        self.lock().push(Arc::clone(&ordered));
        Order { ordered }
    }

    /// Takes back all that is ordered.
    pub fn clear(&self) {
        for ordered in self.lock().drain(..) {
            ordered.progress.send_modify(|progress| progress.lifted = true);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Ordered>>> {
        // A list of orders is whole whatever happened to the one who held it.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the request for each order of this sort, and gives the first that is due.
    fn due(&self, seen: Seen<'_>, sort: fn(&What) -> bool) -> Option<Arc<Ordered>> {
        let mut orders = self.lock();
        orders.retain(|ordered| !ordered.is_spent());
        let mut due = None;
        for ordered in
            orders.iter().filter(|ordered| sort(&ordered.fault.what) && ordered.fault.matches(seen))
        {
            if ordered.count() && due.is_none() {
                ordered.progress.send_modify(|progress| progress.happened += 1);
                due = Some(Arc::clone(ordered));
            }
        }
        due
    }
}

impl Ordered {
    /// Counts one more that matched; true when the fault is due with it.
    fn count(&self) -> bool {
        let mut matched = self.matched.lock().unwrap_or_else(PoisonError::into_inner);
        *matched += 1;
        *matched >= self.fault.nth && *matched - self.fault.nth < self.fault.times
    }

    fn is_spent(&self) -> bool {
        let matched = *self.matched.lock().unwrap_or_else(PoisonError::into_inner);
        self.progress.borrow().lifted
            || matched >= self.fault.nth.saturating_add(self.fault.times).saturating_sub(1)
    }

    async fn lifted(&self) {
        let mut progress = self.progress.subscribe();
        // The sender is in `self`: it can't be gone.
        let _ = progress.wait_for(|progress| progress.lifted).await;
    }
}

impl Interceptor for Faults {
    fn before<'a>(&'a self, request: Seen<'a>) -> BoxFuture<'a, Before> {
        let due = self.due(request, |what| matches!(what, What::Refuse(_) | What::CutBefore));
        let answer = match due.map(|ordered| ordered.fault.what.clone()) {
            Some(What::Refuse(code)) => Before::Fail { code, message: message(code, request.info) },
            Some(_) => Before::Cut,
            None => Before::Proceed,
        };
        Box::pin(std::future::ready(answer))
    }

    fn after<'a>(&'a self, request: Seen<'a>, status: u16) -> BoxFuture<'a, After> {
        let succeeded = (200..300).contains(&status);
        let due = succeeded.then(|| self.due(request, |what| *what == What::CutAfter)).flatten();
        let answer = if due.is_some() { After::Cut } else { After::Deliver };
        Box::pin(std::future::ready(answer))
    }

    fn follows_watches(&self) -> bool {
        let of_watches = |ordered: &Arc<Ordered>| is_of_watch(&ordered.fault.what) && !ordered.is_spent();
        self.lock().iter().any(of_watches)
    }

    fn event<'a>(&'a self, request: Seen<'a>, _number: u64) -> BoxFuture<'a, OnEvent> {
        let due = self.due(request, is_of_watch);
        Box::pin(async move {
            let Some(ordered) = due else { return OnEvent::Deliver };
            match ordered.fault.what {
                What::Event(answer) => return answer,
                What::Late(by) => tokio::time::sleep(by).await,
                _ => ordered.lifted().await,
            }
            OnEvent::Deliver
        })
    }
}

fn is_of_watch(what: &What) -> bool {
    matches!(what, What::Event(_) | What::Late(_) | What::Held)
}

/// What Kubernetes says with this code.
fn message(code: u16, info: &RequestInfo) -> String {
    let (resource, name) = match &info.resource {
        Some(found) if found.group.is_empty() => (found.resource.clone(), found.name.clone()),
        Some(found) => (format!("{}.{}", found.resource, found.group), found.name.clone()),
        None => (info.path.clone(), None),
    };
    match code {
        409 => format!(
            "Operation cannot be fulfilled on {resource} {:?}: the object has been modified; please apply your \
             changes to the latest version and try again",
            name.unwrap_or_default()
        ),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        _ => "Internal error occurred: a fault was ordered".into(),
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|ordered| &ordered.fault)).finish()
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Order").field(&self.ordered.fault).finish()
    }
}
