//! The kernel's own translation of addresses: the few words of nf_tables that lead connections elsewhere.
//!
//! One table, replaced as a whole in one message, so no connection ever sees half of a change. A socket belongs to the
//! network namespace in which it was opened, and what it writes goes with that namespace.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// What one message may hold: a little less than the kernel takes where nobody has allowed it more.
const ROOM: usize = 200 << 10;

const TABLE: &str = "drydock";
/// The chain that both kinds of connections go through: those from elsewhere, and the node's own.
const SERVICES: &str = "services";

const REQUEST: u16 = 1;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;
const DELETE_RULE: u16 = (SUBSYSTEM << 8) | 8;
const NESTED: u16 = 0x8000;

const AF_INET: u8 = 2;
const TCP: u8 = 6;
/// The number of the loopback link in every network namespace.
const LOOPBACK: u32 = 1;

/// The status bit of a connection whose destination is translated.
const DESTINATION_TRANSLATED: u32 = 1 << 5;

/// Where nobody has said otherwise, destinations are translated before the filters and sources after.
const DESTINATION_PRIORITY: i32 = -100;
const SOURCE_PRIORITY: i32 = 100;

/// A register of four bytes or more.
const FIRST: u32 = 1;
const SECOND: u32 = 2;

/// Where connections to an address are led: to these places, in turn.
pub(crate) type Lead = (SocketAddrV4, Vec<SocketAddrV4>);

/// Says to the kernel where connections lead.
pub(crate) struct Netfilter {
    socket: OwnedFd,
    /// Who a connection that was led seems to come from, so that its answers come back here.
    source: Ipv4Addr,
}

impl Netfilter {
    /// Opens it in the current network namespace.
    pub(crate) fn open(source: Ipv4Addr) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::NETFILTER),
        )?;
        Ok(Self { socket, source })
    }

    /// From now on new connections are led so, and none otherwise; as many as there is room for, from the first on.
    /// Gives back how many of them. Open connections stay where they are.
    pub(crate) fn lead(&self, leads: &[Lead]) -> io::Result<usize> {
        let mut batch = Batch(Vec::new());
        batch.message(BATCH_BEGIN, 0, |_| {});
        batch.skeleton(self.source);
        let mut led = 0;
        for (front, backends) in leads {
            let mut rules = Batch(Vec::new());
            for (at, backend) in backends.iter().enumerate() {
                rules.lead(*front, *backend, backends.len() - at);
            }
            if batch.0.len() + rules.0.len() > ROOM {
                break;
            }
            batch.0.append(&mut rules.0);
            led += 1;
        }
        batch.message(BATCH_END, 0, |_| {});
        rustix::net::send(&self.socket, &batch.0, SendFlags::empty())?;
        self.refusal().map(|()| led)
    }

    /// What the kernel said to the last message, which is there when it was sent: nothing, unless it refused.
    fn refusal(&self) -> io::Result<()> {
        const ERROR: u16 = 2;
        let mut said = vec![0u8; 32 << 10];
        let mut refused = Ok(());
        loop {
            match rustix::net::recv(&self.socket, &mut said[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    let word =
                        |at: usize| said[..length].get(at..at + 4).and_then(|four| four.try_into().ok());
                    let kind = word(4).map_or(0, u32::from_ne_bytes) & 0xffff;
                    let code = word(16).map_or(0, i32::from_ne_bytes);
                    if kind == u32::from(ERROR) && code != 0 && refused.is_ok() {
                        refused = Err(io::Error::from_raw_os_error(-code));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return refused,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Messages that take effect together, or not at all.
struct Batch(Vec<u8>);

impl Batch {
    fn message(&mut self, kind: u16, flags: u16, write: impl FnOnce(&mut Attributes)) {
        let mut attributes = Attributes(Vec::new());
        write(&mut attributes);
        let batch = matches!(kind, BATCH_BEGIN | BATCH_END);
        let length = u32::try_from(attributes.0.len() + 20).unwrap_or(u32::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend((REQUEST | flags).to_ne_bytes());
        self.0.extend([0; 8]);
        self.0.extend([if batch { 0 } else { AF_INET }, 0]);
        self.0.extend(if batch { SUBSYSTEM } else { 0 }.to_be_bytes());
        self.0.append(&mut attributes.0);
    }

    /// The table without any lead, made unless it is there: what is led goes on under the node's own name where it
    /// leaves the node, since who receives it may be a neighbour of who sent it and would answer there.
    fn skeleton(&mut self, source: Ipv4Addr) {
        self.message(NEW_TABLE, CREATE, |table| table.text(1, TABLE));
        self.chain(SERVICES, None);
        self.chain("arriving", Some((0, DESTINATION_PRIORITY)));
        self.chain("own", Some((3, DESTINATION_PRIORITY)));
        self.chain("leaving", Some((4, SOURCE_PRIORITY)));
        self.message(DELETE_RULE, 0, |rules| rules.text(1, TABLE));
        for chain in ["arriving", "own"] {
            self.rule(chain, |rule| {
                rule.meta(16);
                rule.compare(0, &[TCP]);
                rule.jump(SERVICES);
            });
        }
        self.rule("leaving", |rule| {
            rule.translated();
            rule.meta(5);
            rule.compare(1, &LOOPBACK.to_ne_bytes());
            rule.set(FIRST, &source.octets());
            rule.translate(0, None);
        });
    }

    fn chain(&mut self, name: &str, hook: Option<(u32, i32)>) {
        self.message(NEW_CHAIN, CREATE, |chain| {
            chain.text(1, TABLE);
            chain.text(3, name);
            if let Some((number, priority)) = hook {
                chain.nest(4, |hook| {
                    hook.number(1, number);
                    hook.number(2, priority.cast_unsigned());
                });
                chain.text(7, "nat");
            }
        });
    }

    fn rule(&mut self, chain: &str, write: impl FnOnce(&mut Attributes)) {
        self.message(NEW_RULE, CREATE | APPEND, |rule| {
            rule.text(1, TABLE);
            rule.text(2, chain);
            rule.nest(4, write);
        });
    }

    /// Leads every `left`-th of the connections that get here.
    fn lead(&mut self, front: SocketAddrV4, backend: SocketAddrV4, left: usize) {
        self.rule(SERVICES, |rule| {
            rule.payload(1, 16, 4);
            rule.compare(0, &front.ip().octets());
            rule.payload(2, 2, 2);
            rule.compare(0, &front.port().to_be_bytes());
            if left > 1 {
                rule.count(left);
                rule.compare(0, &0u32.to_ne_bytes());
            }
            rule.set(FIRST, &backend.ip().octets());
            rule.set(SECOND, &backend.port().to_be_bytes());
            rule.translate(1, Some(SECOND));
        });
    }
}

/// Attributes, and inside a rule its expressions; numbers as the network writes them.
struct Attributes(Vec<u8>);

impl Attributes {
    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat());
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    fn nest(&mut self, kind: u16, write: impl FnOnce(&mut Attributes)) {
        let mut inside = Attributes(Vec::new());
        write(&mut inside);
        self.attribute(kind | NESTED, &inside.0);
    }

    fn expression(&mut self, name: &str, write: impl FnOnce(&mut Attributes)) {
        self.nest(1, |expression| {
            expression.text(1, name);
            expression.nest(2, write);
        });
    }

    /// What is known of the packet beside its bytes.
    fn meta(&mut self, key: u32) {
        self.expression("meta", |meta| {
            meta.number(1, FIRST);
            meta.number(2, key);
        });
    }

    /// Bytes of the packet, from its network or transport header on.
    fn payload(&mut self, header: u32, offset: u32, length: u32) {
        self.expression("payload", |payload| {
            payload.number(1, FIRST);
            payload.number(2, header);
            payload.number(3, offset);
            payload.number(4, length);
        });
    }

    /// Goes on only where what was found is (0) or is not (1) this.
    fn compare(&mut self, operation: u32, value: &[u8]) {
        self.expression("cmp", |compare| {
            compare.number(1, FIRST);
            compare.number(2, operation);
            compare.nest(3, |data| data.attribute(1, value));
        });
    }

    /// Counts from zero to one less than this, and begins again.
    fn count(&mut self, to: usize) {
        self.expression("numgen", |count| {
            count.number(1, FIRST);
            count.number(2, u32::try_from(to).unwrap_or(u32::MAX));
            count.number(3, 0);
        });
    }

    /// Goes on only where the connection was led elsewhere.
    fn translated(&mut self) {
        self.expression("ct", |connection| {
            connection.number(1, FIRST);
            connection.number(2, 2);
        });
        self.expression("bitwise", |and| {
            and.number(1, FIRST);
            and.number(2, FIRST);
            and.number(3, 4);
            and.nest(4, |mask| mask.attribute(1, &DESTINATION_TRANSLATED.to_ne_bytes()));
            and.nest(5, |xor| xor.attribute(1, &[0; 4]));
        });
        self.compare(1, &[0; 4]);
    }

    fn set(&mut self, register: u32, value: &[u8]) {
        self.expression("immediate", |immediate| {
            immediate.number(1, register);
            immediate.nest(2, |data| data.attribute(1, value));
        });
    }

    fn jump(&mut self, chain: &str) {
        const VERDICT: u32 = 0;
        const JUMP: i32 = -3;
        self.expression("immediate", |immediate| {
            immediate.number(1, VERDICT);
            immediate.nest(2, |data| {
                data.nest(2, |verdict| {
                    verdict.number(1, JUMP.cast_unsigned());
                    verdict.text(2, chain);
                });
            });
        });
    }

    /// The source (0) or the destination (1) becomes the address in the first register, and the port in another.
    fn translate(&mut self, what: u32, port: Option<u32>) {
        self.expression("nat", |translate| {
            translate.number(1, what);
            translate.number(2, AF_INET.into());
            translate.number(3, FIRST);
            if let Some(register) = port {
                translate.number(5, register);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_led_as_one_message_holds() {
        let thread = std::thread::spawn(|| {
            if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
                return eprintln!("not root, so there is no network namespace: {error}");
            }
            let netfilter = Netfilter::open(Ipv4Addr::new(10, 244, 0, 1)).unwrap();
            if let Err(error) = netfilter.lead(&[]) {
                return eprintln!("this kernel leads nobody: {error}");
            }
            let lead = |number: u32| {
                let address =
                    |first, second| Ipv4Addr::from_bits(u32::from_be_bytes([first, second, 0, 0]) | number);
                let place = |port| SocketAddrV4::new(address(10, 244), port);
                (SocketAddrV4::new(address(10, 96), 80), vec![place(1), place(2)])
            };
            let many: Vec<Lead> = (0..1000).map(lead).collect();
            let led = netfilter.lead(&many).unwrap();
            assert!((150..1000).contains(&led), "{led}");
            assert_eq!(netfilter.lead(&many[..led]).unwrap(), led);
            assert_eq!(netfilter.lead(&[]).unwrap(), 0);
        });
        thread.join().unwrap();
    }

    #[test]
    fn what_the_kernel_refuses_is_said() {
        let thread = std::thread::spawn(|| {
            if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            let netfilter = Netfilter::open(Ipv4Addr::new(10, 244, 0, 1)).unwrap();
            let mut batch = Batch(Vec::new());
            batch.message(BATCH_BEGIN, 0, |_| {});
            batch.rule("of no table", |_| {});
            batch.message(BATCH_END, 0, |_| {});
            rustix::net::send(&netfilter.socket, &batch.0, SendFlags::empty()).unwrap();
            assert_eq!(netfilter.refusal().unwrap_err().kind(), io::ErrorKind::NotFound);
            // What was said once is not said of what comes after.
            netfilter.refusal().unwrap();
        });
        thread.join().unwrap();
    }
}
