//! Words and values as Kubernetes prints them in its messages, which is how Go prints them.

use std::fmt::Write as _;

use serde_json::Value;

/// `text` in double quotes with Go's escapes (`%q`).
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            // Writing to a String never fails.
            c if u32::from(c) < 0x20 || c == '\u{7f}' => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `["a" "b"]`.
#[must_use]
pub fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(" "))
}

/// One message as it is, several as `[a, b]`, each once.
pub fn joined<I: IntoIterator<Item = String>>(messages: I) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for message in messages {
        if !distinct.contains(&message) {
            distinct.push(message);
        }
    }
    match distinct.len() {
        1 => distinct.swap_remove(0),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

/// What the messages of Go's decoder call a JSON value.
#[must_use]
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A JSON reader's complaint about `text` in the words that Go's has for it.
#[must_use]
pub(crate) fn of_syntax_error(error: &serde_json::Error, text: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let message = error.to_string();
    let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let offender = char::from(line.get(error.column().saturating_sub(1)).copied().unwrap_or(b' '));
    let place = match message.split(" at line").next().unwrap_or_default() {
        "expected value" | "trailing comma" if offender == '}' => {
            "looking for beginning of object key string"
        }
        "key must be a string" => "looking for beginning of object key string",
        "expected value" | "trailing comma" => "looking for beginning of value",
        "expected `,` or `}`" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        "expected `:`" => "after object key",
        "trailing characters" => "after top-level value",
        "expected ident" => return of_literal(line, error.column().saturating_sub(1)).unwrap_or(message),
        _ => return message,
    };
    format!("invalid character {offender:?} {place}")
}

/// What Go says of a word that begins as `true`, `false` or `null` and goes on otherwise at `at`.
fn of_literal(line: &[u8], at: usize) -> Option<String> {
    let offender = char::from(*line.get(at)?);
    ["true", "false", "null"].into_iter().find_map(|literal| {
        let begun = (1..literal.len()).rev().find(|length| {
            at.checked_sub(*length).is_some_and(|start| line[start..at] == literal.as_bytes()[..*length])
        })?;
        let expected = char::from(*literal.as_bytes().get(begun)?);
        Some(format!("invalid character {offender:?} in literal {literal} (expecting {expected:?})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        for (text, expected) in [
            ("x", r#""x""#),
            ("", r#""""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nfeed\u{0}\u{7f}", r#""line\nfeed\x00\x7f""#),
            ("\u{80}", r#""\u0080""#),
            ("Zürich", r#""Zürich""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
        assert_eq!(quoted_list(&["a", "b"]), r#"["a" "b"]"#);
        assert_eq!(quoted_list::<&str>(&[]), "[]");
    }

    #[test]
    fn several_messages_stand_in_brackets_each_once() {
        assert_eq!(joined(["a".to_owned()]), "a");
        assert_eq!(joined(["a".to_owned(), "b".to_owned(), "a".to_owned()]), "[a, b]");
    }
}
