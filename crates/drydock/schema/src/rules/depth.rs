//! How deep an expression nests, told from its text.
//!
//! Parsing and evaluating recurse as deep as the expression, and the parser bounds only some kinds
//! of nesting. So the text is measured first: brackets, and within them the longest chain of
//! operators and selections, which is what a syntax tree of it can be deep at most.

/// Brackets within brackets; the parser gives up, not gracefully, at 96.
const MAX_BRACKETS: usize = 64;

/// All nesting together. Kubernetes stops at 250; a thread's ordinary stack holds this much also
/// without optimisation.
const MAX_DEPTH: usize = 128;

/// One open bracket.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Operators and selections since the last `&&`, `||` or comma.
    chain: usize,
    /// Alternatives of a conditional nest to the right.
    conditionals: usize,
}

/// Whether the expression can be taken on.
pub(super) fn is_bearable(source: &str) -> bool {
    let mut levels = vec![Level::default()];
    let mut characters = source.chars().peekable();
    let mut last = ' ';
    while let Some(c) = characters.next() {
        match c {
            '\'' | '"' => skip_string(c, last == 'r' || last == 'R', &mut characters),
            '/' if characters.peek() == Some(&'/') => while characters.next_if(|c| *c != '\n').is_some() {},
            '(' | '[' | '{' => {
                if let Some(level) = levels.last_mut() {
                    level.chain += 1;
                }
                levels.push(Level::default());
            }
            ')' | ']' | '}' if levels.len() > 1 => {
                levels.pop();
            }
            _ => {
                let Some(level) = levels.last_mut() else { return false };
                match c {
                    '?' if last != '.' && last != '[' => {
                        level.conditionals += 1;
                        level.chain = 0;
                    }
                    '&' | '|' | ',' | ':' => level.chain = 0,
                    '.' | '!' | '-' | '+' | '*' | '/' | '%' | '=' | '<' | '>' => level.chain += 1,
                    _ => {}
                }
            }
        }
        let depth: usize = levels.iter().map(|level| level.chain + level.conditionals + 1).sum();
        if levels.len() > MAX_BRACKETS || depth > MAX_DEPTH {
            return false;
        }
        last = c;
    }
    true
}

/// Passes over the rest of a string, which may be one of three quotes.
fn skip_string(quote: char, raw: bool, characters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let mut quotes = 1;
    while quotes < 3 && characters.next_if_eq(&quote).is_some() {
        quotes += 1;
    }
    if quotes == 2 {
        return;
    }
    let mut seen = 0;
    while let Some(c) = characters.next() {
        if c == '\\' && !raw {
            characters.next();
        }
        seen = if c == quote { seen + 1 } else { 0 };
        if seen == quotes {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_bearable;

    #[test]
    fn what_people_write_is_bearable() {
        for rule in [
            "self.spec.template.spec.containers.all(c, c.resources.limits.map(k, c.resources.limits[k]).size() > 0)",
            "self.a == '(((((' && \"]]]\" != r'\\' && '''it's''' == ''",
            "has(self.?a[?0].b) ? self.a == 1 : self.b != -1 // (((",
            &["self.a"; 500].join(" && "),
            &["self.a == 1"; 500].join(" || "),
        ] {
            assert!(is_bearable(rule), "{rule}");
        }
    }

    #[test]
    fn what_nobody_writes_is_not() {
        for rule in [
            "(".repeat(1_000),
            "!".repeat(1_000),
            "self".to_owned() + &".a".repeat(1_000),
            "1".to_owned() + &" + 1".repeat(1_000),
            "true".to_owned() + &" ? true : true".repeat(1_000),
        ] {
            assert!(!is_bearable(&rule), "{}", &rule[..20]);
        }
    }
}
