//! What the system says of this process, under the names that Prometheus' own clients use and dashboards ask for.
//!
//! It is read anew each time it is shown. Where the system has no `/proc`, nothing is shown.

use std::fmt;
use std::fs;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// In what Linux counts a process's time for others to read, whatever it counts in itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is shown for a limit that there is not: the largest number that the system could have named.
const UNLIMITED: f64 = 18_446_744_073_709_551_615.0;

/// Shows the process.
#[derive(Debug)]
pub(crate) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(reading) = Reading::now() else { return Ok(()) };
        let mut show = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        let Reading { cpu_seconds, started, resident, virtual_size, virtual_limit, open_files, file_limit } =
            reading;
        show(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds",
            &ConstCounter::new(cpu_seconds),
        )?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory size in bytes", resident),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes", virtual_size),
            ("process_virtual_memory_max_bytes", "Maximum amount of virtual memory in bytes", virtual_limit),
            ("process_open_fds", "Number of open file descriptors", open_files),
            ("process_max_fds", "Maximum number of open file descriptors", file_limit),
            (
                "process_start_time_seconds",
                "Start time of the process since the Unix epoch in seconds",
                started,
            ),
        ] {
            show(name, help, &ConstGauge::new(value))?;
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Reading {
    cpu_seconds: f64,
    started: f64,
    resident: f64,
    virtual_size: f64,
    virtual_limit: f64,
    open_files: f64,
    file_limit: f64,
}

/// The texts that the system has about a process.
struct Texts<'a> {
    /// `/proc/stat`
    machine: &'a str,
    /// `/proc/self/stat`
    stat: &'a str,
    /// `/proc/self/status`
    status: &'a str,
    /// `/proc/self/limits`
    limits: &'a str,
}

impl Reading {
    fn now() -> Option<Self> {
        let read = |path: &str| fs::read_to_string(path).ok();
        let (machine, stat) = (read("/proc/stat")?, read("/proc/self/stat")?);
        let (status, limits) = (read("/proc/self/status")?, read("/proc/self/limits")?);
        let open = u32::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()?;
        Reading::of(&Texts { machine: &machine, stat: &stat, status: &status, limits: &limits }, open)
    }

    fn of(texts: &Texts<'_>, open: u32) -> Option<Self> {
        // The name in brackets may hold anything, brackets too.
        let (_, fields) = texts.stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let booted: f64 = after(texts.machine, "btime")?.parse().ok()?;
        let kilobytes = |name: &str| Some(after(texts.status, name)?.parse::<f64>().ok()? * 1024.0);
        let limit = |name: &str| match after(texts.limits, name)? {
            "unlimited" => Some(UNLIMITED),
            number => number.parse().ok(),
        };
        Some(Reading {
            cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
            started: booted + ticks(19)? / TICKS_PER_SECOND,
            resident: kilobytes("VmRSS:")?,
            virtual_size: kilobytes("VmSize:")?,
            virtual_limit: limit("Max address space")?,
            open_files: open.into(),
            file_limit: limit("Max open files")?,
        })
    }
}

/// The first word after the name of a line.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_writes_is_read() {
        let texts = Texts {
            machine: "cpu 1 2\nbtime 1700000000\nprocesses 5\n",
            stat: "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 1200 1048576 2560 18446744073709551615\n",
            status: "Name:\tballast\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\n",
            limits: "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      4096      files\n\
                     Max address space         unlimited unlimited bytes\n",
        };
        let expected = Reading {
            cpu_seconds: 3.0,
            started: 1_700_000_012.0,
            resident: 1_048_576.0,
            virtual_size: 2_097_152.0,
            virtual_limit: 1.844_674_407_370_955_2e19,
            open_files: 9.0,
            file_limit: 1024.0,
        };
        assert_eq!(Reading::of(&texts, 9), Some(expected));
        assert_eq!(Reading::of(&Texts { stat: "", ..texts }, 9), None);
    }
}
