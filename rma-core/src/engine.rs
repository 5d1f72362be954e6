//! The engine: the loop around a [`Nic`] that plays the part of the hardware (not in the paper).
//!
//! One turn moves bursts between a backend, the NIC and the portals. It reads the clock once, does
//! bounded work, and after the engine is built it neither allocates nor locks nor blocks (P9).
//! Threads, pinning and sleeping belong to whoever calls [`Engine::turn`].

mod loopback;

use core::ops::Range;

use crate::{
    backend::{BATCH, Backend},
    nic::{Nic, Quantum},
    portal::PortalPort,
    time::{Clock, Instant},
};
use loopback::Loopback;

/// Frames in one burst, each way. Larger: better amortised, and later commands wait for longer
/// behind a flood of frames. Smaller: more system calls for the same traffic.
pub const BURST: usize = 64;

/// Bytes received in one turn, and bytes sent: a first frame always, and others as long as one like
/// the last fits. Larger: what comes meanwhile waits for longer. Smaller: more system calls for the
/// same traffic (4 MiB reads on a veth pair have a tenth less goodput with half of it).
const QUANTUM: usize = 32 << 10;

/// Bytes sent in one turn while there are ops of the latency class about: 36 responses of 64 B, one
/// large frame, or four requests of the throughput class. A small read beside large ones waits for
/// that, and for what is received in the same turn, which takes less.
const QUANTUM_BESIDE_LATENCY: usize = 4 << 10;

/// For how long an op of the latency class keeps the quantum small. Longer than such an op takes on
/// a host that is slow, or small reads that were slow once would stay so.
const LATENCY_LASTS_NANOS: u64 = 1_000_000;

/// Commands taken from one portal in one turn, so that a busy portal holds up neither the frames
/// nor the next turn for long.
const COMMANDS_PER_PORTAL: usize = 32;

/// A NIC with a backend, a clock, and the engine's ends of its portals.
#[derive(Debug)]
pub struct Engine<B, C> {
    nic: Nic,
    backend: B,
    clock: C,
    portals: Vec<PortalPort>,
    /// Which of `portals` is asked for a command first.
    first_portal: u16,
    /// Those that have had a command in each round of this turn so far. Empty between turns.
    busy: Vec<u16>,
    /// Those that were given completions in this turn and whose application may sleep. Empty
    /// between turns.
    given: Vec<u16>,
    /// Frames from this host to itself.
    loopback: Loopback,
    /// Which of `portals` a slot belongs to.
    owners: Box<[u16]>,
    /// How long the last received frame was.
    received_len: usize,
}

/// A slot that is no portal's.
const NOBODY: u16 = u16::MAX;

impl<B: Backend, C: Clock> Engine<B, C> {
    /// An engine without portals. All memory that it will ever need is allocated here.
    #[must_use]
    pub fn new(nic: Nic, backend: B, clock: C) -> Self {
        let slots = nic.slot_count();
        Self {
            nic,
            backend,
            clock,
            // One slot each is the most portals there can be.
            portals: Vec::with_capacity(slots),
            first_portal: 0,
            busy: Vec::with_capacity(slots),
            given: Vec::with_capacity(slots),
            loopback: Loopback::new(),
            owners: vec![NOBODY; slots].into_boxed_slice(),
            received_len: 0,
        }
    }

    /// The NIC.
    #[must_use]
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The NIC, to configure it between turns.
    pub const fn nic_mut(&mut self) -> &mut Nic {
        &mut self.nic
    }

    /// The backend.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// The backend, to configure it between turns.
    pub const fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// The engine's clock.
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Serves a portal from now on.
    ///
    /// # Panics
    /// If one of its slots does not exist or is another portal's. The driver sees to that.
    pub fn attach(&mut self, port: PortalPort) {
        let index = self.portals.len() as u16;
        for owner in &mut self.owners[slot_indices(port.slots())] {
            assert_eq!(*owner, NOBODY, "a slot has one portal");
            *owner = index;
        }
        self.portals.push(port);
    }

    /// Stops serving the portal that has `slots`, and gives it back, once its last op has
    /// completed. Until then returns `None`: call again after some turns. No command of it is taken
    /// meanwhile, if the caller sees to it that none is issued.
    pub fn detach(&mut self, slots: &Range<u16>) -> Option<PortalPort> {
        let index = self.portals.iter().position(|port| port.slots() == slots)?;
        if !self.portals[index].is_settled() {
            return None;
        }
        let port = self.portals.swap_remove(index);
        self.owners[slot_indices(slots)].fill(NOBODY);
        if let Some(moved) = self.portals.get(index) {
            self.owners[slot_indices(moved.slots())].fill(index as u16);
        }
        Some(port)
    }

    /// One turn of the busy-poll loop: receive a burst, take commands, expire, complete, transmit a
    /// burst, ring the doorbell, wake applications that sleep. Returns how much there was to do,
    /// requests that wait for others included; 0 if nothing.
    pub fn turn(&mut self) -> usize {
        let now = self.clock.now();
        let received = self.receive(now);
        let commands = self.take_commands(now);
        self.nic.handle_timeout(now);
        let completed = self.complete();
        let sent = self.transmit(now);
        self.backend.flush(now);
        self.wake_sleepers();
        received + commands + completed + sent
    }

    /// Whether there is nothing to do before a frame arrives, a command is issued or a timeout
    /// passes: no portal has a command waiting, and no frame waits for room in the device. To be
    /// asked after [`Engine::turn`] returned 0.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.loopback.is_empty()
            && !self.nic.wants_transmit()
            && self.portals.iter().all(PortalPort::is_idle)
    }

    fn receive(&mut self, now: Instant) -> usize {
        let Self { nic, backend, clock, loopback, received_len, .. } = self;
        let looped = loopback.drain(|frames| nic.handle_frames(now, clock, frames));
        let (mut received, mut bytes) = (0, 0);
        while received < BURST && (received == 0 || bytes + *received_len <= QUANTUM) {
            // How long frames are is seen when they are there: taken to be as long as the last one.
            let fit = (QUANTUM - bytes) / (*received_len).max(1);
            let wanted = fit.clamp(1, BATCH).min(BURST - received);
            let count = backend.rx_burst(wanted, |frames| {
                *received_len = frames.last().map_or(0, |frame| frame.bytes.len());
                bytes += frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
                nic.handle_frames(now, clock, frames);
            });
            received += count;
            if count < wanted || bytes > QUANTUM {
                break;
            }
        }
        looped + received
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut quantum = quantum(&self.nic, now);
        let Self { nic, backend, loopback, .. } = self;
        let (mut sent, mut gathers) = (0, false);
        loop {
            // As many buffers as there are frames: most turns have none, and many have one. The
            // device is asked also if there is none: it may hold something that it had no room for.
            let mut wanted = nic.frames_waiting().min(BURST - sent);
            if sent == 0 && wanted > 0 && nic.gathers(now) {
                (wanted, gathers) = (0, true);
            }
            let mut filled = 0;
            let taken = backend.tx_burst(wanted, |frames| {
                // All of them may turn out to be for this host.
                let room = loopback.room().min(frames.len());
                let count = nic.poll_transmits(now, &mut frames[..room], &mut quantum);
                for frame in &mut frames[..count] {
                    loopback.divert(&nic.config().settings().addresses, frame);
                }
                filled += count;
                count
            });
            sent += taken;
            let is_over = wanted == 0 || filled < wanted || sent >= BURST || !quantum.admits();
            if is_over || !nic.wants_transmit() {
                // Nobody goes to sleep over a request that waits for others.
                return sent.max(usize::from(gathers));
            }
        }
    }

    /// Portals take turns, a command each, so that what a portal issues comes before all but one of
    /// each other's commands of the same turn, however many there are. (It comes after those that
    /// the NIC has taken before: as many as the other portal has slots, which is what the driver
    /// bounds.)
    fn take_commands(&mut self, now: Instant) -> usize {
        let Self { nic, portals, first_portal, busy, .. } = self;
        let (count, first) = (portals.len(), usize::from(*first_portal).min(portals.len()));
        for at in first..first + count {
            let index = if at < count { at } else { at - count };
            let port = &mut portals[index];
            if port.has_command() {
                busy.push(index as u16);
            }
            nic.counters().count_impossible(port.impossible_indexes());
        }
        let Some(&first) = busy.first() else { return 0 };
        // Who was first is last the next time. A turn without commands changes nothing: turns come
        // in rhythms.
        *first_portal = first + 1;
        let (mut taken, mut round) = (0, 0);
        while round < COMMANDS_PER_PORTAL && !busy.is_empty() {
            // Who is alone needs to take no turns.
            let rounds = if busy.len() == 1 { COMMANDS_PER_PORTAL - round } else { 1 };
            let mut left = 0;
            for at in 0..busy.len() {
                let index = busy[at];
                let port = &mut portals[usize::from(index)];
                let mut count = 0;
                while count < rounds && take_command(nic, port, now) {
                    count += 1;
                }
                taken += count;
                if count == rounds {
                    // It may have more.
                    busy[left] = index;
                    left += 1;
                }
            }
            busy.truncate(left);
            round += rounds;
        }
        busy.clear();
        taken
    }

    fn complete(&mut self) -> usize {
        let mut completed = 0;
        while let Some(completion) = self.nic.poll_completion() {
            let owner = self.owners[completion.slot.index()];
            if self.portals[usize::from(owner)].complete(&completion) {
                self.given.push(owner);
            }
            completed += 1;
        }
        completed
    }

    /// Last in a turn, as a system call takes its time and frames should not wait for it. Where
    /// nobody sleeps there is none.
    fn wake_sleepers(&mut self) {
        while let Some(owner) = self.given.pop() {
            self.portals[usize::from(owner)].wake_sleeper();
        }
    }
}

/// What `nic` may send in a turn that begins now: less while ops of the latency class are about.
#[must_use]
pub fn quantum(nic: &Nic, now: Instant) -> Quantum {
    let last = nic.latency_class_seen_at();
    let lately = last.is_some_and(|last| now.nanos_since(last) < LATENCY_LASTS_NANOS);
    if lately { Quantum::beside_latency(QUANTUM_BESIDE_LATENCY) } else { Quantum::new(QUANTUM) }
}

/// Takes the next command of a portal, and whatever comes of it. `false` if there is none.
fn take_command(nic: &mut Nic, port: &mut PortalPort, now: Instant) -> bool {
    let accepted = match port.take() {
        None => return false,
        Some(Ok(command)) if port.owns(command.slot) => nic.handle_command(now, command).is_ok(),
        Some(Err(slot)) if port.owns(slot) => nic.handle_unreadable_command(now, slot).is_ok(),
        Some(_) => {
            nic.counters().count_refused();
            false
        }
    };
    if !accepted {
        port.forget();
    }
    true
}

fn slot_indices(slots: &Range<u16>) -> Range<usize> {
    usize::from(slots.start)..usize::from(slots.end)
}

#[cfg(test)]
mod tests;
