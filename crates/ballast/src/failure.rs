//! What went wrong, in one line for the person at the terminal: what, why, and what to do next.

use std::error::Error;
use std::{fmt, io};

use crate::configuration::Environment;
use crate::terminal::{Colour, Tone, say};

/// An error and what to do about it. `Display` is one line, whatever the causes say.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    next: Option<String>,
}

impl Failure {
    /// A failure that has no other cause.
    pub fn new(what: impl fmt::Display) -> Self {
        Failure { error: anyhow::anyhow!("{what}"), next: None }
    }

    /// Says what to do next.
    #[must_use]
    pub fn advise(self, next: impl Into<String>) -> Self {
        Failure { next: Some(next.into()), ..self }
    }

    /// Says it to whoever started this program.
    pub fn complain(&self, environment: &Environment) {
        let colour = Colour::on(&io::stderr(), environment);
        say(format_args!("{} {self}", colour.paint(Tone::Removed, "error:")));
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure { error, next: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&causes(self.error.chain()))?;
        match &self.next {
            Some(next) => write!(f, "; {next}"),
            None => Ok(()),
        }
    }
}

/// Adds what was being done, and what to do about it, to whatever failed.
pub trait Explain<T> {
    /// Says what was being done.
    fn what(self, what: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Explain<T> for Result<T, E> {
    fn what(self, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::from(error.into().context(what.to_string())))
    }
}

/// Adds what to do next to a failure.
pub trait Advise<T> {
    /// Says what to do next.
    fn advise(self, next: impl Into<String>) -> Result<T, Failure>;
}

impl<T> Advise<T> for Result<T, Failure> {
    fn advise(self, next: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|failure| failure.advise(next))
    }
}

/// An error and its causes, joined with colons.
fn causes<'e>(errors: impl Iterator<Item = &'e (dyn Error + 'static)>) -> String {
    let mut said = String::new();
    for error in errors {
        let Some(text) = own_words(error) else { continue };
        // Many errors repeat their source.
        if said.ends_with(&text) {
            continue;
        }
        if !said.is_empty() {
            said.push_str(": ");
        }
        said.push_str(&text);
    }
    said
}

/// What an error says itself, without its source, on one line. `None` where it says nothing that a person needs.
fn own_words(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<kube::Error>() {
        return match error {
            kube::Error::Api(status) => Some(one_line(&status.message)),
            kube::Error::Service(_) | kube::Error::HyperError(_) => None,
            other => Some(without_source(&other.to_string(), other.source())),
        };
    }
    // The answer's words were said by the error around it.
    if error.is::<kube::core::Status>() || error.is::<Box<kube::core::Status>>() {
        return None;
    }
    let text = without_source(&error.to_string(), error.source());
    // hyper names the stage; the cause says it better.
    let says_nothing = text.is_empty() || text.starts_with("client error (");
    (!says_nothing).then_some(text)
}

fn without_source(text: &str, source: Option<&(dyn Error + 'static)>) -> String {
    let text = one_line(text);
    match source {
        Some(source) => {
            text.trim_end_matches(&one_line(&source.to_string())).trim_end_matches([':', ' ']).to_owned()
        }
        None => text,
    }
}

/// The first line, without the number that the system gives its errors.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.rfind(" (os error ") {
        Some(place) if line.ends_with(')') => line[..place].to_owned(),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("can't read it: {0}")]
    struct Repeats(#[source] io::Error);

    #[test]
    fn a_failure_is_one_line_with_its_causes_and_what_to_do() {
        let refused = || io::Error::from_raw_os_error(98);
        for (failure, expected) in [
            (Failure::new("no cluster"), "no cluster"),
            (Failure::new("no cluster").advise("start one"), "no cluster; start one"),
            (
                Failure::from(anyhow::Error::from(refused()).context("can't listen on 127.0.0.1:1")),
                "can't listen on 127.0.0.1:1: Address already in use",
            ),
            (
                Failure::from(anyhow::Error::from(Repeats(refused())).context("no configuration")),
                "no configuration: can't read it: Address already in use",
            ),
            (Failure::new("line 1\n  | snippet\n  | more"), "line 1"),
        ] {
            assert_eq!(failure.to_string(), expected);
        }
    }

    #[test]
    fn an_answer_of_the_server_is_its_message() {
        let status = kube::core::Status::failure("memcacheds \"x\" not found", "NotFound");
        let failure: Failure = anyhow::Error::from(kube::Error::Api(status.boxed())).into();
        assert_eq!(failure.to_string(), "memcacheds \"x\" not found");
    }
}
