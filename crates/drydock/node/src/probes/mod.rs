//! Probes: how a container is asked, and what its answers mean.

pub(crate) mod ask;
pub(crate) mod health;
pub(crate) mod page;
pub(crate) mod tracker;
pub(crate) mod watch;
