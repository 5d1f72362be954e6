//! Sealing and opening a group of frames: as many as lanes are side by side, or fewer.

use super::{
    aes::{self, Row},
    bulk::{self, Crypt, Hash, chunk_len},
    frame::Frame,
    ghash::Field,
    isa::{Block, Isa},
    material::{Material, Needs, set_up},
    short::{self, Chosen},
    span::Side,
};
use crate::{
    job::{OpenJob, SealJob},
    key::is_same,
    provider::PAYLOAD_LEN_MAX,
};

/// How a group is done: with registers of type `I` for frames side by side, and of type `B` in the bulk loop, for texts of
/// at least `bulk_min` octets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<I, B> {
    pub(crate) isa: I,
    pub(crate) bulk: B,
    pub(crate) bulk_min: usize,
}

/// Frames to seal, or to open.
pub(crate) trait Job: Sized {
    /// Does up to `P` frames, in `G` registers. Key stream is made for `N` blocks of each frame at a time.
    fn run<I, B, const N: usize, const G: usize, const P: usize>(
        layout: Layout<I, B>,
        material: &mut Material<P>,
        jobs: &mut [Self],
    ) where
        I: Isa,
        B: Isa<One = I::One>;
}

impl Job for SealJob<'_> {
    #[inline(always)]
    fn run<I, B, const N: usize, const G: usize, const P: usize>(
        layout: Layout<I, B>,
        material: &mut Material<P>,
        jobs: &mut [Self],
    ) where
        I: Isa,
        B: Isa<One = I::One>,
    {
        seal::<I, B, N, G, P>(layout, material, jobs);
    }
}

impl Job for OpenJob<'_> {
    #[inline(always)]
    fn run<I, B, const N: usize, const G: usize, const P: usize>(
        layout: Layout<I, B>,
        material: &mut Material<P>,
        jobs: &mut [Self],
    ) where
        I: Isa,
        B: Isa<One = I::One>,
    {
        open::<I, B, N, G, P>(layout, material, jobs);
    }
}

#[inline(always)]
fn seal<I, B, const N: usize, const G: usize, const P: usize>(
    layout: Layout<I, B>,
    material: &mut Material<P>,
    jobs: &mut [SealJob<'_>],
) where
    I: Isa,
    B: Isa<One = I::One>,
{
    const { assert!(G * I::LANES == P, "a lane for each frame") };
    let count = jobs.len();
    let mut tags = [[0; 16]; P];
    {
        let mut jobs = jobs.iter_mut();
        let mut frames: [Frame<'_>; P] = core::array::from_fn(|_| match jobs.next() {
            Some(job) => Frame::of_seal(job, chunk_len::<B>(), layout.bulk_min),
            None => Frame::nothing(),
        });
        seal_frames::<I, B, N, G, P>(layout, material, &mut frames[..count], &mut tags);
    }
    for (job, tag) in jobs.iter_mut().zip(tags) {
        *job.tag = tag;
    }
}

#[inline(always)]
fn seal_frames<I, B, const N: usize, const G: usize, const P: usize>(
    layout: Layout<I, B>,
    material: &mut Material<P>,
    frames: &mut [Frame<'_>],
    tags: &mut Row<P>,
) where
    I: Isa,
    B: Isa<One = I::One>,
{
    let needs = needs(frames);
    let field = Field::new(layout.isa);
    set_up::<I, G, P>(field, material, frames, B::LANES, needs);
    short::crypt_heads::<I, N, G, P>(field, material, frames, Chosen::ALL);
    if needs.rest {
        short::encrypt_rests(material, frames);
    }
    let hashes = short::hash::<I, G, P>(field, material, frames, Side::To);
    // Of frames with a bulk part this is the hash of what stands before it, and `tags` is overwritten below.
    finish::<I, G, P>(field, material, hashes, tags);
    if !needs.bulk {
        return;
    }
    let befores = befores::<I, G, P>(field, hashes);
    let field = Field::new(layout.bulk);
    let mut encrypted: Option<usize> = None;
    for lane in 0..=frames.len() {
        let next = frames.get(lane).map(|frame| frame.shape.bulk > 0);
        if next == Some(false) {
            continue;
        }
        let mut crypt = next.map(|_| Crypt::new(field, material, lane, &frames[lane]));
        let mut hash = encrypted
            .map(|lane| Hash::new(field, material, lane, &frames[lane], Side::To, &befores[lane]));
        let [to, from] = two(frames, next.map(|_| lane), encrypted);
        bulk::run(field, crypt.as_mut().zip(to), hash.as_mut().zip(from.as_deref()));
        if let (Some(hash), Some(lane)) = (hash, encrypted) {
            let hash = hash.finish(field, material, lane, &frames[lane]);
            tags[lane] = tag(field.isa.one(), hash, &material.masks[lane]);
        }
        encrypted = next.map(|_| lane);
    }
}

#[inline(always)]
fn open<I, B, const N: usize, const G: usize, const P: usize>(
    layout: Layout<I, B>,
    material: &mut Material<P>,
    jobs: &mut [OpenJob<'_>],
) where
    I: Isa,
    B: Isa<One = I::One>,
{
    const { assert!(G * I::LANES == P, "a lane for each frame") };
    let count = jobs.len();
    let mut tags = [[0; 16]; P];
    let mut possible = Chosen::NONE;
    for (lane, job) in jobs.iter().enumerate() {
        tags[lane] = *job.tag;
        possible = possible.with(lane, job.text.len() <= PAYLOAD_LEN_MAX);
    }
    let authentic = {
        let mut jobs = jobs.iter_mut();
        let mut frames: [Frame<'_>; P] = core::array::from_fn(|_| match jobs.next() {
            Some(job) if job.text.len() <= PAYLOAD_LEN_MAX => {
                Frame::of_open(job, chunk_len::<B>(), layout.bulk_min)
            }
            _ => Frame::nothing(),
        });
        let frames = &mut frames[..count];
        open_frames::<I, B, N, G, P>(layout, material, frames, &tags, possible)
    };
    for (lane, job) in jobs.iter_mut().enumerate() {
        job.authentic = authentic.has(lane);
    }
}

/// Decrypts those of the `possible` frames that have the right tag, and returns which.
#[inline(always)]
fn open_frames<I, B, const N: usize, const G: usize, const P: usize>(
    layout: Layout<I, B>,
    material: &mut Material<P>,
    frames: &mut [Frame<'_>],
    tags: &Row<P>,
    possible: Chosen,
) -> Chosen
where
    I: Isa,
    B: Isa<One = I::One>,
{
    let needs = needs(frames);
    let field = Field::new(layout.isa);
    set_up::<I, G, P>(field, material, frames, B::LANES, needs);
    let hashes = short::hash::<I, G, P>(field, material, frames, Side::From);
    let mut expected = [[0; 16]; P];
    finish::<I, G, P>(field, material, hashes, &mut expected);
    let mut authentic = Chosen::NONE;
    for (lane, frame) in frames.iter().enumerate() {
        let whole = frame.shape.bulk == 0;
        let is_right = whole && possible.has(lane) && is_same(&expected[lane], &tags[lane]);
        authentic = authentic.with(lane, is_right);
    }
    if needs.bulk {
        let befores = befores::<I, G, P>(field, hashes);
        let field = Field::new(layout.bulk);
        let mut authenticated: Option<usize> = None;
        for lane in 0..=frames.len() {
            let next = frames.get(lane).map(|frame| frame.shape.bulk > 0);
            if next == Some(false) {
                continue;
            }
            let mut hash = next.map(|_| {
                Hash::new(field, material, lane, &frames[lane], Side::From, &befores[lane])
            });
            let mut crypt =
                authenticated.map(|lane| Crypt::new(field, material, lane, &frames[lane]));
            let [from, to] = two(frames, next.map(|_| lane), authenticated);
            bulk::run(field, crypt.as_mut().zip(to), hash.as_mut().zip(from.as_deref()));
            authenticated = None;
            if let Some(hash) = hash {
                let hash = hash.finish(field, material, lane, &frames[lane]);
                let expected = tag(field.isa.one(), hash, &material.masks[lane]);
                if possible.has(lane) && is_same(&expected, &tags[lane]) {
                    authentic = authentic.with(lane, true);
                    authenticated = Some(lane);
                }
            }
        }
    }
    short::crypt_heads::<I, N, G, P>(field, material, frames, authentic);
    if needs.rest {
        short::decrypt_rests(material, frames, authentic);
    }
    authentic
}

#[inline(always)]
fn needs(frames: &[Frame<'_>]) -> Needs {
    let mut needs = Needs { bulk: false, rest: false };
    for frame in frames {
        needs.bulk |= frame.shape.bulk > 0;
        needs.rest |= frame.shape.has_rest();
    }
    needs
}

/// The tags that belong to `hashes`.
#[inline(always)]
fn finish<I: Isa, const G: usize, const P: usize>(
    field: Field<I>,
    material: &Material<P>,
    hashes: [I::V; G],
    tags: &mut Row<P>,
) {
    let isa = field.isa;
    for g in 0..G {
        let mask = aes::load(isa, &material.masks, g);
        aes::store(isa, isa.xor(field.reverse(hashes[g]), mask), tags, g);
    }
}

/// The hashes as field elements, for the bulk loop to go on with.
#[inline(always)]
fn befores<I: Isa, const G: usize, const P: usize>(field: Field<I>, hashes: [I::V; G]) -> Row<P> {
    let mut row = [[0; 16]; P];
    for g in 0..G {
        aes::store(field.isa, hashes[g], &mut row, g);
    }
    row
}

/// The tag that belongs to one hash.
#[inline(always)]
fn tag<O: Isa>(one: O, hash: O::V, mask: &Block) -> Block {
    let field = Field::new(one);
    let mut tag = [[0; 16]];
    one.store(one.xor(field.reverse(hash), one.splat(mask)), &mut tag);
    tag[0]
}

/// Two frames at once.
#[inline(always)]
fn two<'f, 'a>(
    frames: &'f mut [Frame<'a>],
    first: Option<usize>,
    second: Option<usize>,
) -> [Option<&'f mut Frame<'a>>; 2] {
    match (first, second) {
        (Some(first), Some(second)) => {
            frames.get_disjoint_mut([first, second]).expect("two frames").map(Some)
        }
        (Some(first), None) => [frames.get_mut(first), None],
        (None, Some(second)) => [None, frames.get_mut(second)],
        (None, None) => [None, None],
    }
}
