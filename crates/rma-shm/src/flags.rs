//! Flags: which of up to 64 applications' rings an engine must look into.
//!
//! An engine with a thousand rings cannot look into each of them in every turn. So it looks into
//! those whose flag is up, and at the flags of 64 rings at once: they are one word. An application
//! [raises](Flags::raise) its flag after a push, if it is down. The engine
//! [lowers](Flags::lower) it when the ring has been empty for a while. So while a ring is in use
//! its flag stays up, and raising it is one look at a line that nobody writes.
//!
//! # Why no line is lost
//!
//! Both sides store first and look afterwards, with a sequentially consistent fence between
//! (Dekker's pattern, as the [doorbell](crate::doorbell)):
//!
//! | engine | application |
//! |---|---|
//! | 1. [`lower`](Flags::lower): clear the flag, fence | 1. push a line |
//! | 2. look into the ring once more | 2. [`raise`](Flags::raise): fence, read the flag |
//! | 3. a line there: go on looking into it; else not until the flag is up | 3. if it is down, set it |
//!
//! The two fences are in one order that both threads agree on. If the engine's is first, the
//! application sees that the flag is down and sets it. If the application's is first, the engine
//! sees the line when it looks once more. An engine that looks first and lowers then would lose a
//! line that comes between. `tests/loom.rs` walks through every meeting of the two.
//!
//! A doorbell comes after the flag, and an engine that is going to sleep looks at both, the flags
//! and the rings that it looks into anyway. [`raise`](Flags::raise) ends with a fence, so
//! [`Doorbell::needs_ring_after_fence`](crate::Doorbell::needs_ring_after_fence) follows it and
//! makes none of its own.
//!
//! # Who may write the word
//!
//! All whose flags are in it can raise and clear each other's: a flag that somebody else cleared is
//! a ring that is not looked into until its application pushes again. So the flags of one word are
//! of one process, or of processes that trust each other; who does not trust them has a word of his
//! own, in memory that he shares with the engine alone. A word is all that a hostile process has:
//! each flag that it raises costs its engine one look into a ring of that process, and one that it
//! clears makes its own ring wait. Bits that are nobody's flag the engine does not look at.

use crate::sync::{Ordering, fence};
#[cfg(not(loom))]
use crate::{
    mapping::{LayoutError, Lone, Mapping, Part},
    sync::Arc,
};

/// The place of the word.
#[cfg(not(loom))]
type Bits = Part<Lone>;
#[cfg(loom)]
type Bits = crate::sync::Arc<crate::sync::Word>;

/// The flags of up to [`Flags::COUNT`] rings that one engine takes lines from. Shared by that
/// engine and the applications that push: a clone is the same word. All flags are down at first.
#[derive(Clone, Debug)]
pub struct Flags {
    bits: Bits,
}

#[cfg(not(loom))]
impl Flags {
    /// The bytes that a word of flags takes in a mapping.
    pub const FOOTPRINT: usize = size_of::<Lone>();

    /// Flags for threads of this process.
    #[must_use]
    pub fn new() -> Self {
        let mapping = Arc::new(Mapping::heap(Self::FOOTPRINT));
        Self::at(&mapping, 0).expect("a mapping of the flags' footprint")
    }

    /// The flags at offset `at` of `mapping`. The process that formats that part of the mapping
    /// leaves zeros there: all flags are down.
    ///
    /// # Errors
    ///
    /// If no flags fit there.
    pub fn at(mapping: &Arc<Mapping>, at: usize) -> Result<Self, LayoutError> {
        Ok(Self { bits: Part::new(mapping, at, Self::FOOTPRINT)? })
    }

    /// Whether `other` is the same word, at the same address of this process.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        core::ptr::eq(&raw const *self.bits, &raw const *other.bits)
    }
}

#[cfg(loom)]
impl Flags {
    /// Flags that are all down.
    #[must_use]
    pub fn new() -> Self {
        Self { bits: Bits::new(crate::sync::Word::new(0)) }
    }
}

impl Flags {
    /// How many flags there are, from 0 on.
    pub const COUNT: u32 = u64::BITS;

    const fn bit(index: u32) -> u64 {
        1 << (index % Self::COUNT)
    }

    /// Application, after a push: sees to it that flag `index` (modulo [`Flags::COUNT`]) is up.
    ///
    /// After a burst of pushes one call is enough. Ends with a sequentially consistent fence.
    #[inline]
    pub fn raise(&self, index: u32) {
        fence(Ordering::SeqCst);
        // Only if it is down: a locked instruction would take the line away from the engine, which
        // looks at it in every turn.
        if self.bits.load(Ordering::Relaxed) & Self::bit(index) == 0 {
            self.set(index);
        }
    }

    /// Apart, as it is rare: the first push in a while.
    #[cold]
    fn set(&self, index: u32) {
        // Release, so that what was pushed before is there for whoever sees the flag.
        self.bits.fetch_or(Self::bit(index), Ordering::Release);
        // A later step, such as a look at a doorbell, comes after the flag.
        fence(Ordering::SeqCst);
    }

    /// Engine: which flags are up, as bits. It may find any bit up, whoever has flags here.
    #[inline]
    #[must_use]
    pub fn raised(&self) -> u64 {
        self.bits.load(Ordering::Acquire)
    }

    /// Engine: takes flag `index` (modulo [`Flags::COUNT`]) down. Next, look into its ring once
    /// more: what was pushed meanwhile may have found the flag up.
    pub fn lower(&self, index: u32) {
        self.bits.fetch_and(!Self::bit(index), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

impl Default for Flags {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_up_from_the_first_push_until_it_is_lowered_and_no_other_moves() {
        let (flags, same) = (Flags::new(), Flags::new());
        assert!(flags.is(&flags.clone()) && !flags.is(&same));
        assert_eq!(flags.raised(), 0);
        for index in [3, 63, 3] {
            flags.raise(index);
        }
        assert_eq!(flags.raised(), 1 << 3 | 1 << 63);
        flags.lower(3);
        flags.lower(5);
        assert_eq!(flags.raised(), 1 << 63);
        assert_eq!(same.raised(), 0);
    }

    #[test]
    fn flags_lie_in_a_mapping_and_write_one_word_of_it() {
        let mapping = Arc::new(Mapping::heap(3 * Flags::FOOTPRINT));
        let [here, there] = [(); 2].map(|()| Flags::at(&mapping, Flags::FOOTPRINT).unwrap());
        here.raise(0);
        assert_eq!(there.raised(), 1);
        let words = mapping.words().iter().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(words.sum::<u64>(), 1);
        assert!(Flags::at(&mapping, 3 * Flags::FOOTPRINT).is_err());
    }
}
