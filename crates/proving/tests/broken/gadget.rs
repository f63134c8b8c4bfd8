//! A small operator that does a bit of everything, and can be told to make one mistake.
//!
//! A `Gadget` has a Deployment, a ConfigMap with settings, an extra ConfigMap that can be switched off, and a Secret
//! that holds data. It holds a finalizer to take the Secret with it when it goes.

use std::time::Duration;

use ballast_operator::{
    Answers, Conditions, DataReason, Effect, KindRef, Material, Object, ObjectRef, Operator, Plan, Relation,
    Removal, Target, View,
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::CustomResource;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const LABEL: &str = "gadget";
const FINALIZER: &str = "proving.example.com/finalizer";

/// What is wanted of a gadget.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "proving.example.com", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
#[serde(rename_all = "camelCase")]
pub struct GadgetSpec {
    pub size: i32,
    #[serde(default)]
    pub extra: bool,
}

/// What is known of a gadget.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GadgetStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<String>,
}

impl Gadget {
    pub fn is_ready(&self) -> bool {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }
}

/// What operators do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A child's name is made up once and remembered in the process.
    NameInMemory,
    /// Ready is said when the Deployment was applied.
    ReadyTooSoon,
    /// The Deployment has no owner reference.
    NoOwner,
    /// The plan depends on how often it was asked for.
    CountsRounds,
    /// The Deployment is made only by the process that made the settings.
    StageInMemory,
    /// The extra is removed by the process that saw it being switched off.
    EdgeTriggered,
    /// The finalizer is taken and never released.
    NeverReleases,
    /// A setting is always what it is not.
    Flips,
    /// What was applied once is not applied again.
    AppliesOnce,
    /// Where the Deployment is absent, all seems lost, and the data goes too.
    DataOnAbsence,
    /// After any failure nothing is done any more.
    GivesUp,
    /// The status says when it was last looked at.
    ClockInStatus,
}

/// What no operator should have.
#[derive(Default)]
struct Memory {
    rounds: u32,
    name: Option<String>,
    made_settings: bool,
    applied: bool,
    extra: Option<bool>,
}

pub struct Gadgets {
    mistake: Option<Mistake>,
    memory: Mutex<Memory>,
}

impl Gadgets {
    pub fn new(mistake: Option<Mistake>) -> Self {
        Gadgets { mistake, memory: Mutex::default() }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}

impl Operator for Gadgets {
    type Resource = Gadget;

    const NAME: &'static str = "gadget";
    const FIELD_MANAGER: &'static str = "ballast-gadget";
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    fn relations(&self) -> Vec<Relation> {
        vec![
            Relation::owned::<Deployment>(),
            Relation::owned::<ConfigMap>().removable(),
            Relation::kept::<Secret>(LABEL).removable(),
        ]
    }

    fn claims(&self, resource: &Gadget) -> Vec<ObjectRef> {
        let name = resource.metadata.name.clone().unwrap_or_default();
        let mut claims = vec![
            ObjectRef::of::<Deployment>(name.clone()),
            ObjectRef::of::<ConfigMap>(format!("{name}-settings")),
            ObjectRef::of::<ConfigMap>(format!("{name}-extra")),
            ObjectRef::of::<Secret>(format!("{name}-data")),
        ];
        claims.extend(self.memory.lock().name.clone().map(ObjectRef::of::<ConfigMap>));
        claims
    }

    fn plan(&self, view: &View<Gadget>, _: &Answers) -> Plan {
        self.memory.lock().rounds += 1;
        let mut plan = Plan::empty();
        if view.is_being_deleted() {
            if !self.makes(Mistake::NeverReleases) {
                remove_data(&mut plan, view);
                plan.then(Effect::Release { finalizer: FINALIZER.into() }, "the data is gone");
            }
            return plan;
        }
        if self.has_given_up(view) {
            let status = GadgetStatus { gave_up: Some(true), ..GadgetStatus::default() };
            plan.then(Effect::Status(json!(status)), "it failed, so it is over");
            return plan;
        }
        plan.then(Effect::Hold { finalizer: FINALIZER.into() }, "the data goes with it");
        self.plan_data(&mut plan, view);
        self.plan_settings(&mut plan, view);
        self.plan_extra(&mut plan, view);
        self.plan_deployment(&mut plan, view);
        self.plan_status(&mut plan, view);
        plan
    }
}

impl Gadgets {
    fn has_given_up(&self, view: &View<Gadget>) -> bool {
        let failed = view.last_outcome.as_ref().is_some_and(|outcome| outcome.failed.is_some());
        let before = view.resource.status.as_ref().is_some_and(|status| status.gave_up == Some(true));
        self.makes(Mistake::GivesUp) && (failed || before)
    }

    fn plan_data(&self, plan: &mut Plan, view: &View<Gadget>) {
        if self.makes(Mistake::DataOnAbsence) && live(view).is_none() && remove_data(plan, view) {
            return;
        }
        let name = format!("{}-data", view.name());
        let metadata = json!({"name": name, "namespace": view.namespace(), "labels": {LABEL: view.name()}});
        plan.apply(
            object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})),
            "it holds data",
        );
        let what = Material::Password { length: 16 };
        plan.then(Effect::Mint { secret: name, key: "password".into(), what }, "nobody else knows it");
    }

    fn plan_settings(&self, plan: &mut Plan, view: &View<Gadget>) {
        let kind = KindRef::of::<ConfigMap>();
        let mut memory = self.memory.lock();
        let mut name = format!("{}-settings", view.name());
        if self.makes(Mistake::NameInMemory) {
            let number =
                view.children.objects(&kind).filter(|child| child.name().contains("settings")).count();
            name = memory.name.get_or_insert_with(|| format!("{name}-{}", number + 1)).clone();
        }
        let live = view.children.object(&kind, &name);
        memory.made_settings |= live.is_none();
        let mut data = json!({"extra": view.resource.spec.extra.to_string()});
        if self.makes(Mistake::CountsRounds) {
            data["round"] = json!(memory.rounds.to_string());
        }
        if self.makes(Mistake::Flips) {
            let is = live.and_then(|live| live.value().pointer("/data/turn")?.as_str());
            data["turn"] = json!(if is == Some("left") { "right" } else { "left" });
        }
        plan.apply(config_map(view, &name, data), "what it runs with");
    }

    fn plan_extra(&self, plan: &mut Plan, view: &View<Gadget>) {
        let name = format!("{}-extra", view.name());
        let wanted = view.resource.spec.extra;
        let before = self.memory.lock().extra.replace(wanted);
        if wanted {
            plan.apply(config_map(view, &name, json!({"extra": "yes"})), "it is switched on");
            return;
        }
        if self.makes(Mistake::EdgeTriggered) && before != Some(true) {
            return;
        }
        let kind = KindRef::of::<ConfigMap>();
        if let Some(extra) = view.children.object(&kind, &name).filter(|extra| !extra.is_being_deleted()) {
            let target = Target::of(&kind, extra);
            plan.then(Effect::Remove { target, right: Removal::Child }, "it is switched off");
        }
    }

    fn plan_deployment(&self, plan: &mut Plan, view: &View<Gadget>) {
        let mut memory = self.memory.lock();
        if self.makes(Mistake::StageInMemory) && !memory.made_settings {
            return;
        }
        if self.makes(Mistake::AppliesOnce)
            && live(view).is_none()
            && std::mem::replace(&mut memory.applied, true)
        {
            return;
        }
        let labels = json!({LABEL: view.name()});
        let mut metadata = metadata(view, view.name());
        if self.makes(Mistake::NoOwner) {
            metadata["ownerReferences"] = Value::Null;
        }
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": view.resource.spec.size,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "automountServiceAccountToken": false,
                        "containers": [{"name": "gadget", "image": "gadget:1"}],
                    },
                },
            },
        });
        plan.apply(object(deployment), "it runs");
    }

    fn plan_status(&self, plan: &mut Plan, view: &View<Gadget>) {
        let size = view.resource.spec.size;
        let ready = live(view).is_some_and(|deployment| {
            let status = deployment.status.unwrap_or_default();
            let current = status.observed_generation == deployment.metadata.generation;
            let replicas = deployment.spec.and_then(|spec| spec.replicas);
            current && replicas == Some(size) && status.available_replicas == Some(size)
        });
        let ready = ready || self.makes(Mistake::ReadyTooSoon) && live(view).is_some();
        let old =
            view.resource.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let conditions =
            Conditions::from(old, view.generation(), view.now).set("Ready", ready, "Counted", "");
        let mut status = GadgetStatus { conditions: conditions.into_list(), ..GadgetStatus::default() };
        if self.makes(Mistake::ClockInStatus) {
            status.looked_at = Some(view.now.to_string());
            plan.then(
                Effect::LookAgain(Duration::from_secs(10)),
                "so that people see that it is looked after",
            );
        }
        plan.then(Effect::Status(json!(status)), "what is known of it");
    }
}

/// Whether there was any to remove.
fn remove_data(plan: &mut Plan, view: &View<Gadget>) -> bool {
    let kind = KindRef::of::<Secret>();
    let Some(data) = view.children.object(&kind, &format!("{}-data", view.name())) else { return false };
    let right = Removal::Data(DataReason::DeletionPolicy);
    plan.then(Effect::Remove { target: Target::of(&kind, data), right }, "it goes with its resource");
    true
}

fn live(view: &View<Gadget>) -> Option<Deployment> {
    view.children.get(view.name())?.ok()
}

fn metadata(view: &View<Gadget>, name: &str) -> Value {
    json!({
        "name": name, "namespace": view.namespace(), "labels": {LABEL: view.name()},
        "ownerReferences": [view.owner_reference()],
    })
}

fn config_map(view: &View<Gadget>, name: &str, data: Value) -> Object {
    object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(view, name), "data": data}))
}

fn object(mut value: Value) -> Object {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    Object::new(value).unwrap()
}
