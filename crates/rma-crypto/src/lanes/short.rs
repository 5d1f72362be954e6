//! Blocks of several frames side by side, one frame in each lane.

use super::{
    aes,
    ghash::{Field, Sum},
    group::{Group, Job},
    isa::{Block, Isa, LANES_MAX},
    material::{Material, SHORT_POWERS, counter, gather, numbers},
    shape::{Part, Shape},
};
use crate::text::{Side, Text, blocks, padded};

/// The chosen frames of a group.
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
#[inline(always)]
pub(super) fn hash<'j, I: Isa, J: Job<'j>, const G: usize, const P: usize>(
    field: Field<I>,
    material: &Material<P>,
    jobs: &[&J; P],
    group: &Group,
) -> [I::V; G] {
    let isa = field.isa;
    let mut hasher = Hasher::<I, G, P> {
        field,
        material,
        left: group.hashed,
        sums: [field.nothing(); G],
        hashes: [isa.zero(); G],
    };
    if let Some(shape) = group.common() {
        hasher.take_alike(jobs, shape);
    } else {
        hasher.take_mixed(jobs, group);
    }
    hasher.hashes
}

/// Whether three multiplications are taken for four. With four lanes it does not pay: there are few
/// multiplications, and more else to do.
#[inline(always)]
const fn by_three<I: Isa>() -> bool {
    I::LANES < 4
}

/// The hashes of `P` frames in the making.
struct Hasher<'m, I: Isa, const G: usize, const P: usize> {
    field: Field<I>,
    material: &'m Material<P>,
    /// Blocks that are still to come.
    left: usize,
    sums: [Sum<I::V>; G],
    /// Of everything up to the last reduction, if no block has come since; otherwise zero.
    hashes: [I::V; G],
}

impl<I: Isa, const G: usize, const P: usize> Hasher<'_, I, G, P> {
    /// One block of each frame. As many blocks as there are powers are reduced together; the first
    /// time, what is over.
    #[inline(always)]
    fn take(&mut self, vectors: [I::V; G]) {
        let (field, isa) = (self.field, self.field.isa);
        self.left -= 1;
        let power = self.left % SHORT_POWERS;
        let powers = &self.material.powers[power];
        for g in 0..G {
            let block = isa.xor(field.reverse(vectors[g]), self.hashes[g]);
            let (key, sum) = (aes::load(isa, powers, g), self.sums[g]);
            self.sums[g] = if by_three::<I>() {
                field.add_product_by_three(sum, block, key, field.halves(key))
            } else {
                field.add_product(sum, block, key)
            };
            self.hashes[g] = isa.zero();
        }
        if power == 0 {
            for g in 0..G {
                let mut sum = self.sums[g];
                if by_three::<I>() {
                    sum = field.without_excess(sum);
                }
                self.hashes[g] = field.reduce(sum);
                self.sums[g] = field.nothing();
            }
        }
    }

    /// Frames of one shape: one decision for all lanes.
    #[inline(always)]
    fn take_alike<'j, J: Job<'j>>(&mut self, jobs: &[&J; P], shape: Shape) {
        let isa = self.field.isa;
        let mut vectors = [isa.zero(); G];
        let aads: [&[Block]; P] = core::array::from_fn(|lane| jobs[lane].aad().as_chunks().0);
        for index in 0..shape.aad / 16 {
            for g in 0..G {
                vectors[g] = gather(isa, g, |lane| &aads[lane][index]);
            }
            self.take(vectors);
        }
        if shape.has_aad_rest() {
            for g in 0..G {
                vectors[g] = numbers(isa, g, |lane| padded(&jobs[lane].aad()[shape.aad_whole()..]));
            }
            self.take(vectors);
        }
        let mut offset = 0;
        while offset + I::LANES * 16 <= shape.head() {
            self.take_square(jobs, offset);
            offset += I::LANES * 16;
        }
        while offset < shape.head() {
            for g in 0..G {
                vectors[g] = gather(isa, g, |lane| {
                    &blocks::<1>(jobs[lane].text().side(J::CIPHER), offset)[0]
                });
            }
            self.take(vectors);
            offset += 16;
        }
        if shape.bulk > 0 {
            return;
        }
        if shape.has_text_rest() {
            for g in 0..G {
                vectors[g] = numbers(isa, g, |lane| rest(jobs[lane], shape));
            }
            self.take(vectors);
        }
        self.take([isa.broadcast(isa.number(shape.lengths())); G]);
    }

    /// As many blocks of each frame as there are lanes: each frame's are loaded together.
    #[inline(always)]
    fn take_square<'j, J: Job<'j>>(&mut self, jobs: &[&J; P], offset: usize) {
        let isa = self.field.isa;
        let mut squares = [[isa.zero(); LANES_MAX]; G];
        for g in 0..G {
            let mut rows = [isa.zero(); LANES_MAX];
            for lane in 0..I::LANES {
                rows[lane] = load(isa, jobs[g * I::LANES + lane].text().side(J::CIPHER), offset);
            }
            squares[g] = isa.transpose(rows);
        }
        for n in 0..I::LANES {
            let mut vectors = [isa.zero(); G];
            for g in 0..G {
                vectors[g] = squares[g][n];
            }
            self.take(vectors);
        }
    }

    /// Frames of different shapes. Those that have fewer blocks than others begin with zeros, which
    /// leave the hash at zero: so all end at the same time, and the powers are the same for all
    /// lanes.
    #[inline(always)]
    fn take_mixed<'j, J: Job<'j>>(&mut self, jobs: &[&J; P], group: &Group) {
        let isa = self.field.isa;
        for index in 0..group.hashed {
            let block = |lane: usize| {
                let job = jobs[lane];
                let shape = group.shape(job);
                let before = group.hashed - shape.hashed();
                match index.checked_sub(before).map(|index| shape.part(index)) {
                    None => 0,
                    Some(Part::Aad(offset)) => padded(&job.aad()[offset..offset + 16]),
                    Some(Part::AadRest(offset)) => padded(&job.aad()[offset..]),
                    Some(Part::Head(offset)) => {
                        padded(&job.text().side(J::CIPHER)[offset..offset + 16])
                    }
                    Some(Part::TextRest(_)) => rest(job, shape),
                    Some(Part::Lengths) => shape.lengths(),
                }
            };
            let mut vectors = [isa.zero(); G];
            for g in 0..G {
                vectors[g] = numbers(isa, g, block);
            }
            self.take(vectors);
        }
    }
}

/// The rest of a text's ciphertext.
#[inline(always)]
pub(super) fn rest<'j, J: Job<'j>>(job: &J, shape: Shape) -> u128 {
    padded(&job.text().side(J::CIPHER)[shape.text_whole()..])
}

/// As many blocks of a text as a register has lanes.
#[inline(always)]
fn load<I: Isa>(isa: I, text: &[u8], offset: usize) -> I::V {
    match I::LANES {
        1 => isa.load(blocks::<1>(text, offset)),
        2 => isa.load(blocks::<2>(text, offset)),
        _ => isa.load(blocks::<4>(text, offset)),
    }
}

/// XORs as many blocks of a text as a register has lanes with `stream`.
#[inline(always)]
fn xor<I: Isa>(isa: I, text: &mut Text<'_>, offset: usize, stream: I::V) {
    let v = isa.xor(load(isa, text.side(Side::From), offset), stream);
    match I::LANES {
        1 => isa.store(v, text.blocks_mut::<1>(offset)),
        2 => isa.store(v, text.blocks_mut::<2>(offset)),
        _ => isa.store(v, text.blocks_mut::<4>(offset)),
    }
}

/// Encrypts, or decrypts, the heads of the chosen frames, `N` blocks of each at a time: a multiple
/// of the lanes.
#[inline(always)]
pub(super) fn crypt_heads<'j, I, J, const N: usize, const G: usize, const P: usize>(
    field: Field<I>,
    material: &Material<P>,
    jobs: &mut [J],
    group: &Group,
    chosen: Chosen,
) where
    I: Isa,
    J: Job<'j>,
{
    const { assert!(N.is_multiple_of(I::LANES)) };
    let isa = field.isa;
    if group.head_max == 0 {
        return;
    }
    let one = isa.broadcast(isa.number(1));
    let mut counters = [isa.zero(); G];
    for g in 0..G {
        // Block number 1 is the tag's. Lanes without a frame have whatever counter.
        let first = numbers(isa, g, |lane| {
            let lane = if lane < jobs.len() { lane } else { 0 };
            counter(jobs[lane].iv(), 2)
        });
        counters[g] = field.reverse(first);
    }
    for offset in (0..group.head_max).step_by(N * 16) {
        let mut states = [[isa.zero(); G]; N];
        for n in 0..N {
            for g in 0..G {
                states[n][g] = field.reverse(counters[g]);
                counters[g] = isa.add32(counters[g], one);
            }
        }
        aes::encrypt(isa, &material.rounds, &mut states);
        for n in (0..N).step_by(I::LANES) {
            let offset = offset + n * 16;
            for g in 0..G {
                let mut square = [isa.zero(); LANES_MAX];
                for lane in 0..I::LANES {
                    square[lane] = states[n + lane][g];
                }
                let streams = isa.transpose(square);
                for lane in 0..I::LANES {
                    let index = g * I::LANES + lane;
                    let Some(job) = jobs.get_mut(index) else { break };
                    if !chosen.has(index) {
                        continue;
                    }
                    let left = group.shape(job).head().saturating_sub(offset);
                    let text = &mut job.text_mut().lend();
                    if left >= I::LANES * 16 {
                        xor(isa, text, offset, streams[lane]);
                        continue;
                    }
                    for n in 0..I::LANES - 1 {
                        if n * 16 < left {
                            let stream = isa.lane(streams[lane], n);
                            xor(isa.one(), text, offset + n * 16, stream);
                        }
                    }
                }
            }
        }
    }
}

/// Encrypts, or decrypts, the rests of the chosen texts.
#[inline(always)]
pub(super) fn crypt_rests<'j, J: Job<'j>, const P: usize>(
    material: &Material<P>,
    jobs: &mut [J],
    group: &Group,
    chosen: Chosen,
) {
    for (lane, (job, stream)) in jobs.iter_mut().zip(&material.rest_streams).enumerate() {
        let shape = group.shape(job);
        if chosen.has(lane) && shape.has_text_rest() {
            let text = padded(&job.text().side(Side::From)[shape.text_whole()..]);
            let stream = u128::from_le_bytes(*stream);
            job.text_mut().write_rest(shape.text_whole(), text ^ stream);
        }
    }
}
