//! A `ballast up` that this program started, and what processes weigh.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

/// The images are there before anything is measured, as in a cluster that has run for a minute.
pub fn pull(ballast: &Path, images: &[&str]) -> Result<()> {
    for image in images {
        let made = Command::new(ballast).args(["image", "pull", image]).stdout(Stdio::null()).status()?;
        ensure!(made.success(), "the image {image} can't be made");
    }
    Ok(())
}

/// A cluster that this program started. It is told to stop when this is dropped, and leaves nothing.
pub struct Started {
    child: Child,
    pub kubeconfig: PathBuf,
}

impl Started {
    /// Starts one, and gives how long that took until `ready`, in milliseconds.
    pub fn up(ballast: &Path, flags: &[&str]) -> Result<(Self, f64)> {
        let began = Instant::now();
        let mut child = Command::new(ballast)
            .args(["up", "--listen", "127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("can't start {}: run `make build` first", ballast.display()))?;
        let output = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        match line.trim_end().split_once("KUBECONFIG=") {
            Some((_, file)) => Ok((Self { child, kubeconfig: file.into() }, milliseconds)),
            None => {
                child.wait()?;
                bail!("ballast up did not come up; start it by hand to see why")
            }
        }
    }

    /// The number of the process that serves the API.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// This process and everything below it, by number.
    fn processes(&self) -> Result<Vec<u32>> {
        let mut parents: BTreeMap<u32, u32> = BTreeMap::new();
        for number in processes()? {
            // A process that ended meanwhile is none.
            let Ok(stat) = fs::read_to_string(format!("/proc/{number}/stat")) else { continue };
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
            parents.insert(number, parent.unwrap_or(0));
        }
        let mut ours = vec![self.child.id()];
        let mut at = 0;
        while let Some(&parent) = ours.get(at) {
            ours.extend(parents.iter().filter(|&(_, &of)| of == parent).map(|(&number, _)| number));
            at += 1;
        }
        Ok(ours)
    }

    /// Those of them whose command line begins so.
    pub fn programs(&self, name: &str) -> Result<Vec<u32>> {
        let is_it = |process: &u32| {
            let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).replace('\0', " ").starts_with(name)
        };
        Ok(self.processes()?.into_iter().filter(is_it).collect())
    }

    /// The memory of all of them, what they share counted once, in MB.
    pub fn memory(&self) -> Result<f64> {
        let pss = |process: &u32| -> Option<f64> {
            let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
            kilobytes(&text, "Pss:")
        };
        Ok(self.processes()?.iter().filter_map(pss).sum::<f64>() * 1024.0 / 1e6)
    }

    /// The time that all of them have spent on a processor, in seconds.
    pub fn processor(&self) -> Result<f64> {
        Ok(self.processes()?.into_iter().filter_map(processor).sum())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // SIGTERM, so that nothing is left.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// The processes of this machine, by number.
pub fn processes() -> Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The time that a process has spent on a processor, in seconds; none when it has ended.
pub fn processor(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / 100.0)
}

/// The time that all processors of this machine were there for it, and the time that its host took from it though there
/// was something to do; in ticks.
pub fn machine() -> Result<[f64; 2]> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).context("no processors")?;
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|ticks| ticks.parse().ok()).collect();
    // The first eight; what guests had is in them. The last of these is what was taken.
    let taken = *ticks.get(7).context("no count of what the host took")?;
    Ok([ticks.iter().take(7).sum(), taken])
}

/// The resident memory of a process, in MB.
pub fn resident(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    Ok(kilobytes(&status, "VmRSS:").context("no VmRSS")? * 1024.0 / 1e6)
}

fn kilobytes(text: &str, field: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(field))?;
    rest.split_whitespace().next()?.parse().ok()
}
