//! Writes frames to Z, one after the other, for the connections in turn (§III-C3).
//!
//! Of one connection first what others wait for: EAs, what must be sent again, CQEs, questions.
//! Chunks, which their paths' windows hold back, take turns with these: one frame of either kind. A
//! CQEP says all that an EA says: where both could go, it goes alone (ours). It never keeps an EA
//! waiting: what cannot go now does not count.

use rma_core::{
    backend::{Transmit, TxFrame},
    index_list::IndexList,
    limits::TAG_LEN,
    op::ClassOfService,
    packet::SMALL,
    port::SourcePort,
    time::Instant,
};

use super::{
    Stateful,
    connection::{Connection, Phase, Roles},
    paths::Charge,
    payload::taken_of,
    under_way::{Copy, What},
    work::Way,
};
use crate::{
    clock::ZTime,
    config::Framing,
    counters::StarEvent,
    limits::ENTRIES_MAX,
    names::{Sequence, Side},
    sealer::Sealer,
    tables::Tables,
    wire::{
        Cqep, EaOfF, Gd, Guide, Header, KeyPhase, Rd, State, StateKind,
        data::GUIDE_HEADER_LEN,
        entries::CQE_LEN,
        state::STATE_HEADER_LEN,
        told::{ASK_LEN, CLOSE_LEN},
        work::{TAKEN_LEN, WORK_HEADER_LEN},
    },
};

/// The most CQEPs, questions and probes of a connection that are under way.
const EVENTS_MAX: usize = 32;

/// Beyond so many of them, CQEPs want answers: those that want none stay for longer.
const QUIET_MAX: usize = EVENTS_MAX / 2;

/// The means that a frame is written with.
pub(super) struct Writing<'a, 'b> {
    pub(super) sealer: &'a mut Sealer,
    pub(super) out: &'a mut TxFrame<'b>,
    pub(super) now: Instant,
}

impl Stateful {
    /// Whether anything of a connection may be sent: before the first frame came of Z it is not
    /// known until when frames are valid.
    pub(super) fn may_send(&self, at: u16) -> bool {
        let connection = self.connections.at(at);
        connection.phase == Phase::Open && connection.clock.is_known()
    }

    /// How many frames that no window holds back a connection could send, if there were places for
    /// them.
    pub(super) fn frames_of(&self, at: u16) -> usize {
        let connection = self.connections.at(at);
        if !self.may_send(at) {
            return usize::from(connection.close_is_due) + replies_of(connection);
        }
        match connection.roles {
            Roles::InDoubt(_) => return self.placed_of(at),
            Roles::Commits { .. } => {
                return self.placed_of(at) + usize::from(self.word_is_due(connection));
            }
            Roles::Stay | Roles::Asks(_) | Roles::Drains(_) => {}
        }
        let asks = connection.wants_rule() || connection.greeting_is_due;
        let probes = connection.probe_is_due && !connection.probe_is_under_way;
        let events = usize::from(!connection.done.is_empty())
            + usize::from(asks || probes)
            + usize::from(self.word_is_due(connection));
        let has_events = connection.events.len() < EVENTS_MAX;
        self.placed_of(at) + if has_events { events } else { 0 }
    }

    /// How many of them need no place, or have one.
    pub(super) fn placed_of(&self, at: u16) -> usize {
        let connection = self.connections.at(at);
        usize::from(connection.eas_due)
            + connection.again.len()
            + usize::from(connection.close_is_due)
            + replies_of(connection)
    }

    /// Writes the next frame, and notes what it must be sealed with. Returns whether there was one.
    pub(crate) fn write_next(
        &mut self,
        host: &mut Tables<'_>,
        sealer: &mut Sealer,
        now: Instant,
        out: &mut TxFrame<'_>,
    ) -> bool {
        let writing = &mut Writing { sealer, out, now };
        for chunk in [self.chunks_first, !self.chunks_first] {
            let is_written = if chunk {
                self.write_chunk(host, writing)
            } else {
                self.write_other(host, writing)
            };
            if is_written {
                self.chunks_first = !chunk;
                return true;
            }
        }
        false
    }

    /// Writes the next frame that no window holds back.
    fn write_other(&mut self, host: &mut Tables<'_>, writing: &mut Writing<'_, '_>) -> bool {
        for _ in 0..self.ready.len() {
            if !can_seal(host, writing) {
                return false;
            }
            let Some(at) = self.ready.pop_front(&mut self.ready_links) else { return false };
            self.connections.at_mut(at).is_listed = false;
            let is_written = self.write_of(host, at, writing);
            // The frame that told of its end may have been the last of it.
            if self.connections.get(at).is_some() {
                self.relist(at);
            }
            if is_written {
                return true;
            }
        }
        false
    }

    /// When a frame expires that is sent now. `None` while nothing is known of Z's clock, and then
    /// the connection is in no list.
    pub(super) fn expiry(&self, at: u16, now: Instant) -> Option<ZTime> {
        let connection = self.connections.at(at);
        let lower = connection.clock.lower(now)?;
        Some(ZTime(lower.0.saturating_add(connection.valid_micros)))
    }

    /// Writes the next frame of a connection that no window holds back.
    fn write_of(&mut self, host: &mut Tables<'_>, at: u16, writing: &mut Writing<'_, '_>) -> bool {
        if self.write_reply(host, at, writing) {
            return true;
        }
        let Some(expiry) = self.expiry(at, writing.now) else { return false };
        let may_begin = self.may_begin(at);
        let connection = self.connections.at_mut(at);
        if core::mem::replace(&mut connection.close_is_due, false) {
            let is_written = self.write_close(host, at, expiry, writing);
            self.flush_if_dead(host, writing.now, at);
            return is_written;
        }
        if connection.phase != Phase::Open {
            return false;
        }
        //= star#ours-one-answer
        let is_fused = host.config.settings().framing == Framing::Fused;
        let has_cqep =
            !connection.done.is_empty() && connection.events.len() < EVENTS_MAX && may_begin;
        // A stateful peer reads what is posted from EAs only, and posts no WQEs that answer a CQEP.
        let is_read = is_fused && connection.rc.is_none();
        let answers = is_read && has_cqep && connection.eas_due > 0;
        if connection.eas_due > 0 && !answers {
            connection.eas_due -= 1;
            return self.write_ea(host, at, expiry, writing);
        }
        if !answers && let Some(frame) = self.frames.next_again(&mut connection.again) {
            host.counters.count(StarEvent::Retransmit);
            return self.write_frame(host, frame, expiry, writing);
        }
        if !may_begin {
            return false;
        }
        if connection.events.len() < EVENTS_MAX
            && let Some(what) = self.next_event(host, at, writing.out.bytes.len())
        {
            let charge = Charge::default();
            let Some(frame) = self.frames.add(at, what, charge) else { return false };
            let connection = self.connections.at_mut(at);
            self.shares.sends(&mut connection.of_z);
            connection.events.push_back(&mut self.frame_links, frame);
            return self.write_frame(host, frame, expiry, writing);
        }
        false
    }

    //= star#III-B-cqep
    /// Returns the next news or question for Z.
    fn next_event(&mut self, host: &mut Tables<'_>, at: u16, room: usize) -> Option<What> {
        let word = self.next_word(host, at);
        let connection = self.connections.at_mut(at);
        if word.is_some() || matches!(connection.roles, Roles::InDoubt(_) | Roles::Commits { .. }) {
            return word;
        }
        if !connection.done.is_empty() {
            let room = connection.frame_len_max.min(room);
            let most = match host.config.settings().framing {
                Framing::Faithful => 1,
                Framing::Fused => {
                    let room = room.saturating_sub(WORK_HEADER_LEN + TAKEN_LEN + TAG_LEN);
                    (room / CQE_LEN).clamp(1, ENTRIES_MAX.into())
                }
            };
            // Z is posting, so it will say itself that it has these. A change of roles waits for
            // answers.
            let answers = connection.eas_due > 0 && most > 1;
            let mut wants_answer =
                !answers || connection.roles != Roles::Stay || connection.events.len() >= QUIET_MAX;
            let mut told = IndexList::new();
            while told.len() < most
                && let Some(row) = self.connections.at_mut(at).done.pop_front(&mut self.work_links)
            {
                wants_answer |= !self.may_be_told_quietly(row);
                told.push_back(&mut self.work_links, row);
            }
            return Some(What::Cqes { told, wants_answer });
        }
        if core::mem::replace(&mut connection.greeting_is_due, false) {
            return Some(What::Greeting);
        }
        if let Some(mr) = connection.wanted.filter(|_| connection.wants_rule()) {
            connection.ask_is_under_way = true;
            connection.asks = connection.asks.wrapping_add(1);
            return Some(What::Ask { mr, number: connection.asks });
        }
        if connection.probe_is_due && !connection.probe_is_under_way {
            (connection.probe_is_due, connection.probe_is_under_way) = (false, true);
            return Some(What::Probe);
        }
        None
    }

    //= star#III-B-ea
    /// Acknowledges all that was taken of Z.
    fn write_ea(
        &mut self,
        host: &Tables<'_>,
        at: u16,
        expiry: ZTime,
        writing: &mut Writing<'_, '_>,
    ) -> bool {
        let connection = self.connections.at_mut(at);
        let header = header_of(connection, expiry, writing.sealer);
        let (state_number, state_parts) = connection.state;
        let mut octets = [0; WORK_HEADER_LEN];
        EaOfF { header, state_number, state_parts }.emit(&mut octets);
        let payload = taken_of(connection);
        let len = WORK_HEADER_LEN + TAKEN_LEN + TAG_LEN;
        writing.out.bytes[WORK_HEADER_LEN..][..TAKEN_LEN].copy_from_slice(&payload);
        let iv = header.iv(Side::Stateful);
        writing.sealer.push(&connection.key, iv, &octets, expiry);
        send(host, connection, &octets, len, writing);
        true
    }

    /// Tells Z that the connection has ended. `false` if that has no room.
    fn write_close(
        &mut self,
        host: &Tables<'_>,
        at: u16,
        expiry: ZTime,
        writing: &mut Writing<'_, '_>,
    ) -> bool {
        let len = STATE_HEADER_LEN + CLOSE_LEN + TAG_LEN;
        if len > writing.out.bytes.len() {
            return false;
        }
        let connection = self.connections.at_mut(at);
        // It changes nothing that a work request is about: nobody waits until it is dead.
        let last_expiry = connection.last_expiry;
        let header = header_of(connection, expiry, writing.sealer);
        connection.last_expiry = last_expiry;
        let (kind, out) = (StateKind::Close, &mut *writing.out.bytes);
        let octets = State::write_whole(header, Side::Stateful, kind, 0, &[0; CLOSE_LEN], out);
        let iv = header.iv(Side::Stateful);
        writing.sealer.push(&connection.key, iv, &octets, expiry);
        send(host, connection, &octets, len, writing);
        true
    }

    //= star#III-B-rd
    //= star#III-B-gd
    /// Writes a frame under way that is in no list, and notes that it was sent. `false` if it has
    /// no room, or what it is about is no longer there, with which the connection ends.
    pub(super) fn write_frame(
        &mut self,
        host: &mut Tables<'_>,
        frame: u16,
        expiry: ZTime,
        writing: &mut Writing<'_, '_>,
    ) -> bool {
        let at = self.frames.at(frame).connection;
        let now = writing.now;
        let word = self.word(host, now, at, &self.frames.at(frame).what);
        let number = match &self.frames.at(frame).what {
            What::Chunk { work, .. } if self.is_pushed(*work) && self.is_rc(at) => {
                self.next_number(at).unwrap_or_default()
            }
            // Z's application is told it with the completion.
            What::Chunk { completes: Some(Sequence(place)), .. } => *place,
            _ => self.frames.number(frame),
        };
        let wants_answer = self.wants_answer(host, frame, now);
        // A later step may not fail once the frame has its counter.
        if let Err(gone) = self.fill(host, frame, word.as_ref(), writing.out.bytes) {
            let connection = self.connections.at_mut(at);
            self.frames.not_yet(&mut connection.again, frame);
            if let Some(row) = gone {
                self.fail_locally(host, now, row);
            }
            return false;
        }
        let connection = self.connections.at_mut(at);
        let header = header_of(connection, expiry, writing.sealer);
        let iv = header.iv(Side::Stateful);
        let sent = self.frames.at(frame);
        match &sent.what {
            What::Chunk { work, offset, len, completes } => {
                let Some(transfer) = &self.works[*work].transfer else { return false };
                let guide = Guide {
                    header,
                    op: transfer.op,
                    slot: transfer.slot,
                    generation: transfer.generation,
                    mr: transfer.there.mr,
                    mr_offset: transfer.there.offset,
                    wqe_len: transfer.wqe_len,
                    chunk_offset: *offset,
                    chunk_len: *len,
                    sequence: Sequence(number),
                    copy: sent.tries,
                };
                let mut octets = [0; GUIDE_HEADER_LEN];
                let mut frame_len = GUIDE_HEADER_LEN + TAG_LEN;
                match transfer.way {
                    Way::Push => {
                        let completes = completes.is_some();
                        Rd { guide, wants_answer, completes }.emit(&mut octets);
                        frame_len += usize::from(*len);
                    }
                    Way::Pull => Gd { guide }.emit(&mut octets),
                }
                writing.sealer.push(&transfer.key, iv, &octets, expiry);
                send(host, connection, &octets, frame_len, writing);
            }
            What::Cqes { .. } | What::Probe => {
                let (count, is_wanted) = match &sent.what {
                    What::Cqes { told, wants_answer } => (told.len(), *wants_answer),
                    _ => (1, true),
                };
                let wants_answer = is_wanted || sent.tries > 0;
                let (state_number, state_parts) = connection.state;
                let mut octets = [0; WORK_HEADER_LEN];
                Cqep { header, count: count as u8, wants_answer, state_number, state_parts }
                    .emit(&mut octets);
                let len = WORK_HEADER_LEN + TAKEN_LEN + count * CQE_LEN + TAG_LEN;
                writing.sealer.push(&connection.key, iv, &octets, expiry);
                send(host, connection, &octets, len, writing);
                if host.config.settings().framing == Framing::Fused {
                    connection.eas_due = 0;
                }
            }
            What::Greeting | What::Ask { .. } | What::Switch | What::Transfer | What::Commit => {
                let mut octets = [0; STATE_HEADER_LEN];
                let number = if let What::Ask { number, .. } = sent.what { number } else { 0 };
                let question = match sent.what {
                    What::Greeting => StateKind::Initial,
                    _ => StateKind::Ask,
                };
                let (kind, payload_len) =
                    word.map_or((question, ASK_LEN), |word| (word.kind, word.payload().len()));
                let state = State {
                    header,
                    sender: Side::Stateful,
                    kind,
                    number,
                    part: 0,
                    of: 1,
                    payload_len: payload_len as u16,
                };
                state.emit(&mut octets);
                let len = STATE_HEADER_LEN + payload_len + TAG_LEN;
                writing.sealer.push(&connection.key, iv, &octets, expiry);
                send(host, connection, &octets, len, writing);
            }
        }
        self.frames.sent(frame, Copy { iv, sent_at: now, expiry });
        true
    }
}

/// How many replies a connection has for its peer, if that is stateful as well: whatever its phase.
fn replies_of(connection: &Connection) -> usize {
    connection.rc.as_ref().map_or(0, |responder| responder.replies.len())
}

/// Whether a frame can be sealed, which is counted if not.
pub(super) fn can_seal(host: &Tables<'_>, writing: &Writing<'_, '_>) -> bool {
    let can_seal = writing.sealer.can_seal();
    if !can_seal {
        host.counters.count(StarEvent::SealRefused);
    }
    can_seal
}

/// The header of the next frame of a connection, with a counter never used before.
fn header_of(connection: &mut Connection, expiry: ZTime, sealer: &mut Sealer) -> Header {
    connection.last_expiry = connection.last_expiry.max(expiry);
    sealer.header(connection.name, KeyPhase::Even, expiry)
}

/// Puts the header before the payload, and says where the frame goes.
fn send<const LEN: usize>(
    host: &Tables<'_>,
    connection: &Connection,
    octets: &[u8; LEN],
    len: usize,
    writing: &mut Writing<'_, '_>,
) {
    let Writing { out, now, .. } = writing;
    out.bytes[..LEN].copy_from_slice(octets);
    let class = if len <= SMALL { ClassOfService::Latency } else { ClassOfService::Throughput };
    let ends = [connection.own, connection.peer];
    let place = host.config.place();
    let port = if connection.rc.is_some() { place.stateful_port } else { place.stateless_port };
    out.transmit = Some(Transmit {
        source_port: SourcePort::of_turn(*now),
        packet_len_max: connection.packet_len_max,
        tenant: host.tenant_of(connection.portal.into()),
        ..Transmit::new(ends, port, class, len)
    });
}
