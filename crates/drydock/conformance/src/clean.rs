//! Takes away what a run left on the server, also when it failed half way, so that the next one starts clean.
//!
//! What belongs to a run carries its word: its namespaces, and what is in no namespace and has its `{id}` in
//! the name. Finalizers are taken from what is inside first: nobody else would ever do it, and a namespace or
//! a definition that holds such an object never goes. Nothing here waits until all is gone.

use serde_json::Value;

use crate::play::{PlayError, Run};

/// All resources of a path in one answer.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const STEP: &str = "closing";

/// What is in no namespace and may be made by a case.
const CLUSTER_WIDE: [&str; 4] = [
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/api/v1/namespaces",
];

impl Run<'_> {
    pub(crate) async fn close(&self) -> Result<(), PlayError> {
        let mut own = Vec::new();
        for list in CLUSTER_WIDE {
            let names = self.list(list).await?.into_iter().map(|item| text(&item, "/metadata/name"));
            own.extend(names.filter(|name| self.owns(name)).map(|name| format!("{list}/{name}")));
        }
        for list in self.lists(&own).await? {
            for item in self.list(&list).await? {
                if item.pointer("/metadata/finalizers").is_some() {
                    self.release(&format!("{list}/{}", text(&item, "/metadata/name"))).await?;
                }
            }
        }
        for path in own {
            self.send(STEP, "DELETE", &path, &[], String::new()).await?;
        }
        Ok(())
    }

    fn owns(&self, name: &str) -> bool {
        name == self.namespace || name.contains(&self.id)
    }

    /// Where objects may be that hold up what is to be deleted: in each namespace of `own`, and among the
    /// objects of the run's own definitions that are in none.
    async fn lists(&self, own: &[String]) -> Result<Vec<String>, PlayError> {
        let namespaces: Vec<&str> =
            own.iter().filter_map(|path| path.strip_prefix("/api/v1/namespaces/")).collect();
        let mut lists = Vec::new();
        for root in ["/api", "/apis"] {
            let headers = [("Accept".to_owned(), DISCOVERY.to_owned())];
            let (_, answer) = self.send(STEP, "GET", root, &headers, String::new()).await?;
            for group in items(&answer) {
                let name = text(&group, "/metadata/name");
                for version in array(&group, "/versions") {
                    let version_path = [root, &name, &text(version, "/version")].join("/").replace("//", "/");
                    for resource in array(version, "/resources") {
                        let plural = text(resource, "/resource");
                        let verbs = array(resource, "/verbs");
                        if !["list", "patch"].iter().all(|verb| verbs.iter().any(|has| has == verb)) {
                            continue;
                        }
                        if text(resource, "/scope") == "Namespaced" {
                            let inside = |ns: &&str| format!("{version_path}/namespaces/{ns}/{plural}");
                            lists.extend(namespaces.iter().map(inside));
                        } else if self.owns(&name) {
                            lists.push(format!("{version_path}/{plural}"));
                        }
                    }
                }
            }
        }
        Ok(lists)
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>, PlayError> {
        Ok(items(&self.send(STEP, "GET", path, &[], String::new()).await?.1))
    }

    async fn release(&self, path: &str) -> Result<(), PlayError> {
        let headers = [("Content-Type".to_owned(), "application/merge-patch+json".to_owned())];
        let body = r#"{"metadata":{"finalizers":null}}"#.to_owned();
        self.send(STEP, "PATCH", path, &headers, body).await?;
        Ok(())
    }
}

/// The items of a list; none of an answer that is no list.
fn items(answer: &str) -> Vec<Value> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    array(&answer, "/items").to_vec()
}

fn array<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
