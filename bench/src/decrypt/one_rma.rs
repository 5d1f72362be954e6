//! Frames of 1RMA: which key, IV and AAD each was sealed with (docs/WIRE.md, section 4).

use std::collections::HashMap;

use rma_core::{
    addr::HostAddr,
    crypto::{DerivedRegionKey, Direction, EngineId, Iv},
    limits::TAG_LEN,
    op::OpStatus,
    packet::FRAMES_MAX,
    wire,
};
use rma_crypto::{OpenJob, Text, fastest};

use super::{
    datagram::Datagram,
    keys::{Keys, Right},
    shut::{FrameSeen, Shut},
};

/// Octets that all headers begin with, and the two behind them.
const HEAD_LEN: usize = 32;

/// The frames that something is sealed under the IV of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Nothing,
    Request,
    /// With the request's tag in the AAD.
    RequestAndTag,
    Solicitation,
}

/// A type of frame.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    header: usize,
    direction: Direction,
    answers: Answers,
}

/// The types, from 1 on.
#[rustfmt::skip]
const KINDS: [Kind; 12] = {
    use Answers::{Nothing, Request, RequestAndTag, Solicitation};
    use Direction::{ToInitiator, ToResponder};
    const fn kind(
        name: &'static str,
        header: usize,
        direction: Direction,
        answers: Answers,
    ) -> Kind {
        Kind { name, header, direction, answers }
    }
    [
        kind("read request", 40, ToResponder, Nothing),
        kind("read response", 32, ToInitiator, Request),
        kind("failure", 32, ToInitiator, RequestAndTag),
        kind("write request", 44, ToResponder, Nothing),
        kind("rekey request", 44, ToResponder, Nothing),
        kind("solicitation", 32, ToInitiator, Request),
        kind("solicited data", 36, ToResponder, Solicitation),
        kind("acknowledgement", 32, ToInitiator, Solicitation),
        kind("recorded request", 56, ToResponder, Nothing),
        kind("acknowledgement with result", 32, ToInitiator, Solicitation),
        kind("settle request", 44, ToResponder, Nothing),
        kind("settlement", 32, ToInitiator, Request),
    ]
};

/// The code of a solicitation, and the one of a failure.
const SOLICITATION: u8 = 6;
const FAILURE: u8 = 3;

/// The slot of an initiator: what frames of an op name it by, besides its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SlotOf {
    initiator: HostAddr,
    responder: HostAddr,
    slot: u16,
}

/// The op that has a slot.
#[derive(Clone, Debug)]
struct Op {
    generation: u32,
    right: Right,
    request: Iv,
    tag: [u8; TAG_LEN],
    solicitation: Option<Iv>,
    /// The key that its request was opened with.
    key: Option<DerivedRegionKey>,
}

/// The ops whose requests were seen: the last of each slot.
#[derive(Debug, Default)]
pub(super) struct Ops {
    ops: HashMap<SlotOf, Op>,
}

/// The fields of a header that all frames have.
#[derive(Clone, Copy, Debug)]
struct Head {
    code: u8,
    status: u8,
    pid: u32,
    region: u32,
    slot: u16,
    generation: u32,
    iv: Iv,
}

impl Head {
    fn of(kind: &Kind, octets: &[u8; HEAD_LEN]) -> Self {
        let word = |at: usize| u32::from_be_bytes(core::array::from_fn(|i| octets[at + i]));
        let half = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let counter = u64::from(word(20)) << 32 | u64::from(word(24));
        Self {
            code: octets[1],
            status: octets[3],
            pid: word(4),
            region: word(8),
            slot: half(12),
            generation: word(16),
            iv: Iv::new(kind.direction, EngineId(half(14)), counter),
        }
    }
}

/// The type that the octets of a frame claim.
fn kind_of(octets: &[u8]) -> Option<&'static Kind> {
    KINDS.get(usize::from(octets.get(1)?.checked_sub(1)?))
}

impl Ops {
    /// Opens the frames of a packet in place, and says of each what became of it.
    pub(super) fn open(
        &mut self,
        keys: &mut Keys,
        datagram: &Datagram,
        mut rest: &mut [u8],
        seen: &mut Vec<FrameSeen>,
    ) {
        let Datagram { source, destination, is_cut, .. } = *datagram;
        while !rest.is_empty() || is_cut {
            let mut frame =
                FrameSeen { name: "frame", source, destination, payload: 0, shut: None };
            let kind = kind_of(rest);
            let (Some(kind), Ok(len)) = (kind, wire::frame_len(rest)) else {
                frame.name = kind.map_or("tail", |it| it.name);
                frame.shut = Some(match rest.first() {
                    Some(&version) if version != wire::VERSION => Shut::OtherVersion,
                    _ if is_cut => Shut::Cut,
                    _ => Shut::NoFrame,
                });
                seen.push(frame);
                return;
            };
            if seen.len() == FRAMES_MAX {
                seen.push(FrameSeen { name: "tail", shut: Some(Shut::NoFrame), ..frame });
                return;
            }
            let (octets, behind) = rest.split_at_mut(len);
            frame.name = kind.name;
            frame.payload = octets.len() - kind.header - TAG_LEN;
            frame.shut = self.open_one(keys, kind, datagram, octets).err();
            seen.push(frame);
            rest = behind;
        }
    }

    fn open_one(
        &mut self,
        keys: &mut Keys,
        kind: &Kind,
        datagram: &Datagram,
        frame: &mut [u8],
    ) -> Result<(), Shut> {
        let Some(head) = frame.first_chunk().map(|it| Head::of(kind, it)) else {
            return Err(Shut::NoFrame);
        };
        let (initiator, responder) = match kind.direction {
            Direction::ToResponder => (datagram.source, datagram.destination),
            Direction::ToInitiator => (datagram.destination, datagram.source),
        };
        let place = SlotOf { initiator, responder, slot: head.slot };
        if kind.answers == Answers::Nothing {
            let op = match head.code {
                1 => 1,
                4 => 2,
                5 => 3,
                _ => frame[38],
            };
            let Head { pid, region, .. } = head;
            let right = Right { initiator, responder, pid, region, op };
            return self.open_request(keys, kind, place, head, right, frame);
        }
        let op = self.ops.get_mut(&place).filter(|op| {
            let of = (op.generation, op.right.pid, op.right.region);
            of == (head.generation, head.pid, head.region)
        });
        let op = op.ok_or(Shut::NoRequest)?;
        let answered = match kind.answers {
            Answers::Solicitation => op.solicitation.ok_or(Shut::NoRequest)?,
            _ => op.request,
        };
        let mut aad = frame[..kind.header].to_vec();
        aad.extend_from_slice(answered.octets());
        if kind.answers == Answers::RequestAndTag {
            aad.extend_from_slice(&op.tag);
        }
        let mut sealed = SealedFrame { header: kind.header, iv: head.iv, aad: &aad, frame };
        let failed = OpStatus::RemoteAuthenticationFailure as u8;
        let opened = if head.code == FAILURE && head.status == failed {
            sealed.opens(&DerivedRegionKey::RESERVED).then_some(()).ok_or(Shut::WrongTag)
        } else if let Some(key) = &op.key {
            sealed.opens(key).then_some(()).ok_or(Shut::WrongTag)
        } else {
            sealed.find(keys, op.right).map(|key| op.key = Some(key))
        };
        if head.code == SOLICITATION && (opened != Err(Shut::WrongTag) || op.solicitation.is_none())
        {
            op.solicitation = Some(head.iv);
        }
        opened
    }

    fn open_request(
        &mut self,
        keys: &mut Keys,
        kind: &Kind,
        place: SlotOf,
        head: Head,
        right: Right,
        frame: &mut [u8],
    ) -> Result<(), Shut> {
        let aad = frame[..kind.header].to_vec();
        let tag = frame.last_chunk().copied().unwrap_or_default();
        let mut sealed = SealedFrame { header: kind.header, iv: head.iv, aad: &aad, frame };
        let found = sealed.find(keys, right);
        let before = self.ops.get(&place).filter(|it| it.request == head.iv && it.tag == tag);
        let is_known = before.is_some_and(|it| it.generation == head.generation);
        if !is_known {
            let Head { generation, iv: request, .. } = head;
            let key = found.as_ref().ok().copied();
            let op = Op { generation, right, request, tag, solicitation: None, key };
            self.ops.insert(place, op);
        }
        found.map(|_key| ())
    }
}

/// A frame that is to be opened.
struct SealedFrame<'a> {
    header: usize,
    iv: Iv,
    aad: &'a [u8],
    frame: &'a mut [u8],
}

impl SealedFrame<'_> {
    /// The key of a right that opens the frame.
    fn find(&mut self, keys: &mut Keys, right: Right) -> Result<DerivedRegionKey, Shut> {
        let held = keys.of(right);
        if held.is_empty() {
            return Err(Shut::NoKey);
        }
        held.find(|key| self.opens(key)).ok_or(Shut::WrongTag)
    }

    /// Opens the frame in place, if its tag is right under this key.
    fn opens(&mut self, key: &DerivedRegionKey) -> bool {
        let Self { header, iv, aad, frame } = self;
        open_in_place(key.as_key(), iv, aad, &mut frame[*header..])
    }
}

/// Opens a payload and the tag behind it, in place. What does not open stays as it is.
pub(super) fn open_in_place(key: &rma_crypto::Key, iv: &Iv, aad: &[u8], sealed: &mut [u8]) -> bool {
    let Some((payload, tag)) = sealed.split_last_chunk_mut::<TAG_LEN>() else { return false };
    // What a provider leaves of a payload whose tag is wrong is its own.
    let mut plain = payload.to_vec();
    let (key, iv) = (key.into(), *iv.octets());
    let text = Text::in_place(&mut plain);
    let mut job = OpenJob { key, iv, aad, text, tag, authentic: false };
    fastest().open(core::slice::from_mut(&mut job));
    let is_authentic = job.authentic;
    if is_authentic {
        payload.copy_from_slice(&plain);
    }
    is_authentic
}
