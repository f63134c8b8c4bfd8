//! The REST surface of the cluster.
//!
//! [`Api::handle`] takes a request and gives its answer; everything else is on the way between the
//! two. The way of a request, which is also a map of this crate:
//!
//! | file | what happens |
//! | --- | --- |
//! | `request` | method, path and query become a [`RequestInfo`] |
//! | `auth` | the caller becomes an identity, and is allowed or not |
//! | `hooks` | tests look, and interfere |
//! | `paths` | paths that name no resource: health, version, discovery, OpenAPI |
//! | `verbs` | the verb and subresource of a resource's request are found |
//! | `accept`, `body` | which form the answer has, what the body says |
//! | `list`, `watch`, `pace`, `share`, `select` | reading |
//! | `write`, `patch`, `delete`, `admission` | writing |
//! | `subresources` | scale, tokens, evictions, bindings, access reviews; `nodes`: logs, exec, what pods serve |
//! | `definitions` | custom resource definitions come to life and end |
//! | `expiry` | events end by themselves |
//! | `present`, `response`, `warnings`, `failure` | the answer is written |
//!
//! **Always holds:** the store is the only state; what is kept beside it is derived from it. Bytes
//! that were stored are sent as they are. No lock is held while waiting.
//!
//! **Deliberately absent:** connections and TLS (the facade's), controllers, webhooks, aggregated
//! API servers, CBOR, answers in protobuf.

mod accept;
mod admission;
mod auth;
mod body;
mod bootstrap;
mod call;
mod definitions;
mod delete;
mod expiry;
mod failure;
mod gnostic;
mod hooks;
mod list;
mod nodes;
mod object;
mod pace;
mod patch;
mod paths;
mod present;
mod request;
mod response;
mod select;
mod server;
mod share;
mod subresources;
mod verbs;
mod warnings;
mod watch;
mod write;

pub use auth::Caller;
pub use bootstrap::BootstrapError;
pub use failure::{Cause, Failure, GroupResource};
pub use hooks::{After, Before, Interceptor, LogEntry, OnEvent, RequestLog, Seen};
pub use nodes::{NodeStream, Nodes, Unreachable};
pub use request::{Options as RequestOptions, RequestInfo, ResourcePath, Verb};
pub use response::{Answer, Cut, ResponseBody};
pub use server::{Api, Check, Clock, Options, VERSION};
