//! What holds for any value and any schema.

use std::sync::Arc;

use drydock_schema::{
    Schema, defaults, json, protobuf,
    unknown::{self, Root},
    validate,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-10_i64..10).prop_map(Value::from),
        (-2.0..2.0).prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

/// Few names, so that values and schemas meet.
fn name() -> BoxedStrategy<String> {
    prop_oneof![4 => "[a-c]", 1 => Just("metadata".to_owned()), 1 => Just("kind".to_owned()), 1 => any::<String>()].boxed()
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn rule() -> impl Strategy<Value = Value> {
    let expression = prop_oneof![
        Just("has(self.a)".to_owned()),
        Just("self == oldSelf".to_owned()),
        Just("self.a.all(x, x > 1)".to_owned()),
        Just("self.size() < 10".to_owned()),
        Just("self.a[0].b == self.c".to_owned()),
        "[a-z.()\\[\\]{}'\"<>=!&|+*/? 0-9_-]{0,20}",
        any::<String>(),
    ];
    (expression, prop::option::of("[ a-z'.]{0,8}")).prop_map(|(rule, text)| {
        json!({"rule": rule, "message": text, "messageExpression": text, "fieldPath": text.map(|text| format!(".{text}"))})
    })
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "integer", "minimum": -2, "maximum": 5})),
        Just(json!({"type": "number", "multipleOf": 0.5})),
        Just(json!({"type": "boolean", "nullable": true})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "string", "format": "date-time"})),
        Just(json!({"type": "string", "pattern": "^a", "maxLength": 2})),
        "[a-c]{0,2}".prop_map(|text| json!({"type": "string", "default": text})),
        (-3_i64..9).prop_map(|number| json!({"type": "integer", "default": number})),
    ]
}

/// Schemas that are mostly structural.
fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 24, 3, |inner| {
        let properties = prop::collection::btree_map(name(), inner.clone(), 0..4);
        prop_oneof![
            (properties.clone(), prop::collection::vec("[a-c]", 0..2), any::<bool>(), prop::option::of(value())).prop_map(
                |(properties, required, preserve, default)| {
                    let mut node = json!({"type": "object", "properties": properties, "required": required});
                    if preserve {
                        node["x-kubernetes-preserve-unknown-fields"] = true.into();
                    }
                    if let Some(default) = default {
                        node["default"] = default;
                    }
                    node
                }
            ),
            inner.clone().prop_map(|values| json!({"type": "object", "additionalProperties": values})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "maxItems": 3})),
            properties.clone().prop_map(|properties| json!({
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
                "items": {"type": "object", "properties": properties, "required": ["a"]},
            })),
            (properties.clone(), prop::collection::vec(rule(), 1..3)).prop_map(|(properties, rules)| json!({
                "type": "object", "properties": properties, "x-kubernetes-validations": rules,
            })),
            (properties, inner).prop_map(|(properties, other)| json!({
                "type": "object", "properties": properties,
                "anyOf": [{"required": ["a"]}, other.clone()], "oneOf": [{"required": ["b"]}, {"minProperties": 1}], "not": other,
            })),
        ]
    })
}

fn root() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(name(), schema(), 0..4)
        .prop_map(|properties| json!({"type": "object", "properties": properties}))
}

fn read(definition: &Value) -> Option<Arc<Schema>> {
    Schema::from_openapi(definition).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pruning_and_defaulting_twice_is_once(definition in root(), mut object in value()) {
        let Some(schema) = read(&definition) else { return Ok(()) };
        unknown::prune(&schema, &mut object, Root::Resource);
        defaults::apply(&schema, &mut object);
        let once = object.clone();
        prop_assert_eq!(unknown::prune(&schema, &mut object, Root::Resource), Vec::<String>::new());
        defaults::apply(&schema, &mut object);
        prop_assert_eq!(object, once);
    }

    #[test]
    fn any_object_can_be_validated(definition in root(), new in value(), old in prop::option::of(value())) {
        let Some(schema) = read(&definition) else { return Ok(()) };
        let _ = validate::object(&schema, &new, old.as_ref());
    }

    #[test]
    fn an_object_that_does_not_change_stays_valid(definition in root(), mut object in value()) {
        let Some(schema) = read(&definition) else { return Ok(()) };
        unknown::prune(&schema, &mut object, Root::Resource);
        defaults::apply(&schema, &mut object);
        if validate::object(&schema, &object, None).is_empty() {
            let again: Vec<String> = validate::object(&schema, &object, Some(&object)).iter()
                // A transition rule is only looked at now, and may well fail.
                .filter(|error| error.value.as_ref() != Some(&json!("object")))
                .map(ToString::to_string).collect();
            prop_assert_eq!(again, Vec::<String>::new());
        }
    }

    #[test]
    fn any_schema_is_read_or_refused(definition in value()) {
        let _ = Schema::from_openapi(&definition);
        let _ = Schema::from_openapi(&json!({"type": "object", "properties": {"a": definition}}));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<Vec<u8>>(), words in "[\\[\\]{}:,\"a0 \n-]{0,30}") {
        let _ = json::parse(&text);
        let _ = json::parse(words.as_bytes());
        let _ = json::parse_yaml(words.as_bytes());
    }

    #[test]
    fn what_is_read_is_what_was_written(value in value()) {
        let parsed = json::parse(value.to_string().as_bytes()).expect("it was written as JSON");
        let same = serde_json::from_str::<Value>(&value.to_string()).expect("JSON");
        prop_assert_eq!(parsed.duplicates, Vec::<String>::new());
        // Whole numbers may have lost their fraction of zero.
        prop_assert_eq!(parsed.value.to_string().replace(".0", ""), same.to_string().replace(".0", ""));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in any::<Vec<u8>>(), kind in prop::sample::select(vec!["Pod", "Secret", "Event", "Service"])) {
        let _ = protobuf::decode(&bytes);
        let meta = [&[10, 2][..], b"v1", &[18, kind.len() as u8], kind.as_bytes()].concat();
        let mut body = [protobuf::MAGIC, &[10, meta.len() as u8], &meta].concat();
        if bytes.len() < 128 {
            body.extend([18, bytes.len() as u8]);
            body.extend(&bytes);
        }
        let _ = protobuf::decode(&body);
    }
}
