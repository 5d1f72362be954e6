//! The answers of this host to the peer's requests, if both sides are stateful (RC).
//!
//! | frame | what it does |
//! |---|---|
//! | RD of a message | lands in the RECV at its place; the last one completes it |
//! | RD of a WRITE | lands in a memory region that allows it |
//! | GD | is answered with the data of a memory region that allows it |
//! | CQEP | completes RECVs whose data is there: those with immediates; or asks who is there |
//! | EA | says which RECVs the peer has posted |
//! | STATE close | says that the peer has ended the connection |
//!
//! Each RD has a number and is taken once, and none after it has expired: so nothing lands after
//! the peer has been told that it did (S2). A message lands as long as its RECV is not complete,
//! and that once (S3). A message without a RECV is refused, and so is one that is too long: when
//! its RECV is the first, with which the connection ends at both sides. What does not fit the
//! rights, the span or the protection domain of the QP is denied, whoever has the keys (S5).
//! Nothing has effect that cannot be answered.

use rma_core::{
    backend::RxFrame,
    seal::Authentic,
    time::{Clock, Instant},
};

use super::{
    Stateful,
    connection::Phase,
    receive::Seen,
    report,
    responder::{Reply, What},
};
use crate::{
    counters::{StarDrop, StarEvent},
    mr_table::Access,
    names::{Side, Slot, Taken},
    portal::Report,
    tables::{Tables, z_time},
    verbs::{WcStatus, WqeOp},
    wire::{
        Answer, Cqe, Cqep, EaEntry, FRAME_LEN_MIN, FrameView, Guide, Rd, StateKind, told::CLOSE_LEN,
    },
};

/// How far behind the first RECV that waits another may be that takes data.
const RECVS_OPEN: u32 = 64;

/// A RECV of this host, by its place.
enum Recv {
    /// It waits, and is this work request.
    Open(u16),
    /// It is complete.
    Over,
    /// It was not posted, or so many are before it that it takes nothing yet.
    NotYet,
}

impl Stateful {
    /// Looks at a request's claims, if it can be of a connection that there is: between two
    /// stateful sides, by its names there, and from the peer.
    pub(super) fn look_at_request(
        &self,
        host: &Tables<'_>,
        frame: &RxFrame<'_>,
        view: FrameView,
        now: Instant,
    ) -> Result<Seen, StarDrop> {
        let header = view.header();
        let at = self.connections.find(header.connection.qpn_z).ok_or(StarDrop::WrongPort)?;
        let connection = self.connections.at(at);
        let responder = connection.rc.as_ref().ok_or(StarDrop::WrongPort)?;
        if !host.config.place().addresses.contains(frame.destination) {
            return Err(StarDrop::NotForThisHost);
        }
        if responder.name != header.connection || connection.peer != frame.source {
            return Err(StarDrop::UnknownConnection);
        }
        let is_of_rc = match &view {
            FrameView::Rd(rd) => rd.claims().guide.is_rc(),
            FrameView::Gd(gd) => gd.claims().guide.is_rc(),
            FrameView::State(state) => state.claims().kind == StateKind::Close,
            view => matches!(view, FrameView::Cqep(_) | FrameView::EaOfF(_)),
        };
        if !is_of_rc {
            return Err(StarDrop::WrongPort);
        }
        let (time, key) = (header.time.widen(z_time(now)), responder.key);
        Ok(Seen { view, connection: at, time, key, answers: None })
    }

    /// Takes a frame of the peer that asks for something.
    pub(super) fn take_request(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        clock: &impl Clock,
        seen: &Authentic<&Seen>,
        frame: &RxFrame<'_>,
    ) {
        let (at, header) = (seen.connection, seen.view.header());
        // An earlier frame of this batch may have ended it.
        let responder = self.connections.get(at).and_then(|connection| connection.rc.as_ref());
        let Some(responder) = responder.filter(|it| it.name == header.connection) else {
            host.counters.drop_frame(StarDrop::LateOrUnsolicited);
            return;
        };
        let has_room = self.replies.has_room(&responder.replies);
        let phase = self.connections.at(at).phase;
        // An expired frame may be a recording of a peer that is gone.
        if phase == Phase::Open && z_time(now) < seen.time {
            self.note_asked(host, now, at, frame.reply_len_max);
        }
        let (start, len) = (seen.view.header_len(), seen.view.payload_len());
        let payload = frame.bytes.get(start..start + len).unwrap_or_default();
        if let FrameView::EaOfF(_) = &seen.view {
            // Its word was true when it was sent, and stays so.
            if let Some(octets) = payload.first_chunk().filter(|_| phase == Phase::Open) {
                self.recvs_are_there(at, Taken::from_octets(*octets));
                self.relist(at);
            }
            return;
        }
        if let FrameView::State(_) = &seen.view {
            self.connections.at_mut(at).is_closed_there |= *payload == [0; CLOSE_LEN];
            return self.end_if_closed_there(host, now, at);
        }
        if !has_room {
            host.counters.drop_frame(StarDrop::NoRoom);
            return;
        }
        let outcome = match (phase, &seen.view) {
            _ if z_time(now) >= seen.time => {
                host.counters.count(StarEvent::Expired);
                Some((Answer::Clock, 0))
            }
            (Phase::Open, FrameView::Rd(rd)) => {
                self.take_data(host, now, clock, seen, &rd.claims(), payload)
            }
            (Phase::Open, FrameView::Cqep(_)) => self.take_cqes(host, at, payload),
            (Phase::Open, _) => Some((Answer::Done, 0)),
            (_, view) => {
                host.counters.count(StarEvent::Gone);
                self.answer_of_ended(at, view, payload)
            }
        };
        let Some((answer, taken)) = outcome else { return };
        let what = match &seen.view {
            FrameView::Gd(gd) => {
                What::Data { guide: gd.claims().guide, answered: seen.view.iv(), answer }
            }
            _ => What::Ea(EaEntry { counter: header.counter, taken, answer }),
        };
        if let Some(responder) = &mut self.connections.at_mut(at).rc {
            self.replies.push(&mut responder.replies, Reply { what, came_at: now });
        }
        self.relist(at);
    }

    /// The peer was heard.
    fn note_asked(&mut self, host: &mut Tables<'_>, now: Instant, at: u16, reply_len_max: usize) {
        let connection = self.connections.at_mut(at);
        let len_max = connection.frame_len_max.min(reply_len_max);
        connection.frame_len_max = len_max.max(FRAME_LEN_MIN);
        self.is_heard(host, at);
        self.watch(at, now);
    }

    /// An authentic frame of the peer has come: if it is the first one, work may begin.
    pub(super) fn is_heard(&mut self, host: &mut Tables<'_>, at: u16) {
        let connection = self.connections.at_mut(at);
        let (portal, qp) = (connection.portal, connection.qp);
        if connection.rc.is_some() && !core::mem::replace(&mut connection.is_ready, true) {
            report(host, portal, &Report::Ready { qp });
        }
    }

    /// A connection has ended: what is said of the message to the first RECV that is not complete.
    pub(super) fn note_end(&mut self, at: u16, answer: Answer) {
        let connection = self.connections.at_mut(at);
        let first = connection.queues[Side::Stateful as usize].recvs.front();
        let place = first.map_or(connection.taken_recv.0, |row| self.works[row].sequence);
        if let Some(responder) = &mut connection.rc {
            responder.ended.get_or_insert((place, answer));
        }
    }

    /// Returns the answer to a frame of a connection that has ended. What was done is done. `None`
    /// if it is behind a message that was refused: of that one the peer must hear first.
    fn answer_of_ended(&self, at: u16, view: &FrameView, payload: &[u8]) -> Option<(Answer, u32)> {
        let (place, answer) = self.connections.at(at).rc.as_ref()?.ended?;
        let is_before = |it: u32| place.wrapping_sub(it).cast_signed() > 0;
        let behind = (answer == Answer::Gone).then_some((Answer::Gone, 0));
        match view {
            FrameView::Rd(rd) if rd.claims().guide.op == WqeOp::Recv => {
                match rd.claims().guide.generation.0 {
                    it if is_before(it) => Some((Answer::Done, 0)),
                    it if it == place => Some((answer, 0)),
                    _ => behind,
                }
            }
            FrameView::Cqep(_) => {
                let is_done = |cqe: &Cqe| cqe.slot == Slot::RC && is_before(cqe.sequence.0);
                let done = Cqep::cqes(payload).map_while(|cqe| cqe.ok().filter(is_done)).count();
                let taken = 1_u32.checked_shl(done as u32).unwrap_or(0).wrapping_sub(1);
                if done > 0 { Some((Answer::Done, taken)) } else { behind }
            }
            _ => Some((Answer::Gone, 0)),
        }
    }

    //= star#ours-rc-once
    /// Data comes. `None` if it has come before, or is too late: it is not answered.
    fn take_data(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        clock: &impl Clock,
        seen: &Authentic<&Seen>,
        rd: &Rd,
        payload: &[u8],
    ) -> Option<(Answer, u32)> {
        let at = seen.connection;
        let number = rd.guide.sequence.0;
        let is_fresh = |it: &Self| {
            it.connections.at(at).rc.as_ref().is_some_and(|it| it.taken.is_fresh(number))
        };
        if !is_fresh(self) {
            host.counters.drop_frame(StarDrop::Again);
            return None;
        }
        let answer = match rd.guide.op {
            WqeOp::Write => self.land_write(host, clock, seen, &rd.guide, payload)?,
            _ => self.land_message(host, now, at, rd, payload),
        };
        if answer == Answer::Done
            && let Some(responder) = &mut self.connections.at_mut(at).rc
        {
            responder.taken.take(number);
        }
        Some((answer, 0))
    }

    /// Data of a WRITE. `None` if it has expired meanwhile.
    fn land_write(
        &self,
        host: &Tables<'_>,
        clock: &impl Clock,
        seen: &Authentic<&Seen>,
        guide: &Guide,
        payload: &[u8],
    ) -> Option<Answer> {
        let pd = self.connections.at(seen.connection).local_pd;
        let (offset, len) = (guide.octets_of_mr().start, payload.len() as u64);
        let Ok(span) = host.mrs.span(pd, guide.mr, Access::REMOTE_WRITE, offset, len) else {
            host.counters.count(StarEvent::Denied);
            return Some(Answer::Denied);
        };
        // Read right before the copy, not at the start of the turn.
        if z_time(clock.now()) >= seen.time {
            host.counters.count(StarEvent::Expired);
            return None;
        }
        let copied = span.memory.copy_in(span.offset, payload);
        debug_assert!(copied.is_ok(), "it was looked at");
        if z_time(clock.now()) >= seen.time {
            host.counters.count(StarEvent::LateEffect);
        }
        Some(Answer::Done)
    }

    /// Data of a message.
    fn land_message(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        at: u16,
        rd: &Rd,
        payload: &[u8],
    ) -> Answer {
        let guide = &rd.guide;
        let row = match self.recv_at(at, guide.generation.0) {
            Recv::Open(row) => row,
            Recv::Over => return Answer::Done,
            Recv::NotYet => return self.has_none(at, guide.generation.0),
        };
        let recv = &self.works[row];
        if guide.wqe_len > recv.len {
            return self.refuse_message(host, now, row, WcStatus::LocLenErr);
        }
        let pd = self.connections.at(at).local_pd;
        let offset = recv.here.offset + u64::from(guide.chunk_offset);
        let len = payload.len() as u64;
        let span = host.mrs.span(pd, recv.here.mr, Access::LOCAL_WRITE, offset, len);
        // No bytes need no memory.
        let has_landed = payload.is_empty()
            || span.is_ok_and(|span| span.memory.copy_in(span.offset, payload).is_ok());
        if !has_landed {
            return self.refuse_message(host, now, row, WcStatus::LocProtErr);
        }
        if rd.completes {
            self.complete_recv(host, row, guide.wqe_len, None, false);
        }
        Answer::Done
    }

    /// The RECV of this host at a place of its queue.
    fn recv_at(&self, at: u16, place: u32) -> Recv {
        let connection = self.connections.at(at);
        let recvs = &connection.queues[Side::Stateful as usize].recvs;
        let is_posted = connection.taken_recv.0.wrapping_sub(place).cast_signed() > 0;
        let first = recvs.front().map(|row| self.works[row].sequence);
        let behind = first.map_or(0, |first| place.wrapping_sub(first));
        if !is_posted || (behind.cast_signed() >= 0 && behind >= RECVS_OPEN) {
            return Recv::NotYet;
        }
        let mut open = recvs.iter(&self.work_links).take(RECVS_OPEN as usize);
        match open.find(|&row| self.works[row].sequence == place) {
            Some(row) => Recv::Open(row),
            None => Recv::Over,
        }
    }

    /// There is no RECV at a place. Whoever asks is told when there is.
    fn has_none(&mut self, at: u16, place: u32) -> Answer {
        if let Some(responder) = &mut self.connections.at_mut(at).rc
            && place.wrapping_sub(responder.awaited).cast_signed() >= 0
        {
            responder.awaited = place.wrapping_add(1);
        }
        Answer::Busy
    }

    /// A RECV was posted: who waits for it is told.
    pub(super) fn recv_is_posted(&mut self, at: u16, place: u32) {
        let connection = self.connections.at_mut(at);
        let Some(responder) = &mut connection.rc else { return };
        connection.taken_recv.0 = place.wrapping_add(1);
        if responder.awaited.wrapping_sub(place).cast_signed() > 0 {
            connection.eas_due = 1;
        }
    }

    /// A message does not fit its RECV: both fail, and the connection ends, but not before the
    /// messages before it.
    fn refuse_message(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        row: u16,
        status: WcStatus,
    ) -> Answer {
        let at = self.works[row].connection;
        let connection = self.connections.at_mut(at);
        if connection.queues[Side::Stateful as usize].recvs.front() != Some(row) {
            return Answer::Busy;
        }
        let answer = if status == WcStatus::LocLenErr { Answer::Denied } else { Answer::Gone };
        self.note_end(at, answer);
        self.works[row].status = status;
        self.fail(host, now, at, status);
        answer
    }

    /// Completes a RECV: so many octets, and perhaps an immediate, of a WRITE or of a message.
    fn complete_recv(
        &mut self,
        host: &mut Tables<'_>,
        row: u16,
        byte_len: u32,
        immediate: Option<u32>,
        is_of_write: bool,
    ) {
        let at = self.works[row].connection;
        let recvs = &mut self.connections.at_mut(at).queues[Side::Stateful as usize].recvs;
        recvs.remove(&mut self.work_links, row);
        let work = &mut self.works[row];
        (work.byte_len, work.immediate, work.is_of_write) = (byte_len, immediate, is_of_write);
        self.succeed(host, row);
    }

    /// Messages with immediates are complete, or the peer asks who is there. `None` if it makes no
    /// sense.
    fn take_cqes(
        &mut self,
        host: &mut Tables<'_>,
        at: u16,
        payload: &[u8],
    ) -> Option<(Answer, u32)> {
        let mut taken = 0;
        for (bit, cqe) in Cqep::cqes(payload).enumerate() {
            let is_message = |cqe: &Cqe| cqe.op == WqeOp::Recv && cqe.status == WcStatus::Success;
            let is_defined = |cqe: &Cqe| match cqe.slot {
                Slot::RC => is_message(cqe),
                slot => slot == Slot::NONE,
            };
            let Some(cqe) = cqe.ok().filter(is_defined) else {
                host.counters.drop_frame(StarDrop::Nonsense);
                return None;
            };
            let is_message = cqe.slot == Slot::RC;
            match self.recv_at(at, cqe.sequence.0) {
                _ if !is_message => {}
                Recv::Open(row) => {
                    let Cqe { byte_len, immediate, is_of_write, .. } = cqe;
                    self.complete_recv(host, row, byte_len, immediate, is_of_write);
                }
                Recv::Over => {}
                Recv::NotYet => {
                    let busy = self.has_none(at, cqe.sequence.0);
                    return Some(if taken == 0 { (busy, 0) } else { (Answer::Done, taken) });
                }
            }
            taken |= 1 << bit;
        }
        Some((Answer::Done, taken))
    }
}
