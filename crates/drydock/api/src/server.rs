//! The server itself: what it holds, and the way of a request through it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use drydock_access::{Identity, Policy, Tokens};
use drydock_kinds::{Kind, Registry};
use drydock_store::{Change, CommitError, Expect, Key, Store, Stored};
use http::{HeaderValue, Request, Response, header, request::Parts};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::{
    accept,
    admission::{self, Addresses, Held},
    auth::{Caller, PolicyCache},
    body::{self, BoxError},
    call::{self, Call, Passed},
    definitions::{self, Installed},
    failure::Failure,
    hooks::{After, Before, Interceptor, LogEntry, RequestLog, Seen},
    nodes::{Nodes, Unreachable},
    object,
    paths::Documents,
    request::{self, RequestInfo},
    response::{self, Answer, Cut, ResponseBody},
    share::Groups,
};

/// The version of Kubernetes whose behaviour this is.
pub const VERSION: &str = "v1.34.11+drydock";

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Whether something is well; what is not, in a line, where it isn't.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What a server is made of, beside its store.
#[derive(Clone)]
pub struct Options {
    /// Where the time comes from.
    pub clock: Clock,
    /// Who is known by which token.
    pub tokens: Arc<Tokens>,
    /// Who may interfere with requests.
    pub interceptor: Option<Arc<dyn Interceptor>>,
    /// Where requests are kept.
    pub log: Arc<RequestLog>,
    /// How the nodes are reached.
    pub nodes: Arc<dyn Nodes>,
    /// The certificate by which whoever holds a token knows the server; none where nobody needs one.
    pub root_ca: Option<String>,
}

impl Options {
    /// The clock of the machine, no interference, no log, no nodes, no certificate.
    #[must_use]
    pub fn new(tokens: Arc<Tokens>) -> Self {
        Self {
            clock: Arc::new(Timestamp::now),
            tokens,
            interceptor: None,
            log: Arc::new(RequestLog::new(0)),
            nodes: Arc::new(Unreachable),
            root_ca: None,
        }
    }
}

/// A Kubernetes API over a store; clones share it.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    store: Store,
    registry: Registry,
    options: Options,
    policy: PolicyCache,
    addresses: Addresses,
    installed: Installed,
    /// The definitions that are being deleted: name and uid.
    ending: Mutex<BTreeMap<String, String>>,
    documents: Documents,
    watching: Arc<Groups>,
    served: OnceLock<SocketAddr>,
    checks: Mutex<Vec<(&'static str, Check)>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("store", &self.0.store).finish_non_exhaustive()
    }
}

impl Api {
    /// A server over `store`. What its definitions define is served at once; see
    /// [`Api::bootstrap`] for what else an empty store needs.
    ///
    /// Must be called in a Tokio runtime: a definition that was being deleted when the store was left
    /// is cleaned up in the background.
    #[must_use]
    pub fn new(store: Store, options: Options) -> Self {
        let api = Self(Arc::new(Inner {
            store,
            registry: Registry::builtin(),
            options,
            policy: PolicyCache::default(),
            addresses: Addresses::default(),
            installed: Installed::default(),
            ending: Mutex::default(),
            documents: Documents::default(),
            watching: Arc::default(),
            served: OnceLock::new(),
            checks: Mutex::default(),
        }));
        api.restore_definitions();
        api
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The kinds that are served.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The requests that were answered.
    #[must_use]
    pub fn requests(&self) -> &Arc<RequestLog> {
        &self.0.options.log
    }

    /// The tokens that are known.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.0.options.tokens
    }

    /// The certificate by which whoever holds a token knows the server.
    pub(crate) fn root_ca(&self) -> Option<&str> {
        self.0.options.root_ca.as_deref()
    }

    /// Where the API is served, once it is: the first address counts.
    pub(crate) fn served(&self) -> &OnceLock<SocketAddr> {
        &self.0.served
    }

    /// From now on `/readyz` answers for this, too.
    pub fn check(&self, name: &'static str, check: Check) {
        self.0.checks.lock().push((name, check));
    }

    pub(crate) fn checks(&self) -> Vec<(&'static str, Check)> {
        self.0.checks.lock().clone()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.options.clock.clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0.options.clock)()
    }

    pub(crate) fn interceptor(&self) -> Option<Arc<dyn Interceptor>> {
        self.0.options.interceptor.clone()
    }

    pub(crate) fn watching(&self) -> Arc<Groups> {
        Arc::clone(&self.0.watching)
    }

    pub(crate) fn nodes(&self) -> &dyn Nodes {
        &*self.0.options.nodes
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.0.policy.get(&self.0.store)
    }

    pub(crate) fn addresses(&self) -> &Addresses {
        &self.0.addresses
    }

    pub(crate) fn installed(&self) -> &Installed {
        &self.0.installed
    }

    pub(crate) fn ending(&self) -> &Mutex<BTreeMap<String, String>> {
        &self.0.ending
    }

    pub(crate) fn documents(&self) -> &Documents {
        &self.0.documents
    }

    /// Commits a change of an object, and has what is derived from the object follow.
    ///
    /// A commit that was begun can't be taken back, so neither is what follows the caller's to drop: a
    /// client that goes away while its write is being flushed would leave a definition unsettled, or an
    /// address free that a Service has.
    pub(crate) async fn commit(
        &self,
        kind: &Arc<Kind>,
        key: Key,
        expect: Expect,
        change: Change,
        held: Option<Held>,
    ) -> Result<Arc<Stored>, CommitError> {
        if !is_definition(kind) && !is_service(kind) && !is_account(kind) {
            return self.store().commit(key, expect, change).await;
        }
        let (api, kind, removed) = (self.clone(), kind.clone(), matches!(change, Change::Delete(_)));
        let task = tokio::spawn(async move {
            let stored = api.store().commit(key, expect, change).await?;
            if let Some(held) = held {
                held.settled();
            }
            api.written(&kind, &stored, removed).await;
            Ok(stored)
        });
        // Only the end of the runtime ends the task before its own.
        task.await.unwrap_or(Err(CommitError::Closed))
    }

    /// An object was stored or removed: what is derived from it follows.
    async fn written(&self, kind: &Kind, stored: &Arc<Stored>, removed: bool) {
        if is_definition(kind) {
            if removed {
                self.definition_removed(&stored.key.name).await;
            } else {
                self.definition_written(kind, stored).await;
            }
        } else if removed && let Ok(last) = object::read_stored(stored) {
            if is_service(kind) {
                self.addresses().release(&last);
            } else {
                self.account_removed(&last);
            }
        }
    }

    /// Answers a request.
    ///
    /// An answer that carries [`Cut`] among its extensions is none: whoever serves the connection
    /// closes it without a word.
    pub async fn handle<B>(&self, request: Request<B>, caller: Caller) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let info = match request::parse(&parts.method, &parts.uri) {
            Ok(info) => info,
            Err(failure) => return response::failure(&failure, accept),
        };
        let mut received = 0;
        let identity = self.identify(&caller, &info, &parts.headers, self.now());
        let user = identity.as_ref().map(|identity| identity.username.clone()).unwrap_or_default();
        let seen = Seen { info: &info, user: &user, user_agent: call::user_agent(&parts.headers) };
        let result = match identity {
            Err(failure) => Err(failure),
            Ok(identity) => self.allowed(&info, &parts, &identity, seen, body, &mut received).await,
        };
        let mut answer = match result {
            Ok(Some(answer)) => answer,
            Ok(None) => cut(),
            Err(failure) => response::failure(&failure, accept),
        };
        answer
            .headers_mut()
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        let answer = response::compress(response::indent(answer, &parts.uri, &parts.headers), &parts.headers);
        self.record(seen, &answer, received);
        answer
    }

    /// The way of a request whose caller is known; `None` when the connection is to be cut.
    async fn allowed<B>(
        &self,
        info: &RequestInfo,
        parts: &Parts,
        identity: &Identity,
        seen: Seen<'_>,
        body: B,
        received: &mut usize,
    ) -> Result<Option<Answer>, Failure>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.authorize(identity, info)?;
        let is_passed_on = info.resource.as_ref().is_some_and(request::ResourcePath::is_passed_on);
        let (body, passed) = match is_passed_on {
            true => (Bytes::new(), Some(body.map_err(Into::into).boxed_unsync())),
            false => (body::read(body).await?, None),
        };
        *received = body.len();
        let interceptor = self.0.options.interceptor.as_ref();
        if let Some(interceptor) = interceptor {
            match interceptor.before(seen).await {
                Before::Proceed => {}
                Before::Fail { code, message } => return Err(Failure::Injected { code, message }),
                Before::Cut => return Ok(None),
            }
        }
        let result = self.route(info, parts, identity, (body, passed)).await;
        if let Some(interceptor) = interceptor {
            let status = match &result {
                Ok(answer) => answer.status().as_u16(),
                Err(failure) => failure.code().as_u16(),
            };
            match interceptor.after(seen, status).await {
                After::Deliver => {}
                After::Fail { code, message } => return Err(Failure::Injected { code, message }),
                After::Cut => return Ok(None),
            }
        }
        result.map(Some)
    }

    async fn route(
        &self,
        info: &RequestInfo,
        Parts { headers, extensions, .. }: &Parts,
        identity: &Identity,
        (body, passed): (Bytes, Option<Passed>),
    ) -> Result<Answer, Failure> {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let Some(path) = &info.resource else { return self.path(info, accept, headers) };
        let accept = if path.is_passed_on() { accept::JSON } else { accept::negotiate(accept)? };
        let Some(kind) = self.registry().find(&path.group, &path.version, &path.resource) else {
            return Err(self.unknown(&path.group));
        };
        if path.object_namespace().is_some() && !kind.namespaced {
            return Err(self.unknown(&path.group));
        }
        let call = Call {
            api: self,
            info,
            path,
            kind,
            identity,
            headers,
            upgrade: extensions.get::<OnUpgrade>().cloned(),
            body,
            passed: Mutex::new(passed),
            accept,
            now: self.now(),
            warnings: Mutex::default(),
        };
        let mut result = call.answer().await;
        let warnings = call.warnings.into_inner();
        match &mut result {
            Ok(answer) => response::warn(answer, warnings.texts()),
            Err(_) if warnings.is_empty() => {}
            Err(failure) => {
                let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
                let mut answer = response::failure(failure, accept);
                response::warn(&mut answer, warnings.texts());
                return Ok(answer);
            }
        }
        result
    }

    /// No such resource: said as a `Status` within a built-in group, as plain text elsewhere.
    fn unknown(&self, group: &str) -> Failure {
        let builtin = self.registry().all().iter().any(|kind| &*kind.group == group && !kind.is_custom());
        if builtin { Failure::NoSuchResource } else { Failure::UnknownPath }
    }

    fn record(&self, seen: Seen<'_>, answer: &Answer, received: usize) {
        self.requests().add(|number| {
            let info = seen.info;
            let path = info.resource.as_ref();
            let resource = path.map(|path| match &path.subresource {
                None => format!("{}/{}", path.group, path.resource),
                Some(sub) => format!("{}/{}/{sub}", path.group, path.resource),
            });
            let status =
                if answer.extensions().get::<Cut>().is_some() { 0 } else { answer.status().as_u16() };
            LogEntry {
                number,
                at: self.now(),
                method: info.method.clone(),
                path: info.path.clone(),
                query: info.query.clone(),
                verb: info.verb,
                resource: resource.unwrap_or_default(),
                namespace: path.and_then(|path| path.namespace.clone()).unwrap_or_default(),
                name: path.and_then(|path| path.name.clone()).unwrap_or_default(),
                user: seen.user.to_owned(),
                user_agent: seen.user_agent.to_owned(),
                status,
                received,
                sent: answer.body().bytes().map_or(0, Bytes::len),
            }
        });
    }
}

fn is_definition(kind: &Kind) -> bool {
    admission::is(kind, definitions::GROUP, definitions::PLURAL)
}

fn is_service(kind: &Kind) -> bool {
    admission::is(kind, "", "services")
}

fn is_account(kind: &Kind) -> bool {
    admission::is(kind, "", "serviceaccounts")
}

/// The answer that is none.
fn cut() -> Answer {
    let mut answer = Response::new(ResponseBody::empty());
    answer.extensions_mut().insert(Cut);
    answer
}
