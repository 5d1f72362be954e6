//! Generators at hosts, and what becomes of their calls: through an executor with a queue before
//! it, or straight to the NIC.
//!
//! Each host that begins calls has one process. It looks at each completion at once.
//!
//! Invariants: calls and ops are counted, and add up; what was read is what was there. Otherwise
//! the run panics, as it does where a promise is broken. Options that make no network, and traffic
//! that is none, are errors; more than a link carries is neither: see [`Report::is_saturated`].

use core::time::Duration;
use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    cc::{CcConfigBuilder, CcConfigError},
    command::{Command, CommandOp, Completion},
    crypto::RegionKey,
    executor::{Call, CallStatus, ExecutorConfig, Piece, RetryPolicy},
    grant::Grant,
    limits::{COMMAND_SLOTS_MAX, OP_SIZE_MAX},
    nic::{ConfigError, NicConfigBuilder, NicPlace, ReceiveLenMax, RegionEntry, Timing},
    op::{ClassOfService, OpStatus, OpType},
    portal::{CommandPortal, ReadOp, WriteOp},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;
use thiserror::Error;

use super::{
    RATE, RTT,
    drive::{App, Drive},
    network::{MTU, PORT_LEN, SLOTS, link},
    report::{Counts, Delays, Ended, HostReport, Latencies, Ops, Report},
    traffic::{self, Arrival, Framing, Op, Traffic, TrafficError},
};
use crate::{
    check::watch::{Checks, Watch},
    hosts::{
        memory::{address, grant, register},
        port::Port,
    },
    load::software::Software,
    net::{
        clock::ClockOptions,
        frame::NodeId,
        link::{Faults, JitterLaw},
        model_aead::Seals,
        node::{NodeOptions, Pace},
        queue::QueueOptions,
        sim::Sim,
        trace::{Seen, What},
    },
    prng::Prng,
};

/// All that a run depends on.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The seed of every random number of the run.
    pub seed: u64,
    /// The generators. All have traffic of as many hosts.
    pub sources: Vec<Source>,
    /// The way of calls into the NIC.
    pub front: Front,
    /// How many calls of a host may wait before it; further ones are shed.
    pub waiting: usize,
    /// The network.
    pub fabric: Fabric,
    /// Ops that end, or are offered, before then count for no rate and no latency.
    pub warm_up: Duration,
    /// For how long all of it is.
    pub length: Duration,
    /// A host that dies.
    pub death: Option<Death>,
    /// The way in which NICs seal frames.
    pub seals: Seals,
    /// The promises that are checked.
    pub checks: Checks,
}

/// A generator of calls.
#[derive(Clone, Debug)]
pub struct Source {
    /// The host that begins them.
    pub host: u16,
    /// The calls: those of this host.
    pub traffic: Traffic,
}

/// The way of calls into the NIC.
#[expect(clippy::large_enum_variant, reason = "a run has one")]
#[derive(Clone, Copy, Debug)]
pub enum Front {
    /// Through an executor.
    Executor {
        /// Its congestion control.
        cc: CcConfigBuilder,
        /// For ops that fail.
        retry: RetryPolicy,
    },
    /// Straight to the NIC, which has no congestion control.
    Nic {
        /// Ops that are issued again at once, in place of what waits.
        retry: Retry,
        /// How many command slots a host has.
        slots: u16,
    },
}

/// Ops that are issued again at once if they fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No op is issued again.
    Never,
    /// Those that a remote NIC refused.
    Nacked,
    /// All, until they are OK.
    Always,
}

/// The network, and the NICs in it.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// The rate of devices and of ports of the switch, in bytes a second.
    pub rate: u64,
    /// Hosts whose link has another one.
    pub rates: Vec<HostRate>,
    /// How long an idle 4 KiB read takes, between hosts of that rate and without jitter.
    pub rtt: Duration,
    /// How much longer a frame may take each way, at most, or twice the mean, by `law`.
    pub jitter: Duration,
    /// The distribution of jitter.
    pub law: JitterLaw,
    /// The faults of links.
    pub faults: Faults,
    /// The solicitation window of a NIC, in bytes.
    pub window: u32,
    /// The timeouts of a NIC.
    pub timing: Timing,
    /// When NICs refuse reads.
    pub nack: Nack,
}

/// The rate of a host's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRate {
    /// The host whose rate it is.
    pub host: u16,
    /// Bytes a second.
    pub rate: u64,
}

/// When NICs refuse reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nack {
    /// When those before it take so long that the answer would be late, as NICs do.
    Late,
    /// When so many bytes wait.
    Above(u64),
    /// No read is refused.
    Never,
}

/// A host dies in the midst, and its clients turn to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The host that dies.
    pub host: u16,
    /// When it dies.
    pub at: Duration,
    /// The host that has the same data: a client whose call fails asks there, with that call and
    /// with all later ones. `None`: the calls fail.
    pub replica: Option<u16>,
}

/// A workload that cannot be run.
#[derive(Clone, Debug, Error)]
pub enum WorkloadError {
    /// A generator is none.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// Nobody begins anything.
    #[error("no sources: give at least one")]
    NoSources,
    /// The hosts of generators are not the same.
    #[error("sources of {0} and of {1} hosts: take the same number")]
    Hosts(u32, u32),
    /// A host is not there.
    #[error("host {host} of {hosts} hosts: they have the numbers from 0")]
    Host {
        /// Its number.
        host: u16,
        /// How many there are.
        hosts: u32,
    },
    /// A round trip in which nothing can be sent.
    #[error("an RTT of {rtt:?} at {rate} B/s: sending alone takes longer; take a longer one")]
    Rtt {
        /// The round trip.
        rtt: Duration,
        /// The rate.
        rate: u64,
    },
    /// Calls that a NIC cannot take.
    #[error("calls of {0} bytes straight to the NIC: take at most {OP_SIZE_MAX}, or an executor")]
    Len(u64),
    /// No command slots, or too many.
    #[error("{0} command slots: take 1 to {COMMAND_SLOTS_MAX}")]
    Slots(u16),
    /// A queue of answers in which not one fits.
    #[error("refusing above {0} bytes refuses every read: take at least {OP_SIZE_MAX}")]
    Nack(u64),
    /// The time before NICs refuse is none, so no threshold can be set by it.
    #[error("a timeout of {0:?} leaves no time for a queue: take more than RTT + dispatch timeout")]
    NoQueue(Duration),
    /// Nothing would be measured.
    #[error("{length:?} with a warm-up of {warm_up:?}: take a longer time")]
    Length {
        /// All of the time.
        length: Duration,
        /// The part of it.
        warm_up: Duration,
    },
    /// The NIC refuses its settings.
    #[error(transparent)]
    Nic(#[from] ConfigError),
    /// Congestion control refuses its settings.
    #[error(transparent)]
    Cc(#[from] CcConfigError),
}

/// How many calls an executor has at most.
const CALLS: u16 = 1024;

const PID: Pid = Pid(7);

impl Fabric {
    /// The paper's (1RMA §7.5): 100 Gbit/s, 5 µs, 2 of them to enter service and 4 for the data, a
    /// window of `window` bytes.
    #[must_use]
    pub fn paper(window: u32) -> Self {
        Self {
            rate: RATE,
            rates: Vec::new(),
            rtt: RTT,
            jitter: Duration::ZERO,
            law: JitterLaw::Uniform,
            faults: Faults::default(),
            window,
            timing: Timing::new(RTT * 2, RTT * 4),
            nack: Nack::Late,
        }
    }

    fn rate_of(&self, host: u16) -> u64 {
        self.rates.iter().find(|it| it.host == host).map_or(self.rate, |it| it.rate)
    }

    /// The bandwidth that makes a NIC refuse where it is to.
    fn bandwidth(&self, host: u16) -> Result<u64, WorkloadError> {
        let Timing { timeout, dispatch_timeout, .. } = self.timing;
        match self.nack {
            Nack::Late => Ok(self.rate_of(host)),
            Nack::Never => Ok(1 << 63),
            Nack::Above(bytes) if bytes < OP_SIZE_MAX.into() => Err(WorkloadError::Nack(bytes)),
            Nack::Above(bytes) => {
                let time = timeout.checked_sub(self.rtt + dispatch_timeout);
                let nanos = time.map_or(0, |it| it.as_nanos());
                let rate = (u128::from(bytes) * 1_000_000_000).checked_div(nanos);
                let rate = rate.ok_or(WorkloadError::NoQueue(timeout))?;
                Ok(u64::try_from(rate).unwrap_or(u64::MAX))
            }
        }
    }

    fn node(&self, host: u16, slots: u16) -> Result<NodeOptions, WorkloadError> {
        let [high, low] = host.to_be_bytes();
        let bandwidth = self.bandwidth(host)?;
        Ok(NodeOptions {
            place: NicPlace::at(HostAddr::from([10, 0, high, low])),
            nic: NicConfigBuilder::default().with(|it| {
                it.command_slots = slots.into();
                it.regions = REGIONS;
                it.solicitation_window = self.window;
                it.timing = self.timing;
                it.rtt = self.rtt;
                it.bandwidth = bandwidth;
            }),
            mtu: MTU,
            rate: self.rate_of(host),
            // The figures are the paper's.
            pace: Pace::Hardware,
            receive_ring: 0,
            clock: ClockOptions::default(),
        })
    }
}

/// Regions of a host: what it serves, what it reads into, and what it writes from.
const REGIONS: u32 = 3;

impl Workload {
    /// All hosts of `traffic` begin its calls, with a model of AES-GCM and light checks.
    #[must_use]
    pub fn of(traffic: &Traffic, front: Front, fabric: Fabric, length: Duration) -> Self {
        let source = |host| Source { host, traffic: traffic.clone() };
        let hosts = u16::try_from(traffic.hosts.saturating_sub(1)).unwrap_or(u16::MAX);
        Self {
            seed: 1,
            sources: (0..=hosts).map(source).collect(),
            front,
            waiting: 1 << 12,
            fabric,
            warm_up: length / 10,
            length,
            death: None,
            seals: Seals::Model,
            checks: Checks::Light,
        }
    }

    fn hosts(&self) -> Result<u32, WorkloadError> {
        let first = self.sources.first().ok_or(WorkloadError::NoSources)?.traffic.hosts;
        match self.sources.iter().find(|it| it.traffic.hosts != first) {
            Some(other) => Err(WorkloadError::Hosts(first, other.traffic.hosts)),
            None => Ok(first),
        }
    }

    /// Checks what traffic and NICs do not check themselves.
    fn check(&self) -> Result<(), WorkloadError> {
        let (hosts, Self { warm_up, length, .. }) = (self.hosts()?, self);
        for source in &self.sources {
            source.traffic.check()?;
        }
        if warm_up >= length {
            return Err(WorkloadError::Length { length: *length, warm_up: *warm_up });
        }
        let rates = self.fabric.rates.iter().map(|it| it.host);
        let death = self.death.iter().flat_map(|it| [Some(it.host), it.replica]).flatten();
        let sources = self.sources.iter().map(|it| it.host);
        if let Some(host) = rates.chain(death).chain(sources).find(|&it| u32::from(it) >= hosts) {
            return Err(WorkloadError::Host { host, hosts });
        }
        if let Front::Executor { cc, .. } = self.front {
            cc.build()?;
        }
        if let Front::Nic { slots, .. } = self.front {
            if !(1..=COMMAND_SLOTS_MAX).contains(&u32::from(slots)) {
                return Err(WorkloadError::Slots(slots));
            }
            let longest = self.lens().max().unwrap_or(0);
            if longest > OP_SIZE_MAX.into() {
                return Err(WorkloadError::Len(longest));
            }
        }
        Ok(())
    }

    fn lens(&self) -> impl Iterator<Item = u64> {
        self.sources.iter().flat_map(|it| &it.traffic.sizes).map(|size| size.len)
    }

    fn slots(&self) -> u16 {
        match self.front {
            Front::Executor { .. } => SLOTS,
            Front::Nic { slots, .. } => slots,
        }
    }
}

/// Runs `workload`.
///
/// # Errors
/// If it cannot be run: what is wrong, and what to take instead.
///
/// # Panics
/// If a promise is broken, other bytes are read than there are, or numbers do not add up.
pub fn run(workload: &Workload) -> Result<Report, WorkloadError> {
    watch(workload, &mut |_| ())
}

/// Runs `workload`, and shows each call that has ended.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn watch(workload: &Workload, ended: &mut dyn FnMut(&Ended)) -> Result<Report, WorkloadError> {
    let mut drive = network(workload, ended)?;
    if let Some(Death { host, at, .. }) = workload.death
        && at < workload.length
    {
        drive.run_until(Instant::ZERO + at);
        drive.crash(NodeId(host));
    }
    drive.run_until(Instant::ZERO + workload.length);
    drive.check_end();
    let Drive { sim, apps, log, .. } = drive;
    let Log { latencies, issue_delay, .. } = log;
    let longest_queue = sim.nodes().map(|node| sim.longest_queue(node)).max().unwrap_or(0);
    let hosts = apps.iter().map(Host::report).collect();
    let measured = workload.length - workload.warm_up;
    let rate = workload.fabric.rate;
    Ok(Report { hosts, latencies, issue_delay, longest_queue, measured, rate })
}

/// The reports of hosts.
struct Log<'a> {
    latencies: Vec<Latencies>,
    issue_delay: Delays,
    ended: &'a mut dyn FnMut(&Ended),
}

fn network<'a>(
    workload: &Workload,
    ended: &'a mut dyn FnMut(&Ended),
) -> Result<Drive<Host, Log<'a>>, WorkloadError> {
    workload.check()?;
    let Fabric { rate, rtt, jitter, .. } = workload.fabric;
    let hosts = workload.hosts()?;
    let numbers = 0..=u16::try_from(hosts - 1).unwrap_or(u16::MAX);
    // Hosts that only serve begin nothing.
    let begins = |host| workload.sources.iter().any(|it| it.host == host);
    let slots = |host| if begins(host) { workload.slots() } else { 1 };
    let nodes = numbers.map(|host| workload.fabric.node(host, slots(host)));
    let nodes: Vec<_> = nodes.collect::<Result<_, _>>()?;
    let mut link = link(rtt, rate, jitter).ok_or(WorkloadError::Rtt { rtt, rate })?;
    (link.law, link.faults) = (workload.fabric.law, workload.fabric.faults);
    let port = QueueOptions { rate, len: PORT_LEN };
    let prng = Prng::new(workload.seed);
    let seed = prng.fork(0).next();
    let mut sim = Sim::with_seals(&nodes, link, Some(port), seed, workload.seals)?;
    for &HostRate { host, rate } in &workload.fabric.rates {
        sim.set_port(NodeId(host), QueueOptions { rate, len: PORT_LEN });
    }
    let watch = Watch::new(&sim, workload.checks);
    let len = workload.lens().max().unwrap_or(1);
    let is_read = workload.sources.iter().any(|it| it.traffic.op == Op::Read);
    let served = sim.nodes().map(|node| served(&mut sim, node, len, is_read)).collect();
    let served: Arc<[RegisteredRegion]> = served;
    let mut apps = Vec::new();
    for node in sim.nodes() {
        if workload.sources.iter().any(|it| it.host == node.0) {
            apps.push((node, Host::new(&mut sim, node, workload, served.clone())?));
        }
    }
    let mut lens: Vec<u64> = workload.lens().collect();
    lens.sort_unstable();
    lens.dedup();
    let latencies = lens.into_iter().map(|len| Latencies { len, delays: Delays::default() });
    let log = Log { latencies: latencies.collect(), issue_delay: Delays::default(), ended };
    Ok(Drive::new(sim, watch, apps, log))
}

/// The bytes that all hosts serve and write, so that whoever has read knows what must be there.
fn pattern(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    Prng::new(len).fill(&mut bytes);
    bytes
}

/// Registers a region of `node`, with bytes in it if it is read.
fn region(
    sim: &mut Sim,
    node: NodeId,
    len: u64,
    is_read: bool,
    entry: impl FnOnce(Arc<Region>) -> RegionEntry,
) -> RegisteredRegion {
    let memory = Arc::new(Region::new(len as usize).expect("a few MiB"));
    if is_read {
        memory.copy_in(0, &pattern(len)).expect("it is as long");
    }
    register(sim, node, entry(memory.clone()), memory)
}

/// Registers the region that `node` serves.
fn served(sim: &mut Sim, node: NodeId, len: u64, is_read: bool) -> RegisteredRegion {
    let key = RegionKey::from_bytes([node.0 as u8; 16]);
    let permissions = Permissions::READ | Permissions::WRITE;
    region(sim, node, len, is_read, |it| RegionEntry::new(it, &key, permissions, Pid(1)))
}

/// A call, from when it is offered to its end.
#[derive(Clone, Copy, Debug)]
struct Offered {
    at: Instant,
    destination: u16,
    len: u64,
    op: Op,
    retries: u32,
}

/// A generator under way.
struct Generator {
    op: Op,
    calls: traffic::Ops,
    next: Option<Arrival>,
}

enum Entry {
    Executor { software: Box<Software>, retry: RetryPolicy },
    Nic { portal: Box<CommandPortal>, port: Box<Port>, retry: Retry },
}

/// A host that begins calls.
struct Host {
    node: NodeId,
    entry: Entry,
    generators: Vec<Generator>,
    waits: VecDeque<Offered>,
    waiting_max: usize,
    /// By number of the call, or by command slot.
    under_way: Vec<Option<Offered>>,
    /// By command slot: how much payload its op has, and which way it goes.
    transfers: Vec<Option<OpTransfer>>,
    /// The longest call that was OK, of reads and of writes.
    longest: [Option<Offered>; 2],
    /// Memory where reads land, and where writes come from.
    sink: RegisteredRegion,
    source: RegisteredRegion,
    served: Arc<[RegisteredRegion]>,
    /// By destination, reads and writes; made when they are needed.
    grants: Vec<[Option<Box<Grant>>; 2]>,
    warm_up: Instant,
    death: Option<Death>,
    /// Whether it has seen that host fail.
    has_turned: bool,
    calls: Counts,
    ops: Ops,
}

#[derive(Clone, Copy, Debug)]
struct OpTransfer {
    op: Op,
    len: u64,
}

impl OpTransfer {
    fn of(command: &Command) -> Option<Self> {
        let (op, transfer) = match &command.op {
            CommandOp::Read(transfer) => (Op::Read, transfer),
            CommandOp::Write(transfer) => (Op::Write, transfer),
            _ => return None,
        };
        Some(Self { op, len: transfer.op_size.into() })
    }
}

impl Host {
    fn new(
        sim: &mut Sim,
        node: NodeId,
        workload: &Workload,
        served: Arc<[RegisteredRegion]>,
    ) -> Result<Self, WorkloadError> {
        let [sink, source] = [false, true].map(|is_read| {
            let (key, len) = (RegionKey::from_bytes([0; 16]), served[0].len());
            region(sim, node, len, is_read, |it| RegionEntry::new(it, &key, Permissions::NONE, PID))
        });
        let slots = workload.slots();
        let (entry, count) = match workload.front {
            Front::Executor { cc, retry } => {
                let receive = ReceiveLenMax::of_mtu(MTU.into());
                let Fabric { timing, rtt, .. } = workload.fabric;
                let config = ExecutorConfig::new(receive, timing.timeout, rtt).with(|it| {
                    it.calls = CALLS;
                    it.cc = cc;
                });
                let software = Box::new(Software::new(sim, node, 0..slots, PID, config));
                (Entry::Executor { software, retry }, CALLS)
            }
            Front::Nic { retry, .. } => {
                let (portal, port) = Port::new(sim, node, 0..slots, PID);
                (Entry::Nic { portal: Box::new(portal), port: Box::new(port), retry }, slots)
            }
        };
        let own = (0..).zip(workload.sources.iter().filter(|it| it.host == node.0));
        let generator = |(index, source): (u64, &Source)| {
            // Those of one host differ from each other.
            let other = Prng::new(workload.seed).fork(0x2000 + index).next();
            let seed = if index == 0 { workload.seed } else { other };
            let Source { host, traffic } = source;
            let mut calls = traffic.ops(seed, *host)?;
            let next = calls.next();
            Ok::<_, WorkloadError>(Generator { op: traffic.op, calls, next })
        };
        Ok(Self {
            node,
            entry,
            generators: own.map(generator).collect::<Result<_, _>>()?,
            waits: VecDeque::new(),
            waiting_max: workload.waiting,
            under_way: vec![None; count.into()],
            transfers: vec![None; slots.into()],
            longest: [None; 2],
            sink,
            source,
            grants: served.iter().map(|_| [None, None]).collect(),
            served,
            warm_up: Instant::ZERO + workload.warm_up,
            death: workload.death,
            has_turned: false,
            calls: Counts::default(),
            ops: Ops::default(),
        })
    }

    /// Its numbers, which add up.
    fn report(&self) -> HostReport {
        let waiting = self.waits.len() as u64;
        let under_way = self.under_way.iter().flatten().count() as u64;
        let calls = Counts { waiting, under_way, ..self.calls };
        calls.check(self.node.0);
        let outstanding = self.transfers.iter().flatten().count() as u64;
        assert_eq!(self.ops.issued, self.ops.ended() + outstanding, "ops of {}", self.node);
        self.check_bytes();
        HostReport { host: self.node.0, calls, ops: self.ops }
    }

    /// Whether what was read is what was there, and what was written is there.
    fn check_bytes(&self) {
        for call in self.longest.iter().flatten() {
            let memory = match call.op {
                Op::Read => self.sink.memory(),
                Op::Write => self.served[usize::from(call.destination)].memory(),
            };
            let mut bytes = vec![0; call.len as usize];
            memory.copy_out(0, &mut bytes).expect("regions are as long as calls");
            let right = pattern(self.sink.len());
            assert!(bytes == right[..bytes.len()], "{}: other bytes, {call:?}", self.node);
        }
    }

    fn has_room(&self) -> bool {
        match &self.entry {
            Entry::Executor { software, .. } => software.executor.calls() < usize::from(CALLS),
            Entry::Nic { portal, .. } => portal.next_slot().is_some(),
        }
    }

    /// Takes what generators have made by now.
    fn offer(&mut self, sim: &mut Sim) {
        let now = sim.now();
        while let Some(offered) = self.next_offered(now) {
            self.calls.offered += 1;
            if self.waits.is_empty() && self.has_room() {
                self.submit(sim, offered);
            } else if self.waits.len() < self.waiting_max {
                self.waits.push_back(offered);
            } else {
                self.calls.shed += 1;
            }
        }
    }

    fn next_offered(&mut self, now: Instant) -> Option<Offered> {
        let due = |it: &Generator| it.next.map(|next| next.at).filter(|&at| at <= now);
        let of =
            self.generators.iter_mut().filter(|it| due(it).is_some()).min_by_key(|it| due(it))?;
        let Arrival { at, destination, len } = core::mem::replace(&mut of.next, of.calls.next())?;
        Some(Offered { at, destination, len, op: of.op, retries: 0 })
    }

    /// The host that serves what is asked of `destination`.
    fn turned(&self, destination: u16) -> u16 {
        let death = self.death.filter(|it| self.has_turned && it.host == destination);
        death.and_then(|it| it.replica).unwrap_or(destination)
    }

    fn submit(&mut self, sim: &mut Sim, offered: Offered) {
        let destination = self.turned(offered.destination);
        let offered = Offered { destination, ..offered };
        let Offered { len, op, .. } = offered;
        let known = &mut self.grants[usize::from(destination)][op as usize];
        let region = &self.served[usize::from(destination)];
        let grant = &**known.get_or_insert_with(|| {
            let op_type = match op {
                Op::Read => OpType::Read,
                Op::Write => OpType::Write,
            };
            let holder = (address(sim, self.node), PID);
            let row = (NodeId(destination), region.id());
            Box::new(grant(sim, row, region.len(), holder, op_type))
        });
        let local = match op {
            Op::Read => &self.sink,
            Op::Write => &self.source,
        };
        let place = match &mut self.entry {
            Entry::Executor { software, retry } => {
                let piece = Piece { grant, remote_offset: 0, local, local_offset: 0, len };
                let pieces = [piece];
                let call = Call::of(&pieces).with(|it| it.retry = *retry);
                software.submit(sim, &call).expect("there is room").index()
            }
            Entry::Nic { portal, .. } => {
                let op_size = len as u32;
                let class = ClassOfService::Latency;
                let slot = match op {
                    Op::Read => portal.issue_read(&ReadOp {
                        grant,
                        remote_offset: 0,
                        sink: local,
                        sink_offset: 0,
                        op_size,
                        class,
                    }),
                    Op::Write => portal.issue_write(&WriteOp {
                        grant,
                        remote_offset: 0,
                        source: local,
                        source_offset: 0,
                        op_size,
                        class,
                    }),
                };
                slot.expect("there is a slot").0.into()
            }
        };
        self.under_way[place] = Some(offered);
    }

    /// Takes what has ended.
    fn take_ended(&mut self, sim: &Sim, log: &mut Log<'_>) {
        loop {
            let (place, result) = match &mut self.entry {
                Entry::Executor { software, .. } => {
                    let Some(outcome) = software.poll_outcome() else { return };
                    let is_ok = outcome.status == CallStatus::Ok;
                    (outcome.call.index(), if is_ok { Ok(()) } else { Err(Retry::Never) })
                }
                Entry::Nic { portal, retry, .. } => {
                    let Some(Completion { slot, status, .. }) = portal.poll() else { return };
                    let again = match (status, *retry) {
                        (OpStatus::Nack, Retry::Nacked) | (_, Retry::Always) => Retry::Always,
                        _ => Retry::Never,
                    };
                    let result = if status == OpStatus::Ok { Ok(()) } else { Err(again) };
                    (usize::from(slot.0), result)
                }
            };
            let call = self.under_way[place].take().expect("what ends was under way");
            self.end(sim.now(), call, result, log);
        }
    }

    /// A call is OK, is tried again, or has failed.
    fn end(&mut self, now: Instant, call: Offered, result: Result<(), Retry>, log: &mut Log<'_>) {
        let Offered { at, destination, len, op, retries } = call;
        let replica = self.death.filter(|it| it.host == destination && it.replica.is_some());
        let turns = result.is_err() && replica.is_some_and(|it| Instant::ZERO + it.at <= now);
        self.has_turned |= turns;
        if turns || result == Err(Retry::Always) {
            self.calls.retried += 1;
            self.waits.push_front(Offered { retries: retries + 1, ..call });
            return;
        }
        let is_ok = result.is_ok();
        if is_ok {
            self.calls.ok += 1;
            let longest = &mut self.longest[op as usize];
            if longest.is_none_or(|it| it.len < len) {
                *longest = Some(call);
            }
            if at >= self.warm_up {
                let of = log.latencies.iter_mut().find(|it| it.len == len);
                of.expect("all lengths have one").delays.add(now.since(at));
            }
        } else {
            self.calls.failed += 1;
        }
        let host = self.node.0;
        (log.ended)(&Ended { at: now, offered: at, host, destination, len, is_ok, retries });
    }

    /// Software has written commands, or looked: the NIC takes them, or gives completions.
    fn look(&mut self, sim: &mut Sim) {
        match &mut self.entry {
            Entry::Executor { software, .. } => software.turn(sim),
            Entry::Nic { port, .. } => {
                while port.issue_next(sim) {
                    sim.end_turn(self.node);
                }
            }
        }
    }
}

impl App<Log<'_>> for Host {
    fn turn(&mut self, sim: &mut Sim, log: &mut Log<'_>) -> Option<Instant> {
        // First, so that what has ended makes place for what follows.
        self.look(sim);
        self.take_ended(sim, log);
        while self.has_room() {
            let Some(offered) = self.waits.pop_front() else { break };
            self.submit(sim, offered);
        }
        self.offer(sim);
        self.look(sim);
        let arrivals = self.generators.iter().filter_map(|it| Some(it.next?.at));
        let software = match &self.entry {
            Entry::Executor { software, .. } => software.wake_at(sim),
            Entry::Nic { .. } => None,
        };
        arrivals.chain(software).min()
    }

    fn tell(&mut self, seen: &Seen, log: &mut Log<'_>) -> bool {
        match &seen.what {
            What::Issued { command, result } => {
                result.as_ref().expect("a NIC takes what software may ask");
                self.ops.issued += 1;
                self.transfers[usize::from(command.slot.0)] = OpTransfer::of(command);
                false
            }
            What::Completed(completion) => {
                let slot = usize::from(completion.slot.0);
                let transfer = self.transfers[slot].take().expect("it was issued");
                self.ops.ended[completion.status as usize] += 1;
                if completion.status == OpStatus::Ok && seen.at >= self.warm_up {
                    self.ops.payload += transfer.len;
                    self.ops.wire_bytes += Framing::own(transfer.op).wire_bytes(transfer.len);
                    log.issue_delay.add(completion.issue_delay());
                }
                match &mut self.entry {
                    Entry::Executor { software, .. } => software.complete(completion),
                    Entry::Nic { port, .. } => port.complete(completion),
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
