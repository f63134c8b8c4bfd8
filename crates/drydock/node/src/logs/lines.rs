//! Log files in the CRI format, as people want to read them.

use std::collections::VecDeque;

use jiff::Timestamp;

/// What someone wants of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wish {
    pub follow: bool,
    pub previous: bool,
    pub tail: Option<usize>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub limit: Option<usize>,
}

/// One entry: when, whether it ends a line, and the text.
struct Entry<'a> {
    time: &'a str,
    whole: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let _output = parts.next()?;
    let tag = parts.next()?;
    Some(Entry { time, whole: tag.starts_with(b"F"), text: parts.next().unwrap_or_default() })
}

/// Turns a log into what is shown, piece by piece.
pub(crate) struct Shown {
    wish: Wish,
    /// What has no end of line yet.
    open: Vec<u8>,
    /// The next entry begins a line.
    fresh: bool,
    /// The last lines, while the log is read for its end.
    tail: Option<VecDeque<Vec<u8>>>,
    given: usize,
}

impl Shown {
    pub fn new(wish: Wish) -> Self {
        let tail = wish.tail.map(|_| VecDeque::new());
        Self { wish, open: Vec::new(), fresh: true, tail, given: 0 }
    }

    /// Takes a part of the file; gives what is shown of it at once.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.open.extend_from_slice(bytes);
        let open = std::mem::take(&mut self.open);
        let mut rest = open.as_slice();
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            self.line(&rest[..at], &mut out);
            rest = &rest[at + 1..];
        }
        self.open = rest.to_vec();
        self.within(out)
    }

    /// The file has been read to its end; gives the last lines, where only those were wanted. From here on
    /// everything is shown.
    pub fn end(&mut self) -> Vec<u8> {
        let lines = self.tail.take().into_iter().flatten();
        let out = lines.flatten().collect();
        self.within(out)
    }

    /// Nothing more will be shown.
    pub fn is_full(&self) -> bool {
        self.wish.limit.is_some_and(|limit| self.given >= limit)
    }

    fn within(&mut self, mut out: Vec<u8>) -> Vec<u8> {
        if let Some(limit) = self.wish.limit {
            out.truncate(limit.saturating_sub(self.given));
        }
        self.given += out.len();
        out
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(entry) = parse(line) else { return };
        if let Some(since) = self.wish.since
            && entry.time.parse::<Timestamp>().is_ok_and(|time| time < since)
        {
            return;
        }
        let mut text = Vec::with_capacity(entry.text.len() + 40);
        if self.wish.timestamps && self.fresh {
            text.extend(entry.time.as_bytes());
            text.push(b' ');
        }
        text.extend(entry.text);
        if entry.whole {
            text.push(b'\n');
        }
        match &mut self.tail {
            Some(lines) => {
                if self.fresh || lines.is_empty() {
                    lines.push_back(text);
                } else if let Some(last) = lines.back_mut() {
                    last.extend(text);
                }
                while lines.len() > self.wish.tail.unwrap_or(usize::MAX) {
                    lines.pop_front();
                }
            }
            None => out.extend(text),
        }
        self.fresh = entry.whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2024-01-01T00:00:00.000000000Z stdout F one\n\
                       2024-01-01T00:00:01.000000000Z stderr P tw\n\
                       2024-01-01T00:00:02.000000000Z stderr F o\n\
                       2024-01-01T00:00:03.000000000Z stdout F three\n";

    fn check(wish: Wish, expected: &str) {
        // In pieces of every size: where the file is cut makes no difference.
        for size in [1, 7, 1000] {
            let mut shown = Shown::new(wish.clone());
            let mut out = Vec::new();
            for piece in LOG.as_bytes().chunks(size) {
                out.extend(shown.take(piece));
            }
            out.extend(shown.end());
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{wish:?}");
        }
    }

    #[test]
    fn a_log_is_shown_as_wished() {
        check(Wish::default(), "one\ntwo\nthree\n");
        check(Wish { tail: Some(2), ..Wish::default() }, "two\nthree\n");
        check(Wish { tail: Some(0), ..Wish::default() }, "");
        check(Wish { limit: Some(5), ..Wish::default() }, "one\nt");
        let since = Some("2024-01-01T00:00:03Z".parse().unwrap());
        check(Wish { since, ..Wish::default() }, "three\n");
        check(
            Wish { timestamps: true, tail: Some(2), ..Wish::default() },
            "2024-01-01T00:00:01.000000000Z two\n2024-01-01T00:00:03.000000000Z three\n",
        );
    }
}
