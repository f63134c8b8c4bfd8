//! One field of a schedule: numbers, names, ranges, steps, lists of them.

use crate::ParseError;

/// What a field may hold.
pub(crate) struct Bounds {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

pub(crate) const MINUTES: Bounds = Bounds { least: 0, most: 59, names: &[] };
pub(crate) const HOURS: Bounds = Bounds { least: 0, most: 23, names: &[] };
pub(crate) const DAYS: Bounds = Bounds { least: 1, most: 31, names: &[] };
pub(crate) const MONTHS: Bounds = Bounds {
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
pub(crate) const WEEKDAYS: Bounds =
    Bounds { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// A set of numbers, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    bits: u64,
    /// Written as `*`, which counts for how days are combined.
    any: bool,
}

impl Field {
    pub(crate) fn parse(text: &str, bounds: &Bounds) -> Result<Self, ParseError> {
        let mut all = Self { bits: 0, any: false };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let one = range(part, bounds)?;
            all = Self { bits: all.bits | one.bits, any: all.any || one.any };
        }
        Ok(all)
    }

    pub(crate) fn has(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.bits >> number & 1 == 1)
    }

    pub(crate) fn is_any(self) -> bool {
        self.any
    }
}

fn range(text: &str, bounds: &Bounds) -> Result<Field, ParseError> {
    let wrong = |why: String| Err(ParseError(format!("{why}: {text}")));
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut any = matches!(ends[0], "*" | "?");
    let (start, mut end) = match ends.as_slice() {
        _ if any => (bounds.least, bounds.most),
        [only] => {
            let number = number_or_name(only, bounds)?;
            (number, number)
        }
        [first, last] => (number_or_name(first, bounds)?, number_or_name(last, bounds)?),
        [first, ..] => {
            number_or_name(first, bounds)?;
            return wrong("too many hyphens".into());
        }
        [] => (bounds.least, bounds.most),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            // A number with a step means from there on.
            if ends.len() == 1 {
                end = bounds.most;
            }
            if step > 1 {
                any = false;
            }
            step
        }
        _ => return wrong("too many slashes".into()),
    };
    let (least, most) = (bounds.least, bounds.most);
    if start < least {
        return wrong(format!("beginning of range ({start}) below minimum ({least})"));
    }
    if end > most {
        return wrong(format!("end of range ({end}) above maximum ({most})"));
    }
    if start > end {
        return wrong(format!("beginning of range ({start}) beyond end of range ({end})"));
    }
    if step == 0 {
        return wrong("step of range should be a positive number".into());
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    let bits = (start..=end).step_by(step).fold(0, |bits, number| bits | 1 << number);
    Ok(Field { bits, any })
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, ParseError> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(u32::try_from(at).unwrap_or(0) + bounds.least),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, ParseError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<i64>() {
        Ok(number) if number < 0 => {
            Err(ParseError(format!("negative number ({number}) not allowed: {text}")))
        }
        Ok(number) if numeric => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        _ => {
            let why = if numeric { "value out of range" } else { "invalid syntax" };
            Err(ParseError(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}")))
        }
    }
}
