//! The node of a cluster: a process beside this one, started anew when it dies.
//!
//! **What always holds.** A node that never came up is a failure to start; one that came up and died is started
//! again, later each time. Whoever starts one stops it, also where it did not come up. After [`Attended::stop`] it is
//! gone, with everything that it ran; one that dies instead of stopping is followed by another, once, which does what was
//! left. One that hangs is ended, and what it ran is then for its keeper to end, or for the next node of a cluster that is
//! kept.

use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use drydock::{Drydock, Identity, NodeStream, Nodes};
use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ground::Ground;
use super::images;
use super::install::install;
use crate::configuration::Pods;
use crate::failure::{Explain as _, Failure};
use crate::node::handover::{Handover, Report, Sockets};
use crate::terminal::say;

/// What the node is called: there is one.
pub const NAME: &str = "ballast";
/// Who nodes are.
const GROUP: &str = "system:nodes";
/// The addresses of Services, as the API gives them out.
const SERVICES: &str = "10.96.0.0/12";
/// How soon a node that died is started again; doubling while it dies soon.
const AGAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];
/// A node that lived for so long did not die soon.
const LONG: Duration = Duration::from_secs(10);
/// A node that stops says so all the while. One that says nothing for so long is ended, and so is one that has closed its
/// output and goes on.
const PATIENCE: Duration = Duration::from_secs(30);

/// The way to the node for those who ask through the API.
#[derive(Clone, Default)]
pub struct Way(Arc<OnceLock<Arc<Sockets>>>);

impl Way {
    /// Where it leads, once that is known. What was said first stands.
    pub fn leads_to(&self, sockets: Arc<Sockets>) {
        let _known = self.0.set(sockets);
    }
}

impl Nodes for Way {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn NodeStream>>> {
        Box::pin(async move {
            let absent =
                || io::Error::new(io::ErrorKind::NotConnected, format!("the node {node} is not there"));
            let socket = self.0.get().ok_or_else(absent)?.node();
            let stream = UnixStream::connect(socket).await.map_err(|_| absent())?;
            Ok(Box::new(stream) as Box<dyn NodeStream>)
        })
    }
}

/// A node that is looked after.
pub struct Attended {
    came_up: oneshot::Receiver<CameUp>,
    reachable: bool,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Failure>>,
    /// Held until the node has ended.
    _ground: Ground,
}

impl Attended {
    /// Starts the node of a cluster.
    ///
    /// # Errors
    /// It can't be let into the cluster. Nothing of it was started then.
    pub async fn start(
        drydock: &Drydock,
        ground: Ground,
        store: drydock_images::Store,
        pods: &Pods,
    ) -> Result<Self, Failure> {
        admit(drydock).await.what("can't give the node its permissions")?;
        offer_volumes(drydock).await?;
        let sockets = ground.sockets();
        let listen = |path| UnixListener::bind(path).what("can't listen for the node");
        let identity = Identity::user(format!("system:node:{NAME}"), [GROUP]);
        drydock.serve_as(listen(sockets.api_as_node())?, identity);
        let names = crate::node::addresses();
        drydock.serve_socket(listen(sockets.api())?, &names).what("can't serve the API to pods")?;
        let stop = CancellationToken::new();
        let making = images::serve(listen(sockets.images())?, store);
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(making).await });
        let handover = Handover {
            name: NAME.to_owned(),
            sockets: ground.sockets_directory(),
            state: ground.state(),
            files: ground.files(),
            services: SERVICES.parse().map_err(Failure::new)?,
            kept: ground.kept(),
            strict_images: pods.strict_images,
        };
        let line = handover.to_line().what("the node's directories")?;
        let (ready, came_up) = oneshot::channel();
        let how = Start { flags: pods.log_flags.clone(), handover: line };
        let task = tokio::spawn(attend(how, stop.clone(), ready));
        Ok(Attended { came_up, reachable: false, stop, task, _ground: ground })
    }

    /// Waits until it takes pods.
    ///
    /// # Errors
    /// It can't run here.
    pub async fn comes_up(&mut self, drydock: &Drydock) -> Result<(), Failure> {
        let came_up = (&mut self.came_up).await.map_err(|_| Failure::new("the node was not started"))?;
        let (address, reachable) = came_up?;
        self.reachable = reachable;
        drydock.led_by_node(address.into()).await.what("can't tell pods where the API is")
    }

    /// Whether the addresses of its pods lead there from this machine.
    pub fn is_reachable(&self) -> bool {
        self.reachable
    }

    /// Ends the node and its pods.
    ///
    /// # Errors
    /// It did not stop in order, and something of it is left.
    pub async fn stop(self) -> Result<(), Failure> {
        self.stop.cancel();
        self.task.await.what("the node's task")?
    }
}

/// Lets nodes do what nodes do: nobody else authorizes them here.
async fn admit(drydock: &Drydock) -> kube::Result<()> {
    let bindings: Api<ClusterRoleBinding> = Api::all(drydock.client());
    for role in ["system:node", "system:node-proxier"] {
        let name = role.replace("system:", "drydock:");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
        });
        bindings.patch(&name, &PatchParams::apply("ballast").force(), &Patch::Apply(binding)).await?;
    }
    Ok(())
}

/// Lets the node make volumes, and people claim them. Classes that are there stay as they are.
async fn offer_volumes(drydock: &Drydock) -> Result<(), Failure> {
    let client = drydock.client();
    install(&client, drydock_node::permissions(GROUP)).await.what("can't give the node its permissions")?;
    let classes: Api<StorageClass> = Api::all(client);
    for class in drydock_node::classes() {
        let class = serde_json::from_value(class).what("a class of volumes")?;
        match classes.create(&PostParams::default(), &class).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other.what("can't offer volumes")?),
        }
    }
    Ok(())
}

/// How one life of a node went.
struct Life {
    ended: ExitStatus,
    /// Why it could not go on, as it said itself, or why it was ended.
    failed: Option<String>,
}

impl Life {
    fn in_order(&self) -> bool {
        self.failed.is_none() && self.ended.success()
    }

    fn end(&self) -> String {
        self.failed.clone().unwrap_or_else(|| end_of(self.ended))
    }
}

/// The node's address and whether pods are reachable, or why there is no node.
type CameUp = Result<(Ipv4Addr, bool), Failure>;

/// How a node is started.
struct Start {
    flags: Vec<String>,
    handover: String,
}

async fn attend(how: Start, stop: CancellationToken, ready: oneshot::Sender<CameUp>) -> Result<(), Failure> {
    let mut ready = Some(ready);
    let mut pause = AGAIN[0];
    let mut last = false;
    loop {
        let began = Instant::now();
        let life = live(&how, &stop, &mut ready).await;
        let said = life.as_ref().map_or_else(ToString::to_string, Life::end);
        if stop.is_cancelled() {
            match life {
                Ok(life) if life.in_order() => return Ok(()),
                // The next is told to stop as soon as it is there. If that is what ends them, one more is enough.
                Ok(Life { failed: None, .. }) if !last => last = true,
                _ => return Err(Failure::new(format!("the node did not stop in order: {said}"))),
            }
            say(format_args!("the node died ({said}) as it was to stop; another does what is left"));
            continue;
        }
        if let Some(ready) = ready.take() {
            let _ = ready.send(Err(Failure::new(said)));
            return Ok(());
        }
        say(format_args!("the node died ({said}); it is started again"));
        if began.elapsed() > LONG {
            pause = AGAIN[0];
        }
        last = stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none();
        pause = (pause * 2).min(AGAIN[1]);
    }
}

fn end_of(ended: ExitStatus) -> String {
    match (ended.signal(), ended.code()) {
        (Some(signal), _) => format!("by signal {signal}"),
        (_, Some(code)) => format!("with code {code}"),
        _ => "nobody knows why".to_owned(),
    }
}

async fn live(
    start: &Start,
    stop: &CancellationToken,
    ready: &mut Option<oneshot::Sender<CameUp>>,
) -> Result<Life, Failure> {
    // This very program, also where its file has been moved or replaced.
    let mut child = Command::new("/proc/self/exe")
        .arg0("ballast")
        .arg("node")
        .args(&start.flags)
        // Of its own: what a terminal sends to all of a group is for this process to pass on.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .what("can't start the node")?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Failure::new("the node has no input or no output"));
    };
    input.write_all(start.handover.as_bytes()).await.what("can't tell the node anything")?;
    let Heard { failed, silent, .. } = hear(input, output, stop, ready).await;
    let patience = if silent { Duration::ZERO } else { PATIENCE };
    let ended = end(child, patience).await.what("the node's end")?;
    let hung = || format!("it said nothing for {} seconds and was ended", PATIENCE.as_secs());
    Ok(Life { ended, failed: failed.or_else(|| silent.then(hung)) })
}

/// What was heard of a node.
struct Heard {
    /// Why it can't go on, as it says itself.
    failed: Option<String>,
    /// It was told to stop.
    told: bool,
    /// It should have said by now that it stops.
    silent: bool,
}

/// Listens to a node until it closes its output, and tells it to stop when it is to. The input stays open for as long:
/// its end would be the node's.
async fn hear(
    mut input: impl AsyncWrite + Unpin,
    output: impl AsyncRead + Unpin,
    stop: &CancellationToken,
    ready: &mut Option<oneshot::Sender<CameUp>>,
) -> Heard {
    let mut lines = BufReader::new(output).lines();
    let mut heard = Heard { failed: None, told: false, silent: false };
    loop {
        tokio::select! {
            said = lines.next_line() => match said.ok().flatten().map(|line| serde_json::from_str(&line)) {
                Some(Ok(Report::Ready { pods, address, reachable, services, root })) => {
                    say(describe(&pods, reachable, services, root));
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(Ok((address, reachable)));
                    }
                }
                Some(Ok(Report::Stopping)) => {}
                Some(Ok(Report::Failed { message })) => heard.failed = Some(message),
                Some(Err(error)) => tracing::debug!(%error, "the node said something else"),
                None => return heard,
            },
            () = stop.cancelled(), if !heard.told => {
                heard.told = true;
                let _ = input.write_all(b"stop\n").await;
            }
            // Anew after every word.
            () = tokio::time::sleep(PATIENCE), if heard.told => {
                heard.silent = true;
                return heard;
            }
        }
    }
}

/// Waits for a process, and ends it when it takes too long.
async fn end(mut child: Child, patience: Duration) -> io::Result<ExitStatus> {
    match tokio::time::timeout(patience, child.wait()).await {
        Ok(ended) => ended,
        Err(_) => {
            child.kill().await?;
            child.wait().await
        }
    }
}

fn describe(pods: &str, reachable: bool, services: bool, root: bool) -> String {
    let how = match (root, reachable, services) {
        (true, true, true) => "reached from this machine, like Services",
        (true, true, false) => {
            "reached from this machine; its Services are not, another cluster here has their addresses"
        }
        (true, false, _) => "not reached from this machine",
        (false, ..) => "in a network of their own, without root; kubectl port-forward leads there",
    };
    format!("node {NAME}: pods at {pods}, {how}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that was told to stop, says so a number of times, with pauses, and then goes or does not.
    async fn check(words: u32, goes: bool) -> (bool, Duration) {
        let (input, _unread) = tokio::io::duplex(64);
        let (mut says, output) = tokio::io::duplex(64);
        let stop = CancellationToken::new();
        stop.cancel();
        let began = tokio::time::Instant::now();
        let node = async move {
            for _ in 0..words {
                tokio::time::sleep(PATIENCE / 2).await;
                says.write_all(format!("{}\n", Report::Stopping.to_line()).as_bytes()).await.unwrap();
            }
            if goes {
                drop(says);
            }
            std::future::pending::<Heard>().await
        };
        let mut came_up = None;
        let heard = tokio::select! {
            heard = hear(input, output, &stop, &mut came_up) => heard,
            never = node => never,
        };
        assert!(heard.told);
        (heard.silent, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_hangs_is_not_waited_for() {
        assert_eq!(check(0, false).await, (true, PATIENCE));
        assert_eq!(check(2, false).await, (true, PATIENCE * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_takes_long_to_stop_has_the_time() {
        assert_eq!(check(10, true).await, (false, PATIENCE * 5));
    }
}
