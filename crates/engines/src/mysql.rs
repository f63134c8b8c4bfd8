//! The agent beside a MySQL or MariaDB server: how the server fares, over HTTP; and what a finished agent wrote down,
//! from its log.
//!
//! No password is needed and none is known here: the agent asks the server itself, through the socket beside it.

use std::{io, time::Duration};

use ballast_mysql::{Ask, Manifest, ServerStatus, TableDigest, Told};
use ballast_operator::{Action, Answer, Class, Failure, Question};
use ballast_runtime::{About, Engine};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::dialer::{Missed, reach};
use crate::{Connection, Dialer, Place, PodAddress};

/// How long a connection may take, and then how long the answer. The agent answers from memory.
const WITHIN: Duration = Duration::from_secs(2);
/// The longest answer that is taken. The agent's are shorter than a thousand bytes.
const LONGEST_ANSWER: u64 = 64 << 10;
/// The longest log that is read. A manifest has some hundred bytes for each table.
const LONGEST_LOG: i64 = 16 << 20;
/// How much of what is not understood is repeated to people.
const QUOTED: usize = 40;

/// By HTTP/1.0 an answer ends where the connection does, and comes in one piece.
const REQUEST: &[u8] = b"GET /status HTTP/1.0\r\nHost: agent\r\n\r\n";

/// The engine of the operators of MySQLs and their backups.
#[derive(Clone)]
pub struct MySQL<D = PodAddress> {
    dialer: D,
    client: Client,
}

impl<D: Dialer> MySQL<D> {
    /// An engine that reaches pods by this dialer, and their logs by this client.
    pub fn new(dialer: D, client: Client) -> Self {
        MySQL { dialer, client }
    }

    /// Reads the manifest that a finished container wrote as the last line of its log.
    ///
    /// # Errors
    /// When the log can't be had, or its last line is no manifest.
    pub async fn read_manifest(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Manifest, String> {
        let logs = LogParams {
            container: Some(container.to_owned()),
            limit_bytes: Some(LONGEST_LOG),
            ..LogParams::default()
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // All of it: where a container runtime keeps long lines in pieces, its last line is only the last piece.
        let log = api.logs(pod, &logs).await.map_err(|error| error.to_string())?;
        manifest(&log)
    }
}

/// Asks the agent beside a server how the server fares.
pub async fn ask_server(dialer: &impl Dialer, place: &Place) -> Told {
    let connection = match reach(dialer, place, WITHIN).await {
        Ok(connection) => connection,
        Err(Missed::Refused) => return Told::Refuses,
        Err(Missed::Unreachable(why)) => return Told::Unreachable { why },
    };
    match timeout(WITHIN, converse(connection)).await {
        Ok(Ok(said)) => understand(&said),
        Ok(Err(error)) => Told::Unreachable { why: error.to_string() },
        Err(_) => Told::Silent,
    }
}

async fn converse(mut connection: Connection) -> io::Result<Vec<u8>> {
    connection.write_all(REQUEST).await?;
    connection.flush().await?;
    let mut said = Vec::new();
    connection.take(LONGEST_ANSWER).read_to_end(&mut said).await?;
    Ok(said)
}

/// What an agent says, whether or not it says that all is well.
fn understand(said: &[u8]) -> Told {
    let text = String::from_utf8_lossy(said);
    if text.is_empty() {
        return Told::Refuses;
    }
    let body =
        text.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.")).map(|(_, body)| body);
    match body.and_then(|body| serde_json::from_str::<ServerStatus>(body).ok()) {
        Some(status) => Told::Fares(status),
        None => {
            let said = text.chars().filter(|letter| !letter.is_control()).take(QUOTED).collect();
            Told::Babbles { said }
        }
    }
}

fn manifest(log: &str) -> Result<Manifest, String> {
    #[derive(Deserialize)]
    struct Line {
        tables: Vec<TableDigest>,
    }
    let line = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let Line { tables } =
        serde_json::from_str(line).map_err(|error| format!("no manifest ends the log: {error}"))?;
    let sha256 = digest(&SHA256, line.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Manifest { sha256, tables })
}

impl<D: Dialer> Engine for MySQL<D> {
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let namespace = about.namespace.unwrap_or_default();
            match Ask::deserialize(&question.what) {
                Ok(Ask::Server { address, port, .. }) => {
                    let (namespace, pod) = (namespace.to_owned(), question.subject.clone());
                    said(&ask_server(&self.dialer, &Place { namespace, pod, address, port }).await)
                }
                Ok(Ask::Manifest { container }) => {
                    match self.read_manifest(namespace, &question.subject, &container).await {
                        Ok(manifest) => said(&manifest),
                        Err(why) => Answer::Silent { why },
                    }
                }
                Err(error) => Answer::Silent { why: format!("the question is none: {error}") },
            }
        })
    }

    fn act<'a>(&'a self, _: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Err(Failure::new(Class::Bug, format!("the agent can't {}", action.name))) })
    }
}

fn said(words: &impl Serialize) -> Answer {
    match serde_json::to_value(words) {
        Ok(words) => Answer::Said(words),
        Err(error) => Answer::Silent { why: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_log_is_the_manifest() {
        let line =
            r#"{"format":1,"file":"b","tables":[{"database":"shop","name":"a","rows":3,"digest":"00ff"}]}"#;
        let read = manifest(&format!("one\n{{\"tables\":[]}}\n{line}\n")).unwrap();
        assert_eq!(read.sha256, "18fee2578821e03e96b0021a1aa84e937829350cd1f40bbf651312a973f31dd0");
        assert_eq!(read.tables.len(), 1);
        for log in ["", "\n", "done\n", "{\"tables\":1}", &line[..20]] {
            assert!(manifest(log).unwrap_err().starts_with("no manifest ends the log"), "{log}");
        }
    }

    #[test]
    fn an_agent_is_understood_whether_or_not_all_is_well() {
        let status = r#"{"flavour":"mysql","version":"8.0.40","ready":false,"message":"it recovers","uptimeSeconds":3}"#;
        for head in ["HTTP/1.0 200 OK\r\nA: b", "HTTP/1.1 503 Service Unavailable"] {
            match understand(format!("{head}\r\n\r\n{status}").as_bytes()) {
                Told::Fares(status) => assert_eq!((status.ready, &*status.message), (false, "it recovers")),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(understand(b""), Told::Refuses);
        for (said, quoted) in [
            (&b"HTTP/1.1 404 Not Found\r\n\r\nno"[..], "HTTP/1.1 404 Not Foundno"),
            (b"5.5.5-10.11\0\x01", "5.5.5-10.11"),
            (status.as_bytes(), &status[..40]),
        ] {
            assert_eq!(understand(said), Told::Babbles { said: quoted.to_owned() });
        }
    }
}
