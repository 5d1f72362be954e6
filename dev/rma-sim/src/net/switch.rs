//! A switch: an output port for each node, with a rate and a drop-tail queue that all senders to
//! that node share. So incast happens here, and cross traffic delays others.
//!
//! It forwards and drops, and does nothing else: no pause frames, no marking, one class of traffic.

use rma_core::time::Instant;

use crate::net::{
    frame::NodeId,
    queue::{Queue, QueueOptions},
};

/// The switch that all links end at.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<Queue>,
}

impl Switch {
    /// A switch with an output port for each of `nodes` nodes.
    #[must_use]
    pub fn new(port: QueueOptions, nodes: usize) -> Self {
        Self { ports: vec![Queue::new(port); nodes] }
    }

    /// Gives `to` an empty port of another kind.
    pub fn set_port(&mut self, to: NodeId, port: QueueOptions) {
        self.ports[to.index()] = Queue::new(port);
    }

    /// Takes a frame for `to` at `now`. Returns when `to` has all of it; `None` if its port has no
    /// room.
    pub fn take(&mut self, now: Instant, to: NodeId, wire_len: usize) -> Option<Instant> {
        self.ports[to.index()].take(now, wire_len as u64)
    }

    /// The most bytes that waited for `to` so far, with what was leaving.
    #[must_use]
    pub fn longest(&self, to: NodeId) -> u64 {
        self.ports[to.index()].longest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_to_one_node_share_its_port_and_others_are_not_delayed() {
        let mut switch = Switch::new(QueueOptions { rate: 1_000_000_000, len: 3000 }, 2);
        let mut take = |to| switch.take(Instant::ZERO, NodeId(to), 1000).map(Instant::as_nanos);
        assert_eq!([take(0), take(0), take(1)], [Some(1000), Some(2000), Some(1000)]);
        assert_eq!([take(0), take(0), take(1)], [Some(3000), None, Some(2000)]);
    }
}
