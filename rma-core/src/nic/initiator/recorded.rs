//! Recorded ops and SETTLE at their initiator (not in the paper): what they have besides the hops
//! of other ops.
//!
//! A recorded op is a mutation, and so ends by its acknowledgement or its timeout. After a TIMEOUT
//! its initiator knows that nothing changes any longer; whether something has changed it can ask by
//! the name that the solicitation gave the op. A SETTLE is two hops, as a READ is, and changes only
//! what can no longer change otherwise.

use super::{
    Initiator,
    slots::{Slot, State},
};
use crate::{
    backend::RxFrame,
    command::{CommandOp, RecordedOp},
    error::DropReason,
    limits::WORD_LEN,
    nic::{security::Opened, solicitation_window::SolicitationWindow},
    op::{OpStatus, OpType},
    outcome::Verdict,
    time::Instant,
    wire::{AcknowledgementWithResult, Mutation, Settlement, word_of},
};

impl Slot {
    /// Notes how an op that was solicited ends.
    pub(super) const fn note_end(&mut self, status: OpStatus) {
        self.ending = self.ending.reached();
        if self.may_have_changed(status) {
            self.ending = self.ending.may_have_changed();
        }
        if matches!(self.command.op, CommandOp::Recorded { .. }) {
            self.ending = self.ending.named(self.solicited.name);
        }
    }

    //= channels#2.4-reached
    /// Whether an op that was solicited and ended with `status` may have changed its target. What
    /// is recorded changes all or nothing, so where its target says that it was not applied, it has
    /// changed nothing; but for the bytes of a WRITE_WITH_IMM, which land before its event. Of a
    /// plain WRITE a part may have landed before its region got another key.
    const fn may_have_changed(&self, status: OpStatus) -> bool {
        let may_be_in_part = matches!(
            self.command.op,
            CommandOp::Write(_)
                | CommandOp::Recorded { op: RecordedOp::WriteWithImm { ordered: false, .. }, .. }
        );
        match status {
            OpStatus::Timeout => true,
            OpStatus::RemoteAuthenticationFailure => may_be_in_part,
            _ => false,
        }
    }

    /// Whether an acknowledgement without a result may end the op so.
    pub(super) const fn may_be_acknowledged(&self, status: OpStatus) -> bool {
        let CommandOp::Recorded { op, .. } = &self.command.op else {
            return !matches!(status, OpStatus::RemoteNotReady);
        };
        match status {
            OpStatus::Ok => !Mutation::of(op).has_result(),
            OpStatus::RemoteNotReady => Mutation::of(op).consumes_receive(),
            _ => true,
        }
    }
}

/// Writes the data of an op that has no bytes of a region.
pub(super) fn write_operands(op: &RecordedOp, payload: &mut [u8]) {
    let (first, second) = op.operands();
    let (words, _) = payload.as_chunks_mut::<WORD_LEN>();
    for (word, operand) in words.iter_mut().zip([Some(first), second].into_iter().flatten()) {
        *word = operand.to_be_bytes();
    }
}

impl Initiator {
    /// Ends an atomic that was applied.
    pub(in crate::nic) fn handle_result(
        &mut self,
        now: Instant,
        claims: AcknowledgementWithResult,
        frame: &RxFrame<'_>,
        opened: &Opened,
        window: &mut SolicitationWindow,
    ) -> Result<(), DropReason> {
        let slot = self.slot_of(frame.source, &claims.header, State::Solicited)?;
        let CommandOp::Recorded { op, .. } = slot.command.op else {
            return Err(DropReason::LateOrUnsolicited);
        };
        let acknowledgement =
            opened.answer(&slot.solicited.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        if !Mutation::of(&op).has_result() {
            return Err(DropReason::NoticeStatus);
        }
        slot.ending = slot.ending.with_result(word_of(frame.bytes));
        let id = self.index_of(acknowledgement.header.slot);
        self.complete(now, id, OpStatus::Ok, window);
        Ok(())
    }

    /// Ends a SETTLE.
    pub(in crate::nic) fn handle_settlement(
        &mut self,
        now: Instant,
        claims: Settlement,
        frame: &RxFrame<'_>,
        opened: &Opened,
        window: &mut SolicitationWindow,
    ) -> Result<(), DropReason> {
        let slot = self.slot_of(frame.source, &claims.header, State::InService)?;
        let CommandOp::Settle { op_type, name } = slot.command.op else {
            return Err(DropReason::LateOrUnsolicited);
        };
        let settlement =
            opened.answer(&slot.seal.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        let verdict = settlement.verdict;
        let has_result = verdict == Verdict::Applied
            && matches!(op_type, OpType::CompareSwap | OpType::FetchAdd);
        slot.ending = slot.ending.named(name).settled(verdict);
        if has_result {
            slot.ending = slot.ending.with_result(word_of(frame.bytes));
        }
        let id = self.index_of(settlement.header.slot);
        self.complete(now, id, OpStatus::Ok, window);
        Ok(())
    }
}
