//! Labels of nodes that have other names today.

use serde_json::Value;

use crate::{json, names, path::Path};

/// Each label with what is said of it, in Kubernetes' words.
const DEPRECATED: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#),
    ("beta.kubernetes.io/os", r#"deprecated since v1.14; use "kubernetes.io/os" instead"#),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", r#"use "node-role.kubernetes.io/control-plane" instead"#),
];

/// What is said of a label that has another name today.
pub(crate) fn deprecation(label: &str) -> Option<&'static str> {
    DEPRECATED.iter().find(|(known, _)| *known == label).map(|(_, message)| *message)
}

/// What is worth saying about the terms that a node must match.
pub(crate) fn required_terms(terms: &[Value], path: &Path<'_>, warnings: &mut Vec<String>) {
    for (index, term) in terms.iter().enumerate() {
        self::term(term, false, &path.index(index), warnings);
    }
}

/// What is worth saying about one term. The values of a term that need not be matched are not refused, so what is
/// wrong with them is said here.
pub(crate) fn term(term: &Value, with_values: bool, path: &Path<'_>, warnings: &mut Vec<String>) {
    let list = path.field("matchExpressions");
    for (index, expression) in json::list(term, "matchExpressions").iter().enumerate() {
        let at = list.index(index);
        let key = json::text(expression, "key");
        if let Some(message) = deprecation(key) {
            warnings.push(format!("{}: {key} is {message}", at.field("key")));
        }
        let at = at.field("values");
        let values = json::list(expression, "values").iter().filter_map(Value::as_str);
        for (index, value) in values.enumerate().filter(|_| with_values) {
            let wrong = names::label_value(value).into_iter();
            warnings
                .extend(wrong.map(|message| format!("{}: {value} is invalid, {message}", at.index(index))));
        }
    }
}
