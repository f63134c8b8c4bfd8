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

/// The rooms below ours. The client logs each failed request as an error, its watches dump the whole answer, what
/// checks certificates complains by itself: whoever made the request says what it means.
const PLUMBING: [&str; 7] =
    ["h2", "hyper_util", "kube_client", "kube_runtime", "rustls", "rustls_platform_verifier", "tower"];

/// The filter that a level stands for: one word is about Ballast, and `trace` about everything.
fn directives(level: &str) -> String {
    match level {
        "error" | "warn" | "info" | "debug" => {
            let silent: Vec<String> = PLUMBING.iter().map(|room| format!(",{room}=off")).collect();
            format!("{level}{}", silent.concat())
        }
        filter => filter.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_own_lines_are_for_those_who_ask_for_them() {
        for level in ["error", "warn", "info", "debug"] {
            let directives = directives(level);
            assert!(directives.starts_with(&format!("{level},")), "{directives}");
            assert!(directives.contains(",rustls_platform_verifier=off"), "{directives}");
            assert!(EnvFilter::try_new(&directives).is_ok(), "{directives}");
        }
        assert_eq!(directives("trace"), "trace");
        assert_eq!(directives("kube_runtime=warn"), "kube_runtime=warn");
    }
}
