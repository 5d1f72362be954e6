//! Ring buffers (§4.3): a receiver has a circular region for each of its senders, who write one
//! message after the other into it.
//!
//! | | bell | ops for each message | receiver |
//! |---|---|---|---|
//! | [`with_zeroing`] | in the record, behind the message | one, any number under way | zeroes each record |
//! | [`without_zeroing`] | in the record, above the message | one, less when busy | only frees |
//!
//! Both block nobody and copy on both sides: the sender into an image of the ring, from where
//! messages are written, the receiver out of the ring. Messages are of 1 byte up to what was agreed
//! on, several ops' worth included; a message takes as much of the ring as its length asks for. The
//! receiver issues nothing for a message, and tells the sender its tail when half of the ring is
//! processed, or all that is there.
//!
//! # When something fails
//!
//! Each message is published once or not at all, and its sender knows which, or that it does not
//! know: its op is settled, never repeated blindly. A message that was not published is a hole,
//! which the receiver does not get past: so the channel is *broken* from then on, its sender is
//! told at which message, and what lies behind was accepted but is not delivered. Both ends are set
//! up anew then.

use rma_core::executor::{CallError, CallStatus};
use thiserror::Error;

use crate::ring::{Malformed, Position, Reads, Record};

mod sending;
pub mod with_zeroing;
pub mod without_zeroing;

pub use sending::SenderParts;

/// Why there are no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The ring holds what cannot be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A call was refused: the link is not one for these grants and regions.
    #[error("the link refuses to tell the tail: {0}")]
    Call(#[from] CallError),
}

/// A message that has come. Dropped, it is processed, and its place is free for others.
#[derive(Debug)]
pub struct Message<'a, R: Reads> {
    reader: &'a mut R,
    record: Option<Record>,
}

impl<R: Reads> Message<'_, R> {
    /// How many bytes it has; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub fn len(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.len() as usize)
    }

    /// Copies the message into the beginning of `bytes`. Returns how many bytes it has: of a
    /// message longer than `bytes` the rest is left out.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        let len = self.len();
        if let Some(record) = &self.record {
            let room = len.min(bytes.len());
            // The record was found there.
            let _ = self.reader.ring().read(record.offset(), &mut bytes[..room]);
        }
        len
    }

    /// The message's bytes, copied.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }
}

impl<R: Reads> Drop for Message<'_, R> {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            let _ = self.reader.give_back(record);
        }
    }
}

/// The receiver's end of a ring, of either kind.
#[derive(Debug)]
pub struct Receiver<R: Reads> {
    reader: R,
    teller: crate::flow::Teller,
}

impl<R: Reads> Receiver<R> {
    pub(crate) const fn over(reader: R, teller: crate::flow::Teller) -> Self {
        Self { reader, teller }
    }

    /// The next message, if it is there. To be asked again and again: nothing says that one has
    /// come but the ring itself.
    ///
    /// # Errors
    /// If what is there cannot be a message. It stays so.
    pub fn receive(&mut self) -> Result<Option<Message<'_, R>>, ReceiveError> {
        let record = self.reader.poll()?;
        Ok(record.map(|record| Message { reader: &mut self.reader, record: Some(record) }))
    }

    /// Tells the sender what has been processed, if it is time. After [`Link::poll`].
    ///
    /// Returns how the last attempt to tell it ended, if it failed: it is made again.
    ///
    /// # Errors
    /// If the link refuses.
    ///
    /// [`Link::poll`]: crate::Link::poll
    pub fn poll<P: AsMut<rma_core::portal::CommandPortal>>(
        &mut self,
        link: &mut crate::Link<P>,
        now: rma_core::time::Instant,
    ) -> Result<Option<CallStatus>, ReceiveError> {
        let Self { reader, teller } = self;
        let (tail, is_all) = (reader.tail(), reader.tail() == reader.next() && !reader.has_next());
        match teller.poll(link, now, (tail, is_all)) {
            // Others of the link are over sooner or later.
            Err(CallError::TooManyCalls { .. } | CallError::TooManyRemotes(_)) => Ok(None),
            told => Ok(told?),
        }
    }

    /// How many bytes of messages were processed since the beginning, with what they have besides.
    #[must_use]
    pub fn tail(&self) -> Position {
        self.reader.tail()
    }
}
