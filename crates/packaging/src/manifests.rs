//! Everything that a cluster needs to run the operators.

use serde_json::{Value, json};

use crate::{NAMESPACE, SERVICE_ACCOUNT, access, definitions, parts, people, rbac::labels};

/// What may differ from one installation to the next.
#[derive(Debug, Clone)]
pub struct Deploy {
    /// The image to run.
    pub image: String,
    /// How many copies, of which one leads.
    pub replicas: u32,
    /// The namespaces to look after; all of them when empty.
    pub watch: Vec<String>,
}

/// What the operators stand on wherever they run and look after all namespaces: a namespace of their own, definitions,
/// permissions.
#[must_use]
pub fn foundation() -> Vec<Value> {
    foundation_in(&[])
}

/// The same for those who look after some namespaces only. These are the cluster's: they must be there.
fn foundation_in(watch: &[String]) -> Vec<Value> {
    let parts = parts();
    let mut objects = vec![namespace()];
    objects.extend(definitions());
    objects.extend(access(&parts, watch));
    objects.extend(people(&parts));
    objects
}

/// The [`foundation`], the operators themselves, a budget that keeps one of them through a drain, and a Service for
/// their metrics.
#[must_use]
pub fn manifests(deploy: &Deploy) -> Vec<Value> {
    let mut objects = foundation_in(&deploy.watch);
    objects.push(deployment(deploy));
    objects.push(disruption_budget());
    objects.push(metrics_service());
    objects
}

fn namespace() -> Value {
    let mut labels = labels();
    labels["pod-security.kubernetes.io/enforce"] = "restricted".into();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// The labels by which the operators' pods are known.
fn selector() -> Value {
    json!({"app.kubernetes.io/name": "ballast", "app.kubernetes.io/component": "operators"})
}

/// No priority class is named: the built-in ones are kept from namespaces like this one on some clusters.
fn deployment(deploy: &Deploy) -> Value {
    let selector = selector();
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut environment =
        vec![field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")];
    if !deploy.watch.is_empty() {
        environment.push(json!({"name": "WATCH_NAMESPACE", "value": deploy.watch.join(",")}));
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "ballast", "namespace": NAMESPACE, "labels": labels()},
        "spec": {
            "replicas": deploy.replicas,
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": selector, "annotations": {"kubectl.kubernetes.io/default-container": "ballast"}},
                "spec": {
                    "serviceAccountName": SERVICE_ACCOUNT,
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "runAsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    // On two nodes where there are two: the copy that stands by is for when a node fails.
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": selector},
                    }],
                    "containers": [{
                        "name": "ballast",
                        "image": deploy.image,
                        "imagePullPolicy": "IfNotPresent",
                        "args": [
                            "run",
                            "--leader-elect",
                            "--log-format=json",
                            format!("--agent-image={}", deploy.image),
                        ],
                        "env": environment,
                        "ports": [
                            {"name": "metrics", "containerPort": 8080},
                            {"name": "health", "containerPort": 8081},
                        ],
                        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 10},
                        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 5},
                        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}

/// What is unavailable is counted, not what is available: of a single copy a drain would never end.
fn disruption_budget() -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "ballast", "namespace": NAMESPACE, "labels": labels()},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector()}},
    })
}

fn metrics_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "ballast-metrics", "namespace": NAMESPACE, "labels": labels()},
        "spec": {
            "selector": selector(),
            "ports": [{"name": "metrics", "port": 8080, "targetPort": "metrics"}],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rules, yaml};

    fn shipped() -> Vec<Value> {
        manifests(&Deploy { image: "ballast:1".into(), replicas: 2, watch: Vec::new() })
    }

    #[test]
    fn no_rule_has_a_wildcard() {
        let text = serde_json::to_string(
            &shipped().iter().map(|object| object["rules"].clone()).collect::<Vec<_>>(),
        );
        assert!(!text.unwrap().contains('*'));
    }

    #[test]
    fn the_operators_permissions_are_these() {
        insta::assert_snapshot!(yaml(&rules(&parts())).unwrap());
    }

    #[test]
    fn what_is_shipped_is_this() {
        let names: Vec<String> = shipped()
            .iter()
            .map(|object| {
                let meta = &object["metadata"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                format!("{} {} {}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
            })
            .collect();
        insta::assert_snapshot!(names.join("\n"));
    }

    #[test]
    fn the_namespaces_to_watch_reach_the_pod() {
        let objects =
            manifests(&Deploy { image: "i".into(), replicas: 1, watch: vec!["a".into(), "b".into()] });
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
        assert!(environment.contains(&json!({"name": "WATCH_NAMESPACE", "value": "a,b"})), "{environment:?}");
    }

    #[test]
    fn the_deployment_is_this() {
        let objects = shipped();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap().clone();
        insta::assert_snapshot!(yaml(&[deployment]).unwrap());
    }

    #[test]
    fn whatever_selects_the_operators_selects_their_pods() {
        let objects = shipped();
        let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap()["spec"].clone();
        let pods = &of("Deployment")["template"]["metadata"]["labels"];
        assert_eq!(pods, &of("Deployment")["selector"]["matchLabels"]);
        assert_eq!(pods, &of("PodDisruptionBudget")["selector"]["matchLabels"]);
        assert_eq!(pods, &of("Service")["selector"]);
    }

    #[test]
    fn the_operators_may_not_reach_into_pods() {
        let rules = serde_json::to_string(&rules(&parts())).unwrap();
        for subresource in ["exec", "attach", "portforward", "proxy", "ephemeralcontainers"] {
            assert!(!rules.contains(subresource), "{rules}");
        }
    }
}
