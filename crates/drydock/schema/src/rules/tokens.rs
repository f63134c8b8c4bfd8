//! Where in its text a part of an expression stands.
//!
//! The parser keeps no places, so the text is cut into words a second time, and whoever walks the
//! expression in the order of its text asks for one word after the other. A word that is not found
//! costs nothing but a place.

/// The words of an expression, with a finger on the next one.
pub(super) struct Tokens<'s> {
    source: &'s str,
    words: Vec<(usize, &'s str)>,
    next: usize,
}

impl<'s> Tokens<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        let mut words = Vec::new();
        let mut at = 0;
        while let Some(first) = source[at..].chars().next() {
            let rest = &source[at..];
            let length = word(rest, first);
            if !first.is_whitespace() && !rest.starts_with("//") {
                words.push((at, &rest[..length]));
            }
            at += length;
        }
        Self { source, words, next: 0 }
    }

    /// The place of the next such word; the finger is behind it afterwards.
    pub(super) fn seek(&mut self, word: &str) -> Option<usize> {
        self.seek_if(|found| found == word)
    }

    /// The place of the next literal.
    pub(super) fn seek_literal(&mut self) -> Option<usize> {
        self.seek_if(|found| {
            found.starts_with(|c: char| c.is_ascii_digit())
                || found.ends_with(['\'', '"'])
                || matches!(found, "true" | "false" | "null")
        })
    }

    fn seek_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<usize> {
        let ahead = self.words.iter().enumerate().skip(self.next);
        let (index, (offset, _)) = ahead.into_iter().find(|(_, (_, found))| wanted(found))?;
        self.next = index + 1;
        Some(*offset)
    }

    /// The place of the next word, which is not passed.
    pub(super) fn peek(&self) -> usize {
        self.words.get(self.next).map_or(0, |(offset, _)| *offset)
    }

    /// A complaint about a place, with a picture of it.
    pub(super) fn complaint(&self, offset: usize, message: &str) -> String {
        let before = self.source.get(..offset).unwrap_or_default();
        let line_number = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let line = self.source.lines().nth(line_number - 1).unwrap_or_default();
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{line_number}:{}: {message}\n | {line}\n | {dots}^", column + 1)
    }
}

/// How long the word, blank or comment is that begins the text.
fn word(text: &str, first: char) -> usize {
    let while_in = |good: fn(char) -> bool| text.find(|c| !good(c)).unwrap_or(text.len());
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if first.is_whitespace() {
        return while_in(char::is_whitespace);
    }
    let prefix = while_in(|c| matches!(c, 'r' | 'R' | 'b' | 'B'));
    if text[prefix..].starts_with(['\'', '"']) {
        return prefix + string(&text[prefix..], text[..prefix].contains(['r', 'R']));
    }
    if first.is_ascii_digit() {
        return while_in(|c| c.is_ascii_alphanumeric() || c == '.');
    }
    if first.is_alphabetic() || first == '_' {
        return while_in(|c| c.is_alphanumeric() || c == '_');
    }
    if ["&&", "||", "==", "!=", "<=", ">="].iter().any(|operator| text.starts_with(operator)) {
        return 2;
    }
    first.len_utf8()
}

/// How long the string is that begins the text, in one or in three quotes.
fn string(text: &str, raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let quotes = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut at = quotes.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(quotes) {
            return at + quotes.len();
        }
        at += c.len_utf8();
        if c == '\\' && !raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::Tokens;

    #[test]
    fn words_strings_and_operators_are_told_apart() {
        let source = r#"self.a>=1.5 && x in ['it\'s', r'\'] // no"#.to_owned() + "\n|| !('''q''' == b)";
        let words: Vec<&str> = Tokens::new(&source).words.iter().map(|(_, word)| *word).collect();
        let expected = r"self . a >= 1.5 && x in [ 'it\'s' , r'\' ] || ! ( '''q''' == b )"
            .split(' ')
            .collect::<Vec<_>>();
        assert_eq!(words, expected);
    }

    #[test]
    fn text_that_ends_too_soon_is_cut_all_the_same() {
        for source in ["'", "'''", "\"\\", "r", "b'ü", "ü'", ""] {
            let words = Tokens::new(source).words;
            assert_eq!(words.iter().map(|(_, word)| word.len()).sum::<usize>(), source.len(), "{source}");
        }
    }
}
