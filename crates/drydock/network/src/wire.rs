//! The wire form of DNS, as far as questions about one name and their answers go.
//!
//! **Always holds:** reading looks at nothing beyond what it was given, follows no pointers and ends; a name that
//! was read is at most 253 characters of printable ASCII without spaces, without the dot at its end.

use std::fmt;
use std::net::Ipv4Addr;

/// How large a datagram may be that does not say it may be larger.
pub const SMALL: usize = 512;

/// The largest datagram that is sent: what goes through a network in one piece.
const LARGE: u16 = 1232;

const HEADER: usize = 12;
const OPT: u16 = 41;

/// What is asked for, or told, about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u16);

impl Kind {
    pub const A: Kind = Kind(1);
    pub const NS: Kind = Kind(2);
    pub const CNAME: Kind = Kind(5);
    pub const SOA: Kind = Kind(6);
    pub const PTR: Kind = Kind(12);
    pub const TXT: Kind = Kind(16);
    pub const SRV: Kind = Kind(33);
    pub const ANY: Kind = Kind(255);
}

/// The outcome of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// There is such a name.
    #[default]
    NoError = 0,
    /// The question makes no sense.
    Malformed = 1,
    /// Something went wrong.
    Failed = 2,
    /// There is no such name.
    NoSuchName = 3,
    /// That is no kind of request that is known here.
    NotImplemented = 4,
    /// No.
    Refused = 5,
}

/// Something that is told about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The name.
    pub name: String,
    /// What is told.
    pub data: Data,
}

/// What is told about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// An address.
    A(Ipv4Addr),
    /// Who knows.
    Ns(String),
    /// The name that is meant.
    Cname(String),
    /// Who is in charge, whom to write to, and for how long it may be remembered that there is nothing.
    Soa(String, String, u32),
    /// The name of an address.
    Ptr(String),
    /// A text.
    Txt(&'static str),
    /// Where a port is: weight, number, and the name of the machine.
    Srv(u16, u16, String),
}

impl Data {
    fn kind(&self) -> Kind {
        match self {
            Data::A(_) => Kind::A,
            Data::Ns(_) => Kind::NS,
            Data::Cname(_) => Kind::CNAME,
            Data::Soa(..) => Kind::SOA,
            Data::Ptr(_) => Kind::PTR,
            Data::Txt(_) => Kind::TXT,
            Data::Srv(..) => Kind::SRV,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ", self.name)?;
        match &self.data {
            Data::A(address) => write!(out, "A {address}"),
            Data::Ns(name) => write!(out, "NS {name}"),
            Data::Cname(name) => write!(out, "CNAME {name}"),
            Data::Soa(server, person, minimum) => write!(out, "SOA {server} {person} {minimum}"),
            Data::Ptr(name) => write!(out, "PTR {name}"),
            Data::Txt(text) => write!(out, "TXT {text}"),
            Data::Srv(weight, port, target) => write!(out, "SRV 0 {weight} {port} {target}"),
        }
    }
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The number by which the client knows the answer.
    pub id: u16,
    /// What kind of request: zero for a question.
    pub operation: u8,
    /// The name that is asked about, as written.
    pub name: String,
    /// What is asked for.
    pub kind: Kind,
    /// One for the internet.
    pub class: u16,
    recursion_desired: bool,
    /// How large an answer may be, if the client says.
    payload: Option<u16>,
    section: &'a [u8],
}

/// Why something is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It has a number to be answered by.
    Malformed(u16),
    /// It is nothing that should be answered.
    Noise,
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Reads a question.
pub fn read(bytes: &[u8]) -> Result<Question<'_>, Unreadable> {
    let (Some(id), Some(flags)) = (number(bytes, 0), number(bytes, 2)) else { return Err(Unreadable::Noise) };
    if flags & 0x8000 != 0 {
        return Err(Unreadable::Noise);
    }
    read_question(bytes, id, flags).ok_or(Unreadable::Malformed(id))
}

fn read_question(bytes: &[u8], id: u16, flags: u16) -> Option<Question<'_>> {
    if number(bytes, 4)? != 1 {
        return None;
    }
    let others = u32::from(number(bytes, 6)?) + u32::from(number(bytes, 8)?) + u32::from(number(bytes, 10)?);
    let (name, end) = read_name(bytes, HEADER)?;
    let (kind, class) = (Kind(number(bytes, end)?), number(bytes, end + 2)?);
    let mut question = Question {
        id,
        operation: (flags >> 11) as u8 & 0xf,
        name,
        kind,
        class,
        recursion_desired: flags & 0x100 != 0,
        payload: None,
        section: bytes.get(HEADER..end + 4)?,
    };
    let mut at = end + 4;
    for _ in 0..others {
        at = skip_name(bytes, at)?;
        if number(bytes, at)? == OPT {
            question.payload = number(bytes, at + 2);
        }
        at += 10 + usize::from(number(bytes, at + 8)?);
    }
    Some(question)
}

/// Reads a name that is written out; gives back where it ends.
fn read_name(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        let label = bytes.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || !label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.') {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| char::from(*byte)));
        if name.len() > 253 {
            return None;
        }
    }
}

fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The outcome.
    pub code: Code,
    /// Whether who answers is in charge.
    pub authoritative: bool,
    /// What was asked for.
    pub answers: Vec<Record>,
    /// Who is in charge.
    pub authorities: Vec<Record>,
    /// What will be asked for next.
    pub additionals: Vec<Record>,
}

impl Question<'_> {
    /// How large an answer in a datagram may be.
    pub fn limit(&self) -> usize {
        self.payload.map_or(SMALL, |payload| usize::from(payload.min(LARGE)).max(SMALL))
    }
}

/// The answer to something that can't be read.
pub fn malformed(id: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([0x80, 0x80 | Code::Malformed as u8, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

impl Reply {
    /// The wire form, at most `limit` long: what does not fit is left out, and the client told so. `ttl` is for how
    /// many seconds it may be remembered.
    pub fn write(&self, question: &Question<'_>, ttl: u32, limit: usize) -> Vec<u8> {
        let options = if question.payload.is_some() { 11 } else { 0 };
        let mut bytes = vec![0; HEADER];
        bytes.extend(question.section);
        let mut counts = [0u16; 3];
        let mut cut = false;
        let sections = [&self.answers, &self.authorities, &self.additionals];
        for (at, section) in sections.into_iter().enumerate() {
            for record in section {
                let before = bytes.len();
                if cut
                    || write_record(&mut bytes, question, record, ttl).is_none()
                    || bytes.len() + options > limit
                {
                    bytes.truncate(before);
                    // Only a missing answer is worth asking again.
                    cut |= at == 0;
                    continue;
                }
                counts[at] += 1;
            }
        }
        if options > 0 {
            bytes.push(0);
            bytes.extend([OPT, LARGE].iter().flat_map(|number| number.to_be_bytes()));
            bytes.extend([0; 6]);
            counts[2] += 1;
        }
        let flags = 0x8080
            | u16::from(question.operation) << 11
            | u16::from(self.authoritative) << 10
            | u16::from(cut) << 9
            | u16::from(question.recursion_desired) << 8
            | u16::from(self.code as u8);
        let header = [question.id, flags, 1, counts[0], counts[1], counts[2]];
        for (place, number) in bytes.chunks_exact_mut(2).zip(header) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }
}

/// `None` when there is a name that can't be written.
fn write_record(bytes: &mut Vec<u8>, question: &Question<'_>, record: &Record, ttl: u32) -> Option<()> {
    if record.name.eq_ignore_ascii_case(&question.name) {
        // Where the question's name is.
        bytes.extend([0xc0, 12]);
    } else {
        write_name(bytes, &record.name)?;
    }
    bytes.extend(record.data.kind().0.to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(ttl.to_be_bytes());
    let length_at = bytes.len();
    bytes.extend([0, 0]);
    match &record.data {
        Data::A(address) => bytes.extend(address.octets()),
        Data::Ns(name) | Data::Cname(name) | Data::Ptr(name) => write_name(bytes, name)?,
        Data::Soa(server, person, minimum) => {
            write_name(bytes, server)?;
            write_name(bytes, person)?;
            // Serial, refresh, retry, expire: for other servers of the zone, of which there are none.
            bytes.extend(
                [1, 7200, 1800, 86_400, *minimum].iter().flat_map(|number: &u32| number.to_be_bytes()),
            );
        }
        Data::Txt(text) => {
            bytes.push(u8::try_from(text.len()).ok()?);
            bytes.extend(text.as_bytes());
        }
        Data::Srv(weight, port, target) => {
            bytes.extend([0, *weight, *port].iter().flat_map(|number| number.to_be_bytes()));
            write_name(bytes, target)?;
        }
    }
    let length = u16::try_from(bytes.len() - length_at - 2).ok()?;
    bytes.get_mut(length_at..length_at + 2)?.copy_from_slice(&length.to_be_bytes());
    Some(())
}

fn write_name(bytes: &mut Vec<u8>, name: &str) -> Option<()> {
    if name.len() > 253 {
        return None;
    }
    for label in name.split('.').filter(|_| !name.is_empty()) {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        bytes.push(length);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, more: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(!more.is_empty())];
        write_name(&mut bytes, name).unwrap();
        bytes.extend([0, 1, 0, 1]);
        bytes.extend(more);
        bytes
    }

    #[test]
    fn a_question_is_read_with_what_the_client_can_take() {
        let bytes = asked("S.a.svc.cluster.local", &[]);
        let question = read(&bytes).unwrap();
        assert_eq!(
            (question.id, &*question.name, question.kind, question.class),
            (0x1234, "S.a.svc.cluster.local", Kind::A, 1)
        );
        assert_eq!(question.limit(), SMALL);
        let bytes = asked("x", &[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&bytes).unwrap().limit(), 1232);
    }

    #[test]
    fn what_is_no_question_is_told_apart() {
        assert_eq!(read(b"x"), Err(Unreadable::Noise));
        assert_eq!(read(&[0xff; 40]), Err(Unreadable::Noise));
        assert_eq!(read(&[1; 40]), Err(Unreadable::Malformed(257)));
        // A pointer where a name must be written out, and one that ends nowhere.
        let mut bytes = asked("x", &[]);
        bytes[12] = 0xc0;
        assert_eq!(read(&bytes), Err(Unreadable::Malformed(0x1234)));
        let whole = asked("x.y", &[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        for length in 4..whole.len() {
            assert_eq!(read(&whole[..length]), Err(Unreadable::Malformed(0x1234)), "{length} bytes");
        }
    }

    #[test]
    fn an_answer_is_written_and_cut_where_it_does_not_fit() {
        let bytes = asked("s.x", &[]);
        let question = read(&bytes).unwrap();
        let record = |last| Record { name: "S.x".into(), data: Data::A(Ipv4Addr::new(10, 0, 0, last)) };
        let reply = Reply { authoritative: true, answers: vec![record(1), record(2)], ..Reply::default() };
        let written = reply.write(&question, 5, SMALL);
        let expected: &[u8] = &[
            0x12, 0x34, 0x85, 0x80, 0, 1, 0, 2, 0, 0, 0, 0, 1, b's', 1, b'x', 0, 0, 1, 0,
            1, // the question
            0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, 0, 1, // the answers
            0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, 0, 2,
        ];
        assert_eq!(written, expected);
        let cut = reply.write(&question, 5, written.len() - 1);
        assert_eq!((cut[2], cut[7], cut.len()), (0x87, 1, written.len() - 16));
        let long = Record { name: "a".repeat(64), data: Data::Txt("t") };
        let reply = Reply { additionals: vec![long], ..Reply::default() };
        assert_eq!(reply.write(&question, 5, SMALL).len(), 21);
    }
}
