//! Watches: a stream of events, each a line of JSON.
//!
//! **Guarantees.** Every change of a selected object after the starting revision is sent once, in
//! order. An object that begins or ceases to be selected is `ADDED` or `DELETED`. A watch that can't
//! go on because its revision is gone says so with an `ERROR` event of code 410 and ends. One of a custom
//! kind ends without a word when the definition of that is changed or gone: what comes then is told to
//! those who ask anew, in the form that it has by then.
//!
//! **Caveats.** Events that are ready together are sent together. Nothing waits to fill a buffer, but where changes go
//! on and on they are sent in step (`pace`). What many watches are sent is made once (`share`).

use std::{collections::VecDeque, future::poll_fn, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use drydock_kinds::{Kind, table};
use drydock_store::{Event, EventKind, Page, Range, Revision, Stored};
use futures::{FutureExt, StreamExt, stream};
use http::{HeaderValue, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Api,
    accept::{Accept, Shape},
    failure::Failure,
    hooks::{Interceptor, OnEvent, Seen},
    list,
    pace::Pace,
    present::{View, written},
    request::{Options, RequestInfo},
    response::{Answer, Cut, ResponseBody},
    select::Selection,
    share::{self, Group, Groups, Wish},
};

/// How long a watch lasts when the client doesn't say: between this and twice this, so that watches
/// which began together don't end together.
const MIN_TIMEOUT: Duration = Duration::from_secs(1800);

/// A watch that is to last for longer lasts for so long: no clock goes as far as the largest number.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Bookmarks come about once a minute, as clients expect.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// At most that many events in one piece of the body.
const BATCH: usize = 256;

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a watch needs of the server and the request.
pub struct Context {
    /// Where kinds and objects come from.
    pub api: Api,
    /// Who watches the same.
    pub groups: Arc<Groups>,
    /// The kind, in the version asked for.
    pub kind: Arc<Kind>,
    /// The namespace of the path.
    pub namespace: Option<String>,
    /// Custom objects that were written later are what the present definition makes of them.
    pub fresh: Option<Revision>,
    /// The form asked for.
    pub accept: Accept,
    /// The clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The request itself.
    pub info: RequestInfo,
    /// Who asks.
    pub user: String,
    /// With which program.
    pub user_agent: String,
    /// Who may interfere.
    pub interceptor: Option<Arc<dyn Interceptor>>,
}

impl Context {
    /// The kind is still what is served.
    fn is_served(&self) -> bool {
        let Kind { group, version, plural, .. } = &*self.kind;
        self.api.registry().find(group, version, plural).is_some_and(|now| Arc::ptr_eq(&now, &self.kind))
    }
}

/// What is to be sent.
enum Line {
    Object(&'static str, Arc<Stored>, Option<u64>),
    Bookmark(Revision, bool),
    Error(Failure),
}

impl Line {
    /// About as many bytes as it is written in.
    fn about(&self) -> usize {
        match self {
            Line::Object(_, stored, _) => stored.value.len() + 64,
            Line::Bookmark(..) | Line::Error(_) => 512,
        }
    }
}

struct Follow {
    context: Context,
    include: table::Include,
    selection: Selection,
    group: Option<Arc<Group>>,
    watch: Option<drydock_store::Watch>,
    queue: VecDeque<Line>,
    /// The event that comes next to the client, where nothing else is to be sent before.
    first: Option<Revision>,
    /// What another has made of it, to be sent before the queue.
    made: Option<share::Piece>,
    sent: u64,
    pace: Pace,
    headers_sent: bool,
    bookmark: Option<Instant>,
    deadline: Instant,
}

/// Starts a watch.
///
/// # Errors
/// For options that don't fit.
pub fn watch(context: Context) -> Result<Answer, Failure> {
    let options = context.info.options.clone();
    list::check_options(&options)?;
    let selection = Selection::parse(&options, &context.kind)?;
    let wanted = list::revision(&options)?;
    if options.send_initial_events == Some(true) {
        list::not_in_the_future(context.api.store(), wanted)?;
    }
    let include = View::new(&context.kind, &context.accept, &options, Timestamp::UNIX_EPOCH, None)?.include;
    let now = Instant::now();
    let lasting = options.timeout_seconds.map_or_else(|| jittered(MIN_TIMEOUT, 1), Duration::from_secs);
    let mut follow = Follow {
        include,
        selection,
        group: group(&context, &options),
        watch: None,
        queue: VecDeque::new(),
        first: None,
        made: None,
        sent: 0,
        pace: Pace::default(),
        headers_sent: false,
        bookmark: options.bookmarks.then(|| now + jittered(BOOKMARK_EVERY, 4)),
        deadline: now + lasting.min(LONGEST),
        context,
    };
    follow.start(&options, wanted);
    let pieces = stream::unfold(Some(follow), |follow| async move {
        let mut follow = follow?;
        match follow.next_piece().await {
            Piece::Bytes(bytes) => Some((Ok(bytes), Some(follow))),
            Piece::Last(bytes) => Some((Ok(bytes), None)),
            Piece::Cut => Some((Err(Cut), None)),
            Piece::End => None,
        }
    });
    let mut answer = Response::new(ResponseBody::stream(pieces));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(answer)
}

/// Those who are sent the same as whoever asks for this, but for tables.
fn group(context: &Context, options: &Options) -> Option<Arc<Group>> {
    let wish = || Wish {
        kind: Arc::clone(&context.kind),
        fresh: context.fresh,
        namespace: context.namespace.clone(),
        selectors: [options.label_selector.clone(), options.field_selector.clone()],
        form: (context.accept.shape, context.accept.version),
    };
    (context.accept.shape != Shape::Table).then(|| context.groups.join(wish()))
}

/// `base` and up to `base / part` more.
fn jittered(base: Duration, part: u32) -> Duration {
    let mut bytes = [0; 2];
    let share = getrandom::fill(&mut bytes).map_or(0.5, |()| f64::from(u16::from_le_bytes(bytes)) / 65536.0);
    base + (base / part).mul_f64(share)
}

/// A piece of the body.
enum Piece {
    Bytes(Bytes),
    Last(Bytes),
    Cut,
    End,
}

/// What comes next.
enum Next {
    Event(Option<Result<Arc<Event>, drydock_store::Lagged>>),
    Made(share::Piece),
}

impl Follow {
    /// Puts what there is at the beginning into the queue, and starts to listen.
    fn start(&mut self, options: &Options, wanted: u64) {
        let namespace = self.context.namespace.as_deref().or_else(|| self.selection.namespace());
        let range = Range {
            resource: self.context.kind.resource_key(),
            namespace: namespace.filter(|_| self.context.kind.namespaced).map(Arc::from),
        };
        let initial = options.send_initial_events.unwrap_or(wanted == 0);
        let from = if initial {
            let Ok(listing) = self.context.api.store().list(&range, Page::default()) else {
                return self.queue.push_back(Line::Error(self.too_old(Revision(wanted))));
            };
            let selected = listing.items.into_iter().filter(|item| self.selection.matches(item));
            self.queue = selected.map(|item| Line::Object("ADDED", item, None)).collect();
            if options.send_initial_events == Some(true) && options.bookmarks {
                self.queue.push_back(Line::Bookmark(listing.revision, true));
            }
            listing.revision
        } else if wanted == 0 {
            self.context.api.store().revision()
        } else {
            Revision(wanted)
        };
        match self.context.api.store().watch(range, from) {
            // Where the kind was found before its definition changed, this watch was not there to be ended.
            Ok(watch) => self.watch = Some(watch).filter(|_| self.context.is_served()),
            Err(_) => {
                self.queue.clear();
                self.queue.push_back(Line::Error(self.too_old(from)));
            }
        }
    }

    fn too_old(&self, at: Revision) -> Failure {
        Failure::Expired(format!("too old resource version: {at} ({})", self.context.api.store().oldest()))
    }

    async fn next_piece(&mut self) -> Piece {
        if self.queue.is_empty() && !self.fill().await {
            return Piece::End;
        }
        let before = self.sent;
        let made = self.made.take().map_or_else(Bytes::new, |made| {
            self.sent += made.lines;
            made.bytes
        });
        if self.queue.is_empty() {
            return Piece::Bytes(made);
        }
        let more: usize = self.queue.iter().take(BATCH).map(Line::about).sum();
        let mut out = Vec::with_capacity(made.len() + more);
        out.extend_from_slice(&made);
        while self.sent - before < BATCH as u64
            && let Some(line) = self.queue.pop_front()
        {
            self.sent += 1;
            match self.ask().await {
                OnEvent::Deliver => {}
                OnEvent::End => return Piece::End,
                OnEvent::Cut => return Piece::Cut,
                OnEvent::Expire => {
                    self.write(&mut out, Line::Error(self.too_old(Revision(0))));
                    return Piece::Last(out.into());
                }
            }
            let last = matches!(line, Line::Error(_));
            self.write(&mut out, line);
            if last {
                return Piece::Last(out.into());
            }
            if self.context.interceptor.as_ref().is_some_and(|asked| asked.follows_watches()) {
                break;
            }
        }
        let bytes = Bytes::from(out);
        self.share(&bytes, self.sent - before);
        Piece::Bytes(bytes)
    }

    /// Who else is sent the same, where nobody looks at each event.
    fn others(&self) -> Option<&Arc<Group>> {
        let looked_at = || self.context.interceptor.as_ref().is_some_and(|asked| asked.follows_watches());
        self.group.as_ref().filter(|group| group.is_shared() && !looked_at())
    }

    /// Lets the others have a piece that is all there was.
    fn share(&mut self, bytes: &Bytes, lines: u64) {
        if let Some(first) = self.first.take()
            && self.queue.is_empty()
            && let Some(to) = self.watch.as_ref().and_then(drydock_store::Watch::position)
            && let Some(group) = self.others()
        {
            group.keep(share::Piece { first, to, lines, bytes: bytes.clone() });
        }
    }

    async fn ask(&self) -> OnEvent {
        let context = &self.context;
        match &context.interceptor {
            Some(interceptor) if interceptor.follows_watches() => {
                let seen = Seen { info: &context.info, user: &context.user, user_agent: &context.user_agent };
                interceptor.event(seen, self.sent).await
            }
            _ => OnEvent::Deliver,
        }
    }

    /// Waits for something to send; false when there will be nothing any more.
    async fn fill(&mut self) -> bool {
        while !self.has_something() {
            self.first = None;
            let Some(mut watch) = self.watch.take() else { return false };
            if let Some(until) = self.pace.rest(Instant::now()) {
                tokio::time::sleep_until(until).await;
            }
            let bookmark = self.bookmark;
            let bookmarked = async {
                match bookmark {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let others = self.others();
            let next = poll_fn(|context| {
                let made = others.and_then(|others| others.beginning_with(watch.next_revision()?));
                made.map_or_else(
                    || watch.poll_next_unpin(context).map(Next::Event),
                    |made| Poll::Ready(Next::Made(made)),
                )
            });
            tokio::select! {
                biased;
                next = next => {
                    let more = match next {
                        Next::Made(made) => {
                            watch.skip_to(made.to);
                            self.first = Some(made.first);
                            self.made = Some(made);
                            watch.next_revision().is_some()
                        }
                        Next::Event(next) => {
                            self.first = next.as_ref().and_then(|next| Some(next.as_ref().ok()?.revision));
                            if !self.take(next) {
                                return self.has_something();
                            }
                            true
                        }
                    };
                    while more
                        && self.queue.len() < BATCH
                        && let Some(next) = watch.next().now_or_never()
                    {
                        if !self.take(next) {
                            return self.has_something();
                        }
                    }
                }
                () = bookmarked => {
                    self.bookmark = Some(Instant::now() + jittered(BOOKMARK_EVERY, 4));
                    self.queue.push_back(Line::Bookmark(watch.progress(), false));
                }
                () = tokio::time::sleep_until(self.deadline) => return false,
            }
            self.watch = Some(watch);
        }
        self.pace.sent(Instant::now());
        true
    }

    fn has_something(&self) -> bool {
        !self.queue.is_empty() || self.made.is_some()
    }

    /// Takes one event in; false when there will be no more.
    fn take(&mut self, next: Option<Result<Arc<Event>, drydock_store::Lagged>>) -> bool {
        match next {
            None => false,
            Some(Err(lagged)) => {
                self.queue.push_back(Line::Error(self.too_old(lagged.at)));
                false
            }
            Some(Ok(event)) => {
                self.queue.extend(self.line(&event));
                true
            }
        }
    }

    /// What an event is to somebody who sees only what is selected.
    fn line(&self, event: &Event) -> Option<Line> {
        let all = self.selection.is_all();
        let before = event.previous.as_ref().filter(|previous| all || self.selection.matches(previous));
        let after = event.kind != EventKind::Deleted && (all || self.selection.matches(&event.object));
        match (before, after) {
            (None, true) => Some(Line::Object("ADDED", event.object.clone(), None)),
            (Some(_), true) => Some(Line::Object("MODIFIED", event.object.clone(), None)),
            (Some(_), false) if event.kind == EventKind::Deleted => {
                Some(Line::Object("DELETED", event.object.clone(), None))
            }
            (Some(previous), false) => {
                Some(Line::Object("DELETED", previous.clone(), Some(event.revision.0)))
            }
            (None, false) => None,
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, line: Line) {
        let (word, object) = match line {
            Line::Object(word, stored, version) => match self.object(&stored, version) {
                Ok(object) => (word, object),
                Err(failure) => ("ERROR", written(&failure.status())),
            },
            Line::Bookmark(revision, initial) => ("BOOKMARK", self.bookmark_object(revision, initial)),
            Line::Error(failure) => ("ERROR", written(&failure.status())),
        };
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(br#"","object":"#);
        out.extend_from_slice(&object);
        out.extend_from_slice(b"}\n");
    }

    fn object(&mut self, stored: &Stored, version: Option<u64>) -> Result<Bytes, Failure> {
        let bytes = self.view().event_object(stored, version)?;
        if self.context.accept.shape != Shape::Table {
            return Ok(bytes);
        }
        Ok(self.without_repeated_headers(bytes))
    }

    /// The columns of a table are described once per watch.
    fn without_repeated_headers(&mut self, table: Bytes) -> Bytes {
        if !std::mem::replace(&mut self.headers_sent, true) {
            return table;
        }
        let Ok(mut table) = serde_json::from_slice::<Value>(&table) else { return table };
        table["columnDefinitions"] = Value::Null;
        written(&table)
    }

    fn view(&self) -> View<'_> {
        View {
            kind: &self.context.kind,
            accept: &self.context.accept,
            include: self.include,
            now: (self.context.clock)(),
            fresh: self.context.fresh,
        }
    }

    fn bookmark_object(&mut self, revision: Revision, initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let kind = &self.context.kind;
        let plain = json!({"kind": &*kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        let partial = || {
            let version = format!("meta.k8s.io/{}", self.context.accept.version);
            json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
        };
        match self.context.accept.shape {
            Shape::Whole | Shape::Discovery => written(&plain),
            Shape::Metadata => written(&partial()),
            Shape::Table => {
                let position = json!({"resourceVersion": revision.to_string()});
                let mut table =
                    table::render(kind, &[&plain], position, (self.context.clock)(), self.include);
                if let Some(row) = table["rows"].as_array_mut().and_then(|rows| rows.first_mut()) {
                    row["object"] = partial();
                }
                self.without_repeated_headers(written(&table))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drydock_access::{SigningKey, Tokens};
    use drydock_store::Store;
    use http::Method;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{accept, request, server};

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_was_found_before_its_definition_changed_is_watched_for_no_time() {
        let definition = |about: &str| {
            let names = json!({"plural": "tests", "kind": "Test"});
            let schema = json!({"openAPIV3Schema": {"type": "object", "description": about}});
            json!({
                "metadata": {"name": "tests.example.com"},
                "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": schema},
                ]},
                "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
            })
        };
        let tokens = Tokens::new(SigningKey::generate().unwrap());
        let store = Store::in_memory(drydock_store::Options::default());
        let api = Api::new(store, server::Options::new(Arc::new(tokens)));
        let install = |about: &str| {
            api.registry().install(&definition(about));
            api.registry().find("example.com", "v1", "tests").unwrap()
        };
        let ends = async |kind| {
            let path = "/apis/example.com/v1/tests?watch=1".parse().unwrap();
            let context = Context {
                api: api.clone(),
                groups: api.watching(),
                kind,
                namespace: None,
                fresh: None,
                accept: accept::JSON,
                clock: api.clock(),
                info: request::parse(&Method::GET, &path).unwrap(),
                user: String::new(),
                user_agent: String::new(),
                interceptor: None,
            };
            let body = watch(context).unwrap_or_else(|failure| panic!("{failure}")).into_body();
            tokio::time::timeout(Duration::from_secs(5), body.collect()).await.is_ok()
        };
        let before = install("before");
        assert!(!ends(before.clone()).await);
        let after = install("after");
        assert!(ends(before).await && !ends(after).await);
    }
}
