//! Sentences for the client beside the answer, as many as its headers should hold.
//!
//! **Always holds:** they are said in the order in which they came, each once. Once they would be more than [`TOTAL`]
//! characters together, each is cut at [`EACH`], and when they are that many all the same, no more are said. The real
//! server counts in the same way.

use std::collections::BTreeSet;

/// How many characters all warnings may have together before they are cut.
const TOTAL: usize = 4 * 1024;

/// How many characters of each are left when all of them are too many.
const EACH: usize = 256;

/// What the client is told.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// What came, as it came.
    heard: BTreeSet<String>,
    /// What is said of it, in order.
    texts: Vec<String>,
    /// The characters of what is said.
    length: usize,
    /// There were too many: each is cut.
    cutting: bool,
}

impl Warnings {
    /// Has the client told this too, unless it was or there is no room.
    pub fn add(&mut self, text: String) {
        let full = self.cutting && self.length >= TOTAL;
        if full || text.is_empty() || self.heard.contains(&text) {
            return;
        }
        self.heard.insert(text.clone());
        let mut from = self.texts.len();
        if !self.cutting && self.length + text.chars().count() > TOTAL {
            // From now on; and what was said before is said again, shorter.
            (self.cutting, self.length, from) = (true, 0, 0);
        }
        self.texts.push(text);
        for text in self.texts.iter_mut().skip(from) {
            if self.cutting {
                cut(text);
            }
            self.length += text.chars().count();
        }
    }

    /// What the client is told.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Whether the client is told nothing.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(EACH) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(warnings: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut all = Warnings::default();
        warnings.into_iter().for_each(|warning| all.add(warning));
        all.texts().map(str::to_owned).collect()
    }

    #[test]
    fn each_is_said_once_and_in_order() {
        assert_eq!(said(["b", "", "a", "b"].map(str::to_owned)), ["b", "a"]);
    }

    #[test]
    fn what_fits_is_said_in_full_and_what_does_not_is_cut() {
        let fits = ["ä".repeat(2048), "b".repeat(2048)];
        assert_eq!(said(fits.clone()), fits);
        let [first, second] = fits;
        let cut = said([first, second, "c".to_owned(), "d".repeat(300), "d".repeat(301)]);
        let expected =
            ["ä", "b", "c", "d", "d"].map(|letter| letter.repeat(if letter == "c" { 1 } else { EACH }));
        assert_eq!(cut, expected);
        assert_eq!(said(["a".repeat(TOTAL + 1)]), ["a".repeat(EACH)]);
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let long = said((0..100_000).map(|n| format!("{n:06}{}", "x".repeat(1000))));
        assert_eq!(long.len(), TOTAL / EACH);
        assert!(long.iter().all(|text| text.len() == EACH) && long[15].starts_with("000015"), "{long:?}");
        // The one that does not fit any more is said with those that it cuts.
        let short = said((0..100_000).map(|n| format!("{n:06}")));
        assert_eq!((short.len(), &*short[682]), (TOTAL / 6 + 1, "000682"));
    }
}
