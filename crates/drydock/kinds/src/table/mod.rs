//! The tables that `kubectl get` prints.
//!
//! The server decides which columns a kind has and what stands in them; kubectl only lays them out.
//! Columns of priority 1 are for `-o wide`.

mod age;
pub(crate) mod core;
pub(crate) mod event;
pub(crate) mod json_path;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod workload;

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::{Kind, json, kind::Source};
pub use age::{human, since};

/// How much of each object goes with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata, which kubectl needs.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the `includeObject` parameter; empty is the default.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// A column of a built-in kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i32,
    about: About,
}

/// What a column is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum About {
    /// In these words.
    Said(&'static str),
    /// In the words of a field's own description: the definition, and the field.
    Field(&'static str, &'static str),
}

impl About {
    fn text(self) -> String {
        match self {
            Self::Said(text) => text.to_owned(),
            Self::Field(definition, field) => drydock_schema::builtin::raw(definition)
                .and_then(|raw| serde_json::from_str::<Value>(raw).ok())
                .and_then(|definition| {
                    definition["properties"][field]["description"].as_str().map(str::to_owned)
                })
                .unwrap_or_default(),
        }
    }
}

/// The columns of a built-in kind, and what stands in them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    pub columns: &'static [Column],
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
}

pub(crate) const NAME_AND_AGE: Printer =
    Printer { columns: &[NAME, AGE], cells: |object, now| vec![name(object), age(object, now)] };

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

pub(crate) const NAME: Column = Column { format: "name", ..text("Name", About::Field(OBJECT_META, "name")) };
pub(crate) const AGE: Column = text("Age", About::Field(OBJECT_META, "creationTimestamp"));

/// A column of text.
pub(crate) const fn text(name: &'static str, about: About) -> Column {
    Column { name, kind: "string", format: "", priority: 0, about }
}

/// A column of whole numbers.
pub(crate) const fn number(name: &'static str, about: About) -> Column {
    Column { name, kind: "integer", format: "", priority: 0, about }
}

/// A column that is shown only on request.
pub(crate) const fn wide(column: Column) -> Column {
    Column { priority: 1, ..column }
}

/// The name of an object, as a cell.
pub(crate) fn name(object: &Value) -> Value {
    json::text(&object["metadata"], "name").into()
}

/// The age of an object, as a cell.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(object["metadata"]["creationTimestamp"].as_str(), now).into()
}

/// A `meta.k8s.io/v1` Table of `items`. `metadata` is that of the list, or of the single object.
#[must_use]
pub fn render(kind: &Kind, items: &[&Value], metadata: Value, now: Timestamp, include: Include) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns(kind),
        "rows": items.iter().map(|item| row(kind, item, now, include)).collect::<Vec<_>>(),
    })
}

/// The columns of a kind.
#[must_use]
pub fn columns(kind: &Kind) -> Value {
    /// What was read once from the descriptions of a built-in kind, by its definition.
    static READ: RwLock<BTreeMap<&str, Value>> = RwLock::new(BTreeMap::new());
    match &kind.source {
        Source::Builtin(row) => {
            if let Some(columns) = READ.read().get(row.definition) {
                return columns.clone();
            }
            let columns: Value = row.printer.columns.iter().map(|column| column.to_value()).collect();
            READ.write().insert(row.definition, columns.clone());
            columns
        }
        Source::Custom(custom) => custom_columns(&custom.columns),
    }
}

/// One row of a table.
#[must_use]
pub fn row(kind: &Kind, item: &Value, now: Timestamp, include: Include) -> Value {
    let cells = match &kind.source {
        Source::Builtin(row) => (row.printer.cells)(item, now),
        Source::Custom(custom) => custom_cells(&custom.columns, item, now),
    };
    let object = match include {
        Include::None => None,
        Include::Metadata => Some(json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": item["metadata"],
        })),
        Include::Object => Some(item.clone()),
    };
    let mut row = json!({"cells": cells});
    if let Some(reason) = pod::over(kind, item) {
        let message =
            if reason == "Failed" { "The pod failed." } else { "The pod has completed successfully." };
        let condition = json!({"type": "Completed", "status": "True", "reason": reason, "message": message});
        json::set(&mut row, "conditions", json!([condition]));
    }
    json::set(&mut row, "object", object.unwrap_or_default());
    row
}

impl Column {
    fn to_value(self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.about.text(),
            "priority": self.priority,
        })
    }
}

/// Custom resources have their name first, then what their definition says, or else their age.
fn custom_columns(definitions: &[Value]) -> Value {
    let mut columns = vec![NAME.to_value()];
    if definitions.is_empty() {
        columns.push(Column { kind: "date", ..AGE }.to_value());
    }
    for definition in definitions {
        let description = json::text(definition, "description");
        let description = if description.is_empty() {
            format!(
                "Custom resource definition column (in JSONPath format): {}",
                json::text(definition, "jsonPath")
            )
        } else {
            description.to_owned()
        };
        columns.push(json!({
            "name": definition["name"],
            "type": definition["type"],
            "format": json::text(definition, "format"),
            "description": description,
            "priority": definition["priority"].as_i64().unwrap_or_default(),
        }));
    }
    columns.into()
}

fn custom_cells(definitions: &[Value], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![name(object)];
    if definitions.is_empty() {
        cells.push(age(object, now));
    }
    for definition in definitions {
        let found = json_path::find(object, json::text(definition, "jsonPath"));
        cells.push(custom_cell(json::text(definition, "type"), &found, now));
    }
    cells
}

/// What was found, in the form of the column. Nothing is an empty cell, which kubectl leaves blank.
fn custom_cell(kind: &str, found: &[&Value], now: Timestamp) -> Value {
    let Some(first) = found.first() else { return Value::Null };
    match kind {
        "integer" => first.as_i64().or_else(|| first.as_f64().map(truncate)).map_or(Value::Null, Value::from),
        "number" if first.is_number() => (*first).clone(),
        "boolean" if first.is_boolean() => (*first).clone(),
        "date" => first.as_str().map_or(Value::Null, |time| since(Some(time), now).into()),
        "string" => json_path::print(first).into(),
        _ => Value::Null,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a column of whole numbers shows the whole part")]
fn truncate(number: f64) -> i64 {
    number as i64
}
