//! The node's network: one bridge with the pods on it, and as root one link to the machine.
//!
//! Of the pods' range the first address is the node's own, on the bridge; the second is the machine's, on the
//! link's outer end; pods have the others. The link's inner end is on the bridge like any pod, so the machine and
//! the pods are neighbours and nothing is translated.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::CloneFlags;

use crate::config::Cidr;
use crate::netlink::Netlink;

/// Addresses that are no pod's: the range's own, the node's, the machine's.
const RESERVED: u32 = 3;

/// The name of the link's inner end.
const INNER_END: &str = "uplink";

/// The node's own address.
pub(crate) fn node_address(range: Cidr) -> Ipv4Addr {
    range.nth(1)
}

/// The machine's address on the link.
pub(crate) fn machine_address(range: Cidr) -> Ipv4Addr {
    range.nth(2)
}

/// Makes the bridge, unless an earlier run has; gives back its number. The services' addresses become the node's.
pub(crate) fn bridge(name: &str, range: Cidr, services: Option<Cidr>) -> io::Result<u32> {
    let node = Netlink::open()?;
    if let Some(index) = node.index(name)? {
        settle(name)?;
        return Ok(index);
    }
    let loopback = node.must_index("lo")?;
    node.up(loopback)?;
    if let Some(services) = services {
        node.add_local(services, loopback)?;
    }
    node.add_bridge(name)?;
    let index = node.must_index(name)?;
    node.add_address(index, node_address(range), range.prefix)?;
    node.up(index)?;
    settle(name)?;
    Ok(index)
}

/// How the node handles what is not for itself.
fn settle(bridge: &str) -> io::Result<()> {
    let set = |name: &str, value: &str| std::fs::write(format!("/proc/sys/net/{name}"), value);
    // The node carries what the machine sends to services, and what pods send to it.
    set("ipv4/ip_forward", "1")?;
    // What a pod sends to a service may go on to a neighbour of its own, who must not be told to it as a shorter way.
    for whose in ["all", bridge] {
        set(&format!("ipv4/conf/{whose}/send_redirects"), "0")?;
    }
    // Rules for connections are for what the node carries, not for what passes over the bridge: there a pod would not
    // reach itself through a service. A kernel that has no such rules for bridges has nothing to be told.
    match set("bridge/bridge-nf-call-iptables", "0") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes the bridge.
pub(crate) fn remove_bridge(name: &str) -> io::Result<()> {
    let node = Netlink::open()?;
    node.index(name)?.map_or(Ok(()), |index| node.delete(index))
}

/// Whether the machine has a link of this name.
pub(crate) fn has_link(name: &str, outside: &OwnedFd) -> io::Result<bool> {
    inside(outside, || Ok(Netlink::open()?.index(name)?.is_some()))?
}

/// Joins the machine to the bridge, and sends what goes to services over the same link, unless another node of
/// this machine has them. Gives back the link's number, and whether services are reached.
pub(crate) fn uplink(
    name: &str,
    bridge: u32,
    range: Cidr,
    services: Option<Cidr>,
    outside: &OwnedFd,
) -> io::Result<(u32, bool)> {
    let node = Netlink::open()?;
    if node.index(INNER_END)?.is_none() {
        node.add_veth(INNER_END, bridge, name, outside)?;
    } else {
        // An earlier run's, still up; of its route nothing is known.
        return inside(outside, || Ok((Netlink::open()?.must_index(name)?, false)))?;
    }
    inside(outside, || {
        let machine = Netlink::open()?;
        let index = machine.must_index(name)?;
        machine.add_address(index, machine_address(range), range.prefix)?;
        machine.up(index)?;
        let reached = match services.map(|_| machine.add_route(services, node_address(range), index)) {
            // Another node of this machine has the same services' addresses, and had them first.
            Some(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Some(other) => other.map(|()| true)?,
            None => false,
        };
        Ok((index, reached))
    })?
}

/// Removes the link by its inner end, in the node's network namespace. The kernel would too, but some time after
/// the namespace's last process.
pub(crate) fn remove_inner_end() -> io::Result<()> {
    let node = Netlink::open()?;
    match node.index(INNER_END)? {
        Some(index) => node.delete(index),
        None => Ok(()),
    }
}

/// Removes the link from the machine, if it is still the one that was made.
pub(crate) fn remove_uplink(name: &str, index: Option<u32>, outside: &OwnedFd) -> io::Result<()> {
    inside(outside, || {
        let machine = Netlink::open()?;
        match machine.index(name)? {
            Some(found) if index.is_none_or(|index| index == found) => match machine.delete(found) {
                // It went with the namespace of its other end, in this very moment.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(()),
                other => other,
            },
            _ => Ok(()),
        }
    })?
}

/// Does something in another network namespace, on a thread of its own that ends with it.
pub(crate) fn inside<T: Send>(namespace: impl AsFd + Sync, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the work in another namespace panicked")))
    })
}

/// Which addresses are taken.
#[derive(Debug)]
pub(crate) struct Addresses {
    range: Cidr,
    taken: BTreeSet<Ipv4Addr>,
    next: u32,
}

impl Addresses {
    pub fn new(range: Cidr, taken: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let taken: BTreeSet<Ipv4Addr> = taken.into_iter().collect();
        // Not the lowest that is free: who still talks to a pod that is gone must not reach another.
        let next = taken.last().map_or(RESERVED, |last| u32::from(*last) - u32::from(range.base) + 1);
        Self { range, taken, next }
    }

    /// Takes an address; none when all are taken.
    pub fn take(&mut self) -> Option<Ipv4Addr> {
        let end = self.range.size() - 1;
        for _ in RESERVED..end {
            if self.next >= end {
                self.next = RESERVED;
            }
            let address = self.range.nth(self.next);
            self.next += 1;
            if self.taken.insert(address) {
                return Some(address);
            }
        }
        None
    }

    pub fn give_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_used_again_only_after_all_others() {
        let range: Cidr = "10.1.2.0/29".parse().unwrap();
        let mut addresses = Addresses::new(range, []);
        let mut take = || addresses.take().map(|address| address.octets()[3]);
        assert_eq!([take(), take()], [Some(3), Some(4)]);
        addresses.give_back(range.nth(3));
        let mut take = || addresses.take().map(|address| address.octets()[3]);
        assert_eq!([take(), take(), take(), take()], [Some(5), Some(6), Some(3), None]);
    }

    #[test]
    fn a_range_is_read_as_people_write_it() {
        let check = |text: &str, expected: &str| {
            let read = text.parse::<Cidr>().map_or_else(|error| error, |cidr| cidr.to_string());
            assert_eq!(read, expected);
        };
        check("10.244.3.7/16", "10.244.0.0/16");
        check("10.244.0.0", "10.244.0.0: want four numbers, a slash and a length, as in 10.244.0.0/16");
        check("10.0.0.0/31", "10.0.0.0/31: the length must be between 8 and 29");
    }
}
