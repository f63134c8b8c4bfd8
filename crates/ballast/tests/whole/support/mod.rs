//! A running `ballast`, and the real kubectl that talks to it; in the modules below, what only some tests need.

pub mod crashing;
pub mod dice;
pub mod disk;
pub mod forward;
pub mod machine;
pub mod mysql;
pub mod user;
pub mod writer;

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything takes that happens at all, on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// What a program said before it ended.
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Everything it said, when all went well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.status.success(), "{self}");
        self.stdout
    }

    /// What it complained of.
    #[track_caller]
    pub fn refused(self) -> String {
        assert!(!self.status.success(), "not refused: {self}");
        self.stderr
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- stdout ---\n{}\n--- stderr ---\n{}", self.status, self.stdout, self.stderr)
    }
}

/// Runs a program to its end.
pub fn said(command: &mut Command, input: &str) -> Said {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // Who does not read its input does not want it.
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writing.join().unwrap();
    Said {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// What is tested: this build's program, or another that `BALLAST_PROGRAM` leads to.
pub fn program() -> PathBuf {
    std::env::var_os("BALLAST_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_ballast").into()).into()
}

/// `ballast` with an environment that says nothing of any cluster.
pub fn ballast() -> Command {
    let mut command = Command::new(program());
    for variable in
        ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "WATCH_NAMESPACE", "RUST_LOG", "XDG_RUNTIME_DIR"]
    {
        command.env_remove(variable);
    }
    command.env("HOME", "/nonexistent").env("NO_COLOR", "1");
    command
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The kubectl that the tests use; had on the first call.
pub fn kubectl_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| said(&mut Command::new(root().join("hack/kubectl")), "").ok().trim().into())
}

/// Waits until `look` sees something. A kubectl that looks takes a processor from what it waits for, so it does for half of
/// the time at most; what is there only for a moment is seen by [`Cluster::follow`].
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let began = Instant::now();
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "still not after {PATIENCE:?}: {what}");
        sleep(began.elapsed().max(Duration::from_millis(20)));
    }
}

/// A `ballast` that runs until it is stopped; at the latest when this is dropped.
pub struct Process {
    child: Child,
    /// Locked, so that several threads of a test may use the cluster that it serves.
    stdout: Mutex<Receiver<String>>,
    stderr: Mutex<Receiver<String>>,
}

impl Process {
    pub fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Process { child, stdout, stderr }
    }

    /// The next line of its output.
    #[track_caller]
    pub fn line(&self) -> String {
        self.next_line().unwrap_or_else(|| panic!("it says nothing; it complained: {}", self.complaints()))
    }

    /// The next line of its output, unless that ends.
    #[track_caller]
    pub fn next_line(&self) -> Option<String> {
        match self.stdout.lock().unwrap().recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it says nothing; it complained: {}", self.complaints()),
        }
    }

    /// Where it says that it serves something, whatever port it was given.
    #[track_caller]
    pub fn serves(&self, what: &str) -> SocketAddr {
        let said = format!("serves {what} address=");
        let stderr = self.stderr.lock().unwrap();
        loop {
            let line = stderr.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not say {said:?}"));
            if let Some((_, address)) = line.split_once(&said) {
                return address.parse().unwrap();
            }
        }
    }

    /// What it complained of since the last time it was asked.
    pub fn complaints(&self) -> String {
        self.stderr.lock().unwrap().try_iter().collect::<Vec<_>>().join("\n")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal: `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        said(Command::new("sh").args(["-c", &format!("kill -{name} {}", self.id())]), "").ok();
    }

    /// Waits for its end, and gives its code and what else it printed.
    #[track_caller]
    pub fn end(&mut self) -> (i32, String) {
        let status = eventually("the process ends", || self.child.try_wait().unwrap());
        (status.code().unwrap_or(-1), self.stdout.lock().unwrap().iter().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Mutex<Receiver<String>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Mutex::new(receiver)
}

/// A cluster by `ballast up --memory`, with a directory of its own.
pub struct Cluster {
    pub up: Process,
    pub kubeconfig: PathBuf,
    pub directory: TempDir,
}

impl Cluster {
    pub fn start() -> Self {
        Cluster::with(&["--memory", "--no-node"])
    }

    pub fn with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let mut command = ballast();
        command.args(["up", "--listen", "127.0.0.1:0"]).args(flags).arg("--kubeconfig").arg(&kubeconfig);
        let up = Process::start(command);
        assert_eq!(up.line(), format!("ready: export KUBECONFIG={}", kubeconfig.display()));
        Cluster { up, kubeconfig, directory }
    }

    /// `ballast` with this cluster's kubeconfig.
    pub fn ballast(&self) -> Command {
        let mut command = ballast();
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// kubectl with this cluster's kubeconfig.
    pub fn command(&self) -> Command {
        let mut command = Command::new(kubectl_program());
        command
            .env("KUBECONFIG", &self.kubeconfig)
            // Ports come back: what kubectl remembers of another cluster must not be taken for this one's.
            .env("KUBECACHEDIR", self.directory.path().join("cache"))
            // It ends before it would have anything worth collecting.
            .env("GOGC", "off")
            .current_dir(root());
        command
    }

    /// Runs kubectl with words that have no spaces in them.
    pub fn kubectl(&self, words: &str) -> Said {
        self.kubectl_with(&words.split_whitespace().collect::<Vec<_>>(), "")
    }

    pub fn kubectl_with(&self, words: &[&str], input: &str) -> Said {
        said(self.command().args(words), input)
    }

    /// Applies YAML.
    pub fn apply(&self, yaml: &str) -> Said {
        self.kubectl_with(&["apply", "-f", "-"], yaml)
    }

    /// Deletes a pod of a StatefulSet, and waits for its successor. kubectl's own waiting takes one that is there at once
    /// for the one that goes, and never ends.
    #[track_caller]
    pub fn replace_pod(&self, name: &str) {
        let pod = format!("pod/{name}");
        let old = self.field(&pod, ".metadata.uid");
        assert_ne!(old, "", "there is no {pod}");
        self.kubectl(&format!("delete {pod} --wait=false")).ok();
        eventually(&format!("{pod} is another"), || {
            Some(self.field(&pod, ".metadata.uid")).filter(|uid| !uid.is_empty() && *uid != old)
        });
    }

    /// What a field of an object reads.
    pub fn field(&self, object: &str, path: &str) -> String {
        self.kubectl_with(&["get", object, "-o", &format!("jsonpath={{{path}}}")], "").stdout
    }

    /// Waits until a field of an object reads so.
    #[track_caller]
    pub fn becomes(&self, object: &str, path: &str, expected: &str) {
        eventually(&format!("{path} of {object} is {expected:?}"), || {
            (self.field(object, path) == expected).then_some(())
        });
    }

    /// What fields of an object read, a line for now and one for each change from now on.
    pub fn follow(&self, object: &str, paths: &[&str]) -> Process {
        let fields: Vec<_> = paths.iter().map(|path| format!("{{{path}}}")).collect();
        let mut command = self.command();
        command.args(["get", object, "--watch", "-o", &format!("jsonpath={}{{'\\n'}}", fields.join(" "))]);
        Process::start(command)
    }

    /// Waits until kubectl says something.
    #[track_caller]
    pub fn says(&self, words: &str, expected: &str) -> String {
        eventually(&format!("kubectl {words} says {expected:?}"), || {
            let said = self.kubectl(words);
            said.stdout.contains(expected).then_some(said.stdout)
        })
    }
}

/// The words of a table: its heading, then its rows.
pub fn table(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}
