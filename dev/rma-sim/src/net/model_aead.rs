//! A model of AES-128-GCM, for runs in which the time that seals take counts and their secrecy does
//! not: figures of large networks.
//!
//! | | AES-128-GCM | the model |
//! |---|---|---|
//! | keys | derived by AES | the same keys, by the same code |
//! | payload | encrypted | in clear |
//! | tag | 16 octets | 16 octets: a sum of products, which key, IV, AAD, payload and their lengths all change |
//! | what is refused | whatever was changed | the same, but for who tries to forge: this is no authenticator |
//!
//! A NIC cannot tell them apart but by the octets of payloads and tags, and decides by neither,
//! with one exception: requests under an old key are remembered in sets that their tags choose, and
//! are forgotten sooner where a set overflows. So a run without old keys has the same log with
//! both, to the bit, which runs are held to that say they use the model (`flows::tests`).

use rma_crypto::{
    AeadProvider, DeriveJob, IV_LEN, JobKey, KEY_LEN, Key, KeySchedule, OpenJob, PAYLOAD_LEN_MAX,
    PreparedKey, ProviderKind, SealJob, TAG_LEN, fastest,
};

/// The way in which the NICs of a run seal frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seals {
    /// By AES-128-GCM.
    #[default]
    AesGcm,
    /// By the model of it.
    Model,
}

impl Seals {
    /// The provider that does so.
    #[must_use]
    pub fn provider(self) -> &'static dyn AeadProvider {
        match self {
            Self::AesGcm => fastest(),
            Self::Model => &ModelAead,
        }
    }
}

impl core::fmt::Display for Seals {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::AesGcm => "AES-128-GCM",
            Self::Model => "a model of AES-128-GCM",
        })
    }
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct ModelAead;

impl AeadProvider for ModelAead {
    fn kind(&self) -> ProviderKind {
        fastest().kind()
    }

    fn name(&self) -> &'static str {
        "model"
    }

    fn schedule(&self, key: &Key) -> KeySchedule {
        fastest().schedule(key)
    }

    fn derive(&self, jobs: &[DeriveJob<'_>], keys: &mut [Key]) {
        fastest().derive(jobs, keys);
    }

    fn prepare(&self, key: &Key) -> PreparedKey {
        fastest().prepare(key)
    }

    fn seal(&self, jobs: &mut [SealJob<'_>]) {
        for SealJob { key, iv, aad, text, tag } in jobs {
            assert!(text.len() <= PAYLOAD_LEN_MAX, "a payload of {} octets", text.len());
            let (from, to) = text.parts();
            if let Some(from) = from {
                to.copy_from_slice(from);
            }
            **tag = tag_of(*key, iv, aad, to);
        }
    }

    fn open(&self, jobs: &mut [OpenJob<'_>]) {
        for OpenJob { key, iv, aad, text, tag, authentic } in jobs {
            let len = text.len();
            let (from, to) = text.parts();
            let sealed = from.unwrap_or(to);
            *authentic = len <= PAYLOAD_LEN_MAX && tag_of(*key, iv, aad, sealed) == **tag;
            if let Some(from) = from
                && *authentic
            {
                to.copy_from_slice(from);
            }
        }
    }
}

/// Octets of a block.
const BLOCK: usize = 16;

/// Two odd numbers of which no multiple is near: the fractions of the golden ratio and of the root
/// of three.
const LOW_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const HIGH_STEP: u64 = 0xbb67_ae85_84ca_a73b;

/// A sum of products, one for each block: of its two halves, each after a number that the key and
/// the place of the block choose. Whatever bit of a block changes, its product does by the other
/// factor times a power of two, so the sum does, unless that factor is zero: once in 2^64.
struct Sum {
    low: u64,
    high: u64,
    total: u128,
}

impl Sum {
    fn new(key: &[u8; KEY_LEN]) -> Self {
        let key = u128::from_le_bytes(*key);
        // A key with a half of zero would begin with products of zero.
        Self { low: key as u64 ^ HIGH_STEP, high: (key >> 64) as u64 ^ LOW_STEP, total: 0 }
    }

    #[inline(always)]
    const fn add(&mut self, block: &[u8; BLOCK]) {
        let block = u128::from_le_bytes(*block);
        let (low, high) = (block as u64 ^ self.low, (block >> 64) as u64 ^ self.high);
        self.total = self.total.wrapping_add(low as u128 * high as u128);
        self.low = self.low.wrapping_add(LOW_STEP);
        self.high = self.high.wrapping_add(HIGH_STEP);
    }

    fn add_all(&mut self, octets: &[u8]) {
        let (blocks, rest) = octets.as_chunks::<BLOCK>();
        for block in blocks {
            self.add(block);
        }
        if !rest.is_empty() {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            self.add(&block);
        }
    }
}

fn tag_of(key: JobKey<'_>, iv: &[u8; IV_LEN], aad: &[u8], payload: &[u8]) -> [u8; TAG_LEN] {
    let mut sum = Sum::new(key.key().expose());
    sum.add_all(iv);
    sum.add_all(aad);
    sum.add_all(payload);
    let lengths = u128::from(aad.len() as u64) | u128::from(payload.len() as u64) << 64;
    sum.add(&lengths.to_le_bytes());
    // Each step can be undone, so other sums have other tags.
    let odd = u128::from(LOW_STEP) << 64 | u128::from(HIGH_STEP);
    let mixed = (sum.total ^ sum.total >> 67).wrapping_mul(odd);
    (mixed ^ mixed >> 71).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use rma_crypto::Text;

    /// A frame, sealed.
    #[derive(Clone)]
    struct Sealed {
        key: [u8; KEY_LEN],
        iv: [u8; IV_LEN],
        aad: Vec<u8>,
        payload: Vec<u8>,
        tag: [u8; TAG_LEN],
    }

    impl Sealed {
        fn new(prng: &mut Prng, aad: usize, payload: usize) -> Self {
            let mut octets = |len| {
                let mut octets = vec![0; len];
                prng.fill(&mut octets);
                octets
            };
            let (key, iv) = (octets(KEY_LEN), octets(IV_LEN));
            let (key, iv) = (key.try_into().unwrap(), iv.try_into().unwrap());
            let (aad, mut payload, mut tag) = (octets(aad), octets(payload), [0; TAG_LEN]);
            let own = Key::from_bytes(key);
            let text = Text::in_place(&mut payload);
            let job = SealJob { key: (&own).into(), iv, aad: &aad, text, tag: &mut tag };
            ModelAead.seal(&mut [job]);
            Self { key, iv, aad, payload, tag }
        }

        /// Opens it to another place, which is returned if the frame is authentic.
        fn open(&self) -> Option<Vec<u8>> {
            const BEFORE: u8 = 0xa5;
            let Self { key, iv, aad, payload, tag } = self;
            let (key, mut opened) = (Key::from_bytes(*key), vec![BEFORE; payload.len()]);
            let text = Text::from_to(payload, &mut opened).unwrap();
            let (key, iv) = ((&key).into(), *iv);
            let mut jobs = [OpenJob { key, iv, aad, text, tag, authentic: false }];
            ModelAead.open(&mut jobs);
            let [OpenJob { authentic, .. }] = jobs;
            assert!(authentic || opened.iter().all(|&it| it == BEFORE), "nothing is written");
            authentic.then_some(opened)
        }

        /// All octets that a change of must be noticed.
        fn parts(&mut self) -> [&mut [u8]; 5] {
            let Self { key, iv, aad, payload, tag } = self;
            [key, iv, aad, payload, tag]
        }
    }

    #[test]
    fn a_frame_is_opened_as_it_was_sealed_and_no_changed_bit_of_any_part_is_taken() {
        let mut prng = Prng::new(7);
        for (aad, payload) in [(0, 0), (48, 0), (60, 8), (5, 17), (48, 256)] {
            let mut frame = Sealed::new(&mut prng, aad, payload);
            assert_eq!(frame.open().as_ref(), Some(&frame.payload));
            for part in 0..frame.parts().len() {
                for bit in 0..frame.parts()[part].len() * 8 {
                    frame.parts()[part][bit / 8] ^= 1 << (bit % 8);
                    assert_eq!(frame.open(), None, "bit {bit} of part {part}");
                    frame.parts()[part][bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    #[test]
    fn a_frame_of_zeros_under_a_key_of_zeros_has_a_length_that_cannot_be_changed() {
        let frame = |aad, payload| {
            let (key, iv, tag) = ([0; KEY_LEN], [0; IV_LEN], [0; TAG_LEN]);
            let mut frame = Sealed { key, iv, aad: vec![0; aad], payload: vec![0; payload], tag };
            let key = Key::from_bytes(key);
            frame.tag = tag_of((&key).into(), &iv, &frame.aad, &frame.payload);
            frame
        };
        let sealed = frame(20, 100);
        assert!(sealed.open().is_some());
        for (aad, payload) in [(19, 100), (20, 99), (20, 101), (36, 84), (100, 20), (20, 0)] {
            assert_eq!(Sealed { tag: sealed.tag, ..frame(aad, payload) }.open(), None);
        }
    }

    #[test]
    fn halves_that_are_exchanged_and_blocks_that_are_exchanged_are_not_taken() {
        let frame = Sealed::new(&mut Prng::new(8), 48, 64);
        for (one, other, len) in [(0, 8, 8), (0, 16, 16), (16, 48, 16), (0, 32, 32)] {
            let mut changed = frame.clone();
            (0..len).for_each(|at| changed.payload.swap(one + at, other + at));
            assert_eq!(changed.open(), None, "{one} and {other}");
        }
    }
}
