//! Signals as images name them: `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`.

/// Those with names, by number from 1 on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// What else some of them are called.
const ALIASES: [(&str, i32); 3] = [("IOT", 6), ("CLD", 17), ("POLL", 29)];
/// Those without: the first that libc leaves to programs, and the last that there is. The two before are libc's own.
const REAL_TIME: (i32, i32) = (34, 64);

/// The number of a signal, if there is one of that name.
pub(crate) fn number(text: &str) -> Option<i32> {
    let text = text.to_ascii_uppercase();
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    let (first, last) = REAL_TIME;
    let distance = |rest: &str, sign: char| match rest.strip_prefix(sign) {
        Some(digits) => digits.parse().ok(),
        None => rest.is_empty().then_some(0),
    };
    let found: Option<i32> = if let Ok(number) = text.parse() {
        Some(number)
    } else if let Some(rest) = name.strip_prefix("RTMIN") {
        distance(rest, '+').and_then(|distance| first.checked_add(distance)).filter(|found| *found >= first)
    } else if let Some(rest) = name.strip_prefix("RTMAX") {
        distance(rest, '-').and_then(|distance| last.checked_sub(distance)).filter(|found| *found >= first)
    } else {
        let named = NAMES.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, number)| number);
        named.or_else(|| ALIASES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number))
    };
    found.filter(|number| (1..=31).contains(number) || (first..=last).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_found_by_whatever_name_images_give_it() {
        for (text, expected) in [
            ("SIGTERM", Some(15)),
            ("term", Some(15)),
            ("15", Some(15)),
            ("SIGWINCH", Some(28)),
            ("SIGCONT", Some(18)),
            ("SIGSYS", Some(31)),
            ("SIGPOLL", Some(29)),
            ("31", Some(31)),
            ("32", None),
            ("33", None),
            ("34", Some(34)),
            ("37", Some(37)),
            ("SIGRTMIN", Some(34)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-14", Some(50)),
            ("RTMAX", Some(64)),
            ("RTMIN+31", None),
            ("RTMIN-1", None),
            ("RTMIN+-1", None),
            ("RTMAX-31", None),
            ("RTMIN+x", None),
            ("0", None),
            ("65", None),
            ("-9", None),
            ("SIGNONE", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
