//! Kubernetes' own sample-controller, with client-go's defaults, on the same real cluster.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::json;

use crate::{
    reconcile::{real, row, text},
    table::Table,
};

const PATIENCE: Duration = Duration::from_secs(900);

/// Runs it over `count` of its own resources.
pub async fn measure(program: &Path, kubeconfig: &Path, count: usize, table: &mut Table) -> Result<()> {
    let client = real(kubeconfig).await?;
    ballast::up::install(&client, vec![definition()]).await?;
    let mut child = Command::new(program)
        .args(["--kubeconfig", text(kubeconfig)?])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("samplecontroller.k8s.io", "v1alpha1", "Foo"));
    let foos: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let began = Instant::now();
    futures::stream::iter(0..count)
        .map(|number| {
            let (foos, resource) = (foos.clone(), resource.clone());
            async move {
                let wanted = DynamicObject::new(&format!("foo-{number}"), &resource)
                    .data(json!({"spec": {"deploymentName": format!("foo-{number}"), "replicas": 1}}));
                foos.create(&PostParams::default(), &wanted).await
            }
        })
        .buffer_unordered(16)
        .try_for_each(|_| std::future::ready(Ok(())))
        .await?;
    let outcome = loop {
        let listed = deployments.list_metadata(&ListParams::default()).await?;
        let there = listed.iter().filter(|made| made.name_any().starts_with("foo-")).count();
        if there >= count {
            break Ok(began.elapsed().as_secs_f64());
        }
        if began.elapsed() > PATIENCE {
            break Err(there);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    child.kill()?;
    child.wait()?;
    foos.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    ensure!(outcome.is_ok(), "sample-controller made {outcome:?} of {count} in {PATIENCE:?}");
    if let Ok(seconds) = outcome {
        table.row(row(
            "the same, kubernetes/sample-controller",
            count,
            seconds,
            String::new(),
            "for comparison",
        ));
    }
    Ok(())
}

/// Its resource, as its example has it.
fn definition() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.samplecontroller.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"}},
        "spec": {
            "group": "samplecontroller.k8s.io", "scope": "Namespaced",
            "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "deploymentName": {"type": "string"},
                        "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
                    }},
                    "status": {"type": "object", "properties": {"availableReplicas": {"type": "integer"}}},
                }}},
            }],
        },
    })
}
