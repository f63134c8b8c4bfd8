//! What is wrong with a container.

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::Value;

use super::{security, volume::no_backsteps};
use crate::{
    json, names,
    path::Path,
    rules::{duplicate, not_supported, resources},
};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
/// Fields of a pod that a container can be told.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of a pod that are known by name, and yet can't be told.
const OTHER_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "spec.host",
];

/// What is wrong with the containers of a pod. `volumes` are the names that can be mounted.
pub(super) fn validate(
    containers: &[Value],
    volumes: &[&str],
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if containers.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut seen = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index);
        common(container, volumes, &at, errors);
        let name = json::text(container, "name");
        if seen.contains(&name) {
            errors.push(duplicate(at.field("name"), name));
        }
        seen.push(name);
        handlers(container, &at, errors);
    }
    host_ports(containers, path, errors);
}

/// A port of the host is for one container.
fn host_ports(containers: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index);
        let ports = at.field("ports");
        for (index, port) in json::list(container, "ports").iter().enumerate() {
            let number = port["hostPort"].as_i64().unwrap_or_default();
            if number == 0 {
                continue;
            }
            let taken = format!("{}/{}/{number}", json::text(port, "protocol"), json::text(port, "hostIP"));
            if seen.contains(&taken) {
                errors.push(duplicate(ports.index(index).field("hostPort"), taken));
            } else {
                seen.push(taken);
            }
        }
    }
}

/// What is wrong with the containers that run first.
pub(super) fn validate_init(spec: &Value, volumes: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("initContainers");
    let mut seen: Vec<_> = json::list(spec, "containers").iter().map(|c| json::text(c, "name")).collect();
    for (index, container) in json::list(spec, "initContainers").iter().enumerate() {
        let at = list.index(index);
        common(container, volumes, &at, errors);
        let name = json::text(container, "name");
        if seen.contains(&name) {
            errors.push(duplicate(at.field("name"), name));
        } else if !name.is_empty() {
            seen.push(name);
        }
        let policy = json::text(container, "restartPolicy");
        if !policy.is_empty() && policy != "Always" {
            errors.push(not_supported(at.field("restartPolicy"), policy, &["Always"]));
        }
        if policy == "Always" {
            handlers(container, &at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.get(field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(at.field(field), detail));
            }
        }
    }
}

fn common(container: &Value, volumes: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let name = json::text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.field("name"), ""));
    } else {
        let wrong = names::dns_label(name);
        errors
            .extend(wrong.into_iter().map(|message| FieldError::invalid(path.field("name"), name, message)));
    }
    if json::text(container, "image").is_empty() {
        errors.push(FieldError::required(path.field("image"), ""));
    }
    let message_policy = json::text(container, "terminationMessagePolicy");
    let policies = ["File", "FallbackToLogsOnError"];
    if !policies.contains(&message_policy) {
        errors.push(not_supported(path.field("terminationMessagePolicy"), message_policy, &policies));
    }
    ports(json::list(container, "ports"), &path.field("ports"), errors);
    environment(json::list(container, "env"), &path.field("env"), errors);
    environment_from(json::list(container, "envFrom"), &path.field("envFrom"), errors);
    mounts(container, volumes, &path.field("volumeMounts"), errors);
    let pull = json::text(container, "imagePullPolicy");
    if pull.is_empty() {
        errors.push(FieldError::required(path.field("imagePullPolicy"), ""));
    } else if !PULL_POLICIES.contains(&pull) {
        errors.push(not_supported(path.field("imagePullPolicy"), pull, PULL_POLICIES));
    }
    let owner = resources::Owner::Container;
    resources::validate(&container["resources"], owner, &path.field("resources"), errors);
    security::validate(&container["securityContext"], &path.field("securityContext"), errors);
}

/// What is wrong with containers that were added to look into a running pod.
pub(super) fn validate_ephemeral(
    spec: &Value,
    volumes: &[&str],
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let list = path.field("ephemeralContainers");
    let others = ["containers", "initContainers"].into_iter().flat_map(|field| json::list(spec, field));
    let others: Vec<_> = others.map(|container| json::text(container, "name")).collect();
    let mut seen = others.clone();
    for (index, container) in json::list(spec, "ephemeralContainers").iter().enumerate() {
        let at = list.index(index);
        common(container, volumes, &at, errors);
        image_without_blanks(container, &at, errors);
        let name = json::text(container, "name");
        if seen.contains(&name) {
            errors.push(duplicate(at.field("name"), name));
        }
        seen.push(name);
        let target = json::text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(&target) {
            errors.push(FieldError::new(
                FieldErrorKind::NotFound,
                at.field("targetContainerName"),
                Some(target.into()),
                "",
            ));
        }
        let detail = "cannot be set for an Ephemeral Container";
        let is_set = |value: &Value| match value {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        for field in NOT_EPHEMERAL.iter().filter(|field| is_set(&container[**field])) {
            errors.push(FieldError::forbidden(at.field(field), detail));
        }
        for (index, mount) in json::list(container, "volumeMounts").iter().enumerate() {
            let at = at.field("volumeMounts");
            for field in
                ["subPath", "subPathExpr"].into_iter().filter(|field| !json::text(mount, field).is_empty())
            {
                errors.push(FieldError::forbidden(at.index(index).field(field), detail));
            }
        }
    }
}

/// What only those have that a pod is made of.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// What is wrong with an image only where it is to run, not in a template.
pub(super) fn image_without_blanks(container: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let image = json::text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(path.field("image"), image, detail));
    }
}

fn ports(ports: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = json::text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if !wrong.is_empty() {
                errors.extend(wrong.into_iter().map(|m| FieldError::invalid(at.field("name"), name, m)));
            } else if seen.contains(&name) {
                errors.push(duplicate(at.field("name"), name));
            } else {
                seen.push(name);
            }
        }
        match port["containerPort"].as_i64().unwrap_or_default() {
            0 => errors.push(FieldError::required(at.field("containerPort"), "")),
            number => port_number(number, &at.field("containerPort"), errors),
        }
        match port["hostPort"].as_i64().unwrap_or_default() {
            0 => {}
            number => port_number(number, &at.field("hostPort"), errors),
        }
        let protocol = json::text(port, "protocol");
        if protocol.is_empty() {
            errors.push(FieldError::required(at.field("protocol"), ""));
        } else if !PROTOCOLS.contains(&protocol) {
            errors.push(not_supported(at.field("protocol"), protocol, PROTOCOLS));
        }
    }
}

fn port_number(number: i64, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    errors.extend(names::port_number(number).into_iter().map(|m| FieldError::invalid(path, number, m)));
}

fn environment(variables: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, variable) in variables.iter().enumerate() {
        let at = path.index(index);
        let name = json::text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.field("name"), ""));
        } else {
            let wrong = names::environment_variable(name);
            errors.extend(wrong.into_iter().map(|m| FieldError::invalid(at.field("name"), name, m)));
        }
        value_from(variable, &at.field("valueFrom"), errors);
    }
}

fn value_from(variable: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(source) = variable.get("valueFrom").filter(|source| source.is_object()) else { return };
    let count = source.as_object().map_or(0, serde_json::Map::len);
    if let Some(field) = source.get("fieldRef") {
        let at = path.field("fieldRef");
        let name = json::text(field, "fieldPath");
        let keyed = name.starts_with("metadata.annotations['") || name.starts_with("metadata.labels['");
        if name.is_empty() {
            errors.push(FieldError::required(at.field("fieldPath"), ""));
        } else if !keyed && !FIELDS.contains(&name) && !OTHER_FIELDS.contains(&name) {
            let detail = format!("error converting fieldPath: field label not supported: {name}");
            errors.push(FieldError::invalid(at.field("fieldPath"), name, detail));
        } else if !keyed && !FIELDS.contains(&name) {
            errors.push(not_supported(at.field("fieldPath"), name, FIELDS));
        }
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = source.get(kind) {
            let at = path.field(kind);
            let key = json::text(reference, "key");
            if json::text(reference, "name").is_empty() {
                errors.push(FieldError::required(at.field("name"), ""));
            }
            if key.is_empty() {
                errors.push(FieldError::required(at.field("key"), ""));
            } else {
                let wrong = names::config_key(key);
                errors.extend(wrong.into_iter().map(|m| FieldError::invalid(at.field("key"), key, m)));
            }
        }
    }
    if let Some(reference) = source.get("resourceFieldRef")
        && json::text(reference, "resource").is_empty()
    {
        errors.push(FieldError::required(path.field("resourceFieldRef").field("resource"), ""));
    }
    let detail = if count == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
    } else if !json::text(variable, "value").is_empty() {
        "may not be specified when `value` is not empty"
    } else if count > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, "", detail));
}

fn environment_from(sources: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, source) in sources.iter().enumerate() {
        let at = path.index(index);
        let mut found = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = source.get(kind) else { continue };
            found += 1;
            if json::text(reference, "name").is_empty() {
                errors.push(FieldError::required(at.field(kind).field("name"), ""));
            }
        }
        match found {
            0 => {
                let detail = "must specify one of: `configMapRef` or `secretRef`";
                errors.push(FieldError::invalid(path, "", detail));
            }
            1 => {}
            _ => {
                let detail = "may not have more than one field specified at a time";
                errors.push(FieldError::invalid(path, "", detail));
            }
        }
    }
}

fn mounts(container: &Value, volumes: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (index, mount) in json::list(container, "volumeMounts").iter().enumerate() {
        let at = path.index(index);
        let (name, place) = (json::text(mount, "name"), json::text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(at.field("name"), ""));
        }
        if !volumes.contains(&name) {
            errors.push(FieldError::new(FieldErrorKind::NotFound, at.field("name"), Some(name.into()), ""));
        }
        if place.is_empty() {
            errors.push(FieldError::required(at.field("mountPath"), ""));
        }
        if seen.contains(&place) {
            errors.push(FieldError::invalid(at.field("mountPath"), place, "must be unique"));
        }
        seen.push(place);
        let (sub, expression) = (json::text(mount, "subPath"), json::text(mount, "subPathExpr"));
        if !sub.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(at.field("subPathExpr"), expression, detail));
        }
        for (field, value) in [("subPath", sub), ("subPathExpr", expression)] {
            if value.starts_with('/') {
                errors.push(FieldError::invalid(path.field(field), value, "must be a relative path"));
            }
            no_backsteps(value, &path.field(field), errors);
        }
        propagation(mount, container, path, errors);
    }
}

/// What is mounted below a mount: on which side it is seen, and whether it can be written. The path is that of all
/// mounts, as with Kubernetes.
fn propagation(mount: &Value, container: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let propagation = mount["mountPropagation"].as_str();
    let privileged = container["securityContext"]["privileged"].as_bool() == Some(true);
    let at = path.field("mountPropagation");
    match propagation {
        None | Some("None" | "HostToContainer") => {}
        Some("Bidirectional") if privileged => {}
        Some("Bidirectional") => {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(at, detail));
        }
        Some(other) => {
            errors.push(not_supported(at, other, &["Bidirectional", "HostToContainer", "None"]));
        }
    }
    let at = path.field("recursiveReadOnly");
    match mount["recursiveReadOnly"].as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount["readOnly"].as_bool() != Some(true) {
                errors.push(FieldError::forbidden(at, "may only be specified when readOnly is true"));
            }
            if propagation.is_some_and(|propagation| propagation != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(at, detail));
            }
        }
        Some(other) => errors.push(not_supported(at, other, &["Disabled", "Enabled", "IfPossible"])),
    }
}

/// Probes and hooks.
fn handlers(container: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["postStart", "preStop"] {
        if let Some(hook) = container["lifecycle"].get(field) {
            handler(hook, &path.field("lifecycle").field(field), errors);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(field) else { continue };
        let at = path.field(field);
        handler(probe, &at, errors);
        for number in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            let value = probe[number].as_i64().unwrap_or_default();
            if value < 0 {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(at.field(number), value, detail));
            }
        }
        let threshold = probe["successThreshold"].as_i64().unwrap_or_default();
        if field != "readinessProbe" && threshold != 1 {
            errors.push(FieldError::invalid(at.field("successThreshold"), threshold, "must be 1"));
        }
        if let Some(period) = probe["terminationGracePeriodSeconds"].as_i64() {
            let at = at.field("terminationGracePeriodSeconds");
            if field == "readinessProbe" {
                errors.push(FieldError::invalid(at, period, "must not be set for readinessProbes"));
            } else if period <= 0 {
                errors.push(FieldError::invalid(at, period, "must be greater than 0"));
            }
        }
    }
}

fn handler(handler: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut found = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = handler.get(kind) else { continue };
        let at = path.field(kind);
        found += 1;
        if found > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 handler type"));
            continue;
        }
        match kind {
            "exec" if json::list(action, "command").is_empty() => {
                errors.push(FieldError::required(at.field("command"), ""));
            }
            "httpGet" | "tcpSocket" => {
                port(&action["port"], &at.field("port"), errors);
                let scheme = json::text(action, "scheme");
                if kind == "httpGet" && !["HTTP", "HTTPS"].contains(&scheme) {
                    errors.push(not_supported(at.field("scheme"), scheme, &["HTTP", "HTTPS"]));
                }
                for header in json::list(action, "httpHeaders") {
                    let name = json::text(header, "name");
                    let wrong = names::http_header(name);
                    errors.extend(
                        wrong.into_iter().map(|m| FieldError::invalid(at.field("httpHeaders"), name, m)),
                    );
                }
            }
            "grpc" => port(&action["port"], &at.field("port"), errors),
            _ => {}
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

/// A port's number or name.
fn port(port: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match port {
        Value::String(name) => {
            let wrong = names::port_name(name);
            errors.extend(wrong.into_iter().map(|m| FieldError::invalid(path, name.as_str(), m)));
        }
        other => port_number(other.as_i64().unwrap_or_default(), path, errors),
    }
}
