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
//! A packet starts right after the kernel's headroom, in chunks that receive and in those that
//! transmit.

use core::{
    cell::Cell,
    fmt,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};
use std::os::fd::BorrowedFd;

use rustix::{
    io,
    net::{
        sockopt::set_xdp_umem_reg,
        xdp::{XdpDescOptions, XdpUmemReg, XdpUmemRegFlags},
    },
};

use super::{memory::Memory, ring::Desc};

/// Bytes in a chunk. The kernel allows 2048 to one page in aligned mode; the larger one lets a 4
/// KiB op need few frames.
pub const CHUNK_SIZE: u32 = 4096;

/// Bytes at the start of a chunk that the kernel keeps for the XDP program (`XDP_PACKET_HEADROOM`,
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h>).
pub const KERNEL_HEADROOM: u32 = 256;

/// The longest part of a packet, from its Ethernet header, that fits into one chunk, in bytes.
pub const CHUNK_DATA: usize = (CHUNK_SIZE - KERNEL_HEADROOM) as usize;

/// Continues in the next descriptor.
const PKT_CONTD: u32 = XdpDescOptions::XDP_PKT_CONTD.bits();

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
#[derive(Debug)]
pub struct Frame {
    desc: Desc,
    umem: u32,
}

impl Frame {
    /// Whether the packet goes on in the next frame.
    #[inline]
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.desc.options & PKT_CONTD != 0
    }

    /// Says whether the packet goes on in the next frame.
    #[inline]
    pub fn set_continued(&mut self, continued: bool) {
        self.desc.options = if continued { PKT_CONTD } else { 0 };
    }

    /// Sets how many bytes of it count, at most [`CHUNK_DATA`] less what the packet's start has
    /// been moved by. Larger values give the most there is.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let most = CHUNK_SIZE - self.desc.addr as u32 % CHUNK_SIZE;
        self.desc.len = len.min(most as usize) as u32;
    }
}

/// Memory registered with the kernel, for one socket. Not `Sync`: one engine thread owns it.
pub struct Umem {
    memory: Memory,
    owners: Owners,
    /// Tells the frames of one UMEM from those of another in the same process.
    id: u32,
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem").field("chunks", &self.owners.table.len()).finish_non_exhaustive()
    }
}

impl Umem {
    /// Maps `chunk_count` chunks of [`CHUNK_SIZE`] bytes, all owned by userspace.
    ///
    /// # Errors
    /// Whatever the kernel refuses.
    pub(super) fn new(chunk_count: u32) -> io::Result<(Self, Vec<Frame>)> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let memory = Memory::anonymous(chunk_count as usize * CHUNK_SIZE as usize)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let frames = (0..u64::from(chunk_count)).map(|chunk| {
            let addr = chunk * u64::from(CHUNK_SIZE) + u64::from(KERNEL_HEADROOM);
            Frame { desc: Desc { addr, len: 0, options: 0 }, umem: id }
        });
        let owners = Owners::new(chunk_count);
        Ok((Self { memory, owners, id }, frames.collect()))
    }

    /// Registers the memory with a socket.
    ///
    /// # Errors
    /// Whatever the kernel refuses. ENOBUFS is more locked memory than this process may have
    /// (`xdp_umem_account_pages` in
    /// <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xdp_umem.c>).
    pub(super) fn register(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let umem = XdpUmemReg {
            addr: self.memory.first().addr().get() as u64,
            len: self.memory.len() as u64,
            chunk_size: CHUNK_SIZE,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(socket, umem)
    }

    /// The bytes of `frame`, from its first byte up to its length.
    ///
    /// # Panics
    /// If `frame` belongs to another UMEM.
    #[inline]
    pub fn bytes_mut<'f>(&'f self, frame: &'f mut Frame) -> &'f mut [u8] {
        assert_eq!(frame.umem, self.id, "a frame of another UMEM");
        // SAFETY: the address is of this UMEM (compared above) and in one of its chunks (only `new`
        // and `reclaim` make a `Frame`, and `reclaim` checks).
        let first = unsafe { self.memory.first().add(frame.desc.addr as usize) };
        let mut bytes = NonNull::slice_from_raw_parts(first, frame.desc.len as usize);
        // SAFETY: the bytes lie in one chunk (as above; `set_len` keeps to it) and are always
        // values. Nobody else touches them: one `Frame` exists for a chunk that userspace owns, it
        // is borrowed mutably for as long as the bytes are, and the mapping lives as long as
        // `self`.
        unsafe { bytes.as_mut() }
    }

    /// Gives `frame` to the kernel. It is consumed, so its bytes cannot be touched again.
    ///
    /// The descriptor must be put on the ring of that side.
    #[inline]
    pub(super) fn lend(&self, frame: Frame, side: Side) -> Desc {
        assert_eq!(frame.umem, self.id, "a frame of another UMEM");
        self.owners.lend(frame.desc.addr as usize, side);
        frame.desc
    }

    /// Takes back what the kernel returned on `side`. A descriptor that was not lent there, or that
    /// leaves its chunk, is refused, and the chunk stays with the kernel.
    #[inline]
    pub(super) fn reclaim(&self, desc: Desc, side: Side) -> Option<Frame> {
        let is_ours = self.owners.reclaim(desc.addr as usize, desc.len as usize, side);
        // Of a packet that was sent the chunk alone counts.
        let start = desc.addr - desc.addr % u64::from(CHUNK_SIZE) + u64::from(KERNEL_HEADROOM);
        let addr = if side == Side::Transmit { start } else { desc.addr };
        is_ours.then_some(Frame { desc: Desc { addr, ..desc }, umem: self.id })
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
