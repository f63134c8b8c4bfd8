//! The formats of strings that Kubernetes checks (`format` of a custom resource's schema).
//!
//! Others, `int32` and `int64` among them, say something to a reader and are not checked.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use regex::Regex;

const KNOWN: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether values of the format are checked; dashes in the name make no difference.
pub(crate) fn is_known(format: &str) -> bool {
    KNOWN.contains(&format.replace('-', "").as_str())
}

/// Whether `text` is of the format; of one that is not known, everything is.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => uri(text),
        "email" => email(text),
        "hostname" => hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some('3')),
        "uuid4" => uuid(text, Some('4')),
        "uuid5" => uuid(text, Some('5')),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "creditcard" => credit_card(text),
        "ssn" => pattern(&SSN, text),
        "hexcolor" => pattern(&HEX_COLOR, text),
        "rgbcolor" => pattern(&RGB_COLOR, text),
        "byte" => STANDARD.decode(text).is_ok(),
        "date" => date(text),
        "datetime" => date_time(text),
        "duration" => duration(text).is_some(),
        "k8sshortname" => text.len() <= 63 && pattern(&SHORT_NAME, text),
        "k8slongname" => text.len() <= 253 && pattern(&LONG_NAME, text),
        _ => true,
    }
}

type Pattern = LazyLock<Option<Regex>>;

static SSN: Pattern = LazyLock::new(|| Regex::new(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$").ok());
static HEX_COLOR: Pattern = LazyLock::new(|| Regex::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok());
static RGB_COLOR: Pattern = LazyLock::new(|| {
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    Regex::new(&format!(r"^rgb\({part},{part},{part}\)$")).ok()
});
static SHORT_NAME: Pattern = LazyLock::new(|| Regex::new("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").ok());
static LONG_NAME: Pattern =
    LazyLock::new(|| Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").ok());
static HOSTNAME: Pattern = LazyLock::new(|| {
    let single = r"[a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)";
    let label = r"[a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)\.";
    Regex::new(&format!(r"^({single}|({label})+[a-zA-Z\p{{L}}]{{2,63}})$")).ok()
});
static CREDIT_CARD: Pattern = LazyLock::new(|| {
    let kinds = [
        "4[0-9]{12}(?:[0-9]{3})?",
        "5[1-5][0-9]{14}",
        "6(?:011|5[0-9][0-9])[0-9]{12}",
        "3[47][0-9]{13}",
        "3(?:0[0-5]|[68][0-9])[0-9]{11}",
        r"(?:2131|1800|35\d{3})\d{11}",
    ];
    Regex::new(&format!("^(?:{})$", kinds.join("|"))).ok()
});
static CLOCK: Pattern = LazyLock::new(|| {
    Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
});
static AMOUNT: Pattern = LazyLock::new(|| Regex::new(r"(\d+)\s*([A-Za-zµ]+)").ok());

fn pattern(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// A request URI: a scheme with something after it, or an absolute path.
fn uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && rest.starts_with('/')
}

fn email(text: &str) -> bool {
    let address = match text.split_once('<') {
        Some((_, rest)) => match rest.trim_end().strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let word = |text: &str| {
        !text.is_empty()
            && !text.starts_with('.')
            && !text.ends_with('.')
            && !text.contains("..")
            && text.chars().all(|c| !c.is_whitespace() && !c.is_control() && !"()<>[]:;@\\,\"".contains(c))
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || word(local)) && word(domain)
}

fn hostname(text: &str) -> bool {
    pattern(&HOSTNAME, text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let Ok(length) = length.parse::<u32>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && length <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && length <= 128)
}

/// Six, eight or twenty bytes in hexadecimal, in pairs with `:` or `-`, or in fours with `.`.
fn mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let fits =
            parts.iter().all(|part| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit()));
        fits && [6, 8, 20].contains(&(parts.len() * width / 2))
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let dashes_fit = {
        // A dash may stand, or not, after 8, 12, 16 and 20 digits.
        let (mut count, mut fits, mut last) = (0, true, ' ');
        for c in text.chars() {
            if c == '-' {
                fits &= [8, 12, 16, 20].contains(&count) && last != '-';
            } else {
                count += 1;
            }
            last = c;
        }
        fits && last != '-'
    };
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) || !dashes_fit {
        return false;
    }
    let Some(version) = version else { return true };
    let variant = digits.chars().nth(16).map(|c| c.to_ascii_lowercase());
    digits.chars().nth(12) == Some(version) && (version == '3' || variant.is_some_and(|c| "89ab".contains(c)))
}

fn digits(text: &str) -> Vec<u32> {
    text.chars()
        .filter(|c| !"- ".contains(*c))
        .filter_map(|c| if c == 'X' { Some(10) } else { c.to_digit(10) })
        .collect()
}

fn isbn10(text: &str) -> bool {
    let digits = digits(text);
    let last_is_free = digits.iter().take(9).all(|&digit| digit < 10);
    digits.len() == 10
        && last_is_free
        && (1..).zip(&digits).map(|(weight, digit)| weight * digit).sum::<u32>() % 11 == 0
}

fn isbn13(text: &str) -> bool {
    let digits = digits(text);
    let weighted =
        digits.iter().enumerate().map(|(index, digit)| if index % 2 == 0 { *digit } else { digit * 3 });
    digits.len() == 13 && digits.iter().all(|&digit| digit < 10) && weighted.sum::<u32>() % 10 == 0
}

fn credit_card(text: &str) -> bool {
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = number
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(index, digit)| if index % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 })
        .sum();
    pattern(&CREDIT_CARD, &number) && sum.is_multiple_of(10)
}

fn date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((day, clock)) = lower.split_once('t') else { return false };
    let Some(found) = CLOCK.as_ref().and_then(|pattern| pattern.captures(clock)) else { return false };
    let part = |index: usize, most: &str| found.get(index).is_some_and(|part| part.as_str() <= most);
    date(day) && part(1, "23") && part(2, "59") && part(3, "59")
}

/// A duration in nanoseconds: Go's form (`1h30m`, `-1.5s`), or amounts with units in words.
pub(crate) fn duration(text: &str) -> Option<i64> {
    go_duration(text).or_else(|| worded_duration(text))
}

fn go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    whole(if negative { -total } else { total })
}

fn worded_duration(text: &str) -> Option<i64> {
    const DAY: f64 = 86_400e9;
    const UNITS: &[(&[&str], f64)] = &[
        (&["ns", "nano"], 1.0),
        (&["us", "µs", "micro"], 1e3),
        (&["ms", "milli"], 1e6),
        (&["s", "sec"], 1e9),
        (&["m", "min"], 60e9),
        (&["h", "hr", "hour"], 3600e9),
        (&["d", "day"], DAY),
        (&["w", "wk", "week"], 7.0 * DAY),
    ];
    let mut total = None;
    for found in AMOUNT.as_ref()?.captures_iter(text) {
        let amount: f64 = found.get(1)?.as_str().parse().ok()?;
        let unit = found.get(2)?.as_str().to_lowercase();
        for (names, factor) in UNITS {
            let (long, short) = names.split_last()?;
            if short.contains(&unit.as_str()) || unit.starts_with(long) {
                *total.get_or_insert(0.0) += amount * factor;
            }
        }
    }
    whole(total?)
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn whole(nanoseconds: f64) -> Option<i64> {
    (nanoseconds.abs() < 9.2e18).then_some(nanoseconds as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_right_from_wrong() {
        for (format, right, wrong) in [
            (
                "date-time",
                &["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.123+01:00"][..],
                &["2024-01-02", "24-1-2T0:0:0Z", "2024-01-02T24:00:00Z", ""][..],
            ),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-9", "x"]),
            ("duration", &["1h30m", "0", "-1.5s", "22 ns", "3 days", "1w"], &["", "1", "h", "x y"]),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1", "10.0.0.256"]),
            ("ipv6", &["::1", "2001:db8::1"], &["10.0.0.1", ":::"]),
            ("cidr", &["10.0.0.0/8", "2001:db8::/32"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
            (
                "mac",
                &["01:23:45:67:89:ab", "01-23-45-67-89-ab", "0123.4567.89ab"],
                &["01:23:45", "01:23:45:67:89:zz"],
            ),
            (
                "uuid",
                &["a987fbc9-4bed-3078-cf07-9141ba07c9f3", "A987FBC94BED3078CF079141BA07C9F3"],
                &["a987fbc9-4bed", "a987fbc9--4bed-3078-cf07-9141ba07c9f3"],
            ),
            ("uuid4", &["57b73598-8764-4ad0-a76a-679bb6640eb1"], &["a987fbc9-4bed-3078-cf07-9141ba07c9f3"]),
            ("email", &["a@b.c", "Ann <ann@example.com>"], &["a", "@b", "a@", "a b@c"]),
            ("uri", &["http://a/b", "/path", "s3://bucket"], &["a b", "relative", ""]),
            ("hostname", &["a", "a.example.com", "1a"], &["-a", "a_b", ""]),
            ("byte", &["aGVsbG8="], &["?", "aGVsbG8"]),
            ("hexcolor", &["#fff", "00ff00"], &["#ff", "red"]),
            ("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2)", "rgb(1,2,256)"]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751042", "1"]),
            ("ssn", &["111-00-1111"], &["111"]),
            ("k8s-short-name", &["a-b"], &["A", "a.b", "-a"]),
            ("k8s-long-name", &["a.b-c"], &["a..b"]),
        ] {
            for text in right {
                assert!(matches(format, text), "{format}: {text}");
            }
            for text in wrong {
                assert!(!matches(format, text), "{format}: {text}");
            }
        }
        assert!(is_known("date-time") && !is_known("int32"));
    }
}
