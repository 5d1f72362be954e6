//! Opens the frames that Z has sent, and takes what they say (§III-C).
//!
//! What Z tells by itself is under K_c. What answers an RD or GD is under the key of that one, and
//! its tag covers the IV of the very copy that it answers: it is looked for among the frames under
//! way before it is opened, and what is found there decides what it is opened with.

use arrayvec::ArrayVec;
use rma_core::{
    backend::{BATCH, RxFrame},
    op::OpStatus,
    seal::{Authentic, FrameSet},
    time::{Clock, Instant},
};

use super::{
    Stateful,
    connection::{Connection, Phase, Roles},
    paths::Outcome,
    under_way::{Copy, Sent, What},
    work::Way,
};
use crate::{
    clock::ZTime,
    counters::{StarDrop, StarEvent},
    keys::FrameKey,
    names::{Sequence, Side},
    sealer::{expect, expect_answer},
    tables::Tables,
    verbs::{WcStatus, WqeOp},
    wire::{
        Answer, ChunkAnswer, EaEntry, EaOfZ, FRAME_LEN_MIN, FrameView, StateKind,
        data::{GDA_HEADER_LEN, GUIDE_HEADER_LEN, RDA_HEADER_LEN},
        state::STATE_HEADER_LEN,
        work::WORK_HEADER_LEN,
    },
};

/// The claims of a received frame, and its connection if its tag is right.
pub(super) struct Seen {
    pub(super) view: FrameView,
    pub(super) connection: u16,
    /// Z's clock when it was sealed. Of a frame that asks (RC), when it expires.
    pub(super) time: ZTime,
    pub(super) key: FrameKey,
    /// The copy that it answers, and the number of its frame.
    pub(super) answers: Option<(Copy, u32)>,
}

impl Stateful {
    //= star#IV-B3-checked-on-arrival
    /// Takes frames that came to the port of stateful processing: at most a batch.
    pub(crate) fn handle_frames(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        clock: &impl Clock,
        frames: &mut [RxFrame<'_>],
    ) {
        let mut all: ArrayVec<Option<Seen>, BATCH> = ArrayVec::new();
        let mut which = FrameSet::default();
        for (index, frame) in frames.iter().enumerate() {
            match self.look(host, frame, now) {
                Ok(seen) => {
                    self.expect(index, &seen, frame.bytes);
                    which.insert(index);
                    all.push(Some(seen));
                }
                Err(reason) => {
                    host.counters.drop_frame(reason);
                    all.push(None);
                }
            }
        }
        let authentic = self.batch.open(host.aead, frames, which);
        for (index, (frame, seen)) in frames.iter().zip(&all).enumerate() {
            let Some(seen) = seen else { continue };
            let Some(tag) = authentic.right_tag(index) else {
                host.counters.drop_frame(StarDrop::Unauthenticated);
                continue;
            };
            let seen = Authentic::new(seen, tag);
            if seen.view.sender() == Side::Stateful {
                self.take_request(host, now, clock, &seen, frame);
                continue;
            }
            let (start, len) = (seen.view.header_len(), seen.view.payload_len());
            let payload = frame.bytes.get(start..start + len).unwrap_or_default();
            // An earlier frame of this batch may have ended the connection.
            let name = &seen.view.header().connection;
            let connection = self.connections.named(seen.connection, name);
            let takes = |connection: &Connection| {
                // In doubt there is one thing to hear, and all else may be of a Z that is none.
                let is_abort = matches!(&seen.view, FrameView::State(state)
                    if state.claims().kind == StateKind::Abort);
                connection.phase == Phase::Open
                    && (is_abort || !matches!(connection.roles, Roles::InDoubt(_)))
            };
            if !connection.is_some_and(takes) {
                host.counters.drop_frame(StarDrop::LateOrUnsolicited);
                continue;
            }
            self.is_heard(host, seen.connection);
            self.note_heard(now, &seen, frame.reply_len_max);
            self.handle(host, now, clock, &seen, payload);
            self.end_if_closed_there(host, now, seen.connection);
        }
    }

    /// Returns the claims of a received frame, if it can be of a connection that there is.
    fn look(&self, host: &Tables<'_>, frame: &RxFrame<'_>, now: Instant) -> Result<Seen, StarDrop> {
        let view = FrameView::parse(frame.bytes).map_err(|_malformed| StarDrop::Malformed)?;
        if view.sender() == Side::Stateful {
            return self.look_at_request(host, frame, view, now);
        }
        if !host.config.place().addresses.contains(frame.destination) {
            return Err(StarDrop::NotForThisHost);
        }
        let header = view.header();
        let unknown = StarDrop::UnknownConnection;
        let at = self.connections.find(header.connection.qpn_f).ok_or(unknown)?;
        let connection = self.connections.at(at);
        if connection.name != header.connection || connection.peer != frame.source {
            return Err(unknown);
        }
        let (key, answers) = match &view {
            FrameView::Wqep(_) | FrameView::State(_) if connection.rc.is_some() => {
                return Err(StarDrop::WrongPort);
            }
            FrameView::Wqep(_) | FrameView::EaOfZ(_) | FrameView::State(_) => {
                (connection.key, None)
            }
            FrameView::Rda(rda) => self.asked(at, Way::Push, &rda.claims().0)?,
            FrameView::Gda(gda) => self.asked(at, Way::Pull, &gda.claims().answer)?,
            // Z sends no others.
            _ => return Err(StarDrop::LateOrUnsolicited),
        };
        let time = connection.clock.widen(header.time, now);
        Ok(Seen { view, connection: at, time, key, answers })
    }

    /// The key and the copy of the frame that an RDA or GDA answers.
    fn asked(
        &self,
        connection: u16,
        way: Way,
        answer: &ChunkAnswer,
    ) -> Result<(FrameKey, Option<(Copy, u32)>), StarDrop> {
        let told = answer.sequence;
        // The key of a chunk, and its copy, if it is this one: what completes a RECV is not named
        // by a number of ours.
        let is_this = |at: u16, named: Option<Sequence>| {
            let sent = self.frames.at(at);
            let What::Chunk { work, offset, completes, .. } = sent.what else { return None };
            let transfer = self.works[work].transfer.as_ref()?;
            let is_this = sent.connection == connection
                && sent.tries == answer.copy
                && completes == named
                && offset == answer.chunk_offset
                && (transfer.way, transfer.op) == (way, answer.op);
            let found = (sent.copy?, self.frames.number(at));
            is_this.then_some((transfer.key, Some(found)))
        };
        let by_number = self.frames.find(told.0).and_then(|at| is_this(at, None));
        let by_recv = || is_this(self.frames.find_completing(connection, told)?, Some(told));
        by_number.or_else(by_recv).ok_or(StarDrop::LateOrUnsolicited)
    }

    /// The place in its queue of the RECV that the message of a work request goes to.
    pub(super) fn place_of_recv(&self, row: u16) -> Sequence {
        let work = &self.works[row];
        Sequence(work.partner.map_or(work.sequence, |recv| self.works[recv].sequence))
    }

    /// Notes what a frame is opened with.
    fn expect(&mut self, index: usize, seen: &Seen, frame: &[u8]) {
        let (batch, iv, time) = (&mut self.batch, seen.view.iv(), seen.time);
        batch.set_key(index, seen.key.as_key());
        match (&seen.answers, seen.view.header_len()) {
            (Some((copy, _)), RDA_HEADER_LEN) => {
                expect_answer::<RDA_HEADER_LEN>(batch, index, iv, frame, time, &copy.iv);
            }
            (Some((copy, _)), _) => {
                expect_answer::<GDA_HEADER_LEN>(batch, index, iv, frame, time, &copy.iv);
            }
            (None, GUIDE_HEADER_LEN) => {
                expect::<GUIDE_HEADER_LEN>(batch, index, iv, frame, time);
            }
            (None, STATE_HEADER_LEN) => {
                expect::<STATE_HEADER_LEN>(batch, index, iv, frame, time);
            }
            (None, _) => expect::<WORK_HEADER_LEN>(batch, index, iv, frame, time),
        }
    }

    fn note_heard(&mut self, now: Instant, seen: &Authentic<&Seen>, reply_len_max: usize) {
        let at = seen.connection;
        let connection = self.connections.at_mut(at);
        let is_of_now = connection.clock.is_within(seen.time, connection.valid_micros, now);
        connection.clock.heard(seen.time, now);
        let len_max = connection.frame_len_max.min(reply_len_max);
        connection.frame_len_max = len_max.max(FRAME_LEN_MIN);
        // Or whoever has a recording could keep this side from asking after a peer that has died.
        if is_of_now {
            self.watch(at, now);
        }
        // Before the first frame it was not known until when frames are valid.
        self.relist(at);
    }

    fn handle(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        clock: &impl Clock,
        seen: &Authentic<&Seen>,
        payload: &[u8],
    ) {
        let (at, time) = (seen.connection, seen.time);
        match &seen.view {
            FrameView::Wqep(wqep) => {
                self.take_wqep(host, now, seen, &wqep.claims(), payload);
            }
            FrameView::EaOfZ(_) => {
                for entry in EaOfZ::entries(payload) {
                    match entry {
                        Ok(entry) => self.take_ea(host, now, at, time, &entry),
                        Err(_) => host.counters.drop_frame(StarDrop::Nonsense),
                    }
                }
            }
            FrameView::State(state) => {
                self.take_state(host, now, seen, &state.claims(), payload);
            }
            // `look` lets no others pass than the answers to RDs and GDs.
            _ => self.take_answer(host, now, clock, seen, payload),
        }
    }

    //= star#III-B-rda
    //= star#III-B-gda
    /// Z has answered an RD or GD.
    fn take_answer(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        clock: &impl Clock,
        seen: &Authentic<&Seen>,
        payload: &[u8],
    ) {
        let (answer, is_pull) = match &seen.view {
            FrameView::Rda(rda) => (rda.claims().0.answer, false),
            FrameView::Gda(gda) => (gda.claims().answer.answer, true),
            _ => return,
        };
        // The same answer twice in a batch is taken once.
        let found = seen.answers.and_then(|(copy, number)| {
            let at = self.frames.find(number)?;
            (self.frames.at(at).copy?.iv == copy.iv).then_some((at, copy))
        });
        let Some((frame, copy)) = found else {
            host.counters.drop_frame(StarDrop::LateOrUnsolicited);
            return;
        };
        let What::Chunk { work: row, len, .. } = self.frames.at(frame).what else { return };
        let at = seen.connection;
        self.connections.at_mut(at).clock.answered(seen.time, copy.sent_at, now);
        match answer {
            Answer::Done => {
                if is_pull {
                    if payload.len() != usize::from(len) {
                        host.counters.drop_frame(StarDrop::Nonsense);
                        return;
                    }
                    if !self.land_chunk(host, now, clock, frame, payload) {
                        return;
                    }
                }
                self.chunk_is_done(host, now, frame);
            }
            Answer::Denied => self.chunk_is_denied(host, now, at, row),
            other => self.not_done(host, now, frame, other, seen.time),
        }
    }

    /// Tells its path what became of the live copy of a chunk.
    pub(super) fn note_outcome(&mut self, now: Instant, frame: u16, status: OpStatus) {
        let sent = self.frames.at(frame);
        if let (&What::Chunk { work, len, .. }, Some(copy)) = (&sent.what, sent.copy)
            && let Some(transfer) = &self.works[work].transfer
        {
            let outcome = Outcome { status, len, sent_at: copy.sent_at, charge: sent.charge };
            let path = self.connections.at(sent.connection).paths[transfer.way as usize];
            self.paths.note(path, now, &outcome);
        }
    }

    /// A chunk takes nothing of its path's window any longer.
    pub(super) fn free_charge(&mut self, frame: u16) {
        let charge = self.frames.take_charge(frame);
        let sent = self.frames.at(frame);
        if let What::Chunk { work, .. } = sent.what
            && let Some(transfer) = &self.works[work].transfer
        {
            let path = self.connections.at(sent.connection).paths[transfer.way as usize];
            self.paths.free(path, charge);
        }
    }

    /// A chunk of a work request has landed, here or at Z.
    fn chunk_is_done(&mut self, host: &mut Tables<'_>, now: Instant, frame: u16) {
        let sent = self.frames.at(frame);
        let What::Chunk { work: row, completes, .. } = sent.what else { return };
        let at = sent.connection;
        self.note_outcome(now, frame, OpStatus::Ok);
        let _ = self.forget_frame(frame);
        if self.works[row].transfer.is_some_and(|transfer| transfer.is_done()) {
            self.finish(host, row, completes.is_some());
        }
        self.advance(host, now, at);
    }

    /// Z does not allow what a work request does to its memory.
    fn chunk_is_denied(&mut self, host: &mut Tables<'_>, now: Instant, at: u16, row: u16) {
        let work = &mut self.works[row];
        let is_one_sided = work.owner == Side::Stateful && work.op != WqeOp::Send;
        work.status = match work.recv {
            // In RC: it is longer than its RECV.
            Some(_) if work.op == WqeOp::Send => WcStatus::RemInvReqErr,
            _ if is_one_sided => WcStatus::RemAccessErr,
            _ => WcStatus::RemOpErr,
        };
        let status = work.status;
        self.fail(host, now, at, status);
    }

    /// Z has said why a frame had no effect.
    fn not_done(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        frame: u16,
        answer: Answer,
        time: ZTime,
    ) {
        let &Sent { connection: at, copy, .. } = self.frames.at(frame);
        match answer {
            Answer::Gone => {
                host.counters.count(StarEvent::Gone);
                if let Some(row) = self.unfit(frame) {
                    self.works[row].status = WcStatus::RemOpErr;
                }
                self.fail(host, now, at, WcStatus::RemOpErr);
            }
            // It had expired when it came: its sender's bound of the clock was behind. Another copy
            // goes at once, with what is known now.
            Answer::Clock if copy.is_some_and(|copy| time >= copy.expiry) => {
                if self.send_again(frame) {
                    self.relist(at);
                } else {
                    self.fail(host, now, at, WcStatus::RetryExcErr);
                }
            }
            Answer::Busy => self.not_ready(now, frame),
            // It goes again in its time.
            _ => {}
        }
    }

    //= star#III-B-ea
    /// Z has taken a CQEP, or another frame that an EA answers.
    fn take_ea(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        at: u16,
        time: ZTime,
        entry: &EaEntry,
    ) {
        let is_open = self.connections.at(at).phase == Phase::Open;
        let found = self.frames.find_copy(at, entry.counter);
        let Some((frame, copy)) = found.filter(|_| is_open) else {
            host.counters.drop_frame(StarDrop::LateOrUnsolicited);
            return;
        };
        self.connections.at_mut(at).clock.answered(time, copy.sent_at, now);
        let what = &self.frames.at(frame).what;
        match (entry.answer, what) {
            (Answer::Done, _) => {}
            (Answer::Denied, &What::Chunk { work, .. }) => {
                return self.chunk_is_denied(host, now, at, work);
            }
            (Answer::Denied, _) => return self.fail(host, now, at, WcStatus::RemOpErr),
            (answer, _) => return self.not_done(host, now, frame, answer, time),
        }
        match *what {
            What::Cqes { .. } => {
                if let What::Cqes { told, .. } = self.forget_frame(frame) {
                    self.settle(host, now, at, told, entry.taken);
                }
            }
            What::Probe => {
                let _ = self.forget_frame(frame);
                self.connections.at_mut(at).probe_is_under_way = false;
                self.is_there(host, now, at, copy.sent_at);
            }
            What::Chunk { work: row, .. } if self.is_pushed(row) => {
                self.chunk_is_done(host, now, frame);
            }
            What::Commit => self.committed(host, now, at, frame, copy.sent_at),
            // A question is answered by a rule, what is asked for by the data, and what is about a
            // change of roles by the next word about it.
            What::Greeting | What::Ask { .. } | What::Chunk { .. } => {}
            What::Switch | What::Transfer => {}
        }
        self.relist(at);
    }

    pub(super) fn is_pushed(&self, row: u16) -> bool {
        self.works[row].transfer.is_some_and(|transfer| transfer.way == Way::Push)
    }

    /// The connection was there at Z after `asked_at`: messages that came before may land.
    fn is_there(&mut self, host: &mut Tables<'_>, now: Instant, at: u16, asked_at: Instant) {
        let waits = |stateful: &Self| {
            let queues = &stateful.connections.at(at).queues[Side::Stateless as usize];
            let mut rows = queues.answering.iter(&stateful.work_links);
            rows.find(|&row| {
                let work = &stateful.works[row];
                work.is_at_hand() && work.told.1 <= asked_at
            })
        };
        while let Some(row) = waits(self) {
            self.land_at_hand(host, now, row, Some(asked_at));
            if waits(self) == Some(row) {
                // It is too late again.
                break;
            }
        }
        self.advance(host, now, at);
    }
}
