//! Connections that the kernel leads by itself, without passing through this process.
//!
//! A shortcut and nothing more: every front is also listened on, so whatever is not led here (because the kernel
//! refuses, because there is no room, because a client must stay with its endpoint, because it leads to a socket among
//! the files) is led there. What differs is what Kubernetes does too: an endpoint that does not answer is not passed
//! over, and a connection lives on when this process ends.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::netfilter::{Lead, Netfilter};
use crate::proxy::{Backend, Front, Route};
use crate::view::Protocol;

/// The kernel's part of the routes.
pub(crate) struct Direct {
    netfilter: Option<Netfilter>,
    /// What was last wanted.
    led: Vec<Lead>,
}

impl Direct {
    /// Nothing is led yet, also of what an earlier run has said. Where the kernel does not do it, it stays so.
    pub(crate) fn open(source: Option<Ipv4Addr>) -> Self {
        let opened = source.map(|source| {
            let netfilter = Netfilter::open(source)?;
            netfilter.lead(&[]).map(|_| netfilter)
        });
        let netfilter = opened.and_then(|opened| {
            let refused = |error| tracing::info!(%error, "the kernel leads no connections to services");
            opened.map_err(refused).ok()
        });
        Self { netfilter, led: Vec::new() }
    }

    /// Leads what can be led; the rest is not, from now on.
    pub(crate) fn set(&mut self, routes: &BTreeMap<Front, Route>) {
        let Some(netfilter) = &self.netfilter else { return };
        let wanted = plain(routes);
        if wanted == self.led {
            return;
        }
        match netfilter.lead(&wanted) {
            Ok(led) if led < wanted.len() => {
                tracing::info!(led, of = wanted.len(), "not all services are led by the kernel");
            }
            Ok(_) => {}
            Err(error) => {
                // What it was told before may be wrong by now.
                let none = netfilter.lead(&[]);
                tracing::warn!(%error, cleared = none.is_ok(), "the kernel refuses to lead connections");
            }
        }
        self.led = wanted;
    }
}

/// What the kernel can lead: connections to any of some addresses.
fn plain(routes: &BTreeMap<Front, Route>) -> Vec<Lead> {
    let plain = |(front, route): (&Front, &Route)| {
        let address = |backend: &Backend| match backend {
            Backend::Address(SocketAddr::V4(address)) => Some(*address),
            Backend::Address(SocketAddr::V6(_)) | Backend::Socket(_) => None,
        };
        let possible = front.protocol == Protocol::Tcp && route.affinity.is_none();
        let backends: Option<Vec<_>> = route.backends.iter().map(address).collect();
        backends.filter(|_| possible).map(|backends| (front.address, backends))
    };
    routes.iter().filter_map(plain).collect()
}
