//! The network between hosts, in virtual time: what becomes of each frame is drawn from the seed of
//! the run. Beside it a channel that loses nothing and keeps secrets, for the messages of set-ups.

use std::collections::BTreeMap;

use rma_core::{addr::HostAddr, port::Port};

/// Nanoseconds of a microsecond, and of a millisecond. True time, which no host's clock shows, is
/// in nanoseconds since the run began.
pub(crate) const MICRO: u64 = 1_000;
pub(crate) const MILLI: u64 = 1_000_000;

/// How many frames are kept, to be played again.
const RECORDED: usize = 128;

/// Numbers that look random: splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Below `bound`, which is not 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Whether something happens that does so `per_mille` times of a thousand.
    pub(crate) const fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub(crate) const fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: HostAddr,
    pub(crate) destination: HostAddr,
    pub(crate) port: Port,
    pub(crate) bytes: Vec<u8>,
}

/// The number of a host, which its address ends with.
pub(crate) const fn host_of(address: HostAddr) -> usize {
    address.to_octets()[15] as usize
}

/// An event at a host, or at several.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A frame arrives.
    Arrival(Packet),
    /// A message of a set-up arrives at this end of a connection.
    Message { connection: usize, end: usize, octets: Vec<u8> },
    /// The engine and the applications of a host look around.
    Turn { host: usize },
    /// All state of a host is gone, and it starts anew.
    Kill { host: usize },
    /// A host stands still for so long.
    Pause { host: usize, nanos: u64 },
    /// The network carries nothing between two hosts for so long.
    Cut { hosts: [usize; 2], nanos: u64 },
    /// An application wants the roles of one of its connections to change.
    Switch { draw: u64 },
    /// An application closes one of its queue pairs.
    Close { draw: u64 },
}

/// The faults that the network adds to frames. Each chance is so many of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) double: u64,
    pub(crate) corrupt: u64,
    /// A frame of before is played again, however old.
    pub(crate) replay: u64,
    /// How much longer than others a frame may take, in nanoseconds.
    pub(crate) jitter: u64,
}

/// The frames under way, and the events to come.
#[derive(Debug)]
pub(crate) struct Network {
    random: Random,
    pub(crate) faults: Faults,
    latency: u64,
    events: BTreeMap<(u64, u64), Happening>,
    scheduled: u64,
    recorded: Vec<Packet>,
    cuts: Vec<([usize; 2], u64)>,
    /// How many frames were given to it.
    pub(crate) carried: u64,
}

impl Network {
    pub(crate) const fn new(random: Random, faults: Faults, latency: u64) -> Self {
        Self {
            random,
            faults,
            latency,
            events: BTreeMap::new(),
            scheduled: 0,
            recorded: Vec::new(),
            cuts: Vec::new(),
            carried: 0,
        }
    }

    /// From now on every frame arrives once, whole and in order.
    pub(crate) fn mend(&mut self) {
        self.faults = Faults::default();
        self.cuts.clear();
    }

    pub(crate) fn schedule(&mut self, at: u64, event: Happening) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    /// The next thing that happens, not after `end`.
    pub(crate) fn next(&mut self, end: u64) -> Option<(u64, Happening)> {
        let first = self.events.first_entry()?;
        let at = first.key().0;
        (at <= end).then(|| (at, first.remove()))
    }

    pub(crate) fn cut(&mut self, hosts: [usize; 2], until: u64) {
        self.cuts.push((hosts, until));
    }

    /// A message of a set-up.
    pub(crate) fn tell(&mut self, now: u64, connection: usize, end: usize, octets: Vec<u8>) {
        let at = now + self.latency + self.random.below(MILLI);
        self.schedule(at, Happening::Message { connection, end, octets });
    }

    /// A frame is sent.
    pub(crate) fn carry(&mut self, now: u64, packet: Packet) {
        self.carried += 1;
        let Faults { loss, double, corrupt, replay, jitter } = self.faults;
        let random = &mut self.random;
        if self.recorded.len() < RECORDED {
            self.recorded.push(packet.clone());
        } else if random.happens(50) {
            let place = random.below(RECORDED as u64) as usize;
            self.recorded[place] = packet.clone();
        }
        let again = random.happens(replay).then(|| {
            let draw = random.below(self.recorded.len() as u64);
            self.recorded[draw as usize].clone()
        });
        let hosts = [host_of(packet.source), host_of(packet.destination)];
        let is_cut = self
            .cuts
            .iter()
            .any(|&([a, b], until)| now < until && (hosts == [a, b] || hosts == [b, a]));
        let copies = match (is_cut || random.happens(loss), random.happens(double)) {
            (true, _) => 0,
            (false, doubled) => 1 + usize::from(doubled),
        };
        for packet in std::iter::repeat_n(packet, copies).chain(again) {
            let mut packet = packet;
            if random.happens(corrupt) {
                let at = random.below(packet.bytes.len() as u64) as usize;
                packet.bytes[at] ^= 1 << random.below(8);
            }
            let late = if jitter > 0 { random.below(jitter) } else { 0 };
            self.scheduled += 1;
            let at = now + self.latency + late;
            self.events.insert((at, self.scheduled), Happening::Arrival(packet));
        }
    }
}
