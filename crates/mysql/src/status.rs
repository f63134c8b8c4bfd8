//! What is said of an instance.

use ballast_operator::{ConditionStatus, Conditioned, Plan, Trouble, View};
use kube_core::object::HasStatus;

use crate::{
    backups,
    configure::Script,
    image::Look,
    resource::{MySQL, MySQLStatus},
    server::{Change, Health, PASSWORD_UNKNOWN, Target},
    validate::{Instance, Problem},
};

/// What the seed says of an instance that is ready.
const RUNNING: &str = "MySQL instance is running";

/// The status in the making: what it was, with what of it is new.
pub(crate) struct Report {
    pub(crate) phase: &'static str,
    pub(crate) ready: (ConditionStatus, &'static str, String),
    pub(crate) progressing: (bool, &'static str, String),
    pub(crate) trouble: Option<Trouble>,
    /// What else is known now.
    pub(crate) status: MySQLStatus,
}

impl Report {
    /// Something that has not begun to serve.
    pub(crate) fn before(
        view: &View<MySQL>,
        phase: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        Report {
            phase,
            ready: (ConditionStatus::False, reason, message.clone()),
            progressing: (true, reason, message),
            trouble: None,
            status: view.resource.status.clone().unwrap_or_default(),
        }
    }

    /// The same, and nothing happens until somebody does something.
    pub(crate) fn blocked(view: &View<MySQL>, phase: &'static str, trouble: Trouble) -> Self {
        let mut report = Report::before(view, phase, trouble.reason, trouble.message.clone());
        report.progressing = (false, trouble.reason, "nothing is changed until that is".to_owned());
        report.trouble = Some(trouble);
        report
    }

    /// Adds it to a plan, with what is known of the backups.
    pub(crate) fn add(self, plan: &mut Plan, view: &View<MySQL>, instance: &Instance) {
        let healthy = backups::healthy(view, instance);
        backups::announce(plan, view, &healthy);
        let trouble = with_what_failed(view, self.trouble);
        let message = match (&trouble, self.ready.0) {
            (_, ConditionStatus::True) => RUNNING.to_owned(),
            (Some(trouble), _) => trouble.message.clone(),
            (None, _) => self.ready.2.clone(),
        };
        let (status, reason, text) = self.ready;
        let conditions = view.conditions().set("Ready", status, reason, text);
        let (progresses, reason, text) = self.progressing;
        let conditions = conditions.set("Progressing", progresses, reason, text).degraded(trouble).set(
            "BackupHealthy",
            healthy.status,
            healthy.reason,
            healthy.message,
        );
        let status = MySQLStatus {
            phase: self.phase.to_owned(),
            message,
            last_backup: backups::last_complete(view),
            observed_generation: view.generation(),
            schedule: backups::scheduled(view, instance),
            conditions: conditions.into_list(),
            ..self.status
        };
        plan.report(view, status);
        if let Some(after) = healthy.look_again.and_then(|after| after.try_into().ok()) {
            plan.then(
                ballast_operator::Effect::LookAgain(after),
                "a backup that is not tried makes no noise",
            );
        }
    }
}

/// What is wrong, and then what else went wrong in the last round: neither hides the other.
pub(crate) fn with_what_failed<R>(view: &View<R>, trouble: Option<Trouble>) -> Option<Trouble>
where
    R: kube_core::Resource<DynamicType = ()> + HasStatus<Status: Conditioned>,
{
    match (trouble, view.last_trouble()) {
        (Some(own), Some(failed)) => {
            let message = format!("{}. Besides, {}: {}", own.message, failed.reason, failed.message);
            Some(Trouble::new(own.reason, message))
        }
        (own, failed) => own.or(failed),
    }
}

/// The spec can't be understood, and nothing is done about it.
pub(crate) fn wait_for_a_better_spec(plan: &mut Plan, view: &View<MySQL>, problems: &[Problem]) {
    let old = view.resource.status.clone().unwrap_or_default();
    let conditions = view.conditions().invalid_spec(problems).into_list();
    plan.report(view, MySQLStatus { conditions, ..old });
}

/// What is said of an instance whose server is there or about to be.
pub(crate) fn of_server(
    view: &View<MySQL>,
    target: &Target,
    health: &Health,
    script: &Script,
    growing: Option<String>,
    trouble: Option<Trouble>,
) -> Report {
    let mut status = view.resource.status.clone().unwrap_or_default();
    status.image = Some(target.image.clone());
    if let Health::Serves(server, said) = health {
        status.flavour = Some(server.flavour);
        status.version = Some(said.version.clone());
    }
    status.init_script_done = *script == Script::Done;
    let began = status.version.is_some();
    let ready = match (health, script) {
        (Health::Serves(..), Script::Failed(trouble) | Script::Absent { trouble, .. }) => {
            (ConditionStatus::False, trouble.reason, "the server serves, and is not configured".to_owned())
        }
        (Health::Serves(..), Script::Begin(..) | Script::Running) => {
            (ConditionStatus::False, "Configuring", "the init script is being run".to_owned())
        }
        (Health::Serves(server, _), _) => (ConditionStatus::True, "Serving", serving(server, target)),
        (Health::Starting(why), _) => {
            (ConditionStatus::False, if began { "Restarting" } else { "Starting" }, why.clone())
        }
        (Health::Fails(why), _) => (ConditionStatus::False, "NotServing", why.clone()),
        (Health::Denies(why), _) => (ConditionStatus::False, PASSWORD_UNKNOWN, why.clone()),
        (Health::Unknown(why), _) => (ConditionStatus::Unknown, "NotVerified", why.clone()),
    };
    let progressing = match (&target.change, health, script) {
        (Change::LookFirst(Look::Begin | Look::Outdated | Look::Running), ..) => (
            true,
            "Looking",
            "the image of the other version is looked into before the server is touched".to_owned(),
        ),
        (Change::BackUpFirst { .. }, ..) => {
            (true, "BackingUp", "the version is changed after a complete backup".to_owned())
        }
        (Change::Underway { from }, ..) if !matches!(health, Health::Serves(..)) => {
            (true, "Upgrading", format!("the data of {from} is opened by {}", target.image))
        }
        (_, Health::Starting(why), _) => (true, ready.1, why.clone()),
        (_, Health::Serves(..), Script::Begin(..) | Script::Running) => {
            (true, "Configuring", ready.2.clone())
        }
        _ => match growing {
            Some(how) => (true, "Growing", how),
            None => (false, "Settled", "nothing is being changed".to_owned()),
        },
    };
    let phase = match (ready.0, progressing.1) {
        (_, "Looking" | "BackingUp" | "Upgrading") => "Upgrading",
        (ConditionStatus::True, _) => "Ready",
        (ConditionStatus::Unknown, _) => "Unknown",
        (ConditionStatus::False, "Configuring") => "Configuring",
        (ConditionStatus::False, _) if trouble.is_some() => "Failed",
        (ConditionStatus::False, _) => "Starting",
    };
    Report { phase, ready, progressing, trouble, status }
}

fn serving(server: &crate::flavour::Server, target: &Target) -> String {
    match target.image.rsplit_once(':').and_then(|(_, tag)| crate::flavour::Version::parse(tag)) {
        Some(wanted) if !server.version.satisfies(&wanted) => {
            format!("{server} answers queries; the image {} has no {wanted}", target.image)
        }
        _ => format!("{server} answers queries"),
    }
}
