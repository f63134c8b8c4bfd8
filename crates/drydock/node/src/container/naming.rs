//! What a pod is called inside: its host name, its resolver, its hosts file.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;

/// The cluster's names.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub dns: Option<Ipv4Addr>,
    pub domain: String,
    /// The machine's own `/etc/resolv.conf`.
    pub machine_resolver: String,
}

/// The pod is in the node's own network.
pub(crate) fn is_in_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true))
}

/// The pod's host name, cut to what the kernel takes. In the node's own network it is the node's.
pub(crate) fn hostname(pod: &Pod) -> String {
    if is_in_host_network(pod) {
        return pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    }
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let mut name = own.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    name.truncate(63);
    name.trim_end_matches(['-', '.']).to_owned()
}

/// The pod's name in full where it has a subdomain: `host.subdomain.namespace.svc.domain`.
fn full_hostname(pod: &Pod, cluster: &Cluster) -> Option<String> {
    let subdomain = pod.spec.as_ref()?.subdomain.as_deref().filter(|name| !name.is_empty())?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(format!("{}.{subdomain}.{namespace}.svc.{}", hostname(pod), cluster.domain))
}

/// The text of `/etc/hosts`.
pub(crate) fn hosts(pod: &Pod, cluster: &Cluster, address: Ipv4Addr) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let name = hostname(pod);
    match full_hostname(pod, cluster) {
        Some(full) => text.push_str(&format!("{address}\t{full}\t{name}\n")),
        None => text.push_str(&format!("{address}\t{name}\n")),
    }
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        text.push_str(&format!(
            "{}\t{}\n",
            alias.ip,
            alias.hostnames.as_deref().unwrap_or_default().join("\t")
        ));
    }
    text
}

/// The text of `/etc/resolv.conf`.
pub(crate) fn resolver(pod: &Pod, cluster: &Cluster) -> String {
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let machines = || {
        let resolver = &cluster.machine_resolver;
        (words(resolver, "nameserver"), words(resolver, "search"), words(resolver, "options"))
    };
    let (mut servers, mut searches, mut options) = match (policy, cluster.dns) {
        ("None", _) => (Vec::new(), Vec::new(), Vec::new()),
        // Whoever is in the node's network asks whom the node asks, unless it says that it means it.
        ("ClusterFirst", _) if is_in_host_network(pod) => machines(),
        ("ClusterFirst" | "ClusterFirstWithHostNet", Some(dns)) => {
            let domain = &cluster.domain;
            let searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
            let more = words(&cluster.machine_resolver, "search");
            (vec![dns.to_string()], [searches, more].concat(), vec!["ndots:5".to_owned()])
        }
        _ => machines(),
    };
    if let Some(own) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        servers.extend(own.nameservers.iter().flatten().cloned());
        searches.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            options.retain(|known| known.split(':').next() != Some(name.as_str()));
            options.push(match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name,
            });
        }
    }
    let mut text = String::new();
    if !searches.is_empty() {
        text.push_str(&format!("search {}\n", searches.join(" ")));
    }
    for server in servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !options.is_empty() {
        text.push_str(&format!("options {}\n", options.join(" ")));
    }
    text
}

/// What follows a keyword in a resolver's configuration.
fn words(text: &str, keyword: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(keyword))
        .filter(|rest| rest.starts_with([' ', '\t']))
        .flat_map(|rest| rest.split_ascii_whitespace().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": "web-0", "namespace": "shop"}, "spec": spec}))
            .unwrap()
    }

    fn cluster() -> Cluster {
        Cluster {
            dns: Some(Ipv4Addr::new(10, 96, 0, 10)),
            domain: "cluster.local".to_owned(),
            machine_resolver: "nameserver 192.0.2.1\noptions edns0\n".to_owned(),
        }
    }

    #[test]
    fn names_are_looked_up_as_the_policy_says() {
        let first = "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(resolver(&pod(json!({})), &cluster()), first);
        assert_eq!(
            resolver(&pod(json!({"dnsPolicy": "Default"})), &cluster()),
            "nameserver 192.0.2.1\noptions edns0\n"
        );
        let own = json!({"dnsPolicy": "None", "dnsConfig": {
            "nameservers": ["192.0.2.9"], "searches": ["x"], "options": [{"name": "ndots", "value": "2"}]
        }});
        assert_eq!(resolver(&pod(own), &cluster()), "search x\nnameserver 192.0.2.9\noptions ndots:2\n");
    }

    #[test]
    fn in_the_nodes_network_a_pod_has_the_nodes_names() {
        let in_it = |policy: &str| pod(json!({"hostNetwork": true, "nodeName": "n", "dnsPolicy": policy}));
        assert_eq!(hostname(&in_it("ClusterFirst")), "n");
        assert_eq!(resolver(&in_it("ClusterFirst"), &cluster()), "nameserver 192.0.2.1\noptions edns0\n");
        let meant = resolver(&in_it("ClusterFirstWithHostNet"), &cluster());
        assert!(meant.contains("nameserver 10.96.0.10\n"), "{meant}");
    }

    #[test]
    fn a_pod_of_a_subdomain_knows_its_full_name() {
        let address = Ipv4Addr::new(10, 0, 0, 7);
        let text = hosts(&pod(json!({"subdomain": "web"})), &cluster(), address);
        assert!(text.ends_with("10.0.0.7\tweb-0.web.shop.svc.cluster.local\tweb-0\n"), "{text}");
        let aliases = json!({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]});
        let text = hosts(&pod(aliases), &cluster(), address);
        assert!(
            text.ends_with("10.0.0.7\tweb-0\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"),
            "{text}"
        );
    }
}
