//! Writes `data/kubernetes.tsv`, the table of built-in types, from Kubernetes' published sources.
//!
//! ```text
//! cargo run -p drydock-schema --example import -- SWAGGER_JSON OPENAPI_V3_DIR MODULE_DIR... > data/kubernetes.tsv
//! ```
//!
//! `SWAGGER_JSON` and `OPENAPI_V3_DIR` are `api/openapi-spec/swagger.json` and
//! `api/openapi-spec/v3` of the Kubernetes source; each `MODULE_DIR` is the root of one of the Go
//! modules `k8s.io/{api,apimachinery,apiextensions-apiserver,kube-aggregator}` of the same release.
//!
//! Three sources are joined, because none says everything: the OpenAPI v2 definitions have the
//! list types and patch strategies, the v3 documents the defaults, `generated.proto` the wire
//! types, and the Go structs whether a field is a pointer, is inlined, and is left out when empty.
//! The format of the result is described in `src/builtin/table.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use regex::Regex;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// The packages whose every definition is taken. What they refer to comes along.
const PACKAGES: &[&str] = &[
    "io.k8s.api.admissionregistration.v1",
    "io.k8s.api.apps.v1",
    "io.k8s.api.authentication.v1",
    "io.k8s.api.authorization.v1",
    "io.k8s.api.autoscaling.v1",
    "io.k8s.api.autoscaling.v2",
    "io.k8s.api.batch.v1",
    "io.k8s.api.certificates.v1",
    "io.k8s.api.coordination.v1",
    "io.k8s.api.core.v1",
    "io.k8s.api.discovery.v1",
    "io.k8s.api.events.v1",
    "io.k8s.api.networking.v1",
    "io.k8s.api.node.v1",
    "io.k8s.api.policy.v1",
    "io.k8s.api.rbac.v1",
    "io.k8s.api.scheduling.v1",
    "io.k8s.api.storage.v1",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "io.k8s.apimachinery.pkg.api.resource",
    "io.k8s.apimachinery.pkg.apis.meta.v1",
    "io.k8s.apimachinery.pkg.runtime",
    "io.k8s.apimachinery.pkg.util.intstr",
    "io.k8s.apimachinery.pkg.version",
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
];

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("import: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[PathBuf]) -> Result<(), Failure> {
    let [swagger, v3, modules @ ..] = arguments else {
        return Err("usage: import SWAGGER_JSON OPENAPI_V3_DIR MODULE_DIR...".into());
    };
    let mut definitions = definitions(swagger)?;
    add_defaults(&mut definitions, v3)?;
    let mut messages = BTreeMap::new();
    for module in modules {
        read_messages(module, &mut messages)?;
    }
    let mut lines = BTreeSet::new();
    for name in wanted(&definitions, &messages) {
        let definition = definitions.get(&name);
        let kinds = definition.map_or_else(String::new, kinds);
        let fields =
            messages.get(&name).map_or_else(String::new, |fields| Value::from(fields.clone()).to_string());
        let raw = definition.map_or_else(String::new, Value::to_string);
        lines.insert(format!("{name}\t{kinds}\t{fields}\t{raw}"));
    }
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

fn definitions(swagger: &Path) -> Result<BTreeMap<String, Value>, Failure> {
    let document: Value = serde_json::from_slice(&fs::read(swagger)?)?;
    let definitions = document["definitions"].as_object().ok_or("no definitions in the swagger file")?;
    Ok(definitions.iter().map(|(name, definition)| (name.clone(), definition.clone())).collect())
}

/// Copies the defaults that say something (the v3 documents also give Go's zero values).
fn add_defaults(definitions: &mut BTreeMap<String, Value>, v3: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(v3)? {
        let document: Value = serde_json::from_slice(&fs::read(entry?.path())?)?;
        let Some(schemas) = document["components"]["schemas"].as_object() else { continue };
        for (name, schema) in schemas {
            let Some(properties) = schema["properties"].as_object() else { continue };
            for (property, node) in properties {
                let Some(default) = node.get("default") else { continue };
                let says_nothing = [json!(""), json!(0), json!(false), json!({}), json!([]), Value::Null];
                if says_nothing.contains(default) {
                    continue;
                }
                if let Some(target) = definitions.get_mut(name) {
                    target["properties"][property]["default"] = default.clone();
                }
            }
        }
    }
    Ok(())
}

fn wanted(
    definitions: &BTreeMap<String, Value>,
    messages: &BTreeMap<String, Vec<Value>>,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open: Vec<String> = definitions
        .keys()
        .chain(messages.keys())
        .filter(|name| {
            PACKAGES.iter().any(|package| name.rsplit_once('.').is_some_and(|(p, _)| p == *package))
        })
        .cloned()
        .collect();
    while let Some(name) = open.pop() {
        if !names.insert(name.clone()) {
            continue;
        }
        if let Some(definition) = definitions.get(&name) {
            references(definition, &mut open);
        }
        for field in messages.get(&name).into_iter().flatten() {
            open.extend(field[2].as_str().filter(|kind| messages.contains_key(*kind)).map(str::to_owned));
        }
    }
    names
}

fn references(node: &Value, found: &mut Vec<String>) {
    match node {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.extend(reference.strip_prefix("#/definitions/").map(str::to_owned));
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// `group/version/Kind` for each kind a definition serves; a kind that every group has is `*/*/Kind`.
fn kinds(definition: &Value) -> String {
    let served = definition["x-kubernetes-group-version-kind"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    if served.len() > 5 {
        return format!("*/*/{}", text(&served[0], "kind"));
    }
    let all: Vec<String> = served
        .iter()
        .map(|kind| format!("{}/{}/{}", text(kind, "group"), text(kind, "version"), text(kind, "kind")))
        .collect();
    all.join(",")
}

/// What a Go struct says about one protobuf field.
struct GoField {
    json: String,
    flags: String,
}

fn read_messages(module: &Path, messages: &mut BTreeMap<String, Vec<Value>>) -> Result<(), Failure> {
    let mut open = vec![module.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.file_name().is_some_and(|name| name == "generated.proto") {
                read_package(&directory, &fs::read_to_string(&path)?, messages)?;
            }
        }
    }
    Ok(())
}

fn read_package(
    directory: &Path,
    proto: &str,
    messages: &mut BTreeMap<String, Vec<Value>>,
) -> Result<(), Failure> {
    let package = Regex::new(r"(?m)^package (\S+);")?
        .captures(proto)
        .and_then(|found| found.get(1))
        .map(|found| definition_name(found.as_str()))
        .ok_or("a proto file without a package")?;
    if !PACKAGES.contains(&package.as_str()) {
        return Ok(());
    }
    let go = read_structs(directory)?;
    let message = Regex::new(r"^message (\w+) \{")?;
    let field = Regex::new(r"^\s+(optional|repeated|map<string, )\s*([^>\s]+)>?\s+(\w+) = (\d+);")?;
    let mut current = String::new();
    for line in proto.lines() {
        if let Some(found) = message.captures(line) {
            current = found[1].to_owned();
            messages.insert(format!("{package}.{current}"), Vec::new());
        } else if let Some(found) = field.captures(line) {
            let number: u64 = found[4].parse()?;
            let known = go.get(&(current.clone(), number));
            let mut flags = known.map_or_else(String::new, |known| known.flags.clone());
            match &found[1] {
                "repeated" => flags.push('r'),
                "optional" => {}
                _ => flags.push('m'),
            }
            let name = known.map_or(&found[3], |known| known.json.as_str());
            let kind = type_name(&package, &found[2]);
            messages
                .entry(format!("{package}.{current}"))
                .or_default()
                .push(json!([number, name, kind, flags]));
        }
    }
    Ok(())
}

/// `k8s.io.kube_aggregator.…` in protobuf is `io.k8s.kube-aggregator.…` in OpenAPI.
fn definition_name(package: &str) -> String {
    package.replacen("k8s.io.", "io.k8s.", 1).replace('_', "-")
}

fn type_name(package: &str, written: &str) -> String {
    match written.strip_prefix('.') {
        Some(full) => definition_name(full),
        None if written.chars().next().is_some_and(char::is_uppercase) => format!("{package}.{written}"),
        None => written.to_owned(),
    }
}

/// The protobuf fields of the structs of a Go package, by struct and number.
fn read_structs(directory: &Path) -> Result<BTreeMap<(String, u64), GoField>, Failure> {
    let header = Regex::new(r"^type (\w+) struct \{")?;
    let list = Regex::new(r"^type (\w+) \[\]")?;
    let tagged = Regex::new(r#"^\s+(?:\w+\s+)?(\S+)\s+`.*?json:"([^"]*)".*?protobuf:"[a-z0-9]+,(\d+)"#)?;
    let mut fields = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.ends_with(".go")
            || name.starts_with("generated")
            || name.starts_with("zz_")
            || name.ends_with("_test.go")
        {
            continue;
        }
        let mut current = String::new();
        for line in fs::read_to_string(&path)?.lines() {
            if let Some(found) = header.captures(line) {
                current = found[1].to_owned();
            } else if let Some(found) = list.captures(line) {
                // A named list is a message with one field on the wire, and plainly a list in JSON.
                fields.insert((found[1].to_owned(), 1), GoField { json: String::new(), flags: "a".into() });
            } else if let Some(found) = tagged.captures(line) {
                let mut json = found[2].split(',');
                let name = json.next().unwrap_or_default().to_owned();
                let mut flags = String::new();
                for option in json {
                    match option {
                        "omitempty" => flags.push('o'),
                        "omitzero" => flags.push('z'),
                        "inline" => flags.push('i'),
                        _ => {}
                    }
                }
                if name.is_empty() && !flags.contains('i') {
                    flags.push('i');
                }
                if found[1].starts_with('*') {
                    flags.push('p');
                }
                fields.insert((current.clone(), found[3].parse()?), GoField { json: name, flags });
            }
        }
    }
    Ok(fields)
}
