//! ScalaRDMA: connections in groups, of which one at a time may begin something, at either side
//! (StaR §II-C, §V-A2).
//!
//! When a slot ends, what is under way is waited for; then the switch takes its time, in which the
//! states of the next group are loaded, so that they are there. With one group nothing is ever
//! switched.

use std::collections::VecDeque;

use super::{
    network::{Event, Network, Side},
    time::Picos,
};

/// The grouping of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupOptions {
    /// How many connections a group has; a new one is begun when the last is full.
    pub size: u32,
    /// How long a group may begin ops.
    pub slot: Picos,
    /// The time that it takes to go on with the next group when nothing is under way any longer.
    pub switch: Picos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    Switching,
}

/// The groups, and whose turn it is.
#[derive(Debug)]
pub struct Groups {
    options: GroupOptions,
    active: usize,
    phase: Phase,
    /// Ops that were begun and not acknowledged.
    under_way: u64,
    /// The requests that wait for their group's slot.
    held: Vec<VecDeque<(Side, u32)>>,
}

impl Groups {
    /// The groups of so many connections; the first slot begins.
    #[must_use]
    pub fn new(options: GroupOptions, connections: u32, network: &mut Network) -> Self {
        let count = connections.div_ceil(options.size).max(1) as usize;
        if count > 1 {
            network.at(network.now() + options.slot, Event::Slot);
        }
        Self {
            options,
            active: 0,
            phase: Phase::Serving,
            under_way: 0,
            held: vec![VecDeque::new(); count],
        }
    }

    /// Whether `connection` may begin something now; if not, it is remembered that it wants to.
    pub fn may_begin(&mut self, side: Side, connection: u32) -> bool {
        let group = (connection / self.options.size) as usize;
        let may = group == self.active && self.phase == Phase::Serving;
        if !may {
            self.held[group].push_back((side, connection));
        }
        may
    }

    /// An op has begun.
    pub const fn begun(&mut self) {
        self.under_way += 1;
    }

    /// An op has been acknowledged.
    pub fn acknowledged(&mut self, network: &mut Network) {
        self.under_way -= 1;
        self.switch_if_drained(network);
    }

    /// A slot or a switch has ended. Returns what may begin now.
    pub fn handle_slot(&mut self, network: &mut Network) -> VecDeque<(Side, u32)> {
        match self.phase {
            Phase::Serving => {
                self.phase = Phase::Draining;
                self.switch_if_drained(network);
                VecDeque::new()
            }
            Phase::Draining => VecDeque::new(),
            Phase::Switching => {
                self.phase = Phase::Serving;
                self.active = (self.active + 1) % self.held.len();
                network.at(network.now() + self.options.slot, Event::Slot);
                core::mem::take(&mut self.held[self.active])
            }
        }
    }

    fn switch_if_drained(&mut self, network: &mut Network) {
        if self.phase == Phase::Draining && self.under_way == 0 {
            self.phase = Phase::Switching;
            network.at(network.now() + self.options.switch, Event::Slot);
        }
    }
}
