//! Receive queues: where SEND, NOTIFY and WRITE_WITH_IMM tell an application of themselves (not in
//! 1RMA; "Efficient RDMA communication protocols", sections 2 and 4.1).
//!
//! A queue is a row of the region table with buffers in place of bytes: a name, a K_r, permissions
//! and an owner, so grants, Rekey and quotas are those of regions. It has a fixed number of
//! *receives*, each with a buffer of one length, or without one, and two rings of lines that join
//! an application thread to its engine: *posts* one way, *events* the other.
//!
//! The application posts a receive by its number. Each op that comes consumes one, and leaves one
//! event: a queue has no senders, so any number of hosts may share it, and each event names its
//! own, which is authenticated. What is in a posted buffer before its event is undefined.
//!
//! The engine takes a post only while all posts that it has taken, and all events that have not
//! been read, fit the ring of events. So **that ring cannot be full when an op is applied**, and
//! there is no overflow to define: where no post can be taken, the sender is told REMOTE_NOT_READY.
//!
//! The engine's end, [`ReceiveQueuePort`], believes nothing that the application's end says: a
//! number that names no receive, or one that is posted already, is counted and ignored (P8).

use crate::{
    error::ReceiveQueueError,
    limits::{OP_SIZE_MAX, RECEIVES_MAX, WORD_LEN},
};

mod application;
mod event;
mod memory;
mod port;
#[cfg(test)]
mod tests;

pub use application::ReceiveQueue;
pub use event::Event;
pub use memory::ReceiveQueueMemory;
pub use port::{QueueWatch, ReceiveQueuePort};

/// One receive of a queue: its number, below the number of receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Receive(pub u16);

/// The size of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveQueueLayout {
    receives: u16,
    buffer_len: u32,
}

impl ReceiveQueueLayout {
    /// `receives` receives, 1 to [`RECEIVES_MAX`], with buffers of `buffer_len` bytes each, 0 to
    /// [`OP_SIZE_MAX`]. Without buffers a queue takes NOTIFY and WRITE_WITH_IMM only.
    ///
    /// # Errors
    /// If a queue cannot be so large.
    pub const fn new(receives: u16, buffer_len: u32) -> Result<Self, ReceiveQueueError> {
        if receives == 0 || receives > RECEIVES_MAX {
            return Err(ReceiveQueueError::Receives { receives });
        }
        if buffer_len > OP_SIZE_MAX {
            return Err(ReceiveQueueError::BufferLen { buffer_len });
        }
        Ok(Self { receives, buffer_len })
    }

    /// How many receives the queue has.
    #[must_use]
    pub const fn receives(self) -> u16 {
        self.receives
    }

    /// The length of each buffer, in bytes: the longest message.
    #[must_use]
    pub const fn buffer_len(self) -> u32 {
        self.buffer_len
    }

    /// How many bytes of memory the buffers take together; at least 1, as no memory has none.
    #[must_use]
    pub const fn memory_len(self) -> usize {
        let len = self.receives as usize * self.stride();
        if len == 0 { 1 } else { len }
    }

    /// How far apart buffers are: each begins a word, so that no two share one.
    const fn stride(self) -> usize {
        (self.buffer_len as usize).next_multiple_of(WORD_LEN)
    }

    /// Returns the offset of a receive's buffer in the queue's memory, in bytes: at a multiple of
    /// 8.
    #[must_use]
    pub const fn offset_of(self, receive: Receive) -> u64 {
        receive.0 as u64 * self.stride() as u64
    }
}
