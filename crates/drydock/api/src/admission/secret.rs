//! Secrets that hold the token of a ServiceAccount.
//!
//! Such a Secret is filled when it is written, by the server, which alone can sign: Kubernetes has a controller for
//! it. One whose account is not there stays as it is, to be filled by a later write of it; Kubernetes deletes it.
//! One whose account goes is deleted right after it; should the process end between the two, it stays, and its token
//! is good for nothing.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use drydock_kinds::Kind;
use drydock_store::{Key, Page, Range, Stored};
use serde_json::Value;

use crate::{
    Api,
    call::Call,
    delete::DeleteOptions,
    failure::Failure,
    object::{self, meta},
};

/// The type of these Secrets.
pub(crate) const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

/// Whose token it is to be.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Puts the token of its account into a Secret that is there for it, unless it has one, and beside it what whoever uses
/// the token needs.
pub(super) fn fill(call: &Call<'_>, secret: &mut Value) -> Result<(), Failure> {
    if secret["type"] != TOKEN_TYPE {
        return Ok(());
    }
    let namespace = call.namespace();
    let annotation =
        |name: &str| secret["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned();
    let (account, wanted) = (annotation(ACCOUNT_NAME), annotation(ACCOUNT_UID));
    let found = call.api.store().get(&Key::new("/serviceaccounts", namespace, &*account));
    let Some(found) = found.and_then(|stored| object::read_stored(&stored).ok()) else { return Ok(()) };
    let uid = meta(&found, "uid");
    if !wanted.is_empty() && wanted != uid {
        return Ok(());
    }
    let given = |key: &str| secret["data"][key].as_str().is_some_and(|text| !text.is_empty());
    let mut data = Vec::new();
    if !given("token") {
        let token = call
            .api
            .tokens()
            .issue_for_secret(namespace, &account, uid, meta(secret, "name"))
            .map_err(|error| Failure::Internal(error.to_string()))?;
        data.push(("token", token));
    }
    if let Some(ca) = call.api.root_ca().filter(|_| !given("ca.crt")) {
        data.push(("ca.crt", ca.to_owned()));
    }
    if !given("namespace") {
        data.push(("namespace", namespace.to_owned()));
    }
    secret["metadata"]["annotations"][ACCOUNT_UID] = uid.into();
    for (key, value) in data {
        secret["data"][key] = STANDARD.encode(value).into();
    }
    Ok(())
}

fn is_token_of(stored: &Stored, account: &Value) -> bool {
    let Ok(secret) = object::read_stored(stored) else { return false };
    let annotations = &secret["metadata"]["annotations"];
    secret["type"] == TOKEN_TYPE
        && annotations[ACCOUNT_NAME] == meta(account, "name")
        && annotations[ACCOUNT_UID] == meta(account, "uid")
}

impl Api {
    /// Deletes the Secrets that hold tokens of a ServiceAccount that is gone, in the background.
    pub(crate) fn account_removed(&self, account: &Value) {
        let Some(kind) = self.registry().find("", "v1", "secrets") else { return };
        let range = Range { resource: "/secrets".into(), namespace: Some(meta(account, "namespace").into()) };
        let secrets = self.store().list(&range, Page::default()).map(|list| list.items).unwrap_or_default();
        let tokens = secrets.into_iter().filter(|stored| is_token_of(stored, account)).collect::<Vec<_>>();
        let (api, account) = (self.clone(), account.clone());
        tokio::spawn(async move {
            for token in tokens {
                api.remove_token(&kind, &account, token).await;
            }
        });
    }

    /// Deletes a Secret as it was seen. One that somebody wrote meanwhile is looked at again: it may be there for
    /// something else by now.
    async fn remove_token(&self, kind: &Arc<Kind>, account: &Value, mut seen: Arc<Stored>) {
        loop {
            let Ok(secret) = object::read_stored(&seen) else { return };
            match self.delete_as_system(kind, &seen.key, &DeleteOptions::of(&secret)).await {
                Ok(()) => return,
                Err(Failure::Conflict(..)) => {}
                Err(failure) => {
                    tracing::warn!(%failure, key = %seen.key, "a token's Secret could not be deleted");
                    return;
                }
            }
            match self.store().get(&seen.key).filter(|stored| is_token_of(stored, account)) {
                Some(newer) => seen = newer,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drydock_access::{SigningKey, Tokens};
    use drydock_store::Store;
    use serde_json::json;

    use super::*;
    use crate::Options;

    #[tokio::test]
    async fn a_secret_that_was_seen_goes_unless_it_is_there_for_something_else_by_now() {
        let store = Store::in_memory(drydock_store::Options::default());
        let tokens = Arc::new(Tokens::new(SigningKey::generate().unwrap()));
        let api = Api::new(store, Options::new(tokens));
        api.bootstrap().await.unwrap();
        let kind = |plural: &str| api.registry().find("", "v1", plural).unwrap();
        let (accounts, secrets) = (kind("serviceaccounts"), kind("secrets"));
        let make = async |kind: &Arc<Kind>, object: Value| {
            let name = meta(&object, "name").to_owned();
            api.create_as_system(kind, object).await.unwrap();
            api.store().get(&object::key(kind, Some("default"), &name)).unwrap()
        };
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "sa", "namespace": "default"}});
        let account = object::read_stored(&*make(&accounts, account).await).unwrap();
        let secret = |name: &str, kind: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {
                "name": name, "namespace": "default", "annotations": {ACCOUNT_NAME: "sa"}}})
        };
        let again = async |seen: &Stored, kind: &str| {
            api.delete_as_system(&secrets, &seen.key, &DeleteOptions::default()).await.unwrap();
            make(&secrets, secret(&seen.key.name, kind)).await
        };
        for (made_again, stays) in [(None, false), (Some(TOKEN_TYPE), false), (Some("Opaque"), true)] {
            let seen = make(&secrets, secret("t", TOKEN_TYPE)).await;
            if let Some(kind) = made_again {
                again(&seen, kind).await;
            }
            api.remove_token(&secrets, &account, Arc::clone(&seen)).await;
            assert_eq!(api.store().get(&seen.key).is_some(), stays, "{made_again:?}");
        }
    }
}
