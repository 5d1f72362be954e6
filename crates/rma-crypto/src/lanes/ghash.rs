//! GHASH (NIST SP 800-38D), with one hash key in each lane.
//!
//! GHASH writes its polynomials with the lowest power in the highest bit. With octets reversed, a
//! product comes out one bit too low; RFC 8452 (appendix A) shows the way out that is taken here:
//! with the hash key multiplied by x once, at the beginning, GHASH is POLYVAL, whose product
//!
//! ```text
//! dot(a, b) = a · b · x^-128 mod x^128 + x^127 + x^126 + x^121 + 1
//! ```
//!
//! is a Montgomery product: the low half of the 256 bits is folded upward, 64 bits at a time, by
//! one carry-less multiplication with x^63 + x^62 + x^57 each. Carry-less multiplication for GCM,
//! the aggregated reduction (several blocks are multiplied with powers of the key, their products
//! added up, and the sum reduced once) and Karatsuba's three multiplications for four are after
//! Gueron and Kounavis, "Intel Carry-Less Multiplication Instruction and its Usage for Computing
//! the GCM Mode".
//!
//! Nothing here depends on a secret but the values: no branch, no address.

use super::isa::{Block, Isa};

/// The octets of a block in reverse.
const REVERSED: Block = [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0];

/// x^63 + x^62 + x^57 in the low half: what is folded with.
const FOLD: Block = (0xc200_0000_0000_0000_u128).to_le_bytes();

/// x^127 + x^126 + x^121 + 1 by 32-bit words: bit 0 for the carry into the upper half, and the
/// modulus.
const DOUBLE: Block = (0xc200_0000_0000_0001_0000_0000_0000_0001_u128).to_le_bytes();

/// The values that stay constant over a batch, in registers.
#[derive(Clone, Copy)]
pub(crate) struct Field<I: Isa> {
    pub(crate) isa: I,
    reversed: I::V,
    fold: I::V,
}

/// A sum of products that have not been reduced: low, middle and high 128 bits, the middle one 64
/// bits up.
#[derive(Clone, Copy)]
pub(crate) struct Sum<V> {
    low: V,
    middle: V,
    high: V,
}

impl<I: Isa> Field<I> {
    #[inline(always)]
    pub(crate) fn new(isa: I) -> Self {
        Self { isa, reversed: isa.splat(&REVERSED), fold: isa.splat(&FOLD) }
    }

    /// A block as a field element, or a field element as a block.
    #[inline(always)]
    pub(crate) fn reverse(self, v: I::V) -> I::V {
        self.isa.shuffle(v, self.reversed)
    }

    /// No product yet.
    #[inline(always)]
    pub(crate) fn nothing(self) -> Sum<I::V> {
        let zero = self.isa.zero();
        Sum { low: zero, middle: zero, high: zero }
    }

    /// `sum` + `a` · `b`, by four multiplications.
    #[inline(always)]
    pub(crate) fn add_product(self, sum: Sum<I::V>, a: I::V, b: I::V) -> Sum<I::V> {
        let isa = self.isa;
        Sum {
            low: isa.xor(sum.low, isa.clmul::<0x00>(a, b)),
            middle: isa.xor3(sum.middle, isa.clmul::<0x01>(a, b), isa.clmul::<0x10>(a, b)),
            high: isa.xor(sum.high, isa.clmul::<0x11>(a, b)),
        }
    }

    /// The two halves of `b`, added, in the low half.
    #[inline(always)]
    pub(crate) fn halves(self, b: I::V) -> I::V {
        self.isa.xor(b, self.isa.shuffle32::<SWAP_HALVES>(b))
    }

    /// `sum` + `a` · `b`, by three multiplications (Karatsuba); `halves` is [`Field::halves`] of
    /// `b`. The middle holds low and high as well until [`Field::without_excess`].
    #[inline(always)]
    pub(crate) fn add_product_by_three(
        self,
        sum: Sum<I::V>,
        a: I::V,
        b: I::V,
        halves: I::V,
    ) -> Sum<I::V> {
        let isa = self.isa;
        Sum {
            low: isa.xor(sum.low, isa.clmul::<0x00>(a, b)),
            middle: isa.xor(sum.middle, isa.clmul::<0x00>(self.halves(a), halves)),
            high: isa.xor(sum.high, isa.clmul::<0x11>(a, b)),
        }
    }

    /// A sum that was made by three multiplications each.
    #[inline(always)]
    pub(crate) fn without_excess(self, sum: Sum<I::V>) -> Sum<I::V> {
        Sum { middle: self.isa.xor3(sum.middle, sum.low, sum.high), ..sum }
    }

    /// Reduces a sum to a field element.
    #[inline(always)]
    pub(crate) fn reduce(self, sum: Sum<I::V>) -> I::V {
        let isa = self.isa;
        let Sum { low, middle, high } = sum;
        let folded = isa.clmul::<0x00>(low, self.fold);
        let middle = isa.xor3(middle, isa.shuffle32::<SWAP_HALVES>(low), folded);
        let folded = isa.clmul::<0x00>(middle, self.fold);
        isa.xor3(high, isa.shuffle32::<SWAP_HALVES>(middle), folded)
    }

    /// `a` · `b`.
    #[inline(always)]
    pub(crate) fn dot(self, a: I::V, b: I::V) -> I::V {
        self.reduce(self.add_product(self.nothing(), a, b))
    }

    /// `a` · `a`: the products of its two halves cancel each other.
    #[inline(always)]
    pub(crate) fn square(self, a: I::V) -> I::V {
        let isa = self.isa;
        let low = isa.clmul::<0x00>(a, a);
        self.reduce(Sum { low, middle: isa.zero(), high: isa.clmul::<0x11>(a, a) })
    }

    /// The hash key, from AES of the zero block: reversed, and multiplied by x.
    #[inline(always)]
    pub(crate) fn hash_key(self, encrypted_zeros: I::V) -> I::V {
        let isa = self.isa;
        let h = self.reverse(encrypted_zeros);
        // Each half moves up by one bit. What falls out of the lower half goes into bit 64, what
        // falls out of the upper half is the modulus: both are signs of 32-bit words, here in the
        // words that they concern.
        let fallen_out = isa.signs32(isa.shuffle32::<0b11_01_00_11>(h));
        let moved = isa.add64(h, h);
        isa.xor(moved, isa.and(fallen_out, isa.splat(&DOUBLE)))
    }
}

impl<I: Isa> Field<I> {
    /// The lanes of a sum, added.
    #[inline(always)]
    pub(crate) fn fold_lanes(self, sum: Sum<I::V>) -> Sum<<I::One as Isa>::V> {
        let isa = self.isa;
        Sum { low: isa.fold(sum.low), middle: isa.fold(sum.middle), high: isa.fold(sum.high) }
    }
}

const SWAP_HALVES: i32 = 0b01_00_11_10;
