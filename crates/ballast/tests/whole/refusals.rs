//! Wrong manifests: Kubernetes' answer, nothing created, everything else keeps running.

use crate::support::Cluster;

fn memcached(spec: &str) -> String {
    manifest("cache.example.com/v1alpha1", "Memcached", "bad", spec)
}

fn manifest(api_version: &str, kind: &str, name: &str, spec: &str) -> String {
    format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

fn no_match(kind: &str, group: &str, version: &str) -> String {
    format!("no matches for kind \"{kind}\" in version \"{group}/{version}\"")
}

/// Refused in these words, and nothing is there afterwards.
#[track_caller]
fn check(cluster: &Cluster, yaml: &str, expected: &str) {
    let refused = cluster.kubectl_with(&["create", "-f", "-"], yaml).refused();
    assert!(refused.contains(expected), "{expected:?} is not in {refused:?}");
    let left = cluster.kubectl("get memcacheds,deployments,services -o name").ok();
    assert_eq!(left, "service/kubernetes\n", "something was created");
}

#[test]
fn wrong_manifests_are_refused_in_words_and_all_else_goes_on() {
    let cluster = Cluster::start();
    let too_small = "spec.size: Invalid value: \"integer\": size must be greater than 0";
    let no_version = "spec.version: Required value: version must be specified";
    let no_tag = "spec.version: Invalid value: \"string\": version must be an image tag";
    for (spec, expected) in [
        ("{size: 0, version: '1'}", too_small),
        ("{size: -1, version: '1'}", too_small),
        ("{size: -1, version: '1'}", ".spec.size: Invalid value: -1: should be a non-negative integer"),
        ("{size: 1000000000000, version: '1'}", "size must be at most 1000"),
        ("{size: 1000000000000, version: '1'}", "should be less than or equal to 2147483647"),
        ("{size: three, version: '1'}", "spec.size in body must be of type integer: \"string\""),
        ("{size: 1.5, version: '1'}", "spec.size in body must be of type integer: \"number\""),
        ("{version: '1'}", "spec.size: Required value"),
        ("{size: 1}", no_version),
        ("{size: 1, version: ''}", no_version),
        ("{size: 1, version: 'a b'}", no_tag),
        ("{size: 1, version: 'a:b'}", no_tag),
        ("{size: 1, version: -a}", no_tag),
        ("{size: 1, version: '1', colour: red}", "strict decoding error: unknown field \"spec.colour\""),
        ("null", "spec: Required value"),
    ] {
        check(&cluster, &memcached(spec), expected);
    }
    let (group, definitions) = ("cache.example.com", "apiextensions.k8s.io");
    let unfinished = "apiVersion: v1\nkind: {Memcached".to_owned();
    for (yaml, expected) in [
        (unfinished, "error converting YAML to JSON".to_owned()),
        (
            manifest(&format!("{group}/v1alpha1"), "Mumcached", "bad", "{}"),
            no_match("Mumcached", group, "v1alpha1"),
        ),
        (
            manifest(&format!("{group}/v1alpha2"), "Memcached", "bad", "{}"),
            no_match("Memcached", group, "v1alpha2"),
        ),
        (
            manifest(&format!("{definitions}/v1beta1"), "CustomResourceDefinition", "bads.x.y", "{}"),
            no_match("CustomResourceDefinition", definitions, "v1beta1"),
        ),
        (
            manifest(&format!("{group}/v1alpha1"), "Memcached", "Bad_name", "{size: 1, version: '1'}"),
            "metadata.name: Invalid value: \"Bad_name\"".to_owned(),
        ),
    ] {
        check(&cluster, &yaml, &expected);
    }

    let warned = cluster.kubectl_with(
        &["apply", "--validate=warn", "-f", "-"],
        &memcached("{size: 1, version: '1', colour: red}"),
    );
    assert!(warned.stderr.contains("Warning: unknown field \"spec.colour\""), "{warned}");
    warned.ok();
    cluster.becomes("deployment/bad", ".spec.replicas", "1");
    cluster.kubectl("delete mc bad --timeout=20s").ok();
}

#[test]
fn bodies_that_kubectl_would_not_send_are_refused_too() {
    let cluster = Cluster::start();
    let path = "/apis/cache.example.com/v1alpha1/namespaces/default/memcacheds";
    let with = |extra: &str| {
        format!(
            r#"{{"apiVersion":"cache.example.com/v1alpha1","kind":"Memcached","metadata":{{"name":"bad"}},"spec":{{"size":1,"version":"1","x":{extra}}}}}"#
        )
    };
    let deep = with(&format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)));
    let large = with(&format!("\"{}\"", "y".repeat(3_200_000)));
    for (body, expected) in [
        (deep.as_str(), "exceeded max depth"),
        (large.as_str(), "Request entity too large: limit is 3145728"),
        ("{\"apiVersion\":", "unexpected end of JSON input"),
        ("no JSON at all", "json parse error"),
        ("", "unexpected end of JSON input"),
    ] {
        let refused = cluster.kubectl_with(&["create", "--raw", path, "-f", "-"], body).refused();
        assert!(
            refused.contains(expected),
            "{expected:?} is not in {:?}",
            &refused[..refused.len().min(500)]
        );
    }
    assert_eq!(cluster.kubectl("get memcacheds -o name").ok(), "");
    cluster.apply(&memcached("{size: 1, version: '1'}")).ok();
    cluster.becomes("deployment/bad", ".spec.replicas", "1");
}
