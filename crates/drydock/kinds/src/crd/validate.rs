//! What is wrong with a definition, in Kubernetes' words.
//!
//! Kubernetes keeps what all versions have in common at the top of its internal form, and names the
//! fields there in its messages: `spec.validation`, not `spec.versions[0].schema`. So do we.

use drydock_schema::{FieldError, FieldErrorKind, Schema};
use serde_json::{Value, json};

use crate::{
    json, names,
    path::Path,
    rules::{in_order, not_supported, showing},
};

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const SELECTABLE_FIELDS: usize = 8;

/// What is wrong with a new definition.
pub fn validate(crd: &Value, errors: &mut Vec<FieldError>) {
    let spec = &crd["spec"];
    let name = json::text(&crd["metadata"], "name");
    let required = format!("{}.{}", json::text(&spec["names"], "plural"), json::text(spec, "group"));
    if name != required {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    validate_spec(spec, errors);
    validate_stored_versions(crd, errors);
    validate_preservation(spec, errors);
}

/// What is wrong with a change of a definition.
pub fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, old_spec) = (&new["spec"], &old["spec"]);
    validate_spec(spec, errors);
    let mut immutable = vec![("spec.group", "/group"), ("spec.names.plural", "/names/plural")];
    if super::is_established(old) {
        immutable.splice(0..0, [("spec.scope", "/scope"), ("spec.names.kind", "/names/kind")]);
    }
    for (path, pointer) in immutable {
        if spec.pointer(pointer) != old_spec.pointer(pointer) {
            let value = spec.pointer(pointer).cloned().unwrap_or_else(|| json!(""));
            errors.push(FieldError::invalid(path, value, "field is immutable"));
        }
    }
    validate_stored_versions(new, errors);
    if old_spec["preserveUnknownFields"] != json!(true) {
        validate_preservation(spec, errors);
    }
}

fn validate_preservation(spec: &Value, errors: &mut Vec<FieldError>) {
    if spec["preserveUnknownFields"] == json!(true) {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
}

fn validate_spec(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = json::text(spec, "group");
    let wrong = names::dns_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, wrong.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    one_of("spec.scope", json::text(spec, "scope"), &["Cluster", "Namespaced"], errors);
    let versions = json::list(spec, "versions");
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(path, ""));
        }
    }
    validate_versions(versions, errors);
    validate_names(spec, errors);
    validate_conversion(&spec["conversion"], errors);
}

fn validate_versions(versions: &[Value], errors: &mut Vec<FieldError>) {
    let common = Common::of(versions);
    for (index, version) in versions.iter().enumerate() {
        let name = json::text(version, "name");
        let wrong = names::dns_1035_label(name);
        if !wrong.is_empty() {
            let path = format!("spec.versions[{index}].name");
            errors.push(FieldError::invalid(path, name, wrong.join(",")));
        }
        validate_deprecation(version, index, errors);
        validate_parts(version, index, &common, errors);
    }
    if let Some(first) = versions.first() {
        validate_common(first, &common, errors);
    }
    let mut seen: Vec<_> = versions.iter().map(|version| json::text(version, "name")).collect();
    seen.sort_unstable();
    seen.dedup();
    let mut refuse = |detail: &str| {
        let error = FieldError::invalid("spec.versions", versions.to_vec(), detail);
        errors.push(showing(error, shown(versions, &common)));
    };
    if seen.len() != versions.len() {
        refuse("must contain unique version names");
    }
    if versions.iter().filter(|version| version["storage"].as_bool() == Some(true)).count() != 1 {
        refuse("must have exactly one version marked as storage version");
    }
}

/// Which parts all versions share, and which therefore are shown at the top.
struct Common {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Common {
    fn of(versions: &[Value]) -> Self {
        let same = |field: &str| versions.iter().all(|version| version.get(field) == versions[0].get(field));
        let all = |field: &str| !versions.is_empty() && same(field);
        Self {
            schema: all("schema"),
            subresources: all("subresources"),
            columns: all("additionalPrinterColumns"),
            selectable: all("selectableFields"),
        }
    }
}

fn validate_parts(version: &Value, index: usize, common: &Common, errors: &mut Vec<FieldError>) {
    let versions = Path::new("spec.versions");
    let at = versions.index(index);
    if !common.schema {
        validate_schema(version, &at.field("schema"), errors);
    }
    if !common.subresources {
        validate_subresources(&version["subresources"], &at.field("subresources"), errors);
    }
    if !common.columns {
        validate_columns(version, &at.field("additionalPrinterColumns"), errors);
    }
    if !common.selectable {
        validate_selectable(version, &at.field("selectableFields"), errors);
    }
}

fn validate_common(version: &Value, common: &Common, errors: &mut Vec<FieldError>) {
    if common.schema {
        validate_schema(version, &Path::new("spec.validation"), errors);
    }
    if common.subresources {
        validate_subresources(&version["subresources"], &Path::new("spec.subresources"), errors);
    }
    if common.columns {
        validate_columns(version, &Path::new("spec.additionalPrinterColumns"), errors);
    }
    if common.selectable {
        validate_selectable(version, &Path::new("spec.selectableFields"), errors);
    }
}

/// The versions in the form in which Kubernetes shows them: its internal one.
fn shown(versions: &[Value], common: &Common) -> String {
    let nothing = Value::Null;
    let versions = versions.iter().map(|version| {
        let part = |field: &str, hoisted: bool| if hoisted { &nothing } else { &version[field] };
        let deprecated = version["deprecated"].as_bool().unwrap_or_default().into();
        in_order(&[
            ("Name", &version["name"]),
            ("Served", &version["served"]),
            ("Storage", &version["storage"]),
            ("Deprecated", &deprecated),
            ("DeprecationWarning", &version["deprecationWarning"]),
            ("Schema", part("schema", common.schema)),
            ("Subresources", part("subresources", common.subresources)),
            ("AdditionalPrinterColumns", part("additionalPrinterColumns", common.columns)),
            ("SelectableFields", part("selectableFields", common.selectable)),
        ])
    });
    format!("[{}]", versions.collect::<Vec<_>>().join(","))
}

fn validate_deprecation(version: &Value, index: usize, errors: &mut Vec<FieldError>) {
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    let path = format!("spec.versions[{index}].deprecationWarning");
    let mut wrong = |detail: &str| errors.push(FieldError::invalid(path.clone(), warning, detail));
    if version["deprecated"].as_bool() != Some(true) {
        wrong("can only be set for deprecated versions");
        return;
    }
    if warning.len() > 256 {
        wrong("must be <= 256 characters long");
    }
    if warning.is_empty() {
        wrong("must not be an empty string");
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        wrong(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

fn validate_schema(version: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let schema = &version["schema"]["openAPIV3Schema"];
    if !schema.is_object() {
        return;
    }
    let root = path.field("openAPIV3Schema");
    if version["subresources"]["status"].is_object() {
        let kind = json::text(schema, "type");
        if kind != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.push(FieldError::invalid(format!("{root}.type"), kind, detail));
        }
    }
    if let Err(wrong) = Schema::from_openapi_at(&root.to_string(), schema) {
        errors.extend(wrong);
    }
}

fn validate_subresources(subresources: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(scale) = subresources.get("scale").filter(|scale| scale.is_object()) else { return };
    for (field, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let value = json::text(scale, field);
        let at = format!("{path}.scale.{field}");
        if value.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(at, value, "must be a simple json path starting with ."));
        } else if !value.starts_with(prefix) {
            let detail = format!("should be a json path under {}", prefix.trim_end_matches('.'));
            errors.push(FieldError::invalid(at, value, detail));
        }
    }
    let selector = json::text(scale, "labelSelectorPath");
    let at = format!("{path}.scale.labelSelectorPath");
    if selector.is_empty() {
        return;
    }
    if !selector.starts_with('.') {
        errors.push(FieldError::invalid(at, selector, "must be a simple json path starting with ."));
    } else if !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        errors.push(FieldError::invalid(at, selector, "should be a json path under either .spec or .status"));
    }
}

fn validate_columns(version: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, column) in json::list(version, "additionalPrinterColumns").iter().enumerate() {
        let at = path.index(index);
        if json::text(column, "name").is_empty() {
            errors.push(FieldError::required(at.field("name"), ""));
        }
        let kind = json::text(column, "type");
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        if kind.is_empty() {
            errors.push(FieldError::required(at.field("type"), detail));
        } else if !COLUMN_TYPES.contains(&kind) {
            errors.push(FieldError::invalid(at.field("type"), kind, detail));
        }
        let format = json::text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(at.field("format"), format, detail));
        }
        let json_path = json::text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(at.field("JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(at.field("JSONPath"), json_path, detail));
        }
    }
}

fn validate_selectable(version: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let fields = json::list(version, "selectableFields");
    let mut seen = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let item = path.index(index);
        let at = item.field("jsonPath");
        let json_path = json::text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let schema = json_path
            .trim_start_matches('.')
            .split('.')
            .try_fold(&version["schema"]["openAPIV3Schema"], |schema, field| {
                schema.get("properties").and_then(|properties| properties.get(field))
            });
        if json_path.starts_with(".metadata.") {
            errors.push(FieldError::invalid(at, json_path, "must not point to fields in metadata"));
        }
        let Some(schema) = schema else {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(at, json_path, detail));
            continue;
        };
        if !matches!(json::text(schema, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(at, json_path, detail));
        }
        if seen.contains(&json_path) {
            errors.push(FieldError::new(FieldErrorKind::Duplicate, at, Some(json_path.into()), ""));
        }
        seen.push(json_path);
    }
    seen.sort_unstable();
    seen.dedup();
    if seen.len() > SELECTABLE_FIELDS {
        let detail = format!("must have at most {SELECTABLE_FIELDS} items");
        errors.push(FieldError::new(FieldErrorKind::TooMany, path, Some(seen.len().into()), detail));
    }
}

fn validate_names(spec: &Value, errors: &mut Vec<FieldError>) {
    let given = &spec["names"];
    for field in ["plural", "singular", "kind", "listKind"] {
        if json::text(given, field).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    for field in ["plural", "singular"] {
        let name = json::text(given, field);
        let wrong = names::dns_1035_label(name);
        if !name.is_empty() && !wrong.is_empty() {
            errors.push(FieldError::invalid(format!("spec.names.{field}"), name, wrong.join(",")));
        }
    }
    for field in ["kind", "listKind"] {
        let name = json::text(given, field);
        let wrong = names::dns_1035_label(&name.to_lowercase());
        if !name.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(FieldError::invalid(format!("spec.names.{field}"), name, detail));
        }
    }
    let label_list = |field: &str, errors: &mut Vec<FieldError>| {
        for (index, name) in json::list(given, field).iter().enumerate() {
            let wrong = names::dns_1035_label(name.as_str().unwrap_or_default());
            if !wrong.is_empty() {
                let path = format!("spec.names.{field}[{index}]");
                errors.push(FieldError::invalid(path, name.clone(), wrong.join(",")));
            }
        }
    };
    label_list("shortNames", errors);
    let kind = json::text(given, "kind");
    if !kind.is_empty() && kind == json::text(given, "listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", kind, detail));
    }
    label_list("categories", errors);
}

fn validate_conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    if !conversion.is_object() {
        return;
    }
    let strategy = json::text(conversion, "strategy");
    one_of("spec.conversion.strategy", strategy, &["None", "Webhook"], errors);
    if strategy == "Webhook" {
        let detail = "conversion webhooks are not served here: only None is";
        errors.push(FieldError::forbidden("spec.conversion.strategy", detail));
    } else if conversion.get("webhook").is_some() {
        let detail = "should not be set when strategy is not set to Webhook";
        errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", detail));
    }
}

fn validate_stored_versions(crd: &Value, errors: &mut Vec<FieldError>) {
    let stored = json::list(&crd["status"], "storedVersions");
    let path = "status.storedVersions";
    if stored.is_empty() {
        errors.push(FieldError::invalid(path, Value::Null, "must have at least one stored version"));
        return;
    }
    let versions = json::list(&crd["spec"], "versions");
    for version in versions {
        if version["storage"].as_bool() == Some(true) && !stored.contains(&version["name"]) {
            let detail = format!("must have the storage version {}", json::text(version, "name"));
            errors.push(FieldError::invalid(path, stored.to_vec(), detail));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let text = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {text} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {text} and removes {text} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{path}[{index}]"), text, detail));
        }
    }
}

fn one_of(path: &str, value: &str, accepted: &[&str], errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !accepted.contains(&value) {
        errors.push(not_supported(path, value, accepted));
    }
}
