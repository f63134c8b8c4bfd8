//! When backups are made: schedules as CronJobs take them, in UTC.
//!
//! Fewer are taken than Kubernetes can read, so that the schema can say all of what [`Schedule::parse`] says: five fields
//! of numbers, names, ranges and steps, or a word like `@daily`; no `@every`, no time zone within, no range from a name
//! to a number. Of what is taken a CronJob makes the same times.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp, civil::Weekday, tz::TimeZone};

/// Longer than any schedule that a person writes.
pub(crate) const MAX_SCHEDULE: usize = 100;

pub(crate) const NOT_A_SCHEDULE: &str = "backupSchedule must be five fields, such as \"0 2 * * *\" for two o'clock every night, \
     or one of @hourly, @daily, @weekly, @monthly and @yearly; it is read in UTC";

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// How far a time is looked for. Between two leap days are eight years at most.
const FARTHEST: SignedDuration = SignedDuration::from_hours(24 * 366 * 9);

/// What a schedule looks like, for the schema. That a range goes upwards is [a rule of its own](UPWARDS).
pub(crate) static PATTERN: LazyLock<String> = LazyLock::new(|| {
    // Each number may be written with two digits.
    let fields = [
        field("[0-5]?[0-9]", &[]),
        field("([01]?[0-9]|2[0-3])", &[]),
        field("(0?[1-9]|[12][0-9]|3[01])", &[]),
        field("(0?[1-9]|1[0-2])", &MONTHS),
        field("0?[0-6]", &DAYS),
    ];
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    format!("^({}|{})$", words.join("|"), fields.join(" +"))
});

/// That a range of numbers goes upwards, for the schema.
pub(crate) const UPWARDS: &str = "self.findAll('[0-9]{1,2}-[0-9]{1,2}').all(range, \
     int(range.split('-')[0]) <= int(range.split('-')[1]))";

fn field(number: &str, names: &[&str]) -> String {
    let mut ranges = format!("{number}(-{number})?");
    for (place, name) in names.iter().enumerate() {
        let to = names.get(place..).unwrap_or_default().join("|");
        ranges = format!("{ranges}|(?i:{name})(-(?i:{to}))?");
    }
    let part = format!("([*?]|{ranges})(/[1-9][0-9]?)?");
    format!("{part}(,{part})*")
}

/// When something is to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

/// The numbers that a field names, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    bits: u64,
    /// Nothing was asked for.
    any: bool,
}

impl Schedule {
    /// Reads a schedule.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = WORDS.iter().find(|(word, _)| *word == text).map_or(text, |(_, fields)| fields);
        if text.chars().count() > MAX_SCHEDULE || text.starts_with(' ') || text.ends_with(' ') {
            return None;
        }
        let mut fields = text.split(' ').filter(|field| !field.is_empty());
        let mut next = |first, last, names: &[&str]| Field::parse(fields.next()?, first, last, names);
        let (minute, hour, day) = (next(0, 59, &[])?, next(0, 23, &[])?, next(1, 31, &[])?);
        let (month, weekday) = (next(1, 12, &MONTHS)?, next(0, 6, &DAYS)?);
        fields.next().is_none().then_some(Schedule { minute, hour, day, month, weekday })
    }

    /// The first time after `after`. None where there is none: not every month has a 31st.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let last = after.checked_add(FARTHEST).ok()?;
        let mut at = whole_minute(after)?.checked_add(SignedDuration::from_mins(1)).ok()?;
        while at <= last {
            let time = at.to_zoned(TimeZone::UTC);
            let wait = if !self.is_day(&time) {
                SignedDuration::from_hours(24 - i64::from(time.hour()))
                    - SignedDuration::from_mins(time.minute().into())
            } else if !self.hour.has(time.hour()) {
                SignedDuration::from_mins(60 - i64::from(time.minute()))
            } else if !self.minute.has(time.minute()) {
                SignedDuration::from_mins(1)
            } else {
                return Some(at);
            };
            at = at.checked_add(wait).ok()?;
        }
        None
    }

    /// The last time that is not after `now` and after `since`.
    pub(crate) fn last(&self, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let begin = |at: Timestamp| at.to_zoned(TimeZone::UTC).start_of_day().ok().map(|day| day.timestamp());
        // Backwards day by day, forwards within the day.
        let (mut day, first) = (begin(now)?, begin(since)?);
        while day >= first {
            if self.is_day(&day.to_zoned(TimeZone::UTC)) {
                let before = day.checked_sub(SignedDuration::from_mins(1)).ok()?;
                let times = std::iter::successors(self.next(before), |at| self.next(*at));
                let found = times.take_while(|at| *at <= now).filter(|at| *at > since).last();
                if found.is_some() {
                    return found;
                }
            }
            day = day.checked_sub(SignedDuration::from_hours(24)).ok()?;
        }
        None
    }

    fn is_day(&self, time: &jiff::Zoned) -> bool {
        let day = self.day.has(time.day());
        let weekday = self.weekday.has(Weekday::to_sunday_zero_offset(time.weekday()));
        // As cron has it: where both are asked for, either will do.
        let fits = if self.day.any || self.weekday.any { day && weekday } else { day || weekday };
        fits && self.month.has(time.month())
    }
}

fn whole_minute(at: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(at.as_second().div_euclid(60) * 60).ok()
}

impl Field {
    fn parse(text: &str, first: u32, last: u32, names: &[&str]) -> Option<Self> {
        let mut all = Field { bits: 0, any: false };
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (part, None),
            };
            let step = match step {
                Some(step) if step.len() > 2 || step.starts_with('0') => return None,
                Some(step) => Some(digits(step)?),
                None => None,
            };
            let (from, to) = match range {
                "*" | "?" => {
                    // As cron has it: with a step something was asked for.
                    all.any |= step.is_none_or(|step| step == 1);
                    (first, last)
                }
                range => match range.split_once('-') {
                    Some((from, to)) => {
                        let ((from, named), (to, too)) =
                            (number(from, first, names)?, number(to, first, names)?);
                        if named != too {
                            return None;
                        }
                        (from, to)
                    }
                    None => {
                        let (from, _) = number(range, first, names)?;
                        (from, if step.is_some() { last } else { from })
                    }
                },
            };
            if from < first || to > last || from > to {
                return None;
            }
            for number in (from..=to).step_by(step.map_or(1, |step| step as usize)) {
                all.bits |= 1 << number;
            }
        }
        Some(all)
    }

    fn has(&self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.bits & (1 << number) != 0)
    }
}

/// A number, or a name for one.
fn number(text: &str, first: u32, names: &[&str]) -> Option<(u32, bool)> {
    let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match named {
        Some(place) => Some((u32::try_from(place).ok()? + first, true)),
        None => digits(text).map(|number| (number, false)),
    }
}

fn digits(text: &str) -> Option<u32> {
    let right = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    right.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_time_is_that_of_a_cron_job() {
        for (schedule, after, expected) in [
            ("0 2 * * *", "2030-01-01T12:00:00Z", "2030-01-02T02:00:00Z"),
            ("@hourly", "2030-01-01T12:00:00Z", "2030-01-01T13:00:00Z"),
            ("*/15 * * * *", "2030-01-01T12:59:59Z", "2030-01-01T13:00:00Z"),
            ("30 6 * * MON-FRI", "2030-01-04T06:30:00Z", "2030-01-07T06:30:00Z"),
            ("0 0 13 * fri", "2030-01-01T00:00:00Z", "2030-01-04T00:00:00Z"),
            ("0 0 29 2 *", "2030-01-01T00:00:00Z", "2032-02-29T00:00:00Z"),
            ("5/20 * * * *", "2030-01-01T12:00:00Z", "2030-01-01T12:05:00Z"),
            ("0 0 1 jan,jul ?", "2030-01-01T00:00:00Z", "2030-07-01T00:00:00Z"),
        ] {
            let next = Schedule::parse(schedule).unwrap().next(at(after));
            assert_eq!(next, Some(at(expected)), "{schedule}");
        }
        assert_eq!(Schedule::parse("0 0 31 2 *").unwrap().next(at("2030-01-01T00:00:00Z")), None);
    }

    #[test]
    fn the_last_time_is_after_a_beginning_and_not_after_now() {
        let schedule = Schedule::parse("0 2 * * *").unwrap();
        let last = |since, now| schedule.last(at(since), at(now));
        assert_eq!(last("2030-01-01T00:00:00Z", "2030-01-03T01:59:00Z"), Some(at("2030-01-02T02:00:00Z")));
        assert_eq!(last("2030-01-01T00:00:00Z", "2030-01-03T02:00:00Z"), Some(at("2030-01-03T02:00:00Z")));
        assert_eq!(last("2030-01-02T02:00:00Z", "2030-01-03T01:59:00Z"), None);
    }
}
