//! The receivers of all channels: the paper's receiver API (§6).

use core::fmt;
use std::collections::VecDeque;

use rma_core::{
    executor::{CallError, CallStatus},
    gate::{Peer, Refused},
    receive_queue::ReceiveQueue,
    region::RegisteredRegion,
    time::Instant,
};
use thiserror::Error;

use crate::{
    close::Close,
    link::Link,
    ring::{Malformed, Position, Record},
};

/// The reason why there are no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The sender wrote something malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A call was refused: the link is not one for these grants and regions.
    #[error("the link refuses an op of this receiver: {0}")]
    Call(#[from] CallError),
    /// This receiver told no tail for so long that its sender counts it no more: what it has not
    /// read may be overwritten.
    #[error(
        "the sender has ejected this reader at position {position}, as it told no tail in time; join the channel anew"
    )]
    Ejected {
        /// Up to where this reader has processed messages.
        position: u64,
    },
    /// An op that the channel cannot do without failed for good.
    #[error("the channel is broken: an op of this receiver ended with {status}; set it up anew")]
    Broken {
        /// The status that it ended with.
        status: CallStatus,
    },
}

/// The reason why the reservations of senders were not taken back.
#[derive(Debug, Error)]
pub enum RecoverError {
    /// There is what cannot be.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// Senders of this kind are lent nothing, so nothing can be taken back from one of them.
    #[error(
        "nothing is lent to {from} alone: only the home of a read slot with indirect reads lends"
    )]
    NothingLent {
        /// The sender.
        from: Peer,
    },
    /// The host refuses to change keys. It must be tried again.
    #[error("the host does not change the keys of what senders share: {0}")]
    Host(Refused),
}

/// A message that has come and belongs to its receiver until it is given back. It may be kept as
/// long as need be, and given back in any order.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a message that is not given back is never overwritten, and the channel fills up"]
pub struct Claim {
    pub(crate) record: Record,
    pub(crate) from: Option<Peer>,
}

impl Claim {
    /// How many bytes the message has; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub const fn len(&self) -> usize {
        self.record.len() as usize
    }

    /// The message's name at its receiver, which no other message of the channel has. In a channel
    /// that can have one sender only, positions grow in the order in which messages were sent. In
    /// one that can have several they tell no order, even while it has one: a message that is sent
    /// again, as the receiver of a shared ring has recovered, has a new position, and messages come
    /// in order all the same.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.record.position()
    }

    /// Returns the authenticated sender, if the channel has several.
    #[must_use]
    pub const fn sender(&self) -> Option<Peer> {
        self.from
    }
}

/// Messages of many senders that have come and were not handed out: each has its name by when it
/// is.
#[derive(Debug, Default)]
pub(crate) struct Come {
    messages: VecDeque<(Record, Peer)>,
    /// How many were handed out.
    next: Position,
}

impl Come {
    pub(crate) fn push(&mut self, record: Record, from: Peer) {
        self.messages.push_back((record, from));
    }

    /// The next message.
    pub(crate) fn claim(&mut self) -> Option<Claim> {
        let (record, from) = self.messages.pop_front()?;
        let position = self.next;
        self.next = position.after(1);
        Some(Claim { record: Record { position, ..record }, from: Some(from) })
    }
}

/// The reason why a receiver has no more messages, once it has been told: it stays so, whatever
/// comes.
#[derive(Debug, Default)]
pub(crate) struct Ended(Option<ReceiveError>);

impl Ended {
    /// Returns the error that ended it, if one did.
    pub(crate) fn check(&self) -> Result<(), ReceiveError> {
        self.0.map_or(Ok(()), Err)
    }

    /// This is being told.
    pub(crate) fn keep<T>(&mut self, told: Result<T, ReceiveError>) -> Result<T, ReceiveError> {
        told.inspect_err(|&error| self.0 = Some(error))
    }
}

/// A receiver's messages: the part of a [`Receiver`] that needs no link.
pub trait Claims: Close + fmt::Debug {
    /// Takes the next message, if it has come: the paper's `ReceiveRegion`.
    ///
    /// # Errors
    /// If what is there cannot be a message, or the channel has ended. It stays so.
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError>;

    /// Copies bytes of a message of this receiver from `offset` on, as many as `bytes` takes and
    /// the message has. Returns how many.
    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize;

    /// Gives a message back, which is processed now: the paper's `FreeReceiveRegion`.
    fn free(&mut self, claim: Claim);

    /// When [`Receiver::poll`] has something to do even if nothing comes; `None` if it has not.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next message, if it has come, which is given back when it is dropped.
    ///
    /// # Errors
    /// As [`Claims::claim`].
    fn receive(&mut self) -> Result<Option<Message<'_, Self>>, ReceiveError>
    where
        Self: Sized,
    {
        Message::next(self)
    }
}

/// A receiver's end of a channel.
pub trait Receiver: Claims {
    /// Does what is due: tells the sender what has been processed, fetches the messages that are
    /// due. To be called after [`Link::poll`], again and again.
    ///
    /// # Errors
    /// If the link refuses an op, or the channel has ended. What failed in passing is done again.
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError>;
}

/// A receiver that events tell of messages: who has none may sleep until there is an event, or a
/// call of the link's is over. It exists where Table 2 has "blocking".
pub trait Blocking: Claims {
    /// The queue whose events tell of messages. It is bound to the portal that is woken
    /// (`Host::waking` of the crate `rma-xdp`).
    fn queue(&self) -> &ReceiveQueue;
}

/// A receiver that reads messages into the application's own memory, without a copy: the paper's
/// receiver API with zero-copy (§6). It exists where Table 2 has zero-copy on receive and the
/// receiver READs. It has no memory for messages of its own, and claims none.
pub trait ReceiveInto: Close + fmt::Debug {
    /// Does what is due: looks for messages, tells the sender what has been received. To be called
    /// after [`Link::poll`], again and again.
    ///
    /// # Errors
    /// If the link refuses an op, or the channel has ended.
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError>;

    /// The next message that can be received, if one is there: the paper's `CanReceiveRegion`. It
    /// is the same one until it is being received.
    fn incoming(&mut self) -> Option<Incoming>;

    /// Receives the next message to `offset` of `region`, which is the application's and must have
    /// room for it: the paper's `ReceiveRegion`. Until it is received the bytes there may change at
    /// any moment. Several may be under way. `None` if the link has no room now: poll it, and try
    /// again.
    ///
    /// # Errors
    /// If the link refuses the READ, as the bytes are not within the region; or the channel has
    /// ended.
    fn receive_into(
        &mut self,
        link: &mut Link,
        now: Instant,
        incoming: Incoming,
        region: &RegisteredRegion,
        offset: u64,
    ) -> Result<Option<ReceiveHandle>, ReceiveError>;

    /// Returns the state of a message: the paper's `TestReceiveRequest`. The state never goes back.
    fn test(&self, handle: ReceiveHandle) -> ReceiveState;

    /// When [`ReceiveInto::poll`] has something to do even if nothing comes; `None` if it has not.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// A message that can be received: the next one.
#[derive(Debug, PartialEq, Eq)]
pub struct Incoming {
    pub(crate) position: Position,
    pub(crate) len: u32,
}

impl Incoming {
    /// How many bytes the message has; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }
}

/// The name of a message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiveHandle(pub(crate) Position);

/// The state of a message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveState {
    /// It is under way.
    Receiving,
    /// It is there, whole.
    Received,
    /// It was not received, and will not be.
    Failed(ReceiveError),
}

/// A message that is given back when it is dropped.
#[derive(Debug)]
pub struct Message<'a, R: Claims + ?Sized> {
    receiver: &'a mut R,
    claim: Option<Claim>,
}

impl<'a, R: Claims + ?Sized> Message<'a, R> {
    /// The next message of `receiver`, if it has come.
    ///
    /// # Errors
    /// As [`Claims::claim`].
    pub fn next(receiver: &'a mut R) -> Result<Option<Self>, ReceiveError> {
        let claim = receiver.claim()?;
        Ok(claim.map(|claim| Self::of(receiver, claim)))
    }

    /// A message of `receiver` that it has claimed.
    #[must_use]
    pub const fn of(receiver: &'a mut R, claim: Claim) -> Self {
        Self { receiver, claim: Some(claim) }
    }

    /// How many bytes it has; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub fn len(&self) -> usize {
        self.claim.as_ref().map_or(0, Claim::len)
    }

    /// Returns the authenticated sender, if the channel has several.
    #[must_use]
    pub fn sender(&self) -> Option<Peer> {
        self.claim.as_ref().and_then(Claim::sender)
    }

    /// Copies the message into the beginning of `bytes`. Returns how many bytes it has: of a
    /// message longer than `bytes` the rest is left out.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        if let Some(claim) = &self.claim {
            self.receiver.read(claim, 0, bytes);
        }
        self.len()
    }

    /// The message's bytes, copied.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }

    /// Keeps the message: it must be given back by [`Claims::free`].
    pub fn keep(mut self) -> Option<Claim> {
        self.claim.take()
    }
}

impl<R: Claims + ?Sized> Drop for Message<'_, R> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.receiver.free(claim);
        }
    }
}

/// Copies a part of a record out of the memory that it lies in.
pub(crate) fn read(
    memory: &RegisteredRegion,
    record: &Record,
    offset: usize,
    bytes: &mut [u8],
) -> usize {
    let len = (record.len() as usize).saturating_sub(offset).min(bytes.len());
    // The record was found there.
    let _ = memory.read(record.offset() + offset as u64, &mut bytes[..len]);
    len
}
