//! The files of the volumes that the API fills: config maps, secrets, fields of the pod, tokens, and all of them
//! in one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, Volume,
};

use crate::container::environment::{Sources, Wanted};
use crate::container::fields::{self, Place};

/// What a file has when nothing is said.
const MODE: i32 = 0o644;

/// Files by their path in the volume.
pub(crate) type Payload = BTreeMap<String, File>;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub bytes: Vec<u8>,
    pub mode: u32,
    /// Whose it is, where it is not the node's.
    pub owner: Option<u32>,
}

/// A token that a volume shows, before it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenWish {
    pub volume: String,
    pub path: String,
    pub audience: Option<String>,
    pub seconds: i64,
}

/// The tokens that were asked for, or why there are none.
pub(crate) type Tokens = BTreeMap<TokenWish, Result<String, String>>;

/// What the volumes of a pod need from the API.
pub(crate) fn wanted(volumes: &[Volume]) -> Wanted {
    let mut wanted = Wanted::default();
    for volume in volumes {
        wanted.config_maps.extend(volume.config_map.as_ref().map(|source| source.name.clone()));
        wanted.secrets.extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            wanted.config_maps.extend(source.config_map.as_ref().map(|source| source.name.clone()));
            wanted.secrets.extend(source.secret.as_ref().map(|source| source.name.clone()));
        }
    }
    wanted
}

/// The tokens that the volumes of a pod show.
pub(crate) fn tokens(volumes: &[Volume]) -> Vec<TokenWish> {
    let mut wishes = Vec::new();
    for volume in volumes {
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            if let Some(token) = &source.service_account_token {
                wishes.push(TokenWish {
                    volume: volume.name.clone(),
                    path: token.path.clone(),
                    audience: token.audience.clone().filter(|audience| !audience.is_empty()),
                    seconds: token.expiration_seconds.unwrap_or(3600),
                });
            }
        }
    }
    wishes
}

/// A volume's files; none when it is not one that the API fills.
///
/// # Errors
/// What a kubelet says after `MountVolume.SetUp failed for volume …`.
pub(crate) fn of(
    volume: &Volume,
    pod: &Pod,
    place: &Place,
    sources: &Sources,
    tokens: &Tokens,
) -> Result<Option<Payload>, String> {
    let mut files = Payload::new();
    if let Some(source) = &volume.config_map {
        let mode = source.default_mode.unwrap_or(MODE);
        let map = sources.config_maps.get(&source.name);
        config_map(&mut files, map, &source.name, &source.items, mode, source.optional == Some(true))?;
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.clone().unwrap_or_default();
        let mode = source.default_mode.unwrap_or(MODE);
        secret(
            &mut files,
            sources.secrets.get(&name),
            &name,
            &source.items,
            mode,
            source.optional == Some(true),
        )?;
    } else if let Some(source) = &volume.downward_api {
        downward(&mut files, pod, place, source.items.as_deref(), source.default_mode.unwrap_or(MODE))?;
    } else if let Some(projected) = &volume.projected {
        let mode = projected.default_mode.unwrap_or(MODE);
        for source in projected.sources.iter().flatten() {
            if let Some(source) = &source.config_map {
                let map = sources.config_maps.get(&source.name);
                config_map(
                    &mut files,
                    map,
                    &source.name,
                    &source.items,
                    mode,
                    source.optional == Some(true),
                )?;
            }
            if let Some(source) = &source.secret {
                let found = sources.secrets.get(&source.name);
                secret(&mut files, found, &source.name, &source.items, mode, source.optional == Some(true))?;
            }
            if let Some(source) = &source.downward_api {
                downward(&mut files, pod, place, source.items.as_deref(), mode)?;
            }
            if let Some(source) = &source.service_account_token {
                let found =
                    tokens.iter().find(|(wish, _)| wish.volume == volume.name && wish.path == source.path);
                let (_, token) = found.ok_or("failed to fetch token")?;
                let (user, group) = owners(pod);
                // A token is for whom the pod runs as, and where nobody can tell who that is, for all in it.
                let own = if user.is_some() || group { 0o600 } else { mode };
                put(&mut files, &source.path, token.clone()?.into_bytes(), None, own)?.owner = user;
            }
        }
    } else {
        return Ok(None);
    }
    Ok(Some(files))
}

/// Whether a volume's files are to stay in memory.
pub(crate) fn is_private(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten())
            .any(|source| source.secret.is_some() || source.service_account_token.is_some())
}

/// The one user that all containers of a pod run as, where they say so; and whether the pod has a group for files.
fn owners(pod: &Pod) -> (Option<u32>, bool) {
    let Some(spec) = &pod.spec else { return (None, false) };
    let shared = spec.security_context.as_ref();
    let user = |container: &Container| {
        let own = container.security_context.as_ref().and_then(|own| own.run_as_user);
        own.or(shared.and_then(|shared| shared.run_as_user))
    };
    let mut users = spec.containers.iter().chain(spec.init_containers.iter().flatten()).map(user);
    let first = users.next().flatten().filter(|first| users.all(|other| other == Some(*first)));
    (first.and_then(|user| u32::try_from(user).ok()), shared.is_some_and(|shared| shared.fs_group.is_some()))
}

/// Puts a file where a path leads, of which nothing is said but the names.
fn put<'a>(
    files: &'a mut Payload,
    path: &str,
    bytes: Vec<u8>,
    mode: Option<i32>,
    default: i32,
) -> Result<&'a mut File, String> {
    let names: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    // What begins so at the top is the volume's own.
    let reserved = names.first().is_none_or(|name| name.starts_with(".."));
    if path.starts_with('/') || reserved || names.contains(&"..") {
        return Err(format!("invalid path: {path:?}"));
    }
    let mode = u32::try_from(mode.unwrap_or(default)).unwrap_or(0o644) & 0o777;
    let file = File { bytes, mode, owner: None };
    Ok(files.entry(names.join("/")).insert_entry(file).into_mut())
}

fn config_map(
    files: &mut Payload,
    map: Option<&ConfigMap>,
    name: &str,
    items: &Option<Vec<KeyToPath>>,
    mode: i32,
    optional: bool,
) -> Result<(), String> {
    let Some(map) = map else {
        return if optional { Ok(()) } else { Err(format!("configmap {name:?} not found")) };
    };
    let mut all: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    all.extend(map.data.iter().flatten().map(|(key, text)| (key.as_str(), text.clone().into_bytes())));
    all.extend(map.binary_data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes.0.clone())));
    keys(files, &all, items, mode, optional, "configmap references non-existent config key")
}

fn secret(
    files: &mut Payload,
    secret: Option<&Secret>,
    name: &str,
    items: &Option<Vec<KeyToPath>>,
    mode: i32,
    optional: bool,
) -> Result<(), String> {
    let Some(secret) = secret else {
        return if optional { Ok(()) } else { Err(format!("secret {name:?} not found")) };
    };
    let all = secret.data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes.0.clone())).collect();
    keys(files, &all, items, mode, optional, "references non-existent secret key")
}

fn keys(
    files: &mut Payload,
    all: &BTreeMap<&str, Vec<u8>>,
    items: &Option<Vec<KeyToPath>>,
    mode: i32,
    optional: bool,
    complaint: &str,
) -> Result<(), String> {
    let Some(items) = items.as_ref().filter(|items| !items.is_empty()) else {
        for (key, bytes) in all {
            put(files, key, bytes.clone(), None, mode)?;
        }
        return Ok(());
    };
    for item in items {
        match all.get(item.key.as_str()) {
            Some(bytes) => {
                put(files, &item.path, bytes.clone(), item.mode, mode)?;
            }
            None if optional => {}
            None => return Err(format!("{complaint}: {}", item.key)),
        }
    }
    Ok(())
}

fn downward(
    files: &mut Payload,
    pod: &Pod,
    place: &Place,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: i32,
) -> Result<(), String> {
    for item in items.unwrap_or_default() {
        let text = if let Some(reference) = &item.field_ref {
            fields::field(pod, place, &reference.field_path).map_err(|error| error.0)?
        } else if let Some(selector) = &item.resource_field_ref {
            let wanted = selector.container_name.as_deref().unwrap_or_default();
            let spec = pod.spec.as_ref();
            let mut all = spec
                .into_iter()
                .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
            let container: &Container = all
                .find(|container| container.name == wanted)
                .ok_or_else(|| format!("container {wanted:?} not found"))?;
            fields::resource(container, place, selector).map_err(|error| error.0)?
        } else {
            String::new()
        };
        put(files, &item.path, text.into_bytes(), item.mode, mode)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(volume: Value, expected: Result<&[(&str, &str, u32)], &str>) {
        let mut volume = volume;
        volume["name"] = json!("v");
        let volume: Volume = serde_json::from_value(volume).unwrap();
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}})).unwrap();
        let map: ConfigMap = serde_json::from_value(json!({"data": {"a": "1", "b": "2"}})).unwrap();
        let found: Secret = serde_json::from_value(json!({"data": {"p": "c2VjcmV0"}})).unwrap();
        let sources = Sources {
            config_maps: [("m".to_owned(), map)].into(),
            secrets: [("s".to_owned(), found)].into(),
            services: BTreeMap::new(),
        };
        let wishes = tokens(std::slice::from_ref(&volume));
        let tokens = wishes.into_iter().map(|wish| (wish, Ok("TOKEN".to_owned()))).collect();
        let payload = of(&volume, &pod, &Place::default(), &sources, &tokens).map(Option::unwrap_or_default);
        let expected = expected
            .map(|files| {
                files
                    .iter()
                    .map(|(path, text, mode)| {
                        (
                            (*path).to_owned(),
                            File { bytes: text.as_bytes().to_vec(), mode: *mode, owner: None },
                        )
                    })
                    .collect::<Payload>()
            })
            .map_err(str::to_owned);
        assert_eq!(payload, expected);
    }

    #[test]
    fn config_maps_and_secrets_are_files() {
        check(json!({"configMap": {"name": "m"}}), Ok(&[("a", "1", 0o644), ("b", "2", 0o644)]));
        check(
            json!({"configMap": {"name": "m", "defaultMode": 0o600, "items": [{"key": "a", "path": "x/y", "mode": 0o400}]}}),
            Ok(&[("x/y", "1", 0o400)]),
        );
        check(json!({"secret": {"secretName": "s", "defaultMode": 0o400}}), Ok(&[("p", "secret", 0o400)]));
    }

    #[test]
    fn a_path_is_the_names_in_it() {
        let item = |path: &str| json!({"configMap": {"name": "m", "items": [{"key": "a", "path": path}]}});
        for path in ["x/y", "./x/y", ".//x/./y/"] {
            check(item(path), Ok(&[("x/y", "1", 0o644)]));
        }
        for path in ["", ".", "/x", "./..", "x/../y", "..data", "./..data/y"] {
            check(item(path), Err(&format!("invalid path: {path:?}")));
        }
        let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "./token"}}]}});
        check(token, Ok(&[("token", "TOKEN", 0o644)]));
    }

    #[test]
    fn several_sources_are_one_volume() {
        check(
            json!({"projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"configMap": {"name": "m", "items": [{"key": "a", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]}}),
            Ok(&[("token", "TOKEN", 0o644), ("ca.crt", "1", 0o644), ("namespace", "n", 0o644)]),
        );
    }

    #[test]
    fn a_token_is_for_the_one_user_that_all_containers_run_as() {
        let check = |spec: Value, expected: (Option<u32>, bool)| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            assert_eq!(owners(&pod), expected);
        };
        let own = |user: i64| json!({"name": "c", "securityContext": {"runAsUser": user}});
        check(json!({"containers": [{"name": "c"}]}), (None, false));
        check(json!({"containers": [own(7), own(7)]}), (Some(7), false));
        check(json!({"containers": [own(7), own(8)]}), (None, false));
        check(json!({"containers": [own(7), {"name": "d"}]}), (None, false));
        let context = json!({"runAsUser": 7, "fsGroup": 9});
        check(json!({"securityContext": context, "containers": [own(7), {"name": "d"}]}), (Some(7), true));
    }

    #[test]
    fn what_is_missing_is_an_error_unless_it_is_optional() {
        check(json!({"configMap": {"name": "none"}}), Err("configmap \"none\" not found"));
        check(json!({"configMap": {"name": "none", "optional": true}}), Ok(&[]));
        check(json!({"secret": {"secretName": "none"}}), Err("secret \"none\" not found"));
        let item = json!({"configMap": {"name": "m", "items": [{"key": "z", "path": "z"}]}});
        check(item, Err("configmap references non-existent config key: z"));
        let outside = json!({"configMap": {"name": "m", "items": [{"key": "a", "path": "../z"}]}});
        check(outside, Err("invalid path: \"../z\""));
    }
}
