//! Which schemas are refused, in the words of Kubernetes 1.34, which was asked.

#![expect(clippy::expect_used, reason = "a failure in a test is the answer")]

use drydock_schema::{Schema, json};

/// Where Kubernetes puts the schema when all versions have the same.
const PATH: &str = "spec.validation.openAPIV3Schema";

#[track_caller]
fn check(definition: &str, expected: &[&str]) {
    let definition = json::parse_yaml(definition.as_bytes()).expect("YAML").value;
    let errors: Vec<String> = match Schema::from_openapi_at(PATH, &definition) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    };
    let expected: Vec<String> = expected.iter().map(|text| format!("{PATH}{text}")).collect();
    assert_eq!(errors, expected, "{definition}");
}

/// A field `a` of a spec; errors are below the spec.
#[track_caller]
fn check_field(field: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!(".properties[spec]{text}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(
        &format!("{{type: object, properties: {{spec: {{type: object, properties: {{a: {field}}}}}}}}}"),
        &expected,
    );
}

/// Rules of a spec with one integer `a`; a list of them, as JSON.
#[track_caller]
fn check_rules(rules: &str, expected: &[&str]) {
    let expected: Vec<String> =
        expected.iter().map(|text| format!(".properties[spec].x-kubernetes-validations{text}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let spec = r#""type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": "#;
    check(&format!(r#"{{"type": "object", "properties": {{"spec": {{{spec}{rules}}}}}}}"#), &expected);
}

#[test]
fn everything_has_a_type() {
    check("{}", &[".type: Required value: must not be empty at the root"]);
    check("{type: string}", &[r#".type: Invalid value: "string": must be object at the root"#]);
    check_field(
        "{}",
        &[".properties[a].type: Required value: must not be empty for specified object fields"],
    );
    check_field("{type: array}", &[".properties[a].items: Required value: must be specified"]);
    check_field(
        "{type: array, items: {}}",
        &[".properties[a].items.type: Required value: must not be empty for specified array items"],
    );
    check_field("{x-kubernetes-preserve-unknown-fields: true}", &[]);
    check_field("{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}", &[]);
}

#[test]
fn types_and_keywords_are_those_that_are_supported() {
    let types = r#"supported values: "array", "boolean", "integer", "number", "object", "string""#;
    check_field("{type: frob}", &[&format!(r#".properties[a].type: Unsupported value: "frob": {types}"#)]);
    check_field(
        "{type: 'null'}",
        &[
            &format!(r#".properties[a].type: Unsupported value: "null": {types}"#),
            ".properties[a].type: Forbidden: type cannot be set to null, use nullable as an alternative",
        ],
    );
    check_field("{type: string, $ref: '#/x'}", &[".properties[a].$ref: Forbidden: $ref is not supported"]);
    check_field(
        "{type: string, uniqueItems: true}",
        &[
            ".properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ],
    );
    check_field(
        "{type: object, x-kubernetes-preserve-unknown-fields: false}",
        &[
            ".properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ],
    );
    check_field(
        "{x-kubernetes-int-or-string: true, x-kubernetes-preserve-unknown-fields: true}",
        &[
            ".properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ],
    );
    check_field(
        "{type: object, x-kubernetes-embedded-resource: true}",
        &[
            ".properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ],
    );
    check("{type: object, nullable: true}", &[".nullable: Forbidden: nullable cannot be true at the root"]);
}

#[test]
fn an_object_is_a_struct_or_a_map() {
    check(
        "{type: object, additionalProperties: {type: string}}",
        &[".additionalProperties: Forbidden: must not be used at the root"],
    );
    check_field(
        "{type: object, properties: {b: {type: string}}, additionalProperties: {type: string}}",
        &[
            ".properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ],
    );
}

#[test]
fn a_pattern_is_a_regular_expression() {
    check_field(
        "{type: string, pattern: '('}",
        &[
            r#".properties[a].pattern: Invalid value: "(": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"#,
        ],
    );
}

#[test]
fn defaults_are_values_that_could_be_given() {
    check_field(
        "{type: integer, default: x}",
        &[r#".properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#],
    );
    check_field(
        "{type: integer, default: 5, maximum: 3}",
        &[".properties[a].default: Invalid value: 5:  in body should be less than or equal to 3"],
    );
    check_field(
        "{type: object, properties: {b: {type: string}}, default: {c: 1}}",
        &[r#".properties[a].default: Invalid value: {"c":1}: must not have unknown fields"#],
    );
    check_field(
        "{type: object, properties: {b: {type: string}}, required: [b], default: {}}",
        &[".properties[a].default.b: Required value"],
    );
    check_field(
        "{type: integer, default: 5, x-kubernetes-validations: [{rule: self < 3, message: small}]}",
        &[r#".properties[a].default: Invalid value: "integer": small"#],
    );
}

#[test]
fn metadata_is_not_the_schemas_business() {
    check(
        "{type: object, properties: {metadata: {type: object, properties: {labels: {type: object}}}}}",
        &[
            ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
    check(
        "{type: object, properties: {metadata: {type: object, properties: {name: {type: string, pattern: ^a}}}, kind: {type: integer}}}",
        &[r#".properties[kind].type: Invalid value: "integer": must be string"#],
    );
    check(
        "{type: object, properties: {metadata: {type: object, default: {}}, kind: {type: string, default: x}}}",
        &[
            ".properties[kind].default: Forbidden: must not be set in top-level kind",
            ".properties[metadata].default: Forbidden: must not be set in top-level metadata",
        ],
    );
}

#[test]
fn combinations_restrict_and_do_not_declare() {
    check(
        "{type: object, properties: {spec: {type: object, properties: {a: {type: string}}, anyOf: [{properties: {b: {minLength: 1}}}, {type: object, description: x, properties: {a: {default: '1'}}}]}}}",
        &[
            ".properties[spec].anyOf[1].description: Forbidden: must be empty to be structural",
            ".properties[spec].anyOf[1].properties[a].default: Forbidden: must be undefined to be structural",
            ".properties[spec].anyOf[1].type: Forbidden: must be empty to be structural",
        ],
    );
    check(
        "{type: object, properties: {a: {type: string}}, allOf: [{properties: {b: {minLength: 1}}}]}",
        &[&format!(".properties[b]: Required value: because it is defined in {PATH}.allOf[0].properties[b]")],
    );
}

#[test]
fn lists_say_how_items_are_told_apart() {
    check_field(
        "{type: array, x-kubernetes-list-type: map, items: {type: string}}",
        &[
            ".properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            r#".properties[a].items.type: Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map"#,
        ],
    );
    check_field(
        "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k, m], items: {type: object, properties: {k: {type: string}}}}",
        &[
            r#".properties[a].x-kubernetes-list-map-keys: Invalid value: ["k","m"]: entries must all be names of item properties"#,
            ".properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
    check_field(
        "{type: array, x-kubernetes-list-type: set, items: {type: object}}",
        &[
            ".properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ],
    );
    check_field(
        "{type: array, x-kubernetes-list-type: bag, x-kubernetes-list-map-keys: [k], items: {type: string}}",
        &[
            r#".properties[a].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
            r#".properties[a].x-kubernetes-list-type: Invalid value: "bag": must be map if x-kubernetes-list-map-keys is non-empty"#,
        ],
    );
    check_field(
        "{type: string, x-kubernetes-list-type: set, x-kubernetes-map-type: soft}",
        &[
            r#".properties[a].type: Invalid value: "string": must be object if x-kubernetes-map-type is specified"#,
            r#".properties[a].x-kubernetes-map-type: Unsupported value: "soft": supported values: "atomic", "granular""#,
            r#".properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
        ],
    );
}

fn shown(rule: &str, message_expression: &str) -> String {
    format!(
        r#"Invalid value: {{"Rule":"{rule}","Message":"","MessageExpression":"{message_expression}","Reason":null,"FieldPath":"","OptionalOldSelf":null}}"#
    )
}

#[test]
fn rules_that_do_not_compile_are_refused() {
    let expecting = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    for (rule, shown_rule, detail) in [
        (
            "self.b > 0",
            "self.b \\u003e 0",
            "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 0\n | ....^",
        ),
        (
            "self.a >",
            "self.a \\u003e",
            &format!(
                "compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting {expecting}\n | self.a >\n | ........^"
            ),
        ),
        ("self.a", "self.a", "cel expression must evaluate to a bool"),
        (
            "foo > 1",
            "foo \\u003e 1",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo > 1\n | ^",
        ),
        (
            "self.a.frob()",
            "self.a.frob()",
            "compilation failed: ERROR: <input>:1:12: undeclared reference to 'frob' (in container '')\n | self.a.frob()\n | ...........^",
        ),
        (
            "self.a > 'x'",
            "self.a \\u003e 'x'",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(int, string)'\n | self.a > 'x'\n | .......^",
        ),
    ] {
        check_rules(
            &format!(r#"[{{"rule": "{rule}"}}]"#),
            &[&format!("[0].rule: {}: {detail}", shown(shown_rule, ""))],
        );
    }
    check_rules(
        r#"[{"rule": "self.a > 0", "messageExpression": "self.a"}, {"rule": "self.a > 0", "messageExpression": "self.c"}, {"rule": "self.a > 0", "optionalOldSelf": true}]"#,
        &[
            &format!(
                "[0].messageExpression: {}: messageExpression must evaluate to a string",
                shown("self.a \\u003e 0", "self.a")
            ),
            &format!(
                "[1].messageExpression: {}: messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'c'\n | self.c\n | ....^",
                shown("self.a \\u003e 0", "self.c")
            ),
            "[2].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ],
    );
}

#[test]
fn rules_are_written_properly() {
    check_rules(
        r#"[{"rule": ""}, {"rule": "true", "message": " "}, {"rule": "true\n&& true"}, {"rule": "true", "reason": "Nope", "fieldPath": ".zz"}]"#,
        &[
            "[0].rule: Required value: rule is not specified",
            r#"[1].message: Invalid value: " ": must be non-empty if specified"#,
            "[2].message: Required value: message must be specified if rule contains line breaks",
            r#"[3].reason: Unsupported value: "Nope": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
            r#"[3].fieldPath: Invalid value: ".zz": must be a valid path"#,
        ],
    );
    check_field(
        "{type: array, items: {type: integer, x-kubernetes-validations: [{rule: self == oldSelf}]}}",
        &[&format!(
            r#".properties[a].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within {PATH}.properties[spec].properties[a]"#
        )],
    );
}
