//! Generic netlink: questions to a family of the kernel, such as `ethtool` or `netdev`, and their
//! answers as attributes.
//!
//! ```text
//! nlmsghdr (16) | genlmsghdr (4) | attribute | attribute ...
//! attribute: length with these four octets (2) | kind (2) | value | padding to four
//! ```
//!
//! Invariants: whatever the kernel sends, nothing panics; an answer that is cut anywhere is an
//! error; an answer is only taken for the question with the same sequence number.

use std::{collections::BTreeMap, io, time::Duration};

use rustix::{
    fd::OwnedFd,
    net::{
        self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink,
        sockopt::{self, Timeout},
    },
};

/// The kernel answers at once; this only ends a wait that would otherwise never end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The kernel never sends a longer datagram to a reader that offers this much
/// (<https://github.com/torvalds/linux/blob/v6.12/net/netlink/af_netlink.c>, `netlink_dump`).
const DATAGRAM_MAX: usize = 64 * 1024;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_LEN: usize = 16;
const GENL_LEN: usize = 4;
/// An attribute's two highest bits: nested, and in network order.
const KIND_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// Numbers from
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/genetlink.h>.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// A socket for questions of generic netlink, in the network namespace of the thread that opens it.
#[derive(Debug)]
pub struct Generic {
    socket: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
    families: BTreeMap<String, u16>,
}

impl Generic {
    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// Those of socket(2), as where a sandbox forbids it.
    pub fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        let buffer = vec![0; DATAGRAM_MAX].into();
        Ok(Self { socket, sequence: 0, buffer, families: BTreeMap::new() })
    }

    /// Asks or tells the family of that name, and returns the kernel's answers: none to a command
    /// that sets something.
    ///
    /// # Errors
    ///
    /// `NotFound` if the kernel lacks the family; `EOPNOTSUPP` if it or the driver does not know
    /// the command; `ENODEV` if there is no such interface; `InvalidData` if an answer is cut.
    pub fn ask(
        &mut self,
        family: &str,
        command: u8,
        attributes: &Attributes,
    ) -> io::Result<Vec<Reply>> {
        let family = self.family(family)?;
        self.exchange(Head { family, command, flags: NLM_F_ACK }, attributes)
    }

    /// Asks for all that a family has of something: an answer for each.
    ///
    /// # Errors
    ///
    /// Those of [`Generic::ask`].
    pub fn dump(
        &mut self,
        family: &str,
        command: u8,
        attributes: &Attributes,
    ) -> io::Result<Vec<Reply>> {
        let family = self.family(family)?;
        self.exchange(Head { family, command, flags: NLM_F_DUMP }, attributes)
    }

    fn family(&mut self, name: &str) -> io::Result<u16> {
        if let Some(number) = self.families.get(name) {
            return Ok(*number);
        }
        let attributes = Attributes::default().text(CTRL_ATTR_FAMILY_NAME, name);
        let head = Head { family: GENL_ID_CTRL, command: CTRL_CMD_GETFAMILY, flags: NLM_F_ACK };
        let answers = self.exchange(head, &attributes)?;
        let number = answers.first().and_then(|it| it.get(CTRL_ATTR_FAMILY_ID)?.u16());
        let number = number.ok_or_else(|| malformed("it has no number of the family"))?;
        self.families.insert(name.to_owned(), number);
        Ok(number)
    }

    fn exchange(&mut self, head: Head, attributes: &Attributes) -> io::Result<Vec<Reply>> {
        self.sequence = self.sequence.wrapping_add(1);
        net::send(&self.socket, &head.message(self.sequence, attributes), SendFlags::empty())?;
        let mut replies = Vec::new();
        loop {
            let (length, _) = rustix::io::retry_on_intr(|| {
                net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())
            })?;
            let datagram = self.buffer.get(..length).unwrap_or_default();
            if read_datagram(datagram, self.sequence, &mut replies)? {
                return Ok(replies);
            }
        }
    }
}

/// The head of a question.
#[derive(Clone, Copy, Debug)]
struct Head {
    family: u16,
    command: u8,
    flags: u16,
}

impl Head {
    fn message(self, sequence: u32, Attributes(attributes): &Attributes) -> Vec<u8> {
        let length = NLMSG_LEN + GENL_LEN + attributes.len();
        let mut message = Vec::with_capacity(length);
        message.extend((length as u32).to_ne_bytes());
        message.extend(self.family.to_ne_bytes());
        message.extend((NLM_F_REQUEST | self.flags).to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        // The port: the kernel knows ours.
        message.extend([0; 4]);
        message.extend([self.command, 1, 0, 0]);
        message.extend(attributes);
        message
    }
}

/// The attributes of a question, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds a number of 8 bits.
    #[must_use]
    pub fn u8(self, kind: u16, value: u8) -> Self {
        self.bytes(kind, &[value])
    }

    /// Adds a number of 32 bits.
    #[must_use]
    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds a text, and the zero that ends it.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute that is there, and no more.
    #[must_use]
    pub fn flag(self, kind: u16) -> Self {
        self.bytes(kind, &[])
    }

    /// Adds attributes within one.
    #[must_use]
    pub fn nested(self, kind: u16, Self(inner): &Self) -> Self {
        self.bytes(kind | NESTED, inner)
    }

    /// Adds octets. Those beyond what an attribute can hold (65,531) are left out.
    #[must_use]
    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let value = value.get(..usize::from(u16::MAX) - 4).unwrap_or(value);
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// The attributes of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// The first attribute of that kind.
    #[must_use]
    pub fn get(&self, kind: u16) -> Option<Attribute<'_>> {
        self.attributes().find(|it| it.kind == kind)
    }

    /// All attributes. They were looked at when the answer came, so none is cut.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'_>> {
        attributes(&self.0).map_while(Result::ok)
    }
}

/// One attribute of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The kind, without its two flags.
    pub kind: u16,
    /// The octets.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// A number of 8 bits. `None` if it is not as long; so it is with all others.
    #[must_use]
    pub fn u8(self) -> Option<u8> {
        self.value.try_into().ok().map(u8::from_ne_bytes)
    }

    /// A number of 16 bits.
    #[must_use]
    pub fn u16(self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_ne_bytes)
    }

    /// A number of 32 bits.
    #[must_use]
    pub fn u32(self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_ne_bytes)
    }

    /// A number of 64 bits, or of 32, as the kernel may choose.
    #[must_use]
    pub fn u64(self) -> Option<u64> {
        let long = self.value.try_into().ok().map(u64::from_ne_bytes);
        long.or_else(|| self.u32().map(u64::from))
    }

    /// A text, to its first zero. What is not UTF-8 in it is replaced.
    #[must_use]
    pub fn text(self) -> String {
        let text = self.value.split(|it| *it == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The attributes within this one. The first that is cut is an error, and the last.
    pub fn nested(self) -> impl Iterator<Item = io::Result<Self>> + use<'a> {
        attributes(self.value)
    }
}

/// Reads a datagram; true if the answer to the question `sequence` ends in it.
fn read_datagram(mut bytes: &[u8], sequence: u32, replies: &mut Vec<Reply>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let length = number::<4>(bytes, 0).map(u32::from_ne_bytes).ok_or_else(cut)? as usize;
        if length < NLMSG_LEN {
            return Err(malformed("its length is shorter than its head"));
        }
        let message = bytes.get(..length).ok_or_else(cut)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        if number(message, 8).map(u32::from_ne_bytes) != Some(sequence) {
            continue;
        }
        let body = message.get(NLMSG_LEN..).unwrap_or_default();
        match number(message, 4).map(u16::from_ne_bytes).ok_or_else(cut)? {
            kind @ (NLMSG_ERROR | NLMSG_DONE) => {
                let errno = match number(body, 0).map(i32::from_ne_bytes) {
                    Some(errno) => errno,
                    None if kind == NLMSG_DONE => 0,
                    None => return Err(cut()),
                };
                if errno < 0 {
                    return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
                }
                return Ok(true);
            }
            _ => {
                let body = body.get(GENL_LEN..).ok_or_else(cut)?;
                attributes(body).try_for_each(|it| it.map(drop))?;
                replies.push(Reply(body.to_vec()));
            }
        }
    }
    Ok(false)
}

/// The attributes in these octets. The first that is cut is an error, and the last.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<Attribute<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let attribute = read_attribute(bytes);
        let length = attribute.as_ref().map_or(usize::MAX, |it| 4 + it.value.len());
        bytes = bytes.get(length.saturating_add(3) & !3..).unwrap_or_default();
        Some(attribute)
    })
}

fn read_attribute(bytes: &[u8]) -> io::Result<Attribute<'_>> {
    let length = number(bytes, 0).map(u16::from_ne_bytes).ok_or_else(cut)?;
    let kind = number(bytes, 2).map(u16::from_ne_bytes).ok_or_else(cut)? & KIND_MASK;
    let value = bytes.get(4..usize::from(length)).ok_or_else(cut)?;
    Ok(Attribute { kind, value })
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn cut() -> io::Error {
    malformed("it is cut")
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("an answer of the kernel: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: u32 = 7;

    /// An answer with a number, a text and a nest, and the acknowledgement after it.
    fn answer() -> Vec<u8> {
        let nest = Attributes::default().u8(1, 9).flag(2);
        let attributes = Attributes::default().u32(1, 3).text(2, "veth").nested(3, &nest);
        let head = Head { family: 20, command: 1, flags: 0 };
        let mut bytes = head.message(SEQUENCE, &attributes);
        bytes.extend(error(0));
        bytes
    }

    fn error(errno: i32) -> Vec<u8> {
        let mut bytes = 36_u32.to_ne_bytes().to_vec();
        bytes.extend(NLMSG_ERROR.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(SEQUENCE.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(errno.to_ne_bytes());
        bytes.resize(36, 0);
        bytes
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let mut replies = Vec::new();
        assert!(read_datagram(&answer(), SEQUENCE, &mut replies).unwrap());
        let [reply] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!(reply.get(1).and_then(Attribute::u32), Some(3));
        assert_eq!(reply.get(1).and_then(Attribute::u64), Some(3));
        assert_eq!(reply.get(1).and_then(Attribute::u8), None, "of another length");
        assert_eq!(reply.get(2).map(Attribute::text).as_deref(), Some("veth"));
        let nest: Vec<u16> = reply.get(3).unwrap().nested().map(|it| it.unwrap().kind).collect();
        assert_eq!(nest, [1, 2]);
        assert_eq!(reply.get(4), None);
    }

    #[test]
    fn an_answer_that_is_cut_anywhere_is_an_error() {
        let whole = answer();
        let first = u32::from_ne_bytes(*whole.first_chunk().unwrap()) as usize;
        for length in 1..whole.len() {
            let read = read_datagram(&whole[..length], SEQUENCE, &mut Vec::new());
            // Between two messages there is nothing to see: the next datagram is waited for.
            assert!(read.is_err() || (length == first && !read.unwrap()), "{length}");
        }
    }

    #[test]
    fn attributes_that_are_cut_anywhere_end_with_an_error() {
        let Attributes(whole) = Attributes::default().u32(1, 3).text(2, "veth");
        for length in 1..whole.len() - 3 {
            let read: io::Result<Vec<_>> = attributes(&whole[..length]).collect();
            assert!(read.is_err() || length == 8, "{length}: {read:?}");
        }
    }

    #[test]
    fn any_octet_may_be_any_other() {
        let whole = answer();
        for at in 0..whole.len() {
            for octet in [0, 1, 3, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = octet;
                let mut replies = Vec::new();
                let _ = read_datagram(&bytes, SEQUENCE, &mut replies);
                for attribute in replies.iter().flat_map(Reply::attributes) {
                    let _ = (attribute.u8(), attribute.u64(), attribute.text());
                    attribute.nested().for_each(drop);
                }
            }
        }
    }

    #[test]
    fn a_refusal_is_an_error_and_an_answer_to_another_question_is_passed_over() {
        let refused = read_datagram(&error(-95), SEQUENCE, &mut Vec::new());
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(95));
        let refused = read_datagram(&error(i32::MIN), SEQUENCE, &mut Vec::new());
        assert!(refused.is_err());
        let mut replies = Vec::new();
        assert!(!read_datagram(&answer(), SEQUENCE + 1, &mut replies).unwrap());
        assert!(replies.is_empty());
    }

    #[test]
    fn a_family_that_the_kernel_lacks_is_not_found() {
        let mut generic = Generic::open().unwrap();
        let error = generic.ask("1rma-none", 1, &Attributes::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }
}
