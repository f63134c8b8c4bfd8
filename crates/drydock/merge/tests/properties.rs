//! What holds for every object and every sequence of writes.

#![expect(clippy::unwrap_used, reason = "a test that can't go on says where")]

use std::sync::{Arc, LazyLock};

use drydock_merge::{
    fields::FieldSet,
    managed::{self, Apply, ApplyError, Update},
    patch,
};
use drydock_schema::{Schema, builtin};
use jiff::Timestamp;
use proptest::{collection, option, prelude::*, sample, strategy::Union};
use serde_json::{Map, Value, json};

static SHAPE: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("shape.json")).unwrap();
    Schema::from_openapi(&schema).unwrap()
});
static NOTHING: LazyLock<FieldSet> = LazyLock::new(FieldSet::new);

/// Any JSON, of names that the schemas know and some that they don't.
fn any_json() -> impl Strategy<Value = Value> {
    let name = sample::select(vec![
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "status",
        "items",
        "ports",
        "set",
        "map",
        "name",
        "port",
        "protocol",
        "labels",
        "finalizers",
        "managedFields",
        "template",
        "containers",
        "fieldsV1",
        "f:spec",
        ".",
        "k:{\"name\":\"x\"}",
        "v:1",
        "i:0",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "manager",
        "operation",
        "fieldsType",
    ])
    .prop_map(str::to_owned);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..3).prop_map(Value::from),
        Just(json!(1.5)),
        sample::select(vec!["", "a", "x", "delete", "replace", "merge", "Apply", "FieldsV1", "v1"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            collection::btree_map(name.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "merge.example.com/v1", "kind": "Shape", "metadata": {"name": "s"}, "spec": spec})
}

/// A spec of the recorded custom resource, without empty objects and lists.
fn spec() -> impl Strategy<Value = Value> {
    let text = || sample::select(vec!["1", "2"]).prop_map(Value::from);
    let texts = |names: &'static [&'static str]| {
        collection::btree_map(sample::select(names).prop_map(str::to_owned), text(), 1..3)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
            .boxed()
    };
    let set =
        || sample::subsequence(vec!["a", "b", "c", "d"], 1..4).prop_shuffle().prop_map(|items| json!(items));
    let item = (option::of(text()), option::of(set()), option::of(1..3)).prop_map(|(value, tags, nested)| {
        let mut item = Map::new();
        item.extend(value.map(|v| ("value".to_owned(), v)));
        item.extend(tags.map(|v| ("tags".to_owned(), v)));
        item.extend(nested.map(|v| ("nested".to_owned(), json!({"p": v}))));
        item
    });
    let items = collection::btree_map(sample::select(vec!["x", "y", "z"]), item, 1..4)
        .prop_map(|items| {
            items
                .into_iter()
                .map(|(name, mut item)| {
                    item.insert("name".to_owned(), json!(name));
                    Value::Object(item)
                })
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
        .prop_map(Value::Array);
    let field = Union::new(vec![
        (1..3).prop_map(|v| ("size", json!(v))).boxed(),
        text().prop_map(|v| ("mode", v)).boxed(),
        texts(&["a", "b"]).prop_map(|v| ("map", v)).boxed(),
        texts(&["a", "b"]).prop_map(|v| ("atomicMap", v)).boxed(),
        set().prop_map(|v| ("list", v)).boxed(),
        set().prop_map(|v| ("set", v)).boxed(),
        items.prop_map(|v| ("items", v)).boxed(),
        texts(&["a", "b"]).prop_map(|v| ("free", v)).boxed(),
    ]);
    collection::vec(field, 1..6).prop_map(|fields| {
        Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    })
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn apply(live: Option<&Value>, manager: &str, spec: &Value, second: i64) -> Result<Value, ApplyError> {
    let mut applied = object(spec.clone());
    if spec.is_null() {
        applied.as_object_mut().unwrap().remove("spec");
    }
    managed::apply(Apply {
        schema: &SHAPE,
        live,
        applied: &applied,
        manager,
        api_version: "merge.example.com/v1",
        subresource: None,
        force: true,
        now: at(second),
        ignore: &NOTHING,
    })
}

fn owned(object: &Value, manager: &str) -> FieldSet {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|entry| entry["manager"] == manager)
        .map(|entry| FieldSet::from_fields_v1(&entry["fieldsV1"]).unwrap())
        .unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_the_same_twice_changes_nothing(specs in collection::vec(spec(), 1..5)) {
        let managers = ["a", "b", "c"];
        let mut live = None;
        for (i, spec) in specs.iter().enumerate() {
            let manager = managers[i % managers.len()];
            let once = apply(live.as_ref(), manager, spec, i64::try_from(i).unwrap()).unwrap();
            let twice = apply(Some(&once), manager, spec, 100).unwrap();
            prop_assert_eq!(&once, &twice);
            live = Some(once);
        }
    }

    #[test]
    fn what_was_applied_is_in_the_object_and_owned(first in spec(), second in spec()) {
        let live = apply(None, "a", &first, 0).unwrap();
        let both = apply(Some(&live), "b", &second, 1).unwrap();
        let applied = object(second);
        let again = managed::apply(Apply {
            schema: &SHAPE, live: Some(&both), applied: &applied, manager: "c",
            api_version: "merge.example.com/v1", subresource: None, force: false, now: at(2), ignore: &NOTHING,
        }).unwrap();
        prop_assert_eq!(&again["spec"], &both["spec"], "another applies the same without a conflict");
        prop_assert!(owned(&both, "b").is_subset(&FieldSet::of_object(&SHAPE, &applied)));
        prop_assert_eq!(owned(&both, "b"), owned(&again, "c"));
    }

    #[test]
    fn letting_everything_go_removes_what_nobody_else_owns(first in spec(), second in spec()) {
        let one = apply(None, "a", &first, 0).unwrap();
        let two = apply(Some(&one), "b", &second, 1).unwrap();
        let left = apply(Some(&two), "a", &Value::Null, 2).unwrap();
        prop_assert_eq!(owned(&left, "a"), FieldSet::new());
        let mut alone = FieldSet::of_object(&SHAPE, &left);
        alone.subtract(&owned(&left, "b"));
        alone.subtract_trees(&FieldSet::of_names(&[&["apiVersion"], &["kind"], &["metadata"]]));
        // A spec that is there with nothing in it has no owner.
        alone.subtract(&FieldSet::of_names(&[&["spec"]]));
        prop_assert_eq!(alone.to_string(), "");
        prop_assert_eq!(owned(&left, "b"), owned(&two, "b"));
    }

    #[test]
    fn an_update_leaves_every_field_with_an_owner(specs in collection::vec(spec(), 1..6)) {
        let mut live: Option<Value> = None;
        for (i, spec) in specs.iter().enumerate() {
            let mut new = live.clone().unwrap_or_else(|| object(json!({})));
            new["spec"] = spec.clone();
            let manager = ["a", "b", "c"][i % 3];
            let stored = managed::update(Update {
                schema: &SHAPE, live: live.as_ref(), new, manager, api_version: "merge.example.com/v1",
                subresource: None, now: at(i64::try_from(i).unwrap()), ignore: &NOTHING,
            });
            let mut unowned = FieldSet::of_object(&SHAPE, &stored);
            for manager in ["a", "b", "c"] {
                unowned.subtract(&owned(&stored, manager));
            }
            unowned.subtract_trees(&FieldSet::of_names(&[&["apiVersion"], &["kind"], &["metadata"]]));
            prop_assert_eq!(unowned.to_string(), "");
            live = Some(stored);
        }
    }

    #[test]
    fn fields_v1_round_trips(value in any_json()) {
        if let Ok(set) = FieldSet::from_fields_v1(&value) {
            prop_assert_eq!(&FieldSet::from_fields_v1(&set.to_fields_v1()).unwrap(), &set);
        }
        let set = FieldSet::of_object(&SHAPE, &value);
        prop_assert_eq!(&FieldSet::from_fields_v1(&set.to_fields_v1()).unwrap(), &set);
    }

    #[test]
    fn sets_are_sets(left in spec(), right in spec()) {
        let (left, right) =
            (FieldSet::of_object(&SHAPE, &object(left)), FieldSet::of_object(&SHAPE, &object(right)));
        let mut union = left.clone();
        union.union(right.clone());
        prop_assert!(left.is_subset(&union) && right.is_subset(&union));
        let both = left.intersection(&right);
        prop_assert_eq!(union.len() + both.len(), left.len() + right.len());
        let mut difference = left.clone();
        difference.subtract(&right);
        prop_assert!(difference.intersection(&right).is_empty());
        difference.union(both);
        prop_assert_eq!(difference, left);
    }

    #[test]
    fn no_json_is_too_strange(live in any_json(), sent in any_json(), manager in "[a-z]{0,3}") {
        let deployment = builtin::definition("io.k8s.api.apps.v1.Deployment").unwrap();
        for schema in [&*SHAPE, &deployment] {
            let _ = patch::json(&live, &sent);
            let _ = patch::merge(&live, &sent);
            let _ = patch::strategic(schema, &live, &sent);
            let mut applied = sent.clone();
            if let Some(fields) = applied.as_object_mut() {
                fields.insert("apiVersion".to_owned(), json!("v1"));
            }
            for live in [None, Some(&live)] {
                for force in [false, true] {
                    let _ = managed::apply(Apply {
                        schema, live, applied: &applied, manager: &manager, api_version: "v1",
                        subresource: None, force, now: at(0), ignore: &NOTHING,
                    });
                }
                let stored = managed::update(Update {
                    schema, live, new: sent.clone(), manager: &manager, api_version: "v1",
                    subresource: None, now: at(0), ignore: &NOTHING,
                });
                let mut again = stored.clone();
                managed::keep_times(&live.cloned().unwrap_or_default(), &mut again);
            }
        }
    }

    #[test]
    fn a_merge_patch_of_an_object_onto_itself_changes_nothing(value in spec()) {
        prop_assert_eq!(patch::merge(&value, &value), value.clone());
        prop_assert_eq!(patch::merge(&Value::Null, &value), value);
    }
}
