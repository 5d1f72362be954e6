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
    addr::{HostAddr, Pid},
    backend::{RxFrame, RxPacket, Transmit},
    command::{Command, CommandSlotId},
    crypto::{CounterBlock, EngineId, RegionKey},
    error::{CommandError, RegionError},
    nic::{ConfigError, Nic, RegionEntry},
    packet::FRAMES_MAX,
    region::RegionId,
    time::Instant,
    wire::FrameView,
};

use crate::{
    net::{
        alarms::Alarms,
        beside::{Beside, Handed, Registry, Spread, key_of},
        burst::{Arrival, Came, Handled},
        frame::{Berth, Frame, NodeId, Packet, ip_udp_len},
        link::{Copied, Faults, Link, LinkOptions},
        model_aead::Seals,
        node::{Condition, Node, NodeOptions, Room, Routes, Sent, Written},
        queue::QueueOptions,
        stall::Stall,
        switch::Switch,
        table::Table,
        touched::Touched,
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
    /// A copy of a packet reaches the node's port of the switch.
    AtPort(Arrival),
    /// A copy of a packet arrives.
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
    /// When each NIC has something to expire; never while its node does not run.
    timeouts: Alarms,
    touched: Touched,
    /// The engines of each host.
    engines: Vec<Vec<NodeId>>,
    /// The regions of each host that has several engines.
    registries: Vec<Registry>,
    spread: Spread,
    seals: Seals,
    /// How long it takes until an engine looks into its rings.
    look_prng: Prng,
    handed: Handed,
    /// Those that were used, from an engine to a host; a host reaches itself by a link, too.
    links: Table<u32, Link>,
    link: LinkOptions,
    prng: Prng,
    switch: Option<Switch>,
    routes: Routes,
    seen: Vec<Seen>,
    /// Whether nothing is told of frames.
    is_quiet: bool,
    frames: u64,
    received: u64,
    packets: u64,
    pauses: u64,
    gathers: u64,
    stalls: StallOptions,
    stall_prng: Prng,
    /// Empty between events; kept for its room.
    sent: Vec<Sent>,
    room: Room,
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
        Self::with_seals(nodes, link, switch, seed, Seals::AesGcm)
    }

    /// The same, whose NICs seal frames by `seals`.
    ///
    /// # Errors
    /// As [`Sim::new`].
    pub fn with_seals(
        nodes: &[NodeOptions],
        link: LinkOptions,
        switch: Option<QueueOptions>,
        seed: u64,
        seals: Seals,
    ) -> Result<Self, ConfigError> {
        let prng = Prng::new(seed);
        let engines: usize = nodes.iter().map(|node| usize::from(node.place.engines)).sum();
        let mut sim = Self {
            now: Instant::ZERO,
            seq: 0,
            events: BinaryHeap::new(),
            nodes: Vec::new(),
            timeouts: Alarms::new(engines),
            touched: Touched::default(),
            engines: (0..nodes.len() as u16).map(|host| vec![NodeId(host)]).collect(),
            registries: nodes.iter().map(|node| Registry::new(node.nic.regions)).collect(),
            spread: Spread::default(),
            seals,
            look_prng: prng.fork(u64::MAX - 1),
            handed: Handed::default(),
            links: Table::default(),
            link,
            switch: switch.map(|port| Switch::new(port, nodes.len())),
            routes: Routes::new(nodes.iter().map(|it| (it.place.addresses, it.mtu)).collect()),
            seen: Vec::new(),
            is_quiet: false,
            frames: 0,
            received: 0,
            packets: 0,
            pauses: 0,
            gathers: 0,
            stalls: StallOptions::default(),
            stall_prng: prng.fork(u64::MAX),
            prng,
            sent: Vec::new(),
            room: Room::default(),
        };
        for (host, options) in (0..).map(NodeId).zip(nodes) {
            sim.nodes.push(Node::new(Instant::ZERO, host, &options.of_engine(0), seals)?);
        }
        for (host, options) in nodes.iter().enumerate() {
            for engine in 1..options.place.engines {
                sim.engines[host].push(NodeId(sim.nodes.len() as u16));
                let (host, options) = (NodeId(host as u16), options.of_engine(engine));
                sim.nodes.push(Node::new(Instant::ZERO, host, &options, seals)?);
            }
            sim.connect(NodeId(host as u16));
        }
        Ok(sim)
    }

    /// Connects the engines of a host, which have just been made.
    fn connect(&mut self, host: NodeId) {
        let engines = &self.engines[host.index()];
        if engines.len() == 1 {
            return;
        }
        let mut own: Vec<_> = self.nodes.iter_mut().filter(|node| node.host == host).collect();
        let mut nics: Vec<_> = own.iter_mut().map(|node| &mut node.nic).collect();
        let beside = Beside::connect(&mut nics);
        own.into_iter().zip(beside).for_each(|(node, it)| node.beside = Some(it));
    }

    /// Changes the way in which packets are spread over the engines of hosts.
    pub const fn set_spread(&mut self, spread: Spread) {
        self.spread = spread;
    }

    /// Gives `host` an empty port of another kind at the switch, if there is one.
    pub fn set_port(&mut self, host: NodeId, port: QueueOptions) {
        self.switch.iter_mut().for_each(|switch| switch.set_port(host, port));
    }

    /// The most bytes that waited at the port of `host` so far; 0 if there is no switch.
    #[must_use]
    pub fn longest_queue(&self, host: NodeId) -> u64 {
        self.switch.as_ref().map_or(0, |switch| switch.longest(host))
    }

    /// The true time now. No NIC sees it.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the present time by the clock of `node`.
    #[must_use]
    pub fn local_now(&self, node: NodeId) -> Instant {
        self.nodes[node.index()].clock.show(self.now)
    }

    /// Returns the time of `node`'s clock at true time `at`.
    #[must_use]
    pub fn local_at(&self, node: NodeId, at: Instant) -> Instant {
        self.nodes[node.index()].clock.show(at)
    }

    /// The true time at which the clock of `node` shows `local`.
    #[must_use]
    pub fn when(&self, node: NodeId, local: Instant) -> Instant {
        self.nodes[node.index()].clock.when(local)
    }

    /// When software of `node` that wants to look again when its clock shows `local` does so: later
    /// than now.
    #[must_use]
    pub fn wake_at(&self, node: NodeId, local: Instant) -> Instant {
        self.when(node, local).max(Instant::from_nanos(self.now.as_nanos() + 1))
    }

    /// How much later than asked for a running NIC may be woken, by its own clock, because true
    /// time has no instant between two nanoseconds, and [`Sim::spin`].
    #[must_use]
    pub fn wake_slack(&self, node: NodeId) -> Duration {
        let step = Duration::from_nanos(self.nodes[node.index()].clock.step_nanos() - 1);
        step + self.spin(node)
    }

    /// How much later, because it spins: as it may wait for other engines of its host.
    #[must_use]
    pub fn spin(&self, node: NodeId) -> Duration {
        self.nodes[node.index()].spin()
    }

    /// The hosts' numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.engines.len() as u16).map(NodeId)
    }

    /// The numbers of all engines of all hosts.
    pub fn engines(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u16).map(NodeId)
    }

    /// The engines of `host`, in their order.
    #[must_use]
    pub fn engines_of(&self, host: NodeId) -> &[NodeId] {
        &self.engines[host.index()]
    }

    /// The host of an engine.
    #[must_use]
    pub fn host_of(&self, node: NodeId) -> NodeId {
        self.nodes[node.index()].host
    }

    /// How many command slots `host` has.
    #[must_use]
    pub fn slot_count(&self, host: NodeId) -> usize {
        self.engines_of(host).iter().map(|&engine| self.nic(engine).slot_count()).sum()
    }

    /// The engine of `host` that has a command slot, or would refuse a command for it.
    #[must_use]
    pub fn engine_of(&self, host: NodeId, slot: u16) -> NodeId {
        let engines = self.engines_of(host);
        let index = usize::from(slot) / self.nic(host).slot_count().max(1);
        engines[index.min(engines.len() - 1)]
    }

    /// Gives command slots of `host` to a process.
    pub fn configure_slots(&mut self, host: NodeId, slots: core::ops::Range<u16>, pid: Pid) {
        for slot in slots {
            let engine = self.engine_of(host, slot);
            self.nic_mut(engine).configure_slots(slot..slot + 1, Some(pid));
        }
    }

    /// Registers a region at all engines of `host`, with its home at one of them; `entry` is told
    /// whether it is for that one.
    ///
    /// # Errors
    /// If a table has no room.
    pub fn register(
        &mut self,
        host: NodeId,
        home: usize,
        mut entry: impl FnMut(bool) -> RegionEntry,
    ) -> Result<RegionId, RegionError> {
        let engines = self.engines[host.index()].clone();
        if engines.len() == 1 {
            let regions = self.nic_mut(host).regions_mut();
            return regions.register(Box::new(entry(true))).map_err(|(error, _)| error);
        }
        let home = home % engines.len();
        let Registry { names, homes } = &mut self.registries[host.index()];
        let full = RegionError::TableFull { capacity: names.count() };
        let name = names.take().ok_or(full)?;
        homes.insert(name, EngineId(home as u16));
        for (index, &engine) in engines.iter().enumerate() {
            let entry = entry(index == home).at_home(EngineId(home as u16));
            let node = &mut self.nodes[engine.index()];
            let regions = node.nic.regions_mut();
            regions.register_as(name, Box::new(entry)).map_err(|(error, _)| error)?;
            node.beside.iter_mut().for_each(|it| it.regions.push(name));
        }
        Ok(name)
    }

    /// Takes a region away from all engines of `host`.
    ///
    /// # Errors
    /// If there is no such region.
    pub fn deregister(&mut self, host: NodeId, region: RegionId) -> Result<(), RegionError> {
        for engine in self.engines[host.index()].clone() {
            let node = &mut self.nodes[engine.index()];
            node.nic.deregister(region)?;
            node.beside.iter_mut().for_each(|it| it.regions.retain(|&it| it != region));
        }
        let Registry { names, homes } = &mut self.registries[host.index()];
        if homes.remove(&region).is_some() {
            names.give_back(region);
        }
        Ok(())
    }

    /// The engine of `host` that is the home of `region`.
    #[must_use]
    pub fn home_of(&self, host: NodeId, region: RegionId) -> NodeId {
        let home = self.registries[host.index()].homes.get(&region);
        home.map_or(host, |it| self.engines_of(host)[usize::from(it.0)])
    }

    /// The owner of a region of `host` gives it another key, at its home.
    ///
    /// # Errors
    /// If there is no such region.
    pub fn rekey(
        &mut self,
        host: NodeId,
        region: RegionId,
        key: &RegionKey,
    ) -> Result<(), RegionError> {
        let home = self.home_of(host, region);
        self.nic_mut(home).regions_mut().rekey(region, key)?;
        self.wake_engines(home);
        Ok(())
    }

    /// Whether all engines of `host` have the same key of `region`.
    #[must_use]
    pub fn is_everywhere(&self, host: NodeId, region: RegionId) -> bool {
        let engines = self.engines_of(host);
        engines.len() == 1 || {
            let key = |node: NodeId| key_of(self.nic(node), region);
            engines.iter().all(|&engine| key(engine) == key(host))
        }
    }

    /// The NIC of `node`, which must exist. Of a node that is down, the NIC that it had.
    #[must_use]
    pub fn nic(&self, node: NodeId) -> &Nic {
        &self.nodes[node.index()].nic
    }

    /// The NIC of `node`, to configure slots and regions.
    pub fn nic_mut(&mut self, node: NodeId) -> &mut Nic {
        self.touched.push(node);
        &mut self.nodes[node.index()].nic
    }

    /// Whether the software of `node` runs.
    #[must_use]
    pub fn condition(&self, node: NodeId) -> Condition {
        self.nodes[node.index()].condition
    }

    /// Whether frames leave `node` in the turns of an engine: not one by one, as from hardware.
    #[must_use]
    pub fn takes_turns(&self, node: NodeId) -> bool {
        self.nodes[node.index()].takes_turns()
    }

    /// When `node` was resumed last, since it was started.
    #[must_use]
    pub fn resumed_at(&self, node: NodeId) -> Option<Instant> {
        self.nodes[node.index()].resumed_at
    }

    /// Changes the faults of all links for frames sent from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.link.faults = faults;
        self.links.change_all(|link| link.set_faults(faults));
    }

    /// Changes how often nodes are stopped while they handle a frame.
    pub const fn set_stalls(&mut self, stalls: StallOptions) {
        self.stalls = stalls;
    }

    /// Whether `node` loses all solicitations from now on: it goes on asking for mutations, and
    /// sends no data.
    pub fn set_silent(&mut self, node: NodeId, silent: bool) {
        let own = self.nodes.iter_mut().filter(|it| it.host == node);
        own.for_each(|it| it.is_silent = silent);
    }

    /// Somebody puts frames on the wire once more, which were recorded there: in as few packets as
    /// their receivers take, if they go the same way one after the other.
    pub fn replay(&mut self, frames: &[Arc<Frame>]) {
        let mut rest = frames;
        while let Some(first) = rest.first() {
            let ends = |frame: &Frame| (frame.transmit.source, frame.transmit.destination);
            let len_max = first.to.map_or(0, |to| {
                self.routes.mtu_of(to) - ip_udp_len(first.transmit.source.is_ipv4())
            });
            let mut len = 0;
            let fits = |frame: &&Arc<Frame>| {
                len += frame.bytes.len();
                ends(frame) == ends(first) && len <= len_max
            };
            let count = rest.iter().take(FRAMES_MAX).take_while(fits).count().max(1);
            let (together, others) = rest.split_at(count);
            rest = others;
            let bytes = together.iter().flat_map(|frame| frame.bytes.iter().copied()).collect();
            let Some(to) = first.to else { continue };
            let packet = self.packet(first.from, together.into(), bytes);
            let arrival = Arrival { packet, altered: None, extra: true };
            self.schedule(self.now + Duration::from_nanos(1), to, Kind::Arrival(arrival));
        }
    }

    /// The node that has `addr`.
    #[must_use]
    pub fn node_at(&self, addr: HostAddr) -> Option<NodeId> {
        self.routes.host_at(addr)
    }

    /// How many frames `node` has written since it was started that no packet took.
    #[must_use]
    pub fn unpaid(&self, node: NodeId) -> u64 {
        self.engines_of(node).iter().map(|it| self.nodes[it.index()].unpaid).sum()
    }

    /// Tells of commands, completions and the lives of nodes alone from now on, and of no frames or
    /// packets: for runs in which nobody looks at these.
    pub const fn set_quiet(&mut self) {
        self.is_quiet = true;
    }

    /// Frames that NICs have written, and copies of frames that they have received.
    #[must_use]
    pub const fn frame_events(&self) -> u64 {
        self.frames + self.received
    }

    /// Nodes where something has happened.
    pub(crate) const fn touched(&self) -> &Touched {
        &self.touched
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

    /// Issues a command of host `node` now, to the engine that has the slot. [`Sim::end_turn`]
    /// follows, behind it or behind several.
    ///
    /// # Errors
    /// If the NIC refuses it.
    ///
    /// # Panics
    /// If that engine does not run: then its software does not, either.
    pub fn issue(&mut self, node: NodeId, command: Command) -> Result<(), CommandError> {
        let CommandSlotId(slot) = command.slot;
        let node = self.engine_of(node, slot);
        assert_eq!(self.condition(node), Condition::Running, "{node} issues a command");
        self.touched.push(node);
        let result = self.nodes[node.index()].handle_command(self.now, command);
        self.see(node, What::Issued { command, result });
        result
    }

    /// The end of a turn of host `node` in which commands were issued and no frame has come:
    /// software goes on, and what comes may stop the node.
    pub fn end_turn(&mut self, node: NodeId) {
        for engine in self.engines[node.index()].clone() {
            self.settle(engine);
        }
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
        self.timeouts.set(node, None);
        self.touched.push(node);
        self.schedule(self.now + length, node, Kind::Resume { pause: self.pauses });
    }

    /// Takes host `node` down. Its NICs, its software and what waits in its devices are gone; what
    /// it has sent stays on the wire.
    pub fn crash(&mut self, node: NodeId) {
        for id in self.engines[node.index()].clone() {
            let node = &mut self.nodes[id.index()];
            node.condition = Condition::Down;
            self.timeouts.set(id, None);
            self.touched.push(id);
            for arrival in core::mem::take(&mut node.ring) {
                self.lose(id, &arrival, Place::Node);
            }
            self.see(id, What::Crashed);
        }
    }

    /// Starts host `node` anew, which must be down, with nothing but `options`, of as many engines.
    ///
    /// # Errors
    /// If a NIC cannot be built from its settings.
    ///
    /// # Panics
    /// If `node` is not down.
    pub fn restart(&mut self, node: NodeId, options: &NodeOptions) -> Result<(), ConfigError> {
        assert_eq!(self.condition(node), Condition::Down, "{node} is restarted");
        self.registries[node.index()] = Registry::new(options.nic.regions);
        self.routes.change(node, (options.place.addresses, options.mtu));
        for (index, id) in (0..).zip(self.engines[node.index()].clone()) {
            let is_silent = self.nodes[id.index()].is_silent;
            self.nodes[id.index()] =
                Node::new(self.now, node, &options.of_engine(index), self.seals)?;
            self.nodes[id.index()].is_silent = is_silent;
            self.touched.push(id);
            self.see(id, What::Restarted);
        }
        self.connect(node);
        Ok(())
    }

    /// When the next event is; `None` if nothing will ever happen by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let event = self.events.peek().map(|Reverse(event)| event.at);
        event.into_iter().chain(self.timeouts.next_at()).min()
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
        let timeout = self.timeouts.first();
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
            Kind::Arrival(arrival) => self.land(id, arrival),
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

    /// A copy of a packet reaches a host, and there the engine that its receive side chooses.
    fn land(&mut self, host: NodeId, arrival: Arrival) {
        let id = self.lands_at(host, &arrival);
        match self.condition(id) {
            Condition::Running => {
                let at = self.nodes[id.index()].keep(self.now, arrival);
                self.turn_at(id, at);
            }
            Condition::Paused => {
                if let Err(arrival) = self.nodes[id.index()].hold(arrival) {
                    self.lose(id, &arrival, Place::Node);
                }
            }
            Condition::Down => self.lose(id, &arrival, Place::Node),
        }
    }

    fn lands_at(&self, host: NodeId, arrival: &Arrival) -> NodeId {
        let engines = self.engines_of(host);
        if engines.len() == 1 {
            return host;
        }
        let Transmit { source, destination, port, source_port, .. } = arrival.packet.transmit;
        let mut bytes = arrival.packet.frames[0].bytes.to_vec();
        let (reply_len_max, link, bytes) = (0, None, &mut bytes[..]);
        let packet =
            RxPacket { source, destination, port, source_port, reply_len_max, link, bytes };
        let frame = RxFrame::alone(packet);
        let owner = self.nic(host).owner_of(&frame);
        let count = engines.len() as u64;
        engines[self.spread.lands_at(&frame, owner, count, self.now) as usize]
    }

    /// Sees to it that the engines of a host look into their rings, if there is something: also
    /// this one, which has taken a part.
    fn wake_engines(&mut self, id: NodeId) {
        if self.nodes[id.index()].beside.is_none() {
            return;
        }
        for other in self.engines[self.host_of(id).index()].clone() {
            let node = &self.nodes[other.index()];
            if node.condition == Condition::Running && node.has_news() {
                let delay = self.look_prng.magnitude(node.look_max());
                self.schedule_turn(other, self.now + Duration::from_nanos(delay));
            }
        }
    }

    fn forward(&mut self, id: NodeId, arrival: Arrival) {
        let switch = self.switch.as_mut().expect("only a switch has ports");
        match switch.take(self.now, id, arrival.packet.wire_len()) {
            Some(at) => self.schedule(at, id, Kind::Arrival(arrival)),
            None => self.lose(id, &arrival, Place::Switch),
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
        self.touched.push(id);
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
        let node = &self.nodes[id.index()];
        if node.ring.is_empty() && !node.has_news() {
            return;
        }
        let Self { nodes, stalls, stall_prng, now, room, handed, .. } = self;
        let node = &mut nodes[id.index()];
        let arrivals = node.take_burst();
        let draw = |frame: &Frame| draw_stall(stalls, stall_prng, frame);
        let (came, stall) = node.handle_packets(*now, arrivals, room, handed, draw);
        let is_frame = |it: &&Came| matches!(it, Came::Frame { .. });
        self.received += came.iter().filter(is_frame).count() as u64;
        let is_quiet = self.is_quiet;
        for came in came.into_iter().filter(|_| !is_quiet) {
            let what = match came {
                Came::Packet(Arrival { packet, altered, extra }) => {
                    What::Came { packet, altered, extra }
                }
                Came::Frame { frame, altered, extra, landing, handled } => {
                    let Handled { result, counted_late, pushed_out, is_stalled } = handled;
                    let stalled = if is_stalled { stall } else { Duration::ZERO };
                    What::Received {
                        frame,
                        altered,
                        extra,
                        stalled,
                        result,
                        counted_late,
                        pushed_out,
                        landing,
                    }
                }
                Came::Given { frame, extra, is_lost: true } => {
                    What::Lost { frame, extra, place: Place::Ring }
                }
                Came::Given { frame, .. } => What::Handed { frame },
                Came::Key(region) => What::KeyTaken { region },
                Came::Tail { packet, tail } => What::Tail { packet, tail },
                Came::Missed { frame, extra } => What::Lost { frame, extra, place: Place::Unfound },
            };
            self.see(id, what);
        }
        if !stall.is_zero() {
            self.stop(id, stall);
        }
        self.wake_engines(id);
    }

    /// Tells of each frame of a packet that it is lost.
    fn lose(&mut self, node: NodeId, arrival: &Arrival, place: Place) {
        if self.is_quiet {
            return;
        }
        let Arrival { packet, extra, .. } = arrival;
        for frame in &packet.frames {
            self.see(node, What::Lost { frame: frame.clone(), extra: *extra, place });
        }
    }

    /// The end of an engine's turn: expire, transmit what the device takes, complete.
    fn settle(&mut self, id: NodeId) {
        let now = self.now;
        if self.condition(id) != Condition::Running {
            return;
        }
        self.touched.push(id);
        self.nodes[id.index()].handle_timeout(now);
        let again_at = self.transmit(id);
        while let Some(completion) = self.nodes[id.index()].poll_completion() {
            self.see(id, What::Completed(completion));
        }
        let node = &mut self.nodes[id.index()];
        self.timeouts.set(id, node.timeout_at(now));
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

    /// Sends what the NIC of `id` has to send. Packets leave in the order of their first frames;
    /// what is told of frames is in the order in which the NIC wrote them. Returns when to ask
    /// again, if some of it waits for more.
    fn transmit(&mut self, id: NodeId) -> Option<Instant> {
        let mut sent = core::mem::take(&mut self.sent);
        let Self { nodes, routes, room, now, .. } = &mut *self;
        let node = &mut nodes[id.index()];
        let written = node.written;
        let again_at = node.poll_transmits(*now, routes, room, &mut sent);
        // By its numbers, frames follow on those that all nodes wrote before.
        let before = self.frames;
        self.frames += self.nodes[id.index()].written - written;
        let renumbered = |it: Written| Written { number: it.number - written + before, ..it };
        let mut told = Vec::new();
        for sent in sent.drain(..) {
            match sent {
                Sent::Packet { frames, bytes, left_at } => {
                    let frames = frames.into_iter().map(renumbered).collect();
                    self.carry(id, frames, bytes, left_at, &mut told);
                }
                Sent::Unpaid(_) if self.is_quiet => {}
                Sent::Unpaid(it) => {
                    let frame = self.frame(id, renumbered(it), None);
                    told.push((frame.number, What::Unpaid { frame }));
                }
            }
        }
        self.sent = sent;
        told.sort_by_key(|&(number, _)| number);
        told.into_iter().for_each(|(_, what)| self.see(id, what));
        again_at
    }

    fn frame(&self, from: NodeId, written: Written, berth: Option<Berth>) -> Arc<Frame> {
        let Written { number, transmit, bytes } = written;
        let to = self.node_at(transmit.destination);
        Arc::new(Frame { number, from, to, transmit, bytes, berth })
    }

    fn packet(&mut self, from: NodeId, frames: Box<[Arc<Frame>]>, bytes: Box<[u8]>) -> Arc<Packet> {
        let number = self.packets;
        self.packets += 1;
        let Frame { to, transmit, .. } = *frames[0];
        let transmit = Transmit { len: bytes.len(), ..transmit };
        Arc::new(Packet { number, from, to, transmit, frames, bytes })
    }

    /// Puts a packet on its link. What must be told of its frames goes to `told`, with their
    /// numbers.
    fn carry(
        &mut self,
        from: NodeId,
        frames: Vec<Written>,
        bytes: Box<[u8]>,
        left_at: Instant,
        told: &mut Vec<(u64, What)>,
    ) {
        let (packet, of) = (self.packets, frames.len() as u8);
        let berth = |index: u8| Some(Berth { packet, index, of });
        let frames = (0..).zip(frames).map(|(index, it)| self.frame(from, it, berth(index)));
        let frames = frames.collect();
        let packet = self.packet(from, frames, bytes);
        let (mut arrives, mut extra_copies) = (false, 0);
        // A packet for nobody is a lost packet.
        if let Some(to) = packet.to {
            let ends = u32::from(from.0) << u16::BITS | u32::from(to.0);
            let link = self.links.get_or_make(ends, || {
                let part = from.index() * self.engines.len() + to.index();
                Link::new(self.link, self.prng.fork(part as u64))
            });
            let copies = link.carry(left_at, &packet.bytes, packet.wire_len());
            for Copied { at, altered, extra } in copies.into_iter().flatten() {
                if extra {
                    extra_copies += 1
                } else {
                    arrives = true
                }
                let arrival = Arrival { packet: packet.clone(), altered, extra };
                let kind = match self.switch {
                    Some(_) => Kind::AtPort(arrival),
                    None => Kind::Arrival(arrival),
                };
                self.schedule(at, to, kind);
            }
        }
        if self.is_quiet {
            return;
        }
        self.see(from, What::Left { packet: packet.clone(), arrives, extra_copies });
        told.extend(packet.frames.iter().map(|frame| {
            let frame = frame.clone();
            (frame.number, What::Sent { frame, arrives, extra_copies })
        }));
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

/// How long a node is stopped while it handles a copy of `frame`.
fn draw_stall(options: &StallOptions, prng: &mut Prng, frame: &Frame) -> Stall {
    let StallOptions { chance, length_max } = *options;
    if chance.is_never() {
        return Stall::default();
    }
    // A NIC reads its clock once for a solicitation, before and after the copy for data, and else
    // never.
    let readings = match FrameView::parse(&frame.bytes) {
        Ok(FrameView::Solicitation(_)) => 1,
        Ok(FrameView::SolicitedData(_)) => 2,
        _ => return Stall::default(),
    };
    if !prng.chance(chance) {
        return Stall::default();
    }
    let nanos = prng.magnitude(length_max.as_nanos().max(1) as u64);
    let readings_before = prng.below(readings) as u32;
    Stall { length: Duration::from_nanos(nanos), readings_before }
}
