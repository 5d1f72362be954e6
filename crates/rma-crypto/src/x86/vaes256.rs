//! 256-bit registers: AVX2, VAES and VPCLMULQDQ.

use core::{arch::x86_64::*, mem::MaybeUninit};

use super::aes_ni::AesNi;
use crate::lanes::{Block, Isa, LANES_MAX};

/// The proof that this processor has AVX2, VAES and VPCLMULQDQ, and what [`AesNi`] proves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vaes256(AesNi);

impl Vaes256 {
    /// # Safety
    /// The processor has AVX2, VAES and VPCLMULQDQ.
    pub(super) const unsafe fn assume(narrow: AesNi) -> Self {
        Self(narrow)
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

impl Isa for Vaes256 {
    type V = __m256i;
    const LANES: usize = 2;
    type One = AesNi;

    #[inline(always)]
    fn one(self) -> AesNi {
        self.0
    }

    #[inline(always)]
    fn zero(self) -> __m256i {
        have!(_mm256_setzero_si256())
    }

    #[inline(always)]
    fn splat(self, block: &Block) -> __m256i {
        self.broadcast(self.0.splat(block))
    }

    #[inline(always)]
    fn splat32(self, number: u32) -> __m256i {
        have!(_mm256_set1_epi32(number.cast_signed()))
    }

    #[inline(always)]
    fn load(self, blocks: &[Block]) -> __m256i {
        let from = blocks[..Self::LANES].as_ptr();
        // SAFETY: two blocks are 32 readable octets; loaded unaligned.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    fn store(self, v: __m256i, blocks: &mut [Block]) {
        let to = blocks[..Self::LANES].as_mut_ptr();
        // SAFETY: two blocks are 32 octets, borrowed exclusively; stored unaligned.
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[inline(always)]
    fn write(self, v: __m256i, blocks: &mut [MaybeUninit<Block>]) {
        let to = blocks[..Self::LANES].as_mut_ptr();
        // SAFETY: the blocks are 32 octets, borrowed exclusively; stored unaligned.
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[inline(always)]
    fn erase(self, blocks: &mut [MaybeUninit<Block>]) {
        let to: *mut __m256i = blocks[..Self::LANES].as_mut_ptr().cast();
        assert!(to.is_aligned(), "what is erased is aligned to registers");
        let zero = self.zero();
        // SAFETY: the blocks are 32 octets, borrowed exclusively, and aligned (checked above).
        unsafe { to.write_volatile(zero) };
    }

    #[inline(always)]
    fn broadcast(self, one: __m128i) -> __m256i {
        have!(_mm256_broadcastsi128_si256(one))
    }

    #[inline(always)]
    fn number(self, number: u128) -> __m128i {
        self.0.number(number)
    }

    #[inline(always)]
    fn join(self, [a, b, ..]: [__m128i; LANES_MAX]) -> __m256i {
        let v = have!(_mm256_castsi128_si256(a));
        have!(_mm256_inserti128_si256::<1>(v, b))
    }

    #[inline(always)]
    fn transpose(self, [a, b, c, d]: [__m256i; LANES_MAX]) -> [__m256i; LANES_MAX] {
        let low = have!(_mm256_permute2x128_si256::<0x20>(a, b));
        let high = have!(_mm256_permute2x128_si256::<0x31>(a, b));
        [low, high, c, d]
    }

    #[inline(always)]
    fn lane(self, v: __m256i, lane: usize) -> __m128i {
        if lane == 0 {
            have!(_mm256_castsi256_si128(v))
        } else {
            have!(_mm256_extracti128_si256::<1>(v))
        }
    }

    #[inline(always)]
    fn fold(self, v: __m256i) -> __m128i {
        self.0.xor(self.lane(v, 0), self.lane(v, 1))
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        have!(_mm256_xor_si256(a, b))
    }

    #[inline(always)]
    fn xor3(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        self.xor(self.xor(a, b), c)
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        have!(_mm256_and_si256(a, b))
    }

    #[inline(always)]
    fn add32(self, a: __m256i, b: __m256i) -> __m256i {
        have!(_mm256_add_epi32(a, b))
    }

    #[inline(always)]
    fn add64(self, a: __m256i, b: __m256i) -> __m256i {
        have!(_mm256_add_epi64(a, b))
    }

    #[inline(always)]
    fn signs32(self, a: __m256i) -> __m256i {
        have!(_mm256_srai_epi32::<31>(a))
    }

    #[inline(always)]
    fn shuffle(self, a: __m256i, order: __m256i) -> __m256i {
        have!(_mm256_shuffle_epi8(a, order))
    }

    #[inline(always)]
    fn shuffle32<const ORDER: i32>(self, a: __m256i) -> __m256i {
        have!(_mm256_shuffle_epi32::<ORDER>(a))
    }

    #[inline(always)]
    fn shift_octets<const N: i32>(self, a: __m256i) -> __m256i {
        have!(_mm256_bslli_epi128::<N>(a))
    }

    #[inline(always)]
    fn aes_round(self, state: __m256i, key: __m256i) -> __m256i {
        have!(_mm256_aesenc_epi128(state, key))
    }

    #[inline(always)]
    fn aes_last_round(self, state: __m256i, key: __m256i) -> __m256i {
        have!(_mm256_aesenclast_epi128(state, key))
    }

    #[inline(always)]
    fn clmul<const HALVES: i32>(self, a: __m256i, b: __m256i) -> __m256i {
        have!(_mm256_clmulepi64_epi128::<HALVES>(a, b))
    }
}
