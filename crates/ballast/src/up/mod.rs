//! `ballast up`: a Kubernetes with every operator in it, and a node beside it, until it is told to stop.
//!
//! **Guarantees.** One address is listened on, the API's. When `ready` is printed the API answers, the definitions
//! are served, the node takes pods and the kubeconfig is there. A stop is in order: the operators finish what they
//! carry out, pods and node end, requests are answered, the data directory is let go, a passing kubeconfig is taken
//! away. A data directory that can no longer be written ends it, too: what it can't keep it does not take.

pub(crate) mod ground;
mod images;
mod install;
mod kubeconfig;
mod node;

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballast_engines::Reach;
use ballast_runtime::Options;
use drydock::{CredentialError, Drydock, Identity, OpenError, StartError};
use kube::api::DynamicObject;
use tokio::net::TcpListener;

use crate::configuration::{Environment, Place, Up, Which};
use crate::failure::{Explain as _, Failure};
use crate::image;
use crate::memory;
use crate::operators::{self, Running};
use crate::record::{self, Left, Record};
use crate::shell;
use crate::signals::Signals;
use crate::terminal::{print, say};
use crate::version::Version;

use ground::Ground;
use kubeconfig::Kubeconfig;
use node::{Attended, Way};

pub use install::{InstallError, install};

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// In order.
    InOrder,
    /// By a second signal, at once.
    AtOnce,
}

/// Longer than a start takes, unless there is much to read or a slow disk.
const SLOW: Duration = Duration::from_secs(2);
/// What whoever stops it is told at once.
const STOPPING: &str = "stopping…";
/// How often one that starts or stops lets whoever waits for it know that it does.
const WORD: Duration = Duration::from_secs(5);

/// A cluster that serves, and what belongs to it.
struct Serving {
    drydock: Drydock,
    operators: Option<Running>,
    node: Option<Attended>,
    kubeconfig: Kubeconfig,
    /// Goes last: until then there is something to wait for.
    left: Arc<Left>,
}

impl Serving {
    /// Waits until it can't go on by itself, and says why.
    async fn fails(&mut self) -> Failure {
        let operators = async {
            match &mut self.operators {
                Some(operators) => operators.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            failure = operators => failure,
            error = self.drydock.broken() => {
                Failure::new(format!("the cluster's directory can no longer be written: {error}"))
                    .advise("see to the disk, then start again: what was acknowledged is kept")
            }
        }
    }
}

/// Serves until a signal comes.
///
/// # Errors
/// What is needed can't be had: the data directory, the address, the kubeconfig file.
pub async fn up(up: &Up, environment: &Environment) -> Result<Stopped, Failure> {
    let mut signals = Signals::listen()?;
    let mut beginning = std::pin::pin!(noting_delay(begin(up, environment)));
    let Some(serving) = signals.unless(&mut beginning).await else {
        say(STOPPING);
        // What was begun is ended in order, or something of it would be left: a node, and pods that it found.
        let ended = signals.unless(async {
            match beginning.await {
                Ok(serving) => stop(serving).await,
                // Nobody wants it any more.
                Err(_) => Ok(()),
            }
        });
        return ended.await.map_or(Ok(Stopped::AtOnce), |ended| ended.map(|()| in_order(up)));
    };
    let mut serving = serving?;
    memory::give_back();
    let ready = format!("ready: export KUBECONFIG={}\n", shell::word(&serving.kubeconfig.path));
    let failed = match print(&ready).what("can't print") {
        Ok(()) => signals.unless(serving.fails()).await,
        Err(failure) => Some(failure),
    };
    if failed.is_none() {
        say(STOPPING);
    }
    let stopped = signals.unless(stop(serving)).await;
    match (failed, stopped) {
        (Some(failure), _) => Err(failure),
        (None, Some(stopped)) => stopped.map(|()| in_order(up)),
        (None, None) => Ok(Stopped::AtOnce),
    }
}

/// Says to whoever stopped it what there is now.
fn in_order(up: &Up) -> Stopped {
    let directory = match &up.place {
        Place::Directory(directory) => Some(directory.as_path()),
        Place::Memory => None,
    };
    say(format_args!("stopped; {}", record::what_is_left(directory)));
    Stopped::InOrder
}

async fn begin(up: &Up, environment: &Environment) -> Result<Serving, Failure> {
    let kubeconfig = Kubeconfig::place(&up.kubeconfig, &up.place)?;
    let listener = match bind(up).await {
        Err(failure) if up.place == Place::Memory => return Err(failure),
        // Whoever listens may be the one that has this directory, which says more.
        bound => bound,
    };
    let lock = take(&up.place)?;
    let listener = listener?;
    let record = Record::of_this_process(up, &kubeconfig.path)?;
    let left = Arc::new(Left::of(&record, lock)?);
    let way = Way::default();
    // There may be much to read, or a slow disk, and somebody who waits for the end already.
    let drydock = saying_so(&left, start(&up.place, way.clone())).await?;
    let mut serving = Serving { drydock, operators: None, node: None, kubeconfig, left: Arc::clone(&left) };
    match saying_so(&left, open(&mut serving, record, listener, up, &way, environment)).await {
        Ok(()) => Ok(serving),
        Err(failure) => {
            // Why it did not begin is what is told, whatever comes of the end.
            let _ = stop(serving).await;
            Err(failure)
        }
    }
}

/// Makes a cluster known, and puts the operators and a node into it. What was begun when this fails is to be stopped.
async fn open(
    serving: &mut Serving,
    mut record: Record,
    listener: TcpListener,
    up: &Up,
    way: &Way,
    environment: &Environment,
) -> Result<(), Failure> {
    let Serving { drydock, operators, node, kubeconfig, left } = serving;
    drydock.serve(listener).what("can't serve the API")?;
    say(starting(up, drydock));
    kubeconfig.write(drydock)?;
    let attended = async {
        let Some(pods) = &up.pods else { return Ok(()) };
        // The cluster is nobody else's by now, and what is in its directory neither.
        let ground = Ground::take(&up.place, &pods.passing)?;
        way.leads_to(ground.sockets());
        let store = image::store(environment, pods.strict_images)?;
        node.insert(Attended::start(drydock, ground, store, pods).await?).comes_up(drydock).await
    };
    let account = async {
        match up.operators {
            true => prepare(drydock).await.map(Some),
            false => Ok(None),
        }
    };
    let (account, ()) = tokio::try_join!(account, attended)?;
    // The default options open no ports: the API's is the only one.
    *operators = account.map(|account| {
        let reach = reach(drydock, node.as_ref());
        let running = operators::run(drydock.client_as(account), &reach, Options::default());
        let health = running.health();
        drydock.check("operators", move || health.check());
        running
    });
    record.url = drydock.url();
    left.now(&record)
}

/// How the operators' questions get to pods. What leads there where addresses do not is no permission of theirs.
fn reach(drydock: &Drydock, node: Option<&Attended>) -> Reach {
    match node {
        Some(node) if node.is_reachable() => Reach::inside(),
        _ => Reach::outside(drydock.client()),
    }
}

/// In order: first those who ask, then the one who answers. The kubeconfig goes last.
async fn stop(serving: Serving) -> Result<(), Failure> {
    let Serving { drydock, operators, node, kubeconfig, left } = serving;
    let stop = async {
        if let Some(operators) = operators {
            operators.stop().await;
        }
        let stopped = match node {
            Some(node) => node.stop().await,
            None => Ok(()),
        };
        drydock.shutdown().await;
        stopped
    };
    let stopped = saying_so(&left, stop).await;
    drop((left, kubeconfig));
    stopped
}

/// Lets whoever waits for the end know that something is under way.
async fn saying_so<T>(left: &Left, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(WORD) => left.again(),
        }
    }
}

async fn noting_delay<T>(work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    match tokio::time::timeout(SLOW, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            say("still starting…");
            work.await
        }
    }
}

async fn start(place: &Place, way: Way) -> Result<Drydock, Failure> {
    let builder = match place {
        Place::Memory => Drydock::builder(),
        Place::Directory(directory) => Drydock::builder().data_dir(directory),
    };
    // Nobody asks this one who asked for what.
    let builder = builder.nodes(way).requests(0);
    builder.start().await.map_err(|error| match place {
        Place::Directory(directory) => refusal(directory, error),
        Place::Memory => Failure::from(anyhow::Error::from(error).context("can't start the cluster")),
    })
}

/// Makes sure that nobody else has the cluster's directory, for as long as what is given is held.
fn take(place: &Place) -> Result<Option<File>, Failure> {
    match place {
        Place::Directory(directory) => match ground::take_whole(directory) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) => Err(refusal(directory, error.into())),
        },
        Place::Memory => Ok(None),
    }
}

/// Why there is no cluster in a directory, and what to do about it.
fn refusal(directory: &Path, error: StartError) -> Failure {
    if let StartError::Store(OpenError::InUse(_)) = error {
        let found = record::find(&Which::Directory(directory.to_owned())).ok().flatten();
        let theirs = found.map(|theirs| shell::word(&theirs.record.kubeconfig));
        let theirs = theirs.map_or_else(String::new, |file| format!(" (export KUBECONFIG={file})"));
        let next = format!("use that one{theirs}, or start another with --data-dir DIR or --memory");
        return Failure::new(format!("another ballast keeps its cluster in {}", directory.display()))
            .advise(next);
    }
    let next = next(&error);
    let what = format!("can't start the cluster in {}", directory.display());
    Failure::from(anyhow::Error::from(error).context(what))
        .advise(format!("{next}name another directory with --data-dir DIR, or keep nothing with --memory"))
}

/// What there is to do about a directory, other than to use another one.
fn next(error: &StartError) -> &'static str {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let mut causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    let system = causes.find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match (error, system) {
        (StartError::Store(OpenError::Version { .. }), _) => "start the ballast that wrote it, ",
        (StartError::Store(OpenError::Damaged { .. }) | StartError::Lost { .. }, _) => {
            "nothing was changed there: bring it back from a backup, "
        }
        (StartError::Credentials(CredentialError::Gone(_) | CredentialError::Damaged { .. }), _) => {
            "nothing was changed there: bring it back from a backup, remove all of keys/ to have new ones (what was made \
             with the old ones, kubeconfigs and tokens, is refused then), "
        }
        (StartError::Bootstrap(error), _) if error.is_full() => "make room there, ",
        (_, Some(StorageFull | QuotaExceeded)) => "make room there, ",
        (_, Some(PermissionDenied)) => "start it as the user whose directory it is, let it be written, ",
        (_, Some(ReadOnlyFilesystem)) => "let it be written, ",
        _ => "",
    }
}

async fn bind(up: &Up) -> Result<TcpListener, Failure> {
    up.listen.bind().await.map_err(|error| {
        let next = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "stop what listens there, or take a free port with --listen 127.0.0.1:0"
            }
            io::ErrorKind::PermissionDenied => "ports below 1024 need root: choose another with --listen",
            _ => "name an address that this machine has, or take a free port with --listen 127.0.0.1:0",
        };
        Failure::from(anyhow::Error::from(error).context(format!("can't listen on {}", up.listen)))
            .advise(next)
    })
}

fn starting(up: &Up, drydock: &Drydock) -> String {
    let Version { version, kubernetes, .. } = Version::current();
    let kept = match &up.place {
        Place::Memory => "kept in memory".to_owned(),
        Place::Directory(directory) => format!("kept in {}", directory.display()),
    };
    let operators = match up.operators {
        true => format!("operators: {}", operators::names().join(", ")),
        false => "no operators".to_owned(),
    };
    let url = drydock.url().unwrap_or_default();
    format!("ballast {version}: Kubernetes {kubernetes} at {url}, {kept}; {operators}")
}

/// Installs what the operators stand on, and gives the account that they run under: it may do what is shipped, and
/// nothing else.
async fn prepare(drydock: &Drydock) -> Result<Identity, Failure> {
    let foundation = ballast_packaging::foundation();
    let installed = install(&drydock.client(), foundation).await.what("can't install the definitions")?;
    Ok(account(&installed))
}

fn account(installed: &[DynamicObject]) -> Identity {
    use ballast_packaging::{NAMESPACE, SERVICE_ACCOUNT};
    let uid = installed
        .iter()
        .find(|object| object.types.as_ref().is_some_and(|types| types.kind == "ServiceAccount"))
        .and_then(|object| object.metadata.uid.clone());
    Identity::service_account(NAMESPACE, SERVICE_ACCOUNT, uid.unwrap_or_default())
}
