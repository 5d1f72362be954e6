//! Calls of one recorded op, and calls that ask about one: how they begin (not in the paper).
//!
//! What becomes of them is in [`super::publishing`], as such an op is one that publishes.

use super::{
    CommandExecutor,
    call::{CallError, CallId, OpCall},
    calls::{Span, Terms},
    publishing::Publishing,
};
use crate::{
    command::RecordedOp,
    error::SubmitError,
    grant::Grant,
    op::{ClassOfService, Moves},
    outcome::OpName,
    portal::Change,
    time::{Instant, nanos},
};

impl CommandExecutor {
    /// Takes a call of one recorded op: see [`CommandExecutor::submit`]. The windows, pace and
    /// turns are those of writes to the same remote NIC.
    ///
    /// # Errors
    /// If the call cannot be right, or there is no room for it. Then nothing was issued.
    pub fn submit_op(&mut self, now: Instant, call: &OpCall<'_>) -> Result<CallId, CallError> {
        self.begin_op(now, call, false)
    }

    /// [`CommandExecutor::fence`] and then [`CommandExecutor::submit_op`]; but if the call is
    /// refused, there is no fence either.
    ///
    /// # Errors
    /// As [`CommandExecutor::submit_op`].
    pub fn submit_op_fenced(
        &mut self,
        now: Instant,
        call: &OpCall<'_>,
    ) -> Result<CallId, CallError> {
        self.begin_op(now, call, true)
    }

    fn begin_op(
        &mut self,
        now: Instant,
        call: &OpCall<'_>,
        is_fenced: bool,
    ) -> Result<CallId, CallError> {
        let op = self.check_op(call)?;
        let OpCall { grant, change, class, retry, deadline, after } = *call;
        self.check_after(after)?;
        let (index, path) = self.take_place(grant.responder, Moves::Out)?;
        if is_fenced {
            // Nothing can fail any longer.
            self.fence();
        }
        let len = op.op_size();
        let (op_type, span) = (change.op_type(), Span::new(0, 0, len));
        let publishing = Publishing::new(op, grant.region, grant.key, op_type, span, retry);
        let terms = self.terms(now, deadline, retry.outlast);
        let id = self.calls.begin_op(index, path, class, publishing, terms);
        self.calls[index].begin_last();
        if after != [None; 2] {
            self.follow(index, after);
        }
        self.enter(now, id, deadline, terms);
        Ok(id)
    }

    /// Takes a call that asks what became of the recorded op that its target calls `name`
    /// ([`Outcome::in_doubt`](super::Outcome::in_doubt)), in the latency class. `grant` is one for
    /// its region and type, under the region's present key.
    ///
    /// The target is asked again and again, for four timeouts or until `deadline`; once at least,
    /// unless the call waits for a fence until then.
    /// If it answers, the outcome is OK, whatever it says, and has a
    /// [`verdict`](super::Outcome::verdict): an op that was not applied may be issued again then.
    /// Otherwise the outcome is [`CallStatus::Unknown`](super::CallStatus::Unknown) and names the
    /// op once more.
    ///
    /// # Errors
    /// If the grant is not one for such an op from this portal, or there is no room for the call.
    /// Then nothing was issued.
    pub fn submit_settle(
        &mut self,
        now: Instant,
        grant: &Grant,
        name: OpName,
        deadline: Option<Instant>,
    ) -> Result<CallId, CallError> {
        self.begin_settle(now, grant, name, deadline, false)
    }

    /// [`CommandExecutor::fence`] and then [`CommandExecutor::submit_settle`]; but if the call is
    /// refused, there is no fence either.
    ///
    /// # Errors
    /// As [`CommandExecutor::submit_settle`].
    pub fn submit_settle_fenced(
        &mut self,
        now: Instant,
        grant: &Grant,
        name: OpName,
        deadline: Option<Instant>,
    ) -> Result<CallId, CallError> {
        self.begin_settle(now, grant, name, deadline, true)
    }

    fn begin_settle(
        &mut self,
        now: Instant,
        grant: &Grant,
        name: OpName,
        deadline: Option<Instant>,
        is_fenced: bool,
    ) -> Result<CallId, CallError> {
        self.check_settle(grant)?;
        let (index, path) = self.take_place(grant.responder, Moves::Out)?;
        if is_fenced {
            self.fence();
        }
        let (retention, wait) = self.asking();
        let until = deadline.unwrap_or_else(|| now.after_nanos(retention));
        let publishing = Publishing::asked_about(grant, name, until, wait);
        // As of an op that has just timed out, and for as long as the application waits.
        let outlast = retention.max(nanos(until.since(now)));
        let terms = Terms { outlast, ..self.terms(now, deadline, None) };
        let id = self.calls.begin_op(index, path, ClassOfService::Latency, publishing, terms);
        self.calls[index].queue_publishing(0);
        self.enter(now, id, deadline, terms);
        Ok(id)
    }

    /// Whether `call` can be right: what [`CommandExecutor::submit_op`] looks at before it looks
    /// for room.
    ///
    /// # Errors
    /// As [`CommandExecutor::submit_op`], but for want of room.
    pub fn check_op(&mut self, call: &OpCall<'_>) -> Result<RecordedOp, CallError> {
        let OpCall { grant, change, .. } = call;
        let portal = &mut self.portal;
        let op = portal.check_grant(grant, change.op_type());
        let op = op.and_then(|()| portal.command_of(change));
        let op = op.map_err(|error| CallError::Submit { piece: 0, error })?;
        if matches!(change, Change::Send { .. } | Change::Notify { .. }) {
            return Ok(op);
        }
        let (offset, len) = (change.remote_offset(), u64::from(op.op_size()));
        // The operands of a COMPARE_SWAP are two words, and it changes one.
        let len = if op.transfer().is_some() { len } else { crate::limits::WORD_LEN as u64 };
        let region_len = grant.region_len;
        if offset.checked_add(len).is_none_or(|end| end > region_len) {
            let (piece, region) = (0, grant.region);
            return Err(CallError::RemoteOutOfBounds { piece, region, region_len, offset, len });
        }
        Ok(op)
    }

    /// Whether a call may ask by this grant: what [`CommandExecutor::submit_settle`] looks at
    /// before it looks for room.
    ///
    /// # Errors
    /// As [`CommandExecutor::submit_settle`], but for want of room.
    pub fn check_settle(&mut self, grant: &Grant) -> Result<(), CallError> {
        let op_type = grant.op_type;
        let checked = if op_type.may_be_recorded() {
            self.portal.check_grant(grant, op_type)
        } else {
            Err(SubmitError::NotRecorded { op_type })
        };
        checked.map_err(|error| CallError::Submit { piece: 0, error })
    }
}
