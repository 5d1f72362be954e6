//! What is fixed by the wire, and how the limits relate.

/// The most bytes of a message that travel in the frame of its work request (ours).
pub const INLINE_MAX: usize = 64;

/// The longest message, in bytes: 1 GiB.
pub const MESSAGE_LEN_MAX: u32 = 1 << 30;

/// The largest chunk of a message that one frame carries, in bytes. Chunks begin at multiples of
/// [`rma_core::limits::GRANULE`].
pub const CHUNK_LEN_MAX: u32 = 4096;
