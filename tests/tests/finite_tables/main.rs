//! P5: all memory of a NIC is allocated when it is made. None of it follows the number of peers,
//! and a full table is an error or a NACK, never growth. S4 in `star`: the stateless side of StaR
//! keeps nothing of a connection.
//!
//! The allocator of this test program counts what each thread asks of it. What it counts is what
//! [`watch`] watches: what a NIC does, and not what the tests do around it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod engines;
mod star;

use core::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    time::Duration,
};
use std::{alloc::System, sync::Arc};

use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    backend::{RxFrame, RxPacket},
    command::{Command, CommandOp, CommandSlotId, Completion, RecordedOp, Transfer},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    error::{CommandError, DropReason, NotSent, RegionError},
    nic::{Nic, NicConfigBuilder, NicCounters, NicPlace, RegionEntry, TableMemory},
    op::{ClassOfService, OpStatus, OpType},
    outcome::Verdict,
    port::{Port, SourcePort},
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_xdp::Region;

/// The requests of a thread to the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Calls, of any kind.
    calls: u64,
    /// Bytes that were allocated and not given back.
    bytes: i64,
}

thread_local! {
    // Without a destructor, and without a first use that would allocate.
    static COUNT: Cell<Count> = const { Cell::new(Count { calls: 0, bytes: 0 }) };
}

struct Counting;

fn count(bytes: i64) {
    let count = COUNT.get();
    COUNT.set(Count { calls: count.calls + 1, bytes: count.bytes + bytes });
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Does something, and adds to `sum` what it asked of the allocator.
fn watch<T>(sum: &mut Count, work: impl FnOnce() -> T) -> T {
    let before = COUNT.get();
    let result = work();
    let after = COUNT.get();
    sum.calls += after.calls - before.calls;
    sum.bytes += after.bytes - before.bytes;
    result
}

const NOTHING: Count = Count { calls: 0, bytes: 0 };

const KEY: RegionKey = RegionKey::from_bytes([3; 16]);

/// The NIC that is watched. All that it allocates after it was made is in `count`.
struct Responder {
    nic: Nic,
    addresses: [HostAddr; 2],
    memory: Arc<Region>,
    region: RegionId,
    /// A region whose key is replaced now and then, and its present key.
    rekeyed: (RegionId, RegionKey),
    /// The application's end of a receive queue. What it does is not counted.
    queue: ReceiveQueue,
    count: Count,
}

impl Responder {
    fn new(settings: NicConfigBuilder) -> Self {
        let addresses = ["10.255.0.1", "2001:db8::1:0:0:1"].map(|it| it.parse().unwrap());
        let mut both = LocalAddresses::from(addresses[0]);
        both.insert(addresses[1]);
        let mut nic = Nic::new(settings.build(NicPlace::at(both)).unwrap());
        let memory = Arc::new(Region::new(4096).unwrap());
        memory.copy_in(0, &[9; 4096]).unwrap();
        let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
        let region = register(&mut nic, &memory, all | Permissions::ATOMIC, Pid(0)).unwrap();
        let rekeyed = (register(&mut nic, &memory, all, Pid(0)).unwrap(), KEY);
        let queue = register_queue(&mut nic);
        Self { nic, addresses, memory, region, rekeyed, queue, count: NOTHING }
    }

    fn address_for(&self, initiator: HostAddr) -> HostAddr {
        self.addresses[usize::from(!initiator.is_ipv4())]
    }

    fn take(&mut self, now: Instant, frame: &mut Frame) -> Result<(), DropReason> {
        let Self { nic, count, .. } = self;
        watch(count, || frame.give(now, nic))
    }

    fn expire(&mut self, now: Instant) {
        let Self { nic, count, .. } = self;
        watch(count, || nic.handle_timeout(now));
    }

    fn send(&mut self, now: Instant) -> Option<Frame> {
        let Self { nic, count, .. } = self;
        watch(count, || Frame::of(now, nic))
    }
}

fn register(
    nic: &mut Nic,
    memory: &Arc<Region>,
    permissions: Permissions,
    owner: Pid,
) -> Result<RegionId, RegionError> {
    let entry = Box::new(RegionEntry::new(memory.clone(), &KEY, permissions, owner));
    nic.regions_mut().register(entry).map_err(|(error, _)| error)
}

/// A queue of eight receives, all posted, with buffers of 64 bytes.
fn register_queue(nic: &mut Nic) -> ReceiveQueue {
    let layout = ReceiveQueueLayout::new(8, 64).unwrap();
    let (rings, memory) = (ReceiveQueueMemory::heap(layout), Arc::new(Region::new(512).unwrap()));
    let port = rings.clone().into_port(None);
    let (permissions, owner) = (Permissions::SEND, Pid(0));
    let entry = RegionEntry::receive_queue(port, memory.clone(), &KEY, permissions, owner);
    let id = nic.regions_mut().register(Box::new(entry)).unwrap();
    let mut queue = rings.into_application(RegisteredRegion::new(id, memory, NicTag(0)));
    queue.post_all();
    queue
}

/// A frame on its way, in a place of its own.
struct Frame {
    source: HostAddr,
    destination: HostAddr,
    octets: [u8; 256],
    len: usize,
}

impl Frame {
    /// The next frame that `nic` sends.
    fn of(now: Instant, nic: &mut Nic) -> Option<Self> {
        let mut octets = [0; 256];
        let transmit = nic.poll_transmit(now, &mut octets)?;
        let (source, destination) = (transmit.source, transmit.destination);
        Some(Self { source, destination, octets, len: transmit.len })
    }

    fn give(&mut self, now: Instant, nic: &mut Nic) -> Result<(), DropReason> {
        let Self { source, destination, ref mut octets, len } = *self;
        let bytes = &mut octets[..len];
        nic.handle_frame(
            now,
            &now,
            RxFrame::alone(RxPacket {
                source,
                destination,
                port: Port::ONE_RMA,
                source_port: SourcePort::FIRST,
                // As long as the place, so that larger ops come in several frames.
                reply_len_max: 256,
                link: None,
                bytes,
            }),
        )
    }
}

/// One of many initiators: as small a NIC as can be.
struct Peer {
    nic: Nic,
    address: HostAddr,
    pid: Pid,
    local: RegionId,
}

impl Peer {
    /// Initiator number `n`: no other has its address, or its PID.
    fn new(n: u32, memory: &Arc<Region>) -> Self {
        Self::with(n, memory, Permissions::NONE)
    }

    /// The same, whose region others may use so.
    fn with(n: u32, memory: &Arc<Region>, permissions: Permissions) -> Self {
        let [a, b, c, d] = n.to_be_bytes();
        let address = if n.is_multiple_of(4) {
            HostAddr::from_octets([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
        } else {
            HostAddr::from([10, b, c, d])
        };
        let settings = NicConfigBuilder::default().with(|it| {
            it.command_slots = 4;
            it.regions = 1;
            it.inbound_queue = 1;
            it.pending_writes = 1;
        });
        let mut nic = Nic::new(settings.build(NicPlace::at(address)).unwrap());
        let pid = Pid(n);
        nic.configure_slots(0..4, Some(pid));
        let local = register(&mut nic, memory, permissions, pid).unwrap();
        Self { nic, address, pid, local }
    }

    fn key(&self, responder: &Responder, key: &RegionKey, op_type: OpType) -> DerivedRegionKey {
        RegionKeySchedule::new(key).derive(&KeyBinding {
            initiator: self.address,
            responder: responder.address_for(self.address),
            pid: self.pid,
            op_type,
        })
    }

    /// 64 bytes from or to the start of the responder's region.
    fn transfer(&self) -> Transfer {
        Transfer { op_size: 64, remote_offset: 0, local_region: self.local, local_offset: 0 }
    }

    /// Issues an op under its right key, and gives the request.
    fn request(&mut self, now: Instant, slot: u16, op: CommandOp, to: &Responder) -> Frame {
        let (region, key) = match op {
            CommandOp::Read(_) | CommandOp::Write(_) => (to.region, KEY),
            CommandOp::Rekey(_) => to.rekeyed,
            CommandOp::Recorded { op: RecordedOp::Send { .. }, .. } => (to.queue.id(), KEY),
            CommandOp::Recorded { .. } | CommandOp::Settle { .. } => (to.region, KEY),
        };
        let key = self.key(to, &key, op.op_type());
        self.request_under(now, slot, op, to, (region, key))
    }

    fn request_under(
        &mut self,
        now: Instant,
        slot: u16,
        op: CommandOp,
        to: &Responder,
        (remote_region, key): (RegionId, DerivedRegionKey),
    ) -> Frame {
        let command = Command {
            slot: CommandSlotId(slot),
            class: ClassOfService::ALL[usize::from(slot) % 2],
            responder: to.address_for(self.address),
            remote_region,
            key,
            op,
        };
        self.nic.handle_command(now, command).unwrap();
        Frame::of(now, &mut self.nic).expect("a request")
    }

    fn take(&mut self, now: Instant, mut frame: Frame) {
        frame.give(now, &mut self.nic).unwrap();
    }

    fn status(&mut self) -> Option<OpStatus> {
        self.nic.poll_completion().map(|Completion { status, .. }| status)
    }
}

const fn recorded(op: RecordedOp) -> CommandOp {
    CommandOp::Recorded { op, done: None }
}

/// Carries a request there, and all that follows to and fro. What goes to others, who are gone, is
/// lost. How the op ended.
fn finish(now: Instant, peer: &mut Peer, to: &mut Responder, request: Frame) -> OpStatus {
    end(now, peer, to, request).status
}

/// The same, with all that is told of the end.
fn end(now: Instant, peer: &mut Peer, to: &mut Responder, mut request: Frame) -> Completion {
    let _ = to.take(now, &mut request);
    loop {
        while let Some(answer) = to.send(now) {
            if answer.destination == peer.address {
                peer.take(now, answer);
            }
        }
        if let Some(completion) = peer.nic.poll_completion() {
            return completion;
        }
        let mut data = Frame::of(now, &mut peer.nic).expect("the op goes on");
        to.take(now, &mut data).unwrap();
    }
}

#[test]
fn a_nic_allocates_what_its_memory_says_and_its_counters() {
    // Shared with whoever wants to read them: in an `Arc`.
    let counters = size_of::<NicCounters>() + 2 * size_of::<usize>();
    let settings = || {
        NicConfigBuilder::default().with(|it| {
            it.command_slots = 100;
            it.regions = 50;
            it.inbound_queue = 30;
            it.pending_writes = 20;
        })
    };
    let sizes: [fn(&mut NicConfigBuilder); 8] = [
        |_| {},
        |it| it.command_slots *= 2,
        |it| it.regions *= 2,
        |it| it.inbound_queue *= 2,
        |it| it.pending_writes *= 2,
        |it| it.outcome_records *= 2,
        |it| it.solicitation_window *= 2,
        |it| it.command_slots = 65_535,
    ];
    for (index, change) in sizes.into_iter().enumerate() {
        let mut settings = settings();
        change(&mut settings);
        let config = settings.build(NicPlace::at(HostAddr::from([192, 0, 2, 1]))).unwrap();
        let mut count = NOTHING;
        let nic = watch(&mut count, || Nic::new(config));
        let tables: usize = nic.memory().iter().map(TableMemory::bytes).sum();
        assert_eq!(count.bytes, (tables + counters) as i64, "row {index}: {settings:?}");
        watch(&mut count, || drop(nic));
        assert_eq!(count.bytes, 0, "all of it is given back");
    }
}

/// A FETCH_ADD, which is asked about; a message; and an ordered WRITE in several frames. Of most
/// initiators the last two are abandoned at some hop.
fn recorded_ops(now: Instant, peer: &mut Peer, to: &mut Responder) {
    let n = peer.pid.0;
    let add = recorded(RecordedOp::FetchAdd { remote_offset: 4088, addend: 1 });
    let request = peer.request(now, 0, add, to);
    let added = end(now, peer, to, request);
    assert_eq!((added.status, added.result().is_some()), (OpStatus::Ok, true), "{n}");
    let settle = CommandOp::Settle { op_type: OpType::FetchAdd, name: added.name().unwrap() };
    let request = peer.request(now, 0, settle, to);
    let told = end(now, peer, to, request);
    assert_eq!((told.verdict(), told.result()), (Some(Verdict::Applied), added.result()), "{n}");

    let message = recorded(RecordedOp::Send { message: peer.transfer(), immediate: n.into() });
    let whole = Transfer { op_size: 512, ..peer.transfer() };
    let ordered = recorded(RecordedOp::OrderedWrite(whole));
    let Responder { nic, queue, count, .. } = to;
    while let Some(event) = queue.poll() {
        queue.post(event.receive).unwrap();
    }
    watch(count, || nic.handle_timeout(now));
    for (slot, op) in [(0, message), (1, ordered)] {
        let mut request = peer.request(now, slot, op, to);
        if n.is_multiple_of(10) {
            assert_eq!(finish(now, peer, to, request), OpStatus::Ok, "{n}: {op:?}");
            continue;
        }
        to.take(now, &mut request).unwrap();
        if !n.is_multiple_of(3) {
            continue;
        }
        // As far as the first of its data.
        while let Some(answer) = to.send(now) {
            if answer.destination == peer.address {
                peer.take(now, answer);
            }
        }
        let mut data = Frame::of(now, &mut peer.nic).expect("it was solicited");
        to.take(now, &mut data).unwrap();
        // Its other frames, and what it would be told, are lost.
        while Frame::of(now, &mut peer.nic).is_some() {}
        while to.send(now).is_some() {}
        while peer.status().is_some() {}
    }
}

//= 1rma#4.2-no-peer-state
//= type=test
//= channels#P5-fixed-tables
//= type=test
#[test]
fn the_memory_of_a_nic_is_constant_from_1_to_100_000_initiators() {
    const MOST: u32 = 100_000;
    let mut responder = Responder::new(NicConfigBuilder::default());
    let local = Arc::new(Region::new(4096).unwrap());
    let mut now = Instant::from_nanos(1);
    let mut abandoned = [0, 0];
    for n in 1..=MOST {
        let mut peer = Peer::new(n, &local);
        let transfer = peer.transfer();

        let read = peer.request(now, 0, CommandOp::Read(transfer), &responder);
        assert_eq!(finish(now, &mut peer, &mut responder, read), OpStatus::Ok, "{n}");

        let wrong = (responder.region, DerivedRegionKey::from_bytes([n as u8; 16]));
        let op = CommandOp::Read(transfer);
        let forged = peer.request_under(now, 1, op, &responder, wrong);
        let status = finish(now, &mut peer, &mut responder, forged);
        assert_eq!(status, OpStatus::RemoteAuthenticationFailure, "{n}");

        recorded_ops(now, &mut peer, &mut responder);

        let mut write = peer.request(now, 2, CommandOp::Write(transfer), &responder);
        match n % 10 {
            0 => {
                local.copy_in(0, &[n as u8 | 1; 64]).unwrap();
                assert_eq!(finish(now, &mut peer, &mut responder, write), OpStatus::Ok, "{n}");
                let mut landed = [0; 64];
                responder.memory.copy_out(0, &mut landed).unwrap();
                assert_eq!(landed, [n as u8 | 1; 64]);
            }
            // Gone after the first hop, or after the second: the solicitation is never answered.
            hops => {
                responder.take(now, &mut write).unwrap();
                if hops % 2 == 0 {
                    assert!(responder.send(now).is_some(), "a solicitation");
                }
                abandoned[usize::from(hops % 2 == 0)] += 1;
            }
        }

        if n.is_multiple_of(100) {
            let next = RegionKey::from_bytes(u128::from(n).to_be_bytes());
            let rekey = peer.request(now, 3, CommandOp::Rekey(next), &responder);
            assert_eq!(finish(now, &mut peer, &mut responder, rekey), OpStatus::Ok, "{n}");
            responder.rekeyed.1 = next;
        }

        // An abandoned op is forgotten in time, and then there is room again.
        now = now + Duration::from_millis(10);
        responder.expire(now);
        let is_power_of_ten = (0..=5).any(|power| n == 10_u32.pow(power));
        if is_power_of_ten {
            assert_eq!(responder.count, NOTHING, "after {n} initiators");
        }
    }
    assert_eq!(abandoned, [MOST / 2, MOST / 10 * 4]);
    let gauges = responder.nic.gauges();
    assert!(gauges.staging_used > 0 && gauges.outcome_records_used > 0, "{gauges:?}");
    let nacked = |it: &DropReason| it.refused_with() == Some(OpStatus::Nack);
    let counters = responder.nic.counters();
    let unread: u64 = DropReason::ALL.into_iter().filter(nacked).map(|it| counters.drops(it)).sum();
    assert_eq!(unread, 0, "every request had its place");
    println!("{:?}", responder.nic.memory());
}

/// Has the watched NIC issue an op to one of many responders, and carries all that follows to and
/// fro. How it ended.
fn ask(now: Instant, asker: &mut Responder, command: Command, to: &mut Peer) -> OpStatus {
    watch(&mut asker.count, || asker.nic.handle_command(now, command)).unwrap();
    loop {
        while let Some(mut frame) = asker.send(now) {
            frame.give(now, &mut to.nic).unwrap();
        }
        if let Some(done) = watch(&mut asker.count, || asker.nic.poll_completion()) {
            return done.status;
        }
        let mut answer = Frame::of(now, &mut to.nic).expect("the op goes on");
        asker.take(now, &mut answer).unwrap();
    }
}

/// Of the other side as well: whom it asks, and whether they answer, leaves nothing behind.
//= 1rma#4.2-no-peer-state
//= type=test
#[test]
fn the_memory_of_a_nic_is_constant_from_1_to_10_000_responders() {
    const MOST: u32 = 10_000;
    const PID: Pid = Pid(7);
    /// More than are ever under way to those who do not answer.
    const SILENT: u32 = 16;
    let mut asker = Responder::new(NicConfigBuilder::default());
    asker.nic.configure_slots(0..2 + SILENT as u16, Some(PID));
    let local_region = register(&mut asker.nic, &asker.memory, Permissions::NONE, PID).unwrap();
    let memory = Arc::new(Region::new(4096).unwrap());
    let mut now = Instant::from_nanos(1);
    let mut timed_out = 0;
    for n in 1..=MOST {
        let mut peer = Peer::with(n, &memory, Permissions::READ | Permissions::WRITE);
        let transfer = Transfer { local_region, ..peer.transfer() };
        let command = |slot, op: CommandOp, responder| {
            let key = RegionKeySchedule::new(&KEY).derive(&KeyBinding {
                initiator: asker.address_for(peer.address),
                responder,
                pid: PID,
                op_type: op.op_type(),
            });
            let (slot, class) = (CommandSlotId(slot), ClassOfService::ALL[n as usize % 2]);
            Command { slot, class, responder, remote_region: peer.local, key, op }
        };
        let read = command(0, CommandOp::Read(transfer), peer.address);
        let write = command(1, CommandOp::Write(transfer), peer.address);
        // Nobody has that address.
        let mut nobody = peer.address.to_octets();
        nobody[13] ^= 0x80;
        let slot = 2 + (n % SILENT) as u16;
        let lost = command(slot, CommandOp::Read(transfer), HostAddr::from_octets(nobody));
        for command in [read, write] {
            assert_eq!(ask(now, &mut asker, command, &mut peer), OpStatus::Ok, "{n}");
        }
        watch(&mut asker.count, || asker.nic.handle_command(now, lost)).unwrap();
        assert!(asker.send(now).is_some(), "a request");

        now = now + Duration::from_millis(10);
        asker.expire(now);
        while let Some(done) = watch(&mut asker.count, || asker.nic.poll_completion()) {
            assert_eq!(done.status, OpStatus::Timeout);
            timed_out += 1;
        }
        if [1, 10, 100, 1_000, MOST].contains(&n) {
            assert_eq!(asker.count, NOTHING, "after {n} responders");
        }
    }
    assert!(timed_out + SILENT > MOST, "{timed_out}");
}

/// Carries all frames to and fro until there is none.
fn exchange(now: Instant, peers: &mut [Peer], responder: &mut Responder) {
    loop {
        let mut is_over = true;
        while let Some(frame) = responder.send(now) {
            is_over = false;
            let to = peers.iter_mut().find(|peer| peer.address == frame.destination);
            to.expect("one of them").take(now, frame);
        }
        for peer in &mut *peers {
            while let Some(mut frame) = Frame::of(now, &mut peer.nic) {
                is_over = false;
                responder.take(now, &mut frame).unwrap();
            }
        }
        if is_over {
            return;
        }
    }
}

/// How many failure notices of a NIC may wait to be sent, and how many it sends at once to those
/// without a key.
const NOTICES: usize = 256;

#[test]
fn full_tables_are_nacks_and_errors_and_do_not_grow() {
    let settings = NicConfigBuilder::default().with(|it| {
        it.regions = 5;
        it.inbound_queue = 5;
        it.pending_writes = 3;
    });
    let mut responder = Responder::new(settings);
    let local = Arc::new(Region::new(4096).unwrap());
    let mut now = Instant::from_nanos(1);
    let mut peers: Vec<Peer> = (1..=400).map(|n| Peer::new(n, &local)).collect();

    // Requests from many at once: those that there is room for are done, and the others are NACKed.
    // Of the NACKs too only so many wait to be sent; whoever gets none learns by its timeout.
    for (slot, room) in [(0, 5), (1, 5), (2, 3)] {
        let mut taken = Vec::new();
        for peer in &mut peers {
            let transfer = peer.transfer();
            let op = if slot == 2 { CommandOp::Write(transfer) } else { CommandOp::Read(transfer) };
            let mut request = peer.request(now, slot, op, &responder);
            taken.push(responder.take(now, &mut request));
        }
        assert_eq!(taken[..room], vec![Ok(()); room]);
        // An initiator that finds no place may take that of another who shares a list with others.
        let full = |it: &Result<(), DropReason>| {
            it.map_or_else(|why| why.refused_with() == Some(OpStatus::Nack), |()| true)
        };
        assert!(taken.iter().all(full));
        exchange(now, &mut peers, &mut responder);
        now = now + Duration::from_secs(1);
        responder.expire(now);
        let mut ended = [0; OpStatus::ALL.len()];
        for peer in &mut peers {
            peer.nic.handle_timeout(now);
            ended[peer.status().expect("every op has ended") as usize] += 1;
        }
        // The one that makes room depends on who shares a list with whom, and how many do not.
        let count = |status: OpStatus| ended[status as usize];
        assert_eq!((count(OpStatus::Ok), count(OpStatus::Nack)), (room, NOTICES));
        assert_eq!(count(OpStatus::Timeout), peers.len() - room - NOTICES);
    }
    let not_sent = |responder: &Responder, reason| responder.nic.counters().not_sent(reason);
    let unsent = not_sent(&responder, NotSent::NoticeQueueFull);
    assert_eq!(unsent as usize, 3 * (peers.len() - NOTICES) - (5 + 5 + 3));

    // Those without the key are told so at a limited rate.
    for peer in &mut peers {
        let op = CommandOp::Read(peer.transfer());
        let wrong = (responder.region, DerivedRegionKey::from_bytes([7; 16]));
        let mut forged = peer.request_under(now, 3, op, &responder, wrong);
        let refused = responder.take(now, &mut forged);
        assert_eq!(refused, Err(DropReason::RequestUnauthenticated));
    }
    let told = core::iter::from_fn(|| responder.send(now)).count();
    let untold = not_sent(&responder, NotSent::NoticeQueueFull) - unsent;
    assert_eq!((told, told + untold as usize), (NOTICES, peers.len()));
    assert_eq!(responder.count, NOTHING);

    // Regions: three are there already. What is refused is given back, and nothing is evicted.
    let two_more = [0, 1].map(|_| {
        register(&mut responder.nic, &local, Permissions::READ, Pid(0)).expect("there is room")
    });
    let entry = Box::new(RegionEntry::new(local.clone(), &KEY, Permissions::READ, Pid(0)));
    let Responder { nic, count, .. } = &mut responder;
    let (error, entry) = watch(count, || nic.regions_mut().register(entry)).unwrap_err();
    assert_eq!(error, RegionError::TableFull { capacity: 5 });
    let entry = watch(count, || {
        let old = nic.deregister(two_more[0]).unwrap();
        assert!(nic.regions_mut().register(entry).is_ok(), "room again");
        old
    });
    drop(entry);

    // Slots: none can be issued twice, and there are no more than there are.
    let peer = &mut peers[0];
    let op = CommandOp::Read(peer.transfer());
    let read = |slot| {
        let slot = CommandSlotId(slot);
        let (responder, key) = ([10, 255, 0, 1].into(), DerivedRegionKey::from_bytes([1; 16]));
        let (class, remote_region) = (ClassOfService::Latency, RegionId::from_bits(0));
        Command { slot, class, responder, remote_region, key, op }
    };
    let mut issue = |slot| watch(count, || peer.nic.handle_command(now, read(slot)));
    assert_eq!(issue(3), Err(CommandError::SlotBusy { slot: 3 }));
    assert_eq!(issue(4), Err(CommandError::ForeignSlot { slot: 4 }));
    assert_eq!([0, 1, 2].map(&mut issue), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(responder.count, NOTHING);
}

#[test]
fn full_records_and_queues_are_answers_and_do_not_grow() {
    let settings = NicConfigBuilder::default().with(|it| {
        it.outcome_records = 4;
        it.pending_writes = 4;
    });
    let mut responder = Responder::new(settings);
    let local = Arc::new(Region::new(4096).unwrap());
    let now = Instant::from_nanos(1);
    let mut peers: Vec<Peer> = (1..=40).map(|n| Peer::new(n, &local)).collect();
    // Applied ops are kept for their initiators, as long as their region has fewer than three times
    // as many records as are free.
    let add = recorded(RecordedOp::FetchAdd { remote_offset: 0, addend: 1 });
    let statuses: Vec<_> = peers
        .iter_mut()
        .map(|peer| {
            let request = peer.request(now, 0, add, &responder);
            finish(now, peer, &mut responder, request)
        })
        .collect();
    assert_eq!(statuses[..3], [OpStatus::Ok; 3]);
    assert_eq!(statuses[3..], [OpStatus::Nack; 37]);
    // The rest is for others: one message, though more receives are posted.
    let statuses: Vec<_> = peers
        .iter_mut()
        .map(|peer| {
            let op = RecordedOp::Send { message: peer.transfer(), immediate: 1 };
            let request = peer.request(now, 0, recorded(op), &responder);
            finish(now, peer, &mut responder, request)
        })
        .collect();
    assert_eq!(statuses[..1], [OpStatus::Ok; 1]);
    assert_eq!(statuses[1..], [OpStatus::Nack; 39]);
    // When their time is over, there is room for messages, as long as there are receives.
    let later = now + Duration::from_secs(1);
    responder.expire(later);
    let mut statuses = Vec::new();
    for n in 0..10 {
        let later = later + Duration::from_secs(n);
        responder.expire(later);
        let peer = &mut peers[n as usize];
        let op = RecordedOp::Send { message: peer.transfer(), immediate: 1 };
        let request = peer.request(later, 0, recorded(op), &responder);
        statuses.push(finish(later, peer, &mut responder, request));
    }
    assert_eq!(statuses[..7], [OpStatus::Ok; 7]);
    assert_eq!(statuses[7..], [OpStatus::RemoteNotReady; 3]);
    assert_eq!(responder.count, NOTHING);
}
