//! Deriving keys: one block of AES, or AES-CMAC (RFC 4493), with one derivation in each lane.

use zeroize::optimization_barrier;

use super::{
    aes::ROUND_KEYS,
    isa::{Block, Isa},
    material::{self, gather, numbers},
};
use crate::{
    job::{CMAC_MESSAGE_MAX, DeriveFrom, DeriveJob},
    key::{Key, KeySchedule, ScheduleForm},
    text::padded,
};

/// The round keys of a key, and the two subkeys of AES-CMAC. Zeroized on drop.
#[derive(Clone)]
pub(crate) struct Rounds {
    keys: [Block; ROUND_KEYS],
    /// For messages that end in a whole block, and for others.
    subkeys: [Block; 2],
}

impl Drop for Rounds {
    fn drop(&mut self) {
        self.keys = [[0; 16]; _];
        self.subkeys = [[0; 16]; _];
        optimization_barrier(self);
    }
}

/// Expands a key to derive others under.
#[inline(always)]
pub(crate) fn schedule<I: Isa>(isa: I, key: &Key) -> KeySchedule {
    KeySchedule { key: key.clone(), form: ScheduleForm::Rounds(rounds(isa, key)) }
}

#[inline(always)]
fn rounds<I: Isa>(isa: I, key: &Key) -> Rounds {
    let (keys, encrypted_zeros) = material::rounds(isa, key);
    let first = doubled(u128::from_be_bytes(encrypted_zeros));
    let subkeys = [first, doubled(first)].map(u128::to_be_bytes);
    Rounds { keys, subkeys }
}

/// Multiplies by x in the field of AES-CMAC, without a branch.
const fn doubled(value: u128) -> u128 {
    let fallen_out = value >> 127;
    value << 1 ^ fallen_out.wrapping_neg() & 0x87
}

/// Derives up to `P` keys, in `G` registers. Schedules that another provider has made are none of
/// its business: `false` is returned, and nothing done.
#[inline(always)]
#[must_use]
pub(crate) fn derive<I: Isa, const G: usize, const P: usize>(
    isa: I,
    jobs: &[DeriveJob<'_>],
    keys: &mut [Key],
) -> bool {
    const { assert!(G * I::LANES == P, "a lane for each key") };
    let mut blocks_only = true;
    for job in jobs {
        let ScheduleForm::Rounds(_) = job.schedule.form else { return false };
        blocks_only &= matches!(job.from, DeriveFrom::Block(_));
    }
    // Lanes without a job get the first one's; nobody looks at what comes out.
    let jobs_in_lanes: [&DeriveJob<'_>; P] =
        core::array::from_fn(|lane| if lane < jobs.len() { &jobs[lane] } else { &jobs[0] });
    let rounds: [&Rounds; P] = core::array::from_fn(|lane| {
        let ScheduleForm::Rounds(rounds) = &jobs_in_lanes[lane].schedule.form else {
            unreachable!("asked for above")
        };
        rounds
    });
    let mut states = [isa.zero(); G];
    if blocks_only {
        for g in 0..G {
            states[g] = gather(isa, g, |lane| match jobs_in_lanes[lane].from {
                DeriveFrom::Block(block) => block,
                DeriveFrom::Cmac(_) => unreachable!("asked for above"),
            });
        }
        encrypt(isa, &rounds, &mut states);
        put(isa, &states, keys, |_| true);
        return true;
    }
    let mut most = 0;
    for job in jobs {
        most = most.max(count(&job.from));
    }
    for index in 0..most {
        for g in 0..G {
            let v = numbers(isa, g, |lane| {
                block(&jobs_in_lanes[lane].from, index, &rounds[lane].subkeys)
            });
            states[g] = isa.xor(states[g], v);
        }
        encrypt(isa, &rounds, &mut states);
        put(isa, &states, keys, |at| count(&jobs[at].from) == index + 1);
    }
    true
}

/// Takes those keys out of their lanes that are `done`.
#[inline(always)]
fn put<I: Isa, const G: usize>(
    isa: I,
    states: &[I::V; G],
    keys: &mut [Key],
    done: impl Fn(usize) -> bool,
) {
    for g in 0..G {
        for lane in 0..I::LANES {
            let at = g * I::LANES + lane;
            if let Some(key) = keys.get_mut(at)
                && done(at)
            {
                let derived = isa.lane(states[g], lane);
                isa.one().store(derived, core::slice::from_mut(key.expose_mut()));
            }
        }
    }
}

/// As `aes::encrypt`, one block of each lane, with round keys from wherever they are.
#[inline(always)]
fn encrypt<I: Isa, const G: usize, const P: usize>(
    isa: I,
    rounds: &[&Rounds; P],
    states: &mut [I::V; G],
) {
    for round in 0..ROUND_KEYS {
        for g in 0..G {
            let key = gather(isa, g, |lane| &rounds[lane].keys[round]);
            states[g] = match round {
                0 => isa.xor(states[g], key),
                1..10 => isa.aes_round(states[g], key),
                _ => isa.aes_last_round(states[g], key),
            };
        }
    }
}

/// How many blocks are encrypted, one after the other.
#[inline(always)]
fn count(from: &DeriveFrom<'_>) -> usize {
    match from {
        DeriveFrom::Block(_) => 1,
        DeriveFrom::Cmac(message) => {
            assert!(message.len() <= CMAC_MESSAGE_MAX, "{} octets", message.len());
            // The empty message is one block of padding.
            message.len().div_ceil(16).max(1)
        }
    }
}

/// Returns the block that is added before encryption number `index`, its first octet lowest;
/// nothing after the last.
#[inline(always)]
fn block(from: &DeriveFrom<'_>, index: usize, subkeys: &[Block; 2]) -> u128 {
    match from {
        DeriveFrom::Block(block) if index == 0 => u128::from_le_bytes(**block),
        DeriveFrom::Block(_) => 0,
        DeriveFrom::Cmac(message) => {
            let last = count(from) - 1;
            let Some(rest) = message.get(index * 16..) else { return 0 };
            if index > last {
                0
            } else if index < last {
                padded(&rest[..16])
            } else if rest.len() == 16 {
                padded(rest) ^ u128::from_le_bytes(subkeys[0])
            } else {
                let padding = 0x80 << (8 * rest.len());
                padded(rest) ^ padding ^ u128::from_le_bytes(subkeys[1])
            }
        }
    }
}
