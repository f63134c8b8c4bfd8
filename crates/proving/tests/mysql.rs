//! MySQL is proven as far as its own operator goes: whatever goes wrong, its lives end as if nothing had. Backups are
//! made by somebody else here: a person who says that they are complete.

use std::{sync::Arc, time::Duration};

use ballast_mysql::{MySQL, MySQLBackup, MySQLOperator, ServerStatus, Told};
use ballast_operator::{Action, Answer, Failure, Question, pod};
use ballast_proving::{Act, ActError, Life, Prove, Service, State};
use ballast_runtime::{About, Engine, NoEngine};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const SHOP: &str = "{apiVersion: operators.example.com/v1alpha1, kind: MySQL, metadata: {name: shop}}";

fn shop(version: &str, size: &str, policy: &str) -> String {
    format!(
        "{{apiVersion: operators.example.com/v1alpha1, kind: MySQL, metadata: {{name: shop}}, spec: {{databaseName: a, \
         databaseUser: b, storageSize: {size}, backupSchedule: '@yearly', mysqlVersion: '{version}', \
         deletionPolicy: {policy}}}}}"
    )
}

/// Volumes for the two claims, of a class that lets them grow.
const VOLUMES: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: example.com/nobody
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec: {storageClassName: fast, capacity: {storage: 9Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /data}, claimRef: {namespace: default, name: mysql-pvc-shop}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: backups}
spec: {storageClassName: fast, capacity: {storage: 9Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /backups}, claimRef: {namespace: default, name: backup-pvc-shop}}
";

/// Servers that serve, and are what their image says.
struct Servers;

impl Engine for Servers {
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer> {
        let told = match about.children.get::<Pod>(&question.subject) {
            Some(Ok(found)) => {
                let image = pod::image(&found, "mysql").and_then(|image| image.rsplit_once(':'));
                let (flavour, tag) = image.unwrap_or_default();
                Told::Fares(ServerStatus {
                    flavour: flavour.to_owned(),
                    version: format!("{tag}.9"),
                    ready: true,
                    message: String::new(),
                    data_bytes: 1,
                    free_bytes: 99,
                })
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

/// How often it is looked whether a backup is asked for.
const LOOK: Duration = Duration::from_secs(1);

/// Whatever backups there are become complete.
fn complete(client: Client) -> BoxFuture<'static, Result<(), ActError>> {
    async move {
        let backups: Api<MySQLBackup> = Api::namespaced(client, "default");
        for backup in backups.list(&ListParams::default()).await?.items {
            let status = json!({"status": {
                "outcome": "Complete", "message": "", "conditions": [], "flavour": "MySQL", "version": "8.0.9",
                "startedAt": "2030-01-01T00:00:00Z", "completedAt": "2030-01-01T00:00:00Z",
            }});
            backups.patch_status(&backup.name_any(), &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        Ok(())
    }
    .boxed()
}

/// The MySQL is deleted, and its last backup becomes complete.
fn delete(client: Client) -> BoxFuture<'static, Result<(), ActError>> {
    async move {
        let mysqls: Api<MySQL> = Api::namespaced(client.clone(), "default");
        if mysqls.get_opt("shop").await?.is_some() {
            mysqls.delete("shop", &DeleteParams::default()).await?;
        }
        while mysqls.get_opt("shop").await?.is_some() {
            complete(client.clone()).await?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
    .boxed()
}

/// The data is there as long as a server served and nobody said that it may go.
fn data_is_kept(state: &State) -> Result<(), String> {
    for mysql in state.list::<MySQL>() {
        let served = mysql.status.as_ref().is_some_and(|status| status.version.is_some());
        let claim = format!("mysql-pvc-{}", mysql.name_any());
        let there = state.list::<PersistentVolumeClaim>().iter().any(|found| found.name_any() == claim);
        if served && !there && mysql.metadata.deletion_timestamp.is_none() {
            return Err(format!("{claim} is gone"));
        }
    }
    Ok(())
}

#[test]
fn whatever_goes_wrong_a_mysql_ends_as_if_nothing_had() {
    let definition =
        format!("{}\n---\n{VOLUMES}", serde_json::to_string(&MySQLBackup::crd()).unwrap_or_default());
    let life = Life::new("a long life")
        .act("furnish the cluster", Act::apply(definition.clone()))
        .act("create", Act::apply(shop("8.0", "1Gi", "Snapshot")))
        .act("grow", Act::edit(shop("8.0", "2Gi", "Snapshot")))
        .act("ask for what is not carried out", Act::edit(shop("5.7", "2Gi", "Snapshot")))
        .act("upgrade", Act::edit(shop("8.4", "2Gi", "Snapshot")))
        .act("the backup is complete", Act::with(complete))
        .act("delete", Act::with(delete));
    let kept = Life::new("what is kept")
        .act("furnish the cluster", Act::apply(definition))
        .act("create", Act::apply(shop("8.0", "1Gi", "Retain")))
        .act("delete", Act::delete(SHOP))
        .act("create it again", Act::apply(shop("8.0", "1Gi", "Delete")))
        .act("delete it all", Act::delete(SHOP));
    Prove::new(MySQLOperator::default)
        .service(Servers)
        .life(life)
        .life(kept)
        .holds("data is kept", data_is_kept)
        .run()
        .assert_clean();
}
