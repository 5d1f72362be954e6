//! The buffers in which the data of ordered ops collects that comes in several frames: the SRAM
//! that the paper's solicitation window is (1RMA §4.1).
//!
//! One buffer of an op's largest size for each entry of the pending-write table. With fewer,
//! replayed requests would hold a resource that is scarcer than their entries. The buffer that was
//! used last is taken first, so that few of them are in use, and warm.

use crate::limits::OP_SIZE_MAX;

pub(in crate::nic) struct Staging {
    buffers: Box<[[u8; OP_SIZE_MAX as usize]]>,
    /// The one that was used last at the end.
    free: Vec<u16>,
}

/// A buffer that an entry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Staged(u16);

impl Staging {
    /// Bytes that each buffer takes.
    pub(in crate::nic) const ENTRY_LEN: usize = OP_SIZE_MAX as usize + size_of::<u16>();

    //= channels#2.3-staging
    pub(super) fn new(entries: u16) -> Self {
        let buffer = || {
            // Written, so that no page is touched first by the engine.
            core::hint::black_box([0; OP_SIZE_MAX as usize])
        };
        Self {
            buffers: (0..entries).map(|_| buffer()).collect(),
            free: (0..entries).rev().collect(),
        }
    }

    /// How many buffers are in use.
    pub(super) fn used(&self) -> usize {
        self.buffers.len() - self.free.len()
    }

    /// A buffer. There is one for each entry.
    pub(super) fn take(&mut self) -> Option<Staged> {
        self.free.pop().map(Staged)
    }

    pub(super) fn put_back(&mut self, Staged(index): Staged) {
        self.free.push(index);
    }

    /// Puts `bytes` where they belong, from `start` on.
    pub(super) fn write(&mut self, Staged(index): Staged, start: u32, bytes: &[u8]) {
        let buffer = &mut self.buffers[usize::from(index)];
        if let Some(place) =
            buffer.get_mut(start as usize..).and_then(|it| it.get_mut(..bytes.len()))
        {
            place.copy_from_slice(bytes);
        }
    }

    /// The first `size` bytes.
    pub(super) fn bytes(&self, Staged(index): Staged, size: u32) -> &[u8] {
        &self.buffers[usize::from(index)][..size as usize]
    }
}

#[cfg(test)]
impl Staging {
    /// How many buffers no entry has.
    pub(super) const fn free_buffers(&self) -> usize {
        self.free.len()
    }
}
