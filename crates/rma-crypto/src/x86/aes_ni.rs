//! 128-bit registers: SSE2, SSSE3, AES-NI and PCLMULQDQ.

use core::{arch::x86_64::*, mem::MaybeUninit};

use crate::lanes::{Block, Isa, LANES_MAX};

/// The proof that this processor has AES-NI, PCLMULQDQ and SSSE3. Made by detection, and out of
/// wider instruction sets, which include it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AesNi(());

impl AesNi {
    /// # Safety
    /// The processor has AES-NI, PCLMULQDQ and SSSE3.
    pub(super) const unsafe fn assume() -> Self {
        Self(())
    }
}

/// Calls an instruction that `self` proves to be there.
macro_rules! have {
    ($call:expr) => {{
        // SAFETY: `self` exists only where detection has found the instruction; it touches
        // registers only.
        unsafe { $call }
    }};
}

impl Isa for AesNi {
    type V = __m128i;
    const LANES: usize = 1;
    type One = Self;

    #[inline(always)]
    fn one(self) -> Self {
        self
    }

    #[inline(always)]
    fn zero(self) -> __m128i {
        have!(_mm_setzero_si128())
    }

    #[inline(always)]
    fn splat(self, block: &Block) -> __m128i {
        // SAFETY: `block` is 16 readable octets; SSE2, which every x86-64 processor has, loads them
        // unaligned.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    #[inline(always)]
    fn splat32(self, number: u32) -> __m128i {
        have!(_mm_set1_epi32(number.cast_signed()))
    }

    #[inline(always)]
    fn load(self, blocks: &[Block]) -> __m128i {
        self.splat(&blocks[0])
    }

    #[inline(always)]
    fn store(self, v: __m128i, blocks: &mut [Block]) {
        let to = blocks[0].as_mut_ptr();
        // SAFETY: `to` is the begin of 16 octets, borrowed exclusively; SSE2 stores them unaligned.
        unsafe { _mm_storeu_si128(to.cast(), v) }
    }

    #[inline(always)]
    fn write(self, v: __m128i, blocks: &mut [MaybeUninit<Block>]) {
        let to = blocks[..Self::LANES].as_mut_ptr();
        // SAFETY: the blocks are 16 octets, borrowed exclusively; stored unaligned.
        unsafe { _mm_storeu_si128(to.cast(), v) }
    }

    #[inline(always)]
    fn erase(self, blocks: &mut [MaybeUninit<Block>]) {
        let to: *mut __m128i = blocks[..Self::LANES].as_mut_ptr().cast();
        assert!(to.is_aligned(), "what is erased is aligned to registers");
        let zero = self.zero();
        // SAFETY: the blocks are 16 octets, borrowed exclusively, and aligned (checked above).
        unsafe { to.write_volatile(zero) };
    }

    #[inline(always)]
    fn broadcast(self, one: __m128i) -> __m128i {
        one
    }

    #[inline(always)]
    fn number(self, number: u128) -> __m128i {
        let (low, high) = (number as u64, (number >> 64) as u64);
        have!(_mm_set_epi64x(high.cast_signed(), low.cast_signed()))
    }

    #[inline(always)]
    fn join(self, parts: [__m128i; LANES_MAX]) -> __m128i {
        parts[0]
    }

    #[inline(always)]
    fn transpose(self, registers: [__m128i; LANES_MAX]) -> [__m128i; LANES_MAX] {
        registers
    }

    #[inline(always)]
    fn lane(self, v: __m128i, _: usize) -> __m128i {
        v
    }

    #[inline(always)]
    fn fold(self, v: __m128i) -> __m128i {
        v
    }

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        have!(_mm_xor_si128(a, b))
    }

    #[inline(always)]
    fn xor3(self, a: __m128i, b: __m128i, c: __m128i) -> __m128i {
        self.xor(self.xor(a, b), c)
    }

    #[inline(always)]
    fn and(self, a: __m128i, b: __m128i) -> __m128i {
        have!(_mm_and_si128(a, b))
    }

    #[inline(always)]
    fn add32(self, a: __m128i, b: __m128i) -> __m128i {
        have!(_mm_add_epi32(a, b))
    }

    #[inline(always)]
    fn add64(self, a: __m128i, b: __m128i) -> __m128i {
        have!(_mm_add_epi64(a, b))
    }

    #[inline(always)]
    fn signs32(self, a: __m128i) -> __m128i {
        have!(_mm_srai_epi32::<31>(a))
    }

    #[inline(always)]
    fn shuffle(self, a: __m128i, order: __m128i) -> __m128i {
        have!(_mm_shuffle_epi8(a, order))
    }

    #[inline(always)]
    fn shuffle32<const ORDER: i32>(self, a: __m128i) -> __m128i {
        have!(_mm_shuffle_epi32::<ORDER>(a))
    }

    #[inline(always)]
    fn shift_octets<const N: i32>(self, a: __m128i) -> __m128i {
        have!(_mm_bslli_si128::<N>(a))
    }

    #[inline(always)]
    fn aes_round(self, state: __m128i, key: __m128i) -> __m128i {
        have!(_mm_aesenc_si128(state, key))
    }

    #[inline(always)]
    fn aes_last_round(self, state: __m128i, key: __m128i) -> __m128i {
        have!(_mm_aesenclast_si128(state, key))
    }

    #[inline(always)]
    fn clmul<const HALVES: i32>(self, a: __m128i, b: __m128i) -> __m128i {
        have!(_mm_clmulepi64_si128::<HALVES>(a, b))
    }
}
