//! The layout that both ends of shared slots agree on, and each slot's bit.

use core::time::Duration;

use rma_core::{executor::ExecutorConfig, op::OpType};

#[cfg(doc)]
use super::super::SlotConfig;
use super::super::check_slots;
use crate::{
    ring::{WORD, padded},
    table::Kind,
    terms::{Agreed, OpenError, within},
};

/// The settings that its receiver opens shared slots with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct ReserveConfig {
    /// The application's name for the channel.
    pub name: u64,
    /// How many slots there are for all senders together: 1 to 32768.
    pub slots: u16,
    /// The longest message, in bytes: 1 to [`SlotConfig::LEN_MAX`].
    pub len_max: u32,
    /// For how many epochs a sender is given grants, 1 to 21: so many recoveries less one he lives
    /// through, and needs new terms then.
    pub epochs: u8,
    /// How long a slot may be taken without a message until it is taken back. It must be long
    /// enough for the longest message to be written, and the one before it: at least
    /// [`ReserveConfig::hole_timeout_min`], which is that for messages of one op. Longer: a sender
    /// that dies keeps a slot from the others for longer. Shorter than that: what is only slow is
    /// taken back, too, and has to be sent again.
    pub hole_timeout: Duration,
}

impl ReserveConfig {
    /// 256 slots for messages of up to 4 KiB, with eight epochs, between NICs with the default
    /// timing.
    pub fn new() -> Self {
        let timeout = ExecutorConfig::default().timeout;
        let hole_timeout = Self::hole_timeout_min(timeout * 2 / 5, timeout);
        Self { name: 0, slots: 256, len_max: 4096, epochs: 8, hole_timeout }
    }

    /// How long a sender that lives takes at most from when he has a slot until his message of one
    /// op is there, between NICs of this timing: what is left of his COMPARE_SWAP, which may have
    /// to be asked about, his message before, and this one. (If ops have to be repeated it may take
    /// longer; then the slot is taken back, and he takes another.)
    #[must_use]
    pub fn hole_timeout_min(dispatch_timeout: Duration, timeout: Duration) -> Duration {
        // Three ops that change something, of two timeouts each, and a question, of one.
        dispatch_timeout.saturating_mul(4).saturating_add(timeout.saturating_mul(7))
    }

    pub(super) fn agreed(&self) -> Agreed {
        let Self { name, slots, len_max, hole_timeout, .. } = *self;
        let micros = hole_timeout.as_micros() as u64;
        let numbers = [slots.into(), len_max.into(), micros];
        Agreed { kind: Kind::WriteSlotReserve, name, numbers }
    }

    pub(super) fn check(&self) -> Result<Slots, OpenError> {
        within("the number of epochs", self.epochs, 1..=EPOCHS_MAX, "it must be in 1..=21")?;
        if self.hole_timeout.is_zero() {
            let (what, why) = ("the time that a slot may be taken", "it must not be 0");
            return Err(OpenError::Settings { what, value: 0, why });
        }
        Slots::checked(self.slots.into(), self.len_max.into())
    }
}

impl Default for ReserveConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// With three grants for each, terms hold no more.
const EPOCHS_MAX: u64 = 21;

/// The ops that a sender needs grants for, in each epoch, all on the one region.
pub(super) const EACH: [(usize, OpType); 3] =
    [(0, OpType::CompareSwap), (0, OpType::WriteWithImm), (0, OpType::Write)];
pub(super) const NEEDS: &[OpType] = &[EACH[TAKE].1, EACH[LAST].1, EACH[OTHERS].1];
pub(super) const TAKE: usize = 0;
pub(super) const LAST: usize = 1;
pub(super) const OTHERS: usize = 2;

/// How many slots a word has bits for.
pub(super) const BITS: u16 = u64::BITS as u16;

/// The slots, and behind them the words that have a bit for each: set if it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) count: u16,
    pub(super) len_max: u32,
}

impl Slots {
    /// So many slots, for messages of so many bytes, if there can be.
    pub(super) fn checked(count: u64, len_max: u64) -> Result<Self, OpenError> {
        check_slots(count, len_max)?;
        Ok(Self { count: count as u16, len_max: len_max as u32 })
    }

    /// How far apart slots are, in bytes.
    pub(super) const fn stride(&self) -> u64 {
        padded(self.len_max)
    }

    /// All of them, in bytes.
    pub(super) const fn len(&self) -> u64 {
        self.count as u64 * self.stride()
    }

    /// How many words there are.
    pub(super) const fn words(&self) -> u16 {
        self.count.div_ceil(BITS)
    }

    /// Slots and words together, in bytes.
    pub(super) const fn memory_len(&self) -> u64 {
        self.offset(self.words())
    }

    /// Returns the offset of a word, in bytes: behind the slots. It is the same region, as a
    /// sender's op tells the receiver's NIC which op before it on that region is done: were there
    /// two, by turns, it would keep records of ops that nobody asks about.
    pub(super) const fn offset(&self, word: u16) -> u64 {
        self.len() + word as u64 * WORD
    }

    /// The bits of a word that are no slots': they are set for ever.
    pub(super) const fn none(&self, word: u16) -> u64 {
        let slots = self.count - word * BITS;
        if slots >= BITS { 0 } else { u64::MAX << slots }
    }
}

/// The word of a slot, and its bit there.
pub(super) const fn bit(slot: u16) -> (u16, u64) {
    (slot / BITS, 1 << (slot % BITS))
}

rma_core::settings!(ReserveConfig);
