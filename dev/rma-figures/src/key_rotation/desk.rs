//! The desk between the threads of a region's owner and of its clients.
//!
//! Neither waits: an empty mailbox costs a look at one flag.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use rma_xdp::{OpStatus, RegionKey};

/// A place for one thing. What is put in replaces what was not taken.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    is_full: AtomicBool,
    thing: Mutex<Option<T>>,
}

impl<T> Mailbox<T> {
    pub(super) fn put(&self, thing: T) {
        *self.thing.lock().unwrap_or_else(PoisonError::into_inner) = Some(thing);
        self.is_full.store(true, Ordering::Release);
    }

    pub(super) fn take(&self) -> Option<T> {
        if !self.is_full.load(Ordering::Acquire) {
            return None;
        }
        let thing = self.thing.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.is_full.store(false, Ordering::Release);
        thing
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { is_full: AtomicBool::new(false), thing: Mutex::new(None) }
    }
}

/// A task of the third party in the owner's rotation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Have the region go by this key.
    Rekey(RegionKey),
    /// Find out whether it does.
    Probe(RegionKey),
}

/// A change of the key that is known to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swapped {
    /// The number of the epoch that has begun.
    pub(super) epoch: u64,
    /// When the owner's host began to install the key, and when it had: not if a third party did.
    pub(super) at: Option<(u64, u64)>,
}

/// All mailboxes between the two.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// To the owner: change the key now.
    pub(super) wanted: Mailbox<()>,
    /// To the clients: it has changed.
    pub(super) swapped: Mailbox<Swapped>,
    /// To the third party.
    pub(super) step: Mailbox<Step>,
    /// The outcome of that step.
    pub(super) ended: Mailbox<OpStatus>,
}
