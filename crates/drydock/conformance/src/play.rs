//! Plays a case against an API server.

use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::{Body, Client};
use serde_json::Value;

use crate::{Case, Normaliser, Step, look};

/// How long `until` waits. A real cluster's controllers take a second or two on a small machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often `until` asks.
const PAUSE: Duration = Duration::from_millis(50);

/// An answer that is not the recorded one.
#[derive(Debug)]
pub struct Mismatch {
    /// The step's name.
    pub step: String,
    /// What was recorded, and what came, as a line diff.
    pub diff: String,
}

/// A step that got no answer at all.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The request could not be made or sent.
    #[error("step {step:?}: no answer")]
    Request {
        /// The step's name.
        step: String,
        /// What the client says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The case needs a node, and the cluster has none.
    #[error("there is no node to run pods on")]
    NoNode,
    /// The answer never had what `until` waits for.
    #[error("step {step:?}: still not as awaited after {PATIENCE:?}; last answer:\n{last}")]
    Patience {
        /// The step's name.
        step: String,
        /// The last answer, normalised.
        last: String,
    },
}

/// Runs a case and returns the steps whose answers differ from the recorded ones.
///
/// `word` makes the names of this run its own: lower case letters and digits.
///
/// # Errors
/// When a request can't be made.
pub async fn play(client: &Client, case: &Case, word: &str) -> Result<Vec<Mismatch>, PlayError> {
    let answers = run(client, case, word, Awaited::OrDiffers).await?;
    let differing = case.steps.iter().zip(&answers.steps).filter(|(was, is)| was.expected != is.expected);
    Ok(differing
        .map(|(was, is)| Mismatch {
            step: was.name.clone(),
            diff: similar::TextDiff::from_lines(&was.expected, &is.expected)
                .unified_diff()
                .header("recorded", "answered")
                .to_string(),
        })
        .collect())
}

/// Runs a case and returns it with the answers that came.
///
/// # Errors
/// When a request can't be made, or what a step waits for never comes.
pub async fn record(client: &Client, case: &Case, word: &str) -> Result<Case, PlayError> {
    run(client, case, word, Awaited::OrFails).await
}

/// What it means that something awaited never came.
#[derive(Clone, Copy)]
enum Awaited {
    OrFails,
    /// The step differs, and those after it may still tell something.
    OrDiffers,
}

async fn run(client: &Client, case: &Case, word: &str, awaited: Awaited) -> Result<Case, PlayError> {
    let mut run = Run::new(client, word);
    let mut recorded = case.clone();
    let outcome = run.all(&mut recorded, awaited).await;
    // What went wrong first is what is told.
    let cleaned = run.close().await;
    outcome.and(cleaned).map(|()| recorded)
}

/// Removes what a run with this `word` left behind, for when it did not come to its end.
///
/// # Errors
/// When a request can't be made.
pub async fn clean_up(client: &Client, word: &str) -> Result<(), PlayError> {
    Run::new(client, word).close().await
}

pub(crate) struct Run<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: String,
    pub(crate) id: String,
    normaliser: Normaliser,
    /// `{rv:N}` and `{uid:N}` in later steps: what the answer to step N (from 1) carried.
    remembered: Vec<Value>,
}

impl<'a> Run<'a> {
    fn new(client: &'a Client, word: &str) -> Self {
        let (namespace, id) = (format!("conformance-{word}"), format!("id{word}"));
        let own = vec![(namespace.clone(), "{ns}".to_owned()), (id.clone(), "{id}".to_owned())];
        Self { client, namespace, id, normaliser: Normaliser::new(own), remembered: Vec::new() }
    }

    /// Puts the answers that come into the case.
    async fn all(&mut self, case: &mut Case, awaited: Awaited) -> Result<(), PlayError> {
        self.open().await?;
        if case.needs_a_node() {
            self.meet_the_node().await?;
        }
        for step in &mut case.steps {
            step.expected = match (self.step(step).await, awaited) {
                (Err(PlayError::Patience { last, .. }), Awaited::OrDiffers) => {
                    format!("never as awaited, but\n{last}")
                }
                (answer, _) => answer?,
            };
        }
        Ok(())
    }

    async fn open(&self) -> Result<(), PlayError> {
        let body =
            format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{}"}}}}"#, self.namespace);
        self.send("opening", "POST", "/api/v1/namespaces", &[], body).await?;
        // Pods need the account that a controller makes in each namespace.
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", self.namespace);
        let began = Instant::now();
        while self.send("opening", "GET", &account, &[], String::new()).await?.0 != StatusCode::OK {
            if began.elapsed() > PATIENCE {
                return Err(PlayError::Patience {
                    step: "opening".into(),
                    last: "no default ServiceAccount".into(),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Makes what the node is called a word, so that it does not matter which it is.
    async fn meet_the_node(&mut self) -> Result<(), PlayError> {
        let (_, answer) = self.send("opening", "GET", "/api/v1/nodes", &[], String::new()).await?;
        let nodes: Value = serde_json::from_str(&answer).unwrap_or_default();
        let names = nodes["items"].as_array().into_iter().flatten();
        let names: Vec<String> =
            names.filter_map(|node| node["metadata"]["name"].as_str()).map(str::to_owned).collect();
        if names.is_empty() {
            return Err(PlayError::NoNode);
        }
        self.normaliser.run_pods_on(names);
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<String, PlayError> {
        let began = Instant::now();
        let path = self.fill(&step.path);
        let body = self.fill(&step.body);
        let mut headers = step.headers.clone();
        headers.iter_mut().for_each(|(_, value)| *value = self.fill(value));
        loop {
            let mut warnings = Vec::new();
            let (code, text) = match step.method.as_str() {
                "EXEC" => self.exec(&step.name, &path, &headers, &body).await?,
                "ATTACH" => self.attach(&step.name, &path, &headers).await?,
                "FORWARD" => self.forward(&step.name, &path, &body).await?,
                method => {
                    let answer = self.ask(&step.name, method, &path, &headers, body.clone()).await?;
                    warnings = warnings_of(answer.headers());
                    (answer.status().as_u16().to_string(), answer.into_body())
                }
            };
            let mut values = parse(&text);
            let reached = step.until.iter().all(|(pointer, wanted)| {
                let wanted: Option<Value> = serde_json::from_str(&self.fill(wanted)).ok();
                let wanted = wanted.as_ref();
                values.iter().any(|value| wanted.is_some_and(|wanted| look::has(value, pointer, wanted)))
            });
            if !reached && began.elapsed() < PATIENCE {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            self.remembered.push(values.first().cloned().unwrap_or_default());
            values.iter_mut().for_each(|value| self.normaliser.apply(value));
            let mut shown = String::new();
            if step.shows_warnings() {
                let mut warnings = Value::from(warnings);
                self.normaliser.apply(&mut warnings);
                shown.push_str(&look::warnings(&warnings));
            }
            if let Some(pointers) = step.pointers() {
                shown.push_str(&look::show(&values, &pointers));
            }
            let shown = self.normaliser.count_shown(&shown);
            let answer = format!("{code}\n{shown}").trim_end().to_owned();
            if !reached {
                return Err(PlayError::Patience { step: step.name.clone(), last: answer });
            }
            return Ok(answer);
        }
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text.replace("{ns}", &self.namespace).replace("{id}", &self.id);
        for (at, value) in self.remembered.iter().enumerate() {
            let number = at + 1;
            for (word, pointer) in [
                ("rv", "/metadata/resourceVersion"),
                ("uid", "/metadata/uid"),
                ("continue", "/metadata/continue"),
                ("first", "/items/0/metadata/name"),
            ] {
                if let Some(found) = value.pointer(pointer).and_then(Value::as_str) {
                    text = text.replace(&format!("{{{word}:{number}}}"), found);
                }
            }
        }
        text
    }

    pub(crate) async fn send(
        &self,
        step: &str,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: String,
    ) -> Result<(StatusCode, String), PlayError> {
        let answer = self.ask(step, method, path, headers, body).await?;
        Ok((answer.status(), answer.into_body()))
    }

    async fn ask(
        &self,
        step: &str,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: String,
    ) -> Result<Response<String>, PlayError> {
        let fail = |source: Box<dyn std::error::Error + Send + Sync>| PlayError::Request {
            step: step.to_owned(),
            source,
        };
        let mut request = Request::builder().method(method).uri(path).header("User-Agent", "conformance/1");
        let has = |name: &str| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
        if !body.is_empty() && !has("content-type") {
            request = request.header("Content-Type", "application/yaml");
        }
        if !has("accept") {
            request = request.header("Accept", "application/json");
        }
        for (header, value) in headers {
            request = request.header(header, value);
        }
        let request = request.body(Body::from(body.into_bytes())).map_err(|error| fail(Box::new(error)))?;
        let answer = self.client.send(request).await.map_err(|error| fail(Box::new(error)))?;
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.map_err(|error| fail(Box::new(error)))?.to_bytes();
        Ok(Response::from_parts(parts, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// What an answer warns of: the texts of `299 - "…"`, and anything else as it is.
fn warnings_of(headers: &HeaderMap) -> Vec<String> {
    let texts =
        headers.get_all(header::WARNING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    texts
        .map(|value| {
            let quoted = value.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"'));
            quoted.map_or_else(|| value.to_string(), unescaped)
        })
        .collect()
}

/// The text of a quoted string of a header, in which a backslash stands before what is meant as it is.
fn unescaped(quoted: &str) -> String {
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        let meant = if character == '\\' { characters.next() } else { Some(character) };
        text.extend(meant);
    }
    text
}

/// One JSON value, a stream of them (a watch), or plain text.
fn parse(text: &str) -> Vec<Value> {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    match values {
        Ok(values) if values.iter().all(Value::is_object) => values,
        _ => vec![Value::String(text.to_owned())],
    }
}

pub(crate) fn yaml(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_saphyr::to_string(other).unwrap_or_else(|error| format!("{other} ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_warning_is_the_text_of_its_header() {
        let mut headers = HeaderMap::new();
        for value in [r#"299 - "a \"b\" \\c""#, "299 example.com \"d\""] {
            headers.append(header::WARNING, HeaderValue::from_static(value));
        }
        assert_eq!(warnings_of(&headers), [r#"a "b" \c"#, "299 example.com \"d\""]);
    }
}
