//! What a sender is told of its messages, whichever channel they go by.

use core::fmt;

use rma_core::executor::{CallError, CallStatus};
use thiserror::Error;

use crate::ring::{Malformed, Position};

/// The name of a message, for its sender: by the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendHandle(pub(crate) Position);

/// What became of a message so far.
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

/// Why a message was not taken. Nothing was issued.
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
    /// There is no room for it in the ring, or among the calls of the link, until others are
    /// processed or over.
    #[error("the ring is full: poll the link and the channel, and send again")]
    Full,
    /// A message before it was not published, so this one could not be received.
    #[error("the channel is broken: its message {handle} ended with {status}; set it up anew")]
    Broken {
        /// Which message.
        handle: SendHandle,
        /// How it ended.
        status: CallStatus,
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
