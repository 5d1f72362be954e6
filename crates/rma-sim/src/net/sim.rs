//! The simulated network: nodes, a link for each ordered pair of them, perhaps a switch at the end
//! of all links, and one heap of events.
//!
//! The clock stands still while something happens, and then jumps to the next event. Events of one
//! instant happen in the order in which they were scheduled, frames before timeouts, as in an
//! engine's turn; nothing depends on a hash, a thread or a real clock. So a run is a function of
//! its options and seed.
//!
//! What is not here: what software does ([`crate::load::scenario`]) and what must hold
//! ([`crate::check::invariant`]).

use core::{cmp::Reverse, time::Duration};
use std::{collections::BinaryHeap, sync::Arc};

use rma_core::{
    addr::HostAddr,
    command::Command,
    crypto::CounterBlock,
    engine,
    error::CommandError,
    nic::{ConfigError, Nic},
    time::Instant,
    wire::FrameView,
};

use crate::{
    net::{
        frame::{Frame, NodeId, wire_len},
        link::{Faults, Link, LinkOptions},
        node::{Arrival, Condition, Handled, Node, NodeOptions, Sent, Stall},
        queue::QueueOptions,
        switch::Switch,
        trace::{Place, Seen, What},
    },
    prng::{Chance, Prng},
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
    /// A copy of a frame reaches the node's port of the switch.
    AtPort(Arrival),
    /// A copy of a frame arrives.
    Arrival(Arrival),
    /// The device can take the next frame.
    DeviceFree,
    /// The engine looks again: at what has arrived, or at what gathers.
    Turn,
    /// The node runs again, if it has not crashed meanwhile.
    Resume { pause: u64 },
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
    switch: Option<Switch>,
    seen: Vec<Seen>,
    frames: u64,
    pauses: u64,
    gathers: u64,
    stalls: StallOptions,
    stall_prng: Prng,
    /// Empty between events; kept for their room.
    burst: Vec<Arrival>,
    handled: Vec<Handled>,
    sent: Vec<Sent>,
}

/// How often a node is stopped in the midst of handling a frame of a mutation, between two readings
/// of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallOptions {
    /// The chance for each solicitation and each frame of solicited data.
    pub chance: Chance,
    /// The longest stall.
    pub length_max: Duration,
}

impl Sim {
    /// A network of `nodes`, each joined to each by a link like `link`, which ends at the receiver,
    /// or at a switch whose ports are like `switch`. Time begins at zero.
    ///
    /// # Errors
    /// If a NIC cannot be built from its settings.
    pub fn new(
        nodes: &[NodeOptions],
        link: LinkOptions,
        switch: Option<QueueOptions>,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let prng = Prng::new(seed);
        let count = nodes.len() as u64;
        let node = |options| Node::new(Instant::ZERO, options);
        Ok(Self {
            now: Instant::ZERO,
            seq: 0,
            events: BinaryHeap::new(),
            nodes: nodes.iter().map(node).collect::<Result<_, _>>()?,
            links: (0..count * count).map(|part| Link::new(link, prng.fork(part))).collect(),
            switch: switch.map(|port| Switch::new(port, nodes.len())),
            seen: Vec::new(),
            frames: 0,
            pauses: 0,
            gathers: 0,
            stalls: StallOptions::default(),
            stall_prng: prng.fork(u64::MAX),
            burst: Vec::new(),
            handled: Vec::new(),
            sent: Vec::new(),
        })
    }

    /// The true time now. No NIC sees it.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// What the clock of `node` shows now.
    #[must_use]
    pub fn local_now(&self, node: NodeId) -> Instant {
        self.nodes[node.index()].clock.show(self.now)
    }

    /// What the clock of `node` shows at true time `at`.
    #[must_use]
    pub fn local_at(&self, node: NodeId, at: Instant) -> Instant {
        self.nodes[node.index()].clock.show(at)
    }

    /// The true time at which the clock of `node` shows `local`.
    #[must_use]
    pub fn when(&self, node: NodeId, local: Instant) -> Instant {
        self.nodes[node.index()].clock.when(local)
    }

    /// How much later than asked for a running NIC may be woken, by its own clock, because true
    /// time has no instant between two nanoseconds.
    #[must_use]
    pub fn wake_slack(&self, node: NodeId) -> Duration {
        Duration::from_nanos(self.nodes[node.index()].clock.step_nanos() - 1)
    }

    /// The nodes' numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u16).map(NodeId)
    }

    /// The NIC of `node`, which must exist. Of a node that is down, the NIC that it had.
    #[must_use]
    pub fn nic(&self, node: NodeId) -> &Nic {
        &self.nodes[node.index()].nic
    }

    /// The NIC of `node`, to configure slots and regions.
    pub fn nic_mut(&mut self, node: NodeId) -> &mut Nic {
        &mut self.nodes[node.index()].nic
    }

    /// Whether the software of `node` runs.
    #[must_use]
    pub fn condition(&self, node: NodeId) -> Condition {
        self.nodes[node.index()].condition
    }

    /// When `node` was resumed last, since it was started.
    #[must_use]
    pub fn resumed_at(&self, node: NodeId) -> Option<Instant> {
        self.nodes[node.index()].resumed_at
    }

    /// Changes the faults of all links for frames sent from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        for link in &mut self.links {
            link.set_faults(faults);
        }
    }

    /// Changes how often nodes are stopped while they handle a frame.
    pub const fn set_stalls(&mut self, stalls: StallOptions) {
        self.stalls = stalls;
    }

    /// Whether `node` loses all solicitations from now on: it goes on asking for mutations, and
    /// sends no data.
    pub fn set_silent(&mut self, node: NodeId, silent: bool) {
        self.nodes[node.index()].is_silent = silent;
    }

    /// Somebody puts a frame on the wire once more, which was recorded there.
    pub fn replay(&mut self, frame: &Arc<Frame>) {
        let Some(to) = frame.to else { return };
        let arrival = Arrival { frame: frame.clone(), altered: None, extra: true };
        self.schedule(self.now + Duration::from_nanos(1), to, Kind::Arrival(arrival));
    }

    /// The node that has `addr`.
    #[must_use]
    pub fn node_at(&self, addr: HostAddr) -> Option<NodeId> {
        self.nodes().find(|&node| self.nic(node).config().place().addresses.contains(addr))
    }

    /// In how many turns of engines requests waited for others.
    #[must_use]
    pub const fn gathers(&self) -> u64 {
        self.gathers
    }

    /// Exchanges what has happened since the last call for an empty list.
    pub const fn swap_seen(&mut self, empty: &mut Vec<Seen>) {
        core::mem::swap(&mut self.seen, empty);
    }

    /// Gives the NIC of `node` the counter values to go on with, which it has asked for.
    ///
    /// # Panics
    /// If it has not.
    pub fn add_counter_block(&mut self, node: NodeId, block: CounterBlock) {
        self.nic_mut(node).add_counter_block(block).expect("asked for, and fresh");
        self.turn(node);
    }

    /// Issues a command now.
    ///
    /// # Errors
    /// If the NIC refuses it.
    ///
    /// # Panics
    /// If `node` does not run: then its software does not, either.
    pub fn issue(&mut self, node: NodeId, command: Command) -> Result<(), CommandError> {
        assert_eq!(self.condition(node), Condition::Running, "{node} issues a command");
        let result = self.nodes[node.index()].handle_command(self.now, command);
        self.see(node, What::Issued { command, result });
        // A turn in which no frame has come: software goes on, and what comes may stop the node.
        self.settle(node);
        result
    }

    /// Stops the software of `node` for `length`, which must run. Frames wait in its device, as
    /// many as there is room for; then everything that is due happens at once.
    ///
    /// # Panics
    /// If `node` does not run.
    pub fn pause(&mut self, node: NodeId, length: Duration) {
        assert_eq!(self.condition(node), Condition::Running, "{node} is paused");
        self.stop(node, length);
        self.see(node, What::Paused);
    }

    fn stop(&mut self, node: NodeId, length: Duration) {
        self.pauses += 1;
        let stopped = &mut self.nodes[node.index()];
        stopped.condition = Condition::Paused;
        stopped.pause = self.pauses;
        stopped.timeout_at = None;
        self.schedule(self.now + length, node, Kind::Resume { pause: self.pauses });
    }

    /// Takes `node` down. Its NIC, its software and what waits in its device are gone; what it has
    /// sent stays on the wire.
    pub fn crash(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.condition = Condition::Down;
        node.timeout_at = None;
        for arrival in core::mem::take(&mut node.ring) {
            self.lose(id, arrival, Place::Node);
        }
        self.see(id, What::Crashed);
    }

    /// Starts `node` anew, which must be down, with nothing but `options`.
    ///
    /// # Errors
    /// If a NIC cannot be built from its settings.
    ///
    /// # Panics
    /// If `node` is not down.
    pub fn restart(&mut self, node: NodeId, options: &NodeOptions) -> Result<(), ConfigError> {
        assert_eq!(self.condition(node), Condition::Down, "{node} is restarted");
        let is_silent = self.nodes[node.index()].is_silent;
        self.nodes[node.index()] = Node::new(self.now, options)?;
        self.nodes[node.index()].is_silent = is_silent;
        self.see(node, What::Restarted);
        Ok(())
    }

    /// When the next event is; `None` if nothing will ever happen by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let event = self.events.peek().map(|Reverse(event)| event.at);
        event.into_iter().chain(self.next_timeout().map(|(at, _)| at)).min()
    }

    fn next_timeout(&self) -> Option<(Instant, NodeId)> {
        let timeout = |(index, node): (usize, &Node)| {
            node.timeout_at.map(|at| (at.max(self.now), NodeId(index as u16)))
        };
        self.nodes.iter().enumerate().filter_map(timeout).min()
    }

    /// Lets time pass until `then`, where the next event is not earlier.
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
        self.now = at;
        self.turn(node);
        Some(node)
    }

    fn happen(&mut self, id: NodeId, kind: Kind) {
        match kind {
            Kind::AtPort(arrival) => self.forward(id, arrival),
            Kind::Arrival(arrival) => match self.condition(id) {
                Condition::Running => {
                    let at = self.nodes[id.index()].keep(self.now, arrival);
                    self.turn_at(id, at);
                }
                Condition::Paused => {
                    if let Err(arrival) = self.nodes[id.index()].hold(arrival) {
                        self.lose(id, arrival, Place::Node);
                    }
                }
                Condition::Down => self.lose(id, arrival, Place::Node),
            },
            Kind::DeviceFree => {
                self.nodes[id.index()].wake_scheduled = false;
                self.turn(id);
            }
            Kind::Turn => {
                let node = &mut self.nodes[id.index()];
                // Another one may have been scheduled that is earlier.
                if node.turn_scheduled.is_some_and(|at| at <= self.now) {
                    node.turn_scheduled = None;
                    self.turn(id);
                }
            }
            Kind::Resume { pause } => self.resume(id, pause),
        }
    }

    fn forward(&mut self, id: NodeId, arrival: Arrival) {
        let switch = self.switch.as_mut().expect("only a switch has ports");
        match switch.take(self.now, id, arrival.frame.wire_len()) {
            Some(at) => self.schedule(at, id, Kind::Arrival(arrival)),
            None => self.lose(id, arrival, Place::Switch),
        }
    }

    fn resume(&mut self, id: NodeId, pause: u64) {
        let node = &mut self.nodes[id.index()];
        if node.condition != Condition::Paused || node.pause != pause {
            return;
        }
        node.condition = Condition::Running;
        node.resumed_at = Some(self.now);
        self.see(id, What::Resumed);
        self.turn(id);
    }

    /// Sees to it that `id` has a turn at `at`.
    fn turn_at(&mut self, id: NodeId, at: Instant) {
        if at <= self.now {
            return self.turn(id);
        }
        self.schedule_turn(id, at);
    }

    fn schedule_turn(&mut self, id: NodeId, at: Instant) {
        let scheduled = &mut self.nodes[id.index()].turn_scheduled;
        if scheduled.is_none_or(|earlier| at < earlier) {
            *scheduled = Some(at);
            self.schedule(at, id, Kind::Turn);
        }
    }

    /// A turn of an engine, and more until its device is empty, or the node is stopped: receive a
    /// burst, expire, transmit, complete.
    fn turn(&mut self, id: NodeId) {
        loop {
            if self.condition(id) != Condition::Running {
                return;
            }
            self.nodes[id.index()].begin_turn(self.now);
            self.receive(id);
            if self.condition(id) != Condition::Running {
                return;
            }
            self.settle(id);
            if self.nodes[id.index()].ring.is_empty() {
                return;
            }
        }
    }

    fn receive(&mut self, id: NodeId) {
        if self.nodes[id.index()].ring.is_empty() {
            return;
        }
        let mut burst = core::mem::take(&mut self.burst);
        let mut handled = core::mem::take(&mut self.handled);
        let ring = &mut self.nodes[id.index()].ring;
        let arrivals: Vec<_> = ring.drain(..ring.len().min(engine::BURST)).collect();
        for arrival in arrivals {
            let is_solicitation =
                || matches!(FrameView::parse(&arrival.frame.bytes), Ok(FrameView::Solicitation(_)));
            if self.nodes[id.index()].is_silent && is_solicitation() {
                self.lose(id, arrival, Place::Node);
            } else {
                burst.push(arrival);
            }
        }
        // Once, at most: what is behind comes after it.
        let stall = burst.iter().enumerate().find_map(|(frame, arrival)| {
            let stall = self.draw_stall(&arrival.frame);
            (!stall.length.is_zero()).then_some(Stall { frame, ..stall })
        });
        let stall = stall.unwrap_or_default();
        self.nodes[id.index()].handle_frames(self.now, &burst, stall, &mut handled);
        for (index, (arrival, handled)) in burst.drain(..).zip(handled.drain(..)).enumerate() {
            let Arrival { frame, altered, extra } = arrival;
            let Handled { result, counted_late, pushed_out } = handled;
            let stalled = if index < stall.frame { Duration::ZERO } else { stall.length };
            let received =
                What::Received { frame, altered, extra, stalled, result, counted_late, pushed_out };
            self.see(id, received);
        }
        (self.burst, self.handled) = (burst, handled);
        if !stall.length.is_zero() {
            self.stop(id, stall.length);
        }
    }

    fn draw_stall(&mut self, frame: &Frame) -> Stall {
        let StallOptions { chance, length_max } = self.stalls;
        if chance.is_never() {
            return Stall::default();
        }
        // A NIC reads its clock once for a solicitation, before and after the copy for data, and
        // else never.
        let readings = match FrameView::parse(&frame.bytes) {
            Ok(FrameView::Solicitation(_)) => 1,
            Ok(FrameView::SolicitedData(_)) => 2,
            _ => return Stall::default(),
        };
        let prng = &mut self.stall_prng;
        if !prng.chance(chance) {
            return Stall::default();
        }
        let nanos = prng.magnitude(length_max.as_nanos().max(1) as u64);
        let readings_before = prng.below(readings) as u32;
        Stall { length: Duration::from_nanos(nanos), frame: 0, readings_before }
    }

    fn lose(&mut self, node: NodeId, arrival: Arrival, place: Place) {
        let Arrival { frame, extra, .. } = arrival;
        self.see(node, What::Lost { frame, extra, place });
    }

    /// The end of an engine's turn: expire, transmit what the device takes, complete.
    fn settle(&mut self, id: NodeId) {
        let now = self.now;
        if self.condition(id) != Condition::Running {
            return;
        }
        self.nodes[id.index()].handle_timeout(now);
        let mut sent = core::mem::take(&mut self.sent);
        let again_at = self.nodes[id.index()].poll_transmits(now, &mut sent);
        for sent in sent.drain(..) {
            self.carry(id, sent);
        }
        self.sent = sent;
        while let Some(completion) = self.nodes[id.index()].poll_completion() {
            self.see(id, What::Completed(completion));
        }
        let node = &mut self.nodes[id.index()];
        assert!(node.set_timeout(now), "{id}: a timeout that is due has been handled");
        if let Some(at) = node.busy_until(now)
            && !node.wake_scheduled
        {
            node.wake_scheduled = true;
            self.schedule(at, id, Kind::DeviceFree);
        }
        if let Some(at) = again_at {
            self.gathers += 1;
            self.schedule_turn(id, at);
        }
    }

    fn carry(&mut self, from: NodeId, sent: Sent) {
        let Sent { transmit, bytes, left_at } = sent;
        let number = self.frames;
        self.frames += 1;
        let to = self.node_at(transmit.destination);
        let frame = Arc::new(Frame { number, from, to, transmit, bytes });
        let (mut arrives, mut extra_copies) = (false, 0);
        // A frame for nobody is a lost frame.
        if let Some(to) = to {
            let link = &mut self.links[from.index() * self.nodes.len() + to.index()];
            let wire_len = wire_len(frame.bytes.len(), transmit.source.is_ipv4());
            for copied in link.carry(left_at, &frame.bytes, wire_len).into_iter().flatten() {
                if copied.extra {
                    extra_copies += 1
                } else {
                    arrives = true
                }
                let frame = frame.clone();
                let arrival = Arrival { frame, altered: copied.altered, extra: copied.extra };
                let kind = match self.switch {
                    Some(_) => Kind::AtPort(arrival),
                    None => Kind::Arrival(arrival),
                };
                self.schedule(copied.at, to, kind);
            }
        }
        self.see(from, What::Sent { frame, arrives, extra_copies });
    }

    fn schedule(&mut self, at: Instant, node: NodeId, kind: Kind) {
        self.seq += 1;
        self.events.push(Reverse(Event { at, seq: self.seq, node, kind }));
    }

    fn see(&mut self, node: NodeId, what: What) {
        let local = self.local_now(node);
        self.seen.push(Seen { at: self.now, local, node, what });
    }
}
