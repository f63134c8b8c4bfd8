//! Memcached is proven: whatever goes wrong, its lives end as if nothing had.

use std::sync::Arc;

use ballast_memcached::{Memcached, MemcachedOperator, Stats, Told};
use ballast_operator::{Action, Answer, Failure, Question, pod};
use ballast_proving::{Act, ActError, Life, NO_SUCH_TAG, Prove, Service, State};
use ballast_runtime::{About, Engine, NoEngine};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const SAMPLE: &str = "{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: sample}}";
const DEPLOYMENT: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: sample}}";
const EDITED: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: sample}, spec: {replicas: 4}}";

fn sample(size: i32, version: &str) -> String {
    format!(
        "{{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {{name: sample}}, \
         spec: {{size: {size}, version: {version:?}}}}}"
    )
}

/// On a pod whose server hangs.
const HUNG: &str = "proving.example.com/hung";
/// The version whose servers hang from the start.
const HANGS: &str = "1.6.99";

/// Servers that answer with the version of their image, unless they hang.
struct Servers;

impl Engine for Servers {
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer> {
        let told = match about.children.get::<Pod>(&question.subject) {
            Some(Ok(found)) => {
                let tag = pod::image(&found, "memcached").and_then(|image| image.rsplit_once(':'));
                let version = tag.map(|(_, tag)| tag.to_owned()).unwrap_or_default();
                let hung = found.metadata.annotations.iter().flatten().any(|(name, _)| name == HUNG);
                let stats =
                    Stats { get_hits: 1, get_misses: 1, limit_maxbytes: 64 << 20, ..Stats::default() };
                if hung || version == HANGS { Told::Silent } else { Told::Serves { version, stats } }
            }
            _ => Told::Refuses,
        };
        Box::pin(async move { Answer::Said(serde_json::to_value(told).unwrap_or_default()) })
    }

    fn act<'a>(&'a self, about: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        NoEngine.act(about, action)
    }
}

impl Service for Servers {
    fn fork(&self) -> Arc<dyn Service> {
        Arc::new(Servers)
    }

    fn state(&self) -> Value {
        Value::Null
    }
}

/// The server of the first pod hangs.
fn hang(client: Client) -> BoxFuture<'static, Result<(), ActError>> {
    async move {
        let pods: Api<Pod> = Api::namespaced(client, "default");
        let mut all = pods.list(&ListParams::default()).await?.items;
        all.sort_by_key(|pod| pod.metadata.name.clone());
        if let Some(name) = all.first().and_then(|pod| pod.metadata.name.as_deref()) {
            let hung = Patch::Merge(json!({"metadata": {"annotations": {HUNG: ""}}}));
            pods.patch(name, &PatchParams::default(), &hung).await?;
        }
        Ok(())
    }
    .boxed()
}

/// `Ready` speaks of as many ready pods of the wanted image as are wanted.
fn ready_is_evident(state: &State) -> Result<(), String> {
    let pods: Vec<Pod> = state.list();
    for cache in state.list::<Memcached>() {
        let name = cache.metadata.name.unwrap_or_default();
        let Some(status) = cache.status else { continue };
        let ready = status.conditions.iter().any(|condition| {
            condition.type_ == "Ready"
                && condition.status == "True"
                && condition.observed_generation == cache.metadata.generation
        });
        let wanted = format!("memcached:{}", cache.spec.version.unwrap_or_default());
        let up = pods
            .iter()
            .filter(|found| pod::is_ready(found) && pod::image(found, "memcached") == Some(wanted.as_str()));
        let (up, size) = (up.count(), usize::try_from(cache.spec.size).unwrap_or(0));
        if ready && up < size {
            return Err(format!("{name} is Ready with {up} of {size} nodes"));
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
    let silence = Life::new("silence")
        .act("create", Act::apply(sample(3, "1.6.9")))
        .act("a server hangs", Act::with(hang))
        .act("upgrade to a version that hangs", Act::edit(sample(3, HANGS)))
        .act("go back", Act::edit(sample(3, "1.6.9")))
        .act("delete", Act::delete(SAMPLE));
    Prove::new(MemcachedOperator::default)
        .service(Servers)
        .life(seed)
        .life(mishaps)
        .life(silence)
        .holds("Ready is evident", ready_is_evident)
        .run()
        .assert_clean();
}
