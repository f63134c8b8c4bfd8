//! What people do with databases.

use ballast_proving::{Act, ActError, Life};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};

const STORAGE: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: example.com/nobody
allowVolumeExpansion: true
";

/// Volumes for the claims of these instances, of a class that lets them grow.
fn furnish(instances: &[&str]) -> Act {
    let mut yaml = STORAGE.to_owned();
    for claim in instances.iter().flat_map(|name| [format!("mysql-pvc-{name}"), format!("backup-pvc-{name}")])
    {
        yaml += &format!(
            "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {claim}}}\nspec: {{storageClassName: fast, \
             capacity: {{storage: 9Gi}}, accessModes: [ReadWriteOnce], hostPath: {{path: /{claim}}}, \
             claimRef: {{namespace: default, name: {claim}}}}}\n"
        );
    }
    Act::apply(yaml)
}

/// A MySQL, and what else its spec has.
fn mysql(name: &str, version: &str, more: &str) -> String {
    format!(
        "{{apiVersion: operators.example.com/v1alpha1, kind: MySQL, metadata: {{name: {name}}}, spec: {{databaseName: a, \
         databaseUser: b, mysqlVersion: '{version}', {more}}}}}"
    )
}

fn backup(name: &str) -> String {
    format!(
        "{{apiVersion: operators.example.com/v1alpha1, kind: MySQLBackup, metadata: {{name: {name}}}, \
         spec: {{instance: shop}}}}"
    )
}

fn named(kind: &str, name: &str) -> String {
    format!("{{apiVersion: operators.example.com/v1alpha1, kind: {kind}, metadata: {{name: {name}}}}}")
}

const SMALL: &str = "storageSize: 1Gi";
const SCRIPTED: &str = "storageSize: 1Gi, initScript: {inline: INSERT}";
const SCHEDULED: &str = "storageSize: 1Gi, backupSchedule: '@yearly', backup: {retention: {count: 1}}";

/// `kubectl create job --from=cronjob/mysql-backup-shop NAME`.
fn by_hand(name: &'static str) -> Act {
    Act::with(move |client| create_job(client, name, true))
}

/// What the clock makes of the CronJob.
fn by_the_clock(name: &'static str) -> Act {
    Act::with(move |client| create_job(client, name, false))
}

fn create_job(client: Client, name: &'static str, by_hand: bool) -> BoxFuture<'static, Result<(), ActError>> {
    async move {
        let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), "default");
        let jobs: Api<Job> = Api::namespaced(client, "default");
        let cron_job = cron_jobs.get("mysql-backup-shop").await?;
        let owner = OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "CronJob".to_owned(),
            name: cron_job.name_any(),
            uid: cron_job.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let template = cron_job.spec.map(|spec| spec.job_template).unwrap_or_default();
        let mark = ("cronjob.kubernetes.io/instantiate".to_owned(), "manual".to_owned());
        let metadata = ObjectMeta {
            annotations: by_hand.then(|| [mark].into()),
            name: Some(name.to_owned()),
            owner_references: Some(vec![owner]),
            ..template.metadata.unwrap_or_default()
        };
        let job = Job { metadata, spec: template.spec, status: None };
        match jobs.create(&PostParams::default(), &job).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }
    .boxed()
}

/// Created, configured by a script, grown, and deleted after a last backup.
pub fn configured() -> Life {
    let grown = "storageSize: 2Gi, initScript: {inline: INSERT}";
    Life::new("created, configured, grown, deleted")
        .act("furnish the cluster", furnish(&["shop"]))
        .act("create", Act::apply(mysql("shop", "8.0", SCRIPTED)))
        .act("grow", Act::apply(mysql("shop", "8.0", grown)))
        .act("delete", Act::delete(named("MySQL", "shop")))
}

/// Backed up on demand, by hand and by the clock, well and badly, with few backups kept.
pub fn backed_up() -> Life {
    Life::new("backed up")
        .act("furnish the cluster", furnish(&["shop"]))
        .act("create", Act::apply(mysql("shop", "8.0", SCHEDULED)))
        .act("back up", Act::apply(backup("now")))
        .act("back up by the clock", by_the_clock("first"))
        .act("back up by the clock again", by_the_clock("second"))
        .act("a backup by hand that holds nothing", by_hand("hollow"))
        .act("delete a backup", Act::delete(named("MySQLBackup", "now")))
}

/// Restored into another instance, and both deleted.
pub fn restored() -> Life {
    let from =
        "storageSize: 1Gi, restoreFrom: {backup: now}, initScript: {inline: SELECT}, deletionPolicy: Delete";
    Life::new("restored")
        .act("furnish the cluster", furnish(&["shop", "copy"]))
        .act("create", Act::apply(mysql("shop", "8.0", SCRIPTED)))
        .act("back up", Act::apply(backup("now")))
        .act("restore", Act::apply(mysql("copy", "8.0", from)))
        .act("delete it all", Act::delete(named("MySQL", "copy")))
}

/// Upgraded, after what is not carried out.
pub fn upgraded() -> Life {
    Life::new("upgraded")
        .act("furnish the cluster", furnish(&["shop"]))
        .act("create", Act::apply(mysql("shop", "8.0", SMALL)))
        .act("ask for what is not carried out", Act::apply(mysql("shop", "5.7", SMALL)))
        .act("upgrade", Act::apply(mysql("shop", "8.4", SMALL)))
        .act("delete", Act::delete(named("MySQL", "shop")))
}

/// Kept when it is deleted, taken up again, and then not kept.
pub fn kept() -> Life {
    let with = |policy: &str| mysql("shop", "8.0", &format!("{SCRIPTED}, deletionPolicy: {policy}"));
    Life::new("what is kept")
        .act("furnish the cluster", furnish(&["shop"]))
        .act("create", Act::apply(with("Retain")))
        .act("delete", Act::delete(named("MySQL", "shop")))
        .act("create it again", Act::apply(with("Delete")))
        .act("delete it all", Act::delete(named("MySQL", "shop")))
}
