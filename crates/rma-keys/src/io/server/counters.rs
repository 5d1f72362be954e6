//! The limits and counters of a service, and the state that its loop shows to other threads.
//!
//! Counters only ascend.

use std::sync::{Mutex, atomic::AtomicBool};

use crate::io::{
    poller::Waker,
    server::{admission::Places, connection::Times, reason::EndReason},
};

/// The limits of connections, in room and in time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// How many there may be.
    pub places: Places,
    /// How long they may take.
    pub times: Times,
}

/// The counters of a service's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Connections that came.
    pub accepted: u64,
    /// Connections that could not be taken, as the process has no more files.
    pub not_accepted: u64,
    /// Handshakes that ended well.
    pub handshakes: u64,
    /// Messages that were answered.
    pub messages: u64,
    /// Credentials that were taken from files that had changed.
    pub reloaded: u64,
    /// Files that had changed and were not taken.
    pub not_reloaded: u64,
    pub(super) ended: [u64; EndReason::ALL.len()],
}

impl ServerCounters {
    /// How many connections have ended for this reason.
    #[must_use]
    pub const fn ended(&self, reason: EndReason) -> u64 {
        self.ended[reason as usize]
    }

    pub(super) const fn count(&mut self, reason: EndReason) {
        self.ended[reason as usize] += 1;
    }
}

/// The state that a loop shows to other threads.
#[derive(Debug)]
pub(in crate::io) struct Shared {
    pub(in crate::io) waker: Waker,
    pub(in crate::io) stops: AtomicBool,
    pub(in crate::io) counters: Mutex<ServerCounters>,
}
