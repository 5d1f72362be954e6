//! 1RMA, One-Shot Remote Memory Access, for Linux hosts: one-sided, encrypted reads and writes of
//! another host's registered memory, over AF_XDP or plain UDP sockets.
//!
//! A [`Host`] is a NIC with its device and its engine thread. One host registers a region and makes
//! a [`Grant`]; the grant travels to the other over a channel that keeps secrets; the other reads
//! or writes through a [`Portal`], without the first host's application taking any part in it.
//!
//! ```
#![doc = include_str!("../examples/one_sided.rs")]
//! ```
//!
//! # Transfers of any size
//!
//! An [`Executor`] cuts transfers into ops, paces them by congestion control and issues again what
//! was lost. It is polled, or blocks; a [`Client`] over it has futures for any async executor,
//! whose buffers nobody else gets before the NIC is done with them.
//!
//! ```
#![doc = include_str!("../examples/any_size.rs")]
//! ```
//!
//! A value of an op's size that is read while it changes lies in [`Cells`], so that no reader takes
//! one that is torn.
//!
//! # Messages and atomics
//!
//! Besides the paper there are ops that their target records: messages and events for a
//! [`ReceiveQueue`], writes whose last word lands last, and atomics on a word. They are applied at
//! most once, and what became of one can be asked. A [`Portal`] issues them one by one; an
//! [`Executor`] offers them again where no receive is posted, and asks about those that timed out;
//! a [`Client`] has a future for each, and a [`Receiver`] awaits what others send.
//!
//! ```
#![doc = include_str!("../examples/mailbox.rs")]
//! ```
//!
//! # Channels
//!
//! Twenty kinds of message channels stand on these ops: the module [`channel`] has them, and which
//! suits whom. Ends are opened at a host, told each other's terms, and then used by
//! a thread's [`Channels`], which wait; or, by whoever owns a core, through a
//! [`Link`](channel::Link).
//!
//! ```
#![doc = include_str!("../examples/rpc.rs")]
//! ```
//!
//! # Settings
//!
//! Settings are structs with public fields, and any version may bring another field. So they are
//! made by a constructor, which gives defaults, and then changed; in one expression by `with`.
//!
//! ```
//! # use core::time::Duration;
//! # use rma_xdp::{Host, HostConfig, NicConfigBuilder, Timing};
//! let nic = NicConfigBuilder::default().with(|it| {
//!     it.command_slots = 64;
//!     it.timing = Timing::software(Duration::from_micros(10), Duration::from_millis(50));
//! });
//! let host = Host::open(HostConfig::udp([127, 0, 0, 29]).with(|it| it.nic = nic));
//! # host.unwrap();
//! ```
//!
//! # Two ways to run an engine
//!
//! [`Host`] runs it on a thread of its own, which spins, then yields, then sleeps ([`IdlePolicy`]).
//! [`InlineHost`] runs it when the application calls [`InlineHost::turn`]: the fastest, for
//! applications that own their core.
//!
//! # Messages, events and atomics
//!
//! [`Host::receive_queue`] has other hosts' SEND and NOTIFY make events for an application, and
//! [`Host::register_with_events`] their WRITE_WITH_IMM. COMPARE_SWAP and FETCH_ADD, which are
//! linearizable with the owner's own atomics on a [`RegisteredRegion`], and a WRITE whose last word
//! lands last are ops of a [`Portal`] as READ is. They are not 1RMA's. Each is applied at most
//! once; [`Portal::settle`] asks what became of one that timed out.
//!
//! # Several applications
//!
//! Command slots, regions and registered bytes are finite. [`Host::tenant`] gives each application
//! of a host its share of them, by priority; [`DriverConfig`] is the policy.
//!
//! # Keys
//!
//! A [`Grant`] is a key, and travels over a channel that keeps secrets. With the feature `keys`, the
//! module `keys` has that channel: a service that gives the keys of an owner's regions to whom a
//! policy allows them, and changes them; and clients for which a change is a delay.
//!
//! # Watching a host
//!
//! [`Host::metrics`] is what a host tells about itself at one moment; [`Metrics::prometheus`]
//! writes it as text. [`Metrics::alerts`] is what of it somebody should look at, and
//! [`Metrics::is_healthy`] what a health check asks. With the feature `metrics-endpoint`,
//! `MetricsEndpoint` serves both over HTTP.
//! What hosts decide, open and hand out are events of `tracing`; the engine has none.
//!
//! # Two devices
//!
//! [`HostConfig::xdp`] takes frames past the kernel's network stack; it needs privileges, and the
//! feature `xdp`, which is on unless a program asks for no default features: then nothing of AF_XDP
//! is built or linked. [`HostConfig::udp`] uses the kernel's sockets; it needs none. The wire is
//! the same, so either kind works with the other.
//!
//! The protocol itself, without I/O, is the crate `rma-core`, and what an application does with a
//! portal is the crate `rma-app`; what of them a user meets is re-exported here.

mod device;
mod driver;
mod engine;
mod error;
mod host;
mod iv_blocks;
#[cfg(feature = "keys")]
pub mod keys;
mod metrics;
mod random;
#[cfg(feature = "star")]
pub mod star;

pub use device::net;
#[cfg(feature = "xdp")]
pub use device::xdp;
pub use device::{
    Device, DeviceInfo,
    backend::{AnyBackend, HostBackend},
    metrics::{DeviceCounter, DeviceMetrics},
    status::{InterfaceState, InterfaceStatus},
    udp,
    ways::{AddressStatus, NarrowPath},
};
pub use driver::ReceiveQueues;
pub use driver::tenant::{
    AllocationError, DriverConfig, KeptFree, PoolUsage, Priority, Quota, Quotas, Resource, Tenant,
    TenantConfig, TenantUsage, Usage,
};
pub use engine::{inline::InlineEngine, thread::EngineThread};
pub use error::HostError;
#[cfg(feature = "star")]
pub use error::StarError;
pub use host::gate::HostFor;
pub use host::{DEFAULT_PORT, Host, HostConfig, HostOf, InlineHost, text::HostTextError};
pub use iv_blocks::{CounterConfig, CounterError, CounterSource};
#[cfg(feature = "star")]
pub use metrics::StarTotals;
#[cfg(feature = "metrics-endpoint")]
pub use metrics::endpoint::{EndpointError, MetricsEndpoint};
pub use metrics::{Metrics, MetricsSource, NicTotals, OpDelays, alerts::Alert};
pub use random::random_region_key;

/// Message channels over this host and its ops: `rma-channel`, whose ends are opened at a host.
#[cfg(feature = "channel")]
#[doc(inline)]
pub use rma_channel as channel;

#[doc(inline)]
pub use rma_app::{
    Acquire, BufPiece, BufferPool, BufferPoolError, CellError, CellLayout, CellLens, CellValue,
    Cells, Client, Executor, ExecutorGauges, IdlePolicy, Message, Op, Poller, Portal, PortalLease,
    Receiver, Recv, RegionBuf, Settlement, StartError, Transfer, TransferError, TransferOptions,
    TscClock, WaitError,
};
#[cfg(feature = "channel")]
#[doc(inline)]
pub use rma_app::{AsyncChannels, ChannelError, Channels, Received, Rx, SendBuf, Tx};
pub use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    cc,
    command::{CommandSlotId, Completion},
    crypto::{AeadProvider, DerivedRegionKey, ProviderKind, RegionKey},
    error::{DropReason, NotSent, ReceiveQueueError, RegionError, SubmitError},
    executor::{
        Call, CallError, CallId, CallStatus, ExecutorConfig, ExecutorConfigError, Missing, OpCall,
        Outcome, PIECES_MAX, PayloadLenMax, Piece, Publish, RetryPolicy, SilentPeers,
    },
    gate,
    grant::Grant,
    limits::OP_SIZE_MAX,
    nic::{
        DelayHistogram, NicConfigBuilder, NicCounters, NicGauges, OtherVersion, ReceiveLenMax,
        TableMemory, Timing,
    },
    op::{ClassOfService, Moves, OpShape, OpStatus, OpType},
    outcome::{OpName, Verdict},
    packet::sizes::PacketSizes,
    port::{PORTS_MAX, Port, Ports, PortsError},
    portal::{Change, CommandPortal, Placement, ReadOp, RecordedOp, Source, WriteOp},
    receive_queue::{Event, Receive, ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegionId, RegisteredRegion},
    time::{Clock, Instant},
    wire,
};
pub use rma_shm::{Backing, Forked, HugePageSize, MemoryError, OutOfBounds, Region, Shortage};
