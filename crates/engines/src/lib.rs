//! How to talk to a running service from outside.
//!
//! An engine answers an operator's questions and performs its actions, by speaking the service's own protocol. Which
//! words are asked and answered is the operator's business: the types are in its crate. How a connection to a pod
//! comes about is a [`Dialer`]'s: from inside the cluster it is the pod's [address](PodAddress), from afar something
//! else.
//!
//! **What always holds**
//!
//! - Every question has an answer, in bounded time and memory, whatever is at the other end: refused, hung, cut off
//!   and nonsense are answers. None of it is an error of the engine's.
//! - No name is resolved: a connection goes to the address that the question has, or nowhere.
//! - An engine remembers nothing. How fresh an answer has to be is the question's business, and the runtime sees to it.
//!
//! **What it does not do.** It decides nothing: that a server is silent is said here, what follows from it is not.

mod dialer;
pub mod memcached;

pub use dialer::{Connection, DialError, Dialer, Place, PodAddress, Stream};
