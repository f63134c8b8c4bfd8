//! The termination message: the last line of a container, which Kubernetes shows in the pod's status.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Where Kubernetes reads it, unless the container says otherwise.
pub const DEFAULT_LOG: &str = "/dev/termination-log";

/// Kubernetes shows no more.
const LONGEST: usize = 4096;

/// Leaves a message: one line. Where Kubernetes made no file there is nobody to read it.
///
/// # Errors
/// When the file is there and can't be written.
pub fn leave(log: &Path, message: &str) -> io::Result<()> {
    let line = one_line(message);
    match OpenOptions::new().write(true).truncate(true).open(log) {
        Ok(mut file) => file.write_all(line.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The text without its line ends, as long as it may be.
fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut line = words.join(" ");
    let mut end = LONGEST.min(line.len());
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_that_fits_where_somebody_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        leave(&log, "nobody").unwrap();
        assert!(!log.exists());
        std::fs::write(&log, "something that was there before").unwrap();
        leave(&log, "one\n  two\n\n").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "one two");
        leave(&log, &"ü".repeat(4000)).unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "ü".repeat(2048));
    }
}
