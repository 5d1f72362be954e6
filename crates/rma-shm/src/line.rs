//! The unit that crosses a ring: one 64-byte cache line.
//!
//! Commands and completions are encoded into lines by `rma-core`; nothing here knows what the words
//! mean. Any bit pattern is a valid line, so a line that another process wrote can be looked at
//! safely. Whether it makes sense is for whoever decodes it.

/// 64 bytes, aligned to a cache line, as eight words in the byte order of the machine.
///
/// The software image of the four 16-byte stores that issue a command (1RMA, Appendix B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);

impl Line {
    /// The words of a line.
    pub const WORDS: usize = 8;

    /// A line of zeros.
    pub const ZERO: Self = Self([0; Self::WORDS]);
}
