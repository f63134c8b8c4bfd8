//! A view, and what comes of it: objects are put on a stage, an operator plans, the plan is carried out in memory.
//!
//! A test puts objects on it, asks for the plan, lets the plan be carried out, says what others did meanwhile, and
//! reads what came of it. Every plan that a stage makes is linted, and made twice.

use std::sync::Arc;

use ballast_operator::{
    Answers, Class, Effect, Failed, Failure, KindRef, Object, Operator, Outcome, Plan, Relation, Settled,
    Step, Verdict, View, lint, settle,
};
use jiff::Timestamp;
use kube_core::Resource as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::applied;
use crate::text::{documents, same_text, yaml};

/// The time on every stage until a test moves it.
pub const NOON: &str = "2030-01-01T12:00:00Z";

/// A view and the operator that looks at it.
pub struct Stage<O: Operator> {
    /// The operator.
    pub operator: O,
    /// What it sees.
    pub view: View<O::Resource>,
    /// What it is told when it asks.
    pub answers: Answers,
    /// The events so far: `Warning Degraded: …`.
    pub events: Vec<String>,
    revision: u64,
}

impl<O: Operator> Stage<O> {
    /// A stage with the objects of a YAML text: exactly one of the operator's own kind, and whatever else.
    ///
    /// What a server would have filled in is filled in where it is missing: namespace `default`, a uid, a
    /// generation, a resourceVersion; and the uid of an owner that is on the stage. A document of kind `Outcome` says what came of the last round.
    pub fn new(operator: O, text: &str) -> Self {
        let own = KindRef::of::<O::Resource>();
        let mut documents = documents(text);
        let place = documents.iter().position(|document| document["kind"] == *own.kind);
        let Some(place) = place else { panic!("there is no {own} in the YAML of this test") };
        let mut resource = documents.remove(place);
        fill_in(&mut resource, 1);
        let resource =
            O::Resource::deserialize(&resource).unwrap_or_else(|error| panic!("no {own}: {error}"));
        let now: Timestamp = NOON.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let view = View::new(resource, now);
        let mut stage = Stage { operator, view, answers: Answers::none(), events: Vec::new(), revision: 1 };
        for document in documents {
            stage.put(document);
        }
        stage
    }

    /// What others did meanwhile: documents that are laid over the objects of the same kind and name, or added.
    /// A `null` takes a field away. One of the operator's own kind changes the resource.
    pub fn meanwhile(&mut self, text: &str) -> &mut Self {
        let own = KindRef::of::<O::Resource>();
        for document in documents(text) {
            if document["kind"] == *own.kind {
                let mut value = self.resource();
                if document.get("spec").is_some_and(|spec| *spec != value["spec"]) {
                    value["metadata"]["generation"] =
                        json!(value["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
                }
                overlay(&mut value, document);
                self.set_resource(&value);
            } else {
                self.put(document);
            }
        }
        self
    }

    /// What a person wrote into children: documents as for [`Stage::meanwhile`], whose fields are theirs from then on.
    pub fn edited(&mut self, yaml: &str) -> &mut Self {
        for document in documents(yaml) {
            let (api_version, kind) = (text(&document, "apiVersion"), text(&document, "kind"));
            let relation = self.relation(|relation| relation.kind.is(&api_version, &kind));
            let live = self.view.children.object(&relation.kind, &text(&document["metadata"], "name"));
            let live = live.map(|object| object.value().clone());
            self.insert(&relation, applied::apply(live, &document, "kubectl-edit", None));
        }
        self
    }

    /// Someone deleted a child.
    pub fn lose(&mut self, kind: &str, name: &str) -> &mut Self {
        let relation = self.relation(|relation| relation.kind.kind == kind);
        self.view.children.remove(&relation.kind, name);
        self
    }

    /// Time passes.
    pub fn later(&mut self, seconds: i64) -> &mut Self {
        let then = self.view.now.as_second() + seconds;
        self.view.now = Timestamp::from_second(then).unwrap_or(self.view.now);
        self
    }

    /// The plan for what is seen now. The linter must have nothing to say about it.
    pub fn plan(&self) -> Plan {
        let plan = self.operator.plan(&self.view, &self.answers);
        let findings = lint(&self.operator, &self.view, &plan);
        assert!(findings.is_empty(), "the linter says of this plan: {findings:?}\n{plan}");
        let again = self.operator.plan(&self.view, &self.answers);
        assert!(plan == again, "the same view gave two plans:\n{plan}\n{again}");
        plan
    }

    /// What would come of the plan, step by step.
    pub fn settled(&self) -> String {
        let plan = self.plan();
        settle::<O>(&plan, &self.view).iter().map(|settled| format!("{settled}\n")).collect()
    }

    /// One round: plans, and carries out what has an effect. Gives the steps that had one.
    pub fn round(&mut self) -> Plan {
        let plan = self.plan();
        let settled = settle::<O>(&plan, &self.view);
        let done: Vec<Step> = settled
            .iter()
            .filter(|settled| settled.is_effect())
            .map(|settled| settled.step.clone())
            .collect();
        let failed = settled.iter().find_map(|settled: &Settled<'_>| match &settled.verdict {
            Verdict::Refused { why } => Some(Failed {
                step: settled.step.headline(),
                failure: Failure::new(Class::Terminal, why.clone()),
                times: 1,
            }),
            _ => None,
        });
        for step in &done {
            self.carry_out(&step.effect);
        }
        self.view.last_outcome = Some(Outcome { failed, contested: Vec::new() });
        Plan { steps: done }
    }

    /// Rounds until one has no effect.
    pub fn rest(&mut self) -> &mut Self {
        for _ in 0..10 {
            if self.round().steps.is_empty() {
                return self;
            }
        }
        panic!("still busy after ten rounds:\n{}", self.settled());
    }

    /// The steps that would change anything now. Empty at the fixpoint.
    pub fn effects(&self) -> String {
        let plan = self.plan();
        plan.effects::<O>(&self.view).iter().map(|settled| format!("{settled}\n")).collect()
    }

    /// The resource as JSON.
    pub fn resource(&self) -> Value {
        serde_json::to_value(&self.view.resource).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The status of the resource as YAML, as people read it.
    pub fn status(&self) -> String {
        yaml(&self.resource()["status"])
    }

    /// Status, reason and message of a condition: `True AllPodsReady: 3 of 3 pods ready`.
    #[track_caller]
    pub fn condition(&self, type_: &str) -> String {
        let resource = self.resource();
        let conditions = resource["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.into_iter().find(|condition| condition["type"] == type_);
        let Some(found) = found else { panic!("no condition {type_}:\n{}", self.status()) };
        format!("{} {}: {}", text(found, "status"), text(found, "reason"), text(found, "message"))
    }

    /// A child as YAML without what the server keeps for itself.
    pub fn child(&self, kind: &str, name: &str) -> String {
        let relation = self.relation(|relation| relation.kind.kind == kind);
        let Some(object) = self.view.children.object(&relation.kind, name) else {
            return format!("there is no {kind} {name}\n");
        };
        let mut value = object.redacted().into_value();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            for field in ["managedFields", "uid", "resourceVersion", "generation"] {
                metadata.remove(field);
            }
        }
        yaml(&value)
    }

    fn relation(&self, of: impl Fn(&Relation) -> bool) -> Relation {
        let found = self.operator.relations().into_iter().find(|relation| of(relation));
        found.unwrap_or_else(|| panic!("that kind is not in the relations"))
    }

    fn set_resource(&mut self, value: &Value) {
        match O::Resource::deserialize(value) {
            Ok(resource) => self.view.resource = resource,
            Err(error) => panic!("the resource can't be read back: {error}\n{value:#}"),
        }
    }

    fn put(&mut self, document: Value) {
        if document["kind"] == "Outcome" {
            self.view.last_outcome = Some(outcome(&document));
            return;
        }
        let (api_version, kind) = (text(&document, "apiVersion"), text(&document, "kind"));
        let relation = self.relation(|relation| relation.kind.is(&api_version, &kind));
        let live = self.view.children.object(&relation.kind, &text(&document["metadata"], "name"));
        let mut value = live.map(|object| object.value().clone()).unwrap_or(Value::Null);
        overlay(&mut value, document);
        self.insert(&relation, value);
    }

    fn insert(&mut self, relation: &Relation, mut value: Value) {
        self.revision += 1;
        fill_in(&mut value, self.revision);
        self.fill_in_owners(&mut value);
        value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        match Object::of_kind(&relation.kind, value) {
            Ok(object) => self.view.children.insert(&relation.kind, Arc::new(object)),
            Err(error) => panic!("{error}"),
        }
    }

    fn fill_in_owners(&self, value: &mut Value) {
        let owners = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter(|owner| owner.get("uid").is_none()) {
            let (api_version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
            let kinds = self.operator.relations().into_iter().map(|relation| relation.kind);
            let mut found = kinds
                .filter(|known| known.is(&api_version, &kind))
                .filter_map(|known| self.view.children.object(&known, &text(owner, "name"))?.uid());
            if let Some(uid) = found.next() {
                owner["uid"] = json!(uid);
            }
        }
    }

    fn carry_out(&mut self, effect: &Effect) {
        match effect {
            Effect::Apply(want) => {
                let live = self.view.children.counterpart(want).map(|live| live.value().clone());
                let relation = self.relation(|relation| relation.kind.is(want.api_version(), want.kind()));
                self.insert(&relation, applied::apply(live, want.value(), O::FIELD_MANAGER, None));
            }
            Effect::Mint { secret, key, .. } => self.put(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "data": {key: "bWludGVk"}
            })),
            Effect::Remove { target, .. } => {
                self.view.children.remove(&target.kind, &target.name);
            }
            Effect::Status(status) => {
                let own = KindRef::of::<O::Resource>();
                let want = json!({"apiVersion": own.api_version(), "kind": own.kind, "status": status});
                let value = applied::apply(Some(self.resource()), &want, O::FIELD_MANAGER, Some("status"));
                self.set_resource(&value);
            }
            Effect::Event { type_, reason, note, .. } => {
                self.events.push(format!("{type_} {reason}: {note}"))
            }
            Effect::Hold { finalizer } => self.finalizers(|list| list.push(finalizer.clone())),
            Effect::Release { finalizer } => self.finalizers(|list| list.retain(|taken| taken != finalizer)),
            Effect::Act(_) | Effect::LookAgain(_) | Effect::Relist(_) => {}
        }
    }

    fn finalizers(&mut self, change: impl FnOnce(&mut Vec<String>)) {
        change(self.view.resource.meta_mut().finalizers.get_or_insert_default());
    }
}

/// Asserts that the plan for a YAML text reads as expected: one aligned line per step.
pub fn check<O: Operator>(operator: O, text: &str, expected: &str) {
    let plan = Stage::new(operator, text).plan().to_string();
    same_text(&plan, expected);
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn outcome(document: &Value) -> Outcome {
    let class = match document["class"].as_str() {
        Some("Terminal") => Class::Terminal,
        Some("Bug") => Class::Bug,
        _ => Class::Retry,
    };
    let failed = document.get("step").map(|_| Failed {
        step: text(document, "step"),
        failure: Failure::new(class, text(document, "message")),
        times: document["times"].as_u64().and_then(|times| times.try_into().ok()).unwrap_or(1),
    });
    let contested = document.get("contested").map(|list| Vec::deserialize(list).unwrap_or_default());
    Outcome { failed, contested: contested.unwrap_or_default() }
}

/// What a server would have filled in.
fn fill_in(value: &mut Value, number: u64) {
    let uid = format!("{}-{number}", text(value, "kind").to_lowercase());
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.entry("namespace").or_insert_with(|| json!("default"));
    metadata.entry("uid").or_insert_with(|| json!(uid));
    metadata.entry("generation").or_insert_with(|| json!(1));
    metadata.entry("resourceVersion").or_insert_with(|| json!(number.to_string()));
}

/// Lays one value over another: maps are merged, `null` takes away, everything else replaces.
fn overlay(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                if value.is_null() {
                    under.remove(&name);
                } else {
                    overlay(under.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over,
    }
}
