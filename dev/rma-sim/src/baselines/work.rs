//! The ops of a run: which host begins what, when, and how long it took.

use core::ops::Range;

use rma_core::time::Instant;

use super::{error::BaselineError, outcome::Outcome};
use crate::flows::traffic::{Arrival, Op, Ops, Traffic};

/// The ops of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The ops of hosts. Only reads are modelled.
    pub traffic: Traffic,
    /// How many ops are measured. A tenth as many come before them, and after them, which are not.
    pub measured: u32,
    /// Reads of so many bytes that host 0 makes from host 1 besides, one after the other.
    pub transfers: Option<u64>,
}

/// An op, by its number; those beside the ops have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpId(u32);

/// The transfer beside the ops that is under way.
pub(super) const TRANSFER: OpId = OpId(u32::MAX);

#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Instant,
    len: u64,
}

/// An op that is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToDo {
    pub(super) op: OpId,
    pub(super) from: u16,
    pub(super) destination: u16,
    pub(super) len: u64,
}

#[derive(Debug)]
struct Host {
    ops: Ops,
    next: Option<Arrival>,
}

/// The books of a run.
#[derive(Debug)]
pub(super) struct Books {
    hosts: Vec<Host>,
    begun: Vec<Begun>,
    measured: Range<u32>,
    /// How many there are to be.
    total: u32,
    transfers: Option<u64>,
    pub(super) outcome: Outcome,
}

impl Books {
    pub(super) fn new(work: &Work, seed: u64) -> Result<Self, BaselineError> {
        let Work { traffic, measured, transfers } = work;
        if traffic.op == Op::Write {
            return Err(BaselineError::Writes);
        }
        traffic.check()?;
        let host = |number| {
            let mut ops = traffic.ops(seed, number)?;
            Ok(Host { next: ops.next(), ops })
        };
        let hosts = (0..traffic.hosts).map(|number| host(number as u16));
        let around = measured / 10;
        Ok(Self {
            hosts: hosts.collect::<Result<_, BaselineError>>()?,
            begun: Vec::new(),
            measured: around..around + measured,
            total: measured + 2 * around,
            transfers: *transfers,
            outcome: Outcome::default(),
        })
    }

    /// The highest number of a host.
    pub(super) const fn last_host(&self) -> u16 {
        (self.hosts.len() - 1) as u16
    }

    /// When the next op of `host` begins.
    pub(super) fn next_at(&self, host: u16) -> Option<Instant> {
        let is_over = self.begun.len() >= self.total as usize;
        self.hosts[usize::from(host)].next.filter(|_| !is_over).map(|next| next.at)
    }

    /// The next op of `host` begins.
    pub(super) fn begin(&mut self, from: u16) -> Option<ToDo> {
        self.next_at(from)?;
        let host = &mut self.hosts[usize::from(from)];
        let Arrival { at, destination, len } = host.next?;
        host.next = host.ops.next();
        let op = OpId(self.begun.len() as u32);
        self.begun.push(Begun { at, len });
        self.outcome.offered += 1;
        self.outcome.until = at.since(Instant::ZERO);
        Some(ToDo { op, from, destination, len })
    }

    /// The next of the large transfers; `None` if there are none, or all ops have completed.
    pub(super) fn next_transfer(&self) -> Option<ToDo> {
        let is_over = self.outcome.completed >= u64::from(self.total);
        let len = self.transfers.filter(|_| !is_over)?;
        Some(ToDo { op: TRANSFER, from: 0, destination: 1, len })
    }

    /// An op has completed.
    pub(super) fn complete(&mut self, now: Instant, op: OpId) {
        if op == TRANSFER {
            self.outcome.transfers += 1;
            return;
        }
        let Begun { at, len } = self.begun[op.0 as usize];
        self.outcome.completed += 1;
        if self.begun.len() < self.total as usize {
            self.outcome.payload += len;
        }
        if self.measured.contains(&op.0) {
            self.outcome.latencies.entry(len).or_default().push(now.since(at));
        }
    }

    /// The results of all.
    pub(super) fn close(mut self) -> Outcome {
        self.outcome.latencies.values_mut().for_each(|latencies| latencies.sort());
        self.outcome
    }
}
