//! Schedules as CronJobs write them: five fields, or a word like `@hourly`, or `@every 1h30m`.
//!
//! **Always holds:** what is accepted, when it comes next and what is wrong are as in Kubernetes, whose words the
//! errors use. Nothing here reads a clock or a file; the time zones are part of the program.
//!
//! A local time that a change of the clocks leaves out is not made up for, and one that comes twice counts twice.

mod field;
mod zone;

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

use field::Field;
pub use zone::{UnknownZone, zone};

/// What is wrong with a schedule, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// When something is to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    when: When,
    /// The zone that the schedule itself names, as it could long ago.
    zone: Option<TimeZone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum When {
    /// At these times of these days.
    At { minute: Field, hour: Field, day: Field, month: Field, weekday: Field },
    /// Again after this long.
    Every(SignedDuration),
}

/// How far ahead a time is looked for.
const YEARS: i16 = 5;

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError("empty spec string".into()));
        }
        let mut rest = text;
        let mut named = None;
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            let (head, tail) = text.split_once(' ').unwrap_or((text, ""));
            let name = head.split_once('=').map_or("", |(_, name)| name);
            let found = zone(name);
            named = Some(found.map_err(|why| ParseError(format!("provided bad location {name}: {why}")))?);
            rest = tail.trim();
        }
        let when = if rest.starts_with('@') { word(rest)? } else { fields(rest)? };
        Ok(Self { when, zone: named })
    }

    /// The first time after `after`, in this zone unless the schedule names one. None when there is none within
    /// five years: not every month has a 31st.
    #[must_use]
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let (minute, hour, day, month, weekday) = match &self.when {
            When::At { minute, hour, day, month, weekday } => (minute, hour, day, month, weekday),
            When::Every(pause) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                return whole.checked_add(*pause).ok();
            }
        };
        let zone = self.zone.as_ref().unwrap_or(zone);
        // The next whole minute. A zone whose offset is no whole minute is history.
        let first = Timestamp::from_second(after.as_second().div_euclid(60).checked_add(1)?.checked_mul(60)?);
        let mut at: Zoned = first.ok()?.to_zoned(zone.clone());
        let last = at.year().saturating_add(YEARS);
        while at.year() <= last {
            at = if !month.has(at.month()) {
                at.last_of_month().ok()?.tomorrow().ok()?.start_of_day().ok()?
            } else if !matches(day, weekday, &at) {
                at.tomorrow().ok()?.start_of_day().ok()?
            } else if !hour.has(at.hour()) {
                let left = 60 - i64::from(at.minute());
                at.checked_add(SignedDuration::from_mins(left)).ok()?
            } else if !minute.has(at.minute()) {
                at.checked_add(SignedDuration::from_mins(1)).ok()?
            } else {
                return Some(at.timestamp());
            };
        }
        None
    }
}

/// Where both days are limited, either will do.
fn matches(day: &Field, weekday: &Field, at: &Zoned) -> bool {
    let (of_month, of_week) = (day.has(at.day()), weekday.has(at.weekday().to_sunday_zero_offset()));
    if day.is_any() || weekday.is_any() { of_month && of_week } else { of_month || of_week }
}

fn fields(text: &str) -> Result<When, ParseError> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields.as_slice() else {
        let found = fields.len();
        let shown = fields.join(" ");
        return Err(ParseError(format!("expected exactly 5 fields, found {found}: [{shown}]")));
    };
    Ok(When::At {
        minute: Field::parse(minute, &field::MINUTES)?,
        hour: Field::parse(hour, &field::HOURS)?,
        day: Field::parse(day, &field::DAYS)?,
        month: Field::parse(month, &field::MONTHS)?,
        weekday: Field::parse(weekday, &field::WEEKDAYS)?,
    })
}

fn word(text: &str) -> Result<When, ParseError> {
    let same = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => {
            let Some(pause) = other.strip_prefix("@every ") else {
                return Err(ParseError(format!("unrecognized descriptor: {other}")));
            };
            let pause = duration(pause)
                .map_err(|why| ParseError(format!("failed to parse duration {other}: {why}")))?;
            let whole = SignedDuration::from_secs(pause.as_secs().max(1));
            return Ok(When::Every(whole));
        }
    };
    fields(same)
}

/// Reads a length of time as Go writes it: `1h30m`, `1.5s`.
fn duration(text: &str) -> Result<SignedDuration, String> {
    let wrong = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        seconds += number * scale;
        rest = tail;
    }
    let length = SignedDuration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    Ok(if negative { -length } else { length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &str, place: &str, after: &str, expected: &[&str]) {
        let schedule = Schedule::parse(schedule).unwrap();
        let zone = zone(place).unwrap();
        let mut at: Timestamp = after.parse().unwrap();
        for expected in expected {
            at = schedule.next(at, &zone).unwrap();
            assert_eq!(at.to_string(), *expected);
        }
    }

    #[test]
    fn times_come_as_the_fields_say() {
        let after = "2026-02-27T23:58:30Z";
        check("* * * * *", "UTC", after, &["2026-02-27T23:59:00Z", "2026-02-28T00:00:00Z"]);
        check("*/20 9-10 * * *", "UTC", after, &["2026-02-28T09:00:00Z", "2026-02-28T09:20:00Z"]);
        check(
            "5/25 0 * * ?",
            "UTC",
            after,
            &["2026-02-28T00:05:00Z", "2026-02-28T00:30:00Z", "2026-02-28T00:55:00Z"],
        );
        check("0 0 31 * *", "UTC", after, &["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]);
        check("0 12 29 feb *", "UTC", after, &["2028-02-29T12:00:00Z"]);
        check("0 0 * jan,Mar mon-tue", "UTC", after, &["2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"]);
        check("0 0 1 * 5", "UTC", after, &["2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z"]);
        check("59 23 31 12 *", "UTC", after, &["2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"]);
    }

    #[test]
    fn words_stand_for_fields() {
        let after = "2026-02-27T23:58:30Z";
        check("@hourly", "UTC", after, &["2026-02-28T00:00:00Z", "2026-02-28T01:00:00Z"]);
        check("@weekly", "UTC", after, &["2026-03-01T00:00:00Z"]);
        check("@annually", "UTC", after, &["2027-01-01T00:00:00Z"]);
        check("@every 1h30m", "UTC", after, &["2026-02-28T01:28:30Z"]);
        check("@every 10ms", "UTC", "2026-02-27T23:58:30.5Z", &["2026-02-27T23:58:31Z"]);
    }

    #[test]
    fn a_zone_moves_the_times_with_its_clocks() {
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            // The 29th has no half past two.
            &["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"],
        );
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            // The 25th has two.
            &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        );
        check("0 0 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", &["2026-01-01T18:30:00Z"]);
        check("CRON_TZ=Asia/Tokyo 0 9 * * *", "UTC", "2026-01-01T12:00:00Z", &["2026-01-02T00:00:00Z"]);
    }

    #[test]
    fn a_day_that_never_comes_is_none() {
        let never = Schedule::parse("59 23 31 2 *").unwrap();
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().unwrap(), &TimeZone::UTC), None);
    }

    #[track_caller]
    fn refuse(schedule: &str, expected: &str) {
        assert_eq!(Schedule::parse(schedule).unwrap_err().to_string(), expected);
    }

    #[test]
    fn what_is_none_is_said_in_kubernetes_words() {
        refuse("", "empty spec string");
        refuse("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        refuse("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]");
        refuse("60 * * * *", "end of range (60) above maximum (59): 60");
        refuse("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        refuse("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3");
        refuse("*/0 * * * *", "step of range should be a positive number: */0");
        refuse("1-2-3 * * * *", "too many hyphens: 1-2-3");
        refuse("1/2/3 * * * *", "too many slashes: 1/2/3");
        refuse("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax");
        refuse("* * * * -1", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax");
        refuse("@often", "unrecognized descriptor: @often");
        refuse("@every day", "failed to parse duration @every day: time: invalid duration \"day\"");
        refuse("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere");
    }
}
