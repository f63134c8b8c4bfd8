//! The variables by which containers find Services: one set for each Service that was there when they started.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};

/// The Service that every container is told about, whatever its namespace.
const API: (&str, &str) = ("default", "kubernetes");

/// The variables for the containers of a pod: those of its own namespace's Services, unless it wants none, and
/// those of the API's.
pub(crate) fn variables<'a>(
    pod: &Pod,
    services: impl Iterator<Item = &'a Service> + Clone,
) -> BTreeMap<String, String> {
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links) != Some(false);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let named = |service: &Service, wanted: (&str, &str)| {
        let meta = &service.metadata;
        (meta.namespace.as_deref(), meta.name.as_deref()) == (Some(wanted.0), Some(wanted.1))
    };
    let own = |service: &&Service| links && service.metadata.namespace.as_deref() == Some(namespace);
    // Of two with the same name the pod's own namespace has the say.
    let mut variables = BTreeMap::new();
    for service in services.clone().filter(|service| named(service, API)) {
        add(&mut variables, service);
    }
    for service in services.filter(own) {
        add(&mut variables, service);
    }
    variables
}

fn add(variables: &mut BTreeMap<String, String>, service: &Service) {
    let Some(spec) = &service.spec else { return };
    let Some(address) = spec.cluster_ip.as_deref().filter(|address| !matches!(*address, "" | "None")) else {
        return;
    };
    let ports: Vec<&ServicePort> = spec.ports.iter().flatten().collect();
    let Some(first) = ports.first() else { return };
    let name = word(service.metadata.name.as_deref().unwrap_or_default());
    let protocol = |port: &ServicePort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let url =
        |port: &ServicePort| format!("{}://{address}:{}", protocol(port).to_ascii_lowercase(), port.port);
    let mut set = |suffix: String, value: String| variables.insert(format!("{name}_{suffix}"), value);
    set("SERVICE_HOST".to_owned(), address.to_owned());
    set("SERVICE_PORT".to_owned(), first.port.to_string());
    set("PORT".to_owned(), url(first));
    for port in ports {
        if let Some(called) = port.name.as_deref().filter(|name| !name.is_empty()) {
            set(format!("SERVICE_PORT_{}", word(called)), port.port.to_string());
        }
        let prefix = format!("PORT_{}_{}", port.port, protocol(port));
        set(prefix.clone(), url(port));
        set(format!("{prefix}_PROTO"), protocol(port).to_ascii_lowercase());
        set(format!("{prefix}_PORT"), port.port.to_string());
        set(format!("{prefix}_ADDR"), address.to_owned());
    }
}

fn word(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(spec: Value, expected: &[(&str, &str)]) {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let service = |namespace: &str, name: &str, spec: Value| -> Service {
            serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}))
                .unwrap()
        };
        let services = [
            service(
                "default",
                "kubernetes",
                json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}),
            ),
            service(
                "n",
                "my-db",
                json!({"clusterIP": "10.96.0.9", "ports": [{"port": 53, "protocol": "UDP"}]}),
            ),
            service("n", "headless", json!({"clusterIP": "None", "ports": [{"port": 1}]})),
            service("other", "there", json!({"clusterIP": "10.96.0.7", "ports": [{"port": 1}]})),
        ];
        let found = variables(&pod, services.iter());
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
    }

    const OF_THE_API: [(&str, &str); 8] = [
        ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
        ("KUBERNETES_PORT_443_TCP", "tcp://10.96.0.1:443"),
        ("KUBERNETES_PORT_443_TCP_ADDR", "10.96.0.1"),
        ("KUBERNETES_PORT_443_TCP_PORT", "443"),
        ("KUBERNETES_PORT_443_TCP_PROTO", "tcp"),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
        ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
    ];

    #[test]
    fn every_container_is_told_where_the_api_is() {
        check(json!({"containers": [], "enableServiceLinks": false}), &OF_THE_API);
    }

    #[test]
    fn services_of_the_same_namespace_are_told_unless_unwanted() {
        let own = [
            ("MY_DB_PORT", "udp://10.96.0.9:53"),
            ("MY_DB_PORT_53_UDP", "udp://10.96.0.9:53"),
            ("MY_DB_PORT_53_UDP_ADDR", "10.96.0.9"),
            ("MY_DB_PORT_53_UDP_PORT", "53"),
            ("MY_DB_PORT_53_UDP_PROTO", "udp"),
            ("MY_DB_SERVICE_HOST", "10.96.0.9"),
            ("MY_DB_SERVICE_PORT", "53"),
        ];
        check(json!({"containers": []}), &[OF_THE_API.as_slice(), &own].concat());
    }
}
