//! How much of a link each flow had at what time, and since when shares are what they should be.
//!
//! What is counted is link time: the response of an op that succeeded took its last link for so
//! long as its bytes, with all headers, need at 100 Gbit/s, and it had arrived when it had left
//! that link. So a full link is used exactly without gaps, and short windows show shares without
//! the noise of counting whole ops.

use core::time::Duration;

use rma_core::{op::OpStatus, time::Instant};

use super::{
    RTT,
    network::{Log, wire_time},
};

/// Uses of a link by several flows.
#[derive(Clone, Debug)]
pub struct Rates {
    /// For each flow, the link time used before each multiple of [`STEP`], in nanoseconds.
    used: Vec<Vec<u64>>,
}

/// The step by which time is cut. Less than half an op of 4 KiB.
const STEP: Duration = Duration::from_nanos(125);

/// The demand on shares from some time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Over how long a time shares are taken: in each window of this length, beginning with the one
    /// that ends when the demand is first met, it must hold.
    pub window: Duration,
    /// The part of the link that must be used.
    pub full: f64,
    /// How far each flow's share may be from an equal one, as a part of that.
    pub band: f64,
}

impl Rates {
    /// The uses of one link by `flows` flows for `length`, all of whose responses pass it.
    #[must_use]
    pub fn new(log: &Log, flows: usize, length: Duration) -> Self {
        let steps = (length.as_nanos() / STEP.as_nanos()) as usize;
        let step = STEP.as_nanos() as u64;
        let mut used = vec![vec![0; steps + 1]; flows];
        for op in log.ops.iter().filter(|op| op.status == OpStatus::Ok) {
            let end = op.at.as_nanos();
            let mut at = end - wire_time(op.op_size).as_nanos() as u64;
            while at < end {
                let (index, next) = (at / step, (at / step + 1) * step);
                if let Some(used) = used[op.flow].get_mut(index as usize + 1) {
                    *used += next.min(end) - at;
                }
                at = next;
            }
        }
        for used in &mut used {
            let mut sum = 0;
            for used in used {
                sum += *used;
                *used = sum;
            }
        }
        Self { used }
    }

    /// The part of the link that `flow` used from `from` to `to`, both rounded down to multiples of
    /// 125 ns.
    #[must_use]
    pub fn share(&self, flow: usize, from: Instant, to: Instant) -> f64 {
        self.share_of(flow, index(from), index(to))
    }

    fn share_of(&self, flow: usize, from: usize, to: usize) -> f64 {
        let used = &self.used[flow];
        let last = used.len() - 1;
        let (from, to) = (from.min(last), to.min(last));
        let nanos = (to - from) as u64 * STEP.as_nanos() as u64;
        (used[to] - used[from]) as f64 / nanos.max(1) as f64
    }

    /// How long after `since` the shares of `flows` meet `demand` and do so until the end; `None`
    /// if that cannot be said of the last quarter of the time.
    ///
    /// Windows look back: what is returned includes one in which all is well already.
    #[must_use]
    pub fn settled(&self, flows: &[usize], since: Instant, demand: &Demand) -> Option<Duration> {
        let window = (demand.window.as_nanos() / STEP.as_nanos()) as usize;
        let fair = 1.0 / flows.len() as f64;
        let is_met = |&to: &usize| {
            let from = to.saturating_sub(window);
            let shares = flows.iter().map(|&flow| self.share_of(flow, from, to));
            let total: f64 = shares.clone().sum();
            let off = |share: f64| (share / (fair * total) - 1.0).abs();
            total >= demand.full && shares.into_iter().all(|share| off(share) <= demand.band)
        };
        let (first, end) = (index(since), self.used[0].len());
        let met = (first..end).rev().take_while(is_met).last()?;
        let observed = end - first;
        (end - met >= observed / 4).then(|| STEP * (met - first) as u32)
    }

    /// Until when something is known.
    #[must_use]
    pub fn end(&self) -> Instant {
        Instant::ZERO + STEP * (self.used[0].len() - 1) as u32
    }
}

fn index(at: Instant) -> usize {
    (at.as_nanos() / STEP.as_nanos() as u64) as usize
}

/// `duration` in round-trip times.
#[must_use]
pub fn rtts(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / RTT.as_nanos() as f64
}
