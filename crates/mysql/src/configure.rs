//! Whether the script was run.

use ballast_operator::{Standing, Trouble, View};
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;

use crate::{
    desired,
    jobs::{self, Progress},
    resource::{ConfigMapScript, InitScript, MySQL},
    validate::Instance,
};

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// There is none.
    None,
    /// It was run to its end.
    Done,
    /// It is to be run as soon as the server serves: from this ConfigMap, by this key.
    Begin(String, String),
    /// It is being run.
    Running,
    /// It was not run to its end. The trouble says whether that is tried again by itself: not where it was begun, for
    /// then nobody knows what it did.
    Failed(Trouble),
    /// It is not there. The one who looked says so no longer than for a while, and another looks.
    Absent { trouble: Trouble, is_over: bool },
}

/// How long it is not looked for that was not there.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// What the agent says of a script that is not there.
const NO_SCRIPT: &str = "NoScript";

pub(crate) fn script(view: &View<MySQL>, instance: &Instance) -> Script {
    let Some(script) = &instance.script else { return Script::None };
    if view.resource.status.as_ref().is_some_and(|status| status.init_script_done) {
        return Script::Done;
    }
    let name = desired::script_name(&instance.name);
    let Ok(Standing::Ours(job)) = view.standing::<Job>(&name) else {
        let (config_map, key) = place(script, &name);
        return Script::Begin(config_map, key);
    };
    if job.metadata.deletion_timestamp.is_some() {
        // Whatever it did, somebody wants it done anew.
        return Script::Running;
    }
    let pods = jobs::pods(view, &name);
    match jobs::progress(&job) {
        Progress::Complete => Script::Done,
        // A Job waits longer and longer between its tries. People need not.
        Progress::Running => match (jobs::stuck(&pods, view.now), jobs::why_tried_again(&pods)) {
            (None, None) => Script::Running,
            (Some(trouble), _) => Script::Failed(Trouble::new(
                "InitScriptFailed",
                format!(
                    "the init script is not begun yet: {}. Once that is put right it goes on; for another mysqlVersion, or \
                     another place, delete the Job {name}",
                    trouble.message
                ),
            )),
            (None, Some(why)) => Script::Failed(Trouble::new(
                "InitScriptFailed",
                format!("the init script could not be begun, which is tried again: {why}{}", origin(script)),
            )),
        },
        Progress::Failed if jobs::last_failure(&pods).is_some_and(|words| words.reason == NO_SCRIPT) => {
            let trouble = Trouble::new(
                "InitScriptFailed",
                format!("the init script is not there, and is looked for again{}", origin(script)),
            );
            let is_over = jobs::failed_at(&job).is_none_or(|at| view.now.duration_since(at) >= AGAIN);
            Script::Absent { trouble, is_over }
        }
        Progress::Failed => {
            let why = jobs::why_failed(&pods).or_else(|| jobs::given_up(&job));
            let why = why.unwrap_or_else(|| "nobody said why".to_owned());
            Script::Failed(Trouble::new(
                "InitScriptFailed",
                format!(
                    "the init script was not run to its end, and is not run again by itself: {why}{}. Put right what \
                     it left, then delete the Job {name}",
                    origin(script)
                ),
            ))
        }
    }
}

/// Where a script is that nobody could read, for those who know only what they wrote.
fn origin(script: &InitScript) -> String {
    let place = script.config_map.as_ref();
    place
        .map(|place| format!(" (the script is {} of the ConfigMap {})", place.key, place.name))
        .unwrap_or_default()
}

fn place(script: &InitScript, own: &str) -> (String, String) {
    match &script.config_map {
        Some(ConfigMapScript { name, key }) => (name.clone(), key.clone()),
        None => (own.to_owned(), desired::agent::SCRIPT_FILE.to_owned()),
    }
}
