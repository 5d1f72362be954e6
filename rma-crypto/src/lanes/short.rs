//! Blocks of several frames side by side, one frame in each lane.

use super::{
    aes,
    frame::{Frame, Part},
    ghash::{Field, Sum},
    isa::{Block, Isa},
    material::{Material, SHORT_POWERS, gather},
    span::Side,
};

/// Which frames of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen(u32);

impl Chosen {
    pub(super) const ALL: Self = Self(u32::MAX);
    pub(super) const NONE: Self = Self(0);

    #[inline(always)]
    pub(super) const fn has(self, index: usize) -> bool {
        self.0 & 1 << index != 0
    }

    #[inline(always)]
    pub(super) const fn with(self, index: usize, chosen: bool) -> Self {
        Self(self.0 | (chosen as u32) << index)
    }
}

/// Hashes what stands before the bulk part; without bulk, everything.
///
/// Frames that have fewer blocks than others begin with zeros, which leave the hash at zero. So all end at the same
/// time, and the powers are the same for all lanes.
#[inline(always)]
pub(super) fn hash<I: Isa, const G: usize, const P: usize>(
    field: Field<I>,
    material: &Material<P>,
    frames: &[Frame<'_>],
    side: Side,
) -> [I::V; G] {
    let shape = frames[0].shape;
    if frames[1..].iter().all(|frame| frame.shape == shape) {
        // One decision for all lanes.
        return hash_blocks(field, material, shape.hashed(), |index| {
            let part = shape.part(index);
            move |lane: usize| block(frames, lane, side, part)
        });
    }
    let most = frames.iter().map(|frame| frame.shape.hashed()).max().unwrap_or(0);
    hash_blocks(field, material, most, |index| {
        move |lane: usize| {
            let Some(frame) = frames.get(lane) else { return &ZEROS };
            let before = most - frame.shape.hashed();
            match index.checked_sub(before) {
                Some(index) => frame.block(side, frame.shape.part(index)),
                None => &ZEROS,
            }
        }
    })
}

const ZEROS: Block = [0; 16];

#[inline(always)]
fn block<'f>(frames: &'f [Frame<'_>], lane: usize, side: Side, part: Part) -> &'f Block {
    let frame = if lane < frames.len() { &frames[lane] } else { &frames[0] };
    frame.block(side, part)
}

/// Hashes `count` blocks of each lane; `blocks(index)(lane)` is one of them.
#[inline(always)]
fn hash_blocks<'b, I: Isa, const G: usize, const P: usize, F: Fn(usize) -> &'b Block>(
    field: Field<I>,
    material: &Material<P>,
    count: usize,
    blocks: impl Fn(usize) -> F,
) -> [I::V; G] {
    let isa = field.isa;
    let mut hashes = [isa.zero(); G];
    let mut index = 0;
    while index < count {
        // As many blocks as there are powers are reduced together; the first time, what is over.
        let together = (count - index - 1) % SHORT_POWERS + 1;
        let mut sums: [Sum<I::V>; G] = [field.nothing(); G];
        for power in (0..together).rev() {
            let block = blocks(index);
            for g in 0..G {
                let mut v = field.reverse(gather::<I, P>(isa, g, &block));
                if power + 1 == together {
                    v = isa.xor(v, hashes[g]);
                }
                let key = aes::load(isa, &material.powers[power], g);
                sums[g] = field.add_product(sums[g], v, key);
            }
            index += 1;
        }
        for g in 0..G {
            hashes[g] = field.reduce(sums[g]);
        }
    }
    hashes
}

/// Encrypts, or decrypts, the heads of the chosen frames, `N` blocks of each at a time.
#[inline(always)]
pub(super) fn crypt_heads<I: Isa, const N: usize, const G: usize, const P: usize>(
    field: Field<I>,
    material: &Material<P>,
    frames: &mut [Frame<'_>],
    chosen: Chosen,
) {
    let isa = field.isa;
    let mut most = 0;
    for (lane, frame) in frames.iter().enumerate() {
        most = most.max(if chosen.has(lane) { frame.shape.head() } else { 0 });
    }
    if most == 0 {
        return;
    }
    let one = isa.splat(&(1_u128).to_le_bytes());
    let mut counters = [isa.zero(); G];
    for g in 0..G {
        let first = gather::<I, P>(isa, g, |lane| match frames.get(lane) {
            Some(frame) => &frame.first_counter,
            None => &ZEROS,
        });
        // Block number 1 is the tag's.
        counters[g] = isa.add32(field.reverse(first), one);
    }
    for offset in (0..most).step_by(N * 16) {
        let mut states = [[isa.zero(); G]; N];
        for n in 0..N {
            for g in 0..G {
                states[n][g] = field.reverse(counters[g]);
                counters[g] = isa.add32(counters[g], one);
            }
        }
        aes::encrypt(isa, &material.rounds, &mut states);
        for g in 0..G {
            for lane in 0..I::LANES {
                let index = g * I::LANES + lane;
                let Some(frame) = frames.get_mut(index) else { break };
                let head = frame.shape.head();
                if !chosen.has(index) || head <= offset {
                    continue;
                }
                let left = (head - offset) / 16;
                for n in 0..N {
                    if n < left {
                        let stream = isa.lane(states[n][g], lane);
                        xor_block(isa.one(), frame, offset + n * 16, stream);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn xor_block<O: Isa>(one: O, frame: &mut Frame<'_>, offset: usize, stream: O::V) {
    let text = one.load(frame.span.blocks::<1>(Side::From, offset));
    one.store(one.xor(text, stream), frame.span.blocks_mut::<1>(offset));
}

/// Encrypts the rests of all texts. Keeps the ciphertext for the hash.
#[inline(always)]
pub(super) fn encrypt_rests<const P: usize>(material: &Material<P>, frames: &mut [Frame<'_>]) {
    for (frame, stream) in frames.iter_mut().zip(&material.rest_streams) {
        if !frame.shape.has_rest() {
            continue;
        }
        let offset = frame.shape.whole();
        let text = frame.span.rest(Side::From, offset);
        let sealed = u128::from_le_bytes(text) ^ u128::from_le_bytes(*stream);
        // Beyond the end the hash takes zeros, not key stream.
        let rest = frame.shape.text - offset;
        frame.text_rest = (sealed & ((1 << (8 * rest)) - 1)).to_le_bytes();
        frame.span.write_rest(offset, &frame.text_rest);
    }
}

/// Decrypts the rests of the chosen texts.
#[inline(always)]
pub(super) fn decrypt_rests<const P: usize>(
    material: &Material<P>,
    frames: &mut [Frame<'_>],
    chosen: Chosen,
) {
    for (lane, (frame, stream)) in frames.iter_mut().zip(&material.rest_streams).enumerate() {
        if chosen.has(lane) && frame.shape.has_rest() {
            let text = u128::from_le_bytes(frame.text_rest) ^ u128::from_le_bytes(*stream);
            frame.span.write_rest(frame.shape.whole(), &text.to_le_bytes());
        }
    }
}
