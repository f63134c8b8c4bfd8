//! Debian packages by this machine's own apt, with a state of its own for each suite.
//!
//! **Guarantees.** Nothing of the machine's apt is changed, and none of its hooks run; its mirror, its proxies and
//! its trusted keys are used. No root is needed. Two who use the same suite wait for each other.
//!
//! The index of a suite is looked at again when it is older than [`FRESH_FOR`], and once more when a package of
//! it turns out to be gone.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};

use crate::packages::{Fetched, Package, Packages, PackagesError};
use crate::progress::{Progress, Report};

/// Debian changes its released suites a few times a year and sid four times a day.
pub const FRESH_FOR: SignedDuration = SignedDuration::from_hours(12);

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Packages that only the scripts need which would run when a package is installed. They are not run here, so
/// these count as installed.
const ASSUMED: &[&str] = &[
    "adduser",
    "debconf",
    "debianutils",
    "dpkg",
    "init-system-helpers",
    "login",
    "lsb-base",
    "passwd",
    "perl",
    "systemd",
    "sysvinit-utils",
    "ucf",
];

/// The beginnings of those settings of the machine's apt that say how it reaches a mirror, and how old that may be.
const NETWORK: &[&str] = &[
    "Acquire::http",
    "Acquire::ForceIP",
    "Acquire::Check-",
    "Acquire::Max-ValidTime",
    "Acquire::Min-ValidTime",
];

/// Suites that security updates are not published for beside.
const WITHOUT_SECURITY: &[&str] = &["sid", "unstable", "experimental"];

/// Where Debian's packages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The archive: a URI.
    pub debian: String,
    /// The archive of security updates, where the machine uses one.
    pub security: Option<String>,
}

impl Mirror {
    /// What the machine's own apt uses.
    ///
    /// # Errors
    /// When there is no apt, or it names no Debian mirror.
    pub fn of_this_machine() -> Result<Mirror, PackagesError> {
        let format = "$(REPO_URI) $(LABEL)";
        let output = Command::new("apt-get")
            .args(["indextargets", "--format", format, "Created-By: Packages"])
            .env("LC_ALL", "C.UTF-8")
            .output()
            .map_err(|error| PackagesError::NoProgram { program: "apt-get", error })?;
        Mirror::of_targets(&String::from_utf8_lossy(&output.stdout)).ok_or(PackagesError::NoMirror)
    }

    /// A line is a URI and the label that its Release file has, where that was ever fetched.
    fn of_targets(lines: &str) -> Option<Mirror> {
        let find = |label: &str, ending: &str| {
            lines
                .lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(uri, said)| *said == label || uri.trim_end_matches('/').ends_with(ending))
                .map(|(uri, _)| uri.to_owned())
        };
        Some(Mirror {
            debian: find("Debian", "/debian")?,
            security: find("Debian-Security", "/debian-security"),
        })
    }
}

/// Packages by apt.
pub struct Apt {
    state: PathBuf,
    mirror: OnceLock<Mirror>,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Apt {
    /// Keeps its state below `state`. Where no mirror is given, the machine's own is asked for when it is needed.
    pub fn new(state: PathBuf, mirror: Option<Mirror>, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Apt {
        let known = OnceLock::new();
        if let Some(mirror) = mirror {
            let _ = known.set(mirror); // it was empty
        }
        Apt { state, mirror: known, now }
    }

    fn mirror(&self) -> Result<&Mirror, PackagesError> {
        match self.mirror.get() {
            Some(mirror) => Ok(mirror),
            None => {
                let mirror = Mirror::of_this_machine()?;
                Ok(self.mirror.get_or_init(|| mirror))
            }
        }
    }

    /// The suite's state, locked, with an index that is fresh.
    fn suite(&self, suite: &str, report: Report<'_>) -> Result<Suite, PackagesError> {
        let suite = Suite::lock(&self.state, suite, report)?;
        let now = (self.now)();
        let fresh = suite.updated().is_some_and(|at| at <= now && now.duration_since(at) < FRESH_FOR);
        if !fresh {
            suite.update(self.mirror()?, now, report)?;
        }
        Ok(suite)
    }
}

impl Packages for Apt {
    fn version(
        &self,
        suite: &str,
        package: &str,
        report: Report<'_>,
    ) -> Result<Option<String>, PackagesError> {
        let suite = self.suite(suite, report)?;
        let said = suite.run("apt-cache", &["policy", package], report)?;
        Ok(said
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "))
            .filter(|version| *version != "(none)")
            .map(str::to_owned))
    }

    fn fetch(
        &self,
        suite: &str,
        packages: &[String],
        without: &[String],
        report: Report<'_>,
    ) -> Result<Vec<Fetched>, PackagesError> {
        let suite = self.suite(suite, report)?;
        suite.fetch(packages, without, report).or_else(|error| {
            let now = (self.now)();
            if suite.updated() == Some(now) {
                return Err(error);
            }
            tracing::debug!(%error, "looking at the index again");
            suite.update(self.mirror()?, now, report)?;
            suite.fetch(packages, without, report)
        })
    }
}

/// The state of one suite, for as long as its lock is held.
struct Suite {
    name: String,
    directory: PathBuf,
    _lock: File,
}

impl Suite {
    fn lock(state: &Path, name: &str, report: Report<'_>) -> Result<Suite, PackagesError> {
        let directory = state.join(name);
        let made = || -> io::Result<File> {
            for below in ["lists/partial", "cache/archives/partial", "nothing/partial", "none"] {
                fs::create_dir_all(directory.join(below))?;
            }
            let lock = File::create(directory.join("lock"))?;
            if lock.try_lock().is_err() {
                report(&Progress::Waiting);
                lock.lock()?;
            }
            Ok(lock)
        };
        let lock = made().map_err(|error| PackagesError::State { path: directory.clone(), error })?;
        Ok(Suite { name: name.to_owned(), directory, _lock: lock })
    }

    fn updated(&self) -> Option<Timestamp> {
        fs::read_to_string(self.directory.join("updated")).ok()?.trim().parse().ok()
    }

    fn update(&self, mirror: &Mirror, now: Timestamp, report: Report<'_>) -> Result<(), PackagesError> {
        report(&Progress::Index { suite: self.name.clone() });
        let security = mirror.security.as_ref().filter(|_| !WITHOUT_SECURITY.contains(&self.name.as_str()));
        self.configure(mirror, security)?;
        if let Err(error) = self.run("apt-get", &["-q", "update"], report) {
            if security.is_none() {
                return Err(error);
            }
            tracing::debug!(%error, suite = self.name, "trying without security updates");
            self.configure(mirror, None)?;
            self.run("apt-get", &["-q", "update"], report)?;
        }
        let _ = self.run("apt-get", &["-qq", "autoclean"], report); // old packages are only in the way
        self.write("updated", &now.to_string())
    }

    fn configure(&self, mirror: &Mirror, security: Option<&String>) -> Result<(), PackagesError> {
        let signed =
            if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let mut sources = format!("deb {signed}{} {} main\n", mirror.debian, self.name);
        if let Some(uri) = security {
            sources.push_str(&format!("deb {signed}{uri} {}-security main\n", self.name));
        }
        self.write("sources.list", &sources)?;
        self.write("status", &assumed(&[]))?;
        self.write("apt.conf", &self.configuration()?)
    }

    /// Read before anything else, so that the machine's own settings and hooks are not read at all; how it
    /// reaches the network is copied from them.
    fn configuration(&self) -> Result<String, PackagesError> {
        let here = self.directory.display();
        let dump = Command::new("apt-config")
            .args(["dump", "Acquire"])
            .output()
            .map_err(|error| PackagesError::NoProgram { program: "apt-config", error })?;
        let network: String = String::from_utf8_lossy(&dump.stdout)
            .lines()
            .filter(|line| NETWORK.iter().any(|setting| line.starts_with(setting)))
            .map(|line| format!("{line}\n"))
            .collect();
        let paths: String = [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::Etc::SourceParts", "none"),
            ("Dir::Etc::Parts", "none"),
            ("Dir::Etc::Main", "none/apt.conf"),
            ("Dir::Etc::Preferences", "none/preferences"),
            ("Dir::Etc::PreferencesParts", "none"),
            ("Dir::State", ""),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ]
        .iter()
        .map(|(setting, below)| format!("{setting} \"{here}/{below}\";\n"))
        .collect();
        // A sandbox user could not write here; the lock is this module's own; a missing list is an error.
        let rest = "APT::Sandbox::User \"\";\nDebug::NoLocking \"true\";\nAPT::Update::Error-Mode \"any\";\n\
                    APT::Install-Recommends \"false\";\nDir::Cache::srcpkgcache \"\";\nAcquire::Languages \"none\";\n\
                    Acquire::http::Timeout \"20\";\nAcquire::Retries \"2\";\n";
        Ok(format!("{network}{paths}{rest}"))
    }

    fn fetch(
        &self,
        packages: &[String],
        without: &[String],
        report: Report<'_>,
    ) -> Result<Vec<Fetched>, PackagesError> {
        self.write("status-without", &assumed(without))?;
        let status = format!("Dir::State::status={}", self.directory.join("status-without").display());
        // The cache is of the other status, and is left to it.
        let with = ["-o", &status, "-o", "Dir::Cache::pkgcache="];
        let named: Vec<&str> = packages.iter().map(String::as_str).collect();
        // What was downloaded before is not printed, so this looks into an empty cache.
        let nothing = format!("Dir::Cache::archives={}", self.directory.join("nothing").display());
        let plan = [&with[..], &["-qq", "-y", "-o", &nothing, "--print-uris", "install"], &named].concat();
        let planned = self.run("apt-get", &plan, report)?;
        let files: Vec<&str> = planned.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        let told = ["-q", "-y", "-o", "APT::Status-Fd=1", "--download-only", "install"];
        let download = [&with[..], &told, &named].concat();
        self.run("apt-get", &download, report)?;
        files
            .iter()
            .filter_map(|file| Some((file, package_of(file)?)))
            .map(|(name, package)| {
                let file = self.directory.join("cache/archives").join(name);
                match file.is_file() {
                    true => Ok(Fetched { package, file }),
                    false => Err(self.failed("apt-get", format!("{name} was not downloaded"))),
                }
            })
            .collect()
    }

    /// Runs one of apt's programs with this state, tells of downloads as they go, and returns what it printed.
    fn run(&self, program: &'static str, args: &[&str], report: Report<'_>) -> Result<String, PackagesError> {
        let no_program = |error| PackagesError::NoProgram { program, error };
        let mut child = Command::new(program)
            .args(args)
            .env("APT_CONFIG", self.directory.join("apt.conf"))
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(no_program)?;
        let stderr = child.stderr.take();
        let complaints = std::thread::spawn(move || {
            let mut said = Vec::new();
            stderr.map(|mut stderr| stderr.read_to_end(&mut said));
            said
        });
        let mut stdout = Vec::new();
        for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            let line = line.map_err(no_program)?;
            match download_of(&line) {
                Some(progress) => report(&progress),
                None => stdout.extend_from_slice(format!("{line}\n").as_bytes()),
            }
        }
        let status = child.wait().map_err(no_program)?;
        let output = Output { status, stdout, stderr: complaints.join().unwrap_or_default() };
        if !output.status.success() {
            return Err(self.failed(program, complaint(&output)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn failed(&self, program: &'static str, said: String) -> PackagesError {
        PackagesError::Failed { program, suite: self.name.clone(), said }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), PackagesError> {
        let path = self.directory.join(name);
        fs::write(&path, text).map_err(|error| PackagesError::State { path, error })
    }
}

/// What dpkg would have noted, had these been installed, in versions that are newer than any.
fn assumed(without: &[String]) -> String {
    let all = ASSUMED.iter().copied().chain(without.iter().map(String::as_str));
    all.map(|name| {
        format!(
            "Package: {name}\nStatus: install ok installed\nMaintainer: none <none@localhost>\n\
                 Architecture: {}\nMulti-Arch: allowed\nVersion: 9999:9999\nDescription: not needed here\n\n",
            crate::config::architecture()
        )
    })
    .collect()
}

/// `libc6_2.36-9_amd64.deb`; an epoch's colon is written `%3a`.
fn package_of(file: &str) -> Option<Package> {
    let mut parts = file.strip_suffix(".deb")?.splitn(3, '_');
    let (name, version) = (parts.next()?, parts.next()?);
    Some(Package { name: name.to_owned(), version: version.replace("%3a", ":") })
}

/// `dlstatus:1:12.5:Retrieving file 1 of 9`
fn download_of(line: &str) -> Option<Progress> {
    let mut words = line.strip_prefix("dlstatus:")?.rsplit("file ").next()?.split(" of ");
    Some(Progress::Download { number: words.next()?.parse().ok()?, of: words.next()?.trim().parse().ok()? })
}

/// What went wrong, in apt's words: its errors, without the warnings around them.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("E: ")).collect();
    match (errors.is_empty(), text.trim().is_empty()) {
        (false, _) => errors.join("; "),
        (true, false) => text.trim().replace('\n', "; "),
        (true, true) => output.status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_that_the_machine_uses() {
        let mirror = |debian: &str, security: Option<&str>| {
            Some(Mirror { debian: debian.to_owned(), security: security.map(str::to_owned) })
        };
        for (targets, expected) in [
            (
                "http://a/debian/ \nhttp://a/debian-security/ ",
                mirror("http://a/debian/", Some("http://a/debian-security/")),
            ),
            ("http://x/cloud/ Cloud\nhttp://a/deb Debian", mirror("http://a/deb", None)),
            ("http://a/ubuntu/ Ubuntu", None),
            ("", None),
        ] {
            assert_eq!(Mirror::of_targets(targets), expected, "{targets}");
        }
    }

    #[test]
    fn what_apt_prints_is_understood() {
        assert_eq!(
            package_of("zlib1g_1%3a1.3.dfsg+really1.3.1-1+b1_amd64.deb").unwrap().to_string(),
            "zlib1g 1:1.3.dfsg+really1.3.1-1+b1"
        );
        assert_eq!(package_of("partial"), None);
        assert_eq!(
            download_of("dlstatus:2:2.4308:Retrieving file 2 of 10"),
            Some(Progress::Download { number: 2, of: 10 })
        );
        assert_eq!(download_of("Get:2 file 2 of 10"), None);
    }
}
