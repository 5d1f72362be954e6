//! A batch of frames that describes itself, and what must come out of it.

use aes_gcm::{
    Aes128Gcm, KeyInit,
    aead::{AeadInOut, Nonce},
};
use rma_crypto::{
    AeadProvider, JobKey, Key, OpenJob, Portable, PreparedKey, ProviderKind, SealJob, Text,
};

/// Octets before and after each buffer that nobody may touch.
const GUARD: usize = 32;
const GUARD_OCTET: u8 = 0xc3;

/// The damage done to a frame that is then opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    None,
    /// A bit of the tag, by number.
    Tag(u8),
    /// A bit of the ciphertext, if there is any.
    Text(u16),
    /// A bit of the AAD, if there is any.
    Aad(u16),
    Iv(u8),
    Key(u8),
}

/// The way in which the key is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Fresh,
    Prepared,
    /// Prepared by another provider.
    PreparedElsewhere,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Makes key, IV, AAD and text different from case to case.
    pub(crate) seed: u64,
    pub(crate) aad_len: usize,
    pub(crate) text_len: usize,
    /// Of source and destination, to the next multiple of 64.
    pub(crate) alignments: (u8, u8),
    pub(crate) in_place: bool,
    pub(crate) kept: Kept,
    pub(crate) damage: Damage,
}

impl Case {
    pub(crate) const fn plain(seed: u64, aad_len: usize, text_len: usize) -> Self {
        let (alignments, in_place) = ((0, 0), true);
        let (kept, damage) = (Kept::Fresh, Damage::None);
        Self { seed, aad_len, text_len, alignments, in_place, kept, damage }
    }
}

/// Octets that look like any others.
pub(crate) fn octets(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    let mut octets = Vec::with_capacity(len + 8);
    while octets.len() < len {
        octets.extend_from_slice(&next().to_le_bytes());
    }
    octets.truncate(len);
    octets
}

/// A buffer at a given alignment, between guards.
pub(crate) struct Guarded {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Guarded {
    pub(crate) fn new(content: &[u8], alignment: u8) -> Self {
        let mut memory = vec![GUARD_OCTET; content.len() + 2 * GUARD + 128];
        let base = memory.as_ptr().addr() + GUARD;
        let start = GUARD + base.next_multiple_of(64) - base + usize::from(alignment % 64);
        memory[start..start + content.len()].copy_from_slice(content);
        Self { memory, start, len: content.len() }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub(crate) fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    #[track_caller]
    pub(crate) fn assert_guards(&self) {
        let (before, rest) = self.memory.split_at(self.start);
        let untouched = |octets: &[u8]| octets.iter().all(|&octet| octet == GUARD_OCTET);
        assert!(untouched(before), "written before the payload");
        assert!(untouched(&rest[self.len..]), "written behind the payload");
    }
}

struct Frame {
    key: Key,
    other_key: Key,
    prepared: PreparedKey,
    other_prepared: PreparedKey,
    iv: [u8; 12],
    aad: Vec<u8>,
    plain: Vec<u8>,
    from: Guarded,
    to: Guarded,
    tag: [u8; 16],
    sealed: (Vec<u8>, [u8; 16]),
}

impl Frame {
    fn new(case: &Case, provider: &dyn AeadProvider) -> Self {
        let material = octets(case.seed, 16 + 12);
        let key: [u8; 16] = core::array::from_fn(|at| material[at]);
        let iv: [u8; 12] = core::array::from_fn(|at| material[16 + at]);
        let aad = octets(case.seed.wrapping_add(1), case.aad_len);
        let plain = octets(case.seed.wrapping_add(2), case.text_len);
        let sealed = reference(&key, &iv, &aad, &plain);
        let mut other_key = key;
        if let Damage::Key(bit) = case.damage {
            flip(&mut other_key, bit.into());
        }
        let (key, other_key) = (Key::from_bytes(key), Key::from_bytes(other_key));
        let kind = ProviderKind::ALL.into_iter().find(|&kind| kind != provider.kind());
        let elsewhere = kind.and_then(|kind| kind.provider().ok()).unwrap_or(&Portable);
        let preparer = if case.kept == Kept::PreparedElsewhere { elsewhere } else { provider };
        Self {
            prepared: preparer.prepare(&key),
            other_prepared: preparer.prepare(&other_key),
            key,
            other_key,
            iv,
            aad,
            from: Guarded::new(&plain, case.alignments.0),
            to: Guarded::new(&vec![0x77; plain.len()], case.alignments.1),
            plain,
            tag: [0; 16],
            sealed,
        }
    }
}

/// Computes RustCrypto's result for it.
pub(crate) fn reference(
    key: &[u8; 16],
    iv: &[u8; 12],
    aad: &[u8],
    plain: &[u8],
) -> (Vec<u8>, [u8; 16]) {
    let mut text = plain.to_vec();
    let nonce: &Nonce<Aes128Gcm> = iv.into();
    let tag = Aes128Gcm::new(key.into())
        .encrypt_inout_detached(nonce, aad, text.as_mut_slice().into())
        .expect("far below the limit");
    (text, tag.into())
}

fn flip(octets: &mut [u8], bit: usize) -> bool {
    let Some(bits) = (octets.len() * 8).checked_sub(1) else { return false };
    let bit = bit % (bits + 1);
    octets[bit / 8] ^= 1 << (bit % 8);
    true
}

const fn job_key<'k>(case: &Case, fresh: &'k Key, prepared: &'k PreparedKey) -> JobKey<'k> {
    match case.kept {
        Kept::Fresh => JobKey::Fresh(fresh),
        Kept::Prepared | Kept::PreparedElsewhere => JobKey::Prepared(prepared),
    }
}

fn text<'t>(case: &Case, from: &'t Guarded, to: &'t mut Guarded) -> Text<'t> {
    if case.in_place {
        Text::in_place(to.octets_mut())
    } else {
        Text::from_to(from.octets(), to.octets_mut()).expect("made with one length")
    }
}

/// Seals all cases as one batch and opens them as one batch, damaged as they say. Panics if a
/// result differs from the reference, if a frame is wrongly accepted or refused, or if anything is
/// written that should not be.
pub(crate) fn check(provider: &dyn AeadProvider, cases: &[Case]) {
    let mut frames: Vec<Frame> = cases.iter().map(|case| Frame::new(case, provider)).collect();
    for (case, frame) in cases.iter().zip(&mut frames) {
        if case.in_place {
            frame.to.octets_mut().copy_from_slice(&frame.plain);
        }
    }
    let mut jobs: Vec<SealJob<'_>> = cases
        .iter()
        .zip(&mut frames)
        .map(|(case, Frame { key, prepared, iv, aad, from, to, tag, .. })| SealJob {
            key: job_key(case, key, prepared),
            iv: *iv,
            aad,
            text: text(case, from, to),
            tag,
        })
        .collect();
    provider.seal(&mut jobs);
    for (index, (case, frame)) in cases.iter().zip(&mut frames).enumerate() {
        let at = || format!("{} of {}: {case:?} with {provider:?}", index, cases.len());
        assert_eq!(frame.to.octets(), frame.sealed.0, "ciphertext {}", at());
        assert_eq!(frame.tag, frame.sealed.1, "tag {}", at());
        assert_eq!(frame.from.octets(), frame.plain, "source {}", at());
        frame.to.assert_guards();
        // Now for the way back.
        let buffer = if case.in_place { &mut frame.to } else { &mut frame.from };
        buffer.octets_mut().copy_from_slice(&frame.sealed.0);
        if !case.in_place {
            frame.to.octets_mut().fill(0x77);
        }
    }

    let mut expected = Vec::new();
    for (case, frame) in cases.iter().zip(&mut frames) {
        let buffer = if case.in_place { &mut frame.to } else { &mut frame.from };
        let damaged = match case.damage {
            Damage::None => false,
            Damage::Tag(bit) => flip(&mut frame.tag, bit.into()),
            Damage::Text(bit) => flip(buffer.octets_mut(), bit.into()),
            Damage::Aad(bit) => flip(&mut frame.aad, bit.into()),
            Damage::Iv(bit) => flip(&mut frame.iv, bit.into()),
            Damage::Key(_) => true,
        };
        let source = buffer.octets().to_vec();
        let destination = frame.to.octets().to_vec();
        let after = if damaged { destination } else { frame.plain.clone() };
        expected.push((!damaged, source, after));
    }
    let mut jobs: Vec<OpenJob<'_>> = cases
        .iter()
        .zip(&mut frames)
        .map(|(case, Frame { other_key, other_prepared, iv, aad, from, to, tag, .. })| OpenJob {
            key: job_key(case, other_key, other_prepared),
            iv: *iv,
            aad,
            text: text(case, from, to),
            tag,
            // The opposite of what must come out.
            authentic: case.damage != Damage::None,
        })
        .collect();
    provider.open(&mut jobs);
    let verdicts: Vec<bool> = jobs.iter().map(|job| job.authentic).collect();
    let results = cases.iter().zip(&frames).zip(&expected).zip(verdicts).enumerate();
    for (index, (((case, frame), (authentic, source, after)), verdict)) in results {
        let at = || format!("{} of {}: {case:?} with {provider:?}", index, cases.len());
        assert_eq!(verdict, *authentic, "verdict {}", at());
        assert_eq!(frame.to.octets(), after, "plaintext {}", at());
        if !case.in_place {
            assert_eq!(frame.from.octets(), source, "source {}", at());
        }
        frame.to.assert_guards();
        frame.from.assert_guards();
    }
}
