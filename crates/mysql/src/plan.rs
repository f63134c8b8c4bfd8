//! From what is seen to what is done. Reads like the runbook it replaces.

use std::sync::Arc;

use ballast_operator::{
    Answers, Effect, EventType, KindRef, Material, Object, Operator as _, Plan, Standing, Taken, Trouble,
    View, compare, resources::parse,
};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PersistentVolumeClaim};
use kube_core::ResourceExt as _;

use crate::{
    LABEL, MySQLOperator, START_EMPTY, backups,
    backups::Made,
    configure::{self, Script},
    desired::{self, agent},
    image::Look,
    names,
    resource::{Cause, MySQL, MySQLStatus},
    restore::{self, Restore},
    retire,
    server::{self, Change, Health, Target},
    status::{self, Report},
    validate::Instance,
};

/// Long enough that nobody guesses it, short enough to be typed.
const PASSWORD: Material = Material::Password { length: 24 };

pub(crate) fn plan(operator: &MySQLOperator, view: &View<MySQL>, answers: &Answers) -> Plan {
    let mut plan = Plan::empty();
    if view.is_being_deleted() {
        retire::retire(&mut plan, view);
        return plan;
    }
    match Instance::try_from(&view.resource) {
        Err(problems) => status::wait_for_a_better_spec(&mut plan, view, &problems),
        Ok(instance) if instance.paused => {
            let still = ("Paused", "nothing is changed while spec.paused is true");
            stand_still(&mut plan, view, &instance, answers, still, losing_the_volume(view));
        }
        Ok(instance) => bring_about(&mut plan, operator, view, &instance, answers),
    }
    plan
}

fn bring_about(
    plan: &mut Plan,
    operator: &MySQLOperator,
    view: &View<MySQL>,
    instance: &Instance,
    answers: &Answers,
) {
    let live = live(view);
    let beside = names::taken_beside(view);
    if let Some(taken) = names::taken(view).or_else(|| beside.clone().filter(|_| live.is_none())) {
        Report::blocked(view, "Failed", taken.trouble).add(plan, view, instance);
        plan.then(
            Effect::LookAgain(taken.look_again),
            "whoever holds the name may let it go without our being told",
        );
        return;
    }
    if let Some(Taken { trouble, look_again }) = beside {
        let still = (trouble.reason, "nothing is changed until that is");
        stand_still(plan, view, instance, answers, still, Some(trouble));
        plan.then(
            Effect::LookAgain(look_again),
            "whoever holds the name may let it go without our being told",
        );
        return;
    }
    let target = match server::target(view, instance, live.as_ref()) {
        Ok(target) => target,
        Err(refusal) => {
            let trouble = Trouble::new(refusal.reason, refusal.message());
            return Report::blocked(view, "Failed", trouble).add(plan, view, instance);
        }
    };
    if retire::served(view) && !has_data_claim(view) {
        return miss_the_volume(plan, view, instance);
    }
    if let Some(trouble) = losing_the_volume(view) {
        let still = (trouble.reason, "nothing is changed, for a new pod would find no volume");
        return stand_still(plan, view, instance, answers, still, Some(trouble));
    }
    hold(plan);
    keep_passwords(plan, view, instance);
    keep_volumes(plan, view, instance);
    let restored = match restore::restore(view, instance) {
        Restore::Done(from) => from,
        other => return begin_with(plan, operator, view, instance, other),
    };
    let want = stateful_set(operator, view, instance, &target, live.as_ref());
    look(plan, operator, view, instance, &target);
    serve(plan, view, instance, &target, live.as_ref(), want.clone());
    let health = server::health(view, answers, &target, live.as_ref(), Some(&want));
    let script = configure::script(view, instance);
    configure(plan, operator, view, instance, &target, &health, &script);
    back_up(plan, operator, view, instance, &target, live.is_some());
    let growing = grow(plan, view, instance);
    let trouble = trouble(view, instance, &target, &health, &script);
    let mut report = status::of_server(view, &target, &health, &script, growing, trouble);
    // Of a volume that is yet to be made nobody can say what is on it.
    report.status.restored_from = restored.filter(|_| has_data_claim(view)).or(report.status.restored_from);
    report.add(plan, view, instance);
    plan.then(
        Effect::LookAgain(server::freshness(view)),
        "whether a server serves is known only by asking it",
    );
}

/// Nothing is changed but the records of what runs by itself, and what there is is looked at.
fn stand_still(
    plan: &mut Plan,
    view: &View<MySQL>,
    instance: &Instance,
    answers: &Answers,
    (reason, why): (&'static str, &str),
    trouble: Option<Trouble>,
) {
    let live = live(view);
    let Ok(target) = server::target(view, instance, live.as_ref()) else {
        let report = Report { trouble, ..Report::before(view, "Pending", reason, why) };
        return report.add(plan, view, instance);
    };
    let image = live.as_ref().and_then(desired::image_of).map(str::to_owned);
    let target = Target { image: image.unwrap_or(target.image), change: Change::None, ..target };
    let health = server::health(view, answers, &target, live.as_ref(), None);
    let script = configure::script(view, instance);
    // The CronJob goes on, and what it makes is proved like any other.
    backups::record(plan, view);
    let trouble = trouble.or_else(|| self::trouble(view, instance, &target, &health, &script));
    let mut report = status::of_server(view, &target, &health, &script, None, trouble);
    report.progressing = (false, reason, why.to_owned());
    report.add(plan, view, instance);
    plan.then(
        Effect::LookAgain(server::freshness(view)),
        "whether a server serves is known only by asking it",
    );
}

/// What is wrong, the worst first.
fn trouble(
    view: &View<MySQL>,
    instance: &Instance,
    target: &Target,
    health: &Health,
    script: &Script,
) -> Option<Trouble> {
    let of_script = || match script {
        Script::Failed(trouble) | Script::Absent { trouble, .. } => Some(trouble.clone()),
        _ => None,
    };
    server::trouble(view, instance, target, health).or_else(of_script).or_else(|| backups::unrecorded(view))
}

fn live(view: &View<MySQL>) -> Option<StatefulSet> {
    match view.standing::<StatefulSet>(&desired::server_name(view.name())) {
        Ok(Standing::Ours(live)) => Some(*live),
        _ => None,
    }
}

/// The server as it is to be. Its pod keeps the agent that it has, unless a server runs neither in it nor after it.
fn stateful_set(
    operator: &MySQLOperator,
    view: &View<MySQL>,
    instance: &Instance,
    target: &Target,
    live: Option<&StatefulSet>,
) -> Object {
    let with = |agent_image: &str| {
        let server = (target.flavour, target.image.as_str());
        Object::of(&desired::stateful_set(view, instance, agent_image, server, target.upgrade))
    };
    let Some(has) = live.and_then(desired::agent_image_of) else { return with(&operator.agent_image) };
    let same = with(has);
    if server::runs(view) && !replaces_the_pod(view, &same) { same } else { with(&operator.agent_image) }
}

/// Whether an apply of this StatefulSet ends the pod that there is.
fn replaces_the_pod(view: &View<MySQL>, want: &Object) -> bool {
    let seen = view.children.counterpart(want);
    let changes =
        seen.and_then(|seen| compare(seen.value(), want.value(), MySQLOperator::FIELD_MANAGER, None));
    changes.into_iter().flatten().any(|change| change.path.starts_with(".spec.template."))
}

/// Before anything is made that holds data.
fn hold(plan: &mut Plan) {
    if let Some(finalizer) = MySQLOperator::FINALIZER {
        let because = "what becomes of the data is decided before the resource goes";
        plan.then(Effect::Hold { finalizer: finalizer.to_owned() }, because);
    }
}

fn keep_passwords(plan: &mut Plan, view: &View<MySQL>, instance: &Instance) {
    plan.apply(Object::of(&desired::secret(view, instance)), "passwords are kept apart from everything else");
    for (key, because) in
        [(agent::ROOT_PASSWORD, "the root user has its own"), (agent::PASSWORD, "the user logs in with it")]
    {
        let mint = Effect::Mint {
            secret: desired::secret_name(&instance.name),
            key: key.to_owned(),
            what: PASSWORD,
        };
        plan.then(mint, because);
    }
}

fn has_data_claim(view: &View<MySQL>) -> bool {
    data_claim(view).is_some()
}

fn data_claim(view: &View<MySQL>) -> Option<&Arc<Object>> {
    view.children.object(&KindRef::of::<PersistentVolumeClaim>(), &desired::data_claim_name(view.name()))
}

/// Somebody deleted the volume under a server, and it goes with the last pod that has it.
fn losing_the_volume(view: &View<MySQL>) -> Option<Trouble> {
    data_claim(view).filter(|claim| claim.is_being_deleted() && retire::served(view))?;
    let (name, claim) = (view.name(), desired::data_claim_name(view.name()));
    let message = format!(
        "the PersistentVolumeClaim {claim} is being deleted, and goes, with the data, as soon as its pod does: restart nothing. \
         A deletion can't be taken back: make a MySQLBackup of {name} and another MySQL with restoreFrom, or delete the MySQL \
         {name}, of which a last backup is made"
    );
    Some(Trouble::new("VolumeGoing", message))
}

/// An empty volume in the place of one that is lost would look like all is well. Who wants it says so; then what is known
/// of the lost one is forgotten first, and the next round finds a new instance.
fn miss_the_volume(plan: &mut Plan, view: &View<MySQL>, instance: &Instance) {
    let (name, claim) = (view.name(), desired::data_claim_name(view.name()));
    if view.resource.annotations().get(START_EMPTY).is_none_or(|value| value != "true") {
        let backup = backups::newest(view).unwrap_or_else(|| "NAME".to_owned());
        let message = format!(
            "the PersistentVolumeClaim {claim}, which the data was on, is gone, and no empty one takes its place: make another \
             MySQL with restoreFrom.backup {backup}; or, where the volume itself is still there, make that claim again with the \
             label {LABEL}={name}; or say with `kubectl annotate mysql {name} {START_EMPTY}=true` that it is to begin empty"
        );
        return Report::blocked(view, "Failed", Trouble::new("VolumeLost", message))
            .add(plan, view, instance);
    }
    retire::remove_job(plan, view, &desired::script_name(name), "what it configured is gone");
    retire::remove_job(plan, view, &desired::restore_name(name), "what it restored is gone");
    let note = format!("begins with an empty volume in the place of the lost one: {START_EMPTY} is true");
    plan.event(EventType::Warning, "StartsEmpty", "Reconcile", note, "people should know of it");
    let mut report = Report::before(view, "Starting", "Starting", "it begins with an empty volume");
    report.status = MySQLStatus {
        flavour: None,
        version: None,
        restored_from: None,
        init_script_done: false,
        ..report.status
    };
    report.add(plan, view, instance);
    plan.then(Effect::LookAgain(server::freshness(view)), "a status that is written makes no noise here");
}

/// Volumes that are not there are made first; those that are to grow do so when all else is done, because it may be
/// refused.
fn keep_volumes(plan: &mut Plan, view: &View<MySQL>, instance: &Instance) {
    for (claim, because) in volumes(view, instance) {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        if view.children.get::<PersistentVolumeClaim>(name).is_none() {
            plan.apply(Object::of(&claim), because);
        }
    }
}

fn volumes(view: &View<MySQL>, instance: &Instance) -> [(PersistentVolumeClaim, String); 2] {
    [
        (desired::data_claim(view, instance), format!("the data has {}", instance.size)),
        (desired::backup_claim(view, instance), format!("backups have {}", instance.backup_size)),
    ]
}

/// Lets volumes grow, and says whether one is about to.
fn grow(plan: &mut Plan, view: &View<MySQL>, instance: &Instance) -> Option<String> {
    let mut growing = None;
    for (claim, because) in volumes(view, instance) {
        let name = claim.metadata.name.clone().unwrap_or_default();
        let Some(Ok(live)) = view.children.get::<PersistentVolumeClaim>(&name) else { continue };
        plan.apply(Object::of(&claim), because);
        let has = live.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage").cloned());
        let asked = desired::requested(&claim);
        if let (Some(has), Some(asked)) = (has, asked)
            && parse(&has.0).is_some_and(|has| parse(&asked.0).is_some_and(|asked| has < asked))
        {
            growing = Some(format!("the volume of {name} grows from {} to {}", has.0, asked.0));
        }
    }
    growing
}

/// An instance that begins with a backup has no server before it has that.
fn begin_with(
    plan: &mut Plan,
    operator: &MySQLOperator,
    view: &View<MySQL>,
    instance: &Instance,
    restore: Restore,
) {
    let report = match restore {
        Restore::Begin(source) => {
            let job = desired::restore_job(view, instance, &operator.agent_image, &source);
            plan.apply(
                Object::of(&job),
                format!("the instance begins with {} of {}", source.file, source.claim),
            );
            let note = format!("restores {} of {}", source.file, source.claim);
            plan.event(
                EventType::Normal,
                "Restoring",
                "Restore",
                note,
                "people see it with kubectl describe",
            );
            Report::before(view, "Restoring", "Restoring", "the backup is verified and loaded")
        }
        Restore::Waiting(trouble) => {
            let mut report = Report::before(view, "Pending", trouble.reason, trouble.message.clone());
            report.trouble = (trouble.reason != "BackupNotComplete").then_some(trouble);
            report
        }
        Restore::Refused(trouble) => Report::blocked(view, "Failed", trouble),
        Restore::TriedAgain(trouble) => Report {
            trouble: Some(trouble),
            ..Report::before(view, "Restoring", "Restoring", "the backup is to be verified and loaded")
        },
        Restore::Running | Restore::Done(_) => {
            Report::before(view, "Restoring", "Restoring", "the backup is verified and loaded")
        }
    };
    // What is restored may need more room than there is.
    grow(plan, view, instance);
    report.add(plan, view, instance);
    plan.then(Effect::LookAgain(server::freshness(view)), "what is waited for may belong to somebody else");
}

/// Another version is looked for before anything is done about it, and for no longer.
fn look(plan: &mut Plan, operator: &MySQLOperator, view: &View<MySQL>, instance: &Instance, target: &Target) {
    let job = desired::look_name(&instance.name);
    match &target.change {
        Change::LookFirst(Look::Begin) => {
            let job = desired::look_job(view, instance, &operator.agent_image);
            plan.apply(Object::of(&job), format!("whether there is a {} is not known yet", instance.server));
        }
        Change::LookFirst(Look::Outdated) => {
            retire::remove_job(plan, view, &job, "it looked into another image");
        }
        // What it found out is what all of these stand on.
        Change::LookFirst(_)
        | Change::BackUpFirst { .. }
        | Change::Stopped { .. }
        | Change::Refused(_)
        | Change::Underway { .. } => {}
        Change::None => {
            retire::remove_job(plan, view, &job, "what it found out is not asked any more");
        }
    }
}

fn serve(
    plan: &mut Plan,
    view: &View<MySQL>,
    instance: &Instance,
    target: &Target,
    live: Option<&StatefulSet>,
    want: Object,
) {
    if let Change::BackUpFirst { backup: Made::Absent } = &target.change {
        let (name, prefix) = backups::upgrade_name(&view.resource);
        let backup = desired::backup(view, name, Some(prefix), Cause::BeforeUpgrade, None);
        plan.apply(Object::of(&backup), "before the version is changed there is a way back");
        let note = format!("a backup is made before {} is replaced by {}", target.image, instance.image);
        plan.event(EventType::Normal, "BackingUp", "Upgrade", note, "people see it with kubectl describe");
    }
    plan.apply(Object::of(&desired::service(view, instance)), "clients find the server under one name");
    // What somebody wrote there is put right, and is said by that alone.
    let edited = view.was_edited(&want, MySQLOperator::FIELD_MANAGER, ".image");
    plan.apply(want, format!("one server of {}", target.image));
    let because = "people see it with kubectl describe";
    match live.and_then(desired::image_of) {
        None => {
            let note =
                format!("made the StatefulSet and the Service {}", desired::server_name(&instance.name));
            plan.event(EventType::Normal, "Created", "Create", note, because);
        }
        Some(image) if image != target.image && !edited => {
            let note = format!("from {image} to {}", target.image);
            plan.event(EventType::Normal, "Upgrading", "Upgrade", note, because);
        }
        Some(_) => {}
    }
}

/// The script is run once the server serves. That it is run once is held by a mark in the database itself.
fn configure(
    plan: &mut Plan,
    operator: &MySQLOperator,
    view: &View<MySQL>,
    instance: &Instance,
    target: &Target,
    health: &Health,
    script: &Script,
) {
    if let Script::Absent { is_over: true, .. } = script {
        retire::remove_job(plan, view, &desired::script_name(&instance.name), "the script may be there now");
    }
    let (Health::Serves(..), Script::Begin(config_map, key)) = (health, script) else { return };
    if let Some(text) = instance.script.as_ref().and_then(|script| script.inline.as_deref()) {
        plan.apply(
            Object::of(&desired::script(view, instance, text)),
            "the script reaches its Job as a file",
        );
    }
    let place = (config_map.clone(), key.clone());
    let job = desired::script_job(view, instance, &operator.agent_image, &target.image, place);
    plan.apply(Object::of(&job), "the database is configured once");
}

/// Backups by the clock, a record of each, and none for longer than asked for.
fn back_up(
    plan: &mut Plan,
    operator: &MySQLOperator,
    view: &View<MySQL>,
    instance: &Instance,
    target: &Target,
    served: bool,
) {
    let server = (target.flavour, target.image.as_str());
    match &instance.schedule {
        Some(schedule) if served => {
            let cron_job = desired::cron_job(view, instance, &operator.agent_image, server, schedule);
            plan.apply(Object::of(&cron_job), format!("a backup is made at {schedule}"));
        }
        Some(_) => {}
        None => retire::remove_cron_job(plan, view, "no backups are scheduled any more"),
    }
    backups::record(plan, view);
    backups::retain(plan, view, instance);
}
