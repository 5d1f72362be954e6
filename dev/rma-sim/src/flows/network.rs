//! Hosts joined by a switch, flows of reads between them, and what came of each op.
//!
//! Each host that begins a flow has one process with one CommandExecutor, as hosts of the paper
//! have one congestion control per client. It looks at each completion at once.
//!
//! Invariants: all promises hold after every event, or those that the run checks, and what was read
//! is what the server has; otherwise the run panics, as then no number of it means anything.

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    cc::CcConfigBuilder,
    command::CommandOp,
    crypto::RegionKey,
    executor::{Call, CallStatus, ExecutorConfig, Piece},
    grant::Grant,
    limits::OP_SIZE_MAX,
    nic::{NicConfigBuilder, NicPlace, ReceiveLenMax, RegionEntry, Timing},
    op::{OpStatus, OpType},
    region::{Permissions, RegisteredRegion},
    time::Instant,
    wire::read::RESPONSE_OVERHEAD,
};
use rma_shm::Region;

use super::{
    RATE, RTT,
    drive::{App, Drive},
};
use crate::{
    check::watch::{Checks, Watch},
    hosts::memory::{address, grant, register},
    load::software::Software,
    net::{
        clock::ClockOptions,
        frame::{NodeId, wire_len},
        link::{Faults, JitterLaw, LinkOptions},
        model_aead::Seals,
        node::{NodeOptions, Pace},
        queue::{QueueOptions, serialization},
        sim::Sim,
        trace::{Seen, What},
    },
    prng::Prng,
};

/// All that a run depends on.
#[derive(Clone, Debug)]
pub struct FlowOptions {
    /// The seed of every random number of the run.
    pub seed: u64,
    /// How many hosts there are.
    pub nodes: u16,
    /// The flows. Each host is given its flows in this order.
    pub flows: Vec<Flow>,
    /// For how long.
    pub length: Duration,
    /// Congestion control of every host.
    pub cc: CcConfigBuilder,
    /// The solicitation window of every NIC, in bytes.
    pub solicitation_window: u32,
    /// How long an idle 4 KiB read takes without jitter.
    pub rtt: Duration,
    /// How much longer a frame may take each way than another, drawn evenly for each.
    pub jitter: Duration,
    /// The way in which NICs seal frames.
    pub seals: Seals,
    /// The promises that are checked.
    pub checks: Checks,
}

/// Reads of one host from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The host that reads.
    pub client: u16,
    /// The host that is read from.
    pub server: u16,
    /// How much each call transfers, in bytes.
    pub len: u64,
    /// When the calls begin.
    pub arrivals: Arrivals,
}

/// When the calls of a flow begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// From some time on, one call after the other; or two at a time, of which the first is half as
    /// long as the others, so that one is always in full swing when the other ends.
    BackToBack {
        /// When the first one begins.
        from: Duration,
        /// Whether there are two at a time.
        overlapped: bool,
    },
    /// At some time, and no other one after it.
    Once {
        /// When it begins.
        from: Duration,
    },
    /// By chance, however many are under way.
    Poisson {
        /// The mean time between two of them.
        mean_gap: Duration,
    },
}

/// The log of a run, in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Every op that has completed.
    pub ops: Vec<OpRecord>,
    /// Every call that has ended.
    pub calls: Vec<CallRecord>,
}

/// Whoever is told what happens in a run.
pub(super) trait Keep {
    /// An op has completed.
    fn op(&mut self, op: OpRecord);
    /// A call has ended.
    fn call(&mut self, call: CallRecord);
}

impl Keep for Log {
    fn op(&mut self, op: OpRecord) {
        self.ops.push(op);
    }

    fn call(&mut self, call: CallRecord) {
        self.calls.push(call);
    }
}

/// An op that has completed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpRecord {
    /// When software saw its completion.
    pub at: Instant,
    /// Of which flow, by its place in [`FlowOptions::flows`].
    pub flow: usize,
    /// How many bytes it was to transfer.
    pub op_size: u32,
    /// The status that it ended with.
    pub status: OpStatus,
    /// How long it waited to enter service.
    pub issue_delay: Duration,
    /// How long it took in all.
    pub total_delay: Duration,
    /// The local window when it completed, in ops.
    pub local_cwnd: f64,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Of which flow.
    pub flow: usize,
    /// When the application asked for it.
    pub submitted: Instant,
    /// When the application knew of its end.
    pub ended: Instant,
    /// The status that it ended with.
    pub status: CallStatus,
}

/// The MTU: 4 KiB in one frame.
pub(super) const MTU: u16 = 9000;

/// Command slots of each host: more than windows let be under way.
pub(super) const SLOTS: u16 = 256;

const CALLS: u16 = 1024;

const PID: Pid = Pid(7);

/// The most that may wait at a port of the switch, in bytes. Solicitation keeps it far below.
pub(super) const PORT_LEN: u64 = 1 << 20;

/// A request and its headers on the wire, in bytes, about.
const REQUEST_LEN: u64 = 120;

/// The rate of a cable at which a packet takes the shortest time that there is, 1 ns: so packets of
/// one instant stay apart.
const CABLE: u64 = u64::MAX - 1;

/// How long the response of an op of `op_size` bytes takes on a link.
#[must_use]
pub fn wire_time(op_size: u32) -> Duration {
    serialization(RATE, wire_len(RESPONSE_OVERHEAD + op_size as usize, true) as u64)
}

/// A link that makes an idle 4 KiB read take `rtt` between devices of `rate`, and for each of its
/// frames up to `jitter` longer; `None` if sending alone takes longer than `rtt`.
pub(super) fn link(rtt: Duration, rate: u64, jitter: Duration) -> Option<LinkOptions> {
    // Device and port send the response one after the other, and a request of some 120 bytes.
    let response = wire_len(RESPONSE_OVERHEAD + OP_SIZE_MAX as usize, true) as u64;
    let sending = (serialization(rate, response) + serialization(rate, REQUEST_LEN)) * 2;
    Some(LinkOptions {
        delay: rtt.checked_sub(sending)? / 2,
        jitter,
        law: JitterLaw::Uniform,
        // Devices and ports have a rate, cables only a length.
        rate: CABLE,
        queue: u64::MAX,
        faults: Faults::default(),
    })
}

fn node(number: u16, options: &FlowOptions) -> NodeOptions {
    let [high, low] = number.to_be_bytes();
    NodeOptions {
        place: NicPlace::at(HostAddr::from([10, 0, high, low])),
        nic: NicConfigBuilder::default().with(|it| {
            it.command_slots = SLOTS.into();
            it.regions = 2 + options.flows.len() as u32;
            it.solicitation_window = options.solicitation_window;
            it.timing = Timing::paper(RTT);
            it.rtt = RTT;
            it.bandwidth = RATE;
        }),
        mtu: MTU,
        rate: RATE,
        // The figures are the paper's.
        pace: Pace::Hardware,
        receive_ring: 0,
        clock: ClockOptions::default(),
    }
}

/// A flow under way.
#[derive(Debug)]
struct Reader {
    flow: Flow,
    grant: Grant,
    remote: Arc<Region>,
    local: RegisteredRegion,
    /// How many calls have been submitted.
    submitted: u64,
    under_way: u32,
    /// How many have ended with OK.
    ok: u64,
    /// When the next call of chance comes.
    next_at: Instant,
    prng: Prng,
}

impl Reader {
    /// When it wants to submit a call.
    fn next_at(&self) -> Option<Instant> {
        match self.flow.arrivals {
            Arrivals::BackToBack { overlapped, .. } => {
                let at_once = if overlapped { 2 } else { 1 };
                (self.under_way < at_once).then_some(self.next_at)
            }
            Arrivals::Once { .. } => (self.submitted == 0).then_some(self.next_at),
            Arrivals::Poisson { .. } => Some(self.next_at),
        }
    }

    /// The length of the next call.
    fn next_len(&mut self) -> u64 {
        let is_half = matches!(self.flow.arrivals, Arrivals::BackToBack { overlapped: true, .. })
            && self.submitted == 0;
        self.submitted += 1;
        self.under_way += 1;
        if let Arrivals::Poisson { mean_gap } = self.flow.arrivals {
            self.next_at = self.next_at + self.prng.exponential(mean_gap);
        }
        if is_half { self.flow.len.div_ceil(2) } else { self.flow.len }
    }

    /// Whether what was read is what the server has.
    fn check(&self) {
        // The first of two at a time is half as long.
        if self.ok < 2 {
            return;
        }
        let bytes = |region: &Region| {
            let mut bytes = vec![0; self.flow.len as usize];
            region.copy_out(0, &mut bytes).expect("regions are as long as calls");
            bytes
        };
        assert!(bytes(self.local.memory()) == bytes(&self.remote), "{:?}: other bytes", self.flow);
    }
}

/// A host that reads.
#[derive(Debug)]
struct Client {
    software: Software,
    /// Its flows, by their places in [`FlowOptions::flows`].
    readers: Vec<(usize, Reader)>,
    /// By command slot: flow, and size of the op.
    ops: Vec<(usize, u32)>,
    /// By number of the call: which of `readers`, and when it was submitted.
    calls: Vec<(usize, Instant)>,
}

/// Runs `options`.
///
/// # Panics
/// If the options make no network, a promise is broken, or other bytes are read than the server
/// has.
#[must_use]
pub fn run(options: &FlowOptions) -> Log {
    run_into(options, Log::default())
}

/// Runs `options`, and tells `log` of it.
///
/// # Panics
/// As [`run`].
pub(super) fn run_into<L: Keep>(options: &FlowOptions, log: L) -> L {
    let mut drive = network(options, log);
    drive.run_until(Instant::ZERO + options.length);
    drive.check_end();
    let Drive { apps, log, .. } = drive;
    apps.iter().flat_map(|client| &client.readers).for_each(|(_, reader)| reader.check());
    log
}

fn network<L: Keep>(options: &FlowOptions, log: L) -> Drive<Client, L> {
    let prng = Prng::new(options.seed);
    let nodes: Vec<_> = (0..options.nodes).map(|number| node(number, options)).collect();
    let port = QueueOptions { rate: RATE, len: PORT_LEN };
    let link = link(options.rtt, RATE, options.jitter).expect("scenes have time for a frame");
    let seed = prng.fork(0).next();
    let mut sim = Sim::with_seals(&nodes, link, Some(port), seed, options.seals)
        .expect("these settings are constants, and work");
    let watch = Watch::new(&sim, options.checks);
    let targets: Vec<_> = sim.nodes().map(|node| target(&mut sim, node, options)).collect();
    let receive = ReceiveLenMax::of_mtu(MTU.into());
    let NicConfigBuilder { timing, rtt, .. } = nodes[0].nic;
    let config = ExecutorConfig::new(receive, timing.timeout, rtt).with(|it| {
        it.calls = CALLS;
        it.cc = options.cc;
    });
    let mut clients = Vec::new();
    for node in sim.nodes() {
        let flows = options.flows.iter().enumerate().filter(|(_, flow)| flow.client == node.0);
        let reader = |(index, &flow): (usize, &Flow)| {
            let prng = prng.fork(0x1000 + index as u64);
            (index, reader(&mut sim, flow, &targets[usize::from(flow.server)], prng))
        };
        let readers: Vec<_> = flows.map(reader).collect();
        if readers.is_empty() {
            continue;
        }
        let client = Client {
            software: Software::new(&mut sim, node, 0..SLOTS, PID, config),
            readers,
            ops: vec![(0, 0); SLOTS.into()],
            calls: vec![(0, Instant::ZERO); CALLS.into()],
        };
        clients.push((node, client));
    }
    Drive::new(sim, watch, clients, log)
}

impl<L: Keep> App<L> for Client {
    fn turn(&mut self, sim: &mut Sim, log: &mut L) -> Option<Instant> {
        let Self { software, readers, calls, .. } = self;
        let now = sim.now();
        // First, so that what has ended makes place for what follows.
        software.turn(sim);
        while let Some(outcome) = software.poll_outcome() {
            let (index, submitted) = calls[outcome.call.index()];
            let (flow, reader) = &mut readers[index];
            reader.under_way -= 1;
            let status = outcome.status;
            reader.ok += u64::from(status == CallStatus::Ok);
            log.call(CallRecord { flow: *flow, submitted, ended: now, status });
        }
        for (index, (_, reader)) in readers.iter_mut().enumerate() {
            // Those for which there is no room wait until others have ended.
            while reader.next_at().is_some_and(|at| at <= now)
                && software.executor.calls() < usize::from(CALLS)
            {
                let len = reader.next_len();
                let Reader { grant, local, .. } = &*reader;
                let piece = Piece { grant, remote_offset: 0, local, local_offset: 0, len };
                let call = software.submit(sim, &Call::of(&[piece])).expect("there is room");
                calls[call.index()] = (index, now);
            }
        }
        software.turn(sim);
        let later = |at: &Instant| *at > now;
        let arrivals = readers.iter().filter_map(|(_, reader)| reader.next_at()).filter(later);
        arrivals.chain(software.wake_at(sim)).min()
    }

    fn tell(&mut self, seen: &Seen, log: &mut L) -> bool {
        match &seen.what {
            What::Issued { command, result: Ok(()) } => {
                let CommandOp::Read(transfer) = command.op else { return false };
                let is_of =
                    |(_, reader): &&(usize, Reader)| reader.local.id() == transfer.local_region;
                let flow = self.readers.iter().find(is_of).expect("each flow has its region").0;
                self.ops[usize::from(command.slot.0)] = (flow, transfer.op_size);
                false
            }
            What::Completed(completion) => {
                let (flow, op_size) = self.ops[usize::from(completion.slot.0)];
                self.software.complete(completion);
                log.op(OpRecord {
                    at: seen.at,
                    flow,
                    op_size,
                    status: completion.status,
                    issue_delay: completion.issue_delay(),
                    total_delay: completion.total_delay(),
                    local_cwnd: self.software.executor.congestion_control().local_cwnd(),
                });
                true
            }
            _ => false,
        }
    }
}

/// Registers the region that `node` serves: as much as the longest call reads.
fn target(sim: &mut Sim, node: NodeId, options: &FlowOptions) -> RegisteredRegion {
    let flows = options.flows.iter().filter(|flow| flow.server == node.0);
    let mut bytes = vec![0; flows.map(|flow| flow.len as usize).max().unwrap_or(1)];
    Prng::new(node.0.into()).fill(&mut bytes);
    let memory = Arc::new(Region::new(bytes.len()).expect("a few MiB"));
    memory.copy_in(0, &bytes).expect("it is as long");
    let key = RegionKey::from_bytes([node.0 as u8; 16]);
    let entry = RegionEntry::new(memory.clone(), &key, Permissions::READ, Pid(1));
    register(sim, node, entry, memory)
}

fn reader(sim: &mut Sim, flow: Flow, target: &RegisteredRegion, mut prng: Prng) -> Reader {
    let node = NodeId(flow.client);
    let memory = Arc::new(Region::new(flow.len as usize).expect("a few MiB"));
    let key = RegionKey::from_bytes([0; 16]);
    let entry = RegionEntry::new(memory.clone(), &key, Permissions::NONE, PID);
    let local = register(sim, node, entry, memory);
    let (row, holder) = ((NodeId(flow.server), target.id()), (address(sim, node), PID));
    let grant = grant(sim, row, target.len(), holder, OpType::Read);
    let from = match flow.arrivals {
        Arrivals::BackToBack { from, .. } | Arrivals::Once { from } => from,
        Arrivals::Poisson { mean_gap } => prng.exponential(mean_gap),
    };
    let remote = target.memory().clone();
    let next_at = Instant::ZERO + from;
    Reader { flow, grant, remote, local, submitted: 0, under_way: 0, ok: 0, next_at, prng }
}
