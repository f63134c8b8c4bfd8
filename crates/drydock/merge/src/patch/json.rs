//! JSON patch (RFC 6902).
//!
//! Written out rather than taken from a crate: what Kubernetes' clients send is not all within
//! the RFC (`replace` of a missing field, negative indices), and the messages are part of the
//! answer.
//!
//! **Always holds:** whatever an operation puts into the object nests no deeper there than what is read, so that a
//! patch which copies a list into itself never makes one that can't be walked.

use std::io;

use drydock_schema::json::{JsonError, is_bearable_at};
use serde_json::{Map, Value};

use super::PatchError;
use crate::wording;

/// How many operations a patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// How many bytes of JSON all copies of a patch may add up to: as much as a request may bring itself. Without it a
/// list that is copied into itself doubles with each line of a patch.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// The object after all operations, or the first that failed.
///
/// # Errors
///
/// When the patch is not a list of operations, has more than 10000 of them, copies more than 3 MiB
/// together, nests too deep, or one of them does not apply; a `test` that fails is one that does not
/// apply.
pub fn json(live: &Value, operations: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = operations else {
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            wording::json_kind(operations)
        )));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = live.clone();
    let mut copied = 0;
    for operation in operations {
        let Value::Object(operation) = operation else {
            return Err(PatchError::BadRequest(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                wording::json_kind(operation)
            )));
        };
        if deepens(&mut document, operation) {
            return Err(PatchError::BadRequest(JsonError::Depth.to_string()));
        }
        perform(&mut document, operation, &mut copied).map_err(PatchError::Unprocessable)?;
    }
    Ok(document)
}

/// Whether an operation would put a value where it nests too deep. One whose place is not there puts it nowhere.
fn deepens(document: &mut Value, operation: &Map<String, Value>) -> bool {
    let part = |name: &str| operation.get(name).and_then(Value::as_str);
    let Some(path) = part("path").filter(|path| path.is_empty() || parent_mut(document, path).is_some())
    else {
        return false;
    };
    let value = match (part("op"), part("from")) {
        (Some("add" | "replace"), _) => operation.get("value"),
        (Some("copy" | "move"), Some(from)) => {
            parent_mut(document, from).and_then(|(parent, key)| get(parent, &key).ok().flatten())
        }
        _ => None,
    };
    value.is_some_and(|value| !is_bearable_at(path.matches('/').count(), value))
}

fn perform(document: &mut Value, operation: &Map<String, Value>, copied: &mut usize) -> Result<(), String> {
    let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
    match kind {
        "add" => add(document, operation),
        "remove" => remove(document, operation),
        "replace" => replace(document, operation),
        "move" => relocate(document, operation),
        "copy" => copy(document, operation, copied),
        "test" => test(document, operation),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn add(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let path = text(operation, "path").map_err(|_| "add operation failed to decode path: missing value")?;
    let value = operation.get("value").cloned().unwrap_or_default();
    let (parent, key) = parent_mut(document, path).ok_or_else(|| {
        format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
    })?;
    insert(parent, &key, value).map_err(|e| format!("error in add for path: '{path}': {e}"))
}

fn remove(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let path =
        text(operation, "path").map_err(|_| "remove operation failed to decode path: missing value")?;
    let (parent, key) = parent_mut(document, path).ok_or_else(|| {
        format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
    })?;
    take(parent, &key).map(drop).map_err(|e| format!("error in remove for path: '{path}': {e}"))
}

fn replace(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let path =
        text(operation, "path").map_err(|e| format!("replace operation failed to decode path: {e}"))?;
    let value = operation.get("value").cloned().unwrap_or_default();
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent_mut(document, path).ok_or_else(|| {
        format!("replace operation does not apply: doc is missing path: {path}: missing value")
    })?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
            Ok(())
        }
        Value::Array(items) => {
            let slot = place(&key, items.len()).ok().and_then(|at| items.get_mut(at)).ok_or_else(|| {
                format!("replace operation does not apply: doc is missing key: {path}: missing value")
            })?;
            *slot = value;
            Ok(())
        }
        _ => Err(format!("replace operation does not apply: doc is missing path: {path}: missing value")),
    }
}

fn relocate(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let from = text(operation, "from").map_err(|e| format!("move operation failed to decode from: {e}"))?;
    let (parent, key) = parent_mut(document, from).ok_or_else(|| {
        format!("move operation does not apply: doc is missing from path: {from}: missing value")
    })?;
    let value = take(parent, &key).map_err(|e| format!("error in move for path: '{key}': {e}"))?;
    let path = text(operation, "path").map_err(|e| format!("move operation failed to decode path: {e}"))?;
    let (parent, key) = parent_mut(document, path).ok_or_else(|| {
        format!("move operation does not apply: doc is missing destination path: {path}: missing value")
    })?;
    insert(parent, &key, value).map_err(|e| format!("error in move for path: '{path}': {e}"))
}

fn copy(document: &mut Value, operation: &Map<String, Value>, copied: &mut usize) -> Result<(), String> {
    let from = text(operation, "from").map_err(|e| format!("copy operation failed to decode from: {e}"))?;
    let (parent, key) = parent_mut(document, from).ok_or_else(|| {
        format!("copy operation does not apply: doc is missing from path: {from}: missing value")
    })?;
    let value = get(parent, &key).map_err(|e| format!("error in copy for from: '{from}': {e}"))?;
    *copied += value.map_or(0, size);
    if *copied > MAX_COPIED {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
        ));
    }
    let value = value.cloned().unwrap_or_default();
    let path = text(operation, "path").map_err(|_| "copy operation failed to decode path: missing value")?;
    let (parent, key) = parent_mut(document, path).ok_or_else(|| {
        format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
    })?;
    insert(parent, &key, value).map_err(|e| format!("error while adding value during copy: {e}"))
}

/// How long a value is as JSON, counted without being written anywhere.
fn size(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value always has a JSON form, and nothing that is counted fails.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn test(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let path = text(operation, "path").map_err(|e| format!("test operation failed to decode path: {e}"))?;
    let expected = operation.get("value").unwrap_or(&Value::Null);
    let failed = || format!("testing value {path} failed: test failed");
    if path.is_empty() {
        return if document == expected { Ok(()) } else { Err(failed()) };
    }
    let (parent, key) = parent_mut(document, path)
        .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: missing value"))?;
    let value = get(parent, &key).map_err(|e| format!("error in test for path: '{path}': {e}"))?;
    if value.unwrap_or(&Value::Null) == expected { Ok(()) } else { Err(failed()) }
}

fn text<'o>(operation: &'o Map<String, Value>, name: &str) -> Result<&'o str, String> {
    operation.get(name).and_then(Value::as_str).ok_or_else(|| match name {
        "path" => "operation missing path field: missing value".to_owned(),
        _ => format!("operation, missing {name} field: missing value"),
    })
}

/// The container that a path ends in, and the last part of the path.
fn parent_mut<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let (_, rest) = path.split_once('/')?;
    let (above, last) = rest.rsplit_once('/').map_or((None, rest), |(above, last)| (Some(above), last));
    let mut at = document;
    for part in above.into_iter().flat_map(|above| above.split('/')) {
        let part = unescape(part);
        at = match at {
            Value::Object(fields) => fields.get_mut(&part)?,
            Value::Array(items) => {
                let index = place(&part, items.len()).ok()?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    matches!(at, Value::Object(_) | Value::Array(_)).then(|| (at, unescape(last)))
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn invalid_index(key: &str) -> String {
    format!("Unable to access invalid index: {key}: invalid index referenced")
}

fn not_a_number(key: &str) -> String {
    format!("strconv.Atoi: parsing {}: invalid syntax", wording::quoted(key))
}

/// An index into a list of this length; negative ones count from its end.
fn place(key: &str, len: usize) -> Result<usize, String> {
    let index: i64 = key.parse().map_err(|_| not_a_number(key))?;
    let index = if index < 0 { i64::try_from(len).unwrap_or(i64::MAX) + index } else { index };
    usize::try_from(index).map_err(|_| invalid_index(key))
}

fn get<'d>(parent: &'d Value, key: &str) -> Result<Option<&'d Value>, String> {
    match parent {
        Value::Object(fields) => Ok(fields.get(key)),
        Value::Array(items) => match items.get(place(key, items.len())?) {
            Some(item) => Ok(Some(item)),
            None => Err(invalid_index(key)),
        },
        _ => Err("missing value".to_owned()),
    }
}

fn insert(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
            Ok(())
        }
        Value::Array(items) if key == "-" => {
            items.push(value);
            Ok(())
        }
        Value::Array(items) => {
            let index: i64 = key
                .parse()
                .map_err(|_| format!("value was not a proper array index: '{key}': {}", not_a_number(key)))?;
            let len = i64::try_from(items.len()).unwrap_or(i64::MAX - 1) + 1;
            let index = if index < 0 { index + len } else { index };
            if index < 0 || index >= len {
                return Err(invalid_index(key));
            }
            items.insert(usize::try_from(index).unwrap_or_default(), value);
            Ok(())
        }
        _ => Err("missing value".to_owned()),
    }
}

fn take(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Object(fields) => fields
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(items) => {
            let index = place(key, items.len())?;
            if index >= items.len() {
                return Err(invalid_index(key));
            }
            Ok(items.remove(index))
        }
        _ => Err("missing value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn copies(count: usize, value: &Value) -> Result<Value, PatchError> {
        let copy = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        json(&json!({"a": value}), &vec![copy; count].into())
    }

    #[test]
    fn what_is_copied_is_bounded_in_all() {
        let doubled = copies(17, &json!(["0123456789"])).map(|document| document["a"].to_string().len());
        assert!(doubled.is_ok_and(|length| length > 1 << 20));
        let refused = "Unable to complete the copy, the accumulated size increase of copy is 3932127, exceeding the limit 3145728";
        assert_eq!(copies(35, &json!(["0123456789"])), Err(PatchError::Unprocessable(refused.into())));
    }

    /// Lists in lists, so many.
    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!([]), |inner, _| json!([inner]))
    }

    #[test]
    fn nothing_is_put_where_it_nests_too_deep() {
        let check = |operations: Value, fits: bool| {
            let patched = json(&json!({"a": nested(60), "b": {"c": {}}}), &operations);
            let expected = Err(PatchError::BadRequest("exceeded max depth of 120".into()));
            assert!(if fits { patched.is_ok() } else { patched == expected }, "{operations}: {patched:?}");
        };
        let innermost = |levels: usize| format!("/a{}/-", "/0".repeat(levels - 1));
        for (depth, fits) in [(119, true), (120, false)] {
            check(json!([{"op": "add", "path": "/x", "value": nested(depth)}]), fits);
            check(json!([{"op": "replace", "path": "/x", "value": nested(depth)}]), fits);
            check(json!([{"op": "replace", "path": "", "value": nested(depth + 1)}]), fits);
            check(json!([{"op": "add", "path": "/b/x", "value": nested(depth - 1)}]), fits);
        }
        for (depth, fits) in [(59, true), (60, false)] {
            let begin = json!({"op": "add", "path": "/x", "value": nested(depth)});
            for op in ["copy", "move"] {
                check(json!([begin, {"op": op, "from": "/x", "path": innermost(60)}]), fits);
            }
        }
        // What has no place is said to have none, as before.
        let nowhere = json(&json!({}), &json!([{"op": "add", "path": "/x".repeat(200), "value": 1}]));
        assert!(matches!(nowhere, Err(PatchError::Unprocessable(_))), "{nowhere:?}");
    }

    #[test]
    fn a_list_that_is_copied_into_itself_again_and_again_is_refused_before_it_is_too_deep_to_walk() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": nested(118)})];
        for round in 0..10 {
            let innermost = format!("/a{}", "/0".repeat(118 << round));
            operations.push(json!({"op": "copy", "from": "/a", "path": innermost}));
        }
        let refused = Err(PatchError::BadRequest("exceeded max depth of 120".into()));
        assert_eq!(json(&json!({}), &operations.into()), refused);
    }
}
