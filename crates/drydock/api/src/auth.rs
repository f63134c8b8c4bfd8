//! Who asks, and may they.

use std::sync::Arc;

use drydock_access::{
    Attributes, Identity, Lookup, PodPlacement, Policy, Refusal, impersonation::Impersonation,
};
use drydock_store::{Key, Page, Range, Revision, Store, Stored};
use http::{HeaderMap, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    Api,
    admission::TOKEN_TYPE,
    failure::{Failure, GroupResource},
    object,
    request::RequestInfo,
};

/// How a connection says who is at its other end.
#[derive(Debug, Clone)]
pub enum Caller {
    /// The connection itself is known to be somebody's. Impersonation headers still work.
    Trusted(Identity),
    /// Each request must say by a bearer token who it is from.
    Bearer,
}

/// Paths that anybody may read, whether known or not: the role `system:public-info-viewer`.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// The four resources that RBAC is made of.
const SOURCES: [&str; 4] = [
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/clusterrolebindings",
];

/// RBAC, compiled when it is first asked after a change.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache(Mutex<Option<([Revision; 4], Arc<Policy>)>>);

impl PolicyCache {
    /// The policy as the store has it now.
    pub fn get(&self, store: &Store) -> Arc<Policy> {
        let revisions = SOURCES.map(|resource| store.resource_revision(resource));
        let mut cached = self.0.lock();
        if let Some((at, policy)) = &*cached
            && *at == revisions
        {
            return policy.clone();
        }
        let [roles, bindings, cluster_roles, cluster_bindings] = SOURCES.map(|resource| all(store, resource));
        let policy = Arc::new(Policy::compile(&roles, &bindings, &cluster_roles, &cluster_bindings));
        *cached = Some((revisions, policy.clone()));
        policy
    }
}

/// All objects of a resource, as they are stored.
pub(crate) fn all(store: &Store, resource: &str) -> Vec<Value> {
    let range = Range { resource: resource.into(), namespace: None };
    let items = store.list(&range, Page::default()).map(|listing| listing.items).unwrap_or_default();
    items.iter().filter_map(|stored| object::read_stored(stored).ok()).collect()
}

/// Looks up what tokens mention.
pub(crate) struct StoreLookup<'a>(pub &'a Store);

impl StoreLookup<'_> {
    fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.0.get(&Key::new(resource, namespace, name))
    }

    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let object = object::read_stored(&*self.find(resource, namespace, name)?).ok()?;
        Some(object::meta(&object, "uid").to_owned())
    }
}

impl Lookup for StoreLookup<'_> {
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("/serviceaccounts", namespace, name)
    }

    fn secret_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("/secrets", namespace, name)
    }

    fn pod_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("/pods", namespace, name)
    }

    fn node_uid(&self, name: &str) -> Option<String> {
        self.uid("/nodes", "", name)
    }

    fn pod_placement(&self, namespace: &str, name: &str) -> Option<PodPlacement> {
        let pod = object::read_stored(&*self.find("/pods", namespace, name)?).ok()?;
        let text = |field: &str| pod["spec"][field].as_str().unwrap_or_default().to_owned();
        Some(PodPlacement { service_account: text("serviceAccountName"), node: text("nodeName") })
    }

    fn secret_token(&self, namespace: &str, name: &str) -> Option<Vec<u8>> {
        use base64::Engine as _;
        let secret = object::read_stored(&*self.find("/secrets", namespace, name)?).ok()?;
        if secret["type"] != TOKEN_TYPE {
            return None;
        }
        base64::engine::general_purpose::STANDARD.decode(secret["data"]["token"].as_str()?).ok()
    }
}

impl Api {
    /// Who a request is from, impersonation included.
    pub(crate) fn identify(
        &self,
        caller: &Caller,
        info: &RequestInfo,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Identity, Failure> {
        let identity = match caller {
            Caller::Trusted(identity) => identity.clone(),
            Caller::Bearer => self.by_token(headers, now)?.map_or_else(
                || if is_public(info) { Ok(Identity::anonymous()) } else { Err(Failure::Unauthorized) },
                Ok,
            )?,
        };
        let refused = |why: String| Failure::Headers { path: info.path.clone(), why };
        let asked = headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"));
        // Names are written in UTF-8 by clients. None is passed over: whoever asks to be less must not stay who they are.
        let pairs = asked.map(|(name, value)| {
            let value = std::str::from_utf8(value.as_bytes());
            value.map(|value| (name.as_str(), value)).map_err(|_| refused(format!("{name}: not UTF-8")))
        });
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        let wanted = Impersonation::from_headers(pairs).map_err(|refusal| refused(refusal.to_string()))?;
        match wanted {
            None => Ok(identity),
            Some(impersonation) => Ok(impersonation.authorize(&self.policy(), &identity)?),
        }
    }

    fn by_token(&self, headers: &HeaderMap, now: Timestamp) -> Result<Option<Identity>, Failure> {
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(None) };
        match self.tokens().verify(token, now, &StoreLookup(self.store())) {
            Ok(Some(identity)) => Ok(Some(identity)),
            Ok(None) => Err(Failure::Unauthorized),
            Err(error) => {
                tracing::debug!(%error, "a token was refused");
                Err(Failure::Unauthorized)
            }
        }
    }

    /// Refuses a request that no rule allows.
    pub(crate) fn authorize(&self, identity: &Identity, info: &RequestInfo) -> Result<(), Failure> {
        let method = info.method.as_str().to_ascii_lowercase();
        let attributes = match &info.resource {
            None => Attributes::path(identity, &method, &info.path),
            Some(path) => Attributes {
                identity,
                verb: info.verb.as_str(),
                group: &path.group,
                version: &path.version,
                resource: &path.resource,
                subresource: path.subresource.as_deref().unwrap_or_default(),
                namespace: path.namespace.as_deref().unwrap_or_default(),
                name: path.name.as_deref().unwrap_or_default(),
                path: None,
            },
        };
        self.allow(&attributes)
    }

    /// Refuses what no rule allows.
    pub(crate) fn allow(&self, attributes: &Attributes<'_>) -> Result<(), Failure> {
        // Whoever may do everything must not wait for the rules to be compiled.
        if attributes.identity.is_in(Identity::MASTERS) {
            return Ok(());
        }
        let decision = self.policy().authorize(attributes);
        if decision.is_allowed() {
            return Ok(());
        }
        Err(attributes.refusal(decision.reason()).into())
    }
}

fn is_public(info: &RequestInfo) -> bool {
    info.resource.is_none()
        && PUBLIC.iter().any(|path| {
            info.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid { group, kind, name, errors } => {
                Self::Invalid { kind: GroupResource::new(group, kind), name, errors }
            }
            Refusal::BadRequest(message) => Self::BadRequest(message),
            Refusal::Forbidden { group, resource, name, detail } => Self::Forbidden {
                resource: (!resource.is_empty()).then(|| GroupResource::new(group, resource)),
                name,
                why: detail,
                causes: Vec::new(),
            },
            Refusal::NotFound { group, resource, name } => {
                Self::NotFound(GroupResource::new(group, resource), name)
            }
            Refusal::Conflict { group, kind, name, detail } => {
                Self::Conflict(GroupResource::new(group, kind), name, detail)
            }
            Refusal::Internal(message) => Self::Internal(message),
        }
    }
}
