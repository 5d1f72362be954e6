//! Hosts in a test's hands: they answer the [`Gate`], and ops on what they have registered are
//! carried out when the test says so, at once and whole, under the keys that regions have then.

use core::{cell::RefCell, fmt};
use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use rma_core::{
    addr::HostAddr,
    command::{Command, CommandOp, Completion, RecordedOp, Transfer},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    error::RegionError,
    gate::{Gate, Identity, Peer, Refused},
    grant::Grant,
    op::{OpStatus, OpType},
    outcome::Verdict,
    portal::{CommandPortal, PortalConfig, PortalPort, portal},
    receive_queue::{Event, Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_shm::{Consumer, Line, Producer, Region};

/// The tag of all fake hosts: each may name the regions of each other as its own.
const NIC: NicTag = NicTag(1);

/// A row of the region table.
struct Row {
    owner: Peer,
    region: RegisteredRegion,
    key: RegionKey,
    permissions: Permissions,
    /// The queue that it makes events in: itself, or the one that it names.
    events: Option<RegionId>,
    queue: Option<Queue>,
}

/// The engine's end of a receive queue.
struct Queue {
    layout: ReceiveQueueLayout,
    posts: Consumer,
    events: Producer,
}

/// The answer of hosts to a Rekey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rekeys {
    /// The key is changed, and the caller is told so.
    #[default]
    Done,
    /// It is done, and nobody is told so: it is under way.
    Silently,
    /// It is refused.
    Refused,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<RegionId, Row>,
    /// How many regions there were.
    made: u32,
    /// How many keys were drawn.
    drawn: u64,
    rekeys: Rekeys,
    installed: Vec<RegionKey>,
    prepared: Vec<HostAddr>,
}

/// Fake hosts that reach each other.
#[derive(Clone, Default)]
pub struct FakeHosts(Rc<RefCell<Table>>);

impl fmt::Debug for FakeHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fake hosts with {} regions", self.0.borrow().rows.len())
    }
}

/// A process of one of them.
#[derive(Clone, Debug)]
pub struct FakeHost {
    /// All of them.
    pub hosts: FakeHosts,
    /// The process that asks.
    pub peer: Peer,
}

/// The end of an op: its status, and its result if it has one.
pub type Ended = (OpStatus, Option<u64>);

impl FakeHosts {
    /// A process of a host.
    #[must_use]
    pub fn host(&self, peer: Peer) -> FakeHost {
        FakeHost { hosts: self.clone(), peer }
    }

    /// A region by its name. The first one is 1.
    ///
    /// # Panics
    /// If it is not registered.
    #[must_use]
    pub fn region(&self, id: RegionId) -> RegisteredRegion {
        self.0.borrow().rows[&id].region.clone()
    }

    /// How many receives of a queue are posted.
    ///
    /// # Panics
    /// If it is not registered.
    #[must_use]
    pub fn posted(&self, queue: &ReceiveQueue) -> usize {
        self.0.borrow().rows[&queue.id()].queue.as_ref().map_or(0, |queue| queue.posts.len())
    }

    /// Has an event come, of an op of somebody's that says this.
    ///
    /// # Panics
    /// If no receive is posted.
    pub fn event(&self, queue: &ReceiveQueue, event: Event) {
        let table = &mut *self.0.borrow_mut();
        let receive = table.receive(queue.id()).expect("a receive is posted");
        table.publish(queue.id(), Event { receive, ..event });
    }

    /// Sets the answer to each Rekey from now on.
    pub fn set_rekeys(&self, rekeys: Rekeys) {
        self.0.borrow_mut().rekeys = rekeys;
    }

    /// The keys of all Rekeys that were done, in their order.
    #[must_use]
    pub fn installed(&self) -> Vec<RegionKey> {
        self.0.borrow().installed.clone()
    }

    /// The initiators that they were told of.
    #[must_use]
    pub fn prepared(&self) -> Vec<HostAddr> {
        self.0.borrow().prepared.clone()
    }
}

impl Table {
    /// A region's row.
    fn row(&mut self, id: RegionId) -> Result<&mut Row, Refused> {
        let row = self.rows.get_mut(&id);
        row.ok_or_else(|| Refused::new(RegionError::NotRegistered { region: id }))
    }

    /// Registers the row that `row` makes of its region.
    fn add(
        &mut self,
        memory: Arc<Region>,
        row: impl FnOnce(RegisteredRegion) -> Row,
    ) -> RegisteredRegion {
        self.made += 1;
        let id = RegionId::from_bits(self.made);
        let region = RegisteredRegion::new(id, memory, NIC);
        self.rows.insert(id, row(region.clone()));
        region
    }

    fn draw(&mut self) -> RegionKey {
        self.drawn += 1;
        RegionKey::from_bytes(u128::from(self.drawn).to_le_bytes())
    }

    /// Takes a receive that is posted.
    fn receive(&mut self, queue: RegionId) -> Option<Receive> {
        let queue = self.rows.get_mut(&queue)?.queue.as_mut()?;
        queue.posts.pop().map(|post| Receive(post.0[0] as u16))
    }

    fn publish(&mut self, queue: RegionId, event: Event) {
        let queue = self.rows.get_mut(&queue).and_then(|row| row.queue.as_mut());
        queue.expect("a queue").events.push(&event.to_line()).expect("as many as receives");
    }

    /// Returns the row of the region that an op of `from` is for, if it goes by the op's key and
    /// permits it.
    fn admit(&self, from: Peer, command: &Command) -> Result<&Row, OpStatus> {
        let (region, op_type) = (command.remote_region, command.op.op_type());
        let row = self.rows.get(&region).ok_or(OpStatus::RemoteAuthenticationFailure)?;
        let Peer { address: initiator, pid } = from;
        let binding = KeyBinding { initiator, responder: row.owner.address, pid, op_type };
        if RegionKeySchedule::new(&row.key).derive(&binding) != command.key
            || row.owner.address != command.responder
        {
            return Err(OpStatus::RemoteAuthenticationFailure);
        }
        if !row.permissions.contains(op_type.shape().permission) {
            return Err(OpStatus::RemotePermissionDenied);
        }
        Ok(row)
    }

    fn carry_out(&mut self, from: Peer, command: &Command, at: Instant) -> Result<Ended, OpStatus> {
        let row = self.admit(from, command)?;
        let (region, op_type) = (command.remote_region, command.op.op_type());
        let Peer { address: initiator, pid } = from;
        let (target, events) = (row.region.clone(), row.events);
        let local = |transfer: &Transfer| &self.rows[&transfer.local_region].region;
        let write = |it: &Transfer, offset: u64| {
            copy((local(it), it.local_offset), (&target, offset), it.op_size)
        };
        let event = |len, immediate, region_offset| {
            let receive = Receive(0);
            Event { op_type, receive, len, immediate, initiator, pid, region, region_offset, at }
        };
        let (event, message) = match &command.op {
            CommandOp::Read(it) => {
                let (here, there) = (local(it), &target);
                copy((there, it.remote_offset), (here, it.local_offset), it.op_size)?;
                return Ok((OpStatus::Ok, None));
            }
            CommandOp::Write(it) | CommandOp::Recorded { op: RecordedOp::OrderedWrite(it), .. } => {
                write(it, it.remote_offset)?;
                return Ok((OpStatus::Ok, None));
            }
            CommandOp::Recorded { op, .. } => match op {
                RecordedOp::CompareSwap { remote_offset, expected, new } => {
                    let found = target.compare_exchange(*remote_offset, *expected, *new);
                    return Ok((OpStatus::Ok, Some(found.or(Err(OpStatus::RemoteOutOfBounds))?)));
                }
                RecordedOp::FetchAdd { remote_offset, addend } => {
                    let found = target.fetch_add(*remote_offset, *addend);
                    return Ok((OpStatus::Ok, Some(found.or(Err(OpStatus::RemoteOutOfBounds))?)));
                }
                RecordedOp::WriteWithImm { transfer, immediate, .. } => {
                    let at = transfer.remote_offset;
                    (event(transfer.op_size, *immediate, at), Some((transfer, Some(at))))
                }
                RecordedOp::Send { message, immediate } => {
                    (event(message.op_size, *immediate, 0), Some((message, None)))
                }
                RecordedOp::Notify { immediate } => (event(0, *immediate, 0), None),
                op @ RecordedOp::OrderedWrite(_) => unreachable!("{op:?} makes no event"),
            },
            op => panic!("{op:?} is not for fake hosts"),
        };
        let queue = events.ok_or(OpStatus::RemotePermissionDenied)?;
        let layout = self.rows.get(&queue).and_then(|row| row.queue.as_ref()).map(|it| it.layout);
        let layout = layout.ok_or(OpStatus::RemotePermissionDenied)?;
        // The bytes are read before the receive is taken, as both are of one table.
        let bytes = message.map(|(it, offset)| {
            let mut bytes = vec![0; it.op_size as usize];
            local(it).read(it.local_offset, &mut bytes).map(|()| (bytes, offset))
        });
        let bytes = bytes.transpose().or(Err(OpStatus::RemoteOutOfBounds))?;
        let receive = self.receive(queue).ok_or(OpStatus::RemoteNotReady)?;
        if let Some((bytes, offset)) = bytes {
            let offset = offset.unwrap_or_else(|| layout.offset_of(receive));
            target.write(offset, &bytes).or(Err(OpStatus::RemoteOutOfBounds))?;
        }
        self.publish(queue, Event { receive, ..event });
        Ok((OpStatus::Ok, None))
    }
}

/// Copies bytes from one memory to another.
fn copy(
    (from, at): (&RegisteredRegion, u64),
    (to, there): (&RegisteredRegion, u64),
    len: u32,
) -> Result<(), OpStatus> {
    let mut bytes = vec![0; len as usize];
    from.read(at, &mut bytes).or(Err(OpStatus::RemoteOutOfBounds))?;
    to.write(there, &bytes).or(Err(OpStatus::RemoteOutOfBounds))
}

impl FakeHost {
    /// Whether the region of an op of this process goes by the op's key, and permits it.
    ///
    /// # Errors
    /// The status that the op ends with otherwise.
    pub fn admit(&self, command: &Command) -> Result<(), OpStatus> {
        self.hosts.0.borrow().admit(self.peer, command).map(drop)
    }

    /// Carries out an op of this process.
    #[must_use]
    pub fn carry_out(&self, command: &Command, at: Instant) -> Ended {
        let done = self.hosts.0.borrow_mut().carry_out(self.peer, command, at);
        done.unwrap_or_else(|status| (status, None))
    }
}

impl Gate for FakeHost {
    fn identity(&self) -> Identity {
        self.peer.into()
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        Ok(self.hosts.0.borrow_mut().draw())
    }

    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        let (owner, events) = (self.peer, events.map(ReceiveQueue::id));
        let row = |region| Row { owner, region, key, permissions, events, queue: None };
        Ok(self.hosts.0.borrow_mut().add(memory, row))
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        let table = &mut *self.hosts.0.borrow_mut();
        let memory = Arc::new(Region::new(layout.memory_len()).map_err(Refused::new)?);
        let (owner, key, rings) = (self.peer, table.draw(), ReceiveQueueMemory::heap(layout));
        let posts = rings.posts().clone().into_consumer();
        let events = rings.events().clone().into_producer();
        let region = table.add(memory, |region| {
            let (events, queue) = (Some(region.id()), Some(Queue { layout, posts, events }));
            Row { owner, region, key, permissions, events, queue }
        });
        Ok(rings.into_application(region))
    }

    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused> {
        let table = &mut *self.hosts.0.borrow_mut();
        table.row(region.id())?;
        table.rows.remove(&region.id());
        Ok(())
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        let table = &mut *self.hosts.0.borrow_mut();
        let row = table.row(region.id())?;
        let longest = row.queue.as_ref().map(|queue| queue.layout.buffer_len().into());
        let (responder, initiator, pid) = (self.peer.address, peer.address, peer.pid);
        let binding = KeyBinding { initiator, responder, pid, op_type };
        let key = RegionKeySchedule::new(&row.key).derive(&binding);
        let (region_len, region) = (longest.unwrap_or(region.reach()), region.id());
        Ok(Grant { responder, region, region_len, initiator, pid, op_type, key })
    }

    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        let table = &mut *self.hosts.0.borrow_mut();
        let refused = Refused::new(RegionError::NotRegistered { region: region.id() });
        if table.rekeys == Rekeys::Refused {
            return Err(refused);
        }
        table.row(region.id())?.key = key;
        table.installed.push(key);
        match table.rekeys {
            Rekeys::Silently => Err(refused.with_under_way(true)),
            _ => Ok(()),
        }
    }

    fn prepare(&self, initiator: HostAddr) {
        self.hosts.0.borrow_mut().prepared.push(initiator);
    }
}

/// The engine of a process of a fake host: it takes commands, and ends ops as the test says.
#[derive(Debug)]
pub struct FakeEngine {
    /// The process whose ops these are.
    pub host: FakeHost,
    /// The ops under way, the oldest first.
    pub taken: Vec<Command>,
    port: PortalPort,
}

impl FakeEngine {
    /// An engine, and the portal of so many slots that it serves.
    #[must_use]
    pub fn new(host: FakeHost, slots: u16) -> (CommandPortal, Self) {
        let (addresses, pid) = (host.peer.address.into(), host.peer.pid);
        let config =
            PortalConfig { slots: 0..slots, pid, addresses, bell: None, flag: None, nic: NIC };
        let (portal, port) = portal(config);
        (portal, Self { host, taken: Vec::new(), port })
    }

    /// Takes what was issued; returns how much that was.
    ///
    /// # Panics
    /// If a command is none.
    pub fn take(&mut self) -> usize {
        let before = self.taken.len();
        self.taken
            .extend(core::iter::from_fn(|| self.port.take()).map(|it| it.expect("a command")));
        self.taken.len() - before
    }

    /// Carries out the op that is under way at this place.
    pub fn apply(&mut self, index: usize, now: Instant) -> OpStatus {
        let command = self.taken.remove(index);
        let ended = self.host.carry_out(&command, now);
        self.end(&command, ended);
        ended.0
    }

    /// Ends the op that is under way at this place, without carrying it out.
    pub fn fail(&mut self, index: usize, status: OpStatus) {
        let command = self.taken.remove(index);
        self.end(&command, (status, None));
    }

    /// Ends an op that was taken out.
    pub fn end(&mut self, command: &Command, (status, result): Ended) {
        let flags = if result.is_some() { RESULT } else { 0 };
        self.complete(command, status, flags, [result.unwrap_or(0), 0]);
    }

    /// Ends an op whose answer was lost, as number `name` of this portal.
    pub fn lose(&mut self, command: &Command, name: u64) {
        self.complete(command, OpStatus::Timeout, UNKNOWN, [0, name]);
    }

    /// Answers a question about an op whose answer was lost.
    pub fn settle(&mut self, command: &Command, verdict: Verdict, result: u64) {
        self.complete(command, OpStatus::Ok, RESULT + verdict as u64 * VERDICT, [result, 0]);
    }

    fn complete(&mut self, command: &Command, status: OpStatus, flags: u64, rest: [u64; 2]) {
        let head = u64::from(command.slot.0) | (status as u64) << 16 | flags << 24;
        let line = Line([head, 0, 1_000, rest[0], rest[1], 0, 0, 0]);
        self.port.complete(&Completion::from_line(&line).expect("a completion"));
    }
}

/// Flags of a completion's line: a result; a verdict; reached, may have changed, and named.
const RESULT: u64 = 8;
const VERDICT: u64 = 16;
const UNKNOWN: u64 = 1 | 2 | 4;
