//! The source of simulated hosts' message counters (P4): blocks that they reserve as real hosts do,
//! on a disk each, which takes its time and forgets what was not synced.
//!
//! The reservation itself is shipped code, [`rma_core::counter_mark`]. Its clock is the node's own,
//! which starts anywhere and steps either way when a node is restarted.
//!
//! Not here: a mark that is lost, which only a right clock can make good, and hosts that share one
//! disk; real files and locks. They are tested where they are.

use core::time::Duration;

use rma_core::{
    counter_mark::{Lengths, Wish, reserve},
    crypto::CounterBlock,
    time::Instant,
};

use crate::{
    net::{disk::MarkDisk, frame::NodeId},
    prng::Prng,
};

/// The way in which hosts reserve counter values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterOptions {
    /// How many values a host's first block has; and the least of any. In the liveness phase,
    /// blocks of less than 8 may be used up before the next one is there.
    pub first: u64,
    /// How many values any block has at most.
    pub most: u64,
    /// The longest time that reserving takes in the safety phase.
    pub latency_max: Duration,
}

impl Default for CounterOptions {
    /// Blocks that last for any run.
    fn default() -> Self {
        Self { first: 1 << 40, most: 1 << 40, latency_max: Duration::ZERO }
    }
}

/// The marks that all hosts have on their disks, and those that they are about to write there.
#[derive(Debug)]
pub(crate) struct Counters {
    lengths: Lengths,
    latency_max: Duration,
    hosts: Vec<Host>,
}

#[derive(Debug)]
struct Host {
    prng: Prng,
    disk: MarkDisk,
    /// The end of its last block.
    after: u64,
    /// When the reservation that is under way will be over.
    due: Option<Instant>,
}

/// How many steps a reservation has: a host may end before each of them, or after the last.
const STEPS: u64 = 5;

impl Counters {
    /// Hosts of which each has used all values below its mark.
    pub(crate) fn new(
        options: CounterOptions,
        marks: impl Iterator<Item = u64>,
        prng: &Prng,
    ) -> Self {
        let host = |(number, mark)| Host {
            prng: prng.fork(number),
            disk: MarkDisk::new(mark),
            after: mark,
            due: None,
        };
        let CounterOptions { first, most, latency_max } = options;
        let hosts = (0..).zip(marks).map(host).collect();
        Self { lengths: Lengths { first, most }, latency_max, hosts }
    }

    /// From now on disks take no time.
    pub(crate) const fn hurry(&mut self) {
        self.latency_max = Duration::ZERO;
    }

    /// The first block of `node`, whose clock shows `local`.
    pub(crate) fn first(&mut self, node: NodeId, local: Instant) -> CounterBlock {
        self.reserve(node, local, Wish::First { floor: 0 }).expect("a disk that works")
    }

    /// `node` wants a further block. Does nothing if one is being reserved.
    pub(crate) fn want(&mut self, now: Instant, node: NodeId) {
        let most = u64::try_from(self.latency_max.as_nanos()).unwrap_or(u64::MAX);
        let Host { prng, due, .. } = &mut self.hosts[node.index()];
        if due.is_none() {
            let latency = prng.below(most.saturating_add(1));
            *due = Some(now + Duration::from_nanos(latency));
        }
    }

    /// The next block of all that will be there.
    pub(crate) fn next(&self) -> Option<(Instant, NodeId)> {
        let next = |(index, host): (usize, &Host)| host.due.map(|at| (at, NodeId(index as u16)));
        self.hosts.iter().enumerate().filter_map(next).min()
    }

    /// The block that `node`, whose clock shows `local`, wanted.
    pub(crate) fn take(&mut self, node: NodeId, local: Instant) -> CounterBlock {
        let host = &mut self.hosts[node.index()];
        host.due = None;
        let after = host.after;
        self.reserve(node, local, Wish::Next { after }).expect("a disk that works")
    }

    /// `node` ends, perhaps in the midst of a reservation, and perhaps because the power goes.
    pub(crate) fn crash(&mut self, node: NodeId, local: Instant) {
        let host = &mut self.hosts[node.index()];
        let steps = host.prng.below(STEPS + 1) as u32;
        if host.due.take().is_some() {
            let after = host.after;
            host.disk.set_steps_left(Some(steps));
            // Whether or not it got so far, nobody has the block.
            let _ = self.reserve(node, local, Wish::Next { after });
        }
        let host = &mut self.hosts[node.index()];
        host.disk.set_steps_left(None);
        if host.prng.below(2) == 0 {
            host.disk.cut_power(&mut host.prng);
        }
    }

    fn reserve(
        &mut self,
        node: NodeId,
        local: Instant,
        wish: Wish,
    ) -> Result<CounterBlock, rma_core::counter_mark::Fault> {
        let Host { disk, after, .. } = &mut self.hosts[node.index()];
        let block = reserve(disk, Some(local.as_nanos()), wish, self.lengths)?;
        *after = block.end();
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A life after the other, each of which uses all that it gets.
    #[test]
    fn blocks_ascend_whatever_the_crashes_and_clocks() {
        let latency_max = Duration::from_nanos(9);
        let options = CounterOptions { first: 8, most: 32, latency_max };
        let mut prng = Prng::new(4);
        let mut counters = Counters::new(options, [1000].into_iter(), &prng.fork(1));
        let (node, mut end, mut interrupted) = (NodeId(0), 1000, 0);
        let mut used = |block: CounterBlock| {
            assert!(block.first() >= end, "{block:?}, but up to {end} are gone");
            assert!((8..=32).contains(&block.len()), "{block:?}");
            end = block.end();
        };
        for _ in 0..2_000 {
            let clock = |prng: &mut Prng| Instant::from_nanos(prng.below(100_000));
            used(counters.first(node, clock(&mut prng)));
            for _ in 0..prng.below(3) {
                counters.want(Instant::ZERO, node);
                assert!(counters.next().is_some_and(|(at, _)| at.as_nanos() <= 9));
                used(counters.take(node, clock(&mut prng)));
            }
            if prng.below(2) == 0 {
                counters.want(Instant::ZERO, node);
                interrupted += 1;
            }
            counters.crash(node, clock(&mut prng));
            assert_eq!(counters.next(), None);
        }
        assert!(interrupted > 500);
    }
}
