//! Secrets are made once, and shown to nobody.

use drydock::Fault;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use crate::{log, notebook::notebook, support::*};

async fn password(drydock: &drydock::Drydock, name: &str) -> String {
    let secrets: Api<Secret> = Api::namespaced(drydock.client(), "default");
    eventually("there is a password", async || {
        let secret = secrets.get_opt(name).await.unwrap()?;
        String::from_utf8(secret.data?.get("password")?.0.clone()).ok()
    })
    .await
}

#[tokio::test]
async fn a_secret_is_minted_once_and_is_in_no_log_record_or_event() {
    let log = log::all();
    let drydock = cluster().await;
    let running = run(&drydock);
    let mut locked = notebook("vault", 1);
    locked.spec.locked = true;
    create(&drydock, &locked).await;
    let minted = password(&drydock, "vault").await;
    assert_eq!(minted.len(), 24);
    until(&drydock, "vault", "Ready", "True Written").await;
    rest(&drydock).await;
    // Another process, and a failure at each step, make no second one.
    let recorded = running.recorder.text(None);
    running.crash().await;
    let running = run(&drydock);
    change(&drydock, "vault", serde_json::json!({"text": "other"})).await;
    page_reads(&drydock, "vault-0", "other").await;
    rest(&drydock).await;
    assert_eq!(password(&drydock, "vault").await, minted);
    let logged = log.text();
    let encoded = serde_json::to_string(&k8s_openapi::ByteString(minted.clone().into_bytes())).unwrap();
    for text in
        [recorded, running.recorder.text(None), logged.clone(), events(&drydock, "vault").await.concat()]
    {
        assert!(!text.is_empty());
        assert!(!text.contains(&minted), "{text}");
        assert!(!text.contains(encoded.trim_matches('"')), "{text}");
    }
    assert!(
        logged.contains("mint Secret vault, key password: a password of 24 characters"),
        "that it was made is said"
    );
    assert!(logged.contains("reconcile_id"));
}

#[tokio::test]
async fn a_minted_secret_survives_a_write_whose_answer_was_lost() {
    for nth in 1..=4 {
        let drydock = cluster().await;
        let fault = Fault::cut_after().resource("secrets").user(OPERATOR).nth(nth);
        drydock.faults().order(fault);
        let _running = run(&drydock);
        let mut locked = notebook("a", 1);
        locked.spec.locked = true;
        create(&drydock, &locked).await;
        let minted = password(&drydock, "a").await;
        until(&drydock, "a", "Degraded", "False Fine").await;
        rest(&drydock).await;
        assert_eq!(password(&drydock, "a").await, minted);
    }
}
