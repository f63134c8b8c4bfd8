//! What a ServiceAccount's token says.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Identity;

/// Names an object and tells it from an earlier one of that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The name.
    pub name: String,
    /// The uid; unknown for the node of a pod whose node is not there yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The object that a token lives and dies with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Bound {
    /// None: the token lives until it expires.
    #[default]
    Nothing,
    /// A pod, with its node when it has one.
    Pod(ObjectRef, Option<ObjectRef>),
    /// A secret.
    Secret(ObjectRef),
    /// A node.
    Node(ObjectRef),
}

/// What goes into a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccountClaims {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whom the token is for.
    pub audiences: Vec<String>,
    /// When it is made.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When its use should be warned about: set where an old client was given more time than it asked for.
    pub warn_after: Option<Timestamp>,
    /// What it is bound to.
    pub bound: Bound,
    /// The token's own id, unique among all tokens.
    pub id: String,
}

/// The payload of a token, of both the present and the legacy kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aud: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exp: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iat: Option<i64>,
    #[serde(default)]
    pub(crate) iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io", default, skip_serializing_if = "Option::is_none")]
    pub(crate) kubernetes: Option<Kubernetes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nbf: Option<i64>,
    #[serde(default)]
    pub(crate) sub: String,
    #[serde(flatten)]
    pub(crate) legacy: Legacy,
}

/// The private claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kubernetes {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<ObjectRef>,
    pub(crate) serviceaccount: ObjectRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// The private claims of a token that stands in a secret and has no end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Legacy {
    #[serde(
        rename = "kubernetes.io/serviceaccount/namespace",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub(crate) namespace: String,
    #[serde(
        rename = "kubernetes.io/serviceaccount/secret.name",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub(crate) secret: String,
    #[serde(
        rename = "kubernetes.io/serviceaccount/service-account.name",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub(crate) name: String,
    #[serde(
        rename = "kubernetes.io/serviceaccount/service-account.uid",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub(crate) uid: String,
}

impl Claims {
    pub(crate) fn new(issuer: &str, claims: &ServiceAccountClaims) -> Self {
        let (pod, node, secret) = match claims.bound.clone() {
            Bound::Nothing => (None, None, None),
            Bound::Pod(pod, node) => (Some(pod), node, None),
            Bound::Secret(secret) => (None, None, Some(secret)),
            Bound::Node(node) => (None, Some(node), None),
        };
        let issued_at = claims.issued_at.as_second();
        Self {
            aud: claims.audiences.clone(),
            exp: Some(claims.expires_at.as_second()),
            iat: Some(issued_at),
            iss: issuer.to_owned(),
            jti: claims.id.clone(),
            kubernetes: Some(Kubernetes {
                namespace: claims.namespace.clone(),
                node,
                pod,
                secret,
                serviceaccount: ObjectRef { name: claims.name.clone(), uid: claims.uid.clone() },
                warnafter: claims.warn_after.map(Timestamp::as_second),
            }),
            nbf: Some(issued_at),
            sub: Identity::service_account_username(&claims.namespace, &claims.name),
            legacy: Legacy::default(),
        }
    }
}
