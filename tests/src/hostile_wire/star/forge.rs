//! Frames that no host has sent, of all types of StaR.

use rma_core::{crypto::EngineId, limits::TAG_LEN, seal};
use rma_crypto::{SealJob, Text, fastest};
use rma_sim::prng::Prng;
use rma_star::{
    aad,
    clock::ZTime,
    keys::{Binding, FrameKey, KeyMessage, OpenSpan, PdKeySchedule},
    names::{Generation, MrId, MrName, Sequence, Slot},
    verbs::WqeOp,
    wire::{Cqe, Cqep, FrameView, Gd, Guide, Header, KeyPhase, Rd},
};

/// Octets of the longest header.
const HEADER_MAX: usize = 72;

/// Makes frames of the stateful side of one connection.
pub(super) struct Forger {
    pub(super) binding: Binding,
    counter: u64,
}

impl Forger {
    pub(super) const fn new(binding: Binding) -> Self {
        // Far from what any host counts.
        Self { binding, counter: 1 << 50 }
    }

    /// The key of a work request's span, K_w.
    pub(super) fn key_of(&self, schedule: &PdKeySchedule, span: &OpenSpan) -> FrameKey {
        schedule.derive(fastest(), &KeyMessage::of_wqe(&self.binding, span))
    }

    /// The connection's key, K_c.
    pub(super) fn key(&self, schedule: &PdKeySchedule) -> FrameKey {
        schedule.derive(fastest(), &KeyMessage::of_connection(&self.binding))
    }

    /// The key for F's own ops of an MR whose row was not used before, K_m.
    pub(super) fn key_of_mr(&self, schedule: &PdKeySchedule, op: WqeOp, mr: MrId) -> FrameKey {
        schedule.derive(fastest(), &KeyMessage::of_mr(&self.binding, op, MrName(mr.0.into())))
    }

    fn header(&mut self, expiry: ZTime) -> Header {
        self.counter += 1;
        Header {
            connection: self.binding.connection,
            phase: KeyPhase::Even,
            engine: EngineId(0),
            counter: self.counter,
            time: expiry.low(),
        }
    }

    /// Makes the guide of an RD or GD about a span, with `len` octets from `at` on.
    pub(super) fn guide(&mut self, span: &OpenSpan, (at, len): (u32, u16), expiry: ZTime) -> Guide {
        let OpenSpan { op, slot, generation, mr, mr_offset, len: wqe_len } = *span;
        Guide {
            header: self.header(expiry),
            op,
            slot,
            generation,
            mr,
            mr_offset,
            wqe_len,
            chunk_offset: at,
            chunk_len: len,
            sequence: Sequence(0),
            copy: 0,
        }
    }

    /// A CQEP with one CQE.
    pub(super) fn cqep(&mut self, key: &FrameKey, span: &OpenSpan, expiry: ZTime) -> Vec<u8> {
        let cqep = Cqep {
            header: self.header(expiry),
            count: 1,
            wants_answer: true,
            state_number: 0,
            state_parts: 0,
        };
        let cqe = Cqe {
            slot: span.slot,
            generation: span.generation,
            byte_len: span.len,
            op: span.op,
            ..Cqe::PROBE
        };
        // Eight octets of what F has taken (nothing is open here), then the CQE.
        let (mut header, mut payload) = ([0; 40], [0; 8 + 24]);
        cqep.emit(&mut header);
        cqe.emit(payload.last_chunk_mut().expect("an entry is 24 octets"));
        sealed(key, &header, &payload, expiry)
    }
}

/// The span of a WRITE or READ of F, as the attacker would have it.
pub(super) const fn own(op: WqeOp, mr: MrId, at: u64, len: u32) -> OpenSpan {
    OpenSpan { op, slot: Slot::NONE, generation: Generation(0), mr, mr_offset: at, len }
}

/// An RD all of whose octets are this one.
pub(super) fn rd(
    key: &FrameKey,
    guide: Guide,
    byte: u8,
    completes: bool,
    expiry: ZTime,
) -> Vec<u8> {
    let mut header = [0; HEADER_MAX];
    Rd { guide, wants_answer: true, completes }.emit(&mut header);
    sealed(key, &header, &vec![byte; guide.chunk_len.into()], expiry)
}

/// A GD, sealed.
pub(super) fn gd(key: &FrameKey, guide: Guide, expiry: ZTime) -> Vec<u8> {
    let mut header = [0; HEADER_MAX];
    Gd { guide }.emit(&mut header);
    sealed(key, &header, &[], expiry)
}

/// Seals a frame that answers none.
pub(super) fn sealed(key: &FrameKey, header: &[u8], payload: &[u8], time: ZTime) -> Vec<u8> {
    let aad = [header, &aad::tail(time)].concat();
    seal_with(key, header, payload, &aad)
}

fn seal_with(key: &FrameKey, header: &[u8], payload: &[u8], aad: &[u8]) -> Vec<u8> {
    let mut frame = [header, payload, &[0; TAG_LEN]].concat();
    let iv = *FrameView::parse(&frame).expect("a frame").iv().octets();
    let parts = seal::split(&mut frame, header.len()).expect("header and tag");
    let text = Text::in_place(parts.payload);
    let key = key.as_key().into();
    fastest().seal(&mut [SealJob { key, iv, aad, text, tag: parts.tag }]);
    frame
}

/// A frame that says that its receiver's, which came by, was refused: the type is of none of StaR's
/// frames, and the key is what 1RMA's refusals would have.
pub(super) fn refusal(refused: &[u8]) -> Option<Vec<u8>> {
    let tag = refused.last_chunk::<TAG_LEN>()?;
    let mut header: [u8; 36] = *refused.first_chunk()?;
    (header[1], header[2], header[3]) = (0x29, header[2] & 0b100 ^ 0b100, 1);
    header[32..].fill(0);
    Some([&header[..], tag].concat())
}

/// The same header and payload under a key that is guessed.
pub(super) fn guessed(frame: &[u8], time: ZTime, prng: &mut Prng) -> Option<Vec<u8>> {
    let view = FrameView::parse(frame).ok()?;
    let mut key = [0; 16];
    prng.fill(&mut key);
    let (header, rest) = frame.split_at(view.header_len());
    let mut header = header.to_vec();
    header[24..32].copy_from_slice(&prng.next().to_be_bytes());
    header[32..36].copy_from_slice(&time.low().0.to_be_bytes());
    let payload = &rest[..view.payload_len()];
    Some(sealed(&FrameKey::from_bytes(key), &header, payload, time))
}
