//! Who a container runs as.

use std::path::Path;

use drydock_images::users;
use drydock_sandbox::User;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::ConfigError;
use crate::pods::observed::full_name;

/// The policy by which the image has no say in which further groups a container has.
const STRICT: &str = "Strict";

/// Why there is no user to run as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UserError {
    /// The pod forbids it.
    #[error(transparent)]
    Forbidden(#[from] ConfigError),
    /// The image has no such user.
    #[error("{0}")]
    Unknown(String),
}

/// The user of a container: what its security context says, else the pod's, else the image's.
pub(crate) fn of(pod: &Pod, container: &Container, image_user: &str, tree: &Path) -> Result<User, UserError> {
    let own = container.security_context.as_ref();
    let shared = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let run_as = own.and_then(|own| own.run_as_user).or(shared.and_then(|shared| shared.run_as_user));
    let group = own.and_then(|own| own.run_as_group).or(shared.and_then(|shared| shared.run_as_group));
    let non_root =
        own.and_then(|own| own.run_as_non_root).or(shared.and_then(|shared| shared.run_as_non_root));
    if non_root == Some(true) {
        verify(pod, container, run_as, image_user)?;
    }
    let text = match run_as {
        Some(uid) => uid.to_string(),
        None => image_user.to_owned(),
    };
    let found = users::lookup(tree, &text).map_err(|error| UserError::Unknown(error.to_string()))?;
    let gid = group.and_then(|group| u32::try_from(group).ok()).unwrap_or(found.gid);
    // The first of the groups is among them, so that what loses it keeps it.
    let mut groups = vec![gid];
    let policy = shared.and_then(|shared| shared.supplemental_groups_policy.as_deref());
    if policy != Some(STRICT) {
        groups.extend(found.groups.into_iter().filter(|group| *group != gid));
    }
    let mut add = |group: i64| {
        if let Ok(group) = u32::try_from(group)
            && !groups.contains(&group)
        {
            groups.push(group);
        }
    };
    for group in shared.and_then(|shared| shared.supplemental_groups.as_deref()).unwrap_or_default() {
        add(*group);
    }
    if let Some(group) = shared.and_then(|shared| shared.fs_group) {
        add(group);
    }
    Ok(User { uid: found.uid, gid, groups })
}

fn verify(
    pod: &Pod,
    container: &Container,
    run_as: Option<i64>,
    image_user: &str,
) -> Result<(), ConfigError> {
    let place = format!("(pod: {:?}, container: {})", full_name(pod), container.name);
    let name = image_user.split(':').next().unwrap_or_default();
    match run_as {
        Some(0) => Err(ConfigError(format!("container's runAsUser breaks non-root policy {place}"))),
        Some(_) => Ok(()),
        None => match name.parse::<u32>() {
            Ok(0) => {
                Err(ConfigError(format!("container has runAsNonRoot and image will run as root {place}")))
            }
            Ok(_) => Ok(()),
            Err(_) if name.is_empty() => {
                Err(ConfigError(format!("container has runAsNonRoot and image will run as root {place}")))
            }
            Err(_) => Err(ConfigError(format!(
                "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {place}"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(pod_context: Value, own: Value, image_user: &str, expected: Result<(u32, u32, &[u32]), &str>) {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("etc")).unwrap();
        std::fs::write(tree.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nmem:x:11:12::/:/bin/sh\n")
            .unwrap();
        std::fs::write(tree.path().join("etc/group"), "root:x:0:\nmem:x:12:\nmore:x:13:mem\n").unwrap();
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "securityContext": pod_context},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let container: Container =
            serde_json::from_value(json!({"name": "c", "securityContext": own})).unwrap();
        let found = of(&pod, &container, image_user, tree.path()).map_err(|error| error.to_string());
        let expected = expected
            .map(|(uid, gid, groups)| User { uid, gid, groups: groups.to_vec() })
            .map_err(str::to_owned);
        assert_eq!(found, expected);
    }

    #[test]
    fn the_container_says_who_then_the_pod_then_the_image() {
        check(json!({}), json!({}), "", Ok((0, 0, &[0])));
        check(json!({}), json!({}), "mem", Ok((11, 12, &[12, 13])));
        check(json!({"runAsUser": 7}), json!({}), "mem", Ok((7, 0, &[0])));
        check(json!({"runAsUser": 7}), json!({"runAsUser": 8, "runAsGroup": 9}), "mem", Ok((8, 9, &[9])));
        check(
            json!({"fsGroup": 5, "supplementalGroups": [6, 5]}),
            json!({}),
            "mem",
            Ok((11, 12, &[12, 13, 6, 5])),
        );
        let policy = |policy: &str| json!({"supplementalGroups": [6], "supplementalGroupsPolicy": policy});
        check(policy("Merge"), json!({}), "mem", Ok((11, 12, &[12, 13, 6])));
        check(policy("Strict"), json!({}), "mem", Ok((11, 12, &[12, 6])));
        check(
            json!({}),
            json!({}),
            "nope",
            Err("unable to find user nope: no matching entries in passwd file"),
        );
    }

    #[test]
    fn root_is_refused_where_it_must_not_be() {
        let non_root = || json!({"runAsNonRoot": true});
        let place = "(pod: \"p_n(u)\", container: c)";
        check(non_root(), json!({}), "11", Ok((11, 12, &[12, 13])));
        check(
            non_root(),
            json!({}),
            "",
            Err(&format!("container has runAsNonRoot and image will run as root {place}")),
        );
        check(
            non_root(),
            json!({"runAsUser": 0}),
            "11",
            Err(&format!("container's runAsUser breaks non-root policy {place}")),
        );
        check(
            non_root(),
            json!({}),
            "mem",
            Err(&format!(
                "container has runAsNonRoot and image has non-numeric user (mem), cannot verify user is non-root {place}"
            )),
        );
        check(non_root(), json!({"runAsNonRoot": false}), "", Ok((0, 0, &[0])));
    }
}
