//! Traffic: the ops that each host of a network begins, as a function of a seed and nothing else.
//!
//! It knows no NIC and no network, so that each system under comparison is given the same ops. Of
//! two runs that differ in load, rate or framing alone, the ops of a host have the same lengths and
//! destinations in the same order; only the times between them stretch.
//!
//! ```
//! use rma_sim::flows::traffic::{Destination, Size, Traffic};
//!
//! let traffic = Traffic { hosts: 40, load: 0.5, ..Traffic::reads(4096) };
//! let first = traffic.ops(1, 7)?.next();
//! assert!(first.is_some_and(|op| op.destination != 7 && op.len == 4096));
//! # Ok::<(), rma_sim::flows::traffic::TrafficError>(())
//! ```

use core::time::Duration;

use rma_core::{
    limits::OP_SIZE_MAX,
    time::Instant,
    wire::{mutation::DATA_OVERHEAD, read::RESPONSE_OVERHEAD},
};
use thiserror::Error;

use super::RATE;
use crate::{net::frame::wire_len, prng::Prng};

/// All that the ops of a run depend on, but for the seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// How many hosts there are, at most [`HOSTS_MAX`]. They have the numbers from 0.
    pub hosts: u32,
    /// The rate of a link, in bytes a second.
    pub rate: u64,
    /// The share of a link that the frames with payload take, on the wire: of the link of each host
    /// that begins ops, or of that of the destination if it is [`Destination::Incast`]. 1 and more
    /// is saturated.
    pub load: f64,
    /// How long frames with payload are.
    pub framing: Framing,
    /// When ops begin.
    pub arrivals: Arrivals,
    /// The host that an op goes to.
    pub destination: Destination,
    /// How much ops transfer. The shares add up to 1.
    pub sizes: Vec<Size>,
    /// The direction of all ops.
    pub op: Op,
}

/// When the ops of a host begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// By chance, however many are under way.
    Poisson,
    /// At equal distances, beginning at a time drawn from the first of them.
    Static,
}

/// The hosts that ops go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this host, from each other one with the whole load.
    Fixed(u16),
    /// To any but itself, each as likely.
    Uniform,
    /// To this host, from all others, which together have the load.
    Incast(u16),
}

/// A length of which some of the ops are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// How much such an op transfers, in bytes.
    pub len: u64,
    /// How many of the ops are such, of 1.
    pub share: f64,
}

/// The direction of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Payload comes from the destination.
    Read,
    /// Payload goes to the destination.
    Write,
}

/// The octets that a system spends on the wire to transfer some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// The most payload of a frame, at least 1.
    pub payload: u32,
    /// All other octets of a frame, Ethernet's among them.
    pub overhead: u32,
}

/// An op that a host begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it begins.
    pub at: Instant,
    /// The other host.
    pub destination: u16,
    /// How much it transfers, in bytes.
    pub len: u64,
}

/// The most hosts: as many as numbers of 16 bits.
pub const HOSTS_MAX: u32 = 1 << 16;

/// How far shares may be from 1 together: what adding up numbers such as 0.1 leaves.
const SHARES_OFF: f64 = 1e-9;

const PICOS_PER_NANO: u64 = 1000;

/// Traffic that is none.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TrafficError {
    /// Nobody, or more than have numbers.
    #[error("{0} hosts: take 1 to {HOSTS_MAX}")]
    Hosts(u32),
    /// There is no other host.
    #[error("one host alone has nobody to send to: take 2 hosts or more")]
    Alone,
    /// The destination is not there.
    #[error(
        "destination {destination} of {hosts} hosts: they have the numbers from 0, take a lower one"
    )]
    Destination {
        /// The destination that was asked for.
        destination: u16,
        /// How many hosts there are.
        hosts: u32,
    },
    /// The host is not there.
    #[error("host {host} of {hosts} hosts: they have the numbers from 0, take a lower one")]
    Host {
        /// The host that was asked for.
        host: u16,
        /// How many hosts there are.
        hosts: u32,
    },
    /// No load, or one that is no number.
    #[error("a load of {0}: it is a share of a link above 0, such as 0.5; 1 and more is saturated")]
    Load(f64),
    /// More ops than the clock can tell apart.
    #[error("a load of {load} at {rate} B/s begins ops less than a picosecond apart: take less")]
    TooMany {
        /// The load that was asked for.
        load: f64,
        /// The rate of a link.
        rate: u64,
    },
    /// A link that transfers nothing.
    #[error("a rate of 0 B/s: take that of the link, such as {RATE} for 100 Gbit/s")]
    Rate,
    /// Frames without room for payload.
    #[error("frames with 0 bytes of payload: take what a frame of the system holds, such as 4096")]
    Framing,
    /// No size at all.
    #[error("no sizes: give one with a share of 1")]
    NoSizes,
    /// A length of nothing.
    #[error("ops of 0 bytes: take 1 byte or more")]
    Len,
    /// A share that is none.
    #[error("a share of {share} for ops of {len} bytes: take one above 0, up to 1")]
    Share {
        /// The length of which it is the share.
        len: u64,
        /// The share that was asked for.
        share: f64,
    },
    /// Shares of more or less than everything.
    #[error("the shares of sizes add up to {0}: change them so that they add up to 1")]
    Shares(f64),
}

impl Framing {
    /// The framing of this project's own NICs.
    #[must_use]
    pub const fn own(op: Op) -> Self {
        let overhead = match op {
            Op::Read => RESPONSE_OVERHEAD,
            Op::Write => DATA_OVERHEAD,
        };
        Self { payload: OP_SIZE_MAX, overhead: wire_len(overhead, true) as u32 }
    }

    /// How many frames an op of `len` bytes has.
    #[must_use]
    pub fn frames(self, len: u64) -> u64 {
        len.div_ceil(self.payload.into()).max(1)
    }

    /// Octets on the wire of an op of `len` bytes, both directions of which only that with payload
    /// counts.
    #[must_use]
    pub fn wire_bytes(self, len: u64) -> u64 {
        len + self.frames(len) * u64::from(self.overhead)
    }
}

impl Traffic {
    /// Reads of one length by chance, between two hosts, on half of a link of 100 Gbit/s.
    #[must_use]
    pub fn reads(len: u64) -> Self {
        Self {
            hosts: 2,
            rate: RATE,
            load: 0.5,
            framing: Framing::own(Op::Read),
            arrivals: Arrivals::Poisson,
            destination: Destination::Uniform,
            sizes: vec![Size { len, share: 1.0 }],
            op: Op::Read,
        }
    }

    /// Whether there is such traffic.
    ///
    /// # Errors
    /// If there is not: what is wrong, and what to take instead.
    pub fn check(&self) -> Result<(), TrafficError> {
        let &Self { hosts, rate, load, .. } = self;
        if hosts == 0 || hosts > HOSTS_MAX {
            return Err(TrafficError::Hosts(hosts));
        }
        if hosts == 1 {
            return Err(TrafficError::Alone);
        }
        if let Destination::Fixed(destination) | Destination::Incast(destination) = self.destination
            && u32::from(destination) >= hosts
        {
            return Err(TrafficError::Destination { destination, hosts });
        }
        if rate == 0 {
            return Err(TrafficError::Rate);
        }
        if self.framing.payload == 0 {
            return Err(TrafficError::Framing);
        }
        if !load.is_finite() || load <= 0.0 {
            return Err(TrafficError::Load(load));
        }
        self.check_sizes()?;
        if self.mean_gap() < 1.0 {
            return Err(TrafficError::TooMany { load, rate });
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), TrafficError> {
        if self.sizes.is_empty() {
            return Err(TrafficError::NoSizes);
        }
        for &Size { len, share } in &self.sizes {
            if len == 0 {
                return Err(TrafficError::Len);
            }
            if !(share > 0.0 && share <= 1.0) {
                return Err(TrafficError::Share { len, share });
            }
        }
        let sum: f64 = self.sizes.iter().map(|size| size.share).sum();
        if (sum - 1.0).abs() > SHARES_OFF {
            return Err(TrafficError::Shares(sum));
        }
        Ok(())
    }

    /// The mean time between two ops of a host, in picoseconds.
    fn mean_gap(&self) -> f64 {
        let of = |size: &Size| self.framing.wire_bytes(size.len) as f64 * size.share;
        let bytes: f64 = self.sizes.iter().map(of).sum();
        let sharers = match self.destination {
            Destination::Incast(_) => self.hosts - 1,
            Destination::Fixed(_) | Destination::Uniform => 1,
        };
        bytes * 1e12 * f64::from(sharers) / (self.rate as f64 * self.load)
    }

    /// The ops that `host` begins, in the order of time; none if it is the destination of all.
    ///
    /// # Errors
    /// As [`Traffic::check`], or if there is no such host.
    pub fn ops(&self, seed: u64, host: u16) -> Result<Ops, TrafficError> {
        self.check()?;
        if u32::from(host) >= self.hosts {
            return Err(TrafficError::Host { host, hosts: self.hosts });
        }
        let prng = Prng::new(seed).fork(0x7_0000 + u64::from(host));
        let [mut times, destinations, lengths] = [0, 1, 2].map(|part| prng.fork(part));
        let gap = self.mean_gap().round() as u64;
        let phase = times.below(gap);
        let others = match self.destination {
            Destination::Fixed(only) | Destination::Incast(only) if only == host => Others::Nobody,
            Destination::Fixed(only) | Destination::Incast(only) => Others::One(only),
            Destination::Uniform => Others::All { hosts: self.hosts },
        };
        let next = match self.arrivals {
            Arrivals::Poisson => Some(0),
            Arrivals::Static => Some(phase),
        };
        let bounds = bounds(&self.sizes);
        let arrivals = self.arrivals;
        Ok(Ops { host, others, arrivals, gap, next, bounds, times, destinations, lengths })
    }
}

/// A length, for draws below a bound and not below that of the one before.
#[derive(Clone, Copy, Debug)]
struct Bound {
    below: u64,
    len: u64,
}

fn bounds(sizes: &[Size]) -> Vec<Bound> {
    let mut sum = 0.0;
    let bound = |size: &Size| {
        sum += size.share;
        Bound { below: (sum * 2_f64.powi(64)) as u64, len: size.len }
    };
    let mut bounds: Vec<Bound> = sizes.iter().map(bound).collect();
    if let Some(last) = bounds.last_mut() {
        last.below = u64::MAX;
    }
    bounds
}

#[derive(Clone, Copy, Debug)]
enum Others {
    Nobody,
    One(u16),
    All { hosts: u32 },
}

/// The ops of one host, without end.
#[derive(Clone, Debug)]
pub struct Ops {
    host: u16,
    others: Others,
    arrivals: Arrivals,
    /// The mean time between two, in picoseconds, as are all times.
    gap: u64,
    /// When the next one begins; of chance, when the one before did.
    next: Option<u64>,
    bounds: Vec<Bound>,
    times: Prng,
    destinations: Prng,
    lengths: Prng,
}

impl Ops {
    fn next_at(&mut self) -> Option<u64> {
        match self.arrivals {
            Arrivals::Poisson => {
                // A span of whole nanoseconds is drawn, of which each stands for a picosecond.
                let drawn = self.times.exponential(Duration::from_nanos(self.gap));
                self.next = self.next?.checked_add(drawn.as_nanos() as u64);
                self.next
            }
            Arrivals::Static => {
                let at = self.next?;
                self.next = at.checked_add(self.gap);
                Some(at)
            }
        }
    }

    fn next_destination(&mut self) -> Option<u16> {
        match self.others {
            Others::Nobody => None,
            Others::One(only) => Some(only),
            Others::All { hosts } => {
                let other = self.destinations.below(u64::from(hosts) - 1) as u16;
                Some(if other < self.host { other } else { other + 1 })
            }
        }
    }
}

impl Iterator for Ops {
    type Item = Arrival;

    /// The next op; `None` at the end of time, or of a host that begins none.
    fn next(&mut self) -> Option<Arrival> {
        let destination = self.next_destination()?;
        let at = self.next_at()?;
        let drawn = self.lengths.next();
        let bound = self.bounds.iter().find(|bound| drawn < bound.below).or(self.bounds.last())?;
        Some(Arrival { at: Instant::from_nanos(at / PICOS_PER_NANO), destination, len: bound.len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 11;

    fn taken(traffic: &Traffic, host: u16, ops: usize) -> Vec<Arrival> {
        traffic.ops(SEED, host).expect("there is such traffic").take(ops).collect()
    }

    /// The share of a link that the ops of a host take.
    fn offered(traffic: &Traffic, host: u16) -> f64 {
        let ops = taken(traffic, host, 100_000);
        let bytes: u64 = ops.iter().map(|op| traffic.framing.wire_bytes(op.len)).sum();
        let last = ops.last().expect("hosts that send do not end").at.as_nanos();
        bytes as f64 * 1e9 / (traffic.rate as f64 * last as f64)
    }

    fn mix() -> Vec<Size> {
        vec![Size { len: 64, share: 0.7 }, Size { len: 200_000, share: 0.3 }]
    }

    #[test]
    fn the_offered_load_is_the_one_asked_for() {
        for len in [1, 64, 4096, 1 << 20] {
            for arrivals in [Arrivals::Poisson, Arrivals::Static] {
                for load in [0.001, 0.3, 1.0, 1.7] {
                    let traffic = Traffic { load, arrivals, ..Traffic::reads(len) };
                    let offered = offered(&traffic, 0);
                    assert!((offered / load - 1.0).abs() < 0.01, "{traffic:?}: {offered}");
                }
            }
        }
        let traffic = Traffic { sizes: mix(), ..Traffic::reads(1) };
        assert!((offered(&traffic, 1) / 0.5 - 1.0).abs() < 0.01);
    }

    #[test]
    fn an_incast_is_the_load_of_one_link_and_a_fixed_destination_that_of_each() {
        let traffic = |destination| Traffic { hosts: 11, destination, ..Traffic::reads(4096) };
        assert!((offered(&traffic(Destination::Incast(3)), 0) / 0.05 - 1.0).abs() < 0.01);
        assert!((offered(&traffic(Destination::Fixed(3)), 0) / 0.5 - 1.0).abs() < 0.01);
        for destination in [Destination::Incast(3), Destination::Fixed(3)] {
            assert!(taken(&traffic(destination), 10, 100).iter().all(|op| op.destination == 3));
            assert!(taken(&traffic(destination), 3, 100).is_empty());
        }
    }

    #[test]
    fn sizes_come_as_often_as_their_shares_say() {
        let ops = taken(&Traffic { sizes: mix(), ..Traffic::reads(1) }, 0, 100_000);
        let small = ops.iter().filter(|op| op.len == 64).count();
        assert!((69_500..70_500).contains(&small), "{small}");
        assert!(ops.iter().all(|op| op.len == 64 || op.len == 200_000));
    }

    #[test]
    fn a_uniform_destination_is_each_other_host_and_never_oneself() {
        let traffic = Traffic { hosts: 5, ..Traffic::reads(64) };
        let mut counts = [0; 5];
        for op in taken(&traffic, 2, 40_000) {
            counts[usize::from(op.destination)] += 1;
        }
        assert_eq!(counts[2], 0);
        for other in [0, 1, 3, 4] {
            assert!((9_700..10_300).contains(&counts[other]), "{counts:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_ops_and_load_changes_only_their_times() {
        let low = Traffic { hosts: 40, sizes: mix(), ..Traffic::reads(1) };
        assert_eq!(taken(&low, 7, 1000), taken(&low, 7, 1000));
        assert_ne!(taken(&low, 7, 1000), taken(&low, 8, 1000));
        let high = taken(&Traffic { load: 0.9, ..low.clone() }, 7, 1000);
        let mut later = 0;
        for (low, high) in taken(&low, 7, 1000).iter().zip(&high) {
            assert_eq!((low.destination, low.len), (high.destination, high.len));
            later += usize::from(low.at > high.at);
        }
        assert!(later > 990, "{later}");
    }

    #[test]
    fn as_many_hosts_as_there_are_numbers_work_and_one_more_does_not() {
        let traffic = Traffic { hosts: HOSTS_MAX, ..Traffic::reads(4096) };
        let destinations = |host| taken(&traffic, host, 200_000).into_iter();
        assert!(destinations(u16::MAX).all(|op| op.destination != u16::MAX));
        assert_eq!(destinations(0).map(|op| op.destination).max(), Some(u16::MAX));
        assert!(destinations(0).all(|op| op.destination != 0));
        let more = Traffic { hosts: HOSTS_MAX + 1, ..traffic };
        assert_eq!(more.check(), Err(TrafficError::Hosts(65_537)));
    }

    #[test]
    fn traffic_that_is_none_is_refused_with_the_value_and_the_next_step() {
        let refused = |traffic: Traffic, words: [&str; 2]| {
            let error = traffic.check().expect_err("it is none").to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
            assert!(traffic.ops(SEED, 0).is_err());
        };
        let good = || Traffic::reads(4096);
        let size = |len, share| Size { len, share };
        refused(Traffic { hosts: 0, ..good() }, ["0 hosts", "take"]);
        refused(Traffic { hosts: 1, ..good() }, ["alone", "take 2"]);
        let destination = Destination::Fixed(2);
        refused(Traffic { destination, ..good() }, ["destination 2 of 2", "take a lower"]);
        refused(Traffic { rate: 0, ..good() }, ["0 B/s", "take"]);
        for load in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            refused(Traffic { load, ..good() }, ["a load of", "above 0"]);
        }
        refused(Traffic { load: 1e9, ..good() }, ["1000000000", "take less"]);
        let framing = Framing { payload: 0, overhead: 10 };
        refused(Traffic { framing, ..good() }, ["0 bytes of payload", "take"]);
        refused(Traffic { sizes: vec![], ..good() }, ["no sizes", "give one"]);
        refused(Traffic::reads(0), ["0 bytes", "take 1"]);
        let sizes = vec![size(64, 1.5), size(65, -0.5)];
        refused(Traffic { sizes, ..good() }, ["1.5 for ops of 64", "take"]);
        let sizes = vec![size(64, 0.5), size(65, 0.4)];
        refused(Traffic { sizes, ..good() }, ["0.9", "change them"]);
        let error = good().ops(SEED, 2).expect_err("there are two").to_string();
        assert!(error.contains("host 2 of 2"), "{error}");
    }

    #[test]
    fn an_op_of_several_frames_pays_for_each() {
        let framing = Framing { payload: 4096, overhead: 100 };
        assert_eq!([1, 4096, 4097].map(|len| framing.wire_bytes(len)), [101, 4196, 4297]);
    }
}
