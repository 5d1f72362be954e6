//! Hosts on a network with 10 µs one way, whose NICs are driven only as an engine drives them: in a
//! turn a burst comes in, and goes out what one look at the queues finds.

use std::collections::VecDeque;

use super::*;
use crate::command::RecordedOp;

/// How long a turn takes, and so how long each host does not look at its frames.
const TURN: Duration = Duration::from_micros(5);
const ONE_WAY: Duration = Duration::from_micros(10);
const BURST: usize = 64;

/// The offset in each region of the word that FETCH_ADDs add to, and that nothing else changes. It
/// begins as 0.
pub(super) const WORD: u64 = 8192;

/// The index of a host in a [`Net`].
pub(super) type At = usize;

pub(super) struct Net {
    pub(super) now: Instant,
    pub(super) hosts: Vec<Host>,
    /// Hosts that hear nothing: dead, stopped, or not willing.
    pub(super) deaf: Vec<At>,
    air: VecDeque<(Instant, Flight)>,
    /// The completions that were not asked for.
    completed: Vec<VecDeque<Completion>>,
    /// The most that was solicited and not parked at any host at the end of a turn.
    pub(super) most_debited: u32,
}

impl Net {
    pub(super) fn new(hosts: usize, settings: NicConfigBuilder) -> Self {
        let host = |at: usize| {
            let mut host = Host::new(&format!("192.0.2.{}", at + 1), settings);
            host.nic.set_receive_len_max(ReceiveLenMax::of_mtu(9000)).unwrap();
            host.nic.configure_slots(8..SLOTS, Some(PID));
            host.region = register(&mut host.nic, &host.memory, &host.key, ALL);
            host
        };
        Self {
            now: Instant::from_nanos(1_000),
            hosts: (0..hosts).map(host).collect(),
            deaf: Vec::new(),
            air: VecDeque::new(),
            completed: (0..hosts).map(|_| VecDeque::new()).collect(),
            most_debited: 0,
        }
    }

    /// An op of `from` on the region of `to`.
    pub(super) fn command(&self, (from, to): (At, At), slot: u16, op_type: OpType) -> Command {
        let op = match op_type {
            OpType::Read => CommandOp::Read(self.transfer(from)),
            OpType::Write => CommandOp::Write(self.transfer(from)),
            OpType::Rekey => CommandOp::Rekey(self.hosts[to].key),
            OpType::FetchAdd => {
                let op = RecordedOp::FetchAdd { remote_offset: WORD, addend: 1 };
                CommandOp::Recorded { op, done: None }
            }
            other => panic!("these stories have no {other}"),
        };
        self.command_of((from, to), slot, op)
    }

    /// A recorded op of `from` on the region of `to`.
    pub(super) fn recorded(&self, between: (At, At), slot: u16, op: RecordedOp) -> Command {
        self.command_of(between, slot, CommandOp::Recorded { op, done: None })
    }

    /// As much as an op moves, from or to the start of a region of `from`.
    pub(super) fn transfer(&self, from: At) -> Transfer {
        let local_region = self.hosts[from].region;
        Transfer { op_size: OP_SIZE_MAX, remote_offset: 0, local_region, local_offset: 0 }
    }

    fn command_of(&self, (from, to): (At, At), slot: u16, op: CommandOp) -> Command {
        let op_type = op.op_type();
        let (initiator, responder) = (self.hosts[from].addr, self.hosts[to].addr);
        let binding = KeyBinding { initiator, responder, pid: PID, op_type };
        Command {
            slot: CommandSlotId(slot),
            class: ClassOfService::Latency,
            responder,
            remote_region: self.hosts[to].region,
            key: crate::crypto::RegionKeySchedule::new(&self.hosts[to].key).derive(&binding),
            op,
        }
    }

    pub(super) fn issue(&mut self, from: At, command: Command) {
        self.hosts[from].nic.handle_command(self.now, command).unwrap();
    }

    /// Puts a frame on the wire.
    pub(super) fn send(&mut self, flight: Flight) {
        self.air.push_back((self.now + ONE_WAY, flight));
    }

    /// Moves every frame between two hosts until there is none, in no time.
    pub(super) fn exchange(&mut self, one: At, other: At) {
        loop {
            let mut moved = false;
            for (from, to) in [(one, other), (other, one)] {
                for flight in self.hosts[from].transmit(self.now) {
                    let nic = &mut self.hosts[to].nic;
                    let _ = deliver(nic, self.now, &flight, wire::FRAME_LEN_MAX);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Takes the completions at a host since the last call.
    pub(super) fn completions(&mut self, at: At) -> VecDeque<Completion> {
        core::mem::take(&mut self.completed[at])
    }

    /// One turn of each host.
    pub(super) fn turn(&mut self) {
        self.now = self.now + TURN;
        for at in 0..self.hosts.len() {
            self.turn_of(at);
            self.most_debited = self.most_debited.max(self.hosts[at].nic.window_debited());
        }
    }

    /// All turns of some time.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.turn();
        }
    }

    fn turn_of(&mut self, at: At) {
        let (now, addr) = (self.now, self.hosts[at].addr);
        let mut burst = Vec::new();
        let is_due = |(when, flight): &(Instant, Flight)| {
            *when <= now && flight.transmit.destination == addr
        };
        while burst.len() < BURST
            && let Some(index) = self.air.iter().position(is_due)
        {
            burst.extend(self.air.remove(index).map(|(_, flight)| flight));
        }
        if self.deaf.contains(&at) {
            burst.clear();
        }
        let nic = &mut self.hosts[at].nic;
        let mut frames: Vec<_> = burst
            .iter_mut()
            .map(|Flight { transmit, bytes }| RxFrame {
                source_port: crate::port::SourcePort::FIRST,
                is_first: true,
                is_handed_over: false,
                source: transmit.source,
                destination: transmit.destination,
                port: transmit.port,
                reply_len_max: wire::FRAME_LEN_MAX,
                link: None,
                bytes,
            })
            .collect();
        nic.handle_frames(now, &now, &mut frames);
        nic.handle_timeout(now);
        self.completed[at].extend(core::iter::from_fn(|| nic.poll_completion()));
        // As the engine has it.
        let lately = nic.latency_class_seen_at().is_some_and(|at| now.nanos_since(at) < 1_000_000);
        let mut quantum =
            if lately { Quantum::beside_latency(4 << 10) } else { Quantum::new(32 << 10) };
        let mut room = vec![[0; wire::FRAME_LEN_MAX]; nic.frames_waiting().min(BURST)];
        let mut frames: Vec<_> = room.iter_mut().map(|room| TxFrame::new(room)).collect();
        let sent = nic.poll_transmits(now, &mut frames, &mut quantum);
        for TxFrame { bytes, transmit } in &frames[..sent] {
            let transmit = transmit.expect("it was sent");
            let bytes = bytes[..transmit.len].to_vec();
            self.air.push_back((now + ONE_WAY, Flight { transmit, bytes }));
        }
    }
}

/// Command slots of each host.
const SLOTS: u16 = 512;
