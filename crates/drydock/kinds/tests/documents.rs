//! The documents of a real API server about the same kinds, recorded from Kubernetes v1.34.

#![expect(clippy::expect_used, clippy::panic, reason = "a failure here is the answer, not an accident")]

use drydock_kinds::{
    Registry, discovery, openapi,
    table::{self, Include},
};
use serde_json::{Value, json};

const DISCOVERY: &str = include_str!("real/discovery.json");
const COLUMNS: &str = include_str!("real/columns.json");
const ENUMS: &str = include_str!("real/enums.json");
const TABLES: &str = include_str!("real/tables.json");

/// Kinds that can be asked for here, and can't be made.
const ABSENT: &[&str] = &["ingresses", "replicationcontrollers"];

fn recording(text: &str) -> Value {
    serde_json::from_str(text).expect("a recording is JSON")
}

fn by_name<'a>(list: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    list.as_array().expect("a list").iter().map(move |item| (item[field].as_str().expect("a name"), item))
}

#[test]
fn resources_are_described_as_a_real_server_describes_them() {
    let registry = Registry::builtin();
    let recorded = recording(DISCOVERY);
    for group in registry.groups() {
        for version in &group.versions {
            let path = if group.name.is_empty() {
                "/api/v1".to_owned()
            } else {
                format!("/apis/{}/{version}", group.name)
            };
            let ours = discovery::api_resource_list(&registry, &group.name, version).expect("a list");
            let theirs = &recorded[&path];
            assert_eq!(ours["groupVersion"], theirs["groupVersion"]);
            assert_eq!(ours["apiVersion"], theirs["apiVersion"], "{path}");
            for (name, resource) in by_name(&ours["resources"], "name") {
                if ABSENT.contains(&name) {
                    assert_eq!(resource["verbs"], json!(["get", "list", "watch"]), "{name}");
                    continue;
                }
                let known = by_name(&theirs["resources"], "name").find(|(known, _)| *known == name);
                assert_eq!(Some(resource), known.map(|(_, resource)| resource), "{path} {name}");
            }
        }
    }
}

#[test]
fn a_group_is_described_as_a_real_server_describes_it() {
    let ours = discovery::api_group(&Registry::builtin(), "apps").expect("a group");
    assert_eq!(ours, recording(DISCOVERY)["/apis/apps"]);
}

#[test]
fn the_aggregated_form_says_the_same() {
    let registry = Registry::builtin();
    let ours = discovery::aggregated(&registry, false);
    let theirs = &recording(DISCOVERY)["aggregated"];
    assert_eq!(ours["kind"], theirs["kind"]);
    assert_eq!(ours["apiVersion"], theirs["apiVersion"]);
    for group in theirs["items"].as_array().expect("a list") {
        let name = &group["metadata"]["name"];
        let ours = ours["items"].as_array().expect("a list");
        let ours = ours.iter().find(|ours| ours["metadata"]["name"] == *name).expect("a group");
        for (plural, resource) in by_name(&ours["versions"][0]["resources"], "resource") {
            if ABSENT.contains(&plural) {
                continue;
            }
            let known =
                by_name(&group["versions"][0]["resources"], "resource").find(|(known, _)| *known == plural);
            let mut known = known.expect("a resource").1.clone();
            own_group(&mut known, name, &group["versions"][0]["version"]);
            assert_eq!(*resource, known, "{plural}");
        }
    }
}

/// A real server leaves out the group and version of a kind where they are those of the resource.
fn own_group(resource: &mut Value, group: &Value, version: &Value) {
    if let Some(list) = resource.get_mut("subresources").and_then(Value::as_array_mut) {
        list.iter_mut().for_each(|subresource| own_group(subresource, group, version));
    }
    let kind = &mut resource["responseKind"];
    if kind["version"] == "" {
        kind["group"] = group.clone();
        kind["version"] = version.clone();
    }
}

#[test]
fn tables_have_the_columns_and_cells_of_a_real_server() {
    let recorded = recording(TABLES);
    let now = recorded["now"].as_str().expect("a time").parse().expect("a time");
    let registry = Registry::builtin();
    registry.install(&recorded["definition"]);
    let mut wrong = Vec::new();
    for recorded in recorded["tables"].as_array().expect("a list") {
        let path = recorded["path"].as_str().expect("a path");
        let kind = kind_at(&registry, path);
        let items: Vec<_> =
            recorded["rows"].as_array().expect("rows").iter().map(|row| &row["object"]).collect();
        let ours = table::render(&kind, &items, json!({}), now, Include::None);
        let columns: Vec<_> = by_name(&ours["columnDefinitions"], "name")
            .map(|(_, column)| json!([column["name"], column["type"], column["format"], column["priority"]]))
            .collect();
        assert_eq!(Value::from(columns), recorded["columns"], "{path}");
        for (ours, theirs) in
            ours["rows"].as_array().expect("rows").iter().zip(recorded["rows"].as_array().expect("rows"))
        {
            for (index, column) in recorded["columns"].as_array().expect("columns").iter().enumerate() {
                let (ours, theirs) = (&ours["cells"][index], &theirs["cells"][index]);
                // The recording took a while, so that what is some seconds old is older there.
                let about = ["Age", "Last Seen", "First Seen", "Restarts"]
                    .contains(&column[0].as_str().expect("a name"));
                let same = if about { ours.is_string() == theirs.is_string() } else { ours == theirs };
                if !same {
                    wrong.push(format!("{path} {}: ours {ours}, theirs {theirs}", column[0]));
                }
            }
            assert_eq!(ours["conditions"], theirs["conditions"], "{path}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn columns_are_described_as_a_real_server_describes_them() {
    /// Columns that a real server describes in the words of an older version of the kind.
    const OLDER: &[(&str, &str)] = &[
        ("deployments", "Selector"),
        ("replicasets", "Selector"),
        ("daemonsets", "Ready"),
        ("daemonsets", "Selector"),
        ("rolebindings", "Role"),
        ("endpointslices", "AddressType"),
        ("endpointslices", "Ports"),
    ];
    let registry = Registry::builtin();
    for (path, recorded) in recording(COLUMNS).as_object().expect("a map") {
        let kind = kind_at(&registry, path);
        for (ours, theirs) in
            table::columns(&kind).as_array().expect("a list").iter().zip(recorded.as_array().expect("a list"))
        {
            let name = theirs[0].as_str().expect("a name");
            if !OLDER.contains(&(&*kind.plural, name)) {
                assert_eq!(ours["description"], theirs[1], "{path} {name}");
            }
        }
    }
}

#[test]
fn fields_list_the_values_that_a_real_server_lists() {
    let registry = Registry::builtin();
    let mut ours = serde_json::Map::new();
    for group in registry.groups() {
        for version in &group.versions {
            let document = openapi::v3_group_version(&registry, &group.name, version).expect("a document");
            for (name, schema) in document["components"]["schemas"].as_object().expect("types") {
                for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                    for (part, mark) in [("", ""), ("/items", "[]"), ("/additionalProperties", "[]")] {
                        let values = property.pointer(&format!("{part}/enum"));
                        ours.extend(values.map(|values| (format!("{name}.{field}{mark}"), values.clone())));
                    }
                }
            }
        }
    }
    assert_eq!(Value::from(ours), recording(ENUMS));
}

#[test]
fn older_clients_read_the_values_too() {
    let document = openapi::v2(&Registry::builtin());
    let policy = &document["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "Never", "OnFailure"]));
    let description = policy["description"].as_str().expect("a description");
    let listed = "\n\nPossible enum values:\n - `\"Always\"`\n - `\"Never\"`\n - `\"OnFailure\"`";
    assert!(description.ends_with(listed), "{description}");
}

/// The kind that is served at a path.
fn kind_at(registry: &Registry, path: &str) -> std::sync::Arc<drydock_kinds::Kind> {
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => panic!("{path} is no path of a resource"),
    };
    let plural = match rest {
        ["namespaces", _, plural, ..] => plural,
        [plural, ..] => plural,
        [] => panic!("{path} names no resource"),
    };
    registry.find(group, version, plural).expect("a known kind")
}
