//! Moves of two words of a mapping at once.
//!
//! Words that others access meanwhile may be accessed by the language's atomics only, and those
//! are no wider than a word. The instructions here are: to the compiler they are something opaque
//! that has happened to the words, and so they must be something that the language could have done.
//! They are: **each is a relaxed access to each of its two words, one after the other.**
//!
//! For that a word must never be seen in part. Both makers of x86-64 promise it where there is AVX:
//! a move of sixteen bytes that are aligned to sixteen is one access, whole for whoever looks at it
//! (Intel, Software Developer's Manual, volume 3, "Guaranteed Atomic Operations"; AMD, Architecture
//! Programmer's Manual, volume 2, "Access Atomicity"). A processor that were to cut such a move
//! would do it in the middle, between the words. Wider moves and string moves (`rep movsb`) have no
//! such promise, and are not used.
//!
//! Elsewhere, and under Miri and loom, which know no instructions, nothing is moved here, and the
//! caller goes word by word.

use crate::sync::RegionWord;

/// Words that are moved together: a cache line.
pub(crate) const CHUNK: usize = 8;

/// Words of a move.
const MOVE: usize = 2;

/// Words before the first that a wide move can begin with. None under loom, whose words are not
/// eight bytes.
pub(crate) fn before(words: &[RegionWord]) -> usize {
    if cfg!(loom) {
        return 0;
    }
    words.as_ptr().align_offset(MOVE * size_of::<RegionWord>()).min(words.len())
}

/// Copies whole chunks from the begin of `words` to the begin of `bytes`, as many as both have.
/// Returns how many words were copied: zero where there are no wide moves.
///
/// # Panics
/// If `words` do not begin where [`before`] says.
#[inline]
pub(crate) fn copy_out(words: &[RegionWord], bytes: &mut [[u8; 8]]) -> usize {
    let chunks = words.len().min(bytes.len()) / CHUNK;
    if chunks == 0 {
        return 0;
    }
    assert_eq!(before(words), 0, "aligned to a move");
    if !there::are() {
        return 0;
    }
    there::copy_out(&words[..chunks * CHUNK], &mut bytes[..chunks * CHUNK]);
    chunks * CHUNK
}

/// The opposite of [`copy_out`].
///
/// # Panics
/// As [`copy_out`].
#[inline]
pub(crate) fn copy_in(words: &[RegionWord], bytes: &[[u8; 8]]) -> usize {
    let chunks = words.len().min(bytes.len()) / CHUNK;
    if chunks == 0 {
        return 0;
    }
    assert_eq!(before(words), 0, "aligned to a move");
    if !there::are() {
        return 0;
    }
    there::copy_in(&words[..chunks * CHUNK], &bytes[..chunks * CHUNK]);
    chunks * CHUNK
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod there {
    use super::{CHUNK, RegionWord};
    use core::arch::asm;

    /// Whether this processor's moves of sixteen bytes are single accesses.
    #[inline(always)]
    pub(super) fn are() -> bool {
        std::arch::is_x86_feature_detected!("avx")
    }

    /// Copies words to as many bytes.
    #[inline(always)]
    pub(super) fn copy_out(words: &[RegionWord], bytes: &mut [[u8; 8]]) {
        assert!(words.len() == bytes.len() && words.len().is_multiple_of(CHUNK), "whole chunks");
        let (from, to) = (words.as_ptr(), bytes.as_mut_ptr());
        // SAFETY: AVX is there, and the first word is aligned to sixteen bytes (the caller has
        // checked both, and a misaligned one would stop the program). Reads `words`, each word as
        // by a relaxed load (see the module), and writes `bytes`, which are borrowed exclusively
        // and as long. Chunks are counted down from at least one.
        unsafe {
            asm!(
                "2:",
                "vmovdqa {a}, [{from}]",
                "vmovdqa {b}, [{from} + 16]",
                "vmovdqa {c}, [{from} + 32]",
                "vmovdqa {d}, [{from} + 48]",
                "vmovdqu [{to}], {a}",
                "vmovdqu [{to} + 16], {b}",
                "vmovdqu [{to} + 32], {c}",
                "vmovdqu [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {chunks}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                chunks = inout(reg) words.len() / CHUNK => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    /// Copies as many bytes to words.
    #[inline(always)]
    pub(super) fn copy_in(words: &[RegionWord], bytes: &[[u8; 8]]) {
        assert!(words.len() == bytes.len() && words.len().is_multiple_of(CHUNK), "whole chunks");
        let (to, from) = (words.as_ptr(), bytes.as_ptr());
        // SAFETY: AVX is there, and the first word is aligned to sixteen bytes (the caller has
        // checked both, and a misaligned one would stop the program). Writes `words`, each word as
        // by a relaxed store (see the module), which atomics permit behind a shared reference, and
        // reads `bytes`, which are as long. Chunks are counted down from at least one.
        unsafe {
            asm!(
                "2:",
                "vmovdqu {a}, [{from}]",
                "vmovdqu {b}, [{from} + 16]",
                "vmovdqu {c}, [{from} + 32]",
                "vmovdqu {d}, [{from} + 48]",
                "vmovdqa [{to}], {a}",
                "vmovdqa [{to} + 16], {b}",
                "vmovdqa [{to} + 32], {c}",
                "vmovdqa [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {chunks}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                chunks = inout(reg) words.len() / CHUNK => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
mod there {
    use super::RegionWord;

    pub(super) const fn are() -> bool {
        false
    }

    pub(super) const fn copy_out(_: &[RegionWord], _: &mut [[u8; 8]]) {}

    pub(super) const fn copy_in(_: &[RegionWord], _: &[[u8; 8]]) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    #[repr(align(16))]
    struct Aligned([RegionWord; 40]);

    #[test]
    fn whole_chunks_are_moved_and_nothing_else() {
        for len in 0..38 {
            let memory = Aligned(core::array::from_fn(|at| RegionWord::new(at as u64)));
            let words = &memory.0[2..2 + len];
            let mut bytes = [[0xff; 8]; 40];
            let moved = copy_out(words, &mut bytes[1..1 + len]);
            assert!(moved == if there::are() { len / CHUNK * CHUNK } else { 0 });
            for (at, bytes) in bytes.into_iter().enumerate() {
                let expected = if (1..=moved).contains(&at) {
                    (at as u64 + 1).to_ne_bytes()
                } else {
                    [0xff; 8]
                };
                assert_eq!(bytes, expected, "{at} of {len}");
            }
            assert_eq!(copy_in(words, &[[0xee; 8]; 40][..len]), moved);
            for (at, word) in memory.0.iter().enumerate() {
                let is_moved = (2..2 + moved).contains(&at);
                let expected = if is_moved { u64::from_ne_bytes([0xee; 8]) } else { at as u64 };
                assert_eq!(word.load(Ordering::Relaxed), expected, "{at} of {len}");
            }
        }
    }

    #[test]
    fn only_every_second_word_can_be_the_first_of_a_move() {
        let memory = Aligned(core::array::from_fn(|_| RegionWord::new(0)));
        assert_eq!([0, 1, 2, 3, 40].map(|at| before(&memory.0[at..])), [0, 1, 0, 1, 0]);
    }

    #[test]
    #[should_panic(expected = "aligned to a move")]
    fn a_move_that_is_not_aligned_is_refused() {
        let memory = Aligned(core::array::from_fn(|_| RegionWord::new(0)));
        copy_out(&memory.0[1..], &mut [[0; 8]; 16]);
    }
}
