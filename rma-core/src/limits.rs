//! Every limit of the protocol, stated once, with how the limits relate.
//!
//! Sizes of tables are settings ([`crate::nic::NicConfig`]); what stands here is fixed by the wire
//! format or by the paper.

use core::time::Duration;

/// The largest payload of one op, in bytes (1RMA §1, design idiom 2). Also what an op must find
/// free in the solicitation window to enter service, whatever its own size (§3.1).
//= 1rma#1-op-size-max
pub const OP_SIZE_MAX: u32 = 4096;

/// Response payloads begin at multiples of this many bytes and fill whole granules, but for the
/// last of an op, so that arrived bytes are tracked by one bit each granule. Not in the paper.
///
/// Smaller: more bits than one word. Larger: hosts with a small MTU waste more of each frame.
pub const GRANULE: u32 = 64;

/// The longest packet, in octets, for a host that has not said what it receives: what IPv6 and UDP
/// leave of 1280, the smallest MTU that a link with IPv6 may have. So hosts of different MTUs on
/// one link work together, where no route says what the others receive. Not in the paper.
pub const UNANNOUNCED_LEN_MAX: u16 = 1280 - 48;

/// Bytes of a region key K_r, and so the op size of a Rekey.
pub const REGION_KEY_LEN: usize = 16;

/// Bytes of a region's word: what ordered and atomic ops are about, and as large as immediates and
/// results (not in the paper).
pub const WORD_LEN: usize = 8;

/// Whether so many bytes at this offset of a region are whole words, as those of ordered and atomic
/// ops are.
#[must_use]
pub const fn are_words(offset: u64, size: u32) -> bool {
    offset.is_multiple_of(WORD_LEN as u64) && size.is_multiple_of(WORD_LEN as u32)
}

/// Bytes of an AES-GCM tag, at the end of every frame.
pub const TAG_LEN: usize = 16;

/// The most engines that a host may have: as many as half a word of flags has bits, as each tells
/// each other one of frames and of keys.
pub const ENGINES_MAX: u16 = 32;

/// The most slots a command slot table may have: a slot's number is 16 bits on the wire, and one
/// value is the end of a list.
pub const COMMAND_SLOTS_MAX: u32 = 65_535;

/// The most entries a pending-write table may have: an entry's number is 16 bits on the wire, and
/// one value is the end of a list.
pub const PENDING_WRITES_MAX: u32 = 65_535;

/// The most records of outcomes that a NIC may have, and entries of its pending-write table
/// besides: they are numbered together, by 16 bits on the wire.
pub const PENDING_WRITES_AND_RECORDS_MAX: u32 = 65_535;

/// The deepest that the inbound queue of a class may be: jobs are in lists, whose links are 16
/// bits, and one value is the end of a list.
pub const INBOUND_QUEUE_MAX: u32 = 65_535;

/// The most receives that a receive queue may have: more than any queue needs, and as many posts as
/// an engine may ever have to look through.
pub const RECEIVES_MAX: u16 = 32_768;

/// The most regions a registered region table may have: 16 bits of a `RegionId` are the index.
pub const REGIONS_MAX: u32 = 65_536;

/// The largest registered region, in bytes (1 TiB). A bound that keeps sums of offset and size far
/// from overflow; memory runs out long before.
pub const REGION_LEN_MAX: u64 = 1 << 40;

/// The longest timeout that makes sense: P1 promises an end. As microseconds it fits the wire's 32
/// bits.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The shortest: the wire says timeouts in microseconds.
pub const TIMEOUT_MIN: Duration = Duration::from_micros(1);

const _: () = assert!(OP_SIZE_MAX.is_multiple_of(GRANULE));
const _: () = assert!(OP_SIZE_MAX / GRANULE <= u64::BITS, "arrived granules are the bits of a u64");
const _: () =
    assert!(OP_SIZE_MAX <= u16::MAX as u32, "op sizes and offsets are 16 bits on the wire");
