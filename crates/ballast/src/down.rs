//! `ballast down`: stops a `ballast up`, as Ctrl-C does where it runs.

use std::time::{Duration, Instant};

use crate::configuration::Which;
use crate::failure::{Explain as _, Failure};
use crate::record;
use crate::terminal::say;
use crate::up::ground;

/// Who says nothing for so long hangs: longer than operators and requests are given. What volumes hold in memory may take
/// longer to save, and it is said all the while that it is.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often, in seconds, a person who waits is told that it takes its time.
const SAID: u64 = 5;
/// How often is looked for its end: more often than a person notices.
const LOOK: Duration = Duration::from_millis(20);

/// Stops what runs, waits for its end, and says what became of it.
///
/// # Errors
/// It is somebody else's, it does not end in order, or pods are left of one that was killed, which only the next can end.
pub async fn down(which: &Which) -> Result<String, Failure> {
    let Some(running) = record::find(which)? else {
        return match which {
            Which::Directory(directory) if ground::is_left(directory) => Err(which.is_down()),
            _ => Ok(format!("nothing runs: {which}\n")),
        };
    };
    let (record, process) = (&running.record, &running.process);
    let number = record.process;
    let began = Instant::now();
    process.terminate().what(format!("can't stop process {number}"))?;
    say(format_args!("stopping ballast {}, process {number}", record.version));
    let mut said = 0;
    let mut heard = (running.last_word(), began);
    while !process.has_ended().what(format!("can't wait for process {number}"))? {
        let waited = began.elapsed();
        let word = running.last_word();
        if word != heard.0 {
            heard = (word, Instant::now());
        }
        if heard.1.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            let still =
                format!("process {number} has not stopped, and shows no sign of it since {seconds} seconds");
            return Err(Failure::new(still).advise(format!(
                "look at what it prints, or end it with `kill -9 {number}`: what was acknowledged is kept, and the \
                 pods of a kept cluster run on, with what their volumes hold in memory, for the next start"
            )));
        }
        if waited.as_secs() / SAID > said {
            said = waited.as_secs() / SAID;
            say(format_args!("it finishes what it was doing… {} s", waited.as_secs()));
        }
        tokio::time::sleep(LOOK).await;
    }
    if let Some(directory) = record.directory.as_ref().filter(|directory| ground::is_left(directory)) {
        let start = Which::Directory(directory.clone()).start();
        let left =
            "it has stopped, but not in order: something of its pods or their volumes in memory is left";
        return Err(
            Failure::new(left).advise(format!("see what it said, and then {start}, which takes it over"))
        );
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(format!("stopped in {seconds:.1} s; {}\n", record::what_is_left(record.directory.as_deref())))
}
