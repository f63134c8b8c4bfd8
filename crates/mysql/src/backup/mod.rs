//! The operator of MySQLBackups: one backup from being asked for to being proved, and its file to its removal.
//!
//! | file | idea |
//! | --- | --- |
//! | `evidence` | what the Job and its pods prove |
//! | `plan` | the runbook |

mod evidence;
mod plan;

use ballast_operator::{Answers, MANAGED, ObjectRef, Operator, Plan, Question, Relation, View};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, PersistentVolumeClaim, Pod},
};
use kube_core::ResourceExt as _;

use crate::{
    AGENT_IMAGE, LABEL, NAMESPACE_NAME, desired,
    resource::{MySQL, MySQLBackup},
};

/// The label that Kubernetes puts on the pods of a Job. Its value is the Job's name, which is the backup's.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The operator of [`MySQLBackup`] resources.
#[derive(Clone, Debug)]
pub struct MySQLBackupOperator {
    /// The image that has the agent: the one that this program comes in.
    pub agent_image: String,
}

impl Default for MySQLBackupOperator {
    fn default() -> Self {
        MySQLBackupOperator { agent_image: AGENT_IMAGE.to_owned() }
    }
}

impl Operator for MySQLBackupOperator {
    type Resource = MySQLBackup;

    const NAME: &'static str = "mysqlbackup";
    const FIELD_MANAGER: &'static str = "ballast-mysqlbackup";
    const FINALIZER: Option<&'static str> = Some("mysql.operators.example.com/backup");

    fn relations(&self) -> Vec<Relation> {
        vec![
            Relation::owned::<Job>().removable().within(LABEL),
            // The manifest of a backup is the last line of its pod's log.
            Relation::observed::<Pod>(JOB_NAME).with_logs().within(MANAGED),
            // Those that are restored from it; the one that it is of is claimed.
            Relation::observed::<MySQL>(".spec.restoreFrom.backup"),
            Relation::observed::<PersistentVolumeClaim>(LABEL),
            Relation::observed::<Namespace>(NAMESPACE_NAME),
        ]
    }

    fn claims(&self, resource: &MySQLBackup) -> Vec<ObjectRef> {
        let claim = resource.status.as_ref().and_then(|status| status.claim.clone());
        let claim = claim.unwrap_or_else(|| desired::backup_claim_name(&resource.spec.instance));
        let mut claims = vec![
            ObjectRef::of::<Job>(resource.name_any()),
            ObjectRef::of::<Job>(plan::removal_name(resource)),
            ObjectRef::of::<MySQL>(resource.spec.instance.clone()),
            ObjectRef::of::<PersistentVolumeClaim>(claim),
        ];
        claims.extend(resource.namespace().map(ObjectRef::of::<Namespace>));
        claims
    }

    fn questions(&self, view: &View<MySQLBackup>) -> Vec<Question> {
        evidence::questions(view)
    }

    fn plan(&self, view: &View<MySQLBackup>, answers: &Answers) -> Plan {
        plan::plan(self, view, answers)
    }
}
