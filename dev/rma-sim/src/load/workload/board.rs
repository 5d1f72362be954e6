//! Boards of targets: ordered ops of all hosts change them, their owners too, and reads follow.

use rma_core::{command::CommandOp, op::OpStatus};

use super::{Planned, TARGETS, World, host::draw_span, plan::Use};
use crate::{
    check::{board::Sight, oracle::Effect, violation::Violation},
    net::frame::NodeId,
    prng::{Chance, Prng},
};

/// The observations of boards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BoardCounts {
    /// Changes by remote ops.
    pub(crate) changes: u64,
    /// Reads that saw a board as it was at one time.
    pub(crate) whole: u64,
    /// Reads in the midst of which it changed.
    pub(crate) changing: u64,
}

impl World {
    /// An op is about to be issued: its board is looked at from now on.
    pub(super) fn begin_on_board(&mut self, planned: &Planned) {
        if planned.is_on_board() {
            self.target_mut(planned).board_users += 1;
        }
    }

    /// An op has ended.
    pub(super) fn end_on_board(&mut self, planned: &Planned) {
        if planned.is_on_board() {
            let users = &mut self.target_mut(planned).board_users;
            *users = users.saturating_sub(1);
        }
    }

    /// An ordered op was applied.
    pub(super) fn changed_board(&mut self, planned: &Planned) {
        if let Use::Board { offset } = planned.purpose
            && let Some(board) = &mut self.target_mut(planned).board
        {
            board.changed(offset, planned.data());
            self.boards.changes += 1;
        }
    }

    /// A read of a board has ended: checks what it has put into the area of its slot.
    pub(super) fn check_follower(
        &mut self,
        node: NodeId,
        status: OpStatus,
        planned: &Planned,
        (offset, since): (usize, usize),
    ) -> Result<(), Violation> {
        let slot = planned.command.slot;
        let is_honest = planned.expected == OpStatus::Ok;
        let len = match planned.command.op {
            CommandOp::Read(transfer) if is_honest => transfer.op_size as usize,
            _ => 0,
        };
        let area = self.area_mut(node, slot);
        let [before, now] = area.part(planned.area_offset, len);
        area.check_effect(status, Effect::new(planned.area_offset, &now))?;
        let Some(board) = &self.target_mut(planned).board else { return Ok(()) };
        let seen = match status {
            OpStatus::Ok => board.check_read(offset, &now, since).map(Some),
            _ => board.check_part(offset, (&before, &now), since).map(|()| None),
        };
        let slot = slot.0;
        match seen.map_err(|at| Violation::ReadOrder { node, slot, status, at })? {
            Some(Sight::Whole) => self.boards.whole += 1,
            Some(Sight::Changing) => self.boards.changing += 1,
            None => {}
        }
        Ok(())
    }

    /// Something has happened at `node`: looks at its boards that ops are under way on.
    pub(crate) fn look_at_boards(&self, node: NodeId) -> Result<(), Violation> {
        let targets = self.hosts[node.index()].epochs.iter().flatten();
        let mut used = targets.filter(|target| target.board_users > 0);
        used.try_for_each(|target| target.board.iter().try_for_each(|board| board.check()))
    }

    /// The owner of a board changes some of it now and then, if others use it.
    pub(super) fn tend_board(&mut self, node: NodeId, prng: &mut Prng) {
        let number = prng.below(TARGETS as u64) as usize;
        let target = &mut self.hosts[node.index()].targets_mut()[number];
        let (is_busy, size) = (prng.chance(Chance::ppm(200_000)), prng.below(1 << 12) as u32 + 1);
        let (offset, len) = draw_span(prng, size);
        if is_busy
            && target.board_users > 0
            && let Some(board) = &mut target.board
        {
            let mut bytes = vec![0; len as usize];
            prng.fill(&mut bytes);
            board.change(offset, &bytes);
        }
    }
}
