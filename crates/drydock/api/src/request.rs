//! What a request asks for: method, path and query read into a [`RequestInfo`].
//!
//! **Always holds:** nothing here looks at the body, the store or the caller. A path that names
//! no resource is a [`RequestInfo`] without one; whether its resource exists is decided later.
//!
//! **Deliberately absent:** the deprecated `/api/v1/watch/…` and `/api/v1/proxy/…` forms.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::failure::Failure;

/// What is done to a resource, in RBAC's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many.
    List,
    /// Follows changes.
    Watch,
    /// Makes an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes parts of an object.
    Patch,
    /// Removes an object.
    Delete,
    /// Removes many.
    DeleteCollection,
    /// A method that Kubernetes has no verb for.
    Other,
}

impl Verb {
    /// The word as RBAC rules and the request log write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "",
        }
    }

    /// The request may change something.
    #[must_use]
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The resource a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePath {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// What follows the name, e.g. `status`.
    pub subresource: Option<String>,
    /// The namespace in the path; for namespaces themselves their own name.
    pub namespace: Option<String>,
    /// The object's name; for list and watch the name that the field selector demands.
    pub name: Option<String>,
}

/// The subresource whose requests are somebody else's to answer.
const PASSED_ON: &str = "proxy";

impl ResourcePath {
    /// The request is not for this server, but for what a pod serves.
    #[must_use]
    pub fn is_passed_on(&self) -> bool {
        self.subresource.as_deref() == Some(PASSED_ON)
    }

    /// The namespace that objects of this request live in: none for a Namespace itself.
    #[must_use]
    pub fn object_namespace(&self) -> Option<&str> {
        if self.group.is_empty() && self.resource == "namespaces" {
            return None;
        }
        self.namespace.as_deref()
    }
}

/// A request, understood.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    /// What is to be done.
    pub verb: Verb,
    /// The HTTP method.
    pub method: Method,
    /// The path, decoded.
    pub path: String,
    /// The query, as sent.
    pub query: String,
    /// What the path names, if it names a resource.
    pub resource: Option<ResourcePath>,
    /// The query, read.
    pub options: Options,
}

/// The options of all verbs, as the query gives them. Unknown ones are ignored.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `labelSelector`.
    pub label_selector: Option<String>,
    /// `fieldSelector`.
    pub field_selector: Option<String>,
    /// `watch`.
    pub watch: bool,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// `limit`; 0 is no limit.
    pub limit: u64,
    /// `continue`.
    pub continue_token: Option<String>,
    /// `resourceVersion`; the empty string is as good as none.
    pub resource_version: Option<String>,
    /// `resourceVersionMatch`.
    pub resource_version_match: Option<String>,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<u64>,
    /// `dryRun`, all values given.
    pub dry_run: Vec<String>,
    /// `fieldManager`.
    pub field_manager: Option<String>,
    /// `fieldValidation`.
    pub field_validation: Option<String>,
    /// `force`.
    pub force: Option<bool>,
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `propagationPolicy`.
    pub propagation_policy: Option<String>,
    /// `orphanDependents`.
    pub orphan_dependents: Option<bool>,
    /// `includeObject`, for tables.
    pub include_object: Option<String>,
    /// `verbose` and `exclude`, for health checks.
    pub verbose: bool,
}

/// Reads a request's first line.
///
/// # Errors
/// An option that is no number where one is needed is a bad request, as in Kubernetes.
pub fn parse(method: &Method, uri: &Uri) -> Result<RequestInfo, Failure> {
    let path = decode(uri.path());
    let query = uri.query().unwrap_or_default().to_owned();
    let mut resource = resource_path(&path);
    let options = match &resource {
        // What is asked of a pod is the pod's to understand.
        Some(found) if found.is_passed_on() => Options::default(),
        _ => options(&query)?,
    };
    let mut verb = match method.as_str() {
        "GET" | "HEAD" => Verb::Get,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" => Verb::Delete,
        _ => Verb::Other,
    };
    if let Some(found) = &mut resource
        && found.name.is_none()
    {
        match verb {
            Verb::Get => {
                verb = if options.watch { Verb::Watch } else { Verb::List };
                found.name = options.field_selector.as_deref().and_then(exact_name);
            }
            Verb::Delete => verb = Verb::DeleteCollection,
            _ => {}
        }
    }
    Ok(RequestInfo { verb, method: method.clone(), path, query, resource, options })
}

/// Splits `/api/v1/namespaces/x/pods/y/status` and its like, decoded; `None` for any other path.
fn resource_path(path: &str) -> Option<ResourcePath> {
    let parts: Vec<String> = path.trim_matches('/').split('/').map(str::to_owned).collect();
    let (group, version, rest) = match parts.first().map(String::as_str) {
        Some("api") if parts.len() >= 3 => (String::new(), parts[1].clone(), &parts[2..]),
        Some("apis") if parts.len() >= 4 => (parts[1].clone(), parts[2].clone(), &parts[3..]),
        _ => return None,
    };
    let mut namespace = None;
    let mut rest = rest;
    if rest[0] == "namespaces" && rest.len() > 1 {
        namespace = Some(rest[1].clone());
        if rest.len() > 2 && rest[2] != "status" && rest[2] != "finalize" {
            rest = &rest[2..];
        }
    }
    Some(ResourcePath {
        group,
        version,
        resource: rest[0].clone(),
        subresource: match rest.get(2).map(String::as_str) {
            // What follows is the path of another server.
            Some(PASSED_ON) => Some(PASSED_ON.to_owned()),
            Some(_) => Some(rest[2..].join("/")),
            None => None,
        },
        namespace,
        name: rest.get(1).filter(|name| !name.is_empty()).cloned(),
    })
}

/// The name that `metadata.name=x` demands, so that rules with `resourceNames` cover such a list.
fn exact_name(selector: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (!value.is_empty() && !value.contains(['/', '%'])).then(|| value.to_owned())
    })
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The key-value pairs of a query, decoded.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
    })
}

fn options(query: &str) -> Result<Options, Failure> {
    let mut options = Options::default();
    for (key, value) in pairs(query) {
        match key.as_str() {
            "labelSelector" => options.label_selector = filled(value),
            "fieldSelector" => options.field_selector = filled(value),
            "watch" => options.watch = truth(&value),
            "allowWatchBookmarks" => options.bookmarks = truth(&value),
            "sendInitialEvents" => options.send_initial_events = Some(truth(&value)),
            "limit" => options.limit = u64::try_from(number(&value)?).unwrap_or(0),
            "continue" => options.continue_token = filled(value),
            "resourceVersion" => options.resource_version = filled(value),
            "resourceVersionMatch" => options.resource_version_match = filled(value),
            "timeoutSeconds" => {
                options.timeout_seconds = u64::try_from(number(&value)?).ok().filter(|s| *s > 0);
            }
            "dryRun" => options.dry_run.push(value),
            "fieldManager" => options.field_manager = filled(value),
            "fieldValidation" => options.field_validation = filled(value),
            "force" => options.force = Some(truth(&value)),
            "gracePeriodSeconds" => options.grace_period_seconds = Some(number(&value)?),
            "propagationPolicy" => options.propagation_policy = filled(value),
            "orphanDependents" => options.orphan_dependents = Some(truth(&value)),
            "includeObject" => options.include_object = filled(value),
            "verbose" => options.verbose = true,
            _ => {}
        }
    }
    Ok(options)
}

fn filled(value: String) -> Option<String> {
    (!value.is_empty()).then_some(value)
}

/// Only `false` and `0` are false in a query, as Kubernetes reads it.
pub(crate) fn truth(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

pub(crate) fn number(value: &str) -> Result<i64, Failure> {
    if value.is_empty() {
        return Ok(0);
    }
    value
        .parse()
        .map_err(|_| Failure::BadRequest(format!("strconv.ParseInt: parsing {value:?}: invalid syntax")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let (method, uri) = line.split_once(' ').unwrap();
        let info = parse(&method.parse().unwrap(), &uri.parse().unwrap()).unwrap();
        let actual = match &info.resource {
            None => format!("{} {}", info.verb.as_str(), info.path),
            Some(r) => {
                let dash = |s: &Option<String>| s.clone().unwrap_or_else(|| "-".into());
                format!(
                    "{} {}/{}/{} sub={} ns={} name={}",
                    info.verb.as_str(),
                    r.group,
                    r.version,
                    r.resource,
                    dash(&r.subresource),
                    dash(&r.namespace),
                    dash(&r.name)
                )
            }
        };
        assert_eq!(actual, expected, "{line}");
    }

    #[test]
    fn paths_are_read_as_kubernetes_reads_them() {
        check("GET /healthz", "get /healthz");
        check("GET /api/v1", "get /api/v1");
        check("GET /apis/apps/v1", "get /apis/apps/v1");
        check("GET /api/v1/pods", "list /v1/pods sub=- ns=- name=-");
        check("GET /api/v1/pods?watch=1", "watch /v1/pods sub=- ns=- name=-");
        check("GET /api/v1/pods?watch=false", "list /v1/pods sub=- ns=- name=-");
        check("GET /api/v1/namespaces/a", "get /v1/namespaces sub=- ns=a name=a");
        check("PUT /api/v1/namespaces/a/finalize", "update /v1/namespaces sub=finalize ns=a name=a");
        check("GET /api/v1/namespaces/a/pods/b/log", "get /v1/pods sub=log ns=a name=b");
        check(
            "PATCH /apis/apps/v1/namespaces/a/deployments/b/scale",
            "patch apps/v1/deployments sub=scale ns=a name=b",
        );
        check(
            "DELETE /apis/apps/v1/namespaces/a/deployments",
            "deletecollection apps/v1/deployments sub=- ns=a name=-",
        );
        check("GET /api/v1/namespaces/a/pods/b:80/proxy", "get /v1/pods sub=proxy ns=a name=b:80");
        check(
            "POST /api/v1/namespaces/a/services/b/proxy/x/y?limit=z",
            "create /v1/services sub=proxy ns=a name=b",
        );
        check("DELETE /apis/x.io/v1/nodes/n%2F1", "delete x.io/v1/nodes sub=1 ns=- name=n");
    }

    #[test]
    fn a_list_of_one_name_is_authorized_by_that_name() {
        check("GET /api/v1/pods?fieldSelector=metadata.name%3Dx", "list /v1/pods sub=- ns=- name=x");
    }

    #[test]
    fn an_option_that_is_no_number_is_refused() {
        let failure = parse(&Method::GET, &"/api/v1/pods?limit=many".parse().unwrap()).unwrap_err();
        assert_eq!(failure.to_string(), r#"strconv.ParseInt: parsing "many": invalid syntax"#);
    }
}
