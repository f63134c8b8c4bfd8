//! What `fieldRef` and `resourceFieldRef` point at.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use super::ConfigError;
use crate::quantity;

/// What a pod's fields say that is not in the pod: where it runs, and what there is to run on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub host_ip: String,
    pub pod_ip: Option<String>,
    /// Thousandths of a core that pods may use.
    pub cpu_millis: u64,
    /// Bytes of memory that pods may use.
    pub memory: u64,
}

/// A field of the pod as text.
pub(crate) fn field(pod: &Pod, place: &Place, path: &str) -> Result<String, ConfigError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(unsupported(path)),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => spec.map(|spec| text(&spec.node_name)).unwrap_or_default(),
        "spec.serviceAccountName" => spec.map(|spec| text(&spec.service_account_name)).unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => place.host_ip.clone(),
        "status.podIP" | "status.podIPs" => place.pod_ip.clone().unwrap_or_default(),
        _ => return Err(unsupported(path)),
    })
}

fn unsupported(path: &str) -> ConfigError {
    ConfigError(format!("unsupported fieldPath: {path}"))
}

/// `metadata.labels['x']`, taken apart.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// A map as a file shows it: `key="value"`, sorted.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// A container's request or limit, counted in the divisor.
pub(crate) fn resource(
    container: &Container,
    place: &Place,
    selector: &ResourceFieldSelector,
) -> Result<String, ConfigError> {
    let unsupported = || ConfigError(format!("unsupported container resource : {}", selector.resource));
    let (kind, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|resources| resources.limits.as_ref()?.get(name));
    let request = resources.and_then(|resources| resources.requests.as_ref()?.get(name));
    let all = match name {
        "cpu" => i128::from(place.cpu_millis) * 1_000_000,
        "memory" => i128::from(place.memory) * 1_000_000_000,
        "ephemeral-storage" => 0,
        _ => return Err(unsupported()),
    };
    let amount = match kind {
        "limits" => limit.and_then(|quantity| quantity::nanos(&quantity.0)).unwrap_or(all),
        "requests" => request.or(limit).and_then(|quantity| quantity::nanos(&quantity.0)).unwrap_or(0),
        _ => return Err(unsupported()),
    };
    let divisor = selector.divisor.as_ref().map_or("1", |divisor| divisor.0.as_str());
    let counted =
        quantity::divided(amount, divisor).ok_or_else(|| ConfigError(format!("divisor {divisor}")))?;
    Ok(counted.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(path: &str, expected: Result<&str, &str>) {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"b": "2", "a": "x\"y"}},
            "spec": {"containers": [], "nodeName": "here", "serviceAccountName": "sa"},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let place = Place {
            host_ip: "10.0.0.1".into(),
            pod_ip: Some("10.0.0.2".into()),
            cpu_millis: 2000,
            memory: 1 << 30,
        };
        let found = field(&pod, &place, path).map_err(|error| error.0);
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{path}");
    }

    #[test]
    fn fields_of_the_pod_are_found() {
        check("metadata.name", Ok("p"));
        check("metadata.labels['b']", Ok("2"));
        check("metadata.labels['none']", Ok(""));
        check("metadata.labels", Ok("a=\"x\\\"y\"\nb=\"2\""));
        check("spec.nodeName", Ok("here"));
        check("spec.serviceAccountName", Ok("sa"));
        check("status.podIP", Ok("10.0.0.2"));
        check("status.hostIP", Ok("10.0.0.1"));
        check("spec.nope", Err("unsupported fieldPath: spec.nope"));
    }

    #[test]
    fn resources_are_counted_in_their_divisor() {
        let container =
            json!({"name": "c", "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "250m"}}});
        let container: Container = serde_json::from_value(container).unwrap();
        let place = Place { cpu_millis: 2000, memory: 1 << 30, ..Place::default() };
        for (resource_name, divisor, expected) in [
            ("limits.memory", "1Mi", "64"),
            ("requests.memory", "1Mi", "64"),
            ("requests.cpu", "1m", "250"),
            ("requests.cpu", "0", "1"),
            ("limits.cpu", "1", "2"),
        ] {
            let selector = json!({"resource": resource_name, "divisor": divisor});
            let selector: ResourceFieldSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(resource(&container, &place, &selector).unwrap(), expected, "{resource_name}");
        }
    }
}
