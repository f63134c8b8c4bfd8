//! A small operator: a Notebook has pages, and every page is a ConfigMap.

use std::time::Duration;

use ballast_operator::{
    Action, Answers, ConditionStatus, Conditions, DataReason, Effect, EventType, Material, Object, ObjectRef,
    Operator, Plan, Question, Relation, Removal, Target, View,
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const LABEL: &str = "notebook";
pub const FINALIZER: &str = "test.example.com/notebook";

#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default)]
#[kube(group = "test.example.com", version = "v1", kind = "Notebook", namespaced, status = "NotebookStatus")]
#[serde(rename_all = "camelCase", default)]
pub struct NotebookSpec {
    pub text: String,
    pub pages: u32,
    /// Whether a secret is kept.
    pub locked: bool,
    /// Whether it is held by a finalizer.
    pub held: bool,
    /// Whether the service is asked before each plan.
    pub asks: bool,
    /// Whether the plan panics.
    pub panics: bool,
    /// Whether the plan takes for ever to be carried out.
    pub stalls: bool,
    /// A label that the server may refuse.
    pub label: Option<String>,
    /// Whether pages are always taken to be behind.
    pub relists: bool,
    /// Seconds after which to look again.
    pub look_again: Option<u64>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct NotebookStatus {
    #[serde(default)]
    pub pages: u32,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NotebookOperator;

impl Operator for NotebookOperator {
    type Resource = Notebook;

    const NAME: &'static str = "notebook";
    const FIELD_MANAGER: &'static str = "ballast-notebook";
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    fn relations(&self) -> Vec<Relation> {
        vec![
            Relation::owned::<ConfigMap>().removable(),
            Relation::kept::<Secret>(LABEL).removable().within(LABEL),
        ]
    }

    fn claims(&self, notebook: &Notebook) -> Vec<ObjectRef> {
        let pages =
            (0..notebook.spec.pages).map(|page| ObjectRef::of::<ConfigMap>(page_name(notebook, page)));
        pages.chain([ObjectRef::of::<Secret>(notebook.name_any())]).collect()
    }

    fn questions(&self, view: &View<Notebook>) -> Vec<Question> {
        let asked = view.resource.spec.asks;
        let question = || Question::new("reader", "reader", &json!({"ask": "pages"}), Duration::ZERO).ok();
        asked.then(question).flatten().into_iter().collect()
    }

    fn plan(&self, view: &View<Notebook>, answers: &Answers) -> Plan {
        let notebook = &view.resource;
        assert!(!notebook.spec.panics, "this notebook is on fire");
        let mut plan = Plan::empty();
        if view.is_being_deleted() {
            clear_away(view, &mut plan);
            return plan;
        }
        if notebook.spec.held {
            plan.then(Effect::Hold { finalizer: FINALIZER.into() }, "the secret goes first");
        }
        if notebook.spec.stalls {
            let action = Action { subject: "reader".into(), name: "stall".into(), what: Value::Null };
            plan.then(Effect::Act(action), "it never ends");
        }
        for page in 0..notebook.spec.pages {
            plan.apply(page_object(view, page), "every page is there");
        }
        if notebook.spec.relists {
            plan.then(Effect::Relist(ballast_operator::KindRef::of::<ConfigMap>()), "they may be behind");
        }
        let config_maps: Vec<ConfigMap> = view.children.list();
        for extra in config_maps.iter().filter(|map| !is_wanted(notebook, &map.name_any())) {
            let target = Target::of(&ballast_operator::KindRef::of::<ConfigMap>(), &Object::of(extra));
            plan.then(Effect::Remove { target, right: Removal::Child }, "it has fewer pages now");
        }
        if notebook.spec.locked {
            lock(view, &mut plan);
        }
        let written = config_maps.iter().filter(|map| is_wanted(notebook, &map.name_any())).count();
        finish(view, answers, written, &mut plan);
        plan
    }
}

fn page_name(notebook: &Notebook, page: u32) -> String {
    format!("{}-{page}", notebook.name_any())
}

fn is_wanted(notebook: &Notebook, name: &str) -> bool {
    (0..notebook.spec.pages).any(|page| page_name(notebook, page) == name)
}

fn page_object(view: &View<Notebook>, page: u32) -> Object {
    let notebook = &view.resource;
    let mut value = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": page_name(notebook, page),
            "namespace": view.namespace(),
            "ownerReferences": [view.owner_reference()],
        },
        "data": {"text": notebook.spec.text},
    });
    if let Some(label) = &notebook.spec.label {
        value["metadata"]["labels"] = json!({"label": label});
    }
    Object::new(value).unwrap()
}

fn lock(view: &View<Notebook>, plan: &mut Plan) {
    let name = view.name();
    let kind = ballast_operator::KindRef::of::<Secret>();
    if view.children.object(&kind, name).is_some_and(|taken| taken.label(LABEL) != Some(name)) {
        return;
    }
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": view.namespace(), "labels": {LABEL: name}},
    });
    plan.apply(Object::new(secret).unwrap(), "a place for the key");
    let what = Material::Password { length: 24 };
    plan.then(Effect::Mint { secret: name.to_owned(), key: "password".into(), what }, "the key");
}

fn clear_away(view: &View<Notebook>, plan: &mut Plan) {
    let kind = ballast_operator::KindRef::of::<Secret>();
    if let Some(secret) = view.children.object(&kind, view.name()) {
        let right = Removal::Data(DataReason::DeletionPolicy);
        plan.then(
            Effect::Remove { target: Target::of(&kind, secret), right },
            "nobody needs the key any more",
        );
        return;
    }
    plan.then(Effect::Release { finalizer: FINALIZER.into() }, "nothing is left");
}

fn finish(view: &View<Notebook>, answers: &Answers, written: usize, plan: &mut Plan) {
    let old = view.resource.status.clone().unwrap_or_default();
    let outcome = view.last_outcome.as_ref();
    let failed = outcome.and_then(|outcome| outcome.failed.as_ref());
    let contested = outcome.and_then(|outcome| outcome.contested.first());
    let pages = view.resource.spec.pages;
    let ready = written == pages as usize;
    let mut conditions = Conditions::from(&old.conditions, view.generation(), view.now).set(
        "Ready",
        ready,
        "Written",
        format!("{written} of {pages} pages"),
    );
    conditions = match (failed, contested) {
        (Some(failed), _) => conditions.set("Degraded", true, "Failed", failed.failure.message.clone()),
        (None, Some(contest)) => conditions.set("Degraded", true, "Contested", contest.manager.clone()),
        (None, None) => conditions.set("Degraded", false, "Fine", ""),
    };
    if view.resource.spec.asks {
        let answer: Result<String, _> = answers.read("reader");
        let (status, said) = match answer {
            Ok(said) => (ConditionStatus::True, said),
            Err(failure) => (ConditionStatus::Unknown, failure.message),
        };
        conditions = conditions.set("Read", status, "Asked", said);
    }
    let was = old.conditions.iter().any(|old| old.type_ == "Ready" && old.status == "True");
    if ready && !was {
        plan.event(EventType::Normal, "Ready", "Write", format!("{pages} pages"), "it became ready");
    }
    let status =
        NotebookStatus { pages: u32::try_from(written).unwrap(), conditions: conditions.into_list() };
    plan.then(Effect::Status(serde_json::to_value(status).unwrap()), "what people read");
    if let Some(seconds) = view.resource.spec.look_again {
        plan.then(Effect::LookAgain(Duration::from_secs(seconds)), "the notebook asks for it");
    }
}

/// A notebook with this many pages.
pub fn notebook(name: &str, pages: u32) -> Notebook {
    Notebook::new(name, NotebookSpec { text: "hello".into(), pages, ..NotebookSpec::default() })
}
