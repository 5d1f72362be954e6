//! The stage of the channels' tests: one host that both ends are on, whose engine is in the test's
//! hands. The test says in which order the engine applies the ops under way, or that it does not.

use core::{convert::Infallible, time::Duration};
use std::{collections::HashMap, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandOp, Completion, RecordedOp, Transfer},
    crypto::{DerivedRegionKey, RegionKey},
    executor::{CommandExecutor, ExecutorConfig},
    grant::Grant,
    op::{OpStatus, OpType},
    portal::{PortalConfig, PortalPort, portal},
    receive_queue::{Event, Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_shm::{Consumer, Line, Producer, Region};

use crate::{
    link::Link,
    registrar::{Peer, Registrar},
};

pub(crate) const PEER: Peer = Peer {
    address: HostAddr::from_octets([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1]),
    pid: Pid(7),
};

/// Somebody else, who has grants for the same.
pub(crate) const OTHER: Peer = Peer { pid: Pid(8), ..PEER };

/// A row of the region table.
#[derive(Debug)]
struct Row {
    region: RegisteredRegion,
    key: RegionKey,
    /// Its own queue, or the one that it names.
    events: Option<RegionId>,
    queue: Option<Queue>,
}

/// The engine's end of a receive queue.
#[derive(Debug)]
struct Queue {
    layout: ReceiveQueueLayout,
    posts: Consumer,
    events: Producer,
}

/// The regions and queues of the host.
#[derive(Debug)]
pub(crate) struct Host {
    rows: HashMap<RegionId, Row>,
    keys: u8,
    /// The host that registers.
    pub(crate) as_peer: Peer,
}

impl Default for Host {
    fn default() -> Self {
        Self { rows: HashMap::new(), keys: 0, as_peer: PEER }
    }
}

impl Host {
    fn add(&mut self, row: impl FnOnce(RegionId) -> Row) -> RegisteredRegion {
        let id = RegionId::from_bits(self.rows.len() as u32 + 1);
        let row = row(id);
        let region = row.region.clone();
        self.rows.insert(id, row);
        region
    }

    /// An event of an op of somebody's that says this.
    pub(crate) fn event(&mut self, queue: &ReceiveQueue, event: Event) {
        let event = |receive| Event { receive, ..event };
        assert!(self.publish(queue.id(), event), "a receive is posted");
    }

    /// Publishes an event, if a receive is posted.
    fn publish(&mut self, queue: RegionId, event: impl FnOnce(Receive) -> Event) -> bool {
        let queue = self.rows.get_mut(&queue).and_then(|row| row.queue.as_mut()).unwrap();
        let Some(post) = queue.posts.pop() else { return false };
        queue.events.push(&event(Receive(post.0[0] as u16)).to_line()).unwrap();
        true
    }

    /// A region by its name: the first that was registered is 1.
    pub(crate) fn region(&self, id: RegionId) -> RegisteredRegion {
        self.rows[&id].region.clone()
    }

    /// How many receives are posted.
    pub(crate) fn posted(&self, queue: &ReceiveQueue) -> usize {
        let queue = self.rows[&queue.id()].queue.as_ref().unwrap();
        queue.posts.len()
    }

    fn bytes(&self, from: &Transfer) -> Vec<u8> {
        let mut bytes = vec![0; from.op_size as usize];
        self.rows[&from.local_region].region.read(from.local_offset, &mut bytes).unwrap();
        bytes
    }

    /// Applies an op. Returns how it ended, and what an atomic found.
    fn apply(&mut self, from: Peer, command: &Command) -> (OpStatus, Option<u64>) {
        let op_type = command.op.op_type();
        let target = self.rows[&command.remote_region].region.clone();
        if self.grant(&target, from, op_type).unwrap().key != command.key {
            return (OpStatus::RemoteAuthenticationFailure, None);
        }
        let row = &self.rows[&command.remote_region];
        let (queue, layout) = (row.events, row.queue.as_ref().map(|queue| queue.layout));
        let event = |len, immediate, region_offset| Event {
            op_type,
            receive: Receive(0),
            len,
            immediate,
            initiator: from.address,
            pid: from.pid,
            region: command.remote_region,
            region_offset,
            at: Instant::ZERO,
        };
        let write = |host: &Self, transfer: &Transfer, at| {
            target.write(at, &host.bytes(transfer)).unwrap();
        };
        let CommandOp::Recorded { op, .. } = &command.op else {
            let transfer = command.op.transfer().unwrap();
            assert_eq!(op_type, OpType::Write, "the only plain op of these tests");
            write(self, transfer, transfer.remote_offset);
            return (OpStatus::Ok, None);
        };
        let ready = match op {
            RecordedOp::OrderedWrite(transfer) => {
                write(self, transfer, transfer.remote_offset);
                true
            }
            RecordedOp::Send { message, immediate } => {
                let bytes = self.bytes(message);
                let event = event(message.op_size, *immediate, 0);
                self.publish(queue.unwrap(), |receive| {
                    target.write(layout.unwrap().offset_of(receive), &bytes).unwrap();
                    Event { receive, ..event }
                })
            }
            RecordedOp::WriteWithImm { transfer, immediate, .. } => {
                write(self, transfer, transfer.remote_offset);
                let event = event(transfer.op_size, *immediate, transfer.remote_offset);
                self.publish(queue.unwrap(), |receive| Event { receive, ..event })
            }
            RecordedOp::Notify { immediate } => {
                let event = event(0, *immediate, 0);
                self.publish(queue.unwrap(), |receive| Event { receive, ..event })
            }
            RecordedOp::CompareSwap { remote_offset, expected, new } => {
                let found = target.compare_exchange(*remote_offset, *expected, *new);
                return (OpStatus::Ok, Some(found.unwrap()));
            }
            RecordedOp::FetchAdd { remote_offset, addend } => {
                return (OpStatus::Ok, Some(target.fetch_add(*remote_offset, *addend).unwrap()));
            }
        };
        (if ready { OpStatus::Ok } else { OpStatus::RemoteNotReady }, None)
    }
}

impl Registrar for Host {
    type Error = Infallible;

    fn peer(&self) -> Peer {
        self.as_peer
    }

    fn key(&mut self) -> Result<RegionKey, Infallible> {
        self.keys += 1;
        Ok(RegionKey::from_bytes([self.keys; 16]))
    }

    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        _: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Infallible> {
        Ok(self.add(|id| {
            let region = RegisteredRegion::new(id, memory, NicTag(1));
            Row { region, key, events: events.map(ReceiveQueue::id), queue: None }
        }))
    }

    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        _: Permissions,
    ) -> Result<ReceiveQueue, Infallible> {
        let rings = ReceiveQueueMemory::heap(layout);
        let key = self.key()?;
        let (posts, events) = (rings.posts().clone(), rings.events().clone());
        let region = self.add(|id| {
            let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
            let region = RegisteredRegion::new(id, memory, NicTag(1));
            let (posts, events) = (posts.into_consumer(), events.into_producer());
            Row { region, key, events: Some(id), queue: Some(Queue { layout, posts, events }) }
        });
        Ok(rings.into_application(region))
    }

    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), Infallible> {
        self.rows.remove(&region.id()).expect("it is registered");
        Ok(())
    }

    fn grant(
        &mut self,
        region: &RegisteredRegion,
        Peer { address, pid }: Peer,
        op_type: OpType,
    ) -> Result<Grant, Infallible> {
        let row = &self.rows[&region.id()];
        let len = row.queue.as_ref().map_or(region.reach(), |it| it.layout.buffer_len().into());
        let grant = Grant {
            responder: PEER.address,
            region: region.id(),
            region_len: len,
            initiator: address,
            pid,
            op_type,
            key: DerivedRegionKey::from_bytes([0; 16]),
        };
        Ok(grant.under(&row.key))
    }

    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Infallible> {
        self.rows.get_mut(&region.id()).unwrap().key = key;
        Ok(())
    }
}

/// A process of the host: its link, and what that has under way.
pub(crate) struct Process {
    pub(crate) link: Link,
    port: PortalPort,
    /// Under way.
    pub(crate) taken: Vec<Command>,
    peer: Peer,
}

impl Process {
    fn new(peer: Peer, calls: u16) -> Self {
        let (addresses, pid, nic) = (peer.address.into(), peer.pid, NicTag(1));
        let (portal, port) =
            portal(PortalConfig { slots: 0..64, pid, addresses, bell: None, flag: None, nic });
        let mut config = ExecutorConfig::default();
        config.calls = calls;
        let link = Link::new(CommandExecutor::new(portal, config).unwrap());
        Self { link, port, taken: Vec::new(), peer }
    }

    fn turn(&mut self, now: Instant) {
        self.link.poll(now);
        self.taken.extend(core::iter::from_fn(|| self.port.take()).map(Result::unwrap));
    }

    /// Applies the op that is under way at this place.
    pub(crate) fn apply(&mut self, host: &mut Host, at: usize) -> OpStatus {
        let command = self.taken.remove(at);
        let (status, found) = host.apply(self.peer, &command);
        let Line(mut words) = Completion::new(command.slot, status, 0, 1_000).to_line();
        if let Some(found) = found {
            (words[0], words[3]) = (words[0] | RESULT << 24, found);
        }
        self.port.complete(&Completion::from_line(&Line(words)).unwrap());
        status
    }

    /// Ends the op that is under way at this place with `status`, without applying it.
    pub(crate) fn fail(&mut self, at: usize, status: OpStatus) {
        let command = self.taken.remove(at);
        self.port.complete(&Completion::new(command.slot, status, 0, 1_000));
    }
}

/// The flag of a completion that has a result, in its line.
const RESULT: u64 = 8;

/// The host, and two processes of it.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) us: Process,
    pub(crate) other: Process,
    /// It goes on with each turn.
    pub(crate) now: Instant,
}

impl Bench {
    /// Links of so many calls.
    pub(crate) fn new(calls: u16) -> Self {
        let (us, other) = (Process::new(PEER, calls), Process::new(OTHER, calls));
        Self { host: Host::default(), us, other, now: Instant::from_nanos(1_000_000) }
    }

    /// Time goes on, and what can be issued is.
    pub(crate) fn turn(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        self.us.turn(self.now);
        self.other.turn(self.now);
    }

    /// So much time goes by.
    pub(crate) fn later(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turn();
    }

    /// Applies our op that is under way at this place.
    pub(crate) fn apply(&mut self, at: usize) -> OpStatus {
        let status = self.us.apply(&mut self.host, at);
        self.turn();
        status
    }

    /// All that is under way is applied, in the order that it was issued in, and all that follows.
    pub(crate) fn apply_all(&mut self) {
        self.turn();
        while !self.us.taken.is_empty() || !self.other.taken.is_empty() {
            while !self.us.taken.is_empty() {
                self.us.apply(&mut self.host, 0);
            }
            while !self.other.taken.is_empty() {
                self.other.apply(&mut self.host, 0);
            }
            self.turn();
        }
    }

    /// Ends our op that is under way at this place with `status`, without applying it.
    pub(crate) fn fail(&mut self, at: usize, status: OpStatus) {
        self.us.fail(at, status);
        self.turn();
    }
}
