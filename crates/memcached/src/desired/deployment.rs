//! The Deployment whose pods are the nodes.

use ballast_operator::View;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            Capabilities, Container, ContainerPort, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
            SeccompProfile, SecurityContext, TCPSocketAction, TopologySpreadConstraint,
        },
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::{PORT, PORT_NAME, all_labels, label_selector, metadata};
use crate::{Cache, Memcached};

/// The name of the container that runs memcached.
pub(crate) const CONTAINER: &str = "memcached";

/// The user of the official image. memcached refuses to run as root.
const USER: i64 = 11211;

/// 64 MB of cache, the modern defaults, and a line per notable event. `-m=64` would be read as `-m 0`.
const COMMAND: [&str; 6] = ["memcached", "-m", "64", "-o", "modern", "-v"];

/// How long a new node has to be up before the next one's turn: time enough to ask it whether it serves, and to
/// stop the upgrade where it does not.
const SETTLING: i32 = 5;

/// `paused`: an upgrade is under way and must not go on. Where that is not so nothing is said about it, and a pause
/// that a person asked for stays.
pub(crate) fn deployment(view: &View<Memcached>, cache: &Cache, paused: bool) -> Deployment {
    Deployment {
        metadata: metadata(view, cache),
        spec: Some(DeploymentSpec {
            replicas: Some(cache.size),
            selector: label_selector(cache),
            strategy: Some(one_more_before_one_less()),
            min_ready_seconds: Some(SETTLING),
            paused: paused.then_some(true),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(all_labels(cache)), ..ObjectMeta::default() }),
                spec: Some(pod(cache)),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// A node goes only when its successor is up: there are never fewer than `size`, and a version that does not start
/// takes no node with it.
fn one_more_before_one_less() -> DeploymentStrategy {
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(1)),
            max_unavailable: Some(IntOrString::Int(0)),
        }),
    }
}

fn pod(cache: &Cache) -> PodSpec {
    PodSpec {
        // A cache has nothing to say to the API server.
        automount_service_account_token: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        topology_spread_constraints: Some(vec![apart_where_possible(cache)]),
        containers: vec![container(cache)],
        ..PodSpec::default()
    }
}

fn container(cache: &Cache) -> Container {
    Container {
        name: CONTAINER.to_owned(),
        image: Some(cache.image.clone()),
        command: Some(COMMAND.iter().map(|&word| word.to_owned()).collect()),
        ports: Some(vec![ContainerPort {
            name: Some(PORT_NAME.to_owned()),
            container_port: PORT,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        resources: Some(cache.resources.clone()),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..knock() }),
        liveness_probe: Some(Probe { period_seconds: Some(10), failure_threshold: Some(3), ..knock() }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// memcached listens once it can serve, so an open port is the evidence.
fn knock() -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::String(PORT_NAME.to_owned()), host: None }),
        timeout_seconds: Some(2),
        ..Probe::default()
    }
}

/// Nodes on different machines where there are machines enough; never a reason not to run.
fn apart_where_possible(cache: &Cache) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(label_selector(cache)),
        ..TopologySpreadConstraint::default()
    }
}
