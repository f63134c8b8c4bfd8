//! The pods that a Gordon consists of, and their names.

use std::collections::BTreeMap;

use ballast_operator::View;
use k8s_openapi::{
    api::core::v1::{Capabilities, Container, Pod, PodSpec, SecurityContext},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_core::ResourceExt as _;

use crate::{Gordon, LABEL, Wanted};

/// The name of the container that runs the image.
pub(crate) const CONTAINER: &str = "gordon";

/// On a pod that succeeds one that ended: how many did before it, one soon after the other.
pub(crate) const ATTEMPT: &str = "operator.prgcont.cz/attempt";

/// How many names there are beyond twice the pods that are wanted, for pods that are on their way out.
const SPARE_NAMES: usize = 8;

/// The names that pods of a Gordon may have, in the order in which they are taken: `gordon-NAME-0` and so on.
pub(crate) fn names(resource: &Gordon) -> impl Iterator<Item = String> {
    let replicas = usize::try_from(resource.spec.gordon.replicas).unwrap_or(0);
    let replicas = replicas.min(crate::validate::MAX_REPLICAS as usize);
    let prefix = prefix(&resource.name_any());
    (0..2 * replicas + SPARE_NAMES).map(move |number| format!("{prefix}{number}"))
}

fn prefix(name: &str) -> String {
    format!("gordon-{name}-")
}

/// The labels by which the pods are selected.
pub(crate) fn selector(wanted: &Wanted) -> BTreeMap<String, String> {
    labels(&[("app", "gordon"), (LABEL, &wanted.name)])
}

/// One pod. `attempt`: how many ended before it, one soon after the other.
pub(crate) fn pod(view: &View<Gordon>, wanted: &Wanted, name: String, attempt: u32) -> Pod {
    let mut all = selector(wanted);
    all.append(&mut labels(&[
        ("app.kubernetes.io/name", "gordon"),
        ("app.kubernetes.io/instance", &wanted.name),
        ("app.kubernetes.io/managed-by", "ballast"),
    ]));
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            // Which number a pod has says nothing: this tells whoever compares.
            generate_name: Some(prefix(&wanted.name)),
            namespace: view.namespace().map(str::to_owned),
            labels: Some(all),
            annotations: (attempt > 0).then(|| labels(&[(ATTEMPT, &attempt.to_string())])),
            owner_references: Some(vec![view.owner_reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            // A web server has nothing to say to the API server.
            automount_service_account_token: Some(false),
            containers: vec![Container {
                name: CONTAINER.to_owned(),
                image: Some(wanted.image.clone()),
                security_context: Some(SecurityContext {
                    allow_privilege_escalation: Some(false),
                    capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
                    ..SecurityContext::default()
                }),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
