//! The request that an answer is bound to. Lives of a node use the names of ops again, and what
//! waits at a responder takes turns: where several requests of one name wait there, nothing but the
//! tag tells which of them was answered.

use rma_core::{
    crypto::{AeadProvider, DerivedRegionKey, Direction, IV_LEN, Iv},
    limits::TAG_LEN,
    wire::Header,
};
use rma_crypto::{OpenJob, Text};

/// The longest header of an answer, and the IV behind it.
const AAD_MAX: usize = 64 + IV_LEN;

/// The IV of the request with this header.
pub(super) fn request_iv(header: &Header) -> Iv {
    Iv::new(Direction::ToResponder, header.engine, header.counter)
}

/// Whether `frame`, an answer with a header of so many octets, is sealed under `key` and bound to
/// `request`.
pub(super) fn binds(
    aead: &dyn AeadProvider,
    frame: &[u8],
    (header, header_len): (&Header, usize),
    request: &Iv,
    key: &DerivedRegionKey,
) -> bool {
    let Some((sealed, tag)) = frame.split_last_chunk::<TAG_LEN>() else { return false };
    let Some((own, payload)) = sealed.split_at_checked(header_len) else { return false };
    let mut aad = [0; AAD_MAX];
    let aad = &mut aad[..header_len + IV_LEN];
    aad[..header_len].copy_from_slice(own);
    aad[header_len..].copy_from_slice(request.octets());
    let iv = *Iv::new(Direction::ToInitiator, header.engine, header.counter).octets();
    let mut payload = payload.to_vec();
    let (key, text) = (key.as_key().into(), Text::in_place(&mut payload));
    let mut jobs = [OpenJob { key, iv, aad, text, tag, authentic: false }];
    aead.open(&mut jobs);
    jobs[0].authentic
}
