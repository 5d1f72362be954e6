//! Batches of frames that nobody wrote, for every AEAD provider that the processor can run.

use rma_crypto::{
    AeadProvider, DeriveFrom, DeriveJob, JobKey, Key, KeySchedule, OpenJob, Portable, PreparedKey,
    ProviderKind, SealJob, Text,
};

use super::script::Script;
use rma_sim::prng::Prng;

/// The most frames of a batch.
const FRAMES_MAX: usize = 64;
/// The longest payload: an op, its overhead, and what is above.
const PAYLOAD_MAX: usize = 4300;
const AAD_MAX: usize = 130;

/// One frame, and what happens to it.
struct Frame {
    schedule: KeySchedule,
    message: Vec<u8>,
    by_block: bool,
    iv: [u8; 12],
    aad: Vec<u8>,
    plain: Vec<u8>,
    in_place: bool,
    prepared: bool,
    /// The bit of tag, payload or AAD that is wrong when the frame is opened.
    damage: Option<usize>,
}

impl Frame {
    fn read(script: &mut Script<'_>, index: usize, provider: &dyn AeadProvider) -> Self {
        let flags = script.number();
        let len = script.wide() as usize;
        let (short, long) = (len % 80, len % (PAYLOAD_MAX + 1));
        let aad = script.number() % (AAD_MAX + 1);
        let mut prng = Prng::new(script.wide() | (flags as u64) << 16 | (index as u64) << 32);
        let mut octets = |len: usize| (0..len).map(|_| prng.below(256) as u8).collect::<Vec<_>>();
        let key: [u8; 16] = core::array::from_fn(|_| octets(1)[0]);
        let plain = octets(if flags & 1 == 0 { short } else { long });
        Self {
            schedule: provider.schedule(&Key::from_bytes(key)),
            message: octets(16 + flags % 49),
            by_block: flags & 2 == 0,
            iv: core::array::from_fn(|_| octets(1)[0]),
            aad: octets(aad),
            plain,
            in_place: flags & 4 == 0,
            prepared: flags & 8 != 0,
            damage: (flags & 0x30 == 0).then(|| script.wide() as usize),
        }
    }

    fn from(&self) -> DeriveFrom<'_> {
        match self.message.first_chunk() {
            Some(block) if self.by_block => DeriveFrom::Block(block),
            _ => DeriveFrom::Cmac(&self.message),
        }
    }
}

/// Derives the keys of a batch, seals it and opens it again, some frames damaged, with every
/// provider.
///
/// Asserts: keys, ciphertext and tags are those of the portable provider; exactly the damaged
/// frames are refused, and nothing is written for them; payloads come back.
pub fn aead(data: &[u8]) {
    for kind in ProviderKind::ALL {
        // The test that replays the corpus says which were not run.
        if let Ok(provider) = kind.provider() {
            run(&mut Script(data), provider);
        }
    }
}

fn run(script: &mut Script<'_>, provider: &dyn AeadProvider) {
    let count = script.number() % FRAMES_MAX + 1;
    // Some batches are of one kind, as bursts are.
    let alike = script.number().is_multiple_of(2);
    let shape = *script;
    let frames: Vec<Frame> = (0..count)
        .map(|index| {
            if alike {
                *script = shape;
            }
            Frame::read(script, index, provider)
        })
        .collect();

    let derivations: Vec<DeriveJob<'_>> = frames
        .iter()
        .map(|frame| DeriveJob { schedule: &frame.schedule, from: frame.from() })
        .collect();
    let mut keys = vec![Key::default(); count];
    let mut expected = keys.clone();
    provider.derive(&derivations, &mut keys);
    Portable.derive(&derivations, &mut expected);
    assert_eq!(keys, expected, "{provider:?}");

    let prepared: Vec<PreparedKey> = keys.iter().map(|key| provider.prepare(key)).collect();
    let (mut sealed, mut tags) = seal(provider, &frames, &keys, &prepared);
    let expected = seal(&Portable, &frames, &keys, &prepared);
    assert!(sealed == expected.0 && tags == expected.1, "{provider:?}");

    let mut aads: Vec<Vec<u8>> = frames.iter().map(|frame| frame.aad.clone()).collect();
    for (index, frame) in frames.iter().enumerate() {
        let Some(bit) = frame.damage else { continue };
        // The tag is never empty, so that something is always damaged.
        let place = match bit % 3 {
            0 if !sealed[index].is_empty() => &mut sealed[index][..],
            1 if !aads[index].is_empty() => &mut aads[index][..],
            _ => &mut tags[index][..],
        };
        let at = bit / 3 % (place.len() * 8);
        place[at / 8] ^= 1 << (at % 8);
    }
    let before: Vec<Vec<u8>> = frames
        .iter()
        .zip(&sealed)
        .map(|(frame, sealed)| if frame.in_place { sealed.clone() } else { vec![7; sealed.len()] })
        .collect();
    let mut opened = before.clone();
    let mut jobs: Vec<OpenJob<'_>> = frames
        .iter()
        .zip(&mut opened)
        .enumerate()
        .map(|(index, (frame, to))| OpenJob {
            key: key(frame, &keys[index], &prepared[index]),
            iv: frame.iv,
            aad: &aads[index],
            text: text(frame, &sealed[index], to),
            tag: &tags[index],
            authentic: frame.damage.is_some(),
        })
        .collect();
    provider.open(&mut jobs);
    let verdicts: Vec<bool> = jobs.iter().map(|job| job.authentic).collect();
    for (index, frame) in frames.iter().enumerate() {
        assert_eq!(verdicts[index], frame.damage.is_none(), "frame {index}, {provider:?}");
        let right = if verdicts[index] { &frame.plain } else { &before[index] };
        assert!(opened[index] == *right, "frame {index}, {provider:?}");
    }
}

fn seal(
    provider: &dyn AeadProvider,
    frames: &[Frame],
    keys: &[Key],
    prepared: &[PreparedKey],
) -> (Vec<Vec<u8>>, Vec<[u8; 16]>) {
    let mut texts: Vec<Vec<u8>> = frames.iter().map(|frame| frame.plain.clone()).collect();
    let mut tags = vec![[0; 16]; frames.len()];
    let mut jobs: Vec<SealJob<'_>> = frames
        .iter()
        .zip(texts.iter_mut().zip(&mut tags))
        .enumerate()
        .map(|(index, (frame, (to, tag)))| SealJob {
            key: key(frame, &keys[index], &prepared[index]),
            iv: frame.iv,
            aad: &frame.aad,
            text: text(frame, &frame.plain, to),
            tag,
        })
        .collect();
    provider.seal(&mut jobs);
    (texts, tags)
}

const fn key<'k>(frame: &Frame, fresh: &'k Key, prepared: &'k PreparedKey) -> JobKey<'k> {
    if frame.prepared { JobKey::Prepared(prepared) } else { JobKey::Fresh(fresh) }
}

/// In place, `to` holds the same as `from`.
fn text<'t>(frame: &Frame, from: &'t [u8], to: &'t mut [u8]) -> Text<'t> {
    if frame.in_place {
        Text::in_place(to)
    } else {
        Text::from_to(from, to).expect("made with one length")
    }
}
