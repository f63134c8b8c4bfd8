//! Addresses and ports of Services: each is given once.
//!
//! The store is the truth: what is taken is read from it when it is first needed, and kept in step
//! by the writes that go through this server.

use std::{collections::BTreeSet, net::Ipv4Addr};

use drydock_store::{Page, Range, Store};
use parking_lot::Mutex;
use serde_json::Value;

use crate::object;

/// The first address of the range of Services, `10.96.0.0/12`, as kubeadm has it.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 0]);
/// How many addresses there are.
const SIZE: u32 = 1 << 20;
/// Addresses at the beginning that are given only to those who ask for them by name; the real server
/// keeps as many for the like of the DNS service.
const RESERVED: u32 = 256;

/// The ports of nodes that Services may have.
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// What one write has taken so far.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    addresses: Vec<Ipv4Addr>,
    ports: Vec<u16>,
}

impl Reserved {
    /// What `old` has and `new` has not.
    pub fn difference(old: &Value, new: &Value) -> Self {
        Self {
            addresses: addresses_of(old).filter(|own| addresses_of(new).all(|kept| kept != *own)).collect(),
            ports: ports_of(old).filter(|own| ports_of(new).all(|kept| kept != *own)).collect(),
        }
    }
}

/// Why an address or port can't be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("provided IP is already allocated")]
    AddressTaken,
    #[error("the provided network does not match the current range")]
    OutsideRange,
    #[error("provided port is already allocated")]
    PortTaken,
    #[error("provided port is not in the valid range. The range of valid ports is 30000-32767")]
    PortOutsideRange,
    #[error("range is full")]
    Full,
}

/// What is taken.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<Option<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeSet<u16>,
    next_address: u32,
    next_port: u16,
}

impl Addresses {
    /// Gives an address: the one asked for, or the next that is free.
    pub fn take_address(
        &self,
        store: &Store,
        wanted: Option<Ipv4Addr>,
        reserved: &mut Reserved,
    ) -> Result<Ipv4Addr, Refused> {
        self.with(store, |taken| {
            let address = match wanted {
                Some(address) => {
                    let offset = u32::from(address).wrapping_sub(FIRST);
                    if offset == 0 || offset >= SIZE - 1 {
                        return Err(Refused::OutsideRange);
                    }
                    address
                }
                None => taken.free_address().ok_or(Refused::Full)?,
            };
            if !taken.addresses.insert(address) {
                return Err(Refused::AddressTaken);
            }
            reserved.addresses.push(address);
            Ok(address)
        })
    }

    /// Gives a port: the one asked for, or the next that is free.
    pub fn take_port(
        &self,
        store: &Store,
        wanted: Option<u16>,
        reserved: &mut Reserved,
    ) -> Result<u16, Refused> {
        self.with(store, |taken| {
            let port = match wanted {
                Some(port) if !PORTS.contains(&port) => return Err(Refused::PortOutsideRange),
                Some(port) if taken.ports.contains(&port) => return Err(Refused::PortTaken),
                Some(port) => port,
                None => taken.free_port().ok_or(Refused::Full)?,
            };
            taken.ports.insert(port);
            reserved.ports.push(port);
            Ok(port)
        })
    }

    /// What was reserved is free again.
    pub fn release_all(&self, reserved: &Reserved) {
        if reserved.addresses.is_empty() && reserved.ports.is_empty() {
            return;
        }
        if let Some(taken) = &mut *self.0.lock() {
            reserved.addresses.iter().for_each(|address| _ = taken.addresses.remove(address));
            reserved.ports.iter().for_each(|port| _ = taken.ports.remove(port));
        }
    }

    /// What a Service had and has no more is free again.
    pub fn release(&self, service: &Value) {
        if let Some(taken) = &mut *self.0.lock() {
            addresses_of(service).for_each(|address| _ = taken.addresses.remove(&address));
            ports_of(service).for_each(|port| _ = taken.ports.remove(&port));
        }
    }

    fn with<T>(&self, store: &Store, act: impl FnOnce(&mut Taken) -> T) -> T {
        let mut guard = self.0.lock();
        act(guard.get_or_insert_with(|| Taken::read(store)))
    }
}

impl Taken {
    fn read(store: &Store) -> Self {
        let range = Range { resource: "/services".into(), namespace: None };
        let mut taken = Self { next_address: RESERVED, next_port: *PORTS.start(), ..Self::default() };
        for stored in store.list(&range, Page::default()).map(|l| l.items).unwrap_or_default() {
            if let Ok(service) = object::read_stored(&stored) {
                taken.addresses.extend(addresses_of(&service));
                taken.ports.extend(ports_of(&service));
            }
        }
        taken
    }

    /// Goes round, so that an address that was just freed is not the next to be given.
    fn free_address(&mut self) -> Option<Ipv4Addr> {
        for _ in RESERVED..SIZE {
            let address = Ipv4Addr::from(FIRST + self.next_address);
            self.next_address = if self.next_address + 2 >= SIZE { RESERVED } else { self.next_address + 1 };
            if !self.addresses.contains(&address) {
                return Some(address);
            }
        }
        None
    }

    fn free_port(&mut self) -> Option<u16> {
        for _ in PORTS {
            let port = self.next_port;
            self.next_port = if port == *PORTS.end() { *PORTS.start() } else { port + 1 };
            if !self.ports.contains(&port) {
                return Some(port);
            }
        }
        None
    }
}

/// The addresses of a Service.
pub(super) fn addresses_of(service: &Value) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let one = service["spec"]["clusterIP"].as_str().into_iter();
    let many = service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    one.chain(many).filter_map(|text| text.parse().ok())
}

/// The node ports of a Service.
pub(super) fn ports_of(service: &Value) -> impl Iterator<Item = u16> + '_ {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let own = ports.filter_map(|port| port["nodePort"].as_u64());
    let health = service["spec"]["healthCheckNodePort"].as_u64();
    own.chain(health).filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::in_memory(drydock_store::Options::default())
    }

    #[test]
    fn no_address_is_given_twice_and_a_released_one_not_at_once() {
        let (addresses, store, mut reserved) = (Addresses::default(), store(), Reserved::default());
        let first = addresses.take_address(&store, None, &mut reserved).unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 96, 1, 0));
        let refused = addresses.take_address(&store, Some(first), &mut reserved).unwrap_err();
        assert_eq!(refused, Refused::AddressTaken);
        addresses.release_all(&reserved);
        let next = addresses.take_address(&store, None, &mut Reserved::default()).unwrap();
        assert_eq!(next, Ipv4Addr::new(10, 96, 1, 1));
        assert!(addresses.take_address(&store, Some(first), &mut Reserved::default()).is_ok());
    }

    #[test]
    fn an_address_or_port_outside_the_range_is_refused() {
        let (addresses, store, mut reserved) = (Addresses::default(), store(), Reserved::default());
        let outside = addresses.take_address(&store, Some(Ipv4Addr::new(10, 0, 0, 1)), &mut reserved);
        assert_eq!(outside, Err(Refused::OutsideRange));
        assert_eq!(addresses.take_port(&store, Some(80), &mut reserved), Err(Refused::PortOutsideRange));
        assert_eq!(addresses.take_port(&store, None, &mut reserved), Ok(30000));
        assert_eq!(addresses.take_port(&store, Some(30000), &mut reserved), Err(Refused::PortTaken));
    }
}
