//! UMEM: the memory that frames lie in, shared with the kernel, and who owns each part of it.
//!
//! The memory is cut into chunks. A chunk belongs to userspace, or to the kernel on the receive
//! side (fill ring until receive ring), or to the kernel on the transmit side (transmit ring until
//! completion ring). A [`Frame`] is a chunk that userspace owns. It is neither `Copy` nor `Clone`:
//! holding one is the permission to touch the bytes, and `Umem::lend` takes it away.
//!
//! Invariant: at most one `Frame` exists for a chunk, and none while the kernel owns it. A
//! descriptor that comes back from the kernel becomes a `Frame` only through `Umem::reclaim`, which
//! checks it against the table of owners; one that was not lent, or whose bytes leave its chunk, is
//! refused.
//!
//! xsk-rs does the mapping and the registration. Its `FrameDesc` is `Copy` and most of its calls
//! are `unsafe` for that reason; it does not leave this module and [`super::socket`]. Two of its
//! traits shape the code here: an address cannot be chosen (a packet always starts right after the
//! kernel's headroom), and a completed descriptor comes back with length zero.

use core::{
    cell::Cell,
    fmt,
    num::NonZeroU32,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU32, Ordering},
};

use xsk_rs::{
    config::{FrameSize, QueueSize, UmemConfig},
    umem::frame::{DataMut, FrameDesc},
};

use super::error::XdpError;

/// Bytes in a chunk. The kernel allows 2048 to one page in aligned mode; the larger one lets a 4
/// KiB op need few frames.
pub const CHUNK_SIZE: u32 = 4096;

/// Bytes at the start of a chunk that the kernel keeps for the XDP program (`XDP_PACKET_HEADROOM`,
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h>).
pub const KERNEL_HEADROOM: u32 = 256;

/// The longest part of a packet, from its Ethernet header, that fits into one chunk, in bytes.
pub const CHUNK_DATA: usize = (CHUNK_SIZE - KERNEL_HEADROOM) as usize;

/// Continues in the next descriptor (`XDP_PKT_CONTD`).
const PKT_CONTD: u32 = 1;

/// The side of the kernel that a chunk is lent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Fill ring, then receive ring.
    Receive,
    /// Transmit ring, then completion ring.
    Transmit,
}

/// The owner of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    User,
    Kernel(Side),
}

/// The owner of each chunk. Pure book-keeping: it never touches the memory.
struct Owners {
    table: Box<[Cell<Owner>]>,
}

impl Owners {
    /// All chunks belong to userspace.
    fn new(chunk_count: u32) -> Self {
        Self { table: (0..chunk_count).map(|_| Cell::new(Owner::User)).collect() }
    }

    /// Takes the chunk at `addr` back from `side`, if that is where it is and if `len` bytes from
    /// there stay in it.
    fn reclaim(&self, addr: usize, len: usize, side: Side) -> bool {
        let offset = addr % CHUNK_SIZE as usize;
        let Some(owner) = self.table.get(addr / CHUNK_SIZE as usize) else { return false };
        if owner.get() != Owner::Kernel(side) || len > CHUNK_SIZE as usize - offset {
            return false;
        }
        owner.set(Owner::User);
        true
    }

    /// Gives the chunk at `addr` to `side`.
    fn lend(&self, addr: usize, side: Side) {
        self.table[addr / CHUNK_SIZE as usize].set(Owner::Kernel(side));
    }
}

/// A chunk that userspace owns, and the packet (or part of one) in it.
#[must_use = "a frame that is dropped is lost to its UMEM"]
pub struct Frame {
    desc: FrameDesc,
    umem: u32,
}

impl Frame {
    /// Whether the packet goes on in the next frame.
    #[inline]
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.desc.has_more_frames()
    }

    /// Says whether the packet goes on in the next frame.
    #[inline]
    pub fn set_continued(&mut self, continued: bool) {
        self.desc.set_options(if continued { PKT_CONTD } else { 0 });
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("addr", &self.desc.addr())
            .field("len", &self.desc.lengths().data())
            .finish()
    }
}

/// The bytes of a [`Frame`], from its first byte up to its length.
#[derive(Debug)]
pub struct FrameBytes<'f>(DataMut<'f>);

impl Deref for FrameBytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.contents()
    }
}

impl DerefMut for FrameBytes<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.contents_mut()
    }
}

/// Memory registered with the kernel, for one socket. Not `Sync`: one engine thread owns it.
pub struct Umem {
    umem: xsk_rs::Umem,
    owners: Owners,
    /// Tells the frames of one UMEM from those of another in the same process.
    id: u32,
    refused: u64,
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("chunks", &self.owners.table.len())
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

impl Umem {
    /// Maps and registers `chunk_count` chunks of [`CHUNK_SIZE`] bytes, all owned by userspace.
    /// `fill_size` and `completion_size` are ring sizes, powers of two.
    ///
    /// # Errors
    /// [`XdpError::UmemAllocation`], [`XdpError::UmemLockedMemory`],
    /// [`XdpError::MissingCapability`].
    pub(crate) fn new(
        interface: &str,
        chunk_count: NonZeroU32,
        fill_size: QueueSize,
        completion_size: QueueSize,
    ) -> Result<(Self, Vec<Frame>), XdpError> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let chunk_size = FrameSize::new(CHUNK_SIZE).expect("4096 is at least 2048");
        let config = UmemConfig::builder()
            .frame_size(chunk_size)
            .fill_queue_size(fill_size)
            .comp_queue_size(completion_size)
            .build()
            .expect("4096 is a power of two and more than the headroom");
        let bytes = u64::from(chunk_count.get()) * u64::from(CHUNK_SIZE);
        let (umem, descs) = xsk_rs::Umem::new(config, chunk_count, false)
            .map_err(|error| XdpError::from_umem(interface, bytes, &error))?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let frames = descs.into_iter().map(|desc| Frame { desc, umem: id }).collect();
        Ok((Self { umem, owners: Owners::new(chunk_count.get()), id, refused: 0 }, frames))
    }

    /// xsk-rs's half, for binding a socket to it.
    pub(crate) fn inner(&self) -> &xsk_rs::Umem {
        &self.umem
    }

    /// The bytes of `frame`, up to its length.
    ///
    /// # Panics
    /// If `frame` belongs to another UMEM.
    #[inline]
    pub fn bytes_mut<'f>(&'f self, frame: &'f mut Frame) -> FrameBytes<'f> {
        assert_eq!(frame.umem, self.id, "a frame of another UMEM");
        // SAFETY: the descriptor is of this UMEM (compared above) and its bytes lie in one chunk
        // (only `new` and `reclaim` make a `Frame`, and `reclaim` checks). Nobody else touches
        // them: one `Frame` exists for a chunk that userspace owns, it is borrowed mutably for as
        // long as the bytes are, and the mapping lives as long as `self`.
        FrameBytes(unsafe { self.umem.data_mut(&mut frame.desc) })
    }

    /// Sets how many bytes of `frame` count, at most [`CHUNK_DATA`] less what the packet's start
    /// has been moved by. Larger values give the most there is.
    ///
    /// # Panics
    /// If `frame` belongs to another UMEM.
    #[inline]
    pub fn set_len(&self, frame: &mut Frame, len: usize) {
        self.bytes_mut(frame).0.cursor().set_pos(len);
    }

    /// Gives `frame` to the kernel. It is consumed, so its bytes cannot be touched again.
    ///
    /// The descriptor must be put on the ring of that side: xsk-rs asks no more of it.
    #[inline]
    pub(crate) fn lend(&self, frame: Frame, side: Side) -> FrameDesc {
        assert_eq!(frame.umem, self.id, "a frame of another UMEM");
        self.owners.lend(frame.desc.addr(), side);
        frame.desc
    }

    /// Takes back what the kernel returned on `side`. A descriptor that was not lent there, or that
    /// leaves its chunk, is refused and counted; its chunk stays with the kernel.
    #[inline]
    pub(crate) fn reclaim(&mut self, desc: FrameDesc, side: Side) -> Option<Frame> {
        if self.owners.reclaim(desc.addr(), desc.lengths().data(), side) {
            Some(Frame { desc, umem: self.id })
        } else {
            self.refused += 1;
            None
        }
    }

    /// How many descriptors `Umem::reclaim` has refused. Anything but zero is a kernel or driver
    /// bug.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: usize = CHUNK_SIZE as usize;
    const START: usize = KERNEL_HEADROOM as usize;

    #[test]
    fn a_chunk_that_was_never_lent_is_refused() {
        let owners = Owners::new(2);
        assert!(!owners.reclaim(START, 0, Side::Receive));
        assert!(!owners.reclaim(START, 0, Side::Transmit));
    }

    #[test]
    fn a_chunk_comes_back_once() {
        let owners = Owners::new(2);
        owners.lend(CHUNK + START, Side::Receive);
        assert!(owners.reclaim(CHUNK + START, 64, Side::Receive));
        assert!(!owners.reclaim(CHUNK + START, 64, Side::Receive));
    }

    #[test]
    fn a_chunk_lent_to_one_side_does_not_come_back_from_the_other() {
        let owners = Owners::new(1);
        owners.lend(START, Side::Transmit);
        assert!(!owners.reclaim(START, 0, Side::Receive));
        assert!(owners.reclaim(START, 0, Side::Transmit));
    }

    #[test]
    fn bytes_must_stay_in_their_chunk() {
        let owners = Owners::new(2);
        owners.lend(START, Side::Receive);
        assert!(!owners.reclaim(START, CHUNK_DATA + 1, Side::Receive));
        assert!(!owners.reclaim(CHUNK - 1, 2, Side::Receive));
        assert!(owners.reclaim(START, CHUNK_DATA, Side::Receive));
    }

    #[test]
    fn addresses_outside_the_umem_are_refused() {
        let owners = Owners::new(2);
        for addr in [2 * CHUNK, usize::MAX, usize::MAX - CHUNK] {
            assert!(!owners.reclaim(addr, 0, Side::Receive));
        }
    }

    proptest! {
        /// Whatever the kernel returns, the table agrees with a plain list of what is lent.
        #[test]
        fn the_table_agrees_with_a_list_of_lent_chunks(
            steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_usize..6, 0_usize..5000), 0..200),
        ) {
            let owners = Owners::new(4);
            let mut lent: Vec<(usize, Side)> = Vec::new();
            for (lends, receive, chunk, len) in steps {
                let side = if receive { Side::Receive } else { Side::Transmit };
                let addr = chunk * CHUNK + START;
                if lends {
                    if chunk < 4 && !lent.iter().any(|&(other, _)| other == chunk) {
                        owners.lend(addr, side);
                        lent.push((chunk, side));
                    }
                    continue;
                }
                let wanted = lent.contains(&(chunk, side)) && len <= CHUNK_DATA;
                prop_assert_eq!(owners.reclaim(addr, len, side), wanted);
                if wanted {
                    lent.retain(|&entry| entry != (chunk, side));
                }
            }
        }
    }
}
