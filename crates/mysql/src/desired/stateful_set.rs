//! The StatefulSet whose one pod is the server.

use ballast_operator::View;
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy},
        core::v1::{Container, ContainerPort, HTTPGetAction, Probe},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use super::{
    Role, agent, data_claim_name, owned,
    pod::{CONTAINER, INSTALLER, Mount, PORT, PORT_NAME, Shape, template},
    selector, server_name,
};
use crate::{RESTART, flavour::Flavour, resource::MySQL, validate::Instance};

/// The name of the agent's port.
const AGENT_PORT: &str = "agent";

/// How long a server may take to write down what is only in memory.
const GRACE: i64 = 300;

/// The server with this image of this flavour. `upgrade`: it may open data of an older series.
pub(crate) fn stateful_set(
    view: &View<MySQL>,
    instance: &Instance,
    agent_image: &str,
    (flavour, image): (Flavour, &str),
    upgrade: bool,
) -> StatefulSet {
    let claim = data_claim_name(&instance.name);
    let restart = restart(view);
    let shape = Shape {
        instance: &instance.name,
        role: Role::Server,
        image,
        agent_image,
        command: agent::run(instance, flavour, upgrade),
        secrets: &[agent::PASSWORD, agent::ROOT_PASSWORD],
        mounts: vec![Mount::Claim { path: agent::DATA, claim, read_only: false }],
        placement: &instance.placement,
        resources: instance.resources.clone(),
    };
    StatefulSet {
        metadata: owned(view, server_name(&instance.name), &instance.name, None),
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            service_name: Some(server_name(&instance.name)),
            selector: LabelSelector { match_labels: Some(selector(&instance.name)), match_expressions: None },
            // Otherwise a pod that does not become ready is waited for, for ever, though its template was put right.
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: None,
            }),
            template: {
                let mut template = template(shape, |container, pod| {
                    serve(container);
                    pod.termination_grace_period_seconds = Some(GRACE);
                });
                let annotations =
                    template.metadata.as_mut().and_then(|metadata| metadata.annotations.as_mut());
                annotations.into_iter().for_each(|all| all.extend(restart.clone()));
                template
            },
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}

fn serve(container: &mut Container) {
    let port = |name: &str, port: i32| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    container.ports = Some(vec![port(PORT_NAME, PORT), port(AGENT_PORT, agent::PORT.into())]);
    // Ready when a query succeeded; alive as long as the process is: recovery after a crash may take its time.
    container.readiness_probe = Some(ask("/readyz", 1, 3));
    container.liveness_probe = Some(ask("/healthz", 10, 6));
}

fn ask(path: &str, every: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(AGENT_PORT.to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(every),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// What the server was last restarted for, by the annotation. That it is taken away is no reason to restart.
fn restart(view: &View<MySQL>) -> Option<(String, String)> {
    let asked = view.resource.metadata.annotations.as_ref().and_then(|all| all.get(RESTART).cloned());
    let live = || {
        let live = view.children.get::<StatefulSet>(&server_name(view.name()))?.ok()?;
        live.spec?.template.metadata?.annotations?.remove(RESTART)
    };
    Some((RESTART.to_owned(), asked.or_else(live)?))
}

/// The image that a StatefulSet's pod gets the agent from.
pub(crate) fn agent_image_of(live: &StatefulSet) -> Option<&str> {
    let pod = live.spec.as_ref()?.template.spec.as_ref()?;
    pod.init_containers.iter().flatten().find(|container| container.name == INSTALLER)?.image.as_deref()
}

fn container(live: &StatefulSet) -> Option<&Container> {
    let pod = live.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.iter().find(|container| container.name == CONTAINER)
}

/// The image that a StatefulSet's server is to run.
pub(crate) fn image_of(live: &StatefulSet) -> Option<&str> {
    container(live)?.image.as_deref()
}

/// Which of the two servers a StatefulSet's pod is to run.
pub(crate) fn flavour_of(live: &StatefulSet) -> Option<Flavour> {
    let words = container(live)?.command.as_ref()?;
    [Flavour::MySQL, Flavour::MariaDB]
        .into_iter()
        .find(|known| words.iter().any(|word| word == known.traits().word))
}

/// Whether a StatefulSet's server may open data of an older series.
pub(crate) fn is_upgrade(live: &StatefulSet) -> bool {
    let words = container(live).and_then(|container| container.command.as_ref());
    words.is_some_and(|words| words.iter().any(|word| word == agent::UPGRADE))
}
