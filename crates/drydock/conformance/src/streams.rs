//! What goes over a connection that both sides write to: commands in containers, and their ports.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::play::{PlayError, Run};

/// Longer than any command or connection of a case takes.
const PATIENCE: Duration = Duration::from_secs(30);

type Refused = Box<dyn std::error::Error + Send + Sync>;

impl Run<'_> {
    /// Runs a command in a container: how it ended, and what it wrote where.
    pub(crate) async fn exec(
        &self,
        step: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<(String, String), PlayError> {
        let command: Vec<String> = serde_saphyr::from_str(body).map_err(|error| fail(step, error))?;
        let (pods, name, parameters, input) = self.container(path, headers);
        let running = async {
            match pods.exec(&name, command, &parameters).await {
                Ok(process) => followed(process, input).await,
                Err(error) => Ok(refused(&error)),
            }
        };
        within(step, running).await
    }

    /// Joins what a container itself runs: what it wrote where until it ended.
    pub(crate) async fn attach(
        &self,
        step: &str,
        path: &str,
        headers: &[(String, String)],
    ) -> Result<(String, String), PlayError> {
        let (pods, name, parameters, input) = self.container(path, headers);
        let joined = async {
            match pods.attach(&name, &parameters).await {
                Ok(process) => followed(process, input).await,
                Err(error) => Ok(refused(&error)),
            }
        };
        within(step, joined).await
    }

    /// Sends a line to a port of a pod, and gives what comes back until the other side has no more to say.
    pub(crate) async fn forward(
        &self,
        step: &str,
        path: &str,
        body: &str,
    ) -> Result<(String, String), PlayError> {
        let (path, port) = path.rsplit_once(':').unwrap_or((path, ""));
        let port: u16 = port.parse().map_err(|error| fail(step, error))?;
        let (pods, name) = self.pod(path);
        let talking = async {
            let mut forwarder = match pods.portforward(&name, &[port]).await {
                Ok(forwarder) => forwarder,
                Err(error) => return Ok(refused(&error)),
            };
            let error = forwarder.take_error(port);
            let mut stream = forwarder.take_stream(port).ok_or("no stream for the port")?;
            // Who refuses does not read, and says so below.
            let _ = stream.write_all(format!("{body}\n").as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            drop(stream);
            drop(forwarder);
            let error = match error {
                Some(error) => error.await,
                None => None,
            };
            let answer = String::from_utf8_lossy(&answer).into_owned();
            Ok::<_, Refused>(match error {
                None => ("closed".to_owned(), answer),
                Some(_) => ("failed".to_owned(), answer),
            })
        };
        within(step, talking).await
    }

    /// `POD-PATH[?container=NAME]`, and what the headers say is its input.
    fn container<'a>(
        &self,
        path: &str,
        headers: &'a [(String, String)],
    ) -> (Api<Pod>, String, AttachParams, Option<&'a str>) {
        let (path, container) = path.split_once("?container=").unwrap_or((path, ""));
        let input = headers.iter().find(|(name, _)| name == "Stdin").map(|(_, value)| value.as_str());
        let mut parameters = AttachParams::default().stdin(input.is_some());
        if !container.is_empty() {
            parameters = parameters.container(container);
        }
        let (pods, name) = self.pod(path);
        (pods, name, parameters, input)
    }

    /// `/api/v1/namespaces/NAMESPACE/pods/NAME`
    fn pod(&self, path: &str) -> (Api<Pod>, String) {
        let parts: Vec<&str> = path.split('/').collect();
        let namespace = parts.get(4).copied().unwrap_or_default();
        (
            Api::namespaced(self.client.clone(), namespace),
            parts.last().copied().unwrap_or_default().to_owned(),
        )
    }
}

/// Gives a program its input, and waits for its end: how it ended, and what it wrote where.
async fn followed(mut process: AttachedProcess, input: Option<&str>) -> Result<(String, String), Refused> {
    let status = process.take_status();
    if let (Some(mut stdin), Some(input)) = (process.stdin(), input) {
        stdin.write_all(input.as_bytes()).await?;
        stdin.shutdown().await?;
    }
    let (out, err) = tokio::try_join!(all(process.stdout()), all(process.stderr()))?;
    let mut status = match status {
        Some(status) => serde_json::to_value(status.await)?,
        None => Value::Null,
    };
    if let Some(fields) = status.as_object_mut() {
        // What every Status has.
        fields.retain(|name, _| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
    }
    let answer = json!({"stdout": out, "stderr": err, "status": status});
    Ok(("ended".to_owned(), answer.to_string()))
}

async fn within<T>(step: &str, work: impl Future<Output = Result<T, Refused>>) -> Result<T, PlayError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done.map_err(|error| fail(step, error)),
        Err(_) => Err(PlayError::Patience { step: step.to_owned(), last: "no end of the stream".to_owned() }),
    }
}

fn fail(step: &str, source: impl Into<Refused>) -> PlayError {
    PlayError::Request { step: step.to_owned(), source: source.into() }
}

fn refused(error: &kube::Error) -> (String, String) {
    let answer = match error {
        kube::Error::Api(status) => {
            json!({"code": status.code, "reason": status.reason, "message": status.message}).to_string()
        }
        other => other.to_string(),
    };
    ("refused".to_owned(), answer)
}

async fn all(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
