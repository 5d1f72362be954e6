//! For tests: hosts whose engine is in the test's hands. Ops are carried out in the order that it
//! says, at once and whole, under the keys that regions have then; or not, or their answers are
//! lost.

use core::{cell::RefCell, convert::Infallible, time::Duration};
use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
};

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandOp, Completion, RecordedOp, Transfer},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    executor::{CommandExecutor, ExecutorConfig},
    grant::Grant,
    op::{OpStatus, OpType},
    outcome::Verdict,
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

/// A row of a region table.
struct Row {
    owner: Peer,
    memory: Arc<Region>,
    key: RegionKey,
    permissions: Permissions,
    events: Option<RegionId>,
}

/// The engine's end of a queue.
struct Queue {
    posts: Consumer,
    events: Producer,
}

#[derive(Default)]
struct Inner {
    rows: BTreeMap<u32, Row>,
    queues: BTreeMap<u32, Queue>,
    keys: u64,
    /// By the name of an op: whether it was applied, and what it found.
    records: Vec<(bool, u64)>,
}

/// All hosts and what they have registered.
#[derive(Clone, Default)]
pub(crate) struct World(Rc<RefCell<Inner>>);

impl World {
    /// A process of a host of its own.
    pub(crate) fn host(&self, number: u8) -> Host {
        let peer = Peer { address: HostAddr::from([192, 0, 2, number]), pid: Pid(7) };
        Host { world: self.clone(), peer }
    }
}

/// Registers memory for one process.
#[derive(Clone)]
pub(crate) struct Host {
    world: World,
    pub(crate) peer: Peer,
}

impl Registrar for Host {
    type Error = Infallible;

    fn peer(&self) -> Peer {
        self.peer
    }

    fn key(&mut self) -> Result<RegionKey, Infallible> {
        let mut inner = self.world.0.borrow_mut();
        inner.keys += 1;
        Ok(RegionKey::from_bytes(u128::from(inner.keys).to_le_bytes()))
    }

    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Infallible> {
        let mut inner = self.world.0.borrow_mut();
        let id = inner.rows.len() as u32 + 1;
        let (owner, events) = (self.peer, events.map(ReceiveQueue::id));
        let row = Row { owner, memory: memory.clone(), key, permissions, events };
        inner.rows.insert(id, row);
        Ok(RegisteredRegion::new(RegionId::from_bits(id), memory, NicTag(1)))
    }

    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Infallible> {
        let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
        let key = self.key()?;
        let region = self.register(memory, key, permissions, None)?;
        let rings = ReceiveQueueMemory::heap(layout);
        let posts = rings.posts().clone().into_consumer();
        let events = rings.events().clone().into_producer();
        let queue = Queue { posts, events };
        self.world.0.borrow_mut().queues.insert(region.id().to_bits(), queue);
        Ok(rings.into_application(region))
    }

    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), Infallible> {
        let mut inner = self.world.0.borrow_mut();
        inner.queues.remove(&region.id().to_bits());
        inner.rows.remove(&region.id().to_bits()).expect("it is registered");
        Ok(())
    }

    fn grant(
        &mut self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Infallible> {
        let key = self.world.0.borrow().rows[&region.id().to_bits()].key;
        let (responder, initiator, pid) = (self.peer.address, peer.address, peer.pid);
        let binding = KeyBinding { initiator, responder, pid, op_type };
        let key = RegionKeySchedule::new(&key).derive(&binding);
        let (region_len, region) = (region.reach(), region.id());
        Ok(Grant { responder, region, region_len, initiator, pid, op_type, key })
    }

    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Infallible> {
        let mut inner = self.world.0.borrow_mut();
        inner.rows.get_mut(&region.id().to_bits()).unwrap().key = key;
        Ok(())
    }
}

/// A process with a link, and the ops that it has under way.
pub(crate) struct Station {
    pub(crate) host: Host,
    pub(crate) link: Link,
    port: PortalPort,
    pub(crate) under_way: VecDeque<Command>,
}

impl Station {
    pub(crate) fn new(host: Host) -> Self {
        Self::with_calls(host, 256)
    }

    /// One whose link has room for so many calls.
    pub(crate) fn with_calls(host: Host, calls: u16) -> Self {
        let (pid, addresses) = (host.peer.pid, host.peer.address.into());
        let nic = NicTag(1);
        let slots = 0..64;
        let config = PortalConfig { slots, pid, addresses, bell: None, flag: None, nic };
        let (portal, port) = portal(config);
        let mut config = ExecutorConfig::default();
        config.calls = calls;
        let link = Link::new(CommandExecutor::new(portal, config).unwrap());
        Self { host, link, port, under_way: VecDeque::new() }
    }

    /// Polls the link, and takes what it issues.
    pub(crate) fn poll(&mut self, now: Instant) {
        self.link.poll(now);
        self.under_way.extend(core::iter::from_fn(|| self.port.take()).map(Result::unwrap));
    }

    /// Carries out an op that is under way, and answers.
    pub(crate) fn apply(&mut self, index: usize) {
        let command = self.under_way.remove(index).unwrap();
        let line = match self.carry_out(&command) {
            Ok((result, verdict)) => {
                let flags = u64::from(result.is_some()) * RESULT + (verdict as u64) * VERDICT;
                [0, flags, result.unwrap_or(0)]
            }
            Err(status) => [status as u64, 0, 0],
        };
        self.answer(&command, line, 0);
    }

    /// Carries out all that is under way, oldest first.
    pub(crate) fn apply_all(&mut self) {
        while !self.under_way.is_empty() {
            self.apply(0);
        }
    }

    /// Ends an op so, which is not carried out.
    pub(crate) fn fail(&mut self, index: usize, status: OpStatus) {
        let command = self.under_way.remove(index).unwrap();
        self.answer(&command, [status as u64, 0, 0], 0);
    }

    /// A recorded op is carried out, or not, and its answer is lost.
    pub(crate) fn lose_answer(&mut self, index: usize, applied: bool) {
        let command = self.under_way.remove(index).unwrap();
        let done = if applied { self.carry_out(&command) } else { Err(OpStatus::Timeout) };
        let record = match done {
            Ok((result, _)) => (true, result.unwrap_or(0)),
            Err(_) => (false, 0),
        };
        let name = {
            let records = &mut self.host.world.0.borrow_mut().records;
            records.push(record);
            records.len() as u64
        };
        self.answer(&command, [OpStatus::Timeout as u64, UNKNOWN, 0], name);
    }

    fn answer(&mut self, command: &Command, [status, flags, result]: [u64; 3], name: u64) {
        let head = u64::from(command.slot.0) | status << 16 | flags << 24;
        let line = Line([head, 0, 1_000, result, name, 0, 0, 0]);
        self.port.complete(&Completion::from_line(&line).unwrap());
    }

    fn carry_out(&self, command: &Command) -> Result<(Option<u64>, u8), OpStatus> {
        let inner = &mut *self.host.world.0.borrow_mut();
        let Inner { rows, queues, records, .. } = inner;
        let (us, op_type) = (self.host.peer, command.op.op_type());
        let row = rows.get(&command.remote_region.to_bits());
        let row = row.ok_or(OpStatus::RemoteAuthenticationFailure)?;
        let (initiator, responder, pid) = (us.address, command.responder, us.pid);
        let binding = KeyBinding { initiator, responder, pid, op_type };
        let key = RegionKeySchedule::new(&row.key).derive(&binding);
        if key != command.key || row.owner.address != responder {
            return Err(OpStatus::RemoteAuthenticationFailure);
        }
        if !row.permissions.contains(op_type.shape().permission) {
            return Err(OpStatus::RemotePermissionDenied);
        }
        let copy = |from: &Region, at: u64, to: &Region, there: u64, len: u32| {
            let mut bytes = vec![0; len as usize];
            from.copy_out(at, &mut bytes).or(Err(OpStatus::RemoteOutOfBounds))?;
            to.copy_in(there, &bytes).or(Err(OpStatus::RemoteOutOfBounds))
        };
        let local = |transfer: &Transfer| &rows[&transfer.local_region.to_bits()].memory;
        let write = |it: &Transfer| {
            copy(local(it), it.local_offset, &row.memory, it.remote_offset, it.op_size)
        };
        match &command.op {
            CommandOp::Read(it) => {
                copy(&row.memory, it.remote_offset, local(it), it.local_offset, it.op_size)?;
            }
            CommandOp::Write(it) => write(it)?,
            CommandOp::Recorded { op: RecordedOp::OrderedWrite(it), .. } => write(it)?,
            CommandOp::Recorded {
                op: RecordedOp::WriteWithImm { transfer, immediate, .. },
                ..
            } => {
                let queue = row.events.ok_or(OpStatus::RemotePermissionDenied)?;
                let queue = queues.get_mut(&queue.to_bits()).unwrap();
                let post = queue.posts.pop().ok_or(OpStatus::RemoteNotReady)?;
                write(transfer)?;
                let event = Event {
                    op_type,
                    receive: Receive(post.0[0] as u16),
                    len: transfer.op_size,
                    immediate: *immediate,
                    initiator,
                    pid,
                    region: command.remote_region,
                    region_offset: transfer.remote_offset,
                    at: Instant::ZERO,
                };
                queue.events.push(&event.to_line()).unwrap();
            }
            CommandOp::Recorded { op: RecordedOp::FetchAdd { remote_offset, addend }, .. } => {
                let before = row.memory.fetch_add(*remote_offset, *addend).unwrap();
                return Ok((Some(before), 0));
            }
            CommandOp::Settle { name, .. } => {
                let (applied, result) = records[name.counter as usize - 1];
                let verdict = if applied { Verdict::Applied } else { Verdict::NotApplied };
                return Ok((Some(result), verdict as u8));
            }
            op => unreachable!("{op:?}"),
        }
        Ok((None, 0))
    }
}

/// Flags of a completion's line: a result; a verdict; reached, may have changed, and named.
const RESULT: u64 = 8;
const VERDICT: u64 = 16;
const UNKNOWN: u64 = 1 | 2 | 4;

/// When a test begins.
pub(crate) const BEGIN: Instant = Instant::from_nanos(1_000_000);

/// A clock of a test's own, which goes on with each look.
pub(crate) struct Ticks(pub(crate) Instant);

impl Ticks {
    pub(crate) fn next(&mut self, by: Duration) -> Instant {
        self.0 = self.0 + by;
        self.0
    }
}

/// A message that nobody confuses with others.
pub(crate) fn message(number: u64, len: usize) -> Vec<u8> {
    let first = number.to_le_bytes();
    (0..len)
        .map(|at| first.get(at).map_or((number as usize * 31 + at * 7) as u8, |&it| it))
        .collect()
}
