//! Secrets are made once, and shown to nobody.

use drydock::Fault;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};

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

#[tokio::test]
async fn what_no_watch_shows_is_seen_before_something_is_made_in_its_place() {
    let drydock = cluster().await;
    let secrets: Api<Secret> = Api::namespaced(drydock.client(), "default");
    let theirs: Secret = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
    secrets.create(&PostParams::default(), &theirs).await.unwrap();
    let _running = run(&drydock);
    let mut locked = notebook("a", 1);
    locked.spec.locked = true;
    create(&drydock, &locked).await;
    until(&drydock, "a", "Ready", "True Written").await;
    change(&drydock, "a", serde_json::json!({"text": "other"})).await;
    page_reads(&drydock, "a-0", "other").await;
    rest(&drydock).await;
    let seen = secrets.get("a").await.unwrap();
    assert!(seen.data.is_none() && seen.metadata.labels.is_none(), "it is somebody else's: {seen:?}");
    let asked = drydock.requests().entries();
    let mut watched =
        asked.iter().filter(|entry| entry.user == OPERATOR && entry.resource.ends_with("secrets"));
    let watched = watched.find(|entry| entry.verb == drydock::Verb::List).unwrap();
    assert!(watched.query.contains("labelSelector=notebook"), "{watched:?}");
    // Once it is gone, there is room.
    secrets.delete("a", &Default::default()).await.unwrap();
    change(&drydock, "a", serde_json::json!({"text": "again"})).await;
    assert!(!password(&drydock, "a").await.is_empty());
    rest(&drydock).await;
    let settled = requests(&drydock).len();
    change(&drydock, "a", serde_json::json!({"text": "last"})).await;
    page_reads(&drydock, "a-0", "last").await;
    rest(&drydock).await;
    let read = requests(&drydock).split_off(settled);
    assert!(!read.iter().any(|line| line.starts_with("get ")), "what is ours is watched: {read:#?}");
}
