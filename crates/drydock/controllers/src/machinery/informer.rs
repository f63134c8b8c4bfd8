//! Follows one kind on the server: a list, then a watch from there, for as long as the process lives.
//!
//! # Guarantees
//! - Handlers see every object there is, then every change, in the order the server made them; after a gap
//!   they see the difference.
//! - An object that can't be read is left out, with a warning, and keeps no other from being seen.
//! - They are called after the cache has taken the change in, one after another, by one task.
//!
//! # Caveats
//! A handler must not wait for anything: it only puts keys on queues.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::AsyncBufReadExt;
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cache::{Cache, Change, Object};
use super::queue::Queue;
use super::rest::{Error, List, METADATA_LIST, METADATA_ONLY};
use crate::objects::resource::{Key, Resource};
use crate::objects::service::Bare;

/// Called on each change.
pub type Handler<T> = Box<dyn Fn(&Change<'_, T>) + Send + Sync>;

/// Objects per page of the first list: bounds what is held at once, and is client-go's number.
const PAGE: usize = 500;

/// How long one watch request lasts before it is asked anew, in seconds. Servers close theirs after an hour
/// at the latest; a shorter time would only be polling.
const WATCH_SECONDS: u64 = 1800;

/// Which part of the objects is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// Their metadata.
    Metadata,
}

impl Extent {
    fn accept(self, list: bool) -> &'static str {
        match (self, list) {
            (Self::Whole, _) => "application/json",
            (Self::Metadata, true) => METADATA_LIST,
            (Self::Metadata, false) => METADATA_ONLY,
        }
    }
}

/// One kind being followed.
pub struct Informer<T> {
    /// Where it lives.
    pub resource: Resource,
    /// Which part of it is wanted.
    pub extent: Extent,
    /// What is known of it.
    pub cache: Arc<Cache<T>>,
    /// Who wants to hear of changes.
    pub handlers: Vec<Handler<T>>,
}

impl<T: Object> Informer<T> {
    /// An informer nobody listens to yet.
    pub fn new(resource: Resource, extent: Extent) -> Self {
        Self { resource, extent, cache: Arc::default(), handlers: Vec::new() }
    }

    /// Has `handler` called on each change.
    pub fn on_change(&mut self, handler: impl Fn(&Change<'_, T>) + Send + Sync + 'static) {
        self.handlers.push(Box::new(handler));
    }

    /// Queues each object that comes, changes or goes.
    pub fn queue_each(&mut self, queue: &Arc<Queue<Key>>) {
        let keys = queue.clone();
        self.on_change(move |change| {
            if let Some(object) = change.latest() {
                keys.add(object.meta().key());
            }
        });
    }

    /// Follows the kind until told to stop.
    pub async fn run(self, client: Client, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.follow(client)).await;
    }

    async fn follow(self, client: Client) {
        let mut pause = Pause::default();
        loop {
            let mut version = match self.list(&client).await {
                Ok(version) => version,
                Err(error) => {
                    pause.wait(&self.resource, &error).await;
                    continue;
                }
            };
            self.cache.mark_synced();
            loop {
                let started = Instant::now();
                match self.watch(&client, &mut version, &mut pause).await {
                    // A server that ends watches as soon as they begin is not asked in a circle.
                    Ok(()) if started.elapsed() < Duration::from_secs(1) => pause.rest().await,
                    Ok(()) => {}
                    Err(error) if error.code() == Some(410) => break,
                    Err(error) => pause.wait(&self.resource, &error).await,
                }
            }
        }
    }

    /// Takes in all objects there are; those that are no more, go.
    async fn list(&self, client: &Client) -> Result<Box<str>, Error> {
        let mut gone: BTreeSet<_> = self.cache.keys().into_iter().collect();
        let mut page = String::new();
        loop {
            let path = format!("{}?limit={PAGE}{page}", self.resource.collection(""));
            let request = Request::get(path).header("accept", self.extent.accept(true));
            let request = request.body(Vec::new()).map_err(Error::Built)?;
            let text = client.request_text(request).await.map_err(Error::Request)?;
            let list: List<&RawValue> = serde_json::from_str(&text).map_err(malformed)?;
            for item in list.items {
                let Some(object) = self.read(item) else { continue };
                gone.remove(&object.meta().key());
                self.set(object);
            }
            if list.metadata.r#continue.is_empty() {
                let version = list.metadata.resource_version;
                for key in gone {
                    if let Some(before) = self.cache.remove(&key, 0) {
                        self.notify(Some(&before), None);
                    }
                }
                self.cache.advance(version.parse().unwrap_or(0));
                return Ok(version);
            }
            page = format!("&continue={}", list.metadata.r#continue);
        }
    }

    /// Takes in changes from `version` on, until the server ends the watch.
    async fn watch(&self, client: &Client, version: &mut Box<str>, pause: &mut Pause) -> Result<(), Error> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}",
            self.resource.collection("")
        );
        let request = Request::get(path).header("accept", self.extent.accept(false));
        let request = request.body(Vec::new()).map_err(Error::Built)?;
        let stream = client.request_stream(request).await.map_err(Error::Request)?;
        let mut stream = std::pin::pin!(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = stream.read_until(b'\n', &mut line).await;
            if read.map_err(|error| Error::Request(kube::Error::ReadEvents(error)))? == 0 {
                return Ok(());
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            *version = self.take_in(&line)?;
            pause.reset();
            // One large object must not keep its size for the life of the watch.
            line.shrink_to(64 * 1024);
        }
    }

    /// Takes in one line of a watch; returns the version it stands at.
    fn take_in(&self, line: &[u8]) -> Result<Box<str>, Error> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(borrow)]
            r#type: Cow<'a, str>,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let line: Line<'_> = serde_json::from_slice(line).map_err(malformed)?;
        match &*line.r#type {
            "ERROR" => {
                let status = serde_json::from_str(line.object.get()).map_err(malformed)?;
                Err(Error::Request(kube::Error::Api(Box::new(status))))
            }
            "BOOKMARK" => {
                let bare: Bare = serde_json::from_str(line.object.get()).map_err(malformed)?;
                self.cache.advance(bare.metadata.version());
                Ok(bare.metadata.resource_version)
            }
            change => {
                let Some(object) = self.read(line.object) else {
                    let bare: Bare = serde_json::from_str(line.object.get()).map_err(malformed)?;
                    return Ok(bare.metadata.resource_version);
                };
                let version = object.meta().resource_version.clone();
                if change == "DELETED" {
                    self.cache.remove(&object.meta().key(), object.meta().version());
                    self.notify(Some(&object), None);
                } else {
                    self.set(object);
                }
                Ok(version)
            }
        }
    }

    fn read(&self, object: &RawValue) -> Option<Arc<T>> {
        let read = serde_json::from_str(object.get());
        read.inspect_err(|error| tracing::warn!(resource = %self.resource, %error, "an object can't be read"))
            .ok()
            .map(Arc::new)
    }

    fn set(&self, object: Arc<T>) {
        let before = self.cache.set(object.clone());
        // A list after a gap brings mostly what is known already.
        if before
            .as_ref()
            .is_some_and(|before| before.meta().resource_version == object.meta().resource_version)
        {
            return;
        }
        match before {
            // Deleted and made again, unseen in between: two changes, not one.
            Some(before) if before.meta().uid != object.meta().uid => {
                self.notify(Some(&before), None);
                self.notify(None, Some(&object));
            }
            before => self.notify(before.as_ref(), Some(&object)),
        }
    }

    fn notify(&self, before: Option<&Arc<T>>, after: Option<&Arc<T>>) {
        for handler in &self.handlers {
            handler(&Change { before, after });
        }
    }
}

fn malformed(error: serde_json::Error) -> Error {
    Error::Request(kube::Error::SerdeError(error))
}

/// The pause after a failure: doubles from a twentieth of a second up to half a minute.
#[derive(Default)]
struct Pause(u32);

impl Pause {
    fn reset(&mut self) {
        self.0 = 0;
    }

    async fn wait(&mut self, resource: &Resource, error: &Error) {
        if self.0 > 2 {
            tracing::warn!(%resource, %error, "cannot be watched");
        }
        self.rest().await;
    }

    async fn rest(&mut self) {
        let pause =
            Duration::from_millis(50).saturating_mul(1 << self.0.min(10)).min(Duration::from_secs(30));
        self.0 += 1;
        tokio::time::sleep(pause).await;
    }
}
