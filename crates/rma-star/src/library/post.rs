//! Posts work requests (§III-C2).

use rma_core::time::Instant;
use rma_shm::Line;

use super::{
    Verbs,
    qp::{Phase, Qp, queue_of},
    slots::Record,
    wr::{PostError, RecvWr, Remote, SendWr, Sge},
};
use crate::{
    limits::{INLINE_MAX, MESSAGE_LEN_MAX},
    names::MrId,
    portal::Posted,
    verbs::WqeOp,
};

impl Verbs {
    /// Posts a SEND, WRITE or READ: `ibv_post_send`. Its memory is the work request's until its
    /// completion comes.
    ///
    /// # Errors
    /// [`PostError`]. Nothing has happened then.
    pub fn post_send(&mut self, now: Instant, qp: Qp, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.post(now, qp, wr)
    }

    /// Posts a RECV: `ibv_post_recv`. The message may be shorter than its memory, and not longer.
    ///
    /// # Errors
    /// [`PostError`]. Nothing has happened then.
    pub fn post_recv(&mut self, now: Instant, qp: Qp, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let RecvWr { wr_id, sge } = *wr;
        let (op, remote) = (WqeOp::Recv, Remote::default());
        let wr = SendWr { wr_id, op, sge, remote, immediate: None, is_inline: false };
        self.post(now, qp, &wr)
    }

    fn post(&mut self, now: Instant, qp: Qp, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.check_qp(now, qp)?;
        self.check_wr(qp, wr)?;
        let which = queue_of(wr.op);
        let row = &self.rows[qp.index as usize];
        let (queue, depth, cq) = (row.queues[which], row.depths[which], row.cqs[which]);
        if self.slots.outstanding(&queue) >= depth.into() {
            return Err(PostError::QueueFull { depth });
        }
        let cq = &self.cqs[usize::from(cq)];
        if !cq.has_room() {
            return Err(PostError::CqFull { capacity: cq.capacity() });
        }
        let slots = self.slots.len();
        let (slot, generation) = self.slots.first_free().ok_or(PostError::SlotsFull { slots })?;
        let Sge { mr, offset, length } = wr.sge;
        let inline = if wr.is_inline { Some(inline_of(wr.sge)?) } else { None };
        let posted = Posted {
            slot,
            generation,
            qp: qp.index,
            sequence: queue.next,
            open_before: self.slots.outstanding(&queue) as u16,
            op: wr.op,
            again: false,
            is_moved: false,
            immediate: wr.immediate,
            inline_len: if wr.is_inline { length as u8 } else { 0 },
            mr: mr.id().0,
            offset,
            length,
            remote_mr: wr.remote.mr.0,
            remote_offset: wr.remote.offset,
        };
        // An empty message has no second line.
        let inline = inline.filter(|_| length > 0);
        // While it moves, what is posted is posted when all before it is.
        if !matches!(row.phase, Phase::Moving { .. }) {
            self.portal
                .post(&crate::portal::Post::Wqe(posted), inline.as_ref())
                .map_err(|_full| PostError::EngineStalled)?;
        }
        let row = &mut self.rows[qp.index as usize];
        self.cqs[usize::from(row.cqs[which])].reserve();
        self.slots.push(&mut row.queues[which], Record::of(wr.wr_id, &posted));
        if !matches!(row.phase, Phase::Moving { .. }) {
            self.watch(now, qp.index);
        }
        Ok(())
    }

    /// Whether a queue pair may be posted to.
    fn check_qp(&mut self, now: Instant, qp: Qp) -> Result<(), PostError> {
        self.row(qp).ok_or(PostError::NoSuchQp)?;
        self.see_if_ready(now, qp.index);
        match self.rows[qp.index as usize].phase {
            Phase::Ready { .. } | Phase::Moving { .. } => Ok(()),
            Phase::Failing(_) | Phase::Dying(_) | Phase::Over => Err(PostError::QpInError),
            _ => Err(PostError::NotReady),
        }
    }

    /// Whether a work request makes sense.
    fn check_wr(&self, qp: Qp, wr: &SendWr<'_>) -> Result<(), PostError> {
        let (op, Sge { mr, offset, length }) = (wr.op, wr.sge);
        let gives = matches!(op, WqeOp::Send | WqeOp::Write);
        if (wr.immediate.is_some() || wr.is_inline) && !gives {
            return Err(PostError::NotOfOp { op });
        }
        let of_qp = crate::names::PdId(self.record(qp.index).local_pd);
        if mr.pd() != of_qp {
            return Err(PostError::NotInPd { of: mr.pd(), qp: of_qp });
        }
        let max = if wr.is_inline { INLINE_MAX as u32 } else { MESSAGE_LEN_MAX };
        if length > max {
            return Err(PostError::TooLong { length, max });
        }
        let is_within =
            |offset: u64, len: u64| offset.checked_add(length.into()).is_some_and(|end| end <= len);
        if !is_within(offset, mr.len()) {
            return Err(PostError::OutOfBounds { offset, length, len: mr.len() });
        }
        if !is_within(wr.remote.offset, u64::MAX) {
            let Remote { mr: MrId(_), offset } = wr.remote;
            return Err(PostError::OutOfBounds { offset, length, len: u64::MAX });
        }
        Ok(())
    }
}

/// The bytes that travel with a work request.
fn inline_of(sge: Sge<'_>) -> Result<Line, PostError> {
    let Sge { mr, offset, length } = sge;
    let mut octets = [[0; 8]; INLINE_MAX / 8];
    let bytes = &mut octets.as_flattened_mut()[..length as usize];
    mr.copy_out(offset, bytes).ok_or(PostError::OutOfBounds { offset, length, len: mr.len() })?;
    Ok(Line(octets.map(u64::from_le_bytes)))
}
