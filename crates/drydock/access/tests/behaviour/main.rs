//! What people, controllers and tokens may do, seen through the public interface.

#[cfg(test)]
mod decisions;
#[cfg(test)]
mod escalation;
#[cfg(test)]
mod impersonation;
#[cfg(test)]
mod reviews;
#[cfg(test)]
mod tokens;

#[cfg(test)]
mod world {
    use std::collections::BTreeMap;

    use drydock_access::{Lookup, PodPlacement, Policy, bootstrap};
    use serde_json::Value;

    /// The default policy and `objects` beside it, as a cluster would compile it.
    pub fn policy(objects: &[Value]) -> Policy {
        let of = |kind: &str, mut defaults: Vec<Value>| {
            defaults.extend(objects.iter().filter(|object| object["kind"] == kind).cloned());
            defaults
        };
        let mut cluster_roles = of("ClusterRole", bootstrap::cluster_roles());
        for changed in drydock_access::aggregate(&cluster_roles) {
            let same = |role: &&mut Value| role["metadata"]["name"] == changed["metadata"]["name"];
            let role = cluster_roles.iter_mut().find(same).unwrap();
            *role = changed;
        }
        Policy::compile(
            &of("Role", bootstrap::roles()),
            &of("RoleBinding", bootstrap::role_bindings()),
            &cluster_roles,
            &of("ClusterRoleBinding", bootstrap::cluster_role_bindings()),
        )
    }

    /// Objects by `kind namespace/name`, and what there is to know about them.
    #[derive(Default, Clone)]
    pub struct Cluster {
        pub uids: BTreeMap<&'static str, &'static str>,
        pub placements: BTreeMap<&'static str, (&'static str, &'static str)>,
        pub secret_tokens: BTreeMap<&'static str, String>,
    }

    impl Cluster {
        fn uid(&self, kind: &str, namespace: &str, name: &str) -> Option<String> {
            self.uids.get(format!("{kind} {namespace}/{name}").as_str()).map(|uid| (*uid).to_owned())
        }
    }

    impl Lookup for Cluster {
        fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
            self.uid("sa", namespace, name)
        }
        fn secret_uid(&self, namespace: &str, name: &str) -> Option<String> {
            self.uid("secret", namespace, name)
        }
        fn pod_uid(&self, namespace: &str, name: &str) -> Option<String> {
            self.uid("pod", namespace, name)
        }
        fn node_uid(&self, name: &str) -> Option<String> {
            self.uid("node", "", name)
        }
        fn pod_placement(&self, namespace: &str, name: &str) -> Option<PodPlacement> {
            let (service_account, node) = self.placements.get(format!("{namespace}/{name}").as_str())?;
            Some(PodPlacement { service_account: (*service_account).to_owned(), node: (*node).to_owned() })
        }
        fn secret_token(&self, namespace: &str, name: &str) -> Option<Vec<u8>> {
            self.secret_tokens
                .get(format!("{namespace}/{name}").as_str())
                .map(|token| token.clone().into_bytes())
        }
    }
}
