//! Which frame is sealed under which key, with which IV and which AAD (1RMA §4.2, Appendix A).
//!
//! AAD = the frame's whole header, and for every frame that answers another, the IV of the frame it
//! answers. So no frame can be moved to another op, another slot or another use of a slot. A failure notice also
//! has the request's tag in it: where it comes under the reserved key, that is what shows that its sender has
//! seen the request (not in the paper).
//!
//! [`Authentic`] is made here and nowhere else: a value inside it came with a right tag. Claims that were
//! only parsed cannot be mistaken for it (P6).

use core::ops::Deref;

use crate::{
    crypto::{
        AeadProvider, DerivedRegionKey, Direction, EngineId, IV_LEN, Iv, IvCounter, OpenJob,
        SealJob,
    },
    limits::TAG_LEN,
    op::OpStatus,
    wire::{
        self, Acknowledgement, Failure, Header, MutationRequest, Request, Response, Sealed,
        Solicitation, SolicitedData,
        failure::{FAILURE_HEADER_LEN, FAILURE_LEN},
        mutation::{
            ACKNOWLEDGEMENT_HEADER_LEN, ACKNOWLEDGEMENT_LEN, DATA_HEADER_LEN, DATA_OVERHEAD,
            MUTATION_REQUEST_HEADER_LEN, MUTATION_REQUEST_LEN, SOLICITATION_HEADER_LEN,
            SOLICITATION_LEN,
        },
        read::{REQUEST_HEADER_LEN, REQUEST_LEN, RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
    },
};

//= 1rma#4.2-attacker-on-the-wire
/// A value that came in a frame whose tag was right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authentic<T>(T);

impl<T> Deref for Authentic<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What answers to a request are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestSeal {
    pub(super) iv: Iv,
    tag: [u8; TAG_LEN],
}

impl RequestSeal {
    /// The seal of no request.
    pub(super) const NONE: Self = Self { iv: Iv::NONE, tag: [0; TAG_LEN] };

    /// The seal of a request with `header`, as it came in `frame`.
    pub(super) fn of(header: &Header, frame: &[u8]) -> Self {
        let tag = frame.last_chunk().copied().unwrap_or_default();
        Self { iv: header.iv(Direction::ToResponder), tag }
    }

    fn octets(&self) -> [u8; IV_LEN + TAG_LEN] {
        join(self.iv.octets(), &self.tag)
    }
}

/// The NIC's encryption-decryption block, and the counter that makes its IVs fresh (P4).
pub(super) struct Security<A: AeadProvider> {
    aead: A,
    engine: EngineId,
    counter: IvCounter,
    reserved: A::Key,
}

/// Hop 1, from either side.
impl<A: AeadProvider> Security<A> {
    /// Writes and seals a read request.
    //= 1rma#3.1-request-signed
    pub(super) fn seal_request(
        &mut self,
        key: &A::Key,
        mut request: Request,
        out: &mut [u8; REQUEST_LEN],
    ) -> RequestSeal {
        self.stamp(&mut request.header);
        request.emit(out);
        self.seal_first(key, request.header.iv(Direction::ToResponder), REQUEST_HEADER_LEN, out);
        RequestSeal::of(&request.header, out)
    }

    /// Writes and seals the request of a mutation.
    pub(super) fn seal_mutation_request(
        &mut self,
        key: &A::Key,
        mut request: MutationRequest,
        out: &mut [u8; MUTATION_REQUEST_LEN],
    ) -> RequestSeal {
        self.stamp(&mut request.header);
        request.emit(out);
        let iv = request.header.iv(Direction::ToResponder);
        self.seal_first(key, iv, MUTATION_REQUEST_HEADER_LEN, out);
        RequestSeal::of(&request.header, out)
    }

    /// Checks the tag of a request, of any type.
    //= 1rma#3.1-request-authenticated
    pub(super) fn open_request<T>(
        &self,
        key: &A::Key,
        claims: T,
        seal: &RequestSeal,
        frame: &mut [u8],
    ) -> Option<Authentic<T>> {
        let header_len = frame.len().checked_sub(TAG_LEN)?;
        self.open_first(key, seal.iv, header_len, frame).then_some(Authentic(claims))
    }

    /// Writes and seals a failure notice; under the reserved key if there is no key that both share.
    //= 1rma#4.2-failure-under-reserved-key
    pub(super) fn seal_failure(
        &mut self,
        key: Option<&A::Key>,
        request: &RequestSeal,
        mut failure: Failure,
        out: &mut [u8; FAILURE_LEN],
    ) {
        self.stamp(&mut failure.header);
        failure.emit(out);
        let iv = failure.header.iv(Direction::ToInitiator);
        let key = key.unwrap_or(&self.reserved);
        self.seal::<{ FAILURE_HEADER_LEN + IV_LEN + TAG_LEN }>(key, iv, &request.octets(), out);
    }

    /// Checks a failure notice's tag. Only REMOTE_AUTHENTICATION_FAILURE may come under the reserved key,
    /// and only under it.
    pub(super) fn open_failure(
        &self,
        key: &A::Key,
        request: &RequestSeal,
        claims: Failure,
        frame: &mut [u8],
    ) -> Option<Authentic<Failure>> {
        let iv = claims.header.iv(Direction::ToInitiator);
        let reserved = claims.status == OpStatus::RemoteAuthenticationFailure;
        let key = if reserved { &self.reserved } else { key };
        self.open::<{ FAILURE_HEADER_LEN + IV_LEN + TAG_LEN }>(key, iv, &request.octets(), frame)
            .then_some(Authentic(claims))
    }
}

/// Hop 2 of a read.
impl<A: AeadProvider> Security<A> {
    /// Writes the header of a response whose payload is already in `out`, encrypts the payload, and writes
    /// the tag. `out` is exactly as long as the frame.
    //= 1rma#3.1-response-sealed
    pub(super) fn seal_response(
        &mut self,
        key: &A::Key,
        request_iv: &Iv,
        mut response: Response,
        out: &mut [u8],
    ) {
        debug_assert_eq!(out.len(), RESPONSE_OVERHEAD + usize::from(response.payload_len));
        self.stamp(&mut response.header);
        // Written twice, to not wait for the octets of the frame before they can be read again.
        let mut header = [0; RESPONSE_HEADER_LEN];
        response.emit(&mut header);
        let iv = response.header.iv(Direction::ToInitiator);
        let aad: [u8; RESPONSE_HEADER_LEN + IV_LEN] = join(&header, request_iv.octets());
        out[..RESPONSE_HEADER_LEN].copy_from_slice(&header);
        self.seal_with(key, iv, RESPONSE_HEADER_LEN, &aad, out);
    }

    /// Checks a response's tag and decrypts its payload in place.
    //= 1rma#3.1-response-authenticated
    pub(super) fn open_response<'f>(
        &self,
        key: &A::Key,
        request_iv: &Iv,
        claims: Response,
        frame: &'f mut [u8],
    ) -> Option<Authentic<(Response, &'f [u8])>> {
        let iv = claims.header.iv(Direction::ToInitiator);
        self.open::<{ RESPONSE_HEADER_LEN + IV_LEN }>(key, iv, request_iv.octets(), frame)
            .then(|| Authentic((claims, payload_of(frame, RESPONSE_HEADER_LEN))))
    }
}

/// Hops 2 to 4 of a mutation.
impl<A: AeadProvider> Security<A> {
    /// Writes and seals a solicitation. Returns its IV, which binds the data and the acknowledgement to it.
    pub(super) fn seal_solicitation(
        &mut self,
        key: &A::Key,
        request_iv: &Iv,
        mut solicitation: Solicitation,
        out: &mut [u8; SOLICITATION_LEN],
    ) -> Iv {
        self.stamp(&mut solicitation.header);
        solicitation.emit(out);
        let iv = solicitation.header.iv(Direction::ToInitiator);
        self.seal::<{ SOLICITATION_HEADER_LEN + IV_LEN }>(key, iv, request_iv.octets(), out);
        iv
    }

    /// Checks a solicitation's tag.
    pub(super) fn open_solicitation(
        &self,
        key: &A::Key,
        request_iv: &Iv,
        claims: Solicitation,
        frame: &mut [u8],
    ) -> Option<Authentic<Solicitation>> {
        let iv = claims.header.iv(Direction::ToInitiator);
        self.open::<{ SOLICITATION_HEADER_LEN + IV_LEN }>(key, iv, request_iv.octets(), frame)
            .then_some(Authentic(claims))
    }

    /// Writes the header of solicited data whose payload is already in `out`, encrypts the payload, and writes
    /// the tag. `out` is exactly as long as the frame.
    //= 1rma#5.1-solicited-salt
    pub(super) fn seal_data(
        &mut self,
        key: &A::Key,
        solicitation_iv: &Iv,
        mut data: SolicitedData,
        out: &mut [u8],
    ) {
        debug_assert_eq!(out.len(), DATA_OVERHEAD + usize::from(data.payload_len));
        self.stamp(&mut data.header);
        let mut header = [0; DATA_HEADER_LEN];
        data.emit(&mut header);
        let iv = data.header.iv(Direction::ToResponder);
        let aad: [u8; DATA_HEADER_LEN + IV_LEN] = join(&header, solicitation_iv.octets());
        out[..DATA_HEADER_LEN].copy_from_slice(&header);
        self.seal_with(key, iv, DATA_HEADER_LEN, &aad, out);
    }

    /// Checks the tag of solicited data and decrypts its payload in place.
    pub(super) fn open_data<'f>(
        &self,
        key: &A::Key,
        solicitation_iv: &Iv,
        claims: SolicitedData,
        frame: &'f mut [u8],
    ) -> Option<Authentic<(SolicitedData, &'f [u8])>> {
        let iv = claims.header.iv(Direction::ToResponder);
        self.open::<{ DATA_HEADER_LEN + IV_LEN }>(key, iv, solicitation_iv.octets(), frame)
            .then(|| Authentic((claims, payload_of(frame, DATA_HEADER_LEN))))
    }

    /// Writes and seals an acknowledgement.
    pub(super) fn seal_acknowledgement(
        &mut self,
        key: &A::Key,
        solicitation_iv: &Iv,
        mut acknowledgement: Acknowledgement,
        out: &mut [u8; ACKNOWLEDGEMENT_LEN],
    ) {
        self.stamp(&mut acknowledgement.header);
        acknowledgement.emit(out);
        let iv = acknowledgement.header.iv(Direction::ToInitiator);
        self.seal::<{ ACKNOWLEDGEMENT_HEADER_LEN + IV_LEN }>(
            key,
            iv,
            solicitation_iv.octets(),
            out,
        );
    }

    /// Checks an acknowledgement's tag.
    pub(super) fn open_acknowledgement(
        &self,
        key: &A::Key,
        solicitation_iv: &Iv,
        claims: Acknowledgement,
        frame: &mut [u8],
    ) -> Option<Authentic<Acknowledgement>> {
        let iv = claims.header.iv(Direction::ToInitiator);
        self.open::<{ ACKNOWLEDGEMENT_HEADER_LEN + IV_LEN }>(
            key,
            iv,
            solicitation_iv.octets(),
            frame,
        )
        .then_some(Authentic(claims))
    }
}

impl<A: AeadProvider> Security<A> {
    pub(super) fn new(aead: A, engine: EngineId, counter: IvCounter) -> Self {
        let reserved = aead.prepare(&DerivedRegionKey::RESERVED);
        Self { aead, engine, counter, reserved }
    }

    pub(super) fn prepare(&self, key: &DerivedRegionKey) -> A::Key {
        self.aead.prepare(key)
    }

    /// Makes `header` this engine's, with a counter never used before.
    fn stamp(&mut self, header: &mut Header) {
        header.engine = self.engine;
        header.counter = self.counter.next().expect("`can_seal` was asked first");
    }

    /// Whether there is a counter value for a frame. To be asked before each frame that is sealed.
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

    /// Seals a frame that answers none: its header is all that is authenticated with it.
    fn seal_first(&self, key: &A::Key, iv: Iv, header_len: usize, frame: &mut [u8]) {
        let Sealed { header, payload, tag } = wire::split(frame, header_len).expect(WHOLE);
        self.aead.seal(&mut [SealJob { key, iv, aad: header, payload, tag }]);
    }

    /// Whether the tag of a frame that answers none is right.
    fn open_first(&self, key: &A::Key, iv: Iv, header_len: usize, frame: &mut [u8]) -> bool {
        let Some(Sealed { header, payload, tag }) = wire::split(frame, header_len) else {
            return false;
        };
        let mut jobs = [OpenJob { key, iv, aad: header, payload, tag, authentic: false }];
        self.aead.open(&mut jobs);
        jobs[0].authentic
    }

    /// Encrypts the payload of a frame whose header is written, and writes its tag. `AAD` is the length of header
    /// and `answered` together: known when this is compiled, copying them costs next to nothing.
    fn seal<const AAD: usize>(&self, key: &A::Key, iv: Iv, answered: &[u8], frame: &mut [u8]) {
        let header_len = AAD - answered.len();
        let aad: [u8; AAD] = join(&frame[..header_len], answered);
        self.seal_with(key, iv, header_len, &aad, frame);
    }

    fn seal_with(&self, key: &A::Key, iv: Iv, header_len: usize, aad: &[u8], frame: &mut [u8]) {
        let Sealed { payload, tag, .. } = wire::split(frame, header_len).expect(WHOLE);
        self.aead.seal(&mut [SealJob { key, iv, aad, payload, tag }]);
    }

    /// Whether a frame's tag is right. Then its payload is decrypted in place.
    fn open<const AAD: usize>(
        &self,
        key: &A::Key,
        iv: Iv,
        answered: &[u8],
        frame: &mut [u8],
    ) -> bool {
        let Some(Sealed { header, payload, tag }) = wire::split(frame, AAD - answered.len()) else {
            return false;
        };
        let aad: [u8; AAD] = join(header, answered);
        let mut jobs = [OpenJob { key, iv, aad: &aad, payload, tag, authentic: false }];
        self.aead.open(&mut jobs);
        jobs[0].authentic
    }
}

/// Why a frame can be split.
const WHOLE: &str = "the caller made room for the whole frame";

/// Both, side by side. A frame's header and what it answers, so joined, are the paper's currying.
//= 1rma#A-iv-currying
fn join<const N: usize>(head: &[u8], tail: &[u8]) -> [u8; N] {
    let mut joined = [0; N];
    joined[..head.len()].copy_from_slice(head);
    joined[head.len()..].copy_from_slice(tail);
    joined
}

fn payload_of(frame: &[u8], header_len: usize) -> &[u8] {
    &frame[header_len..frame.len() - TAG_LEN]
}

impl<A: AeadProvider> core::fmt::Debug for Security<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { aead, engine, counter, .. } = self;
        write!(f, "Security({aead:?}, {engine:?}, {counter:?})")
    }
}
