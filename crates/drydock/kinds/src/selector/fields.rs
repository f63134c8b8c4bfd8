//! Field selectors: `status.phase=Running,metadata.name!=a`.

use crate::{Kind, selector::SelectorError};

/// One comparison of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    /// The field, under the name that [`Kind::selectable_fields`] has for it.
    pub field: String,
    /// The value it is compared with.
    pub value: String,
    /// The field must differ.
    pub negated: bool,
}

/// All of its terms must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    /// The comparisons.
    pub terms: Vec<FieldTerm>,
}

impl FieldSelector {
    /// Reads a selector for objects of `kind`.
    ///
    /// # Errors
    /// The text is no selector, or names a field that `kind` can't be selected by.
    pub fn parse(text: &str, kind: &Kind) -> Result<Self, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, negated, value) = split_term(part).ok_or_else(|| {
                SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            let value = unescape(value)?;
            let field = kind.field_label(field).map_err(SelectorError)?;
            terms.push(FieldTerm { field, value, negated });
        }
        Ok(Self { terms })
    }

    /// Everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that `field` must have, when the selector says so.
    #[must_use]
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| !term.negated && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether fields, looked up by name, match. A field that is not there is empty.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|term| (lookup(&term.field).unwrap_or_default() == term.value) != term.negated)
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (index, _) in term.char_indices() {
        let rest = &term[index..];
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..index], negated, value));
            }
        }
    }
    None
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                Some(other) => return Err(bad_escape(&format!("\\{other}"))),
                None => return Err(bad_escape("\\")),
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(character)
                )));
            }
            other => value.push(other),
        }
    }
    Ok(value)
}

fn bad_escape(sequence: &str) -> SelectorError {
    SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"))
}

#[cfg(test)]
mod tests {
    use crate::Registry;

    use super::*;

    #[track_caller]
    fn check(plural: &str, text: &str, fields: &[(&str, &str)], expected: Result<bool, &str>) {
        let registry = Registry::builtin();
        let kind = registry.find("", "v1", plural).expect("a known kind");
        let answer = FieldSelector::parse(text, &kind)
            .map(|selector| {
                selector
                    .matches(|name| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value))
            })
            .map_err(|error| error.to_string());
        assert_eq!(answer, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn terms_are_compared() {
        let running = &[("status.phase", "Running"), ("metadata.name", "a")];
        check("pods", "status.phase=Running", running, Ok(true));
        check("pods", "status.phase==Running,metadata.name!=a", running, Ok(false));
        check("pods", "spec.nodeName=", running, Ok(true));
        check("pods", "", running, Ok(true));
    }

    #[test]
    fn what_can_not_be_selected_is_said() {
        check("pods", "spec.colour=red", &[], Err("field label not supported: spec.colour"));
        check(
            "configmaps",
            "data.a=b",
            &[],
            Err("\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
        );
        check("pods", "nothing", &[], Err("invalid selector: 'nothing'; can't understand 'nothing'"));
        check("pods", r"metadata.name=a\b", &[], Err("invalid field selector: invalid escape sequence: \\b"));
    }
}
