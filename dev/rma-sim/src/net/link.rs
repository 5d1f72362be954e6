//! One direction of a path between two nodes: delay, jitter, rate, a queue, and faults.
//!
//! What it carries, loses, copies and damages is packets, whatever frames share them.
//!
//! A link that only delays would deliver in order, and hide every mistake that reordering shows. So
//! jitter is drawn for each packet by itself, and the default link has some: reordering is the
//! normal case here.

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    time::Instant,
    wire::{self, FrameView},
};

use crate::{
    net::queue::{Queue, QueueOptions},
    prng::{Chance, Prng},
};

/// The way in which a link treats packets. Durations above some hours make no sense and may
/// saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// How long every packet takes.
    pub delay: Duration,
    /// How much longer a packet may take, drawn for each. 0 would keep packets in order.
    pub jitter: Duration,
    /// The law by which that is drawn.
    pub law: JitterLaw,
    /// Bytes a second, headers included; at least 1.
    pub rate: u64,
    /// How many bytes may wait for the link; packets beyond it are lost (drop-tail).
    pub queue: u64,
    /// The faults that the link adds to packets.
    pub faults: Faults,
}

/// The law by which jitter is drawn. The mean is half of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterLaw {
    /// Evenly, from none to all of it.
    #[default]
    Uniform,
    /// From the exponential distribution, so that now and then it is several times as long.
    Exponential,
}

impl JitterLaw {
    /// How much longer a packet takes.
    fn draw(self, prng: &mut Prng, jitter: Duration) -> u64 {
        match self {
            Self::Uniform => prng.below(nanos(jitter).saturating_add(1)),
            Self::Exponential => nanos(prng.exponential(jitter / 2)),
        }
    }
}

impl Default for LinkOptions {
    /// Two microseconds and as much jitter, 100 Gbit/s, 1 MiB of queue, no faults.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(2),
            jitter: Duration::from_micros(2),
            law: JitterLaw::default(),
            rate: 12_500_000_000,
            queue: 1 << 20,
            faults: Faults::default(),
        }
    }
}

/// The faults of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A packet is lost, and all frames in it.
    pub loss: Chance,
    /// A packet arrives twice, each copy with its own jitter.
    pub duplicate: Chance,
    /// A copy of a packet arrives once more, up to `replay_within` later: a middlebox that held it,
    /// or an attacker who replays it.
    pub replay: Chance,
    /// How much later a replayed copy may arrive.
    pub replay_within: Duration,
    /// One to four bits of a copy are flipped, past all checksums: now and then one of those that
    /// say how long a frame is.
    pub corrupt: Chance,
}

impl Faults {
    /// Whether more copies can arrive than were sent.
    #[must_use]
    pub const fn multiply(&self) -> bool {
        !self.duplicate.is_never() || !self.replay.is_never()
    }
}

/// A copy of a packet, on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// When it leaves the link.
    pub at: Instant,
    /// The octets that leave, if they are not those that were sent.
    pub altered: Option<Arc<[u8]>>,
    /// Whether the link made this copy; false for the packet itself.
    pub extra: bool,
}

/// One direction of a path.
#[derive(Debug)]
pub struct Link {
    options: LinkOptions,
    prng: Prng,
    queue: Queue,
}

/// The most bits that a corrupted copy has wrong.
const FLIPS_MAX: usize = 4;

impl Link {
    /// A link that draws from `prng`, which no other may use.
    #[must_use]
    pub const fn new(options: LinkOptions, prng: Prng) -> Self {
        let queue = Queue::new(QueueOptions { rate: options.rate, len: options.queue });
        Self { options, prng, queue }
    }

    /// Returns the options of the link.
    #[must_use]
    pub const fn options(&self) -> &LinkOptions {
        &self.options
    }

    /// Changes the faults of packets sent from now on.
    pub const fn set_faults(&mut self, faults: Faults) {
        self.options.faults = faults;
    }

    /// Sends a packet of `wire_len` bytes, headers included. Returns what will leave at the other
    /// end: the packet itself, if it is not lost, and the copies that the link makes.
    ///
    /// Every random number is drawn whether it is used or not, so that changing one chance does not
    /// shift the draws of all later packets.
    pub fn carry(&mut self, now: Instant, bytes: &[u8], wire_len: usize) -> [Option<Copied>; 3] {
        let Faults { loss, duplicate, replay, replay_within, corrupt } = self.options.faults;
        let happens =
            [!self.prng.chance(loss), self.prng.chance(duplicate), self.prng.chance(replay)];
        let extra_delay = [0, 0, self.prng.below(nanos(replay_within))];
        let left = self.queue.take(now, wire_len as u64);
        core::array::from_fn(|copy| {
            let jitter = self.options.law.draw(&mut self.prng, self.options.jitter);
            let corrupted = self.prng.chance(corrupt);
            let flips = self.draw_flips(bytes.len());
            let left = left.filter(|_| happens[copy])?;
            let spread = Duration::from_nanos(jitter.saturating_add(extra_delay[copy]));
            Some(Copied {
                at: left + self.options.delay + spread,
                altered: corrupted.then(|| flips.apply(bytes)),
                extra: copy > 0,
            })
        })
    }

    fn draw_flips(&mut self, len: usize) -> Flips {
        let count = 1 + self.prng.below(FLIPS_MAX as u64) as usize;
        let bits = len as u64 * 8;
        let is_aimed = self.prng.below(AIMED_EVERY) == 0;
        let aim = self.prng.next();
        let bits = core::array::from_fn(|_| self.prng.below(bits));
        Flips { count, bits, aim: is_aimed.then_some(aim) }
    }
}

/// One corruption in so many hits the length of a frame, if there is one that says its length.
const AIMED_EVERY: u64 = 4;

/// Returns the offsets of the octets that say how long frames of `packet` are.
fn length_octets(packet: &[u8]) -> Vec<usize> {
    let (mut octets, mut at) = (Vec::new(), 0);
    while let Ok(len) = wire::frame_len(&packet[at..]) {
        let view = FrameView::parse(&packet[at..at + len]);
        if let Ok(FrameView::ReadResponse(_) | FrameView::SolicitedData(_)) = view {
            octets.extend(LENGTH_AT.map(|octet| at + octet));
        }
        at += len;
    }
    octets
}

/// The offsets of the octets in which a frame with a payload says its length.
const LENGTH_AT: [usize; 2] = [30, 31];

/// The bits that a corruption flips.
struct Flips {
    count: usize,
    bits: [u64; FLIPS_MAX],
    /// Chooses a bit of a length that is flipped as well.
    aim: Option<u64>,
}

impl Flips {
    fn apply(&self, bytes: &[u8]) -> Arc<[u8]> {
        let mut flipped = bytes.to_vec();
        for bit in &self.bits[..self.count] {
            flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        if let Some(aim) = self.aim {
            let octets = length_octets(bytes);
            if let Some(&octet) = octets.get((aim >> 3) as usize % octets.len().max(1)) {
                flipped[octet] ^= 1 << (aim % 8);
            }
        }
        if flipped == bytes {
            // Every flip was undone by another.
            flipped[0] ^= 1;
        }
        flipped.into()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 100] = [7; 100];

    fn carried(options: LinkOptions, frames: usize) -> Vec<Vec<Copied>> {
        let mut link = Link::new(options, Prng::new(5));
        let mut carry = || link.carry(Instant::ZERO, &FRAME, 100).into_iter().flatten().collect();
        (0..frames).map(|_| carry()).collect()
    }

    #[test]
    fn the_default_link_reorders_and_loses_nothing() {
        let arrivals: Vec<Instant> = carried(LinkOptions::default(), 100)
            .iter()
            .map(|copies| {
                assert_eq!(copies.len(), 1);
                copies[0].at
            })
            .collect();
        assert!(!arrivals.is_sorted());
    }

    #[test]
    fn changing_one_chance_does_not_shift_the_other_draws() {
        let lossy = Faults { loss: Chance::ppm(500_000), ..Faults::default() };
        let clean = carried(LinkOptions::default(), 200);
        let lossy = carried(LinkOptions { faults: lossy, ..LinkOptions::default() }, 200);
        let mut lost = 0;
        for (clean, lossy) in clean.iter().zip(&lossy) {
            match lossy.first() {
                Some(copy) => assert_eq!(copy.at, clean[0].at),
                None => lost += 1,
            }
        }
        assert!((60..140).contains(&lost), "{lost}");
    }

    #[test]
    fn a_full_queue_drops_the_tail_and_a_rate_spreads_frames() {
        let options = LinkOptions {
            jitter: Duration::ZERO,
            rate: 1_000_000,
            queue: 1000,
            ..LinkOptions::default()
        };
        let all = carried(options, 20);
        let times: Vec<u64> = all.iter().flatten().map(|copy| copy.at.as_nanos()).collect();
        assert_eq!(times.len(), 10, "a thousand bytes wait at once");
        assert_eq!(times[0], 100_000 + 2_000);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 100_000));
    }

    #[test]
    fn jitter_of_both_laws_is_added_and_has_half_of_it_as_its_mean() {
        for law in [JitterLaw::Uniform, JitterLaw::Exponential] {
            let options = LinkOptions { law, rate: u64::MAX, ..LinkOptions::default() };
            let all = carried(options, 10_000);
            let late = |copy: &Copied| copy.at.as_nanos().checked_sub(2_000).expect("a delay");
            let late: Vec<u64> = all.iter().flatten().map(late).collect();
            let mean = late.iter().sum::<u64>() / 10_000;
            assert!((970..1030).contains(&mean), "{law:?}: {mean}");
            assert_eq!(late.iter().any(|&it| it > 2_000), law == JitterLaw::Exponential);
        }
    }

    #[test]
    fn every_fault_happens_and_corruption_always_changes_something() {
        let always = Chance::ppm(1_000_000);
        let faults = Faults {
            duplicate: always,
            replay: always,
            replay_within: Duration::from_secs(1),
            corrupt: always,
            ..Faults::default()
        };
        for copies in carried(LinkOptions { faults, ..LinkOptions::default() }, 100) {
            assert_eq!(
                copies.iter().map(|copy| copy.extra).collect::<Vec<_>>(),
                [false, true, true]
            );
            let altered =
                |copy: &Copied| copy.altered.as_ref().is_some_and(|bytes| **bytes != FRAME);
            assert!(copies.iter().all(altered));
        }
    }
}
