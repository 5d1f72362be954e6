//! The place of a ring: its two indexes and its entries, found by a pointer and a mask. The module
//! above says what lies at which offset.
//!
//! Pointer and mask belong to this process: no offset and no length is read from shared memory.
//! Under loom a ring has modelled words instead, and no label.

use crate::{
    line::Line,
    sync::{Ordering, Word},
};

#[cfg(not(loom))]
pub(super) use mapped::Place;
#[cfg(loom)]
pub(super) use modelled::Place;

/// One line in shared memory. A cache line of its own, so that neighbours do not contend.
#[repr(C, align(64))]
pub(super) struct Entry([Word; Line::WORDS]);

impl Entry {
    /// Relaxed: the index that publishes the entry orders it.
    #[inline]
    pub(super) fn store(&self, line: &Line) {
        for (word, value) in self.0.iter().zip(line.0) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn load(&self) -> Line {
        Line(core::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }

    /// Writes one word, which counts modulo eight.
    pub(super) fn store_word(&self, word: usize, value: u64) {
        self.0[word % Line::WORDS].store(value, Ordering::Relaxed);
    }
}

/// Sees the index that `word` holds, and what was written before it. What the upper half holds
/// means nothing.
#[inline]
fn load(word: &Word) -> u32 {
    word.load(Ordering::Acquire) as u32
}

/// Lets the other side see an index, and what was written before it.
#[inline]
fn store(word: &Word, index: u32) {
    word.store(index.into(), Ordering::Release);
}

impl Place {
    #[inline]
    pub(super) fn tail(&self) -> u32 {
        load(self.tail_word())
    }

    #[inline]
    pub(super) fn set_tail(&self, tail: u32) {
        store(self.tail_word(), tail);
    }

    #[inline]
    pub(super) fn head(&self) -> u32 {
        load(self.head_word())
    }

    #[inline]
    pub(super) fn set_head(&self, head: u32) {
        store(self.head_word(), head);
    }
}

#[cfg(not(loom))]
mod mapped {
    use super::{super::Capacity, Entry};
    use crate::{
        mapping::{ALIGN, Label, LayoutError, Lone, Mapping, Part, Words},
        sync::Word,
    };
    use std::sync::Arc;

    /// The part before the entries.
    #[repr(C)]
    pub(super) struct Front {
        _label: Lone,
        /// Written by the producer only: one past the newest published line.
        tail: Lone,
        /// Written by the consumer only: the oldest line not yet taken.
        head: Lone,
    }

    const _: () = {
        assert!(core::mem::offset_of!(Front, tail) == 128);
        assert!(core::mem::offset_of!(Front, head) == 256);
        assert!(size_of::<Front>() == 384 && size_of::<Entry>() == 64);
    };

    // SAFETY: three arrays of words.
    unsafe impl Words for Front {}
    // SAFETY: an array of words.
    unsafe impl Words for Entry {}

    #[derive(Clone)]
    pub(in super::super) struct Place {
        front: Part<Front>,
        /// One less than the number of entries, which is a power of two.
        mask: u32,
    }

    impl Place {
        /// The bytes of a ring.
        pub(in super::super) const fn footprint(capacity: Capacity) -> usize {
            let len = size_of::<Front>() + capacity.get() * size_of::<Entry>();
            len.next_multiple_of(ALIGN)
        }

        const fn label(capacity: Capacity) -> Label {
            Label { kind: *b"1RMAring", version: 1, size: capacity.get() as u64 }
        }

        pub(in super::super) fn format(
            mapping: &Arc<Mapping>,
            at: usize,
            capacity: Capacity,
        ) -> Result<Self, LayoutError> {
            let len = Self::footprint(capacity);
            Self::label(capacity).format(mapping, at, len, || Self::new(mapping, at, capacity))
        }

        pub(in super::super) fn join(
            mapping: &Arc<Mapping>,
            at: usize,
            capacity: Capacity,
        ) -> Result<Self, LayoutError> {
            Self::label(capacity).check(mapping, at, Self::footprint(capacity))?;
            Self::new(mapping, at, capacity)
        }

        pub(in super::super) fn heap(capacity: Capacity) -> Self {
            let mapping = Arc::new(Mapping::heap(Self::footprint(capacity)));
            Self::format(&mapping, 0, capacity).expect("a mapping of the ring's footprint")
        }

        fn new(mapping: &Arc<Mapping>, at: usize, capacity: Capacity) -> Result<Self, LayoutError> {
            let front: Part<Front> = Part::new(mapping, at, Self::footprint(capacity))?;
            assert!(front.room_behind::<Entry>() >= capacity.get(), "the footprint covers them");
            Ok(Self { front, mask: capacity.get() as u32 - 1 })
        }

        /// The entry of line `index`. The mask keeps it inside the ring whatever `index` is.
        #[inline]
        pub(in super::super) fn entry(&self, index: u32) -> &Entry {
            // SAFETY: masked, it is less than the capacity, for which `new` has seen the room.
            unsafe { self.front.behind((index & self.mask) as usize) }
        }

        #[inline]
        pub(in super::super) const fn capacity(&self) -> u32 {
            self.mask + 1
        }

        #[inline]
        pub(super) fn tail_word(&self) -> &Word {
            &self.front.tail
        }

        #[inline]
        pub(super) fn head_word(&self) -> &Word {
            &self.front.head
        }
    }
}

#[cfg(loom)]
mod modelled {
    use super::{super::Capacity, Entry};
    use crate::sync::{Arc, Word};

    #[derive(Clone)]
    pub(in super::super) struct Place(Arc<Modelled>);

    struct Modelled {
        tail: Word,
        head: Word,
        entries: Box<[Entry]>,
    }

    impl Place {
        pub(in super::super) fn heap(capacity: Capacity) -> Self {
            let entry = |_| Entry(core::array::from_fn(|_| Word::new(0)));
            let entries = (0..capacity.get()).map(entry).collect();
            Self(Arc::new(Modelled { tail: Word::new(0), head: Word::new(0), entries }))
        }

        pub(in super::super) fn entry(&self, index: u32) -> &Entry {
            &self.0.entries[index as usize & (self.0.entries.len() - 1)]
        }

        pub(in super::super) fn capacity(&self) -> u32 {
            self.0.entries.len() as u32
        }

        pub(super) fn tail_word(&self) -> &Word {
            &self.0.tail
        }

        pub(super) fn head_word(&self) -> &Word {
            &self.0.head
        }
    }
}
