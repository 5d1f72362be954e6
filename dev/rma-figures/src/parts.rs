//! The work of a sender's core for a full frame, whoever has written it: the AES-GCM call and one
//! copy. With the kernel's part, which a flood shows, that is a bound made of parts.

use rma_core::{backend::BATCH, wire::read::RESPONSE_HEADER_LEN};
use rma_crypto::{AeadProvider, IV_LEN, JobKey, Key, SealJob, TAG_LEN, Text};
use rma_xdp::time::{Clock, TscClock};

use crate::transfers::LARGE;

/// Octets of a response that are authenticated only: its header, and the IV that it answers.
const AAD: usize = RESPONSE_HEADER_LEN + IV_LEN;
/// Frames that are written one after the other before the first is written again, as in a device's
/// memory.
const FRAMES: usize = 64;
/// Batches that are measured. Odd: one is in the middle.
const BATCHES: usize = 501;

/// The cost of a frame, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Its copy out of 8 MiB of memory, which two large transfers go through.
    pub copy: f64,
    /// Setting its key up and sealing it, in batches as NICs do.
    pub seal: f64,
}

/// Copies and seals frames of `payload` bytes, and takes the medians of the batches.
#[must_use]
pub fn of_a_frame(aead: &dyn AeadProvider, payload: usize) -> Parts {
    let clock = TscClock::new();
    let memory = vec![0x5a_u8; 2 * LARGE as usize];
    let mut places = memory.chunks_exact(payload).cycle();
    let stride = (AAD + payload + TAG_LEN).next_multiple_of(64);
    let mut frames = vec![0; FRAMES * stride];
    let keys: [Key; BATCH] = core::array::from_fn(|index| Key::from_bytes([index as u8; 16]));
    let mut times: [Vec<u64>; 2] = Default::default();
    for index in 0..BATCHES {
        let first = index * BATCH % FRAMES;
        let batch = &mut frames[first * stride..][..BATCH * stride];
        let start = clock.now();
        for (frame, from) in batch.chunks_exact_mut(stride).zip(&mut places) {
            frame[AAD..][..payload].copy_from_slice(from);
        }
        let copied = clock.now();
        let jobs = batch.chunks_exact_mut(stride).zip(&keys).map(|(frame, key)| {
            let (aad, rest) = frame.split_at_mut(AAD);
            let (text, rest) = rest.split_at_mut(payload);
            let tag = rest.first_chunk_mut().expect("the stride has room for it");
            let key = JobKey::Fresh(key);
            // IVs repeat: nothing of it is sent.
            SealJob { key, iv: [0; IV_LEN], aad, text: Text::in_place(text), tag }
        });
        aead.seal(&mut jobs.collect::<arrayvec::ArrayVec<_, BATCH>>());
        let sealed = clock.now();
        times[0].push(copied.nanos_since(start));
        times[1].push(sealed.nanos_since(copied));
    }
    let [copy, seal] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / BATCH as f64
    });
    Parts { copy, seal }
}

#[cfg(test)]
mod tests {
    use rma_core::crypto::fastest;

    use super::*;

    #[test]
    fn a_frame_costs_a_copy_and_a_seal_and_a_longer_one_more() {
        let [short, long] = [64, 3264].map(|payload| of_a_frame(fastest(), payload));
        assert!(short.copy > 0.0 && short.seal > 0.0, "{short:?}");
        assert!(long.copy > short.copy && long.seal > short.seal, "{short:?} {long:?}");
    }
}
