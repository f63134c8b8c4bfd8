//! From the same types that operators are made of: CRDs, RBAC, manifests.
//!
//! [`parts`] is the one list of operators that Ballast ships. A definition, a permission or a manifest is
//! never written by hand: it follows from an operator's resource and its
//! [relations](ballast_operator::Operator::relations), so that what is watched, what is allowed and what is
//! shipped can't disagree.
//!
//! **Always holds:** no rule has a wildcard; nothing may be done to a kind that no operator names; the output
//! is the same for the same arguments.
//!
//! **Deliberately absent:** talking to a cluster. What is made here is printed, or applied by whoever has one.

mod manifests;
mod rbac;

use ballast_operator::{KindRef, Operator, Relation, Scope};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::Value;

pub use manifests::{Deploy, foundation, manifests};
pub use rbac::{NAMESPACE, SERVICE_ACCOUNT, access, people, rules};

/// What packaging needs to know of one operator.
#[derive(Debug, Clone)]
pub struct Part {
    /// The operator's name.
    pub name: &'static str,
    /// The resource that people write.
    pub resource: KindRef,
    /// Its definition.
    pub definition: CustomResourceDefinition,
    /// Every kind that the operator has to do with.
    pub relations: Vec<Relation>,
    /// The finalizer that the operator puts on the resource, where it does.
    pub finalizer: Option<&'static str>,
}

impl Part {
    /// The part that `operator` is.
    pub fn of<O: Operator>(operator: &O) -> Self
    where
        <O::Resource as kube_core::Resource>::Scope: Scope,
    {
        Self {
            name: O::NAME,
            resource: KindRef::of::<O::Resource>(),
            definition: O::Resource::crd(),
            relations: operator.relations(),
            finalizer: O::FINALIZER,
        }
    }
}

/// Every operator that Ballast ships.
#[must_use]
pub fn parts() -> Vec<Part> {
    vec![
        Part::of(&ballast_memcached::MemcachedOperator),
        Part::of(&ballast_gordon::GordonOperator),
        Part::of(&ballast_mysql::MySQLOperator::default()),
        Part::of(&ballast_mysql::MySQLBackupOperator::default()),
    ]
}

/// The definitions of every resource that people write.
#[must_use]
pub fn definitions() -> Vec<Value> {
    parts()
        .iter()
        .map(|part| object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &part.definition))
        .collect()
}

/// Several objects as one YAML file.
///
/// # Errors
/// When an object has no YAML form.
pub fn yaml(objects: &[Value]) -> Result<String, serde_saphyr::ser::Error> {
    let documents = objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.iter().map(|document| format!("---\n{document}")).collect())
}

/// A typed object with its `apiVersion` and `kind`, and without what only a server writes.
fn object(api_version: &str, kind: &str, typed: &impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(typed).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("kind".to_owned(), kind.into());
        fields.remove("status");
    }
    value
}
