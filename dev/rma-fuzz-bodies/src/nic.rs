//! Two NICs, and whatever the bytes say.

mod host;
mod recorded;

use core::{cell::Cell, time::Duration};

use rma_core::{
    addr::HostAddr,
    backend::{RxFrame, RxPacket, Transmit},
    command::{Command, CommandOp, CommandSlotId, Transfer},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey},
    limits::OP_SIZE_MAX,
    nic::{NicConfigBuilder, ReceiveLenMax, Timing},
    op::{ClassOfService, OpStatus, OpType},
    packet::Frames,
    port::{Port, SourcePort},
    time::{Clock, Instant},
    wire::{FRAME_LEN_MAX, FrameView, VERSION, frame_len},
};
use rma_shm::Line;

use crate::script::Script;
use host::{AREAS, Expected, Host, PID, SLOTS_MAX, SOURCE_LEN, Taken};
use recorded::Ledger;
use rma_sim::prng::Prng;

/// Two NICs, and whatever the bytes say: commands, frames (honest, changed, invented), time,
/// regions that go.
///
/// Asserts: one completion for each command that was taken, within its bound; the window; right
/// data, at both ends, that does not change any more once an op was reported; nothing accepted that
/// no NIC sealed. Returns how many ops ended with each status.
pub fn nic(data: &[u8]) -> [u64; OpStatus::ALL.len()] {
    let mut script = Script(data);
    let mut world = World::new(data, &mut script);
    while let Some(step) = script.byte() {
        world.step(step, &mut script);
        world.check();
    }
    world.finish()
}

/// A frame that a NIC sealed.
pub(super) struct Sealed {
    pub(super) transmit: Transmit,
    pub(super) bytes: Vec<u8>,
}

/// A clock that jumps between its first and its second reading: the engine was stopped in the midst
/// of a frame.
struct Jumping {
    now: Instant,
    jump: Duration,
    read: Cell<bool>,
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        if self.read.replace(true) { self.now + self.jump } else { self.now }
    }
}

pub(super) struct World {
    now: Instant,
    /// For how long engines were stopped in the midst of frames: no bound holds for that time.
    stopped: Duration,
    /// The time for which the next frame's engine is stopped.
    jump: Duration,
    hosts: [Host; 2],
    sealed: Vec<Sealed>,
    ledger: Ledger,
    timing: Timing,
    statuses: [u64; OpStatus::ALL.len()],
}

/// Frames that are kept to be delivered, so that a long input does not cost memory without end.
const SEALED_MAX: usize = 256;

impl World {
    fn new(data: &[u8], script: &mut Script<'_>) -> Self {
        // Keys follow from the whole input: a frame that was honest for one input is forged for all
        // others.
        let seed = data.iter().fold(0, |seed, &byte| Prng::new(seed ^ u64::from(byte)).next());
        let mut prng = Prng::new(seed);
        let shape = script.number();
        let addrs = if shape & 1 == 0 {
            ["192.0.2.1", "192.0.2.2"]
        } else {
            ["2001:db8::1", "2001:db8::2"]
        };
        let dispatch_timeout = Duration::from_micros(10 + script.number() as u64);
        let timeout = dispatch_timeout + Duration::from_micros(10 + script.number() as u64);
        let timing = Timing::new(dispatch_timeout, timeout);
        let settings = NicConfigBuilder::default().with(|it| {
            it.command_slots = 1 + (shape as u32 >> 1) % SLOTS_MAX as u32;
            it.regions = 6;
            it.outcome_records = 1 + (shape as u32 >> 3) % 4;
            it.inbound_queue = 1 + (shape as u32 >> 4) % 4;
            it.pending_writes = 1 + (shape as u32 >> 4) % 4;
            it.rtt = Duration::ZERO;
            it.bandwidth = 12_500_000_000;
            it.solicitation_window = OP_SIZE_MAX + 64 * script.number() as u32;
            it.notices_per_second = if shape & 0x80 == 0 { 100_000 } else { 0 };
            it.timing = timing;
        });
        let receive_len_max = ReceiveLenMax::of_mtu(168 + 8 * script.number());
        let hosts = addrs.map(|addr| Host::new(addr, settings, receive_len_max, &mut prng));
        let statuses = [0; OpStatus::ALL.len()];
        let (stopped, jump) = (Duration::ZERO, Duration::ZERO);
        Self {
            now: Instant::ZERO,
            stopped,
            jump,
            hosts,
            sealed: Vec::new(),
            ledger: Ledger::default(),
            timing,
            statuses,
        }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let host = usize::from(step >> 7);
        if step & 0x10 != 0 {
            self.jump = Duration::from_nanos(script.wide() * 8);
        }
        if step & 0x20 != 0 {
            self.recorded_step(step & 0x0f, host, script);
            return;
        }
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
            7 => self.deliver_changed(script),
            8 => self.deliver_packet(script),
            9 => self.deliver_invented(host, script),
            10 => self.deliver_astray(script),
            11 | 12 => self.pass(Duration::from_nanos(script.wide() * script.number() as u64)),
            13 => {
                self.complete(host);
            }
            14 => self.hosts[host].renew_region(script.number()),
            _ => {
                let receive = ReceiveLenMax::of_mtu(100 + 8 * script.number());
                let _ = self.hosts[host].nic.set_receive_len_max(receive);
            }
        }
    }

    /// A command that is mostly right.
    fn issue(&mut self, host: usize, script: &mut Script<'_>) {
        let flags = script.number();
        let (is_far, is_wrong_key) = (flags & 1 == 0, flags & 2 != 0);
        let remote = &self.hosts[if is_far { 1 - host } else { host }];
        let local = &self.hosts[host];
        let slot = script.number() % (SLOTS_MAX + 1);
        let op_size = script.wide() as u32 % (OP_SIZE_MAX + 2);
        let offset = script.wide();
        let op_type = [OpType::Read, OpType::Read, OpType::Write, OpType::Rekey][flags >> 5 & 3];
        let area = (host * AREAS + slot) as u64 * u64::from(OP_SIZE_MAX);
        let (region, remote_offset) = match op_type {
            OpType::Read => (remote.source, offset % (SOURCE_LEN + 64)),
            _ => (remote.target, area),
        };
        let remote_region = if flags & 8 == 0 { region } else { remote.sink };
        let (initiator, responder) = (local.addr, remote.addr);
        let key = remote.derive(region, &KeyBinding { initiator, responder, pid: PID, op_type });
        let transfer = Transfer {
            op_size,
            remote_offset,
            local_region: if flags & 16 == 0 { local.sink } else { local.source },
            local_offset: slot as u64 * u64::from(OP_SIZE_MAX),
        };
        let command = Command {
            slot: CommandSlotId(slot as u16),
            class: ClassOfService::ALL[flags >> 2 & 1],
            responder,
            remote_region,
            key: if is_wrong_key { DerivedRegionKey::from_bytes([0x55; 16]) } else { key },
            op: match op_type {
                OpType::Read => CommandOp::Read(transfer),
                OpType::Write => CommandOp::Write(transfer),
                _ => CommandOp::Rekey(RegionKey::from_bytes([offset as u8; 16])),
            },
        };
        let honest = !is_wrong_key && flags & 8 == 0;
        let expected = match op_type {
            _ if !honest => Expected::Failure,
            OpType::Rekey => Expected::Rekeyed,
            _ if flags & 16 != 0 => Expected::Failure,
            OpType::Read => Expected::Read { offset: remote_offset, size: op_size },
            _ => {
                let (far, fill) =
                    (if is_far { 1 - host } else { host }, self.statuses[0] as u8 ^ 0x5a);
                Expected::Written { host: far, offset: area, size: op_size, fill }
            }
        };
        self.hosts[host].prepare(slot, &expected);
        let result = self.hosts[host].nic.handle_command(self.now, command);
        if let (Ok(()), Expected::Written { host: target, offset, .. }) = (result, expected) {
            self.hosts[target].forget_area(offset);
        }
        let taken = Taken { at: self.now, op_type, expected };
        self.hosts[host].took(slot, result, taken);
    }

    /// A command as a hostile application writes it.
    fn issue_line(&mut self, host: usize, script: &mut Script<'_>) {
        let line = Line(core::array::from_fn(|_| {
            script.take(8).iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
        }));
        let nic = &mut self.hosts[host].nic;
        let (slot, op_type) = match Command::from_line(&line) {
            Ok(command) => (command.slot, command.op.op_type()),
            Err(slot) => (slot, OpType::Read),
        };
        let result = nic.handle_lines(self.now, &line, None).map(drop);
        let taken = Taken { at: self.now, op_type, expected: Expected::Failure };
        self.hosts[host].took(slot.0.into(), result, taken);
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

    /// Hands `bytes` to a NIC. It may accept only what a NIC sealed, from where it came. The one
    /// exception is a notice under the reserved key: that key proves nothing about anybody's
    /// address.
    fn receive(&mut self, host: usize, source: HostAddr, destination: HostAddr, bytes: Vec<u8>) {
        self.receive_frame(host, [source, destination], true, bytes);
    }

    fn receive_frame(
        &mut self,
        host: usize,
        [source, destination]: [HostAddr; 2],
        is_first: bool,
        bytes: Vec<u8>,
    ) {
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
        let frame = RxFrame {
            source_port: SourcePort::FIRST,
            is_first,
            is_handed_over: false,
            source,
            destination,
            port: Port::ONE_RMA,
            reply_len_max: 1472,
            link: None,
            bytes: &mut copy,
        };
        let jump = core::mem::take(&mut self.jump);
        let clock = Jumping { now: self.now, jump, read: Cell::new(false) };
        let result = self.hosts[host].nic.handle_frame(self.now, &clock, frame);
        assert!(sealed || result.is_err(), "a forged frame was accepted");
        self.now = self.now + jump;
        self.stopped += jump;
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

    /// Some of the frames that go one way, in one packet, the latest first; half of the time with
    /// an octet changed, or cut there.
    fn deliver_packet(&mut self, script: &mut Script<'_>) {
        let (count, how) = (1 + script.number() % 40, script.number());
        let (at, change) = (script.wide() as usize, script.number());
        let Some(transmit) = self.sealed.last().map(|sealed| sealed.transmit) else { return };
        let Transmit { source, destination, .. } = transmit;
        let same_way = self.sealed.iter().rev().filter(|sealed| {
            (sealed.transmit.source, sealed.transmit.destination) == (source, destination)
        });
        let frames = same_way.cycle().take(count);
        let mut bytes: Vec<u8> = frames.flat_map(|sealed| sealed.bytes.clone()).collect();
        let at = at % bytes.len();
        match how % 4 {
            1 => bytes[at] ^= change as u8,
            3 => bytes.truncate(at),
            _ => {}
        }
        let host = usize::from(self.hosts[1].addr == destination);
        let mut packet = RxPacket {
            source,
            destination,
            port: Port::ONE_RMA,
            source_port: SourcePort::FIRST,
            reply_len_max: 1472,
            link: None,
            bytes: &mut bytes,
        };
        let (mut walk, mut frames, mut end) = (Frames::of(&mut packet), Vec::new(), None);
        while let Some(frame) = walk.next(frame_len) {
            match frame {
                Ok(frame) => frames.push((frame.is_first, frame.bytes.to_vec())),
                Err(tail) => end = Some(tail),
            }
        }
        for (is_first, bytes) in frames {
            self.receive_frame(host, [source, destination], is_first, bytes);
        }
        if let Some(tail) = end {
            self.hosts[host].nic.drop_tail(tail);
        }
    }

    fn deliver_invented(&mut self, host: usize, script: &mut Script<'_>) {
        let head = script.number();
        let len = script.number();
        let mut bytes = script.take(len).to_vec();
        if let (1..=12, Some(start)) = (head, bytes.first_chunk_mut::<2>()) {
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
            for taken in self.hosts[host].taken.iter().flatten() {
                let bound = self.timing.bound(taken.op_type) + self.stopped;
                assert!(self.now.since(taken.at) < bound, "an op outlived its bound");
            }
            let next = self.hosts[host].nic.poll_timeout();
            assert!(next.is_none_or(|at| at > self.now), "what is due has been handled");
        }
    }

    fn complete(&mut self, host: usize) -> bool {
        let Some(done) = self.hosts[host].nic.poll_completion() else { return false };
        self.statuses[done.status as usize] += 1;
        let slot = usize::from(done.slot.0);
        let taken = self.hosts[host].taken[slot].take().expect("one completion for each command");
        let is_ok = done.status == OpStatus::Ok;
        match taken.expected {
            Expected::Failure => assert!(!is_ok, "this op could not succeed"),
            Expected::Rekeyed => {}
            Expected::Read { offset, size } if is_ok => {
                let read = self.hosts[host].sink_bytes(slot, size);
                // Both sources have the same content.
                assert!(read == self.hosts[host].source_bytes(offset, size), "wrong data was read");
            }
            Expected::Read { .. } | Expected::Any => {}
            Expected::Event { host, immediate } => self.event_ended(host, immediate, &done),
            Expected::Ticket { host } => self.ticket_ended(host, &done),
            Expected::Settled { counter } => self.settled(counter, &done),
            Expected::Written { host: target, offset, size, fill } => {
                let target = &mut self.hosts[target];
                target.remember_area(offset);
                let written = is_ok.then(|| target.target_bytes(offset, size));
                let right = written.is_none_or(|bytes| bytes.iter().all(|&byte| byte == fill));
                assert!(right, "wrong data was written");
            }
        }
        true
    }

    fn check(&self) {
        for host in &self.hosts {
            let window = host.nic.config().settings().solicitation_window;
            assert!(host.nic.window_debited() <= window, "P3");
        }
    }

    /// After all timeouts nothing is outstanding.
    fn finish(mut self) -> [u64; OpStatus::ALL.len()] {
        // Whatever enters service now still has its timeout.
        for host in 0..2 {
            self.transmit(host);
        }
        self.pass(self.timing.dispatch_timeout);
        self.pass(self.timing.timeout);
        self.pass(self.timing.timeout);
        self.check();
        for host in &self.hosts {
            assert!(host.taken.iter().all(Option::is_none), "every command has completed");
            assert_eq!(host.nic.window_debited(), 0, "what was debited has been refunded");
            assert_eq!(host.nic.poll_timeout(), None);
            host.check_areas();
        }
        self.check_ledger();
        self.statuses
    }
}
