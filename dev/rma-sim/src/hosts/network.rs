//! The hosts, and what comes next.

use core::time::Duration;
use std::{collections::BTreeMap, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    command::CommandOp,
    crypto::RegionKey,
    executor::ExecutorConfig,
    grant::Grant,
    nic::RegionEntry,
    op::{OpStatus, OpType},
    portal::CommandPortal,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{Permissions, RegionId, RegisteredRegion},
    time::Instant,
    wire::FrameView,
};
use rma_shm::Region;

use super::{counts::Counts, memory, options::NetworkOptions, port::Port};
use crate::{
    check::{invariant::Checker, violation::Violation},
    net::{
        frame::{Frame, NodeId},
        link::Faults,
        node::Condition,
        sim::{Sim, StallOptions},
        trace::{Seen, What},
    },
    prng::Prng,
};

/// A process of a host.
pub type Process = (NodeId, Pid);

/// Simulated hosts, joined by links.
///
/// # Panics
/// All methods panic if a node does not exist, and if a promise is broken.
#[derive(Debug)]
pub struct Network {
    options: NetworkOptions,
    sim: Sim,
    checker: Checker,
    hosts: Vec<Host>,
    keys: Prng,
    seen: Vec<Seen>,
    /// Requests that somebody has recorded.
    recorded: Vec<Arc<Frame>>,
    next_replayed: usize,
}

/// The engine of a host, besides its NIC.
#[derive(Debug, Default)]
struct Host {
    /// How often it has crashed.
    life: u32,
    ports: Vec<Port>,
    /// Of all slots, the first that no portal has.
    next_slot: u16,
    /// Each row that was registered in this life; of a receive queue, how long its buffers are.
    rows: Vec<(RegionId, Option<u32>)>,
    counts: Counts,
    /// By slot: ops that are under way. A SETTLE is none.
    under_way: BTreeMap<u16, OpType>,
}

/// As many requests are recorded as are replayed before the first comes again.
const RECORDED_MAX: usize = 256;

impl Network {
    /// Hosts as `options` say, with nothing on them. Time begins at zero.
    ///
    /// # Panics
    /// If no NIC can be made of the options.
    #[must_use]
    pub fn new(options: NetworkOptions) -> Self {
        let prng = Prng::new(options.seed);
        let nodes: Vec<_> = (0..options.nodes).map(|it| options.node(NodeId(it))).collect();
        let mut sim = Sim::new(&nodes, options.link, None, prng.fork(0).next())
            .unwrap_or_else(|error| panic!("{options}: {error}"));
        sim.set_stalls(options.stalls);
        Self {
            checker: Checker::new(&sim),
            sim,
            hosts: nodes.iter().map(|_| Host::default()).collect(),
            keys: prng.fork(1),
            seen: Vec::new(),
            recorded: Vec::new(),
            next_replayed: 0,
            options,
        }
    }

    /// Returns the options that it was made with.
    #[must_use]
    pub const fn options(&self) -> &NetworkOptions {
        &self.options
    }

    /// Returns the settings of a CommandExecutor on one of its hosts.
    pub fn executor(&self) -> ExecutorConfig {
        self.options.executor()
    }

    /// Nodes, NICs and clocks, to look at.
    #[must_use]
    pub const fn sim(&self) -> &Sim {
        &self.sim
    }

    // The keys and ports that applications are given.

    /// A key that nobody knows.
    #[must_use]
    pub fn key(&mut self) -> RegionKey {
        let mut key = [0; 16];
        self.keys.fill(&mut key);
        RegionKey::from_bytes(key)
    }

    /// The address of a host.
    #[must_use]
    pub fn address(&self, node: NodeId) -> HostAddr {
        memory::address(&self.sim, node)
    }

    /// A portal with the next `slots` slots of the host, whose ops are `pid`'s.
    ///
    /// # Panics
    /// If the host has no such number of slots left.
    #[must_use]
    pub fn portal(&mut self, node: NodeId, slots: u16, pid: Pid) -> CommandPortal {
        let host = &mut self.hosts[node.index()];
        let (first, end) = (host.next_slot, host.next_slot + slots);
        assert!(usize::from(end) <= self.sim.nic(node).slot_count(), "{node} has no {slots} slots");
        host.next_slot = end;
        let (portal, port) = Port::new(&mut self.sim, node, first..end, pid);
        host.ports.push(port);
        portal
    }

    /// Registers memory under a key that nobody knows. The process may use it as the local end of
    /// its ops; WRITE_WITH_IMM to it makes events in `events`, a queue of the same process.
    ///
    /// # Panics
    /// If the table of the host has no room, or the queue is not its own.
    pub fn register(
        &mut self,
        process: Process,
        memory: Arc<Region>,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> RegisteredRegion {
        let key = self.key();
        self.register_under(&key, process, memory, permissions, events)
    }

    /// As [`Network::register`], under a key of the caller's.
    pub fn register_under(
        &mut self,
        key: &RegionKey,
        (node, owner): Process,
        memory: Arc<Region>,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> RegisteredRegion {
        let entry = RegionEntry::new(memory.clone(), key, permissions, owner);
        let entry = match events {
            Some(queue) => entry.with_events(queue.id()),
            None => entry,
        };
        let region = memory::register(&mut self.sim, node, entry, memory);
        self.hosts[node.index()].rows.push((region.id(), None));
        region
    }

    /// A receive queue under a key that nobody knows, in which nothing is posted.
    ///
    /// # Panics
    /// If the table of the host has no room.
    pub fn receive_queue(
        &mut self,
        (node, owner): Process,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> ReceiveQueue {
        let rings = ReceiveQueueMemory::heap(layout);
        let memory = Arc::new(Region::new(layout.memory_len()).expect("a few MiB"));
        let (port, key) = (rings.clone().into_port(None), self.key());
        let entry = RegionEntry::receive_queue(port, memory.clone(), &key, permissions, owner);
        let region = memory::register(&mut self.sim, node, entry, memory);
        self.hosts[node.index()].rows.push((region.id(), Some(layout.buffer_len())));
        rings.into_application(region)
    }

    /// A grant for ops of one type on a region, or a queue's region, under the key that it has now,
    /// for a process of the host with this address.
    ///
    /// # Panics
    /// If the region is no longer registered.
    #[must_use]
    pub fn grant(
        &self,
        region: &RegisteredRegion,
        initiator: HostAddr,
        pid: Pid,
        op_type: OpType,
    ) -> Grant {
        let (node, id) = (memory::node_of(region), region.id());
        let row = self.hosts[node.index()].rows.iter().find(|&&(row, _)| row == id);
        let len = row.and_then(|&(_, buffer_len)| buffer_len);
        let len = len.map_or(region.reach(), u64::from);
        memory::grant(&self.sim, (node, id), len, (initiator, pid), op_type)
    }

    /// The owner of a region, or of a queue, gives it another key.
    ///
    /// # Panics
    /// If it is no longer registered.
    pub fn rekey(&mut self, region: &RegisteredRegion, key: &RegionKey) {
        let node = memory::node_of(region);
        let regions = self.sim.nic_mut(node).regions_mut();
        regions.rekey(region.id(), key).unwrap_or_else(|error| panic!("{node}: {error}"));
        self.checker.region_changed(node, region.id());
    }

    /// Takes a region, or a queue, out of its host's table.
    ///
    /// # Panics
    /// If it is no longer registered.
    pub fn deregister(&mut self, region: &RegisteredRegion) {
        let (node, id) = (memory::node_of(region), region.id());
        let nic = self.sim.nic_mut(node);
        nic.deregister(id).unwrap_or_else(|error| panic!("{node}: {error}"));
        self.hosts[node.index()].rows.retain(|&(row, _)| row != id);
        self.checker.region_changed(node, id);
    }

    // Time.

    /// The true time. No host sees it.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Returns the present time by a host's clock.
    #[must_use]
    pub fn local_now(&self, node: NodeId) -> Instant {
        self.sim.local_now(node)
    }

    /// The true time at which the clock of a host shows `local`.
    #[must_use]
    pub fn when(&self, node: NodeId, local: Instant) -> Instant {
        self.sim.when(node, local)
    }

    /// When software of a host that wants to look again when its clock shows `local` does so: later
    /// than now.
    #[must_use]
    pub fn wake_at(&self, node: NodeId, local: Instant) -> Instant {
        self.sim.wake_at(node, local)
    }

    /// When the next event is; `None` if nothing will ever happen by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.sim.next_at()
    }

    /// Lets time pass until `then`, where the next event is not earlier.
    ///
    /// # Panics
    /// If that would skip an event or turn time back.
    pub fn advance_to(&mut self, then: Instant) {
        self.sim.advance_to(then);
    }

    /// Jumps to the next event and does it. Returns its node; `None` if there is none.
    pub fn step(&mut self) -> Option<NodeId> {
        let node = self.sim.step();
        self.look();
        node
    }

    /// The engine of a host looks at its portals, and takes all commands that are there: none if
    /// the host does not run. Returns how many.
    pub fn take_commands(&mut self, node: NodeId) -> usize {
        if self.sim.condition(node) != Condition::Running {
            return 0;
        }
        let mut taken = 0;
        for port in &mut self.hosts[node.index()].ports {
            while port.issue_next(&mut self.sim) {
                taken += 1;
            }
        }
        if taken > 0 {
            self.sim.end_turn(node);
            self.look();
        }
        taken
    }

    // The faults.

    /// Whether a host runs. Software of one that does not must not look at anything.
    #[must_use]
    pub fn is_running(&self, node: NodeId) -> bool {
        self.sim.condition(node) == Condition::Running
    }

    /// Changes the faults of all links for packets sent from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.sim.set_faults(faults);
    }

    /// Nothing goes wrong any longer, but for what is on its way.
    pub fn heal(&mut self) {
        self.sim.set_faults(Faults::default());
        self.sim.set_stalls(StallOptions::default());
    }

    /// Stops a host for `length`, engine and software, unless it does not run anyway. Returns
    /// whether it did.
    pub fn pause(&mut self, node: NodeId, length: Duration) -> bool {
        let runs = self.is_running(node);
        if runs {
            self.sim.pause(node, length);
            self.look();
        }
        runs
    }

    /// Takes a host down: its regions, queues and portals are gone. What its software had must be
    /// dropped.
    pub fn crash(&mut self, node: NodeId) {
        self.sim.crash(node);
        let host = &mut self.hosts[node.index()];
        let (life, counts) = (host.life + 1, host.counts);
        let before = core::mem::replace(host, Host { life, counts, ..Host::default() });
        for (row, _) in before.rows {
            self.checker.region_changed(node, row);
        }
        self.look();
    }

    /// Starts a host that has crashed, with nothing on it. Its clock has gone on.
    ///
    /// # Panics
    /// If it is not down.
    pub fn restart(&mut self, node: NodeId) {
        let mut options = self.options.node(node).in_life(self.hosts[node.index()].life);
        options.clock.starts_at = self.sim.local_now(node);
        self.sim.restart(node, &options).expect("these settings have worked before");
        self.look();
    }

    /// Somebody puts `count` requests on the wire once more, which were recorded there: the ones
    /// that were not replayed for the longest time.
    pub fn replay(&mut self, count: usize) {
        let from = self.next_replayed;
        let count = count.min(self.recorded.len());
        let frames = self.recorded.iter().cycle().skip(from).take(count);
        let frames: Vec<_> = frames.cloned().collect();
        self.next_replayed = (from + count) % self.recorded.len().max(1);
        frames.iter().for_each(|frame| self.checker.replayed(frame));
        self.sim.replay(&frames);
    }

    // The counts.

    /// Returns the counts of a host since the beginning, in all its lives.
    #[must_use]
    pub fn counts(&self, node: NodeId) -> &Counts {
        &self.hosts[node.index()].counts
    }

    /// Checks that nothing is left under way when nothing will happen any longer.
    pub fn check_rest(&self) {
        self.checker.check_rest(&self.sim).unwrap_or_else(|broken| self.fail(&broken));
    }

    /// Takes in what has happened, and checks that all promises hold.
    fn look(&mut self) {
        let mut all = core::mem::take(&mut self.seen);
        all.clear();
        self.sim.swap_seen(&mut all);
        for seen in &all {
            if self.options.trace {
                println!("{seen}");
            }
            self.checker.take(&self.sim, seen).unwrap_or_else(|broken| self.fail(&broken));
            self.tell(seen);
        }
        self.checker.take_commits();
        self.checker.take_not_ready();
        self.checker.check(&self.sim).unwrap_or_else(|broken| self.fail(&broken));
        self.seen = all;
    }

    fn fail(&self, broken: &Violation) -> ! {
        panic!("{}\nat {} ns: {broken}", self.options, self.sim.now().as_nanos())
    }

    fn tell(&mut self, seen: &Seen) {
        let node = seen.node;
        let host = &mut self.hosts[node.index()];
        match &seen.what {
            What::Issued { command, result: Ok(()) } => match command.op {
                CommandOp::Settle { .. } => host.counts.settles += 1,
                op => {
                    host.counts.of_mut(op.op_type()).issued += 1;
                    host.under_way.insert(command.slot.0, op.op_type());
                }
            },
            What::Left { .. } => host.counts.packets += 1,
            What::Sent { frame, .. } => {
                if let Some(op) = self.checker.op_of(frame) {
                    let counts = host.counts.of_mut(op.op_type);
                    counts.frames += 1;
                    counts.octets += frame.bytes.len() as u64;
                }
                let is_request = matches!(
                    FrameView::parse(&frame.bytes),
                    Ok(FrameView::MutationRequest(_)
                        | FrameView::RecordedRequest(_)
                        | FrameView::SettleRequest(_))
                );
                if is_request && self.recorded.len() < RECORDED_MAX {
                    self.recorded.push(frame.clone());
                }
            }
            What::Completed(completion) => {
                let op_type = host.under_way.remove(&completion.slot.0);
                if let (Some(op_type), OpStatus::Ok) = (op_type, completion.status) {
                    host.counts.of_mut(op_type).done += 1;
                }
                let port = host.ports.iter_mut().find(|port| port.owns(completion.slot.0));
                port.expect("a command of this life").complete(completion);
            }
            What::Received { frame, result: Ok(()), .. } => self.changed(node, frame),
            _ => {}
        }
    }

    /// `node` has accepted a frame: the data of a Rekey gives its region another key.
    fn changed(&mut self, node: NodeId, frame: &Frame) {
        let Some(op) = self.checker.op_of(frame) else { return };
        if op.op_type.shape().is_secret
            && let Ok(FrameView::SolicitedData(view)) = FrameView::parse(&frame.bytes)
        {
            self.checker.region_changed(node, view.claims().header.region);
        }
    }
}
