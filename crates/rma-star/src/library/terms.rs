//! The three messages that set up a connection, as octets (ours; the paper says only that the NICs
//! negotiate, §III-C1). They go over any channel that keeps secrets: one of them has K_c.
//!
//! All begin with `StaR`, a version, which of them it is, a role or side, and an octet of 0.
//! Numbers are big-endian.
//!
//! | Offer: 68 octets | Answer: 76 octets | Confirm: 40 octets |
//! |---|---|---|
//! | 8 as above: the role that is wanted | 8: what who answers is | 8: what who confirms is |
//! | 16 IPv4 address, mapped, or 0 | 16 address | 4 QPN of who offers |
//! | 16 IPv6 address, or 0 | 4 PD | 4 nonce of the connection |
//! | 4 PD | 4 QPN of who answers | 8 Z's clock, or 0 |
//! | 4 QPN | 4 nonce of who answers | 16 K_c, or 0 |
//! | 4 nonce | 4 QPN of who offers | |
//! | 2 longest packet | 4 nonce of who offers | |
//! | 2 reserved | 2 longest packet | |
//! | 4 queue depths, send and receive | 2 reserved | |
//! | 4 connections, stateful | 4 queue depths | |
//! | 4 threshold | 8 Z's clock, or 0; 16 K_c, or 0 | |
//!
//! Who answers or confirms is 0 the stateful side, 1 the stateless side, 2 one of two stateful ones
//! (RC). Clock and key are there if whoever sends them is the stateless side. In RC both clocks
//! are, and the key in the Confirm.

use rma_core::addr::{HostAddr, LocalAddresses};
use rma_shm::Forked;
use thiserror::Error;

use super::negotiate::{Load, Part, Role, RolesClash};
use crate::{clock::ZTime, keys::FrameKey, names::Side};

const MAGIC: [u8; 4] = *b"StaR";
const VERSION: u8 = 1;
const OFFER: u8 = 1;
const ANSWER: u8 = 2;
const CONFIRM: u8 = 3;

/// The reason why octets are no message of a set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TermsError {
    /// Too few octets, or too many.
    #[error(
        "a set-up message of {len} octets, which should have {expected}; pass the peer's message \
         on whole"
    )]
    Length {
        /// How many they are.
        len: usize,
        /// How many there should be.
        expected: usize,
    },
    /// They do not begin as messages of a set-up do.
    #[error("these octets are no set-up message; pass the peer's message on as it came")]
    Magic,
    /// They are of another version.
    #[error(
        "a set-up message of version {0}, which this side does not know; update the older side"
    )]
    Version(u8),
    /// A field has a value that means nothing.
    #[error(
        "a field of the set-up message has an undefined value; pass the peer's message on as it \
         came, or update the older side"
    )]
    Field,
}

/// The reason why a connection is not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The queue pair was closed.
    #[error(
        "this portal has no such queue pair: it was closed, or is another portal's; create one"
    )]
    NoSuchQp,
    /// It has a connection, or is about to have one, and this is not what it waits for.
    #[error(
        "the queue pair does not wait for this: it is connected, or another message comes first; \
         close it and connect anew"
    )]
    NotExpected,
    /// The octets are no message of a set-up.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The message is about another connection.
    #[error(
        "the message belongs to another connection; give it to the queue pair that it was sent \
         for"
    )]
    OtherConnection,
    /// Both want the same role.
    #[error(transparent)]
    Roles(#[from] RolesClash),
    /// The hosts have no address of the same family.
    #[error(
        "this host has no address of the peer's family; give both hosts addresses of one family, \
         IPv4 or IPv6"
    )]
    NoAddress,
    /// The engine does not take what is posted: it stands still. To be tried again.
    #[error(
        "the engine has not taken earlier posts: it stands still, or has ended; try again later"
    )]
    EngineStalled,
    /// The portal is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The description that each side sends of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) pd: u32,
    pub(super) qpn: u32,
    pub(super) nonce: u32,
    pub(super) packet_len_max: u16,
    pub(super) depths: [u16; 2],
}

/// The memory that the stateless side gives the stateful one, or that both give each other in RC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Its clock.
    pub(super) clock: ZTime,
    /// K_c. In an Answer of RC, zero.
    pub(super) key: FrameKey,
}

/// The first message of the side that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) role: Role,
    pub(super) addresses: LocalAddresses,
    pub(super) end: End,
    pub(super) load: Load,
}

/// The answer to an Offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) address: HostAddr,
    pub(super) end: End,
    /// QPN and nonce of the Offer.
    pub(super) answers: (u32, u32),
    /// The part of the side that answers.
    pub(super) part: Part,
    /// Unless who answers is the stateful side.
    pub(super) given: Option<Given>,
}

/// The message that ends the set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirm {
    /// The QPN of the Offer, and the nonce of the connection: that of its stateless side.
    pub(super) confirms: (u32, u32),
    /// The part of the side that confirms.
    pub(super) part: Part,
    /// Unless who confirms is the stateful side.
    pub(super) given: Option<Given>,
}

/// Any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    Offer(Offer),
    Answer(Answer),
    Confirm(Confirm),
}

/// Writes a message.
struct Writer(Vec<u8>);

impl Writer {
    fn new(which: u8, code: u8) -> Self {
        let mut octets = MAGIC.to_vec();
        octets.extend([VERSION, which, code, 0]);
        Self(octets)
    }

    fn put(&mut self, octets: &[u8]) -> &mut Self {
        self.0.extend_from_slice(octets);
        self
    }

    fn address(&mut self, address: Option<HostAddr>) -> &mut Self {
        self.put(&address.map_or([0; 16], HostAddr::to_octets))
    }

    fn number(&mut self, number: u32) -> &mut Self {
        self.put(&number.to_be_bytes())
    }

    fn lens(&mut self, end: &End) -> &mut Self {
        let [send, recv] = end.depths;
        for len in [end.packet_len_max, 0, send, recv] {
            self.put(&len.to_be_bytes());
        }
        self
    }

    fn given(&mut self, given: Option<&Given>) -> &mut Self {
        match given {
            None => self.put(&[0; 24]),
            Some(given) => self.put(&given.clock.0.to_be_bytes()).put(given.key.expose()),
        }
    }
}

/// Reads a message whose length has been looked at.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TermsError> {
        let (&octets, rest) = self.0.split_first_chunk().ok_or(TermsError::Field)?;
        self.0 = rest;
        Ok(octets)
    }

    fn number(&mut self) -> Result<u32, TermsError> {
        self.take().map(u32::from_be_bytes)
    }

    fn short(&mut self) -> Result<u16, TermsError> {
        self.take().map(u16::from_be_bytes)
    }

    /// An address of the family that is wanted, or 0.
    fn address(&mut self) -> Result<Option<HostAddr>, TermsError> {
        let octets = self.take()?;
        let address = HostAddr::from_octets(octets);
        let ip = address.ip();
        if octets == [0; 16] {
            Ok(None)
        } else if ip.is_unspecified() || ip.is_multicast() {
            Err(TermsError::Field)
        } else {
            Ok(Some(address))
        }
    }

    /// The longest packet and the depths of the queues.
    fn lens(&mut self) -> Result<(u16, [u16; 2]), TermsError> {
        let packet_len_max = self.short()?;
        let reserved = self.short()?;
        let depths = [self.short()?, self.short()?];
        if reserved == 0 && packet_len_max > 0 {
            Ok((packet_len_max, depths))
        } else {
            Err(TermsError::Field)
        }
    }

    fn given(&mut self, part: Part) -> Result<Option<Given>, TermsError> {
        let clock = ZTime(u64::from_be_bytes(self.take()?));
        let key: [u8; 16] = self.take()?;
        match part {
            Part::Of(Side::Stateful) if clock.0 == 0 && key == [0; 16] => Ok(None),
            Part::Of(Side::Stateful) => Err(TermsError::Field),
            _ => Ok(Some(Given { clock, key: FrameKey::from_bytes(key) })),
        }
    }
}

impl Part {
    const ALL: [Self; 3] = [Self::Of(Side::Stateful), Self::Of(Side::Stateless), Self::Rc];

    const fn code(self) -> u8 {
        match self {
            Self::Of(side) => side as u8,
            Self::Rc => 2,
        }
    }

    fn from_code(code: u8) -> Result<Self, TermsError> {
        Self::ALL.get(usize::from(code)).copied().ok_or(TermsError::Field)
    }
}

impl Terms {
    /// The octets of the message.
    pub(super) fn to_octets(self) -> Vec<u8> {
        let mut out;
        match self {
            Self::Offer(offer) => {
                out = Writer::new(OFFER, offer.role.code());
                for is_v4 in [true, false] {
                    out.address(offer.addresses.iter().find(|it| it.is_ipv4() == is_v4));
                }
                out.number(offer.end.pd).number(offer.end.qpn).number(offer.end.nonce);
                out.lens(&offer.end).number(offer.load.connections).number(offer.load.threshold);
            }
            Self::Answer(answer) => {
                out = Writer::new(ANSWER, answer.part.code());
                out.address(Some(answer.address));
                out.number(answer.end.pd).number(answer.end.qpn).number(answer.end.nonce);
                out.number(answer.answers.0).number(answer.answers.1).lens(&answer.end);
                out.given(answer.given.as_ref());
            }
            Self::Confirm(confirm) => {
                out = Writer::new(CONFIRM, confirm.part.code());
                out.number(confirm.confirms.0).number(confirm.confirms.1);
                out.given(confirm.given.as_ref());
            }
        }
        out.0
    }

    /// Parses octets of any kind.
    pub(super) fn parse(octets: &[u8]) -> Result<Self, TermsError> {
        let mut from = Reader(octets);
        let short = TermsError::Length { len: octets.len(), expected: 8 };
        let magic: [u8; 4] = from.take().map_err(|_too_short| short)?;
        let [version, which, code, reserved] = from.take().map_err(|_too_short| short)?;
        if magic != MAGIC {
            return Err(TermsError::Magic);
        }
        if version != VERSION {
            return Err(TermsError::Version(version));
        }
        let expected = match which {
            OFFER => 68,
            ANSWER => 76,
            CONFIRM => 40,
            _ => return Err(TermsError::Field),
        };
        if octets.len() != expected {
            return Err(TermsError::Length { len: octets.len(), expected });
        }
        if reserved != 0 {
            return Err(TermsError::Field);
        }
        match which {
            OFFER => from.offer(code).map(Self::Offer),
            ANSWER => from.answer(code).map(Self::Answer),
            _ => {
                let part = Part::from_code(code)?;
                let confirms = (from.number()?, from.number()?);
                Ok(Self::Confirm(Confirm { confirms, part, given: from.given(part)? }))
            }
        }
    }
}

impl Reader<'_> {
    fn offer(&mut self, code: u8) -> Result<Offer, TermsError> {
        let role = Role::from_code(code).ok_or(TermsError::Field)?;
        let mut addresses = LocalAddresses::default();
        for is_v4 in [true, false] {
            if let Some(address) = self.address()? {
                if address.is_ipv4() != is_v4 {
                    return Err(TermsError::Field);
                }
                addresses.insert(address);
            }
        }
        if addresses.is_empty() {
            return Err(TermsError::Field);
        }
        let (pd, qpn, nonce) = (self.number()?, self.number()?, self.number()?);
        let (packet_len_max, depths) = self.lens()?;
        let end = End { pd, qpn, nonce, packet_len_max, depths };
        let load = Load { connections: self.number()?, threshold: self.number()? };
        Ok(Offer { role, addresses, end, load })
    }

    fn answer(&mut self, code: u8) -> Result<Answer, TermsError> {
        let part = Part::from_code(code)?;
        let address = self.address()?.ok_or(TermsError::Field)?;
        let (pd, qpn, nonce) = (self.number()?, self.number()?, self.number()?);
        let answers = (self.number()?, self.number()?);
        let (packet_len_max, depths) = self.lens()?;
        let end = End { pd, qpn, nonce, packet_len_max, depths };
        Ok(Answer { address, end, answers, part, given: self.given(part)? })
    }
}
