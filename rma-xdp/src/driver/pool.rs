//! The arithmetic of one pool: what is reserved, what is left for all, and what of it is in use.
//!
//! It knows amounts only: not which slots or bytes they are, nor whose they are called. Always
//! true: the reservations and the rest make up the capacity, and of each no more is in use than
//! there is.

use crate::driver::tenant::{PoolUsage, Quota};

/// The source of an allocation, which comes from it wholly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Reservation,
    Rest,
}

/// A part of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    size: u64,
    used: u64,
}

impl Part {
    const fn free(self) -> u64 {
        self.size - self.used
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    capacity: u64,
    rest: Part,
}

/// The share of one tenant in a pool.
#[derive(Debug)]
pub(crate) struct Share {
    reservation: Part,
    /// The amount that it has of the pool's rest.
    of_rest: u64,
    max: u64,
}

impl Share {
    pub(super) const fn used(&self) -> u64 {
        self.reservation.used + self.of_rest
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(crate) const fn reserved_free(&self) -> u64 {
        self.reservation.free()
    }
}

impl Pool {
    pub(super) const fn new(capacity: u64) -> Self {
        Self { capacity, rest: Part { size: capacity, used: 0 } }
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How much could be reserved: what is neither reserved nor in use.
    pub(super) const fn rest_free(&self) -> u64 {
        self.rest.free()
    }

    /// The share of a new tenant; `None` if that much cannot be reserved.
    pub(super) fn open(&mut self, quota: Quota) -> Option<Share> {
        let Quota { reserved, max } = quota;
        if reserved > self.rest.free() {
            return None;
        }
        self.rest.size -= reserved;
        Some(Share { reservation: Part { size: reserved, used: 0 }, of_rest: 0, max })
    }

    /// Ends a reservation. Nothing of the share is in use.
    pub(super) fn close(&mut self, share: &Share) {
        debug_assert_eq!(share.used(), 0);
        self.rest.size += share.reservation.size;
    }

    /// How much of the rest is kept from those who leave `percent` of it free.
    fn kept(&self, percent: u8) -> u64 {
        let hundredths = u128::from(self.rest.size) * u128::from(percent.min(100));
        // At most `rest.size`.
        hundredths.div_ceil(100) as u64
    }

    /// How much could be had of the rest, leaving `percent` of it free; and how much more is free
    /// and left.
    pub(super) fn rest_for(&self, percent: u8) -> (u64, u64) {
        let free = self.rest.free();
        let available = free.saturating_sub(self.kept(percent));
        (available, free - available)
    }

    /// How much could be had of the rest, leaving `percent` of it free, once `returned` are given
    /// back to it.
    pub(super) fn rest_after(&self, returned: u64, percent: u8) -> u64 {
        (self.rest.free() + returned).saturating_sub(self.kept(percent))
    }

    pub(super) fn usage(&self, share: &Share, percent: u8) -> PoolUsage {
        let used = share.used();
        let most = share.reserved_free().max(self.rest_for(percent).0);
        PoolUsage { used, available: most.min(share.max.saturating_sub(used)) }
    }

    /// Whether `amount` can come from there. The quota is another question.
    pub(super) fn has(&self, share: &Share, source: Source, amount: u64, percent: u8) -> bool {
        amount
            <= match source {
                Source::Reservation => share.reserved_free(),
                Source::Rest => self.rest_for(percent).0,
            }
    }

    /// Returns the source of `amount`, if it can be had.
    pub(super) fn source(&self, share: &Share, amount: u64, percent: u8) -> Option<Source> {
        let has = |&source: &Source| self.has(share, source, amount, percent);
        [Source::Reservation, Source::Rest].into_iter().find(has)
    }

    /// Allocates what `has` or `source` has just said can be had.
    pub(super) fn charge(&mut self, share: &mut Share, source: Source, amount: u64) {
        match source {
            Source::Reservation => share.reservation.used += amount,
            Source::Rest => {
                self.rest.used += amount;
                share.of_rest += amount;
            }
        }
        debug_assert!(share.reservation.used <= share.reservation.size);
        debug_assert!(self.rest.used <= self.rest.size);
    }

    /// Gives back what was charged.
    pub(super) fn refund(&mut self, share: &mut Share, source: Source, amount: u64) {
        match source {
            Source::Reservation => share.reservation.used -= amount,
            Source::Rest => {
                self.rest.used -= amount;
                share.of_rest -= amount;
            }
        }
    }
}
