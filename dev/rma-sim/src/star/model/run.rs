//! One run, and what it came to.
//!
//! Calls are counted from the end of one to the end of another, when all connections are at work:
//! what begins a run and what ends it is left out. In a run of machine learning both are ends of
//! rounds.

use super::{
    frames::Wire,
    load::{Applications, Workload},
    network::{Event, LinkOptions, Network, Nic, Side, Traffic},
    rc::{Rc, RcOptions},
    stateless::{Star, StarOptions},
    time::Picos,
};

/// The NIC of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum System {
    /// One with reliable connections, as today's.
    Rc(RcOptions),
    /// StaR's stateless one.
    Star(StarOptions),
}

/// The load of a system, and its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// The workload of its applications.
    pub workload: Workload,
    /// How many connections the server has, at least one.
    pub connections: u32,
    /// How long frames are.
    pub wire: Wire,
    /// The time of an octet on the server's link.
    pub octet: Picos,
    /// Switch and cable, one way.
    pub delay: Picos,
    /// From a completion until its application has posted what follows from it.
    pub host: Picos,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Calls, or READs, a second.
    pub calls_per_s: f64,
    /// How long one takes, on average, in microseconds.
    pub latency_us: f64,
    /// The part of the time in which the link to the server is used, preambles and gaps included.
    pub to_server: f64,
    /// The link from the server.
    pub from_server: f64,
    /// Packets a call, both ways.
    pub packets: f64,
    /// Frames a call that found no state.
    pub misses: f64,
}

impl Outcome {
    /// The busier direction of the link.
    #[must_use]
    pub const fn link(&self) -> f64 {
        self.to_server.max(self.from_server)
    }
}

/// Calls of a connection that are made before any is counted, that are counted, and that are made
/// behind them, so that all connections are at work meanwhile.
const BEFORE: u32 = 2;
const BEHIND: u32 = 1;
/// Calls of all connections that are counted at least, and of each.
const COUNTED: u32 = 10_000;
const COUNTED_EACH: u32 = 4;

/// Runs until enough calls have ended.
#[must_use]
pub fn run(system: &System, load: &Load) -> Outcome {
    let counted = (COUNTED / load.connections).max(COUNTED_EACH);
    let before = (counted / 4).max(BEFORE);
    let calls = before + counted + BEHIND;
    let ends = [before, before + counted].map(|it| u64::from(it) * u64::from(load.connections));
    let mut marks = [Mark::default(); 2];
    play(system, load, calls, |mark| {
        for (place, end) in marks.iter_mut().zip(ends) {
            if mark.done == end {
                *place = mark;
            }
        }
        mark.done < ends[1]
    });
    let [from, to] = marks;
    let time = (to.now - from.now).as_secs();
    let calls = (to.done - from.done) as f64;
    let used = |side: usize| {
        let octets = to.traffic[side].octets - from.traffic[side].octets;
        (load.octet * octets).as_secs() / time
    };
    let packets = |mark: &Mark| mark.traffic.iter().map(|it| it.packets).sum::<u64>();
    Outcome {
        calls_per_s: calls / time,
        latency_us: (to.took - from.took).as_micros() / calls,
        to_server: used(Side::Server as usize),
        from_server: used(Side::Client as usize),
        packets: (packets(&to) - packets(&from)) as f64 / calls,
        misses: (to.misses - from.misses) as f64 / calls,
    }
}

/// The state when a call has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The time at which it ended.
    pub(super) now: Picos,
    /// Calls that have ended.
    pub(super) done: u64,
    /// The time that all of them took.
    pub(super) took: Picos,
    /// The traffic to the client and to the server.
    pub(super) traffic: [Traffic; 2],
    /// Frames that found no state.
    pub(super) misses: u64,
}

/// Has each connection make `calls` calls, and tells of each that has ended, until `look` says that
/// it is enough, or nothing is left to come; where that is for ever (slots of time go on), until
/// each connection has made its calls and all frames have arrived. Returns what is known then.
pub(super) fn play(
    system: &System,
    load: &Load,
    calls: u32,
    look: impl FnMut(Mark) -> bool,
) -> Mark {
    let &Load { workload, connections, wire, octet, delay, .. } = load;
    let mut network = Network::new(LinkOptions { octet, delay, wire });
    match *system {
        System::Rc(options) => {
            let nic = Rc::new(options, workload, connections, &mut network);
            go(nic, network, load, calls, look)
        }
        System::Star(options) => go(Star::new(options, connections), network, load, calls, look),
    }
}

fn go<N: Nic>(
    mut nic: N,
    mut network: Network,
    load: &Load,
    calls: u32,
    mut look: impl FnMut(Mark) -> bool,
) -> Mark {
    let &Load { workload, connections, host, .. } = load;
    let all = u64::from(calls) * u64::from(connections);
    let mut applications = Applications::new(workload, host, (connections, calls), &mut network);
    let mark = |applications: &Applications, network: &Network, nic: &N| Mark {
        now: network.now(),
        done: applications.done,
        took: applications.took,
        traffic: [Side::Client, Side::Server].map(|side| network.traffic(side)),
        misses: nic.misses(),
    };
    while let Some(event) = network.next_event() {
        match event {
            Event::Slot if applications.done == all => break,
            Event::Posts(side, connection) => nic.post(&mut network, side, connection),
            _ => nic.handle(&mut network, event),
        }
        while let Some((side, connection)) = network.take_given() {
            let before = applications.done;
            applications.got(&mut network, side, connection);
            if applications.done > before && !look(mark(&applications, &network, &nic)) {
                return mark(&applications, &network, &nic);
            }
        }
    }
    mark(&applications, &network, &nic)
}
