//! The operators with one classic mistake each. What the real ones plan is changed on its way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ballast_mysql::{MySQL, MySQLBackup, MySQLBackupOperator, MySQLOperator, Outcome};
use ballast_operator::{
    Answers, DataReason, Effect, KindRef, Object, ObjectRef, Operator, Plan, Question, Relation, Removal,
    Target, View,
};
use ballast_proving::{Check, Life, Prove, Sample};
use k8s_openapi::api::{apps::v1::StatefulSet, batch::v1::Job, core::v1::PersistentVolumeClaim};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{lives, rules, world::World};

/// What operators of databases do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// `lastBackup` is set whether or not a backup was made.
    BackupWithoutProof,
    /// A backup is complete when its Job is.
    JobIsProof,
    /// The volume goes before the last backup is made.
    ClaimBeforeBackup,
    /// The script is run for each change of the spec.
    ScriptForEachSpec,
    /// A password is made by each process.
    PasswordOfProcess,
    /// A backup that failed counts among those that are kept.
    RetentionCountsFailures,
    /// The version is changed at once.
    UpgradeWithoutBackup,
    /// The server is started while its data is being restored.
    ServerBesideRestore,
    /// Only the process that asked for the backup goes on with the upgrade.
    StageInMemory,
}

/// How many processes there were.
static PROCESSES: AtomicUsize = AtomicUsize::new(0);

struct Broken {
    sound: MySQLOperator,
    mistake: Mistake,
    process: usize,
    asked: AtomicBool,
}

impl Broken {
    fn new(mistake: Mistake) -> Self {
        let process = PROCESSES.fetch_add(1, Ordering::Relaxed);
        Broken { sound: MySQLOperator::default(), mistake, process, asked: AtomicBool::new(false) }
    }
}

impl Operator for Broken {
    type Resource = MySQL;

    const NAME: &'static str = MySQLOperator::NAME;
    const FIELD_MANAGER: &'static str = MySQLOperator::FIELD_MANAGER;
    const FINALIZER: Option<&'static str> = MySQLOperator::FINALIZER;

    fn relations(&self) -> Vec<Relation> {
        self.sound.relations().into_iter().map(Relation::removable).collect()
    }

    fn claims(&self, resource: &MySQL) -> Vec<ObjectRef> {
        self.sound.claims(resource)
    }

    fn further_claims(&self, view: &View<MySQL>) -> Vec<ObjectRef> {
        self.sound.further_claims(view)
    }

    fn questions(&self, view: &View<MySQL>) -> Vec<Question> {
        self.sound.questions(view)
    }

    fn plan(&self, view: &View<MySQL>, answers: &Answers) -> Plan {
        let mut plan = self.sound.plan(view, answers);
        match self.mistake {
            Mistake::JobIsProof => {}
            Mistake::BackupWithoutProof => change_status(&mut plan, |status| {
                status["lastBackup"] = json!(view.resource.metadata.creation_timestamp);
            }),
            Mistake::ClaimBeforeBackup => {
                let kind = KindRef::of::<PersistentVolumeClaim>();
                let claim = view.children.object(&kind, &format!("mysql-pvc-{}", view.name()));
                if let Some(claim) =
                    claim.filter(|claim| view.is_being_deleted() && !claim.is_being_deleted())
                {
                    let right = Removal::Data(DataReason::DeletionPolicy);
                    let mut first = Plan::empty();
                    first.then(
                        Effect::Remove { target: Target::of(&kind, claim), right },
                        "it is being deleted",
                    );
                    first.steps.extend(plan.steps.into_iter().filter(|step| match &step.effect {
                        Effect::Remove { target, .. } => target.kind != kind,
                        _ => true,
                    }));
                    plan = first;
                }
            }
            Mistake::ScriptForEachSpec => self.configure_anew(&mut plan, view, answers),
            Mistake::PasswordOfProcess => change(&mut plan, "Secret", |secret| {
                secret["stringData"] = json!({"root-password": format!("of process {}", self.process)});
            }),
            Mistake::RetentionCountsFailures => {
                let mut backups: Vec<MySQLBackup> = view.children.list();
                backups.sort_by_key(|backup| backup.metadata.creation_timestamp.as_ref().map(|at| at.0));
                backups.pop();
                for backup in backups {
                    remove::<MySQLBackup>(&mut plan, view, &backup.name_any());
                }
            }
            Mistake::UpgradeWithoutBackup => {
                let version = &view.resource.spec.mysql_version;
                if version == "8.4" {
                    change(&mut plan, "StatefulSet", |set| {
                        let container = &mut set["spec"]["template"]["spec"]["containers"][0];
                        container["image"] = json!(format!("mysql:{version}"));
                        if let Some(words) = container["command"].as_array_mut()
                            && !words.contains(&json!("--upgrade"))
                        {
                            words.push(json!("--upgrade"));
                        }
                    });
                }
            }
            Mistake::ServerBesideRestore => {
                let restore = format!("mysql-restore-{}", view.name());
                let status = view.resource.status.clone().unwrap_or_default();
                if view.children.get::<Job>(&restore).is_some() && status.restored_from.is_none() {
                    let mut view = view.clone();
                    view.resource.status = Some(ballast_mysql::MySQLStatus {
                        restored_from: Some("it will be".to_owned()),
                        ..status
                    });
                    plan = self.sound.plan(&view, answers);
                }
            }
            Mistake::StageInMemory => {
                if plan.steps.iter().any(|step| is_apply(&step.effect, "MySQLBackup")) {
                    self.asked.store(true, Ordering::Relaxed);
                }
                let upgrades = |set: &Object| set.value().to_string().contains("--upgrade");
                let live =
                    view.children.object(&KindRef::of::<StatefulSet>(), &format!("mysql-{}", view.name()));
                if !self.asked.load(Ordering::Relaxed) && !live.is_some_and(|set| upgrades(set)) {
                    plan.steps.retain(
                        |step| !matches!(&step.effect, Effect::Apply(set) if set.kind() == "StatefulSet" && upgrades(set)),
                    );
                }
            }
        }
        plan
    }
}

impl Broken {
    /// The Job of another spec goes, and one with a mark of its own comes.
    fn configure_anew(&self, plan: &mut Plan, view: &View<MySQL>, answers: &Answers) {
        let generation = format!("--name={}", view.generation().unwrap_or_default());
        let name = format!("mysql-init-{}", view.name());
        let Some(job) = view.children.object(&KindRef::of::<Job>(), &name) else {
            let mut view = view.clone();
            if let Some(status) = &mut view.resource.status {
                status.init_script_done = false;
            }
            *plan = self.sound.plan(&view, answers);
            change(plan, "Job", |job| {
                let words = job["spec"]["template"]["spec"]["containers"][0]["command"].as_array_mut();
                for word in words.into_iter().flatten() {
                    if word.as_str().is_some_and(|word| word.starts_with("--name=")) {
                        *word = json!(generation);
                    }
                }
            });
            return;
        };
        let done = job.value().pointer("/status/succeeded") == Some(&json!(1));
        if done && !job.value().to_string().contains(&generation) && !job.is_being_deleted() {
            remove::<Job>(plan, view, &name);
        }
    }
}

fn is_apply(effect: &Effect, kind: &str) -> bool {
    matches!(effect, Effect::Apply(object) if object.kind() == kind)
}

/// Changes what is applied of a kind.
fn change(plan: &mut Plan, kind: &str, how: impl Fn(&mut Value)) {
    for step in plan.steps.iter_mut().filter(|step| is_apply(&step.effect, kind)) {
        if let Effect::Apply(object) = &mut step.effect {
            let mut value = object.value().clone();
            how(&mut value);
            *object = Object::new(value).unwrap();
        }
    }
}

fn change_status(plan: &mut Plan, how: impl Fn(&mut Value)) {
    for step in &mut plan.steps {
        if let Effect::Status(status) = &mut step.effect {
            how(status);
        }
    }
}

fn remove<K>(plan: &mut Plan, view: &View<MySQL>, name: &str)
where
    K: kube::Resource<DynamicType = ()>,
    K::Scope: ballast_operator::Scope,
{
    let kind = KindRef::of::<K>();
    if let Some(seen) = view.children.object(&kind, name).filter(|seen| !seen.is_being_deleted()) {
        let right = if kind.kind == "Job" {
            Removal::Child
        } else {
            Removal::Data(DataReason::Retention { rule: "one is kept".to_owned() })
        };
        plan.then(Effect::Remove { target: Target::of(&kind, seen), right }, "it is not wanted any more");
    }
}

/// The operator of backups, which may take a Job for a proof.
struct Believing {
    sound: MySQLBackupOperator,
    mistake: Mistake,
}

impl Operator for Believing {
    type Resource = MySQLBackup;

    const NAME: &'static str = MySQLBackupOperator::NAME;
    const FIELD_MANAGER: &'static str = MySQLBackupOperator::FIELD_MANAGER;
    const FINALIZER: Option<&'static str> = MySQLBackupOperator::FINALIZER;

    fn relations(&self) -> Vec<Relation> {
        self.sound.relations()
    }

    fn claims(&self, resource: &MySQLBackup) -> Vec<ObjectRef> {
        self.sound.claims(resource)
    }

    fn questions(&self, view: &View<MySQLBackup>) -> Vec<Question> {
        self.sound.questions(view)
    }

    fn plan(&self, view: &View<MySQLBackup>, answers: &Answers) -> Plan {
        let mut plan = self.sound.plan(view, answers);
        let job = view.children.object(&KindRef::of::<Job>(), view.name());
        let done = job.is_some_and(|job| job.value().pointer("/status/succeeded") == Some(&json!(1)));
        if self.mistake == Mistake::JobIsProof && done {
            change_status(&mut plan, |status| status["outcome"] = json!(Outcome::Complete));
        }
        plan
    }
}

/// The mistake is found in that life by that check.
fn check(mistake: Mistake, life: Life, check: Check) {
    let prove = Prove::new(move || Broken::new(mistake))
        .beside(move || Believing { sound: MySQLBackupOperator::default(), mistake });
    let sample = Sample { crashes: 24, write_faults: 0, watch_faults: 0, action_faults: 0 };
    let report = rules::held(prove.service(World::default()).life(life).sample(sample)).run();
    assert!(report.checks().contains(&check), "{mistake:?} was not caught by {check:?}\n{report}");
    println!("{mistake:?}\n{report}");
}

#[test]
fn a_last_backup_that_nobody_made_is_caught_at_the_write_that_says_it() {
    check(Mistake::BackupWithoutProof, lives::configured(), Check::Holds);
}

#[test]
fn a_backup_that_is_complete_because_its_job_is_is_caught() {
    check(Mistake::JobIsProof, lives::backed_up(), Check::Holds);
}

#[test]
fn a_volume_that_goes_before_the_last_backup_is_missed() {
    check(Mistake::ClaimBeforeBackup, lives::configured(), Check::Holds);
}

#[test]
fn a_script_that_is_run_twice_shows_in_the_data() {
    check(Mistake::ScriptForEachSpec, lives::configured(), Check::Holds);
}

#[test]
fn a_password_that_each_process_makes_is_not_repeatable() {
    check(Mistake::PasswordOfProcess, lives::configured(), Check::Repeatable);
}

#[test]
fn a_retention_that_counts_failures_deletes_the_last_good_backup() {
    check(Mistake::RetentionCountsFailures, lives::backed_up(), Check::Data);
}

#[test]
fn an_upgrade_without_a_backup_has_no_way_back() {
    check(Mistake::UpgradeWithoutBackup, lives::upgraded(), Check::Holds);
}

#[test]
fn a_server_that_is_started_beside_its_restore_is_ready_without_its_data() {
    check(Mistake::ServerBesideRestore, lives::restored(), Check::Holds);
}

#[test]
fn an_upgrade_whose_stage_is_in_memory_stops_in_a_crash() {
    check(Mistake::StageInMemory, lives::upgraded(), Check::Same);
}
