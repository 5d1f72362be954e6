//! Ends work requests whose data is there (§III-C4).
//!
//! What is done for Z is told to it by a CQEP, and over when Z's EA has come. A RECV of this host
//! is complete when its message is here. A SEND of this host is complete when Z has the completion
//! of its RECV (ours): success means that the peer's completion is in its queue.

use rma_core::time::Instant;

use super::{Stateful, report, under_way::What};
use crate::{
    names::{Generation, Sequence, Side, Slot},
    portal::Report,
    tables::Tables,
    verbs::{WcStatus, WqeOp},
    wire::Cqe,
};
use rma_core::index_list::IndexList;

impl Stateful {
    /// The data of a work request is there, of one in the list of those that wait for answers. If
    /// `is_told`, Z has been given the completion of its RECV with the last of it. Others may begin
    /// then, which is for the caller to see to.
    pub(super) fn finish(&mut self, host: &mut Tables<'_>, row: u16, is_told: bool) {
        let work = &self.works[row];
        let (at, owner, partner) = (work.connection, work.owner, work.partner);
        let (len, immediate, is_of_write) = (work.len, work.immediate, work.op == WqeOp::Write);
        let connection = self.connections.at_mut(at);
        connection.queues[owner as usize].answering.remove(&mut self.work_links, row);
        self.works[row].byte_len = len;
        if let Some(recv) = partner {
            let recv = &mut self.works[recv];
            (recv.byte_len, recv.immediate, recv.is_of_write) = (len, immediate, is_of_write);
        }
        self.got_on(at);
        match (owner, partner) {
            (Side::Stateless, recv) => {
                if let Some(recv) = recv {
                    self.works[row].partner = None;
                    self.succeed(host, recv);
                }
                connection_done(self, at, row);
            }
            (Side::Stateful, Some(recv)) if !is_told => {
                let recv = self.turn_over(row, recv);
                connection_done(self, at, recv);
            }
            // The RECV is the peer's own, which is told of its completion.
            (Side::Stateful, None) if !is_told && self.works[row].recv.is_some() => {
                connection_done(self, at, row);
            }
            (Side::Stateful, recv) => {
                if let Some(recv) = recv {
                    self.free(recv);
                }
                self.succeed(host, row);
            }
        }
    }

    /// Reports a work request of this host that has done what was asked, and forgets it.
    pub(super) fn succeed(&mut self, host: &mut Tables<'_>, row: u16) {
        self.works[row].status = WcStatus::Success;
        self.report_end(host, row);
    }

    /// Reports how a work request of this host ended, and forgets it.
    pub(super) fn report_end(&mut self, host: &mut Tables<'_>, row: u16) {
        let work = &self.works[row];
        debug_assert_eq!(work.owner, Side::Stateful, "others are reported by their own host");
        let connection = self.connections.at(work.connection);
        let has_message = work.op.is_recv() && work.status == WcStatus::Success;
        let completed = Report::Completed {
            slot: work.slot,
            generation: work.generation,
            qp: connection.qp,
            sequence: work.sequence,
            op: work.op,
            status: work.status,
            byte_len: if work.status == WcStatus::Success { work.byte_len } else { 0 },
            immediate: work.immediate.filter(|_| has_message),
            is_of_write: work.is_of_write && has_message,
        };
        report(host, connection.portal, &completed);
        self.free(row);
    }

    /// Forgets a work request that is in no list.
    pub(super) fn free(&mut self, row: u16) {
        let work = self.works.remove(row);
        let connection = self.connections.at_mut(work.connection);
        connection.works -= 1;
        match work.owner {
            Side::Stateless => self.shares.peer_gives(&mut connection.of_z, work.op.is_recv()),
            Side::Stateful => self.shares.gives(connection.portal, 1),
        }
    }

    /// Returns the CQE that tells Z about one of its work requests.
    pub(super) fn cqe_of(&self, row: u16) -> Cqe {
        let work = &self.works[row];
        if let Some(place) = work.recv {
            return Cqe {
                slot: Slot::RC,
                generation: Generation(0),
                sequence: Sequence(place),
                byte_len: work.byte_len,
                status: WcStatus::Success,
                op: WqeOp::Recv,
                immediate: work.immediate,
                is_of_write: work.op == WqeOp::Write,
            };
        }
        Cqe {
            slot: Slot(work.slot),
            generation: Generation(work.generation),
            sequence: Sequence(work.sequence),
            byte_len: work.byte_len,
            status: work.status,
            op: work.op,
            immediate: work.immediate.filter(|_| work.op.is_recv()),
            is_of_write: work.is_of_write,
        }
    }

    /// Z has the CQEs of a CQEP for which there is a bit in `taken`, the first for the lowest. The
    /// others are sent again.
    pub(super) fn settle(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        at: u16,
        mut told: IndexList,
        taken: u32,
    ) {
        let mut failure = None;
        let mut bit = 0;
        while let Some(row) = told.pop_front(&mut self.work_links) {
            let is_taken = taken.checked_shr(bit).unwrap_or(0) & 1 == 1;
            bit += 1;
            let status = self.works[row].status;
            if is_taken && self.works[row].owner == Side::Stateful {
                self.succeed(host, row);
                self.got_on(at);
                continue;
            }
            if is_taken && status == WcStatus::Success {
                if let Some(own) = self.works[row].partner {
                    self.succeed(host, own);
                }
                self.free(row);
                continue;
            }
            if is_taken {
                // Now Z knows why, and the connection ends. Its partner is reported then.
                failure = failure.or(Some(status));
            }
            connection_done(self, at, row);
        }
        if let Some(status) = failure {
            self.fail(host, now, at, status);
        }
        self.advance(host, now, at);
    }

    //= star#ours-one-answer
    /// Z has the completions of all its SENDs, WRITEs and READs before `below`: what tells of
    /// those, and wanted no answer, needs none.
    pub(super) fn settle_known(&mut self, at: u16, below: Sequence) {
        let is_known = |stateful: &Self, frame: u16| {
            let What::Cqes { told, wants_answer: false } = &stateful.frames.at(frame).what else {
                return false;
            };
            let is_before =
                |row| Sequence(stateful.works[row].sequence).since(below).cast_signed() < 0;
            told.iter(&stateful.work_links).all(is_before)
        };
        let next = |stateful: &Self| {
            let mut events = stateful.connections.at(at).events.iter(&stateful.frame_links);
            events.find(|&frame| is_known(stateful, frame))
        };
        while let Some(frame) = next(self) {
            let What::Cqes { mut told, .. } = self.forget_frame(frame) else { continue };
            while let Some(row) = told.pop_front(&mut self.work_links) {
                self.free(row);
            }
        }
    }

    /// Whether Z's next WQEs say that it has this completion: no work request of this host waits
    /// for it, and it ends nothing.
    pub(super) fn may_be_told_quietly(&self, row: u16) -> bool {
        let work = &self.works[row];
        !work.op.is_recv() && work.partner.is_none() && work.status == WcStatus::Success
    }

    /// Forgets a frame under way, which is answered or given up.
    pub(super) fn forget_frame(&mut self, frame: u16) -> What {
        let sent = self.frames.at(frame);
        let (charge, connection) = (sent.charge, self.connections.at_mut(sent.connection));
        self.shares.has_sent(&mut connection.of_z);
        if let What::Chunk { work, .. } = sent.what
            && let Some(transfer) = &mut self.works[work].transfer
        {
            connection.chunks.remove(&mut self.frame_links, frame);
            transfer.unanswered -= 1;
            self.paths.free(connection.paths[transfer.way as usize], charge);
        } else {
            connection.events.remove(&mut self.frame_links, frame);
        }
        self.frames.remove(frame, &mut connection.again).what
    }
}

/// Z must be told of a work request of its that is done, or in RC the peer of a message that is
/// there.
fn connection_done(stateful: &mut Stateful, at: u16, row: u16) {
    let work = &stateful.works[row];
    debug_assert!(work.owner == Side::Stateless || work.recv.is_some(), "Z is told of its own");
    let done = &mut stateful.connections.at_mut(at).done;
    done.push_back(&mut stateful.work_links, row);
}
