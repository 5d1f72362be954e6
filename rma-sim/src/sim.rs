//! The simulated network: nodes, a link for each ordered pair of them, and one heap of events.
//!
//! The clock stands still while something happens, and then jumps to the next event. Events of one instant
//! happen in the order in which they were scheduled, frames before timeouts, as in an engine's turn; nothing
//! depends on a hash, a thread or a real clock. So a run is a function of its options and seed.
//!
//! What is not here: what software does ([`crate::scenario`]) and what must hold ([`crate::invariant`]).

use core::cmp::Reverse;
use std::{collections::BinaryHeap, sync::Arc};

use rma_core::{
    addr::HostAddr,
    backend::Transmit,
    command::Command,
    error::CommandError,
    nic::{ConfigError, Nic},
    time::Instant,
};

use crate::{
    link::{Copied, Faults, Link, LinkOptions},
    node::{Node, NodeId, NodeOptions, Sent},
    prng::Prng,
    trace::{Seen, What},
};

/// Something that will happen at a node. `seq` breaks ties.
#[derive(Debug)]
struct Event {
    at: Instant,
    seq: u64,
    node: NodeId,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A copy of a frame arrives.
    Arrival { transmit: Transmit, sent: Arc<[u8]>, copied: Copied },
    /// The device can take the next frame.
    DeviceFree,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// A network of NICs.
#[derive(Debug)]
pub struct Sim {
    now: Instant,
    seq: u64,
    events: BinaryHeap<Reverse<Event>>,
    nodes: Vec<Node>,
    /// From node `i` to node `j` at `i * nodes + j`; a node reaches itself by a link, too.
    links: Vec<Link>,
    seen: Vec<Seen>,
}

impl Sim {
    /// A network of `nodes`, each joined to each by a link like `link`. Time begins at zero.
    ///
    /// # Errors
    /// If a NIC cannot be built from its settings.
    pub fn new(nodes: &[NodeOptions], link: LinkOptions, seed: u64) -> Result<Self, ConfigError> {
        let prng = Prng::new(seed);
        let count = nodes.len() as u64;
        Ok(Self {
            now: Instant::ZERO,
            seq: 0,
            events: BinaryHeap::new(),
            nodes: nodes.iter().map(Node::new).collect::<Result<_, _>>()?,
            links: (0..count * count).map(|part| Link::new(link, prng.fork(part))).collect(),
            seen: Vec::new(),
        })
    }

    /// The time now.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The nodes' numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u16).map(NodeId)
    }

    /// The NIC of `node`, which must exist.
    #[must_use]
    pub fn nic(&self, node: NodeId) -> &Nic {
        &self.nodes[node.index()].nic
    }

    /// The NIC of `node`, to configure slots and regions.
    pub fn nic_mut(&mut self, node: NodeId) -> &mut Nic {
        &mut self.nodes[node.index()].nic
    }

    /// Changes the faults of all links for frames sent from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        for link in &mut self.links {
            link.set_faults(faults);
        }
    }

    /// The node that has `addr`.
    #[must_use]
    pub fn node_at(&self, addr: HostAddr) -> Option<NodeId> {
        self.nodes().find(|&node| self.nic(node).config().settings().addresses.contains(addr))
    }

    /// What has happened since the last call.
    pub fn take_seen(&mut self) -> std::vec::Drain<'_, Seen> {
        self.seen.drain(..)
    }

    /// Issues a command now.
    ///
    /// # Errors
    /// If the NIC refuses it.
    pub fn issue(&mut self, node: NodeId, command: Command) -> Result<(), CommandError> {
        let result = self.nodes[node.index()].handle_command(self.now, command);
        self.see(node, What::Issued { command, result });
        self.settle(node);
        result
    }

    /// When the next event is; `None` if nothing will ever happen by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let event = self.events.peek().map(|Reverse(event)| event.at);
        event.into_iter().chain(self.next_timeout().map(|(at, _)| at)).min()
    }

    fn next_timeout(&self) -> Option<(Instant, NodeId)> {
        let timeout = |node| self.nic(node).poll_timeout().map(|at| (at, node));
        self.nodes().filter_map(timeout).min()
    }

    /// Lets time pass until `then`, where the next event is later.
    ///
    /// # Panics
    /// If that would skip an event or turn time back.
    pub fn advance_to(&mut self, then: Instant) {
        assert!(then >= self.now, "time does not go backwards");
        assert!(self.next_at().is_none_or(|next| next >= then), "an event would be skipped");
        self.now = then;
    }

    /// Jumps to the next event and does it. Returns its node; `None` if there is none.
    pub fn step(&mut self) -> Option<NodeId> {
        let timeout = self.next_timeout();
        let event = self.events.peek().map(|Reverse(event)| event.at);
        let frames_first = match (event, timeout) {
            (Some(event), Some((timeout, _))) => event <= timeout,
            (event, _) => event.is_some(),
        };
        if frames_first {
            let Reverse(event) = self.events.pop()?;
            self.now = event.at;
            self.happen(event.node, event.kind);
            return Some(event.node);
        }
        let (at, node) = timeout?;
        self.now = self.now.max(at);
        self.settle(node);
        Some(node)
    }

    fn happen(&mut self, id: NodeId, kind: Kind) {
        let node = &mut self.nodes[id.index()];
        match kind {
            Kind::DeviceFree => node.wake_scheduled = false,
            Kind::Arrival { transmit, sent, copied } => {
                let Copied { bytes, corrupted, extra, .. } = copied;
                let result = node.handle_frame(self.now, &transmit, &bytes);
                self.see(id, What::Received { transmit, frame: sent, corrupted, extra, result });
            }
        }
        self.settle(id);
    }

    /// The end of an engine's turn: expire, transmit what the device takes, complete.
    fn settle(&mut self, id: NodeId) {
        let now = self.now;
        self.nodes[id.index()].nic.handle_timeout(now);
        while let Some(sent) = self.nodes[id.index()].poll_transmit(now) {
            self.carry(id, sent);
        }
        while let Some(completion) = self.nodes[id.index()].poll_completion() {
            self.see(id, What::Completed(completion));
        }
        let node = &mut self.nodes[id.index()];
        let timeout = node.nic.poll_timeout();
        assert!(timeout.is_none_or(|at| at > now), "{id}: a timeout that is due has been handled");
        if let Some(at) = node.busy_until(now)
            && !node.wake_scheduled
        {
            node.wake_scheduled = true;
            self.schedule(at, id, Kind::DeviceFree);
        }
    }

    fn carry(&mut self, from: NodeId, sent: Sent) {
        let Sent { transmit, bytes, wire_len, left_at } = sent;
        let (mut arrives, mut extra_copies) = (false, 0);
        // A frame for nobody is a lost frame.
        if let Some(to) = self.node_at(transmit.destination) {
            let link = &mut self.links[from.index() * self.nodes.len() + to.index()];
            for copied in link.carry(left_at, &bytes, wire_len) {
                if copied.extra {
                    extra_copies += 1
                } else {
                    arrives = true
                }
                let at = copied.at;
                self.schedule(at, to, Kind::Arrival { transmit, sent: bytes.clone(), copied });
            }
        }
        self.see(from, What::Sent { transmit, frame: bytes, arrives, extra_copies });
    }

    fn schedule(&mut self, at: Instant, node: NodeId, kind: Kind) {
        self.seq += 1;
        self.events.push(Reverse(Event { at, seq: self.seq, node, kind }));
    }

    fn see(&mut self, node: NodeId, what: What) {
        self.seen.push(Seen { at: self.now, node, what });
    }
}
