//! The receiving application of `rma-bench serve`: it takes every message as it comes,
//! compares it byte by byte, and posts its receive again.
//!
//! A message is what the sender's pattern has at the place that its immediate names, so the
//! receiver knows what each should be. Invariant: whatever was told OK to its sender was counted
//! here.

use rma_lab::Pattern;
use rma_xdp::{
    HostError, HostOf, Permissions, ReceiveQueue, engine::EngineKind, messages::ReceiveQueueLayout,
    ops::OP_SIZE_MAX,
};

use crate::{client::Client, error::PairError, line};

/// Receives: messages that may have come between two turns, and more.
pub const RECEIVES: u16 = 64;

/// The messages that came into a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// How many.
    pub messages: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

/// A receive queue, and what came into it.
#[derive(Debug)]
pub struct Inbox {
    queue: ReceiveQueue,
    pattern: Pattern,
    bytes: Vec<u8>,
    received: Received,
    /// Messages that were not what they should be.
    wrong: u64,
}

impl Inbox {
    /// A queue of `host` for whoever sends the pattern of `seed`. All receives are posted.
    ///
    /// # Errors
    /// If the host has no room for it.
    ///
    /// # Panics
    /// Never: a queue can be as large as this one.
    pub fn open(
        host: &HostOf<impl EngineKind>,
        seed: u64,
        permissions: Permissions,
    ) -> Result<Self, HostError> {
        let layout = ReceiveQueueLayout::new(RECEIVES, OP_SIZE_MAX).expect("within the limits");
        let mut queue = host.receive_queue(layout, permissions)?;
        queue.post_all();
        let pattern = Client::source_pattern(Pattern::new(seed));
        let bytes = vec![0; OP_SIZE_MAX as usize];
        Ok(Self { queue, pattern, bytes, received: Received::default(), wrong: 0 })
    }

    /// Returns the queue that messages arrive in.
    #[must_use]
    pub const fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }

    /// Counts the messages that have come.
    #[must_use]
    pub const fn received(&self) -> Received {
        self.received
    }

    /// Takes what has come. Returns whether there was something.
    ///
    /// # Panics
    /// Never: events are of receives that were posted, and no longer than they are.
    pub fn take(&mut self) -> bool {
        let Self { queue, pattern, bytes, received, wrong } = self;
        let before = received.messages;
        while let Some(event) = queue.poll() {
            let message = &mut bytes[..event.len as usize];
            queue.read(&event, message).expect("of a SEND, and no longer than a receive");
            queue.post(event.receive).expect("its event has come");
            received.messages += 1;
            received.bytes += u64::from(event.len);
            *wrong += u64::from(pattern.first_difference(event.immediate, message).is_some());
        }
        received.messages > before
    }

    /// Says what came.
    ///
    /// # Errors
    /// If a message was not what it should be.
    pub fn report(&self) -> Result<(), PairError> {
        let &Self { received: Received { messages, bytes }, wrong, .. } = self;
        if wrong > 0 {
            return Err(PairError::WrongMessages { wrong, messages });
        }
        if messages == 0 {
            return Ok(());
        }
        let megabytes = bytes as f64 / 1e6;
        line!("\n  messages  {messages} came, {megabytes:.1} MB, every byte right");
        Ok(())
    }
}
