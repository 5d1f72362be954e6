//! Source ports whose answers come to this engine of a host (not in the paper, whose NIC is one).
//!
//! A device spreads packets over its queues, and so over engines, by a function of addresses and
//! ports that nobody need know: engines learn. An answer leaves from the source port of what it
//! answers ([`SourcePort::answering`]), and goes to the port that we listen on. So the source port
//! that we choose decides where a peer's answers to that port land. That is what is learnt: **for a
//! peer, a source port of ours, once an authentic answer came back from it to this engine's own
//! queues**. It is forgotten once another engine had to hand such an answer over, or an op that
//! went from it ended with TIMEOUT or NACK. The next op tries another port, so another engine of
//! the peer and another path.
//!
//! * Only whoever has opened an answer, and has found that it came from the port that the op went
//!   from, calls [`LearntPorts::learn`]: a stranger, a forged or old frame, and a peer that answers
//!   from a port of its own teach nothing.
//! * It is a cache: nothing but where answers land depends on it.
//! * Where a host has one engine it is empty, and all ports are those of [`SourcePort::of_turn`].

use crate::{addr::HostAddr, port::SourcePort, time::Instant};

/// How many source ports are known of a peer at most. More: traffic has more paths. Fewer: a peer
/// takes less memory, and is learnt sooner.
const PORTS: usize = 4;

/// How many peers are known at most: as many as there are paths known of.
const PEERS: usize = 1024;

/// How many peers may share a bucket. With each peer in one of two buckets of eight, practically
/// all places are used before one is lost.
const WAYS: usize = 8;

const BUCKETS: usize = PEERS / WAYS;

/// How often a peer moves another to that one's other bucket, until one is lost.
const MOVES: usize = 32;

/// One turn in so many tries a new port, while fewer than [`PORTS`] are known.
const TRY_EVERY: u64 = 16;

/// A peer, by a hash of its address, and its ports: those first that are not 0. All zero: nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    peer: u64,
    ports: [u16; PORTS],
}

impl Place {
    const EMPTY: Self = Self { peer: 0, ports: [0; PORTS] };

    fn known(&self) -> usize {
        self.ports.iter().take_while(|&&port| port != 0).count()
    }
}

/// The source ports that were learnt for one port that an engine listens on.
#[derive(Clone, Debug, Default)]
pub struct LearntPorts {
    /// Bucket behind bucket. None where there is nothing to learn.
    places: Box<[Place]>,
}

impl LearntPorts {
    /// Entries of the table of a host of several engines.
    pub const ENTRIES: usize = PEERS;

    /// Bytes of an entry.
    pub const ENTRY_LEN: usize = size_of::<Place>();

    /// Nothing learnt yet, by an engine of a host of so many.
    #[must_use]
    pub fn new(engines: u16) -> Self {
        let places = if engines > 1 { PEERS } else { 0 };
        Self { places: vec![Place::EMPTY; places].into() }
    }

    /// Whether ports are learnt: the host has several engines.
    #[inline]
    #[must_use]
    pub const fn learns(&self) -> bool {
        !self.places.is_empty()
    }

    /// The port of what goes to `peer` in the turn that began at `now`: one for all of it, and
    /// another in the next turn.
    #[inline]
    #[must_use]
    pub fn of_turn(&self, peer: HostAddr, now: Instant) -> SourcePort {
        if self.learns() { self.choose(peer, now) } else { SourcePort::of_turn(now) }
    }

    fn choose(&self, peer: HostAddr, now: Instant) -> SourcePort {
        let new = SourcePort::of_turn(now);
        let Some(place) = self.find(hash(peer)) else { return new };
        let Place { ports, .. } = self.places[place];
        let known = self.places[place].known();
        let draw = spread(now.as_nanos());
        if known < PORTS && draw.is_multiple_of(TRY_EVERY) {
            return new;
        }
        SourcePort(ports[(draw / TRY_EVERY) as usize % known])
    }

    /// Notes that an authentic answer came here from `peer` to the port that it went from.
    pub fn learn(&mut self, peer: HostAddr, SourcePort(port): SourcePort) {
        if !self.learns() || port < SourcePort::FIRST.0 {
            return;
        }
        let peer = hash(peer);
        let Some(place) = self.find(peer) else {
            let mut ports = [0; PORTS];
            ports[0] = port;
            self.insert(Place { peer, ports });
            return;
        };
        let place = &mut self.places[place];
        let known = place.known();
        if known < PORTS && !place.ports.contains(&port) {
            place.ports[known] = port;
        }
    }

    /// Notes that answers of `peer` to this port do not come here, or not at all.
    #[cold]
    pub fn forget(&mut self, peer: HostAddr, SourcePort(port): SourcePort) {
        let Some(index) = self.find(hash(peer)) else { return };
        let place = &mut self.places[index];
        let known = place.known();
        if let Some(at) = place.ports[..known].iter().position(|&it| it == port) {
            place.ports.copy_within(at + 1.., at);
            place.ports[PORTS - 1] = 0;
            if known == 1 {
                *place = Place::EMPTY;
            }
        }
    }

    #[inline]
    fn find(&self, peer: u64) -> Option<usize> {
        if !self.learns() {
            return None;
        }
        let mut places = buckets(peer).into_iter().flatten();
        places.find(|&place| self.places[place].peer == peer)
    }

    /// Puts a peer that has no place into one of its buckets, and moves others out of its way. The
    /// last of them is lost if it has none either.
    fn insert(&mut self, new: Place) {
        let mut homeless = new;
        for step in 0..MOVES {
            let mut places = buckets(homeless.peer).into_iter().flatten();
            if let Some(free) = places.find(|&place| self.places[place] == Place::EMPTY) {
                self.places[free] = homeless;
                return;
            }
            let draw = spread(homeless.peer ^ step as u64) as usize;
            let [first, second] = buckets(homeless.peer);
            let bucket = if draw.is_multiple_of(2) { first } else { second };
            let place = bucket.start + draw / 2 % WAYS;
            core::mem::swap(&mut self.places[place], &mut homeless);
        }
    }
}

/// The places of the two buckets that a peer may be in.
fn buckets(peer: u64) -> [core::ops::Range<usize>; 2] {
    let first = peer as usize % BUCKETS;
    let second = (peer >> 32) as usize % BUCKETS;
    [first, second].map(|bucket| bucket * WAYS..(bucket + 1) * WAYS)
}

/// A hash of an address, which is not 0.
fn hash(peer: HostAddr) -> u64 {
    let octets = u128::from_be_bytes(peer.to_octets());
    spread(spread((octets >> 64) as u64) ^ octets as u64).max(1)
}

/// Spreads the bits of `value` over all bits (`SplitMix64`).
const fn spread(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests;
