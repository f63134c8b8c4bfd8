//! Whether another server can be had: its image is looked into before the one that serves is touched.

use ballast_operator::{View, pod};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use crate::{
    ask::server,
    desired::{self, CONTAINER},
    flavour::Server,
    jobs::{self, Progress},
    resource::MySQL,
    validate::Instance,
};

/// How long the pod of a Job that is done may be seen later than that: it is watched by itself.
const LATE: SignedDuration = SignedDuration::from_mins(2);

/// How far the looking is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nobody looks yet.
    Begin,
    /// What there is says nothing of the image that is wanted now, and has to go first.
    Outdated,
    /// Somebody looks.
    Running,
    /// What is wanted is not in it, or the image is not to be had.
    Lacking(String),
    /// This is in it, and is what is wanted.
    Found(Server),
}

/// What is known of the image that is wanted.
pub(crate) fn look(view: &View<MySQL>, instance: &Instance) -> Look {
    let name = desired::look_name(&instance.name);
    let Some(Ok(job)) = view.children.get::<Job>(&name) else { return Look::Begin };
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let image = pod.and_then(|pod| pod::image_in(pod, CONTAINER));
    if job.metadata.deletion_timestamp.is_some() || image != Some(&instance.image) {
        return Look::Outdated;
    }
    let pods = jobs::pods(view, &name);
    match jobs::progress(&job) {
        Progress::Running => {
            jobs::stuck(&pods, view.now).map_or(Look::Running, |trouble| Look::Lacking(trouble.message))
        }
        Progress::Failed => {
            let why = jobs::why_failed(&pods).or_else(|| jobs::given_up(&job));
            Look::Lacking(why.unwrap_or_else(|| "nobody said why".to_owned()))
        }
        Progress::Complete => match pods.last().and_then(jobs::last_words) {
            Some(words) => match server(&words.flavour, &words.version) {
                Some(found)
                    if found.flavour == instance.server.flavour
                        && found.version.satisfies(&instance.server.version) =>
                {
                    Look::Found(found)
                }
                Some(found) => Look::Lacking(format!("the image {} has {found}", instance.image)),
                None => Look::Lacking(format!("the image {} has {:?}", instance.image, words.version)),
            },
            None if pods.is_empty() && is_new(&job, view.now) => Look::Running,
            // Who knew what is in it is gone with its pod.
            None => Look::Outdated,
        },
    }
}

/// Whether a Job was done just now.
fn is_new(job: &Job, now: Timestamp) -> bool {
    let done = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
    done.is_some_and(|done| now.duration_since(done.0) < LATE)
}
