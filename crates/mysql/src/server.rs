//! The server: which one is to run, whether it does, and what it says of itself.

use std::time::Duration;

use ballast_operator::{Answer, Answers, Object, Operator as _, Question, Trouble, View, compare, pod};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ContainerState, Pod},
};

use crate::{
    MySQLOperator,
    ask::{Ask, ServerStatus, Told, server},
    backups::{self, Made},
    desired::{self, CONTAINER, agent, image_of, is_upgrade},
    flavour::{Flavour, Server, Version},
    image::{self, Look},
    resource::MySQL,
    upgrade::{Path, Refusal, path, supported},
    validate::Instance,
};

/// How often a server is asked that answered, or that nobody can reach.
const QUIET: Duration = Duration::from_secs(10);
/// How often it is asked while something is wrong or on its way.
const BUSY: Duration = Duration::from_secs(1);

/// Why a server is not as it should be that denies root.
pub(crate) const PASSWORD_UNKNOWN: &str = "PasswordUnknown";

/// Below this part of the volume, free space is running out; above twice that, it no longer is.
const LITTLE: u64 = 5;

/// What the agent says in the end of a server that ended on such a volume.
const NEARLY_FULL: &str = "the volume is nearly full";
/// What it says of data that a newer version opened.
const MUST_NOT_OPEN: &str = "must not open";
/// What it says of data that an older version wrote, which nobody asked it to upgrade.
const UNASKED: &str = "--upgrade";

/// What is asked of the server's pod.
pub(crate) fn questions(view: &View<MySQL>) -> Vec<Question> {
    let Some(pod) = server_pod(view) else { return Vec::new() };
    let name = pod.metadata.name.clone().unwrap_or_default();
    let question = ask(&pod).and_then(|ask| Question::new(name.clone(), name, &ask, freshness(view)).ok());
    question.into_iter().collect()
}

/// How old an answer may be, and when to ask again.
pub(crate) fn freshness(view: &View<MySQL>) -> Duration {
    let conditions = view.resource.status.iter().flat_map(|status| &status.conditions);
    let well =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status != "False");
    if well { QUIET } else { BUSY }
}

/// The server's pod, unless it is on its way out.
pub(crate) fn server_pod(view: &View<MySQL>) -> Option<Pod> {
    let pod = view.children.get::<Pod>(&desired::server_pod(view.name()))?.ok()?;
    (!pod::is_going(&pod) && !pod::is_finished(&pod)).then_some(pod)
}

/// Whether a server runs, or did so in the pod that there is: one that comes up after a crash must not be disturbed.
pub(crate) fn runs(view: &View<MySQL>) -> bool {
    server_pod(view).is_some_and(|pod| was_started(&pod))
}

/// Whether a server was started in the pod that there is, also where that one ended or goes. `None`: there is no pod to
/// judge by.
pub(crate) fn ran(view: &View<MySQL>) -> Option<bool> {
    let pod = view.children.get::<Pod>(&desired::server_pod(view.name()))?;
    // What can't be read may be anything.
    Some(pod.map_or(true, |pod| was_started(&pod) || pod::is_finished(&pod)))
}

fn was_started(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let waits = |state: Option<&ContainerState>| state.is_none_or(|state| state.waiting.is_some());
    statuses.into_iter().any(|container| {
        container.name == CONTAINER && (container.restart_count > 0 || !waits(container.state.as_ref()))
    })
}

fn ask(pod: &Pod) -> Option<Ask> {
    let status = pod.status.as_ref()?;
    let address = status.pod_ip.clone().filter(|address| !address.is_empty())?;
    let container =
        status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER)?;
    container.state.as_ref()?.running.as_ref()?;
    let instance =
        format!("{} {}", container.restart_count, container.container_id.as_deref().unwrap_or_default());
    Some(Ask::Server { address, port: agent::PORT, instance })
}

/// The server that is to run now, and what stands between it and the one that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) flavour: Flavour,
    pub(crate) image: String,
    /// Whether it may open data of an older series.
    pub(crate) upgrade: bool,
    pub(crate) change: Change,
}

/// Where a change of the version is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// There is none.
    None,
    /// It is not carried out.
    Refused(Refusal),
    /// It waits for what is in the image that is wanted.
    LookFirst(Look),
    /// It waits for a complete backup, which is to be asked for where it is not there.
    BackUpFirst { backup: Made },
    /// The backup failed, and so it is not carried out.
    Stopped { why: String },
    /// It is being carried out: the data was written by this one.
    Underway { from: Server },
}

/// Which server is to run. `Err`: none, because the one that is wanted is not run at all.
pub(crate) fn target(
    view: &View<MySQL>,
    instance: &Instance,
    live: Option<&StatefulSet>,
) -> Result<Target, Refusal> {
    let status = view.resource.status.as_ref();
    let accepted = live.and_then(image_of).or_else(|| status.and_then(|status| status.image.as_deref()));
    let wrote = wrote(view);
    let flavour = wrote.map_or(instance.server.flavour, |wrote| wrote.flavour);
    let go = || {
        let sticky = live.filter(|live| image_of(live) == Some(&instance.image)).map(is_upgrade);
        let older = wrote.filter(|wrote| wrote.version.series() < instance.server.version.series());
        let upgrade = sticky.unwrap_or(older.is_some());
        let from = match image::look(view, instance) {
            // Within a series the server needs nobody's leave, and may fail all the same.
            Look::Found(found) if older.is_none() => wrote.filter(|wrote| wrote.version < found.version),
            _ => older.filter(|_| upgrade),
        };
        let change = from.map_or(Change::None, |from| Change::Underway { from });
        Target { flavour: instance.server.flavour, image: instance.image.clone(), upgrade, change }
    };
    let stay = |image: &str, change| Target {
        flavour,
        image: image.to_owned(),
        upgrade: live.is_some_and(is_upgrade),
        change,
    };
    let (Some(accepted), Some(wrote)) = (accepted, wrote) else {
        return supported(&instance.server).map(|()| go());
    };
    if accepted == instance.image {
        return Ok(go());
    }
    // What ran before can be had: somebody else wrote another image into the StatefulSet.
    let is_known = status.and_then(|status| status.image.as_ref()) == Some(&instance.image);
    let way = match path(&wrote, &instance.server) {
        Path::Refused(refusal) => Path::Refused(refusal),
        way if is_known => way,
        // Which one of a series it is, is known only to those who looked.
        _ => match image::look(view, instance) {
            Look::Found(found) => path(&wrote, &found),
            look => return Ok(stay(accepted, Change::LookFirst(look))),
        },
    };
    Ok(match way {
        Path::Refused(refusal) => stay(accepted, Change::Refused(refusal)),
        Path::Open => match backups::before_upgrade(view) {
            Made::Complete => go(),
            Made::Failed(why) => stay(accepted, Change::Stopped { why }),
            backup => stay(accepted, Change::BackUpFirst { backup }),
        },
        Path::Same => go(),
    })
}

/// Who wrote the data, as far as is known: who served last.
fn wrote(view: &View<MySQL>) -> Option<Server> {
    let status = view.resource.status.as_ref()?;
    Some(Server { flavour: status.flavour?, version: Version::parse(status.version.as_deref()?)? })
}

/// Whether the server serves.
#[derive(Clone, Debug)]
pub(crate) enum Health {
    /// It ran a query, and is the one that is wanted.
    Serves(Server, ServerStatus),
    /// It does not yet, or not as it is wanted.
    Starting(String),
    /// It does not, though Kubernetes thinks that it runs.
    Fails(String),
    /// It serves others, and does not know the password that there is for root.
    Denies(String),
    /// Nobody knows.
    Unknown(String),
}

/// `want` is the StatefulSet as it should be, where it matters what it should be.
pub(crate) fn health(
    view: &View<MySQL>,
    answers: &Answers,
    target: &Target,
    live: Option<&StatefulSet>,
    want: Option<&Object>,
) -> Health {
    let starting = |why: &str| Health::Starting(why.to_owned());
    let Some(live) = live else { return starting("the server is about to be made") };
    let Some(found) = server_pod(view) else { return starting("there is no pod yet") };
    if !is_current(view, live, want) || pod::image(&found, CONTAINER) != Some(&target.image) {
        return starting("the pod is being replaced");
    }
    if let Some(why) = pod::unschedulable(&found) {
        return Health::Starting(format!("the pod waits for a machine: {why}"));
    }
    let name = desired::server_pod(view.name());
    let told = match (ask(&found), answers.get(&name)) {
        (None, _) => return starting("the server is not running yet"),
        (Some(_), None) => return Health::Unknown(format!("{name} was not asked")),
        (Some(_), Some(Answer::Silent { why })) => {
            return Health::Unknown(format!("{name} could not be asked: {why}"));
        }
        (Some(_), Some(Answer::Said(_))) => answers.read::<Told>(&name),
    };
    match told {
        Ok(Told::Fares(said)) => fares(said, target, &found),
        Ok(Told::Unreachable { why }) => Health::Unknown(format!("{name} could not be asked: {why}")),
        Ok(Told::Refuses) => starting("the agent does not listen yet"),
        Ok(Told::Silent) => Health::Fails(format!("{name} takes connections and says nothing")),
        Ok(Told::Babbles { said }) => {
            Health::Fails(format!("{name} does not speak as the agent does: {said:?}"))
        }
        Err(failure) => Health::Unknown(format!("{name} was not understood: {failure}")),
    }
}

fn fares(said: ServerStatus, target: &Target, found: &Pod) -> Health {
    match server(&said.flavour, &said.version) {
        _ if said.denied => Health::Denies(said.message),
        _ if said.failed => Health::Fails(said.message),
        _ if !said.ready && said.message.is_empty() => Health::Starting("no query succeeded yet".to_owned()),
        _ if !said.ready => Health::Starting(said.message),
        None => {
            Health::Fails(format!("it calls itself {} {}, which is unknown here", said.flavour, said.version))
        }
        Some(server) if server.flavour != target.flavour => {
            Health::Fails(format!("{server} runs where {} was wanted", target.flavour))
        }
        Some(_) if !pod::is_ready(found) => Health::Starting("no client is let in yet".to_owned()),
        Some(server) => Health::Serves(server, said),
    }
}

/// Whether the StatefulSet is as wanted, and its own report speaks of that.
fn is_current(view: &View<MySQL>, live: &StatefulSet, want: Option<&Object>) -> bool {
    let same = want.is_none_or(|want| {
        let seen = view.children.counterpart(want);
        seen.is_some_and(|seen| {
            compare(seen.value(), want.value(), MySQLOperator::FIELD_MANAGER, None).is_none()
        })
    });
    let status = live.status.clone().unwrap_or_default();
    let current = status.observed_generation >= live.metadata.generation;
    let updated =
        status.updated_replicas.unwrap_or(0) >= 1 || status.current_revision == status.update_revision;
    same && current && updated
}

/// What is wrong with the server, with the way back where an upgrade is what is wrong.
pub(crate) fn trouble(
    view: &View<MySQL>,
    instance: &Instance,
    target: &Target,
    health: &Health,
) -> Option<Trouble> {
    let pods: Vec<Pod> = server_pod(view).into_iter().collect();
    let failing = match health {
        Health::Serves(_, said) => little_space(view, instance, said),
        Health::Fails(why) => Some(Trouble::new("NotServing", why.clone())),
        Health::Denies(why) => Some(Trouble::new(PASSWORD_UNKNOWN, password_unknown(view, why))),
        _ => pod::trouble(&pods, CONTAINER).map(|trouble| with_remedy(view, instance, trouble)),
    };
    match (&target.change, failing) {
        (Change::Refused(refusal), _) => Some(Trouble::new(
            "UpgradeRefused",
            format!(
                "the change of the version is not carried out, and the server goes on as it is: {}",
                refusal.message()
            ),
        )),
        (Change::LookFirst(Look::Lacking(why)), _) => Some(Trouble::new(
            "VersionNotAvailable",
            format!(
                "there is no {} to be had from {}, so the server is left as it is: {why}. Set mysqlVersion to one that \
                 there is, or delete the Job {} to have it looked for again",
                instance.server,
                instance.image,
                desired::look_name(&instance.name)
            ),
        )),
        (Change::Stopped { why }, _) => Some(Trouble::new(
            "UpgradeStopped",
            format!(
                "there is no complete backup to go back to, so the server is left as it is: {why}. Delete the \
                 MySQLBackup {} to have it tried again, or set mysqlVersion back",
                backups::upgrade_name(&view.resource).0
            ),
        )),
        (Change::Underway { from }, Some(trouble)) => {
            let way = way_back(view, instance, from);
            Some(Trouble::new("UpgradeFailed", format!("{}. {way}", trouble.message)))
        }
        (_, trouble) => trouble,
    }
}

/// What can be done about it depends on who still knows the password.
fn password_unknown(view: &View<MySQL>, why: &str) -> String {
    let (name, secret) = (view.name(), desired::secret_name(view.name()));
    format!(
        "the server goes on, and does not let root in with {} of the Secret {secret}, so no backup can be made: {why}. \
         Put the password that it knows into that Secret; from then on a change of it is told to the server. Where nobody \
         knows it any more, make another MySQL with restoreFrom and the last backup of {name}",
        agent::ROOT_PASSWORD
    )
}

fn way_back(view: &View<MySQL>, instance: &Instance, from: &Server) -> String {
    let backup = backups::last_before_upgrade(view);
    let backup = backup.map_or_else(String::new, |name| {
        let instead = restore_into_another(&from.version, &name);
        format!("; where the new version already changed the data, {instead}")
    });
    // Within a series only the whole version says which one.
    let same = from.version.series() == instance.server.version.series();
    let patch = from.version.patch.filter(|_| same);
    let to = Version { patch, ..from.version };
    format!("The way back: set mysqlVersion to {to}{backup}")
}

/// What a pod says has one remedy in some cases. A server that ended on a volume on which there is nothing left, as the
/// agent says, needs one thing only; and where an image is not to be had, another is; what a newer one opened, an older
/// one never does again.
fn with_remedy(view: &View<MySQL>, instance: &Instance, trouble: Trouble) -> Trouble {
    let Trouble { reason, message } = trouble;
    if message.contains(NEARLY_FULL) {
        let message = format!("{message}. Raise storageSize, which is {}", instance.size);
        return Trouble::new("StorageLow", message);
    }
    if reason == pod::IMAGE_PULL_FAILED && message.contains(&instance.image) {
        let message =
            format!("{message}. Where there is no such image, set mysqlVersion to one that there is");
        return Trouble::new(reason, message);
    }
    if message.contains(UNASKED) {
        let message = format!(
            "{message}. Set mysqlVersion to the version that wrote it first: from there it is changed after a backup"
        );
        return Trouble::new(reason, message);
    }
    if message.contains(MUST_NOT_OPEN)
        && let Some(backup) = backups::last_before_upgrade(view)
    {
        let why =
            format!("{message}. To go back, {}", restore_into_another(&instance.server.version, &backup));
        return Trouble::new(reason, why);
    }
    Trouble::new(reason, message)
}

fn restore_into_another(version: &Version, backup: &str) -> String {
    format!("make another MySQL with mysqlVersion {version} and restoreFrom.backup {backup}")
}

/// Whether the volume is nearly full. Once it is said, it is said until there is plenty.
fn little_space(view: &View<MySQL>, instance: &Instance, said: &ServerStatus) -> Option<Trouble> {
    let all = said.data_bytes.saturating_add(said.free_bytes);
    let conditions = view.resource.status.iter().flat_map(|status| &status.conditions);
    let was = conditions
        .into_iter()
        .any(|condition| condition.reason == "StorageLow" && condition.status == "True");
    let limit = if was { 2 * LITTLE } else { LITTLE };
    if all == 0 || said.free_bytes >= all / 100 * limit {
        return None;
    }
    let message = format!(
        "less than {} of a hundred parts of the volume are free: raise storageSize, which is {}",
        2 * LITTLE,
        instance.size
    );
    Some(Trouble::new("StorageLow", message))
}
