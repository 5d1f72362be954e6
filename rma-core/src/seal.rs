//! Batches of frames handed to the AEAD provider: what protects each frame is noted first, then all
//! are sealed side by side, or opened side by side (1RMA §4.2, "Line-rate operation").
//!
//! For every service of an engine. This module knows places, keys, IVs and AADs; which of them a
//! frame has, and why, is the service's business. A frame is a header in clear, a payload that is
//! encrypted, and a tag. What is authenticated with it is its header as it lies there, or octets
//! that the service joins: the header, or a form of it that is not sent, and behind it what the
//! frame answers.
//!
//! There is one place for each frame of a batch, made with the service and used again and again.
//! What is in a place besides counts for the batch under way only; a key stays there until another
//! frame has the place.
//!
//! An [`Authentic`] value is made with a [`RightTag`] alone, and that is made where frames are
//! opened and nowhere else. Claims that were only parsed cannot be mistaken for it (P6).
//!
//! ```
//! use rma_core::{
//!     addr::HostAddr,
//!     backend::{RxFrame, RxPacket, Transmit, TxFrame},
//!     crypto::{Direction, EngineId, Iv, fastest},
//!     op::ClassOfService,
//!     port::{Port, SourcePort},
//!     seal::{Authentic, FrameSet, Opening, Sealing},
//! };
//! use rma_crypto::Key;
//!
//! const HEADER: usize = 4;
//! let (key, iv) = (Key::from_bytes([7; 16]), Iv::new(Direction::ToResponder, EngineId(1), 42));
//! let hosts = ["192.0.2.1", "192.0.2.2"].map(|host| host.parse::<HostAddr>().unwrap());
//!
//! // A frame of four octets of header, five of payload and a tag. It is bound to what it answers.
//! let mut octets = *b"headhello................";
//! let mut frames = [TxFrame::new(&mut octets)];
//! let class = ClassOfService::Latency;
//! frames[0].transmit = Some(Transmit::new(hosts, Port::ONE_RMA, class, HEADER + 5 + 16));
//! let mut sealing = Sealing::<u32, 16>::new();
//! sealing.push_joined(17, &key, iv, HEADER, b"head", b"what it answers".first_chunk::<12>().unwrap());
//! sealing.seal(fastest(), &mut frames, |note, _tag| assert_eq!(note, 17));
//! assert_ne!(octets[HEADER..][..5], *b"hello");
//!
//! let mut frames = [RxFrame::alone(RxPacket {
//!     source: hosts[0],
//!     destination: hosts[1],
//!     port: Port::ONE_RMA,
//!     source_port: SourcePort::FIRST,
//!     reply_len_max: 1452,
//!     link: None,
//!     bytes: &mut octets,
//! })];
//! let mut opening = Opening::<16>::new();
//! opening.expect_joined(0, iv, HEADER, b"head", b"what it answers".first_chunk::<12>().unwrap());
//! opening.set_key(0, &key);
//! let mut which = FrameSet::default();
//! which.insert(0);
//! let authentic = opening.open(fastest(), &mut frames, which);
//! let payload = authentic.right_tag(0).map(|tag| Authentic::new(&octets[HEADER..][..5], tag));
//! assert_eq!(**payload.as_deref().unwrap(), *b"hello");
//! ```

use core::{fmt, ops::Deref};

use arrayvec::ArrayVec;
use rma_crypto::{AeadProvider, DeriveJob, JobKey, KEY_LEN, Key, OpenJob, SealJob, Text};

use crate::{
    backend::{BATCH, RxFrame, TxFrame},
    crypto::Iv,
    limits::TAG_LEN,
};

/// The parts of a frame as AES-GCM sees them.
#[derive(Debug)]
pub struct Sealed<'a> {
    /// The header: authenticated, in clear.
    pub header: &'a [u8],
    /// The payload: encrypted and authenticated. Of most kinds of frames there is none.
    pub payload: &'a mut [u8],
    /// The tag that authenticates header and payload.
    pub tag: &'a mut [u8; TAG_LEN],
}

/// Splits a frame with a header of `header_len` octets into its parts.
///
/// Returns `None` if the frame is shorter than header and tag, which a parsed frame never is.
#[must_use]
pub fn split(frame: &mut [u8], header_len: usize) -> Option<Sealed<'_>> {
    let (header, rest) = frame.split_at_mut_checked(header_len)?;
    let (payload, tag) = rest.split_last_chunk_mut::<TAG_LEN>()?;
    Some(Sealed { header, payload, tag })
}

/// The nonce and the AAD of a frame, which is sealed and opened with them and its key.
struct Protection<const AAD: usize> {
    iv: Iv,
    header_len: usize,
    /// The octets that are authenticated with the frame. Empty if that is its header, as it lies
    /// there: then it is taken from the frame.
    aad: [u8; AAD],
    aad_len: usize,
}

impl<const AAD: usize> Protection<AAD> {
    const NONE: Self = Self { iv: Iv::NONE, header_len: 0, aad: [0; AAD], aad_len: 0 };

    /// Of a frame whose AAD is its header.
    #[inline]
    const fn set(&mut self, iv: Iv, header_len: usize) {
        (self.iv, self.header_len, self.aad_len) = (iv, header_len, 0);
    }

    /// Of a frame whose AAD is `first` with `second` behind it. So joined, they are the paper's
    /// currying. Lengths that are known when this is compiled make the copies cost next to nothing.
    //= 1rma#A-iv-currying
    #[inline]
    fn set_joined<const FIRST: usize, const SECOND: usize>(
        &mut self,
        iv: Iv,
        header_len: usize,
        first: &[u8; FIRST],
        second: &[u8; SECOND],
    ) {
        const { assert!(FIRST > 0 && FIRST + SECOND <= AAD) };
        (self.iv, self.header_len) = (iv, header_len);
        self.aad[..FIRST].copy_from_slice(first);
        self.aad[FIRST..FIRST + SECOND].copy_from_slice(second);
        self.aad_len = FIRST + SECOND;
    }

    fn aad<'a>(&'a self, header: &'a [u8]) -> &'a [u8] {
        match self.aad_len {
            0 => header,
            len => &self.aad[..len],
        }
    }
}

/// A key in a place.
type PlaceKey = [u8; KEY_LEN];

fn job_key(key: &PlaceKey) -> JobKey<'_> {
    JobKey::Fresh(Key::from_ref(key))
}

/// Frames that are written and not sealed yet, in order, each with a note `N`, by which its service
/// is told of the frame's tag.
///
/// `AAD` octets are the most that an AAD has that is joined.
pub struct Sealing<N, const AAD: usize> {
    places: Box<[Outgoing<N, AAD>]>,
    used: usize,
}

struct Outgoing<N, const AAD: usize> {
    key: PlaceKey,
    protection: Protection<AAD>,
    note: N,
}

impl<N: Copy + Default, const AAD: usize> Sealing<N, AAD> {
    /// Bytes that each place takes.
    pub const ENTRY_LEN: usize = size_of::<Outgoing<N, AAD>>();

    /// Places for a batch, none of them in use.
    #[must_use]
    pub fn new() -> Self {
        let (key, protection) = ([0; KEY_LEN], Protection::NONE);
        let place =
            || Outgoing { key, protection: Protection { ..protection }, note: N::default() };
        Self { places: (0..BATCH).map(|_| place()).collect(), used: 0 }
    }

    /// The place of the next frame.
    #[inline]
    fn next(&mut self, note: N, key: &Key) -> &mut Protection<AAD> {
        let place = &mut self.places[self.used];
        self.used += 1;
        (place.note, place.key) = (note, *key.expose());
        &mut place.protection
    }

    /// Notes what the next frame is sealed with: one whose AAD is its header.
    ///
    /// # Panics
    /// If a whole batch is noted and not sealed.
    #[inline]
    pub fn push(&mut self, note: N, key: &Key, iv: Iv, header_len: usize) {
        self.next(note, key).set(iv, header_len);
    }

    /// As [`Sealing::push`], of a frame whose AAD is `first` with `second` behind it, such as a
    /// header and the IV of the frame that it answers.
    ///
    /// # Panics
    /// If a whole batch is noted and not sealed.
    #[inline]
    pub fn push_joined<const FIRST: usize, const SECOND: usize>(
        &mut self,
        note: N,
        key: &Key,
        iv: Iv,
        header_len: usize,
        first: &[u8; FIRST],
        second: &[u8; SECOND],
    ) {
        self.next(note, key).set_joined(iv, header_len, first, second);
    }

    /// Encrypts the payloads of `frames` and writes their tags: as many as there were notes, in
    /// their order. Tells `on_sealed` the note and the tag of each.
    ///
    /// # Panics
    /// If one of the frames is shorter than its header and a tag.
    #[inline]
    pub fn seal(
        &mut self,
        aead: &dyn AeadProvider,
        frames: &mut [TxFrame<'_>],
        mut on_sealed: impl FnMut(N, &[u8; TAG_LEN]),
    ) {
        debug_assert_eq!(self.used, frames.len(), "each frame was noted");
        let places = &self.places[..self.used];
        self.used = 0;
        let mut jobs: ArrayVec<SealJob<'_>, BATCH> = ArrayVec::new();
        for (Outgoing { key, protection, .. }, frame) in places.iter().zip(&mut *frames) {
            let len = frame.transmit.as_ref().map_or(0, |transmit| transmit.len);
            let bytes = &mut frame.bytes[..len];
            let Sealed { header, payload, tag } =
                split(bytes, protection.header_len).expect("a frame was written");
            jobs.push(SealJob {
                key: job_key(key),
                iv: *protection.iv.octets(),
                aad: protection.aad(header),
                text: Text::in_place(payload),
                tag,
            });
        }
        aead.seal(&mut jobs);
        for (job, place) in jobs.iter().zip(places) {
            on_sealed(place.note, job.tag);
        }
    }
}

impl<N: Copy + Default, const AAD: usize> Default for Sealing<N, AAD> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N, const AAD: usize> fmt::Debug for Sealing<N, AAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealing({} frames)", self.used)
    }
}

/// Received frames, by their indexes in their batch, and what each has to be opened with.
///
/// The caller notes of each frame what it should be, and sets or derives its key. A frame whose key
/// was not set since the last batch is skipped, even if its place still holds an old key.
///
/// `AAD` octets are the most that an AAD has that is joined.
pub struct Opening<const AAD: usize> {
    places: Box<[Incoming<AAD>]>,
    /// Those that have got a key.
    keyed: FrameSet,
    /// Keys that were derived, in the order in which they were asked for.
    derived: Box<[Key]>,
}

struct Incoming<const AAD: usize> {
    key: PlaceKey,
    protection: Protection<AAD>,
}

impl<const AAD: usize> Opening<AAD> {
    /// Bytes that each place takes.
    pub const ENTRY_LEN: usize = size_of::<Incoming<AAD>>() + size_of::<Key>();

    /// Places for a batch.
    #[must_use]
    pub fn new() -> Self {
        let place = || Incoming { key: [0; KEY_LEN], protection: Protection::NONE };
        Self {
            places: (0..BATCH).map(|_| place()).collect(),
            keyed: FrameSet::default(),
            derived: (0..BATCH).map(|_| Key::default()).collect(),
        }
    }

    /// The key that frame `index` was opened under, if it was.
    #[inline]
    #[must_use]
    pub const fn key(&self, index: usize) -> &Key {
        Key::from_ref(&self.places[index].key)
    }

    /// Notes what frame `index` is opened with, but for its key: one whose AAD is its header.
    ///
    /// # Panics
    /// If there is no such frame in a batch.
    #[inline]
    pub const fn expect(&mut self, index: usize, iv: Iv, header_len: usize) {
        self.places[index].protection.set(iv, header_len);
    }

    /// As [`Opening::expect`], of a frame whose AAD is `first` with `second` behind it.
    ///
    /// # Panics
    /// If there is no such frame in a batch.
    #[inline]
    pub fn expect_joined<const FIRST: usize, const SECOND: usize>(
        &mut self,
        index: usize,
        iv: Iv,
        header_len: usize,
        first: &[u8; FIRST],
        second: &[u8; SECOND],
    ) {
        self.places[index].protection.set_joined(iv, header_len, first, second);
    }

    /// Sets the key of frame `index`.
    ///
    /// # Panics
    /// If there is no such frame in a batch.
    #[inline]
    pub const fn set_key(&mut self, index: usize, key: &Key) {
        self.places[index].key = *key.expose();
        self.keyed.insert(index);
    }

    /// Derives keys, at most one for each frame of a batch, and sets each to be that of the frame
    /// whose index is beside it. All together: that is what makes it cheap.
    ///
    /// # Panics
    /// If there is no such frame in a batch, or more jobs than frames.
    #[inline]
    pub fn derive<'j>(
        &mut self,
        aead: &dyn AeadProvider,
        derivations: impl Iterator<Item = (usize, DeriveJob<'j>)> + Clone,
    ) {
        let jobs: ArrayVec<_, BATCH> = derivations.clone().map(|(_, job)| job).collect();
        if jobs.is_empty() {
            return;
        }
        let keys = &mut self.derived[..jobs.len()];
        aead.derive(&jobs, keys);
        for ((index, _), key) in derivations.zip(keys) {
            self.places[index].key = *key.expose();
            self.keyed.insert(index);
        }
    }

    /// Opens those of `frames` that are in `which` and have a key, in place, and returns which of
    /// them are authentic.
    ///
    /// # Panics
    /// If one of them is shorter than its header and a tag.
    #[inline]
    pub fn open(
        &mut self,
        aead: &dyn AeadProvider,
        frames: &mut [RxFrame<'_>],
        which: FrameSet,
    ) -> AuthenticFrames {
        let which = which.and(core::mem::take(&mut self.keyed));
        let mut jobs: ArrayVec<OpenJob<'_>, BATCH> = ArrayVec::new();
        for (index, (place, frame)) in self.places.iter().zip(frames).enumerate() {
            if !which.has(index) {
                continue;
            }
            let Incoming { key, protection } = place;
            let Sealed { header, payload, tag } =
                split(frame.bytes, protection.header_len).expect("a frame that was parsed");
            jobs.push(OpenJob {
                key: job_key(key),
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
        AuthenticFrames(authentic)
    }
}

impl<const AAD: usize> Default for Opening<AAD> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const AAD: usize> fmt::Debug for Opening<AAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({:?})", self.keyed)
    }
}

/// Some frames of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameSet(u32);

const _: () = assert!(BATCH <= u32::BITS as usize);

impl FrameSet {
    /// Adds frame `index` of a batch.
    #[inline]
    pub const fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Whether frame `index` of a batch is among them.
    #[inline]
    #[must_use]
    pub const fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// Those that are among `others` as well.
    #[inline]
    const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }
}

/// Those frames of a batch whose tags were right. Made by [`Opening::open`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticFrames(FrameSet);

impl AuthenticFrames {
    /// Returns the proof that the tag of frame `index` was right, if it was.
    #[inline]
    #[must_use]
    pub fn right_tag(self, index: usize) -> Option<RightTag> {
        self.0.has(index).then_some(RightTag(()))
    }
}

/// Shows that a frame's tag was right. Made where frames are opened, and nowhere else.
///
/// It does not say of which frame, nor under which key: the service that opened the frame keeps
/// them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RightTag(());

/// Opens one frame that is in no batch, or that may be any of several things. The payload is
/// decrypted if, and only if, the tag is right.
#[must_use]
pub fn open_one(aead: &dyn AeadProvider, job: OpenJob<'_>) -> Option<RightTag> {
    let mut jobs = [job];
    aead.open(&mut jobs);
    jobs[0].authentic.then_some(RightTag(()))
}

//= 1rma#4.2-attacker-on-the-wire
/// A value that came in a frame whose tag was right.
#[derive(Clone, Copy, Debug)]
pub struct Authentic<T>(T);

impl<T> Authentic<T> {
    /// A value of the frame whose tag was right. That it is of this very frame, and that the frame
    /// was opened with what it should have been, is for the caller to see to.
    #[inline]
    #[must_use]
    pub const fn new(value: T, _: RightTag) -> Self {
        Self(value)
    }

    /// Maps it to a value that follows from it alone.
    #[inline]
    #[must_use]
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Authentic<U> {
        Authentic(of(self.0))
    }
}

impl<T> Deref for Authentic<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests;
