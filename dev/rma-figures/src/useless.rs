//! The rates that *useless requests* leave to a host's own READs and an honest host's WRITEs:
//! authentic WRITE requests at the same host whose data never comes (promise P13).
//!
//! Two inline hosts over AF_XDP, each on a thread of its own. The *target* reads from the other
//! host, or that writes to it, four ops under way without pause. The useless requests are sent by
//! the kernel's UDP sockets in the other host's namespace, at a rate that is kept to, from
//! addresses of writers that do not exist: nobody answers what the target solicits. They were made
//! beforehand, by NICs with grants, and are sent again and again in the same order; one that comes
//! again does so when its entry has long been another's.

use core::{net::Ipv4Addr, time::Duration};
use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use rma_bench::{
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    latency::Latencies,
    pair::{Pair, PairConfig, Place, cores, pin},
};
use rma_core::{
    command::{Command, CommandOp, CommandSlotId, Transfer},
    nic::{Nic, NicPlace, RegionEntry},
    op::ClassOfService,
    time::Instant,
    wire::FRAME_LEN_MIN,
};
use rma_lab::Lab;
use rma_xdp::{
    Grant, HostAddr, InlineHost, OpStatus, OpType, Permissions, Pid, Portal, Region, RegionKey,
    RegisteredRegion,
    config::NicConfigBuilder,
    ops::Moves,
    time::{Clock, TscClock},
};

/// Useless requests a second: what fills a window in the time of a timeout, and ten and a hundred
/// times as many.
pub const RATES: [u64; 3] = [640, 6_400, 64_000];

/// Ops under way at once.
const DEPTH: u16 = 4;
/// Bytes of each op, useless ones included.
const SIZE: u32 = 4096;
/// Requests that are sent in turn, of all writers together: as many as come in a second at the
/// highest rate.
const REQUESTS: usize = 65_536;
/// Useless requests that are sent between two turns of an engine, at most. More: what is behind the
/// rate is caught up with in bursts.
const BURST: u64 = 32;
/// For how long ops run before they are counted, in nanoseconds: longer than the default timeout,
/// after which nothing of what was before is left at the target.
const WARM_UP: u64 = 150_000_000;
/// For how long they are counted.
const COUNTED: u64 = 350_000_000;
/// How often each rate has its turn.
const ROUNDS: usize = 3;
/// After how long an op that was refused is issued again.
const PAUSE: u64 = 1_000_000;

/// The sender of useless requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Useless {
    /// Somebody without a key, who has recorded WRITEs of one host.
    Replayed,
    /// 64 hosts that were granted WRITEs, and have stopped.
    Silent,
}

impl Useless {
    const fn writers(self) -> u8 {
        match self {
            Self::Replayed => 1,
            Self::Silent => 64,
        }
    }
}

/// The observations beside one rate of useless requests.
#[derive(Clone, Debug)]
pub struct Beside {
    /// Useless requests a second; 0: none.
    pub rate: u64,
    /// How many there were really.
    pub reached: f64,
    /// Ops that ended with OK, in a second.
    pub ok_per_s: f64,
    /// Ops that ended otherwise.
    pub failed: u64,
    /// Of those that ended with OK.
    pub latencies: Latencies,
}

/// Measures ops of `op_type` without useless requests and at each of [`RATES`], in turns: READs of
/// the target itself, or WRITEs of the other host.
///
/// # Errors
/// If something could not be set up; on Ctrl-C.
///
/// # Panics
/// If a thread does.
pub fn measure(
    lab: &Lab,
    useless: Useless,
    op_type: OpType,
    interrupt: &Interrupt,
) -> Result<Vec<Beside>, PairError> {
    let mut stage = Stage::open(lab, useless, op_type)?;
    let beside =
        |rate| Beside { rate, reached: 0.0, ok_per_s: 0.0, failed: 0, latencies: Latencies::new() };
    let mut all: Vec<_> = [0].into_iter().chain(RATES).map(beside).collect();
    let seconds = (ROUNDS as u64 * COUNTED) as f64 / 1e9;
    for _ in 0..ROUNDS {
        for beside in &mut all {
            stage.run(beside.rate)?;
            let Stage { load, sender, .. } = &mut stage;
            beside.reached += sender.counted as f64 / seconds;
            beside.ok_per_s += load.latencies.count() as f64 / seconds;
            beside.failed += load.failed;
            beside.latencies.merge(&load.latencies);
            if interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
        }
    }
    Ok(all)
}

struct Stage {
    target: InlineHost,
    other: InlineHost,
    /// The load whose ops are counted: the target's own READs, or the other host's WRITEs.
    load: Load,
    sender: Sender,
    clock: TscClock,
}

impl Stage {
    fn open(lab: &Lab, useless: Useless, op_type: OpType) -> Result<Self, PairError> {
        let Pair { client, server: mut other, region, port, .. } =
            Pair::open(Place::Lab(lab), &PairConfig::default())?;
        let Client { host: mut target, clock, .. } = client;
        let written = target.register(SIZE as usize, Permissions::WRITE)?;
        let sender = Sender::open(lab, &mut target, &written, (useless, port))?;
        let (target_addr, other_addr) = (HostAddr::from(Lab::A_V4), HostAddr::from(Lab::B_V4));
        let load = match op_type.shape().moves {
            Moves::In => {
                let grant = other.grant(&region, target_addr, target.pid(), op_type)?;
                Load::new(&mut target, grant)?
            }
            Moves::Out => {
                let grant = target.grant(&written, other_addr, other.pid(), op_type)?;
                Load::new(&mut other, grant)?
            }
        };
        Ok(Self { target, other, load, sender, clock })
    }

    /// Runs the load beside `rate` useless requests a second.
    fn run(&mut self, rate: u64) -> Result<(), PairError> {
        let Self { target, other, load, sender, clock } = self;
        let (target_core, other_core) = cores();
        let from = clock.now().as_nanos() + WARM_UP;
        let until = from + COUNTED;
        load.begin(from, until);
        sender.begin(rate, from, until);
        let is_own = load.grant.op_type.shape().moves == Moves::In;
        let (mut own, mut others) = if is_own { (Some(load), None) } else { (None, Some(load)) };
        let stop = &AtomicBool::new(false);
        // Turns of one engine, until the ops are over; whose they are says so.
        let turns = |host: &mut InlineHost, load: &mut Option<&mut Load>, now: u64| {
            host.turn();
            let Some(load) = load else { return Ok(()) };
            let is_over = load.turn(now);
            if !matches!(is_over, Ok(false)) {
                stop.store(true, Relaxed);
            }
            is_over.map(drop)
        };
        // A clock is one thread's; those of one epoch tell one time.
        let (its_clock, clock) = (clock.clone(), clock.clone());
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                pin(other_core);
                while !stop.load(Relaxed) {
                    let now = its_clock.now().as_nanos();
                    sender.turn(now);
                    turns(other, &mut others, now)?;
                }
                Ok(())
            });
            let target = scope.spawn(move || {
                pin(target_core);
                while !stop.load(Relaxed) {
                    turns(target, &mut own, clock.now().as_nanos())?;
                }
                Ok(())
            });
            let results = [other.join(), target.join()];
            results.into_iter().try_for_each(|result| {
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }
}

/// Ops that one host keeps under way.
struct Load {
    portal: Portal,
    grant: Grant,
    local: RegisteredRegion,
    /// When the op in each slot was issued.
    issued: [u64; DEPTH as usize],
    /// When those that were refused are issued again.
    again: Vec<u64>,
    /// From when to when ops are counted; then no more are issued.
    counted: (u64, u64),
    latencies: Latencies,
    failed: u64,
}

impl Load {
    fn new(host: &mut InlineHost, grant: Grant) -> Result<Self, PairError> {
        Ok(Self {
            portal: host.portal(DEPTH)?,
            grant,
            local: host.register(SIZE as usize, Permissions::NONE)?,
            issued: [0; DEPTH as usize],
            again: Vec::new(),
            counted: (0, 0),
            latencies: Latencies::new(),
            failed: 0,
        })
    }

    fn begin(&mut self, from: u64, until: u64) {
        self.again.clear();
        (self.counted, self.latencies, self.failed) = ((from, until), Latencies::new(), 0);
    }

    /// Takes what has ended and issues what may be. Returns whether all is over.
    fn turn(&mut self, now: u64) -> Result<bool, PairError> {
        let (from, until) = self.counted;
        while let Some(completion) = self.portal.poll() {
            let is_counted = (from..until).contains(&now);
            if completion.status == OpStatus::Ok {
                if is_counted {
                    let index = completion.slot.0 - self.portal.slots().start;
                    self.latencies.record_nanos(now - self.issued[usize::from(index)]);
                }
            } else {
                self.failed += u64::from(is_counted);
                self.again.push(now + PAUSE);
            }
        }
        self.again.retain(|&at| at > now);
        while now < until && self.portal.outstanding() + self.again.len() < DEPTH.into() {
            let Self { portal, grant, local, .. } = self;
            let slot = if grant.op_type.shape().moves == Moves::In {
                portal.read(grant, 0, local, 0, SIZE)?
            } else {
                portal.write(grant, 0, local, 0, SIZE)?
            };
            self.issued[usize::from(slot.0 - self.portal.slots().start)] = now;
        }
        Ok(now >= until && self.portal.outstanding() == 0)
    }
}

/// Sends useless requests at a rate.
struct Sender {
    sockets: Vec<UdpSocket>,
    /// The index of each request's socket, and the request.
    requests: Vec<(usize, Box<[u8]>)>,
    next: usize,
    rate: u64,
    began: Option<u64>,
    sent: u64,
    counting: (u64, u64),
    /// Those that the kernel took while ops were counted.
    counted: u64,
}

impl Sender {
    fn open(
        lab: &Lab,
        target: &mut InlineHost,
        region: &RegisteredRegion,
        (useless, port): (Useless, u16),
    ) -> Result<Self, PairError> {
        let _inside = lab.b().enter()?;
        let (mut sockets, mut by_writer) = (Vec::new(), Vec::new());
        for number in 0..useless.writers() {
            let addr = Ipv4Addr::new(192, 0, 2, 100 + number);
            let with_prefix = format!("{addr}/{}", Lab::V4_PREFIX);
            lab.b().ip(&["addr", "add", &with_prefix, "dev", Lab::INTERFACE])?;
            let grant = target.grant(region, addr.into(), Pid(1), OpType::Write)?;
            // The target knows the way to whoever has a grant.
            target.resolve(addr.into())?;
            let socket = UdpSocket::bind((addr, 50_000 + u16::from(number)))?;
            socket.connect((Lab::A_V4, port))?;
            socket.set_nonblocking(true)?;
            sockets.push(socket);
            by_writer.push(requests(&grant, REQUESTS / usize::from(useless.writers())));
        }
        let writers = by_writer.len();
        let mut by_writer: Vec<_> = by_writer.into_iter().map(Vec::into_iter).collect();
        let in_turns = (0..REQUESTS).filter_map(|index| {
            let writer = index % writers;
            Some((writer, by_writer[writer].next()?))
        });
        let requests = in_turns.collect();
        let (began, counting) = (None, (0, 0));
        Ok(Self { sockets, requests, next: 0, rate: 0, began, sent: 0, counting, counted: 0 })
    }

    fn begin(&mut self, rate: u64, from: u64, until: u64) {
        (self.rate, self.began, self.sent) = (rate, None, 0);
        (self.counting, self.counted) = ((from, until), 0);
    }

    fn turn(&mut self, now: u64) {
        let (from, until) = self.counting;
        let began = *self.began.get_or_insert(now);
        let due = (now.min(until) - began.min(until)) * self.rate / 1_000_000_000;
        for _ in 0..BURST.min(due.saturating_sub(self.sent)) {
            let (socket, request) = &self.requests[self.next];
            self.next = (self.next + 1) % self.requests.len();
            self.sent += 1;
            // A request that the kernel has no room for is not counted, and so not claimed.
            if self.sockets[*socket].send(request).is_ok() && now >= from {
                self.counted += 1;
            }
        }
    }
}

/// So many requests of the holder of `grant`, of both classes, each of another op.
fn requests(grant: &Grant, count: usize) -> Vec<Box<[u8]>> {
    let config = NicConfigBuilder::default().build(NicPlace::at(grant.initiator));
    let mut nic = Nic::new(config.expect("the defaults and an address"));
    nic.configure_slots(0..1024, Some(grant.pid));
    let memory = Arc::new(Region::new(SIZE as usize).expect("a page can be had"));
    let key = RegionKey::from_bytes([0; 16]);
    let entry = RegionEntry::new(memory, &key, Permissions::NONE, grant.pid);
    let local_region = nic.regions_mut().register(Box::new(entry)).expect("the table is empty");
    let (mut requests, mut now) = (Vec::with_capacity(count), Instant::ZERO);
    let mut frame = [0; FRAME_LEN_MIN];
    while requests.len() < count {
        let slot = (requests.len() % 1024) as u16;
        if slot == 0 {
            // All before have timed out by then.
            now = now + Duration::from_secs(1);
            nic.handle_timeout(now);
            while nic.poll_completion().is_some() {}
        }
        let command = Command {
            slot: CommandSlotId(slot),
            class: ClassOfService::ALL[usize::from(slot % 2)],
            responder: grant.responder,
            remote_region: grant.region,
            key: grant.key,
            op: CommandOp::Write(Transfer {
                op_size: SIZE,
                remote_offset: 0,
                local_region,
                local_offset: 0,
            }),
        };
        nic.handle_command(now, command).expect("the slot is free");
        let transmit = nic.poll_transmit(now, &mut frame).expect("a mutation needs no window");
        requests.push(frame[..transmit.len].into());
    }
    requests
}
