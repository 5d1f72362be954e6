//! Tenants: the applications of one host, and what of its finite resources each may have (1RMA
//! §4.3, §7.3: "assigns finite hardware resources to applications according to their business
//! priorities").
//!
//! Names, quotas and errors only. What is allocated is in `driver`.
//!
//! # The rules
//!
//! There are three pools for all hosts: command slots, regions, and registered bytes. Hosts that
//! serve StaR have four more: protection domains, memory regions with windows, work requests, and
//! stateful connections. Each is divided into *reservations*, one for each tenant that has one, and
//! the *rest*.
//!
//! - What a tenant has of a pool, all together, is at most its `max`.
//! - An allocation (a portal's slots, a region, a region's bytes) comes wholly from the tenant's
//!   reservation, if that has room, and otherwise wholly from the rest. Nobody else ever gets what
//!   is reserved. Reserved slots lie side by side, so that other tenants' portals cannot cut them
//!   into pieces.
//! - The rest is first come, first served, but for this: as long as the host has a tenant of a
//!   higher priority, a tenant of a lower one gets nothing that would leave less than a given share
//!   of the rest free ([`KeptFree`]). What it has already is not taken away. Making a reservation
//!   is exempt: it may take all that is free of the rest, whatever the tenant's priority.
//! - Protection domains, memory regions and stateful connections are rows of an engine's tables, of
//!   which a host may have several. A portal is one engine's, and so is all that it has. What a
//!   tenant reserves of them is at one engine, where its portals go while any of it is free; its
//!   `max` counts over all.
//!
//! The host itself is a tenant, too: what is allocated without naming one is the host's own.
//!
//! What engines share out among tenants besides, op by op, is not configured: see
//! `docs/decisions/fairness.md`. They tell 64 tenants apart; of more, some have a share together.

use core::fmt;
use std::sync::Arc;

use rma_core::{addr::Pid, region::NicTag};
use thiserror::Error;

/// How much of one pool a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Quota {
    /// How much nobody else can have. Default: 0.
    pub reserved: u64,
    /// The most it can have, with what is reserved. Default: all there is.
    pub max: u64,
}

impl Quota {
    /// These two.
    pub const fn new(reserved: u64, max: u64) -> Self {
        Self { reserved, max }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self { reserved: 0, max: u64::MAX }
    }
}

//= 1rma#4.3-priorities
/// How much a tenant may have of each pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Quotas {
    /// Command slots: how many ops may be in flight at once, and so which part of the network's
    /// capacity the tenant can use (§7.3, figure 11b).
    pub slots: Quota,
    /// Entries of the registered region table.
    pub regions: Quota,
    /// Bytes of memory in registered regions, also in those of StaR. Not of allocated memory: that
    /// of a region which is deregistered lives on as long as a handle to it, and is not counted.
    pub bytes: Quota,
    /// StaR: protection domains.
    pub pds: Quota,
    /// StaR: memory regions and windows.
    pub mrs: Quota,
    /// StaR: work requests that may be outstanding at once, those of all the tenant's portals
    /// together.
    pub work_requests: Quota,
    /// StaR: connections of which this host is the stateful side.
    pub stateful_connections: Quota,
}

impl Quotas {
    pub(crate) const fn of(&self, resource: Resource) -> Quota {
        match resource {
            Resource::CommandSlots => self.slots,
            Resource::Regions => self.regions,
            Resource::RegisteredBytes => self.bytes,
            Resource::ProtectionDomains => self.pds,
            Resource::MemoryRegions => self.mrs,
            Resource::WorkRequests => self.work_requests,
            Resource::StatefulConnections => self.stateful_connections,
        }
    }
}

/// The priority of tenants in the use of what nobody has reserved, while it is scarce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Leaves [`KeptFree::by_low`] of the rest free for tenants of normal and high priority.
    Low,
    /// Leaves [`KeptFree::by_normal`] of the rest free for tenants of high priority.
    #[default]
    Normal,
    /// May use all of the rest.
    High,
}

/// The share of the rest of each pool that tenants leave free for those of higher priority, as long
/// as the host has any. In percent, rounded up to whole units; more than 100 is 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct KeptFree {
    /// By tenants of low priority. Default: 50.
    pub by_low: u8,
    /// By tenants of normal priority. Default: 10.
    pub by_normal: u8,
}

impl Default for KeptFree {
    fn default() -> Self {
        Self { by_low: 50, by_normal: 10 }
    }
}

/// The driver's policy. The pools of command slots and regions, and StaR's of protection domains,
/// memory regions and stateful connections, are as large as the engine's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct DriverConfig {
    /// The pool of registered bytes. Default: no limit but the machine's memory.
    pub registered_bytes: u64,
    /// StaR: the pool of work requests. Their places are in memory of their portals, some 300 bytes
    /// each. Default: no limit but the machine's memory.
    pub work_requests: u64,
    /// The share of the pools that tenants leave to others.
    pub kept_free: KeptFree,
    /// The priority of what the host allocates without naming a tenant.
    pub priority: Priority,
    /// How much it may have.
    pub quotas: Quotas,
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self {
            registered_bytes: u64::MAX,
            work_requests: u64::MAX,
            kept_free: KeptFree::default(),
            priority: Priority::default(),
            quotas: Quotas::default(),
        }
    }
}

/// With what a tenant is made.
///
/// ```
/// # use rma_xdp::{Host, HostConfig, TenantConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::open(HostConfig::udp([127, 0, 0, 28]))?;
/// let mut config = TenantConfig::named("backup");
/// config.quotas.slots.max = 64; // of 1024 that the NIC has
/// let backup = host.tenant(config)?;
/// assert_eq!(host.for_tenant(&backup).usage()?.slots.available, 64);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct TenantConfig {
    /// Its name, for errors. Need not be unique.
    pub name: Box<str>,
    /// PID_initiator of its portals, and the only one whose portals may use its regions as the
    /// local end of an op. Fixed for each portal and region when it is allocated. `None`: the
    /// host's. Tenants of one PID can use each other's regions.
    pub pid: Option<Pid>,
    /// The priority when the rest of a pool is scarce.
    pub priority: Priority,
    /// How much it may have.
    pub quotas: Quotas,
}

impl TenantConfig {
    /// A tenant of normal priority with the host's PID, without reservations or limits.
    pub fn named(name: &str) -> Self {
        let (pid, priority, quotas) = (None, Priority::default(), Quotas::default());
        Self { name: name.into(), pid, priority, quotas }
    }
}

/// One application of a host, as its allocations name it. Clones are the same tenant.
///
/// When the last one is dropped, portals and regions go on as they are; once they have been given
/// back, too, nothing is reserved any longer.
#[derive(Clone, Debug)]
pub struct Tenant {
    pub(crate) id: TenantId,
    pub(crate) name: Box<str>,
    pub(crate) pid: Pid,
    pub(crate) nic: NicTag,
    /// The driver has a clone, and looks whether it is the only one.
    pub(crate) _alive: Arc<()>,
}

/// The id of a driver's tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TenantId(pub(crate) u64);

impl Tenant {
    /// The PID that grants for this tenant's portals must name.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The usage of one pool by a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The amount in use.
    pub used: u64,
    /// The amount that it could have at this moment, in one piece and at one engine: the more of
    /// what is left of its reservation, and of what it may use of the rest.
    pub available: u64,
}

/// The usage of a tenant, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Command slots. Those of a portal that was dropped count until its last op has completed.
    pub slots: PoolUsage,
    /// Regions that are registered.
    pub regions: PoolUsage,
    /// Bytes in registered regions, also in those of StaR.
    pub bytes: PoolUsage,
    /// StaR: protection domains. Those of a portal that was dropped count, as all that is StaR's,
    /// until nothing of its connections is on its way any longer.
    pub pds: PoolUsage,
    /// StaR: memory regions and windows.
    pub mrs: PoolUsage,
    /// StaR: work requests that its portals have places for.
    pub work_requests: PoolUsage,
    /// StaR: connections that its portals may be the stateful side of.
    pub stateful_connections: PoolUsage,
}

impl Usage {
    /// The usage of each pool.
    pub(crate) fn by(of: impl Fn(Resource) -> PoolUsage) -> Self {
        Self {
            slots: of(Resource::CommandSlots),
            regions: of(Resource::Regions),
            bytes: of(Resource::RegisteredBytes),
            pds: of(Resource::ProtectionDomains),
            mrs: of(Resource::MemoryRegions),
            work_requests: of(Resource::WorkRequests),
            stateful_connections: of(Resource::StatefulConnections),
        }
    }

    pub(crate) const fn of(&self, resource: Resource) -> PoolUsage {
        match resource {
            Resource::CommandSlots => self.slots,
            Resource::Regions => self.regions,
            Resource::RegisteredBytes => self.bytes,
            Resource::ProtectionDomains => self.pds,
            Resource::MemoryRegions => self.mrs,
            Resource::WorkRequests => self.work_requests,
            Resource::StatefulConnections => self.stateful_connections,
        }
    }
}

/// The usage of one tenant, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantUsage {
    /// Its name; `host` for what is allocated without a tenant.
    pub tenant: Box<str>,
    /// The tenant's number on this host: names may be the same.
    pub id: u64,
    /// The usage and limits. Slots of dropped portals count until the driver is asked for something
    /// next.
    pub usage: Usage,
}

/// A resource of which there is a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Entries of the command slot table.
    CommandSlots,
    /// Entries of the registered region table.
    Regions,
    /// Bytes in registered regions.
    RegisteredBytes,
    /// Entries of StaR's table of protection domains.
    ProtectionDomains,
    /// Entries of StaR's table of memory regions and windows.
    MemoryRegions,
    /// Places for StaR's outstanding work requests.
    WorkRequests,
    /// Entries of StaR's table of connections of which this host is the stateful side.
    StatefulConnections,
}

impl Resource {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 7] = [
        Self::CommandSlots,
        Self::Regions,
        Self::RegisteredBytes,
        Self::ProtectionDomains,
        Self::MemoryRegions,
        Self::WorkRequests,
        Self::StatefulConnections,
    ];

    const fn remedy(self) -> &'static str {
        match self {
            Self::CommandSlots => "drop a portal, ask for fewer",
            Self::Regions => "deregister a region",
            Self::RegisteredBytes => "deregister a region, ask for a smaller one",
            Self::ProtectionDomains => "deallocate a protection domain",
            Self::MemoryRegions => "deregister a memory region or window",
            Self::WorkRequests | Self::StatefulConnections => "drop a portal, ask for fewer",
        }
    }

    /// The owner of its table, in words.
    const fn whose(self) -> &'static str {
        if self.is_of_engine() { "one engine of this host" } else { "this host" }
    }

    const fn in_one_piece(self) -> &'static str {
        match self {
            Self::CommandSlots => ", in one piece",
            _ if self.is_of_engine() => ", at one engine",
            _ => "",
        }
    }

    /// The name of its metrics, but for the end, and what they count.
    pub(crate) const fn metric(self) -> (&'static str, &'static str) {
        match self {
            Self::CommandSlots => ("rma_tenant_command_slots", "Command slots"),
            Self::Regions => ("rma_tenant_regions", "Regions"),
            Self::RegisteredBytes => ("rma_tenant_registered_bytes", "Bytes in regions"),
            Self::ProtectionDomains => {
                ("rma_tenant_star_protection_domains", "Protection domains of StaR")
            }
            Self::MemoryRegions => {
                ("rma_tenant_star_memory_regions", "Memory regions and windows of StaR")
            }
            Self::WorkRequests => {
                ("rma_tenant_star_work_requests", "Places for work requests of StaR")
            }
            Self::StatefulConnections => {
                ("rma_tenant_star_stateful_connections", "Stateful connections of StaR")
            }
        }
    }

    /// Whether each engine has a pool of its own.
    pub(crate) const fn is_of_engine(self) -> bool {
        matches!(self, Self::ProtectionDomains | Self::MemoryRegions | Self::StatefulConnections)
    }

    const fn larger_pool(self) -> &'static str {
        match self {
            Self::CommandSlots => "start the host with a larger `nic.command_slots`",
            Self::Regions => "start the host with a larger `nic.regions`",
            Self::RegisteredBytes => "start the host with a larger `driver.registered_bytes`",
            Self::ProtectionDomains => "start the host with a larger `star.pds`",
            Self::MemoryRegions => "start the host with a larger `star.mrs`",
            Self::WorkRequests => "start the host with a larger `driver.work_requests`",
            Self::StatefulConnections => "start the host with a larger `star.connections`",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CommandSlots => "command slots",
            Self::Regions => "regions",
            Self::RegisteredBytes => "registered bytes",
            Self::ProtectionDomains => "protection domains",
            Self::MemoryRegions => "memory regions and windows",
            Self::WorkRequests => "work requests",
            Self::StatefulConnections => "stateful connections",
        })
    }
}

/// The amount that is free and not for everybody, if there is any.
struct Kept(u64);

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            kept => write!(f, " ({kept} more are kept for tenants of higher priority)"),
        }
    }
}

impl AllocationError {
    /// How much could be had where this much could not.
    #[cfg(feature = "star")]
    pub(crate) fn most(&self) -> u64 {
        match self {
            Self::PoolEmpty { reserved_free, rest_free, .. } => *rest_free.max(reserved_free),
            _ => u64::MAX,
        }
    }
}

/// The reason why the driver did not allocate something. Nothing was allocated.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocationError {
    /// A portal needs at least one slot.
    #[error("a portal of 0 command slots; ask for at least 1")]
    NoSlots,
    /// The tenant has as much as it may have.
    #[error(
        "{wanted} {resource} were asked for and tenant `{tenant}` has {used} of the {max} that it may have; {}, or \
         raise its quota", .resource.remedy()
    )]
    Quota {
        /// The resource that was asked for.
        resource: Resource,
        /// By whom.
        tenant: Box<str>,
        /// How much.
        wanted: u64,
        /// How much it has.
        used: u64,
        /// Its quota.
        max: u64,
    },
    /// Too little is free for the tenant.
    #[error(
        "{wanted} {resource} were asked for and tenant `{tenant}` can have no more than {}: of the {capacity} of {}, \
         {reserved_free} of those that are reserved for it are free, and {rest_free} of those that nobody has \
         reserved{}; {}, or {}", reserved_free.max(rest_free), .resource.whose(), Kept(*kept_free), .resource.remedy(),
        .resource.larger_pool()
    )]
    PoolEmpty {
        /// The resource that was asked for.
        resource: Resource,
        /// By whom.
        tenant: Box<str>,
        /// How much.
        wanted: u64,
        /// How much is left of its reservation.
        reserved_free: u64,
        /// How much it could have of what nobody has reserved.
        rest_free: u64,
        /// How much more of that is free, and kept for tenants of higher priority.
        kept_free: u64,
        /// The size of the pool.
        capacity: u64,
    },
    /// So many slots are free, but not side by side.
    #[error(
        "{wanted} command slots were asked for and tenant `{tenant}` can have no more than {longest} in one piece, \
         though {free} are free; drop a portal, ask for fewer, or reserve slots for the tenant"
    )]
    Fragmented {
        /// By whom.
        tenant: Box<str>,
        /// How many slots the tenant asked for.
        wanted: u64,
        /// How many it could have if they were side by side.
        free: u64,
        /// How many lie side by side.
        longest: u64,
    },
    /// A portal's slots are one engine's.
    #[error(
        "{wanted} command slots were asked for, and a portal is one engine's, which has {largest} of them; ask for that \
         many at most, open the host with more `command_slots`, or with fewer engines"
    )]
    PortalOfSeveralEngines {
        /// How many slots were asked for.
        wanted: u16,
        /// How many an engine has.
        largest: u16,
    },
    /// A portal was asked for at an engine that the host does not have.
    #[error(
        "a portal was asked for at engine {engine}, and the host has {engines}, counted from 0: ask for one of them, or \
         open the host with more `engines`"
    )]
    NoSuchEngine {
        /// The engine that was asked for.
        engine: usize,
        /// How many there are.
        engines: usize,
    },
    /// The engine that a portal was asked for at has no room for it.
    #[error(
        "{wanted} command slots were asked for at engine {engine} for tenant `{tenant}`, and of its {slots} no more than \
         {free} free ones lie side by side: ask for fewer, drop portals of that engine, or leave the engine to the host"
    )]
    EngineFull {
        /// The engine that was asked for.
        engine: usize,
        /// The tenant that asked.
        tenant: Box<str>,
        /// How many slots were asked for.
        wanted: u16,
        /// How many free ones lie side by side there.
        free: u16,
        /// How many the engine has.
        slots: u16,
    },
    /// So much cannot be reserved.
    #[error(
        "{wanted} {resource} cannot be reserved for tenant `{tenant}`: of {capacity}, {free} are neither reserved for \
         others nor in use{}; reserve less, reserve it before others allocate, or {}",
        .resource.in_one_piece(), .resource.larger_pool()
    )]
    Reservation {
        /// The resource to reserve.
        resource: Resource,
        /// For whom.
        tenant: Box<str>,
        /// How much.
        wanted: u64,
        /// How much can be.
        free: u64,
        /// The size of the pool.
        capacity: u64,
    },
    /// A tenant could never use what is reserved for it.
    #[error(
        "{reserved} {resource} are to be reserved for tenant `{tenant}`, which may have {max}; reserve less or raise \
         `max`"
    )]
    QuotaBelowReservation {
        /// Of what.
        resource: Resource,
        /// The tenant.
        tenant: Box<str>,
        /// Its reservation.
        reserved: u64,
        /// Its quota.
        max: u64,
    },
    /// Events wake their owner's threads alone.
    #[error(
        "events of the receive queue cannot wake this portal, which belongs to another tenant or another host; \
         allocate one for the tenant that the queue is for"
    )]
    PortalOfAnother,
    /// The tenant is another host's.
    #[error("tenant `{tenant}` belongs to another host of this process; make one of this host")]
    TenantOfAnotherHost {
        /// The tenant.
        tenant: Box<str>,
    },
}

rma_core::settings!(Quota, Quotas, KeptFree, DriverConfig, TenantConfig);
