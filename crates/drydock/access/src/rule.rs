//! One rule of a role: what it allows, and what it covers.

use serde_json::{Map, Value, json};

use crate::Attributes;
use drydock_schema::words::quoted_list;

/// `PolicyRule` of `rbac.authorization.k8s.io/v1`. An empty list matches nothing, except
/// `resource_names`, where it means any name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`; the core group is the empty string.
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*/subresource`, or `*` for all with their subresources.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub resource_names: Vec<String>,
    /// Paths that are no resources, with a trailing `*` for everything below.
    pub non_resource_urls: Vec<String>,
}

impl PolicyRule {
    /// Everything: all verbs on all resources, all verbs on all paths.
    #[must_use]
    pub fn full_authority() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), non_resource_urls: all(), ..Self::default() },
        ]
    }

    /// Reads a rule; absent and null lists are empty.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let list = |field: &str| {
            let items = value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub(crate) fn of_role(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        rules.iter().map(Self::from_value).collect()
    }

    /// Writes the rule; empty lists are left out, except the verbs.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut rule = Map::from_iter([("verbs".to_owned(), json!(self.verbs))]);
        for (field, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                rule.insert(field.to_owned(), json!(list));
            }
        }
        Value::Object(rule)
    }

    /// Whether this rule allows the request.
    pub(crate) fn allows(&self, request: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, request.verb) {
            return false;
        }
        match request.path {
            Some(path) => self.non_resource_urls.iter().any(|url| url_covers(url, path)),
            None => {
                has_or_all(&self.api_groups, request.group)
                    && self.resources.iter().any(|rule| resource_matches(rule, request))
                    && (self.resource_names.is_empty() || has(&self.resource_names, request.name))
            }
        }
    }

    /// Splits the rule into rules of at most one verb, group, resource and name.
    fn atoms(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut atoms = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let atom = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        atoms.push(atom);
                    } else {
                        let named = |name| Self { resource_names: one(name), ..atom.clone() };
                        atoms.extend(self.resource_names.iter().map(named));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                atoms.push(Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() });
            }
        }
        atoms
    }

    /// Whether everything that `atom` allows is allowed by this rule.
    fn covers(&self, atom: &Self) -> bool {
        let names_covered = self.resource_names.is_empty()
            || (!atom.resource_names.is_empty() && has_every(&self.resource_names, &atom.resource_names));
        names_covered
            && (has(&self.verbs, "*") || has_every(&self.verbs, &atom.verbs))
            && (has(&self.api_groups, "*") || has_every(&self.api_groups, &atom.api_groups))
            && atom.resources.iter().all(|resource| resource_covered(&self.resources, resource))
            && atom
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|own| url_covers(own, url)))
    }

    /// The rule as it stands in the message about an escalation.
    fn compact(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(field, list)| format!("{field}:{}", quoted_list(list)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// What `wanted` allows beyond `held`, described one line per resource, sorted. Empty when `held`
/// covers all of it.
pub(crate) fn missing<'a>(
    held: &[&PolicyRule],
    wanted: impl IntoIterator<Item = &'a PolicyRule>,
) -> Vec<String> {
    let mut missing: Vec<PolicyRule> = Vec::new();
    let uncovered = |atom: &PolicyRule| !held.iter().any(|rule| rule.covers(atom));
    for atom in wanted.into_iter().flat_map(PolicyRule::atoms).filter(uncovered) {
        let same_object = |other: &&mut PolicyRule| {
            !atom.resources.is_empty()
                && (&other.api_groups, &other.resources, &other.resource_names)
                    == (&atom.api_groups, &atom.resources, &atom.resource_names)
        };
        match missing.iter_mut().find(same_object) {
            Some(other) => other.verbs.extend(atom.verbs),
            None => missing.push(atom),
        }
    }
    let mut lines: Vec<String> = missing.iter().map(PolicyRule::compact).collect();
    lines.sort();
    lines.dedup();
    lines
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == item)
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == item || own == "*")
}

fn has_every(list: &[String], items: &[String]) -> bool {
    items.iter().all(|item| has(list, item))
}

fn resource_matches(rule: &str, request: &Attributes<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => request.subresource.is_empty() && rule == request.resource,
        Some((resource, sub)) => {
            !request.subresource.is_empty()
                && sub == request.subresource
                && (resource == "*" || resource == request.resource)
        }
    }
}

fn resource_covered(held: &[String], wanted: &str) -> bool {
    has_or_all(held, wanted)
        || wanted
            .split_once('/')
            .is_some_and(|(_, sub)| held.iter().any(|own| own.strip_prefix("*/") == Some(sub)))
}

fn url_covers(held: &str, wanted: &str) -> bool {
    held == wanted || (held.ends_with('*') && wanted.starts_with(held.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> PolicyRule {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        PolicyRule {
            verbs: list(verbs),
            api_groups: groups.split_whitespace().map(|g| g.replace("core", "")).collect(),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let x = Identity::default();
        let cases = [
            // rule resources, requested resource, subresource, allowed
            ("pods", "pods", "", true),
            ("pods", "pods", "log", false),
            ("pods/log", "pods", "log", true),
            ("pods/log", "pods", "", false),
            ("pods/*", "pods", "log", false),
            ("*", "pods", "log", true),
            ("*/scale", "deployments", "scale", true),
            ("*/scale", "deployments", "", false),
            ("*/scale", "deployments", "subscale", false),
            ("*/log", "pods", "log", true),
        ];
        for (resources, resource, sub, expected) in cases {
            let request = Attributes::resource(&x, "get", "", resource).subresource(sub);
            assert_eq!(
                rule("get", "core", resources, "").allows(&request),
                expected,
                "{resources} {resource}/{sub}"
            );
        }
        let named = rule("get list", "core", "pods", "a");
        let get = Attributes::resource(&x, "get", "", "pods");
        assert!(named.allows(&get.named("a")));
        assert!(!named.allows(&get.named("b")));
        assert!(!named.allows(&get), "a list names no object");
    }

    #[test]
    fn a_trailing_star_matches_everything_below_a_path() {
        let x = Identity::default();
        for (url, path, expected) in [
            ("/api", "/api", true),
            ("/api", "/api/v1", false),
            ("/api/*", "/api/v1", true),
            ("/api/*", "/api", false),
            ("/api*", "/apis", true),
            ("*", "/anything", true),
            ("/*/a", "/b/a", false),
        ] {
            let rule = PolicyRule {
                verbs: vec!["get".into()],
                non_resource_urls: vec![url.into()],
                ..PolicyRule::default()
            };
            assert_eq!(rule.allows(&Attributes::path(&x, "get", path)), expected, "{url} {path}");
            assert!(!rule.allows(&Attributes::path(&x, "post", path)));
        }
    }

    #[test]
    fn what_is_missing_is_told_per_resource_with_its_verbs() {
        let held = rule("get", "*", "pods */scale", "");
        let wanted = [
            rule("get list delete", "core apps", "pods deployments/scale", ""),
            rule("get", "core", "pods", "a"),
        ];
        assert_eq!(
            missing(&[&held], &wanted),
            [
                r#"{APIGroups:[""], Resources:["deployments/scale"], Verbs:["list" "delete"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "delete"]}"#,
                r#"{APIGroups:["apps"], Resources:["deployments/scale"], Verbs:["list" "delete"]}"#,
                r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["list" "delete"]}"#,
            ]
        );
        let named = rule("get", "core", "pods", "a");
        assert_eq!(
            missing(&[&named], [&rule("get", "core", "pods", "")]).len(),
            1,
            "one name is not all names"
        );
        assert!(missing(&[&rule("*", "*", "*", "")], [&rule("*", "*", "*", "")]).is_empty());
    }
}
