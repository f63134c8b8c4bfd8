//! MySQL and MariaDB: one server with its volume, its credentials and its backups, each proved before it is believed.
//!
//! A [`MySQL`] owns a StatefulSet of one pod, a Service, a CronJob that makes backups, and Jobs that restore and
//! configure it. It keeps a Secret and two claims, which no garbage collection takes. A [`MySQLBackup`] is one backup:
//! asked for by a person, or made by the operator as the record of a Job or before something is changed; it owns the Job
//! that makes it, unless the CronJob does.
//!
//! **What always holds**
//!
//! - `Ready` is said only when the server's pod is the one that is wanted and the agent in it ran a query.
//! - A backup is complete only when the pod that made it said so in its last words: that it was read back, that it is
//!   what was dumped, and that the dump came to its end. A Job that succeeded is no evidence. `lastBackup` is the time
//!   of the last complete one.
//! - A volume is opened by what wrote it, or by what its maker says can open it, and then only after a complete backup.
//!   What is refused leaves the server as it is.
//! - A server that serves is replaced by another version only after that was found in its image.
//! - Retention never removes the last complete backup, nor that of what was on the volume before this one, nor one that is
//!   being restored from, nor one that a person made.
//! - Under the policy `Snapshot` the volume goes only after a complete backup, unless a person says otherwise by the
//!   annotation [`SKIP_FINAL_BACKUP`], or the whole namespace goes and nothing can be started in it.
//! - A volume that a server served from and that is gone is not replaced by an empty one, unless a person says so by the
//!   annotation [`START_EMPTY`].
//! - A server is restarted for what a person changed, and never because the operator was: the agent that a pod got is
//!   replaced only together with a pod that is replaced anyway, or on which no server runs.
//! - Nothing that holds data has an owner reference. Passwords are in no plan, command line, environment or status.
//! - The schema and `validate` give the same answer, and a spec that passed neither is never acted upon.
//!
//! | file | idea |
//! | --- | --- |
//! | `resource`, `validate` | what people write; what it comes to |
//! | `flavour`, `upgrade`, `schedule` | the servers and their versions; which opens what; when backups are due |
//! | `plan`, `retire` | the runbook: from nothing to a server; from a server to nothing |
//! | `names`, `restore`, `image`, `server`, `configure`, `backups` | what the view shows of each stage |
//! | `status` | what is said of it |
//! | `backup` | the operator of MySQLBackups |
//! | `desired` | the objects; `desired/agent` has every command line |
//! | `ask` | the words that are shared with the engine |

// What is disallowed, and why, is in the clippy.toml beside.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod ask;
mod backup;
mod backups;
mod configure;
mod desired;
mod flavour;
mod image;
mod jobs;
mod names;
mod plan;
mod resource;
mod restore;
mod retire;
mod schedule;
mod server;
mod status;
mod upgrade;
mod validate;

use ballast_operator::{Answers, MANAGED, ObjectRef, Operator, Plan, Question, Relation, View};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret, Service},
};
use kube_core::ResourceExt as _;

pub use ask::{Ask, LastWords, Manifest, ServerStatus, Told};
pub use backup::MySQLBackupOperator;
pub use flavour::{Flavour, Server, Version};
pub use resource::{
    Backups, Cause, ConfigMapScript, DeletionPolicy, Fate, InitScript, MySQL, MySQLBackup, MySQLBackupSpec,
    MySQLBackupStatus, MySQLSpec, MySQLStatus, Outcome, RestoreFrom, Retention, Scheduled, TableDigest,
    VolumeFile,
};
pub use validate::{Instance, Placement, Problem, Wanted};

/// The label whose value is the instance's name, on every child and every pod.
pub const LABEL: &str = "mysql-instance";
/// The annotation that lets a MySQL go without a last backup, where its value is `true`.
pub const SKIP_FINAL_BACKUP: &str = "mysql.operators.example.com/skip-final-backup";

/// The annotation that lets a MySQL whose volume is lost begin with an empty one, where its value is `true`.
pub const START_EMPTY: &str = "mysql.operators.example.com/start-empty";

/// The annotation that restarts the server whenever its value changes, whatever it is.
pub const RESTART: &str = "mysql.operators.example.com/restart";

/// The value of the label `app`.
const APP: &str = "mysql";
/// The label that says what a pod is for.
const ROLE: &str = "mysql.operators.example.com/role";
/// The annotation of a claim that says which MySQL, by its uid, it was made for.
const MADE_FOR: &str = "mysql.operators.example.com/made-for";
/// The annotation of a claim that says that a server was started on it: from then on something may be there.
const OPENED: &str = "mysql.operators.example.com/opened";
/// The annotation by which kubectl marks a Job that a person made from a CronJob; the record of such a Job has it too.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";
/// Its value.
const MANUAL: &str = "manual";
/// Why a backup that was complete is of no use any more.
const VOLUME_GONE: &str = "VolumeGone";
/// A label that every namespace has; its value is the namespace's name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The image that has the agent where nobody says which.
const AGENT_IMAGE: &str = "ballast:latest";

/// The operator of [`MySQL`] resources.
#[derive(Clone, Debug)]
pub struct MySQLOperator {
    /// The image that has the agent: the one that this program comes in.
    pub agent_image: String,
}

impl Default for MySQLOperator {
    fn default() -> Self {
        MySQLOperator { agent_image: AGENT_IMAGE.to_owned() }
    }
}

impl Operator for MySQLOperator {
    type Resource = MySQL;

    const NAME: &'static str = "mysql";
    const FIELD_MANAGER: &'static str = "ballast-mysql";
    const FINALIZER: Option<&'static str> = Some("mysql.operators.example.com/finalizer");

    fn relations(&self) -> Vec<Relation> {
        vec![
            Relation::owned::<StatefulSet>().removable().within(LABEL),
            Relation::owned::<Service>(),
            Relation::owned::<ConfigMap>().within(LABEL),
            Relation::owned::<CronJob>().removable().within(LABEL),
            // Those that restore, configure and look into images are its own; those that make backups are the CronJob's.
            Relation::owned::<Job>().removable().within(LABEL),
            Relation::observed::<Job>(LABEL),
            Relation::kept::<Secret>(LABEL).removable().within(LABEL),
            // People name their own ones to restore from: all are seen.
            Relation::kept::<PersistentVolumeClaim>(LABEL).removable(),
            Relation::kept::<MySQLBackup>(".spec.instance").removable(),
            Relation::observed::<Pod>(LABEL).within(MANAGED),
            Relation::observed::<Namespace>(NAMESPACE_NAME),
        ]
    }

    fn claims(&self, resource: &MySQL) -> Vec<ObjectRef> {
        let name = resource.name_any();
        let mut claims = vec![
            ObjectRef::of::<StatefulSet>(desired::server_name(&name)),
            ObjectRef::of::<Service>(desired::server_name(&name)),
            ObjectRef::of::<CronJob>(desired::cron_job_name(&name)),
            ObjectRef::of::<Job>(desired::restore_name(&name)),
            ObjectRef::of::<Job>(desired::script_name(&name)),
            ObjectRef::of::<Job>(desired::look_name(&name)),
            ObjectRef::of::<ConfigMap>(desired::script_name(&name)),
            ObjectRef::of::<Secret>(desired::secret_name(&name)),
            ObjectRef::of::<PersistentVolumeClaim>(desired::data_claim_name(&name)),
            ObjectRef::of::<PersistentVolumeClaim>(desired::backup_claim_name(&name)),
            ObjectRef::of::<MySQLBackup>(backups::upgrade_name(resource).0),
            ObjectRef::of::<MySQLBackup>(backups::final_name(resource).0),
        ];
        claims.extend(resource.namespace().map(ObjectRef::of::<Namespace>));
        let source = resource.spec.restore_from.iter();
        claims
            .extend(source.clone().filter_map(|from| from.backup.clone()).map(ObjectRef::of::<MySQLBackup>));
        claims.extend(
            source
                .filter_map(|from| Some(from.volume.as_ref()?.claim_name.clone()))
                .map(ObjectRef::of::<PersistentVolumeClaim>),
        );
        claims
    }

    fn further_claims(&self, view: &View<MySQL>) -> Vec<ObjectRef> {
        backups::jobs(view).into_iter().map(ObjectRef::of::<MySQLBackup>).collect()
    }

    fn questions(&self, view: &View<MySQL>) -> Vec<Question> {
        if view.is_being_deleted() { Vec::new() } else { server::questions(view) }
    }

    fn plan(&self, view: &View<MySQL>, answers: &Answers) -> Plan {
        plan::plan(self, view, answers)
    }
}
