//! Container logs in the CRI format: `<time> <stream> <F or P> <line>`.
//!
//! A line longer than [`LONGEST`] is written in parts, each but the last marked `P`. What a container wrote
//! without an end of line before it ended is a line too.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// How much of a line is kept in memory before it is written as a part; what containerd takes.
const LONGEST: usize = 16 * 1024;

/// Which of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Out,
    Err,
}

impl Output {
    fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
}

/// A log file that is being written.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// What has come of the line under way, by output.
    open: [Vec<u8>; 2],
}

impl Log {
    /// Opens a log, and adds to one that exists.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        Ok(Self { path: path.to_owned(), file: open(path)?, open: [Vec::new(), Vec::new()] })
    }

    /// Goes on in a new file of the same name, after the old one was moved away.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Takes what a container wrote.
    pub fn write(&mut self, output: Output, bytes: &[u8], now: Timestamp) -> io::Result<()> {
        let pending = &mut self.open[output as usize];
        let mut text = Vec::with_capacity(bytes.len() + 64);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, ended) = match piece.strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (piece, false),
            };
            pending.extend(line);
            while pending.len() > LONGEST {
                let rest = pending.split_off(LONGEST);
                format(&mut text, now, output, 'P', pending);
                *pending = rest;
            }
            if ended {
                format(&mut text, now, output, 'F', pending);
                pending.clear();
            }
        }
        self.file.write_all(&text)
    }

    /// Writes what has no end of line yet: the container has ended.
    pub fn finish(&mut self, now: Timestamp) -> io::Result<()> {
        for output in [Output::Out, Output::Err] {
            let pending = std::mem::take(&mut self.open[output as usize]);
            if !pending.is_empty() {
                let mut text = Vec::new();
                format(&mut text, now, output, 'F', &pending);
                self.file.write_all(&text)?;
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

fn format(text: &mut Vec<u8>, now: Timestamp, output: Output, tag: char, line: &[u8]) {
    text.extend(format!("{now:.9} {} {tag} ", output.name()).as_bytes());
    text.extend(line);
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(writes: &[(Output, &str)], expected: &str) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/0.log");
        let mut log = Log::open(&path).unwrap();
        let now: Timestamp = "2024-05-06T07:08:09.01Z".parse().unwrap();
        for (output, text) in writes {
            log.write(*output, text.as_bytes(), now).unwrap();
        }
        log.finish(now).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn each_line_has_its_time_and_output() {
        check(
            &[(Output::Out, "one\ntwo\n"), (Output::Err, "three\n")],
            "2024-05-06T07:08:09.010000000Z stdout F one\n\
             2024-05-06T07:08:09.010000000Z stdout F two\n\
             2024-05-06T07:08:09.010000000Z stderr F three\n",
        );
    }

    #[test]
    fn a_line_that_comes_in_pieces_is_one_line() {
        check(
            &[(Output::Out, "a"), (Output::Err, "x\n"), (Output::Out, "b\n"), (Output::Out, "last")],
            "2024-05-06T07:08:09.010000000Z stderr F x\n\
             2024-05-06T07:08:09.010000000Z stdout F ab\n\
             2024-05-06T07:08:09.010000000Z stdout F last\n",
        );
    }

    #[test]
    fn a_line_that_is_too_long_comes_in_parts() {
        let long = "x".repeat(LONGEST + 5);
        check(
            &[(Output::Out, &format!("{long}\n"))],
            &format!(
                "2024-05-06T07:08:09.010000000Z stdout P {}\n2024-05-06T07:08:09.010000000Z stdout F xxxxx\n",
                &long[..LONGEST]
            ),
        );
    }
}
