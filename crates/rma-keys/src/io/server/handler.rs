//! The handler that answers a service's messages, as its loop calls it.
//!
//! It is asked on the loop's thread, and whatever time it takes, all clients wait for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::time::Instant;

use crate::{peer::Peer, policy::Authorizer, recorded::Recorded, secret::Octets, time::Now};

/// Answers messages.
pub trait Handler {
    /// The reply to a message of a client that has proved who it is.
    fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Octets;

    /// Does what must be done by now, and says when it wants to be asked again at the latest.
    fn poll(&mut self, now: Now) -> Option<Instant> {
        let _ = now;
        None
    }
}

impl<F: FnMut(Now, &Peer, &[u8]) -> Octets> Handler for F {
    fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Octets {
        self(now, peer, message)
    }
}

/// Answers as a service with its log does, which its owner's rotations change meanwhile.
#[derive(Clone, Debug)]
pub struct Answers<A>(pub Arc<Mutex<Recorded<A>>>);

impl<A> Answers<A> {
    fn lock(&self) -> MutexGuard<'_, Recorded<A>> {
        // Whoever panicked under this lock has been shown; the service goes on.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Authorizer> Handler for Answers<A> {
    fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Octets {
        self.lock().handle(now, peer, message)
    }

    fn poll(&mut self, now: Now) -> Option<Instant> {
        self.lock().poll(now)
    }
}
