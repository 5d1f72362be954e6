//! Frames of StaR (docs/STAR-WIRE.md, sections 3 and 4).
//!
//! The log has K_c of each connection. The other keys travel in frames that are under it: K_w in
//! WQEs, K_m in rules, the K_c of the next era in a *transfer*. So frames open whose WQE, rule or
//! guide is in the capture before them.

use std::collections::HashMap;

use rma_core::{crypto::Iv, limits::TAG_LEN, packet::FRAMES_MAX};
use rma_crypto::fastest;
use rma_star::{
    aad,
    clock::{Time32, ZTime},
    keys::{Binding, FrameKey},
    names::{Generation, MrId, Side, Slot},
    verbs::WqeOp,
    wire::{self, FrameView, Guide, Rule, State, StateKind, WqeKind},
};

use super::{
    datagram::Datagram,
    keys::{ConnectionKey, Keys},
    one_rma::open_in_place,
    shut::{FrameSeen, Shut},
};

/// Guides that are remembered: those of some seconds. One more: all are forgotten.
const GUIDES_MAX: usize = 1 << 20;
/// Times around what is expected that are tried for the half of the time that does not travel, in
/// 2^32 microseconds: two days.
const AHEAD_MAX: u64 = 40;

/// The connections of a capture, and what their frames told.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The time at which a frame opened last, and the key that it was under, if its binding has it.
    known: HashMap<Binding, ConnectionKey>,
    /// K_c of later eras.
    later: HashMap<Binding, ConnectionKey>,
    wqes: HashMap<(Binding, Slot), (Generation, FrameKey)>,
    regions: HashMap<(Binding, MrId, WqeOp), FrameKey>,
    guides: HashMap<GuideOf, (Iv, FrameKey)>,
}

/// The part of an RD or GD that its answer gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GuideOf {
    binding: Binding,
    chunk_offset: u32,
    sequence: u32,
    copy: u8,
}

const fn name_of(view: &FrameView) -> &'static str {
    match view {
        FrameView::Wqep(_) => "wqep",
        FrameView::Cqep(_) => "cqep",
        FrameView::EaOfZ(_) => "ea of z",
        FrameView::EaOfF(_) => "ea of f",
        FrameView::Rd(_) => "rd",
        FrameView::Rda(_) => "rda",
        FrameView::Gd(_) => "gd",
        FrameView::Gda(_) => "gda",
        FrameView::State(_) => "state",
    }
}

/// The key that a frame is under, and the IV of what it answers.
struct With {
    key: FrameKey,
    answered: Option<Iv>,
}

impl Connections {
    /// Opens the frames of a packet in place, and says of each what became of it.
    pub(super) fn open(
        &mut self,
        keys: &Keys,
        datagram: &Datagram,
        mut rest: &mut [u8],
        seen: &mut Vec<FrameSeen>,
    ) {
        let Datagram { source, destination, is_cut, .. } = *datagram;
        while !rest.is_empty() || is_cut {
            let mut frame = FrameSeen { name: "tail", source, destination, payload: 0, shut: None };
            let len = wire::frame_len(rest).ok().filter(|_| seen.len() < FRAMES_MAX);
            let Some(len) = len else {
                frame.shut = Some(match rest.first() {
                    Some(&version) if version != wire::VERSION => Shut::OtherVersion,
                    _ if is_cut => Shut::Cut,
                    _ => Shut::NoFrame,
                });
                seen.push(frame);
                return;
            };
            let (octets, behind) = rest.split_at_mut(len);
            match FrameView::parse(octets) {
                Err(_) => frame.shut = Some(Shut::NoFrame),
                Ok(view) => {
                    frame.name = name_of(&view);
                    frame.payload = view.payload_len();
                    frame.shut = self.open_one(keys, &view, datagram, octets).err();
                }
            }
            seen.push(frame);
            rest = behind;
        }
    }

    fn open_one(
        &mut self,
        keys: &Keys,
        view: &FrameView,
        datagram: &Datagram,
        frame: &mut [u8],
    ) -> Result<(), Shut> {
        let header = view.header();
        let (z, f) = match view.sender() {
            Side::Stateless => (datagram.source, datagram.destination),
            Side::Stateful => (datagram.destination, datagram.source),
        };
        let binding = Binding { connection: header.connection, f, z };
        let expected = self.connection(keys, &binding);
        let with = self.with(view, &binding, expected.as_ref());
        if let Some(guide) = guide_of(view) {
            if self.guides.len() == GUIDES_MAX {
                self.guides.clear();
            }
            let of = GuideOf {
                binding,
                chunk_offset: guide.chunk_offset,
                sequence: guide.sequence.0,
                copy: guide.copy,
            };
            // Also if it does not open here: altered, what answers it may be whole.
            match &with {
                Ok(With { key, .. }) => self.guides.insert(of, (view.iv(), *key)),
                Err(_) => self.guides.remove(&of),
            };
        }
        let With { key, answered } = with?;
        let known = expected.ok_or(Shut::NoKey)?;
        let mut sealed = Sealed { view, key, answered, frame };
        let mut clock = sealed.open(header.time, known.clock);
        if clock.is_none() && answered.is_none() && guide_of(view).is_none() {
            // All frames of RC are under the key of their half.
            sealed.key = key.of_half(fastest(), &binding);
            clock = sealed.open(header.time, known.clock);
        }
        let clock = clock.ok_or(Shut::WrongTag)?;
        self.known.insert(binding, ConnectionKey { key: known.key, clock });
        let payload = &frame[view.header_len()..frame.len() - TAG_LEN];
        self.learn(view, &binding, payload);
        Ok(())
    }

    /// The K_c of a connection, or in RC the K_h of this half, and the time that is expected.
    fn connection(&self, keys: &Keys, binding: &Binding) -> Option<ConnectionKey> {
        let later = self.later.get(binding).copied();
        let clock = self.known.get(binding).map(|it| it.clock);
        let logged = keys.of_connection(binding).last().copied().or(later);
        let logged = logged.or_else(|| {
            let Binding { mut connection, f, z } = *binding;
            core::mem::swap(&mut connection.qpn_f, &mut connection.qpn_z);
            // The half of RC in which the connecting side asks, and K_c is not derived.
            keys.of_connection(&Binding { connection, f: z, z: f }).last().copied()
        })?;
        Some(ConnectionKey { clock: clock.unwrap_or(logged.clock), ..logged })
    }

    fn with(
        &self,
        view: &FrameView,
        binding: &Binding,
        connection: Option<&ConnectionKey>,
    ) -> Result<With, Shut> {
        let under = |key| Ok(With { key, answered: None });
        let connection = connection.ok_or(Shut::NoKey)?;
        let answer = match view {
            FrameView::Rda(it) => Some(it.claims().0),
            FrameView::Gda(it) => Some(it.claims().answer),
            _ => None,
        };
        if let Some(answer) = answer {
            let of = GuideOf {
                binding: *binding,
                chunk_offset: answer.chunk_offset,
                sequence: answer.sequence.0,
                copy: answer.copy,
            };
            let &(iv, key) = self.guides.get(&of).ok_or(Shut::NoRequest)?;
            return Ok(With { key, answered: Some(iv) });
        }
        match guide_of(view) {
            None => under(connection.key),
            Some(guide) if guide.is_rc() => under(connection.key.of_half(fastest(), binding)),
            Some(guide) if guide.slot == Slot::NONE => {
                let of = (*binding, guide.mr, guide.op);
                under(*self.regions.get(&of).ok_or(Shut::NoKey)?)
            }
            Some(guide) => {
                let wqe = self.wqes.get(&(*binding, guide.slot));
                let wqe = wqe.filter(|it| it.0 == guide.generation);
                under(wqe.ok_or(Shut::NoRequest)?.1)
            }
        }
    }

    /// Keeps the keys that an opened frame carries.
    fn learn(&mut self, view: &FrameView, binding: &Binding, payload: &[u8]) {
        match view {
            FrameView::Wqep(it) => {
                for (wqe, _) in it.claims().wqes(payload).flatten() {
                    if wqe.kind != WqeKind::Switch {
                        self.wqes.insert((*binding, wqe.slot), (wqe.generation, wqe.key));
                    }
                }
            }
            FrameView::State(it) => self.learn_state(&it.claims(), binding, payload),
            _ => (),
        }
    }

    fn learn_state(&mut self, state: &State, binding: &Binding, payload: &[u8]) {
        match state.kind {
            StateKind::Rules => {
                let Ok(rule) = Rule::parse(payload) else { return };
                for (op, key) in [(WqeOp::Write, rule.write), (WqeOp::Read, rule.read)] {
                    if let Some(key) = key {
                        self.regions.insert((*binding, rule.mr, op), key);
                    }
                }
            }
            StateKind::Transfer => {
                let Ok(told) = wire::switch::handover(payload) else { return };
                let mut connection = binding.connection;
                core::mem::swap(&mut connection.qpn_f, &mut connection.qpn_z);
                (connection.pd, connection.nonce) = (told.pd, told.nonce);
                connection.era = told.era;
                let next = Binding { connection, f: binding.z, z: binding.f };
                self.later.insert(next, ConnectionKey { key: told.key, clock: ZTime(told.clock) });
            }
            _ => (),
        }
    }
}

fn guide_of(view: &FrameView) -> Option<Guide> {
    match view {
        FrameView::Rd(it) => Some(it.claims().guide),
        FrameView::Gd(it) => Some(it.claims().guide),
        _ => None,
    }
}

/// A frame that is to be opened.
struct Sealed<'a> {
    view: &'a FrameView,
    key: FrameKey,
    answered: Option<Iv>,
    frame: &'a mut [u8],
}

impl Sealed<'_> {
    /// Opens it in place. Returns the time that its tag was right with.
    fn open(&mut self, time: Time32, near: ZTime) -> Option<ZTime> {
        const AROUND: u64 = 1 << 32;
        let first = time.widen(near);
        let before = first.0.checked_sub(AROUND);
        let ahead = (0..=AHEAD_MAX).filter_map(|step| first.0.checked_add(step * AROUND));
        ahead.chain(before).map(ZTime).find(|&time| self.opens_at(time))
    }

    fn opens_at(&mut self, time: ZTime) -> bool {
        let header = self.view.header_len();
        let mut aad = self.frame[..header].to_vec();
        match &self.answered {
            None => aad.extend(aad::tail(time)),
            Some(answered) => aad.extend(aad::answer_tail(time, answered)),
        }
        open_in_place(self.key.as_key(), &self.view.iv(), &aad, &mut self.frame[header..])
    }
}
