//! The CommandPortal: an application's command slots and its completion queue (1RMA §4.4, figure
//! 4).
//!
//! Two rings of lines join an application thread to its engine: commands one way, completions the
//! other. Issuing a command is one store of 64 bytes and one Release store: no lock and, unless the
//! engine sleeps, no system call.
//!
//! The portal hands out a [`CommandSlotId`] with each command and takes it back with the
//! completion. It never has more commands under way than slots, and both rings have at least as
//! many entries as slots, so neither can be full.
//!
//! The engine's end, [`PortalPort`], believes none of that: the rings are memory that a hostile
//! application could write to (P8). It takes only commands for the portal's own slots, and takes
//! none as long as their completions would have no room, so that an application that breaks the
//! rules stalls itself alone. Indexes that cannot be are counted
//! ([`NicCounters::impossible_indexes`](crate::nic::NicCounters::impossible_indexes)).

use core::ops::Range;
use std::sync::Arc;

use rma_shm::{Consumer, Doorbell, Producer, ring};

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

/// Wakes a thread that sleeps in the kernel. Implemented where system calls are made.
pub trait Wake: core::fmt::Debug + Send + Sync {
    /// Makes the thread's present or next sleep end at once. Never blocks.
    fn wake(&self);
}

/// How an application wakes its engine, or the engine an application's thread.
#[derive(Clone, Debug)]
pub struct Bell {
    /// Whether the one to be woken sleeps.
    pub doorbell: Arc<Doorbell>,
    /// How to wake it.
    pub wake: Arc<dyn Wake>,
}

/// What the driver fixes when it allocates a portal.
#[derive(Clone, Debug)]
pub struct PortalConfig {
    /// The portal's command slots: at least one.
    pub slots: Range<u16>,
    /// PID_initiator of all its ops.
    pub pid: Pid,
    /// The host's addresses.
    pub addresses: LocalAddresses,
    /// How to wake the engine; `None` if the engine never sleeps.
    pub bell: Option<Bell>,
    /// The NIC that the slots belong to.
    pub nic: NicTag,
}

/// Makes a portal and the engine's end of it.
///
/// # Panics
/// If there are no slots.
#[must_use]
pub fn portal(config: PortalConfig) -> (CommandPortal, PortalPort) {
    let PortalConfig { slots, pid, addresses, bell, nic } = config;
    let entries = slots.len().next_power_of_two();
    assert!(!slots.is_empty(), "a portal has at least one slot");
    let new_ring = || ring(entries).expect("at most 2^16 slots, rounded up to a power of two");
    let (commands, taken) = new_ring();
    let (given, completions) = new_ring();
    let portal = CommandPortal {
        commands,
        completions,
        // The slot used last is on top: its state is still in the cache.
        free: slots.clone().rev().map(CommandSlotId).collect(),
        under_way: vec![false; slots.len()].into(),
        slots: slots.clone(),
        pid,
        addresses,
        bell,
        nic,
    };
    let port = PortalPort::new(slots, taken, given);
    (portal, port)
}

/// A read of 1 to [`OP_SIZE_MAX`] bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReadOp<'a> {
    /// The permission to read.
    pub grant: &'a Grant,
    /// Where in the remote region, in bytes. The responder checks it.
    pub remote_offset: u64,
    /// Where the data lands.
    pub sink: &'a RegisteredRegion,
    /// Where in `sink`, in bytes.
    pub sink_offset: u64,
    /// How many bytes.
    pub op_size: u32,
    /// With which class of service.
    pub class: ClassOfService,
}

/// A write of 1 to [`OP_SIZE_MAX`] bytes.
#[derive(Clone, Copy, Debug)]
pub struct WriteOp<'a> {
    /// The permission to write.
    pub grant: &'a Grant,
    /// Where in the remote region, in bytes. The responder checks it.
    pub remote_offset: u64,
    /// Where the data comes from.
    pub source: &'a RegisteredRegion,
    /// Where in `source`, in bytes.
    pub source_offset: u64,
    /// How many bytes.
    pub op_size: u32,
    /// With which class of service.
    pub class: ClassOfService,
}

//= 1rma#4.4-portal
/// An application's command slots and its completion queue. Used by one thread at a time.
#[derive(Debug)]
pub struct CommandPortal {
    commands: Producer,
    completions: Consumer,
    free: Vec<CommandSlotId>,
    /// By slot: whether a command of it is under way.
    under_way: Box<[bool]>,
    slots: Range<u16>,
    pid: Pid,
    addresses: LocalAddresses,
    bell: Option<Bell>,
    nic: NicTag,
}

impl CommandPortal {
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
        Batch { portal: self }
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
    /// written, but nothing will be any more: it is safe to write again, or to write something
    /// else.
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
    /// The new key travels encrypted under the old one: who has the old key and has recorded the
    /// frames has the new one, too. A key that may have leaked is replaced at its own host, by the
    /// driver.
    ///
    /// Unless it completes with OK, the key may or may not have been changed; it will not be any
    /// more.
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
    fn checked(
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
        if offset.checked_add(op_size.into()).is_none_or(|end| end > region_len) {
            return Err(SubmitError::LocalOutOfBounds { region, region_len, offset, op_size });
        }
        Ok(region)
    }

    /// Puts a command into the ring. [`CommandPortal::ring`] is to follow.
    fn place(
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
        self.put(&Command { slot, class, responder, remote_region: region, key, op });
        Ok(slot)
    }

    /// Whether `grant` is one for ops of this type from this portal.
    #[inline]
    pub(crate) fn check_grant(&self, grant: &Grant, wanted: OpType) -> Result<(), SubmitError> {
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
        self.put(command);
        self.ring();
    }

    //= 1rma#B-command-store
    //= type=deviation
    /// Puts `command` into the ring. The engine may not see it before [`CommandPortal::ring`].
    #[inline]
    pub(crate) fn put(&mut self, command: &Command) {
        let pushed = self.commands.push_unpublished(&command.to_line());
        pushed.expect("the ring has an entry for every slot");
    }

    /// Lets the engine see what was put into the ring, and wakes it if it sleeps. Once is enough
    /// after any number of commands.
    pub(crate) fn ring(&mut self) {
        self.commands.publish();
        if let Some(bell) = &self.bell
            && bell.doorbell.needs_ring()
        {
            bell.wake.wake();
        }
    }

    /// Whether [`CommandPortal::poll`] has a completion to take. Always looks at what the engine
    /// has written, so a thread may ask it between [`Doorbell::prepare_sleep`] and its sleep.
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

impl AsMut<Self> for CommandPortal {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// Ops that are issued together. See [`CommandPortal::batch`]. To be dropped, not forgotten: the
/// engine would not see all of them.
#[derive(Debug)]
pub struct Batch<'a> {
    portal: &'a mut CommandPortal,
}

impl Batch<'_> {
    /// Issues a read. See [`CommandPortal::issue_read`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_read`]. What was issued before is not affected.
    pub fn read(&mut self, op: &ReadOp<'_>) -> Result<CommandSlotId, SubmitError> {
        self.portal.place_read(op)
    }

    /// Issues a write. See [`CommandPortal::issue_write`].
    ///
    /// # Errors
    /// As [`CommandPortal::issue_write`]. What was issued before is not affected.
    pub fn write(&mut self, op: &WriteOp<'_>) -> Result<CommandSlotId, SubmitError> {
        self.portal.place_write(op)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.portal.ring();
    }
}

/// The engine's end of a portal.
#[derive(Debug)]
pub struct PortalPort {
    commands: Consumer,
    completions: Producer,
    slots: Range<u16>,
    /// Commands taken whose completions have not been given. `completions` has room for them.
    outstanding: usize,
    /// How many of the rings' impossible indexes have been told.
    impossible_told: u64,
    /// How to wake the application's thread when it sleeps; `None` if it never does.
    sleeper: Option<Bell>,
    /// Whether completions have been given since the application's thread was last looked after.
    given: bool,
}

impl PortalPort {
    /// The engine's end of rings whose other end may be anybody's. [`portal()`] makes both.
    #[must_use]
    pub const fn new(slots: Range<u16>, commands: Consumer, completions: Producer) -> Self {
        Self {
            commands,
            completions,
            slots,
            outstanding: 0,
            impossible_told: 0,
            sleeper: None,
            given: false,
        }
    }

    /// The engine looks after an application's thread that sleeps: it rings `bell` after
    /// completions that it has given meanwhile, at most once a turn, and when it serves the portal
    /// no more.
    pub fn set_sleeper(&mut self, bell: Bell) {
        self.sleeper = Some(bell);
    }

    /// The portal's command slots.
    #[must_use]
    pub const fn slots(&self) -> &Range<u16> {
        &self.slots
    }

    /// Whether no command can be taken. Looks at the other side's memory.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let has_room = self.outstanding + self.completions.len() < self.completions.capacity();
        self.commands.is_empty() || !has_room
    }

    /// Whether every command that was taken has got its completion.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.outstanding == 0
    }

    /// Whether [`PortalPort::take`] has a command to take. It keeps it, whatever the application
    /// does.
    pub(crate) fn has_command(&mut self) -> bool {
        // In this order: an application that keeps to the rules makes room before it issues the
        // command.
        self.commands.has_line() && self.completions.has_room_for(self.outstanding + 1)
    }

    /// Takes the next command, or the slot of one that cannot be read; `None` if there is none, or
    /// its completion would have no room.
    #[inline]
    pub fn take(&mut self) -> Option<Result<Command, CommandSlotId>> {
        if !self.has_command() {
            return None;
        }
        let command = Command::from_line(&self.commands.pop_and_wipe_if(Command::is_secret)?);
        self.outstanding += 1;
        Some(command)
    }

    /// How many more of the other side's indexes were found to be impossible since the last call.
    pub(crate) fn impossible_indexes(&mut self) -> u64 {
        let all =
            self.commands.impossible_indexes().wrapping_add(self.completions.impossible_indexes());
        all.wrapping_sub(core::mem::replace(&mut self.impossible_told, all))
    }

    /// Whether `slot` is one of the portal's.
    pub(crate) fn owns(&self, slot: CommandSlotId) -> bool {
        self.slots.contains(&slot.0)
    }

    /// A command that was taken led to no op, so there will be no completion.
    pub(crate) const fn forget(&mut self) {
        self.outstanding -= 1;
    }

    /// Gives a completion to the application. `take` has seen room for it, which the application
    /// cannot take back. `true` if it is the first one that [`PortalPort::wake_sleeper`] is to be
    /// called for.
    ///
    /// One for each command that was taken, and no more.
    #[inline]
    pub fn complete(&mut self, completion: &Completion) -> bool {
        self.outstanding -= 1;
        let pushed = self.completions.push(&completion.to_line());
        debug_assert!(pushed.is_ok(), "room that was seen stays");
        self.sleeper.is_some() && !core::mem::replace(&mut self.given, true)
    }

    /// Wakes the application's thread if it sleeps. To be called once after a burst of completions.
    pub fn wake_sleeper(&mut self) {
        self.given = false;
        if let Some(bell) = &self.sleeper
            && bell.doorbell.needs_ring()
        {
            bell.wake.wake();
        }
    }
}

impl Drop for PortalPort {
    /// Nobody will give completions any more: who waits for one is to learn it.
    fn drop(&mut self) {
        if let Some(bell) = &self.sleeper {
            bell.wake.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        addr::HostAddr,
        crypto::DerivedRegionKey,
        op::{OpStatus, OpType},
    };
    use rma_shm::Region;

    fn local() -> HostAddr {
        "192.0.2.1".parse().unwrap()
    }

    fn pair(slots: Range<u16>) -> (CommandPortal, PortalPort) {
        portal(PortalConfig {
            slots,
            pid: Pid(7),
            addresses: local().into(),
            bell: None,
            nic: NicTag(1),
        })
    }

    fn grant() -> Grant {
        Grant {
            responder: "192.0.2.2".parse().unwrap(),
            region: RegionId::from_bits(3),
            region_len: 4096,
            initiator: local(),
            pid: Pid(7),
            op_type: OpType::Read,
            key: DerivedRegionKey::from_bytes([1; 16]),
        }
    }

    fn sink(len: usize) -> RegisteredRegion {
        RegisteredRegion::new(
            RegionId::from_bits(9),
            Arc::new(Region::new(len).unwrap()),
            NicTag(1),
        )
    }

    //= 1rma#4.4-portal
    //= type=test
    //= 1rma#4.3-slots-cap-ops
    //= type=test
    //= 1rma#B-command-store
    //= type=test
    #[test]
    fn a_command_passes_and_its_completion_frees_the_slot() {
        let (mut portal, mut port) = pair(4..5);
        let sink = sink(64);
        let slot = portal.read(&grant(), 100, &sink, 0, 64).unwrap();
        assert_eq!(slot, CommandSlotId(4));
        assert_eq!(
            portal.read(&grant(), 0, &sink, 0, 1).unwrap_err(),
            SubmitError::NoFreeCommandSlot { slots: 1 }
        );
        let command = port.take().unwrap().unwrap();
        assert_eq!((command.slot, command.op.op_size()), (slot, 64));
        let CommandOp::Read(Transfer { remote_offset: 100, .. }) = command.op else {
            panic!("a read at 100: {command:?}")
        };
        assert!(port.take().is_none());
        assert!(portal.poll().is_none());
        port.complete(&Completion::new(slot, OpStatus::Ok, 1, 2));
        assert_eq!(portal.poll().unwrap().slot, slot);
        assert!(portal.read(&grant(), 0, &sink, 0, 1).is_ok());
    }

    #[test]
    fn the_ring_keeps_no_copy_of_a_new_region_key() {
        let (mut portal, mut port) = pair(0..2);
        let memory = portal.commands.memory();
        let key = RegionKey::from_bytes([0x5a; 16]);
        let to_rekey = Grant { op_type: OpType::Rekey, ..grant() };
        portal.rekey(&to_rekey, key).unwrap();
        portal.read(&grant(), 0, &sink(64), 0, 64).unwrap();
        let rekey = port.take().unwrap().unwrap();
        assert_eq!(rekey.op, CommandOp::Rekey(key));
        assert_eq!(memory.line(0), rma_shm::Line::ZERO);
        let read = port.take().unwrap().unwrap();
        assert_eq!(memory.line(1), read.to_line(), "what holds no K_r costs no store");
    }

    #[test]
    fn ops_that_cannot_be_right_are_refused_with_their_values() {
        let (mut portal, mut port) = pair(0..4);
        let sink = sink(100);
        for op_size in [0, 4097, u32::MAX] {
            let error = portal.read(&grant(), 0, &sink, 0, op_size).unwrap_err();
            assert_eq!(error, SubmitError::OpSize { op_size });
        }
        for (offset, op_size) in [(100, 1), (0, 101), (u64::MAX, 1), (u64::MAX - 63, 64)] {
            let error = portal.read(&grant(), 0, &sink, offset, op_size).unwrap_err();
            assert!(matches!(error, SubmitError::LocalOutOfBounds { .. }), "{error}");
        }
        let other_process = Grant { pid: Pid(8), ..grant() };
        let error = portal.read(&other_process, 0, &sink, 0, 1).unwrap_err();
        assert_eq!(error, SubmitError::GrantForAnotherProcess { granted: Pid(8), portal: Pid(7) });
        let other_host = Grant { initiator: grant().responder, ..grant() };
        let error = portal.read(&other_host, 0, &sink, 0, 1).unwrap_err();
        assert_eq!(error, SubmitError::GrantForAnotherHost { granted: grant().responder });
        let error = portal.write(&grant(), 0, &sink, 0, 1).unwrap_err();
        let (granted, wanted) = (OpType::Read, OpType::Write);
        assert_eq!(error, SubmitError::GrantForAnotherOpType { granted, wanted });
        let error = portal.rekey(&grant(), RegionKey::from_bytes([0; 16])).unwrap_err();
        assert!(matches!(error, SubmitError::GrantForAnotherOpType { .. }), "{error}");
        let elsewhere = RegisteredRegion::new(sink.id(), sink.memory().clone(), NicTag(2));
        let error = portal.read(&grant(), 0, &elsewhere, 0, 1).unwrap_err();
        assert_eq!(error, SubmitError::RegionOfAnotherHost { region: sink.id() });
        assert_eq!(portal.outstanding(), 0);
        assert!(port.take().is_none(), "nothing was issued");
    }

    #[test]
    fn an_application_that_does_not_poll_stalls_itself() {
        let (mut portal, mut port) = pair(0..2);
        let sink = sink(64);
        let line = |slot: u16| {
            Command { slot: CommandSlotId(slot), ..command_of(&grant(), &sink) }.to_line()
        };
        // A hostile application issues on and on, without ever taking a completion.
        for slot in [0, 1] {
            portal.commands.push(&line(slot)).unwrap();
            let taken = port.take().unwrap().unwrap();
            port.complete(&Completion::new(taken.slot, OpStatus::Ok, 0, 0));
        }
        portal.commands.push(&line(0)).unwrap();
        assert!(port.take().is_none(), "the completion would have no room");
        assert!(port.is_idle(), "it does not keep the engine from its sleep either");
        assert!(portal.completions.pop().is_some());
        assert!(port.take().is_some());
    }

    #[test]
    fn a_completion_has_its_room_though_the_application_takes_its_index_back() {
        let (mut portal, mut port) = pair(0..2);
        let (sink, memory) = (sink(64), portal.completions.memory());
        for round in 0..2 {
            let slot = portal.read(&grant(), 0, &sink, 0, 64).unwrap();
            port.take().unwrap().unwrap();
            port.complete(&Completion::new(slot, OpStatus::Ok, 0, 0));
            assert_eq!(portal.poll().unwrap().slot, slot, "round {round}");
        }
        for _ in 0..2 {
            portal.read(&grant(), 0, &sink, 0, 64).unwrap();
            port.take().unwrap().unwrap();
        }
        memory.set_head(0);
        assert!(port.take().is_none());
        for slot in [CommandSlotId(0), CommandSlotId(1)] {
            port.complete(&Completion::new(slot, OpStatus::Ok, 0, 0));
        }
        assert_eq!(memory.tail(), 4);
        assert!(port.is_settled());
    }

    #[test]
    fn impossible_indexes_of_both_rings_are_told_once() {
        let (portal, mut port) = pair(0..2);
        portal.commands.memory().set_tail(3);
        assert!(port.take().is_none());
        portal.commands.memory().set_tail(1);
        portal.completions.memory().set_head(1);
        assert!(port.take().is_some(), "the ring has room by what was seen last");
        assert_eq!((port.impossible_indexes(), port.impossible_indexes()), (1, 0));
        portal.commands.memory().set_tail(3);
        portal.completions.memory().set_head(u32::MAX);
        assert!(port.take().is_some(), "any line is one");
        assert!(port.take().is_none(), "there is no room, and an index that shrank makes none");
        assert_eq!((port.impossible_indexes(), port.impossible_indexes()), (1, 0));
    }

    fn command_of(grant: &Grant, sink: &RegisteredRegion) -> Command {
        Command {
            slot: CommandSlotId(0),
            class: ClassOfService::Latency,
            responder: grant.responder,
            remote_region: grant.region,
            key: grant.key,
            op: CommandOp::Read(Transfer {
                op_size: 1,
                remote_offset: 0,
                local_region: sink.id(),
                local_offset: 0,
            }),
        }
    }
}
