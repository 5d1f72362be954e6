//! How a sender learns up to where its receiver has processed a ring: a word of the sender's, which
//! the receiver writes, the newest value only and one at a time.
//!
//! It is a plain WRITE, as one aligned word lands whole, and to write it twice changes nothing: one
//! that fails is made good by the next, as a later tail says all that an earlier one says. What is
//! told may be old, and never wrong.

use rma_core::{
    executor::{Call, CallError, CallId, CallStatus, Piece},
    grant::Grant,
    portal::CommandPortal,
    region::RegisteredRegion,
    time::Instant,
};

use crate::{
    link::Link,
    ring::{Position, RingLen, WORD},
};

/// The receiver's end: what tells the tail.
#[derive(Debug)]
pub(crate) struct Teller {
    /// For a WRITE of the sender's word.
    grant: Grant,
    /// A word of this host's, which the tail is sent from.
    word: RegisteredRegion,
    /// How much may be processed before the sender is told, unless nothing else is there.
    every: u64,
    /// What was told, as far as is known.
    told: Position,
    /// What is being told.
    telling: Option<(CallId, Position)>,
}

impl Teller {
    pub(crate) const fn new(grant: Grant, word: RegisteredRegion, len: RingLen) -> Self {
        Self { grant, word, every: len.get() / 2, told: Position::ZERO, telling: None }
    }

    /// Tells `tail` if it is time. `is_all`: nothing that has come is left to be processed.
    /// Returns how the last attempt failed, if it did; it is made again.
    pub(crate) fn poll<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        (tail, is_all): (Position, bool),
    ) -> Result<Option<CallStatus>, CallError> {
        let mut failed = None;
        if let Some((call, position)) = self.telling {
            let Some(outcome) = link.take(call) else { return Ok(None) };
            self.telling = None;
            match outcome.status {
                CallStatus::Ok => self.told = position,
                status => failed = Some(status),
            }
        }
        let news = tail.since(self.told);
        if news > 0 && (news >= self.every || is_all) {
            // Only this end stores there, and no write is under way.
            let _ = self.word.store(0, tail.to_bits().to_le());
            let (grant, local) = (&self.grant, &self.word);
            let word = Piece { grant, remote_offset: 0, local, local_offset: 0, len: WORD };
            self.telling = Some((link.submit(now, &Call::of(&[word]))?, tail));
        }
        Ok(failed)
    }
}
