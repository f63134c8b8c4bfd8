//! The kinds that are served.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use serde_json::Value;

use crate::{Kind, crd, row};

/// One API group and its served versions, the preferred first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// The name; empty for the core group.
    pub name: String,
    /// Versions by Kubernetes' priority: stable before beta before alpha, newer before older.
    pub versions: Vec<String>,
}

/// The kinds that are served: the built-in ones, and those of established definitions.
#[derive(Debug)]
pub struct Registry {
    kinds: RwLock<Kinds>,
    generation: AtomicU64,
}

/// By group, then version, then plural: each can be looked up by borrowed text.
type ByPlural = BTreeMap<Arc<str>, Arc<Kind>>;
type ByVersion = BTreeMap<Arc<str>, ByPlural>;

#[derive(Debug, Default)]
struct Kinds {
    by_group: BTreeMap<Arc<str>, ByVersion>,
    /// Which kinds a definition brought along.
    by_definition: BTreeMap<String, Vec<Arc<Kind>>>,
}

impl Registry {
    /// The built-in kinds.
    #[must_use]
    pub fn builtin() -> Self {
        let mut kinds = Kinds::default();
        for kind in row::kinds() {
            kinds.insert(kind);
        }
        Self { kinds: RwLock::new(kinds), generation: AtomicU64::new(1) }
    }

    /// The kind at `/apis/{group}/{version}/…/{plural}`.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds.read().by_group.get(group)?.get(version)?.get(plural).cloned()
    }

    /// The kind of objects with `apiVersion: {group}/{version}` and `kind: {kind}`.
    #[must_use]
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Kind>> {
        let kinds = self.kinds.read();
        kinds.by_group.get(group)?.get(version)?.values().find(|known| &*known.kind == kind).cloned()
    }

    /// Serves what `crd` defines, in place of what it defined before. Nothing is served of a
    /// definition that is not established or that can't be understood.
    pub fn install(&self, crd: &Value) {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let new = crd::kinds_of(crd);
        let mut kinds = self.kinds.write();
        kinds.remove_definition(&name);
        let installed = new.into_iter().map(|kind| kinds.insert(kind)).collect();
        kinds.by_definition.insert(name, installed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// No longer serves what the definition of this name defined.
    pub fn uninstall(&self, crd_name: &str) {
        if self.kinds.write().remove_definition(crd_name) {
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// All kinds, by group, version and plural.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Kind>> {
        self.kinds.read().iter().cloned().collect()
    }

    /// The kinds of one group and version, by plural.
    #[must_use]
    pub fn of(&self, group: &str, version: &str) -> Vec<Arc<Kind>> {
        let kinds = self.kinds.read();
        let found = kinds.by_group.get(group).and_then(|versions| versions.get(version));
        found.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// All groups, the core group first, then by name.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupInfo> {
        let kinds = self.kinds.read();
        let served = kinds.by_group.iter().map(|(name, versions)| {
            let mut versions: Vec<_> = versions.keys().map(ToString::to_string).collect();
            versions.sort_by(|a, b| crd::version_priority(b).cmp(&crd::version_priority(a)).then(a.cmp(b)));
            GroupInfo { name: name.to_string(), versions }
        });
        served.collect()
    }

    /// Moves on whenever the served kinds change, so that documents made of them can be kept.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

impl Kinds {
    fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_group.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values)
    }

    fn insert(&mut self, kind: Kind) -> Arc<Kind> {
        let kind = Arc::new(kind);
        let versions = self.by_group.entry(kind.group.clone()).or_default();
        versions.entry(kind.version.clone()).or_default().insert(kind.plural.clone(), kind.clone());
        kind
    }

    /// Groups and versions that are left without kinds go too.
    fn remove_definition(&mut self, name: &str) -> bool {
        let Some(kinds) = self.by_definition.remove(name) else { return false };
        for kind in &kinds {
            let Some(versions) = self.by_group.get_mut(&kind.group) else { continue };
            if let Some(plurals) = versions.get_mut(&kind.version) {
                plurals.remove(&kind.plural);
            }
            versions.retain(|_, plurals| !plurals.is_empty());
        }
        self.by_group.retain(|_, versions| !versions.is_empty());
        true
    }
}
