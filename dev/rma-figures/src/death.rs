//! A peer that dies in the middle of a run: how long ops take that can never succeed (promise P1).
//!
//! Reads and writes of all sizes are kept in flight, as many as there are command slots. Then the
//! server's engine stops for good and its device is closed. What is outstanding then, and what is
//! issued as slots come free, is timed as the application sees it: from before an op's issue until
//! its completion has been polled.
//!
//! The bound is one for an engine that runs, and a scheduler may stop this one whenever it likes.
//! So each op that took longer is held against the pauses that it lived through, those before the
//! peer's death included: what they do not explain breaks the promise, on the busiest of machines.

use core::{cmp::Reverse, ops::RangeInclusive};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_bench::{
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place, VERIFY_DEPTH, cores, pin},
};
use rma_xdp::{
    Completion, OpStatus, OpType, Portal,
    config::Timing,
    ops::{ClassOfService, CommandSlotId, Moves, ReadOp, WriteOp},
    time::{Clock, TscClock},
};

use crate::error::FigureError;

/// For how long ops are answered before the peer dies, in nanoseconds.
const ALIVE: u64 = 50_000_000;

/// For how long the clock is looked at by a loop that does nothing else, in nanoseconds.
const IDLE: u64 = 500_000_000;

/// Ops issued between two turns of the engine: what it takes from one portal in one turn. More
/// would wait outside of the NIC, and that time is the application's own.
const ISSUED_PER_TURN: usize = 32;

/// A run that takes so many times its bound is given up: an op does not complete.
const GIVEN_UP: u64 = 100;

/// The observations of a run.
#[derive(Clone, Debug, Default)]
pub struct Death {
    /// Ops that were outstanding when the peer died, or were issued later. All of them completed.
    pub ops: u64,
    /// How many of them were writes.
    pub writes: u64,
    /// The number of ops that ended with each status, in the order of [`OpStatus::ALL`].
    pub statuses: [u64; OpStatus::ALL.len()],
    /// How many were in flight at once.
    pub slots: u16,
    /// The slowest read and the slowest write, in nanoseconds from issue to completion.
    pub slowest: [u64; 2],
    /// The slowest of each in the NIC's own count: from its arrival there.
    pub slowest_in_nic: [u64; 2],
    /// The bounds that `Timing` states for them.
    pub bounds: [u64; 2],
    /// How long any op took, as a multiple of its bound and of the pauses that may have delayed it.
    pub over_bound_and_pauses: f64,
    /// By how much any op exceeded its bound and the pauses that may have delayed it, in
    /// nanoseconds: as the application saw it, and in the NIC's own count. Promise P1 is that both
    /// are 0.
    pub unexplained: [u64; 2],
    /// The longest pause of the engine that any of these ops lived through, in nanoseconds.
    pub pause: u64,
    /// The longest time between two looks at the clock of a loop that does nothing else, on the
    /// same core just before, in nanoseconds.
    pub idle_gap: u64,
    /// From the peer's death to the last completion, in nanoseconds.
    pub took: u64,
}

impl Death {
    /// The slowest op, as a multiple of the bound for ops of its type.
    #[must_use]
    pub fn over_bound(&self) -> f64 {
        let over = |index: usize| self.slowest[index] as f64 / self.bounds[index].max(1) as f64;
        over(0).max(over(1))
    }

    /// By how much any op exceeded its bound, in nanoseconds: as the application saw it, and in the
    /// NIC's own count.
    #[must_use]
    pub fn excess(&self) -> [u64; 2] {
        [self.slowest, self.slowest_in_nic].map(|slowest| {
            let over = |index: usize| slowest[index].saturating_sub(self.bounds[index]);
            over(0).max(over(1))
        })
    }

    fn count(&mut self, ended: &Ended, pauses: &Pauses) {
        let &Ended { op_type, issued, polled, completion } = ended;
        let (took, in_nic) = (polled - issued, completion.total_delay().as_nanos() as u64);
        let index = op_type.shape().moves as usize;
        self.ops += 1;
        self.writes += index as u64;
        self.statuses[completion.status as usize] += 1;
        self.slowest[index] = self.slowest[index].max(took);
        self.slowest_in_nic[index] = self.slowest_in_nic[index].max(in_nic);
        let life = issued..=polled;
        self.pause = self.pause.max(pauses.longest(1, &life));
        let bound = |count| self.bounds[index] + pauses.longest(count, &life);
        let in_all =
            [(took, bound(delays(op_type) + DELAYS_OUTSIDE)), (in_nic, bound(delays(op_type)))];
        let over = took as f64 / in_all[0].1.max(1) as f64;
        self.over_bound_and_pauses = self.over_bound_and_pauses.max(over);
        for (unexplained, (took, bound)) in self.unexplained.iter_mut().zip(in_all) {
            *unexplained = (*unexplained).max(took.saturating_sub(bound));
        }
    }

    /// How many ended with `status`.
    #[must_use]
    pub const fn ended(&self, status: OpStatus) -> u64 {
        self.statuses[status as usize]
    }

    /// Returns the counts of statuses, in words.
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
/// If something could not be set up; if an op does not complete; on Ctrl-C.
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

/// When the engine's turns were, and so for how long it did not look at its clock.
#[derive(Debug, Default)]
struct Turns {
    /// When the last one began.
    began: u64,
    /// Of each: when it had ended, and how long after the beginning of the one before. The engine's
    /// looks at its clock in two turns that follow each other are no further apart, wherever in
    /// them it was stopped.
    pauses: Vec<(u64, u64)>,
}

impl Turns {
    fn turned(&mut self, began: u64, ended: u64) {
        if self.began > 0 {
            self.pauses.push((ended, ended - self.began));
        }
        self.began = began;
    }

    /// All pauses, the longest first.
    fn pauses(mut self) -> Pauses {
        self.pauses.sort_unstable_by_key(|&(_, length)| Reverse(length));
        Pauses(self.pauses)
    }
}

/// When each pause ended, and its length: the longest first.
struct Pauses(Vec<(u64, u64)>);

impl Pauses {
    /// How long the `count` longest were together of those that overlap with `life`.
    fn longest(&self, count: usize, life: &RangeInclusive<u64>) -> u64 {
        let met = |&&(ended, length): &&(u64, u64)| {
            ended >= *life.start() && ended - length <= *life.end()
        };
        self.0.iter().filter(met).take(count).map(|&(_, length)| length).sum()
    }
}

/// How many pauses may delay an op in the NIC. One is late to end it. Another is late to see the
/// solicitation of a write, from which its time begins anew.
const fn delays(op_type: OpType) -> usize {
    op_type.shape().hops as usize / 2
}

/// How many more may delay what the application sees: the op is taken late, and its completion seen
/// late.
const DELAYS_OUTSIDE: usize = 2;

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

/// An op that has ended.
struct Ended {
    op_type: OpType,
    issued: u64,
    polled: u64,
    completion: Completion,
}

struct Run<'a> {
    client: &'a mut Client,
    portal: Portal,
    interrupt: &'a Interrupt,
    random: StdRng,
    /// The op in each slot: its type, and when it was issued.
    issued: Vec<(OpType, u64)>,
    turns: Turns,
    /// Since the peer is dead.
    ended: Vec<Ended>,
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
            turns: Turns::default(),
            ended: Vec::new(),
            death: Death { slots, bounds, ..Death::default() },
        }
    }

    fn now(&self) -> u64 {
        self.client.clock.now().as_nanos()
    }

    /// Keeps all slots busy while the peer answers.
    fn alive(&mut self) -> Result<(), PairError> {
        let end = self.now() + ALIVE;
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
        let mut issued = self.portal.outstanding() as u64;
        let give_up = start + GIVEN_UP * self.death.bounds[1];
        while (self.ended.len() as u64) < ops {
            for _ in 0..ISSUED_PER_TURN {
                if issued < ops && self.issue()? {
                    issued += 1;
                }
            }
            self.turn();
            while let Some(ended) = self.poll() {
                self.ended.push(ended);
            }
            if self.interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            if self.now() > give_up {
                return Err(FigureError::NeverEnded { ops: ops - self.ended.len() as u64 }.into());
            }
        }
        self.death.took = self.now() - start;
        // The pause in which the last completion was polled.
        let now = self.now();
        self.turns.turned(now, now);
        let pauses = self.turns.pauses();
        for ended in &self.ended {
            self.death.count(ended, &pauses);
        }
        Ok(self.death)
    }

    fn turn(&mut self) {
        let began = self.now();
        self.client.host.turn();
        self.turns.turned(began, self.now());
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
        if op_type.shape().moves == Moves::In {
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

    /// The next op that has ended.
    fn poll(&mut self) -> Option<Ended> {
        let completion = self.portal.poll()?;
        let (op_type, issued) = self.issued[self.index(completion.slot)];
        Some(Ended { op_type, issued, polled: self.now(), completion })
    }

    fn index(&self, slot: CommandSlotId) -> usize {
        usize::from(slot.0 - self.portal.slots().start)
    }
}
