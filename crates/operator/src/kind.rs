//! Kinds, and how an operator's resource relates to them.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// Whether a kind lives in namespaces, as a fact of its type.
pub trait Scope {
    /// True for kinds that live in namespaces.
    const NAMESPACED: bool;
}

impl Scope for k8s_openapi::NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scope for k8s_openapi::ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// A kind of object as a client addresses it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KindRef {
    /// `apps`; empty for the core group.
    pub group: Cow<'static, str>,
    /// `v1`.
    pub version: Cow<'static, str>,
    /// `Deployment`.
    pub kind: Cow<'static, str>,
    /// `deployments`, as in addresses and RBAC.
    pub plural: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl KindRef {
    /// The kind of a type.
    pub fn of<K>() -> Self
    where
        K: kube_core::Resource<DynamicType = ()>,
        K::Scope: Scope,
    {
        KindRef {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
            namespaced: K::Scope::NAMESPACED,
        }
    }

    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether an object that names itself so is of this kind.
    pub fn is(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kind == kind && self.group == group && self.version == version
    }
}

impl fmt::Display for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)
    }
}

/// How the objects of a kind belong to a resource.
///
/// Where a label is named, a field of the object can be named instead: `.spec.instance`. No label begins with a dot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Made by the operator and easily remade. Carries a controller owner reference to the resource, is found
    /// by it, and is garbage collected with it.
    Owned,
    /// Holds data. Carries no owner reference, so that garbage collection can't take it; is found by a label
    /// whose value is the resource's name, and goes only by a `Remove` with a [`DataReason`](crate::DataReason).
    Kept {
        /// The label.
        label: Cow<'static, str>,
    },
    /// Made by somebody else, such as the pods of a Deployment, and only looked at; where plans may remove such
    /// objects, whoever made them makes them anew. Found by a label whose value is the resource's name.
    Observed {
        /// The label.
        label: Cow<'static, str>,
    },
}

/// One kind that has to do with a resource, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// The kind.
    pub kind: KindRef,
    /// How its objects belong to the resource.
    pub how: How,
    /// Whether plans may remove such objects. What is never removed needs no permission to be.
    pub removes: bool,
    /// Whether what such objects log is read. Of pods.
    pub logs: bool,
    /// A selector of labels that all such objects match: nothing else of the kind is watched, where all relations to it
    /// say the same.
    pub within: Option<Cow<'static, str>>,
}

/// The [selector](Relation::within) of everything that operators make.
pub const MANAGED: &str = "app.kubernetes.io/managed-by=ballast";

impl Relation {
    /// Objects of this type are made by the operator and belong to the resource.
    pub fn owned<K>() -> Self
    where
        K: kube_core::Resource<DynamicType = ()>,
        K::Scope: Scope,
    {
        Relation::new(KindRef::of::<K>(), How::Owned)
    }

    /// Objects of this type hold the resource's data.
    pub fn kept<K>(label: &'static str) -> Self
    where
        K: kube_core::Resource<DynamicType = ()>,
        K::Scope: Scope,
    {
        Relation::new(KindRef::of::<K>(), How::Kept { label: label.into() })
    }

    /// Objects of this type are only looked at, unless they are [removable](Relation::removable).
    pub fn observed<K>(label: &'static str) -> Self
    where
        K: kube_core::Resource<DynamicType = ()>,
        K::Scope: Scope,
    {
        Relation::new(KindRef::of::<K>(), How::Observed { label: label.into() })
    }

    fn new(kind: KindRef, how: How) -> Self {
        Relation { kind, how, removes: false, logs: false, within: None }
    }

    /// All such objects match this selector of labels. What stands under a claimed name and does not is looked for
    /// before something is made there.
    #[must_use]
    pub fn within(mut self, selector: &'static str) -> Self {
        self.within = Some(selector.into());
        self
    }

    /// Plans may also remove such objects.
    #[must_use]
    pub fn removable(mut self) -> Self {
        self.removes = true;
        self
    }

    /// What such objects log is read too.
    #[must_use]
    pub fn with_logs(mut self) -> Self {
        self.logs = true;
        self
    }

    /// What the operator must be permitted to do with objects of this kind, and nothing beyond.
    ///
    /// A server-side apply is a `patch`, and a `create` where there is nothing yet.
    pub fn verbs(&self) -> Vec<&'static str> {
        let mut verbs = vec!["get", "list", "watch"];
        if !matches!(self.how, How::Observed { .. }) {
            verbs.extend(["create", "patch"]);
        }
        if self.removes {
            verbs.push("delete");
        }
        verbs
    }

    /// What all such objects match, where that is known: what is only looked at has the label that it is found by.
    pub fn selector(&self) -> Option<&str> {
        let found_by = match &self.how {
            How::Observed { label } if !label.starts_with('.') => Some(&**label),
            _ => None,
        };
        self.within.as_deref().or(found_by)
    }

    /// The label by which objects are found, where they are found by one.
    pub fn label(&self) -> Option<&str> {
        match &self.how {
            How::Owned => None,
            How::Kept { label } | How::Observed { label } => Some(label),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};

    use super::*;

    #[test]
    fn a_kind_knows_its_address_from_its_type() {
        let kind = KindRef::of::<Deployment>();
        assert_eq!(
            (kind.api_version().as_str(), &*kind.plural, kind.namespaced),
            ("apps/v1", "deployments", true)
        );
        assert!(kind.is("apps/v1", "Deployment"));
        assert!(!kind.is("v1", "Deployment"));
        assert_eq!(KindRef::of::<Pod>().api_version(), "v1");
    }

    #[test]
    fn permissions_follow_from_the_relation() {
        assert_eq!(Relation::observed::<Pod>("app").verbs(), ["get", "list", "watch"]);
        assert_eq!(Relation::owned::<Deployment>().verbs(), ["get", "list", "watch", "create", "patch"]);
        assert!(Relation::owned::<Deployment>().removable().verbs().contains(&"delete"));
        assert_eq!(Relation::observed::<Pod>("app").removable().verbs(), ["get", "list", "watch", "delete"]);
    }
}
