//! Recorded ops of an application: SEND, NOTIFY, WRITE_WITH_IMM, ordered WRITE and atomics, and
//! SETTLE (not in the paper).

use super::{Batch, Change, CommandPortal, Placement, RecordedOp, Source};
use crate::{
    addr::HostAddr,
    command::{self, CommandOp, CommandSlotId, Completion, Transfer},
    error::SubmitError,
    grant::Grant,
    op::{ClassOfService, OpStatus},
    outcome::{Done, OpName},
    region::{RegionId, RegisteredRegion},
};

/// A slot's memory of its recorded ops: the next one that it has on the same region says that this
/// one is done, so that its target need not keep its record.
///
/// Of two regions, the last ones: who reserves by one and writes to the other, in turns, would else
/// never say so, and hold records for as long as targets keep them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastOp {
    /// The place of the op.
    on: Option<On>,
    /// The names of ops whose end is known, and where they were; the older one first.
    done: [Option<(On, Done)>; 2],
}

/// A region of a host.
type On = (HostAddr, RegionId);

impl LastOp {
    /// An op on `region` of `responder` is about to be issued, a recorded one or its SETTLE.
    /// Returns the op that is done there.
    fn begin(&mut self, responder: HostAddr, region: RegionId) -> Option<Done> {
        let here = (responder, region);
        self.on = Some(here);
        let done = self.done.iter_mut().find_map(|it| it.take_if(|(on, _)| *on == here));
        done.map(|(_, done)| done)
    }

    /// The op has ended.
    #[inline]
    pub(super) fn end(&mut self, completion: &Completion) {
        // Of a TIMEOUT the target may have to tell more.
        if let Some(name) = completion.name()
            && completion.status != OpStatus::Timeout
            && let Some(on) = self.on
        {
            let [older, newer] = &mut self.done;
            if let Some(before) = newer.replace((on, name.into())) {
                *older = Some(before);
            }
        }
    }
}

impl CommandPortal {
    /// Sends `len` bytes of `source` to a receive queue, in the latency class. See
    /// [`CommandPortal::issue_recorded`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_recorded`].
    pub fn send(
        &mut self,
        grant: &Grant,
        source: &RegisteredRegion,
        source_offset: u64,
        len: u32,
        immediate: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        let message = Source { region: source, offset: source_offset, len };
        self.issue_change(grant, Change::Send { message, immediate })
    }

    /// Makes an event in a receive queue, in the latency class: the bufferless send. See
    /// [`CommandPortal::issue_recorded`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_recorded`].
    pub fn notify(&mut self, grant: &Grant, immediate: u64) -> Result<CommandSlotId, SubmitError> {
        self.issue_change(grant, Change::Notify { immediate })
    }

    /// Writes to a region, and makes an event in the queue that it names, in the latency class. See
    /// [`CommandPortal::issue_recorded`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_recorded`].
    pub fn write_with_imm(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        source: Source<'_>,
        immediate: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        let placement = Placement::Any;
        let change = Change::WriteWithImm { remote_offset, source, immediate, placement };
        self.issue_change(grant, change)
    }

    /// Writes to a region so that the last word lands last, in the latency class. See
    /// [`CommandPortal::issue_recorded`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_recorded`].
    pub fn write_ordered(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        source: Source<'_>,
    ) -> Result<CommandSlotId, SubmitError> {
        self.issue_change(grant, Change::OrderedWrite { remote_offset, source })
    }

    /// Replaces a word of a region by `new` if it is `expected`, in the latency class. What was
    /// there is the completion's [`result`](Completion::result). See
    /// [`CommandPortal::issue_recorded`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_recorded`].
    pub fn compare_swap(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        self.issue_change(grant, Change::CompareSwap { remote_offset, expected, new })
    }

    /// Adds `addend` to a word of a region, modulo 2^64, in the latency class. What was there is
    /// the completion's [`result`](Completion::result). See [`CommandPortal::issue_recorded`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_recorded`].
    pub fn fetch_add(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        addend: u64,
    ) -> Result<CommandSlotId, SubmitError> {
        self.issue_change(grant, Change::FetchAdd { remote_offset, addend })
    }

    fn issue_change(
        &mut self,
        grant: &Grant,
        change: Change<'_>,
    ) -> Result<CommandSlotId, SubmitError> {
        self.issue_recorded(&RecordedOp { grant, change, class: ClassOfService::Latency })
    }

    /// Issues a recorded op. Its completion names the slot that is returned here.
    ///
    /// It is applied at most once. OK: it was. TIMEOUT with
    /// [`may_have_changed`](Completion::may_have_changed): it may have been, and never will be any
    /// longer; [`CommandPortal::settle`] asks which. Any other status: it was not, and will not be
    /// (but of a WRITE_WITH_IMM that is not ordered some bytes may have landed).
    ///
    /// To issue it again after a TIMEOUT without asking applies it twice, if it was applied: where
    /// somebody consumes what it publishes, that is a second message.
    ///
    /// # Errors
    /// If no slot is free, or the op cannot be right. Then nothing was issued.
    pub fn issue_recorded(&mut self, op: &RecordedOp<'_>) -> Result<CommandSlotId, SubmitError> {
        self.batch().recorded(op)
    }

    /// Asks what became of the recorded op that its target calls `name`
    /// ([`Completion::name`]) and that ended with TIMEOUT, in the latency class. `grant` is one for
    /// its region and type, under the region's present key. Of an op that has not ended, it cancels
    /// what has not been applied.
    ///
    /// OK brings a [`verdict`](Completion::verdict), and of an atomic that was applied its result.
    /// Any other status says nothing of the op: ask again. A target answers for four of its
    /// timeouts after the op was applied, and then may have forgotten.
    ///
    /// # Errors
    /// If no slot is free, or the grant is not one for such an op from this portal. Then nothing
    /// was issued.
    pub fn settle(&mut self, grant: &Grant, name: OpName) -> Result<CommandSlotId, SubmitError> {
        let op_type = grant.op_type;
        if !op_type.may_be_recorded() {
            return Err(SubmitError::NotRecorded { op_type });
        }
        let settle = CommandOp::Settle { op_type, name };
        let slot = self.place(grant, ClassOfService::Latency, settle)?;
        // Whatever it had before is forgotten: the next one says that the settled op is done.
        let _ = self.last_op(slot).begin(grant.responder, grant.region);
        self.ring();
        Ok(slot)
    }

    fn place_recorded(&mut self, op: &RecordedOp<'_>) -> Result<CommandSlotId, SubmitError> {
        let RecordedOp { grant, change, class } = *op;
        self.check_grant(grant, change.op_type())?;
        let op = self.command_of(&change)?;
        let slots = self.slots.len() as u16;
        let slot = self.next_slot().ok_or(SubmitError::NoFreeCommandSlot { slots })?;
        let done = self.last_op(slot).begin(grant.responder, grant.region);
        self.place(grant, class, CommandOp::Recorded { op, done })
    }

    /// A recorded op, or the SETTLE of one, is about to be put into the ring from `slot`, which was
    /// taken. Returns the op that is done there.
    pub(crate) fn begin_recorded(
        &mut self,
        slot: CommandSlotId,
        responder: HostAddr,
        region: RegionId,
    ) -> Option<Done> {
        self.last_op(slot).begin(responder, region)
    }

    /// Returns the command, if it can be right.
    pub(crate) fn command_of(
        &self,
        change: &Change<'_>,
    ) -> Result<command::RecordedOp, SubmitError> {
        let remote_offset = change.remote_offset();
        let transfer = |&Source { region, offset, len }: &Source<'_>| {
            let of = |local_region| Transfer {
                op_size: len,
                remote_offset,
                local_region,
                local_offset: offset,
            };
            self.checked(region, offset, len).map(of)
        };
        let op = match *change {
            Change::OrderedWrite { source, .. } => {
                command::RecordedOp::OrderedWrite(transfer(&source)?)
            }
            Change::Send { message, immediate } => {
                command::RecordedOp::Send { message: transfer(&message)?, immediate }
            }
            Change::WriteWithImm { source, immediate, placement, .. } => {
                let (transfer, ordered) = (transfer(&source)?, placement == Placement::Ordered);
                command::RecordedOp::WriteWithImm { transfer, immediate, ordered }
            }
            Change::Notify { immediate } => command::RecordedOp::Notify { immediate },
            Change::CompareSwap { expected, new, .. } => {
                command::RecordedOp::CompareSwap { remote_offset, expected, new }
            }
            Change::FetchAdd { addend, .. } => {
                command::RecordedOp::FetchAdd { remote_offset, addend }
            }
        };
        if op.is_defined() {
            Ok(op)
        } else {
            Err(SubmitError::Misaligned { remote_offset, op_size: op.op_size() })
        }
    }

    /// Returns the last op of `slot`, which is the portal's.
    pub(super) fn last_op(&mut self, slot: CommandSlotId) -> &mut LastOp {
        &mut self.last_ops[usize::from(slot.0 - self.slots.start)]
    }
}

impl Batch<'_> {
    /// Issues a recorded op. See [`CommandPortal::issue_recorded`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_recorded`]. What was issued before is not affected.
    pub fn recorded(&mut self, op: &RecordedOp<'_>) -> Result<CommandSlotId, SubmitError> {
        let slot = self.portal.place_recorded(op)?;
        self.any = true;
        Ok(slot)
    }
}
