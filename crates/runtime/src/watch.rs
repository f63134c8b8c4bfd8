//! One watch per kind and namespace, shared by all operators of the process.
//!
//! A watch that breaks is begun again from where it was; one that can't be, from a new list. That is kube's
//! `watcher`; here its events go into a [`Cache`], and a server that refuses is asked again ever later. One that says
//! nothing may have died: where a plan finds that it is behind, it is begun anew from a list.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use ballast_operator::{How, KindRef, Relation};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ObjectMeta},
    core::{ApiResource, DynamicResourceScope},
    runtime::watcher,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    cache::{Cache, Listener, Policy, Shown},
    failure::{answer, words},
    key::Key,
    sources::{Random, fraction},
    telling::News,
};

/// The first pause after a watch failed. A cut connection is back within it.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause: short enough that a definition that was missing is found soon after it is installed.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a list is new. Whoever finds it behind sooner is told nothing newer.
const NEW: Duration = Duration::from_secs(1);

/// Where resources are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// Everywhere.
    #[default]
    All,
    /// In these only.
    These(Vec<String>),
}

impl Namespaces {
    /// What `WATCH_NAMESPACE` says: names separated by commas; empty for everywhere.
    pub fn parse(text: &str) -> Self {
        let mut names: Vec<String> =
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Namespaces::All } else { Namespaces::These(names) }
    }

    fn names(&self) -> Vec<Arc<str>> {
        match self {
            Namespaces::All => Vec::new(),
            Namespaces::These(names) => names.iter().map(|name| Arc::from(name.as_str())).collect(),
        }
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Namespaces::All => f.write_str("all"),
            Namespaces::These(names) => f.write_str(&names.join(",")),
        }
    }
}

/// How the API addresses a kind.
pub(crate) fn api_resource(kind: &KindRef) -> ApiResource {
    ApiResource {
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        api_version: kind.api_version(),
        kind: kind.kind.to_string(),
        plural: kind.plural.to_string(),
    }
}

/// The path of a kind's collection.
pub(crate) fn url(kind: &KindRef, namespace: Option<&str>) -> String {
    DynamicObject::url_path(&api_resource(kind), namespace.filter(|_| kind.namespaced))
}

/// What is to be watched, gathered from all operators before anything is.
#[derive(Default)]
pub(crate) struct Wanted {
    policies: BTreeMap<KindRef, Policy>,
}

impl Wanted {
    /// One operator's resource and everything that has to do with it.
    pub(crate) fn add(&mut self, resource: &KindRef, relations: &[Relation]) {
        self.policies.entry(resource.clone()).or_default().primary = true;
        for relation in relations {
            let policy = self.policies.entry(relation.kind.clone()).or_default();
            policy.selectors.insert(relation.selector().map(str::to_owned));
            policy.secret = relation.kind == KindRef::of::<Secret>();
            match &relation.how {
                How::Owned => {
                    policy.owners.insert((resource.group.to_string(), resource.kind.to_string()));
                    policy.applied = true;
                }
                How::Kept { label } => {
                    policy.want_label(label);
                    policy.applied = true;
                }
                How::Observed { label } => policy.want_label(label),
            }
        }
    }

    /// Empty caches for all of it. `listeners` is asked once per kind, with the labels that its cache keeps.
    pub(crate) fn caches(
        self,
        namespaces: &Namespaces,
        listeners: impl Fn(&KindRef, &[String]) -> Vec<Listener>,
    ) -> Caches {
        let names = namespaces.names();
        let cache = |(kind, policy): (KindRef, Policy)| {
            let listeners = listeners(&kind, &policy.labels);
            let cache = Cache::new(kind.clone(), policy, &names, listeners);
            (kind, Arc::new(cache))
        };
        Caches { by_kind: self.policies.into_iter().map(cache).collect() }
    }
}

impl Policy {
    fn want_label(&mut self, label: &str) {
        if !self.labels.iter().any(|known| known == label) {
            self.labels.push(label.to_owned());
        }
    }
}

/// The caches of all kinds.
pub(crate) struct Caches {
    by_kind: BTreeMap<KindRef, Arc<Cache>>,
}

impl Caches {
    /// The cache of a kind, where some operator named it.
    pub(crate) fn of(&self, kind: &KindRef) -> Option<&Arc<Cache>> {
        self.by_kind.get(kind)
    }

    /// The kinds whose objects are not all known yet.
    pub(crate) fn missing(&self) -> Vec<&KindRef> {
        self.by_kind.values().filter(|cache| !cache.synced()).map(|cache| &cache.kind).collect()
    }

    /// Waits until all are known.
    pub(crate) async fn wait_synced(&self) {
        for cache in self.by_kind.values() {
            cache.wait_synced().await;
        }
    }

    /// The watches that feed the caches. Each runs for ever.
    pub(crate) fn feeds(
        &self,
        client: &Client,
        random: &Arc<dyn Random>,
    ) -> Vec<impl Future<Output = ()> + Send + 'static> {
        let mut feeds = Vec::new();
        for cache in self.by_kind.values() {
            for (stream, scope) in cache.scopes().into_iter().enumerate() {
                feeds.push(feed(client.clone(), Arc::clone(cache), stream, scope, Arc::clone(random)));
            }
        }
        feeds
    }
}

async fn feed(
    client: Client,
    cache: Arc<Cache>,
    stream: usize,
    scope: Option<Arc<str>>,
    random: Arc<dyn Random>,
) {
    let kind = api_resource(&cache.kind);
    let api: Api<Wire> = match &scope {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    };
    let mut config = watcher::Config::default();
    if let Some(label) = cache.policy.selector() {
        config = config.labels(label);
    }
    let watch = || watcher(api.clone(), config.clone()).boxed();
    let mut events = watch();
    let (mut listed, mut listed_at) = (Vec::new(), Instant::now());
    let mut pause = FIRST_PAUSE;
    let mut news = News::default();
    let mut behind = cache.behind();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            Ok(()) = behind.changed() => {
                if listed_at.elapsed() >= NEW {
                    tracing::info!(kind = %cache.kind, namespace = scope.as_deref(), "is behind, and listed anew");
                    (events, listed_at) = (watch(), Instant::now());
                }
                continue;
            }
        };
        let Some(event) = event else { return };
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => listed.push(object.shown()),
            Ok(watcher::Event::InitDone) => {
                if news.over() {
                    tracing::info!(kind = %cache.kind, namespace = scope.as_deref(), "watches again");
                }
                tracing::debug!(kind = %cache.kind, objects = listed.len(), "listed");
                cache.replace(stream, std::mem::take(&mut listed));
                (pause, listed_at) = (FIRST_PAUSE, Instant::now());
            }
            Ok(watcher::Event::Apply(object)) => {
                cache.show(stream, object.shown());
                pause = FIRST_PAUSE;
            }
            Ok(watcher::Event::Delete(object)) => {
                cache.lose(stream, object.shown());
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                let trouble = Trouble::of(&cache, &error);
                // Watches end all the time; only one that is refused, or keeps failing, is worth a line.
                if (trouble.refused || pause > FIRST_PAUSE) && news.is(&trouble.text, Instant::now()) {
                    let (kind, namespace) = (&cache.kind, scope.as_deref());
                    tracing::warn!(%kind, namespace, error = trouble.text, "can't watch");
                }
                tokio::time::sleep(pause.mul_f64(0.5 + fraction(&*random))).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Why a watch failed.
struct Trouble {
    /// In words for people, with what to do about it where that is known.
    text: String,
    /// Whether the server said no, and will say so again.
    refused: bool,
}

impl Trouble {
    fn of(cache: &Cache, error: &watcher::Error) -> Self {
        use watcher::Error::{
            InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
        };
        let status = match error {
            InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status))
            | WatchError(status) => Some(status),
            _ => None,
        };
        let code = status.map_or(0, |status| status.code);
        let text = match error {
            _ if code == 404 => not_served(cache),
            InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => words(error),
            WatchError(status) => answer(status),
            NoResourceVersion => "the server's answer has no resourceVersion".to_owned(),
        };
        // 410 asks for a new list, 408 and 429 for a moment.
        Trouble { text, refused: (400..500).contains(&code) && !matches!(code, 408 | 410 | 429) }
    }
}

/// A collection always is there, however empty, where its kind is known.
fn not_served(cache: &Cache) -> String {
    let KindRef { group, version, plural, .. } = &cache.kind;
    if cache.policy.primary {
        let install = "`ballast crds | kubectl apply --server-side -f -` installs it";
        format!("the definition {plural}.{group} is not installed; {install}")
    } else if group.is_empty() {
        format!("the server does not know {plural} in {version}")
    } else {
        format!("the server does not know {plural}.{group} in {version}")
    }
}

/// An object on its way from a watch into a cache: the JSON, and the few facts that kube's watcher looks at.
#[derive(Clone, Debug)]
struct Wire {
    meta: ObjectMeta,
    value: Value,
}

impl Wire {
    fn shown(self) -> Shown {
        let key = Key::new(self.meta.namespace.as_deref(), self.meta.name.as_deref().unwrap_or_default());
        Shown { key, value: self.value }
    }
}

impl<'de> Deserialize<'de> for Wire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = |field: &str| value.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        let meta = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Wire { meta, value })
    }
}

impl Resource for Wire {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.kind)
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.group)
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.version)
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_to_watch_are_a_list_with_commas() {
        assert_eq!(Namespaces::parse(""), Namespaces::All);
        assert_eq!(Namespaces::parse(" , "), Namespaces::All);
        assert_eq!(Namespaces::parse("b, a,b"), Namespaces::These(vec!["a".into(), "b".into()]));
        assert_eq!(Namespaces::parse("b, a,b").to_string(), "a,b");
    }
}
