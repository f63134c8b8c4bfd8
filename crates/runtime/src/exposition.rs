//! In which of Prometheus' two forms metrics are shown: the plain one that every scraper reads, or OpenMetrics for
//! those who ask for it.
//!
//! The names of series and their labels are the same in both. What differs is the text around them, and that a
//! bucket's bound is a whole number where it can be, as Go's clients write it.

use http::{HeaderMap, header};

/// A form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `text/plain; version=0.0.4`
    Plain,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl Form {
    /// The one that a client prefers; plain where it says nothing.
    pub(crate) fn wanted(headers: &HeaderMap) -> Self {
        let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let (mut plain, mut open) = (0.0_f64, 0.0_f64);
        for range in accept.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let best = match parts.next() {
                Some("application/openmetrics-text") => &mut open,
                Some("text/plain") => &mut plain,
                _ => continue,
            };
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            *best = weight.map_or(1.0, |weight| weight.parse::<f64>().unwrap_or(0.0)).max(*best);
        }
        if open > 0.0 && open >= plain { Form::OpenMetrics } else { Form::Plain }
    }

    /// What the text is sent as.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Form::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Text in OpenMetrics, in this form.
    pub(crate) fn of(self, open: String) -> String {
        match self {
            Form::Plain => plain(&open),
            Form::OpenMetrics => open,
        }
    }
}

/// A counter is described under the name that its series have, and nothing marks the end.
fn plain(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut lines =
        open.lines().filter(|line| !line.starts_with("# EOF") && !line.starts_with("# UNIT")).peekable();
    while let Some(line) = lines.next() {
        let described = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        let counted = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
        match (described, line.strip_suffix(" counter")) {
            (Some((name, help)), _) if lines.peek().is_some_and(|next| counted(next)) => {
                text.push_str(&format!("# HELP {name}_total {help}"));
            }
            (None, Some(named)) if counted(line) => text.push_str(&format!("{named}_total counter")),
            (None, _) if line.contains("_bucket{") => text.push_str(&whole(line)),
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// `le="60.0"` as `le="60"`.
fn whole(bucket: &str) -> String {
    let Some((before, (bound, after))) =
        bucket.split_once("le=\"").and_then(|(before, rest)| Some((before, rest.split_once('"')?)))
    else {
        return bucket.to_owned();
    };
    format!("{before}le=\"{}\"{after}", bound.strip_suffix(".0").unwrap_or(bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_form_that_it_prefers() {
        for (accept, expected) in [
            ("", Form::Plain),
            ("*/*", Form::Plain),
            ("text/plain", Form::Plain),
            ("application/json", Form::Plain),
            ("application/openmetrics-text", Form::OpenMetrics),
            ("application/openmetrics-text;q=0", Form::Plain),
            ("text/plain;version=0.0.4;q=0.5, application/openmetrics-text;q=0.2", Form::Plain),
            // As Prometheus asks.
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Form::OpenMetrics,
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(Form::wanted(&headers), expected, "{accept}");
        }
        assert_eq!(Form::wanted(&HeaderMap::new()), Form::Plain);
    }

    #[test]
    fn the_plain_form_has_the_same_series() {
        let open = "# HELP a Things.\n# TYPE a counter\na_total{x=\"y\"} 1\n\
                    # HELP b_seconds Time.\n# TYPE b_seconds histogram\n# UNIT b_seconds seconds\n\
                    b_seconds_sum 0.5\nb_seconds_bucket{le=\"0.5\",x=\"1.0\"} 1\n\
                    b_seconds_bucket{le=\"60.0\",x=\"1.0\"} 1\nb_seconds_bucket{le=\"+Inf\"} 1\n\
                    # HELP c Now.\n# TYPE c gauge\nc 3\n# EOF\n";
        let expected = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"y\"} 1\n\
                        # HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
                        b_seconds_sum 0.5\nb_seconds_bucket{le=\"0.5\",x=\"1.0\"} 1\n\
                        b_seconds_bucket{le=\"60\",x=\"1.0\"} 1\nb_seconds_bucket{le=\"+Inf\"} 1\n\
                        # HELP c Now.\n# TYPE c gauge\nc 3\n";
        assert_eq!(Form::Plain.of(open.to_owned()), expected);
        assert_eq!(Form::OpenMetrics.of(open.to_owned()), open);
    }
}
