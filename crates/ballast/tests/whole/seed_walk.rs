//! The first seed's walk, by the real kubectl.

use crate::support::{Cluster, eventually, table};

const SAMPLE: &str = "examples/seeds/memcached.yaml";
const OPERATOR: &str = "system:serviceaccount:ballast-system:ballast";

/// A cluster with the sample, its children made.
fn with_sample() -> Cluster {
    let cluster = Cluster::start();
    assert_eq!(
        cluster.kubectl(&format!("apply -f {SAMPLE}")).ok(),
        "memcached.cache.example.com/memcached-sample created\n"
    );
    cluster.becomes("deployment/memcached-sample", ".spec.replicas", "3");
    cluster.says("get poddisruptionbudgets", "memcached-sample");
    cluster
}

#[test]
fn the_definition_is_installed_and_explained() {
    let cluster = Cluster::start();
    cluster.kubectl("wait --for=condition=Established crd/memcacheds.cache.example.com --timeout=10s").ok();
    let resources = cluster.kubectl("api-resources --categories=ballast").ok();
    assert_eq!(table(&resources)[1], ["memcacheds", "mc", "cache.example.com/v1alpha1", "true", "Memcached"]);
    let explained = cluster.kubectl("explain memcached.spec.size").ok();
    assert!(explained.contains("FIELD: size <integer>"), "{explained}");
    assert!(explained.contains("How many nodes there should be."), "{explained}");
    let explained = cluster.kubectl("explain deployment.spec.replicas").ok();
    assert!(explained.contains("Number of desired pods"), "{explained}");
    // As kubectl explained before there was a third version of OpenAPI.
    for (field, shown) in [
        ("memcached.spec.size", ["FIELD:    size <integer>", "How many nodes there should be."]),
        ("deployment.spec.replicas", ["FIELD:    replicas <integer>", "Number of desired pods"]),
    ] {
        let explained = cluster.kubectl(&format!("explain {field} --output=plaintext-openapiv2")).ok();
        assert!(shown.iter().all(|part| explained.contains(part)), "{explained}");
    }
}

#[test]
fn an_applied_resource_is_brought_about_and_shown() {
    let cluster = with_sample();
    for kind in ["services", "poddisruptionbudgets", "replicasets"] {
        cluster.says(&format!("get {kind} -l memcached_cr=memcached-sample"), "memcached-sample");
    }
    cluster.becomes("mc/memcached-sample", ".status.replicas", "3");
    cluster.kubectl("wait --for=condition=Progressing mc/memcached-sample --timeout=10s").ok();
    cluster.kubectl("wait --for=condition=Ready=False mc/memcached-sample --timeout=10s").ok();

    let shown = table(&cluster.kubectl("get memcacheds").ok());
    assert_eq!(shown[0], ["NAME", "SIZE", "READY", "VERSION", "AGE"]);
    assert_eq!(shown[1][..4], ["memcached-sample", "3", "False", "1.6.9"]);
    let shown = table(&cluster.kubectl("get mc -o wide").ok());
    assert_eq!(shown[0], ["NAME", "SIZE", "READY", "VERSION", "RUNNING", "NODES", "REASON", "AGE"]);
    assert_eq!(shown[1][..6], ["memcached-sample", "3", "False", "1.6.9", "0", "Creating"]);

    let nodes = cluster.field("mc/memcached-sample", ".status.nodes[*]");
    let pods = cluster.kubectl("get pods -l app=memcached -o name --sort-by=.metadata.name").ok();
    assert_eq!(pods.replace("pod/", "").split_whitespace().collect::<Vec<_>>().join(" "), nodes);

    let described = cluster.says("describe mc memcached-sample", "made the Deployment");
    for part in [
        "Kind:         Memcached",
        "Size:     3",
        "Reason:                Creating",
        "Events:",
        "ballast-memcached",
    ] {
        assert!(described.contains(part), "{part} is not in {described}");
    }
}

#[test]
fn every_way_to_change_a_resource_reaches_its_deployment() {
    let cluster = with_sample();
    let deployment = "deployment/memcached-sample";
    cluster.kubectl("scale mc memcached-sample --replicas=5").ok();
    cluster.becomes(deployment, ".spec.replicas", "5");
    cluster
        .kubectl_with(
            &["patch", "mc", "memcached-sample", "--type=merge", "-p", r#"{"spec":{"version":"1.6.38"}}"#],
            "",
        )
        .ok();
    cluster.becomes(deployment, ".spec.template.spec.containers[0].image", "memcached:1.6.38");
    let edit = crate::support::said(
        cluster.command().env("KUBE_EDITOR", "sed -i s/size:.5/size:\\ 4/").args([
            "edit",
            "mc",
            "memcached-sample",
        ]),
        "",
    );
    assert_eq!(edit.ok(), "memcached.cache.example.com/memcached-sample edited\n");
    cluster.becomes(deployment, ".spec.replicas", "4");
    cluster.kubectl("label mc memcached-sample team=cache").ok();
    cluster.kubectl("annotate mc memcached-sample note=kept").ok();
    assert_eq!(cluster.field("mc/memcached-sample", ".metadata.labels.team"), "cache");

    let differs = cluster.kubectl(&format!("diff -f {SAMPLE}"));
    assert_eq!(differs.code(), 1, "{differs}");
    assert!(differs.stdout.contains("-  size: 4") && differs.stdout.contains("+  size: 3"), "{differs}");
    let conflict = cluster.kubectl(&format!("apply --server-side -f {SAMPLE}")).refused();
    assert!(
        conflict.contains("conflicts with \"kubectl-edit\" using cache.example.com/v1alpha1:\n- .spec.size"),
        "{conflict}"
    );
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    cluster.becomes(deployment, ".spec.replicas", "3");
    assert_eq!(cluster.field("mc/memcached-sample", ".metadata.annotations.note"), "kept");
    assert_eq!(cluster.kubectl(&format!("diff -f {SAMPLE}")).ok(), "");
    cluster.kubectl(&format!("apply --server-side --force-conflicts -f {SAMPLE}")).ok();
}

#[test]
fn what_is_edited_by_hand_is_put_right_and_said() {
    let cluster = with_sample();
    let deployment = "deployment/memcached-sample";
    cluster.kubectl("scale deployment memcached-sample --replicas=1").ok();
    cluster.becomes(deployment, ".spec.replicas", "3");
    cluster.kubectl("set image deployment/memcached-sample memcached=memcached:evil").ok();
    cluster.becomes(deployment, ".spec.template.spec.containers[0].image", "memcached:1.6.9");
    let events = "events --for=memcached/memcached-sample";
    cluster.says(
        events,
        "put .spec.replicas of Deployment default/memcached-sample back, which kubectl had changed",
    );
    cluster.says(events, "back, which kubectl-set had changed");
    let said = cluster.kubectl(events).ok();
    assert!(
        !said.contains("Scaling") && !said.contains("Upgrading"),
        "it was no change of the resource:\n{said}"
    );

    for kind in ["service", "deployment", "poddisruptionbudget"] {
        let object = format!("{kind}/memcached-sample");
        let uid = cluster.field(&object, ".metadata.uid");
        cluster.kubectl(&format!("delete {object} --wait=false")).ok();
        eventually(&format!("{object} is made again"), || {
            let now = cluster.field(&object, ".metadata.uid");
            (!now.is_empty() && now != uid).then_some(())
        });
    }
    cluster.kubectl("label service memcached-sample mine=too").ok();
    cluster.kubectl("scale mc memcached-sample --replicas=2").ok();
    cluster.becomes(deployment, ".spec.replicas", "2");
    assert_eq!(
        cluster.field("service/memcached-sample", ".metadata.labels.mine"),
        "too",
        "what others add stays"
    );
}

#[test]
fn the_operators_may_do_what_they_need_and_nothing_else() {
    let cluster = Cluster::start();
    let may = |what: &str| {
        let said = cluster.kubectl(&format!("auth can-i {what} -A --as {OPERATOR}"));
        said.stdout.trim() == "yes"
    };
    for needed in [
        "create deployments.apps",
        "patch services",
        "watch pods",
        "list memcacheds.cache.example.com",
        "patch memcacheds.cache.example.com --subresource=status",
        "create events.events.k8s.io",
    ] {
        assert!(may(needed), "{needed}");
    }
    for other in [
        "create pods --subresource=exec",
        "get serviceaccounts",
        "delete deployments.apps",
        "update pods",
        "create memcacheds.cache.example.com",
        "patch memcacheds.cache.example.com",
        "* *",
    ] {
        assert!(!may(other), "{other}");
    }
    let refused = cluster.kubectl(&format!("get serviceaccounts -n kube-system --as {OPERATOR}")).refused();
    let expected = format!(
        "User \"{OPERATOR}\" cannot list resource \"serviceaccounts\" in API group \"\" in the namespace \"kube-system\""
    );
    assert!(refused.contains(&expected), "{refused}");
}

#[test]
fn what_a_file_no_longer_has_is_pruned() {
    let cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    let maps = |names: &[&str]| -> String {
        let map = |name: &&str| {
            format!(
                "---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{app: shop}}}}}}\n"
            )
        };
        names.iter().map(map).collect()
    };
    let prune = ["apply", "--prune", "-l", "app=shop", "-f", "-"];
    cluster.kubectl_with(&prune, &maps(&["kept", "gone"])).ok();
    let said = cluster.kubectl_with(&prune, &maps(&["kept"])).ok();
    assert_eq!(said, "configmap/kept unchanged\nconfigmap/gone pruned\n");
    // What kubectl looks for by itself can't be made where nothing would act on it.
    let refused = cluster.kubectl("create ingress shop --rule=example.com/=shop:80").refused();
    assert!(refused.contains("create is not supported on resources of kind \"ingresses"), "{refused}");
}

#[test]
fn a_deleted_resource_takes_its_children_along() {
    let cluster = with_sample();
    assert_eq!(
        cluster.kubectl(&format!("delete -f {SAMPLE} --timeout=20s")).ok(),
        "memcached.cache.example.com \"memcached-sample\" deleted\n"
    );
    for kind in ["deployments", "services", "poddisruptionbudgets", "replicasets", "pods"] {
        eventually(&format!("no {kind} are left"), || {
            let left = cluster.kubectl(&format!("get {kind} -l memcached_cr=memcached-sample -o name")).ok();
            left.is_empty().then_some(())
        });
    }
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    cluster.becomes("deployment/memcached-sample", ".spec.replicas", "3");
}

#[test]
fn removing_the_definition_with_resources_left_never_hangs() {
    let cluster = with_sample();
    let definitions = crate::support::said(crate::support::ballast().arg("crds"), "").ok();
    cluster.kubectl_with(&["delete", "--ignore-not-found", "--timeout=20s", "-f", "-"], &definitions).ok();
    eventually("the children are collected", || {
        cluster.kubectl("get deployments,services -l app=memcached -o name").ok().is_empty().then_some(())
    });
    // Installed again, it works again.
    cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], &definitions).ok();
    cluster.kubectl("wait --for=condition=Established crd/memcacheds.cache.example.com --timeout=10s").ok();
    eventually("the sample is taken", || {
        cluster.kubectl(&format!("apply -f {SAMPLE}")).status.success().then_some(())
    });
    cluster.becomes("deployment/memcached-sample", ".spec.replicas", "3");
}

#[test]
fn a_stop_is_in_order_and_leaves_nothing() {
    let mut cluster = with_sample();
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end(), (0, String::new()));
    let complaints = cluster.up.complaints();
    assert!(
        !complaints.contains("WARN") && !complaints.contains("ERROR") && !complaints.contains("panicked"),
        "{complaints}"
    );
}
