//! Simulated hosts for channels, with a link for each.

use core::{cell::RefCell, error, fmt, time::Duration};
use std::{collections::VecDeque, sync::Arc};

use rma_channel::{Link, Peer};
use rma_core::{
    addr::{HostAddr, Pid},
    crypto::RegionKey,
    executor::CommandExecutor,
    gate::{Gate, Identity, Refused},
    grant::Grant,
    nic::Timing,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;
use rma_sim::{
    hosts::{gate::SimHost, network::Network, options::NetworkOptions},
    net::frame::NodeId,
};

use crate::hosts::{Driven, Hosts};

/// Command slots of each link.
const SLOTS: u16 = 32;

/// Hosts with one process each, which has one link.
#[derive(Debug)]
pub struct World {
    /// The network that they are on.
    pub network: Network,
    links: Vec<Link>,
    /// By node: how many bytes were registered, as regions or as buffers.
    registered: Vec<u64>,
    /// By node: how many regions and queues are registered.
    rows: Vec<usize>,
    /// How many more there is room for, on all nodes together.
    pub room: usize,
    /// How many of those are left that were registered since somebody last asked for a gate.
    pub kept: usize,
    /// When which node is stopped, and for how long; in the order of time.
    pub pauses: VecDeque<(Instant, NodeId, Duration)>,
    /// How many recorded requests are replayed in each two round trips.
    pub replays: usize,
    replay_at: Instant,
    /// For how many timeouts readers count that tell nothing: longer than hosts stop for.
    pub patience: u32,
    /// When all look, though nothing has happened.
    tick_at: Instant,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.network.options().fmt(f)
    }
}

impl World {
    /// Hosts on a new network.
    pub fn new(options: NetworkOptions) -> Self {
        let nodes = options.nodes;
        let mut network = Network::new(options);
        let links = (0..nodes).map(|node| link(&mut network, NodeId(node))).collect();
        Self {
            network,
            links,
            registered: vec![0; nodes.into()],
            rows: vec![0; nodes.into()],
            room: usize::MAX,
            kept: 0,
            pauses: VecDeque::new(),
            replays: 0,
            replay_at: Instant::ZERO,
            patience: 10,
            tick_at: Instant::ZERO,
        }
    }

    /// How many bytes the process of a node has registered, as regions and as buffers, since the
    /// beginning.
    pub fn registered(&self, node: NodeId) -> u64 {
        self.registered[usize::from(node.0)]
    }

    /// How many regions and queues are registered, of all nodes.
    pub fn rows(&self) -> usize {
        self.rows.iter().sum()
    }

    /// When a link of a node that runs wants to look again.
    fn links_wake_at(&self) -> Option<Instant> {
        let wake = |node: NodeId| {
            let local = self.links[usize::from(node.0)].poll_timeout()?;
            self.wake_at(node, local)
        };
        (0..self.nodes()).map(NodeId).filter_map(wake).min()
    }

    /// Starts a node that has crashed. Its process has nothing but a link.
    pub fn restart(&mut self, node: NodeId) {
        self.rows[usize::from(node.0)] = 0;
        self.network.restart(node);
        self.links[usize::from(node.0)] = link(&mut self.network, node);
    }
}

impl Hosts for World {
    fn gate(&mut self, node: NodeId) -> Box<dyn Gate + '_> {
        self.kept = 0;
        let counted = Counted {
            room: &mut self.room,
            kept: &mut self.kept,
            rows: &mut self.rows[usize::from(node.0)],
            bytes: &mut self.registered[usize::from(node.0)],
        };
        let host = SimHost::new(&mut self.network, (node, pid(node)));
        Box::new(Process { host, counted: RefCell::new(counted) })
    }

    fn peer(&self, node: NodeId) -> Peer {
        Peer { address: self.network.address(node), pid: pid(node) }
    }

    fn timing(&self) -> Timing {
        self.network.options().nic.timing
    }

    fn reader_timeout(&self) -> Duration {
        (self.network.options().nic.timing.timeout * self.patience).max(Duration::from_millis(1))
    }

    fn look_every(&self) -> Duration {
        let options = self.network.options();
        if options.seed == 0 { Duration::ZERO } else { options.nic.timing.timeout / 100 }
    }
}

impl Driven for World {
    const STANDS_STILL: bool = true;

    const IDLE_STEPS_MAX: u64 = 1_000_000;

    fn seed(&self) -> u64 {
        self.network.options().seed
    }

    fn now(&self) -> Instant {
        self.network.now()
    }

    fn is_running(&self, node: NodeId) -> bool {
        self.network.is_running(node)
    }

    fn link(&mut self, node: NodeId) -> (&mut Link, Instant) {
        (&mut self.links[usize::from(node.0)], self.network.local_now(node))
    }

    fn take_commands(&mut self, node: NodeId) -> usize {
        self.network.take_commands(node)
    }

    fn step(&mut self, wake: Option<Instant>) {
        let wake = wake.into_iter().chain(self.links_wake_at()).min();
        let network = &mut self.network;
        let now = network.now();
        if now >= self.replay_at && now > Instant::ZERO {
            self.replay_at = now + network.options().link.delay * 4;
            network.replay(self.replays);
        }
        // A replayed frame may come next.
        let event = network.next_at();
        let pause = self.pauses.front().map(|&(at, ..)| at.max(now));
        let first = [event, wake, pause].into_iter().flatten().min();
        let first = first.map_or(self.tick_at, |at| at.min(self.tick_at)).max(now);
        if pause == Some(first) && event != Some(first) {
            network.advance_to(first);
            if let Some((_, node, length)) = self.pauses.pop_front() {
                network.pause(node, length);
            }
        } else if event == Some(first) {
            network.step();
        } else {
            network.advance_to(first);
        }
        if first >= self.tick_at {
            self.tick_at = first + network.options().nic.timing.timeout / 4;
        }
    }

    fn wake_at(&self, node: NodeId, local: Instant) -> Option<Instant> {
        self.is_running(node).then(|| self.network.wake_at(node, local))
    }

    fn nodes(&self) -> u16 {
        self.links.len() as u16
    }
}

/// The process of a node.
const fn pid(node: NodeId) -> Pid {
    Pid(100 + node.0 as u32)
}

fn link(network: &mut Network, node: NodeId) -> Link {
    let portal = network.portal(node, SLOTS, pid(node));
    Link::new(CommandExecutor::new(portal, network.executor()).unwrap())
}

/// A node's process, for setting channels up: its host, which has only so much room.
#[derive(Debug)]
struct Process<'a> {
    host: SimHost<'a>,
    counted: RefCell<Counted<'a>>,
}

/// The room that is left, and what was registered.
#[derive(Debug)]
struct Counted<'a> {
    room: &'a mut usize,
    kept: &'a mut usize,
    rows: &'a mut usize,
    bytes: &'a mut u64,
}

impl Counted<'_> {
    /// Takes a row.
    fn take(&mut self, bytes: u64) -> Result<(), Refused> {
        *self.room = self.room.checked_sub(1).ok_or_else(|| Refused::new(NoRoom))?;
        *self.bytes += bytes;
        *self.rows += 1;
        *self.kept += 1;
        Ok(())
    }
}

/// There is no room for another region.
#[derive(Debug)]
struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room for another region")
    }
}

impl error::Error for NoRoom {}

impl Gate for Process<'_> {
    fn identity(&self) -> Identity {
        self.host.identity()
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        self.host.key()
    }

    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        self.counted.borrow_mut().take(memory.len() as u64)?;
        self.host.register(memory, key, permissions, events)
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        let bytes = u64::from(layout.receives()) * u64::from(layout.buffer_len());
        self.counted.borrow_mut().take(bytes)?;
        self.host.receive_queue(layout, permissions)
    }

    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused> {
        self.host.deregister(region)?;
        let mut counted = self.counted.borrow_mut();
        *counted.rows -= 1;
        *counted.kept = counted.kept.saturating_sub(1);
        Ok(())
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        self.host.grant(region, peer, op_type)
    }

    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        self.host.rekey(region, key)
    }

    fn prepare(&self, initiator: HostAddr) {
        self.host.prepare(initiator);
    }
}
