//! `ballast plan`: what the operators would do about the resources in a file.
//!
//! The whole operator runs, on what the cluster would hold if the file were applied; its plan is shown instead of
//! being carried out. Without a cluster it is asked of an empty one that lives for as long as the question: what is
//! refused, and in which words, is the same either way.
//!
//! **Guarantees.** Nothing is written.

mod admitted;
mod documents;
mod report;

use std::collections::BTreeSet;

use ballast_engines::Reach;
use ballast_operator::{KindRef, Operator, settle};
use ballast_runtime::{Engine, look_at};
use drydock::Drydock;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use serde_json::json;

use crate::configuration::Plan;
use crate::failure::{Explain as _, Failure};
use crate::operators;
use crate::up::install;
use crate::{
    cluster::{self, Connected},
    terminal::Colour,
};

pub use documents::Document;
pub use report::{Outcome, Report, Shown};

/// What came of planning.
#[derive(Debug, Default)]
pub struct Planned {
    /// What would be done, resource by resource.
    pub reports: Vec<Report>,
    /// The resources for which that can't be said.
    pub failures: Vec<Failure>,
}

impl Planned {
    /// 0 for nothing to do, 2 for changes, 1 for an error.
    pub fn exit_code(&self) -> u8 {
        match (self.failures.is_empty(), self.reports.iter().any(|report| report.changes() > 0)) {
            (false, _) => 1,
            (true, true) => 2,
            (true, false) => 0,
        }
    }

    /// For people.
    pub fn text(&self, colour: Colour) -> String {
        let texts: Vec<String> = self.reports.iter().map(|report| report.text(colour)).collect();
        texts.join("\n")
    }

    /// For programs.
    pub fn json(&self) -> String {
        let errors: Vec<String> = self.failures.iter().map(Failure::to_string).collect();
        let all = json!({"resources": self.reports, "errors": errors});
        format!("{all:#}\n")
    }
}

/// Plans for every resource in the files.
///
/// # Errors
/// A file can't be read, or there is no cluster. What is wrong with one resource is among the answers.
pub async fn plan(plan: &Plan) -> Result<Planned, Failure> {
    let mut all = Vec::new();
    for file in &plan.files {
        all.extend(documents::read(file)?);
    }
    let (sound, unsound): (Vec<_>, Vec<_>) =
        all.into_iter().map(Document::addressable).partition(Result::is_ok);
    let mut all: Vec<Document> = sound.into_iter().flatten().collect();
    let now = Timestamp::now();
    let mut planned = match &plan.cluster {
        Some(cluster) => {
            let Connected { client, reach, .. } = cluster::connect(cluster).await?;
            settle_namespaces(&mut all, plan.namespace.as_deref().unwrap_or(client.default_namespace()));
            let planners = operators::planners(&client, &reach, &plan.agent_image);
            plan_all(&client, &planners, &all, now).await
        }
        None => {
            settle_namespaces(&mut all, plan.namespace.as_deref().unwrap_or("default"));
            let empty = empty_cluster(&all).await?;
            let reach = Reach::outside(empty.client());
            let planners = operators::planners(&empty.client(), &reach, &plan.agent_image);
            let planned = plan_all(&empty.client(), &planners, &all, now).await;
            empty.shutdown().await;
            planned
        }
    };
    planned.failures.extend(unsound.into_iter().filter_map(Result::err));
    Ok(planned)
}

fn settle_namespaces(all: &mut [Document], namespace: &str) {
    for document in all {
        if document.text("/metadata/namespace").is_empty() {
            document.value["metadata"]["namespace"] = namespace.into();
        }
    }
}

/// A cluster that has the definitions and the namespaces, and nothing else.
async fn empty_cluster(all: &[Document]) -> Result<Drydock, Failure> {
    let what = "can't plan without a cluster";
    let drydock = Drydock::builder().controllers(false).start().await.what(what)?;
    let namespaces: BTreeSet<&str> =
        all.iter().map(|document| document.text("/metadata/namespace")).collect();
    let mut objects: Vec<_> = namespaces
        .into_iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .collect();
    objects.extend(ballast_packaging::definitions());
    install(&drydock.client(), objects).await.what(what)?;
    Ok(drydock)
}

async fn plan_all(
    client: &Client,
    planners: &[Box<dyn Planner>],
    all: &[Document],
    now: Timestamp,
) -> Planned {
    let mut planned = Planned::default();
    for document in all {
        match plan_one(client, planners, document, now).await {
            Ok(report) => planned.reports.push(report),
            Err(failure) => planned.failures.push(failure),
        }
    }
    planned
}

async fn plan_one(
    client: &Client,
    planners: &[Box<dyn Planner>],
    document: &Document,
    now: Timestamp,
) -> Result<Report, Failure> {
    let (place, api_version, kind) = (&document.place, document.text("/apiVersion"), document.text("/kind"));
    let Some(planner) = planners.iter().find(|planner| planner.kind().is(api_version, kind)) else {
        let known: Vec<String> = planners
            .iter()
            .map(|planner| format!("{} ({})", planner.kind().kind, planner.kind().api_version()))
            .collect();
        return Err(Failure::new(format!(
            "{place}: no operator is for kind {kind:?} in version {api_version:?}"
        ))
        .advise(format!("there are operators for {}", known.join(", "))));
    };
    planner.plan(client, document, now).await
}

/// An operator that can be asked for plans, whatever its resource's type is.
pub trait Planner: Send + Sync {
    /// The kind that it is for.
    fn kind(&self) -> KindRef;

    /// What it would do if the document were applied.
    fn plan<'p>(
        &'p self,
        client: &'p Client,
        document: &'p Document,
        now: Timestamp,
    ) -> BoxFuture<'p, Result<Report, Failure>>;
}

/// An operator, and the engine by which it asks.
pub struct Asking<O> {
    operator: O,
    engine: Box<dyn Engine>,
}

impl<O: Operator> Asking<O> {
    /// This operator asks by this engine.
    pub fn new(operator: O, engine: impl Engine) -> Self {
        Asking { operator, engine: Box::new(engine) }
    }
}

impl<O: Operator> Planner for Asking<O> {
    fn kind(&self) -> KindRef {
        KindRef::of::<O::Resource>()
    }

    fn plan<'p>(
        &'p self,
        client: &'p Client,
        document: &'p Document,
        now: Timestamp,
    ) -> BoxFuture<'p, Result<Report, Failure>> {
        Box::pin(async move {
            let admitted = admitted::admit(client, &self.kind(), document).await?;
            let looked = look_at(client, &self.operator, &*self.engine, &admitted.wanted, now)
                .await
                .what(&document.place)?;
            let mut steps = vec![Shown::of_file(admitted.live.as_ref(), &admitted.wanted)];
            steps.extend(settle::<O>(&looked.plan, &looked.view).iter().map(Shown::from));
            Ok(Report { resource: admitted.wanted.to_string(), steps })
        })
    }
}
