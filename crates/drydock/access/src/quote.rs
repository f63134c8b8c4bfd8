//! Strings as Go's `%q` prints them, because that is how they stand in Kubernetes' messages.

use std::fmt::Write as _;

/// `text` in double quotes with Go's escapes.
pub(crate) fn quoted(text: &str) -> String {
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
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `["a" "b"]`.
pub(crate) fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(" "))
}

/// One message as it is, several as `[a, b]`, each once.
pub(crate) fn joined<I: IntoIterator<Item = String>>(messages: I) -> String {
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
