//! Which steps would change anything: decided from the live object's `managedFields`, and held against what an apply
//! really does.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]

use ballast_operator::{compare, obstacles, rivals};
use ballast_staging::{documents, same_text};
use drydock_merge::{
    fields::FieldSet,
    managed::{Apply, Update, apply, update},
};
use drydock_schema::builtin;
use proptest::prelude::*;
use serde_json::{Value, json};

const US: &str = "ballast-test";

fn server_side_apply(live: Option<&Value>, want: &Value, manager: &str) -> Value {
    let schema = builtin::definition_for("apps", "v1", "Deployment").unwrap();
    apply(Apply {
        schema: &schema,
        live,
        applied: want,
        manager,
        api_version: "apps/v1",
        subresource: None,
        force: true,
        now: "2030-01-01T12:00:00Z".parse().unwrap(),
        ignore: &FieldSet::default(),
    })
    .unwrap()
}

fn edit(live: &Value, new: Value, manager: &str) -> Value {
    let schema = builtin::definition_for("apps", "v1", "Deployment").unwrap();
    update(Update {
        schema: &schema,
        live: Some(live),
        new,
        manager,
        api_version: "apps/v1",
        subresource: None,
        now: "2030-01-01T13:00:00Z".parse().unwrap(),
        ignore: &FieldSet::default(),
    })
}

/// Applies the first document, lets `kubectl-edit` lay the second over it, and gives the differences to the third
/// and the rivals, one per line.
fn check(yaml: &str, expected: &str) {
    let [first, edited, want] = &documents(yaml)[..] else { panic!("three documents") };
    let mut live = server_side_apply(None, first, US);
    let mut new = live.clone();
    overlay(&mut new, edited);
    if new != live {
        live = edit(&live, new, "kubectl-edit");
    }
    let mut lines: Vec<String> = match compare(&live, want, US, None) {
        None => vec!["the same".to_owned()],
        Some(differences) => differences.iter().map(ToString::to_string).collect(),
    };
    lines.extend(
        rivals(&live, want, US)
            .into_iter()
            .map(|rival| format!("against {} at {}", rival.manager, rival.path)),
    );
    same_text(&lines.join("\n"), expected);
}

fn overlay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                if value.is_null() {
                    under.remove(name);
                } else {
                    overlay(under.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over.clone(),
    }
}

const BASE: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: default, labels: {app: a}}
spec:
  replicas: 3
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers:
      - {name: main, image: 'i:1', args: [v, w], ports: [{containerPort: 80, name: http}]}
      - {name: side, image: 's:1'}
";

#[test]
fn what_was_applied_is_the_same() {
    check(&format!("{BASE}---\n{{}}\n---{BASE}"), "the same");
}

#[test]
fn what_others_add_beside_it_is_no_difference() {
    check(
        &format!(
            "{BASE}---\n{{metadata: {{labels: {{team: x}}, annotations: {{n: '1'}}}}, spec: {{paused: true}}}}\n---{BASE}"
        ),
        "the same",
    );
}

#[test]
fn a_field_that_someone_changed_is_a_difference_with_a_rival() {
    check(
        &format!("{BASE}---\n{{metadata: {{labels: {{app: b}}}}, spec: {{replicas: 1}}}}\n---{BASE}"),
        r#"
        ~ .metadata.labels.app: "b" → "a"
        ~ .spec.replicas: 1 → 3
        against kubectl-edit at .metadata.labels.app
        against kubectl-edit at .spec.replicas
        "#,
    );
}

#[test]
fn a_field_that_someone_removed_is_a_difference() {
    check(
        &format!("{BASE}---\n{{metadata: {{labels: {{app: null}}}}}}\n---{BASE}"),
        r#"+ .metadata.labels.app: "a""#,
    );
}

#[test]
fn a_field_that_is_no_longer_wanted_goes() {
    let want = BASE.replace("replicas: 3", "paused: false").replace("args: [v, w], ", "");
    check(
        &format!("{BASE}---\n{{}}\n---{want}"),
        r#"
        + .spec.paused: false
        - .spec.replicas: 3
        - .spec.template.spec.containers[name="main"].args: ["v","w"]
        "#,
    );
}

#[test]
fn items_of_a_list_are_known_by_their_keys() {
    let want =
        BASE.replace("- {name: side, image: 's:1'}", "- {name: other, image: 'o:1'}").replace("i:1", "i:2");
    check(
        &format!("{BASE}---\n{{}}\n---{want}"),
        r#"
        ~ .spec.template.spec.containers[name="main"].image: "i:1" → "i:2"
        + .spec.template.spec.containers[name="other"]: {"image":"o:1","name":"other"}
        - .spec.template.spec.containers[name="side"]: {"image":"s:1","name":"side"}
        "#,
    );
}

#[test]
fn nothing_is_ours_before_the_first_apply() {
    let live =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let differences = compare(&live, &live, US, None).unwrap();
    assert_eq!(differences[0].to_string(), r#"~ .data.k: "v" (taken over)"#);
}

/// Applies ours anew over what `kubectl-edit` laid over it, past what is in its way where the server complained of a
/// field. Gives what was in the way, and the pod's spec then.
fn past(edited: &str, refused: &str) -> (Vec<String>, Value) {
    let want = &documents(BASE)[0];
    let mut live = server_side_apply(None, want, US);
    let mut new = live.clone();
    overlay(&mut new, &documents(edited)[0]);
    live = edit(&live, new, "kubectl-edit");
    let found = obstacles(&live, want, US, &[refused.to_owned()]);
    let mut paths = Vec::new();
    if let Some(found) = found {
        paths.extend(found.rivals.into_iter().map(|rival| format!("{}: {}", rival.manager, rival.path)));
        live["metadata"]["managedFields"] = found.managed_fields;
    }
    let after = server_side_apply(Some(&live), want, US);
    (paths, after["spec"]["template"]["spec"].clone())
}

#[test]
fn what_is_in_the_way_of_an_apply_goes_and_nothing_else_does() {
    let edited = "
spec:
  paused: true
  template:
    spec:
      nodeSelector: {disk: fast}
      containers:
      - {name: main, image: 'i:1', args: [v, w], ports: [{containerPort: 81, name: http}, {containerPort: 9, name: more}]}
      - {name: side, image: 's:1'}
      - {name: theirs, image: 't:1', ports: [{containerPort: 82, name: http}]}
";
    let (paths, pod) = past(edited, "spec.template.spec.containers[0].ports[1].name");
    assert_eq!(
        paths,
        [
            r#"kubectl-edit: .spec.template.spec.containers[name="main"].ports[containerPort=81,protocol="TCP"]"#
        ]
    );
    let ports: Vec<&Value> =
        pod["containers"][0]["ports"].as_array().unwrap().iter().map(|port| &port["containerPort"]).collect();
    assert_eq!(ports, [9, 80], "{pod:#}");
    assert_eq!(pod["containers"][2]["ports"][0]["containerPort"], 82);
    assert_eq!(pod["nodeSelector"]["disk"], "fast");
    // Nothing is in the way of a field that nobody wrote anything beside.
    assert_eq!(past(edited, "spec.selector.matchLabels").0, Vec::<String>::new());
    assert_eq!(past(edited, "metadata.labels").0, Vec::<String>::new());
}

#[test]
fn what_is_set_beside_a_refused_field_is_in_its_way() {
    let edited = "spec: {template: {spec: {nodeSelector: {disk: fast}, containers: [{name: main, image: 'i:1', \
                  args: [v, w], ports: [{containerPort: 80, name: http}], tty: true}, {name: side, image: 's:1'}]}}}";
    let (paths, pod) = past(edited, "spec.template.spec.containers[0].args");
    assert_eq!(paths, [r#"kubectl-edit: .spec.template.spec.containers[name="main"].tty"#]);
    assert_eq!(pod["containers"][0]["tty"], Value::Null);
    assert_eq!(pod["nodeSelector"]["disk"], "fast");
}

fn labels() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[ab]", "[xy]", 1..3).prop_map(|labels| json!(labels))
}

fn maybe(
    field: &'static str,
    value: impl Strategy<Value = Value>,
) -> impl Strategy<Value = (String, Option<Value>)> {
    proptest::option::of(value).prop_map(move |value| (field.to_owned(), value))
}

fn object_of(fields: Vec<(String, Option<Value>)>) -> Value {
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

prop_compose! {
    fn container()(
        image in maybe("image", "[ab]".prop_map(Value::from)),
        args in maybe("args", proptest::collection::vec("[xy]", 0..3).prop_map(|args| json!(args))),
        protocol in proptest::option::of(Just("TCP")),
        ports in proptest::option::of(1u8..3),
        env in maybe("env", proptest::collection::btree_map("[AB]", "[12]", 1..3).prop_map(|env| {
            json!(env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>())
        })),
        limits in maybe("resources", "[12]".prop_map(|cpu| json!({"limits": {"cpu": cpu}}))),
        context in maybe("securityContext", Just(json!({"capabilities": {"drop": ["ALL"]}}))),
    ) -> Value {
        let ports = ports.map(|port| match protocol {
            Some(protocol) => json!([{"containerPort": port, "protocol": protocol}]),
            None => json!([{"containerPort": port, "name": "p"}]),
        });
        object_of(vec![image, args, ("ports".to_owned(), ports), env, limits, context])
    }
}

prop_compose! {
    fn deployment()(
        labels in maybe("labels", labels()),
        finalizers in maybe("finalizers", proptest::collection::btree_set("[ab]/x", 1..3).prop_map(|set| json!(set))),
        replicas in maybe("replicas", (1..3i32).prop_map(Value::from)),
        selector in maybe("selector", labels_selector()),
        containers in proptest::collection::btree_map("[cd]", container(), 1..3),
        volumes in maybe("volumes", Just(json!([{"name": "v", "emptyDir": {}}]))),
    ) -> Value {
        let containers: Vec<Value> = containers.into_iter().map(|(name, mut container)| {
            container["name"] = json!(name);
            container
        }).collect();
        let pod = object_of(vec![("containers".to_owned(), Some(json!(containers))), volumes]);
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": object_of(vec![("name".to_owned(), Some(json!("a"))), labels, finalizers]),
            "spec": object_of(vec![replicas, selector, ("template".to_owned(), Some(json!({"spec": pod})))]),
        })
    }
}

fn labels_selector() -> impl Strategy<Value = Value> {
    labels().prop_map(|labels| json!({"matchLabels": labels}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Skipping is right: an apply is called the same exactly when a server would change nothing.
    #[test]
    fn an_apply_is_skipped_exactly_when_it_would_change_nothing(
        first in deployment(), others in deployment(), edits in proptest::bool::ANY, applies in proptest::bool::ANY,
        next in proptest::option::of(deployment()),
    ) {
        let mut live = server_side_apply(None, &first, US);
        if applies {
            live = server_side_apply(Some(&live), &others, "another-operator");
        }
        if edits {
            let mut new = live.clone();
            overlay(&mut new, &json!({"metadata": {"labels": others["metadata"]["labels"]}, "spec": {
                "replicas": others["spec"]["replicas"], "selector": others["spec"]["selector"],
            }}));
            live = edit(&live, new, "kubectl-edit");
        }
        let want = next.unwrap_or(first);
        let after = server_side_apply(Some(&live), &want, US);
        let differences = compare(&live, &want, US, None);
        prop_assert_eq!(differences.is_none(), after == live, "live {:#}\nwant {:#}\n{:?}", live, want, differences);
        prop_assert_eq!(compare(&after, &want, US, None), None, "after an apply there is nothing left to apply");
    }
}
