//! Secrets that hold the token of a ServiceAccount.
//!
//! Such a Secret is filled when it is written, by the server, which alone can sign: Kubernetes has a controller for
//! it. One whose account is not there stays as it is, to be filled by a later write of it; Kubernetes deletes it.
//! One whose account goes is deleted right after it; should the process end between the two, it stays, and its token
//! is good for nothing.

use base64::{Engine, engine::general_purpose::STANDARD};
use drydock_store::{Key, Page, Range, Stored};
use serde_json::Value;

use crate::{
    Api,
    call::Call,
    failure::Failure,
    object::{self, meta},
};

/// The type of these Secrets.
pub(crate) const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

/// Whose token it is to be.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The ConfigMap by which each namespace knows the API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Puts the token of its account into a Secret that is there for it, unless it has one, and beside it what whoever uses
/// the token needs.
pub(super) fn fill(call: &Call<'_>, secret: &mut Value) -> Result<(), Failure> {
    if secret["type"] != TOKEN_TYPE {
        return Ok(());
    }
    let namespace = call.namespace();
    let read = |resource: &str, name: &str| {
        let stored = call.api.store().get(&Key::new(resource, namespace, name));
        stored.and_then(|stored| object::read_stored(&stored).ok())
    };
    let annotation =
        |name: &str| secret["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned();
    let (account, wanted) = (annotation(ACCOUNT_NAME), annotation(ACCOUNT_UID));
    let Some(found) = read("/serviceaccounts", &account) else { return Ok(()) };
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
    if let Some(map) = read("/configmaps", ROOT_CA).filter(|_| !given("ca.crt")) {
        data.extend(map["data"]["ca.crt"].as_str().map(|ca| ("ca.crt", ca.to_owned())));
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
        let api = self.clone();
        tokio::spawn(async move {
            for token in tokens {
                api.delete_as_system(&kind, &token).await;
            }
        });
    }
}
