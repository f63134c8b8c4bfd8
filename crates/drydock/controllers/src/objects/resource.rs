//! Which kind of object, and where it lives in the API.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A kind with its address in the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version used for requests.
    pub version: Cow<'static, str>,
    /// The kind, as written in manifests.
    pub kind: Cow<'static, str>,
    /// The plural, as written in paths.
    pub plural: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// A built-in resource.
    pub const fn fixed(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The same kind, whatever the version.
    pub fn same_kind(&self, other: &Resource) -> bool {
        self.group == other.group && self.plural == other.plural
    }

    /// The path of the collection: of one namespace, or of the whole cluster when `namespace` is empty.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis/" };
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        if self.namespaced && !namespace.is_empty() {
            format!("{root}{group}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("{root}{group}/{version}/{plural}")
        }
    }

    /// The path of one object, or of one of its subresources.
    pub fn object(&self, key: &Key, subresource: Option<&str>) -> String {
        let mut path = self.collection(&key.namespace);
        path.push('/');
        path.push_str(&key.name);
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(subresource);
        }
        path
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            out.write_str(&self.plural)
        } else {
            write!(out, "{}.{}", self.plural, self.group)
        }
    }
}

/// The place of an object among those of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of this name in this namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            out.write_str(&self.name)
        } else {
            write!(out, "{}/{}", self.namespace, self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_kubernetes_api() {
        let pods = Resource::fixed("", "v1", "Pod", "pods", true);
        let sets = Resource::fixed("apps", "v1", "ReplicaSet", "replicasets", true);
        let nodes = Resource::fixed("", "v1", "Node", "nodes", false);
        assert_eq!(pods.collection(""), "/api/v1/pods");
        assert_eq!(pods.collection("a"), "/api/v1/namespaces/a/pods");
        assert_eq!(
            sets.object(&Key::new("a", "x"), Some("status")),
            "/apis/apps/v1/namespaces/a/replicasets/x/status"
        );
        assert_eq!(nodes.object(&Key::new("", "n"), None), "/api/v1/nodes/n");
    }
}
