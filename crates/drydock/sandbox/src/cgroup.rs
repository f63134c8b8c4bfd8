//! Limits of groups of processes, where the machine grants them.
//!
//! Both versions of the kernel's interface: one tree with all controllers (v2), or a tree for each (v1). As root a
//! group is made at the top of each tree, beside whatever else lives there, as a kubelet does. Without root it is
//! made below the group this process is in, if that was delegated: writable, and with its controllers passed on.
//! On v2 a group that has processes can't pass controllers on to groups below it, so this process moves into
//! a leaf of its own first.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Limits, Usage};

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Controller {
    Memory,
    Cpu,
    CpuAccounting,
    Pids,
}

impl Controller {
    const ALL: [Self; 4] = [Self::Memory, Self::Cpu, Self::CpuAccounting, Self::Pids];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Pids => "pids",
        }
    }
}

/// Where groups are made: a directory for each controller. With v2 they are all the same one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cgroups {
    unified: bool,
    parents: BTreeMap<Controller, PathBuf>,
    /// Where this process stepped aside to.
    aside: Option<PathBuf>,
}

impl Cgroups {
    /// Makes this host's own groups, named `name`; or says why there can be none.
    pub fn open(name: &str, root: bool) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        Self::find(&mounts, &own, name, root)
    }

    fn find(mounts: &str, own: &str, name: &str, root: bool) -> Result<Self, String> {
        let trees = Trees::read(mounts);
        let mut parents = BTreeMap::new();
        let mut why = "no cgroup controllers are mounted".to_owned();
        for (controller, tree) in &trees.split {
            let base = if root { tree.clone() } else { below(tree, own_path(own, Some(controller.name()))) };
            let directory = base.join(name);
            match make(&directory) {
                Ok(()) => {
                    parents.insert(*controller, directory);
                }
                Err(error) => why = format!("cgroup {}: {error}", base.display()),
            }
        }
        if !parents.is_empty() {
            return Ok(Self { unified: false, parents, aside: None });
        }
        let Some(tree) = trees.unified else { return Err(why) };
        let hint = if root {
            ""
        } else {
            "; `systemd-run --user --scope -p Delegate=yes` starts a program in one that does"
        };
        let base = if root { tree } else { below(&tree, own_path(own, None)) };
        let granted = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
        let wanted: Vec<Controller> = [Controller::Memory, Controller::Cpu, Controller::Pids]
            .into_iter()
            .filter(|controller| granted.split_ascii_whitespace().any(|name| name == controller.name()))
            .collect();
        if wanted.is_empty() {
            // Controllers that are in trees of their own are not in this one.
            let elsewhere = !trees.split.is_empty();
            let here = format!("cgroup {} grants neither memory, cpu nor pids{hint}", base.display());
            return Err(if elsewhere { why } else { here });
        }
        let directory = base.join(name);
        let mut aside = None;
        let made = make(&directory)
            .and_then(|()| {
                pass_on(&base, &wanted).or_else(|_| {
                    aside = Some(step_aside(&base, name, &wanted)?);
                    Ok(())
                })
            })
            .and_then(|()| pass_on(&directory, &wanted));
        match made {
            Ok(()) => {
                let mut parents: BTreeMap<_, _> =
                    wanted.into_iter().map(|controller| (controller, directory.clone())).collect();
                if parents.contains_key(&Controller::Cpu) {
                    parents.insert(Controller::CpuAccounting, directory);
                }
                Ok(Self { unified: true, parents, aside })
            }
            Err(error) => {
                let _left = fs::remove_dir(&directory);
                Err(format!("cgroup {}: {error}{hint}", base.display()))
            }
        }
    }

    /// The directories that this host made.
    pub fn directories(&self) -> Vec<PathBuf> {
        let mut directories: Vec<PathBuf> = self.parents.values().cloned().collect();
        directories.dedup();
        directories
    }

    /// Where this process stepped aside to; it can be removed once no process is in it.
    pub fn aside(&self) -> Option<&Path> {
        self.aside.as_deref()
    }

    /// Undoes stepping aside, once this host's groups are gone.
    pub fn step_back(&self) {
        if let Some((leaf, base)) = self.aside.as_ref().and_then(|leaf| Some((leaf, leaf.parent()?))) {
            let wanted: Vec<Controller> = self.parents.keys().copied().collect();
            let _kept = switch(base, &wanted, '-').and_then(|()| return_to(base, leaf));
        }
    }

    /// Whether a limit of this kind holds here.
    pub fn limits(&self, controller: Controller) -> bool {
        self.parents.contains_key(&controller)
    }

    /// Makes a pod's group.
    pub fn pod(&self, pod: &str, limits: &Limits) -> io::Result<Group> {
        let group = self.group(Path::new(pod));
        group.create(limits)?;
        if self.unified {
            let wanted: Vec<Controller> = self.parents.keys().copied().collect();
            if let Some(directory) = group.directories.values().next() {
                pass_on(directory, &wanted)?;
            }
        }
        Ok(group)
    }

    /// Makes a container's group in its pod's.
    pub fn container(&self, pod: &str, id: &str, limits: &Limits) -> io::Result<Group> {
        let group = self.group(&Path::new(pod).join(id));
        group.create(limits)?;
        if self.unified
            && let Some(directory) = group.directories.get(&Controller::Memory)
        {
            // A container that has lost one of its processes is no use to anyone.
            set(directory, "memory.oom.group", "1")?;
        }
        Ok(group)
    }

    /// A container's group that was made before.
    pub fn existing(&self, pod: &str, id: &str) -> Group {
        self.group(&Path::new(pod).join(id))
    }

    fn group(&self, path: &Path) -> Group {
        let directories =
            self.parents.iter().map(|(controller, parent)| (*controller, parent.join(path))).collect();
        Group { unified: self.unified, directories }
    }
}

/// A group of processes, in each controller's tree.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    unified: bool,
    directories: BTreeMap<Controller, PathBuf>,
}

impl Group {
    fn create(&self, limits: &Limits) -> io::Result<()> {
        for (controller, directory) in &self.directories {
            make(directory)?;
            for (file, value) in settings(*controller, self.unified, limits) {
                set(directory, file, &value)?;
            }
        }
        Ok(())
    }

    /// Moves the calling process in.
    pub fn join(&self) -> io::Result<()> {
        for directory in self.all() {
            fs::write(directory.join("cgroup.procs"), "0")?;
        }
        Ok(())
    }

    /// The directories, each once.
    pub fn all(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.directories.values().cloned().collect();
        all.dedup();
        all
    }

    /// Whether the kernel has ended a process of the group for its memory limit.
    pub fn out_of_memory(&self) -> bool {
        let file = if self.unified { "memory.events" } else { "memory.oom_control" };
        self.directories
            .get(&Controller::Memory)
            .and_then(|directory| fs::read_to_string(directory.join(file)).ok())
            .and_then(|text| field(&text, "oom_kill"))
            .is_some_and(|times| times > 0)
    }

    /// What the group uses, as far as its controllers say.
    pub fn usage(&self) -> Option<Usage> {
        let memory = self.directories.get(&Controller::Memory)?;
        let (total, cache) = if self.unified {
            ("memory.current", "inactive_file")
        } else {
            ("memory.usage_in_bytes", "total_inactive_file")
        };
        let total: u64 = fs::read_to_string(memory.join(total)).ok()?.trim().parse().ok()?;
        let cache = fs::read_to_string(memory.join("memory.stat")).ok().and_then(|text| field(&text, cache));
        let cpu_nanos = self.directories.get(&Controller::CpuAccounting).and_then(|directory| {
            if self.unified {
                let text = fs::read_to_string(directory.join("cpu.stat")).ok()?;
                Some(field(&text, "usage_usec")? * 1000)
            } else {
                fs::read_to_string(directory.join("cpuacct.usage")).ok()?.trim().parse().ok()
            }
        });
        Some(Usage { memory: total.saturating_sub(cache.unwrap_or(0)), cpu_nanos: cpu_nanos.unwrap_or(0) })
    }

    /// Ends every process of the group.
    pub fn kill(&self) {
        if let Some(directory) = self.all().first() {
            if self.unified && fs::write(directory.join("cgroup.kill"), "1").is_ok() {
                return;
            }
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            for pid in text.lines().filter_map(|line| line.parse().ok()) {
                let _gone = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
        }
    }
}

/// Removes a group and those below it; they must have no processes. Fine when it is not there.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let emptied = entries.into_iter().try_for_each(|entry| {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => remove(&entry.path()),
            false => Ok(()),
        }
    });
    // Somebody else may remove it at the same time.
    match emptied.and_then(|()| fs::remove_dir(directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Writes one of a group's files. Some are not there with every kernel, and there is nothing to set by them then: those
/// about swap without swap accounting, and the one that ends a group as a whole.
fn set(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = directory.join(file);
    let optional = file.contains("sw") || file == "memory.oom.group";
    match fs::write(&path, value) {
        // To write where nothing is is forbidden here, not in vain.
        Err(_) if optional && !path.exists() => Ok(()),
        other => other,
    }
}

/// The files to write for a limit. Memory comes before memory with swap: the second may not be smaller.
fn settings(controller: Controller, unified: bool, limits: &Limits) -> Vec<(&'static str, String)> {
    const PERIOD: u64 = 100_000;
    // The kernel's least; below it a quota is refused.
    let quota = |millis: u64| (millis.saturating_mul(PERIOD) / 1000).max(1000);
    let mut settings = Vec::new();
    match controller {
        Controller::Memory => {
            if let Some(bytes) = limits.memory {
                if unified {
                    settings.push(("memory.max", bytes.to_string()));
                    settings.push(("memory.swap.max", "0".to_owned()));
                } else {
                    settings.push(("memory.limit_in_bytes", bytes.to_string()));
                    settings.push(("memory.memsw.limit_in_bytes", bytes.to_string()));
                }
            }
        }
        Controller::Cpu => {
            if let Some(millis) = limits.cpu_millis {
                if unified {
                    settings.push(("cpu.max", format!("{} {PERIOD}", quota(millis))));
                } else {
                    settings.push(("cpu.cfs_period_us", PERIOD.to_string()));
                    settings.push(("cpu.cfs_quota_us", quota(millis).to_string()));
                }
            }
            if let Some(millis) = limits.cpu_request_millis {
                let shares = (millis.saturating_mul(1024) / 1000).clamp(2, 262_144);
                if unified {
                    // The kernel's own conversion from v1's range to v2's.
                    settings.push(("cpu.weight", (1 + (shares - 2) * 9999 / 262_142).to_string()));
                } else {
                    settings.push(("cpu.shares", shares.to_string()));
                }
            }
        }
        Controller::CpuAccounting => {}
        Controller::Pids => {
            if let Some(pids) = limits.pids {
                settings.push(("pids.max", pids.to_string()));
            }
        }
    }
    settings
}

/// The trees that are mounted.
#[derive(Default)]
struct Trees {
    unified: Option<PathBuf>,
    split: BTreeMap<Controller, PathBuf>,
}

impl Trees {
    fn read(mounts: &str) -> Self {
        let mut trees = Self::default();
        for line in mounts.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let (Some(point), Some(kind), Some(options)) =
                (before.split(' ').nth(4), after.split(' ').next(), after.split(' ').nth(2))
            else {
                continue;
            };
            match kind {
                "cgroup2" => trees.unified = Some(PathBuf::from(point)),
                "cgroup" => {
                    for controller in Controller::ALL {
                        if options.split(',').any(|option| option == controller.name()) {
                            trees.split.insert(controller, PathBuf::from(point));
                        }
                    }
                }
                _ => {}
            }
        }
        trees
    }
}

/// The group of this process in a controller's tree, or in the unified one.
fn own_path<'a>(own: &'a str, controller: Option<&str>) -> &'a str {
    own.lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        })
        .find(|(names, _)| match controller {
            Some(controller) => names.split(',').any(|name| name == controller),
            None => names.is_empty(),
        })
        .map_or("/", |(_, path)| path)
}

fn below(tree: &Path, path: &str) -> PathBuf {
    tree.join(path.trim_start_matches('/'))
}

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Lets the groups below a group have controllers.
fn pass_on(directory: &Path, controllers: &[Controller]) -> io::Result<()> {
    switch(directory, controllers, '+')
}

fn switch(directory: &Path, controllers: &[Controller], sign: char) -> io::Result<()> {
    let names: Vec<String> = controllers
        .iter()
        .filter(|controller| **controller != Controller::CpuAccounting)
        .map(|controller| format!("{sign}{}", controller.name()))
        .collect();
    fs::write(directory.join("cgroup.subtree_control"), names.join(" "))
}

/// Moves this process into a leaf of its own, so that its group can pass controllers on. In vain when others stay.
fn step_aside(base: &Path, name: &str, controllers: &[Controller]) -> io::Result<PathBuf> {
    let leaf = base.join(format!("{name}-node"));
    make(&leaf)?;
    let moved = fs::write(leaf.join("cgroup.procs"), "0").and_then(|()| pass_on(base, controllers));
    if let Err(error) = moved {
        let _kept = return_to(base, &leaf);
        return Err(error);
    }
    Ok(leaf)
}

fn return_to(base: &Path, leaf: &Path) -> io::Result<()> {
    fs::write(base.join("cgroup.procs"), "0")?;
    fs::remove_dir(leaf)
}

/// The value after a name, in a file of such lines.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, point: &Path, options: &str) -> String {
        format!("30 20 0:1 / {} rw,relatime - {kind} {kind} {options}\n", point.display())
    }

    #[test]
    fn split_trees_get_a_directory_each_and_their_own_files() {
        let fake = tempfile::tempdir().unwrap();
        let mut mounts = String::new();
        for name in ["memory", "cpu", "pids"] {
            fs::create_dir(fake.path().join(name)).unwrap();
            mounts += &mount("cgroup", &fake.path().join(name), &format!("rw,{name}"));
        }
        let groups = Cgroups::find(&mounts, "", "drydock-1", true).unwrap();
        let limits = Limits {
            memory: Some(1 << 20),
            cpu_millis: Some(250),
            cpu_request_millis: Some(100),
            pids: Some(7),
        };
        groups.pod("pod", &Limits::default()).unwrap();
        groups.container("pod", "c", &limits).unwrap();
        let read = |path: &str| fs::read_to_string(fake.path().join(path)).unwrap();
        assert_eq!(read("memory/drydock-1/pod/c/memory.limit_in_bytes"), "1048576");
        assert_eq!(read("cpu/drydock-1/pod/c/cpu.cfs_quota_us"), "25000");
        assert_eq!(read("cpu/drydock-1/pod/c/cpu.shares"), "102");
        assert_eq!(read("pids/drydock-1/pod/c/pids.max"), "7");
    }

    #[test]
    fn one_tree_has_all_controllers_that_were_delegated() {
        let fake = tempfile::tempdir().unwrap();
        let own = fake.path().join("user/app");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.controllers"), "memory pids io\n").unwrap();
        let mounts = mount("cgroup2", fake.path(), "rw");
        let groups = Cgroups::find(&mounts, "0::/user/app\n", "drydock-1", false).unwrap();
        assert!(groups.limits(Controller::Memory) && groups.limits(Controller::Pids));
        assert!(!groups.limits(Controller::Cpu));
        assert_eq!(fs::read_to_string(own.join("cgroup.subtree_control")).unwrap(), "+memory +pids");
        let group = groups.container("pod", "c", &Limits { memory: Some(5), ..Limits::default() });
        assert!(group.is_err(), "a container's group needs its pod's");
        groups.pod("pod", &Limits::default()).unwrap();
        groups.container("pod", "c", &Limits { memory: Some(5), ..Limits::default() }).unwrap();
        assert_eq!(fs::read_to_string(own.join("drydock-1/pod/c/memory.max")).unwrap(), "5");
    }

    #[test]
    fn one_tree_has_its_own_files_too() {
        let fake = tempfile::tempdir().unwrap();
        fs::write(fake.path().join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        let groups = Cgroups::find(&mount("cgroup2", fake.path(), "rw"), "", "drydock-1", true).unwrap();
        let limits = Limits {
            memory: Some(1 << 20),
            cpu_millis: Some(250),
            cpu_request_millis: Some(100),
            pids: Some(7),
        };
        groups.pod("pod", &Limits::default()).unwrap();
        groups.container("pod", "c", &limits).unwrap();
        for (file, expected) in [
            ("cpu.max", "25000 100000"),
            ("cpu.weight", "4"),
            ("memory.max", "1048576"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("pids.max", "7"),
        ] {
            let path = fake.path().join("drydock-1/pod/c").join(file);
            assert_eq!(fs::read_to_string(path).unwrap(), expected, "{file}");
        }
        assert!(!fake.path().join("drydock-1/pod/memory.oom.group").exists(), "a pod outlives a container");
        let least = Limits { cpu_millis: Some(1), cpu_request_millis: Some(0), ..Limits::default() };
        groups.container("pod", "least", &least).unwrap();
        let read =
            |file: &str| fs::read_to_string(fake.path().join("drydock-1/pod/least").join(file)).unwrap();
        assert_eq!(
            (read("cpu.max").as_str(), read("cpu.weight").as_str()),
            ("1000 100000", "1"),
            "no less is taken"
        );
    }

    #[test]
    fn what_a_kernel_does_not_have_is_not_set() {
        // Like a tree of groups, this makes no files for those who write.
        let here = Path::new("/proc/self");
        for (file, needed) in [("memory.swap.max", false), ("memory.oom.group", false), ("memory.max", true)]
        {
            assert_eq!(set(here, file, "0").is_err(), needed, "{file}");
        }
    }

    #[test]
    fn a_machine_without_controllers_says_so() {
        assert_eq!(Cgroups::find("", "", "x", false).unwrap_err(), "no cgroup controllers are mounted");
    }

    #[test]
    fn what_was_counted_is_read_from_either_version() {
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "oom_kill"), Some(2));
        assert_eq!(field("low 0\noom 1\noom_kill 0\n", "oom_kill"), Some(0));
    }
}
