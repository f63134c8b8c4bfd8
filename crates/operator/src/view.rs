//! What was seen, as one value.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Failure, KindRef, Object, Scope, Unreadable, rivals};

/// Everything a decision may look at: the resource, its children from the caches, what came of the last round,
/// and the time.
///
/// The runtime guarantees that a view is never older than its own last write to anything in it.
#[derive(Clone, Debug)]
pub struct View<R> {
    /// The resource as the server last said it to be.
    pub resource: R,
    /// The objects that have to do with it: those it controls, those that carry its label, those under the names
    /// it claims.
    pub children: Children,
    /// What came of the steps of the last round in this process. `None` in the first.
    pub last_outcome: Option<Outcome>,
    /// The time of the decision. The only clock there is.
    pub now: Timestamp,
}

/// What came of the steps of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The step that failed, after which none was carried out but the status and what tells of it.
    pub failed: Option<Failed>,
    /// Fields that someone else keeps writing over.
    pub contested: Vec<Contest>,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Which one, as [`Step::headline`](crate::Step::headline) says it: `apply Deployment default/sample`.
    pub step: String,
    /// How.
    pub failure: Failure,
    /// How many rounds in a row it has failed so: 1 the first time.
    pub times: u32,
}

impl Failed {
    /// Whether the step was the apply of this object.
    pub fn is_apply_of(&self, object: &Object) -> bool {
        self.step.strip_prefix("apply ").is_some_and(|subject| subject == object.to_string())
    }
}

/// A field that someone else keeps writing over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contest {
    /// The object: `Deployment default/sample`.
    pub object: String,
    /// The field: `.spec.replicas`.
    pub path: String,
    /// Who else writes it.
    pub manager: String,
    /// How often it flipped.
    pub times: u32,
}

/// What stands under a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<K> {
    /// Nothing.
    Absent,
    /// The resource's own.
    Ours(Box<K>),
    /// Left over from a resource of the same kind and name that was deleted; the garbage collector will take it.
    Leftover,
    /// Somebody else's. It must not be touched.
    Stranger {
        /// Who controls it, as `Kind name`, if anyone does.
        controller: Option<String>,
    },
}

impl<R> View<R>
where
    R: kube_core::Resource<DynamicType = ()>,
{
    /// A view of a resource with nothing around it.
    pub fn new(resource: R, now: Timestamp) -> Self {
        View { resource, children: Children::default(), last_outcome: None, now }
    }

    /// The resource's name.
    pub fn name(&self) -> &str {
        self.resource.meta().name.as_deref().unwrap_or_default()
    }

    /// The resource's namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.resource.meta().namespace.as_deref()
    }

    /// The generation of the spec that was seen.
    pub fn generation(&self) -> Option<i64> {
        self.resource.meta().generation
    }

    /// Whether the resource is on its way out.
    pub fn is_being_deleted(&self) -> bool {
        self.resource.meta().deletion_timestamp.is_some()
    }

    /// The reference by which an owned child names the resource as its controller.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: R::api_version(&()).into_owned(),
            kind: R::kind(&()).into_owned(),
            name: self.name().to_owned(),
            uid: self.resource.meta().uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Whether the resource controls an object.
    pub fn controls(&self, object: &Object) -> bool {
        let uid = self.resource.meta().uid.as_deref().unwrap_or_default();
        object.controller().is_some_and(|owner| owner.uid == uid)
    }

    /// Whether somebody else wrote a field of the live counterpart of `want`, and `manager` is about to put it right:
    /// then the field's value is no step in the resource's life. `field` is the end of its path: `.spec.replicas`.
    pub fn was_edited(&self, want: &Object, manager: &str, field: &str) -> bool {
        self.children.counterpart(want).is_some_and(|live| {
            rivals(live.value(), want.value(), manager).iter().any(|rival| rival.path.ends_with(field))
        })
    }

    /// What stands under a name of an owned kind.
    ///
    /// # Errors
    /// When the object is the resource's own and can't be read as its type.
    pub fn standing<K>(&self, name: &str) -> Result<Standing<K>, Unreadable>
    where
        K: kube_core::Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: Scope,
    {
        let Some(object) = self.children.object(&KindRef::of::<K>(), name) else {
            return Ok(Standing::Absent);
        };
        if self.controls(object) {
            return object.read().map(|typed| Standing::Ours(Box::new(typed)));
        }
        let Some(owner) = object.controller() else { return Ok(Standing::Stranger { controller: None }) };
        // Same kind, same name, another uid: the resource was deleted and made again faster than its old
        // children went.
        if owner.kind == R::kind(&()) && owner.name == self.name() && owner.api_version == R::api_version(&())
        {
            return Ok(Standing::Leftover);
        }
        Ok(Standing::Stranger { controller: Some(format!("{} {}", owner.kind, owner.name)) })
    }
}

/// Objects by kind and name. All are in the resource's own namespace, or in none.
#[derive(Clone, Debug, Default)]
pub struct Children(BTreeMap<KindRef, BTreeMap<String, Arc<Object>>>);

impl Children {
    /// Adds an object of a kind, or puts it in the place of the one with its name.
    pub fn insert(&mut self, kind: &KindRef, object: impl Into<Arc<Object>>) {
        let object = object.into();
        if let Some(named) = self.0.get_mut(kind) {
            named.insert(object.name().to_owned(), object);
        } else {
            self.0.insert(kind.clone(), BTreeMap::from([(object.name().to_owned(), object)]));
        }
    }

    /// Takes an object away.
    pub fn remove(&mut self, kind: &KindRef, name: &str) -> Option<Arc<Object>> {
        self.0.get_mut(kind)?.remove(name)
    }

    /// The object of a kind with a name.
    pub fn object(&self, kind: &KindRef, name: &str) -> Option<&Arc<Object>> {
        self.0.get(kind)?.get(name)
    }

    /// The live counterpart of an object: same kind, same name.
    pub fn counterpart(&self, of: &Object) -> Option<&Arc<Object>> {
        let named = self.0.iter().find(|(kind, _)| kind.is(of.api_version(), of.kind()))?.1;
        named.get(of.name())
    }

    /// The typed object with a name.
    pub fn get<K>(&self, name: &str) -> Option<Result<K, Unreadable>>
    where
        K: kube_core::Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: Scope,
    {
        self.object(&KindRef::of::<K>(), name).map(|object| object.read())
    }

    /// All objects of a type, by name. What can't be read is left out: a decision that needs one asks by name.
    pub fn list<K>(&self) -> Vec<K>
    where
        K: kube_core::Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: Scope,
    {
        self.objects(&KindRef::of::<K>()).filter_map(|object| object.read().ok()).collect()
    }

    /// All objects of a kind, by name.
    pub fn objects(&self, kind: &KindRef) -> impl Iterator<Item = &Arc<Object>> {
        self.0.get(kind).into_iter().flat_map(BTreeMap::values)
    }

    /// All objects, by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&KindRef, &Arc<Object>)> {
        self.0.iter().flat_map(|(kind, named)| named.values().map(move |object| (kind, object)))
    }
}
