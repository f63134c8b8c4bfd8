//! A container's environment: literals, config maps, secrets, fields, resources, and where Services are.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};

use super::ConfigError;
use super::expand::expand;
use super::fields::{self, Place};

/// The config maps and secrets of the pod's namespace that were asked for and are there, and the variables that
/// Services make.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pub config_maps: BTreeMap<String, ConfigMap>,
    pub secrets: BTreeMap<String, Secret>,
    pub services: BTreeMap<String, String>,
}

/// The names of what must be fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
}

/// What a container's environment refers to.
pub(crate) fn wanted(container: &Container) -> Wanted {
    let mut wanted = Wanted::default();
    for from in container.env_from.iter().flatten() {
        wanted.config_maps.extend(from.config_map_ref.as_ref().map(|reference| reference.name.clone()));
        wanted.secrets.extend(from.secret_ref.as_ref().map(|reference| reference.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        wanted.config_maps.extend(source.config_map_key_ref.as_ref().map(|reference| reference.name.clone()));
        wanted.secrets.extend(source.secret_key_ref.as_ref().map(|reference| reference.name.clone()));
    }
    wanted
}

/// The variables in the order in which they were first said; a later one of the same name takes the place of an
/// earlier one.
pub(crate) fn of(
    pod: &Pod,
    container: &Container,
    place: &Place,
    sources: &Sources,
) -> Result<Vec<(String, String)>, ConfigError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut variables = Variables::default();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            match sources.config_maps.get(&reference.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        variables.set(format!("{prefix}{key}"), value.clone());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(absent("configmap", &reference.name)),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match sources.secrets.get(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        variables
                            .set(format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(absent("secret", &reference.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value_from, &variable.value) {
            (Some(source), _) => from(pod, container, place, sources, namespace, source)?,
            (None, Some(text)) => {
                let known = |name: &str| variables.get(name).or_else(|| sources.services.get(name).cloned());
                Some(expand(text, &known))
            }
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            variables.set(variable.name.clone(), value);
        }
    }
    for (name, value) in &sources.services {
        if variables.get(name).is_none() {
            variables.set(name.clone(), value.clone());
        }
    }
    Ok(variables.list)
}

#[derive(Default)]
struct Variables {
    list: Vec<(String, String)>,
}

impl Variables {
    fn get(&self, name: &str) -> Option<String> {
        self.list.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn set(&mut self, name: String, value: String) {
        match self.list.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.list.push((name, value)),
        }
    }
}

fn absent(kind: &str, name: &str) -> ConfigError {
    ConfigError(format!("{kind} {name:?} not found"))
}

/// The value that a source gives; none when it may be missing and is.
fn from(
    pod: &Pod,
    container: &Container,
    place: &Place,
    sources: &Sources,
    namespace: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, ConfigError> {
    if let Some(reference) = &source.field_ref {
        return fields::field(pod, place, &reference.field_path).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        let other = selector
            .container_name
            .as_ref()
            .and_then(|name| pod.spec.as_ref()?.containers.iter().find(|container| container.name == *name));
        return fields::resource(other.unwrap_or(container), place, selector).map(Some);
    }
    if let Some(reference) = &source.config_map_key_ref {
        let optional = reference.optional == Some(true);
        let Some(map) = sources.config_maps.get(&reference.name) else {
            return if optional { Ok(None) } else { Err(absent("configmap", &reference.name)) };
        };
        return match map.data.as_ref().and_then(|data| data.get(&reference.key)) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => Err(no_key(&reference.key, "ConfigMap", namespace, &reference.name)),
        };
    }
    if let Some(reference) = &source.secret_key_ref {
        let optional = reference.optional == Some(true);
        let Some(secret) = sources.secrets.get(&reference.name) else {
            return if optional { Ok(None) } else { Err(absent("secret", &reference.name)) };
        };
        return match secret.data.as_ref().and_then(|data| data.get(&reference.key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None if optional => Ok(None),
            None => Err(no_key(&reference.key, "Secret", namespace, &reference.name)),
        };
    }
    Ok(None)
}

fn no_key(key: &str, kind: &str, namespace: &str, name: &str) -> ConfigError {
    ConfigError(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(env: Value, expected: Result<&[(&str, &str)], &str>) {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let mut container = env;
        container["name"] = json!("c");
        let container: Container = serde_json::from_value(container).unwrap();
        let map: ConfigMap = serde_json::from_value(json!({"data": {"a": "1", "b": "2"}})).unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"p": "c2VjcmV0"}})).unwrap();
        let sources = Sources {
            config_maps: [("m".to_owned(), map)].into(),
            secrets: [("s".to_owned(), secret)].into(),
            services: BTreeMap::new(),
        };
        let found = of(&pod, &container, &Place::default(), &sources).map_err(|error| error.0);
        let expected = expected
            .map(|list| list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
            .map_err(str::to_owned);
        assert_eq!(found, expected);
    }

    #[test]
    fn variables_come_from_everywhere_and_see_those_before_them() {
        check(
            json!({
                "envFrom": [{"prefix": "X_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
                "env": [
                    {"name": "L", "value": "$(X_a)-$(later)-$(p)"},
                    {"name": "later", "value": "z"},
                    {"name": "X_b", "value": "over"},
                    {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
                    {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "none", "optional": true}}},
                ],
            }),
            Ok(&[
                ("X_a", "1"),
                ("X_b", "over"),
                ("p", "secret"),
                ("L", "1-$(later)-secret"),
                ("later", "z"),
                ("N", "p"),
                ("P", "secret"),
            ]),
        );
    }

    #[test]
    fn what_is_missing_is_named_as_kubernetes_names_it() {
        let key = |kind: &str, name: &str, key: &str| json!({"env": [{"name": "V", "valueFrom": {kind: {"name": name, "key": key}}}]});
        check(key("configMapKeyRef", "none", "a"), Err("configmap \"none\" not found"));
        check(key("secretKeyRef", "none", "a"), Err("secret \"none\" not found"));
        check(key("configMapKeyRef", "m", "z"), Err("couldn't find key z in ConfigMap n/m"));
        check(key("secretKeyRef", "s", "z"), Err("couldn't find key z in Secret n/s"));
        check(json!({"envFrom": [{"configMapRef": {"name": "none"}}]}), Err("configmap \"none\" not found"));
        check(json!({"envFrom": [{"configMapRef": {"name": "none", "optional": true}}]}), Ok(&[]));
    }
}
