//! AES-128 (FIPS 197), forward only, with one key in each lane.
//!
//! A lane's key schedule stands in the same lane of eleven rows, so that one instruction does a
//! round of several frames under several keys.
//!
//! The schedule is expanded with the cipher's own last round instead of AESKEYGENASSIST, which no
//! wide register has: of a state whose four columns are the same word, ShiftRows changes nothing,
//! so that the round gives SubWord of that word, XORed with the round key, here the round constant.
//! The technique is that of Drucker and Gueron, "Fast Constant Time Implementations of AES key
//! schedule". The previous key's words are summed up meanwhile, so that a round waits for no more
//! than shuffle, AES round and XOR.

use core::mem::MaybeUninit;

use super::isa::{Block, Isa};

/// Round keys of AES-128.
pub(crate) const ROUND_KEYS: usize = 11;

/// One block in each of `P` lanes.
pub(crate) type Row<const P: usize> = [Block; P];

/// RotWord of the last word, in all four columns.
const ROTATE_LAST: Block = [13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12];

/// The constants that the rounds of the key expansion add to a word (FIPS 197, Rcon).
const ROUND_CONSTANTS: [u32; ROUND_KEYS - 1] =
    [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36];

/// The part of a row that register number `g` holds.
#[inline(always)]
pub(crate) fn load<I: Isa, const P: usize>(isa: I, row: &Row<P>, g: usize) -> I::V {
    isa.load(&row[g * I::LANES..])
}

/// The opposite of [`load`].
#[inline(always)]
pub(crate) fn store<I: Isa, const P: usize>(isa: I, v: I::V, row: &mut Row<P>, g: usize) {
    isa.store(v, &mut row[g * I::LANES..]);
}

/// A row that may not have been written yet.
pub(crate) type NewRow<const P: usize> = MaybeUninit<Row<P>>;

/// Writes a whole row, all `G` registers of it.
#[inline(always)]
pub(crate) fn write<I: Isa, const G: usize, const P: usize>(
    isa: I,
    vectors: [I::V; G],
    row: &mut NewRow<P>,
) -> &mut Row<P> {
    const { assert!(G * I::LANES == P, "a lane for each block") };
    let start: *mut MaybeUninit<Block> = row.as_mut_ptr().cast();
    // SAFETY: a row is `P` blocks, borrowed exclusively, and nothing needs to be in a
    // `MaybeUninit`.
    let blocks = unsafe { core::slice::from_raw_parts_mut(start, P) };
    for g in 0..G {
        isa.write(vectors[g], &mut blocks[g * I::LANES..]);
    }
    // SAFETY: `G` registers of `LANES` blocks are all of the row (checked above), and were written
    // just now.
    unsafe { row.assume_init_mut() }
}

/// Expands the keys in `keys`, one for each lane, and encrypts `N` blocks of each lane meanwhile: a
/// round waits for no more than its key, which takes longer. Writes every row.
#[inline(always)]
pub(super) fn expand<I: Isa, const N: usize, const G: usize, const P: usize>(
    isa: I,
    mut keys: [I::V; G],
    rounds: &mut [NewRow<P>; ROUND_KEYS],
    states: &mut [[I::V; G]; N],
) {
    let rotate = isa.splat(&ROTATE_LAST);
    let [first, middle @ .., last] = rounds;
    write(isa, keys, first);
    for g in 0..G {
        for n in 0..N {
            states[n][g] = isa.xor(states[n][g], keys[g]);
        }
    }
    let [constants @ .., last_constant] = ROUND_CONSTANTS;
    for (constant, row) in constants.into_iter().zip(middle) {
        let constant = isa.splat32(constant);
        for g in 0..G {
            keys[g] = next_key(isa, keys[g], rotate, constant);
            for n in 0..N {
                states[n][g] = isa.aes_round(states[n][g], keys[g]);
            }
        }
        write(isa, keys, row);
    }
    for g in 0..G {
        keys[g] = next_key(isa, keys[g], rotate, isa.splat32(last_constant));
        for n in 0..N {
            states[n][g] = isa.aes_last_round(states[n][g], keys[g]);
        }
    }
    write(isa, keys, last);
}

/// The round key that follows `key`.
#[inline(always)]
fn next_key<I: Isa>(isa: I, key: I::V, rotate: I::V, constant: I::V) -> I::V {
    let word = isa.aes_last_round(isa.shuffle(key, rotate), constant);
    // Each word XORed with all words before it.
    let sums = isa.xor(key, isa.shift_octets::<4>(key));
    let sums = isa.xor(sums, isa.shift_octets::<8>(sums));
    isa.xor(sums, word)
}

/// Encrypts `N` blocks of each lane. Register `g` of `states[n]` has the keys of register `g`.
#[inline(always)]
pub(super) fn encrypt<I: Isa, const N: usize, const G: usize, const P: usize>(
    isa: I,
    rounds: &[Row<P>; ROUND_KEYS],
    states: &mut [[I::V; G]; N],
) {
    for g in 0..G {
        let key = load(isa, &rounds[0], g);
        for n in 0..N {
            states[n][g] = isa.xor(states[n][g], key);
        }
    }
    for row in &rounds[1..ROUND_KEYS - 1] {
        for g in 0..G {
            let key = load(isa, row, g);
            for n in 0..N {
                states[n][g] = isa.aes_round(states[n][g], key);
            }
        }
    }
    for g in 0..G {
        let key = load(isa, &rounds[ROUND_KEYS - 1], g);
        for n in 0..N {
            states[n][g] = isa.aes_last_round(states[n][g], key);
        }
    }
}
