//! Whether the script was run.

use ballast_operator::{Trouble, View};
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
    /// It failed, and is not run again by itself: nobody knows what it did.
    Failed(Trouble),
}

pub(crate) fn script(view: &View<MySQL>, instance: &Instance) -> Script {
    let Some(script) = &instance.script else { return Script::None };
    if view.resource.status.as_ref().is_some_and(|status| status.init_script_done) {
        return Script::Done;
    }
    let name = desired::script_name(&instance.name);
    let Some(Ok(job)) = view.children.get::<Job>(&name) else {
        let (config_map, key) = place(script, &name);
        return Script::Begin(config_map, key);
    };
    match jobs::progress(&job) {
        Progress::Running => Script::Running,
        Progress::Complete => Script::Done,
        Progress::Failed => {
            let why = jobs::why_failed(&jobs::pods(view, &name)).or_else(|| jobs::given_up(&job));
            let why = why.unwrap_or_else(|| "nobody said why".to_owned());
            Script::Failed(Trouble::new(
                "InitScriptFailed",
                format!(
                    "the init script was not run to its end, and is not run again by itself: {why}. `kubectl logs \
                     job/{name}` says how far it came; put right what it left, then delete the Job"
                ),
            ))
        }
    }
}

fn place(script: &InitScript, own: &str) -> (String, String) {
    match &script.config_map {
        Some(ConfigMapScript { name, key }) => (name.clone(), key.clone()),
        None => (own.to_owned(), desired::agent::SCRIPT_FILE.to_owned()),
    }
}
