//! A server for one test, and answers as short text.

use std::{sync::Arc, time::Duration};

use drydock_access::{Identity, SigningKey, Tokens};
use drydock_api::{Api, Caller, Options, ResponseBody};
use drydock_store::Store;
use futures::FutureExt;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// A cluster of one API server.
pub struct Cluster {
    /// The server.
    pub api: Api,
    caller: Caller,
}

/// A test that waits longer than this for an event has failed.
const PATIENCE: Duration = Duration::from_secs(5);

impl Cluster {
    /// An empty cluster, asked by an administrator.
    pub async fn new() -> Self {
        Self::over(Store::in_memory(drydock_store::Options::default())).await
    }

    /// A cluster that is kept in a directory: its writes take their time.
    pub async fn kept(directory: &std::path::Path) -> Self {
        Self::over(Store::open(directory, drydock_store::Options::default()).unwrap()).await
    }

    /// A cluster over a store.
    pub async fn over(store: Store) -> Self {
        let tokens =
            Tokens::new(SigningKey::generate().unwrap()).with_static("admin-token", Identity::admin("admin"));
        let options = Options { root_ca: Some("authority".into()), ..Options::new(Arc::new(tokens)) };
        let api = Api::new(store, options);
        api.bootstrap().await.unwrap();
        Self { api, caller: Caller::Trusted(Identity::admin("admin")) }
    }

    /// A server that is there, asked by somebody.
    pub fn of(api: Api, caller: Caller) -> Self {
        Self { api, caller }
    }

    /// The same cluster, asked by somebody else.
    pub fn by(&self, caller: Caller) -> Self {
        Self { api: self.api.clone(), caller }
    }

    /// Sends `METHOD /path` with headers written as `Name: value` on further lines.
    pub async fn send(&self, line: &str, body: impl Into<Vec<u8>>) -> Response<ResponseBody> {
        let mut lines = line.lines();
        let (method, uri) = lines.next().unwrap().split_once(' ').unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, "test/1.0".parse().unwrap());
        if method == "PATCH" {
            headers.insert(header::CONTENT_TYPE, "application/merge-patch+json".parse().unwrap());
        }
        for line in lines {
            let (name, value) = line.trim().split_once(": ").unwrap();
            headers.insert(name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap());
        }
        let body = Full::<bytes::Bytes>::new(body.into().into());
        let mut request = Request::builder().method(method).uri(uri).body(body).unwrap();
        *request.headers_mut() = headers;
        self.api.handle(request, self.caller.clone()).await
    }

    /// Sends a request, and goes away before it is answered.
    pub fn abandon(&self, line: &str, body: impl Into<Vec<u8>>) {
        assert!(self.send(line, body).now_or_never().is_none(), "{line} was answered at once");
    }

    /// The code and the JSON of an answer; text that is no JSON is a string.
    pub async fn ask(&self, line: &str, body: impl Into<Vec<u8>>) -> (u16, Value) {
        let answer = self.send(line, body).await;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).trim_end().to_owned()));
        (code, value)
    }

    /// An answer that is an object.
    pub async fn get(&self, path: &str) -> Value {
        let (code, value) = self.ask(&format!("GET {path}"), "").await;
        assert_eq!(code, 200, "{path}: {value}");
        value
    }

    /// Sends a JSON body and gives the answer, which must be a success.
    pub async fn must(&self, line: &str, body: Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (code, value) = self.ask(line, body).await;
        assert!((200..300).contains(&code), "{line}: {code} {value}");
        value
    }

    /// Holds an answer against what it should be, in short.
    #[track_caller]
    pub fn check(&self, line: &str, body: &str, expected: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let (line, body, expected) = (line.to_owned(), body.to_owned(), expected.to_owned());
        async move {
            let (code, value) = self.ask(&line, body.clone()).await;
            let actual = format!("{code} {}", short(&value));
            assert_eq!(actual, expected, "{line}\n{body}\nat {place}");
        }
    }

    /// Sends a request again and again, until it is answered with this code.
    pub async fn eventually(&self, line: &str, body: &str, code: u16) {
        let answered = async {
            while self.ask(line, body).await.0 != code {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect(line);
    }

    /// A watch.
    pub async fn watch(&self, path: &str) -> Watch {
        let answer = self.send(&format!("GET {path}"), "").await;
        assert_eq!(answer.status(), 200);
        Watch { body: answer.into_body(), buffer: Vec::new() }
    }
}

/// An answer in short: a failure by reason and message, an object by kind and name, a list by names.
pub fn short(value: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Value::String(text) = value {
        return text.clone();
    }
    let kind = text(&value["kind"]);
    if kind == "Status" {
        if value["status"] == "Success" {
            return format!("Success {}", text(&value["details"]["name"]));
        }
        return format!("{}: {}", text(&value["reason"]), text(&value["message"]));
    }
    if let Some(items) = value["items"].as_array() {
        let names: Vec<String> = items.iter().map(|item| text(&item["metadata"]["name"])).collect();
        return format!("{kind} [{}]", names.join(" "));
    }
    let metadata = &value["metadata"];
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", text(&metadata["name"])),
        None => format!("{kind} {}", text(&metadata["name"])),
    }
}

/// A watch that is being read.
pub struct Watch {
    body: ResponseBody,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event, or nothing when the watch has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("no event came")?;
            self.buffer.extend_from_slice(&frame.ok()?.into_data().unwrap());
        }
    }

    /// Reads on until the next event is this one.
    pub async fn until(&mut self, expected: &str) {
        loop {
            let line = self.line().await;
            assert_ne!(line, "end", "{expected} never came");
            if line == expected {
                return;
            }
        }
    }

    /// The next event in short.
    pub async fn line(&mut self) -> String {
        match self.next().await {
            None => "end".to_owned(),
            Some(event) if event["type"] == "BOOKMARK" => {
                let end = event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].as_str();
                format!("BOOKMARK{}", if end == Some("true") { " initial-events-end" } else { "" })
            }
            Some(event) => format!("{} {}", event["type"].as_str().unwrap(), short(&event["object"])),
        }
    }
}

/// A ConfigMap.
pub fn config_map(name: &str, data: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string()
}
