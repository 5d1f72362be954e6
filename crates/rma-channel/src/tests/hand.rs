//! Hosts in a test's hands, for unit tests: ops are carried out one at a time, when the test says
//! so, and may fail as it says.

use core::{convert::Infallible, time::Duration};
use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandOp, Completion, RecordedOp, Transfer},
    crypto::{DerivedRegionKey, RegionKey},
    executor::{CommandExecutor, ExecutorConfig},
    grant::Grant,
    limits::OP_SIZE_MAX,
    op::{OpStatus, OpType},
    portal::{PortalConfig, PortalPort, portal},
    receive_queue::{Event, Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_shm::{Consumer, Producer, Region};

use crate::{
    Claim, Claims, Close, Link, Peer, ReceiveError, ReceiveHandle, ReceiveInto, ReceiveState,
    Receiver, Registered, Registrar, receiver, ring::Record,
};

/// A region, what may be done with it, and its key; and the rings of a queue.
struct Row {
    region: RegisteredRegion,
    permissions: Permissions,
    key: u8,
    /// For the region: the row of the queue that its events go to.
    events: Option<usize>,
    queue: Option<(Consumer, Producer)>,
}

/// All memory of all hosts.
pub(crate) struct Hosts {
    rows: Vec<Row>,
    keys: u8,
    /// It goes on with each turn.
    pub(crate) now: Instant,
    /// How much it goes on with each turn.
    pub(crate) step: Duration,
}

/// One host's link, and the ops that it has issued.
pub(crate) struct Node {
    pub(crate) peer: Peer,
    pub(crate) link: Link,
    port: PortalPort,
    pub(crate) taken: Vec<Command>,
    /// How many ops of each type were issued.
    pub(crate) issued: [usize; 16],
}

pub(crate) struct Desk<'a> {
    hosts: &'a mut Hosts,
    peer: Peer,
}

fn address(number: u8) -> HostAddr {
    HostAddr::from([192, 0, 2, number])
}

impl Node {
    pub(crate) fn new(number: u8) -> Self {
        let (nic, pid) = (NicTag(1), Pid(u32::from(number)));
        let addresses = address(number).into();
        let config = PortalConfig { slots: 0..32, pid, addresses, bell: None, flag: None, nic };
        let (portal, port) = portal(config);
        let executor = CommandExecutor::new(portal, ExecutorConfig::default()).unwrap();
        let peer = Peer { address: address(number), pid };
        Self { peer, link: Link::new(executor), port, taken: Vec::new(), issued: [0; 16] }
    }

    /// Takes what was issued.
    pub(crate) fn take(&mut self, now: Instant) -> usize {
        self.link.poll(now);
        let new: Vec<_> = core::iter::from_fn(|| self.port.take()).map(Result::unwrap).collect();
        for command in &new {
            self.issued[command.op.op_type() as usize] += 1;
        }
        self.taken.extend(&new);
        new.len()
    }

    pub(crate) fn end(&mut self, command: &Command, status: OpStatus) {
        self.port.complete(&Completion::new(command.slot, status, 0, 1_000));
    }
}

impl Hosts {
    pub(crate) fn new() -> Self {
        let (now, step) = (Instant::from_nanos(1_000_000), Duration::from_micros(10));
        Self { rows: Vec::new(), keys: 0, now, step }
    }

    pub(crate) fn desk<'a>(&'a mut self, node: &Node) -> Desk<'a> {
        Desk { hosts: self, peer: node.peer }
    }

    pub(crate) fn region(&self, id: RegionId) -> &RegisteredRegion {
        &self.rows[id.to_bits() as usize].region
    }

    /// Time goes on, and a node issues what it wants to.
    pub(crate) fn turn(&mut self, node: &mut Node) {
        self.now = self.now + self.step;
        node.take(self.now);
    }

    /// Carries out the oldest op of a node that is under way.
    pub(crate) fn serve(&mut self, node: &mut Node) -> bool {
        if node.taken.is_empty() {
            return false;
        }
        let command = node.taken.remove(0);
        self.carry_out(node, &command);
        true
    }

    /// Carries out all that a node has under way.
    pub(crate) fn serve_all(&mut self, node: &mut Node) {
        while self.serve(node) {}
    }

    /// Carries out an op, which ends as it does.
    pub(crate) fn carry_out(&mut self, node: &mut Node, command: &Command) {
        let status = self.apply(command, node.peer);
        node.end(command, status);
    }

    pub(crate) fn apply(&mut self, command: &Command, from: Peer) -> OpStatus {
        let (op_type, now) = (command.op.op_type(), self.now);
        let row = command.remote_region.to_bits() as usize;
        if command.key != DerivedRegionKey::from_bytes(key(self.rows[row].key, op_type)) {
            return OpStatus::RemoteAuthenticationFailure;
        }
        let it = &mut self.rows[row];
        let needs = match op_type {
            OpType::Read => Permissions::READ,
            OpType::Notify => Permissions::NOTIFY,
            OpType::WriteWithImm => Permissions::WRITE | Permissions::NOTIFY,
            _ => Permissions::WRITE,
        };
        if !it.permissions.contains(needs) {
            return OpStatus::RemotePermissionDenied;
        }
        let remote = it.region.clone();
        let (transfer, immediate) = match command.op {
            CommandOp::Read(transfer) => return self.read(&remote, &transfer),
            CommandOp::Write(transfer) => (transfer, None),
            CommandOp::Recorded { op, .. } => match op {
                RecordedOp::OrderedWrite(transfer) => (transfer, None),
                RecordedOp::WriteWithImm { transfer, immediate, .. } => (transfer, Some(immediate)),
                RecordedOp::Notify { immediate } => {
                    return self.event(row, (op_type, immediate, from), (0, 0), now);
                }
                other => panic!("{other:?} is not for these channels"),
            },
            ref other => panic!("{other:?} is not for these channels"),
        };
        let mut bytes = vec![0; transfer.op_size as usize];
        self.region(transfer.local_region).read(transfer.local_offset, &mut bytes).unwrap();
        if remote.write(transfer.remote_offset, &bytes).is_err() {
            return OpStatus::RemoteOutOfBounds;
        }
        match (immediate, self.rows[row].events) {
            (None, _) => OpStatus::Ok,
            (Some(_), None) => OpStatus::RemotePermissionDenied,
            (Some(immediate), Some(queue)) => {
                let place = (transfer.remote_offset, transfer.op_size);
                self.event(queue, (op_type, immediate, from), place, now)
            }
        }
    }

    fn read(&self, remote: &RegisteredRegion, transfer: &Transfer) -> OpStatus {
        assert!(transfer.op_size <= OP_SIZE_MAX);
        let mut bytes = vec![0; transfer.op_size as usize];
        if remote.read(transfer.remote_offset, &mut bytes).is_err() {
            return OpStatus::RemoteOutOfBounds;
        }
        self.region(transfer.local_region).write(transfer.local_offset, &bytes).unwrap();
        OpStatus::Ok
    }

    fn event(
        &mut self,
        queue: usize,
        (op_type, immediate, from): (OpType, u64, Peer),
        (region_offset, len): (u64, u32),
        at: Instant,
    ) -> OpStatus {
        let region = self.rows[queue].region.id();
        let Some((posts, events)) = &mut self.rows[queue].queue else {
            return OpStatus::RemotePermissionDenied;
        };
        let Some(post) = posts.pop() else { return OpStatus::RemoteNotReady };
        let receive = Receive(post.0[0] as u16);
        let Peer { address: initiator, pid } = from;
        let event =
            Event { op_type, receive, len, immediate, initiator, pid, region, region_offset, at };
        events.push(&event.to_line()).unwrap();
        OpStatus::Ok
    }
}

/// The key for ops of one type under a region key.
fn key(region: u8, op_type: OpType) -> [u8; 16] {
    let mut key = [region; 16];
    key[0] = op_type as u8;
    key
}

impl Registrar for Desk<'_> {
    type Error = Infallible;

    fn peer(&self) -> Peer {
        self.peer
    }

    fn key(&mut self) -> Result<RegionKey, Infallible> {
        self.hosts.keys += 1;
        Ok(RegionKey::from_bytes([self.hosts.keys; 16]))
    }

    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Infallible> {
        let id = RegionId::from_bits(self.hosts.rows.len() as u32);
        let region = RegisteredRegion::new(id, memory, NicTag(1));
        let (row, key) = (region.clone(), key.expose()[0]);
        let events = events.map(|queue| queue.id().to_bits() as usize);
        self.hosts.rows.push(Row { region: row, permissions, key, events, queue: None });
        Ok(region)
    }

    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Infallible> {
        let rings = ReceiveQueueMemory::heap(layout);
        let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
        let key = self.key()?;
        let region = self.register(memory, key, permissions, None)?;
        let ends = (rings.posts().clone().into_consumer(), rings.events().clone().into_producer());
        self.hosts.rows[region.id().to_bits() as usize].queue = Some(ends);
        Ok(rings.into_application(region))
    }

    /// Rows are named by their places, so this one stays, and nobody may do anything with it.
    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), Infallible> {
        let row = &mut self.hosts.rows[region.id().to_bits() as usize];
        (row.permissions, row.queue) = (Permissions::NONE, None);
        Ok(())
    }

    fn grant(
        &mut self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Infallible> {
        let row = &self.hosts.rows[region.id().to_bits() as usize];
        Ok(Grant {
            responder: self.peer.address,
            region: region.id(),
            region_len: region.reach(),
            initiator: peer.address,
            pid: peer.pid,
            op_type,
            key: DerivedRegionKey::from_bytes(key(row.key, op_type)),
        })
    }

    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Infallible> {
        self.hosts.rows[region.id().to_bits() as usize].key = key.expose()[0];
        Ok(())
    }
}

/// A receiver over one that reads into the application's memory, which is that of this.
#[derive(Debug)]
pub(crate) struct Claiming<I> {
    into: I,
    region: RegisteredRegion,
    /// How far apart messages are there.
    stride: u64,
    /// Places that nothing is received to.
    free: Vec<u64>,
    under_way: VecDeque<(ReceiveHandle, Record)>,
    ended: Option<ReceiveError>,
}

impl<I> Claiming<I> {
    pub(crate) fn new(into: I, desk: &mut Desk<'_>, len_max: u32) -> Self {
        let (stride, key) = (u64::from(len_max), desk.key().unwrap());
        let memory = Arc::new(Region::new(4 * stride as usize).unwrap());
        let region = desk.register(memory, key, Permissions::NONE, None).unwrap();
        let free = (0..4).map(|place| place * stride).collect();
        Self { into, region, stride, free, under_way: VecDeque::new(), ended: None }
    }
}

impl<I: ReceiveInto> Close for Claiming<I> {
    fn registered(&mut self) -> &mut Registered {
        self.into.registered()
    }
}

impl<I: ReceiveInto> Claims for Claiming<I> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        let state = self.under_way.front().map(|it| self.into.test(it.0));
        match state {
            Some(ReceiveState::Received) => {
                let (_, record) = self.under_way.pop_front().unwrap();
                Ok(Some(Claim { record, from: None }))
            }
            Some(ReceiveState::Failed(error)) => Err(error),
            Some(ReceiveState::Receiving) => Ok(None),
            None => self.ended.map_or(Ok(None), Err),
        }
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        receiver::read(&self.region, &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        self.free.push(claim.record.offset);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl<I: ReceiveInto> Receiver for Claiming<I> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let polled = self.into.poll(link, now);
        self.ended = polled.err();
        while polled.is_ok()
            && let Some(&offset) = self.free.last()
            && let Some(incoming) = self.into.incoming()
        {
            let (position, len) = (incoming.position, incoming.len);
            assert!(u64::from(len) <= self.stride, "no longer than the longest");
            let again = self.into.incoming();
            assert_eq!(again.as_ref(), Some(&incoming), "until it is received");
            let received = self.into.receive_into(link, now, incoming, &self.region, offset);
            let Some(handle) = received.unwrap() else { break };
            self.free.pop();
            self.under_way.push_back((handle, Record { position, offset, len }));
        }
        polled
    }
}
