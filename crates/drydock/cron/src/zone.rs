//! Time zones by their names.

use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// No time zone has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone {0}")]
pub struct UnknownZone(String);

/// The time zone of this name, exactly as the time zone database writes it. No name is UTC.
///
/// # Errors
/// When there is none.
pub fn zone(name: &str) -> Result<TimeZone, UnknownZone> {
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let found = ZONES.get(name).ok().filter(|zone| zone.iana_name() == Some(name));
    found.ok_or_else(|| UnknownZone(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_known_by_its_exact_name() {
        assert!(zone("Europe/Berlin").is_ok() && zone("").is_ok() && zone("Etc/UTC").is_ok());
        assert_eq!(zone("europe/berlin").unwrap_err().to_string(), "unknown time zone europe/berlin");
        assert_eq!(zone("Nowhere/City").unwrap_err().to_string(), "unknown time zone Nowhere/City");
    }
}
