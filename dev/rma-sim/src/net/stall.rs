//! A node that is stopped in the midst of a frame: its clock between two readings.

use core::{cell::Cell, time::Duration};

use rma_core::time::{Clock, Instant};

/// How long a node is stopped while it handles a frame, and how often its clock is read for that
/// one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    pub(crate) length: Duration,
    pub(crate) readings_before: u32,
}

/// The clock of a node that is stopped between two readings.
pub(crate) struct Readings {
    pub(crate) before: Instant,
    pub(crate) after: Instant,
    /// How many frames are handled before that one.
    pub(crate) frames_left: Cell<usize>,
    pub(crate) left: Cell<u32>,
}

impl Readings {
    pub(crate) const fn still(now: Instant) -> Self {
        Self { before: now, after: now, frames_left: Cell::new(0), left: Cell::new(0) }
    }

    /// A frame has been handled. Whatever is read for the next ones, if it was the one, is read
    /// after.
    pub(crate) fn frame_over(&self) {
        match self.frames_left.get().checked_sub(1) {
            Some(left) => self.frames_left.set(left),
            None => self.left.set(0),
        }
    }
}

impl Clock for Readings {
    fn now(&self) -> Instant {
        if self.frames_left.get() > 0 {
            return self.before;
        }
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                self.before
            }
            None => self.after,
        }
    }
}
