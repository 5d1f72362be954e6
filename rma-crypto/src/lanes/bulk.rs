//! The middle of long payloads: all lanes of a register are blocks of one frame.
//!
//! Encryption and hashing are bound by different units, so the loop does a chunk of encryption for one frame and a
//! chunk of hashing for another by turns, and the processor does both at once. When opening, the frame that is hashed
//! comes before the frame that is decrypted: no octet is decrypted before its frame's tag was found right.
//!
//! The hash runs in each lane by itself, in steps of `LANES` blocks: with L lanes,
//!
//! ```text
//! y <- y·H^4L + x0·H^3L + x1·H^2L + x2·H^L + x3
//! ```
//!
//! reduced once for each chunk of four registers; at the end lane l is multiplied by H^(L-l), and the lanes are added.
//! So four powers do, whatever the length, all of them the same in every lane.

use super::{
    aes::ROUND_KEYS,
    frame::Frame,
    ghash::Field,
    isa::{Block, Isa},
    material::{Material, bulk_powers},
    span::Side,
};

/// Registers of a chunk.
const REGISTERS: usize = 4;

/// The most lanes that a register has here.
const LANES_MAX: usize = 4;

/// Octets of a chunk.
#[inline(always)]
pub(super) const fn chunk_len<I: Isa>() -> usize {
    REGISTERS * I::LANES * 16
}

/// What each lane adds to the block number.
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
    pub(super) fn new<const P: usize>(
        field: Field<I>,
        material: &Material<P>,
        lane: usize,
        frame: &Frame<'_>,
    ) -> Self {
        let isa = field.isa;
        let mut keys = [isa.zero(); ROUND_KEYS];
        for round in 0..ROUND_KEYS {
            keys[round] = isa.splat(&material.rounds[round][lane]);
        }
        let offset = frame.shape.head();
        // Block number 1 is the tag's.
        let before = isa.splat(&(1 + offset as u128 / 16).to_le_bytes());
        let first = isa.add32(field.reverse(isa.splat(&frame.first_counter)), before);
        Self {
            keys,
            counters: isa.add32(first, isa.load(&LANE_NUMBERS)),
            step: isa.splat(&(I::LANES as u128).to_le_bytes()),
            offset,
            end: offset + frame.shape.bulk,
        }
    }

    #[inline(always)]
    fn chunk(&mut self, field: Field<I>, frame: &mut Frame<'_>) {
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
        for n in 0..REGISTERS {
            states[n] = isa.xor(states[n], load(isa, frame, Side::From, self.offset, n));
        }
        for n in 0..REGISTERS {
            store(isa, frame, self.offset, n, states[n]);
        }
        self.offset += chunk_len::<I>();
    }
}

/// The hash of a bulk part.
pub(super) struct Hash<I: Isa> {
    /// By lanes, without the last multiplication.
    hash: I::V,
    /// What the next block is added to: at first, the hash of everything before.
    before: I::V,
    powers: [I::V; REGISTERS],
    halves: [I::V; REGISTERS],
    offset: usize,
    end: usize,
    side: Side,
}

impl<I: Isa> Hash<I> {
    #[inline(always)]
    pub(super) fn new<const P: usize>(
        field: Field<I>,
        material: &Material<P>,
        lane: usize,
        frame: &Frame<'_>,
        side: Side,
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
        let offset = frame.shape.head();
        Self {
            hash: isa.zero(),
            before: isa.load(&blocks),
            powers,
            halves,
            offset,
            end: offset + frame.shape.bulk,
            side,
        }
    }

    #[inline(always)]
    fn chunk(&mut self, field: Field<I>, frame: &Frame<'_>) {
        let isa = field.isa;
        let text = |n: usize| field.reverse(load(isa, frame, self.side, self.offset, n));
        let sum = field.nothing();
        let (powers, halves) = (&self.powers, &self.halves);
        let first = isa.xor(text(0), self.before);
        let sum = field.add_product_by_three(sum, first, powers[1], halves[1]);
        let sum = field.add_product_by_three(sum, text(1), powers[2], halves[2]);
        let sum = field.add_product_by_three(sum, text(2), powers[3], halves[3]);
        let sum = field.add_product_by_three(sum, self.hash, powers[0], halves[0]);
        self.hash = isa.xor(field.reduce(field.without_excess(sum)), text(3));
        self.before = isa.zero();
        self.offset += chunk_len::<I>();
    }

    /// The whole frame's hash.
    #[inline(always)]
    pub(super) fn finish<const P: usize>(
        self,
        field: Field<I>,
        material: &Material<P>,
        lane: usize,
        frame: &Frame<'_>,
    ) -> <I::One as Isa>::V {
        let isa = field.isa;
        let powers = |n: usize| &material.powers[n][lane];
        let mut last = [powers(0); LANES_MAX];
        for n in 0..I::LANES {
            last[n] = powers(I::LANES - 1 - n);
        }
        let sum = field.add_product(field.nothing(), self.hash, isa.gather(&last));
        let one = Field::new(isa.one());
        let hash = one.reduce(field.fold_lanes(sum));
        let lengths = one.reverse(one.isa.splat(frame.lengths()));
        let h = one.isa.splat(powers(0));
        if !frame.shape.has_rest() {
            return one.dot(one.isa.xor(hash, lengths), h);
        }
        let rest = one.reverse(one.isa.splat(&frame.text_rest));
        let sum = one.add_product(one.nothing(), lengths, h);
        let h2 = one.isa.splat(powers(1));
        one.reduce(one.add_product(sum, one.isa.xor(hash, rest), h2))
    }
}

/// Encrypts or decrypts one frame's bulk part, and hashes another's. Either may be missing.
#[inline(always)]
pub(super) fn run<I: Isa>(
    field: Field<I>,
    mut crypt: Option<(&mut Crypt<I>, &mut Frame<'_>)>,
    mut hash: Option<(&mut Hash<I>, &Frame<'_>)>,
) {
    if let (Some((crypt, to)), Some((hash, from))) = (&mut crypt, &mut hash) {
        while crypt.offset < crypt.end && hash.offset < hash.end {
            crypt.chunk(field, to);
            hash.chunk(field, from);
        }
    }
    if let Some((crypt, to)) = crypt {
        while crypt.offset < crypt.end {
            crypt.chunk(field, to);
        }
    }
    if let Some((hash, from)) = hash {
        while hash.offset < hash.end {
            hash.chunk(field, from);
        }
    }
}

/// Register number `n` of the chunk at `offset`.
#[inline(always)]
fn load<I: Isa>(isa: I, frame: &Frame<'_>, side: Side, offset: usize, n: usize) -> I::V {
    let blocks = offset + n * I::LANES * 16;
    match I::LANES {
        1 => isa.load(frame.span.blocks::<1>(side, blocks)),
        2 => isa.load(frame.span.blocks::<2>(side, blocks)),
        _ => isa.load(frame.span.blocks::<4>(side, blocks)),
    }
}

/// The opposite of [`load`].
#[inline(always)]
fn store<I: Isa>(isa: I, frame: &mut Frame<'_>, offset: usize, n: usize, v: I::V) {
    let blocks = offset + n * I::LANES * 16;
    match I::LANES {
        1 => isa.store(v, frame.span.blocks_mut::<1>(blocks)),
        2 => isa.store(v, frame.span.blocks_mut::<2>(blocks)),
        _ => isa.store(v, frame.span.blocks_mut::<4>(blocks)),
    }
}
