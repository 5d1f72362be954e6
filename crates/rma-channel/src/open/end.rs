//! Abilities of ends that some kinds have and others do not.

use rma_core::{
    gate::{Gate, Peer},
    receive_queue::ReceiveQueue,
    time::Instant,
};

use crate::{
    close::Close,
    receiver::RecoverError,
    terms::{Admitted, Half, OpenError},
};

/// An end, and what it can do besides sending or receiving. Most have one peer and nothing to
/// recover.
pub trait End: Close {
    /// As [`Any::admit`](super::Any::admit).
    ///
    /// # Errors
    /// If the kind has one sender and one receiver, or as for that kind.
    fn admit(&mut self, _: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
        Err(OpenError::OnePeer { peer })
    }

    /// A peer that was admitted has joined.
    fn seat(&mut self, _: Admitted) {}

    /// As [`Any::events`](super::Any::events).
    fn events(&self) -> Option<&ReceiveQueue> {
        None
    }

    /// As [`Any::poll_recovery`](super::Any::poll_recovery).
    ///
    /// # Errors
    /// As that.
    fn poll_recovery(&mut self, _: &dyn Gate, _: Instant) -> Result<bool, RecoverError> {
        Ok(false)
    }

    /// As [`Any::recovery_timeout`](super::Any::recovery_timeout).
    fn recovery_timeout(&self) -> Option<Instant> {
        None
    }

    /// As [`Any::take_back`](super::Any::take_back).
    ///
    /// # Errors
    /// If the kind lends nothing, or the host refuses.
    fn take_back(&mut self, _: &dyn Gate, from: Peer) -> Result<(), RecoverError> {
        Err(RecoverError::NothingLent { from })
    }

    /// As [`Any::unfilled`](super::Any::unfilled).
    fn unfilled(&self) -> u64 {
        0
    }
}
