//! What pods need from the API to start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use kube::Api;
use kube::api::PostParams;

use crate::Shared;
use crate::container::environment::{Sources, Wanted};
use crate::container::services;
use crate::volumes::payload::TokenWish;

/// A token is renewed when this part of its life is over, or after a day.
const RENEWED_AFTER: f64 = 0.8;
const OLDEST: SignedDuration = SignedDuration::from_hours(24);

/// How long a container's start waits for the first sight of the Services.
const SERVICES: Duration = Duration::from_secs(10);

/// Tokens that were asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    held: BTreeMap<TokenWish, Held>,
}

#[derive(Clone, Debug)]
struct Held {
    token: String,
    since: Timestamp,
    until: Timestamp,
}

impl Held {
    fn is_fresh(&self, now: Timestamp) -> bool {
        let life = self.until.duration_since(self.since).as_secs_f64() * RENEWED_AFTER;
        let age = now.duration_since(self.since);
        age.as_secs_f64() < life && age < OLDEST
    }
}

impl Tokens {
    pub fn all(&self) -> BTreeMap<TokenWish, String> {
        self.held.iter().map(|(wish, held)| (wish.clone(), held.token.clone())).collect()
    }
}

/// What went wrong, as a kubelet says it: the API's own words.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl Shared {
    /// Fetches what is there of what is wanted; what is not there is left out.
    ///
    /// # Errors
    /// When the API does not say whether it is there.
    pub(crate) async fn fetch(&self, namespace: &str, wanted: &Wanted) -> Result<Sources, String> {
        let mut sources = Sources::default();
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        for name in &wanted.config_maps {
            if let Some(found) = config_maps.get_opt(name).await.map_err(|error| words(&error))? {
                sources.config_maps.insert(name.clone(), found);
            }
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for name in &wanted.secrets {
            if let Some(found) = secrets.get_opt(name).await.map_err(|error| words(&error))? {
                sources.secrets.insert(name.clone(), found);
            }
        }
        Ok(sources)
    }

    /// The variables that Services make for a pod's containers.
    ///
    /// # Errors
    /// When the Services have not been seen yet.
    pub(crate) async fn service_variables(&self, pod: &Pod) -> Result<BTreeMap<String, String>, String> {
        let seen = tokio::time::timeout(SERVICES, self.services.wait_until_ready()).await;
        if !matches!(seen, Ok(Ok(()))) {
            return Err("services have not yet been read at least once, cannot construct envvars".to_owned());
        }
        let services: Vec<Arc<Service>> = self.services.state();
        Ok(services::variables(pod, services.iter().map(Arc::as_ref)))
    }

    /// Asks for the tokens that are missing or due.
    ///
    /// # Errors
    /// When the API gives none.
    pub(crate) async fn fetch_tokens(
        &self,
        pod: &Pod,
        wishes: &[TokenWish],
        tokens: &mut Tokens,
    ) -> Result<(), String> {
        let spec = pod.spec.as_ref();
        let account =
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| "default".to_owned());
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
        for wish in wishes {
            let now = self.now();
            if tokens.held.get(wish).is_some_and(|held| held.is_fresh(now)) {
                continue;
            }
            let request = TokenRequest {
                spec: TokenRequestSpec {
                    audiences: wish.audience.iter().cloned().collect(),
                    expiration_seconds: Some(wish.seconds),
                    bound_object_ref: Some(BoundObjectReference {
                        api_version: Some("v1".to_owned()),
                        kind: Some("Pod".to_owned()),
                        name: pod.metadata.name.clone(),
                        uid: pod.metadata.uid.clone(),
                    }),
                },
                ..TokenRequest::default()
            };
            let answer = accounts
                .create_token_request(&account, &PostParams::default(), &request)
                .await
                .map_err(|error| format!("failed to fetch token: {}", words(&error)))?;
            let status = answer.status.ok_or("failed to fetch token: the answer holds none")?;
            let held = Held { token: status.token, since: now, until: status.expiration_timestamp.0 };
            tokens.held.insert(wish.clone(), held);
        }
        Ok(())
    }
}
