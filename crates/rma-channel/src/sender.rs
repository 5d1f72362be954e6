//! The senders of all channels: the paper's sender API (§6), and the states of their messages.

use core::{fmt, ops::Range};

use rma_core::{
    executor::{CallError, CallStatus},
    region::RegisteredRegion,
    time::Instant,
};
use thiserror::Error;

use crate::{
    close::Close,
    link::Link,
    ring::{Malformed, Position, WORD, padded},
};

/// A sender's messages: the part of a [`Sender`] that needs no link.
pub trait Outgoing: Close + fmt::Debug {
    /// The longest message, in bytes. Channels of slots and of sends use as much memory for a
    /// shorter one.
    fn len_max(&self) -> u32;

    /// How many bytes before a message, and behind it, padded to 8, the channel writes beside it
    /// when it is sent where it lies ([`SendRegion`]): what the paper appends to messages. Zero
    /// where it appends nothing.
    fn beside(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Returns the state of a message: the paper's `TestSendRequest`. The state never goes back.
    fn test(&self, handle: SendHandle) -> SendState;

    /// When [`Sender::poll`] has something to do even if nothing comes; `None` if it has not.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A sender's end of a channel.
pub trait Sender: Outgoing {
    /// Sends a message, which is copied: it may be changed at once. [`Link::copied_bytes`] counts
    /// it. What must be issued for it leaves with the next [`Link::poll`], or when it is its turn.
    ///
    /// # Errors
    /// If it cannot be, if there is no room, or a message before it has failed. Then nothing was
    /// taken.
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError>;

    /// Takes what became of messages, and does what is due. To be called after [`Link::poll`],
    /// again and again.
    ///
    /// # Errors
    /// If the receiver tells what cannot be, or a message has failed: it stays so.
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError>;
}

/// A sender that sends out of the application's own memory, without a copy: the paper's
/// `SendRegion`. It exists where Table 2 has zero-copy on send.
pub trait SendRegion: Sender {
    /// Sends `range` of `region`, which is a message. Its bytes must not change until it is
    /// [`SendState::Accepted`], and those beside it ([`Outgoing::beside`]) are the channel's until
    /// then.
    ///
    /// # Errors
    /// As [`Sender::send`]; and if the range is not within the region with what is beside it, or
    /// something is beside it and it does not begin at a multiple of 8.
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError>;
}

/// The name of a message, for its sender: by the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendHandle(pub(crate) Position);

/// The state of a message so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// It is gathered, or under way.
    Sending,
    /// It is in the receiver's memory.
    Accepted,
    /// The receiver has processed it, and all before it.
    Processed,
    /// It was not published, and will not be; or it may be and nobody knows
    /// ([`CallStatus::Unknown`]).
    Failed(CallStatus),
}

/// The reason why a message was not taken. Nothing was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// It has no bytes, or too many.
    #[error("a message of {len} bytes: this channel takes 1 to {max}; send it in parts")]
    Len {
        /// How many bytes it has.
        len: usize,
        /// The longest.
        max: u32,
    },
    /// It is not the one length that messages of this channel have.
    #[error("a message of {len} bytes: this channel takes words of {needed}; fill it up")]
    NotAWord {
        /// How many bytes it has.
        len: usize,
        /// How many it has to have.
        needed: u32,
    },
    /// There is no room for it at the receiver, or among the calls of the link, until others are
    /// processed or over.
    #[error("the channel is full: poll the link and the channel, and send again")]
    Full,
    /// A message before it was not published, so this one could not be received.
    #[error("the channel is broken: its message {handle} ended with {status}; set it up anew")]
    Broken {
        /// The message.
        handle: SendHandle,
        /// The status that it ended with.
        status: CallStatus,
    },
    /// This sender has no grant for the present epoch of the channel: its receiver has taken back
    /// what dead senders had reserved too often since, or what this one had, or has been opened
    /// anew.
    #[error(
        "none of the {epochs} epochs that this sender has grants for is the channel's present one; ask its receiver \
         for new terms, and send again what is not accepted"
    )]
    Revoked {
        /// How many epochs it was given grants for.
        epochs: usize,
    },
    /// The bytes are not where this channel can send them from.
    #[error(
        "{start}..{end} of a region of {len} bytes: begin at a multiple of 8, with {before} bytes before the message \
         and {behind} behind it, padded to 8, within the region"
    )]
    Place {
        /// The offset of the message's first byte.
        start: u64,
        /// The offset of its end.
        end: u64,
        /// How long the region is.
        len: u64,
        /// How many bytes the channel needs before it.
        before: u64,
        /// And behind it.
        behind: u64,
    },
    /// The receiver tells what cannot be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A call was refused: the link is not one for these grants and regions.
    #[error("the link refuses a write: {0}")]
    Call(CallError),
}

impl fmt::Display for SendHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}", self.0.to_bits())
    }
}

/// The message's length, if it is one that a channel of messages of up to `max` bytes takes.
pub(crate) fn checked_len(len: usize, max: u32) -> Result<u32, SendError> {
    let fits = u32::try_from(len).ok().filter(|&len| 0 < len && len <= max);
    fits.ok_or(SendError::Len { len, max })
}

/// Translates a call's refusal for the sender.
pub(crate) const fn refused(error: CallError) -> SendError {
    match error {
        CallError::TooManyCalls { .. } | CallError::TooManyRemotes(_) => SendError::Full,
        error => SendError::Call(error),
    }
}

/// The length of the message in `range` of `region`, if it can be sent from there with so many
/// bytes `before` and `behind` it.
pub(crate) fn checked_place(
    region: &RegisteredRegion,
    range: &Range<u64>,
    before: u64,
    behind: u64,
    max: u32,
) -> Result<u32, SendError> {
    let Range { start, end } = *range;
    let len = checked_len(end.saturating_sub(start) as usize, max)?;
    let is_alone = (before, behind) == (0, 0);
    let whole = if is_alone { u64::from(len) } else { padded(len) };
    let fits = start >= before
        && start.checked_add(whole + behind).is_some_and(|end| end <= region.reach())
        && (is_alone || start.is_multiple_of(WORD));
    let len_of_region = region.len();
    let place = SendError::Place { start, end, len: len_of_region, before, behind };
    if fits { Ok(len) } else { Err(place) }
}
