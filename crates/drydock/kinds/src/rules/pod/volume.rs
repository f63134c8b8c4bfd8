//! What is wrong with a volume.

use drydock_schema::FieldError;
use serde_json::Value;

use crate::{
    json, names,
    path::Path,
    rules::{duplicate, resources},
};

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
        let required = match kind.as_str() {
            "hostPath" => "path",
            "secret" => "secretName",
            "configMap" => "name",
            "persistentVolumeClaim" => "claimName",
            "emptyDir" => {
                if let Some(size) = source.get("sizeLimit") {
                    resources::amount(size, &at.field("sizeLimit"), errors);
                }
                continue;
            }
            _ => continue,
        };
        if json::text(source, required).is_empty() {
            errors.push(FieldError::required(at.field(required), ""));
        }
        if let Some(mode) = source["defaultMode"].as_i64()
            && !(0..=0o777).contains(&mode)
        {
            let detail = "must be a number between 0 and 0777 (octal), both inclusive";
            errors.push(FieldError::invalid(at.field("defaultMode"), mode, detail));
        }
    }
}
