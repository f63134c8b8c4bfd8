//! Short words for the tests of the store.

use std::sync::Arc;

use drydock_store::{
    Change, CommitError, Draft, Event, Expect, Facets, Key, Page, Range, Revision, Store, Stored,
};
use futures::{FutureExt, StreamExt};

pub fn key(resource: &str, namespace: &str, name: &str) -> Key {
    Key::new(resource, namespace, name)
}

pub fn draft(text: &str) -> Draft {
    Draft {
        head: format!("{text}@").into_bytes(),
        tail: b"!".to_vec(),
        facets: Facets::new([("text", text)], [("metadata.name", "n")]),
    }
}

pub fn range(resource: &str, namespace: Option<&str>) -> Range {
    Range { resource: resource.into(), namespace: namespace.map(Arc::from) }
}

pub fn text(stored: &Stored) -> String {
    String::from_utf8(stored.value.to_vec()).unwrap()
}

pub async fn put(store: &Store, name: &str, value: &str) -> Result<Arc<Stored>, CommitError> {
    store.commit(key("/pods", "default", name), Expect::Any, Change::Put(draft(value))).await
}

pub async fn delete(store: &Store, name: &str) -> Result<Arc<Stored>, CommitError> {
    store.commit(key("/pods", "default", name), Expect::Any, Change::Delete(draft("gone"))).await
}

pub fn names(store: &Store, at: Option<Revision>) -> String {
    let listing = store.list(&range("/pods", None), Page { at, ..Page::default() }).unwrap();
    listing.items.iter().map(|item| format!("{}={}", item.key.name, text(item))).collect::<Vec<_>>().join(" ")
}

/// What a watch has to say without waiting.
pub fn drain(watch: &mut drydock_store::Watch) -> Vec<Arc<Event>> {
    let mut events = Vec::new();
    while let Some(Some(event)) = watch.next().now_or_never() {
        events.push(event.unwrap());
    }
    events
}
