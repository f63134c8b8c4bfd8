//! The few things said to the kernel about links, addresses and routes.
//!
//! One request, one answer, no threads: the keeper and the inits, which may have none, speak it too. A socket
//! belongs to the network namespace in which it was opened, whatever its owner does later.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::config::Cidr;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

/// A bridge's hardware address, locally administered. One of its own stays; otherwise a bridge takes the lowest
/// of its ports', which changes as pods come and go, under neighbours that remember it.
const BRIDGE_ADDRESS: [u8; 6] = [0x02, 0x64, 0x72, 0x79, 0x00, 0x01];

const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;

/// A socket to the kernel's routing part.
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Opens one in the current network namespace.
    pub fn open() -> io::Result<Self> {
        // Routing is the protocol that netlink takes when none is said.
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// The number of a link, unless there is none of that name.
    pub fn index(&self, name: &str) -> io::Result<Option<u32>> {
        let mut message = Message::new(GET_LINK, REQUEST);
        message.link_header(0, 0);
        message.text(IFLA_IFNAME, name);
        match self.exchange(message) {
            Ok(answer) => answer
                .get(20..24)
                .and_then(|bytes| bytes.try_into().ok())
                .map(|bytes| Some(u32::from_ne_bytes(bytes)))
                .ok_or_else(|| io::Error::other("the kernel's answer about a link is too short")),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of a link that must be there.
    pub fn must_index(&self, name: &str) -> io::Result<u32> {
        self.index(name)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no link {name}")))
    }

    /// Makes a bridge.
    pub fn add_bridge(&self, name: &str) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, REQUEST | ACK | CREATE | EXCLUSIVE);
        message.link_header(0, 0);
        message.text(IFLA_IFNAME, name);
        message.attribute(IFLA_ADDRESS, &BRIDGE_ADDRESS);
        message.nest(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
        self.exchange(message).map(drop)
    }

    /// Makes a pair: this end on a bridge and up, the other in another network namespace.
    pub fn add_veth(&self, name: &str, bridge: u32, peer: &str, namespace: impl AsFd) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, REQUEST | ACK | CREATE | EXCLUSIVE);
        message.link_header(0, IFF_UP);
        message.text(IFLA_IFNAME, name);
        message.number(IFLA_MASTER, bridge);
        let namespace = namespace.as_fd().as_raw_fd().cast_unsigned();
        message.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nest(IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |other| {
                    other.link_header(0, 0);
                    other.text(IFLA_IFNAME, peer);
                    other.number(IFLA_NET_NS_FD, namespace);
                });
            });
        });
        self.exchange(message).map(drop)
    }

    /// Removes a link, and its peer with it.
    pub fn delete(&self, index: u32) -> io::Result<()> {
        let mut message = Message::new(DELETE_LINK, REQUEST | ACK);
        message.link_header(index, 0);
        self.exchange(message).map(drop)
    }

    /// Brings a link up.
    pub fn up(&self, index: u32) -> io::Result<()> {
        let mut message = Message::new(NEW_LINK, REQUEST | ACK);
        message.link_header(index, IFF_UP);
        self.exchange(message).map(drop)
    }

    /// Gives a link an address, and with it the route to its neighbours.
    pub fn add_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = Message::new(NEW_ADDRESS, REQUEST | ACK | CREATE | EXCLUSIVE);
        message.bytes.extend([AF_INET, prefix, 0, 0]);
        message.bytes.extend(index.to_ne_bytes());
        message.attribute(IFA_LOCAL, &address.octets());
        message.attribute(IFA_ADDRESS, &address.octets());
        self.exchange(message).map(drop)
    }

    /// Takes everything that goes to some addresses as meant for this machine.
    pub fn add_local(&self, to: Cidr, index: u32) -> io::Result<()> {
        const LOCAL_TABLE: u8 = 255;
        const PROTOCOL_STATIC: u8 = 4;
        const HOST: u8 = 254;
        const LOCAL: u8 = 2;
        let mut message = Message::new(NEW_ROUTE, REQUEST | ACK | CREATE | EXCLUSIVE);
        message.bytes.extend([AF_INET, to.prefix, 0, 0, LOCAL_TABLE, PROTOCOL_STATIC, HOST, LOCAL]);
        message.bytes.extend(0u32.to_ne_bytes());
        message.attribute(RTA_DST, &to.base.octets());
        message.number(RTA_OIF, index);
        self.exchange(message).map(drop)
    }

    /// Sends what goes to some addresses (none: all others) through a gateway.
    pub fn add_route(&self, to: Option<Cidr>, gateway: Ipv4Addr, index: u32) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const PROTOCOL_STATIC: u8 = 4;
        const UNICAST: u8 = 1;
        let mut message = Message::new(NEW_ROUTE, REQUEST | ACK | CREATE | EXCLUSIVE);
        let prefix = to.map_or(0, |cidr| cidr.prefix);
        message.bytes.extend([AF_INET, prefix, 0, 0, MAIN_TABLE, PROTOCOL_STATIC, 0, UNICAST]);
        message.bytes.extend(0u32.to_ne_bytes());
        if let Some(cidr) = to {
            message.attribute(RTA_DST, &cidr.base.octets());
        }
        message.attribute(RTA_GATEWAY, &gateway.octets());
        message.number(RTA_OIF, index);
        self.exchange(message).map(drop)
    }

    /// Sends one message; gives back the answer, or what the kernel refused it with.
    fn exchange(&self, message: Message) -> io::Result<Vec<u8>> {
        rustix::net::send(&self.socket, &message.finish(), SendFlags::empty())?;
        let mut answer = vec![0u8; 32 * 1024];
        let (length, _) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(length);
        let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_ne_bytes);
        if kind == ERROR {
            let code =
                answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
        }
        Ok(answer)
    }
}

/// A message, or the inside of an attribute, while it is being written.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(1u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        Self { bytes }
    }

    /// The fixed part of every message about a link.
    fn link_header(&mut self, index: u32, flags: u32) {
        self.bytes.extend([0; 4]);
        self.bytes.extend(index.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    fn nest(&mut self, kind: u16, write: impl FnOnce(&mut Message)) {
        let mut inside = Message { bytes: Vec::new() };
        write(&mut inside);
        self.attribute(kind, &inside.bytes);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}
