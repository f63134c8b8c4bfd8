//! What was proven, and what was found.

use std::{fmt, time::Duration};

use similar::TextDiff;

/// What every run is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// The run itself can be done: the cluster starts, and what people do is accepted.
    Run,
    /// After an act everything comes to rest: no more writes.
    Rest,
    /// However it came about, the state is the same as in the undisturbed life.
    Same,
    /// Everything that the operator made belongs to somebody who is still there.
    Orphans,
    /// What is deleted goes.
    Gone,
    /// Planning again on what there is has no effects.
    Effects,
    /// The same view gives the same plan, also in a new process.
    Repeatable,
    /// The linter has nothing to say about the plan.
    Lint,
    /// What the operator says is so: the invariants that the prover was given.
    Holds,
    /// What holds data is deleted only when its resource is.
    Data,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Check::Run => "the run could not be done",
            Check::Rest => "it does not come to rest",
            Check::Same => "the state is another",
            Check::Orphans => "something is orphaned",
            Check::Gone => "what is deleted does not go",
            Check::Effects => "planning again has effects",
            Check::Repeatable => "the same view gives different plans",
            Check::Lint => "the plan has a mistake",
            Check::Holds => "what is said is not so",
            Check::Data => "data was deleted",
        })
    }
}

/// Something that did not hold.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which check found it.
    pub check: Check,
    /// In which life.
    pub life: String,
    /// After which act.
    pub act: String,
    /// In which run: undisturbed, or after which crash, or with which fault.
    pub run: String,
    /// What was found.
    pub what: String,
    /// What the operator saw, planned and did in its last rounds. Of the first finding of a run only.
    pub rounds: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { check, life, act, run, what, rounds } = self;
        writeln!(f, "{check}: life \"{life}\", act \"{act}\", {run}")?;
        what.lines().take(LINES).try_for_each(|line| writeln!(f, "    {line}"))?;
        if let Some(more) = what.lines().count().checked_sub(LINES).filter(|more| *more > 0) {
            writeln!(f, "    ... and {more} more lines")?;
        }
        if f.alternate() && !rounds.is_empty() {
            writeln!(f, "  the last rounds:")?;
            rounds.lines().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        Ok(())
    }
}

/// How many of the possible runs of one sort were done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// How many were done.
    pub done: usize,
    /// How many there are.
    pub of: usize,
    /// In how many of those done the fault came to pass. A crash always does.
    pub struck: usize,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.done, self.of)?;
        if self.struck < self.done { write!(f, " ({} came to pass)", self.struck) } else { Ok(()) }
    }
}

/// How one life was proven.
#[derive(Clone, Debug)]
pub struct Proven {
    /// The life.
    pub life: String,
    /// How many acts it has.
    pub acts: usize,
    /// How many writes the operator needs for it, events aside.
    pub writes: usize,
    /// Crashes, each right after a write.
    pub crashes: Coverage,
    /// Writes that failed.
    pub write_faults: Coverage,
    /// Watches that were cut, late or stale.
    pub watch_faults: Coverage,
    /// Actions of the service that failed.
    pub action_faults: Coverage,
}

/// What was proven of an operator, and what was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The operator.
    pub operator: &'static str,
    /// How each life was proven.
    pub lives: Vec<Proven>,
    /// What did not hold.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// Whether everything held.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// The checks that found something, each once.
    pub fn checks(&self) -> Vec<Check> {
        let mut checks: Vec<Check> = self.findings.iter().map(|finding| finding.check).collect();
        checks.sort();
        checks.dedup();
        checks
    }

    /// Fails a test with the whole report unless everything held. Says in one paragraph what was done if it did.
    ///
    /// # Panics
    /// When something was found.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is an assertion for tests: a failure here is the answer")]
    pub fn assert_clean(&self) {
        if !self.is_clean() {
            panic!("{self}");
        }
        println!("{self}");
    }
}

/// How many findings are shown in full, the first with the rounds that led to it. The others are mostly the same
/// once more.
const SHOWN: usize = 5;
/// How many lines of a finding are shown: as many as a person reads.
const LINES: usize = 60;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for proven in &self.lives {
            let Proven { life, acts, writes, crashes, write_faults, watch_faults, action_faults } = proven;
            writeln!(f, "{}, \"{life}\": {acts} acts, {writes} writes", self.operator)?;
            writeln!(f, "    crashes after a write  {crashes}")?;
            writeln!(f, "    writes that fail       {write_faults}")?;
            writeln!(f, "    watches that fail      {watch_faults}")?;
            if action_faults.of > 0 {
                writeln!(f, "    actions that fail      {action_faults}")?;
            }
        }
        writeln!(f, "{} findings in {:.1} s", self.findings.len(), self.took.as_secs_f64())?;
        for (place, finding) in self.findings.iter().take(SHOWN).enumerate() {
            if place == 0 { write!(f, "\n{finding:#}")? } else { write!(f, "\n{finding}")? }
        }
        match self.findings.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => {
                writeln!(f, "\nand {more} more:")?;
                self.findings.iter().skip(SHOWN).try_for_each(|finding| {
                    writeln!(f, "    {}: act \"{}\", {}", finding.check, finding.act, finding.run)
                })
            }
        }
    }
}

/// What is different between two states.
pub(crate) fn difference(expected: &str, found: &str) -> String {
    let diff = TextDiff::from_lines(expected, found);
    diff.unified_diff().context_radius(4).header("undisturbed", "this run").to_string()
}
