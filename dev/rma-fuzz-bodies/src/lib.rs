//! The bodies of the fuzz targets. They live here so that the fuzzer, which needs a nightly
//! compiler, and the ordinary test that replays the corpus run the same code.
//!
//! Each takes arbitrary bytes and panics if a promise is broken.

#![forbid(unsafe_code)]

mod aead;
mod keys;
mod nic;
mod packet;
mod portals;
mod record;
mod ring;
mod script;
mod star;

use std::sync::Arc;

use rma_core::{
    limits::OP_SIZE_MAX,
    nic::NicCounters,
    wire::{
        FRAME_LEN_MAX, FrameView,
        failure::{FAILURE_HEADER_LEN, FAILURE_LEN},
        mutation::{
            ACKNOWLEDGEMENT_HEADER_LEN, ACKNOWLEDGEMENT_LEN, DATA_HEADER_LEN, DATA_OVERHEAD,
            MUTATION_REQUEST_HEADER_LEN, MUTATION_REQUEST_LEN, SOLICITATION_HEADER_LEN,
            SOLICITATION_LEN,
        },
        read::{REQUEST_HEADER_LEN, REQUEST_LEN, RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
        recorded::{
            RECORDED_REQUEST_HEADER_LEN, RECORDED_REQUEST_LEN, RESULT_HEADER_LEN, RESULT_LEN,
        },
        settle::{
            SETTLE_REQUEST_HEADER_LEN, SETTLE_REQUEST_LEN, SETTLEMENT_HEADER_LEN, SETTLEMENT_LEN,
        },
    },
};

use script::Script;

pub use aead::aead;
pub use keys::KeysSeen;
pub use nic::nic;
pub use packet::packet;
pub use record::Seen;
pub use star::{StarRingSeen, StarSeen};

/// Any bytes either are no frame, or a header that writes back to the same octets, and as much
/// payload as it says.
pub fn wire(data: &[u8]) {
    let Ok(view) = FrameView::parse(data) else { return };
    match view {
        FrameView::ReadRequest(view) => {
            let mut out = [0xaa; REQUEST_LEN];
            view.claims().emit(out.first_chunk_mut().expect("it is longer"));
            assert_same(data, &out[..REQUEST_HEADER_LEN], REQUEST_LEN);
        }
        FrameView::ReadResponse(view) => {
            let mut out = [0xaa; RESPONSE_HEADER_LEN];
            view.claims().emit(out.first_chunk_mut().expect("it is longer"));
            let (start, end) = view.claims().span();
            assert!(end <= OP_SIZE_MAX);
            assert_same(data, &out, RESPONSE_OVERHEAD + (end - start) as usize);
        }
        FrameView::Failure(view) => {
            let mut out = [0xaa; FAILURE_LEN];
            view.claims().emit(out.first_chunk_mut().expect("it is longer"));
            assert_same(data, &out[..FAILURE_HEADER_LEN], FAILURE_LEN);
        }
        FrameView::MutationRequest(view) => {
            let mut out = [0xaa; MUTATION_REQUEST_LEN];
            view.claims().emit(out.first_chunk_mut().expect("it is longer"));
            assert_same(data, &out[..MUTATION_REQUEST_HEADER_LEN], MUTATION_REQUEST_LEN);
        }
        FrameView::Solicitation(view) => {
            let mut out = [0xaa; SOLICITATION_LEN];
            view.claims().emit(out.first_chunk_mut().expect("it is longer"));
            assert_same(data, &out[..SOLICITATION_HEADER_LEN], SOLICITATION_LEN);
        }
        FrameView::SolicitedData(view) => {
            let mut out = [0xaa; DATA_HEADER_LEN];
            view.claims().emit(out.first_chunk_mut().expect("it is longer"));
            let (start, end) = view.claims().span();
            assert!(end <= OP_SIZE_MAX);
            assert_same(data, &out, DATA_OVERHEAD + (end - start) as usize);
        }
        FrameView::Acknowledgement(view) => {
            let mut out = [0xaa; ACKNOWLEDGEMENT_LEN];
            view.claims().emit(out.first_chunk_mut().expect("it is longer"));
            assert_same(data, &out[..ACKNOWLEDGEMENT_HEADER_LEN], ACKNOWLEDGEMENT_LEN);
        }
        FrameView::RecordedRequest(view) => {
            let mut out = [0xaa; RECORDED_REQUEST_HEADER_LEN];
            view.claims().emit(&mut out);
            assert_same(data, &out, RECORDED_REQUEST_LEN);
        }
        FrameView::AcknowledgementWithResult(view) => {
            let mut out = [0xaa; RESULT_HEADER_LEN];
            view.claims().emit(&mut out);
            assert_same(data, &out, RESULT_LEN);
        }
        FrameView::SettleRequest(view) => {
            let mut out = [0xaa; SETTLE_REQUEST_HEADER_LEN];
            view.claims().emit(&mut out);
            assert_same(data, &out, SETTLE_REQUEST_LEN);
        }
        FrameView::Settlement(view) => {
            let mut out = [0xaa; SETTLEMENT_HEADER_LEN];
            view.claims().emit(&mut out);
            assert_same(data, &out, SETTLEMENT_LEN);
        }
    }
}

fn assert_same(data: &[u8], header: &[u8], len: usize) {
    assert_eq!(data[..header.len()], *header);
    assert!(data.len() == len && len <= FRAME_LEN_MAX, "{} octets, not {len}", data.len());
}

/// A ring that is used by rules and against them; or, above it, an engine with two honest
/// applications and one that writes what it likes into its portal's memory.
///
/// Asserts: every call does what the memory says, whoever wrote it; the honest applications' ops
/// all end with OK, without one turn of delay, and nobody else touches their memory; the hostile
/// one gets a completion for each command that was taken, and nobody else's. Returns what the
/// engine counted, if there was one.
pub fn ring(data: &[u8]) -> Option<Arc<NicCounters>> {
    let mut script = Script(data);
    if script.number() % 4 == 0 {
        ring::run(&mut script);
        return None;
    }
    Some(portals::run(&mut script))
}

/// Channels of all kinds, of whose memory, events and ops a script does what it likes.
///
/// Asserts: no end panics, or reads outside; what is claimed lies in memory and was not claimed
/// before; who was told what cannot be says so ever after; and until somebody writes what is not
/// theirs to write, each message comes whole, once and in order. Returns what has happened.
pub fn record(data: &[u8]) -> Seen {
    record::run(&mut Script(data))
}

/// Any bytes either are no frame of StaR, or a header that writes back to the same octets, and as
/// much payload as it says; and so are the entries of payloads.
pub fn star_wire(data: &[u8]) {
    star::check(data);
}

/// A host with StaR that is both sides of a connection with itself, an application that posts what
/// it likes, a network that does what it likes, and an honest application beside it.
///
/// Asserts: nothing panics; the honest application's memory does not change, and nothing is
/// reported to it; nothing is reported that was not posted. Returns what has happened.
pub fn star_station(data: &[u8]) -> StarSeen {
    star::run(&mut Script(data))
}

/// Two hosts with StaR, at each of which an application writes what it likes into its portal's
/// memory: posts, indexes, records, guard words and QP words. Both have connections with each other
/// in both roles, and keys of their own. Beside them two honest applications.
///
/// Asserts: nothing panics; each work request of the honest ones succeeds, once, with its bytes,
/// and not one other byte of their memory changes; memory past a span that was registered does not
/// change. Returns what has happened.
pub fn star_ring(data: &[u8]) -> StarRingSeen {
    star::ring(&mut Script(data))
}

/// Any octets as a request to a key service, or as its reply; or a client whose service answers
/// what it likes, twice, late or never, and whose ops end as they like.
///
/// Asserts: whatever is read is written and read again; a service answers anything, and gives what
/// its policy allows and no more; a client never goes by an earlier key than one that has proved
/// right, and never waits for nothing. Returns what has happened.
pub fn keys(data: &[u8]) -> KeysSeen {
    keys::run(&mut Script(data))
}

/// Any octets as a policy.
///
/// Asserts: an error is one line, but for those of TOML; what a policy allows is for a time, within
/// the region's epochs; it takes nothing away from itself; and it explains what it decides. Returns
/// whether it is a policy.
pub fn policy(data: &[u8]) -> bool {
    keys::policy(data)
}

/// Any octets as a certificate, and as a file of certificates or of a key.
///
/// Asserts: what is read is in it, and what follows it is not; an identity is its only URI; a file
/// has no more certificates than sections, and as many with a byte-order mark. Returns whether it
/// is one.
pub fn certificate(data: &[u8]) -> bool {
    keys::certificate(data)
}
