//! Sealing and opening a group of frames: as many as there are lanes side by side, or fewer.

use core::mem::MaybeUninit;

use super::{
    aes::{self, Row},
    bulk::{self, Crypt, Hash, chunk_len},
    ghash::Field,
    isa::{Block, Isa},
    material::{Material, Needs, set_up},
    shape::Shape,
    short::{self, Chosen},
};
use crate::{
    job::{IV_LEN, JobKey, OpenJob, SealJob},
    key::is_same,
    provider::PAYLOAD_LEN_MAX,
    text::{Side, Text},
};

/// The layout of a group's work: with registers of type `I` for frames side by side, and of type
/// `B` in the bulk loop, for texts of at least `bulk_min` octets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<I, B> {
    pub(crate) isa: I,
    pub(crate) bulk: B,
    pub(crate) bulk_min: usize,
}

/// A frame to seal, or to open.
pub(crate) trait Job<'j> {
    /// The side of the text that holds the ciphertext when it is hashed.
    const CIPHER: Side;

    fn key(&self) -> JobKey<'j>;
    fn iv(&self) -> &[u8; IV_LEN];
    fn aad(&self) -> &'j [u8];
    fn text(&self) -> &Text<'j>;
    fn text_mut(&mut self) -> &mut Text<'j>;

    /// Does up to `P` frames, in `G` registers. Key stream is made for `N` blocks of each frame at
    /// a time.
    fn run<I, B, const N: usize, const G: usize, const P: usize>(
        layout: Layout<I, B>,
        place: &mut MaybeUninit<Material<P>>,
        jobs: &mut [Self],
    ) where
        Self: Sized,
        I: Isa,
        B: Isa<One = I::One>;
}

/// The common limits of the shapes of a group's frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The octets that the bulk loop takes at once.
    chunk: usize,
    /// The shortest text that it has a part in.
    bulk_min: usize,
    /// The shape of all, if all are alike.
    common: Option<Shape>,
    /// The most blocks of a frame that are hashed in its lane.
    pub(super) hashed: usize,
    /// The longest head, in octets.
    pub(super) head_max: usize,
    pub(super) needs: Needs,
}

impl Group {
    #[inline(always)]
    fn new<'j, J: Job<'j>>(jobs: &[J], chunk: usize, bulk_min: usize) -> Self {
        let first = Shape::of(&jobs[0], chunk, bulk_min);
        let mut group = Self {
            chunk,
            bulk_min,
            common: Some(first),
            hashed: first.hashed(),
            head_max: first.head(),
            needs: Needs { bulk: first.bulk > 0, rest: first.has_text_rest() },
        };
        for job in &jobs[1..] {
            if job.aad().len() == first.aad && job.text().len() == first.text {
                continue;
            }
            let shape = Shape::of(job, chunk, bulk_min);
            group.common = None;
            group.hashed = group.hashed.max(shape.hashed());
            group.head_max = group.head_max.max(shape.head());
            group.needs.bulk |= shape.bulk > 0;
            group.needs.rest |= shape.has_text_rest();
        }
        group
    }

    /// The shape of all frames, if all are alike.
    #[inline(always)]
    pub(super) const fn common(&self) -> Option<Shape> {
        self.common
    }

    /// The shape of a frame of this group.
    #[inline(always)]
    pub(super) fn shape<'j, J: Job<'j>>(&self, job: &J) -> Shape {
        match self.common {
            Some(shape) => shape,
            None => Shape::of(job, self.chunk, self.bulk_min),
        }
    }
}

impl Shape {
    #[inline(always)]
    fn of<'j, J: Job<'j>>(job: &J, chunk: usize, bulk_min: usize) -> Self {
        if job.text().len() > PAYLOAD_LEN_MAX {
            return Self::NOTHING;
        }
        Self::new(job.aad().len(), job.text().len(), chunk, bulk_min)
    }
}

/// One job for each lane; lanes without a frame get the first.
#[inline(always)]
fn in_lanes<J, const P: usize>(jobs: &[J]) -> [&J; P] {
    core::array::from_fn(|lane| if lane < jobs.len() { &jobs[lane] } else { &jobs[0] })
}

impl<'j> Job<'j> for SealJob<'j> {
    const CIPHER: Side = Side::To;

    #[inline(always)]
    fn key(&self) -> JobKey<'j> {
        self.key
    }

    #[inline(always)]
    fn iv(&self) -> &[u8; IV_LEN] {
        &self.iv
    }

    #[inline(always)]
    fn aad(&self) -> &'j [u8] {
        self.aad
    }

    #[inline(always)]
    fn text(&self) -> &Text<'j> {
        &self.text
    }

    #[inline(always)]
    fn text_mut(&mut self) -> &mut Text<'j> {
        &mut self.text
    }

    #[inline(always)]
    fn run<I, B, const N: usize, const G: usize, const P: usize>(
        layout: Layout<I, B>,
        place: &mut MaybeUninit<Material<P>>,
        jobs: &mut [Self],
    ) where
        I: Isa,
        B: Isa<One = I::One>,
    {
        const { assert!(G * I::LANES == P, "a lane for each frame") };
        let group = &Group::new(jobs, chunk_len::<B>(), layout.bulk_min);
        for job in &*jobs {
            assert!(job.text.len() <= PAYLOAD_LEN_MAX, "a payload of {} octets", job.text.len());
        }
        let field = Field::new(layout.isa);
        let lanes = in_lanes(jobs);
        let material = set_up::<I, _, G, P>(field, place, &lanes, B::LANES, group.needs);
        short::crypt_heads::<I, _, N, G, P>(field, material, jobs, group, Chosen::ALL);
        if group.needs.rest {
            short::crypt_rests(material, jobs, group, Chosen::ALL);
        }
        let hashes = short::hash::<I, _, G, P>(field, material, &in_lanes(jobs), group);
        // Of frames with a bulk part this is the hash of what stands before it: their tags come
        // below.
        let tags = tags::<I, G, P>(field, material, hashes);
        for (job, tag) in jobs.iter_mut().zip(tags) {
            *job.tag = tag;
        }
        if group.needs.bulk {
            let befores = befores::<I, G, P>(field, hashes);
            seal_bulk(Field::new(layout.bulk), material, jobs, group, &befores);
        }
    }
}

/// Encrypts each bulk part and hashes it.
#[inline(always)]
fn seal_bulk<B: Isa, const P: usize>(
    field: Field<B>,
    material: &Material<P>,
    jobs: &mut [SealJob<'_>],
    group: &Group,
    befores: &Row<P>,
) {
    if bulk::interleaves::<B>() {
        seal_bulk_interleaved(field, material, jobs, group, befores);
        return;
    }
    for (lane, job) in jobs.iter_mut().enumerate() {
        let shape = group.shape(job);
        if shape.bulk == 0 {
            continue;
        }
        Crypt::new(field, material, lane, job, shape).run(field, job.text.lend());
        let mut hash = Hash::new(field, material, lane, shape, &befores[lane]);
        hash.run(field, job.text.side(Side::To));
        let hash = hash.finish(field, material, lane, job, shape);
        *job.tag = tag(field.isa.one(), hash, &material.masks[lane]);
    }
}

/// Encrypts each bulk part while the one before is hashed.
#[inline(always)]
fn seal_bulk_interleaved<B: Isa, const P: usize>(
    field: Field<B>,
    material: &Material<P>,
    jobs: &mut [SealJob<'_>],
    group: &Group,
    befores: &Row<P>,
) {
    let mut encrypted: Option<usize> = None;
    for lane in 0..=jobs.len() {
        let next = (lane < jobs.len()).then_some(lane);
        if next.is_some_and(|lane| group.shape(&jobs[lane]).bulk == 0) {
            continue;
        }
        let crypt = match next {
            Some(lane) => {
                Some(Crypt::new(field, material, lane, &jobs[lane], group.shape(&jobs[lane])))
            }
            None => None,
        };
        let hash = match encrypted {
            Some(lane) => {
                Some(Hash::new(field, material, lane, group.shape(&jobs[lane]), &befores[lane]))
            }
            None => None,
        };
        let [to, from] = two(jobs, next, encrypted);
        let to = to.map(|job| job.text.lend());
        let from = from.map(|job| job.text.side(Side::To));
        let hash = bulk::run(field, crypt.zip(to), hash.zip(from));
        if let (Some(hash), Some(lane)) = (hash, encrypted) {
            let hash = hash.finish(field, material, lane, &jobs[lane], group.shape(&jobs[lane]));
            *jobs[lane].tag = tag(field.isa.one(), hash, &material.masks[lane]);
        }
        encrypted = next;
    }
}

impl<'j> Job<'j> for OpenJob<'j> {
    const CIPHER: Side = Side::From;

    #[inline(always)]
    fn key(&self) -> JobKey<'j> {
        self.key
    }

    #[inline(always)]
    fn iv(&self) -> &[u8; IV_LEN] {
        &self.iv
    }

    #[inline(always)]
    fn aad(&self) -> &'j [u8] {
        self.aad
    }

    #[inline(always)]
    fn text(&self) -> &Text<'j> {
        &self.text
    }

    #[inline(always)]
    fn text_mut(&mut self) -> &mut Text<'j> {
        &mut self.text
    }

    #[inline(always)]
    fn run<I, B, const N: usize, const G: usize, const P: usize>(
        layout: Layout<I, B>,
        place: &mut MaybeUninit<Material<P>>,
        jobs: &mut [Self],
    ) where
        I: Isa,
        B: Isa<One = I::One>,
    {
        const { assert!(G * I::LANES == P, "a lane for each frame") };
        let group = &Group::new(jobs, chunk_len::<B>(), layout.bulk_min);
        let field = Field::new(layout.isa);
        let lanes = in_lanes(jobs);
        let material = set_up::<I, _, G, P>(field, place, &lanes, B::LANES, group.needs);
        let hashes = short::hash::<I, _, G, P>(field, material, &lanes, group);
        let expected = tags::<I, G, P>(field, material, hashes);
        let mut authentic = Chosen::NONE;
        for (lane, job) in jobs.iter_mut().enumerate() {
            let is_whole = group.shape(job).bulk == 0 && job.text.len() <= PAYLOAD_LEN_MAX;
            job.authentic = is_whole && is_same(&expected[lane], job.tag);
            authentic = authentic.with(lane, job.authentic);
        }
        if group.needs.bulk {
            let befores = befores::<I, G, P>(field, hashes);
            authentic =
                open_bulk(Field::new(layout.bulk), material, jobs, group, &befores, authentic);
        }
        short::crypt_heads::<I, _, N, G, P>(field, material, jobs, group, authentic);
        if group.needs.rest {
            short::crypt_rests(material, jobs, group, authentic);
        }
    }
}

/// Hashes each bulk part, and decrypts it if it has turned out to be authentic. Returns which were.
#[inline(always)]
fn open_bulk<B: Isa, const P: usize>(
    field: Field<B>,
    material: &Material<P>,
    jobs: &mut [OpenJob<'_>],
    group: &Group,
    befores: &Row<P>,
    mut authentic: Chosen,
) -> Chosen {
    if bulk::interleaves::<B>() {
        return open_bulk_interleaved(field, material, jobs, group, befores, authentic);
    }
    for (lane, job) in jobs.iter_mut().enumerate() {
        let shape = group.shape(job);
        if shape.bulk == 0 {
            continue;
        }
        let mut hash = Hash::new(field, material, lane, shape, &befores[lane]);
        hash.run(field, job.text.side(Side::From));
        let hash = hash.finish(field, material, lane, job, shape);
        let expected = tag(field.isa.one(), hash, &material.masks[lane]);
        if is_same(&expected, job.tag) {
            job.authentic = true;
            authentic = authentic.with(lane, true);
            Crypt::new(field, material, lane, job, shape).run(field, job.text.lend());
        }
    }
    authentic
}

/// Hashes each bulk part while the one before is decrypted, if that has turned out to be authentic.
/// Returns which were.
#[inline(always)]
fn open_bulk_interleaved<B: Isa, const P: usize>(
    field: Field<B>,
    material: &Material<P>,
    jobs: &mut [OpenJob<'_>],
    group: &Group,
    befores: &Row<P>,
    mut authentic: Chosen,
) -> Chosen {
    let mut authenticated: Option<usize> = None;
    for lane in 0..=jobs.len() {
        let next = (lane < jobs.len()).then_some(lane);
        if next.is_some_and(|lane| group.shape(&jobs[lane]).bulk == 0) {
            continue;
        }
        let crypt = match authenticated {
            Some(lane) => {
                Some(Crypt::new(field, material, lane, &jobs[lane], group.shape(&jobs[lane])))
            }
            None => None,
        };
        let hash = match next {
            Some(lane) => {
                Some(Hash::new(field, material, lane, group.shape(&jobs[lane]), &befores[lane]))
            }
            None => None,
        };
        let [from, to] = two(jobs, next, authenticated);
        let to = to.map(|job| job.text.lend());
        let from = from.map(|job| job.text.side(Side::From));
        let hash = bulk::run(field, crypt.zip(to), hash.zip(from));
        authenticated = None;
        if let (Some(hash), Some(lane)) = (hash, next) {
            let hash = hash.finish(field, material, lane, &jobs[lane], group.shape(&jobs[lane]));
            let expected = tag(field.isa.one(), hash, &material.masks[lane]);
            if is_same(&expected, jobs[lane].tag) {
                jobs[lane].authentic = true;
                authentic = authentic.with(lane, true);
                authenticated = Some(lane);
            }
        }
    }
    authentic
}

/// The tags that belong to `hashes`.
#[inline(always)]
fn tags<I: Isa, const G: usize, const P: usize>(
    field: Field<I>,
    material: &Material<P>,
    hashes: [I::V; G],
) -> Row<P> {
    let isa = field.isa;
    let mut tags = [[0; 16]; P];
    for g in 0..G {
        let mask = aes::load(isa, &material.masks, g);
        aes::store(isa, isa.xor(field.reverse(hashes[g]), mask), &mut tags, g);
    }
    tags
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

/// Two jobs at once.
#[inline(always)]
fn two<J>(jobs: &mut [J], first: Option<usize>, second: Option<usize>) -> [Option<&mut J>; 2] {
    match (first, second) {
        (Some(first), Some(second)) => {
            jobs.get_disjoint_mut([first, second]).expect("two different jobs").map(Some)
        }
        (Some(first), None) => [jobs.get_mut(first), None],
        (None, Some(second)) => [None, jobs.get_mut(second)],
        (None, None) => [None, None],
    }
}
