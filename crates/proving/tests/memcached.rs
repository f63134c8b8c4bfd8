//! Memcached is proven: whatever goes wrong, its lives end as if nothing had.

use ballast_memcached::{Memcached, MemcachedOperator};
use ballast_proving::{Act, Life, NO_SUCH_TAG, Prove, State};
use k8s_openapi::api::apps::v1::Deployment;

const SAMPLE: &str = "{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: sample}}";
const DEPLOYMENT: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: sample}}";
const EDITED: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: sample}, spec: {replicas: 4}}";

fn sample(size: i32, version: &str) -> String {
    format!(
        "{{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {{name: sample}}, \
         spec: {{size: {size}, version: {version:?}}}}}"
    )
}

/// `Ready` speaks of nodes that the Deployment counts as available.
fn ready_is_evident(state: &State) -> Result<(), String> {
    for cache in state.list::<Memcached>() {
        let name = cache.metadata.name.unwrap_or_default();
        let Some(status) = cache.status else { continue };
        let ready = status.conditions.iter().any(|condition| {
            condition.type_ == "Ready"
                && condition.status == "True"
                && condition.observed_generation == cache.metadata.generation
        });
        let deployment: Option<Deployment> = state.get(cache.metadata.namespace.as_deref(), &name);
        let available =
            deployment.and_then(|deployment| deployment.status).and_then(|status| status.available_replicas);
        if ready && available.unwrap_or(0) < cache.spec.size {
            return Err(format!("{name} is Ready with {available:?} of {} nodes", cache.spec.size));
        }
    }
    Ok(())
}

#[test]
fn whatever_goes_wrong_a_memcached_ends_as_if_nothing_had() {
    let seed = Life::new("the seed's walk")
        .act("create", Act::apply(sample(3, "1.6.9")))
        .act("scale up", Act::edit(sample(5, "1.6.9")))
        .act("upgrade", Act::edit(sample(5, "1.6.38")))
        .act("scale down", Act::edit(sample(2, "1.6.38")))
        .act("delete", Act::delete(SAMPLE));
    let mishaps = Life::new("mishaps")
        .act("create", Act::apply(sample(2, "1.6.9")))
        .act("edit a child by hand", Act::edit(EDITED))
        .act("delete a child", Act::delete(DEPLOYMENT))
        .act("upgrade to a version that does not exist", Act::edit(sample(2, NO_SUCH_TAG)))
        .act("go back", Act::edit(sample(2, "1.6.9")))
        .act("delete", Act::delete(SAMPLE))
        .act("create it again", Act::apply(sample(1, "1.6.9")));
    Prove::new(MemcachedOperator::default)
        .life(seed)
        .life(mishaps)
        .holds("Ready is evident", ready_is_evident)
        .run()
        .assert_clean();
}
