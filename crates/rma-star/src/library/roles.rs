//! Changes roles during a connection (ours; the paper leaves it to the future, §III-E2).
//!
//! The engine of the stateful side leads, and asks the other side's library. That says yes or no;
//! when the connection is handed over to it, it has its engine take it, or says that it does not.
//! Either library then posts its work requests anew that are not complete, in order and with their
//! old places: nothing else has them. As long as it has not posted all, the queue pair is *moving*,
//! and what applications post is kept back, behind them.
//!
//! Invariant: a number of a change of roles that was refused, or came to nothing, is never agreed
//! to again: the record keeps the highest one.

use rma_core::time::Instant;

use super::{
    Verbs,
    negotiate::Part,
    qp::{Flags, Phase, Qp, QpInfo, Row, SwitchError},
};
use crate::{
    handover::Handover,
    names::{Era, Sequence},
    portal::{Post, QpRecord},
    verbs::WcStatus,
};

impl Verbs {
    /// Describes a queue pair: `ibv_query_qp`. `None` once it is closed.
    #[must_use]
    pub fn query_qp(&self, qp: Qp) -> Option<QpInfo> {
        let (row, state) = (self.row(qp)?, self.state(qp)?);
        let is_switching = row.is_switching() || matches!(row.phase, Phase::Moving { .. });
        Some(QpInfo { state, is_stateful: self.is_stateful(qp), is_switching })
    }

    /// The two sides of a connection are to change roles, while it is in use (ours). Nothing that
    /// is posted is lost or done twice, and nothing has to wait for it.
    ///
    /// Of the stateful side, the peer may refuse, as it has no room for the connection or for what
    /// it has posted: then all stays as it is. Of the stateless side this is a wish: the peer is
    /// asked once, and a frame may be lost. [`Verbs::query_qp`] tells when it has come true.
    ///
    /// From the change on each work request of the new stateful side needs a row of its engine. One
    /// that is posted when its application's share is full ends the connection, as it does with any
    /// stateful side, and that goes for what is posted while the change is under way, too.
    ///
    /// # Errors
    /// [`SwitchError`]. Nothing has happened then.
    pub fn switch_role(&mut self, now: Instant, qp: Qp) -> Result<(), SwitchError> {
        self.row(qp).ok_or(SwitchError::NoSuchQp)?;
        self.see_if_ready(now, qp.index);
        let row = &self.rows[qp.index as usize];
        match row.phase {
            Phase::Ready { .. } if row.part() == Part::Rc => return Err(SwitchError::BothStateful),
            Phase::Ready { .. } if !row.is_switching() => {}
            Phase::Ready { .. } | Phase::Moving { .. } => return Err(SwitchError::UnderWay),
            _ => return Err(SwitchError::NotReady),
        }
        if self.ask_for_switch(qp.index, false) { Ok(()) } else { Err(SwitchError::EngineStalled) }
    }

    /// `false` if the engine stands still.
    pub(super) fn ask_for_switch(&mut self, index: u32, is_automatic: bool) -> bool {
        let is_posted = self.portal.post(&Post::Switch { qp: index, is_automatic }, None).is_ok();
        if is_posted && self.rows[index as usize].is_stateful() {
            self.row_mut(index).flags.set(Flags::IS_SWITCHING);
        }
        is_posted
    }

    /// The stateful side asks whether roles may change. `false` if there is no such connection.
    pub(super) fn switch_asked(
        &mut self,
        now: Instant,
        index: u32,
        Era(number): Era,
        is_automatic: bool,
    ) -> bool {
        if !self.is_with_engine(index) {
            return false;
        }
        self.see_if_ready(now, index);
        let row = &self.rows[index as usize];
        if row.is_stateful() || !matches!(row.phase, Phase::Ready { .. }) {
            return true;
        }
        let record = self.record(index);
        if number < record.era {
            return true;
        }
        if number > record.era {
            self.portal.set_record(index, &QpRecord { era: number, ..record });
            let agrees = !is_automatic || self.load().has_much_room();
            self.row_mut(index).flags.put(Flags::IS_SWITCHING, agrees);
        }
        // Without room the peer asks again.
        let agrees = self.rows[index as usize].flags.has(Flags::IS_SWITCHING);
        let answer = Post::Answer { qp: index, number: Era(number), agrees };
        let _ = self.portal.post(&answer, None);
        true
    }

    //= star#ours-switch
    /// The stateful side has handed the connection over. `false` if there is none.
    pub(super) fn handed_over(&mut self, index: u32, handover: &Handover) -> bool {
        if !self.is_with_engine(index) {
            return false;
        }
        let row = &self.rows[index as usize];
        if row.is_stateful() || !matches!(row.phase, Phase::Ready { .. }) {
            // It may be asked for already.
            return true;
        }
        let (record, is_agreed) = (self.record(index), row.flags.has(Flags::IS_SWITCHING));
        // A work request that is complete here must be complete there.
        let open = row.queues.map(|queue| {
            let first = self.slots.first(&queue);
            Sequence(first.map_or(queue.next, |(_, record)| record.sequence))
        });
        if is_agreed && handover.era.0 == record.era && handover.taker == open {
            let records = row.queues.iter().flat_map(|queue| self.slots.iter(queue));
            let outstanding = records.filter(|(_, it)| it.status().is_none()).count() as u32;
            let take_over = Post::TakeOver { qp: index, handover: *handover, outstanding };
            // Without room it is handed over again.
            if self.portal.post(&take_over, None).is_ok() {
                self.wheel.disarm(index);
                self.row_mut(index).flags.take(Flags::IS_SWITCHING);
                self.row_mut(index).phase = Phase::Moving { is_asked: true };
                self.rows[index as usize].marks = open.map(|Sequence(it)| it as u16);
            }
        } else if handover.era.0 >= record.era {
            self.let_go(index, handover.era);
        } else {
            let answer = Post::Answer { qp: index, number: handover.era, agrees: false };
            let _ = self.portal.post(&answer, None);
        }
        true
    }

    /// An attempt to change roles is over for this side, and never agreed to again.
    fn let_go(&mut self, index: u32, number: Era) {
        let record = self.record(index);
        self.portal.set_record(index, &QpRecord { era: number.0, ..record });
        self.row_mut(index).flags.take(Flags::IS_SWITCHING);
        // Without room it is handed over again, and this is said then.
        let _ = self.portal.post(&Post::Answer { qp: index, number, agrees: false }, None);
    }

    /// The engine has taken the connection over, or has not. `false` if it was not asked to.
    pub(super) fn taken_over(&mut self, now: Instant, index: u32, status: WcStatus) -> bool {
        let Some(row) = self.rows.get(index as usize) else { return false };
        let is_moving = row.phase == Phase::Moving { is_asked: true };
        if !is_moving && !matches!(row.phase, Phase::Failing(_)) {
            return false;
        }
        if status == WcStatus::Success {
            self.row_mut(index).flags.set(Flags::IS_STATEFUL);
            self.stateful += 1;
            self.note_roles(now, index);
        } else {
            self.let_go(index, Era(self.record(index).era));
        }
        if is_moving {
            self.row_mut(index).phase = Phase::Moving { is_asked: false };
            self.move_on(now, index);
        }
        true
    }

    /// The peer has taken the connection over: this is the stateless side. `false` if there is no
    /// such connection.
    pub(super) fn committed(&mut self, now: Instant, index: u32, Era(era): Era) -> bool {
        if !self.is_with_engine(index) || !self.row_mut(index).flags.take(Flags::IS_STATEFUL) {
            return false;
        }
        self.stateful -= 1;
        self.portal.set_record(index, &QpRecord { era, ..self.record(index) });
        self.note_roles(now, index);
        let row = self.row_mut(index);
        row.flags.take(Flags::IS_SWITCHING);
        if !matches!(row.phase, Phase::Ready { .. } | Phase::Moving { .. }) {
            // It fails.
            return true;
        }
        row.phase = Phase::Moving { is_asked: false };
        let queues = row.queues;
        self.row_mut(index).marks = queues.map(|queue| {
            let first = self.slots.first(&queue);
            first.map_or(queue.next, |(_, record)| record.sequence) as u16
        });
        self.move_on(now, index);
        true
    }

    /// The change of roles that this host has asked for has come to nothing. `false` if there is no
    /// such connection.
    pub(super) fn not_switched(&mut self, index: u32) -> bool {
        let is_there = self.is_with_engine(index);
        if is_there {
            self.row_mut(index).flags.take(Flags::IS_SWITCHING);
        }
        is_there
    }

    /// Posts what is not complete in the era that has begun, as far as the engine takes it. What
    /// was posted so far is before the marks.
    pub(super) fn move_on(&mut self, now: Instant, index: u32) {
        let Self { slots, rows, portal, .. } = self;
        let Row { queues, marks, .. } = &mut rows[index as usize];
        for (queue, mark) in queues.iter().zip(marks).rev() {
            let Some((_, first)) = slots.first(queue) else { continue };
            for (slot, record) in slots.iter(queue) {
                let is_posted = (record.sequence as u16).wrapping_sub(*mark).cast_signed() < 0;
                if is_posted {
                    continue;
                }
                let post = Post::Wqe(record.moved(slot, first));
                if record.status().is_none() && portal.post(&post, None).is_err() {
                    // When the engine has taken some.
                    self.wheel.arm(index, now, self.config.repost_timeout / 16);
                    return;
                }
                *mark = (record.sequence as u16).wrapping_add(1);
            }
        }
        self.begin_work(now, index);
        let row = &self.rows[index as usize];
        if !row.is_idle() {
            self.watch(now, index);
        }
    }
}
