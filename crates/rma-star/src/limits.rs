//! Limits that are fixed by the wire, and the relations between them.

use rma_shm::spsc::CAPACITY_MAX;

/// The most bytes of a message that travel in the frame of its work request (ours).
pub const INLINE_MAX: usize = 64;

/// The longest message, in bytes: 1 GiB.
pub const MESSAGE_LEN_MAX: u32 = 1 << 30;

/// The largest chunk of a message that one frame carries, in bytes. Chunks begin at multiples of
/// [`rma_core::limits::GRANULE`].
pub const CHUNK_LEN_MAX: u32 = 4096;

/// The most WQEs of one WQEP, and CQEs of one CQEP: an acknowledgement has a bit for each.
pub const ENTRIES_MAX: u8 = u32::BITS as u8;

/// The most frames that one EA of Z answers: as many as a packet has.
pub const ANSWERED_MAX: u8 = rma_core::packet::FRAMES_MAX as u8;

/// The fewest octets of a part of a STATE. So what answers a STATE is shorter than it (P10).
pub const STATE_LEN_MIN: u16 = 16;

/// The most octets of a part of a STATE: a place of the mailbox that Z's library has for them.
pub const STATE_LEN_MAX: u16 = 4096;

/// For how many microseconds a frame may be valid at most: a second. With much more the time that
/// the filter of replays remembers of it could mean two times.
pub const VALID_MICROS_MAX: u64 = 1_000_000;

/// The most slots that a portal may have, with one queue pair: each may be posted in two lines of
/// its ring. With more queue pairs it is fewer:
/// [`StarPortalMemory::footprint`](crate::portal::StarPortalMemory::footprint) tells.
pub const SLOTS_MAX: u32 = (CAPACITY_MAX as u32 - 1) / 2;

/// The most queue pairs that a portal may have, with as few slots: each may have five reports in
/// its ring, and some are to spare. 20 bits of a QPN say which of them it is.
pub const QPS_MAX: u32 = (CAPACITY_MAX as u32 - 17) / 5;

const _: () = assert!(QPS_MAX < crate::names::Qpn::INDEXES, "a QPN names each");

const _: () = assert!(
    CHUNK_LEN_MAX.is_multiple_of(rma_core::limits::GRANULE) && CHUNK_LEN_MAX <= u16::MAX as u32,
    "chunks are whole granules, and their length is 16 bits on the wire"
);
