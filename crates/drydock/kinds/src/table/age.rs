//! How long ago, as kubectl says it.

use jiff::Timestamp;

/// The time between `then` (RFC 3339) and `now`.
#[must_use]
pub fn since(then: Option<&str>, now: Timestamp) -> String {
    let Some(then) = then.filter(|then| !then.is_empty()) else { return "<unknown>".to_owned() };
    match then.parse::<Timestamp>() {
        Ok(then) => human(now.duration_since(then).as_secs()),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration with no more precision than its length deserves.
#[must_use]
pub fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_said_as_kubectl_says_it() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_172_000, "2y1d"),
            (300_000_000, "9y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
