//! The metrics of a host, at one moment, as plain data and as text for Prometheus.
//!
//! Nothing here runs on an engine's thread, and nothing waits for it: counters are the engine's
//! own, which it writes and others read; gauges are what it published last; the kernel is asked
//! directly.
//!
//! Executors belong to their applications' threads, and tell as these poll or go to sleep: see
//! [`ExecutorGauges`]. There is nothing of each path, of which there may be as many as hosts. A
//! [`rma_core::executor::CommandExecutor`] that an application drives itself is not there.
//!
//! Invariant: the text is valid whatever names tenants and devices have: no family and no sample
//! comes twice, and buckets ascend.

mod alerts;
mod display;
#[cfg(feature = "metrics-endpoint")]
mod endpoint;
mod prometheus;

pub use self::alerts::Alert;
#[cfg(feature = "metrics-endpoint")]
pub use self::endpoint::{EndpointError, MetricsEndpoint};
pub use crate::{
    device::metrics::{DeviceCounter, DeviceMetrics},
    driver::ReceiveQueues,
};
#[doc(inline)]
pub use rma_app::ExecutorGauges;
#[doc(inline)]
pub use rma_core::{
    error::{DropReason, NotSent},
    nic::{DelayHistogram, NicCounters, NicGauges, OtherVersion},
    packet::sizes::PacketSizes,
};

use core::ops::{AddAssign, Range};
use std::sync::{Arc, Weak};

use rma_app::{gauges::Executors, life::Life};
use rma_core::{
    engine::HandOvers,
    op::{OpStatus, OpType},
    outcome::Verdict,
};
#[cfg(feature = "star")]
use rma_star::counters::StarCounters;

#[cfg(feature = "star")]
pub use crate::star::metrics::StarTotals;
use crate::{
    device::{DeviceInfo, metrics::DeviceWatch},
    driver::{Books, Driver, receive_queues, tenant::TenantUsage, usages},
};

/// The metrics of a host at one moment. Each number is whole, but they are not all from one
/// instant.
///
/// As text: for a person by [`Display`](core::fmt::Display), and for scrapers by
/// [`Metrics::prometheus`].
///
/// ```
/// # use rma_xdp::{Host, HostConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::open(HostConfig::udp([127, 0, 0, 20]))?;
/// let metrics = host.metrics();
/// println!("{metrics}"); // a dozen lines
///
/// let mut text = String::new();
/// metrics.prometheus(&mut text)?;
/// assert!(text.contains("rma_engine_up{engine=\"0\"} 1\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Each engine, in the order of their numbers.
    pub engines: Box<[EngineMetrics]>,
    /// The AEAD provider that encrypts.
    pub aead: &'static str,
    /// Ops of this host that ended, by status.
    pub completions: Box<[(OpStatus, u64)]>,
    /// Received frames that died in the NIC, by reason.
    pub drops: Box<[(DropReason, u64)]>,
    /// Frames that the NIC dropped instead of sending, by reason.
    pub not_sent: Box<[(NotSent, u64)]>,
    /// The NIC's other counters: see [`NicCounters`].
    pub nic: NicTotals,
    /// The counts of StaR, where the host serves it.
    #[cfg(feature = "star")]
    pub star: Option<StarTotals>,
    /// The last sender of a frame of another version of the wire format, as the packet said: `None`
    /// if nobody has. Such hosts get no answer, so their administrators have to find them; how many
    /// frames they have sent is among `drops`, as [`DropReason::Version`].
    pub other_version: Option<OtherVersion>,
    /// Packets that were received, by their frames. Those that were sent are the device's.
    pub packets_received: PacketSizes,
    /// `issue_delay` and `total_delay` of ops that ended with OK, by type of op.
    pub delays: Box<[OpDelays]>,
    /// The fill of the NIC a moment ago.
    pub gauges: NicGauges,
    /// SETTLEs of others that were answered, by verdict.
    pub settled: Box<[(Verdict, u64)]>,
    /// The fill of the receive queues. All 0 once the host is gone.
    pub receive_queues: ReceiveQueues,
    /// The gauges of the host's executors.
    pub executors: ExecutorGauges,
    /// The metrics of the device.
    pub device: DeviceMetrics,
    /// The usage of each tenant, the host itself first. Empty once the host is gone.
    pub tenants: Box<[TenantUsage]>,
}

/// The counters of a NIC that are one number each. Each is what the method of [`NicCounters`] of
/// that name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicTotals {
    /// Frames that the backend handed over.
    pub frames_received: u64,
    /// Frames that the backend took.
    pub frames_sent: u64,
    /// Octets at the ends of received packets in which no frame could be found. Each end counts as
    /// one frame that was dropped, for its reason.
    pub tail_octets: u64,
    /// Commands for which no completion could be given.
    pub commands_refused: u64,
    /// Ops that ended with DISPATCH_TIMEOUT although the window had room for them.
    pub shed_with_room: u64,
    /// Requests that were taken and then not answered.
    pub requests_abandoned: u64,
    /// Indexes in a portal's rings that cannot be.
    pub impossible_indexes: u64,
    /// Mutations that may have been applied too late.
    pub late_effects: u64,
    /// Mutations of others that gave their share of the solicitation window back, as their data was
    /// late and others waited.
    pub parked: u64,
    /// Those of them whose entries were given to others: they end with TIMEOUT.
    pub parked_forgotten: u64,
    /// Rekeys of others that were not acknowledged, as an engine of this host stood still.
    pub rekeys_held_up: u64,
    /// Requests of others that were NACKed so that an initiator with fewer of them found a place.
    pub pushed_out: u64,
    /// Frames that were not sealed as no counter value was left.
    pub seals_refused: u64,
    /// Previous keys of regions that were forgotten before their time.
    pub previous_keys_lost: u64,
    /// Posts of receives that there are not, or that were posted already.
    pub posts_refused: u64,
}

/// The counts of a service beside 1RMA, for texts.
struct ServiceCounts {
    name: &'static str,
    /// The word for it in names of metrics.
    word: &'static str,
    drops: Vec<(String, u64)>,
    events: Vec<(String, u64)>,
}

impl Metrics {
    /// The counts of each service beside 1RMA that the host serves.
    fn services(&self) -> Vec<ServiceCounts> {
        let served: [Option<ServiceCounts>; _] = [
            #[cfg(feature = "star")]
            self.star.as_ref().map(|it| ServiceCounts {
                name: "StaR",
                word: "star",
                drops: named(&it.drops),
                events: named(&it.events),
            }),
        ];
        served.into_iter().flatten().collect()
    }
}

/// The metrics of one engine of a host: see [`EngineInfo`](crate::EngineInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineMetrics {
    /// Whether the host is open and the engine has not ended.
    pub is_up: bool,
    /// Frames that its NIC was given, those of other engines among them.
    pub frames_received: u64,
    /// Frames that came to it and were for another engine.
    pub handed_over: u64,
    /// Frames that were for another engine and lost, as that one did not keep up.
    pub handed_over_lost: u64,
    /// Frames that came to other engines and were for this one.
    pub taken_over: u64,
}

/// The delays of one type of op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpDelays {
    /// The type of op.
    pub op_type: OpType,
    /// From an op's arrival in the NIC until it entered service.
    pub issue: DelayHistogram,
    /// From its arrival to its completion.
    pub total: DelayHistogram,
}

/// The source of a host's [`Metrics`], on any thread. It keeps nothing of the host open, and may
/// outlive it: the counters then stay as they are.
#[derive(Clone, Debug)]
pub struct MetricsSource {
    engines: Arc<[EngineCells]>,
    device: DeviceWatch,
    /// The description of the device, in words.
    description: Arc<str>,
    aead: &'static str,
    books: Weak<<Books as core::ops::Deref>::Target>,
    executors: Executors,
}

/// The cells in which one engine of a host counts.
#[derive(Clone, Debug)]
pub(crate) struct EngineCells {
    pub(crate) counters: Arc<NicCounters>,
    /// The counters of StaR, where the engine serves it.
    #[cfg(feature = "star")]
    pub(crate) star: Option<Arc<StarCounters>>,
    pub(crate) handed_over: Arc<HandOvers>,
    /// The receive queues that it had when the host was opened.
    pub(crate) queues: Vec<u32>,
    /// The core that its thread is pinned to.
    pub(crate) core: Option<usize>,
    pub(crate) slots: Range<u16>,
    pub(crate) life: Life,
}

impl EngineCells {
    fn metrics(&self, is_open: bool) -> EngineMetrics {
        EngineMetrics {
            is_up: is_open && !self.life.has_ended(),
            frames_received: self.counters.frames_received(),
            handed_over: self.handed_over.given(),
            handed_over_lost: self.handed_over.lost(),
            taken_over: self.handed_over.taken(),
        }
    }
}

impl MetricsSource {
    pub(crate) fn new<P>(
        engines: Arc<[EngineCells]>,
        device: DeviceWatch,
        info: &DeviceInfo,
        aead: &'static str,
        driver: &Driver<P>,
    ) -> Self {
        let (description, books) = (info.to_string().into(), Arc::downgrade(driver.books()));
        let executors = driver.executors().clone();
        Self { engines, device, description, aead, books, executors }
    }

    /// The engines' cells, in the order of their numbers.
    pub(crate) fn engines(&self) -> &[EngineCells] {
        &self.engines
    }

    /// The sum of what all engines count.
    fn sum<T: Default + AddAssign>(&self, count: impl Fn(&NicCounters) -> T) -> T {
        let mut sum = T::default();
        self.engines.iter().for_each(|engine| sum += count(&engine.counters));
        sum
    }

    /// Returns the present metrics of the host. Allocates, and makes a system call for each receive
    /// queue; an engine notices nothing of it.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let Self { engines, device, description, aead, books, executors } = self;
        // In a child of the process the books may be locked by a thread that the child has not.
        let is_here = engines.iter().all(|it| it.life.check_process().is_ok());
        let books = books.upgrade().filter(|_| is_here);
        let tenants = books.as_ref().map(usages);
        let delays = |op_type| OpDelays {
            op_type,
            issue: self.sum(|it| it.issue_delay(op_type)),
            total: self.sum(|it| it.total_delay(op_type)),
        };
        Metrics {
            engines: engines.iter().map(|it| it.metrics(tenants.is_some())).collect(),
            aead,
            completions: OpStatus::ALL
                .map(|status| (status, self.sum(|it| it.completions(status))))
                .into(),
            drops: DropReason::ALL.map(|reason| (reason, self.sum(|it| it.drops(reason)))).into(),
            not_sent: NotSent::ALL.map(|it| (it, self.sum(|nic| nic.not_sent(it)))).into(),
            nic: NicTotals {
                frames_received: self.sum(NicCounters::frames_received),
                frames_sent: self.sum(NicCounters::frames_sent),
                tail_octets: self.sum(NicCounters::tail_octets),
                commands_refused: self.sum(NicCounters::commands_refused),
                shed_with_room: self.sum(NicCounters::shed_with_room),
                requests_abandoned: self.sum(NicCounters::requests_abandoned),
                impossible_indexes: self.sum(NicCounters::impossible_indexes),
                late_effects: self.sum(NicCounters::late_effects),
                parked: self.sum(NicCounters::parked),
                parked_forgotten: self.sum(NicCounters::parked_forgotten),
                rekeys_held_up: self.sum(NicCounters::rekeys_held_up),
                pushed_out: self.sum(NicCounters::pushed_out),
                seals_refused: self.sum(NicCounters::seals_refused),
                previous_keys_lost: self.sum(NicCounters::previous_keys_lost),
                posts_refused: self.sum(NicCounters::posts_refused),
            },
            #[cfg(feature = "star")]
            star: StarTotals::of(engines.iter().filter_map(|it| it.star.as_deref())),
            other_version: engines.iter().find_map(|it| it.counters.other_version()),
            packets_received: self.sum(NicCounters::packets_received),
            delays: OpType::ALL.map(delays).into(),
            gauges: self.sum(NicCounters::gauges),
            settled: Verdict::ALL.map(|it| (it, self.sum(|nic| nic.settled(it)))).into(),
            receive_queues: books.as_ref().map(receive_queues).unwrap_or_default(),
            executors: if is_here { executors.gauges() } else { Executors::default().gauges() },
            device: device.metrics(description),
            tenants: tenants.unwrap_or_default().into(),
        }
    }
}

/// Counts, by the names of what they count.
#[cfg(feature = "star")]
fn named<T: core::fmt::Debug>(counts: &[(T, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(what, count)| (format!("{what:?}"), *count)).collect()
}
