//! Shared ring buffers (§4.4): one circular region for any number of senders, each of whom reserves
//! a place before he writes.
//!
//! | | a message is there when | in which order | receiver |
//! |---|---|---|---|
//! | [`with_zeroing`] | its record says so | that of the ring: a slow sender holds up the others | zeroes each record |
//! | [`immediate`] | its event says so | any; in order for each sender | posts receives, may block |
//!
//! There is no third form (§4.4). Writes of different senders have no order: without zeroing one of
//! them could clear the bell of another's message, and a detached head would tell of places that
//! are reserved and not yet written.
//!
//! There are two regions, so that senders cannot read each other's messages: *C* has the head, up
//! to where places are reserved, and the tail, up to where messages are processed; *R* is the ring.
//! A sender has grants for FETCH_ADD and READ of C, and for writing to R alone. He adds to the head
//! by what the messages that have gathered take, one FETCH_ADD at a time, so his places are in the
//! order of his messages; and writes each of them by one op, in parallel, as soon as there is room
//! for it: he reads the tail only if his last sight of it says that there is none, and then at
//! growing intervals, or to learn what was processed when he has nothing else to do.
//!
//! The receiver's memory is the same however many senders there are: of each it knows who he is,
//! and which message comes next. A sender numbers his messages, and they are handed out by these
//! numbers: after a [`recovery`] one that was written may come before one that has to be written
//! again, and waits for it. (Places alone would not do, as it would with one op at a time.)
//!
//! # A sender that dies, or sleeps, with a place
//!
//! It is a hole: [`recovery`] takes it back, and needs the receiver's
//! [`Gate`](rma_core::gate::Gate). To be called often:
//! [`receiver::SharedReceiver::poll_recovery`].
//!
//! # Whom to let in
//!
//! Who has grants for a shared ring can reserve all of it, and write over messages of others: what
//! cannot be is refused and ends the channel for all ([`Malformed`](crate::ring::Malformed)). There
//! is no defence against one who means harm but to open the channel anew without him.
//!
//! # When something fails
//!
//! As for rings of one sender: a message that was not published, or of which nobody knows, breaks
//! the channel for its sender, who is told which; what he has sent behind it is not delivered,
//! though it may be accepted. Others go on.

use core::{fmt, time::Duration};

use rma_core::{
    executor::ExecutorConfig, gate::Peer, op::OpType, portal::Change, region::RegisteredRegion,
};

use crate::{
    ring::{Position, RingLen},
    table::Kind,
    terms::{Agreed, OpenError, within},
};

pub mod immediate;
pub mod receiver;
pub mod recovery;
pub mod sender;
#[cfg(test)]
mod tests;
pub mod with_zeroing;

/// The settings that its receiver opens a shared ring with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SharedRingConfig {
    /// The application's name for the channel.
    pub name: u64,
    /// How long the ring is.
    pub len: RingLen,
    /// The longest message, in bytes: one op carries it.
    pub len_max: u32,
    /// How many messages each sender may have that are not accepted. More: a sender alone is
    /// faster. Fewer: less has to be kept of one who dies.
    pub window: u16,
    /// For how many epochs a sender is given grants, 1 to 21: so many recoveries less one he
    /// lives through, and needs new terms then.
    pub epochs: u8,
    /// How long an op may wait to enter service, by the settings of the NICs of all hosts that take
    /// part: the longest of them.
    pub dispatch_timeout: Duration,
    /// How long an op in service may wait for its data, likewise
    /// ([`ExecutorConfig::timeout`]).
    pub timeout: Duration,
    /// How long there may be a hole that could be filled until it is taken back; at least
    /// [`SharedRingConfig::hole_timeout_min`]. Longer: a sender that dies holds up the others for
    /// longer. Shorter than that: what is only slow is taken back, too, and has to be sent again.
    pub hole_timeout: Duration,
}

/// The longest time from one look of a sender at the tail to the next while he waits for room.
/// Shorter: the receiver's NIC is asked more often when its application stands still. Longer: when
/// it goes on, senders notice later, and holes are taken back later.
pub const LOOK_MAX: Duration = Duration::from_millis(5);

impl SharedRingConfig {
    /// A ring of 64 KiB for messages of up to 1 KiB, 64 of each sender under way, between hosts
    /// with the default timing, with eight epochs.
    pub fn new() -> Self {
        let timeout = ExecutorConfig::default().timeout;
        let dispatch_timeout = timeout / 5 * 2;
        Self {
            name: 0,
            len: RingLen::DEFAULT,
            len_max: 1024,
            window: 64,
            epochs: 8,
            dispatch_timeout,
            timeout,
            hole_timeout: Self::hole_timeout_min(dispatch_timeout, timeout),
        }
    }

    /// How long a sender that lives takes at most to fill a hole that he could fill: until his
    /// FETCH_ADD is over, by a SETTLE if its answer was lost, he has looked at the tail once more,
    /// and his WRITE is over. (If ops have to be repeated it may take longer: then what he reserved
    /// is taken back, and he reserves again.)
    #[must_use]
    pub fn hole_timeout_min(dispatch_timeout: Duration, timeout: Duration) -> Duration {
        let ops = [OpType::FetchAdd, OpType::Read, OpType::Read, OpType::Write];
        let in_service = |op: &OpType| timeout.saturating_mul(op.shape().hops / 2);
        let bounds = ops.iter().map(in_service).fold(Duration::ZERO, Duration::saturating_add);
        bounds.saturating_add(dispatch_timeout.saturating_mul(4)).saturating_add(LOOK_MAX)
    }

    /// Returns the agreed terms for the sender with number `sender`.
    fn agreed(&self, kind: Kind, sender: u16) -> Agreed {
        let Self { name, len, len_max, window, hole_timeout, .. } = *self;
        let sizes = u64::from(len_max) | u64::from(window) << 32;
        let sender = u64::from(sender) | (hole_timeout.as_micros() as u64) << 16;
        Agreed { kind, name, numbers: [len.get(), sizes, sender] }
    }

    fn check<F: Form>(&self) -> Result<(), OpenError> {
        let error = |what, value, why| Err(OpenError::Settings { what, value, why });
        if self.len_max == 0
            || self.len_max > F::LEN_MAX
            || F::footprint(self.len_max) > self.len.get()
        {
            let why =
                "it must be at least 1, fit one op, and the ring, with what a record has besides";
            return error("the longest message", self.len_max.into(), why);
        }
        within("the number of epochs", self.epochs, 1..=EPOCHS_MAX, "it must be in 1..=21")?;
        within("a sender's window", self.window, 1..=u64::MAX, "it must be at least 1")?;
        if self.hole_timeout < Self::hole_timeout_min(self.dispatch_timeout, self.timeout) {
            let value = self.hole_timeout.as_nanos() as u64;
            let why = "a sender that lives may take longer, by the NICs' timing: nanoseconds";
            return error("the time that a hole may be there", value, why);
        }
        Ok(())
    }
}

impl Default for SharedRingConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// With three grants for each, terms hold no more.
const EPOCHS_MAX: u64 = 21;

/// The offset of the head in region C; the other words follow.
const HEAD: u64 = 0;
const TAIL: u64 = 8;
const CONTROL_LEN: usize = 16;

/// The index of the control region among the epochs' regions, in the order in which they are
/// fenced.
const CONTROL: usize = 0;
const RING: usize = 1;

/// The alignment of places, in bytes.
pub(crate) const ALIGN: u64 = crate::ring::zeroing::ALIGN;

/// A place that a sender has reserved for a message, and what tells the message from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Place {
    pub(crate) ring: RingLen,
    pub(crate) position: Position,
    pub(crate) len: u32,
    /// The sender's number.
    pub(crate) sender: u16,
    /// The number of the message among its sender's, modulo 2^32.
    pub(crate) number: u32,
}

/// The way in which messages of a shared ring say that they are there: what a sender does.
pub trait Form: fmt::Debug + Send + 'static {
    /// The kind of channel.
    const KIND: Kind;
    /// The op types that a sender needs for a message.
    const NEEDS: &'static [OpType];
    /// The longest message that one op carries.
    const LEN_MAX: u32;
    /// The bytes beside a message.
    const BESIDE: (u64, u64);

    /// How many bytes of the ring a message of `len` bytes uses up.
    #[must_use]
    fn footprint(len: u32) -> u64;

    /// The op that writes the message at `offset` of `region`, around which it may write.
    #[doc(hidden)]
    fn change(place: Place, region: &RegisteredRegion, offset: u64) -> Change<'_>;
}

/// The bytes of all grants of one epoch: FETCH_ADD and READ of C, and what a message needs of R.
const FETCH_ADD: usize = 0;
const READ: usize = 1;
const MESSAGE: usize = 2;

/// A message that has come: where, of whom, and which of his.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Found {
    pub(crate) position: Position,
    /// The offset of its bytes in the ring.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) sender: u16,
    pub(crate) number: u32,
    /// The authenticated writer, if the kind authenticates it.
    pub(crate) from: Option<Peer>,
}

rma_core::settings!(SharedRingConfig);
