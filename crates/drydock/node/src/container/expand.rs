//! `$(NAME)` in commands, arguments and environment variables.

/// Puts values in the place of `$(NAME)`. `$$` stands for a dollar; a name that is not known stays as it is.
pub(crate) fn expand(text: &str, value: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match value(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let value = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        assert_eq!(expand(text, &value), expected, "{text}");
    }

    #[test]
    fn names_are_replaced_as_kubernetes_does() {
        check("$(A)$(A)", "11");
        check("x$(EMPTY)y", "xy");
        check("$(NOPE)", "$(NOPE)");
        check("$$(A)", "$(A)");
        check("$$$(A)", "$1");
        check("$$$$(A)", "$$(A)");
        check("$A $ $(A", "$A $ $(A");
        check("a$", "a$");
    }
}
