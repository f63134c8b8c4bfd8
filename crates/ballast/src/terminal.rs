//! What is printed, and in which colours.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use crate::configuration::Environment;

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Yes: a person is looking.
    On,
    /// No.
    Off,
}

/// What a piece of text is, for the eye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Something comes.
    Added,
    /// Something changes.
    Changed,
    /// Something goes, or is wrong.
    Removed,
    /// A heading.
    Strong,
    /// Beside the point.
    Faint,
}

impl Colour {
    /// On a terminal, unless `NO_COLOR` says otherwise.
    pub fn on(stream: &impl IsTerminal, environment: &Environment) -> Self {
        let dumb = environment.get("TERM").is_some_and(|term| term == "dumb");
        if stream.is_terminal() && !dumb && environment.get("NO_COLOR").is_none() {
            Colour::On
        } else {
            Colour::Off
        }
    }

    /// The text in its colour.
    pub fn paint(self, tone: Tone, text: impl fmt::Display) -> String {
        let code = match (self, tone) {
            (Colour::Off, _) => return text.to_string(),
            (Colour::On, Tone::Added) => 32,
            (Colour::On, Tone::Changed) => 33,
            (Colour::On, Tone::Removed) => 31,
            (Colour::On, Tone::Strong) => 1,
            (Colour::On, Tone::Faint) => 2,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Prints to standard output. Whoever stops reading has read enough: that is no failure.
///
/// # Errors
/// The output can't be written for another reason, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Rows under one another, each column as wide as its widest cell, as kubectl prints them.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let line: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(line.join("   ").trim_end());
        text.push('\n');
    }
    text
}

/// Says something to the person at the terminal. Where nobody listens, nothing is lost.
pub fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
