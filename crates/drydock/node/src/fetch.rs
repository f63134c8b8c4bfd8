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
use crate::volumes::payload::{self, TokenWish};

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
    /// The token to show, given what came of asking for another: while it is good, the one before does.
    fn settle(
        &mut self,
        wish: &TokenWish,
        fetched: Result<Held, String>,
        now: Timestamp,
    ) -> Result<String, String> {
        match fetched {
            Ok(fetched) => {
                self.held.insert(wish.clone(), fetched.clone());
                Ok(fetched.token)
            }
            Err(error) => {
                let held = self.held.get(wish).filter(|held| now < held.until);
                tracing::debug!(error, volume = wish.volume, "a token is not renewed");
                held.map(|held| held.token.clone()).ok_or(error)
            }
        }
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

    /// The tokens that are wished for. Those that are missing or due are asked for, each for itself.
    pub(crate) async fn fetch_tokens(
        &self,
        pod: &Pod,
        wishes: &[TokenWish],
        tokens: &mut Tokens,
    ) -> payload::Tokens {
        let mut all = payload::Tokens::new();
        for wish in wishes {
            let now = self.now();
            let fresh = tokens.held.get(wish).filter(|held| held.is_fresh(now)).cloned();
            let fetched = match fresh {
                Some(fresh) => Ok(fresh),
                None => self.fetch_token(pod, wish, now).await,
            };
            all.insert(wish.clone(), tokens.settle(wish, fetched, now));
        }
        all
    }

    async fn fetch_token(&self, pod: &Pod, wish: &TokenWish, now: Timestamp) -> Result<Held, String> {
        let spec = pod.spec.as_ref();
        let account =
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| "default".to_owned());
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
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
        Ok(Held { token: status.token, since: now, until: status.expiration_timestamp.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_until_it_is_over_when_no_other_is_given() {
        let volume = |name: &str| TokenWish {
            volume: name.to_owned(),
            path: "token".to_owned(),
            audience: None,
            seconds: 600,
        };
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let fresh = |token: &str| Ok(Held { token: token.to_owned(), since: at(0), until: at(600) });
        let refused = || Err("failed to fetch token: no".to_owned());
        let mut tokens = Tokens::default();
        assert_eq!(tokens.settle(&volume("a"), fresh("first"), at(0)), Ok("first".to_owned()));
        assert_eq!(tokens.settle(&volume("a"), refused(), at(599)), Ok("first".to_owned()));
        assert_eq!(tokens.settle(&volume("a"), refused(), at(600)), refused().map(|_: Held| String::new()));
        assert_eq!(tokens.settle(&volume("b"), refused(), at(0)), refused().map(|_: Held| String::new()));
        assert_eq!(tokens.settle(&volume("a"), fresh("second"), at(600)), Ok("second".to_owned()));
    }
}
