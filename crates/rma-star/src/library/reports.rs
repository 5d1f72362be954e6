//! Takes what the engine reports, gives completions, and ends connections.

use core::time::Duration;

use rma_core::time::Instant;

use super::{
    Verbs,
    negotiate::Part,
    qp::{Flags, Phase, RECV, Row, SEND, queue_of},
    wr::Wc,
};
use crate::{
    portal::{Post, QpRecord, Report},
    verbs::{WcStatus, WqeOp},
};

/// The report of one work request.
#[derive(Clone, Copy)]
struct Ended {
    qp: u32,
    op: WqeOp,
    status: WcStatus,
    byte_len: u32,
    immediate: Option<u32>,
    is_of_write: bool,
}

impl Verbs {
    pub(super) fn take_report(&mut self, now: Instant, report: Report) {
        let is_sound = match report {
            Report::Completed {
                slot,
                generation,
                qp,
                op,
                status,
                byte_len,
                immediate,
                is_of_write,
                ..
            } => {
                let ended = Ended { qp, op, status, byte_len, immediate, is_of_write };
                self.complete(now, slot, generation, &ended)
            }
            Report::Opened { qp, status, key, clock, valid_micros } => {
                // A late report must be late enough by the engine's W, whatever was set here.
                let valid = Duration::from_micros(valid_micros.into());
                self.config.valid = self.config.valid.max(valid);
                self.opened(now, qp, status, clock, key)
            }
            Report::Ready { qp } => self.ready(now, qp),
            Report::SwitchAsked { qp, number, is_automatic } => {
                self.switch_asked(now, qp, number, is_automatic)
            }
            Report::HandedOver { qp, handover } => self.handed_over(qp, &handover),
            Report::TakenOver { qp, status } => self.taken_over(now, qp, status),
            Report::Committed { qp, era } => self.committed(now, qp, era),
            Report::NotSwitched { qp } => self.not_switched(qp),
            Report::Failed { qp, status } => {
                let is_there = self.is_with_engine(qp);
                if is_there {
                    self.fail(now, qp, status);
                }
                is_there
            }
            Report::Closed { qp } => {
                let is_there = self.is_with_engine(qp);
                if is_there {
                    self.closed(now, qp);
                }
                is_there
            }
        };
        self.strange_reports += u64::from(!is_sound);
    }

    /// Whether the engine has, or was asked to have, the connection of a queue pair.
    pub(super) fn is_with_engine(&self, index: u32) -> bool {
        self.rows.get(index as usize).is_some_and(|row| {
            matches!(
                row.phase,
                Phase::Opening
                    | Phase::Opened
                    | Phase::Introducing { .. }
                    | Phase::Ready { .. }
                    | Phase::Moving { .. }
                    | Phase::Failing(_)
            )
        })
    }

    fn ready(&mut self, now: Instant, index: u32) -> bool {
        let row = self.rows.get(index as usize);
        match row.filter(|row| row.is_stateful()).map(|row| row.phase) {
            Some(Phase::Opened) => {
                if self.rows[index as usize].part() != Part::Rc {
                    // The engine has what it needs. From now on this is what the connection is
                    // called when this is the stateless side.
                    let record = self.record(index);
                    let (pd, nonce) = (record.local_pd, self.rows[index as usize].nonce);
                    let record = QpRecord { pd, nonce, z_clock: 0, key: [0; 16], ..record };
                    self.portal.set_record(index, &record);
                }
                self.begin_work(now, index);
                true
            }
            // It was closed meanwhile.
            Some(Phase::Failing(_)) => true,
            _ => false,
        }
    }

    /// The stateful side may have acknowledged the initial state, and nobody has looked.
    pub(super) fn see_if_ready(&mut self, now: Instant, index: u32) {
        let phase = self.rows[index as usize].phase;
        if matches!(phase, Phase::Introducing { .. }) && self.is_heard(index) {
            self.begin_work(now, index);
        }
    }

    /// Work may be posted from now on.
    pub(super) fn begin_work(&mut self, _: Instant, index: u32) {
        self.wheel.disarm(index);
        let heard = self.portal.memory().qp_word(index).heard;
        let row = self.row_mut(index);
        row.phase = Phase::Ready { tries: 0, heard };
        row.flags.take(Flags::IS_SWITCHING);
    }

    /// A work request has ended. `false` if there is none.
    //= star#ours-completion-order
    fn complete(&mut self, now: Instant, slot: u32, generation: u32, ended: &Ended) -> bool {
        if !self.slots.is_open(slot, generation) {
            return false;
        }
        let record = self.slots.at_mut(slot);
        if record.qp() != ended.qp {
            return false;
        }
        // Whoever reports something else than was posted must not be believed that it was done. The
        // use of the slot says which it is; a sequence is of no meaning in what comes with data.
        let is_defined = !ended.is_of_write || (ended.op.is_recv() && ended.immediate.is_some());
        let status = match ended.status {
            WcStatus::Success if !is_defined || record.op() != ended.op => WcStatus::RemOpErr,
            // The bytes of a WRITE are not in the memory of the RECV that it took.
            WcStatus::Success if !ended.is_of_write && ended.byte_len > record.length() => {
                WcStatus::LocLenErr
            }
            status => status,
        };
        let is_success = status == WcStatus::Success;
        let which = queue_of(record.op());
        let immediate = ended.immediate.filter(|_| is_success && record.op().is_recv());
        let byte_len = if is_success { ended.byte_len } else { 0 };
        record.complete(status, byte_len, immediate, is_success && ended.is_of_write);
        self.give(ended.qp, which);
        if !is_success {
            self.fail(now, ended.qp, WcStatus::WrFlushErr);
        }
        true
    }

    /// Gives the completions of a queue whose turn it is: one that came early waits for those of
    /// what was posted before it.
    fn give(&mut self, index: u32, which: usize) {
        while let Some((_, record)) = self.slots.first(&self.rows[index as usize].queues[which])
            && let Some(status) = record.status()
        {
            self.give_first(index, which, status);
        }
    }

    /// Gives the completion of the first of a queue. After one that failed, all are flushed.
    fn give_first(&mut self, index: u32, which: usize, status: WcStatus) {
        let row = &mut self.rows[index as usize];
        let Some(record) = self.slots.pop(&mut row.queues[which]) else { return };
        let has_failed = row.flags.has(Flags::HAS_FAILED[which]);
        let status = if has_failed { WcStatus::WrFlushErr } else { status };
        let is_success = status == WcStatus::Success;
        if !is_success {
            row.flags.set(Flags::HAS_FAILED[which]);
        }
        let wc = Wc {
            wr_id: record.wr_id,
            status,
            opcode: record.op(),
            byte_len: if is_success { record.length() } else { 0 },
            imm: record.immediate().filter(|_| is_success && record.op().is_recv()),
            is_of_write: is_success && record.is_of_write(),
            qp_num: self.place.qpn(index),
        };
        self.cqs[usize::from(row.cqs[which])].push(wc);
    }

    /// The connection has failed, or is closed: nothing more may be posted. What is posted is
    /// flushed when the engine says that it is over; what fails first does so for `cause`.
    pub(super) fn fail(&mut self, now: Instant, index: u32, cause: WcStatus) {
        self.ends += 1;
        match self.rows[index as usize].phase {
            Phase::Init(_) | Phase::Offered(_) | Phase::Agreed => self.end(index, cause),
            Phase::Opening
            | Phase::Opened
            | Phase::Introducing { .. }
            | Phase::Ready { .. }
            | Phase::Moving { .. } => {
                self.row_mut(index).phase = Phase::Failing(cause);
                self.tell_close(now, index);
            }
            Phase::Free | Phase::Failing(_) | Phase::Dying(_) | Phase::Over => {}
        }
    }

    /// Tells the engine that the connection ends.
    pub(super) fn tell_close(&mut self, now: Instant, index: u32) {
        if self.portal.post(&Post::Close { qp: index }, None).is_ok() {
            self.wheel.disarm(index);
            return;
        }
        self.row_mut(index).flags.set(Flags::CLOSE_IS_DUE);
        self.wheel.arm(index, now, self.config.repost_timeout);
    }

    /// The engine has closed the connection, and reported what has completed before.
    ///
    /// The stateful side's engine has waited until all that it had sent is dead. Of the stateless
    /// side, data that was fetched may still be on its way to land: for W, and what clocks drift.
    //= star#ours-failure-told-late
    fn closed(&mut self, now: Instant, index: u32) {
        let row = &mut self.rows[index as usize];
        row.flags.take(Flags::CLOSE_IS_DUE);
        let cause = match row.phase {
            Phase::Failing(cause) => cause,
            _ => WcStatus::WrFlushErr,
        };
        if row.is_stateful() || row.is_idle() {
            self.end(index, cause);
        } else {
            row.phase = Phase::Dying(cause);
            let valid = self.config.valid;
            self.wheel.arm(index, now, valid + valid / 16);
        }
    }

    /// Flushes all work requests: nothing of the connection is left.
    pub(super) fn end(&mut self, index: u32, mut cause: WcStatus) {
        self.ends += 1;
        for which in [SEND, RECV] {
            while let Some((_, record)) = self.slots.first(&self.rows[index as usize].queues[which])
            {
                let has_failed = self.rows[index as usize].flags.has(Flags::HAS_FAILED[which]);
                let status = match record.status() {
                    Some(status) => status,
                    None if has_failed => WcStatus::WrFlushErr,
                    None => core::mem::replace(&mut cause, WcStatus::WrFlushErr),
                };
                self.give_first(index, which, status);
            }
        }
        self.wheel.disarm(index);
        let row = &mut self.rows[index as usize];
        row.phase = Phase::Over;
        if row.flags.take(Flags::IS_STATEFUL) {
            self.stateful -= 1;
        }
        if row.flags.has(Flags::IS_CLOSED) {
            self.free(index);
        }
    }

    /// Forgets a queue pair that is over. One whose numbers are used up rests for good: no name of
    /// a key may come twice.
    pub(super) fn free(&mut self, index: u32) {
        let row = &mut self.rows[index as usize];
        *row = Row { nonce: row.nonce, ..Row::FREE };
        if row.nonce < u32::MAX {
            row.set_next_free(self.free_row);
            self.free_row = index;
        }
    }
}
