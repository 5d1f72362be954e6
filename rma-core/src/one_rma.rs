//! 1RMA as a [`Service`]: a [`Nic`] and the engine's ends of the portals that its commands come
//! from (not in the paper, where both are in the hardware).
//!
//! The NIC knows nothing of portals, and a portal nothing of the NIC. Here commands go from the one
//! to the other, and completions back to the portal whose slot they are of. Portals take turns, so
//! that none waits for another that is busy.

use core::ops::Range;

use rma_shm::{Doorbell, Line};

use crate::{
    addr::LocalAddresses,
    backend::{RxFrame, TxFrame},
    command::{Command, CommandSlotId},
    crypto::EngineId,
    error::DropReason,
    nic::Nic,
    packet::Tail,
    port::Port,
    portal::PortalPort,
    quantum::Quantum,
    seat::Word,
    service::Service,
    tenant::TenantIndex,
    time::{Clock, Instant},
    turns::{PerTurn, TakeCommands, Turns},
    watch::Watch,
    wire,
};

/// Commands taken in one turn.
pub(crate) const COMMANDS: PerTurn = PerTurn { portal: 32, all: 128 };

/// Commands that one stands for which makes no sense. It costs its whole way where it is taken, a
/// completion and all, and its application can write the next one at once: taken as others are, 32
/// portals of them made the p99 of a neighbour's READs four times as long.
pub(crate) const SENSELESS_COST: usize = 16;

/// A NIC and the engine's ends of its portals.
#[derive(Debug)]
pub struct OneRma {
    nic: Nic,
    portals: Vec<PortalPort>,
    /// The portals that are looked at.
    watch: Watch,
    turns: Turns,
    /// The portals that have commands, as of the turn's beginning. Empty between turns.
    busy: Vec<u16>,
    /// Those that were given completions in this turn and whose application may sleep. Empty
    /// between turns.
    given: Vec<u16>,
    /// The portals that slots belong to.
    owners: Owners,
    /// The tenant of each of `portals`.
    tenants: Vec<TenantIndex>,
    /// The doorbells of applications that do not look at the host's own, with the first slots of
    /// their portals.
    doorbells: Vec<(u16, Doorbell)>,
}

/// A slot that is no portal's.
const NOBODY: u16 = u16::MAX;

impl OneRma {
    /// A NIC without portals. All memory that it will ever need for them is allocated here.
    #[must_use]
    pub fn new(nic: Nic) -> Self {
        let (first, slots) = (nic.config().first_slot(), nic.slot_count());
        Self {
            nic,
            // One slot each is the most portals there can be.
            portals: Vec::with_capacity(slots),
            watch: Watch::new(slots),
            turns: Turns::NEW,
            busy: Vec::with_capacity(slots),
            given: Vec::with_capacity(slots),
            owners: Owners { first, portals: vec![NOBODY; slots].into_boxed_slice() },
            tenants: Vec::with_capacity(slots),
            doorbells: Vec::with_capacity(slots),
        }
    }

    /// The NIC that this service drives.
    #[must_use]
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The NIC, to configure it between turns.
    pub const fn nic_mut(&mut self) -> &mut Nic {
        &mut self.nic
    }

    /// Serves a portal from now on.
    ///
    /// # Panics
    /// If one of its slots does not exist or is another portal's. The driver sees to that.
    pub fn attach(&mut self, port: PortalPort) {
        let index = self.portals.len() as u16;
        for owner in self.owners.of(port.slots()) {
            assert_eq!(*owner, NOBODY, "a slot has one portal");
            *owner = index;
        }
        self.watch.add(index, port.flag());
        if let Some(doorbell) = port.engine_doorbell() {
            self.doorbells.push((port.slots().start, doorbell.clone()));
        }
        self.tenants.push(self.nic.tenant_of(CommandSlotId(port.slots().start)));
        self.portals.push(port);
    }

    /// Stops serving the portal that has `slots`, and gives it back, once its last op has
    /// completed. Until then returns `None`: call again after some turns. From the first call on no
    /// command of it is taken, whatever its application issues, so that is within P1's bound.
    pub fn detach(&mut self, slots: &Range<u16>) -> Option<PortalPort> {
        let index = self.portals.iter().position(|port| port.slots() == slots)?;
        if !self.portals[index].is_settled() {
            // Nobody looks at it any longer, but whoever completes its ops.
            self.watch.forget(index as u16, self.portals[index].flag());
            return None;
        }
        let port = self.portals.swap_remove(index);
        self.tenants.swap_remove(index);
        self.watch.remove(index as u16, port.flag(), self.portals.len() as u16);
        self.doorbells.retain(|(first, _)| *first != slots.start);
        self.owners.of(slots).fill(NOBODY);
        if let Some(moved) = self.portals.get(index) {
            self.owners.of(moved.slots()).fill(index as u16);
        }
        Some(port)
    }
}

impl Service for OneRma {
    #[inline]
    fn addresses(&self) -> &LocalAddresses {
        &self.nic.config().place().addresses
    }

    #[inline]
    fn serves(&self, port: Port) -> bool {
        self.nic.config().place().port == port
    }

    #[inline]
    fn frame_len(&self, _: Port, octets: &[u8]) -> Result<usize, DropReason> {
        wire::frame_len(octets)
    }

    #[cold]
    #[inline]
    fn note_packet(&mut self, _: Port, frames: usize) {
        self.nic.note_packet(frames);
    }

    fn drop_tail(&mut self, _: Port, tail: Tail) {
        self.nic.drop_tail(tail);
    }

    fn owner_of(&self, frame: &RxFrame<'_>) -> Option<EngineId> {
        self.nic.owner_of(frame)
    }

    #[inline]
    fn take_keys(&mut self) {
        self.nic.regions_mut().take_keys();
    }

    fn note_paid(&mut self) {
        self.nic.note_paid();
    }

    #[inline]
    fn poll_word(&mut self) -> Option<Word> {
        self.nic.poll_word()
    }

    fn handle_word(&mut self, line: &Line) {
        self.nic.handle_word(line);
    }

    #[inline]
    fn handle_frames(&mut self, now: Instant, clock: &impl Clock, frames: &mut [RxFrame<'_>]) {
        self.nic.handle_frames(now, clock, frames);
    }

    /// Portals take turns, a command each, so that what a portal issues comes before all but one of
    /// each other's commands of the same turn and tenant, however many there are. (It comes after
    /// those that the NIC has taken before: as many as the other portal has slots, which is what
    /// the driver bounds.)
    #[inline]
    fn take_commands(&mut self, now: Instant) -> usize {
        let Self { nic, portals, tenants, watch, turns, busy, .. } = self;
        watch.notice(now);
        watch.look(now, busy, |index| {
            let port = &mut portals[usize::from(index)];
            let has_command = port.has_command();
            nic.counters().count_impossible(port.impossible_indexes());
            has_command
        });
        if busy.is_empty() {
            return 0;
        }
        let taken = turns.take(COMMANDS, busy, &mut Ports { nic, portals, tenants, now });
        busy.clear();
        taken
    }

    #[inline]
    fn handle_timeout(&mut self, now: Instant) {
        self.nic.handle_timeout(now);
    }

    #[inline]
    fn complete(&mut self) -> usize {
        let mut completed = 0;
        while let Some(completion) = self.nic.poll_completion() {
            let owner = self.owners.get(completion.slot);
            if self.portals[usize::from(owner)].complete(&completion) {
                self.given.push(owner);
            }
            completed += 1;
        }
        while let Some(slot) = self.nic.poll_rung_portal() {
            let owner = self.owners.get(slot);
            if self.portals.get_mut(usize::from(owner)).is_some_and(PortalPort::note_event) {
                self.given.push(owner);
            }
        }
        completed
    }

    #[inline]
    fn latency_class_seen_at(&self) -> Option<Instant> {
        self.nic.latency_class_seen_at()
    }

    #[inline]
    fn frames_waiting(&self) -> usize {
        self.nic.frames_waiting()
    }

    #[inline]
    fn gathers(&self, now: Instant) -> bool {
        self.nic.gathers(now)
    }

    #[inline]
    fn poll_transmits(
        &mut self,
        now: Instant,
        frames: &mut [TxFrame<'_>],
        quantum: &mut Quantum,
    ) -> usize {
        self.nic.poll_transmits(now, frames, quantum)
    }

    #[inline]
    fn wants_transmit(&self) -> bool {
        self.nic.wants_transmit()
    }

    /// Wakes sleepers; where nobody sleeps there is no system call.
    #[inline]
    fn wake_sleepers(&mut self) {
        while let Some(owner) = self.given.pop() {
            self.portals[usize::from(owner)].wake_sleeper();
        }
    }

    fn announce_sleep(&self) {
        self.doorbells.iter().for_each(|(_, doorbell)| doorbell.announce_sleep());
    }

    fn awake(&self) {
        self.doorbells.iter().for_each(|(_, doorbell)| doorbell.awake());
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.watch.is_idle(|index| self.portals[usize::from(index)].is_idle())
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.nic.poll_timeout()
    }
}

/// The portals, as they take turns.
struct Ports<'a> {
    nic: &'a mut Nic,
    portals: &'a mut [PortalPort],
    tenants: &'a [TenantIndex],
    now: Instant,
}

impl TakeCommands for Ports<'_> {
    #[inline]
    fn tenant_of(&self, portal: u16) -> TenantIndex {
        self.tenants[usize::from(portal)]
    }

    #[inline]
    fn take_command(&mut self, portal: u16) -> Option<usize> {
        let Self { nic, portals, now, .. } = self;
        let port = &mut portals[usize::from(portal)];
        let line = port.take_line()?;
        let taken = if Command::has_second(&line) {
            take_pair(nic, port, *now, &line)
        } else {
            take(nic, port, *now, &line, None)
        };
        match taken {
            Taken::Op => return Some(1),
            Taken::Senseless => {}
            Taken::Refused => port.forget(),
        }
        Some(SENSELESS_COST)
    }
}

/// The outcome of taking a command.
enum Taken {
    /// An op waits.
    Op,
    /// It makes no sense, and has completed.
    Senseless,
    /// There will be no completion.
    Refused,
}

/// Takes the second line of a command, and what comes of both.
#[cold]
#[inline(never)]
fn take_pair(nic: &mut Nic, port: &mut PortalPort, now: Instant, first: &Line) -> Taken {
    let second = port.take_second(first);
    take(nic, port, now, first, second.as_ref())
}

/// Takes a command as it was written.
#[inline]
fn take(
    nic: &mut Nic,
    port: &PortalPort,
    now: Instant,
    first: &Line,
    second: Option<&Line>,
) -> Taken {
    if !port.owns(Command::slot_of(first)) {
        nic.counters().count_refused();
        return Taken::Refused;
    }
    match nic.handle_lines(now, first, second) {
        Ok(true) => Taken::Op,
        Ok(false) => Taken::Senseless,
        Err(_) => Taken::Refused,
    }
}

/// The portal of each slot of the NIC.
#[derive(Debug)]
struct Owners {
    /// The number of the first slot.
    first: u16,
    portals: Box<[u16]>,
}

impl Owners {
    /// The owners of `slots`, to be changed.
    fn of(&mut self, slots: &Range<u16>) -> &mut [u16] {
        &mut self.portals
            [usize::from(slots.start - self.first)..usize::from(slots.end - self.first)]
    }

    #[inline]
    fn get(&self, slot: CommandSlotId) -> u16 {
        self.portals[usize::from(slot.0.wrapping_sub(self.first))]
    }
}
