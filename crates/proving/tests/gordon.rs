//! Gordon is proven: whatever goes wrong, its lives end as if nothing had.

use ballast_gordon::{Gordon, GordonOperator};
use ballast_operator::pod;
use ballast_proving::{Act, ActError, Life, NO_SUCH_TAG, Prove, State};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

const SAMPLE: &str = "{apiVersion: operator.prgcont.cz/v1, kind: Gordon, metadata: {name: sample}}";

fn sample(replicas: i32, tag: &str) -> String {
    format!(
        "{{apiVersion: operator.prgcont.cz/v1, kind: Gordon, metadata: {{name: sample}}, \
         spec: {{gordon: {{replicas: {replicas}, image: 'prgcont/gordon:{tag}'}}}}}}"
    )
}

fn pod(number: u32) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: gordon-sample-{number}}}}}")
}

/// The kubelet evicts the first pod.
fn evict(client: Client) -> BoxFuture<'static, Result<(), ActError>> {
    async move {
        let pods: Api<Pod> = Api::namespaced(client, "default");
        let evicted =
            Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted", "conditions": []}}));
        match pods.patch_status("gordon-sample-0", &PatchParams::default(), &evicted).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => answer.map(drop).map_err(ActError::from),
        }
    }
    .boxed()
}

/// `Ready` speaks of as many ready pods as are wanted.
fn ready_is_evident(state: &State) -> Result<(), String> {
    let pods: Vec<Pod> = state.list();
    for gordon in state.list::<Gordon>() {
        let Some(status) = gordon.status else { continue };
        let ready = status.conditions.iter().any(|condition| {
            condition.type_ == "Ready"
                && condition.status == "True"
                && condition.observed_generation == gordon.metadata.generation
        });
        let up = pods.iter().filter(|found| pod::is_ready(found) && !pod::is_finished(found)).count();
        let wanted = usize::try_from(gordon.spec.gordon.replicas).unwrap_or(0);
        if ready && up < wanted {
            return Err(format!("it is Ready with {up} of {wanted} pods"));
        }
    }
    Ok(())
}

#[test]
fn whatever_goes_wrong_a_gordon_ends_as_if_nothing_had() {
    let seed = Life::new("the seed's section")
        .act("create", Act::apply(sample(3, "v1.0")))
        .act("scale up", Act::edit(sample(5, "v1.0")))
        .act("scale down", Act::edit(sample(2, "v1.0")))
        .act("delete a pod", Act::delete(pod(1)))
        .act("another image", Act::edit(sample(2, "v2.0")))
        .act("delete", Act::delete(SAMPLE));
    let mishaps = Life::new("mishaps")
        .act("create", Act::apply(sample(2, "v1.0")))
        .act("a pod is evicted", Act::with(evict))
        .act("an image that does not exist", Act::edit(sample(2, NO_SUCH_TAG)))
        .act("go back", Act::edit(sample(2, "v1.0")))
        .act("none", Act::edit(sample(0, "v1.0")))
        .act("some", Act::edit(sample(1, "v1.0")))
        .act("delete", Act::delete(SAMPLE))
        .act("create it again", Act::apply(sample(1, "v1.0")));
    Prove::new(GordonOperator::default)
        .life(seed)
        .life(mishaps)
        .holds("Ready is evident", ready_is_evident)
        .run()
        .assert_clean();
}
