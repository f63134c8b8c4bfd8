//! The operations of an OpenAPI document: enough to say what can be done where, with which type and
//! which parameters.

use serde_json::{Map, Value, json};

use super::{
    definitions::{Dialect, SCALE, list_name_of, name_of},
    group_word, path_of,
};
use crate::{Kind, Subresource, json};

/// One operation on a path.
struct Operation<'a> {
    method: &'static str,
    action: &'static str,
    verb: &'static str,
    subject: &'a str,
    body: Option<&'a str>,
    response: &'a str,
    parameters: &'static [&'static str],
}

/// Adds the paths of a kind.
pub(crate) fn of_kind(kind: &Kind, dialect: Dialect, paths: &mut Map<String, Value>) {
    let base = format!("/{}", path_of(&kind.group, &kind.version));
    let scoped = if kind.namespaced { format!("{base}/namespaces/{{namespace}}") } else { base.clone() };
    let collection = format!("{scoped}/{}", kind.plural);
    let (name, list) = (name_of(kind), list_name_of(kind));
    let can = |verb: &str| kind.verbs.contains(&verb);
    let operation = |method, action, verb, body: bool, response, parameters| Operation {
        method,
        action,
        verb,
        subject: &kind.kind,
        body: body.then_some(name.as_str()),
        response,
        parameters,
    };
    let mut on_collection = Vec::new();
    if can("list") {
        on_collection.push(operation("get", "list", "list", false, &list, LIST));
    }
    if can("create") {
        on_collection.push(operation("post", "post", "create", true, &name, WRITE));
    }
    if can("deletecollection") {
        on_collection.push(operation("delete", "deletecollection", "deletecollection", false, STATUS, LIST));
    }
    add(kind, dialect, paths, &collection, &on_collection);
    if kind.namespaced && can("list") {
        let all = format!("{base}/{}", kind.plural);
        add(kind, dialect, paths, &all, &[operation("get", "list", "listAll", false, &list, LIST)]);
    }
    if !can("get") {
        return;
    }
    let item = format!("{collection}/{{name}}");
    let on_item = [
        operation("get", "get", "read", false, &name, &[]),
        operation("put", "put", "replace", true, &name, WRITE),
        Operation { body: Some(PATCH_BODY), ..operation("patch", "patch", "patch", false, &name, PATCH) },
        operation("delete", "delete", "delete", false, STATUS, DELETE),
    ];
    add(kind, dialect, paths, &item, &on_item);
    subresources(kind, dialect, paths, &item, &name);
}

fn subresources(kind: &Kind, dialect: Dialect, paths: &mut Map<String, Value>, item: &str, name: &str) {
    let parts =
        [("status", kind.subresources.status, name), ("scale", kind.subresources.scale.is_some(), SCALE)];
    for (part, present, definition) in parts {
        if !present {
            continue;
        }
        let subject = format!("{}{}", kind.kind, capital(part));
        let operation = |method, verb, body, parameters| Operation {
            method,
            action: method,
            verb,
            subject: &subject,
            body,
            response: definition,
            parameters,
        };
        let operations = [
            operation("get", "read", None, &[]),
            operation("put", "replace", Some(definition), WRITE),
            operation("patch", "patch", Some(PATCH_BODY), PATCH),
        ];
        add(kind, dialect, paths, &format!("{item}/{part}"), &operations);
    }
    for sub in &kind.subresources.other {
        let Some(definition) = subresource_definition(kind, sub) else { continue };
        let subject = format!("{}{}", kind.kind, capital(sub.name));
        let operations: Vec<_> = [("create", "post"), ("update", "put")]
            .into_iter()
            .filter(|(verb, _)| sub.verbs.contains(verb))
            .map(|(verb, method)| Operation {
                method,
                action: method,
                verb,
                subject: &subject,
                body: Some(&definition),
                response: &definition,
                parameters: WRITE,
            })
            .collect();
        if !operations.is_empty() {
            add(kind, dialect, paths, &format!("{item}/{}", sub.name), &operations);
        }
    }
}

/// The name of the type that is sent to a subresource.
pub(crate) fn subresource_definition(kind: &Kind, sub: &Subresource) -> Option<String> {
    let (group, version) = if sub.version.is_empty() {
        (kind.group.as_ref(), kind.version.as_ref())
    } else {
        (sub.group, sub.version)
    };
    drydock_schema::builtin::name_for(group, version, sub.kind).map(str::to_owned)
}

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const PATCH_BODY: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: &[&str] = &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const JSON: &str = "application/json";

fn add(
    kind: &Kind,
    dialect: Dialect,
    paths: &mut Map<String, Value>,
    path: &str,
    operations: &[Operation<'_>],
) {
    if operations.is_empty() {
        return;
    }
    let mut item = Map::new();
    for operation in operations {
        item.insert(operation.method.to_owned(), operation.to_value(kind, dialect));
    }
    let mut parameters: Vec<Value> = Vec::new();
    for name in ["name", "namespace"] {
        if path.contains(&format!("{{{name}}}")) {
            parameters.push(parameter(name, "path", "string", dialect));
        }
    }
    if !parameters.is_empty() {
        item.insert("parameters".to_owned(), parameters.into());
    }
    paths.insert(path.to_owned(), item.into());
}

impl Operation<'_> {
    /// Custom resources have no strategic merge: nobody knows the keys of their lists.
    fn accepts(&self, kind: &Kind) -> &'static [&'static str] {
        match (self.method, kind.is_custom()) {
            ("patch", true) => &PATCHES[..3],
            ("patch", false) => PATCHES,
            _ => &["*/*"],
        }
    }

    fn to_value(&self, kind: &Kind, dialect: Dialect) -> Value {
        let group: String = group_word(kind).split('-').map(capital).collect();
        let scope = if kind.namespaced && self.verb != "listAll" { "Namespaced" } else { "" };
        let verb = self.verb.trim_end_matches("All");
        let id = format!(
            "{verb}{group}{}{scope}{}{}",
            capital(&kind.version),
            self.subject,
            match self.verb {
                "listAll" => "ForAllNamespaces",
                _ => "",
            }
        );
        let mut parameters: Vec<_> = self
            .parameters
            .iter()
            .map(|name| {
                let kind = match *name {
                    "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
                    "watch" | "allowWatchBookmarks" | "sendInitialEvents" | "force" | "orphanDependents" => {
                        "boolean"
                    }
                    _ => "string",
                };
                parameter(name, "query", kind, dialect)
            })
            .collect();
        let mut operation = json!({
            "operationId": id,
            "description": format!("{verb} {}", self.subject),
            "tags": [format!("{}_{}", group_word(kind), kind.version)],
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": {
                "group": kind.group, "version": kind.version, "kind": kind.kind,
            },
        });
        let response = dialect.reference(self.response);
        match dialect {
            Dialect::V3 => {
                let answer = json!({"description": "OK", "content": {JSON: {"schema": response}}});
                json::set(&mut operation, "responses", json!({"200": answer}));
                if let Some(body) = self.body {
                    let content = self.accepts(kind);
                    let schema = json!({"schema": dialect.reference(body)});
                    let content: Map<_, _> =
                        content.iter().map(|media| ((*media).to_owned(), schema.clone())).collect();
                    json::set(&mut operation, "requestBody", json!({"content": content, "required": true}));
                }
            }
            Dialect::V2 => {
                json::set(
                    &mut operation,
                    "responses",
                    json!({"200": {"description": "OK", "schema": response}}),
                );
                json::set(&mut operation, "produces", json!([JSON]));
                let consumes = self.accepts(kind);
                json::set(&mut operation, "consumes", json!(consumes));
                if let Some(body) = self.body {
                    let schema = dialect.reference(body);
                    parameters
                        .push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
                }
            }
        }
        if !parameters.is_empty() {
            json::set(&mut operation, "parameters", parameters);
        }
        operation
    }
}

/// The forms of a patch, the strategic one last.
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

fn parameter(name: &str, place: &str, kind: &str, dialect: Dialect) -> Value {
    let mut parameter = match dialect {
        Dialect::V3 => json!({"name": name, "in": place, "schema": {"type": kind, "uniqueItems": true}}),
        Dialect::V2 => json!({"name": name, "in": place, "type": kind, "uniqueItems": true}),
    };
    if place == "path" {
        json::set(&mut parameter, "required", true);
    }
    parameter
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
