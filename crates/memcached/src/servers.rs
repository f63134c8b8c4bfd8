//! The servers: which pods can be asked, what they said, and what follows for a server that says nothing.
//!
//! Kubernetes' own probes only knock: a process that is stopped still has its connections taken by the kernel, so
//! it counts as alive and ready for ever. Whether a server serves is known when it answered `version`.
//!
//! **A server that is silent is replaced**, by removing its pod, when all of this holds:
//!
//! - It took the connection and said nothing, in every round since the status first said so, for at least
//!   [`PATIENCE`]. One answer in between, or one round in which it could not be asked, and the count begins anew.
//! - All its peers are up and of the wanted version: during an upgrade it is the version that is in doubt.
//! - Another server answers, or there is no other. Where all fall silent at once something is wrong that no new pod
//!   would mend.
//!
//! A server that can't be reached from here is never replaced for it.

use std::time::Duration;

use ballast_operator::{Answer, Answers, Question, View, pod};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};

use crate::{
    Ask, Cache, Memcached, SilentServer, Told,
    ask::Stats,
    desired::{CONTAINER, PORT},
};

/// How long a server has to be silent before it is replaced: four questions in a row.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How often servers are asked that all answered, or that nobody can reach.
const QUIET: Duration = Duration::from_secs(10);
/// How often servers are asked while something is wrong or on its way.
const BUSY: Duration = Duration::from_secs(3);

/// One pod as a server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) pod: String,
    /// The image that it is to run.
    pub(crate) image: String,
    /// As a client names it: `10.1.2.3:11211`.
    pub(crate) endpoint: String,
    /// Whether Kubernetes says that it is ready, so that it was asked.
    pub(crate) asked: bool,
    /// What it said. `Err` says why nothing is known.
    pub(crate) told: Result<Told, String>,
}

impl Server {
    pub(crate) fn serves(&self) -> bool {
        matches!(self.told, Ok(Told::Serves { .. }))
    }

    /// What keeps it from serving, where it was asked and did not answer as it should.
    pub(crate) fn fault(&self) -> Option<String> {
        let pod = &self.pod;
        match self.told.as_ref().ok()? {
            Told::Serves { .. } | Told::Unreachable { .. } => None,
            Told::Refuses => Some(format!("{pod} refuses connections")),
            Told::Silent => Some(format!("{pod} takes connections and says nothing")),
            Told::Babbles { said } => Some(format!("{pod} does not speak memcached's protocol: {said:?}")),
        }
    }

    /// Why nobody knows whether it serves, where nobody does.
    pub(crate) fn doubt(&self) -> Option<String> {
        match &self.told {
            Err(why) | Ok(Told::Unreachable { why }) if self.asked => {
                Some(format!("{} could not be asked: {why}", self.pod))
            }
            _ => None,
        }
    }
}

/// All servers, by the names of their pods.
#[derive(Clone, Debug)]
pub(crate) struct Servers(Vec<Server>);

/// What should be asked of the pods in the view.
pub(crate) fn questions(view: &View<Memcached>) -> Vec<Question> {
    let fresh = freshness(view);
    let pods: Vec<Pod> = view.children.list();
    let asks =
        pods.iter().filter(|pod| is_up(pod)).filter_map(|pod| Some((pod.metadata.name.clone()?, ask(pod)?)));
    asks.filter_map(|(name, ask)| Question::new(name.clone(), name, &ask, fresh).ok()).collect()
}

/// How old an answer may be, and when to ask again: soon unless all was well.
pub(crate) fn freshness(view: &View<Memcached>) -> Duration {
    let status = view.resource.status.as_ref();
    let amiss = status.is_none_or(|status| {
        status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "False")
    });
    if amiss { BUSY } else { QUIET }
}

fn ask(pod: &Pod) -> Option<Ask> {
    let status = pod.status.as_ref()?;
    let address = status.pod_ip.clone().filter(|address| !address.is_empty())?;
    let container = status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER);
    let instance = container.map(|container| {
        format!("{} {}", container.restart_count, container.container_id.as_deref().unwrap_or_default())
    });
    let port = u16::try_from(PORT).ok()?;
    Some(Ask { address, port, instance: instance.unwrap_or_default() })
}

/// Whether it is to stay, and Kubernetes says that it is ready.
fn is_up(found: &Pod) -> bool {
    !pod::is_going(found) && pod::is_ready(found)
}

impl Servers {
    /// The pods that are to stay, and what they said.
    pub(crate) fn of(pods: &[Pod], answers: &Answers) -> Self {
        let servers = pods.iter().map(|pod| {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let ask = ask(pod);
            Server {
                image: ballast_operator::pod::image(pod, CONTAINER).unwrap_or_default().to_owned(),
                endpoint: ask.as_ref().map(|ask| endpoint(&ask.address)).unwrap_or_default(),
                asked: is_up(pod) && ask.is_some(),
                told: told(answers, &name),
                pod: name,
            }
        });
        let mut servers: Vec<Server> = servers.collect();
        servers.sort_by(|one, other| one.pod.cmp(&other.pod));
        Servers(servers)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Server> {
        self.0.iter()
    }

    /// How many could be asked.
    pub(crate) fn asked(&self) -> i32 {
        i32::try_from(self.iter().filter(|server| server.asked).count()).unwrap_or(i32::MAX)
    }

    /// How many answered.
    pub(crate) fn serving(&self) -> i32 {
        i32::try_from(self.iter().filter(|server| server.serves()).count()).unwrap_or(i32::MAX)
    }

    /// Those that answered, as a client lists them.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.iter().filter(|server| server.serves()).map(|server| server.endpoint.clone()).collect();
        all.sort();
        all
    }

    /// The version that they say they run; several while one replaces the other.
    pub(crate) fn version(&self) -> Option<String> {
        let mut all: Vec<&str> = self.iter().filter_map(said).map(|(version, _)| version).collect();
        all.sort_unstable();
        all.dedup();
        (!all.is_empty()).then(|| all.join(", "))
    }

    pub(crate) fn stats(&self) -> Vec<Stats> {
        self.iter().filter_map(said).map(|(_, stats)| stats).collect()
    }

    /// Those that take connections and say nothing, with since when they do.
    pub(crate) fn silent(&self, old: &[SilentServer], now: Timestamp) -> Vec<SilentServer> {
        let silent = self.iter().filter(|server| server.told == Ok(Told::Silent));
        silent
            .map(|server| {
                let known = old.iter().find(|known| known.pod == server.pod);
                let since = known.map(|known| known.since.clone());
                let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
                SilentServer { pod: server.pod.clone(), since: since.unwrap_or(Time(now)) }
            })
            .collect()
    }

    /// The server that is to be replaced, where one is. What else must hold is for the caller to see to: that the
    /// Deployment is otherwise as it should be.
    pub(crate) fn to_replace<'s>(
        &self,
        silent: &'s [SilentServer],
        now: Timestamp,
    ) -> Option<&'s SilentServer> {
        let others_answer = self.serving() > 0 || self.0.len() == 1;
        let long = |silent: &&SilentServer| now.duration_since(silent.since.0).unsigned_abs() >= PATIENCE;
        silent.iter().find(long).filter(|_| others_answer)
    }

    /// Servers of another image than the wanted one: those that an upgrade has not come to yet.
    pub(crate) fn outdated(&self, cache: &Cache) -> Vec<&Server> {
        self.iter().filter(|server| server.image != cache.image).collect()
    }

    /// Why an upgrade must not go on: a server of the new image is up by all that Kubernetes knows, and does not
    /// serve.
    pub(crate) fn stopped_by(&self, cache: &Cache) -> Option<String> {
        if self.outdated(cache).is_empty() {
            return None;
        }
        self.iter().filter(|server| server.image == cache.image).find_map(Server::fault)
    }

    /// How to get back to what still serves, where an upgrade is under way.
    pub(crate) fn way_back(&self, cache: &Cache) -> Option<String> {
        let outdated = self.outdated(cache);
        let image = &outdated.iter().find(|server| server.serves()).or(outdated.first())?.image;
        let count = outdated.iter().filter(|server| server.image == *image && server.serves()).count();
        let serve = match count {
            0 => String::new(),
            1 => format!("1 node of {image} goes on serving; "),
            many => format!("{many} nodes of {image} go on serving; "),
        };
        let wanted = cache.image.rsplit_once(':').map(|(name, _)| name);
        let how = match image.rsplit_once(':') {
            Some((name, tag)) if Some(name) == wanted => format!("set spec.version back to {tag:?}"),
            _ => format!("set spec.image and spec.version back to {image}"),
        };
        Some(format!("{serve}{how}, or on to a version that works"))
    }
}

fn said(server: &Server) -> Option<(&str, Stats)> {
    match server.told.as_ref().ok()? {
        Told::Serves { version, stats } => Some((version, *stats)),
        _ => None,
    }
}

fn endpoint(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:{PORT}") } else { format!("{address}:{PORT}") }
}

fn told(answers: &Answers, pod: &str) -> Result<Told, String> {
    match answers.get(pod) {
        None => Err("it was not asked".to_owned()),
        Some(Answer::Silent { why }) => Err(why.clone()),
        Some(Answer::Said(_)) => answers.read(pod).map_err(|failure| failure.message),
    }
}
