//! What is wrong with a volume.

use drydock_schema::FieldError;
use serde_json::Value;

use crate::{
    json, names,
    path::Path,
    quantity::Quantity,
    rules::{duplicate, not_supported, storage},
};

/// What a directory of the node's may be said to be.
const HOST_PATHS: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// The order in which sources are looked at: the first counts, every further one is refused.
const ORDER: &[&str] = &[
    "emptyDir",
    "hostPath",
    "secret",
    "nfs",
    "iscsi",
    "persistentVolumeClaim",
    "downwardAPI",
    "configMap",
    "projected",
    "csi",
    "ephemeral",
];

/// What is wrong with the volumes of a pod; answers the names of those that can be mounted.
pub(super) fn validate<'a>(
    volumes: &'a [Value],
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) -> Vec<&'a str> {
    let mut good = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = path.index(index);
        let before = errors.len();
        source(volume, &at, errors);
        let name = json::text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at.field("name"), ""));
        } else {
            let wrong = names::dns_label(name);
            errors.extend(wrong.into_iter().map(|m| FieldError::invalid(at.field("name"), name, m)));
        }
        if good.contains(&name) {
            errors.push(duplicate(at.field("name"), name));
        }
        if errors.len() == before {
            good.push(name);
        }
    }
    good
}

fn source(volume: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut kinds: Vec<_> =
        volume.as_object().into_iter().flatten().filter(|(field, _)| *field != "name").collect();
    let place = |kind: &str| ORDER.iter().position(|known| *known == kind).unwrap_or(ORDER.len());
    kinds.sort_by_key(|(kind, _)| place(kind));
    if kinds.is_empty() {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    for (index, (kind, source)) in kinds.iter().enumerate() {
        let at = path.field(kind);
        if index > 0 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 volume type"));
            continue;
        }
        match kind.as_str() {
            "hostPath" => host_path(source, &at, errors),
            "secret" => of_keys(source, "secretName", &at, errors),
            "configMap" => of_keys(source, "name", &at, errors),
            "persistentVolumeClaim" if json::text(source, "claimName").is_empty() => {
                errors.push(FieldError::required(at.field("claimName"), ""));
            }
            "emptyDir" => {
                let size = source["sizeLimit"].as_str().map(Quantity::parse);
                if size.is_some_and(|size| size.is_ok_and(|size| size.is_negative())) {
                    let detail = "SizeLimit field must be a valid resource quantity";
                    errors.push(FieldError::forbidden(at.field("sizeLimit"), detail));
                }
            }
            "projected" => {
                file_mode(source, "defaultMode", &at, errors);
                let sources = at.field("sources");
                for (index, source) in json::list(source, "sources").iter().enumerate() {
                    projection(source, &sources.index(index), &at, errors);
                }
            }
            "downwardAPI" => {
                file_mode(source, "defaultMode", &at, errors);
                fields(source, &at, errors);
            }
            "ephemeral" => {
                let (at, template) = (at.field("volumeClaimTemplate"), &source["volumeClaimTemplate"]);
                match template.is_object() {
                    true => storage::validate_claim_spec(&template["spec"], &at.field("spec"), errors),
                    false => errors.push(FieldError::required(at, "")),
                }
            }
            _ => {}
        }
    }
}

/// What is wrong with a directory of the node's, also where a volume is one.
pub(crate) fn host_path(source: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let directory = json::text(source, "path");
    if directory.is_empty() {
        errors.push(FieldError::required(path.field("path"), ""));
        return;
    }
    no_backsteps(directory, &path.field("path"), errors);
    if let Some(kind) = source["type"].as_str().filter(|kind| !HOST_PATHS.contains(kind)) {
        errors.push(not_supported(path.field("type"), kind, HOST_PATHS));
    }
}

/// `must not contain '..'`.
pub(super) fn no_backsteps(value: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if value.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, value, "must not contain '..'"));
    }
}

/// A volume of the keys of an object.
fn of_keys(source: &Value, name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if json::text(source, name).is_empty() {
        errors.push(FieldError::required(path.field(name), ""));
    }
    file_mode(source, "defaultMode", path, errors);
    items(source, path, errors);
}

/// One of the sources of a volume that is put together. A token's path is told as the whole volume's, as with
/// Kubernetes.
fn projection(source: &Value, path: &Path<'_>, volume: &Path<'_>, errors: &mut Vec<FieldError>) {
    for kind in ["secret", "configMap"].into_iter().filter(|kind| source[*kind].is_object()) {
        let (at, source) = (path.field(kind), &source[kind]);
        if json::text(source, "name").is_empty() {
            errors.push(FieldError::required(at.field("name"), ""));
        }
        items(source, &at, errors);
    }
    if source["downwardAPI"].is_object() {
        fields(&source["downwardAPI"], &path.field("downwardAPI"), errors);
    }
    if source["serviceAccountToken"].is_object() {
        file_path(&source["serviceAccountToken"], volume, errors);
    }
}

/// Which key becomes which file.
fn items(source: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("items");
    for (index, item) in json::list(source, "items").iter().enumerate() {
        let at = list.index(index);
        if json::text(item, "key").is_empty() {
            errors.push(FieldError::required(at.field("key"), ""));
        }
        file_path(item, &at, errors);
        file_mode(item, "mode", &at, errors);
    }
}

/// Which field of the pod becomes which file. Where in the list is not told, as with Kubernetes.
fn fields(source: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for item in json::list(source, "items") {
        file_path(item, path, errors);
        file_mode(item, "mode", path, errors);
    }
}

/// The file is named, and below its volume.
fn file_path(item: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match json::text(item, "path") {
        "" => errors.push(FieldError::required(path.field("path"), "")),
        value => inside(value, &path.field("path"), errors),
    }
}

/// A file is below its volume, and not what the volume itself is switched by.
fn inside(value: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if value.starts_with('/') {
        errors.push(FieldError::invalid(path, value, "must be a relative path"));
    }
    no_backsteps(value, path, errors);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.push(FieldError::invalid(path, value, "must not start with '..'"));
    }
}

fn file_mode(object: &Value, field: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(mode) = object[field].as_i64().filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(path.field(field), mode, detail));
    }
}
