//! The terms that the two ends of a channel must know of each other, and the step from terms to
//! ends.
//!
//! Each end is opened by itself, which registers its memory and makes its [`Terms`]: what the
//! channel is like, and grants for the other end. Terms travel out of band, over something that
//! keeps secrets, as keys are in them. With the other end's terms a [`Half`] becomes an end. What
//! does not fit is refused: terms of another channel, of another kind, for somebody else, or that
//! say the channel is otherwise.
//!
//! Terms go out of date when the end that made them is opened anew: its grants are refused by its
//! host then, and the first op of whoever still uses them fails with REMOTE_AUTHENTICATION_FAILURE.

use core::{fmt, ops::RangeInclusive};

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::DerivedRegionKey,
    gate::{Identity, Peer, Refused},
    grant::Grant,
    op::OpType,
    region::RegionId,
};
use thiserror::Error;

use crate::{
    close::{Close, Registered},
    ring::Position,
    table::Kind,
};

/// One of the two sides of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that sends.
    Sender = 1,
    /// The side that receives.
    Receiver = 2,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

/// The terms that both ends have to agree on: a kind, the name that the application has for the
/// channel, and numbers of which each kind knows what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The kind, one of twenty.
    pub kind: Kind,
    /// The application's name for the channel: whatever tells it from others between the two.
    pub name: u64,
    /// Lengths and counts, in bytes or messages, as the kind has them.
    pub numbers: [u64; 3],
}

/// The terms that one end sends to the other. Secret: it holds keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    agreed: Agreed,
    from: Side,
    /// For the other end, in an order that the kind knows.
    grants: Vec<Grant>,
}

/// The reason why the other end's terms are of no use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TermsError {
    /// The bytes are no terms.
    #[error("{len} bytes are no terms of a channel ({why}); carry them over again")]
    Garbage {
        /// How many there are.
        len: usize,
        /// The fault.
        why: &'static str,
    },
    /// They are of the same side.
    #[error("these are terms of a {side}, and so is this end; give it those of the other end")]
    SameSide {
        /// The side, of two.
        side: Side,
    },
    /// They speak of another channel, or of this one as it is not.
    #[error("these terms are of {theirs}, and this end is of {ours}; open both ends alike")]
    Disagree {
        /// The properties in them.
        theirs: Agreed,
        /// The properties that this end was opened with.
        ours: Agreed,
    },
    /// A grant in them is not one that this end needs.
    #[error(
        "grant {index} of these terms is for {op_type:?} by {holder}, and this end, {us}, needs {needs:?}; \
         open the other end for this peer"
    )]
    Grant {
        /// The index of the grant, from 0 on.
        index: usize,
        /// The op type that it permits.
        op_type: OpType,
        /// The process that it permits.
        holder: Peer,
        /// This end's process.
        us: Identity,
        /// The op types that this end needs, of each grant.
        needs: &'static [OpType],
    },
    /// There are too many or too few.
    #[error("these terms have {count} grants, and this end needs {needs:?}; open both ends alike")]
    Grants {
        /// How many there are.
        count: usize,
        /// The op types that this end needs.
        needs: &'static [OpType],
    },
}

impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, numbers } = self;
        write!(f, "channel {name:#x}, {kind}, {numbers:?}")
    }
}

/// The first octets of terms: their kind and version.
const MAGIC: [u8; 8] = *b"RMAchan1";

/// A channel has no more grants for one end than this.
const GRANTS_MAX: usize = 64;

/// Bytes of a grant: addresses, region, its length, PID, op type, key.
const GRANT_LEN: usize = 16 + 16 + 4 + 8 + 4 + 1 + 16;

impl Terms {
    pub(crate) fn new(agreed: Agreed, from: Side, grants: Vec<Grant>) -> Self {
        Self { agreed, from, grants }
    }

    /// Returns the agreed properties of the channel.
    #[must_use]
    pub const fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// The grants in these terms, for an end of `side` that takes the channel as they say it is:
    /// `each`, for one epoch after the other.
    pub(crate) fn epochs_for(
        &self,
        us: Identity,
        kind: Kind,
        side: Side,
        each: &'static [OpType],
    ) -> Result<&[Grant], TermsError> {
        let (theirs, count) = (self.agreed, self.grants.len());
        if self.from != side.other() {
            return Err(TermsError::SameSide { side });
        }
        if theirs.kind != kind {
            return Err(TermsError::Disagree { theirs, ours: Agreed { kind, ..theirs } });
        }
        if count == 0 || !count.is_multiple_of(each.len()) {
            return Err(TermsError::Grants { count, needs: each });
        }
        check_grants(us, &self.grants, each)?;
        Ok(&self.grants)
    }

    /// The terms of an end that has joined and has nothing to grant.
    pub(crate) const fn answer(&self) -> Self {
        Self { agreed: self.agreed, from: self.from.other(), grants: Vec::new() }
    }

    /// The terms as bytes, to be carried over. They hold keys.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { agreed: Agreed { kind, name, numbers }, from, grants } = self;
        let mut bytes = MAGIC.to_vec();
        bytes.extend([*kind as u8, *from as u8, grants.len() as u8]);
        for number in [name].into_iter().chain(numbers) {
            bytes.extend(number.to_le_bytes());
        }
        for grant in grants {
            let Grant { responder, region, region_len, initiator, pid, op_type, key } = grant;
            bytes.extend(responder.to_octets());
            bytes.extend(initiator.to_octets());
            bytes.extend(region.to_bits().to_le_bytes());
            bytes.extend(region_len.to_le_bytes());
            bytes.extend(pid.0.to_le_bytes());
            bytes.push(*op_type as u8);
            bytes.extend(key.expose());
        }
        bytes
    }

    /// The terms in `bytes`.
    ///
    /// # Errors
    /// If there are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TermsError> {
        let garbage = |why| TermsError::Garbage { len: bytes.len(), why };
        let mut rest = bytes;
        if take(&mut rest) != Some(MAGIC) {
            return Err(garbage("they begin otherwise, or are of another version"));
        }
        let cut = || garbage("they end too soon");
        let [kind, side, count] = take(&mut rest).ok_or_else(cut)?;
        let kind = Kind::from_code(kind).ok_or_else(|| garbage("there is no such kind"))?;
        let from = match side {
            1 => Side::Sender,
            2 => Side::Receiver,
            _ => return Err(garbage("there is no such side")),
        };
        let mut number = || take(&mut rest).map(u64::from_le_bytes).ok_or_else(cut);
        let (name, numbers) = (number()?, [number()?, number()?, number()?]);
        let count = usize::from(count);
        if count > GRANTS_MAX {
            return Err(garbage("no channel has so many grants"));
        }
        if rest.len() != count * GRANT_LEN {
            return Err(garbage("their grants are not as many as they say"));
        }
        let grants = (0..count).map(|_| grant(&mut rest)).collect::<Option<_>>();
        let grants = grants.ok_or_else(|| garbage("a grant is for no type of op"))?;
        Ok(Self { agreed: Agreed { kind, name, numbers }, from, grants })
    }
}

/// The next bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn grant(rest: &mut &[u8]) -> Option<Grant> {
    let responder = HostAddr::from_octets(take(rest)?);
    let initiator = HostAddr::from_octets(take(rest)?);
    let region = RegionId::from_bits(u32::from_le_bytes(take(rest)?));
    let region_len = u64::from_le_bytes(take(rest)?);
    let pid = Pid(u32::from_le_bytes(take(rest)?));
    let [op_type] = take(rest)?;
    let op_type = OpType::from_code(op_type)?;
    let key = DerivedRegionKey::from_bytes(take(rest)?);
    Some(Grant { responder, region, region_len, initiator, pid, op_type, key }.logged())
}

/// The parts of the other end's terms that this end needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// This end.
    pub(crate) us: Identity,
    pub(crate) agreed: Agreed,
    pub(crate) side: Side,
    /// The grants, in their order.
    pub(crate) grants: &'static [OpType],
}

impl Needs {
    /// The grants in `theirs`, if those are terms of the other end.
    pub(crate) fn check<'a>(&self, theirs: &'a Terms) -> Result<&'a [Grant], TermsError> {
        let Self { us, agreed: ours, side, grants: needs } = *self;
        if theirs.from != side.other() {
            return Err(TermsError::SameSide { side });
        }
        if theirs.agreed != ours {
            return Err(TermsError::Disagree { theirs: theirs.agreed, ours });
        }
        let count = theirs.grants.len();
        if count != needs.len() {
            return Err(TermsError::Grants { count, needs });
        }
        check_grants(us, &theirs.grants, needs)?;
        Ok(&theirs.grants)
    }
}

/// Whether these grants are for `us`, and for what is needed, over and over.
fn check_grants(
    us: Identity,
    grants: &[Grant],
    needs: &'static [OpType],
) -> Result<(), TermsError> {
    for (index, (grant, &need)) in grants.iter().zip(needs.iter().cycle()).enumerate() {
        let holder = Peer { address: grant.initiator, pid: grant.pid };
        if !us.is(holder) || grant.op_type != need {
            let op_type = grant.op_type;
            return Err(TermsError::Grant { index, op_type, holder, us, needs });
        }
    }
    Ok(())
}

type Finish<E> = Box<dyn FnOnce(&[Grant]) -> E + Send>;

/// An end that lacks the other end's terms.
#[must_use]
pub struct Half<E> {
    terms: Terms,
    needs: Needs,
    registered: Registered,
    finish: Finish<E>,
}

impl<E> fmt::Debug for Half<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Half").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl<E> Half<E> {
    /// An end of which the other is told `grants`. `finish` makes the end of the grants that it
    /// needs, in that order.
    pub(crate) fn new(
        needs: Needs,
        grants: Vec<Grant>,
        finish: impl FnOnce(&[Grant]) -> E + Send + 'static,
    ) -> Self {
        let terms = Terms::new(needs.agreed, needs.side, grants);
        Self { terms, needs, registered: Registered::default(), finish: Box::new(finish) }
    }

    /// Returns the terms to send to the other end.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whether those are terms of the other end of this channel. Whoever may be given others asks
    /// before it connects, as it can [`close`](Close::close) the half then, or wait for better.
    ///
    /// # Errors
    /// If they are not.
    pub fn check(&self, theirs: &Terms) -> Result<(), TermsError> {
        self.needs.check(theirs).map(drop)
    }

    /// The end, with what the other end has told.
    ///
    /// # Errors
    /// As [`Half::check`]. What the half has registered stays so then.
    pub fn connect(self, theirs: &Terms) -> Result<E, TermsError>
    where
        E: Close,
    {
        let grants = self.needs.check(theirs)?;
        let mut end = (self.finish)(grants);
        *end.registered() = self.registered;
        Ok(end)
    }

    /// The same for what is no end, and for which nothing was registered.
    pub(crate) fn complete(self, theirs: &Terms) -> Result<E, TermsError> {
        Ok((self.finish)(self.needs.check(theirs)?))
    }
}

impl<E: 'static> Half<E> {
    /// The half of what `then` makes of the end.
    pub(crate) fn map<T>(self, then: impl FnOnce(E) -> T + Send + 'static) -> Half<T> {
        let Self { terms, needs, registered, finish } = self;
        Half { terms, needs, registered, finish: Box::new(|grants| then(finish(grants))) }
    }
}

/// A peer that an end has admitted, and that has answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admitted {
    /// The number that its end has for it.
    pub(crate) seat: u64,
    /// The position from which on it is told.
    pub(crate) from: Position,
    /// For NOTIFY, if it is told by that.
    pub(crate) grant: Option<Grant>,
}

impl Half<Admitted> {
    /// A peer of `us` that grants nothing: its answer says that it has joined.
    pub(crate) fn joining(us: Identity, terms: Terms) -> Self {
        let needs = Needs { us, agreed: terms.agreed, side: terms.from, grants: &[] };
        let finish = Box::new(|_: &[Grant]| Admitted::default());
        Self { terms, needs, registered: Registered::default(), finish }
    }
}

impl<E> Close for Half<E> {
    fn registered(&mut self) -> &mut Registered {
        &mut self.registered
    }
}

/// The reason why an end was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The channel cannot be like that.
    #[error("{what} is {value}: {why}")]
    Settings {
        /// The setting.
        what: &'static str,
        /// The value.
        value: u64,
        /// The rule for it.
        why: &'static str,
    },
    /// Memory of that length cannot be had.
    #[error(transparent)]
    Memory(#[from] rma_shm::MemoryError),
    /// A receive queue cannot be like that.
    #[error(transparent)]
    Queue(#[from] rma_core::error::ReceiveQueueError),
    /// The other end's terms are of no use.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The kind has one sender and one receiver, or this end is not the home of its channel.
    #[error(
        "this end admits nobody, so not {peer}: a home of a kind for many peers does; open another channel"
    )]
    OnePeer {
        /// The peer that is one too many.
        peer: Peer,
    },
    /// The kind's receivers do not read what they receive.
    #[error(
        "its receivers do not read messages, so they cannot read them into the application's memory; join it for messages that are claimed"
    )]
    ReadsNothing,
    /// The host refuses. [`Refused::why`] has the host's own error.
    #[error("the host refuses what the channel needs: {0}")]
    Host(Refused),
}

/// Refuses a setting that is none of `values`, which is the rule `why`.
pub(crate) fn within(
    what: &'static str,
    value: impl Into<u64>,
    values: RangeInclusive<u64>,
    why: &'static str,
) -> Result<(), OpenError> {
    let value = value.into();
    if values.contains(&value) { Ok(()) } else { Err(OpenError::Settings { what, value, why }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Peer = Peer { address: HostAddr::from_octets([7; 16]), pid: Pid(3) };

    fn agreed(name: u64) -> Agreed {
        Agreed { kind: Kind::RingDetached, name, numbers: [1 << 16, 4096, 0] }
    }

    fn grant(op_type: OpType, pid: u32) -> Grant {
        Grant {
            responder: HostAddr::from_octets([9; 16]),
            region: RegionId::from_bits(5),
            region_len: 1 << 17,
            initiator: US.address,
            pid: Pid(pid),
            op_type,
            key: DerivedRegionKey::from_bytes([6; 16]),
        }
    }

    fn half(name: u64, side: Side, needs: &'static [OpType], grants: Vec<Grant>) -> Half<()> {
        let needs = Needs { us: US.into(), agreed: agreed(name), side, grants: needs };
        Half::new(needs, grants, |_| ())
    }

    #[test]
    fn terms_are_the_same_once_they_were_bytes_and_no_other_bytes_are_terms() {
        let grants = vec![grant(OpType::Write, 3), grant(OpType::FetchAdd, 4)];
        let terms = Terms::new(agreed(77), Side::Sender, grants);
        let bytes = terms.to_bytes();
        assert_eq!(Terms::from_bytes(&bytes), Ok(terms));
        let is_garbage =
            |bytes: &[u8]| matches!(Terms::from_bytes(bytes), Err(TermsError::Garbage { .. }));
        for len in 0..bytes.len() {
            assert!(is_garbage(&bytes[..len]), "{len} bytes");
        }
        assert!(is_garbage(&[&bytes[..], &[0]].concat()), "one byte more");
        // Magic, kind, side, how many grants, and the type of op that the first is for.
        let first_op = 8 + 3 + 32 + GRANT_LEN - 16 - 1;
        for at in [0, 7, 8, 9, 10, first_op] {
            let mut wrong = bytes.clone();
            wrong[at] = 0xee;
            assert!(is_garbage(&wrong), "byte {at}");
        }
    }

    #[test]
    fn an_end_takes_the_terms_of_its_other_end_alone() {
        const NEEDS: &[OpType] = &[OpType::Write];
        let sender = || half(1, Side::Sender, NEEDS, vec![]);
        let connect = |name, side, grants| sender().complete(half(name, side, &[], grants).terms());
        let write = grant(OpType::Write, US.pid.0);
        assert_eq!(connect(1, Side::Receiver, vec![write]), Ok(()));
        let error = connect(1, Side::Sender, vec![write]).unwrap_err();
        assert_eq!(error, TermsError::SameSide { side: Side::Sender });
        let error = connect(2, Side::Receiver, vec![write]).unwrap_err();
        assert_eq!(error, TermsError::Disagree { theirs: agreed(2), ours: agreed(1) });
        let error = connect(1, Side::Receiver, vec![]).unwrap_err();
        assert_eq!(error, TermsError::Grants { count: 0, needs: NEEDS });
        for wrong in [grant(OpType::Read, US.pid.0), grant(OpType::Write, US.pid.0 + 1)] {
            let error = connect(1, Side::Receiver, vec![wrong]).unwrap_err();
            assert!(matches!(error, TermsError::Grant { index: 0, .. }), "{error}");
        }
    }
}
