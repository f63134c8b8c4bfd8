//! `pods/proxy` and `services/proxy`: what a pod serves over HTTP, by way of the API server.
//!
//! The pod is dialled by its node, at the pod's own address, and spoken to from here. Bodies are passed on as they come,
//! however long they are; what is upgraded is bytes in both directions from then on. A Service means one of the pods
//! behind it.
//!
//! **Deliberately absent:** TLS to the pod (`https:NAME:PORT`), and the rewriting of links in HTML.

use bytes::Bytes;
use drydock_store::Key;
use futures::TryStreamExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, BodyStream, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::proxy;
use crate::{
    call::{Call, Passed},
    failure::{Failure, GroupResource},
    object,
    response::{Answer, Cut, ResponseBody},
};

/// What is read of a node's refusal.
const REFUSAL: usize = 4096;

/// What is written otherwise in a path.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// Answers with what the pod says.
pub(super) async fn answer(call: &Call<'_>) -> Result<Answer, Failure> {
    let target = Target::find(call)?;
    let path = call.info.path.strip_prefix(&prefix(call)).unwrap_or_default();
    let query = if call.info.query.is_empty() { String::new() } else { format!("?{}", call.info.query) };
    if path.is_empty() && matches!(call.info.method, Method::GET | Method::HEAD) {
        return moved(&format!("{}/{query}", call.info.path));
    }
    let unreachable = |error: &dyn std::fmt::Display| {
        Failure::Unavailable(format!("error trying to reach service: {error}"))
    };
    let request = target.request(call, path, &query).map_err(|error| unreachable(&error))?;
    let stream = target.dial(call).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| unreachable(&error))?;
    tokio::spawn(connection.with_upgrades());
    let mut answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
    follow_here(answer.headers_mut(), call);
    match call.upgrade.clone().filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
        Some(caller) => Ok(proxy::spliced(answer, caller)),
        None => Ok(relayed(answer, sender)),
    }
}

/// The path of the subresource, before what the pod is asked for.
fn prefix(call: &Call<'_>) -> String {
    format!("/api/v1/namespaces/{}/{}/{}/proxy", call.namespace(), call.kind.plural, call.name())
}

/// A root without its slash would break every relative link.
fn moved(to: &str) -> Result<Answer, Failure> {
    let to = HeaderValue::from_str(&utf8_percent_encode(to, CONTROLS).to_string());
    let mut answer = Response::new(ResponseBody::empty());
    *answer.status_mut() = StatusCode::MOVED_PERMANENTLY;
    answer
        .headers_mut()
        .insert(header::LOCATION, to.map_err(|error| Failure::BadRequest(error.to_string()))?);
    Ok(answer)
}

/// A redirect within the pod is one within the subresource.
fn follow_here(headers: &mut HeaderMap, call: &Call<'_>) {
    let within =
        headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).filter(|to| to.starts_with('/'));
    if let Some(Ok(to)) = within.map(|to| HeaderValue::from_str(&format!("{}{to}", prefix(call)))) {
        headers.insert(header::LOCATION, to);
    }
}

/// The pod's answer, piece by piece.
fn relayed(answer: Response<Incoming>, sender: http1::SendRequest<Passed>) -> Answer {
    let (mut parts, body) = answer.into_parts();
    for name in [header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::CONNECTION] {
        parts.headers.remove(name);
    }
    let pieces = BodyStream::new(body)
        .try_filter_map(|frame| futures::future::ok(frame.into_data().ok()))
        .map_err(|_| Cut)
        // Kept for as long as the answer: without it the connection would end.
        .inspect_ok(move |_| {
            let _ = &sender;
        });
    Response::from_parts(parts, ResponseBody::stream(pieces))
}

/// A port of a pod.
#[derive(Debug)]
struct Target {
    node: String,
    pod: String,
    address: String,
    port: u16,
}

impl Target {
    /// The pod that is meant by `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
    fn find(call: &Call<'_>) -> Result<Self, Failure> {
        let id = call.name();
        let (scheme, name, port) = match id.split(':').collect::<Vec<_>>().as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !["", "http", "https"].contains(&scheme) {
            let what = &call.kind.singular;
            return Err(Failure::BadRequest(format!("invalid {what} request {id:?}")));
        }
        if scheme == "https" {
            return Err(Failure::Unavailable("error trying to reach service: no TLS to pods".to_owned()));
        }
        if &*call.kind.plural == "services" {
            Self::behind(call, name, port)
        } else {
            Self::pod(call, name, port)
        }
    }

    fn pod(call: &Call<'_>, name: &str, port: &str) -> Result<Self, Failure> {
        let pod = read(call, "pods", name)
            .ok_or_else(|| Failure::NotFound(GroupResource::new("", "pods"), name.to_owned()))??;
        let port = if port.is_empty() {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let first = containers.into_iter().find_map(|one| one["ports"][0]["containerPort"].as_u64());
            first.and_then(|port| u16::try_from(port).ok()).unwrap_or(80)
        } else {
            port.parse().map_err(|_| Failure::BadRequest(format!("invalid pod request {:?}", call.name())))?
        };
        Self::at(&pod, name, port).ok_or_else(|| Failure::BadRequest("address not allowed".to_owned()))
    }

    fn at(pod: &Value, name: &str, port: u16) -> Option<Self> {
        let address = pod["status"]["podIP"].as_str().filter(|address| !address.is_empty())?.to_owned();
        Some(Self { node: proxy::node_of(pod)?.to_owned(), pod: name.to_owned(), address, port })
    }

    /// One of the pods behind a Service, of which `port` is a number or a name.
    fn behind(call: &Call<'_>, name: &str, port: &str) -> Result<Self, Failure> {
        let absent = || Failure::NotFound(GroupResource::new("", "services"), name.to_owned());
        let port = match port.parse::<u64>() {
            Err(_) => port.to_owned(),
            Ok(number) => {
                let service = read(call, "services", name).ok_or_else(absent)??;
                let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
                let found = ports.find(|one| one["port"].as_u64() == Some(number)).ok_or_else(|| {
                    let message = format!("no service port {number} found for service {name:?}");
                    Failure::Unavailable(message)
                })?;
                found["name"].as_str().unwrap_or_default().to_owned()
            }
        };
        let none = |of: &str| Failure::Unavailable(format!("no endpoints available for service {of:?}"));
        let endpoints = read(call, "endpoints", name).ok_or_else(absent)??;
        let subsets = endpoints["subsets"].as_array().filter(|subsets| !subsets.is_empty());
        let mut found: Vec<Self> = Vec::new();
        for subset in subsets.ok_or_else(|| none(name))? {
            let named = |one: &&Value| one["name"].as_str().unwrap_or_default() == port;
            let number = subset["ports"].as_array().into_iter().flatten().find(named);
            let Some(number) = number.and_then(|one| u16::try_from(one["port"].as_u64()?).ok()) else {
                continue;
            };
            let addresses = subset["addresses"].as_array().into_iter().flatten();
            let pods = addresses.filter_map(|address| address["targetRef"]["name"].as_str());
            found.extend(pods.filter_map(|pod| Self::at(&read(call, "pods", pod)?.ok()?, pod, number)));
        }
        if found.is_empty() {
            return Err(Failure::Unavailable(format!(
                "no endpoints available for service {:?}",
                call.name()
            )));
        }
        // Any will do; not always the same.
        let turn = usize::try_from(call.now.subsec_nanosecond()).unwrap_or(0) / 1000 % found.len();
        Ok(found.swap_remove(turn))
    }

    /// The caller's request as the pod gets it.
    fn request(&self, call: &Call<'_>, path: &str, query: &str) -> http::Result<Request<Passed>> {
        let path = utf8_percent_encode(path, NOT_IN_PATHS).to_string();
        let uri: Uri = format!("{}{path}{query}", if path.is_empty() { "/" } else { "" }).parse()?;
        let forwarded = utf8_percent_encode(&call.info.path, NOT_IN_PATHS).to_string();
        let host = call.headers.get(header::HOST).cloned();
        let mut request = Request::builder()
            .method(call.info.method.clone())
            .uri(uri)
            .header("x-forwarded-uri", forwarded)
            .body(call.passed.lock().take().unwrap_or_default())?;
        let headers = request.headers_mut();
        proxy::pass_headers(call.headers, headers);
        if !proxy::wants_upgrade(call.headers) {
            headers.remove(header::CONNECTION);
            headers.remove(header::UPGRADE);
        }
        let own = HeaderValue::from_str(&format!("{}:{}", self.address, self.port))?;
        headers.insert(header::HOST, host.unwrap_or(own));
        Ok(request)
    }

    /// A connection to the pod's own address, by way of its node.
    async fn dial(&self, call: &Call<'_>) -> Result<Upgraded, Box<dyn std::error::Error + Send + Sync>> {
        let stream = call.api.nodes().connect(&self.node).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        let request = Request::get(format!("/dial/{}/{}/{}", call.namespace(), self.pod, self.port))
            .header(header::HOST, &self.node)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "tcp")
            .body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let why = Limited::new(answer.into_body(), REFUSAL).collect().await?.to_bytes();
            return Err(String::from_utf8_lossy(&why).into());
        }
        Ok(hyper::upgrade::on(answer).await?)
    }
}

/// An object of the request's namespace, if there is one.
fn read(call: &Call<'_>, plural: &str, name: &str) -> Option<Result<Value, Failure>> {
    let resource = format!("/{plural}").as_str().into();
    let key = Key { resource, namespace: call.namespace().into(), name: name.into() };
    Some(object::read_stored(&*call.api.store().get(&key)?))
}
