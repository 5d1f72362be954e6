//! The bodies of the fuzz targets. They live here so that the fuzzer, which needs a nightly compiler, and the
//! ordinary test that replays the corpus run the same code.
//!
//! Each takes arbitrary bytes and panics if a promise is broken.

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    backend::{RxFrame, Transmit},
    command::{Command, CommandSlotId},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    error::CommandError,
    limits::OP_SIZE_MAX,
    nic::{Nic, NicConfigBuilder, NicCounters, ReceiveLenMax, RegionEntry, Timing},
    op::{ClassOfService, OpStatus, OpType},
    region::{Permissions, RegionId},
    time::Instant,
    wire::{
        FRAME_LEN_MAX, FrameView, VERSION,
        failure::{FAILURE_HEADER_LEN, FAILURE_LEN},
        read::{REQUEST_HEADER_LEN, REQUEST_LEN, RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
    },
};
use rma_shm::{Line, Region};

use crate::prng::Prng;

mod portals;
mod ring;

/// Any bytes either are no frame, or a header that writes back to the same octets.
pub fn wire(data: &[u8]) {
    let Ok(view) = FrameView::parse(data) else { return };
    match view {
        FrameView::ReadRequest(view) => {
            let mut out = [0xaa; REQUEST_LEN];
            view.claims().emit(&mut out);
            assert_eq!(data[..REQUEST_HEADER_LEN], out[..REQUEST_HEADER_LEN]);
            assert_eq!((data.len(), view.octets().as_slice()), (REQUEST_LEN, data));
        }
        FrameView::ReadResponse(view) => {
            let mut out = [0xaa; RESPONSE_HEADER_LEN];
            view.claims().emit(&mut out);
            assert_eq!(data[..RESPONSE_HEADER_LEN], out);
            let (start, end) = view.claims().span();
            assert_eq!(data.len(), RESPONSE_OVERHEAD + (end - start) as usize);
            assert!(end <= OP_SIZE_MAX && data.len() <= FRAME_LEN_MAX);
        }
        FrameView::Failure(view) => {
            let mut out = [0xaa; FAILURE_LEN];
            view.claims().emit(&mut out);
            assert_eq!(data[..FAILURE_HEADER_LEN], out[..FAILURE_HEADER_LEN]);
            assert_eq!(data.len(), FAILURE_LEN);
        }
    }
}

/// Two NICs, and whatever the bytes say: commands, frames (honest, changed, invented), time, regions that go.
///
/// Asserts: one completion for each command that was taken, within its bound; the window; right data; nothing
/// accepted that no NIC sealed. Returns how many ops ended with each status.
pub fn nic(data: &[u8]) -> [u64; OpStatus::ALL.len()] {
    let mut script = Script(data);
    let mut world = World::new(data, &mut script);
    while let Some(step) = script.byte() {
        world.step(step, &mut script);
        world.check();
    }
    world.finish()
}

/// A ring that is used by rules and against them; or, above it, an engine with two honest applications and one
/// that writes what it likes into its portal's memory.
///
/// Asserts: every call does what the memory says, whoever wrote it; the honest applications' ops all end with OK,
/// without one turn of delay, and nobody else touches their memory; the hostile one gets a completion for each
/// command that was taken, and nobody else's. Returns what the engine counted, if there was one.
pub fn ring(data: &[u8]) -> Option<Arc<NicCounters>> {
    let mut script = Script(data);
    if script.number() % 4 == 0 {
        ring::run(&mut script);
        return None;
    }
    Some(portals::run(&mut script))
}

/// An index that is not the writer's to write: often a little wrong, sometimes anything.
fn hostile_index(now: u32, script: &mut Script<'_>) -> u32 {
    match script.number() {
        kind if kind & 1 == 0 => now.wrapping_add_signed((script.number() as i8).into()),
        _ => (script.wide() << 16 | script.wide()) as u32,
    }
}

/// What is left of the input. At its end it reads as zeros.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> usize {
        self.byte().unwrap_or(0).into()
    }

    fn wide(&mut self) -> u64 {
        u64::from(self.byte().unwrap_or(0)) << 8 | u64::from(self.byte().unwrap_or(0))
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }
}

/// A frame that a NIC sealed.
struct Sealed {
    transmit: Transmit,
    bytes: Vec<u8>,
}

/// A command that was taken and has not completed.
#[derive(Clone, Copy)]
struct Taken {
    at: Instant,
    /// What an OK has to have read; `None` if it may not end with OK.
    reads: Option<(u64, u32)>,
}

struct Host {
    nic: Nic,
    addr: HostAddr,
    source: RegionId,
    sink: RegionId,
    key: RegionKey,
    source_memory: Arc<Region>,
    sink_memory: Arc<Region>,
    taken: Vec<Option<Taken>>,
}

struct World {
    now: Instant,
    hosts: [Host; 2],
    sealed: Vec<Sealed>,
    timing: Timing,
    statuses: [u64; OpStatus::ALL.len()],
}

const PID: Pid = Pid(77);
const SOURCE_LEN: u64 = 3 * OP_SIZE_MAX as u64;
const SLOTS_MAX: usize = 8;

/// Frames that are kept to be delivered, so that a long input does not cost memory without end.
const SEALED_MAX: usize = 256;

impl World {
    fn new(data: &[u8], script: &mut Script<'_>) -> Self {
        // Keys follow from the whole input: a frame that was honest for one input is forged for all others.
        let seed = data.iter().fold(0, |seed, &byte| Prng::new(seed ^ u64::from(byte)).next());
        let mut prng = Prng::new(seed);
        let shape = script.number();
        let addrs = if shape & 1 == 0 {
            ["192.0.2.1", "192.0.2.2"]
        } else {
            ["2001:db8::1", "2001:db8::2"]
        };
        let timing = Timing {
            dispatch_timeout: Duration::from_micros(10 + script.number() as u64),
            timeout: Duration::from_micros(10 + script.number() as u64),
        };
        let settings = NicConfigBuilder {
            command_slots: 1 + (shape as u32 >> 1) % SLOTS_MAX as u32,
            regions: 3,
            inbound_queue: 1 + (shape as u32 >> 4) % 4,
            solicitation_window: OP_SIZE_MAX + 64 * script.number() as u32,
            receive_len_max: ReceiveLenMax::of_mtu(160 + 8 * script.number()),
            notices_per_second: if shape & 0x80 == 0 { 100_000 } else { 0 },
            timing,
            ..NicConfigBuilder::default()
        };
        let hosts = addrs.map(|addr| Host::new(addr, settings, &mut prng));
        let statuses = [0; OpStatus::ALL.len()];
        Self { now: Instant::ZERO, hosts, sealed: Vec::new(), timing, statuses }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let host = usize::from(step >> 7);
        match step & 0x0f {
            0 | 1 => self.issue(host, script),
            2 => self.issue_line(host, script),
            3 | 4 => self.transmit(host),
            5 | 6 => {
                if let Some(index) = self.pick(script) {
                    let bytes = self.sealed[index].bytes.clone();
                    self.deliver(index, bytes);
                }
            }
            7 | 8 => self.deliver_changed(script),
            9 => self.deliver_invented(host, script),
            10 => self.deliver_astray(script),
            11 | 12 => self.pass(Duration::from_nanos(script.wide() * script.number() as u64)),
            13 => {
                self.complete(host);
            }
            14 => self.hosts[host].renew_region(script.number() & 1 == 0),
            _ => {
                let receive = ReceiveLenMax::of_mtu(100 + 8 * script.number());
                let _ = self.hosts[host].nic.set_receive_len_max(receive);
            }
        }
    }

    /// A command that is mostly right.
    fn issue(&mut self, host: usize, script: &mut Script<'_>) {
        let flags = script.number();
        let remote = &self.hosts[if flags & 1 == 0 { 1 - host } else { host }];
        let local = &self.hosts[host];
        let slot = script.number() % (SLOTS_MAX + 1);
        let op_size = script.wide() as u32 % (OP_SIZE_MAX + 2);
        let remote_offset = script.wide() % (SOURCE_LEN + 64);
        let mut key = remote.derived_key(local.addr);
        if flags & 2 != 0 {
            key = DerivedRegionKey::from_bytes([0x55; 16]);
        }
        let command = Command {
            slot: CommandSlotId(slot as u16),
            op_type: OpType::Read,
            class: ClassOfService::ALL[flags >> 2 & 1],
            op_size,
            responder: remote.addr,
            remote_region: if flags & 8 == 0 { remote.source } else { remote.sink },
            remote_offset,
            local_region: if flags & 16 == 0 { local.sink } else { local.source },
            local_offset: slot as u64 * u64::from(OP_SIZE_MAX),
            key,
        };
        let honest = flags & 0b11010 == 0;
        let reads = honest.then_some((remote_offset, op_size));
        let result = self.hosts[host].nic.handle_command(self.now, command);
        self.hosts[host].took(slot, result, Taken { at: self.now, reads });
    }

    /// A command as a hostile application writes it.
    fn issue_line(&mut self, host: usize, script: &mut Script<'_>) {
        let line = Line(core::array::from_fn(|_| {
            script.take(8).iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
        }));
        let nic = &mut self.hosts[host].nic;
        let (slot, result) = match Command::from_line(&line) {
            Ok(command) => (command.slot, nic.handle_command(self.now, command)),
            Err(slot) => (slot, nic.handle_unreadable_command(self.now, slot)),
        };
        self.hosts[host].took(slot.0.into(), result, Taken { at: self.now, reads: None });
    }

    fn transmit(&mut self, host: usize) {
        let mut out = [0; FRAME_LEN_MAX];
        let host = &mut self.hosts[host];
        let Some(transmit) = host.nic.poll_transmit(self.now, &mut out) else { return };
        assert_eq!(transmit.source, host.addr);
        let bytes = out[..transmit.len].to_vec();
        assert!(FrameView::parse(&bytes).is_ok(), "a NIC sends frames");
        assert!(self.sealed.iter().all(|sealed| sealed.bytes != bytes), "every IV is fresh");
        if self.sealed.len() == SEALED_MAX {
            self.sealed.remove(0);
        }
        self.sealed.push(Sealed { transmit, bytes });
    }

    fn pick(&self, script: &mut Script<'_>) -> Option<usize> {
        let back = script.number();
        (!self.sealed.is_empty()).then(|| self.sealed.len() - 1 - back % self.sealed.len())
    }

    fn deliver(&mut self, index: usize, bytes: Vec<u8>) {
        let Transmit { source, destination, .. } = self.sealed[index].transmit;
        let host = usize::from(self.hosts[1].addr == destination);
        self.receive(host, source, destination, bytes);
    }

    /// Hands `bytes` to a NIC. It may accept only what a NIC sealed, from where it came. The one exception is
    /// a notice under the reserved key: that key proves nothing about anybody's address.
    fn receive(&mut self, host: usize, source: HostAddr, destination: HostAddr, bytes: Vec<u8>) {
        let under_reserved_key = matches!(
            FrameView::parse(&bytes),
            Ok(FrameView::Failure(view))
                if view.claims().status == OpStatus::RemoteAuthenticationFailure
        );
        let sealed = self.sealed.iter().any(|sealed| {
            let way = (sealed.transmit.source, sealed.transmit.destination);
            sealed.bytes == bytes && (way == (source, destination) || under_reserved_key)
        });
        let mut copy = bytes;
        let frame = RxFrame { source, destination, reply_len_max: 1472, bytes: &mut copy };
        let result = self.hosts[host].nic.handle_frame(self.now, frame);
        assert!(sealed || result.is_err(), "a forged frame was accepted");
    }

    fn deliver_changed(&mut self, script: &mut Script<'_>) {
        let Some(index) = self.pick(script) else { return };
        let mut bytes = self.sealed[index].bytes.clone();
        for _ in 0..1 + script.number() % 4 {
            let at = script.wide() as usize % (bytes.len() + 1);
            match bytes.get_mut(at) {
                Some(byte) => *byte ^= script.number() as u8,
                // Past the end: another length.
                None => bytes.resize((bytes.len() + 16).saturating_sub(script.number()).max(1), 0),
            }
        }
        self.deliver(index, bytes);
    }

    fn deliver_invented(&mut self, host: usize, script: &mut Script<'_>) {
        let head = script.number();
        let len = script.number();
        let mut bytes = script.take(len).to_vec();
        if let (1..=3, Some(start)) = (head, bytes.first_chunk_mut::<2>()) {
            *start = [VERSION, head as u8];
        }
        let (destination, source) = (self.hosts[host].addr, self.hosts[1 - host].addr);
        self.receive(host, source, destination, bytes);
    }

    /// An honest frame that seems to come from elsewhere, or arrives elsewhere.
    fn deliver_astray(&mut self, script: &mut Script<'_>) {
        let Some(index) = self.pick(script) else { return };
        let Sealed { transmit, ref bytes } = self.sealed[index];
        let bytes = bytes.clone();
        let stranger: HostAddr = core::net::Ipv4Addr::new(198, 51, 100, 7).into();
        let [a, b] = [self.hosts[0].addr, self.hosts[1].addr];
        let (host, source, destination) = match script.number() % 5 {
            0 => (0, stranger, a),
            1 => (1, a, stranger),
            2 => (0, a, a),
            3 => (1, b, b),
            _ => (usize::from(transmit.destination == a), transmit.source, transmit.destination),
        };
        self.receive(host, source, destination, bytes);
    }

    /// Time passes, and everything that is due by then completes.
    fn pass(&mut self, by: Duration) {
        self.now = self.now + by;
        for host in 0..2 {
            self.hosts[host].nic.handle_timeout(self.now);
            while self.complete(host) {}
            let bound = self.timing.dispatch_timeout + self.timing.timeout;
            for taken in self.hosts[host].taken.iter().flatten() {
                assert!(self.now.since(taken.at) < bound, "an op outlived its bound");
            }
            let next = self.hosts[host].nic.poll_timeout();
            assert!(next.is_none_or(|at| at > self.now), "what is due has been handled");
        }
    }

    fn complete(&mut self, host: usize) -> bool {
        let [a, b] = &mut self.hosts;
        let host = if host == 0 { a } else { b };
        let Some(done) = host.nic.poll_completion() else { return false };
        self.statuses[done.status as usize] += 1;
        let slot = usize::from(done.slot.0);
        let taken = host.taken[slot].take().expect("one completion for each command");
        if done.status == OpStatus::Ok {
            let (remote_offset, op_size) = taken.reads.expect("this op could not succeed");
            let mut read = vec![0; op_size as usize];
            let local_offset = slot as u64 * u64::from(OP_SIZE_MAX);
            host.sink_memory.copy_out(local_offset, &mut read).expect("a slot's own part");
            // Both sources have the same content.
            let mut right = vec![0; op_size as usize];
            host.source_memory.copy_out(remote_offset, &mut right).expect("checked by the NIC");
            assert!(read == right, "an op read wrong data");
        }
        true
    }

    fn check(&self) {
        for host in &self.hosts {
            let window = host.nic.config().settings().solicitation_window;
            assert!(host.nic.window_debited() <= window, "P3");
            if host.taken.iter().all(Option::is_none) {
                assert_eq!(host.nic.window_debited(), 0, "what was debited has been refunded");
            }
        }
    }

    /// After both timeouts nothing is outstanding.
    fn finish(mut self) -> [u64; OpStatus::ALL.len()] {
        // Whatever enters service now still has its timeout.
        for host in 0..2 {
            self.transmit(host);
        }
        self.pass(self.timing.dispatch_timeout);
        self.pass(self.timing.timeout);
        self.check();
        for host in &self.hosts {
            assert!(host.taken.iter().all(Option::is_none), "every command has completed");
            assert_eq!(host.nic.poll_timeout(), None);
        }
        self.statuses
    }
}

impl Host {
    fn new(addr: &str, settings: NicConfigBuilder, prng: &mut Prng) -> Self {
        let addr: HostAddr = addr.parse().expect("an address");
        let counter_start = prng.below(1 << 62);
        let settings = NicConfigBuilder { addresses: addr.into(), counter_start, ..settings };
        let mut nic = Nic::new(settings.build().expect("every shape has working settings"));
        let slots = nic.slot_count();
        nic.configure_slots(0..slots as u16, Some(PID));
        let memory = |len: u64| Arc::new(Region::new(len as usize).expect("a few KiB"));
        let source_memory = memory(SOURCE_LEN);
        let mut content = vec![0; SOURCE_LEN as usize];
        Prng::new(1).fill(&mut content);
        source_memory.copy_in(0, &content).expect("the region has that length");
        let mut key = [0; 16];
        prng.fill(&mut key);
        let mut host = Self {
            nic,
            addr,
            source: RegionId::from_bits(0),
            sink: RegionId::from_bits(0),
            key: RegionKey::from_bytes(key),
            source_memory,
            sink_memory: memory((SLOTS_MAX as u64 + 1) * u64::from(OP_SIZE_MAX)),
            taken: vec![None; slots],
        };
        host.source = host.register(true);
        host.sink = host.register(false);
        host
    }

    fn register(&mut self, source: bool) -> RegionId {
        let (memory, permissions, owner) = if source {
            (&self.source_memory, Permissions::READ, Pid(PID.0 + 1))
        } else {
            (&self.sink_memory, Permissions::NONE, PID)
        };
        let entry = RegionEntry::new(memory.clone(), &self.key, permissions, owner);
        let registered = self.nic.regions_mut().register(Box::new(entry));
        registered.map_err(|(error, _)| error).expect("the table has room for both")
    }

    /// Deregisters a region and registers it again, under another name.
    fn renew_region(&mut self, source: bool) {
        let old = if source { self.source } else { self.sink };
        self.nic.regions_mut().deregister(old).expect("registered");
        let new = self.register(source);
        *(if source { &mut self.source } else { &mut self.sink }) = new;
    }

    fn derived_key(&self, initiator: HostAddr) -> DerivedRegionKey {
        RegionKeySchedule::new(&self.key).derive(&KeyBinding {
            initiator,
            responder: self.addr,
            pid: PID,
            op_type: OpType::Read,
        })
    }

    fn took(&mut self, slot: usize, result: Result<(), CommandError>, taken: Taken) {
        let Some(entry) = self.taken.get_mut(slot) else {
            assert!(matches!(result, Err(CommandError::ForeignSlot { .. })));
            return;
        };
        match result {
            Ok(()) => assert!(entry.replace(taken).is_none(), "a slot has one command"),
            Err(error) => {
                assert!(matches!(error, CommandError::SlotBusy { .. }) && entry.is_some());
            }
        }
    }
}
