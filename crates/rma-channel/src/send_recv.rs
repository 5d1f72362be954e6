//! Send/recv (§4.1): SENDs into buffers that the receiver has posted, whichever comes next.
//!
//! | | queue | a message is | flow control |
//! |---|---|---|---|
//! | [`normal`] | one for each sender | up to one op | credits: the receiver tells its tail |
//! | [`shared`] | one for all senders | up to one op | a sender that finds no receive waits |
//! | [`bufferless`] | one for all senders | a word of 64 bits, in the event | the same |
//!
//! All wake who waits for them ([`Blocking`](crate::Blocking)). No sender knows where its message
//! will lie, so the receiver copies it out of the buffer; senders need not copy. A message takes a
//! receive, however short it is.
//!
//! # Without credits
//!
//! A queue that many share has no state for each of them: neither credits nor numbers. So a sender
//! has one SEND under way, and what it sends meanwhile waits at its own host, up to so many
//! messages: then they come in order without a word about it. Where no receive is posted, its op
//! ends with REMOTE_NOT_READY and is offered again, later and later, for as long as it takes: as
//! with a ring whose receiver frees nothing, the channel is full, and not broken. (On other
//! networks that ends the connection; §4.1.) Nobody is told what is *processed*: a message stays
//! [`Accepted`](crate::SendState::Accepted). One sender may take all receives: who must be kept
//! from that has a queue of his own.
//!
//! # When something fails
//!
//! As with [rings](crate::ring_buffer): each message is delivered once or not at all, and its
//! sender knows which, or that it does not know. After one that was not, none comes: the sender is
//! told at which. Of a shared queue that is no concern of the others.

use rma_core::{
    gate::Peer,
    limits::{OP_SIZE_MAX, RECEIVES_MAX},
};

use crate::{
    numbered::Places,
    ring::padded,
    terms::{OpenError, within},
};

pub mod bufferless;
pub mod normal;
mod one_by_one;
pub mod shared;

/// The settings that both ends of a channel with a queue of its own have to be opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SendRecvConfig {
    /// The application's name for the channel: whatever tells it from others between the two.
    pub name: u64,
    /// The peer at the other end.
    pub peer: Peer,
    /// How many messages may be under way, or unprocessed: how many buffers there are, at both
    /// ends. 1 to [`RECEIVES_MAX`].
    pub receives: u16,
    /// The longest message, in bytes: 1 to [`OP_SIZE_MAX`].
    pub len_max: u32,
}

impl SendRecvConfig {
    /// 64 messages of up to 4 KiB, to or from `peer`.
    pub const fn with_peer(peer: Peer) -> Self {
        Self { name: 0, peer, receives: 64, len_max: OP_SIZE_MAX }
    }

    fn places(&self) -> Result<Places, OpenError> {
        checked_count("the number of receives", self.receives)?;
        checked_len_max(self.len_max)?;
        let (count, len_max) = (self.receives, self.len_max);
        Ok(Places { count, stride: padded(len_max), len_max })
    }
}

/// The settings that a queue shared by senders has to be opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SharedConfig {
    /// The application's name for the channel: whatever tells it from others of its receiver.
    pub name: u64,
    /// How many messages of all senders together may have come and not be processed. 1 to
    /// [`RECEIVES_MAX`].
    pub receives: u16,
    /// The longest message, in bytes: 1 to [`OP_SIZE_MAX`].
    pub len_max: u32,
}

impl SharedConfig {
    /// 256 messages of up to 4 KiB.
    pub const DEFAULT: Self = Self { name: 0, receives: 256, len_max: OP_SIZE_MAX };
}

impl Default for SharedConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Refuses a number of receives, or of messages that wait, that cannot be.
fn checked_count(what: &'static str, count: u16) -> Result<(), OpenError> {
    within(what, count, 1..=RECEIVES_MAX.into(), "it must be 1 to 32768")
}

/// Refuses messages that no op can carry.
fn checked_len_max(len_max: u32) -> Result<(), OpenError> {
    within("the longest message", len_max, 1..=OP_SIZE_MAX.into(), "it must be 1 to 4096")
}

rma_core::settings!(SendRecvConfig, SharedConfig);

#[cfg(test)]
mod tests;
