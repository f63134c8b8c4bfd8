//! The text of a case.
//!
//! ```text
//! # Anything before the first step is about the case.
//!
//! ### a step is named as a sentence
//! POST /api/v1/namespaces/{ns}/configmaps
//! Content-Type: application/yaml
//! until /metadata/name = a
//! show /metadata/name /data
//!
//! {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
//!
//! >>> 201
//! metadata: …
//! ```
//!
//! `{ns}` is the case's own namespace and `{id}` a word of its own, for names that are not in a
//! namespace. `until POINTER = VALUE` repeats the request until the answer has it; `show` compares
//! only these [pointers](crate::look), and with the word `Warning` among them the texts of the headers of that name, in
//! their order. Both may be left out. A body is YAML or, where a header says so, anything.
//!
//! Three methods are no HTTP. `EXEC POD-PATH[?container=NAME]` runs the command that the body lists, with what a
//! header `Stdin` says as its input; `ATTACH POD-PATH[?container=NAME]` joins what the container itself runs, with
//! such a header as its input; `FORWARD POD-PATH:PORT` sends the body as a line to a port and reads until the other
//! side closes. A case whose first line ends in `needs a node.` is played only where pods run.

/// What `show` has beside pointers: the texts of the headers of this name.
const WARNING: &str = "Warning";

/// A request and the answer it must get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The sentence that names it.
    pub name: String,
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query, with placeholders.
    pub path: String,
    /// Headers as written.
    pub headers: Vec<(String, String)>,
    /// Repeat until the answer has this value (as JSON text) at this pointer.
    pub until: Vec<(String, String)>,
    /// Compare only these pointers, and the warnings where one is `Warning`; the whole answer when empty.
    pub show: Vec<String>,
    /// The request's body, as written.
    pub body: String,
    /// The answer as recorded: the code, then its normalised text.
    pub expected: String,
}

/// A file of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What stands before the first step.
    pub preamble: String,
    /// The dialogue, in order.
    pub steps: Vec<Step>,
}

/// A case that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("step {step:?}: {problem}")]
pub struct ParseError {
    /// The step's name.
    pub step: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Case {
    /// Whether its pods must run.
    #[must_use]
    pub fn needs_a_node(&self) -> bool {
        self.preamble.lines().next().is_some_and(|line| line.ends_with("needs a node."))
    }

    /// Reads a case.
    ///
    /// # Errors
    /// When a step has no request line or a line of its head is none of those described above.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parts = text.split("\n### ");
        let first = parts.next().unwrap_or_default();
        let (preamble, leading) = match first.strip_prefix("### ") {
            Some(step) => ("", Some(step)),
            None => (first, None),
        };
        let steps = leading.into_iter().chain(parts).map(Step::parse).collect::<Result<_, _>>()?;
        Ok(Self { preamble: preamble.trim_end().to_owned(), steps })
    }

    /// The text that [`Case::parse`] reads.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        if !self.preamble.is_empty() {
            text.push_str(&self.preamble);
            text.push_str("\n\n");
        }
        let steps: Vec<String> = self.steps.iter().map(Step::render).collect();
        text.push_str(&steps.join("\n"));
        text
    }
}

impl Step {
    /// Whether the texts of the warnings are compared.
    #[must_use]
    pub fn shows_warnings(&self) -> bool {
        self.show.iter().any(|word| word == WARNING)
    }

    /// The pointers that are compared; nothing where the body is not looked at, and none where all of it is.
    #[must_use]
    pub fn pointers(&self) -> Option<Vec<&str>> {
        let pointers: Vec<&str> =
            self.show.iter().map(String::as_str).filter(|word| *word != WARNING).collect();
        (!pointers.is_empty() || self.show.is_empty()).then_some(pointers)
    }

    fn parse(text: &str) -> Result<Self, ParseError> {
        let (request, expected) = text.split_once("\n>>> ").unwrap_or((text, ""));
        let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
        let mut lines = head.lines();
        let name = lines.next().unwrap_or_default().trim().to_owned();
        let fail = |problem: String| ParseError { step: name.clone(), problem };
        let (method, path) = lines
            .next()
            .and_then(|line| line.trim().split_once(' '))
            .ok_or_else(|| fail("has no line `METHOD PATH`".into()))?;
        let mut step = Self {
            method: method.to_owned(),
            path: path.trim().to_owned(),
            headers: Vec::new(),
            until: Vec::new(),
            show: Vec::new(),
            body: body.trim().to_owned(),
            expected: expected.trim_end().to_owned(),
            name: name.clone(),
        };
        for line in lines {
            if let Some(rest) = line.strip_prefix("until ") {
                let (pointer, value) =
                    rest.split_once(" = ").ok_or_else(|| fail(format!("{line:?} has no ` = `")))?;
                step.until.push((pointer.trim().to_owned(), value.trim().to_owned()));
            } else if let Some(rest) = line.strip_prefix("show ") {
                step.show.extend(rest.split_whitespace().map(str::to_owned));
                if let Some(word) = step.show.iter().find(|word| *word != WARNING && !word.starts_with('/')) {
                    return Err(fail(format!("{word:?} is neither a pointer nor {WARNING}")));
                }
            } else if let Some((header, value)) = line.split_once(": ") {
                step.headers.push((header.to_owned(), value.to_owned()));
            } else if !line.trim().is_empty() {
                return Err(fail(format!("{line:?} is neither `until`, `show` nor a header")));
            }
        }
        Ok(step)
    }

    fn render(&self) -> String {
        let mut text = format!("### {}\n{} {}\n", self.name, self.method, self.path);
        for (header, value) in &self.headers {
            text.push_str(&format!("{header}: {value}\n"));
        }
        for (pointer, value) in &self.until {
            text.push_str(&format!("until {pointer} = {value}\n"));
        }
        if !self.show.is_empty() {
            text.push_str(&format!("show {}\n", self.show.join(" ")));
        }
        if !self.body.is_empty() {
            text.push_str(&format!("\n{}\n", self.body));
        }
        text.push_str(&format!("\n>>> {}\n", self.expected));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# About.

### a thing is made
POST /api/v1/namespaces/{ns}/configmaps
Accept: application/json
until /a/b = 1
show /metadata/name /data

{apiVersion: v1}

>>> 201
x: 1

### and read
GET /api

>>> 200
y: 2
";

    #[test]
    fn a_case_is_written_as_it_was_read() {
        let case = Case::parse(TEXT).unwrap();
        assert_eq!(case.steps.len(), 2);
        assert_eq!(case.steps[0].headers, [("Accept".to_owned(), "application/json".to_owned())]);
        assert_eq!(case.steps[0].until, [("/a/b".to_owned(), "1".to_owned())]);
        assert_eq!(case.steps[0].expected, "201\nx: 1");
        assert_eq!(case.render(), TEXT);
    }

    #[test]
    fn warnings_are_shown_beside_pointers_or_alone() {
        let check = |show: &str, warnings: bool, pointers: Option<&[&str]>| {
            let text = format!("### s\nGET /api\n{show}\n>>> 200\n");
            let case = Case::parse(&text).unwrap();
            let step = &case.steps[0];
            assert_eq!((step.shows_warnings(), step.pointers().as_deref()), (warnings, pointers), "{show}");
            assert_eq!(case.render(), text);
        };
        check("", false, Some(&[]));
        check("show /a\n", false, Some(&["/a"]));
        check("show Warning\n", true, None);
        check("show Warning /a\n", true, Some(&["/a"]));
    }

    #[test]
    fn what_is_shown_is_a_pointer_or_the_warnings() {
        let error = Case::parse("### s\nGET /api\nshow warning\n").unwrap_err().to_string();
        assert_eq!(error, "step \"s\": \"warning\" is neither a pointer nor Warning");
    }

    #[test]
    fn a_step_without_a_request_is_refused_by_name() {
        let error = Case::parse("### nothing here\n").unwrap_err().to_string();
        assert_eq!(error, "step \"nothing here\": has no line `METHOD PATH`");
    }
}
