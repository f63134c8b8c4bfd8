//! A cluster, a manager, and words to say what is expected of them.

use std::{future::Future, sync::Arc, time::Duration};

use ballast_operator::Operator;
use ballast_runtime::{Backoff, Engine, Health, Manager, Metrics, NoEngine, Options, Recorder, RunError};
use drydock::{Drydock, Identity, LogEntry};
use k8s_openapi::{
    api::{core::v1::ConfigMap, events::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResourceExt, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::notebook::{Notebook, NotebookOperator};

/// The user that the managers are, so that their requests can be told from the tests'.
pub const OPERATOR: &str = "operator";

/// How long anything may take. Long enough for a machine that does other things beside.
const PATIENCE: Duration = Duration::from_secs(20);

pub async fn cluster() -> Drydock {
    let drydock = Drydock::builder().controllers(false).requests(100_000).start().await.unwrap();
    install::<Notebook>(&drydock).await;
    drydock
}

pub async fn install<K: CustomResourceExt>(drydock: &Drydock) {
    let definitions: Api<CustomResourceDefinition> = Api::all(drydock.client());
    let definition = definitions.create(&PostParams::default(), &K::crd()).await.unwrap();
    let name = definition.name_any();
    let established = await_condition(definitions, &name, is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
}

/// A manager that runs.
pub struct Running {
    pub health: Health,
    pub metrics: Metrics,
    pub recorder: Arc<Recorder>,
    pub stop: CancellationToken,
    pub ended: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Asks it to stop, and waits until it has.
    pub async fn stop(self) -> Result<(), RunError> {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.ended).await.expect("it does not stop").unwrap()
    }

    /// The process dies.
    pub async fn crash(self) {
        self.ended.abort();
        let _ = self.ended.await;
    }
}

pub fn options() -> Options {
    let quick = Backoff { first: Duration::from_millis(20), ..Backoff::default() };
    Options { backoff: quick, ..Options::default() }
}

pub fn run(drydock: &Drydock) -> Running {
    run_with(drydock, NotebookOperator, NoEngine, options())
}

pub fn run_with(
    drydock: &Drydock,
    operator: impl Operator,
    engine: impl Engine,
    options: Options,
) -> Running {
    let client = drydock.client_as(Identity::admin(OPERATOR));
    start(Manager::new(client, options).register(operator, engine))
}

/// The notebooks' operator as somebody who may do less.
pub fn run_as(drydock: &Drydock, identity: Identity, options: Options) -> Running {
    start(Manager::new(drydock.client_as(identity), options).register(NotebookOperator, NoEngine))
}

pub fn start(manager: Manager) -> Running {
    let (health, metrics, recorder) = (manager.health(), manager.metrics(), manager.recorder());
    let stop = CancellationToken::new();
    let ended = tokio::spawn(manager.run(stop.clone()));
    Running { health, metrics, recorder, stop, ended }
}

/// Waits until something holds, and gives what was seen then.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut seen: impl FnMut() -> F) -> T {
    let begun = tokio::time::Instant::now();
    loop {
        if let Some(seen) = seen().await {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "it never came to pass that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn notebooks(drydock: &Drydock) -> Api<Notebook> {
    Api::namespaced(drydock.client(), "default")
}

pub fn config_maps(drydock: &Drydock) -> Api<ConfigMap> {
    Api::namespaced(drydock.client(), "default")
}

pub async fn create(drydock: &Drydock, notebook: &Notebook) -> Notebook {
    notebooks(drydock).create(&PostParams::default(), notebook).await.unwrap()
}

pub async fn change(drydock: &Drydock, name: &str, spec: Value) -> Notebook {
    let patch = Patch::Merge(json!({"spec": spec}));
    notebooks(drydock).patch(name, &PatchParams::default(), &patch).await.unwrap()
}

/// A condition's status, as `True Fine`.
pub fn condition(notebook: &Notebook, type_: &str) -> Option<String> {
    let conditions = &notebook.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some(format!("{} {}", found.status, found.reason))
}

/// Waits until a condition of a notebook reads so, for the generation there is.
pub async fn until(drydock: &Drydock, name: &str, type_: &str, reads: &str) -> Notebook {
    eventually(&format!("{type_} of {name} reads {reads}"), async || {
        let notebook = notebooks(drydock).get(name).await.unwrap();
        let conditions = &notebook.status.as_ref()?.conditions;
        let current = conditions.iter().all(|one| one.observed_generation == notebook.metadata.generation);
        (current && condition(&notebook, type_)? == reads).then_some(notebook)
    })
    .await
}

pub async fn page(drydock: &Drydock, name: &str) -> Option<String> {
    let page = config_maps(drydock).get_opt(name).await.unwrap()?;
    page.data?.get("text").cloned()
}

pub async fn page_reads(drydock: &Drydock, name: &str, text: &str) {
    eventually(&format!("{name} reads {text}"), async || (page(drydock, name).await? == text).then_some(()))
        .await;
}

/// The requests of the managers, other than lists and watches and the lease: `patch configmaps a-0 200`.
pub fn requests(drydock: &Drydock) -> Vec<String> {
    drydock.requests().entries().iter().filter(|entry| is_work(entry)).map(line).collect()
}

fn is_work(entry: &LogEntry) -> bool {
    entry.user == OPERATOR
        && !matches!(entry.verb, drydock::Verb::List | drydock::Verb::Watch)
        && entry.resource != "coordination.k8s.io/leases"
}

fn line(entry: &LogEntry) -> String {
    format!(
        "{} {} {} {}",
        entry.verb.as_str(),
        entry.resource.trim_start_matches('/'),
        entry.name,
        entry.status
    )
}

/// Waits until a manager has nothing more to do: for a while there is no request of its.
pub async fn rest(drydock: &Drydock) {
    let count = || drydock.requests().entries().iter().filter(|entry| entry.user == OPERATOR).count();
    let mut last = count();
    let mut since = tokio::time::Instant::now();
    let begun = since;
    while since.elapsed() < Duration::from_millis(300) {
        assert!(begun.elapsed() < PATIENCE, "it never rests: {:#?}", requests(drydock));
        tokio::time::sleep(Duration::from_millis(10)).await;
        if count() != last {
            (last, since) = (count(), tokio::time::Instant::now());
        }
    }
}

/// The events about a resource: `Warning FieldsTakenBack: …`.
pub async fn events(drydock: &Drydock, name: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(drydock.client(), "default");
    let list = events.list(&Default::default()).await.unwrap();
    let about = |event: &Event| event.regarding.as_ref().and_then(|regarding| regarding.name.clone());
    let text = |event: Event| {
        let [type_, reason, note] = [event.type_, event.reason, event.note].map(Option::unwrap_or_default);
        format!("{type_} {reason}: {note}")
    };
    list.items.into_iter().filter(|event| about(event).as_deref() == Some(name)).map(text).collect()
}
