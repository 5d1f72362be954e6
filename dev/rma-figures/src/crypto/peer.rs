//! AES-128-GCM of `ring`, for figures that compare with it. Linked with the feature `peers` only.
//!
//! `ring` has no batches: it is given one frame after the other, and either a key that it has
//! prepared before or one to set up for the frame.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rma_bench::rates::Rates;
use rma_core::crypto::fastest;
use rma_xdp::time::{Clock, TscClock};

use super::{FOOTPRINT, FRAMES, Keys, Prepared, RESPONSE_AAD, Set, TAG_LEN, What, Work, iv, run};

/// The time that one kind of batch takes, in nanoseconds a frame, round by round: the slower of
/// sealing and opening.
pub(super) struct Beside {
    pub(super) ours: Rates,
    pub(super) ring: Rates,
}

/// Ours with a key set up for each frame in batches of `batch`, and `ring` with its keys prepared
/// or `fresh` too, in turns.
pub(super) fn beside_ring(payload: usize, batch: usize, fresh: bool, rounds: usize) -> Beside {
    let clock = TscClock::new();
    let prepared = Prepared::new(fastest());
    let keys: Vec<[u8; 16]> = prepared.keys.iter().map(|key| *key.expose()).collect();
    let opened: Vec<LessSafeKey> = keys.iter().map(set_up).collect();
    let sets = (FOOTPRINT / FRAMES / (RESPONSE_AAD + payload + TAG_LEN)).clamp(1, 16);
    let mut sets: Vec<Set> = (0..sets).map(|_| Set::new(RESPONSE_AAD, payload)).collect();
    let mut round = || {
        let slower = |one: f64, other: f64| one.max(other);
        let ours = [What::Seal, What::Open].map(|what| {
            let work = Work { what, keys: Keys::Fresh, batch, payload };
            run(&clock, &prepared, work, &mut sets)
        });
        let key = |index: usize| if fresh { None } else { Some(&opened[index]) };
        let seal = by_ring(&clock, &keys, key, payload, &mut sets, seal);
        let open = by_ring(&clock, &keys, key, payload, &mut sets, open);
        (slower(ours[0], ours[1]), slower(seal, open))
    };
    // Once for the caches.
    round();
    let (ours, ring): (Vec<f64>, Vec<f64>) = (0..rounds.max(1)).map(|_| round()).unzip();
    Beside { ours: ours.into_iter().collect(), ring: ring.into_iter().collect() }
}

fn set_up(key: &[u8; 16]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).expect("a key of 16 octets"))
}

/// A frame of a set: its header, and payload with tag.
type Frame<'a> = (&'a [u8], &'a mut [u8]);

/// Nanoseconds for each frame of all sets.
fn by_ring<'k>(
    clock: &TscClock,
    keys: &[[u8; 16]],
    prepared: impl Fn(usize) -> Option<&'k LessSafeKey>,
    payload: usize,
    sets: &mut [Set],
    call: fn(&LessSafeKey, Nonce, Frame<'_>, usize),
) -> f64 {
    let frames = (sets.len() * FRAMES) as f64;
    let start = clock.now();
    for set in sets {
        for (index, frame) in set.octets.chunks_exact_mut(set.stride).enumerate() {
            let (aad, rest) = frame.split_at_mut(set.aad);
            let frame = (&*aad, &mut rest[..payload + TAG_LEN]);
            let nonce = Nonce::assume_unique_for_key(iv(index));
            match prepared(index) {
                Some(key) => call(key, nonce, frame, payload),
                None => call(&set_up(&keys[index]), nonce, frame, payload),
            }
        }
    }
    clock.now().nanos_since(start) as f64 / frames
}

fn seal(key: &LessSafeKey, nonce: Nonce, (aad, frame): Frame<'_>, payload: usize) {
    let (text, tag) = frame.split_at_mut(payload);
    let sealed = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
    tag.copy_from_slice(sealed.expect("a short frame").as_ref());
}

fn open(key: &LessSafeKey, nonce: Nonce, (aad, frame): Frame<'_>, _: usize) {
    key.open_in_place(nonce, Aad::from(aad), frame).expect("it was just sealed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_seal_and_open_each_frame() {
        for (payload, batch, fresh) in [(64, FRAMES, false), (4096, FRAMES, false), (64, 1, true)] {
            let Beside { ours, ring } = beside_ring(payload, batch, fresh, 3);
            assert!((ours.rounds(), ring.rounds()) == (3, 3));
            assert!(ours.median() > 0.0 && ring.median() > 0.0);
        }
    }
}
