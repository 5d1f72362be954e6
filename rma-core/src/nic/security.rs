//! Sealing: the key, the IV and the AAD of each frame (1RMA §4.2, Appendix A).
//!
//! AAD = the frame's whole header, and for every frame that answers another, the IV of the frame it
//! answers. So no frame can be moved to another op, another slot or another use of a slot. A
//! failure notice also has the request's tag in it: where it comes under the reserved key, that is
//! what shows that its sender has seen the request (not in the paper).
//!
//! Frames are written first, and sealed together. Received ones are opened together, each with what
//! the tables say that it answers at that time, before the first of them changes anything. Whoever
//! handles a frame looks at the tables again: a frame counts as authentic only if it was opened
//! with what they say now ([`Opened`]).
//!
//! [`Authentic`] claims are made here, with what [`crate::seal`] shows of their tags (P6).

use arrayvec::ArrayVec;
use rma_crypto::{OpenJob, Text};

use super::previous_keys::ToCompare;
use crate::{
    backend::{BATCH, RxFrame, TxFrame},
    command::CommandSlotId,
    crypto::{
        AeadProvider, BindingFields, DerivedRegionKey, Direction, EngineId, IV_LEN, Iv, IvCounter,
        KeyBinding, RegionKeySchedule,
    },
    limits::{TAG_LEN, WORD_LEN},
    op::OpStatus,
    seal::{self, Authentic, AuthenticFrames, FrameSet, Opening, RightTag, Sealed, Sealing},
    wire::{Failure, Frame, Header, failure::FAILURE_HEADER_LEN},
};

/// The invariant by which a header always fits.
const ROOM: &str = "`Nic::poll_transmit` has checked that the shortest frames have room";

/// The most octets that a request has encrypted: an immediate.
const REQUEST_PAYLOAD_MAX: usize = WORD_LEN;

/// The seal that answers to a request are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestSeal {
    pub(super) iv: Iv,
    /// Known once the request is sealed.
    pub(super) tag: [u8; TAG_LEN],
}

impl RequestSeal {
    /// The seal of no request.
    pub(super) const NONE: Self = Self { iv: Iv::NONE, tag: [0; TAG_LEN] };

    /// The seal of a request with `header`, as it came in `frame`.
    pub(super) fn of(header: &Header, frame: &[u8]) -> Self {
        let tag = frame.last_chunk().copied().unwrap_or_default();
        Self { iv: header.iv(Direction::ToResponder), tag }
    }

    /// IV and tag, side by side.
    fn octets(&self) -> [u8; IV_LEN + TAG_LEN] {
        let mut octets = [0; IV_LEN + TAG_LEN];
        octets[..IV_LEN].copy_from_slice(self.iv.octets());
        octets[IV_LEN..].copy_from_slice(&self.tag);
        octets
    }
}

/// The longest AAD that is joined: a failure notice's header, and the IV and tag of the request
/// that it answers.
const AAD_MAX: usize = FAILURE_HEADER_LEN + IV_LEN + TAG_LEN;

/// Frames to seal, and whose request each is, if it is one: answers will be bound to its tag.
type NicSealing = Sealing<Option<CommandSlotId>, AAD_MAX>;

type NicOpening = Opening<AAD_MAX>;

/// The frames of a batch that are requests, with the K_r and the fields that the K_d of each is
/// derived from.
pub(super) type Derivations<'r> = ArrayVec<(usize, &'r RegionKeySchedule, BindingFields), BATCH>;

/// The NIC's encryption-decryption block, and the counter that makes its IVs fresh (P4).
pub(super) struct Security {
    aead: &'static dyn AeadProvider,
    engine: EngineId,
    counter: IvCounter,
    sealing: NicSealing,
    opening: NicOpening,
}

impl Security {
    /// Bytes that each frame of a batch takes, both ways.
    pub(super) const ENTRY_LEN: usize = NicSealing::ENTRY_LEN + NicOpening::ENTRY_LEN;

    pub(super) fn new(
        aead: &'static dyn AeadProvider,
        engine: EngineId,
        counter: IvCounter,
    ) -> Self {
        Self { aead, engine, counter, sealing: Sealing::new(), opening: Opening::new() }
    }

    pub(super) const fn aead(&self) -> &'static dyn AeadProvider {
        self.aead
    }

    /// Makes `header` this engine's, with a counter never used before.
    fn stamp(&mut self, header: &mut Header) {
        header.engine = self.engine;
        header.counter = self.counter.next().expect("`can_seal` was asked first");
    }

    /// `header` as this engine's, with a counter never used before.
    pub(super) fn stamped(&mut self, mut header: Header) -> Header {
        self.stamp(&mut header);
        header
    }

    /// Whether there is a counter value for a frame. To be asked before each frame that is written.
    pub(super) const fn can_seal(&self) -> bool {
        self.counter.left() > 0
    }

    /// The message counter.
    pub(super) const fn counter(&self) -> &IvCounter {
        &self.counter
    }

    /// The message counter, to give it a block.
    pub(super) const fn counter_mut(&mut self) -> &mut IvCounter {
        &mut self.counter
    }
}

/// Frames that are sealed. Each is written now, with its payload in clear; [`Security::seal`] does
/// the rest for all of them.
///
/// Headers are written twice, to not wait for the octets of the frame before they can be read
/// again.
impl Security {
    /// Writes the header of a request, of any type. Returns its IV.
    //= 1rma#3.1-request-signed
    #[inline]
    pub(super) fn write_request<T: Frame<HEADER>, const HEADER: usize>(
        &mut self,
        key: &DerivedRegionKey,
        mut request: T,
        out: &mut [u8],
    ) -> Iv {
        self.stamp(request.header_mut());
        request.emit(out.first_chunk_mut().expect(ROOM));
        let header = request.header();
        let iv = header.iv(T::DIRECTION);
        self.sealing.push(Some(header.slot), key.as_key(), iv, HEADER);
        iv
    }

    /// Writes the header of a frame that answers the one with `answered`. Its payload, if it has
    /// one, is in `out` already, which is exactly as long as the frame. Returns its IV, which binds
    /// what answers it.
    //= 1rma#3.1-response-sealed
    //= 1rma#5.1-solicited-salt
    #[inline]
    pub(super) fn write_answer<T: Frame<HEADER>, const HEADER: usize>(
        &mut self,
        key: &DerivedRegionKey,
        answered: &Iv,
        mut answer: T,
        out: &mut [u8],
    ) -> Iv {
        self.stamp(answer.header_mut());
        self.write_stamped(key, answered.octets(), &answer, out)
    }

    /// Writes a failure notice that is stamped; under the reserved key if there is no key that both
    /// share.
    //= 1rma#4.2-failure-under-reserved-key
    pub(super) fn write_failure(
        &mut self,
        key: Option<&DerivedRegionKey>,
        request: &RequestSeal,
        failure: &Failure,
        out: &mut [u8],
    ) {
        let key = key.unwrap_or(&DerivedRegionKey::RESERVED);
        self.write_stamped(key, &request.octets(), failure, out);
    }

    #[inline]
    fn write_stamped<T: Frame<HEADER>, const HEADER: usize, const ANSWERED: usize>(
        &mut self,
        key: &DerivedRegionKey,
        answered: &[u8; ANSWERED],
        answer: &T,
        out: &mut [u8],
    ) -> Iv {
        let mut header = [0; HEADER];
        answer.emit(&mut header);
        let iv = answer.header().iv(T::DIRECTION);
        self.sealing.push_joined(None, key.as_key(), iv, HEADER, &header, answered);
        out[..HEADER].copy_from_slice(&header);
        iv
    }

    /// Seals the frames that were written since the last time, in their order: at most a batch.
    /// Tells `on_request` the tags of requests.
    pub(super) fn seal(
        &mut self,
        frames: &mut [TxFrame<'_>],
        mut on_request: impl FnMut(CommandSlotId, [u8; TAG_LEN]),
    ) {
        self.sealing.seal(self.aead, frames, |request_of, tag| {
            if let Some(slot) = request_of {
                on_request(slot, *tag);
            }
        });
    }
}

/// Frames that are opened: first it is noted what each of a batch is opened with, then all are.
impl Security {
    /// Frame `index` is a request, whatever its type. Its key must be derived.
    pub(super) const fn expect_request(
        &mut self,
        index: usize,
        header: &Header,
        header_len: usize,
    ) {
        self.opening.expect(index, header.iv(Direction::ToResponder), header_len);
    }

    /// Frame `index` is a failure notice for `request`. Only REMOTE_AUTHENTICATION_FAILURE may come
    /// under the reserved key, and only under it.
    pub(super) fn expect_failure(
        &mut self,
        index: usize,
        key: &DerivedRegionKey,
        request: &RequestSeal,
        claims: &Failure,
        frame: &[u8],
    ) {
        let reserved = claims.status == OpStatus::RemoteAuthenticationFailure;
        let key = if reserved { &DerivedRegionKey::RESERVED } else { key };
        let iv = claims.header.iv(Direction::ToInitiator);
        let header = head::<FAILURE_HEADER_LEN>(frame);
        self.opening.expect_joined(index, iv, header.len(), header, &request.octets());
        self.opening.set_key(index, key.as_key());
    }

    /// Frame `index` has a header of `HEADER` octets and answers the frame with `answered`.
    pub(super) fn expect_answer<const HEADER: usize>(
        &mut self,
        index: usize,
        key: &DerivedRegionKey,
        iv: Iv,
        answered: &Iv,
        frame: &[u8],
    ) {
        let header = head::<HEADER>(frame);
        self.opening.expect_joined(index, iv, HEADER, header, answered.octets());
        self.opening.set_key(index, key.as_key());
    }

    /// Opens those of `frames` that are in `which`, and returns those of them that are authentic.
    pub(super) fn open(
        &mut self,
        frames: &mut [RxFrame<'_>],
        which: FrameSet,
        derivations: &Derivations<'_>,
    ) -> AuthenticFrames {
        let jobs = derivations.iter().map(|(index, key, fields)| (*index, fields.job(key)));
        self.opening.derive(self.aead, jobs);
        self.opening.open(self.aead, frames, which)
    }

    /// Returns the K_d that a request was opened under with its batch.
    pub(super) fn key_of(&self, opened: &Opened) -> DerivedRegionKey {
        DerivedRegionKey::of(self.opening.key(opened.index))
    }

    /// Checks the tag of a request whose region has got another key in this very batch. Returns the
    /// K_d too.
    pub(super) fn open_under_new_key<const HEADER: usize>(
        &self,
        opened: &Opened,
        region_key: &RegionKeySchedule,
        binding: &KeyBinding,
        seal: &RequestSeal,
        frame: &mut [u8],
    ) -> (DerivedRegionKey, Option<RightTag>) {
        let key = region_key.derive_with(self.aead, binding);
        // A frame that was authentic under the one before is that, and may be decrypted by now.
        let tag = match opened.right_tag {
            Some(_) => None,
            None => self.open_request_under::<HEADER>(&key, seal, frame),
        };
        (key, tag)
    }

    /// Whether the tag of a request is right under the K_d that `binding` has of any of the
    /// region's own keys. All keys are tried, whichever it is.
    ///
    /// One after the other: four at once take a tenth more, and run code that a host of few ops has
    /// not run lately.
    pub(super) fn is_request_under_any<const HEADER: usize>(
        &self,
        ToCompare { keys, own }: &ToCompare<'_>,
        binding: &KeyBinding,
        seal: &RequestSeal,
        frame: &[u8],
    ) -> bool {
        let Some((sealed, tag)) = frame.split_last_chunk::<TAG_LEN>() else { return false };
        let Some((header, payload)) = sealed.split_first_chunk::<HEADER>() else { return false };
        // A payload is decrypted where it lies, so each try has one of its own.
        let payload: ArrayVec<u8, REQUEST_PAYLOAD_MAX> = payload.iter().copied().collect();
        let mut is_own = false;
        for (index, region_key) in keys.iter().enumerate() {
            let key = region_key.derive_with(self.aead, binding);
            let mut payload = payload.clone();
            let (iv, text) = (*seal.iv.octets(), Text::in_place(&mut payload));
            let key = key.as_key().into();
            let mut job = OpenJob { key, iv, aad: header, text, tag, authentic: false };
            self.aead.open(core::slice::from_mut(&mut job));
            is_own |= job.authentic & (index < *own);
        }
        is_own
    }

    /// Opens a request under `key`.
    fn open_request_under<const HEADER: usize>(
        &self,
        key: &DerivedRegionKey,
        seal: &RequestSeal,
        frame: &mut [u8],
    ) -> Option<RightTag> {
        let Sealed { header, payload, tag } = seal::split(frame, HEADER)?;
        let (key, iv, text) = (key.as_key().into(), *seal.iv.octets(), Text::in_place(payload));
        let job = OpenJob { key, iv, aad: header, text, tag, authentic: false };
        seal::open_one(self.aead, job)
    }
}

/// With what a frame was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenedWith {
    /// It was not: the tables knew nothing that it could belong to.
    Nothing,
    /// As a request, under the key that its region had at this revision.
    Revision(u64),
    /// As an answer to the frame with this IV: no two have the same, so that names the op as well.
    Answered(Iv),
}

/// The result of opening a frame. The caller has yet to check that it was opened with the right
/// key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    /// The index of the frame in its batch.
    pub(super) index: usize,
    pub(super) with: OpenedWith,
    pub(super) right_tag: Option<RightTag>,
}

impl Opened {
    /// `value`, if the frame is an authentic answer to the frame with `answered`.
    //= 1rma#3.1-response-authenticated
    pub(super) fn answer<T>(&self, answered: &Iv, value: T) -> Option<Authentic<T>> {
        let tag = self.right_tag.filter(|_| self.with == OpenedWith::Answered(*answered));
        tag.map(|tag| Authentic::new(value, tag))
    }
}

/// The payload of a frame that was opened.
pub(super) fn payload_of(frame: &[u8], header_len: usize) -> &[u8] {
    frame.get(header_len..frame.len().saturating_sub(TAG_LEN)).unwrap_or_default()
}

/// The header of a frame that is long enough for one.
fn head<const HEADER: usize>(frame: &[u8]) -> &[u8; HEADER] {
    frame.first_chunk().expect("a frame is written or parsed whole")
}

impl core::fmt::Debug for Security {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { aead, engine, counter, .. } = self;
        write!(f, "Security({aead:?}, {engine:?}, {counter:?})")
    }
}
