//! The common link of one thread's channel ends: an executor, and the outcomes of their calls.

use rma_core::{
    executor::{Call, CallError, CallId, CommandExecutor, OpCall, Outcome, Piece, Publish},
    grant::Grant,
    limits::OP_SIZE_MAX,
    outcome::OpName,
    portal::{Change, Placement, Source},
    time::Instant,
};

/// An executor that many channel ends issue through. Used by one thread at a time, as they are;
/// each call of theirs is given the link that they were made for.
///
/// It keeps what became of a call until its end asks for it. What an end that was dropped had under
/// way is kept until the link is dropped too.
#[derive(Debug)]
pub struct Link {
    executor: CommandExecutor,
    /// The outcomes of calls that nobody has asked about yet. Few: ends ask after each poll.
    ended: Vec<Outcome>,
    copied_bytes: u64,
}

impl Link {
    /// A link that issues through `executor`, which nobody else uses.
    #[must_use]
    pub const fn new(executor: CommandExecutor) -> Self {
        Self { executor, ended: Vec::new(), copied_bytes: 0 }
    }

    /// Takes the completions that there are, and issues what may be issued. Channel ends must be
    /// polled after it. Returns how much there was to do.
    pub fn poll(&mut self, now: Instant) -> usize {
        let work = self.executor.poll(now);
        self.ended.extend(core::iter::from_fn(|| self.executor.poll_outcome()));
        work
    }

    /// When [`Link::poll`] has something to do even if no completion comes;
    /// [`CommandExecutor::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.executor.poll_timeout()
    }

    /// The executor, to look at.
    #[must_use]
    pub const fn executor(&self) -> &CommandExecutor {
        &self.executor
    }

    pub(crate) fn submit(&mut self, now: Instant, call: &Call<'_>) -> Result<CallId, CallError> {
        self.executor.submit(now, call)
    }

    pub(crate) fn submit_op(
        &mut self,
        now: Instant,
        call: &OpCall<'_>,
    ) -> Result<CallId, CallError> {
        self.executor.submit_op(now, call)
    }

    /// An ordered WRITE of a piece of any size: its last word lands last.
    pub(crate) fn submit_ordered(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
    ) -> Result<CallId, CallError> {
        let Piece { grant, remote_offset, local: region, local_offset: offset, len } = *piece;
        if len <= OP_SIZE_MAX.into() {
            let source = Source { region, offset, len: len as u32 };
            let change = Change::OrderedWrite { remote_offset, source };
            return self.submit_op(now, &OpCall::of(grant, change));
        }
        let call = Call::of(core::slice::from_ref(piece));
        self.submit(now, &call.with(|it| it.publish = Publish::Ordered))
    }

    /// A WRITE_WITH_IMM of a piece of any size: its event, with `immediate`, is there when all is.
    /// `last` is the grant for it; the piece's is for the WRITEs before it, if one op cannot carry
    /// all.
    pub(crate) fn submit_with_imm(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        last: &Grant,
        immediate: u64,
    ) -> Result<CallId, CallError> {
        let placement = Placement::Any;
        let Piece { remote_offset, local: region, local_offset: offset, len, .. } = *piece;
        if len <= OP_SIZE_MAX.into() {
            let source = Source { region, offset, len: len as u32 };
            let change = Change::WriteWithImm { remote_offset, source, immediate, placement };
            return self.submit_op(now, &OpCall::of(last, change));
        }
        let publish = Publish::WithImmediate { grant: last, immediate, placement };
        let call = Call::of(core::slice::from_ref(piece));
        self.submit(now, &call.with(|it| it.publish = publish))
    }

    /// How many bytes the last op of a WRITE of `len` bytes has: [`CommandExecutor::last_op_len`].
    pub(crate) fn last_op_len(&self, grant: &Grant, len: u64) -> u32 {
        self.executor.last_op_len(grant, len)
    }

    /// Asks what became of an op that ended with
    /// [`CallStatus::Unknown`](rma_core::executor::CallStatus::Unknown).
    pub(crate) fn submit_settle(
        &mut self,
        now: Instant,
        grant: &Grant,
        name: OpName,
    ) -> Result<CallId, CallError> {
        self.executor.submit_settle(now, grant, name, None)
    }

    /// Gives a call up: it is over as soon as what is under way of it is.
    pub(crate) fn cancel(&mut self, call: CallId) {
        self.executor.cancel(call);
    }

    /// Takes the outcome of `call`; `None` while it is under way, or if somebody has asked before.
    pub(crate) fn take(&mut self, call: CallId) -> Option<Outcome> {
        self.take_of(|ended| ended == call)
    }

    /// Takes the outcome of a call of which `is_of` knows; `None` if there is none that has ended.
    pub(crate) fn take_of(&mut self, is_of: impl Fn(CallId) -> bool) -> Option<Outcome> {
        let index = self.ended.iter().position(|outcome| is_of(outcome.call))?;
        Some(self.ended.swap_remove(index))
    }

    /// Bytes of messages that channel ends have copied to send them, since the beginning. Where
    /// nothing is to be copied ([`SendRegion`](crate::SendRegion)) it stands still.
    #[must_use]
    pub const fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    pub(crate) const fn count_copied(&mut self, bytes: usize) {
        self.copied_bytes += bytes as u64;
    }
}

/// The call, or `None` if its link had no room for it: others of that are over sooner or later.
pub(crate) const fn if_room(
    issued: Result<CallId, CallError>,
) -> Result<Option<CallId>, CallError> {
    match issued {
        Ok(call) => Ok(Some(call)),
        Err(CallError::TooManyCalls { .. } | CallError::TooManyRemotes(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
