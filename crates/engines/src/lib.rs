//! How to talk to a running service from outside.
//!
//! An engine answers an operator's questions and performs its actions, by speaking the service's own protocol. Which
//! words are asked and answered is the operator's business: the types are in its crate. How a connection to a pod
//! comes about is a [`Dialer`]'s: from inside the cluster it is the pod's [address](PodAddress), from afar a
//! [way through the API](PortForward). Which of them is a matter of where this process is: [`Reach`].
//!
//! **What always holds**
//!
//! - Every question has an answer, in bounded time and memory, whatever is at the other end: refused, hung, cut off
//!   and nonsense are answers. None of it is an error of the engine's.
//! - No name is resolved: a connection goes to the address that the question has, to the pod of that name, or nowhere.
//! - What the way does is not held against the service: a connection that was cut off says nothing of who is there.
//! - An engine remembers nothing. How fresh an answer has to be is the question's business, and the runtime sees to it.
//!
//! **What it does not do.** It decides nothing: that a server is silent is said here, what follows from it is not.

mod dialer;
mod forward;
pub mod memcached;
pub mod mysql;

pub use dialer::{Connection, DialError, Dialer, Place, PodAddress, Reach, Stream};
pub use forward::PortForward;
