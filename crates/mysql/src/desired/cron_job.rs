//! The CronJob that makes backups by the clock, and from which people make them by hand.

use ballast_operator::View;
use k8s_openapi::{
    api::batch::v1::{CronJob, CronJobSpec, JobTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{Role, cron_job_name, job::dump_spec, labels, owned};
use crate::{flavour::Flavour, resource::MySQL, validate::Instance};

/// How many finished Jobs stay: their pods are the evidence of backups until it is recorded.
const HISTORY: i32 = 5;

pub(crate) fn cron_job(
    view: &View<MySQL>,
    instance: &Instance,
    agent_image: &str,
    server: (Flavour, &str),
    schedule: &str,
) -> CronJob {
    let name = &instance.name;
    CronJob {
        metadata: owned(view, cron_job_name(name), name, None),
        spec: Some(CronJobSpec {
            schedule: schedule.to_owned(),
            time_zone: Some("Etc/UTC".to_owned()),
            // Two at a time would only be slower.
            concurrency_policy: Some("Forbid".to_owned()),
            successful_jobs_history_limit: Some(HISTORY),
            failed_jobs_history_limit: Some(HISTORY),
            job_template: JobTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(name, Some(Role::Backup))),
                    ..ObjectMeta::default()
                }),
                spec: Some(dump_spec(name, agent_image, server, &instance.placement, None, false)),
            },
            ..CronJobSpec::default()
        }),
        status: None,
    }
}
