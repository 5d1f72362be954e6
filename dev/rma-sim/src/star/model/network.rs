//! The server's link, both ways, and what happens when.
//!
//! A frame of a client reaches the server's port after the time of cable and switch, waits there
//! for those before it, and takes its octets' time; one of the server takes its octets' time first.
//! So each is timed on one link, that of the server, as by a switch that cuts through.
//!
//! Invariants: events come in the order of their times, those of one time in the order in which
//! they were made; each frame that was sent arrives once.

use core::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use super::{
    frames::{Frame, Wire},
    time::Picos,
};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame has come to a side, with the octets that its packet took; of frames that share one,
    /// the first has them.
    Arrives(Side, u32, Frame, u32),
    /// An application posts what its workload says, for this connection.
    Posts(Side, u32),
    /// The server's pipeline is through with a frame.
    Passed,
    /// The engine of the server begins a turn.
    Turn,
    /// A slot of time ends, or the switch to the next group does.
    Slot,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one with few connections.
    Client,
    /// The one with all of them.
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timed {
    at: Picos,
    order: u64,
    event: Event,
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The properties of a link and of the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkOptions {
    /// The time of an octet.
    pub octet: Picos,
    /// Switch and cable, one way.
    pub delay: Picos,
    /// How long frames are.
    pub wire: Wire,
}

/// The traffic of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that have arrived.
    pub arrived: u64,
    /// Packets that have arrived.
    pub packets: u64,
    /// Octets of the link that they took.
    pub octets: u64,
}

/// Time, links and what will come.
#[derive(Debug)]
pub struct Network {
    options: LinkOptions,
    now: Picos,
    made: u64,
    events: BinaryHeap<Reverse<Timed>>,
    /// Until when each direction has something to carry: to the client, to the server.
    busy: [Picos; 2],
    traffic: [Traffic; 2],
    got: VecDeque<(Side, u32)>,
}

impl Network {
    /// One in which nothing has happened.
    #[must_use]
    pub fn new(options: LinkOptions) -> Self {
        Self {
            options,
            now: Picos::ZERO,
            made: 0,
            events: BinaryHeap::new(),
            busy: [Picos::ZERO; 2],
            traffic: [Traffic::default(); 2],
            got: VecDeque::new(),
        }
    }

    /// Returns the present time.
    #[must_use]
    pub const fn now(&self) -> Picos {
        self.now
    }

    /// Returns the traffic that came to `side`.
    #[must_use]
    pub const fn traffic(&self, side: Side) -> Traffic {
        self.traffic[side as usize]
    }

    /// Has `event` happen at `at`, which is not before now.
    pub fn at(&mut self, at: Picos, event: Event) {
        self.made += 1;
        self.events.push(Reverse(Timed { at: at.max(self.now), order: self.made, event }));
    }

    /// Sends `frames` of a connection in one packet; nothing if there are none.
    pub fn send(&mut self, to: Side, connection: u32, frames: &[Frame]) {
        if frames.is_empty() {
            return;
        }
        let LinkOptions { octet, delay, wire } = self.options;
        let octets = wire.octets(frames);
        let (before, after) = match to {
            Side::Server => (delay, Picos::ZERO),
            Side::Client => (Picos::ZERO, delay),
        };
        let busy = &mut self.busy[to as usize];
        *busy = (*busy).max(self.now + before) + octet * u64::from(octets);
        let arrives = *busy + after;
        self.traffic[to as usize].sent += frames.len() as u64;
        for (index, &frame) in frames.iter().enumerate() {
            let octets = if index == 0 { octets } else { 0 };
            self.at(arrives, Event::Arrives(to, connection, frame, octets));
        }
    }

    /// Gives the application of a side a message, or what it asked for.
    pub fn give(&mut self, side: Side, connection: u32) {
        self.got.push_back((side, connection));
    }

    /// Takes the next message given to an application, in order.
    pub fn take_given(&mut self) -> Option<(Side, u32)> {
        self.got.pop_front()
    }

    /// The next event, to whose time it then is; `None` when nothing will come.
    pub fn next_event(&mut self) -> Option<Event> {
        let Reverse(Timed { at, event, .. }) = self.events.pop()?;
        self.now = at;
        if let Event::Arrives(side, _, _, octets) = event {
            let traffic = &mut self.traffic[side as usize];
            traffic.arrived += 1;
            traffic.packets += u64::from(octets > 0);
            traffic.octets += u64::from(octets);
        }
        Some(event)
    }
}

/// A NIC that serves the connections of a server, with the clients' ends of them.
pub trait Nic {
    /// An application posts what its workload says.
    fn post(&mut self, network: &mut Network, side: Side, connection: u32);

    /// Anything else happens.
    fn handle(&mut self, network: &mut Network, event: Event);

    /// How many frames found no state so far.
    fn misses(&self) -> u64 {
        0
    }
}
