//! Who is asking, and may they.
//!
//! * [`Tokens`] turns a bearer token into an [`Identity`]: static tokens and ServiceAccount JWTs.
//! * [`impersonation`] turns an identity and its `Impersonate-*` headers into another one.
//! * [`Policy`] is RBAC, compiled from its objects: [`Policy::authorize`] answers each request,
//!   [`Policy::guard`] keeps people from granting what they do not hold.
//! * [`bootstrap`] has the default roles and bindings, [`aggregate`] keeps `admin`, `edit` and
//!   `view` made of what is labelled for them.
//! * [`reviews`] and [`token_request`] answer the review kinds and the token subresource.
//!
//! **Always holds:** nothing here does I/O or reads a clock; what must be looked up comes through
//! [`Lookup`], the time as an argument. Permissions are only ever added: there is no deny rule, so
//! one more binding never takes anything away. What the API answers when it says no is a
//! [`Refusal`], worded as Kubernetes words it.
//!
//! **Deliberately absent:** other authorizers (Node, ABAC, webhook), client certificates, OIDC
//! users. A kubelet gets its permissions from the role `system:node` alone.

mod aggregation;
mod attributes;
pub mod bootstrap;
mod claims;
mod escalation;
mod identity;
pub mod impersonation;
mod jws;
mod policy;
mod refusal;
pub mod reviews;
mod rule;
pub mod token_request;
mod tokens;

pub use aggregation::aggregate;
pub use attributes::Attributes;
pub use claims::{Bound, ObjectRef, ServiceAccountClaims};
pub use escalation::RbacWrite;
pub use identity::Identity;
pub use jws::{KeyError, SigningKey};
pub use policy::{Decision, Policy};
pub use refusal::Refusal;
pub use rule::PolicyRule;
pub use tokens::{Authenticated, ISSUER, Lookup, PodPlacement, TokenError, Tokens};

/// The API group of roles and bindings.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
