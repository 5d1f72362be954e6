//! The rings that an AF_XDP socket and the kernel hand chunks to each other by: fill, completion,
//! receive and transmit.
//!
//! A ring has one producer and one consumer: what we produce the kernel consumes, and the other way
//! round. Two indices count the entries that were put in and taken out, and wrap; an entry's place
//! is its index modulo the ring's size, a power of two. Layout and order of accesses are those of
//! <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk_queue.h>.
//!
//! A ring knows nothing of packets. Who owns the chunk that an entry names, and whether the entry
//! names one at all, is up to [`super::umem`].
//!
//! Invariant: an entry is written before the index that shows it, and read after it. Whatever the
//! kernel has put into entries and indices, no access leaves the ring, and indices that make no
//! sense give neither entries nor room. Nothing here allocates, waits or calls the kernel once the
//! ring is mapped.

use core::{
    ptr::NonNull,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use std::os::fd::BorrowedFd;

use rustix::{
    io,
    net::{
        sockopt::{
            set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
            set_xdp_umem_fill_ring_size, xdp_mmap_offsets,
        },
        xdp::{
            XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
            XDP_UMEM_PGOFF_FILL_RING, XdpRingFlags, XdpRingOffset,
        },
    },
};

use super::memory::Memory;

/// An entry of a ring.
///
/// # Safety
/// A place consists of atomic words: all bytes are a value of it, and it may be shared with others
/// who write there.
pub(super) unsafe trait Entry: Copy + Default {
    /// Its place in a ring.
    type Place;

    /// Writes it to a place.
    fn store(self, place: &Self::Place);

    /// Reads the entry at a place.
    fn load(place: &Self::Place) -> Self;
}

/// A chunk's address in the UMEM: an entry of the fill and the completion ring.
// SAFETY: the place is an atomic word.
unsafe impl Entry for u64 {
    type Place = AtomicU64;

    #[inline]
    fn store(self, place: &AtomicU64) {
        place.store(self, Relaxed);
    }

    #[inline]
    fn load(place: &AtomicU64) -> Self {
        place.load(Relaxed)
    }
}

/// A packet or part of one (`struct xdp_desc`): an entry of the receive and the transmit ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Desc {
    /// The first byte's address in the UMEM.
    pub(super) addr: u64,
    /// Octets from there on, in the same chunk.
    pub(super) len: u32,
    /// `XDP_PKT_CONTD`, or none.
    pub(super) options: u32,
}

/// The place of a [`Desc`], laid out as the kernel has it.
#[repr(C)]
pub(super) struct DescPlace {
    addr: AtomicU64,
    len: AtomicU32,
    options: AtomicU32,
}

// SAFETY: the place is three atomic words.
unsafe impl Entry for Desc {
    type Place = DescPlace;

    #[inline]
    fn store(self, place: &DescPlace) {
        place.addr.store(self.addr, Relaxed);
        place.len.store(self.len, Relaxed);
        place.options.store(self.options, Relaxed);
    }

    #[inline]
    fn load(place: &DescPlace) -> Self {
        let (len, options) = (place.len.load(Relaxed), place.options.load(Relaxed));
        Self { addr: place.addr.load(Relaxed), len, options }
    }
}

/// The memory of a ring.
struct Ring<E: Entry> {
    produced: NonNull<AtomicU32>,
    consumed: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    places: NonNull<[E::Place]>,
    /// All of them lie in it.
    _memory: Memory,
}

// SAFETY: the pointers are to atomic words in memory that belongs to the ring.
unsafe impl<E: Entry> Send for Ring<E> {}

impl<E: Entry> Ring<E> {
    fn new(memory: Memory, at: &XdpRingOffset, size: u32) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size}");
        let word = |offset: u64| memory.slice::<AtomicU32>(offset as usize, 1).cast();
        Self {
            produced: word(at.producer),
            consumed: word(at.consumer),
            flags: at.flags.map(word),
            places: memory.slice(at.desc as usize, size as usize),
            _memory: memory,
        }
    }

    fn map(socket: BorrowedFd<'_>, offset: u64, at: &XdpRingOffset, size: u32) -> io::Result<Self> {
        let len = at.desc as usize + size as usize * size_of::<E::Place>();
        Ok(Self::new(Memory::of(socket, offset, len)?, at, size))
    }

    /// How many entries have been put in, from the beginning on.
    #[inline]
    fn produced(&self) -> &AtomicU32 {
        // SAFETY: it is a word in the ring's memory.
        unsafe { self.produced.as_ref() }
    }

    /// How many have been taken out.
    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumed.as_ref() }
    }

    #[inline]
    fn flags(&self) -> Option<&AtomicU32> {
        // SAFETY: as above.
        self.flags.as_ref().map(|flags| unsafe { flags.as_ref() })
    }

    #[inline]
    fn places(&self) -> &[E::Place] {
        // SAFETY: the places are atomic words in the ring's memory.
        unsafe { self.places.as_ref() }
    }

    #[inline]
    fn place(&self, index: u32) -> &E::Place {
        let places = self.places();
        &places[index as usize & (places.len() - 1)]
    }
}

/// A ring that we put entries into: fill or transmit.
pub(super) struct Producer<E: Entry> {
    ring: Ring<E>,
    produced: u32,
    /// As the kernel's index was when we last looked.
    consumed: u32,
}

impl<E: Entry> Producer<E> {
    fn new(ring: Ring<E>) -> Self {
        let produced = ring.produced().load(Relaxed);
        let consumed = ring.consumed().load(Acquire);
        Self { ring, produced, consumed }
    }

    #[inline]
    fn room_seen(&self) -> usize {
        let there = self.produced.wrapping_sub(self.consumed);
        self.ring.places().len().saturating_sub(there as usize)
    }

    /// How many places are free. Looks at the kernel's index.
    #[inline]
    pub(super) fn room(&mut self) -> usize {
        self.consumed = self.ring.consumed().load(Acquire);
        self.room_seen()
    }

    /// Puts the entries in, and returns how many: all, or none if there is no room for all.
    #[inline]
    pub(super) fn produce(&mut self, entries: impl ExactSizeIterator<Item = E>) -> usize {
        let count = entries.len();
        if self.room_seen() < count && self.room() < count {
            return 0;
        }
        for entry in entries.take(count) {
            entry.store(self.ring.place(self.produced));
            self.produced = self.produced.wrapping_add(1);
        }
        self.ring.produced().store(self.produced, Release);
        count
    }

    /// Whether the kernel takes nothing out before a system call asks it to. Yes, if a ring has no
    /// flags.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        let asked = XdpRingFlags::XDP_RING_NEED_WAKEUP.bits();
        self.ring.flags().is_none_or(|flags| flags.load(Relaxed) & asked != 0)
    }
}

/// A ring that we take entries out of: completion or receive.
pub(super) struct Consumer<E: Entry> {
    ring: Ring<E>,
    consumed: u32,
    /// As the kernel's index was when we last looked.
    produced: u32,
}

impl<E: Entry> Consumer<E> {
    fn new(ring: Ring<E>) -> Self {
        let consumed = ring.consumed().load(Relaxed);
        let produced = ring.produced().load(Acquire);
        Self { ring, consumed, produced }
    }

    /// Takes entries out, oldest first, and returns how many. Looks at the kernel's index only when
    /// all that was there at the last look has been taken.
    #[inline]
    pub(super) fn consume(&mut self, into: &mut [E]) -> usize {
        if self.produced == self.consumed {
            self.produced = self.ring.produced().load(Acquire);
        }
        let there = self.produced.wrapping_sub(self.consumed) as usize;
        // More than there is room for was never put in.
        let there = if there > self.ring.places().len() { 0 } else { there };
        let count = there.min(into.len());
        if count > 0 {
            for entry in &mut into[..count] {
                *entry = E::load(self.ring.place(self.consumed));
                self.consumed = self.consumed.wrapping_add(1);
            }
            self.ring.consumed().store(self.consumed, Release);
        }
        count
    }
}

/// The sizes of a socket's rings, powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) fill: u32,
    pub(super) completion: u32,
    pub(super) receive: u32,
    pub(super) transmit: u32,
}

/// The rings of a socket.
pub(super) struct Rings {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) receive: Consumer<Desc>,
    pub(super) transmit: Producer<Desc>,
}

impl Rings {
    /// Makes and maps the rings of a socket that has a UMEM and is not bound yet.
    pub(super) fn open(socket: BorrowedFd<'_>, sizes: Sizes) -> io::Result<Self> {
        let Sizes { fill, completion, receive, transmit } = sizes;
        set_xdp_umem_fill_ring_size(socket, fill)?;
        set_xdp_umem_completion_ring_size(socket, completion)?;
        set_xdp_rx_ring_size(socket, receive)?;
        set_xdp_tx_ring_size(socket, transmit)?;
        let at = xdp_mmap_offsets(socket)?;
        let fill = Ring::map(socket, XDP_UMEM_PGOFF_FILL_RING, &at.fr, fill)?;
        let completion = Ring::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, completion)?;
        let receive = Ring::map(socket, XDP_PGOFF_RX_RING, &at.rx, receive)?;
        let transmit = Ring::map(socket, XDP_PGOFF_TX_RING, &at.tx, transmit)?;
        Ok(Self {
            fill: Producer::new(fill),
            completion: Consumer::new(completion),
            receive: Consumer::new(receive),
            transmit: Producer::new(transmit),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, os::fd::AsFd as _};

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const SIZE: u32 = 4;
    /// As the kernel lays a ring out.
    const AT: XdpRingOffset =
        XdpRingOffset { producer: 0, consumer: 64, flags: Some(132), desc: 192 };

    /// Both ends of a ring, one of them in the kernel's place. Its indices wrap after six entries.
    fn ends<E: Entry>() -> (Producer<E>, Consumer<E>) {
        let file = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        let ring = || Ring::map(file.as_fd(), 0, &AT, SIZE).unwrap();
        let first: Ring<E> = ring();
        first.produced().store(u32::MAX - 5, Relaxed);
        first.consumed().store(u32::MAX - 5, Relaxed);
        (Producer::new(first), Consumer::new(ring()))
    }

    fn desc(number: u32) -> Desc {
        Desc { addr: u64::from(number) << 32 | 7, len: number, options: !number }
    }

    proptest! {
        #[test]
        fn entries_come_whole_once_and_in_order(
            steps in proptest::collection::vec((any::<bool>(), 0_usize..6), 0..100),
        ) {
            let (mut producer, mut consumer) = ends();
            let (mut there, mut next) = (VecDeque::<Desc>::new(), 0);
            for (produces, count) in steps {
                if produces {
                    let entries: Vec<_> = (next..).take(count).map(desc).collect();
                    let fits = there.len() + count <= SIZE as usize;
                    prop_assert_eq!(producer.room(), SIZE as usize - there.len());
                    let produced = producer.produce(entries.iter().copied());
                    prop_assert_eq!(produced, if fits { count } else { 0 });
                    next += produced as u32;
                    there.extend(&entries[..produced]);
                    continue;
                }
                let mut into = [Desc::default(); 6];
                // What came since the last look may wait for the next one.
                let consumed = consumer.consume(&mut into[..count]);
                prop_assert!(consumed > 0 || count == 0 || there.is_empty());
                prop_assert!(there.drain(..consumed).eq(into[..consumed].iter().copied()));
            }
        }
    }

    #[test]
    fn indices_that_make_no_sense_give_no_entries_and_no_room() {
        let (mut producer, mut consumer) = ends::<u64>();
        producer.ring.produced().store(1 << 31, Relaxed);
        assert_eq!(consumer.consume(&mut [0; 64]), 0);
        producer.ring.consumed().store(1 << 30, Relaxed);
        assert_eq!((producer.room(), producer.produce([1].into_iter())), (0, 0));
    }

    #[test]
    fn a_wakeup_is_needed_if_the_kernel_says_so_or_has_no_flags() {
        let (mut producer, _consumer) = ends::<u64>();
        assert!(!producer.needs_wakeup());
        let flags = producer.ring.flags.take();
        assert!(producer.needs_wakeup());
        producer.ring.flags = flags;
        producer.ring.flags().unwrap().store(1, Relaxed);
        assert!(producer.needs_wakeup());
    }
}
