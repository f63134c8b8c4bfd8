//! What can be typed. Nothing here is checked beyond its form; [`crate::configuration`] makes sense of it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::agent::arguments::BackupCommand;
use crate::operators::THIS_IMAGE;

/// Stateful services on Kubernetes, operated in Rust.
#[derive(Debug, Parser)]
#[command(
    name = "ballast",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  ballast up                        start a Kubernetes with every operator in it
  ballast up --memory               the same for a moment: nothing is kept
  ballast status                    what runs, and how it is
  ballast down                      stop it
  ballast run                       run the operators in KUBECONFIG's cluster
  ballast plan -f memcached.yaml    show what would be done, and do nothing"
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a Kubernetes in one process, with every operator in it
    Up(UpArguments),
    /// Say what runs, and how it is
    Status(StatusArguments),
    /// Stop a `ballast up`
    Down(DownArguments),
    /// Run the operators against a cluster: KUBECONFIG's, or the one this pod is in
    Run(RunArguments),
    /// Show what the operators would do about the resources in a file, and do nothing
    Plan(PlanArguments),
    /// List, import and remove the images that pods of this machine can run
    #[command(subcommand)]
    Image(ImageCommand),
    /// Work inside a pod: put this program into it, prepare a volume and run a database server on it
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Run the pods of a `ballast up`, which starts this by itself
    #[command(hide = true)]
    Node(LogArguments),
    /// Be the small web server that stands for prgcont/gordon
    #[command(hide = true)]
    GordonServer(GordonServerArguments),
    /// Print the custom resource definitions as YAML
    Crds,
    /// Print everything that a cluster needs to run the operators as YAML
    Manifests(ManifestsArguments),
    /// Print the version
    Version(VersionArguments),
}

/// A refusal that suggests no command that is hidden from people.
#[must_use]
pub fn without_hidden(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::Strings(suggested)) = error.get(ContextKind::SuggestedSubcommand) else {
        return error;
    };
    let (mut names, program) = (suggested.clone(), Arguments::command());
    names.retain(|name| program.find_subcommand(name).is_some_and(|command| !command.is_hide_set()));
    match names.is_empty() {
        true => drop(error.remove(ContextKind::SuggestedSubcommand)),
        false => drop(error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names))),
    }
    error
}

/// `ballast up`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast up
  ballast up --memory --listen 127.0.0.1:0
  ballast up --data-dir ./cluster --kubeconfig ./kubeconfig

It prints one line that begins with `ready` once it serves. Ctrl-C, SIGTERM or `ballast down` stops it; a second signal \
stops it at once. Where it was started with `nohup`, the end of the terminal does not.")]
pub struct UpArguments {
    /// Keep the cluster in this directory [default: $XDG_DATA_HOME/ballast]
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    pub data_dir: Option<PathBuf>,
    /// Keep nothing: the cluster is gone when it stops
    #[arg(long)]
    pub memory: bool,
    /// Where to serve the API; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    pub listen: String,
    /// Where to write the administrator's kubeconfig [default: in the data directory]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Serve a plain Kubernetes, without Ballast's operators, definitions and permissions
    #[arg(long)]
    pub no_operators: bool,
    /// Run no pods
    #[arg(long)]
    pub no_node: bool,
    /// Fail a pod whose image tag can't be had exactly, instead of noting what it got
    #[arg(long, conflicts_with = "no_node")]
    pub strict_images: bool,
    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// `ballast status`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast status
  ballast status --data-dir ./cluster -o json
  ballast status --kubeconfig \"$KUBECONFIG\"

Exit code: 0 when it runs and answers, otherwise 1.")]
pub struct StatusArguments {
    /// Which one.
    #[command(flatten)]
    pub which: WhichArguments,
    /// For whom to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// `ballast down`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast down
  ballast down --data-dir ./cluster
  ballast down --kubeconfig \"$KUBECONFIG\"

It is stopped as Ctrl-C does: operators finish what they do, pods end, requests are answered. What is kept stays, and the \
next `ballast up` goes on with it. Where nothing runs there is nothing to do, and the exit code is 0; where one was killed and its pods go on, start it again \
first.")]
pub struct DownArguments {
    /// Which one.
    #[command(flatten)]
    pub which: WhichArguments,
}

/// Which `ballast up` is meant.
#[derive(Debug, Args)]
pub struct WhichArguments {
    /// The one that keeps its cluster in this directory [default: the one of $KUBECONFIG, or $XDG_DATA_HOME/ballast]
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    pub data_dir: Option<PathBuf>,
    /// The one that wrote this kubeconfig, wherever it keeps its cluster
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// `ballast run`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast run
  ballast run --leader-elect --metrics-bind-address :9090
  WATCH_NAMESPACE=shop,blog ballast run --metrics-bind-address 0")]
pub struct RunArguments {
    /// The cluster [default: $KUBECONFIG, the cluster of this pod, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Look after these namespaces only, separated by commas [default: all]
    #[arg(long, value_name = "NAMESPACES", env = "WATCH_NAMESPACE", hide_env_values = true)]
    pub watch_namespace: Option<String>,
    /// Where to serve metrics; 0 for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_bind_address: String,
    /// Where to serve /healthz and /readyz; 0 for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,
    /// Serve the last rounds of each resource at /debug/recorder beside the metrics. It shows names, never secrets
    #[arg(long)]
    pub debug_recorder: bool,
    /// Of several copies let one act at a time, by a Lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// The namespace of the Lease [default: $POD_NAMESPACE, this pod's, or ballast-system]
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// The name of the Lease
    #[arg(long, value_name = "NAME", default_value = "ballast")]
    pub leader_election_id: String,
    /// How many resources of a kind are worked on at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub max_concurrent_reconciles: u16,
    /// The image of Ballast that pods of databases get their agent from
    #[arg(long, value_name = "IMAGE", default_value = THIS_IMAGE)]
    pub agent_image: String,
    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// `ballast plan`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast plan -f memcached.yaml              against KUBECONFIG's cluster
  ballast plan -f memcached.yaml --offline    what a fresh resource gets
  kubectl get memcacheds -o yaml | ballast plan -f -

Nothing is ever written. Exit code: 0 nothing to do, 2 changes, 1 error.")]
pub struct PlanArguments {
    /// The file with the resources, as YAML or JSON; - for standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Ask no cluster: plan for resources that are new
    #[arg(long, conflicts_with = "kubeconfig")]
    pub offline: bool,
    /// The namespace of resources that name none [default: the kubeconfig's]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The cluster [default: $KUBECONFIG, the cluster of this pod, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The image of Ballast that pods of databases get their agent from
    #[arg(long, value_name = "IMAGE", default_value = THIS_IMAGE)]
    pub agent_image: String,
    /// For whom to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// `ballast image`
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  ballast image ls
  ballast image pull memcached:1.6
  ballast image import shop.tar --name example.com/shop:1.0
  ballast image rm example.com/shop:1.0

Images come from recipes, made on first use from Debian packages, and from archives. No image registry is asked.")]
pub enum ImageCommand {
    /// List the images that are there
    #[command(visible_alias = "list")]
    Ls {
        /// For whom to print
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Make an image by its recipe now, instead of when the first pod needs it
    Pull {
        /// Its name, as a pod gives it
        #[arg(value_name = "IMAGE")]
        image: String,
        /// Fail where the tag can't be had exactly
        #[arg(long = "strict-images")]
        strict: bool,
    },
    /// Import the images of an OCI archive, a docker archive or an OCI layout directory
    Import {
        /// The archive or directory
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What to call it [default: as the archive does]
        #[arg(long, value_name = "IMAGE")]
        name: Option<String>,
    },
    /// Remove images that no container runs from
    #[command(visible_alias = "remove")]
    Rm {
        /// Names, ids, or beginnings of ids
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
    },
    /// Write an image of this program as an OCI archive
    #[command(hide = true)]
    Pack {
        /// The archive to write
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What it is called
        #[arg(long, value_name = "IMAGE", default_value = THIS_IMAGE)]
        name: String,
    },
    /// Write an image as an OCI archive, for a container runtime that makes none itself
    #[command(hide = true)]
    Export {
        /// Its name, as a pod gives it
        #[arg(value_name = "IMAGE")]
        image: String,
        /// The archive to write
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// What the archive calls it [default: as it is asked for]
        #[arg(long, value_name = "IMAGE")]
        name: Option<String>,
        /// What it runs [default: as the image says]
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// `ballast agent`
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  ballast agent install /ballast    in an init container: a directory they share
  /ballast/ballast agent run postgres --volume /var/lib/postgresql \\
      --superuser-password-file /secrets/password")]
pub enum AgentCommand {
    /// Copy this program into a directory that the containers of a pod share
    Install {
        /// The directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Prepare a volume the first time, and run a server on it
    Run(AgentRunArguments),
    /// What is done once.
    #[command(flatten)]
    Backup(BackupCommand),
}

/// `ballast agent run`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast agent run postgres --volume /var/lib/postgresql \\
      --superuser-password-file /secrets/password -- -c max_connections=50
  ballast agent run mariadb --volume /var/lib/mysql \\
      --superuser-password-file /secrets/root-password \\
      --database shop --user shop --user-password-file /secrets/password
  ballast agent run etcd --volume /var/lib/etcd --member etcd-0 \\
      -- --listen-client-urls=http://0.0.0.0:2379

The volume says from then on whose data it holds: another server, or another version, is refused. Database and user \
are looked at only while a volume is prepared. The files of passwords must be there at each start; with --listen, \
MySQL and MariaDB are told what they hold whenever that changes. The exit code is the server's; why it ended is in the \
termination message.")]
pub struct AgentRunArguments {
    /// Which server
    #[arg(value_enum, value_name = "SERVER")]
    pub server: Server,
    /// Where its volume is mounted; the data goes into a directory below
    #[arg(long, value_name = "DIR")]
    pub volume: PathBuf,
    /// The file with the password of the superuser: postgres, or root
    #[arg(long, value_name = "FILE")]
    pub superuser_password_file: Option<PathBuf>,
    /// A database to begin with
    #[arg(long, value_name = "NAME", requires = "user")]
    pub database: Option<String>,
    /// The user that the database belongs to
    #[arg(long, value_name = "NAME", requires_all = ["database", "user_password_file"])]
    pub user: Option<String>,
    /// The file with the password of that user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub user_password_file: Option<PathBuf>,
    /// The name that an etcd member has in its cluster
    #[arg(long, value_name = "NAME")]
    pub member: Option<String>,
    /// Open the data of an older series, after which there is no way back
    #[arg(long)]
    pub upgrade: bool,
    /// Say over HTTP how a MySQL or MariaDB server fares: /status, /readyz, /healthz
    #[arg(long, value_name = "[ADDRESS]:PORT", value_parser = listens)]
    pub listen: Option<SocketAddr>,
    /// Where to say why it ended
    #[arg(long, value_name = "FILE", default_value = ballast_agent::DEFAULT_LOG)]
    pub termination_log: PathBuf,
    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
    /// What else the server is called with
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub arguments: Vec<std::ffi::OsString>,
}

/// An address, or a port on every one: `:8083`.
fn listens(text: &str) -> Result<SocketAddr, String> {
    let everywhere = text.strip_prefix(':').map(|port| format!("[::]:{port}"));
    everywhere.as_deref().unwrap_or(text).parse().map_err(|_| "this is no address and port".to_owned())
}

/// A server that the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// PostgreSQL
    Postgres,
    /// MariaDB
    Mariadb,
    /// MySQL
    Mysql,
    /// A member of an etcd cluster
    Etcd,
}

/// `ballast gordon-server`
#[derive(Debug, Args)]
pub struct GordonServerArguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = std::net::SocketAddr::from(([0, 0, 0, 0], ballast_gordon_web::PORT)))]
    pub listen: std::net::SocketAddr,
}

/// `ballast manifests`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ballast manifests | kubectl apply --server-side -f -
  ballast manifests --image example.com/ballast:1.0 --watch-namespace shop,blog")]
pub struct ManifestsArguments {
    /// The image of Ballast
    #[arg(long, value_name = "IMAGE", default_value = THIS_IMAGE)]
    pub image: String,
    /// How many copies to run, of which one acts at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub replicas: u32,
    /// Look after these namespaces only, separated by commas, and be allowed nothing in others [default: all]
    #[arg(long, value_name = "NAMESPACES", env = "WATCH_NAMESPACE", hide_env_values = true)]
    pub watch_namespace: Option<String>,
}

/// `ballast version`
#[derive(Debug, Args)]
pub struct VersionArguments {
    /// For whom to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// How to log.
#[derive(Debug, Args)]
pub struct LogArguments {
    /// For whom to log
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Human)]
    pub log_format: LogFormat,
    /// What to log: error, warn, info, debug, trace, or a filter as in RUST_LOG
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", hide_env_values = true)]
    pub log_level: Option<String>,
}

impl LogArguments {
    /// As they are typed.
    pub fn to_flags(&self) -> Vec<String> {
        let format = match self.log_format {
            LogFormat::Human => "human",
            LogFormat::Json => "json",
        };
        let level = self.log_level.iter().map(|level| format!("--log-level={level}"));
        [format!("--log-format={format}")].into_iter().chain(level).collect()
    }
}

/// For whom to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// People
    Text,
    /// Programs
    Json,
}

/// For whom to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// People
    Human,
    /// Programs: one JSON object a line
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_are_sound() {
        Arguments::command().debug_assert();
    }

    /// What help wraps is a paragraph, and stays one; what it must not wrap fits where people read it.
    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        fn check(command: &clap::Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let mut before = "";
            for line in text.lines() {
                let (name, example) = (command.get_name(), line.starts_with(' '));
                assert!(!example || line.chars().count() <= 80, "{name}: {line}");
                let paragraph = !line.is_empty() && !example && !line.ends_with(':');
                assert!(!paragraph || before.is_empty(), "{name}: {before} | {line}");
                before = line;
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }

    #[test]
    fn leader_election_is_asked_for_as_go_programs_are() {
        for (flags, expected) in [
            ("", false),
            ("--leader-elect", true),
            ("--leader-elect=true", true),
            ("--leader-elect=false", false),
        ] {
            let words = ["ballast", "run"].into_iter().chain(flags.split_whitespace());
            let Command::Run(run) = Arguments::try_parse_from(words).unwrap().command else { panic!() };
            assert_eq!(run.leader_elect, expected, "{flags}");
        }
    }

    #[test]
    fn the_node_is_told_to_log_as_up_does() {
        for flags in
            ["", "--log-format=json", "--log-level=debug", "--log-format=json --log-level=a=info,b=warn"]
        {
            let words = ["ballast", "up"].into_iter().chain(flags.split_whitespace());
            let Command::Up(up) = Arguments::try_parse_from(words).unwrap().command else { panic!() };
            let words = ["ballast".to_owned(), "node".to_owned()].into_iter().chain(up.log.to_flags());
            let Command::Node(log) = Arguments::try_parse_from(words).unwrap().command else { panic!() };
            assert_eq!((log.log_format, log.log_level), (up.log.log_format, up.log.log_level), "{flags}");
        }
    }
}
