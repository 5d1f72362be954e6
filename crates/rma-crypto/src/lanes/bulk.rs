//! The middle of long payloads: all lanes of a register are blocks of one frame.
//!
//! Encryption and hashing are bound by different units. Where there are registers enough for both,
//! the loop does a chunk of encryption for one frame and a chunk of hashing for another by turns,
//! and the processor does both at once; elsewhere each frame is encrypted and then hashed (see
//! [`interleaves`]). When opening, the hash comes before the decryption: no octet is decrypted
//! before its frame's tag was found right.
//!
//! The hash runs in each lane by itself, in steps of `LANES` blocks: with L lanes,
//!
//! ```text
//! y <- y·H^4L + x0·H^3L + x1·H^2L + x2·H^L + x3
//! ```
//!
//! reduced once for each chunk of four registers; at the end lane l is multiplied by H^(L-l), and
//! the lanes are added. So four powers do, whatever the length, all of them the same in every lane.

use super::{
    aes::ROUND_KEYS,
    ghash::Field,
    group::Job,
    isa::{Block, Isa, LANES_MAX},
    material::{Material, bulk_powers, counter, gather},
    shape::Shape,
    short::rest,
};
use crate::text::{Side, Text, blocks};

/// Registers of a chunk.
const REGISTERS: usize = 4;

/// Octets of a chunk.
#[inline(always)]
pub(super) const fn chunk_len<I: Isa>() -> usize {
    REGISTERS * I::LANES * 16
}

/// The numbers that the lanes add to the block number.
const LANE_NUMBERS: [Block; LANES_MAX] = [
    (0_u128).to_le_bytes(),
    (1_u128).to_le_bytes(),
    (2_u128).to_le_bytes(),
    (3_u128).to_le_bytes(),
];

/// The encryption of a bulk part, or its decryption.
pub(super) struct Crypt<I: Isa> {
    keys: [I::V; ROUND_KEYS],
    counters: I::V,
    step: I::V,
    offset: usize,
    end: usize,
}

impl<I: Isa> Crypt<I> {
    #[inline(always)]
    pub(super) fn new<'j, const P: usize>(
        field: Field<I>,
        material: &Material<P>,
        lane: usize,
        job: &impl Job<'j>,
        shape: Shape,
    ) -> Self {
        let isa = field.isa;
        let mut keys = [isa.zero(); ROUND_KEYS];
        for round in 0..ROUND_KEYS {
            keys[round] = isa.splat(&material.rounds[round][lane]);
        }
        let offset = shape.head();
        // Block number 1 is the tag's.
        let first = counter(job.iv(), 2 + offset as u32 / 16);
        let first = field.reverse(isa.broadcast(isa.number(first)));
        Self {
            keys,
            counters: isa.add32(first, isa.load(&LANE_NUMBERS)),
            step: isa.broadcast(isa.number(I::LANES as u128)),
            offset,
            end: offset + shape.bulk,
        }
    }

    /// All of it.
    #[inline(always)]
    pub(super) fn run(mut self, field: Field<I>, mut text: Text<'_>) {
        while self.offset < self.end {
            self.chunk(field, &mut text);
        }
    }

    #[inline(always)]
    fn chunk(&mut self, field: Field<I>, text: &mut Text<'_>) {
        let isa = field.isa;
        let mut states = [isa.zero(); REGISTERS];
        for n in 0..REGISTERS {
            states[n] = isa.xor(field.reverse(self.counters), self.keys[0]);
            self.counters = isa.add32(self.counters, self.step);
        }
        for round in 1..ROUND_KEYS - 1 {
            for n in 0..REGISTERS {
                states[n] = isa.aes_round(states[n], self.keys[round]);
            }
        }
        for n in 0..REGISTERS {
            states[n] = isa.aes_last_round(states[n], self.keys[ROUND_KEYS - 1]);
        }
        let from = chunk::<I>(text.side(Side::From), self.offset);
        for n in 0..REGISTERS {
            states[n] = isa.xor(states[n], isa.load(&from[n * I::LANES..]));
        }
        let to = chunk_mut::<I>(text, self.offset);
        for n in 0..REGISTERS {
            isa.store(states[n], &mut to[n * I::LANES..]);
        }
        self.offset += chunk_len::<I>();
    }
}

/// The hash of a bulk part.
pub(super) struct Hash<I: Isa> {
    /// By lanes, without the last multiplication.
    hash: I::V,
    /// The value that the next block is added to: at first, the hash of everything before.
    before: I::V,
    powers: [I::V; REGISTERS],
    halves: [I::V; REGISTERS],
    offset: usize,
    end: usize,
}

impl<I: Isa> Hash<I> {
    #[inline(always)]
    pub(super) fn new<const P: usize>(
        field: Field<I>,
        material: &Material<P>,
        lane: usize,
        shape: Shape,
        before: &Block,
    ) -> Self {
        let isa = field.isa;
        let mut powers = [isa.zero(); REGISTERS];
        let mut halves = powers;
        for (n, power) in bulk_powers(I::LANES).into_iter().enumerate() {
            powers[n] = isa.splat(&material.powers[power][lane]);
            halves[n] = field.halves(powers[n]);
        }
        let mut blocks = [[0; 16]; LANES_MAX];
        blocks[0] = *before;
        let offset = shape.head();
        Self {
            hash: isa.zero(),
            before: isa.load(&blocks),
            powers,
            halves,
            offset,
            end: offset + shape.bulk,
        }
    }

    /// All of it.
    #[inline(always)]
    pub(super) fn run(&mut self, field: Field<I>, text: &[u8]) {
        while self.offset < self.end {
            self.chunk(field, text);
        }
    }

    #[inline(always)]
    fn chunk(&mut self, field: Field<I>, text: &[u8]) {
        let isa = field.isa;
        let from = chunk::<I>(text, self.offset);
        let mut texts = [isa.zero(); REGISTERS];
        for n in 0..REGISTERS {
            texts[n] = field.reverse(isa.load(&from[n * I::LANES..]));
        }
        texts[0] = isa.xor(texts[0], self.before);
        let (powers, halves) = (&self.powers, &self.halves);
        let sum = field.add_product_by_three(field.nothing(), texts[0], powers[1], halves[1]);
        let sum = field.add_product_by_three(sum, texts[1], powers[2], halves[2]);
        let sum = field.add_product_by_three(sum, texts[2], powers[3], halves[3]);
        let sum = field.add_product_by_three(sum, self.hash, powers[0], halves[0]);
        self.hash = isa.xor(field.reduce(field.without_excess(sum)), texts[3]);
        self.before = isa.zero();
        self.offset += chunk_len::<I>();
    }

    /// The whole frame's hash.
    #[inline(always)]
    pub(super) fn finish<'j, J: Job<'j>, const P: usize>(
        self,
        field: Field<I>,
        material: &Material<P>,
        lane: usize,
        job: &J,
        shape: Shape,
    ) -> <I::One as Isa>::V {
        let isa = field.isa;
        let powers = |n: usize| &material.powers[n][lane];
        let last = gather(isa, 0, |n| powers(I::LANES - 1 - n));
        let sum = field.add_product(field.nothing(), self.hash, last);
        let one = Field::new(isa.one());
        let hash = one.reduce(field.fold_lanes(sum));
        let lengths = one.reverse(isa.number(shape.lengths()));
        let h = one.isa.splat(powers(0));
        if !shape.has_text_rest() {
            return one.dot(one.isa.xor(hash, lengths), h);
        }
        let rest = one.reverse(isa.number(rest(job, shape)));
        let sum = one.add_product(one.nothing(), lengths, h);
        let h2 = one.isa.splat(powers(1));
        one.reduce(one.add_product(sum, one.isa.xor(hash, rest), h2))
    }
}

/// Whether one frame is encrypted while another is hashed.
///
/// Both together want some thirty registers, and only processors with registers of four lanes have
/// so many. With sixteen, keys and powers go to the stack and come back for each chunk, which takes
/// more than the two units gain.
#[inline(always)]
pub(super) const fn interleaves<I: Isa>() -> bool {
    I::LANES == LANES_MAX
}

/// Encrypts or decrypts one frame's bulk part, and hashes another's. Either may be missing.
#[inline(always)]
pub(super) fn run<I: Isa>(
    field: Field<I>,
    crypt: Option<(Crypt<I>, Text<'_>)>,
    hash: Option<(Hash<I>, &[u8])>,
) -> Option<Hash<I>> {
    match (crypt, hash) {
        (Some((mut crypt, mut to)), Some((mut hash, from))) => {
            while crypt.offset < crypt.end && hash.offset < hash.end {
                crypt.chunk(field, &mut to);
                hash.chunk(field, from);
            }
            while crypt.offset < crypt.end {
                crypt.chunk(field, &mut to);
            }
            while hash.offset < hash.end {
                hash.chunk(field, from);
            }
            Some(hash)
        }
        (Some((mut crypt, mut to)), None) => {
            while crypt.offset < crypt.end {
                crypt.chunk(field, &mut to);
            }
            None
        }
        (None, Some((mut hash, from))) => {
            while hash.offset < hash.end {
                hash.chunk(field, from);
            }
            Some(hash)
        }
        (None, None) => None,
    }
}

/// The chunk at `offset`.
#[inline(always)]
fn chunk<I: Isa>(text: &[u8], offset: usize) -> &[Block] {
    match I::LANES {
        1 => blocks::<REGISTERS>(text, offset),
        2 => blocks::<{ 2 * REGISTERS }>(text, offset),
        _ => blocks::<{ 4 * REGISTERS }>(text, offset),
    }
}

/// The chunk at `offset`, to write to.
#[inline(always)]
fn chunk_mut<'t, I: Isa>(text: &'t mut Text<'_>, offset: usize) -> &'t mut [Block] {
    match I::LANES {
        1 => text.blocks_mut::<REGISTERS>(offset),
        2 => text.blocks_mut::<{ 2 * REGISTERS }>(offset),
        _ => text.blocks_mut::<{ 4 * REGISTERS }>(offset),
    }
}
