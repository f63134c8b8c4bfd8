//! Which object of a kind: namespace and name.

use std::{fmt, sync::Arc};

/// Which object of a kind: namespace and name. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace, unless its kind has none.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// The object with this namespace and name.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Key { namespace: namespace.map(Arc::from), name: Arc::from(name) }
    }

    /// The same name in the same place, for a kind that may have no namespaces.
    pub(crate) fn beside(&self, name: &str, namespaced: bool) -> Self {
        Key { namespace: self.namespace.clone().filter(|_| namespaced), name: Arc::from(name) }
    }
}

impl fmt::Display for Key {
    /// `default/sample`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
