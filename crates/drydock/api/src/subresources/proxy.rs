//! Logs, exec, attach and port-forward: asked of the node that runs the Pod.
//!
//! The request is understood and refused here, in the real server's words, and passed on under a kubelet's path
//! with a kubelet's parameters. What is upgraded is from then on bytes in both directions: which protocol is
//! spoken, the client and the node agree on.

use bytes::Bytes;
use drydock_schema::FieldError;
use futures::TryStreamExt;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::{
    call::Call,
    failure::{Failure, GroupResource},
    object,
    request::{Verb, number, pairs, truth},
    response::{Answer, Cut, ResponseBody},
};

/// What is read of a node's refusal: the real server's number.
const REFUSAL: usize = 50_000;

/// What stays as it is in a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Headers that concern the caller's connection to this server, or who the caller is.
const OURS: [&str; 9] = [
    "authorization",
    "cookie",
    "host",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "te",
    "trailer",
    "accept-encoding",
];

/// Answers a request that only the Pod's node can.
pub(super) async fn answer(call: &Call<'_>, name: &str) -> Result<Answer, Failure> {
    match (name, call.info.verb) {
        ("log", Verb::Get) => log(call).await,
        ("exec" | "attach" | "portforward", Verb::Get | Verb::Create) => connect(call, name).await,
        _ => Err(Failure::MethodNotAllowed),
    }
}

async fn log(call: &Call<'_>) -> Result<Answer, Failure> {
    let options = LogOptions::read(call)?;
    let pod = object::read_stored(&*call.stored()?)?;
    let container = container(&pod, call.name(), &options.container)?;
    let Some(node) = node_of(&pod) else {
        let mut nothing = Response::new(ResponseBody::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    };
    known(call, node)?;
    let path = format!("/containerLogs/{}/{}/{container}", call.namespace(), call.name());
    let query = options.passed.to_query();
    let asked = |error: &dyn std::fmt::Display| {
        Failure::Unexpected(format!("Get \"https://{node}:10250{path}{query}\": {error}"))
    };
    let stream = call.api.nodes().connect(node).await.map_err(|error| asked(&error))?;
    let request =
        Request::get(format!("{path}{query}")).header(header::HOST, node).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| asked(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| asked(&error))?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| asked(&error))?;
    if !(200..=206).contains(&answer.status().as_u16()) {
        return Err(refused(call, answer).await);
    }
    let pieces = BodyStream::new(answer.into_body())
        .try_filter_map(|frame| futures::future::ok(frame.into_data().ok()))
        .map_err(|_| Cut);
    // The sender is kept for as long as the answer: without it the connection would end.
    let pieces = pieces.inspect_ok(move |_| {
        let _ = &sender;
    });
    let mut answer = Response::new(ResponseBody::stream(pieces));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(answer)
}

/// What a node said instead of a log.
async fn refused(call: &Call<'_>, answer: Response<Incoming>) -> Failure {
    let code = answer.status();
    let body = Limited::new(answer.into_body(), REFUSAL).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
    let about = format!("( pods/log {})", call.name());
    match code.as_u16() {
        500 => Failure::Internal(text),
        400 => Failure::BadRequest(text),
        404 => Failure::Injected {
            code: 404,
            message: format!("the server could not find the requested resource {about}"),
        },
        503 => Failure::Unavailable(format!("the server is currently unable to handle the request {about}")),
        code if code > 500 => Failure::Injected {
            code,
            message: format!(
                "an error on the server ({text:?}) has prevented the request from succeeding {about}"
            ),
        },
        code => Failure::Injected {
            code,
            message: format!(
                "the server responded with the status code {code} but did not return more information {about}"
            ),
        },
    }
}

/// `exec`, `attach`, `portforward`.
async fn connect(call: &Call<'_>, name: &str) -> Result<Answer, Failure> {
    let pod = object::read_stored(&*call.stored()?)?;
    let path = if name == "portforward" {
        format!("/portForward/{}/{}", call.namespace(), call.name())
    } else {
        let wanted = pairs(&call.info.query).find(|(key, _)| key == "container").map(|(_, value)| value);
        let container = container(&pod, call.name(), &wanted.unwrap_or_default())?;
        format!("/{name}/{}/{}/{container}", call.namespace(), call.name())
    };
    let node = node_of(&pod)
        .ok_or_else(|| Failure::BadRequest(format!("pod {} does not have a host assigned", call.name())))?;
    known(call, node)?;
    let upgrade = call.upgrade.clone().filter(|_| wants_upgrade(call.headers));
    let upgrade = upgrade.ok_or_else(|| Failure::BadRequest("Upgrade request required".into()))?;
    let backend =
        |error: &dyn std::fmt::Display| Failure::Unexpected(format!("error dialing backend: {error}"));
    let stream = call.api.nodes().connect(node).await.map_err(|error| backend(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| backend(&error))?;
    tokio::spawn(connection.with_upgrades());
    let request = passed_on(call, node, &format!("{path}{}", stream_query(call, name)))?;
    let answer = sender.send_request(request).await.map_err(|error| backend(&error))?;
    Ok(spliced(answer, upgrade))
}

pub(super) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade")))
}

/// The caller's request as the node gets it.
fn passed_on(call: &Call<'_>, node: &str, target: &str) -> Result<Request<Empty<Bytes>>, Failure> {
    let mut request = Request::builder()
        .method(call.info.method.clone())
        .uri(target)
        .header(header::HOST, node)
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::Unexpected(error.to_string()))?;
    pass_headers(call.headers, request.headers_mut());
    // A browser's way to send a token is no protocol of the node's.
    let protocols =
        request.headers().get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    let kept = protocols.map(|protocols| {
        let all = protocols.split(',').map(str::trim);
        all.filter(|one| !one.starts_with("base64url.bearer.authorization.k8s.io."))
            .collect::<Vec<_>>()
            .join(", ")
    });
    if let Some(kept) = kept.and_then(|kept| HeaderValue::from_str(&kept).ok()) {
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, kept);
    }
    Ok(request)
}

/// Adds what a caller says beside what it says to this server.
pub(super) fn pass_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        if !OURS.contains(&name.as_str()) && !name.as_str().starts_with("impersonate-") {
            to.append(name.clone(), value.clone());
        }
    }
}

/// The node's answer as the caller gets it. After an upgrade what each side says goes to the other.
pub(super) fn spliced(mut answer: Response<Incoming>, caller: OnUpgrade) -> Answer {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut parts, body) = answer.into_parts();
        for name in [header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::CONNECTION] {
            parts.headers.remove(name);
        }
        let pieces =
            BodyStream::new(body).try_filter_map(|frame| futures::future::ok(frame.into_data().ok()));
        return Response::from_parts(parts, ResponseBody::stream(pieces.map_err(|_| Cut)));
    }
    let node = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        let Ok((caller, node)) = tokio::try_join!(caller, node) else { return };
        drydock_splice::splice(TokioIo::new(caller), TokioIo::new(node)).await;
    });
    answer.map(|_| ResponseBody::empty())
}

/// The node a Pod is on.
pub(super) fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

/// The node must be one that there is.
fn known(call: &Call<'_>, node: &str) -> Result<(), Failure> {
    let key = drydock_store::Key { resource: "/nodes".into(), namespace: "".into(), name: node.into() };
    match call.api.store().get(&key) {
        Some(_) => Ok(()),
        None => Err(Failure::NotFound(GroupResource::new("", "nodes"), node.to_owned())),
    }
}

/// The container that is meant: the one that is named, or the only one.
fn container(pod: &Value, name: &str, wanted: &str) -> Result<String, Failure> {
    let names = |field: &str| {
        let all = pod["spec"][field].as_array().into_iter().flatten();
        all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let own = names("containers");
    let all = || [names("initContainers"), own.clone(), names("ephemeralContainers")].concat();
    if !wanted.is_empty() {
        return if all().iter().any(|one| one == wanted) {
            Ok(wanted.to_owned())
        } else {
            Err(Failure::BadRequest(format!("container {wanted} is not valid for pod {name}")))
        };
    }
    match own.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::BadRequest(format!("a container name must be specified for pod {name}"))),
        _ => Err(Failure::BadRequest(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all().join(" ")
        ))),
    }
}

/// Parameters to be passed on.
#[derive(Default)]
struct Passed(Vec<(&'static str, String)>);

impl Passed {
    fn to_query(&self) -> String {
        let written = |(key, value): &(&str, String)| format!("{key}={}", utf8_percent_encode(value, PLAIN));
        let all: Vec<String> = self.0.iter().map(written).collect();
        if all.is_empty() { String::new() } else { format!("?{}", all.join("&")) }
    }
}

/// The parameters of exec, attach and port-forward under the names that a kubelet knows.
fn stream_query(call: &Call<'_>, name: &str) -> String {
    let mut passed = Passed::default();
    if name == "portforward" {
        let ports = pairs(&call.info.query).filter(|(key, _)| key == "ports").map(|(_, value)| value);
        let ports = ports.collect::<Vec<_>>().join(",");
        if !ports.is_empty() {
            passed.0.push(("port", ports));
        }
        return passed.to_query();
    }
    // Output is always wanted, whatever the caller says: a default of the real server.
    let mut asked = [("input", false), ("tty", false)];
    let mut command = Vec::new();
    for (key, value) in pairs(&call.info.query) {
        match key.as_str() {
            "stdin" => asked[0].1 = truth(&value),
            "tty" => asked[1].1 = truth(&value),
            "command" => command.push(value),
            _ => {}
        }
    }
    passed.0.extend([("output", "1".into()), ("error", "1".into())]);
    passed.0.extend(asked.iter().filter(|(_, asked)| *asked).map(|(name, _)| (*name, "1".to_owned())));
    if name == "exec" {
        passed.0.extend(command.into_iter().map(|word| ("command", word)));
    }
    passed.to_query()
}

/// The parameters of `log`.
struct LogOptions {
    container: String,
    passed: Passed,
}

impl LogOptions {
    fn read(call: &Call<'_>) -> Result<Self, Failure> {
        let mut options = Self { container: String::new(), passed: Passed::default() };
        let mut errors = Vec::new();
        let mut since = [false; 2];
        for (key, value) in pairs(&call.info.query) {
            let flag = |name| truth(&value).then(|| (name, "true".to_owned()));
            let mut counted = |name, least: i64, why: &str| {
                let count = number(&value)?;
                if count < least {
                    errors.push(FieldError::invalid(name, count, why));
                }
                Ok::<_, Failure>(Some((name, count.to_string())))
            };
            let passed = match key.as_str() {
                "container" => {
                    options.container = value;
                    None
                }
                "follow" => flag("follow"),
                "previous" => flag("previous"),
                "timestamps" => flag("timestamps"),
                "tailLines" => counted("tailLines", 0, "must be greater than or equal to 0")?,
                "limitBytes" => counted("limitBytes", 1, "must be greater than 0")?,
                "sinceSeconds" => {
                    since[0] = true;
                    counted("sinceSeconds", 1, "must be greater than 0")?
                }
                "sinceTime" => {
                    since[1] = true;
                    Some(("sinceTime", value))
                }
                "stream" => {
                    errors.push(FieldError::forbidden("stream", "may not be specified"));
                    None
                }
                _ => None,
            };
            options.passed.0.extend(passed);
        }
        if since == [true; 2] {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden("", why));
        }
        if errors.is_empty() {
            return Ok(options);
        }
        let kind = GroupResource::new("", "PodLogOptions");
        Err(Failure::Invalid { kind, name: call.name().to_owned(), errors })
    }
}
