//! The kinds a cluster has at the moment: built-in ones, and those that definitions add and take away.
//!
//! The list comes from discovery. It is read anew when a definition begins or ends to be served, and by
//! whoever must not miss a kind. Each kind that is deletable and watchable is followed, with its metadata
//! only, unless the process follows it anyway.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery, GroupVersionKind};
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::machinery::informer::{Extent, Informer};
use crate::machinery::rest::Error;
use crate::objects::meta::Meta;
use crate::objects::resource::Resource;
use crate::objects::service::{Bare, Definition};

/// Kinds that come and go in numbers and that nobody owns: Kubernetes leaves them out as well.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Definitions often come several at once; the list is read once for all of them.
const SETTLE: Duration = Duration::from_millis(50);

/// One kind, as discovery tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The kind, in the version that is preferred.
    pub resource: Resource,
    /// All versions that are served.
    pub versions: Vec<String>,
    /// What can be done with it.
    pub verbs: Vec<String>,
    /// Whether it tells and takes its size as a `Scale`.
    pub scales: bool,
}

impl Offered {
    /// Whether it can be dealt with like this.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }
}

/// The kinds a cluster has.
#[derive(Default)]
pub struct Inventory {
    kinds: RwLock<Arc<[Offered]>>,
    /// Whether the list was ever read.
    read: watch::Sender<bool>,
    /// Held while it is read: of two readings at a time the older could come last.
    reading: tokio::sync::Mutex<()>,
    outdated: Notify,
    listeners: RwLock<Vec<Box<dyn Fn() + Send + Sync>>>,
}

/// Told of each object of each followed kind: its metadata before and after.
pub type Feed = Arc<dyn Fn(&Resource, Option<&Meta>, Option<&Meta>) + Send + Sync>;

impl Inventory {
    /// All kinds, as last read.
    pub fn kinds(&self) -> Arc<[Offered]> {
        self.kinds.read().clone()
    }

    /// Becomes true when the list has been read for the first time: before, it has no kind at all.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.read.subscribe()
    }

    /// The kind an owner reference names, if it is served in that version.
    pub fn find(&self, group: &str, version: &str, kind: &str) -> Option<Offered> {
        let kinds = self.kinds();
        let found = kinds.iter().find(|offered| {
            let resource = &offered.resource;
            resource.group == group
                && resource.kind == kind
                && offered.versions.iter().any(|own| own == version)
        });
        found.cloned()
    }

    /// Has the list read anew when a definition begins or ends to be served.
    pub fn listen(self: &Arc<Self>, definitions: &mut Informer<Definition>) {
        let inventory = self.clone();
        definitions.on_change(move |change| {
            let offer = |one: Option<&Arc<Definition>>| one.map(|one| (one.spec.clone(), one.offer().1));
            if offer(change.before) != offer(change.after) {
                inventory.outdated.notify_one();
            }
        });
    }

    /// Has `listener` called when kinds came or went.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// Reads the list anew.
    pub async fn refresh(&self, client: &Client) -> Result<Arc<[Offered]>, Error> {
        let _alone = self.reading.lock().await;
        let kinds: Arc<[Offered]> = discover(client).await?.into();
        let before = std::mem::replace(&mut *self.kinds.write(), kinds.clone());
        if before != kinds {
            self.listeners.read().iter().for_each(|listener| listener());
        }
        self.read.send_replace(true);
        Ok(kinds)
    }

    /// Follows every kind until told to stop, except those that are followed `already`. `listed` is told
    /// when all kinds that were there at the start have been listed, those included.
    pub async fn run(
        self: Arc<Self>,
        client: Client,
        already: Vec<(Resource, watch::Receiver<bool>)>,
        feed: Feed,
        listed: watch::Sender<bool>,
        shutdown: CancellationToken,
    ) {
        let mut followed: Vec<Followed> = Vec::new();
        let mut tasks = JoinSet::new();
        let mut pause = SETTLE;
        loop {
            match self.refresh(&client).await {
                Ok(kinds) => {
                    pause = SETTLE;
                    let wanted = kinds.iter().filter(|kind| watchable(kind)).map(|kind| &kind.resource);
                    let wanted: BTreeSet<_> = wanted
                        .filter(|kind| already.iter().all(|(own, _)| !own.same_kind(kind)))
                        .cloned()
                        .collect();
                    followed.retain(|old| wanted.contains(&old.resource) || old.end(&feed));
                    for resource in wanted {
                        if followed.iter().all(|old| old.resource != resource) {
                            followed.push(Followed::start(resource, &client, &feed, &shutdown, &mut tasks));
                        }
                    }
                    if !*listed.borrow() {
                        let all = already.iter().map(|(_, ready)| ready.clone());
                        let all: Vec<_> = all.chain(followed.iter().map(|one| one.cache.ready())).collect();
                        let listed = listed.clone();
                        tasks.spawn(async move {
                            for mut ready in all {
                                // It fails only when the other side is gone: a kind that went again.
                                let _ = ready.wait_for(|ready| *ready).await;
                            }
                            listed.send_replace(true);
                        });
                    }
                }
                Err(_) if shutdown.is_cancelled() => return,
                Err(error) => {
                    tracing::warn!(%error, "the kinds of the cluster can't be read");
                    pause = (pause * 2).min(Duration::from_secs(30));
                    self.outdated.notify_one();
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.outdated.notified() => {
                    shutdown.run_until_cancelled(tokio::time::sleep(pause)).await;
                }
            }
            while tasks.try_join_next().is_some() {}
        }
    }
}

/// A kind being followed for its metadata.
struct Followed {
    resource: Resource,
    cache: Arc<crate::machinery::cache::Cache<Bare>>,
    stop: CancellationToken,
}

impl Followed {
    fn start(
        resource: Resource,
        client: &Client,
        feed: &Feed,
        shutdown: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let mut informer = Informer::<Bare>::new(resource.clone(), Extent::Metadata);
        let (feed, kind) = (feed.clone(), resource.clone());
        informer.on_change(move |change| {
            feed(&kind, change.before.map(|one| &one.metadata), change.after.map(|one| &one.metadata));
        });
        let (cache, stop) = (informer.cache.clone(), shutdown.child_token());
        tasks.spawn(informer.run(client.clone(), stop.clone()));
        Self { resource, cache, stop }
    }

    /// Follows the kind no longer: it is gone, and with it all its objects.
    fn end(&self, feed: &Feed) -> bool {
        self.stop.cancel();
        for object in self.cache.all(|_| true) {
            feed(&self.resource, Some(&object.metadata), None);
        }
        false
    }
}

fn watchable(kind: &Offered) -> bool {
    ["delete", "list", "watch"].iter().all(|verb| kind.can(verb))
        && !IGNORED.contains(&(&*kind.resource.group, &*kind.resource.plural))
}

/// Reads the kinds of the cluster, each in its preferred version.
pub async fn discover(client: &Client) -> Result<Vec<Offered>, Error> {
    let core = client.list_core_api_versions_aggregated().await.map_err(Error::Request)?;
    let groups = client.list_api_groups_aggregated().await.map_err(Error::Request)?;
    let mut kinds = offered(&core);
    kinds.extend(offered(&groups));
    Ok(kinds)
}

/// Versions come in order of preference: the first that has a resource names it.
fn offered(list: &APIGroupDiscoveryList) -> Vec<Offered> {
    let mut kinds: Vec<Offered> = Vec::new();
    for group in &list.items {
        let name = group.metadata.as_ref().and_then(|meta| meta.name.clone()).unwrap_or_default();
        for version in &group.versions {
            let served = version.version.clone().unwrap_or_default();
            for resource in &version.resources {
                let (Some(plural), Some(kind)) = (
                    resource.resource.clone(),
                    resource.response_kind.as_ref().and_then(|kind| kind.kind.clone()),
                ) else {
                    continue;
                };
                let known =
                    kinds.iter_mut().find(|one| one.resource.group == name && one.resource.plural == plural);
                if let Some(known) = known {
                    known.versions.push(served.clone());
                    continue;
                }
                let resource_of = Resource {
                    group: name.clone().into(),
                    version: served.clone().into(),
                    kind: kind.into(),
                    plural: plural.into(),
                    namespaced: resource.scope.as_deref() == Some("Namespaced"),
                };
                let (versions, verbs) = (vec![served.clone()], resource.verbs.clone());
                kinds.push(Offered { resource: resource_of, versions, verbs, scales: has_scale(resource) });
            }
        }
    }
    kinds
}

fn has_scale(resource: &APIResourceDiscovery) -> bool {
    let is_scale = |kind: &GroupVersionKind| {
        kind.group.as_deref() == Some("autoscaling") && kind.kind.as_deref() == Some("Scale")
    };
    resource.subresources.iter().any(|one| {
        one.subresource.as_deref() == Some("scale") && one.response_kind.as_ref().is_some_and(is_scale)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_listed_once_in_the_version_that_is_preferred() {
        let list: APIGroupDiscoveryList = serde_json::from_str(
            r#"{"items":[{"metadata":{"name":"x.io"},"versions":[
                {"version":"v2","resources":[{"resource":"things","responseKind":{"kind":"Thing"},"scope":"Namespaced","verbs":["list","watch","delete"],
                    "subresources":[{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get"]}]}]},
                {"version":"v1","resources":[
                    {"resource":"things","responseKind":{"kind":"Thing"},"scope":"Namespaced","verbs":["list"]},
                    {"resource":"others","responseKind":{"kind":"Other"},"scope":"Cluster","verbs":["create"]}]}]}]}"#,
        )
        .unwrap();
        let kinds = offered(&list);
        let told: Vec<_> = kinds
            .iter()
            .map(|kind| {
                format!(
                    "{} {} {:?} {} {} {}",
                    kind.resource,
                    kind.resource.version,
                    kind.versions,
                    kind.resource.namespaced,
                    watchable(kind),
                    kind.scales
                )
            })
            .collect();
        assert_eq!(
            told.join("\n"),
            "things.x.io v2 [\"v2\", \"v1\"] true true true\nothers.x.io v1 [\"v1\"] false false false"
        );
        let inventory = Inventory::default();
        *inventory.kinds.write() = kinds.into();
        assert!(inventory.find("x.io", "v1", "Thing").is_some());
        assert!(inventory.find("x.io", "v3", "Thing").is_none());
    }
}
