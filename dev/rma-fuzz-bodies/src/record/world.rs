//! Hosts whose memory and engines are in the script's hands: it says which op is carried out when,
//! and how it ends; and it may write what others have permission to write, at any moment.

use core::{cell::RefCell, num::NonZeroUsize, time::Duration};
use std::{collections::VecDeque, sync::Arc};

use rma_channel::{Link, Peer};
use rma_contract::hosts::Hosts;
use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandOp, Completion, RecordedOp, Transfer},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    executor::{CommandExecutor, ExecutorConfig},
    gate::{Gate, Identity, Refused},
    grant::Grant,
    limits::OP_SIZE_MAX,
    nic::Timing,
    op::{OpStatus, OpType},
    outcome::Verdict,
    portal::{PortalConfig, PortalPort, portal},
    receive_queue::{Event, Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_shm::{Consumer, Line, Producer, Region, WordError};
use rma_sim::net::frame::NodeId;

use crate::script::Script;

/// A registered region.
#[derive(Debug)]
struct Row {
    owner: NodeId,
    region: RegisteredRegion,
    permissions: Permissions,
    key: RegionKey,
    /// Of a region: the row of the queue that its events go to.
    events: Option<usize>,
    /// Of a queue: its rings.
    queue: Option<Queue>,
}

/// An engine's end of a queue.
#[derive(Debug)]
struct Queue {
    layout: ReceiveQueueLayout,
    posts: Consumer,
    events: Producer,
}

/// A process with a link, and the ops that it has under way.
#[derive(Debug)]
struct Node {
    link: Link,
    port: PortalPort,
    under_way: VecDeque<Command>,
}

/// All hosts, of one process each.
#[derive(Debug)]
pub(super) struct World {
    rows: Vec<Row>,
    nodes: Vec<Node>,
    keys: u128,
    now: Instant,
    /// By the name of an op whose answer was lost: whether it was applied, and what it found.
    records: Vec<(bool, u64)>,
}

/// Bytes of a word.
const WORD: u64 = 8;

/// Command slots of each link.
const SLOTS: u16 = 32;

/// Flags of a completion's line: a result; a verdict; reached, may have changed, and named.
const RESULT: u64 = 8;
const VERDICT: u64 = 16;
const UNKNOWN: u64 = 1 | 2 | 4;

fn peer(node: NodeId) -> Peer {
    Peer { address: HostAddr::from([192, 0, 2, node.0 as u8 + 1]), pid: Pid(100) }
}

impl World {
    pub(super) fn new(nodes: u16) -> Self {
        let node = |node| {
            let Peer { address, pid } = peer(NodeId(node));
            let (addresses, nic) = (address.into(), NicTag(1));
            let config =
                PortalConfig { slots: 0..SLOTS, pid, addresses, bell: None, flag: None, nic };
            let (portal, port) = portal(config);
            let mut config = ExecutorConfig::default();
            config.calls = 64;
            let executor = CommandExecutor::new(portal, config).expect("settings that work");
            Node { link: Link::new(executor), port, under_way: VecDeque::new() }
        };
        let (nodes, now) = ((0..nodes).map(node).collect(), Instant::from_nanos(1_000_000));
        Self { rows: Vec::new(), nodes, keys: 0, now, records: Vec::new() }
    }

    /// The link of a node, and what its clock shows.
    pub(super) fn link(&mut self, node: NodeId) -> (&mut Link, Instant) {
        (&mut self.nodes[usize::from(node.0)].link, self.now)
    }

    pub(super) fn pass(&mut self, length: Duration) {
        self.now = self.now + length;
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// How many processes there are.
    pub(super) const fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of the longest region.
    pub(super) fn longest(&self) -> u64 {
        self.rows.iter().map(|row| row.region.len()).max().unwrap_or(0)
    }

    /// Polls the link of a node, and takes what it issues. Returns how many ops it has under way.
    pub(super) fn poll(&mut self, node: usize) -> usize {
        let Node { link, port, under_way } = &mut self.nodes[node];
        link.poll(self.now);
        let taken = core::iter::from_fn(|| port.take());
        under_way.extend(taken.map(|command| command.expect("an executor's commands make sense")));
        under_way.len()
    }

    /// Carries out an op of a node that is under way, if there is one, and answers.
    pub(super) fn apply(&mut self, node: usize, which: usize) {
        let Some(command) = self.take(node, which) else { return };
        let line = match self.carry_out(node, &command) {
            Ok((result, verdict)) => {
                let flags = u64::from(result.is_some()) * RESULT + verdict * VERDICT;
                [0, flags, result.unwrap_or(0)]
            }
            Err(status) => [status as u64, 0, 0],
        };
        self.answer(node, &command, line, 0);
    }

    /// Ends an op of a node so, which is not carried out.
    pub(super) fn fail(&mut self, node: usize, which: usize, status: OpStatus) {
        let Some(command) = self.take(node, which) else { return };
        self.answer(node, &command, [status as u64, 0, 0], 0);
    }

    /// The answer to an op of a node is lost; it was carried out or not.
    pub(super) fn lose(&mut self, node: usize, which: usize, applied: bool) {
        let Some(command) = self.take(node, which) else { return };
        if !matches!(command.op, CommandOp::Recorded { .. }) {
            self.answer(node, &command, [OpStatus::Timeout as u64, 0, 0], 0);
            return;
        }
        let done = if applied { self.carry_out(node, &command) } else { Err(OpStatus::Timeout) };
        let record = done.map_or((false, 0), |(result, _)| (true, result.unwrap_or(0)));
        self.records.push(record);
        let name = self.records.len() as u64;
        self.answer(node, &command, [OpStatus::Timeout as u64, UNKNOWN, 0], name);
    }

    fn take(&mut self, node: usize, which: usize) -> Option<Command> {
        let under_way = &mut self.nodes[node].under_way;
        let which = which.checked_rem(under_way.len())?;
        under_way.remove(which)
    }

    fn answer(
        &mut self,
        node: usize,
        command: &Command,
        [status, flags, result]: [u64; 3],
        name: u64,
    ) {
        let head = u64::from(command.slot.0) | status << 16 | flags << 24;
        let line = Line([head, 0, 1_000, result, name, 0, 0, 0]);
        let completion = Completion::from_line(&line).expect("what an engine writes");
        self.nodes[node].port.complete(&completion);
    }

    fn row(&self, region: RegionId) -> Option<usize> {
        (region.to_bits() as usize).checked_sub(1).filter(|&row| row < self.rows.len())
    }

    /// Carries out an op, and returns its result and verdict.
    fn carry_out(
        &mut self,
        node: usize,
        command: &Command,
    ) -> Result<(Option<u64>, u64), OpStatus> {
        let (from, op_type) = (peer(NodeId(node as u16)), command.op.op_type());
        let index = self.row(command.remote_region).ok_or(OpStatus::RemoteAuthenticationFailure)?;
        let row = &self.rows[index];
        let (initiator, responder, pid) = (from.address, command.responder, from.pid);
        let binding = KeyBinding { initiator, responder, pid, op_type };
        if RegionKeySchedule::new(&row.key).derive(&binding) != command.key
            || peer(row.owner).address != responder
        {
            return Err(OpStatus::RemoteAuthenticationFailure);
        }
        if !row.permissions.contains(op_type.shape().permission) {
            return Err(OpStatus::RemotePermissionDenied);
        }
        let memory = row.region.memory().clone();
        let word = |done: Result<u64, WordError>| match done {
            Ok(before) => Ok((Some(before), 0)),
            Err(_) => Err(OpStatus::RemoteOutOfBounds),
        };
        let op = match &command.op {
            CommandOp::Read(it) => {
                let local = self.local(it)?.memory().clone();
                copy((&memory, it.remote_offset), (&local, it.local_offset), it.op_size)?;
                return Ok((None, 0));
            }
            CommandOp::Write(it) => RecordedOp::OrderedWrite(*it),
            CommandOp::Recorded { op, .. } => *op,
            CommandOp::Rekey(_) => return Err(OpStatus::RemotePermissionDenied),
            CommandOp::Settle { name, .. } => {
                let record = (name.counter as usize).checked_sub(1);
                let record = record.and_then(|it| self.records.get(it)).copied();
                let (applied, result) = record.unwrap_or((false, 0));
                let verdict = if applied { Verdict::Applied } else { Verdict::NotApplied };
                return Ok((Some(result), verdict as u64));
            }
        };
        let told = |immediate, region_offset, len| {
            let (region, receive, at) = (command.remote_region, Receive(0), Instant::ZERO);
            Event { op_type, receive, len, immediate, initiator, pid, region, region_offset, at }
        };
        match op {
            RecordedOp::CompareSwap { remote_offset, expected, new } => {
                return word(memory.compare_exchange(remote_offset, expected, new));
            }
            RecordedOp::FetchAdd { remote_offset, addend } => {
                return word(memory.fetch_add(remote_offset, addend));
            }
            RecordedOp::OrderedWrite(it) => {
                let local = self.local(&it)?.memory().clone();
                copy((&local, it.local_offset), (&memory, it.remote_offset), it.op_size)?;
            }
            RecordedOp::WriteWithImm { transfer: it, immediate, .. } => {
                let queue = row.events.ok_or(OpStatus::RemotePermissionDenied)?;
                let local = self.local(&it)?.memory().clone();
                let receive = self.receive(queue)?;
                copy((&local, it.local_offset), (&memory, it.remote_offset), it.op_size)?;
                self.publish(queue, receive, told(immediate, it.remote_offset, it.op_size));
            }
            RecordedOp::Send { message: it, immediate } => {
                let local = self.local(&it)?.memory().clone();
                let Some(Queue { layout, .. }) = row.queue else {
                    return Err(OpStatus::RemotePermissionDenied);
                };
                if it.op_size > layout.buffer_len() {
                    return Err(OpStatus::RemoteOutOfBounds);
                }
                let receive = self.receive(index)?;
                let buffer = layout.offset_of(receive);
                copy((&local, it.local_offset), (&memory, buffer), it.op_size)?;
                self.publish(index, receive, told(immediate, 0, it.op_size));
            }
            RecordedOp::Notify { immediate } => {
                let receive = self.receive(index)?;
                self.publish(index, receive, told(immediate, 0, 0));
            }
        }
        Ok((None, 0))
    }

    /// The region of its own that an op names.
    fn local(&self, transfer: &Transfer) -> Result<&RegisteredRegion, OpStatus> {
        let row = self.row(transfer.local_region).ok_or(OpStatus::InvalidCommand)?;
        Ok(&self.rows[row].region)
    }

    /// Returns the next posted receive of a queue.
    fn receive(&mut self, queue: usize) -> Result<Receive, OpStatus> {
        let Some(Queue { posts, events, .. }) = &mut self.rows[queue].queue else {
            return Err(OpStatus::RemotePermissionDenied);
        };
        let post = if events.has_room_for(1) { posts.pop() } else { None };
        post.map(|line| Receive(line.0[0] as u16)).ok_or(OpStatus::RemoteNotReady)
    }

    fn publish(&mut self, queue: usize, receive: Receive, event: Event) {
        let event = Event { receive, ..event };
        if let Some(Queue { events, .. }) = &mut self.rows[queue].queue {
            events.push(&event.to_line()).expect("there was room for it");
        }
    }

    /// Somebody writes what they may: one word of some memory that others have permission for, or
    /// the same with another number added to what is there.
    pub(super) fn poke(&mut self, script: &mut Script<'_>) {
        let open = |row: &&Row| row.queue.is_none() && row.permissions != Permissions::NONE;
        let Some(rows) = NonZeroUsize::new(self.rows.iter().filter(open).count()) else { return };
        let row = self.rows.iter().filter(open).nth(script.number() % rows);
        let Some(Row { region, .. }) = row else { return };
        let words = (region.len() / WORD).max(1);
        let offset = script.wide() % words * WORD;
        let there = region.load(offset).map_or(0, u64::from_le);
        let word = match script.number() % 5 {
            0 => there.wrapping_add_signed((script.number() as i8).into()),
            1 => there.wrapping_add_signed(i64::from(script.number() as i8) << 32),
            2 => u64::from_le_bytes(core::array::from_fn(|_| script.number() as u8)),
            // A length and a lap, or a number.
            3 => script.number() as u64 | (script.number() as u64) << 32,
            _ => script.wide(),
        };
        // A region of less than a word has none.
        let _ = region.store(offset, word.to_le());
    }

    /// An event that no honest sender makes: an engine vouches for its queue, its region and that
    /// the bytes are within it, and for who its sender is; all else he chooses.
    pub(super) fn astray(&mut self, script: &mut Script<'_>) {
        let queues: Vec<_> =
            (0..self.rows.len()).filter(|&it| self.rows[it].queue.is_some()).collect();
        let Some(which) = script.number().checked_rem(queues.len()) else { return };
        let queue = queues[which];
        let region_of = |it: &usize| self.rows[*it].events == Some(queue);
        let written = (0..self.rows.len()).find(region_of);
        let Peer { address: initiator, pid } =
            peer(NodeId((script.number() % self.nodes.len()) as u16));
        let immediate = match script.number() % 4 {
            0 => u64::from_le_bytes(core::array::from_fn(|_| script.number() as u8)),
            1 => script.number() as u64 | (script.number() as u64) << 32,
            2 => (script.number() as u64) << 32 | script.wide(),
            _ => script.wide(),
        };
        let (len, offset) = (script.wide(), script.wide());
        let Some(Queue { layout, .. }) = &self.rows[queue].queue else { return };
        let (op_type, region, region_offset, len) = match (layout.buffer_len(), written) {
            (0, None) => (OpType::Notify, queue, 0, 0),
            (0, Some(row)) => {
                let region = &self.rows[row].region;
                let offset = offset % region.len();
                let len = 1 + len % (region.reach() - offset).min(OP_SIZE_MAX.into());
                (OpType::WriteWithImm, row, offset, len)
            }
            (buffer, _) => (OpType::Send, queue, 0, 1 + len % u64::from(buffer)),
        };
        let Ok(receive) = self.receive(queue) else { return };
        let (region, len, at) = (self.rows[region].region.id(), len as u32, self.now);
        let event =
            Event { op_type, receive, len, immediate, initiator, pid, region, region_offset, at };
        self.publish(queue, receive, event);
    }
}

impl Hosts for World {
    fn gate(&mut self, node: NodeId) -> Box<dyn Gate + '_> {
        Box::new(Process { world: RefCell::new(self), node })
    }

    fn peer(&self, node: NodeId) -> Peer {
        debug_assert!(usize::from(node.0) < self.nodes.len());
        peer(node)
    }

    fn timing(&self) -> Timing {
        Timing::software(Duration::from_micros(10), Duration::from_millis(1))
    }

    fn reader_timeout(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn look_every(&self) -> Duration {
        Duration::ZERO
    }
}

/// Copies bytes from one memory to another.
fn copy((from, at): (&Region, u64), (to, there): (&Region, u64), len: u32) -> Result<(), OpStatus> {
    let mut bytes = vec![0; len as usize];
    from.copy_out(at, &mut bytes).or(Err(OpStatus::RemoteOutOfBounds))?;
    to.copy_in(there, &bytes).or(Err(OpStatus::RemoteOutOfBounds))
}

/// A node's process, for setting channels up.
#[derive(Debug)]
struct Process<'a> {
    world: RefCell<&'a mut World>,
    node: NodeId,
}

impl World {
    /// A key that was not there before.
    fn key(&mut self) -> RegionKey {
        self.keys += 1;
        RegionKey::from_bytes(self.keys.to_le_bytes())
    }

    /// Registers the row that `row` makes of its region.
    fn add(
        &mut self,
        memory: Arc<Region>,
        row: impl FnOnce(RegisteredRegion) -> Row,
    ) -> RegisteredRegion {
        let id = RegionId::from_bits(self.rows.len() as u32 + 1);
        let region = RegisteredRegion::new(id, memory, NicTag(1));
        self.rows.push(row(region.clone()));
        region
    }

    /// The row of a region that was registered.
    fn known(&mut self, region: &RegisteredRegion) -> &mut Row {
        let row = self.row(region.id()).expect("it was registered here");
        &mut self.rows[row]
    }
}

impl Gate for Process<'_> {
    fn identity(&self) -> Identity {
        peer(self.node).into()
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        Ok(self.world.borrow_mut().key())
    }

    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        let mut world = self.world.borrow_mut();
        let events = events.and_then(|queue| world.row(queue.id()));
        let owner = self.node;
        Ok(world.add(memory, |region| Row { owner, region, permissions, key, events, queue: None }))
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        let mut world = self.world.borrow_mut();
        let memory = Arc::new(Region::new(layout.memory_len()).expect("as long as it has to be"));
        let (owner, key, rings) = (self.node, world.key(), ReceiveQueueMemory::heap(layout));
        let posts = rings.posts().clone().into_consumer();
        let events = rings.events().clone().into_producer();
        let queue = Some(Queue { layout, posts, events });
        let region = world.add(memory, |region| Row {
            owner,
            region,
            permissions,
            key,
            events: None,
            queue,
        });
        Ok(rings.into_application(region))
    }

    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused> {
        let mut world = self.world.borrow_mut();
        let key = world.key();
        let row = world.known(region);
        (row.permissions, row.key, row.queue) = (Permissions::NONE, key, None);
        Ok(())
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        let (responder, initiator, pid) = (self::peer(self.node).address, peer.address, peer.pid);
        let binding = KeyBinding { initiator, responder, pid, op_type };
        let key = self.world.borrow_mut().known(region).key;
        let key = RegionKeySchedule::new(&key).derive(&binding);
        let (region_len, region) = (region.reach(), region.id());
        Ok(Grant { responder, region, region_len, initiator, pid, op_type, key })
    }

    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        self.world.borrow_mut().known(region).key = key;
        Ok(())
    }

    /// It needs to find no ways.
    fn prepare(&self, _: HostAddr) {}
}
