//! Values computed from the keys of a group: round keys, powers of the hash keys, tag masks.

use core::mem::MaybeUninit;

use zeroize::optimization_barrier;

use super::{
    aes::{self, NewRow, ROUND_KEYS, Row},
    ghash::Field,
    group::Job,
    isa::{Block, Isa, LANES_MAX},
};
use crate::{
    job::{IV_LEN, JobKey},
    key::{Key, PreparedForm, PreparedKey},
};

/// Powers of a hash key that are kept: the first four, and what the bulk loop needs beyond.
const POWERS: usize = 7;

/// How many powers a frame in a lane is hashed with: its blocks are reduced by as many at a time.
pub(super) const SHORT_POWERS: usize = 4;

/// Everything secret that a group of `P` frames needs.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Material<const P: usize> {
    pub(super) rounds: [Row<P>; ROUND_KEYS],
    /// H, H^2, H^3, H^4, and then by [`bulk_powers`].
    pub(super) powers: [Row<P>; POWERS],
    /// The masks that tags are XORed with.
    pub(super) masks: Row<P>,
    /// The key stream for the rest of each text.
    pub(super) rest_streams: Row<P>,
}

/// Rows of a material.
const ROWS: usize = ROUND_KEYS + POWERS + 2;

/// The place where a material is for a while. Zeros after that.
#[derive(Debug)]
pub(crate) struct Place<const P: usize> {
    material: MaybeUninit<Material<P>>,
    is_lent: bool,
}

impl<const P: usize> Place<P> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { material: MaybeUninit::uninit(), is_lent: false }
    }

    /// Room for a material.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> &mut MaybeUninit<Material<P>> {
        self.is_lent = true;
        &mut self.material
    }

    /// Erases the material. Does what dropping does, but faster.
    #[inline(always)]
    pub(crate) fn erase<I: Isa>(mut self, isa: I) {
        const { assert!(size_of::<Material<P>>() == ROWS * P * 16, "no padding") };
        const { assert!((ROWS * P).is_multiple_of(I::LANES), "whole registers") };
        let start: *mut MaybeUninit<Block> = self.material.as_mut_ptr().cast();
        // SAFETY: the material is so many blocks (checked above), and borrowed exclusively.
        let blocks = unsafe { core::slice::from_raw_parts_mut(start, ROWS * P) };
        for blocks in blocks.chunks_exact_mut(I::LANES) {
            isa.erase(blocks);
        }
        self.is_lent = false;
    }
}

impl<const P: usize> Drop for Place<P> {
    fn drop(&mut self) {
        if self.is_lent {
            // On the way out of a panic.
            self.material = MaybeUninit::zeroed();
            optimization_barrier(&self.material);
        }
    }
}

/// Returns the indexes in [`Material::powers`] of the bulk loop's powers, for registers of `lanes`:
/// H to the 4, 3, 2 and 1 times `lanes`.
#[inline(always)]
pub(super) const fn bulk_powers(lanes: usize) -> [usize; 4] {
    match lanes {
        1 => [3, 2, 1, 0],
        2 => [5, 4, 3, 1],
        _ => [6, 5, 4, 3],
    }
}

/// A key with its round keys and powers of its hash key. Zeroized on drop.
#[derive(Clone)]
pub(crate) struct Expanded {
    rounds: [Block; ROUND_KEYS],
    powers: [Block; POWERS],
    /// For which registers the last powers are.
    lanes: usize,
}

impl Drop for Expanded {
    fn drop(&mut self) {
        self.rounds = [[0; 16]; _];
        self.powers = [[0; 16]; _];
        optimization_barrier(self);
    }
}

/// The needs of a group's frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Some text has a bulk part.
    pub(super) bulk: bool,
    /// Some text has a rest.
    pub(super) rest: bool,
}

/// A material whose rows may not have been written yet.
struct NewMaterial<'m, const P: usize> {
    rounds: &'m mut [NewRow<P>; ROUND_KEYS],
    powers: &'m mut [NewRow<P>; POWERS],
    masks: &'m mut NewRow<P>,
    rest_streams: &'m mut NewRow<P>,
}

impl<'m, const P: usize> NewMaterial<'m, P> {
    #[inline(always)]
    const fn new(place: &'m mut MaybeUninit<Material<P>>) -> Self {
        let rows: *mut NewMaterialRows<P> = place.as_mut_ptr().cast();
        // SAFETY: the two have the same fields in the same order, `repr(C)` and equally aligned;
        // nothing needs to be in a `MaybeUninit`; and the place is borrowed exclusively for as
        // long.
        let rows = unsafe { &mut *rows };
        let NewMaterialRows { rounds, powers, masks, rest_streams } = rows;
        Self { rounds, powers, masks, rest_streams }
    }
}

/// [`Material`], row by row.
#[repr(C, align(64))]
struct NewMaterialRows<const P: usize> {
    rounds: [NewRow<P>; ROUND_KEYS],
    powers: [NewRow<P>; POWERS],
    masks: NewRow<P>,
    rest_streams: NewRow<P>,
}

/// Rows that were written, all of them.
///
/// # Safety
/// Each was.
#[inline(always)]
const unsafe fn written<const N: usize, const P: usize>(rows: &[NewRow<P>; N]) -> &[Row<P>; N] {
    let rows = core::ptr::from_ref(rows).cast();
    // SAFETY: `MaybeUninit` has the layout of what it holds, and the caller has written that.
    unsafe { &*rows }
}

/// Prepares a key for registers of `lanes` in the bulk loop.
#[inline(always)]
pub(crate) fn prepare<I: Isa>(isa: I, lanes: usize, key: &Key) -> PreparedKey {
    let field = Field::new(isa);
    let mut place = Place::<1>::new();
    let material = NewMaterial::new(place.lend());
    let mut states = [[isa.zero()]];
    aes::expand(isa, [isa.splat(key.expose())], material.rounds, &mut states);
    // SAFETY: `expand` writes every row.
    let rounds = unsafe { written(material.rounds) };
    raise(field, states[0], lanes, true, material.powers);
    // SAFETY: `raise` writes every row.
    let powers = unsafe { written(material.powers) };
    let expanded = Expanded {
        rounds: rounds.map(|[block]| block),
        powers: powers.map(|[block]| block),
        lanes,
    };
    place.erase(isa);
    PreparedKey { key: key.clone(), form: PreparedForm::Expanded(expanded) }
}

/// The round keys of one key, and AES of the zero block.
#[inline(always)]
pub(super) fn rounds<I: Isa>(isa: I, key: &Key) -> ([Block; ROUND_KEYS], Block) {
    let mut place = Place::<1>::new();
    let material = NewMaterial::new(place.lend());
    let mut states = [[isa.zero()]];
    aes::expand(isa, [isa.splat(key.expose())], material.rounds, &mut states);
    // SAFETY: `expand` writes every row.
    let rounds = unsafe { written(material.rounds) };
    let mut encrypted_zeros = [[0; 16]];
    isa.store(states[0][0], &mut encrypted_zeros);
    let rounds = rounds.map(|[block]| block);
    place.erase(isa);
    (rounds, encrypted_zeros[0])
}

/// Sets up the keys of `jobs` for registers of `lanes` in the bulk loop.
#[inline(always)]
pub(super) fn set_up<'m, 'j, I: Isa, J: Job<'j>, const G: usize, const P: usize>(
    field: Field<I>,
    place: &'m mut MaybeUninit<Material<P>>,
    jobs: &[&J; P],
    lanes: usize,
    needs: Needs,
) -> &'m Material<P> {
    let isa = field.isa;
    let NewMaterial { rounds, powers, masks, rest_streams } = NewMaterial::new(place);
    let is_prepared = jobs.iter().all(|job| expanded(job.key(), lanes).is_some());
    let mut tags = [isa.zero(); G];
    for g in 0..G {
        tags[g] = numbers(isa, g, |lane| counter(jobs[lane].iv(), 1));
    }
    let mut states = [[isa.zero(); G], tags];
    if is_prepared {
        copy::<I, G, P>(isa, rounds, powers, |lane| expanded(jobs[lane].key(), lanes));
        // SAFETY: `copy` writes every row.
        aes::encrypt(isa, unsafe { written(rounds) }, &mut states);
    } else {
        let mut keys = [isa.zero(); G];
        for g in 0..G {
            keys[g] = gather(isa, g, |lane| jobs[lane].key().key().expose());
        }
        aes::expand(isa, keys, rounds, &mut states);
    }
    // SAFETY: `copy` and `expand` write every row.
    let rounds = unsafe { written(rounds) };
    aes::write(isa, states[1], masks);
    if !is_prepared {
        raise(field, states[0], lanes, needs.bulk, powers);
    }
    let mut rests = [isa.zero(); G];
    if needs.rest {
        for g in 0..G {
            // Block number 1 is the tag's, so the text begins with 2.
            let number = |lane: usize| 2 + (jobs[lane].text().len() / 16) as u32;
            rests[g] = numbers(isa, g, |lane| counter(jobs[lane].iv(), number(lane)));
        }
        let mut states = [rests];
        aes::encrypt(isa, rounds, &mut states);
        rests = states[0];
    }
    aes::write(isa, rests, rest_streams);
    // SAFETY: rounds as above; powers by `copy` or `raise`, which write every row; masks and
    // streams by `write`.
    unsafe { place.assume_init_ref() }
}

/// IV and block number, as AES gets them, its first octet lowest.
#[inline(always)]
pub(super) fn counter(iv: &[u8; IV_LEN], number: u32) -> u128 {
    let [i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11] = *iv;
    let low = u64::from_le_bytes([i0, i1, i2, i3, i4, i5, i6, i7]);
    let high = u32::from_le_bytes([i8, i9, i10, i11]);
    u128::from(low) | u128::from(high) << 64 | u128::from(number.swap_bytes()) << 96
}

/// Returns the prepared form of a key, if it was for registers of `lanes` in the bulk loop.
#[inline(always)]
fn expanded(key: JobKey<'_>, lanes: usize) -> Option<&Expanded> {
    match key {
        JobKey::Prepared(PreparedKey { form: PreparedForm::Expanded(expanded), .. })
            if expanded.lanes == lanes =>
        {
            Some(expanded)
        }
        _ => None,
    }
}

/// Writes every row of both.
#[inline(always)]
fn copy<'k, I: Isa, const G: usize, const P: usize>(
    isa: I,
    rounds: &mut [NewRow<P>; ROUND_KEYS],
    powers: &mut [NewRow<P>; POWERS],
    key: impl Fn(usize) -> Option<&'k Expanded>,
) {
    let keys: [&Expanded; P] =
        core::array::from_fn(|lane| key(lane).expect("the caller has asked for all"));
    let mut vectors = [isa.zero(); G];
    for (row, to) in rounds.iter_mut().enumerate() {
        for g in 0..G {
            vectors[g] = gather(isa, g, |lane| &keys[lane].rounds[row]);
        }
        aes::write(isa, vectors, to);
    }
    for (row, to) in powers.iter_mut().enumerate() {
        for g in 0..G {
            vectors[g] = gather(isa, g, |lane| &keys[lane].powers[row]);
        }
        aes::write(isa, vectors, to);
    }
}

/// One block for each lane of register `g`, from wherever it is.
#[inline(always)]
pub(super) fn gather<'b, I: Isa>(isa: I, g: usize, block: impl Fn(usize) -> &'b Block) -> I::V {
    let one = isa.one();
    let mut parts = [one.zero(); LANES_MAX];
    for lane in 0..I::LANES {
        parts[lane] = one.splat(block(g * I::LANES + lane));
    }
    isa.join(parts)
}

/// As [`gather`], of blocks that are numbers, their first octet lowest: they need not pass through
/// memory, where vectors wait for what was written in smaller pieces.
#[inline(always)]
pub(super) fn numbers<I: Isa>(isa: I, g: usize, number: impl Fn(usize) -> u128) -> I::V {
    let mut parts = [isa.one().zero(); LANES_MAX];
    for lane in 0..I::LANES {
        parts[lane] = isa.number(number(g * I::LANES + lane));
    }
    isa.join(parts)
}

/// The powers of the hash keys, from AES of the zero block: four, and those for the bulk loop if
/// `bulk`. Writes every row.
///
/// Each waits for as few multiplications before it as can be.
#[inline(always)]
fn raise<I: Isa, const G: usize, const P: usize>(
    field: Field<I>,
    encrypted_zeros: [I::V; G],
    lanes: usize,
    bulk: bool,
    powers: &mut [NewRow<P>; POWERS],
) {
    let isa = field.isa;
    let zero = [isa.zero(); G];
    let (mut h, mut h2, mut h3, mut h4) = (zero, zero, zero, zero);
    for g in 0..G {
        h[g] = field.hash_key(encrypted_zeros[g]);
    }
    for g in 0..G {
        h2[g] = field.square(h[g]);
    }
    for g in 0..G {
        h3[g] = field.dot(h2[g], h[g]);
        h4[g] = field.square(h2[g]);
    }
    let mut further = [zero; POWERS - SHORT_POWERS];
    if bulk && lanes > 1 {
        for g in 0..G {
            let h8 = field.square(h4[g]);
            if lanes == 2 {
                further[0][g] = field.dot(h4[g], h2[g]);
                further[1][g] = h8;
            } else {
                further[0][g] = h8;
                further[1][g] = field.dot(h8, h4[g]);
                further[2][g] = field.square(h8);
            }
        }
    }
    let [to_h, to_h2, to_h3, to_h4, to_further @ ..] = powers;
    aes::write(isa, h, to_h);
    aes::write(isa, h2, to_h2);
    aes::write(isa, h3, to_h3);
    aes::write(isa, h4, to_h4);
    for (vectors, to) in further.into_iter().zip(to_further) {
        aes::write(isa, vectors, to);
    }
}
