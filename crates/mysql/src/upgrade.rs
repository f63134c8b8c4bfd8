//! From which version to which: the servers' own rules, as a table.
//!
//! MySQL goes from anything to anything up to the next series that is kept up for years, and never back; within a
//! series it goes back only where that series is one of those. Since 26.7 its versions are dates, which say nothing of
//! what is kept up for how long. MariaDB goes from anything to anything newer, and never
//! back but within a series. Neither opens what the other wrote.

use crate::flavour::{Flavour, Series, Server};

/// Whether a server may open what another one wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// It is the one that wrote it.
    Same,
    /// It may, after a backup: there is no way back from some of these.
    Open,
    /// It must not.
    Refused(Refusal),
}

/// Why it must not, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// One CamelCase word for programs.
    pub(crate) reason: &'static str,
    pub(crate) why: String,
    pub(crate) instead: String,
}

impl Refusal {
    fn new(reason: &'static str, why: String, instead: impl Into<String>) -> Self {
        Refusal { reason, why, instead: instead.into() }
    }

    /// One message of both.
    pub(crate) fn message(&self) -> String {
        format!("{}: {}", self.why, self.instead)
    }
}

/// Whether such a server is run at all.
pub(crate) fn supported(wanted: &Server) -> Result<(), Refusal> {
    let known = wanted.flavour.traits().known;
    let series = wanted.version.series();
    if known.iter().any(|range| range.contains(&series)) {
        return Ok(());
    }
    let oldest = known.iter().map(|range| range.start).min().filter(|oldest| series < *oldest);
    let why = match oldest {
        Some(oldest) => {
            format!("{wanted} is not run, {} {} is the oldest that is", wanted.flavour, series_text(oldest))
        }
        None => format!("{wanted} is not known here"),
    };
    Err(Refusal::new(
        "VersionNotSupported",
        why,
        "set mysqlVersion to one that is, such as 8.4, 9.7, 10.11 or 11.8",
    ))
}

/// Whether `wanted` may open what `wrote` wrote.
pub(crate) fn path(wrote: &Server, wanted: &Server) -> Path {
    if wrote.flavour != wanted.flavour {
        let why = format!("{wanted} can't open what {wrote} wrote");
        let instead = format!(
            "keep to {}, or make another MySQL with mysqlVersion {} and load a dump into it",
            wrote.flavour, wanted.version
        );
        return Path::Refused(Refusal::new("OtherFlavour", why, instead));
    }
    if wrote.version.satisfies(&wanted.version) {
        return Path::Same;
    }
    let (from, to) = (wrote.version.series(), wanted.version.series());
    let back = to < from || (to == from && wanted.version < wrote.version);
    if back && !(to == from && (wrote.flavour.traits().back_within)(from)) {
        let why = format!("{wanted} can't open what {wrote} wrote, which is newer");
        let instead = format!(
            "set mysqlVersion back to {}, or make another MySQL with mysqlVersion {} and load a dump into it",
            series_text(from),
            wanted.version
        );
        return Path::Refused(Refusal::new("Downgrade", why, instead));
    }
    if let Err(refusal) = supported(wanted) {
        return Path::Refused(refusal);
    }
    match station(wrote.flavour, from).filter(|station| to > *station) {
        None => Path::Open,
        Some(station) => {
            let why = format!("{wrote} can't be upgraded to {wanted} in one step");
            let instead = format!("set mysqlVersion to {} first", series_text(station));
            Path::Refused(Refusal::new("StepTooLarge", why, instead))
        }
    }
}

/// How far one step goes from a series, where there is a limit.
fn station(flavour: Flavour, from: Series) -> Option<Series> {
    flavour.traits().stations.iter().copied().find(|station| *station > from)
}

fn series_text((major, minor): Series) -> String {
    format!("{major}.{minor}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavour::Version;

    fn server(text: &str) -> Server {
        let version = Version::parse(text).unwrap();
        Server { flavour: Flavour::of_version(&version), version }
    }

    #[test]
    fn the_servers_own_rules_are_kept() {
        for (wrote, wanted, expected) in [
            ("8.0.40", "8.0", "same"),
            ("8.0.40", "8.0.40", "same"),
            ("8.0.40", "8.0.41", "open"),
            ("8.0.40", "8.0.39", "Downgrade"),
            ("8.4.3", "8.4.2", "open"),
            ("8.0.40", "8.4", "open"),
            ("8.0.40", "8.3", "open"),
            ("8.3.0", "8.4", "open"),
            ("8.3.0", "9.1", "StepTooLarge"),
            ("8.0.40", "9.7", "StepTooLarge"),
            ("8.4.3", "9.0", "open"),
            ("8.4.3", "9.7", "open"),
            ("9.1.0", "9.3", "open"),
            ("9.3.0", "9.1", "Downgrade"),
            ("9.1.1", "9.1.0", "Downgrade"),
            ("9.7.4", "9.7.3", "open"),
            ("9.6.0", "26.7", "StepTooLarge"),
            ("9.7.4", "26.7", "open"),
            ("26.7.0", "26.10.1", "open"),
            ("26.7.1", "26.7.0", "Downgrade"),
            ("26.10.0", "9.7", "Downgrade"),
            ("26.7.0", "27.1", "VersionNotSupported"),
            ("26.7.0", "12.3", "OtherFlavour"),
            ("8.0.40", "5.7", "Downgrade"),
            ("8.4.0", "8.0", "Downgrade"),
            ("5.7.44", "8.0", "open"),
            ("5.7.44", "8.4", "StepTooLarge"),
            ("8.0.40", "10.11", "OtherFlavour"),
            ("10.11.19", "8.4", "OtherFlavour"),
            ("10.11.19", "11.8", "open"),
            ("10.11.19", "10.11.18", "open"),
            ("10.6.20", "12.0", "open"),
            ("11.8.6", "10.11", "Downgrade"),
            ("11.8.6", "13.1", "VersionNotSupported"),
        ] {
            let found = match path(&server(wrote), &server(wanted)) {
                Path::Same => "same",
                Path::Open => "open",
                Path::Refused(refusal) => refusal.reason,
            };
            assert_eq!(found, expected, "{wrote} to {wanted}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do_instead() {
        let refused = |wrote, wanted| match path(&server(wrote), &server(wanted)) {
            Path::Refused(refusal) => refusal.message(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            refused("8.0.40", "5.7"),
            "MySQL 5.7 can't open what MySQL 8.0.40 wrote, which is newer: set mysqlVersion back to 8.0, or make \
             another MySQL with mysqlVersion 5.7 and load a dump into it"
        );
        assert_eq!(
            refused("8.0.40", "9.7"),
            "MySQL 8.0.40 can't be upgraded to MySQL 9.7 in one step: set mysqlVersion to 8.4 first"
        );
    }

    #[test]
    fn what_is_too_old_or_not_known_is_not_run() {
        for (wanted, expected) in [
            ("5.7", false),
            ("8.0", true),
            ("9.7.4", true),
            ("10.4", false),
            ("10.5", true),
            ("12.3", true),
            ("13.0", false),
            ("26.4", false),
            ("26.7.0", true),
            ("26.10", true),
            ("27.1", false),
        ] {
            assert_eq!(supported(&server(wanted)).is_ok(), expected, "{wanted}");
        }
    }
}
