//! Names, labels and the like, checked as Kubernetes checks them and refused in its words.

use std::sync::LazyLock;

use regex::Regex;

/// A check of an object's name; the flag says that the name is only the beginning of one
/// (`generateName`). Answers what is wrong.
pub type Rule = fn(&str, bool) -> Vec<String>;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const UNDERSCORE_SUBDOMAIN: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const DNS_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const CONFIG_KEY: &str = "[-._a-zA-Z0-9]+";
const PERCENT: &str = "[0-9]+%";
const HEADER: &str = "[-A-Za-z0-9]+";

static LABEL_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(LABEL));
static SUBDOMAIN_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(SUBDOMAIN));
static UNDERSCORE_SUBDOMAIN_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(UNDERSCORE_SUBDOMAIN));
static DNS_1035_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(DNS_1035));
static QUALIFIED_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(QUALIFIED));
static LABEL_VALUE_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(LABEL_VALUE));
static CONFIG_KEY_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(CONFIG_KEY));
static PERCENT_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(PERCENT));
static HEADER_RE: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(HEADER));

fn anchored(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok()
}

fn is_match(pattern: &LazyLock<Option<Regex>>, value: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(value))
}

/// `must be no more than … characters`.
#[must_use]
pub fn too_long(length: usize) -> String {
    format!("must be no more than {length} characters")
}

/// `must be between … and …, inclusive`.
#[must_use]
pub fn out_of_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn pattern_error(rule: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// A lowercase RFC 1123 subdomain of at most 253 characters.
#[must_use]
pub fn dns_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(too_long(253));
    }
    if !is_match(&SUBDOMAIN_RE, value) {
        errors.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    errors
}

/// As a subdomain, with underscores within its labels and at most one before each.
#[must_use]
pub fn dns_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(too_long(253));
    }
    if !is_match(&UNDERSCORE_SUBDOMAIN_RE, value) {
        errors.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            UNDERSCORE_SUBDOMAIN,
            &["example.com"],
        ));
    }
    errors
}

/// A lowercase RFC 1123 label of at most 63 characters.
#[must_use]
pub fn dns_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_match(&LABEL_RE, value) {
        errors.push(if is_match(&SUBDOMAIN_RE, value) {
            "must not contain dots".to_owned()
        } else {
            pattern_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// An RFC 1035 label of at most 63 characters: begins with a letter.
#[must_use]
pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_match(&DNS_1035_RE, value) {
        errors.push(pattern_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character",
            DNS_1035,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A label key: an optional subdomain, a slash and a name of at most 63 characters.
#[must_use]
pub fn qualified_name(value: &str) -> Vec<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut errors = Vec::new();
    let parts: Vec<_> = value.split('/').collect();
    let name = match *parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    dns_subdomain(prefix).into_iter().map(|message| format!("prefix part {message}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern_error(RULE, QUALIFIED, EXAMPLES)
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63)));
    }
    if !is_match(&QUALIFIED_RE, name) {
        errors.push(format!("name part {}", pattern_error(RULE, QUALIFIED, EXAMPLES)));
    }
    errors
}

/// A label's value: empty, or at most 63 characters.
#[must_use]
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_match(&LABEL_VALUE_RE, value) {
        errors.push(pattern_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character",
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// A key of a ConfigMap or Secret.
#[must_use]
pub fn config_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(too_long(253));
    }
    if !is_match(&CONFIG_KEY_RE, value) {
        errors.push(pattern_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            CONFIG_KEY,
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    if value == "." {
        errors.push("must not be '.'".to_owned());
    } else if value == ".." {
        errors.push("must not be '..'".to_owned());
    } else if value.starts_with("..") {
        errors.push("must not start with '..'".to_owned());
    }
    errors
}

/// The name of an environment variable.
#[must_use]
pub fn environment_variable(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if value.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    errors
}

/// A port's number.
#[must_use]
pub fn port_number(value: i64) -> Vec<String> {
    if (1..=65535).contains(&value) { Vec::new() } else { vec![out_of_range(1, 65535)] }
}

/// A port's name: at most 15 characters with at least one letter.
#[must_use]
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 15 {
        errors.push(too_long(15));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A percentage such as `25%`.
#[must_use]
pub fn percent(value: &str) -> Vec<String> {
    if is_match(&PERCENT_RE, value) {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        PERCENT,
        &["1%", "93%"],
    )]
}

/// The name of an HTTP header.
#[must_use]
pub fn http_header(value: &str) -> Vec<String> {
    if is_match(&HEADER_RE, value) {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        HEADER,
        &["X-Header-Name"],
    )]
}

/// A name that is one segment of a path.
#[must_use]
pub fn path_segment(value: &str, prefix: bool) -> Vec<String> {
    let mut errors = Vec::new();
    if !prefix && (value == "." || value == "..") {
        errors.push(format!("may not be '{value}'"));
    }
    for character in ['/', '%'] {
        if value.contains(character) {
            errors.push(format!("may not contain '{character}'"));
        }
    }
    errors
}

/// The name of an object of most kinds.
#[must_use]
pub fn dns_subdomain_rule(value: &str, prefix: bool) -> Vec<String> {
    dns_subdomain(&without_dash(value, prefix))
}

/// The name of an object whose name becomes one label of a domain name.
#[must_use]
pub fn dns_label_rule(value: &str, prefix: bool) -> Vec<String> {
    dns_label(&without_dash(value, prefix))
}

/// The name of a Service.
#[must_use]
pub fn dns_1035_rule(value: &str, prefix: bool) -> Vec<String> {
    dns_1035_label(&without_dash(value, prefix))
}

/// Any name.
#[must_use]
pub fn any_rule(_: &str, _: bool) -> Vec<String> {
    Vec::new()
}

/// What is appended to a prefix begins with a letter or digit, so a dash at its end is fine.
/// Kubernetes puts a letter in place of the last two characters, and so accepts what it accepts.
fn without_dash(value: &str, prefix: bool) -> String {
    if !prefix || value.len() < 2 || !value.ends_with('-') {
        return value.to_owned();
    }
    let mut kept: Vec<char> = value.chars().collect();
    kept.truncate(kept.len().saturating_sub(2));
    kept.push('a');
    kept.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(errors: Vec<String>, expected: &[&str]) {
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_subdomain_is_lowercase() {
        check(dns_subdomain("example.com"), &[]);
        check(
            dns_subdomain("Example"),
            &[
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
               must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
               '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        );
        check(dns_subdomain(&"a".repeat(254)), &["must be no more than 253 characters"]);
    }

    #[test]
    fn a_label_has_no_dots() {
        check(dns_label("a.b"), &["must not contain dots"]);
    }

    #[test]
    fn a_qualified_name_has_at_most_one_slash() {
        check(qualified_name("example.com/MyName"), &[]);
        assert!(qualified_name("a/b/c")[0].starts_with("a qualified name must consist of"));
        assert!(qualified_name("/b")[0].starts_with("prefix part must be non-empty"));
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        check(dns_subdomain_rule("web-", true), &[]);
        assert!(!dns_subdomain_rule("web-", false).is_empty());
    }

    #[test]
    fn a_port_has_a_letter_in_its_name() {
        check(port_name("80"), &["must contain at least one letter (a-z)"]);
        check(port_name("memcached"), &[]);
    }
}
