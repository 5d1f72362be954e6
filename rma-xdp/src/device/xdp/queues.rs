//! The map in memory through which the steering program and the sockets tell each other about
//! queues.
//!
//! A socket says how often it has emptied its receive ring, and the program redirects no more
//! frames than fit beside what may still be there (`ebpf/src/room.rs`, which has the reasons). So a
//! process that is stopped, hangs or is slow leaves a driver in zero-copy mode the chunks that the
//! machine's other traffic needs.
//!
//! Invariant: the memory is mapped as long as any [`ReadSign`] of it lives, and it is mapped and
//! unmapped where attachments are made and dropped, not by an engine.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release},
};
use std::{io, os::fd::BorrowedFd, sync::Arc};

use super::memory::Memory;

/// An element of the map, as `ebpf/src/main.rs` has it. Only what is read or written here.
#[repr(C)]
#[derive(Debug)]
struct Queue {
    emptied: Apart<AtomicU32>,
    program: Apart<Program>,
}

/// A value that no other processor writes beside.
#[repr(C, align(128))]
#[derive(Debug)]
struct Apart<T>(T);

/// The words that the program writes.
#[repr(C)]
#[derive(Debug)]
struct Program {
    room: [AtomicU32; 4],
    dropped: AtomicU64,
}

/// Octets of an element.
pub(super) const QUEUE_LEN: usize = size_of::<Queue>();

const _: () = assert!(QUEUE_LEN == 256);

/// The map's memory: one element for each receive queue.
#[derive(Debug)]
struct Queues {
    all: NonNull<[Queue]>,
    _memory: Memory,
}

// SAFETY: all that can be reached by it is atomic.
unsafe impl Send for Queues {}
// SAFETY: as above.
unsafe impl Sync for Queues {}

impl Queues {
    fn all(&self) -> &[Queue] {
        // SAFETY: the elements are atomic words in memory that stays mapped as long as `self`.
        unsafe { self.all.as_ref() }
    }
}

/// By this a socket tells the steering program that its receive ring is empty, and any thread hears
/// how many frames there was no room for.
#[derive(Clone, Debug)]
pub(super) struct ReadSign {
    queues: Arc<Queues>,
    queue: usize,
}

impl ReadSign {
    /// Maps the program's map, which has an element for each of `count` queues. One sign for each.
    pub(super) fn of_map(map: BorrowedFd<'_>, count: usize) -> io::Result<Vec<Self>> {
        let memory = Memory::of(map, 0, count * QUEUE_LEN)?;
        let queues = Arc::new(Queues { all: memory.slice(0, count), _memory: memory });
        Ok((0..count).map(|queue| Self { queues: queues.clone(), queue }).collect())
    }

    /// The ring has been emptied, and its chunks given back. For one thread only, as a ring has one
    /// reader.
    #[inline]
    pub(super) fn emptied(&self) {
        let Apart(emptied) = &self.queues.all()[self.queue].emptied;
        emptied.store(emptied.load(Relaxed).wrapping_add(1), Release);
    }

    /// Frames that the program has dropped, as there was no room for them.
    pub(super) fn dropped(&self) -> u64 {
        self.queues.all()[self.queue].program.0.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd as _, os::unix::fs::FileExt as _};

    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn each_sign_counts_in_its_own_element_and_reads_what_was_dropped_there() {
        let file = rustix::fs::memfd_create("queues", MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.set_len(3 * QUEUE_LEN as u64).unwrap();
        let signs = ReadSign::of_map(file.as_fd(), 3).unwrap();
        for _ in 0..5 {
            signs[1].emptied();
        }
        let word = |at: u64| {
            let mut octets = [0; 4];
            file.read_exact_at(&mut octets, at).unwrap();
            u32::from_ne_bytes(octets)
        };
        assert_eq!([0, 1, 2].map(|queue| word(queue * QUEUE_LEN as u64)), [0, 5, 0]);
        // The offset where the program counts them.
        file.write_all_at(&7_u64.to_ne_bytes(), 2 * QUEUE_LEN as u64 + 144).unwrap();
        assert_eq!([0, 1, 2].map(|queue| signs[queue].dropped()), [0, 0, 7]);
    }
}
