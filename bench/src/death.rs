//! A peer that dies in the middle of a run: how long ops take that can never succeed (promise P1).
//!
//! Reads and writes of all sizes are kept in flight, as many as there are command slots. Then the server's engine
//! stops for good and its device is closed. What is outstanding then, and what is issued as slots come free, is
//! timed as the application sees it: from before an op's issue until its completion has been polled.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_xdp::{
    ClassOfService, Clock, CommandSlotId, Completion, OpStatus, OpType, Portal, ReadOp, Timing,
    TscClock, WriteOp,
};

use crate::{
    client::Client,
    interrupt::Interrupt,
    pair::{Pair, PairConfig, PairError, Place, VERIFY_DEPTH, cores, pin},
};

/// For how long ops are answered before the peer dies, in nanoseconds.
const ALIVE: u64 = 50_000_000;

/// For how long the clock is looked at by a loop that does nothing else, in nanoseconds.
const IDLE: u64 = 500_000_000;

/// Ops issued between two turns of the engine: what it takes from one portal in one turn. More would wait outside of
/// the NIC, and that time is the application's own.
const ISSUED_PER_TURN: usize = 32;

/// A run that takes so many times its bound is given up: an op does not complete.
const GIVEN_UP: u64 = 100;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Death {
    /// Ops that were outstanding when the peer died, or were issued later. All of them completed.
    pub ops: u64,
    /// How many of them were writes.
    pub writes: u64,
    /// How they ended, in the order of [`OpStatus::ALL`].
    pub statuses: [u64; OpStatus::ALL.len()],
    /// How many were in flight at once.
    pub slots: u16,
    /// The slowest read and the slowest write, in nanoseconds from issue to completion.
    pub slowest: [u64; 2],
    /// The slowest of each in the NIC's own count: from its arrival there.
    pub slowest_in_nic: [u64; 2],
    /// The bounds that `Timing` states for them.
    pub bounds: [u64; 2],
    /// The longest time between two engine turns while this went on, in nanoseconds.
    pub turn_gap: u64,
    /// The longest time between two looks at the clock of a loop that does nothing else, on the same core just
    /// before, in nanoseconds.
    pub idle_gap: u64,
    /// From the peer's death to the last completion, in nanoseconds.
    pub took: u64,
}

impl Death {
    /// The slowest op, as a multiple of the bound for ops of its type and `noise` nanoseconds.
    #[must_use]
    pub fn over_bound(&self, noise: u64) -> f64 {
        let over = |index: usize| {
            self.slowest[index] as f64 / self.bounds[index].saturating_add(noise).max(1) as f64
        };
        over(0).max(over(1))
    }

    /// By how much any op exceeded its bound, in nanoseconds: as the application saw it, and in the NIC's own count.
    #[must_use]
    pub fn excess(&self) -> [u64; 2] {
        [self.slowest, self.slowest_in_nic].map(|slowest| {
            let over = |index: usize| slowest[index].saturating_sub(self.bounds[index]);
            over(0).max(over(1))
        })
    }

    /// How much later than its bound an op may have ended for the engine's turns alone, in nanoseconds: one is late
    /// to take it, and one to end it.
    #[must_use]
    pub const fn noise(&self) -> u64 {
        2 * self.turn_gap
    }

    /// How many ended with `status`.
    #[must_use]
    pub const fn ended(&self, status: OpStatus) -> u64 {
        self.statuses[status as usize]
    }

    /// How they ended, in words.
    #[must_use]
    pub fn endings(&self) -> String {
        let all = OpStatus::ALL.into_iter().map(|status| (self.ended(status), status));
        let some: Vec<_> = all
            .filter(|&(count, _)| count > 0)
            .map(|(count, status)| format!("{count} {status}"))
            .collect();
        some.join(", ")
    }
}

/// Opens a pair at `place`, kills its server while all slots are busy, and times `ops` ops.
///
/// # Errors
/// What could not be set up; an op that does not complete; Ctrl-C.
///
/// # Panics
/// If the server's thread does.
pub fn run(
    place: Place<'_>,
    config: &PairConfig,
    ops: u64,
    interrupt: &Interrupt,
) -> Result<Death, PairError> {
    let Pair { mut client, mut server, .. } = Pair::open(place, config)?;
    let slots = u16::try_from(config.nic.command_slots).unwrap_or(u16::MAX) - VERIFY_DEPTH;
    let portal = client.host.portal(slots)?;
    let dead = &AtomicBool::new(false);
    let (client_core, server_core) = cores();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin(server_core);
            while !dead.load(Relaxed) {
                server.turn();
            }
            // As when a process is killed: its sockets and its program go.
            drop(server);
        });
        let client = scope.spawn(move || {
            pin(client_core);
            // The server stops also if this ends early.
            let mourner = SetOnDrop(dead);
            let mut run = Run::new(&mut client, portal, config.nic.timing, interrupt);
            run.death.idle_gap = idle_gap(&run.client.clock);
            run.alive()?;
            drop(mourner);
            run.after(ops)
        });
        let death = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        server.join().expect("the server's thread does not panic");
        death
    })
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn idle_gap(clock: &TscClock) -> u64 {
    let start = clock.now();
    let (mut last, mut longest) = (start, 0);
    while last.nanos_since(start) < IDLE {
        let now = clock.now();
        longest = longest.max(now.nanos_since(last));
        last = now;
    }
    longest
}

struct Run<'a> {
    client: &'a mut Client,
    portal: Portal,
    interrupt: &'a Interrupt,
    random: StdRng,
    /// What is in each slot: its type, and when it was issued.
    issued: Vec<(OpType, u64)>,
    /// When the engine turned last.
    turned: u64,
    death: Death,
}

impl<'a> Run<'a> {
    fn new(
        client: &'a mut Client,
        portal: Portal,
        timing: Timing,
        interrupt: &'a Interrupt,
    ) -> Self {
        let nanos = |op_type| timing.bound(op_type).as_nanos() as u64;
        let slots = portal.slots().len() as u16;
        let bounds = [OpType::Read, OpType::Write].map(nanos);
        Self {
            random: StdRng::seed_from_u64(client.pattern.seed()),
            issued: vec![(OpType::Read, 0); portal.slots().len()],
            client,
            portal,
            interrupt,
            turned: 0,
            death: Death { slots, bounds, ..Death::default() },
        }
    }

    fn now(&self) -> u64 {
        self.client.clock.now().as_nanos()
    }

    /// Keeps all slots busy while the peer answers.
    fn alive(&mut self) -> Result<(), PairError> {
        let end = self.now() + ALIVE;
        self.turned = self.now();
        while self.now() < end {
            for _ in 0..ISSUED_PER_TURN {
                self.issue()?;
            }
            self.turn();
            while self.poll().is_some() {}
        }
        Ok(())
    }

    /// The peer is dead: `ops` ops in all, to their end.
    fn after(mut self, ops: u64) -> Result<Death, PairError> {
        let start = self.now();
        self.turned = start;
        self.death.turn_gap = 0;
        let mut issued = self.portal.outstanding() as u64;
        let give_up = start + GIVEN_UP * self.death.bounds[1];
        while self.death.ops < ops {
            for _ in 0..ISSUED_PER_TURN {
                if issued < ops && self.issue()? {
                    issued += 1;
                }
            }
            self.turn();
            while let Some((op_type, took, completion)) = self.poll() {
                let death = &mut self.death;
                let index = usize::from(op_type == OpType::Write);
                death.ops += 1;
                death.writes += index as u64;
                death.slowest[index] = death.slowest[index].max(took);
                let in_nic = completion.total_delay().as_nanos() as u64;
                death.slowest_in_nic[index] = death.slowest_in_nic[index].max(in_nic);
                death.statuses[completion.status as usize] += 1;
            }
            if self.interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            if self.now() > give_up {
                return Err(PairError::NeverEnded { ops: ops - self.death.ops });
            }
        }
        self.death.took = self.now() - start;
        Ok(self.death)
    }

    fn turn(&mut self) {
        self.client.host.turn();
        let now = self.now();
        self.death.turn_gap = self.death.turn_gap.max(now - self.turned);
        self.turned = now;
    }

    /// Issues a read or a write of some size, if a slot is free.
    fn issue(&mut self) -> Result<bool, PairError> {
        let Some(slot) = self.portal.next_slot() else { return Ok(false) };
        let op_type = if self.random.random() { OpType::Read } else { OpType::Write };
        let class = ClassOfService::ALL[self.random.random_range(0..2)];
        let op_size = self.random.random_range(1..=4096_u32);
        let remote_offset =
            self.random.random_range(0..=self.client.grants.any().region_len - 4096);
        let (grant, local) = (&self.client.grants.get(op_type)?, &self.client.local);
        let now = self.client.clock.now().as_nanos();
        let index = self.index(slot);
        self.issued[index] = (op_type, now);
        if op_type == OpType::Read {
            let (sink, sink_offset) = (local, 0);
            self.portal.issue_read(&ReadOp {
                grant,
                remote_offset,
                sink,
                sink_offset,
                op_size,
                class,
            })?;
        } else {
            let (source, source_offset) = (local, 0);
            self.portal.issue_write(&WriteOp {
                grant,
                remote_offset,
                source,
                source_offset,
                op_size,
                class,
            })?;
        }
        Ok(true)
    }

    /// The next op that has ended: its type, how long it took, its completion.
    fn poll(&mut self) -> Option<(OpType, u64, Completion)> {
        let completion = self.portal.poll()?;
        let (op_type, issued) = self.issued[self.index(completion.slot)];
        Some((op_type, self.now() - issued, completion))
    }

    fn index(&self, slot: CommandSlotId) -> usize {
        usize::from(slot.0 - self.portal.slots().start)
    }
}
