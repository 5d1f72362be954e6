//! Recorded ops of a portal, and SETTLE (not in the paper).

use rma_core::{
    command::CommandSlotId,
    error::SubmitError,
    grant::Grant,
    outcome::OpName,
    portal::{RecordedOp, Source},
    region::RegisteredRegion,
};

use super::Portal;

impl Portal {
    /// Sends `len` bytes of `source` to a receive queue, in the latency class. See
    /// [`Portal::issue_recorded`].
    ///
    /// # Errors
    /// As [`Portal::issue_recorded`].
    pub fn send(
        &mut self,
        grant: &Grant,
        source: &RegisteredRegion,
        source_offset: u64,
        len: u32,
        immediate: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        self.rings.send(grant, source, source_offset, len, immediate)
    }

    /// Makes an event in a receive queue, in the latency class: the bufferless send. See
    /// [`Portal::issue_recorded`].
    ///
    /// # Errors
    /// As [`Portal::issue_recorded`].
    pub fn notify(&mut self, grant: &Grant, immediate: u64) -> Result<CommandSlotId, SubmitError> {
        self.rings.notify(grant, immediate)
    }

    /// Writes to a region, and makes an event in the queue that it names, in the latency class. See
    /// [`Portal::issue_recorded`].
    ///
    /// # Errors
    /// As [`Portal::issue_recorded`].
    pub fn write_with_imm(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        source: Source<'_>,
        immediate: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        self.rings.write_with_imm(grant, remote_offset, source, immediate)
    }

    /// Writes to a region so that the last word lands last, in the latency class. See
    /// [`Portal::issue_recorded`].
    ///
    /// # Errors
    /// As [`Portal::issue_recorded`].
    pub fn write_ordered(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        source: Source<'_>,
    ) -> Result<CommandSlotId, SubmitError> {
        self.rings.write_ordered(grant, remote_offset, source)
    }

    /// Replaces a word of a region by `new` if it is `expected`, in the latency class. What was
    /// there is the completion's [`result`](rma_core::command::Completion::result). See
    /// [`Portal::issue_recorded`].
    ///
    /// # Errors
    /// As [`Portal::issue_recorded`].
    pub fn compare_swap(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        self.rings.compare_swap(grant, remote_offset, expected, new)
    }

    /// Adds `addend` to a word of a region, modulo 2^64, in the latency class. What was there is
    /// the completion's [`result`](rma_core::command::Completion::result). See
    /// [`Portal::issue_recorded`].
    ///
    /// # Errors
    /// As [`Portal::issue_recorded`].
    pub fn fetch_add(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        addend: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        self.rings.fetch_add(grant, remote_offset, addend)
    }

    /// Issues a recorded op. Its completion names the slot that is returned here.
    ///
    /// It is applied at most once. OK: it was. TIMEOUT with
    /// [`may_have_changed`](rma_core::command::Completion::may_have_changed): it may have been, and
    /// never will be any longer; [`Portal::settle`] asks which. Any other status: it was not, and
    /// will not be (but of a WRITE_WITH_IMM that is not ordered some bytes may have landed).
    ///
    /// To issue it again after a TIMEOUT without asking applies it twice, if it was applied: where
    /// somebody consumes what it publishes, that is a second message.
    ///
    /// # Errors
    /// If no slot is free, or the op cannot be right. Then nothing was issued.
    pub fn issue_recorded(&mut self, op: &RecordedOp<'_>) -> Result<CommandSlotId, SubmitError> {
        self.rings.issue_recorded(op)
    }

    /// Asks what became of the recorded op that its target calls `name`
    /// ([`Completion::name`](rma_core::command::Completion::name)) and that ended with TIMEOUT, in
    /// the latency class. `grant` is one for its region and type, under the region's present key.
    /// Of an op that has not ended, it cancels what has not been applied.
    ///
    /// OK brings a [`verdict`](rma_core::command::Completion::verdict), and of an atomic that was
    /// applied its result. Any other status says nothing of the op: ask again. A target answers for
    /// four of its timeouts after the op was applied, and then may have forgotten.
    ///
    /// # Errors
    /// If no slot is free, or the grant is not one for such an op from this portal. Then nothing
    /// was issued.
    pub fn settle(&mut self, grant: &Grant, name: OpName) -> Result<CommandSlotId, SubmitError> {
        self.rings.settle(grant, name)
    }
}
