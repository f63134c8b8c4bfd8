//! Paths that name no resource: health, version, discovery, OpenAPI, token keys.
//!
//! Documents about the served kinds are made when they are first asked for and kept until the kinds
//! change.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use drydock_kinds::{discovery, openapi};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    Api, VERSION,
    accept::{self, Accept, Shape},
    failure::Failure,
    gnostic,
    present::written,
    request::RequestInfo,
    response::{self, Answer, ResponseBody},
};

/// Documents that were made, by path, and for which kinds. A path is written in one way here, however it was asked for:
/// each is the same document.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<(u64, BTreeMap<String, Arc<Document>>)>);

#[derive(Debug)]
struct Document {
    bytes: Bytes,
    content_type: &'static str,
    tag: String,
}

impl Documents {
    fn get(
        &self,
        generation: u64,
        path: &str,
        make: impl FnOnce() -> Option<(Bytes, &'static str)>,
    ) -> Option<Arc<Document>> {
        {
            let mut cached = self.0.lock();
            if cached.0 != generation {
                *cached = (generation, BTreeMap::new());
            }
            if let Some(found) = cached.1.get(path) {
                return Some(found.clone());
            }
        }
        let (bytes, content_type) = make()?;
        let tag = format!("\"{:016X}-{generation:X}\"", fingerprint(&bytes));
        let document = Arc::new(Document { bytes, content_type, tag });
        let mut cached = self.0.lock();
        if cached.0 == generation {
            cached.1.insert(path.to_owned(), document.clone());
        }
        Some(document)
    }
}

/// A number that differs when the document does (FNV-1a); nobody's safety depends on it.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

impl Api {
    /// Answers a request for a path that names no resource.
    pub(crate) fn path(
        &self,
        info: &RequestInfo,
        accept: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Answer, Failure> {
        if !matches!(info.method, Method::GET | Method::HEAD) {
            return Err(Failure::MethodNotAllowed);
        }
        let parts: Vec<&str> = info.path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            [health @ ("healthz" | "livez" | "readyz"), rest @ ..] => self.health(info, health, rest),
            ["version"] => Ok(response::value(StatusCode::OK, &version(), &plain(accept)?)),
            [""] => Ok(response::value(StatusCode::OK, &self.index(), &plain(accept)?)),
            ["api" | "apis", ..] => self.discovery(&parts, accept, headers),
            ["openapi", ..] => self.openapi(&parts, accept, headers),
            [".well-known", "openid-configuration"] => Ok(response::value(
                StatusCode::OK,
                &self.tokens().openid_configuration(&self.address()),
                &accept::JSON,
            )),
            ["openid", "v1", "jwks"] => {
                let mut answer = response::value(StatusCode::OK, &self.tokens().jwks(), &accept::JSON);
                let kind = HeaderValue::from_static("application/jwk-set+json");
                answer.headers_mut().insert(header::CONTENT_TYPE, kind);
                Ok(answer)
            }
            ["metrics"] => Ok(response::text(StatusCode::OK, self.metrics())),
            _ => Err(Failure::UnknownPath),
        }
    }

    /// `/healthz` and its like: a server that answers and writes is well, and ready once all who said so are.
    fn health(&self, info: &RequestInfo, health: &str, rest: &[&str]) -> Result<Answer, Failure> {
        let store = self.store().failure().map_or(Ok(()), |why| Err(why.to_string()));
        let mut checks = vec![("ping", Ok(())), ("log", Ok(())), ("store", store)];
        if health == "readyz" {
            checks.extend(self.checks().into_iter().map(|(name, check)| (name, check())));
        }
        let all = rest.is_empty();
        checks.retain(|(name, _)| all || rest == [*name]);
        if checks.is_empty() {
            return Err(Failure::UnknownPath);
        }
        let well = checks.iter().all(|(_, found)| found.is_ok());
        let code = if well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        if well && !(all && info.options.verbose) {
            return Ok(response::text(code, "ok"));
        }
        let lines: String = checks
            .iter()
            .map(|(name, found)| match found {
                Ok(()) => format!("[+]{name} ok\n"),
                Err(why) => format!("[-]{name} failed: {why}\n"),
            })
            .collect();
        let verdict = if well { "passed" } else { "failed" };
        Ok(response::text(code, format!("{lines}{health} check {verdict}\n")))
    }

    /// The host and port by which others find this server; within the cluster, while it is not served.
    fn address(&self) -> String {
        self.served().get().map_or_else(|| "kubernetes.default.svc".to_owned(), ToString::to_string)
    }

    fn metrics(&self) -> String {
        format!(
            "# TYPE apiserver_requests_answered counter\napiserver_requests_answered {}\n# TYPE apiserver_storage_revision gauge\napiserver_storage_revision {}\n",
            self.requests().count(),
            self.store().revision()
        )
    }

    /// `/`: the paths there are.
    fn index(&self) -> Value {
        let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into(), "/apis/".into()];
        for group in self.registry().groups().iter().filter(|group| !group.name.is_empty()) {
            paths.push(format!("/apis/{}", group.name));
            paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{version}", group.name)));
        }
        let others = [
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openid/v1/jwks",
            "/readyz",
            "/version",
        ];
        paths.extend(others.map(str::to_owned));
        json!({"paths": paths})
    }

    fn discovery(
        &self,
        parts: &[&str],
        accept: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Answer, Failure> {
        let wanted = accept::negotiate(accept).map_err(|_| Failure::UndescribedIn(accept::OFFERED))?;
        let registry = self.registry();
        let aggregated = wanted.shape == Shape::Discovery;
        let address = self.address();
        let content_type = if aggregated && parts.len() == 1 {
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        } else {
            "application/json"
        };
        let make = || {
            let value = match parts {
                ["api"] if aggregated => Some(discovery::aggregated(registry, true)),
                ["apis"] if aggregated => Some(discovery::aggregated(registry, false)),
                ["api"] => Some(discovery::api_versions(&address)),
                ["apis"] => Some(discovery::api_group_list(registry)),
                ["api", version] => discovery::api_resource_list(registry, "", version),
                ["apis", group] => discovery::api_group(registry, group),
                ["apis", group, version] => discovery::api_resource_list(registry, group, version),
                _ => None,
            }?;
            Some((written(&value), content_type))
        };
        let variant = match parts {
            _ if aggregated => "#aggregated",
            ["api"] => &address,
            _ => "",
        };
        let key = format!("{}{variant}", parts.join("/"));
        let document = self.documents().get(registry.generation(), &key, make).ok_or(Failure::UnknownPath)?;
        let mut answer = tagged(&document, headers);
        answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        if !matches!(wanted.format, accept::Format::Json) {
            return Ok(response::written(StatusCode::OK, document.bytes.clone(), &wanted));
        }
        Ok(answer)
    }

    fn openapi(&self, parts: &[&str], accept: Option<&str>, headers: &HeaderMap) -> Result<Answer, Failure> {
        let accept = accept.unwrap_or("*/*");
        let json = ["json", "*/*", "application/*"].iter().any(|kind| accept.contains(kind));
        let protobuf = parts == ["openapi", "v2"] && accept.contains("proto-openapi.spec.v2");
        if !json && !protobuf {
            return Err(Failure::NotAcceptable("application/json"));
        }
        let registry = self.registry();
        let make = || {
            let value = match parts {
                ["openapi", "v2"] => openapi::v2(registry),
                ["openapi", "v3"] => openapi::v3_index(registry),
                ["openapi", "v3", "api", version] => openapi::v3_group_version(registry, "", version)?,
                ["openapi", "v3", "apis", group, version] => {
                    openapi::v3_group_version(registry, group, version)?
                }
                _ => return None,
            };
            if protobuf {
                return Some((gnostic::encode(&value).into(), gnostic::MEDIA_TYPE));
            }
            Some((written(&value), "application/json"))
        };
        let key = format!("{}{}", parts.join("/"), if protobuf { "#protobuf" } else { "" });
        let document = self.documents().get(registry.generation(), &key, make).ok_or(Failure::UnknownPath)?;
        Ok(tagged(&document, headers))
    }
}

/// A document, or the news that the client has it already.
fn tagged(document: &Document, headers: &HeaderMap) -> Answer {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut answer = if known.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == document.tag)) {
        let mut answer = http::Response::new(ResponseBody::empty());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        response::json_bytes(StatusCode::OK, document.bytes.clone())
    };
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(document.content_type));
    if let Ok(tag) = HeaderValue::from_str(&document.tag) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    answer
}

fn plain(accept: Option<&str>) -> Result<Accept, Failure> {
    Ok(Accept { shape: Shape::Whole, ..accept::negotiate(accept)? })
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    })
}

/// This machine's architecture, as Go calls it.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
