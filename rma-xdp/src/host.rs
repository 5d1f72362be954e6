//! The host: one NIC with its device, its engine and its driver.

mod executors;
mod tenants;

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_app::{IdlePolicy, Portal, TscClock, WaitError, inline::Turning, life::Life};
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    command::Completion,
    crypto::{AeadProvider, RegionKey, fastest},
    grant::Grant,
    nic::{Nic, NicConfigBuilder, NicCounters},
    one_rma::OneRma,
    op::OpType,
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

#[cfg(feature = "xdp")]
use crate::xdp::XdpBackend;
use crate::{
    device::backend::{AnyBackend, HostBackend},
    device::{Device, DeviceInfo, InterfaceStatus, OpenDevice},
    driver::tenant::DriverConfig,
    driver::{Driver, PoolSizes},
    engine::control::{Answer, ControlPath, Request, Unanswered, answer},
    engine::housekeeping::Housekeeping,
    engine::services::{HostEngine, HostService},
    engine::thread::{EngineThread, ThreadConfig},
    error::HostError,
    iv_blocks::{Counter, CounterConfig, CounterSource, User},
    metrics::{DeviceWatch, Metrics, MetricsSource},
    random::{random_bucket_secret, random_region_key},
};

/// The UDP port of a deployment, if no other is configured.
pub const DEFAULT_PORT: u16 = 10_472;

/// How long [`Host::resolve`] waits for a neighbour to answer.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// With what a host is opened. Every field may be set; the constructors give defaults for the rest.
///
/// ```
/// # use core::time::Duration;
/// # use rma_xdp::{Host, HostConfig, IdlePolicy, Pid};
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
    /// Which device carries the frames.
    pub device: Device,
    /// The host's addresses, at most one of each family. Empty: for AF_XDP, the interface's first
    /// address of each family.
    pub addresses: Vec<HostAddr>,
    /// The UDP port, the same for all hosts of a deployment.
    pub port: u16,
    /// PID_initiator of this host's portals. Default: this process's.
    pub pid: Pid,
    /// The core that an engine thread is pinned to. Default: none.
    pub core: Option<usize>,
    /// What an engine thread does when there is nothing to do.
    pub idle: IdlePolicy,
    /// Where the values of the message counter come from. They begin no lower than
    /// `nic.counter_start`.
    pub counter: CounterConfig,
    /// Who may have how much of the NIC's tables, and of the memory.
    pub driver: DriverConfig,
    /// The NIC. Its addresses, counter, frame lengths and bucket secret are set when the host is
    /// opened.
    pub nic: NicConfigBuilder,
    /// What encrypts frames. Default: the fastest provider that the processor can run. All give the
    /// same frames, so hosts with different ones understand each other.
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
            pid: Pid(std::process::id()),
            core: None,
            idle: IdlePolicy::default(),
            counter: CounterConfig::default(),
            driver: DriverConfig::default(),
            nic: NicConfigBuilder::default(),
            aead: fastest(),
        }
    }
}

/// A host whose engine runs on a thread of its own. Dropped, it detaches from the device.
///
/// May be shared between threads; what it does is the control path and may block.
///
/// A request that cannot be authenticated is refused also where this host knows no path to who sent
/// it, as after a restart: over AF_XDP the refusal goes back to the hardware address that the
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
/// host.rekey(&region, rma_xdp::random_region_key()?)?;
/// println!("{}", host.metrics());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Host {
    /// Dropped first: the engine stops before the device's other parts go.
    control: Mutex<Control>,
    shared: HostShared,
    metrics: MetricsSource,
}

#[derive(Debug)]
struct Control {
    thread: EngineThread,
    driver: Driver,
}

/// A host whose engine runs when, and only when, the application calls it: for applications that
/// own their core, and for tests.
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
#[derive(Debug)]
pub struct InlineHost {
    engine: InlineEngine,
    driver: Driver,
    shared: HostShared,
    metrics: MetricsSource,
}

/// What both kinds of host have.
#[derive(Debug)]
struct HostShared {
    info: DeviceInfo,
    /// The NIC's settings, as they became with the device.
    nic: NicConfigBuilder,
    counters: Arc<NicCounters>,
    counter: Counter,
    device: crate::device::DeviceKeeper,
    watch: DeviceWatch,
    /// What encrypts.
    aead: &'static str,
}

impl HostShared {
    fn housekeeping(&self) -> Housekeeping {
        Housekeeping::new(self.counter.supply())
    }

    /// Has the way to a granted initiator looked for: a notice to it must not cause a look-up
    /// itself, as it goes to whoever claims to be that host.
    fn prepare(&self, grant: &Grant, local: &LocalAddresses) {
        // No way leads over the device to the host itself.
        if !local.contains(grant.initiator) {
            self.device.prepare(grant.initiator);
        }
    }

    fn metrics(&self, driver: &Driver, life: Life) -> MetricsSource {
        let (counters, watch) = (self.counters.clone(), self.watch.clone());
        MetricsSource::new(counters, watch, (&self.info, self.aead), driver, life)
    }

    fn fallbacks(&self) -> Vec<String> {
        let mut fallbacks = self.device.fallbacks();
        fallbacks.extend(self.counter.fallback());
        fallbacks
    }
}

impl Host {
    /// Opens a device and starts an engine thread for it.
    ///
    /// # Errors
    /// What is missing or wrong, and what to do about it. Then nothing stays attached.
    pub fn open(config: HostConfig) -> Result<Self, HostError> {
        let (core, idle, pid, policy) = (config.core, config.idle, config.pid, config.driver);
        let Opened { engine, shared, addresses } = open(config)?;
        let sizes = pool_sizes(&engine);
        let thread =
            EngineThread::start(engine, ThreadConfig { core, idle }, shared.housekeeping())?;
        let driver = Driver::new(addresses, pid, sizes, &policy, Some(thread.bell()))?;
        let metrics = shared.metrics(&driver, thread.life());
        Ok(Self { control: Mutex::new(Control { thread, driver }), shared, metrics })
    }

    /// Registers `len` bytes of zeroed memory under a fresh region key.
    ///
    /// # Errors
    /// If the length cannot be had, or the host has no region or bytes left
    /// ([`crate::AllocationError`]).
    pub fn register(
        &self,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.register_as(None, len, permissions)
    }

    /// Registers memory under a region key of the caller's.
    ///
    /// # Errors
    /// If the host has no region or bytes left ([`crate::AllocationError`]).
    pub fn register_memory(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        let Control { thread, driver } = &mut *self.control();
        driver.register(thread, None, memory, key, permissions)
    }

    /// Ends all access to a region through the NIC. Ops on it that are in flight fail.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn deregister(&self, region: &RegisteredRegion) -> Result<(), HostError> {
        let Control { thread, driver } = &mut *self.control();
        driver.deregister(thread, region)
    }

    /// Allocates `slots` command slots: as many ops may be in flight at once. Waits for ops of
    /// dropped portals if their slots may be enough.
    ///
    /// # Errors
    /// If that many are not free.
    pub fn portal(&self, slots: u16) -> Result<Portal, HostError> {
        self.portal_as(None, slots)
    }

    /// Installs a new region key, at once and for this region alone (§5.2). Ops under keys derived
    /// from the old one fail with REMOTE_AUTHENTICATION_FAILURE from now on. Who is to go on needs
    /// a new grant; [`Grant::under`] makes one beforehand.
    ///
    /// # Errors
    /// If the region is not registered.
    pub fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), HostError> {
        let Control { thread, driver } = &mut *self.control();
        driver.rekey(thread, region, key)
    }

    /// What process `pid` of `initiator` needs for ops of `op_type` on `region`, under the region's
    /// present key. Hand it over a channel that keeps secrets.
    ///
    /// The region must permit such ops as well: see [`Permissions`].
    ///
    /// Over AF_XDP the host also begins to look for the way to `initiator`, without waiting: then
    /// even an op under a grant of an earlier life of this host gets an answer. Unless
    /// [`NetMonitor::prepare`] has no room for it.
    ///
    /// [`NetMonitor::prepare`]: crate::net::NetMonitor::prepare
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
        let Control { thread, driver } = &mut *self.control();
        let grant = driver.grant(thread, region, initiator, pid, op_type)?;
        self.shared.prepare(&grant, driver.addresses());
        Ok(grant)
    }

    /// The PID that grants for this host's portals must name.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.control().driver.pid()
    }

    /// This host's addresses.
    #[must_use]
    pub fn addresses(&self) -> LocalAddresses {
        *self.control().driver.addresses()
    }

    /// Finds the way to a responder, so that its first ops need not: route, next hop, its MAC
    /// address. Waits for the neighbour to answer, for up to 3 s.
    ///
    /// # Errors
    /// Why there is no way.
    pub fn resolve(&self, responder: HostAddr) -> Result<(), HostError> {
        self.shared.device.resolve(responder, RESOLVE_TIMEOUT)
    }

    /// Which device was opened, in which mode, and what was tried before. An interface that has
    /// come back since may be attached in another mode: see [`Host::interface`].
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// How the network interface is doing: up, down, gone, and if it is back and cannot be attached
    /// to, why. `None` over UDP.
    ///
    /// A host outlives its interface: where that is removed, or moved to another network namespace,
    /// ops end within their bounds, and when there is an interface of its name again, with the
    /// host's addresses, the host attaches to that, whatever its hardware address, MTU and queues.
    /// The same is in [`Host::metrics`] and in events of `tracing`. A process that gives up its
    /// capabilities after opening the host cannot attach again.
    #[must_use]
    pub fn interface(&self) -> Option<InterfaceStatus> {
        self.shared.device.interface()
    }

    /// Everything that works less well than it could, a sentence each: of the device, and of the
    /// message counter. May change while the host runs.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        self.shared.fallbacks()
    }

    /// Where the values of the message counter come from.
    #[must_use]
    pub const fn counter_source(&self) -> &CounterSource {
        self.shared.counter.source()
    }

    /// What the NIC counts.
    #[must_use]
    pub fn counters(&self) -> &NicCounters {
        &self.shared.counters
    }

    /// All that the host tells about itself, as plain data, and from there as text for Prometheus.
    /// Waits for nobody.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.metrics()
    }

    /// [`Host::metrics`] for another thread.
    #[must_use]
    pub const fn metrics_source(&self) -> &MetricsSource {
        &self.metrics
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        // What a panicking thread left is whole: questions and answers come in pairs.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InlineHost {
    /// Opens a device with an engine that the caller drives.
    ///
    /// # Errors
    /// As [`Host::open`].
    pub fn open(config: HostConfig) -> Result<Self, HostError> {
        let (pid, policy) = (config.pid, config.driver);
        let Opened { engine, shared, addresses } = open(config)?;
        let driver = Driver::new(addresses, pid, pool_sizes(&engine), &policy, None)?;
        let engine = InlineEngine { engine, housekeeping: shared.housekeeping() };
        let metrics = shared.metrics(&driver, engine.life());
        Ok(Self { engine, driver, shared, metrics })
    }

    /// One turn of the engine. Returns how much there was to do. Call it without end: ops make
    /// progress, requests are served and timeouts pass only here.
    pub fn turn(&mut self) -> usize {
        self.engine.turn()
    }

    /// Turns the engine until `portal`, one of this host's, has a completion.
    ///
    /// # Errors
    /// If none is in flight, or the portal is another host's.
    pub fn wait(&mut self, portal: &mut Portal) -> Result<Completion, WaitError> {
        self.turning().wait(portal)
    }

    /// Its engine, for who waits for it.
    fn turning(&mut self) -> Turning<'_, impl FnMut() -> usize> {
        let Self { engine, driver, .. } = self;
        Turning::new(driver.home(), || engine.turn())
    }

    /// The AF_XDP sockets, to move frames past the NIC: for measuring what they can do alone.
    /// `None` over another device.
    #[cfg(feature = "xdp")]
    pub fn xdp_backend_mut(&mut self) -> Option<&mut XdpBackend> {
        match self.engine.engine.backend_mut() {
            AnyBackend::Xdp(xdp) => Some(xdp),
            AnyBackend::Udp(_) => None,
        }
    }

    /// See [`Host::register`].
    ///
    /// # Errors
    /// As [`Host::register`].
    pub fn register(
        &mut self,
        len: usize,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.register_as(None, len, permissions)
    }

    /// See [`Host::register_memory`].
    ///
    /// # Errors
    /// As [`Host::register_memory`].
    pub fn register_memory(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.driver.register(&mut self.engine, None, memory, key, permissions)
    }

    /// See [`Host::deregister`].
    ///
    /// # Errors
    /// As [`Host::deregister`].
    pub fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), HostError> {
        self.driver.deregister(&mut self.engine, region)
    }

    /// See [`Host::portal`].
    ///
    /// # Errors
    /// As [`Host::portal`].
    pub fn portal(&mut self, slots: u16) -> Result<Portal, HostError> {
        self.portal_as(None, slots)
    }

    /// See [`Host::grant`].
    ///
    /// # Errors
    /// As [`Host::grant`].
    pub fn grant(
        &mut self,
        region: &RegisteredRegion,
        initiator: HostAddr,
        pid: Pid,
        op_type: OpType,
    ) -> Result<Grant, HostError> {
        let grant = self.driver.grant(&mut self.engine, region, initiator, pid, op_type)?;
        self.shared.prepare(&grant, self.driver.addresses());
        Ok(grant)
    }

    /// See [`Host::rekey`].
    ///
    /// # Errors
    /// As [`Host::rekey`].
    pub fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), HostError> {
        self.driver.rekey(&mut self.engine, region, key)
    }

    /// See [`Host::pid`].
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.driver.pid()
    }

    /// See [`Host::addresses`].
    #[must_use]
    pub const fn addresses(&self) -> LocalAddresses {
        *self.driver.addresses()
    }

    /// See [`Host::resolve`].
    ///
    /// # Errors
    /// As [`Host::resolve`].
    pub fn resolve(&self, responder: HostAddr) -> Result<(), HostError> {
        self.shared.device.resolve(responder, RESOLVE_TIMEOUT)
    }

    /// See [`Host::info`].
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// See [`Host::interface`]. What the host attaches to takes effect in one of its next turns.
    #[must_use]
    pub fn interface(&self) -> Option<InterfaceStatus> {
        self.shared.device.interface()
    }

    /// See [`Host::fallbacks`].
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        self.shared.fallbacks()
    }

    /// See [`Host::counter_source`].
    #[must_use]
    pub const fn counter_source(&self) -> &CounterSource {
        self.shared.counter.source()
    }

    /// See [`Host::counters`].
    #[must_use]
    pub fn counters(&self) -> &NicCounters {
        &self.shared.counters
    }

    /// See [`Host::metrics`].
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.engine.engine.service().publish_gauges();
        self.metrics.metrics()
    }

    /// See [`Host::metrics_source`]. Gauges are what they were some turns ago.
    #[must_use]
    pub const fn metrics_source(&self) -> &MetricsSource {
        &self.metrics
    }
}

#[derive(Debug)]
struct InlineEngine {
    engine: HostEngine,
    housekeeping: Housekeeping,
}

impl InlineEngine {
    fn turn(&mut self) -> usize {
        self.housekeeping.turn(&mut self.engine);
        self.engine.turn()
    }
}

impl ControlPath for InlineEngine {
    fn late_answer(&mut self) -> Result<Option<Answer>, HostError> {
        Ok(None)
    }

    fn ask(&mut self, request: Request) -> Result<Answer, Unanswered> {
        Ok(answer(self.engine.service_mut(), request))
    }

    fn life(&self) -> Life {
        Life::Inline
    }
}

fn pool_sizes(engine: &HostEngine) -> PoolSizes {
    let settings = engine.service().nic().config().settings();
    let slots = settings.command_slots.try_into().expect("checked by the NIC's configuration");
    PoolSizes { slots, regions: settings.regions.into() }
}

struct Opened {
    engine: HostEngine,
    shared: HostShared,
    addresses: LocalAddresses,
}

fn open(config: HostConfig) -> Result<Opened, HostError> {
    let HostConfig { device, addresses, port, counter, mut nic, aead, .. } = config;
    let OpenDevice { backend, addresses, info, keeper } = device.open(&addresses, port)?;
    nic.addresses = addresses;
    let user = User::this(!matches!(info, DeviceInfo::Udp(_)));
    let (counter, block) = Counter::open(counter, nic.counter_start, user)?;
    (nic.counter_start, nic.counter_end) = (block.first(), block.end());
    nic.bucket_secret = random_bucket_secret()?;
    nic.receive_len_max = backend.receive_len_max();
    let nic = Nic::with_aead(nic.build()?, aead);
    let (counters, settings) = (nic.counters().clone(), *nic.config().settings());
    let watch = keeper.watch();
    let engine = HostEngine::new(OneRma::new(nic), backend, TscClock::new());
    let aead = aead.name();
    let shared = HostShared { info, nic: settings, counters, counter, device: keeper, watch, aead };
    tracing::info!(
        device = %shared.info,
        addresses = ?addresses.iter().collect::<Vec<_>>(),
        port,
        counter = %shared.counter.source(),
        aead,
        "host opened"
    );
    for fallback in shared.fallbacks() {
        tracing::warn!(fallback, "works less well than it could");
    }
    Ok(Opened { engine, shared, addresses })
}

rma_core::settings!(HostConfig);
