//! Where log lines go, and how they look.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::arguments::{LogArguments, LogFormat};
use crate::failure::{Advise as _, Explain as _, Failure};
use crate::terminal::Colour;

/// Sends log lines to standard error from here on.
///
/// # Errors
/// The level is none.
pub fn start(arguments: &LogArguments, usual: &str, colour: Colour) -> Result<(), Failure> {
    let level = arguments.log_level.as_deref().filter(|level| !level.is_empty()).unwrap_or(usual);
    let next = "write error, warn, info, debug or trace";
    let what = format!("--log-level {level:?} is no level");
    // A filter takes any single word for the name of a module.
    if !level.contains(['=', ',']) && level.parse::<LevelFilter>().is_err() {
        return Err(Failure::new(what).advise(next));
    }
    let filter = EnvFilter::try_new(directives(level)).what(what).advise(next)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // Somebody else in the process may have chosen already, as a test does; then that stands.
    let _ = match arguments.log_format {
        LogFormat::Human => lines.with_ansi(colour == Colour::On).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
    };
    Ok(())
}

/// The filter that a level stands for.
fn directives(level: &str) -> String {
    match level {
        // The client logs each failed request as an error, its watches dump the whole answer. Whoever made the request
        // says what it means.
        "error" | "warn" | "info" => format!("{level},kube_client=off,kube_runtime=off"),
        filter => filter.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_own_lines_are_for_those_who_ask_for_them() {
        assert_eq!(directives("warn"), "warn,kube_client=off,kube_runtime=off");
        assert_eq!(directives("debug"), "debug");
        assert_eq!(directives("kube_runtime=warn"), "kube_runtime=warn");
    }
}
