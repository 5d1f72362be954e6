//! Deriving keys: one block of AES, or AES-CMAC (RFC 4493), with one derivation in each lane.

use zeroize::optimization_barrier;

use super::{
    aes::{self, ROUND_KEYS, Row},
    isa::{Block, Isa},
    material::gather,
    span::padded,
};
use crate::{
    job::{CMAC_MESSAGE_MAX, DeriveFrom, DeriveJob},
    key::{Key, KeySchedule, ScheduleForm},
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

/// Round keys of a group's derivations. Zeroized on drop.
struct Schedules<const P: usize>([Row<P>; ROUND_KEYS]);

impl<const P: usize> Drop for Schedules<P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0 = [[[0; 16]; P]; _];
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
    let mut rows = Schedules([[[0; 16]]; ROUND_KEYS]);
    aes::expand(isa, [isa.splat(key.expose())], &mut rows.0);
    let mut states = [[isa.zero()]];
    aes::encrypt(isa, &rows.0, &mut states);
    let mut encrypted_zeros = [[0; 16]];
    isa.store(states[0][0], &mut encrypted_zeros);
    let first = doubled(u128::from_be_bytes(encrypted_zeros[0]));
    let subkeys = [first, doubled(first)].map(u128::to_be_bytes);
    Rounds { keys: rows.0.map(|[block]| block), subkeys }
}

/// Multiplies by x in the field of AES-CMAC, without a branch.
const fn doubled(value: u128) -> u128 {
    let fallen_out = value >> 127;
    value << 1 ^ fallen_out.wrapping_neg() & 0x87
}

/// Derives up to `P` keys, in `G` registers.
#[inline(always)]
pub(crate) fn derive<I: Isa, const G: usize, const P: usize>(
    isa: I,
    jobs: &[DeriveJob<'_>],
    keys: &mut [Key],
) {
    const { assert!(G * I::LANES == P, "a lane for each key") };
    let mut made: [Option<Rounds>; P] = [const { None }; P];
    for (job, made) in jobs.iter().zip(&mut made) {
        if !matches!(job.schedule.form, ScheduleForm::Rounds(_)) {
            *made = Some(rounds(isa.one(), &job.schedule.key));
        }
    }
    // Lanes without a job get the first one's keys; nobody looks at them.
    let rounds: [&Rounds; P] = core::array::from_fn(|lane| {
        let lane = if lane < jobs.len() { lane } else { 0 };
        match (&jobs[lane].schedule.form, &made[lane]) {
            (ScheduleForm::Rounds(rounds), _) | (_, Some(rounds)) => rounds,
            (ScheduleForm::Portable(_), None) => unreachable!("made above"),
        }
    });
    let mut schedules = Schedules([[[0; 16]; P]; ROUND_KEYS]);
    for row in 0..ROUND_KEYS {
        for g in 0..G {
            let v = gather::<I, P>(isa, g, |lane| &rounds[lane].keys[row]);
            aes::store(isa, v, &mut schedules.0[row], g);
        }
    }

    let most = jobs.iter().map(|job| count(&job.from)).max().unwrap_or(0);
    let mut states = [[isa.zero(); G]];
    for index in 0..most {
        let blocks: Row<P> = core::array::from_fn(|lane| match jobs.get(lane) {
            Some(job) => block(&job.from, index, &rounds[lane].subkeys),
            None => [0; 16],
        });
        for g in 0..G {
            let v = gather::<I, P>(isa, g, |lane| &blocks[lane]);
            states[0][g] = isa.xor(states[0][g], v);
        }
        aes::encrypt(isa, &schedules.0, &mut states);
        for g in 0..G {
            for lane in 0..I::LANES {
                let at = g * I::LANES + lane;
                let (Some(job), Some(key)) = (jobs.get(at), keys.get_mut(at)) else { break };
                if count(&job.from) == index + 1 {
                    let derived = isa.lane(states[0][g], lane);
                    isa.one().store(derived, core::slice::from_mut(key.expose_mut()));
                }
            }
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

/// What is added before encryption number `index`; nothing after the last.
#[inline(always)]
fn block(from: &DeriveFrom<'_>, index: usize, subkeys: &[Block; 2]) -> Block {
    match from {
        DeriveFrom::Block(block) if index == 0 => **block,
        DeriveFrom::Block(_) => [0; 16],
        DeriveFrom::Cmac(message) => {
            let last = count(from) - 1;
            let Some(rest) = message.get(index * 16..) else { return [0; 16] };
            if index < last {
                return padded(&rest[..16]);
            }
            if index > last {
                return [0; 16];
            }
            let mut block = u128::from_le_bytes(padded(rest));
            let subkey = if rest.len() == 16 {
                subkeys[0]
            } else {
                block |= 0x80 << (8 * rest.len());
                subkeys[1]
            };
            (block ^ u128::from_le_bytes(subkey)).to_le_bytes()
        }
    }
}
