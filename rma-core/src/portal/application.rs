//! The application's end of a portal: issuing ops, and taking their completions.

use core::ops::Range;

use rma_shm::{Consumer, Full, Process, Producer};

use super::{Bell, Flag, PortalConfig, ReadOp, WriteOp, recorded::LastOp};
use crate::{
    addr::{LocalAddresses, Pid},
    command::{Command, CommandOp, CommandSlotId, Completion, Transfer},
    crypto::RegionKey,
    error::SubmitError,
    grant::Grant,
    limits::OP_SIZE_MAX,
    op::{ClassOfService, OpType},
    region::{NicTag, RegionId, RegisteredRegion},
};

//= 1rma#4.4-portal
/// An application's command slots and its completion queue. Used by one thread at a time.
#[derive(Debug)]
pub struct CommandPortal {
    pub(super) commands: Producer,
    pub(super) completions: Consumer,
    free: Vec<CommandSlotId>,
    /// By slot: whether a command of it is under way.
    under_way: Box<[bool]>,
    /// By slot: the recorded op that it had last.
    pub(super) last_ops: Box<[LastOp]>,
    pub(super) slots: Range<u16>,
    pid: Pid,
    addresses: LocalAddresses,
    bell: Option<Bell>,
    flag: Option<Flag>,
    nic: NicTag,
    /// The engine's end is of no use in a child.
    process: Process,
}

impl CommandPortal {
    pub(super) fn new(config: PortalConfig, commands: Producer, completions: Consumer) -> Self {
        let PortalConfig { slots, pid, addresses, bell, flag, nic } = config;
        Self {
            commands,
            completions,
            // The slot used last is on top: its state is still in the cache.
            free: slots.clone().rev().map(CommandSlotId).collect(),
            under_way: vec![false; slots.len()].into(),
            last_ops: vec![LastOp::default(); slots.len()].into(),
            slots,
            pid,
            addresses,
            bell,
            flag,
            nic,
            process: Process::this(),
        }
    }

    /// The PID that grants for this portal must name.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// The portal's command slots.
    #[must_use]
    pub const fn slots(&self) -> &Range<u16> {
        &self.slots
    }

    /// The slot that the next command will get; `None` if all are in use. Lets an application keep
    /// what belongs to an op, such as the place where its data lands, by slot.
    #[must_use]
    pub fn next_slot(&self) -> Option<CommandSlotId> {
        self.free.last().copied()
    }

    /// How many ops have been issued whose completions have not been polled.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Issues a read of `op_size` bytes at `remote_offset` of the granted region into `sink`, in
    /// the latency class. See [`CommandPortal::issue_read`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_read`].
    pub fn read(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        sink: &RegisteredRegion,
        sink_offset: u64,
        op_size: u32,
    ) -> Result<CommandSlotId, SubmitError> {
        let class = ClassOfService::Latency;
        self.issue_read(&ReadOp { grant, remote_offset, sink, sink_offset, op_size, class })
    }

    /// Issues a read. Its completion names the slot that is returned here.
    ///
    /// Until then the bytes of `sink` that the op covers may change at any moment.
    ///
    /// # Errors
    /// If no slot is free, or the op cannot be right. Then nothing was issued.
    pub fn issue_read(&mut self, op: &ReadOp<'_>) -> Result<CommandSlotId, SubmitError> {
        self.batch().read(op)
    }

    /// Issues several ops at once: the engine sees the last of them, and is woken if it sleeps,
    /// when the batch is dropped.
    pub const fn batch(&mut self) -> Batch<'_> {
        Batch { portal: self, any: false }
    }

    fn place_read(&mut self, op: &ReadOp<'_>) -> Result<CommandSlotId, SubmitError> {
        let &ReadOp { grant, remote_offset, sink, sink_offset, op_size, class } = op;
        let local = self.checked(sink, sink_offset, op_size)?;
        let transfer =
            Transfer { op_size, remote_offset, local_region: local, local_offset: sink_offset };
        self.place(grant, class, CommandOp::Read(transfer))
    }

    /// Issues a write of `op_size` bytes from `source` to `remote_offset` of the granted region, in
    /// the latency class. See [`CommandPortal::issue_write`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_write`].
    pub fn write(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        source: &RegisteredRegion,
        source_offset: u64,
        op_size: u32,
    ) -> Result<CommandSlotId, SubmitError> {
        let class = ClassOfService::Latency;
        self.issue_write(&WriteOp { grant, remote_offset, source, source_offset, op_size, class })
    }

    /// Issues a write (§5.1). Its completion names the slot that is returned here.
    ///
    /// Until then the bytes of `source` that the op covers must not change, or what is written is
    /// some of the old and some of the new. Unless it is OK, any part of the op may have been
    /// written, but nothing will be later: it is safe to write again, or to write something else.
    ///
    /// # Errors
    /// If no slot is free, or the op cannot be right. Then nothing was issued.
    //= 1rma#5.1-write
    pub fn issue_write(&mut self, op: &WriteOp<'_>) -> Result<CommandSlotId, SubmitError> {
        self.batch().write(op)
    }

    fn place_write(&mut self, op: &WriteOp<'_>) -> Result<CommandSlotId, SubmitError> {
        let &WriteOp { grant, remote_offset, source, source_offset, op_size, class } = op;
        let local = self.checked(source, source_offset, op_size)?;
        let transfer =
            Transfer { op_size, remote_offset, local_region: local, local_offset: source_offset };
        self.place(grant, class, CommandOp::Write(transfer))
    }

    /// Issues a Rekey: `key` becomes the K_r of the granted region (§5.2). Ops on it that come
    /// under keys derived from the old one fail with REMOTE_AUTHENTICATION_FAILURE from then on; no
    /// other region notices.
    ///
    /// The new key travels encrypted under the old one: an attacker who has the old key and has
    /// recorded the frames has the new one, too. A key that may have leaked is replaced at its own
    /// host, by the driver.
    ///
    /// Unless it completes with OK, the key may or may not have been changed; it never will be.
    ///
    /// # Errors
    /// If no slot is free, or the grant is not for this portal or not for Rekey. Then nothing was
    /// issued.
    pub fn rekey(&mut self, grant: &Grant, key: RegionKey) -> Result<CommandSlotId, SubmitError> {
        let slot = self.place(grant, ClassOfService::Latency, CommandOp::Rekey(key))?;
        self.ring();
        Ok(slot)
    }

    /// The name of `local`, if it has `op_size` bytes at `offset`.
    pub(super) fn checked(
        &self,
        local: &RegisteredRegion,
        offset: u64,
        op_size: u32,
    ) -> Result<RegionId, SubmitError> {
        if !(1..=OP_SIZE_MAX).contains(&op_size) {
            return Err(SubmitError::OpSize { op_size });
        }
        let (region, region_len) = (local.id(), local.len());
        self.check_local(local)?;
        if !local.memory().holds(offset, op_size.into()) {
            return Err(SubmitError::LocalOutOfBounds { region, region_len, offset, op_size });
        }
        Ok(region)
    }

    /// Puts a command into the ring. [`CommandPortal::ring`] must follow.
    // Inlined, so that the line of a READ is written by whoever knows that it is one.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        grant: &Grant,
        class: ClassOfService,
        op: CommandOp,
    ) -> Result<CommandSlotId, SubmitError> {
        self.check_grant(grant, op.op_type())?;
        //= 1rma#4.3-slots-cap-ops
        let slots = self.slots.len() as u16;
        let slot = self.take_slot().ok_or(SubmitError::NoFreeCommandSlot { slots })?;
        let Grant { responder, region, key, .. } = *grant;
        let command = Command { slot, class, responder, remote_region: region, key, op };
        self.put_any(&command).map_err(|Full| self.refuse(slot))?;
        Ok(slot)
    }

    /// Whether `grant` is one for ops of this type from this portal, and the portal is this
    /// process's.
    #[inline]
    pub(crate) fn check_grant(&self, grant: &Grant, wanted: OpType) -> Result<(), SubmitError> {
        self.process.check()?;
        let granted = grant.op_type;
        if granted != wanted {
            return Err(SubmitError::GrantForAnotherOpType { granted, wanted });
        }
        if grant.pid != self.pid {
            return Err(SubmitError::GrantForAnotherProcess {
                granted: grant.pid,
                portal: self.pid,
            });
        }
        if self.addresses.toward(grant.responder) != Some(grant.initiator) {
            return Err(SubmitError::GrantForAnotherHost { granted: grant.initiator });
        }
        Ok(())
    }

    /// Whether `local` is a region of this portal's host.
    #[inline]
    pub(crate) fn check_local(&self, local: &RegisteredRegion) -> Result<(), SubmitError> {
        if local.nic() != self.nic {
            return Err(SubmitError::RegionOfAnotherHost { region: local.id() });
        }
        Ok(())
    }

    /// A slot that is free, and is not from now on.
    #[inline]
    pub(crate) fn take_slot(&mut self) -> Option<CommandSlotId> {
        let slot = self.free.pop()?;
        self.under_way[usize::from(slot.0 - self.slots.start)] = true;
        Some(slot)
    }

    /// Issues `command` unseen, as a hostile application could.
    #[cfg(test)]
    pub(crate) fn issue(&mut self, command: &Command) {
        self.put_any(command).expect("room for a command");
        self.ring();
    }

    //= 1rma#B-command-store
    //= type=deviation
    /// Puts `command`, which has one line, into the ring. The engine may not see it before
    /// [`CommandPortal::ring`].
    ///
    /// The ring has two entries for every slot, so it is full only if the engine is broken: it has
    /// completed commands that it has not taken.
    // Inlined: one that went through memory took 4 of the 66 ns of an op of an executor.
    #[inline(always)]
    pub(crate) fn put(&mut self, command: &Command) -> Result<(), Full> {
        self.commands.push_unpublished(&command.to_line())
    }

    /// [`CommandPortal::put`] for one that may have two lines.
    #[inline(always)]
    pub(crate) fn put_any(&mut self, command: &Command) -> Result<(), Full> {
        match command.op {
            CommandOp::Recorded { .. } => self.put_pair(command),
            _ => self.put(command),
        }
    }

    fn put_pair(&mut self, command: &Command) -> Result<(), Full> {
        let second = command.to_second_line().expect("a recorded op has a second line");
        self.commands.push_pair_unpublished(&command.to_line(), &second)
    }

    /// Gives back the slot of a command that a broken engine has left no room for.
    #[cold]
    fn refuse(&mut self, slot: CommandSlotId) -> SubmitError {
        if self.is_over(slot) {
            self.free.push(slot);
        }
        SubmitError::CommandsNotTaken
    }

    /// Lets the engine see what was put into the ring, and wakes it if it sleeps. Once is enough
    /// after any number of commands.
    pub(crate) fn ring(&mut self) {
        self.commands.publish();
        // One fence for both: the flag's.
        if let Some(flag) = &self.flag {
            flag.raise();
        }
        let Some(bell) = &self.bell else { return };
        let is_asleep = match self.flag {
            Some(_) => bell.doorbell.needs_ring_after_fence(),
            None => bell.doorbell.needs_ring(),
        };
        if is_asleep {
            bell.wake.wake();
        }
    }

    /// Whether [`CommandPortal::poll`] has a completion to take. Always looks at what the engine
    /// has written, so a thread may ask it between
    /// [`Doorbell::prepare_sleep`](rma_shm::Doorbell::prepare_sleep) and its sleep.
    #[must_use]
    pub fn has_completion(&self) -> bool {
        !self.completions.is_empty()
    }

    /// The next completion, if there is one. Its slot may be used again.
    #[must_use]
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        loop {
            let completion = Completion::from_line(&self.completions.pop()?);
            // Of a broken engine nothing worse comes than that ops never end.
            if let Some(completion) = completion
                && self.is_over(completion.slot)
            {
                self.free.push(completion.slot);
                if completion.name().is_some() {
                    self.last_op(completion.slot).end(&completion);
                }
                return Some(completion);
            }
        }
    }

    /// Whether `slot` has a command under way. It has none from now on.
    #[inline]
    fn is_over(&mut self, slot: CommandSlotId) -> bool {
        let index = slot.0.checked_sub(self.slots.start);
        let under_way = index.and_then(|index| self.under_way.get_mut(usize::from(index)));
        under_way.is_some_and(core::mem::take)
    }
}

/// Ops that are issued together. See [`CommandPortal::batch`]. To be dropped, not forgotten: the
/// engine would not see all of them.
#[derive(Debug)]
pub struct Batch<'a> {
    pub(super) portal: &'a mut CommandPortal,
    /// Whether an op was issued. Without any the engine is not told: that takes a fence, and
    /// whoever issues in a loop has many batches without an op.
    pub(super) any: bool,
}

impl Batch<'_> {
    /// Issues a read. See [`CommandPortal::issue_read`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_read`]. What was issued before is not affected.
    pub fn read(&mut self, op: &ReadOp<'_>) -> Result<CommandSlotId, SubmitError> {
        let slot = self.portal.place_read(op)?;
        self.any = true;
        Ok(slot)
    }

    /// Issues a write. See [`CommandPortal::issue_write`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_write`]. What was issued before is not affected.
    pub fn write(&mut self, op: &WriteOp<'_>) -> Result<CommandSlotId, SubmitError> {
        let slot = self.portal.place_write(op)?;
        self.any = true;
        Ok(slot)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.any {
            self.portal.ring();
        }
    }
}
