//! What a request wants to do.

use crate::{Identity, Refusal};
use drydock_schema::words::quoted;

/// Everything that authorization looks at.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// Who asks.
    pub identity: &'a Identity,
    /// `get`, `list`, `create`, `impersonate`, …; for a path the HTTP method in lower case.
    pub verb: &'a str,
    /// API group, empty for the core group.
    pub group: &'a str,
    /// API version. RBAC does not look at it.
    pub version: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// `status`, `log`, …; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for cluster scope and for requests across all namespaces.
    pub namespace: &'a str,
    /// Empty where the request names no object.
    pub name: &'a str,
    /// Set when the request is for a path that is no resource; the fields above are then empty.
    pub path: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// `verb` on all objects of a resource, cluster-wide. The other fields can be set by struct update.
    #[must_use]
    pub fn resource(identity: &'a Identity, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self {
            identity,
            verb,
            group,
            version: "",
            resource,
            subresource: "",
            namespace: "",
            name: "",
            path: None,
        }
    }

    /// `verb` on a path that is no resource.
    #[must_use]
    pub fn path(identity: &'a Identity, verb: &'a str, path: &'a str) -> Self {
        Self { path: Some(path), ..Self::resource(identity, verb, "", "") }
    }

    /// The same request for one namespace.
    #[must_use]
    pub fn within(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    /// The same request for one object.
    #[must_use]
    pub fn named(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// The same request for a subresource.
    #[must_use]
    pub fn subresource(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }

    /// `User "x" cannot list resource "pods" in API group "" in the namespace "default"`.
    ///
    /// What could be read as HTML is escaped, quotes excepted, since a browser may be looking.
    #[must_use]
    pub fn denial(&self) -> String {
        let user = quoted(&self.identity.username);
        let verb = self.verb;
        let text = match self.path {
            Some(path) => format!("User {user} cannot {verb} path {}", quoted(path)),
            None => {
                let resource = match self.subresource {
                    "" => quoted(self.resource),
                    sub => quoted(&format!("{}/{sub}", self.resource)),
                };
                let scope = match self.namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {}", quoted(namespace)),
                };
                let group = quoted(self.group);
                format!("User {user} cannot {verb} resource {resource} in API group {group} {scope}")
            }
        };
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }

    /// The 403 for this request. `reason` is what [`Decision::Denied`](crate::Decision) carries.
    #[must_use]
    pub fn refusal(&self, reason: &str) -> Refusal {
        let mut detail = self.denial();
        if !reason.is_empty() {
            detail = format!("{detail}: {reason}");
        }
        Refusal::Forbidden {
            group: self.group.to_owned(),
            resource: self.resource.to_owned(),
            name: self.name.to_owned(),
            detail,
        }
    }

    /// The text of [`Attributes::refusal`]:
    /// `pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default"`.
    #[must_use]
    pub fn forbidden(&self, reason: &str) -> String {
        self.refusal(reason).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(attributes: Attributes<'_>, reason: &str, expected: &str) {
        assert_eq!(attributes.forbidden(reason), expected);
    }

    #[test]
    fn a_denial_reads_as_kubernetes_writes_it() {
        let x = &Identity::user("x", ["g"]);
        let pods = Attributes::resource(x, "list", "", "pods");
        check(
            pods.within("default"),
            "",
            r#"pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default""#,
        );
        check(
            Attributes::resource(x, "list", "", "nodes"),
            "",
            r#"nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope"#,
        );
        check(
            Attributes { verb: "get", ..pods.within("default").named("foo").subresource("log") },
            "",
            r#"pods "foo" is forbidden: User "x" cannot get resource "pods/log" in API group "" in the namespace "default""#,
        );
        check(
            Attributes::resource(x, "list", "apps", "deployments"),
            r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#,
            r#"deployments.apps is forbidden: User "x" cannot list resource "deployments" in API group "apps" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#,
        );
        check(
            Attributes::path(x, "get", "/metrics"),
            "",
            r#"forbidden: User "x" cannot get path "/metrics""#,
        );
        let script = &Identity::user("<script>", ["g"]);
        check(
            Attributes::path(script, "get", "/a&b"),
            "",
            r#"forbidden: User "&lt;script&gt;" cannot get path "/a&amp;b""#,
        );
    }
}
