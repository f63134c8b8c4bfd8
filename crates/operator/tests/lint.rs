//! Every classic mistake in a plan has a finding.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

use std::time::Duration;

use ballast_operator::{
    Answers, DataReason, Effect, KindRef, Material, Object, ObjectRef, Operator, Plan, Relation, Removal,
    Step, Target, View, lint,
};
use ballast_staging::Stage;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Endpoints, Node, PersistentVolumeClaim, Pod, Secret, Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_core::{ApiResource, CustomResourceExt, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A resource of no service.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Thing {
    metadata: ObjectMeta,
    status: Option<Value>,
}

impl Resource for Thing {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "Thing".into()
    }
    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "example.com".into()
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "things".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl CustomResourceExt for Thing {
    fn crd() -> CustomResourceDefinition {
        CustomResourceDefinition::default()
    }
    fn crd_name() -> &'static str {
        "things.example.com"
    }
    fn api_resource() -> ApiResource {
        ApiResource::erase::<Self>(&())
    }
    fn shortnames() -> &'static [&'static str] {
        &[]
    }
}

/// An operator whose plan is whatever the test says.
struct Says(Vec<Effect>);

impl Operator for Says {
    type Resource = Thing;

    const NAME: &'static str = "thing";
    const FIELD_MANAGER: &'static str = "ballast-thing";
    const FINALIZER: Option<&'static str> = Some("example.com/thing");

    fn relations(&self) -> Vec<Relation> {
        vec![
            Relation::owned::<ConfigMap>(),
            Relation::owned::<Service>().removable(),
            Relation::kept::<Secret>("thing"),
            Relation::kept::<PersistentVolumeClaim>("thing").removable(),
            Relation::observed::<Pod>("thing"),
            Relation::observed::<Endpoints>("thing").removable(),
        ]
    }

    fn claims(&self, _: &Thing) -> Vec<ObjectRef> {
        vec![ObjectRef::of::<ConfigMap>("a"), ObjectRef::of::<Secret>("a"), ObjectRef::of::<Pod>("a")]
    }

    fn plan(&self, _: &View<Thing>, _: &Answers) -> Plan {
        let steps = self.0.iter().map(|effect| Step { effect: effect.clone(), because: "so".to_owned() });
        Plan { steps: steps.collect() }
    }
}

const THING: &str = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a, uid: u}}";

fn object(api_version: &str, kind: &str, metadata: Value, more: Value) -> Effect {
    let mut value = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Effect::Apply(Object::new(value).unwrap())
}

fn config_map() -> Effect {
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": "u", "controller": true}]);
    object(
        "v1",
        "ConfigMap",
        json!({"name": "a", "namespace": "default", "ownerReferences": owner}),
        json!({}),
    )
}

fn secret(labels: Value, more: Value) -> Effect {
    object("v1", "Secret", json!({"name": "a", "namespace": "default", "labels": labels}), more)
}

fn remove(kind: KindRef, right: Removal) -> Effect {
    let (uid, resource_version) = ("u".to_owned(), "1".to_owned());
    let target =
        Target { kind, namespace: Some("default".to_owned()), name: "a".to_owned(), uid, resource_version };
    Effect::Remove { target, right }
}

fn status() -> Effect {
    Effect::Status(json!({}))
}

fn check(effects: Vec<Effect>, expected: &[&str]) {
    let operator = Says(effects);
    let stage = Stage::new(Says(Vec::new()), THING);
    let plan = operator.plan(&stage.view, &Answers::none());
    let findings: Vec<String> = lint(&operator, &stage.view, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(findings, expected, "{plan}");
}

#[test]
fn a_plan_without_mistakes_has_no_findings() {
    check(vec![config_map(), secret(json!({"thing": "a"}), json!({})), status()], &[]);
    check(vec![remove(KindRef::of::<Service>(), Removal::Child), status()], &[]);
    check(vec![remove(KindRef::of::<Endpoints>(), Removal::Child), status()], &[]);
    let right = Removal::Data(DataReason::DeletionPolicy);
    check(vec![remove(KindRef::of::<PersistentVolumeClaim>(), right), status()], &[]);
}

#[test]
fn every_classic_mistake_has_a_finding() {
    check(vec![], &["there is no status"]);
    check(vec![status(), status()], &["there is more than one status"]);
    check(vec![config_map(), config_map(), status()], &["step 2: ConfigMap default/a is applied twice"]);
    check(
        vec![object("v1", "ConfigMap", json!({"name": "a", "namespace": "default"}), json!({})), status()],
        &["step 1: ConfigMap default/a has no owner reference to its resource"],
    );
    check(
        vec![secret(json!({}), json!({})), status()],
        &["step 1: Secret default/a holds data and lacks the label thing by which it is found"],
    );
    check(
        vec![secret(json!({"thing": "a"}), json!({"stringData": {"password": "x"}})), status()],
        &["step 1: Secret default/a carries secret values: mint them"],
    );
    check(
        vec![object("v1", "Pod", json!({"name": "a", "namespace": "default"}), json!({})), status()],
        &["step 1: Pod default/a is only observed, and applied"],
    );
    check(
        vec![remove(KindRef::of::<Pod>(), Removal::Child), status()],
        &["step 1: Pod default/a is only observed, and removed"],
    );
    check(
        vec![remove(KindRef::of::<PersistentVolumeClaim>(), Removal::Child), status()],
        &["step 1: PersistentVolumeClaim default/a holds data and is removed like a child"],
    );
    check(
        vec![remove(KindRef::of::<ConfigMap>(), Removal::Child), status()],
        &["step 1: ConfigMap default/a is of a kind that the relations say is never removed"],
    );
    check(
        vec![Effect::Release { finalizer: "example.com/thing".to_owned() }, status()],
        &["step 1: the finalizer is released before the last step"],
    );
    check(
        vec![Effect::Hold { finalizer: "example.com/other".to_owned() }, status()],
        &["step 1: example.com/other is not the finalizer that the operator says it takes"],
    );
    check(
        vec![status(), Effect::LookAgain(Duration::ZERO)],
        &["step 2: looking again at once is a busy loop"],
    );
    check(vec![status(), Effect::Relist(KindRef::of::<Pod>())], &[]);
    check(
        vec![status(), Effect::Relist(KindRef::of::<Node>())],
        &["step 2: Node is not in the relations, and to be listed anew"],
    );
}

#[test]
fn a_plan_reads_as_aligned_text_and_shows_no_secret() {
    let mint = Effect::Mint {
        secret: "a".to_owned(),
        key: "password".to_owned(),
        what: Material::Password { length: 24 },
    };
    let effects = vec![
        secret(json!({"thing": "a"}), json!({})),
        mint,
        status(),
        Effect::LookAgain(Duration::from_secs(90)),
        Effect::Release { finalizer: "example.com/thing".to_owned() },
    ];
    ballast_staging::check(
        Says(effects),
        THING,
        "
        apply   Secret default/a                                     so
        mint    Secret a, key password: a password of 24 characters  so
        status  without conditions                                   so
        look    again in 90s                                         so
        release example.com/thing                                    so
        ",
    );
}

#[test]
fn a_value_is_minted_once_and_a_finalizer_taken_and_released_once() {
    let hold = Effect::Hold { finalizer: "example.com/thing".to_owned() };
    let mint =
        Effect::Mint { secret: "a".to_owned(), key: "k".to_owned(), what: Material::Bytes { length: 32 } };
    let effects = vec![hold, secret(json!({"thing": "a"}), json!({})), mint, status()];
    let mut stage = Stage::new(Says(effects), THING);
    stage.rest();
    assert_eq!(
        stage.view.resource.metadata.finalizers.as_deref(),
        Some(&["example.com/thing".to_owned()][..])
    );
    assert_eq!(stage.effects(), "");
    stage.operator.0 = vec![status(), Effect::Release { finalizer: "example.com/thing".to_owned() }];
    stage.rest();
    assert_eq!(stage.effects(), "");
}

#[test]
fn a_failed_apply_is_known_by_its_object() {
    let (Effect::Apply(object), other) = (config_map(), status()) else { panic!("an apply") };
    let failed = |effect: Effect| ballast_operator::Failed {
        step: Step { effect, because: String::new() }.headline(),
        failure: ballast_operator::Failure::new(ballast_operator::Class::Terminal, "no"),
        times: 1,
    };
    assert!(failed(config_map()).is_apply_of(&object));
    assert!(!failed(other).is_apply_of(&object));
    assert!(!failed(secret(json!({}), json!({}))).is_apply_of(&object));
}
