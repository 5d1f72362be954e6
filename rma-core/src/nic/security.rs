//! Which frame is sealed under which key, with which IV and which AAD (1RMA §4.2, Appendix A).
//!
//! AAD = the frame's whole header, and for every frame that answers another, the IV of the frame it
//! answers. So no frame can be moved to another op, another slot or another use of a slot.
//!
//! [`Authentic`] is made here and nowhere else: a value inside it came with a right tag. A view that was
//! only parsed cannot be mistaken for it (P6).

use core::ops::Deref;

use crate::{
    crypto::{
        AeadProvider, DerivedRegionKey, Direction, EngineId, IV_LEN, Iv, IvCounter, OpenJob,
        SealJob,
    },
    limits::TAG_LEN,
    wire::{
        self, Failure, Header, Request, Response,
        failure::{FAILURE_HEADER_LEN, FAILURE_LEN},
        read::{REQUEST_HEADER_LEN, REQUEST_LEN, RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
    },
};

/// A value that came in a frame whose tag was right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authentic<T>(T);

impl<T> Deref for Authentic<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The NIC's encryption-decryption block, and the counter that makes its IVs fresh (P4).
pub(super) struct Security<A: AeadProvider> {
    aead: A,
    engine: EngineId,
    counter: IvCounter,
    reserved: A::Key,
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
        header.counter = self.counter.next();
    }

    /// Writes and seals a request. Returns the IV that binds the responses to it.
    //= 1rma#3.1-request-signed
    pub(super) fn seal_request(
        &mut self,
        key: &A::Key,
        mut request: Request,
        out: &mut [u8; REQUEST_LEN],
    ) -> Iv {
        self.stamp(&mut request.header);
        request.emit(out);
        let iv = request.header.iv(Direction::ToResponder);
        let frame = wire::split(out, REQUEST_HEADER_LEN).expect("the array has that length");
        let job = SealJob { key, iv, aad: frame.header, payload: frame.payload, tag: frame.tag };
        self.aead.seal(&mut [job]);
        iv
    }

    /// Checks a request's tag.
    //= 1rma#3.1-request-authenticated
    pub(super) fn open_request(
        &self,
        key: &A::Key,
        claims: Request,
        frame: &mut [u8],
    ) -> Option<Authentic<Request>> {
        let frame = wire::split(frame, REQUEST_HEADER_LEN)?;
        let iv = claims.header.iv(Direction::ToResponder);
        self.open(key, iv, frame.header, frame.payload, frame.tag).then_some(Authentic(claims))
    }

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
        response.emit(out.first_chunk_mut().expect("the caller made room for the header"));
        let iv = response.header.iv(Direction::ToInitiator);
        let frame = wire::split(out, RESPONSE_HEADER_LEN).expect("the caller made room for both");
        let aad: [u8; RESPONSE_HEADER_LEN + IV_LEN] = curry(frame.header, request_iv);
        let job = SealJob { key, iv, aad: &aad, payload: frame.payload, tag: frame.tag };
        self.aead.seal(&mut [job]);
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
        let frame = wire::split(frame, RESPONSE_HEADER_LEN)?;
        let iv = claims.header.iv(Direction::ToInitiator);
        let aad: [u8; RESPONSE_HEADER_LEN + IV_LEN] = curry(frame.header, request_iv);
        self.open(key, iv, &aad, frame.payload, frame.tag)
            .then_some(Authentic((claims, &*frame.payload)))
    }

    /// Writes and seals a failure notice; under the reserved key if there is no key that both share.
    //= 1rma#4.2-failure-under-reserved-key
    pub(super) fn seal_failure(
        &mut self,
        key: Option<&A::Key>,
        request_iv: &Iv,
        mut failure: Failure,
    ) -> [u8; FAILURE_LEN] {
        self.stamp(&mut failure.header);
        let mut out = [0; FAILURE_LEN];
        failure.emit(&mut out);
        let iv = failure.header.iv(Direction::ToInitiator);
        let frame = wire::split(&mut out, FAILURE_HEADER_LEN).expect("the array has that length");
        let aad: [u8; FAILURE_HEADER_LEN + IV_LEN] = curry(frame.header, request_iv);
        let key = key.unwrap_or(&self.reserved);
        let job = SealJob { key, iv, aad: &aad, payload: frame.payload, tag: frame.tag };
        self.aead.seal(&mut [job]);
        out
    }

    /// Checks a failure notice's tag. Only REMOTE_AUTHENTICATION_FAILURE may come under the reserved key,
    /// and only under it.
    pub(super) fn open_failure(
        &self,
        key: &A::Key,
        request_iv: &Iv,
        claims: Failure,
        frame: &mut [u8],
    ) -> Option<Authentic<Failure>> {
        let frame = wire::split(frame, FAILURE_HEADER_LEN)?;
        let iv = claims.header.iv(Direction::ToInitiator);
        let aad: [u8; FAILURE_HEADER_LEN + IV_LEN] = curry(frame.header, request_iv);
        let reserved = claims.status == crate::op::OpStatus::RemoteAuthenticationFailure;
        let key = if reserved { &self.reserved } else { key };
        self.open(key, iv, &aad, frame.payload, frame.tag).then_some(Authentic(claims))
    }

    fn open(
        &self,
        key: &A::Key,
        iv: Iv,
        aad: &[u8],
        payload: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let mut jobs = [OpenJob { key, iv, aad, payload, tag, authentic: false }];
        self.aead.open(&mut jobs);
        let [OpenJob { authentic, .. }] = jobs;
        authentic
    }
}

/// The header of an answer and the IV of what it answers, side by side: the paper's currying.
//= 1rma#A-iv-currying
fn curry<const N: usize>(header: &[u8], answered: &Iv) -> [u8; N] {
    let mut aad = [0; N];
    let (head, tail) = aad.split_at_mut(header.len());
    head.copy_from_slice(header);
    tail.copy_from_slice(answered.octets());
    aad
}

impl<A: AeadProvider> core::fmt::Debug for Security<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { aead, engine, counter, .. } = self;
        write!(f, "Security({aead:?}, {engine:?}, {counter:?})")
    }
}
