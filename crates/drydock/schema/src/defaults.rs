//! Values where nothing was given.

use serde_json::Value;

use crate::Schema;

/// Fills in the defaults of `schema`, also inside defaults, and drops `null` where it is not a
/// value. Applying twice changes nothing.
///
/// A default is only set inside an object that is there: the default of `spec.size` does not make
/// a `spec`.
pub fn apply(schema: &Schema, value: &mut Value) {
    drop_nulls(schema, value);
    fill(schema, value);
}

fn is_no_value(schema: &Schema, value: &Value) -> bool {
    value.is_null() && !schema.nullable
}

fn drop_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, field| {
            let Some(known) = schema.field(name) else { return true };
            if is_no_value(known, field) && known.default.is_none() {
                return false;
            }
            drop_nulls(known, field);
            true
        }),
        Value::Array(items) => {
            if let Some(known) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls(known, item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    let settle = |known: &Schema, value: &mut Value| {
        if is_no_value(known, value)
            && let Some(default) = &known.default
        {
            *value = default.clone();
        }
        fill(known, value);
    };
    match value {
        Value::Object(fields) => {
            for (name, known) in &schema.properties {
                if let Some(default) = &known.default
                    && !fields.contains_key(name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                if let Some(known) = schema.field(name) {
                    settle(known, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(known) = &schema.items {
                items.iter_mut().for_each(|item| settle(known, item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
