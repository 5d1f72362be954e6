//! The host: one NIC with its device, its engines and its driver.
//!
//! A host has once, in [`HostOf`] itself: device, addresses, the reservation of counter blocks, the
//! driver with its accounts. Each engine is a *shard*: the engine behind its control path, a range
//! of command slots and the backend with its queues ([`Shards`]); its counters are in
//! [`EngineCells`]. Engines share nothing on the fast path. What comes to the wrong one is handed
//! over.

pub(crate) mod engines;
pub(crate) mod gate;
mod queues;
mod tenants;
pub(crate) mod text;
mod transfers;

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_app::{
    IdlePolicy, Portal, TscClock, WaitError,
    home::PortalTag,
    wait::{Awaited, wait_turning},
};
#[cfg(feature = "star")]
use rma_core::service::Both;
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    crypto::{AeadProvider, EngineId, RegionKey, fastest},
    engine::Neighbours,
    grant::Grant,
    nic::{KeyRings, Nic, NicConfigBuilder, NicPlace, ReceiveLenMax},
    one_rma::OneRma,
    op::OpType,
    port::Port,
    region::{Permissions, RegisteredRegion},
    seat::Seat,
};
use rma_shm::{Forked, Process, Region};
#[cfg(feature = "star")]
use rma_star::config::{STATEFUL_PORT, STATELESS_PORT, StarConfigBuilder};

#[cfg(feature = "star")]
use crate::star::engine::{StarHost, StarSetting};
#[cfg(feature = "capture")]
use crate::{
    capture::{CaptureSource, Tapped},
    device::tap::{TapEnd, TapSlot},
};
use crate::{
    device::{
        Device, DeviceInfo, DeviceKeeper, Engines, OpenDevice, TrafficClasses,
        backend::HostBackend,
        status::InterfaceStatus,
        ways::{AddressStatus, NarrowPath},
    },
    driver::{
        Capacities, Driver, Shard, Shards, control::ControlPath, ledger::Ledger,
        tenant::DriverConfig,
    },
    engine::{
        EngineKind,
        housekeeping::Housekeeping,
        inline::InlineEngine,
        services::HostEngine,
        thread::{EngineThread, ThreadConfig, check_cores},
    },
    error::HostError,
    iv_blocks::{CounterConfig, CounterSource, IvBlocks, User},
    metrics::{EngineCells, Metrics, MetricsSource},
    random::random_bucket_secret,
};

/// The UDP port of a deployment, if no other is configured.
pub const DEFAULT_PORT: u16 = Port::ONE_RMA.0;

/// How long [`Host::resolve`] waits for a neighbour to answer.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// With what a host is opened. Every field may be set; the constructors give defaults for the rest.
/// A text makes one as well: [`HostConfig::from_str`](#impl-FromStr-for-HostConfig).
///
/// ```
/// # use core::time::Duration;
/// # use rma_xdp::{Host, HostConfig, Pid, config::IdlePolicy};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = HostConfig::udp([127, 0, 0, 24]);
/// config.pid = Pid(7); // grants name it: the same after a restart, where process numbers are not
/// config.idle.sleep = false; // lower latency, for a core of its own
/// config.nic.command_slots = 256;
/// let host = Host::open(config)?;
/// assert_eq!(host.pid(), Pid(7));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct HostConfig {
    /// The device that carries the frames.
    pub device: Device,
    /// The host's addresses, at most one of each family. Empty: for AF_XDP, the interface's first
    /// address of each family.
    pub addresses: Vec<HostAddr>,
    /// The UDP port of 1RMA, the same for all hosts of a deployment.
    pub port: u16,
    /// The settings of StaR ([`crate::star`]), which every queue's engine serves beside 1RMA then.
    /// Default: `None`, 1RMA alone.
    #[cfg(feature = "star")]
    pub star: Option<StarConfigBuilder>,
    /// The UDP port of what goes to StaR's stateless processing, the same for all hosts of a
    /// deployment. Default: 10474.
    #[cfg(feature = "star")]
    pub stateless_port: u16,
    /// The UDP port of what goes to StaR's stateful processing, the same for all hosts of a
    /// deployment. Default: 10475.
    #[cfg(feature = "star")]
    pub stateful_port: u16,
    /// PID_initiator of this host's portals. Default: this process's.
    pub pid: Pid,
    /// The DSCP of the packets that it sends (§6). Default: none.
    pub traffic: TrafficClasses,
    /// How many engines it has, each with a thread of its own, receive queues of the interface, and
    /// a part of the NIC's tables. Over UDP, and inline, a host has one. Default: one, with all
    /// queues.
    pub engines: Engines,
    /// The cores that the engines' threads are pinned to, one each and in their order. Default:
    /// none, wherever the scheduler puts them.
    pub cores: Vec<usize>,
    /// The policy of an engine thread when there is nothing to do.
    pub idle: IdlePolicy,
    /// The source of the message counter's values. They begin no lower than `nic.counter_start`.
    pub counter: CounterConfig,
    /// How much each tenant may have of the NIC's tables, and of the memory.
    pub driver: DriverConfig,
    /// The settings of the NIC. Where there are several engines, each has a part of the tables, the
    /// window and the rates.
    pub nic: NicConfigBuilder,
    /// The provider that encrypts frames. Default: the fastest provider that the processor can run.
    /// All give the same frames, so hosts with different ones understand each other.
    pub aead: &'static dyn AeadProvider,
}

impl HostConfig {
    /// A host over AF_XDP on a network interface. Needs CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF,
    /// CAP_PERFMON, and CAP_IPC_LOCK where locked memory has a limit; and `/var/lib/1rma`, or
    /// another directory in [`CounterConfig::state_dir`].
    #[cfg(feature = "xdp")]
    pub fn xdp(interface: &str) -> Self {
        Self::new(Device::xdp(interface), Vec::new())
    }

    /// A host over kernel UDP sockets, bound to `address`. Needs no privileges.
    pub fn udp(address: impl Into<HostAddr>) -> Self {
        Self::new(Device::udp(), vec![address.into()])
    }

    fn new(device: Device, addresses: Vec<HostAddr>) -> Self {
        Self {
            device,
            addresses,
            port: DEFAULT_PORT,
            #[cfg(feature = "star")]
            star: None,
            #[cfg(feature = "star")]
            stateless_port: STATELESS_PORT.0,
            #[cfg(feature = "star")]
            stateful_port: STATEFUL_PORT.0,
            pid: Pid(std::process::id()),
            traffic: TrafficClasses::default(),
            engines: Engines::One,
            cores: Vec::new(),
            idle: IdlePolicy::default(),
            counter: CounterConfig::default(),
            driver: DriverConfig::default(),
            nic: NicConfigBuilder::default(),
            aead: fastest(),
        }
    }
}

/// A host: a NIC with its device and its engine. [`Host`] and [`InlineHost`] are the two kinds,
/// told apart by how the engine is run, which `P` says; all else is the same. Programs name those
/// two.
#[derive(Debug)]
pub struct HostOf<P> {
    /// Dropped first: the engines stop before the device's other parts go.
    driver: Mutex<Driver<P>>,
    iv_blocks: IvBlocks,
    metrics: MetricsSource,
    info: DeviceInfo,
    pid: Pid,
    pub(crate) addresses: LocalAddresses,
    nic: NicConfigBuilder,
    #[cfg(feature = "star")]
    pub(crate) star: Option<StarConfigBuilder>,
    /// Of the device when it was opened.
    pub(crate) receive_len_max: ReceiveLenMax,
    device: DeviceKeeper,
    #[cfg(feature = "capture")]
    capture: CaptureSource,
    /// The process that has the engines, and all else that is not memory.
    process: Process,
}

/// A host whose engine runs on a thread of its own. Dropped, it detaches from the device.
///
/// What it can do stands at [`HostOf`]. May be shared between threads; what it does is the control
/// path and may block.
///
/// It belongs to the process that opened it. A process that forks and goes on without `exec`, such
/// as a daemon that puts itself into the background, opens its host after the fork: in the child
/// all that was made before, portals, executors, clients, channels and key servers among it,
/// refuses every call at once with an error that says so, and does nothing when it is dropped. The
/// parent notices nothing.
///
/// A request that cannot be authenticated is refused also where this host knows no path to whoever
/// sent it, as after a restart: over AF_XDP the refusal goes back to the hardware address that the
/// request came from, with its VLAN tags. Where the NIC takes tags off before XDP sees a packet, it
/// goes untagged, as all frames of a host on that interface, and may end in the native VLAN: 48
/// octets that keep no secret.
///
/// ```
/// # use rma_xdp::{Host, HostConfig, OpType, Permissions, Pid};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::open(HostConfig::udp([127, 0, 0, 25]))?; // or HostConfig::xdp("eth1")
/// println!("{}", host.info());
/// for fallback in host.fallbacks() {
///     eprintln!("works less well than it could: {fallback}");
/// }
///
/// // Memory that process 1234 of 127.0.0.26 may read, as long as the region has this key.
/// let region = host.register(1 << 20, Permissions::READ)?;
/// region.write(0, b"what others read")?;
/// let grant = host.grant(&region, [127, 0, 0, 26].into(), Pid(1234), OpType::Read)?;
/// assert_eq!(grant.region_len, 1 << 20);
///
/// // From now on that grant is worth nothing.
/// host.rekey(&region, rma_xdp::crypto::random_region_key()?)?;
/// println!("{}", host.metrics());
/// # Ok(())
/// # }
/// ```
pub type Host = HostOf<EngineThread>;

/// A host whose engine runs when, and only when, the application calls it: for applications that
/// own their core, and for tests. What it can do stands at [`HostOf`], but for turning the engine.
///
/// ```
/// # use rma_xdp::{HostConfig, InlineHost, OpStatus, OpType, Permissions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut host = InlineHost::open(HostConfig::udp([127, 0, 0, 27]))?;
/// let region = host.register(64, Permissions::READ)?;
/// let local = host.register(64, Permissions::NONE)?;
/// // A host may read from itself.
/// let grant = host.grant(&region, [127, 0, 0, 27].into(), host.pid(), OpType::Read)?;
/// let mut portal = host.portal(1)?;
/// portal.read(&grant, 0, &local, 0, 64)?;
/// let completion = loop {
///     host.turn(); // nothing moves but in here
///     if let Some(completion) = portal.poll() {
///         break completion;
///     }
/// };
/// assert_eq!(completion.status, OpStatus::Ok);
/// # Ok(())
/// # }
/// ```
pub type InlineHost = HostOf<InlineEngine>;

/// An engine that is about to run.
struct Made<B> {
    engine: HostEngine,
    berth: B,
    /// The core for its thread.
    core: Option<usize>,
    /// Its number, where its host has several.
    number: Option<usize>,
    housekeeping: Housekeeping,
}

impl Host {
    /// Opens a device and starts an engine thread for it.
    ///
    /// # Errors
    /// The error names what is missing or wrong, and the next step. Then nothing stays attached.
    pub fn open(config: HostConfig) -> Result<Self, HostError> {
        let idle = config.idle;
        Self::open_with(config, |made| {
            let Made { engine, berth, core, number, housekeeping } = made;
            EngineThread::start(engine, berth, ThreadConfig { number, core, idle }, housekeeping)
        })
    }
}

impl InlineHost {
    /// Opens a device with an engine that the caller drives.
    ///
    /// # Errors
    /// As [`Host::open`]; and for several engines, as one thread turns it.
    pub fn open(config: HostConfig) -> Result<Self, HostError> {
        if let Engines::Count(engines @ 2..) = config.engines {
            return Err(HostError::OneEngineInline { engines });
        }
        let config = config.with(|it| it.engines = Engines::One);
        Self::open_with(config, |made| Ok(InlineEngine::new(made.engine, made.housekeeping)))
    }

    /// One turn of the engine. Returns how much there was to do. Call it without end: ops make
    /// progress, requests are served and timeouts pass only here. In a child that was forked it
    /// does nothing: parent and child would send under the same IVs.
    pub fn turn(&mut self) -> usize {
        if !self.process.is_this() {
            return 0;
        }
        turn(self.driver_mut().shards_mut())
    }

    /// Turns the engine until what is awaited is there:
    ///
    /// | awaited | comes to |
    /// |---|---|
    /// | [`Portal`] | its next completion |
    /// | [`ReceiveQueue`](crate::ReceiveQueue) | its next event |
    /// | [`Transfers`](crate::Transfers) | the outcome of any call |
    /// | [`Transfers::outcome_of`](crate::Transfers::outcome_of) | that of one call |
    /// | `StarVerbs::completions` | completions of a completion queue |
    /// | `StarVerbs::connecting_over`, `StarVerbs::accepting_over` | a connection of StaR |
    ///
    /// # Errors
    /// If it cannot come, as nothing is under way; if it is another host's; in a process that was
    /// forked from the host's; and of a connection, what its stream and its peer say.
    pub fn wait<A: Awaited>(&mut self, awaited: &mut A) -> Result<A::Found, A::Error> {
        self.process.check().map_err(WaitError::from)?;
        let (home, shards) = self.driver_mut().home_and_shards();
        wait_turning(home, || turn(shards), awaited)
    }

    /// The driver, where nobody else can have it: without a lock.
    fn driver_mut(&mut self) -> &mut Driver<InlineEngine> {
        self.driver.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: EngineKind> HostOf<P> {
    /// Opens a device, and has `start` make what runs each of its engines.
    fn open_with(
        config: HostConfig,
        mut start: impl FnMut(Made<P::Berth>) -> Result<P, HostError>,
    ) -> Result<Self, HostError> {
        #[cfg(feature = "keylog")]
        crate::keylog::start_from_environment()?;
        let ports = vec![Port(config.port)];
        #[cfg(feature = "star")]
        let setting = StarSetting {
            config: config.star,
            stateless_port: Port(config.stateless_port),
            stateful_port: Port(config.stateful_port),
        };
        #[cfg(feature = "star")]
        let ports = setting.beside(ports);
        let HostConfig { device, addresses, port, pid, counter, driver, nic, aead, .. } = config;
        let OpenDevice { backends, addresses, info, keeper } =
            device.open(&addresses, &ports, config.engines, config.traffic)?;
        let count = backends.len() as u16;
        check_cores(&config.cores, backends.len())?;
        let its = nic.divided(count)?;
        let user = User::this(!matches!(info, DeviceInfo::Udp(_)));
        let (iv_blocks, block) = IvBlocks::open(counter, nic.counter_start, user)?;
        let berths = (0..count).map(|_| P::berth()).collect::<Result<Vec<_>, _>>()?;
        let seats: Vec<Seat> = berths.iter().map(P::seat).collect();
        let rings = Neighbours::connect(&seats).into_iter().zip(KeyRings::connect(&seats));
        let parts = block.parts(count).into_iter().zip(rings);
        let mut receive_len_max = ReceiveLenMax::default();
        let (mut engines, mut cells) = (Vec::new(), Vec::new());
        for ((index, backend), (block, (neighbours, keys))) in (0..).zip(backends).zip(parts) {
            receive_len_max = backend.receive_len_max();
            let bucket_secret = random_bucket_secret()?;
            #[cfg(feature = "star")]
            let star_host =
                StarHost { addresses, receive_len_max, aead, engine: index, engines: count };
            #[cfg(feature = "star")]
            let (block, star) = setting.open(star_host, block)?;
            let place = NicPlace::at(addresses).with(|it| {
                it.port = Port(port);
                (it.engine, it.engines) = (EngineId(index), count);
                (it.counter_start, it.counter_end) = (block.first(), block.end());
                it.receive_len_max = receive_len_max;
                it.bucket_secret = bucket_secret;
            });
            let mut nic = Nic::with_aead(its.build(place)?, aead);
            nic.regions_mut().set_rings(keys);
            nic.set_paths(backend.paths());
            cells.push(EngineCells {
                counters: nic.counters().clone(),
                #[cfg(feature = "star")]
                star: star.as_ref().map(|star| star.counters().clone()),
                handed_over: neighbours.counts().clone(),
                queues: info.queues_of(index, count),
                core: config.cores.get(usize::from(index)).copied(),
                slots: nic.slots(),
                life: P::life_at(&berths[usize::from(index)]),
            });
            let stacks = OneRma::new(nic);
            #[cfg(feature = "star")]
            let stacks = Both::maybe(stacks, star);
            let engine = HostEngine::new(stacks, backend, TscClock::new());
            engines.push(if count > 1 { engine.beside(neighbours) } else { engine });
        }
        tracing::info!(
            device = %info,
            addresses = ?addresses.iter().collect::<Vec<_>>(),
            port,
            engines = count,
            counter = %iv_blocks.source(),
            aead = aead.name(),
            "host opened"
        );
        for fallback in fallbacks(&keeper, &iv_blocks) {
            tracing::warn!(fallback, "works less well than it could");
        }
        let mut shards = Vec::new();
        #[cfg(feature = "capture")]
        let mut tapped = Vec::new();
        for (index, (engine, berth)) in engines.into_iter().zip(berths).enumerate() {
            let EngineCells { core, slots, .. } = &cells[index];
            let (core, number) = (*core, (count > 1).then_some(index));
            #[cfg(feature = "capture")]
            let taps = Arc::new(TapSlot::new());
            let housekeeping = Housekeeping::new(
                iv_blocks.supply(),
                #[cfg(feature = "capture")]
                TapEnd(taps.clone()),
            );
            let path = start(Made { engine, berth, core, number, housekeeping })?;
            #[cfg(feature = "capture")]
            tapped.push(Tapped {
                slot: taps,
                bell: path.bell(),
                interfaces: info.queue_names(&cells[index].queues),
            });
            shards.push(Shard { path, slots: slots.clone() });
        }
        let capacities = Capacities::of_regions(nic.regions);
        #[cfg(feature = "star")]
        let capacities = setting.capacities(capacities, &driver, count)?;
        let driver = Driver::new(addresses, pid, Shards::new(shards), &capacities, &driver)?;
        let metrics = MetricsSource::new(cells.into(), keeper.watch(), &info, aead.name(), &driver);
        Ok(Self {
            driver: Mutex::new(driver),
            iv_blocks,
            metrics,
            info,
            pid,
            addresses,
            nic,
            #[cfg(feature = "star")]
            star: setting.config,
            receive_len_max,
            device: keeper,
            #[cfg(feature = "capture")]
            capture: CaptureSource::new(tapped),
            process: Process::this(),
        })
    }

    /// Registers `len` bytes of zeroed memory under a fresh region key.
    ///
    /// # Errors
    /// If the length cannot be had, or the host has no region or bytes left
    /// ([`crate::tenant::AllocationError`]).
    pub fn register(
        &self,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.own().register(len, permissions)
    }

    /// Registers memory under a region key of the caller's: memory of any kind, and circular
    /// regions, in which what goes beyond the last byte goes on at the first, also for others.
    ///
    /// ```
    /// # use rma_xdp::{Host, HostConfig, OpType, Permissions, Region, crypto::random_region_key};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let host = Host::open(HostConfig::udp([127, 0, 0, 33]))?;
    /// let memory = Region::circular(4096)?.into();
    /// let ring = host.register_memory(memory, random_region_key()?, Permissions::WRITE)?;
    /// let grant = host.grant(&ring, [127, 0, 0, 34].into(), host.pid(), OpType::Write)?;
    /// // It has 4096 bytes, and a WRITE of up to 4096 may begin at any of them.
    /// assert_eq!((ring.len(), grant.region_len), (4096, 8192));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the host has no region or bytes left ([`crate::tenant::AllocationError`]).
    pub fn register_memory(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.own().register_memory(memory, key, permissions)
    }

    /// Ends all access to a region through the NIC. Ops on it that are in flight fail.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn deregister(&self, region: &RegisteredRegion) -> Result<(), HostError> {
        self.driver()?.deregister(region)
    }

    /// Allocates `slots` command slots: as many ops may be in flight at once. Waits for ops of
    /// dropped portals if their slots may be enough; an inline engine turns meanwhile.
    ///
    /// # Errors
    /// If that many are not free.
    pub fn portal(&self, slots: u16) -> Result<Portal, HostError> {
        self.own().portal(slots)
    }

    /// As [`Host::portal`], at the engine with this number ([`Host::engines`] lists them, from 0),
    /// so that an application's thread and its engine can have neighbouring cores. Otherwise a
    /// portal goes to the engine with the most free slots.
    ///
    /// ```
    /// # use rma_xdp::{Host, HostConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let host = Host::open(HostConfig::udp([127, 0, 0, 62]))?; // over UDP there is one
    /// let portal = host.portal_on(0, 4)?;
    /// assert!(host.engines()[0].slots.contains(&portal.slots().start));
    /// let refused = host.portal_on(1, 4).unwrap_err().to_string();
    /// assert!(refused.starts_with("a portal was asked for at engine 1, and the host has 1"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the host has no such engine, or that many slots are not free there.
    pub fn portal_on(&self, engine: usize, slots: u16) -> Result<Portal, HostError> {
        self.own().portal_on(engine, slots)
    }

    /// Installs a new region key, at once and for this region alone (§5.2). Ops under keys derived
    /// from the old one fail with REMOTE_AUTHENTICATION_FAILURE from now on. An initiator that goes
    /// on needs a new grant; [`Grant::under`] makes one beforehand.
    ///
    /// # Errors
    /// If the region is not registered.
    pub fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), HostError> {
        self.driver()?.rekey(region, key)
    }

    /// Makes the grant that process `pid` of `initiator` needs for ops of `op_type` on `region`,
    /// under the region's present key. Hand it over a channel that keeps secrets.
    ///
    /// The region must permit such ops as well: see [`Permissions`].
    ///
    /// Over AF_XDP the host also begins to look for the way to `initiator`, without waiting: then
    /// even an op under a grant of an earlier life of this host gets an answer. Unless
    /// [`NetMonitor::prepare`] has no room for it.
    ///
    /// [`NetMonitor::prepare`]: crate::device::net::NetMonitor::prepare
    ///
    /// # Errors
    /// If the region is not registered, or this host has no address of the initiator's family.
    pub fn grant(
        &self,
        region: &RegisteredRegion,
        initiator: HostAddr,
        pid: Pid,
        op_type: OpType,
    ) -> Result<Grant, HostError> {
        let grant = self.driver()?.grant(region, initiator, pid, op_type)?;
        self.prepare(initiator);
        Ok(grant)
    }

    /// Does what [`Host::grant`] does besides making a grant, for callers that make grants
    /// elsewhere ([`Grant::under`]) or have a key service make them: over AF_XDP the host begins to
    /// look for the way to `initiator`, without waiting.
    pub fn prepare(&self, initiator: HostAddr) {
        // A notice to it must not cause a look-up itself, as it goes to whoever claims to be that
        // host. No way leads over the device to the host itself.
        if self.process.is_this() && !self.addresses.contains(initiator) {
            self.device.prepare(initiator);
        }
    }

    /// The PID that grants for this host's portals must name.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// This host's addresses.
    #[must_use]
    pub const fn addresses(&self) -> LocalAddresses {
        self.addresses
    }

    /// Finds the way to a responder, so that its first ops need not: route, next hop, its MAC
    /// address. Waits for the neighbour to answer, for up to 3 s.
    ///
    /// # Errors
    /// The reason why there is no way.
    pub fn resolve(&self, responder: HostAddr) -> Result<(), HostError> {
        self.process.check()?;
        self.device.resolve(responder, RESOLVE_TIMEOUT)
    }

    /// Describes the opened device: its name, its mode, and the modes that were tried before. An
    /// interface that has come back since may be attached in another mode: see [`Host::interface`].
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Returns the state of the network interface: up, down, gone, and if it is back but cannot be
    /// attached to, the reason. `None` over UDP, and in a child of this process.
    ///
    /// A host outlives its interface: where that is removed, or moved to another network namespace,
    /// ops end within their bounds, and when there is an interface of its name again, with the
    /// host's addresses, the host attaches to that, whatever its hardware address, MTU and queues.
    /// One that is renamed is the same interface, and receive queues that are added to it are used.
    /// For an inline host that takes effect in one of its next turns. The same is in
    /// [`Host::metrics`] and in events of `tracing`. A process that gives up its capabilities after
    /// opening the host cannot attach again.
    #[must_use]
    pub fn interface(&self) -> Option<InterfaceStatus> {
        self.process.check().ok()?;
        self.device.interface()
    }

    /// The ways to other hosts that carry less than the device: as routes or routers say, or as
    /// losses told where these say nothing. Ops take more frames on them and are as certain. What
    /// is found by losses costs the first ops; it is asked anew after ten minutes. None in a child
    /// of this process.
    #[must_use]
    pub fn narrow_paths(&self) -> Vec<NarrowPath> {
        self.process.check().map_or_else(|_| Vec::new(), |()| self.device.ways().narrow())
    }

    /// The host's addresses, and whether the machine still has them. None in a child of this
    /// process, whose engine is its parent's.
    #[must_use]
    pub fn address_status(&self) -> Vec<AddressStatus> {
        self.process.check().map_or_else(|_| Vec::new(), |()| self.device.ways().addresses())
    }

    /// Everything that works less well than it could, a sentence each: of the device, and of the
    /// message counter. May change while the host runs.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        if let Err(forked) = self.process.check() {
            return vec![forked.to_string()];
        }
        fallbacks(&self.device, &self.iv_blocks)
    }

    /// Returns the source of the message counter's values.
    #[must_use]
    pub const fn counter_source(&self) -> &CounterSource {
        self.iv_blocks.source()
    }

    /// All that the host tells about itself, as plain data, and from there as text for Prometheus.
    /// Waits for nobody.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        // If somebody has the driver just now, gauges are what they were some turns ago.
        if self.process.is_this()
            && let Ok(driver) = self.driver.try_lock()
        {
            driver.publish_gauges();
        }
        self.metrics.metrics()
    }

    /// [`Host::metrics`] for another thread. Gauges of an inline host are what they were some turns
    /// ago.
    #[must_use]
    pub const fn metrics_source(&self) -> &MetricsSource {
        &self.metrics
    }

    /// The source of captures of this host's packets, for any thread: see
    /// [`CaptureSource::start`](crate::capture::CaptureSource::start).
    #[cfg(feature = "capture")]
    #[must_use]
    pub const fn capture_source(&self) -> &CaptureSource {
        &self.capture
    }

    /// The driver, with its lock, which in a child a thread of the parent's may hold for ever.
    pub(crate) fn driver(&self) -> Result<MutexGuard<'_, Driver<P>>, Forked> {
        self.process.check()?;
        // The state that a panicking thread left is whole: questions and answers come in pairs.
        Ok(self.driver.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// What the driver does for services beside 1RMA, one after the other.

impl<P: ControlPath> Driver<P> {
    /// Takes back a dropped portal, for the service whose it is. Returns whether an engine was
    /// asked.
    pub(crate) fn take_back(&mut self, tag: PortalTag) -> Result<bool, HostError> {
        #[cfg(feature = "star")]
        if let Some(was_asked) = self.take_star_back(tag)? {
            return Ok(was_asked);
        }
        tracing::debug!(?tag, "no portal of any service");
        Ok(false)
    }
}

impl<P: ControlPath> Shards<P> {
    /// Has undone what engines have of services and nobody knows of, as far as they take questions.
    pub(crate) fn undo_orphans(&mut self, ledger: &mut Ledger) -> Result<(), HostError> {
        #[cfg(feature = "star")]
        self.undo_star_orphans(ledger)?;
        let _ = ledger;
        Ok(())
    }
}

/// One turn of each engine.
fn turn(shards: &mut Shards<InlineEngine>) -> usize {
    shards.paths_mut().map(InlineEngine::turn).sum()
}

/// Lists the features that fell back to a slower way, a sentence each.
fn fallbacks(device: &DeviceKeeper, iv_blocks: &IvBlocks) -> Vec<String> {
    let mut fallbacks = device.fallbacks();
    fallbacks.extend(iv_blocks.fallback());
    fallbacks
}

rma_core::settings!(HostConfig);
