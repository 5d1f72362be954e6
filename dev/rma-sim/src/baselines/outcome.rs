//! Results of a run.

use core::time::Duration;
use std::collections::BTreeMap;

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Ops that hosts began.
    pub offered: u64,
    /// Ops that completed. Runs end when all have.
    pub completed: u64,
    /// Payload of the ops that completed by [`Outcome::until`], in bytes.
    pub payload: u64,
    /// When the last op began.
    pub until: Duration,
    /// The fate of packets.
    pub packets: Packets,
    /// How often a NIC did not hold the state that a packet needed.
    pub misses: u64,
    /// How many of the large transfers beside the ops completed.
    pub transfers: u64,
    /// Latencies of the ops that were measured, by how much they transferred, in bytes.
    pub latencies: BTreeMap<u64, Latencies>,
}

/// The fate of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Packets that left a device.
    pub sent: u64,
    /// Packets that came to one.
    pub arrived: u64,
    /// Packets that were lost on their way.
    pub lost: u64,
    /// Packets that had been sent before.
    pub again: u64,
}

impl Outcome {
    /// Whether all that was begun has ended, and each packet arrived or was lost.
    #[must_use]
    pub const fn adds_up(&self) -> bool {
        let Packets { sent, arrived, lost, again } = self.packets;
        self.offered == self.completed && sent == arrived + lost && again <= sent
    }

    /// The share of a link's rate that payload took, for each of so many hosts.
    #[must_use]
    pub fn goodput(&self, rate: u64, hosts: u32) -> f64 {
        let could = rate as f64 * self.until.as_secs_f64() * f64::from(hosts);
        if could > 0.0 { self.payload as f64 / could } else { 0.0 }
    }

    /// The latencies of ops that transferred `len` bytes; none if there were no such.
    #[must_use]
    pub fn of(&self, len: u64) -> &Latencies {
        static NONE: Latencies = Latencies { nanos: Vec::new() };
        self.latencies.get(&len).unwrap_or(&NONE)
    }
}

/// How long ops took, each of them, from the shortest on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    nanos: Vec<u64>,
}

impl Latencies {
    pub(super) fn push(&mut self, latency: Duration) {
        self.nanos.push(latency.as_nanos() as u64);
    }

    pub(super) fn sort(&mut self) {
        self.nanos.sort_unstable();
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.nanos.len()
    }

    /// The least latency that `part` of the ops, of 1, do not exceed.
    #[must_use]
    pub fn at(&self, part: f64) -> Duration {
        let rank = (part * self.nanos.len() as f64).ceil() as usize;
        let nanos = self.nanos.get(rank.max(1) - 1).or(self.nanos.last());
        Duration::from_nanos(nanos.copied().unwrap_or_default())
    }

    /// The mean; 0 of none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let sum: u128 = self.nanos.iter().copied().map(u128::from).sum();
        let mean = sum / (self.nanos.len().max(1) as u128);
        Duration::from_nanos(mean as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_least_latency_that_it_does_not_exceed() {
        let mut latencies = Latencies::default();
        for nanos in (1..=200).rev() {
            latencies.push(Duration::from_nanos(nanos));
        }
        latencies.sort();
        let at = |part| latencies.at(part).as_nanos();
        assert_eq!([at(0.0), at(0.5), at(0.99), at(1.0)], [1, 100, 198, 200]);
        assert_eq!((latencies.mean().as_nanos(), latencies.count()), (100, 200));
        assert_eq!(Latencies::default().at(0.5), Duration::ZERO);
    }

    #[test]
    fn an_op_or_a_packet_that_is_missing_does_not_add_up() {
        let packets = Packets { sent: 10, arrived: 8, lost: 2, again: 1 };
        let good = Outcome { offered: 3, completed: 3, packets, ..Outcome::default() };
        assert!(good.adds_up());
        assert!(!Outcome { completed: 2, ..good.clone() }.adds_up());
        let packets = Packets { lost: 1, ..packets };
        assert!(!Outcome { packets, ..good }.adds_up());
    }
}
