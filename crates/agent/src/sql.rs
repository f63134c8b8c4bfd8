//! Names and texts as SQL writes them, so that no statement is ever pasted together from what people wrote.
//!
//! Everything here is one line: the servers read statements line by line while they are prepared.

use std::fmt;

/// Why something can't be a name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty, or too long for the server, which would cut it.
    #[error("the name {0:?} has not between 1 and {1}")]
    Length(String, Longest),
    /// It has a letter that no name has.
    #[error(
        "the name {0:?} has a control character in it, a space at its end, or a letter that the server does not keep"
    )]
    Letters(String),
    /// Somebody is called that already.
    #[error("{0:?} is the name of the superuser, who is there already")]
    Taken(String),
}

/// How long a name may be, which each server counts in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Longest {
    /// As PostgreSQL does.
    Bytes(usize),
    /// As MySQL and MariaDB do. They keep names in an encoding that ends with the first plane of Unicode.
    Characters(usize),
}

impl fmt::Display for Longest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Longest::Bytes(most) => write!(f, "{most} bytes"),
            Longest::Characters(most) => write!(f, "{most} characters"),
        }
    }
}

/// A name that a server takes, however strange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn new(text: &str, longest: Longest) -> Result<Name, NameError> {
        let (fits, kept) = match longest {
            Longest::Bytes(most) => (text.len() <= most, true),
            Longest::Characters(most) => {
                (text.chars().count() <= most, text.chars().all(|letter| letter <= '\u{ffff}'))
            }
        };
        if text.is_empty() || !fits {
            return Err(NameError::Length(text.to_owned(), longest));
        }
        if text.ends_with(' ') || text.contains(char::is_control) || !kept {
            return Err(NameError::Letters(text.to_owned()));
        }
        Ok(Name(text.to_owned()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// `"name"`
    pub(crate) fn postgres(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }

    /// `` `name` ``
    pub(crate) fn mysql(&self) -> String {
        mysql_name(&self.0)
    }

    /// The name of a database where permissions are granted.
    pub(crate) fn mysql_pattern(&self) -> String {
        mysql_pattern(&self.0)
    }
}

/// The name of a database where permissions are granted, which is a pattern.
pub(crate) fn mysql_pattern(name: &str) -> String {
    mysql_name(&name.replace('\\', "\\\\").replace('_', "\\_").replace('%', "\\%"))
}

/// A name that MySQL or MariaDB has taken before.
pub(crate) fn mysql_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text as PostgreSQL writes it, whatever it is set to.
pub(crate) fn postgres_text(text: &str) -> String {
    format!("E'{}'", escaped(text))
}

/// A text as MySQL and MariaDB write it where a backslash escapes, as it does unless they are told otherwise.
pub(crate) fn mysql_text(text: &str) -> String {
    format!("'{}'", escaped(text))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '\'' => escaped.push_str("\\'"),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What stands between quotes, read as the servers read it; nothing when something stands behind them.
    fn read_text(literal: &str) -> Option<String> {
        let inner = literal.strip_prefix('E').unwrap_or(literal).strip_prefix('\'')?;
        let (mut read, mut letters) = (String::new(), inner.chars());
        loop {
            match letters.next()? {
                '\'' => return letters.next().is_none().then_some(read),
                '\\' => read.push(match letters.next()? {
                    'n' => '\n',
                    'r' => '\r',
                    other => other,
                }),
                other => read.push(other),
            }
        }
    }

    fn read_name(name: &str, quote: char) -> Option<String> {
        let inner = name.strip_prefix(quote)?.strip_suffix(quote)?;
        let twice = format!("{quote}{quote}");
        let single = inner.replace(&twice, "");
        (!single.contains(quote)).then(|| inner.replace(&twice, &quote.to_string()))
    }

    proptest! {
        #[test]
        fn a_text_stays_what_it_is_and_where_it_is(text in "[^\0]*") {
            for literal in [postgres_text(&text), mysql_text(&text)] {
                prop_assert!(!literal.contains('\n') && !literal.contains('\r'));
                prop_assert_eq!(read_text(&literal), Some(text.clone()));
            }
        }

        #[test]
        fn a_name_stays_what_it_is_and_where_it_is(text in "[^\\pC]{1,15}[^\\pC ]") {
            let name = Name::new(&text, Longest::Bytes(64)).unwrap();
            prop_assert_eq!(read_name(&name.postgres(), '"'), Some(text.clone()));
            prop_assert_eq!(read_name(&name.mysql(), '`'), Some(text));
        }
    }

    #[test]
    fn what_can_be_no_name_is_refused() {
        for text in ["", "a ", "a\nb", "\0", "ab\u{7f}", "123456789"] {
            for longest in [Longest::Bytes(8), Longest::Characters(8)] {
                assert!(Name::new(text, longest).is_err(), "{text:?}");
            }
        }
        assert!(Name::new("\u{1f600}", Longest::Bytes(8)).is_ok());
        assert!(Name::new("\u{1f600}", Longest::Characters(8)).is_err());
        assert!(Name::new(&"ü".repeat(8), Longest::Characters(8)).is_ok());
        assert!(Name::new(&"ü".repeat(8), Longest::Bytes(8)).is_err());
        assert_eq!(Name::new("a_b%`", Longest::Bytes(8)).unwrap().mysql_pattern(), "`a\\_b\\%```");
    }
}
