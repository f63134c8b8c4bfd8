//! What makes log lines fit to be read: how long things take in words, and not the same line again and again.

use std::time::Duration;

use tokio::time::Instant;

/// When a line that says the same as the last is said again, the first time.
const FIRST_REPEAT: Duration = Duration::from_secs(60);
/// However long it stays the same, it is said this often: whoever reads only the end of a log must find it there.
const LAST_REPEAT: Duration = Duration::from_secs(3600);

/// Whether what is to be said is worth a line: when it differs from what was said last, and else ever more rarely.
#[derive(Debug, Default)]
pub(crate) struct News(Option<Said>);

#[derive(Debug)]
struct Said {
    text: String,
    next: Instant,
    pause: Duration,
}

impl News {
    /// Whether to say `text` now.
    pub(crate) fn is(&mut self, text: &str, now: Instant) -> bool {
        let pause = match &self.0 {
            Some(said) if said.text == text && now < said.next => return false,
            Some(said) if said.text == text => (said.pause * 2).min(LAST_REPEAT),
            _ => FIRST_REPEAT,
        };
        self.0 = Some(Said { text: text.to_owned(), next: now + pause, pause });
        true
    }

    /// It is over: the next time is news again. Whether there was anything to be over.
    pub(crate) fn over(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// A duration as people say it: `74ms`, `1.5s`, `26m`, `2h 5m`.
pub(crate) fn duration(duration: Duration) -> String {
    let (seconds, milliseconds) = (duration.as_secs(), duration.as_millis());
    match seconds {
        0 if milliseconds == 0 && !duration.is_zero() => "less than 1ms".to_owned(),
        0 if milliseconds == 0 => "at once".to_owned(),
        0 => format!("{milliseconds}ms"),
        1..10 if duration.subsec_millis() >= 100 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        1..100 => format!("{seconds}s"),
        100..6000 => format!("{}m", seconds / 60),
        _ if (seconds / 60).is_multiple_of(60) => format!("{}h", seconds / 3600),
        _ => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_say_them() {
        for (milliseconds, text) in [
            (0, "at once"),
            (74, "74ms"),
            (1000, "1s"),
            (1567, "1.5s"),
            (59_900, "59s"),
            (1_577_000, "26m"),
            (7_200_000, "2h"),
            (7_500_000, "2h 5m"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
        assert_eq!(duration(Duration::from_micros(300)), "less than 1ms");
    }

    #[test]
    fn the_same_is_said_ever_more_rarely_and_something_else_at_once() {
        let mut news = News::default();
        let begin = Instant::now();
        let said: Vec<u64> =
            (0..3600).filter(|second| news.is("no", begin + Duration::from_secs(*second))).collect();
        assert_eq!(said, [0, 60, 180, 420, 900, 1860]);
        let now = begin + Duration::from_secs(3600);
        assert!(news.is("never", now));
        assert!(news.over() && !news.over());
        assert!(news.is("never", now));
    }
}
