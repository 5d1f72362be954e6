//! 512-bit registers: AVX-512F and BW, VAES and VPCLMULQDQ.

use core::{arch::x86_64::*, mem::MaybeUninit};

use super::aes_ni::AesNi;
use crate::lanes::{Block, Isa, LANES_MAX};

/// The proof that this processor has AVX-512F, BW and VL, VAES and VPCLMULQDQ, and what [`AesNi`]
/// proves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vaes512(AesNi);

impl Vaes512 {
    /// # Safety
    /// The processor has AVX-512F, BW and VL, VAES and VPCLMULQDQ.
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

impl Isa for Vaes512 {
    type V = __m512i;
    const LANES: usize = 4;
    type One = AesNi;

    #[inline(always)]
    fn one(self) -> AesNi {
        self.0
    }

    #[inline(always)]
    fn zero(self) -> __m512i {
        have!(_mm512_setzero_si512())
    }

    #[inline(always)]
    fn splat(self, block: &Block) -> __m512i {
        self.broadcast(self.0.splat(block))
    }

    #[inline(always)]
    fn splat32(self, number: u32) -> __m512i {
        have!(_mm512_set1_epi32(number.cast_signed()))
    }

    #[inline(always)]
    fn load(self, blocks: &[Block]) -> __m512i {
        let from = blocks[..Self::LANES].as_ptr();
        // SAFETY: four blocks are 64 readable octets; loaded unaligned.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    fn store(self, v: __m512i, blocks: &mut [Block]) {
        let to = blocks[..Self::LANES].as_mut_ptr();
        // SAFETY: four blocks are 64 octets, borrowed exclusively; stored unaligned.
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    fn write(self, v: __m512i, blocks: &mut [MaybeUninit<Block>]) {
        let to = blocks[..Self::LANES].as_mut_ptr();
        // SAFETY: the blocks are 64 octets, borrowed exclusively; stored unaligned.
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    fn erase(self, blocks: &mut [MaybeUninit<Block>]) {
        let to: *mut __m512i = blocks[..Self::LANES].as_mut_ptr().cast();
        assert!(to.is_aligned(), "what is erased is aligned to registers");
        let zero = self.zero();
        // SAFETY: the blocks are 64 octets, borrowed exclusively, and aligned (checked above).
        unsafe { to.write_volatile(zero) };
    }

    #[inline(always)]
    fn broadcast(self, one: __m128i) -> __m512i {
        have!(_mm512_broadcast_i32x4(one))
    }

    #[inline(always)]
    fn number(self, number: u128) -> __m128i {
        self.0.number(number)
    }

    #[inline(always)]
    fn join(self, [a, b, c, d]: [__m128i; LANES_MAX]) -> __m512i {
        let v = have!(_mm512_castsi128_si512(a));
        let v = have!(_mm512_inserti32x4::<1>(v, b));
        let v = have!(_mm512_inserti32x4::<2>(v, c));
        have!(_mm512_inserti32x4::<3>(v, d))
    }

    #[inline(always)]
    fn transpose(self, [a, b, c, d]: [__m512i; LANES_MAX]) -> [__m512i; LANES_MAX] {
        let ab_low = have!(_mm512_shuffle_i32x4::<0b01_00_01_00>(a, b));
        let ab_high = have!(_mm512_shuffle_i32x4::<0b11_10_11_10>(a, b));
        let cd_low = have!(_mm512_shuffle_i32x4::<0b01_00_01_00>(c, d));
        let cd_high = have!(_mm512_shuffle_i32x4::<0b11_10_11_10>(c, d));
        [
            have!(_mm512_shuffle_i32x4::<0b10_00_10_00>(ab_low, cd_low)),
            have!(_mm512_shuffle_i32x4::<0b11_01_11_01>(ab_low, cd_low)),
            have!(_mm512_shuffle_i32x4::<0b10_00_10_00>(ab_high, cd_high)),
            have!(_mm512_shuffle_i32x4::<0b11_01_11_01>(ab_high, cd_high)),
        ]
    }

    #[inline(always)]
    fn lane(self, v: __m512i, lane: usize) -> __m128i {
        match lane {
            0 => have!(_mm512_castsi512_si128(v)),
            1 => have!(_mm512_extracti32x4_epi32::<1>(v)),
            2 => have!(_mm512_extracti32x4_epi32::<2>(v)),
            _ => have!(_mm512_extracti32x4_epi32::<3>(v)),
        }
    }

    #[inline(always)]
    fn fold(self, v: __m512i) -> __m128i {
        let one = self.0;
        let low = one.xor(self.lane(v, 0), self.lane(v, 1));
        one.xor3(low, self.lane(v, 2), self.lane(v, 3))
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        have!(_mm512_xor_si512(a, b))
    }

    #[inline(always)]
    fn xor3(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        have!(_mm512_ternarylogic_epi64::<0x96>(a, b, c))
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        have!(_mm512_and_si512(a, b))
    }

    #[inline(always)]
    fn add32(self, a: __m512i, b: __m512i) -> __m512i {
        have!(_mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn add64(self, a: __m512i, b: __m512i) -> __m512i {
        have!(_mm512_add_epi64(a, b))
    }

    #[inline(always)]
    fn signs32(self, a: __m512i) -> __m512i {
        have!(_mm512_srai_epi32::<31>(a))
    }

    #[inline(always)]
    fn shuffle(self, a: __m512i, order: __m512i) -> __m512i {
        have!(_mm512_shuffle_epi8(a, order))
    }

    #[inline(always)]
    fn shuffle32<const ORDER: i32>(self, a: __m512i) -> __m512i {
        have!(_mm512_shuffle_epi32::<ORDER>(a))
    }

    #[inline(always)]
    fn shift_octets<const N: i32>(self, a: __m512i) -> __m512i {
        have!(_mm512_bslli_epi128::<N>(a))
    }

    #[inline(always)]
    fn aes_round(self, state: __m512i, key: __m512i) -> __m512i {
        have!(_mm512_aesenc_epi128(state, key))
    }

    #[inline(always)]
    fn aes_last_round(self, state: __m512i, key: __m512i) -> __m512i {
        have!(_mm512_aesenclast_epi128(state, key))
    }

    #[inline(always)]
    fn clmul<const HALVES: i32>(self, a: __m512i, b: __m512i) -> __m512i {
        have!(_mm512_clmulepi64_epi128::<HALVES>(a, b))
    }
}
