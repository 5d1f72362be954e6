//! What protects each frame of a batch, and the batch handed to the provider: frames are opened
//! side by side, and sealed side by side (1RMA §4.2, "Line-rate operation").
//!
//! One place for each frame of a batch, made with the NIC and used again and again. What is in a
//! place besides counts for the batch under way only.

use arrayvec::ArrayVec;

use crate::{
    backend::{BATCH, RxFrame, TxFrame},
    command::CommandSlotId,
    crypto::{AeadProvider, BindingFields, DerivedRegionKey, IV_LEN, Iv, RegionKeySchedule},
    limits::TAG_LEN,
    wire::{self, Sealed, failure::FAILURE_HEADER_LEN},
};
use rma_crypto::{JobKey, Key, OpenJob, SealJob, Text};

/// The longest AAD: a failure notice's header, and the IV and tag of the request that it answers.
const AAD_MAX: usize = FAILURE_HEADER_LEN + IV_LEN + TAG_LEN;

/// What a frame is sealed with, and opened with.
struct Protection {
    key: DerivedRegionKey,
    iv: Iv,
    header_len: usize,
    /// Header and what the frame answers, side by side. Empty for a frame that answers none: then
    /// its header is all that is authenticated with it, and is taken from the frame.
    aad: [u8; AAD_MAX],
    aad_len: usize,
}

impl Protection {
    const NONE: Self = Self {
        key: DerivedRegionKey::RESERVED,
        iv: Iv::NONE,
        header_len: 0,
        aad: [0; AAD_MAX],
        aad_len: 0,
    };

    /// Of a frame that answers none.
    #[inline]
    const fn set_first(&mut self, key: &DerivedRegionKey, iv: Iv, header_len: usize) {
        (self.key, self.iv, self.header_len, self.aad_len) = (*key, iv, header_len, 0);
    }

    /// Of a frame with `header` that answers what has `answered`. So joined, they are the paper's
    /// currying. Lengths that are known when this is compiled make the copies cost next to nothing.
    //= 1rma#A-iv-currying
    #[inline]
    fn set_answer<const HEADER: usize, const ANSWERED: usize>(
        &mut self,
        key: &DerivedRegionKey,
        iv: Iv,
        header: &[u8; HEADER],
        answered: &[u8; ANSWERED],
    ) {
        const { assert!(HEADER + ANSWERED <= AAD_MAX) };
        (self.key, self.iv, self.header_len) = (*key, iv, HEADER);
        self.aad[..HEADER].copy_from_slice(header);
        self.aad[HEADER..HEADER + ANSWERED].copy_from_slice(answered);
        self.aad_len = HEADER + ANSWERED;
    }

    fn job_key(&self) -> JobKey<'_> {
        JobKey::Fresh(self.key.as_key())
    }

    fn aad<'a>(&'a self, header: &'a [u8]) -> &'a [u8] {
        match self.aad_len {
            0 => header,
            len => &self.aad[..len],
        }
    }
}

/// Frames that are written and not sealed yet, in order.
pub(crate) struct Sealing {
    places: Box<[Place]>,
    used: usize,
}

struct Place {
    protection: Protection,
    /// Whose request the frame is, if it is one: answers will be bound to its tag.
    request_of: Option<CommandSlotId>,
}

impl Sealing {
    /// Bytes that each place takes.
    pub(crate) const ENTRY_LEN: usize = size_of::<Place>();

    pub(crate) fn new() -> Self {
        let place = || Place { protection: Protection::NONE, request_of: None };
        Self { places: (0..BATCH).map(|_| place()).collect(), used: 0 }
    }

    /// The place of the next frame.
    #[inline]
    fn next(&mut self, request_of: Option<CommandSlotId>) -> &mut Protection {
        let place = &mut self.places[self.used];
        self.used += 1;
        place.request_of = request_of;
        &mut place.protection
    }

    /// Notes what the next frame is sealed with, one that answers none.
    #[inline]
    pub(crate) fn push_first(
        &mut self,
        key: &DerivedRegionKey,
        iv: Iv,
        header_len: usize,
        request_of: CommandSlotId,
    ) {
        self.next(Some(request_of)).set_first(key, iv, header_len);
    }

    /// As [`Sealing::push_first`], of one that answers what has `answered`.
    #[inline]
    pub(crate) fn push_answer<const HEADER: usize, const ANSWERED: usize>(
        &mut self,
        key: &DerivedRegionKey,
        iv: Iv,
        header: &[u8; HEADER],
        answered: &[u8; ANSWERED],
    ) {
        self.next(None).set_answer(key, iv, header, answered);
    }

    /// Encrypts the payloads of `frames` and writes their tags: as many as there were notes, in
    /// their order. Tells `on_request` the tags of requests.
    pub(crate) fn seal(
        &mut self,
        aead: &dyn AeadProvider,
        frames: &mut [TxFrame<'_>],
        mut on_request: impl FnMut(CommandSlotId, [u8; TAG_LEN]),
    ) {
        debug_assert_eq!(self.used, frames.len(), "each frame was noted");
        let places = &self.places[..self.used];
        self.used = 0;
        let mut jobs: ArrayVec<SealJob<'_>, BATCH> = ArrayVec::new();
        for (Place { protection, .. }, frame) in places.iter().zip(&mut *frames) {
            let len = frame.transmit.as_ref().map_or(0, |transmit| transmit.len);
            let bytes = &mut frame.bytes[..len];
            let Sealed { header, payload, tag } =
                wire::split(bytes, protection.header_len).expect("a frame was written");
            jobs.push(SealJob {
                key: protection.job_key(),
                iv: *protection.iv.octets(),
                aad: protection.aad(header),
                text: Text::in_place(payload),
                tag,
            });
        }
        aead.seal(&mut jobs);
        for (job, place) in jobs.iter().zip(places) {
            if let Some(slot) = place.request_of {
                on_request(slot, *job.tag);
            }
        }
    }
}

/// Received frames, in order, and what each has to be opened with.
pub(crate) struct Opening {
    places: Box<[Protection]>,
    /// Keys that were derived for requests.
    keys: Box<[Key]>,
}

/// The frames of a batch that are requests, with the K_r and the fields that the K_d of each is
/// derived from.
pub(crate) type Derivations<'r> = ArrayVec<(usize, &'r RegionKeySchedule, BindingFields), BATCH>;

impl Opening {
    /// Bytes that each place takes.
    pub(crate) const ENTRY_LEN: usize = size_of::<Protection>() + size_of::<Key>();

    pub(crate) fn new() -> Self {
        Self {
            places: (0..BATCH).map(|_| Protection::NONE).collect(),
            keys: (0..BATCH).map(|_| Key::default()).collect(),
        }
    }

    /// The K_d that frame `index` was opened under.
    #[inline]
    pub(crate) const fn key(&self, index: usize) -> &DerivedRegionKey {
        &self.places[index].key
    }

    /// Notes what frame `index` is opened with, a request. Its key is derived later.
    #[inline]
    pub(crate) const fn set_request(&mut self, index: usize, iv: Iv, header_len: usize) {
        self.places[index].set_first(&DerivedRegionKey::RESERVED, iv, header_len);
    }

    /// Notes what frame `index` is opened with, one that answers what has `answered`.
    #[inline]
    pub(crate) fn set_answer<const HEADER: usize, const ANSWERED: usize>(
        &mut self,
        index: usize,
        key: &DerivedRegionKey,
        iv: Iv,
        header: &[u8; HEADER],
        answered: &[u8; ANSWERED],
    ) {
        self.places[index].set_answer(key, iv, header, answered);
    }

    /// Derives the keys of requests.
    pub(crate) fn derive(&mut self, aead: &dyn AeadProvider, derivations: &Derivations<'_>) {
        if derivations.is_empty() {
            return;
        }
        let mut jobs: ArrayVec<_, BATCH> = ArrayVec::new();
        for (_, region_key, fields) in derivations {
            jobs.push(fields.job(region_key));
        }
        let keys = &mut self.keys[..jobs.len()];
        aead.derive(&jobs, keys);
        for (&(index, ..), key) in derivations.iter().zip(keys) {
            self.places[index].key = DerivedRegionKey::of(key);
        }
    }

    /// Opens those of `frames` that `which` names by their bits, in place, and returns which of
    /// them are authentic.
    pub(crate) fn open(
        &self,
        aead: &dyn AeadProvider,
        frames: &mut [RxFrame<'_>],
        which: FrameSet,
    ) -> FrameSet {
        let mut jobs: ArrayVec<OpenJob<'_>, BATCH> = ArrayVec::new();
        for (index, (protection, frame)) in self.places.iter().zip(frames).enumerate() {
            if !which.has(index) {
                continue;
            }
            let Sealed { header, payload, tag } =
                wire::split(frame.bytes, protection.header_len).expect("a frame that was parsed");
            jobs.push(OpenJob {
                key: protection.job_key(),
                iv: *protection.iv.octets(),
                aad: protection.aad(header),
                text: Text::in_place(payload),
                tag,
                authentic: false,
            });
        }
        aead.open(&mut jobs);
        let mut jobs = jobs.iter();
        let mut authentic = FrameSet::default();
        for index in (0..BATCH).filter(|&index| which.has(index)) {
            if jobs.next().is_some_and(|job| job.authentic) {
                authentic.insert(index);
            }
        }
        authentic
    }
}

/// Some frames of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameSet(u32);

const _: () = assert!(BATCH <= u32::BITS as usize);

impl FrameSet {
    pub(crate) const fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    pub(crate) const fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }
}
