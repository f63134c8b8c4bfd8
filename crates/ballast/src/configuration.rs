//! What was typed and what the environment says, made sense of: every value here can be acted upon.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ballast_packaging::{Deploy, NAMESPACE};
use ballast_runtime::Namespaces;
use tokio::net::TcpListener;

use crate::arguments::{ManifestsArguments, PlanArguments, RunArguments, UpArguments, WhichArguments};
use crate::failure::Failure;
use crate::up::ground;
use crate::{record, shell};

/// Where a pod finds the namespace that it is in.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The variables of the process, read once.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// Those of this process.
    pub fn of_process() -> Self {
        Environment(std::env::vars_os().collect())
    }

    /// A variable that says something.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(std::ffi::OsStr::new(name)).filter(|value| !value.is_empty())
    }

    /// A variable that names a directory or file. A relative one is no use to anybody but the one who set it.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Where a cluster is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it is gone when it stops.
    Memory,
    /// In a directory.
    Directory(PathBuf),
}

/// Where the administrator's kubeconfig goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeconfigFile {
    /// To this file, which stays.
    At(PathBuf),
    /// To a private directory of its own under this one, which goes when the cluster does.
    Passing(PathBuf),
}

/// How `ballast up` is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Up {
    /// Where the cluster is kept.
    pub place: Place,
    /// Where the API is served.
    pub listen: Address,
    /// Where the kubeconfig goes.
    pub kubeconfig: KubeconfigFile,
    /// Whether the operators run.
    pub operators: bool,
    /// How pods are to run, if they are.
    pub pods: Option<Pods>,
}

/// How pods are to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pods {
    /// Where nodes of clusters that are not kept are, one beside the other.
    pub passing: PathBuf,
    /// Whether a tag that can't be had exactly is an error.
    pub strict_images: bool,
    /// How the node logs: as this process does.
    pub log_flags: Vec<String>,
}

impl Up {
    /// Makes sense of what was typed.
    ///
    /// # Errors
    /// An address is none, or there is no place for the data.
    pub fn new(arguments: &UpArguments, environment: &Environment) -> Result<Self, Failure> {
        let place = if arguments.memory {
            Place::Memory
        } else {
            Place::Directory(data_directory(arguments.data_dir.as_deref(), environment)?)
        };
        let kubeconfig = match (&arguments.kubeconfig, &place) {
            (Some(file), _) => KubeconfigFile::At(absolute(file)?),
            (None, Place::Directory(directory)) => KubeconfigFile::At(directory.join("kubeconfig")),
            (None, Place::Memory) => KubeconfigFile::Passing(
                environment.absolute("XDG_RUNTIME_DIR").unwrap_or_else(std::env::temp_dir),
            ),
        };
        let listen = Address::parse(&arguments.listen, "--listen")?;
        let pods = (!arguments.no_node).then(|| Pods {
            passing: cache_home(environment).join("ballast/nodes"),
            strict_images: arguments.strict_images,
            log_flags: arguments.log.to_flags(),
        });
        Ok(Up { place, listen, kubeconfig, operators: !arguments.no_operators, pods })
    }
}

/// Where a cluster is kept: where it was said, or where data of this user's is.
fn data_directory(typed: Option<&Path>, environment: &Environment) -> Result<PathBuf, Failure> {
    match typed {
        Some(directory) => absolute(directory),
        None => absolute(&data_home(environment)?.join("ballast")),
    }
}

/// Which `ballast up` is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one that keeps its cluster there.
    Directory(PathBuf),
    /// The one whose kubeconfig this is.
    Kubeconfig(PathBuf),
}

impl Which {
    /// Makes sense of what was typed.
    ///
    /// # Errors
    /// There is no place for data.
    pub fn new(arguments: &WhichArguments, environment: &Environment) -> Result<Self, Failure> {
        // Whoever pasted what `ballast up` printed means that one.
        let runs = |file: &PathBuf| record::of_kubeconfig(file).is_some();
        let pasted = || environment.get("KUBECONFIG").map(PathBuf::from).filter(runs);
        let kubeconfig = arguments.kubeconfig.clone();
        Ok(match kubeconfig.or_else(|| arguments.data_dir.is_none().then(pasted).flatten()) {
            Some(file) => Which::Kubeconfig(absolute(&file)?),
            None => Which::Directory(data_directory(arguments.data_dir.as_deref(), environment)?),
        })
    }

    /// That it does not run, and what to do about it; about pods that run on, too.
    pub fn is_down(&self) -> Failure {
        let failure = Failure::new(format!("nothing runs: {self}"));
        match self {
            Which::Directory(directory) if ground::is_left(directory) => {
                let start = self.start();
                failure
                    .advise(format!("its pods may run on, as it was killed; {start}, which takes them over"))
            }
            _ => failure.advise(self.start()),
        }
    }

    /// How it would be started.
    pub fn start(&self) -> String {
        match self {
            Which::Directory(directory) => {
                format!("start it with `ballast up --data-dir {}`", shell::word(directory))
            }
            Which::Kubeconfig(_) => {
                "start it with `ballast up`, or name a directory with --data-dir DIR".to_owned()
            }
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Directory(directory) => {
                write!(f, "no `ballast up` has its cluster in {}", directory.display())
            }
            Which::Kubeconfig(file) => write!(f, "no `ballast up` has the kubeconfig {}", file.display()),
        }
    }
}

/// Where things go that need not last. On a disk: pods may write much.
fn cache_home(environment: &Environment) -> PathBuf {
    environment
        .absolute("XDG_CACHE_HOME")
        .or_else(|| environment.absolute("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
}

/// Where this user's images are: one store for every cluster.
///
/// # Errors
/// There is no place for data.
pub fn image_directory(environment: &Environment) -> Result<PathBuf, Failure> {
    Ok(data_home(environment)?.join("ballast-images"))
}

fn data_home(environment: &Environment) -> Result<PathBuf, Failure> {
    environment
        .absolute("XDG_DATA_HOME")
        .or_else(|| environment.absolute("HOME").map(|home| home.join(".local/share")))
        .ok_or_else(|| {
            Failure::new("there is no place for the data: neither XDG_DATA_HOME nor HOME is set")
                .advise("say where with --data-dir DIR, or keep nothing with --memory")
        })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    if path.as_os_str().is_empty() {
        return Err(Failure::new("an empty path was given").advise("name a file or directory"));
    }
    std::path::absolute(path)
        .map_err(|error| anyhow::Error::from(error).context(path.display().to_string()).into())
}

/// How `ballast run` is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The cluster.
    pub cluster: Cluster,
    /// Where resources are looked for.
    pub namespaces: Namespaces,
    /// Where metrics are served.
    pub metrics: Option<Address>,
    /// Where health is served.
    pub health: Option<Address>,
    /// Whether the flight recorder is served beside the metrics.
    pub recorder: bool,
    /// By which Lease one of several copies is told to act.
    pub lease: Option<LeaseName>,
    /// How many resources of a kind are worked on at a time.
    pub concurrency: u16,
    /// Which process this is: a pod's name, or a machine's.
    pub instance: String,
    /// The image that has the agent.
    pub agent_image: String,
}

/// Which Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Run {
    /// Makes sense of what was typed.
    ///
    /// # Errors
    /// An address, a namespace or a cluster is none.
    pub fn new(arguments: &RunArguments, environment: &Environment) -> Result<Self, Failure> {
        let lease = arguments.leader_elect.then(|| LeaseName {
            namespace: lease_namespace(arguments, environment),
            name: arguments.leader_election_id.clone(),
        });
        let metrics = Address::parse_optional(&arguments.metrics_bind_address, "--metrics-bind-address")?;
        if arguments.debug_recorder && metrics.is_none() {
            return Err(Failure::new(
                "--debug-recorder serves beside the metrics, and they are served nowhere",
            )
            .advise("give --metrics-bind-address an address"));
        }
        Ok(Run {
            cluster: Cluster::find(arguments.kubeconfig.as_deref(), environment)?,
            namespaces: namespaces(arguments.watch_namespace.as_deref())?,
            metrics,
            health: Address::parse_optional(
                &arguments.health_probe_bind_address,
                "--health-probe-bind-address",
            )?,
            recorder: arguments.debug_recorder,
            lease,
            concurrency: arguments.max_concurrent_reconciles,
            agent_image: image("--agent-image", &arguments.agent_image)?,
            instance: instance(environment),
        })
    }
}

fn instance(environment: &Environment) -> String {
    let named = ["POD_NAME", "HOSTNAME"].iter().find_map(|name| environment.get(name));
    named
        .map(|name| name.to_string_lossy().into_owned())
        .or_else(|| {
            std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned())
        })
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "ballast".to_owned())
}

fn lease_namespace(arguments: &RunArguments, environment: &Environment) -> String {
    let said = arguments.leader_election_namespace.clone();
    said.or_else(|| environment.get("POD_NAMESPACE").map(|name| name.to_string_lossy().into_owned()))
        .or_else(|| std::fs::read_to_string(POD_NAMESPACE_FILE).ok().map(|text| text.trim().to_owned()))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| NAMESPACE.to_owned())
}

/// How `ballast plan` is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What to plan for.
    pub files: Vec<Source>,
    /// What to plan against; nothing when `None`.
    pub cluster: Option<Cluster>,
    /// The namespace of resources that name none.
    pub namespace: Option<String>,
    /// The image that has the agent.
    pub agent_image: String,
}

/// Where YAML comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Input,
    /// A file.
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Input => f.write_str("standard input"),
            Source::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Plan {
    /// Makes sense of what was typed.
    ///
    /// # Errors
    /// There is no cluster.
    pub fn new(arguments: &PlanArguments, environment: &Environment) -> Result<Self, Failure> {
        let source = |path: &PathBuf| match path.to_str() {
            Some("-") => Source::Input,
            _ => Source::File(path.clone()),
        };
        let cluster = match arguments.offline {
            true => None,
            false => {
                Some(Cluster::find(arguments.kubeconfig.as_deref(), environment).map_err(|failure| {
                    failure.advise(
                        "name one with KUBECONFIG, start one with `ballast up`, or plan with --offline",
                    )
                })?)
            }
        };
        Ok(Plan {
            files: arguments.files.iter().map(source).collect(),
            cluster,
            namespace: arguments.namespace.clone(),
            agent_image: image("--agent-image", &arguments.agent_image)?,
        })
    }
}

/// What `ballast manifests` is to print.
///
/// # Errors
/// A namespace is none.
pub fn deploy(arguments: &ManifestsArguments) -> Result<Deploy, Failure> {
    let watch = match namespaces(arguments.watch_namespace.as_deref())? {
        Namespaces::All => Vec::new(),
        Namespaces::These(names) => names,
    };
    Ok(Deploy { image: image("--image", &arguments.image)?, replicas: arguments.replicas, watch })
}

/// An image that pods can have. One that can't be would be found out by the pods, much later.
fn image(flag: &str, name: &str) -> Result<String, Failure> {
    match ballast_operator::image::is_reference(name) {
        true => Ok(name.to_owned()),
        false => Err(Failure::new(format!("{flag}: {name:?} can't be an image"))
            .advise("write one as example.com/ballast:1.0")),
    }
}

/// Where resources are looked for. A name that no namespace can have would be waited for for ever.
fn namespaces(typed: Option<&str>) -> Result<Namespaces, Failure> {
    let namespaces = Namespaces::parse(typed.unwrap_or_default());
    let can_be = |name: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        name.len() <= 63 && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
    };
    match &namespaces {
        Namespaces::These(names) => match names.iter().find(|name| !can_be(name)) {
            Some(name) => Err(Failure::new(format!("WATCH_NAMESPACE: {name:?} can't be a namespace"))
                .advise("write names as shop,blog, or nothing for all")),
            None => Ok(namespaces),
        },
        Namespaces::All => Ok(namespaces),
    }
}

/// Which cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cluster {
    /// The one of these kubeconfigs, merged as kubectl does.
    Kubeconfig(Vec<PathBuf>),
    /// The one that this pod is in.
    Pod,
}

impl Cluster {
    /// As operators look for theirs: what was typed, `KUBECONFIG`, the pod's own, the home directory's.
    fn find(typed: Option<&Path>, environment: &Environment) -> Result<Self, Failure> {
        if let Some(file) = typed {
            return Ok(Cluster::Kubeconfig(vec![file.to_owned()]));
        }
        if let Some(files) = environment.get("KUBECONFIG") {
            let files: Vec<_> =
                std::env::split_paths(files).filter(|file| !file.as_os_str().is_empty()).collect();
            if !files.is_empty() {
                return Ok(Cluster::Kubeconfig(files));
            }
        }
        if environment.get("KUBERNETES_SERVICE_HOST").is_some() {
            return Ok(Cluster::Pod);
        }
        let home = environment.absolute("HOME").map(|home| home.join(".kube/config"));
        match home.filter(|file| file.exists()) {
            Some(file) => Ok(Cluster::Kubeconfig(vec![file])),
            None => Err(Failure::new(
                "no cluster: KUBECONFIG is not set, there is no ~/.kube/config, and this is no pod",
            )
            .advise("name one with KUBECONFIG, or start one with `ballast up`")),
        }
    }
}

/// Where to listen: `127.0.0.1:6443`, `[::1]:6443`, `localhost:6443`, or `:6443` for everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    fn parse(text: &str, flag: &str) -> Result<Self, Failure> {
        match text.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => Ok(Address(text.to_owned())),
            _ => Err(Failure::new(format!("{flag}: {text:?} is no address"))
                .advise("write one as 127.0.0.1:8080, or :8080 for everywhere")),
        }
    }

    /// An address, or `0` for nowhere.
    fn parse_optional(text: &str, flag: &str) -> Result<Option<Self>, Failure> {
        if matches!(text, "" | "0") { Ok(None) } else { Address::parse(text, flag).map(Some) }
    }

    /// Listens.
    ///
    /// # Errors
    /// Somebody else does, or the system says no.
    pub async fn bind(&self) -> io::Result<TcpListener> {
        let Some(port) = self.0.strip_prefix(':') else { return TcpListener::bind(&self.0).await };
        // Everywhere is both families of addresses, or the one that there is.
        match TcpListener::bind(format!("[::]:{port}")).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(format!("0.0.0.0:{port}")).await
            }
            bound => bound,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser as _;

    fn up(flags: &str, environment: &Environment) -> Result<Up, Failure> {
        let words = ["ballast", "up"].into_iter().chain(flags.split_whitespace());
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Up(arguments) => Up::new(&arguments, environment),
            _ => unreachable!(),
        }
    }

    fn run(flags: &str, environment: &Environment) -> Result<Run, Failure> {
        let words = ["ballast", "run"].into_iter().chain(flags.split_whitespace());
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Run(arguments) => Run::new(&arguments, environment),
            _ => unreachable!(),
        }
    }

    #[test]
    fn the_cluster_is_kept_where_the_desktop_keeps_data() {
        let home = [("HOME", "/home/a"), ("XDG_DATA_HOME", "")];
        let data = [("HOME", "/home/a"), ("XDG_DATA_HOME", "/data")];
        for (flags, environment, directory, kubeconfig) in [
            ("", home, "/home/a/.local/share/ballast", "/home/a/.local/share/ballast/kubeconfig"),
            ("", data, "/data/ballast", "/data/ballast/kubeconfig"),
            ("--data-dir /x", data, "/x", "/x/kubeconfig"),
            ("--data-dir /x --kubeconfig /k", data, "/x", "/k"),
        ] {
            let up = up(flags, &environment.into()).unwrap();
            assert_eq!(up.place, Place::Directory(directory.into()), "{flags}");
            assert_eq!(up.kubeconfig, KubeconfigFile::At(kubeconfig.into()), "{flags}");
        }
        let memory = up("--memory", &[("XDG_RUNTIME_DIR", "/run/user/1")].into()).unwrap();
        assert_eq!(memory.kubeconfig, KubeconfigFile::Passing("/run/user/1".into()));
        let nowhere = up("", &Environment::default()).unwrap_err().to_string();
        assert!(nowhere.contains("--data-dir"), "{nowhere}");
    }

    #[test]
    fn the_recorder_is_served_where_it_is_asked_for_beside_the_metrics() {
        let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("KUBERNETES_SERVICE_PORT", "443")].into();
        assert!(!run("", &pod).unwrap().recorder);
        assert!(run("--debug-recorder", &pod).unwrap().recorder);
        let nowhere = run("--debug-recorder --metrics-bind-address 0", &pod).unwrap_err().to_string();
        assert!(nowhere.contains("--metrics-bind-address"), "{nowhere}");
    }

    #[tokio::test]
    async fn an_address_is_a_host_and_a_port() {
        for text in ["127.0.0.1:0", "[::1]:0", ":0", "localhost:0", "0.0.0.0:0"] {
            Address::parse(text, "--listen").unwrap().bind().await.unwrap();
        }
        for text in ["8080", "127.0.0.1:99999", "127.0.0.1", "", "a:b", "http://x"] {
            let said = Address::parse(text, "--listen").unwrap_err().to_string();
            assert!(said.starts_with(&format!("--listen: {text:?} is no address; ")), "{said}");
        }
        assert_eq!(Address::parse_optional("0", "").unwrap(), None);
    }

    #[test]
    fn operators_are_run_as_the_flags_and_the_environment_say() {
        let environment = [("KUBECONFIG", "/a:/b"), ("POD_NAMESPACE", "elsewhere")].into();
        let usual = run("", &environment).unwrap();
        assert_eq!(usual.cluster, Cluster::Kubeconfig(vec!["/a".into(), "/b".into()]));
        assert_eq!(usual.lease, None);
        let ports = [usual.metrics, usual.health].map(|address| address.unwrap().0);
        assert_eq!(ports, [":8080", ":8081"]);
        let other = run("--leader-elect --metrics-bind-address 0 --kubeconfig /c", &environment).unwrap();
        assert_eq!(other.cluster, Cluster::Kubeconfig(vec!["/c".into()]));
        assert_eq!(other.lease, Some(LeaseName { namespace: "elsewhere".into(), name: "ballast".into() }));
        assert_eq!((other.metrics, other.health), (None, Some(Address(":8081".into()))));
        let none = run("", &[("HOME", "/nonexistent")].into()).unwrap_err().to_string();
        assert!(none.contains("`ballast up`"), "{none}");
    }
}
