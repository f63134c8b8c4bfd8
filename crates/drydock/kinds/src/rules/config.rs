//! Config maps and secrets.

use base64::{Engine, engine::general_purpose::STANDARD};
use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::Value;

use super::{PLAIN, Rules, immutable};
use crate::{json, names, path::Path};

/// The most that the values of one object may hold.
const SIZE: usize = 1024 * 1024;

pub(crate) const CONFIG_MAP: Rules = Rules {
    validate: validate_config_map,
    validate_update: |new, old, errors| {
        sealed(new, old, &["data", "binaryData"], errors);
        validate_config_map(new, errors);
    },
    ..PLAIN
};

pub(crate) const SECRET: Rules = Rules {
    default: default_secret,
    validate: validate_secret,
    validate_update: |new, old, errors| {
        immutable(new, old, "/type", "type", errors);
        sealed(new, old, &["data"], errors);
        validate_secret(new, errors);
    },
    ..PLAIN
};

/// An object that was sealed can't be opened again.
fn sealed(new: &Value, old: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if old["immutable"].as_bool() != Some(true) {
        return;
    }
    if new["immutable"].as_bool() != Some(true) {
        errors.push(FieldError::forbidden("immutable", DETAIL));
    }
    for field in fields {
        if new.get(field) != old.get(field) {
            errors.push(FieldError::forbidden(*field, DETAIL));
        }
    }
}

fn validate_config_map(object: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for field in ["data", "binaryData"] {
        let path = Path::new(field);
        for (key, value) in json::map(object, field).into_iter().flatten() {
            for message in names::config_key(key) {
                errors.push(FieldError::invalid(path.key(key), key.as_str(), message));
            }
            if field == "data" && object["binaryData"].get(key).is_some() {
                let detail = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(path.key(key), key.as_str(), detail));
            }
            size += value.as_str().map_or(0, str::len);
        }
    }
    if size > SIZE {
        errors.push(too_long("[]"));
    }
}

fn too_long(path: &str) -> FieldError {
    FieldError::new(FieldErrorKind::TooLong, path, None, format!("may not be more than {SIZE} bytes"))
}

/// What was written in plain is kept with the rest, encoded.
fn default_secret(object: &mut Value) {
    json::default_text(object, "type", "Opaque");
    let Some(Value::Object(plain)) = json::remove(object, "stringData") else { return };
    if plain.is_empty() {
        return;
    }
    if let Some(data) = json::object_at(object, "data") {
        for (key, value) in plain {
            json::set(data, &key, STANDARD.encode(value.as_str().unwrap_or_default()));
        }
    }
}

fn validate_secret(object: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("data");
    let mut size = 0;
    for (key, value) in json::map(object, "data").into_iter().flatten() {
        for message in names::config_key(key) {
            errors.push(FieldError::invalid(path.key(key), key.as_str(), message));
        }
        size += value.as_str().map_or(0, str::len) / 4 * 3;
    }
    if size > SIZE {
        errors.push(too_long("data"));
    }
    let data = &object["data"];
    let mut require = |key: &str| errors.push(FieldError::required(path.key(key), ""));
    match json::text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let account = "kubernetes.io/service-account.name";
            if json::text(&object["metadata"]["annotations"], account).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{account}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" => require_json(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => require_json(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if json::text(data, "ssh-privatekey").is_empty() => {
            require("ssh-privatekey")
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if data.get(key).is_none() {
                    require(key);
                }
            }
        }
        _ => {}
    }
}

fn require_json(data: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let path = Path::new("data");
    let Some(text) = data.get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(path.key(key), ""));
        return;
    };
    let content = STANDARD.decode(text).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&content) {
        let detail = error.to_string();
        errors.push(FieldError::invalid(path.key(key), "<secret contents redacted>", detail));
    }
}
