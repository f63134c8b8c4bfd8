//! A Memcached on a stage, and servers that answer.

use ballast_memcached::{MemcachedOperator, Stats, Told};
use ballast_operator::{Answer, Answers, Operator as _};
use ballast_staging::{self as staging, Stage};

pub const SAMPLE: &str = r#"
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {name: memcached-sample}
spec: {size: 3, version: "1.6.9"}
"#;

/// What Kubernetes reports when all three nodes are up.
pub const ALL_UP: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: memcached-sample}
status: {observedGeneration: 1, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-b, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.9'}]}
status: {podIP: 10.0.0.2, conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-a, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.9'}]}
status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-c, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.9'}]}
status: {podIP: 10.0.0.3, conditions: [{type: Ready, status: 'True'}]}
";

pub const STATS: Stats =
    Stats { get_hits: 75, get_misses: 25, evictions: 0, bytes: 1 << 20, limit_maxbytes: 64 << 20 };

pub fn serves(version: &str) -> Told {
    Told::Serves { version: version.to_owned(), stats: STATS }
}

/// Everyone who is asked answers, but for those named here.
pub fn told(stage: &mut Stage<MemcachedOperator>, others: &[(&str, Told)]) {
    stage.answers = Answers::none();
    for question in stage.operator.questions(&stage.view) {
        let other = others.iter().find(|(pod, _)| question.subject.ends_with(pod));
        let said = other.map_or_else(|| serves("1.6.9"), |(_, told)| told.clone());
        stage.answers.insert(question.id, Answer::Said(serde_json::to_value(said).unwrap()));
    }
}

pub fn sample(more: &str) -> Stage<MemcachedOperator> {
    Stage::new(MemcachedOperator, &format!("{SAMPLE}\n---\n{more}"))
}

/// A sample whose children are made and whose nodes are all up and answer.
pub fn settled() -> Stage<MemcachedOperator> {
    let mut stage = sample("");
    stage.rest().meanwhile(ALL_UP);
    told(&mut stage, &[]);
    stage.rest().events.clear();
    stage
}

/// Reason and message of `Degraded`, which is True.
pub fn degraded(stage: &Stage<MemcachedOperator>) -> String {
    let degraded = stage.condition("Degraded");
    degraded.strip_prefix("True ").unwrap_or_else(|| panic!("not degraded: {degraded}")).to_owned()
}

/// The plan for the sample with more around it.
pub fn check(more: &str, expected: &str) {
    staging::check(MemcachedOperator, &format!("{SAMPLE}\n---\n{more}"), expected);
}
