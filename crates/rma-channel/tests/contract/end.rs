//! A receiver's end, as the contract drives it: with the registrar of its node, where it takes back
//! what senders have reserved.

use rma_channel::{
    Claims, DuplexReceiver, ReceiveError, Receiver, RecoverError, read_ring, read_slot,
    ring_buffer::{self, with_zeroing, without_zeroing},
    send_recv::{bufferless, normal, shared},
    shared_ring::receiver::{Finds, SharedReceiver},
    write_slot::{detached_bell, immediate, inlined_bell, reserve_slot},
};
use rma_core::time::Instant;

use super::world::NodeRegistrar;

/// A receiver. Most recover nothing.
pub(crate) trait End: Receiver {
    /// Takes back what senders have reserved for too long, if it is time; says whether it did.
    fn recover(&mut self, _: &mut NodeRegistrar<'_>, _: Instant) -> Result<bool, ReceiveError> {
        Ok(false)
    }

    /// When it has something to do, if nothing comes until then: by itself, or to recover.
    fn wake_at(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    /// How many bytes senders have reserved beyond what has come without a gap.
    fn unfilled(&self) -> u64 {
        0
    }
}

/// What a recovery says. These hosts refuse nothing.
fn said<T, E: core::error::Error>(
    done: Result<Option<T>, RecoverError<E>>,
) -> Result<bool, ReceiveError> {
    match done {
        Ok(done) => Ok(done.is_some()),
        Err(RecoverError::Receive(error)) => Err(error),
        Err(RecoverError::Host(error)) => panic!("{error}"),
    }
}

impl<F: Finds> End for SharedReceiver<F> {
    fn recover(&mut self, it: &mut NodeRegistrar<'_>, now: Instant) -> Result<bool, ReceiveError> {
        said(self.poll_recovery(it, now))
    }

    fn wake_at(&self) -> Option<Instant> {
        self.recovery_timeout()
    }

    fn unfilled(&self) -> u64 {
        Self::unfilled(self)
    }
}

impl End for reserve_slot::Receiver {
    fn recover(&mut self, it: &mut NodeRegistrar<'_>, now: Instant) -> Result<bool, ReceiveError> {
        said(self.poll_recovery(it, now))
    }

    fn wake_at(&self) -> Option<Instant> {
        self.recovery_timeout()
    }
}

impl<R: Claims> End for DuplexReceiver<R> where Self: Receiver {}
impl End for normal::Receiver {}
impl End for shared::Receiver {}
impl End for bufferless::Receiver {}
impl End for detached_bell::Receiver {}
impl End for detached_bell::WakingReceiver {}
impl End for inlined_bell::Receiver {}
impl End for immediate::Receiver {}
impl End for ring_buffer::detached_bell::Receiver {}
impl End for ring_buffer::immediate::Receiver {}
impl End for with_zeroing::Receiver {}
impl End for without_zeroing::Receiver {}
impl End for read_ring::detached_bell::Receiver {}
impl End for read_ring::inlined_bell::Receiver {}
impl End for read_ring::notify_receiver::Receiver {}
impl End for read_slot::detached_bell::Receiver {}
impl End for read_slot::indirect_read::Receiver {}
impl End for read_slot::inlined_bell::Receiver {}
impl End for read_slot::notify_receiver::Receiver {}
