//! The columns of kinds that need little to be said.

use serde_json::Value;

use super::{
    AGE,
    About::{Field, Said},
    Column, NAME, Printer, age, name, number, text, wide,
};
use crate::json;

/// Kinds that Kubernetes prints without a table of their own.
pub(crate) const ROLE: Printer = Printer {
    columns: &[
        NAME,
        Column {
            kind: "date",
            ..text(
                "Created At",
                Field("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp"),
            )
        },
    ],
    cells: |object, _| vec![name(object), json::text(&object["metadata"], "creationTimestamp").into()],
};

pub(crate) const DEFINITION: Printer = ROLE;

pub(crate) const CONFIG_MAP: Printer = Printer {
    columns: &[NAME, text("Data", Field("io.k8s.api.core.v1.ConfigMap", "data")), AGE],
    cells: |object, now| {
        vec![name(object), (count(object, "data") + count(object, "binaryData")).into(), age(object, now)]
    },
};

pub(crate) const SECRET: Printer = Printer {
    columns: &[
        NAME,
        text("Type", Field("io.k8s.api.core.v1.Secret", "type")),
        text("Data", Field("io.k8s.api.core.v1.Secret", "data")),
        AGE,
    ],
    cells: |object, now| {
        vec![name(object), json::text(object, "type").into(), count(object, "data").into(), age(object, now)]
    },
};

pub(crate) const SERVICE_ACCOUNT: Printer = Printer {
    columns: &[NAME, text("Secrets", Field("io.k8s.api.core.v1.ServiceAccount", "secrets")), AGE],
    cells: |object, now| vec![name(object), json::list(object, "secrets").len().into(), age(object, now)],
};

pub(crate) const NAMESPACE: Printer = Printer {
    columns: &[NAME, text("Status", Said("The status of the namespace")), AGE],
    cells: |object, now| vec![name(object), json::text(&object["status"], "phase").into(), age(object, now)],
};

pub(crate) const LEASE: Printer = Printer {
    columns: &[NAME, text("Holder", Field("io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity")), AGE],
    cells: |object, now| {
        vec![name(object), json::text(&object["spec"], "holderIdentity").into(), age(object, now)]
    },
};

pub(crate) const BUDGET: Printer = Printer {
    columns: &[
        NAME,
        text("Min Available", Said("The minimum number of pods that must be available.")),
        text("Max Unavailable", Said("The maximum number of pods that may be unavailable.")),
        number("Allowed Disruptions", Said("Calculated number of pods that may be disrupted at this time.")),
        AGE,
    ],
    cells: |object, now| {
        let bound = |field: &str| match &object["spec"][field] {
            Value::Null => "N/A".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        vec![
            name(object),
            bound("minAvailable").into(),
            bound("maxUnavailable").into(),
            object["status"]["disruptionsAllowed"].as_i64().unwrap_or_default().into(),
            age(object, now),
        ]
    },
};

pub(crate) const ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        text("Role", Field("io.k8s.api.rbac.v1.RoleBinding", "roleRef")),
        AGE,
        wide(text("Users", Said("Users in the roleBinding"))),
        wide(text("Groups", Said("Groups in the roleBinding"))),
        wide(text("ServiceAccounts", Said("ServiceAccounts in the roleBinding"))),
    ],
    cells: |object, now| {
        let role = &object["roleRef"];
        let subjects = |kind: &str| {
            let all =
                json::list(object, "subjects").iter().filter(|subject| json::text(subject, "kind") == kind);
            let named = all.map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", json::text(subject, "namespace"), json::text(subject, "name"))
                }
                _ => json::text(subject, "name").to_owned(),
            });
            Value::from(named.collect::<Vec<_>>().join(", "))
        };
        vec![
            name(object),
            format!("{}/{}", json::text(role, "kind"), json::text(role, "name")).into(),
            age(object, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
};

pub(crate) const CLUSTER_ROLE_BINDING: Printer = ROLE_BINDING;

pub(crate) const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        text("Type", Field("io.k8s.api.core.v1.ServiceSpec", "type")),
        text("Cluster-IP", Field("io.k8s.api.core.v1.ServiceSpec", "clusterIP")),
        text("External-IP", Field("io.k8s.api.core.v1.ServiceSpec", "externalIPs")),
        text("Port(s)", Field("io.k8s.api.core.v1.ServiceSpec", "ports")),
        AGE,
        wide(text("Selector", Field("io.k8s.api.core.v1.ServiceSpec", "selector"))),
    ],
    cells: |object, now| {
        let spec = &object["spec"];
        let internal = json::list(spec, "clusterIPs").first().and_then(Value::as_str).unwrap_or("<none>");
        vec![
            name(object),
            json::text(spec, "type").into(),
            internal.into(),
            external_address(object).into(),
            or_none(service_ports(spec)).into(),
            age(object, now),
            labels(json::map(spec, "selector")).into(),
        ]
    },
};

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let external = strings(json::list(spec, "externalIPs"));
    match json::text(spec, "type") {
        "ClusterIP" | "NodePort" => or_none(external.join(",")),
        "LoadBalancer" => {
            let mut all: Vec<_> = json::list(&service["status"]["loadBalancer"], "ingress")
                .iter()
                .map(|ingress| match json::text(ingress, "ip") {
                    "" => json::text(ingress, "hostname"),
                    ip => ip,
                })
                .collect();
            all.extend(external);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => json::text(spec, "externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn service_ports(spec: &Value) -> String {
    let ports = json::list(spec, "ports").iter().map(|port| {
        let (number, protocol) = (&port["port"], json::text(port, "protocol"));
        match port["nodePort"].as_i64() {
            Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    ports.collect::<Vec<_>>().join(",")
}

pub(crate) const ENDPOINTS: Printer = Printer {
    columns: &[NAME, text("Endpoints", Field("io.k8s.api.core.v1.Endpoints", "subsets")), AGE],
    cells: |object, now| {
        let mut all = Vec::new();
        for subset in json::list(object, "subsets") {
            let addresses = strings_of(json::list(subset, "addresses"), "ip");
            let ports = json::list(subset, "ports");
            if ports.is_empty() {
                all.extend(addresses.iter().map(|address| (*address).to_owned()));
            }
            for port in ports {
                all.extend(addresses.iter().map(|address| host_and_port(address, &port["port"])));
            }
        }
        let shown = if json::list(object, "subsets").is_empty() {
            "<none>".to_owned()
        } else {
            first_three(&all, "")
        };
        vec![name(object), shown.into(), age(object, now)]
    },
};

pub(crate) const ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        NAME,
        text("AddressType", Field("io.k8s.api.discovery.v1.EndpointSlice", "addressType")),
        text("Ports", Field("io.k8s.api.discovery.v1.EndpointSlice", "ports")),
        text("Endpoints", Field("io.k8s.api.discovery.v1.EndpointSlice", "endpoints")),
        AGE,
    ],
    cells: |object, now| {
        let ports: Vec<_> = json::list(object, "ports")
            .iter()
            .map(|port| match &port["port"] {
                Value::Null => port["name"].as_str().unwrap_or("*").to_owned(),
                number => number.to_string(),
            })
            .collect();
        let addresses: Vec<_> = json::list(object, "endpoints")
            .iter()
            .flat_map(|endpoint| strings(json::list(endpoint, "addresses")))
            .map(str::to_owned)
            .collect();
        vec![
            name(object),
            json::text(object, "addressType").into(),
            first_three(&ports, "<unset>").into(),
            first_three(&addresses, "<unset>").into(),
            age(object, now),
        ]
    },
};

fn host_and_port(host: &str, port: &Value) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// No more than three of a list, and how many more there are.
fn first_three(all: &[String], none: &str) -> String {
    match all.len() {
        0 => none.to_owned(),
        1..=3 => all.join(","),
        count => format!("{} + {} more...", all[..3].join(","), count - 3),
    }
}

pub(crate) const CLAIM: Printer = Printer {
    columns: &[
        NAME,
        text("Status", Field("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "phase")),
        text("Volume", Field("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeName")),
        text("Capacity", Field("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "capacity")),
        text("Access Modes", Field("io.k8s.api.core.v1.PersistentVolumeClaimStatus", "accessModes")),
        text("StorageClass", Said("StorageClass of the pvc")),
        text("VolumeAttributesClass", Said("VolumeAttributesClass of the pvc")),
        AGE,
        wide(text("VolumeMode", Field("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeMode"))),
    ],
    cells: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let bound = !json::text(spec, "volumeName").is_empty();
        vec![
            name(object),
            phase(object),
            json::text(spec, "volumeName").into(),
            if bound { json::text(&status["capacity"], "storage").into() } else { "".into() },
            if bound { access_modes(json::list(status, "accessModes")).into() } else { "".into() },
            json::text(spec, "storageClassName").into(),
            or(json::text(spec, "volumeAttributesClassName"), "<unset>").into(),
            age(object, now),
            or(json::text(spec, "volumeMode"), "<unset>").into(),
        ]
    },
};

pub(crate) const VOLUME: Printer = Printer {
    columns: &[
        NAME,
        text("Capacity", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "capacity")),
        text("Access Modes", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "accessModes")),
        text(
            "Reclaim Policy",
            Field("io.k8s.api.core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy"),
        ),
        text("Status", Field("io.k8s.api.core.v1.PersistentVolumeStatus", "phase")),
        text("Claim", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef")),
        text("StorageClass", Said("StorageClass of the pv")),
        text("VolumeAttributesClass", Said("VolumeAttributesClass of the pv")),
        text("Reason", Field("io.k8s.api.core.v1.PersistentVolumeStatus", "reason")),
        AGE,
        wide(text("VolumeMode", Field("io.k8s.api.core.v1.PersistentVolumeSpec", "volumeMode"))),
    ],
    cells: |object, now| {
        let spec = &object["spec"];
        let claim = match json::map(spec, "claimRef") {
            Some(_) => {
                let claim = &spec["claimRef"];
                format!("{}/{}", json::text(claim, "namespace"), json::text(claim, "name"))
            }
            None => String::new(),
        };
        vec![
            name(object),
            or(json::text(&spec["capacity"], "storage"), "0").into(),
            access_modes(json::list(spec, "accessModes")).into(),
            json::text(spec, "persistentVolumeReclaimPolicy").into(),
            phase(object),
            claim.into(),
            json::text(spec, "storageClassName").into(),
            or(json::text(spec, "volumeAttributesClassName"), "<unset>").into(),
            json::text(&object["status"], "reason").into(),
            age(object, now),
            or(json::text(spec, "volumeMode"), "<unset>").into(),
        ]
    },
};

pub(crate) const STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("Provisioner", Field("io.k8s.api.storage.v1.StorageClass", "provisioner")),
        text("ReclaimPolicy", Field("io.k8s.api.storage.v1.StorageClass", "reclaimPolicy")),
        text("VolumeBindingMode", Field("io.k8s.api.storage.v1.StorageClass", "volumeBindingMode")),
        text("AllowVolumeExpansion", Field("io.k8s.api.storage.v1.StorageClass", "allowVolumeExpansion")),
        AGE,
    ],
    cells: |object, now| {
        let default =
            json::text(&object["metadata"]["annotations"], "storageclass.kubernetes.io/is-default-class")
                == "true";
        let mark = if default { " (default)" } else { "" };
        vec![
            format!("{}{mark}", json::text(&object["metadata"], "name")).into(),
            json::text(object, "provisioner").into(),
            or(json::text(object, "reclaimPolicy"), "Delete").into(),
            or(json::text(object, "volumeBindingMode"), "Immediate").into(),
            object["allowVolumeExpansion"].as_bool().unwrap_or_default().into(),
            age(object, now),
        ]
    },
};

fn phase(object: &Value) -> Value {
    if object["metadata"].get("deletionTimestamp").is_some() {
        return "Terminating".into();
    }
    json::text(&object["status"], "phase").into()
}

fn access_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown =
        short.iter().filter(|(mode, _)| modes.iter().any(|given| given == mode)).map(|(_, short)| *short);
    shown.collect::<Vec<_>>().join(",")
}

fn count(object: &Value, field: &str) -> usize {
    json::map(object, field).map_or(0, serde_json::Map::len)
}

fn strings(values: &[Value]) -> Vec<&str> {
    values.iter().filter_map(Value::as_str).collect()
}

fn strings_of<'a>(values: &'a [Value], field: &str) -> Vec<&'a str> {
    values.iter().map(|value| json::text(value, field)).collect()
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// `<none>` in place of nothing.
pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(labels: Option<&serde_json::Map<String, Value>>) -> String {
    let labels = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    or_none(labels.collect::<Vec<_>>().join(","))
}
