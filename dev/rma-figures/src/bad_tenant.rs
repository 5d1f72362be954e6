//! A tenant that has gone bad, and its share of what another tenant of its process needs (P13).
//!
//! Two inline hosts over AF_XDP. The *target* has two tenants. The one keeps 64 B READs of the
//! other host under way, and has a region to whose words that host adds. The other one has all that
//! it can get: it reads into nowhere, writes commands that make no sense into many portals, and
//! changes the keys of its regions; and whoever has grants for its regions fills its records, as
//! each op goes to another region and none says that an earlier one is done. Both run on the thread
//! of the target's engine, and so what the bad one does itself counts, too.
//!
//! [`records_shared`] has no tenants: one region, and two hosts that have grants for it. Nothing in
//! it depends on a processor, so it is measured by NICs alone, in virtual time.

use core::time::Duration;

use rma_bench::{
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    latency::Latencies,
    pair::{Pair, PairConfig, Place},
};
use rma_core::{
    backend::RxFrame,
    command::{Command, CommandOp, CommandSlotId, RecordedOp},
    crypto::{KeyBinding, RegionKeySchedule},
    nic::{Nic, NicPlace, RegionEntry},
    op::ClassOfService,
    port::SourcePort,
    region::RegionId,
    time::Instant,
    wire::FRAME_LEN_MAX,
};
use rma_lab::Lab;
use rma_xdp::{
    Grant, HostAddr, InlineHost, OpStatus, OpType, Permissions, Pid, Portal, ReceiveQueue, Region,
    RegionKey, RegisteredRegion, Tenant, TenantConfig, config::NicConfigBuilder, time::Clock,
};
use std::sync::Arc;

/// Ops of each load that are under way at once.
const DEPTH: u16 = 4;
/// Bytes of a READ that is measured.
const SIZE: u32 = 64;
/// Slots by which the bad tenant reads into nowhere, whole ops each: more than a window.
const NOWHERE: u16 = 128;
/// Its portals with commands that make no sense, and their slots.
const PORTALS: usize = 32;
const PORTAL_SLOTS: u16 = 8;
/// Its regions: more than a slot remembers to call done.
const REGIONS: usize = 64;
/// Its regions whose keys it changes, one in each millisecond.
const REKEYED: usize = 8;
const REKEY_NANOS: u64 = 1_000_000;
/// Ops that fill its records.
const FILLERS: u16 = 32;
/// For how long loads run before they are counted: longer than what was before is kept.
const WARM_UP: u64 = 500_000_000;
/// For how long they are counted.
const COUNTED: u64 = 500_000_000;
const ROUNDS: usize = 5;
/// After how long an op that failed is issued again.
const PAUSE: u64 = 1_000_000;

/// The latencies and ops of the neighbour.
#[derive(Clone, Debug)]
pub struct Seen {
    /// READs that ended with OK.
    pub latencies: Latencies,
    /// Recorded ops on its region that ended with OK, in a second.
    pub recorded_per_s: f64,
    /// Ops of either kind that ended otherwise.
    pub failed: u64,
}

/// The neighbour beside a tenant that is idle, and beside one that has gone bad.
#[derive(Clone, Debug)]
pub struct BesideTenant {
    /// In turns with `bad`.
    pub idle: Seen,
    /// In turns with `idle`.
    pub bad: Seen,
}

/// Measures both, in turns.
///
/// # Errors
/// If something cannot be set up, or at Ctrl-C.
pub fn measure(lab: &Lab, interrupt: &Interrupt) -> Result<BesideTenant, PairError> {
    let mut pair = Pair::open(Place::Lab(lab), &PairConfig::default())?;
    let target = &pair.client.host;
    let bad = target.tenant(TenantConfig::named("bad"))?;
    let neighbour = target.tenant(TenantConfig::named("neighbour"))?;
    let mut bad = Bad::new(lab, target, &bad)?;
    let counted = target.for_tenant(&neighbour).register(64, Permissions::ATOMIC)?;
    let other = (HostAddr::from(Lab::B_V4), pair.server.pid());
    let add = |region: &RegisteredRegion| {
        pair.client.host.grant(region, other.0, other.1, OpType::FetchAdd)
    };
    let honest = vec![add(&counted)?];
    let fillers = bad.regions.iter().map(add).collect::<Result<Vec<_>, _>>()?;
    let read = pair.server.grant(&pair.region, Lab::A_V4.into(), neighbour.pid(), OpType::Read)?;
    let local =
        pair.client.host.for_tenant(&neighbour).register(SIZE as usize, Permissions::NONE)?;
    let portal = pair.client.host.for_tenant(&neighbour).portal(DEPTH)?;
    let mut reads = Load::new(portal, Ops::Read(read, local));
    let mut adds = Load::new(pair.server.portal(DEPTH)?, Ops::Add(honest));
    let mut filling = Load::new(pair.server.portal(FILLERS)?, Ops::Add(fillers));
    let none = || Seen { latencies: Latencies::new(), recorded_per_s: 0.0, failed: 0 };
    let mut all = [none(), none()];
    for _ in 0..ROUNDS {
        for (is_bad, seen) in [false, true].into_iter().zip(&mut all) {
            let clock = pair.client.clock.clone();
            let from = clock.now().as_nanos() + WARM_UP;
            let until = from + COUNTED;
            for load in [&mut reads, &mut adds, &mut filling] {
                load.begin(from, until);
            }
            {
                // A clock is one thread's; those of one epoch tell one time.
                let its_clock = clock.clone();
                let ([adds, filling], reads, bad) =
                    ([&mut adds, &mut filling], &mut reads, &mut bad);
                let between_turns = move |_: &mut InlineHost, _: &mut ReceiveQueue| {
                    let now = its_clock.now().as_nanos();
                    adds.turn(now);
                    if is_bad {
                        filling.turn(now);
                    }
                };
                pair.run_beside(between_turns, move |client: &mut Client| {
                    // And until all that is under way is over, as far as it has an end.
                    while clock.now().as_nanos() < until + WARM_UP {
                        client.host.turn();
                        let now = clock.now().as_nanos();
                        reads.turn(now);
                        if is_bad && now < until {
                            bad.turn(&client.host, now)?;
                        }
                    }
                    Ok(())
                })?;
            }
            seen.latencies.merge(&reads.latencies);
            let seconds = (ROUNDS as u64 * COUNTED) as f64 / 1e9;
            seen.recorded_per_s += adds.latencies.count() as f64 / seconds;
            seen.failed += reads.failed + adds.failed;
            if interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
        }
    }
    let [idle, bad] = all;
    Ok(BesideTenant { idle, bad })
}

/// The ops of a load.
enum Ops {
    Read(Grant, RegisteredRegion),
    /// To each region in turn.
    Add(Vec<Grant>),
}

/// Ops that one portal keeps under way.
struct Load {
    portal: Portal,
    ops: Ops,
    next: usize,
    /// When the op in each slot was issued.
    issued: Vec<u64>,
    /// When those that failed are issued again.
    again: Vec<u64>,
    /// From when to when ops are counted; then no more are issued.
    counted: (u64, u64),
    latencies: Latencies,
    failed: u64,
}

impl Load {
    fn new(portal: Portal, ops: Ops) -> Self {
        let (issued, again) = (vec![0; portal.slots().len()], Vec::new());
        let (counted, latencies) = ((0, 0), Latencies::new());
        Self { portal, ops, next: 0, issued, again, counted, latencies, failed: 0 }
    }

    fn begin(&mut self, from: u64, until: u64) {
        self.again.clear();
        (self.counted, self.latencies, self.failed) = ((from, until), Latencies::new(), 0);
    }

    fn turn(&mut self, now: u64) {
        let (from, until) = self.counted;
        while let Some(completion) = self.portal.poll() {
            let is_counted = (from..until).contains(&now);
            if completion.status != OpStatus::Ok {
                self.failed += u64::from(is_counted);
                self.again.push(now + PAUSE);
            } else if is_counted {
                let index = completion.slot.0 - self.portal.slots().start;
                self.latencies.record_nanos(now - self.issued[usize::from(index)]);
            }
        }
        self.again.retain(|&at| at > now);
        while now < until && self.portal.outstanding() + self.again.len() < self.issued.len() {
            let issued = match &self.ops {
                Ops::Read(grant, local) => self.portal.read(grant, 0, local, 0, SIZE),
                Ops::Add(grants) => {
                    self.next = (self.next + 1) % grants.len();
                    self.portal.fetch_add(&grants[self.next], 0, 1)
                }
            };
            let Ok(slot) = issued else { return };
            self.issued[usize::from(slot.0 - self.portal.slots().start)] = now;
        }
    }
}

/// All that the bad tenant does itself.
struct Bad {
    nowhere: Portal,
    /// For a host that there is not.
    grant: Grant,
    local: RegisteredRegion,
    garbage: Vec<Portal>,
    /// A region that is no longer registered.
    gone: RegisteredRegion,
    /// Those that others add to.
    regions: Vec<RegisteredRegion>,
    rekeyed: Vec<RegisteredRegion>,
    rekeys: u64,
    rekey_at: u64,
}

impl Bad {
    fn new(lab: &Lab, target: &InlineHost, tenant: &Tenant) -> Result<Self, PairError> {
        let nowhere = [192, 0, 2, 100];
        let with_prefix = format!("192.0.2.100/{}", Lab::V4_PREFIX);
        lab.b().ip(&["addr", "add", &with_prefix, "dev", Lab::INTERFACE])?;
        target.resolve(nowhere.into())?;
        let region = |len, permissions| target.for_tenant(tenant).register(len, permissions);
        let gone = region(SIZE as usize, Permissions::NONE)?;
        target.deregister(&gone)?;
        let regions = (0..REGIONS).map(|_| region(64, Permissions::ATOMIC));
        let regions = regions.collect::<Result<Vec<_>, _>>()?;
        let rekeyed = (0..REKEYED).map(|_| region(64, Permissions::READ));
        let initiator = (HostAddr::from(Lab::A_V4), tenant.pid());
        let grant = target.grant(&regions[0], initiator.0, initiator.1, OpType::FetchAdd)?;
        let garbage = (0..PORTALS).map(|_| target.for_tenant(tenant).portal(PORTAL_SLOTS));
        Ok(Self {
            nowhere: target.for_tenant(tenant).portal(NOWHERE)?,
            grant: Grant {
                responder: nowhere.into(),
                op_type: OpType::Read,
                region_len: rma_xdp::ops::OP_SIZE_MAX.into(),
                ..grant
            },
            local: region(rma_xdp::ops::OP_SIZE_MAX as usize, Permissions::NONE)?,
            garbage: garbage.collect::<Result<Vec<_>, _>>()?,
            gone,
            rekeyed: rekeyed.collect::<Result<Vec<_>, _>>()?,
            regions,
            rekeys: 0,
            rekey_at: 0,
        })
    }

    fn turn(&mut self, host: &InlineHost, now: u64) -> Result<(), PairError> {
        let Self { nowhere, grant, local, garbage, gone, .. } = self;
        while nowhere.poll().is_some() {}
        while nowhere.next_slot().is_some() {
            nowhere.read(grant, 0, local, 0, rma_xdp::ops::OP_SIZE_MAX)?;
        }
        for portal in garbage {
            while portal.poll().is_some() {}
            while portal.next_slot().is_some() {
                portal.read(grant, 0, gone, 0, SIZE)?;
            }
        }
        if now >= self.rekey_at {
            self.rekey_at = now + REKEY_NANOS;
            self.rekeys += 1;
            let region = &self.rekeyed[self.rekeys as usize % REKEYED];
            host.rekey(region, RegionKey::from_bytes([self.rekeys as u8; 16]))?;
        }
        Ok(())
    }
}

/// How many of 100 FETCH_ADDs, one in 10 ms, end with OK on a region to which a second host, which
/// has a grant as well, adds every 25 µs, and never says that it knows the end.
///
/// # Panics
/// If a NIC does not take what it must take.
#[must_use]
pub fn records_shared() -> u32 {
    const ADD_PAUSE: Duration = Duration::from_micros(25);
    const HONEST_PAUSE: Duration = Duration::from_millis(10);
    const PID: Pid = Pid(1);
    let [target, bad, honest] = [1, 2, 3].map(|host| HostAddr::from([192, 0, 2, host]));
    let nic = |addr| {
        let config = NicConfigBuilder::default().build(NicPlace::at(addr));
        let mut nic = Nic::new(config.expect("the defaults and an address"));
        nic.configure_slots(0..1, Some(PID));
        nic
    };
    let mut to = nic(target);
    let memory = Arc::new(Region::new(SIZE as usize).expect("a page can be had"));
    let key = RegionKey::from_bytes([1; 16]);
    let entry = RegionEntry::new(memory, &key, Permissions::ATOMIC, PID);
    let region = to.regions_mut().register(Box::new(entry)).expect("the table is empty");
    let mut adders = [bad, honest].map(|addr| (nic(addr), add(region, &key, addr, target)));
    let mut now = Instant::ZERO;
    let mut run = |index: usize, now| {
        let (nic, command) = &mut adders[index];
        status_of(nic, &mut to, now, *command)
    };
    let (mut ok, mut asked) = (0, 0);
    // When the bad one's records are all that it can have.
    let mut honest_at = now + Duration::from_secs(1);
    while asked < 100 {
        now = now + ADD_PAUSE;
        run(0, now);
        if now >= honest_at {
            honest_at = now + HONEST_PAUSE;
            asked += 1;
            ok += u32::from(run(1, now) == OpStatus::Ok);
        }
    }
    ok
}

/// Adds to the first word of a region, and says of no earlier op that it is done.
fn add(region: RegionId, key: &RegionKey, initiator: HostAddr, responder: HostAddr) -> Command {
    let op_type = OpType::FetchAdd;
    let binding = KeyBinding { initiator, responder, pid: Pid(1), op_type };
    Command {
        slot: CommandSlotId(0),
        class: ClassOfService::Latency,
        responder,
        remote_region: region,
        key: RegionKeySchedule::new(key).derive(&binding),
        op: CommandOp::Recorded {
            op: RecordedOp::FetchAdd { remote_offset: 0, addend: 1 },
            done: None,
        },
    }
}

/// Runs an op to its end, in no time.
fn status_of(from: &mut Nic, to: &mut Nic, now: Instant, command: Command) -> OpStatus {
    from.handle_command(now, command).expect("its slot is free");
    loop {
        carry(from, to, now);
        carry(to, from, now);
        if let Some(completion) = from.poll_completion() {
            return completion.status;
        }
    }
}

/// Gives all that one NIC has to send to another.
fn carry(from: &mut Nic, to: &mut Nic, now: Instant) {
    to.handle_timeout(now);
    let mut room = [0; FRAME_LEN_MAX];
    while let Some(transmit) = from.poll_transmit(now, &mut room) {
        let frame = RxFrame {
            source: transmit.source,
            destination: transmit.destination,
            port: transmit.port,
            source_port: SourcePort::FIRST,
            reply_len_max: FRAME_LEN_MAX,
            link: None,
            is_first: true,
            is_handed_over: false,
            bytes: &mut room[..transmit.len],
        };
        // The op tells of a refusal.
        let _ = to.handle_frame(now, &now, frame);
    }
}
