//! Fields that a schema does not know.

use serde_json::Value;

use crate::Schema;

/// What the pruned value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// A whole object: `apiVersion`, `kind` and `metadata` are always known.
    Resource,
    /// A part of one.
    Fragment,
}

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what `schema` does not know and returns the paths of what was removed, as kubectl shows
/// them: `spec.foo`, `spec.containers[0].imagee`. Sorted, with the object's own metadata first.
///
/// Fields under `x-kubernetes-preserve-unknown-fields` stay, those that the schema names inside
/// are pruned again. Pruning twice changes nothing.
pub fn prune(schema: &Schema, value: &mut Value, root: Root) -> Vec<String> {
    let mut pruning = Pruning { path: Vec::new(), removed: Vec::new() };
    pruning.value(schema, value, root == Root::Resource);
    pruning.removed.sort_by_cached_key(|path| (!path.starts_with("metadata."), path.clone()));
    pruning.removed
}

enum Step {
    Field(String),
    Index(usize),
}

struct Pruning {
    path: Vec<Step>,
    removed: Vec<String>,
}

impl Pruning {
    fn value(&mut self, schema: &Schema, value: &mut Value, resource: bool) {
        match value {
            Value::Object(fields) => {
                let resource = resource || schema.embedded_resource;
                fields.retain(|name, field| {
                    let Some(known) = schema.field(name) else {
                        let keep =
                            schema.preserve_unknown_fields || (resource && META.contains(&name.as_str()));
                        if !keep {
                            let path = self.render(name);
                            self.removed.push(path);
                        }
                        return keep;
                    };
                    self.path.push(Step::Field(name.clone()));
                    self.value(known, field, false);
                    self.path.pop();
                    true
                });
            }
            Value::Array(items) => {
                // A list that the schema says nothing about keeps its items only where unknown
                // fields are kept.
                let nothing =
                    Schema { preserve_unknown_fields: schema.preserve_unknown_fields, ..Schema::default() };
                let known = schema.items.as_deref().unwrap_or(&nothing);
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push(Step::Index(index));
                    if schema.preserve_unknown_fields && !known.preserve_unknown_fields {
                        let kept = Schema { preserve_unknown_fields: true, ..known.clone() };
                        self.value(&kept, item, false);
                    } else {
                        self.value(known, item, false);
                    }
                    self.path.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn render(&self, name: &str) -> String {
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Field(field) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(field);
                }
                Step::Index(index) => {
                    text.push_str(&format!("[{index}]"));
                }
            }
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(name);
        text
    }
}
