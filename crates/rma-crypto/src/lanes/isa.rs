//! The few vector instructions that everything else is made of.
//!
//! A register holds `LANES` blocks of 128 bits side by side, and every operation works on each of
//! them by itself. A value that implements [`Isa`] is the proof that this processor has the
//! instructions; it is made by detection and nowhere else.
//!
//! Every method is `#[inline(always)]`, and so is everything that calls them, up to the one
//! function that has the instructions enabled. Otherwise each instruction would be a call. Closures
//! cannot be told to be inlined: so those in here only ever say where a block is.

use core::mem::MaybeUninit;

/// Sixteen octets: a block of AES, an element of GHASH's field.
pub(crate) type Block = [u8; 16];

/// The most lanes that a register has.
pub(crate) const LANES_MAX: usize = 4;

/// A set of vector instructions.
pub(crate) trait Isa: Copy {
    /// A register.
    type V: Copy;
    /// How many blocks a register holds.
    const LANES: usize;
    /// The same instructions over one block.
    type One: Isa;

    /// The same instructions over one block.
    fn one(self) -> Self::One;

    /// A block of zeros in every lane.
    fn zero(self) -> Self::V;
    /// One block in every lane.
    fn splat(self, block: &Block) -> Self::V;
    /// One register of one block in every lane.
    fn broadcast(self, one: <Self::One as Isa>::V) -> Self::V;
    /// A block as a number, its first octet lowest.
    fn number(self, number: u128) -> <Self::One as Isa>::V;
    /// One 32-bit number in every 32 bits.
    fn splat32(self, number: u32) -> Self::V;
    /// The first `LANES` of `blocks`, side by side.
    fn load(self, blocks: &[Block]) -> Self::V;
    /// The opposite of `load`.
    fn store(self, v: Self::V, blocks: &mut [Block]);
    /// As `store`, where nothing may have been before. Writes the first `LANES` of `blocks`.
    fn write(self, v: Self::V, blocks: &mut [MaybeUninit<Block>]);
    /// Zeros, in the first `LANES` of `blocks`, even if nobody looks at them again.
    fn erase(self, blocks: &mut [MaybeUninit<Block>]);
    /// The first `LANES` of `parts`, side by side.
    fn join(self, parts: [<Self::One as Isa>::V; LANES_MAX]) -> Self::V;
    /// Lane `l` of register `r` to lane `r` of register `l`, in the first `LANES` registers.
    fn transpose(self, registers: [Self::V; LANES_MAX]) -> [Self::V; LANES_MAX];
    /// One lane.
    fn lane(self, v: Self::V, lane: usize) -> <Self::One as Isa>::V;
    /// All lanes, XORed with each other.
    fn fold(self, v: Self::V) -> <Self::One as Isa>::V;

    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor3(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    fn add32(self, a: Self::V, b: Self::V) -> Self::V;
    fn add64(self, a: Self::V, b: Self::V) -> Self::V;
    /// The sign of each 32-bit number in all its bits.
    fn signs32(self, a: Self::V) -> Self::V;
    /// The octets of `a` in the order that `order` says.
    fn shuffle(self, a: Self::V, order: Self::V) -> Self::V;
    /// The 32-bit numbers of `a` in the order that `ORDER` says.
    fn shuffle32<const ORDER: i32>(self, a: Self::V) -> Self::V;
    /// `a` shifted up by octets, zeros coming in.
    fn shift_octets<const N: i32>(self, a: Self::V) -> Self::V;
    /// One round of AES.
    fn aes_round(self, state: Self::V, key: Self::V) -> Self::V;
    /// The last round of AES.
    fn aes_last_round(self, state: Self::V, key: Self::V) -> Self::V;
    /// The carry-less product of one half of `a` (bit 0 of `HALVES`) and one of `b` (bit 4).
    fn clmul<const HALVES: i32>(self, a: Self::V, b: Self::V) -> Self::V;
}
