//! The engines of a host, as they reach each other (not in the paper, whose NIC is one).
//!
//! Each ordered pair has a ring for frames and a ring for keys, in
//! [`engine`](crate::engine::Neighbours) and [`nic`](crate::nic::KeyRings). Both tell the other
//! engine in the same way: a flag in its word of news, and its doorbell.

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;

use rma_shm::{Flags, Line};

use crate::{crypto::EngineId, wake::Bell};

/// The first bit of an engine's word of news that is for keys; those before it are for frames.
pub(crate) const FIRST_KEY_BIT: u32 = Flags::COUNT / 2;

/// An engine of a host, as the others reach it.
#[derive(Clone, Debug)]
pub struct Seat {
    /// A bit for each other engine that has frames for it, and one for each that has keys.
    pub news: Flags,
    /// Wakes its thread. `None`: nobody sleeps there.
    pub bell: Option<Bell>,
    /// Set when it will take no turn any more.
    pub ended: Arc<AtomicBool>,
}

impl Seat {
    /// A seat whose engine is awake, with this bell.
    #[must_use]
    pub fn new(bell: Option<Bell>, ended: Arc<AtomicBool>) -> Self {
        Self { news: Flags::new(), bell, ended }
    }

    /// Says that there is something for the engine, by this bit of its word, and wakes it.
    pub(crate) fn tell(&self, bit: u32) {
        self.news.raise(bit);
        if let Some(bell) = &self.bell
            && bell.doorbell.needs_ring_after_fence()
        {
            bell.wake.wake();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }
}

/// A word of a service to the same service of another engine of its host.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The engine.
    pub to: EngineId,
    /// The content. Its first octet is the engine's: the service leaves it 0.
    pub line: Line,
}

/// Each engine with each other one, by their indices.
pub(crate) fn pairs(engines: usize) -> impl Iterator<Item = (usize, usize)> {
    let to = move |from| (0..engines).filter(move |&to| to != from).map(move |to| (from, to));
    (0..engines).flat_map(to)
}
