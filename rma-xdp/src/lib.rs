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
//! [`Transfers`] cut what is to be moved into ops, pace them by congestion control and issue again
//! what was lost. They are polled, or block; a [`Client`] over them has futures for any async
//! executor, whose buffers nobody else gets before the NIC is done with them.
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
//! Besides the paper there are ops that their target records: SEND and NOTIFY make events of a
//! [`Host::receive_queue`], and WRITE_WITH_IMM of regions from [`Host::register_with_events`]; a
//! WRITE's last word may land last; COMPARE_SWAP and FETCH_ADD are linearizable with the owner's
//! own atomics on a [`RegisteredRegion`]. Each is applied at most once, and [`Portal::settle`] asks
//! what became of one that timed out. A [`Portal`] issues them one by one; [`Transfers`] offer
//! them again where no receive is posted, and ask about those that timed out; a [`Client`] has a
//! future for each, and a [`Receiver`](messages::Receiver) awaits what others send.
//!
//! ```
#![doc = include_str!("../examples/mailbox.rs")]
//! ```
//!
//! # Channels
//!
//! Twenty kinds of message channels stand on these ops: the module `channel`, with the feature of
//! that name, has them, and which suits whom. Ends are opened at a host, told each other's terms,
//! and then used by a thread's `Channels`, which wait, or, by whoever owns a core, by a `Link`.
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
//! # use rma_xdp::{
//! #     Host, HostConfig,
//! #     config::{NicConfigBuilder, Timing},
//! # };
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
//! [`Host`] runs it on a thread of its own, which spins, then yields, then sleeps
//! ([`IdlePolicy`](config::IdlePolicy)). [`InlineHost`] runs it when the application calls
//! [`InlineHost::turn`]: the fastest, for applications that own their core.
//!
//! # Several applications
//!
//! Command slots, regions and registered bytes are finite. [`Host::tenant`] gives each application
//! of a host its share of them, by priority; [`DriverConfig`](config::DriverConfig) is the policy.
//!
//! # Keys
//!
//! A [`Grant`] is a key, and travels over a channel that keeps secrets. With the feature `keys`,
//! the module `keys` has that channel: a service that gives the keys of an owner's regions to whom
//! a policy allows them, and changes them; and clients for which a change is a delay.
//!
//! # Watching a host
//!
//! [`Host::metrics`] is what a host tells about itself at one moment; [`Metrics::prometheus`]
//! writes it as text. [`Metrics::alerts`] is what of it somebody should look at, and
//! [`Metrics::is_healthy`] what a health check asks. With the feature `metrics-endpoint`,
//! `metrics::MetricsEndpoint` serves both over HTTP. With the feature `capture`, the module
//! `capture` has its packets as a pcapng file. What hosts decide, open and hand out are
//! events of `tracing`; the engine has none.
//!
//! # Two devices
//!
//! [`HostConfig::xdp`] takes frames past the kernel's network stack; it needs privileges, and the
//! feature `xdp`, which is on unless a program asks for no default features: then nothing of AF_XDP
//! is built or linked. [`HostConfig::udp`] uses the kernel's sockets; it needs none. The wire is
//! the same, so either kind works with the other.
//!
//! # Where names stand
//!
//! Here is what every program types. The rest is in modules:
//!
//! | module | what is there |
//! |---|---|
//! | [`config`], [`device`] | settings of a host, and the device that carries its frames |
//! | [`memory`], [`crypto`] | regions, buffers and cells; keys and who encrypts |
//! | [`ops`], [`messages`] | ops of a portal; messages and events of a receive queue |
//! | [`transfer`] | transfers of any size: settings, outcomes, congestion control |
//! | [`tenant`], [`metrics`] | shares of a host; counters, gauges and alerts |
//! | [`engine`], [`time`] | how an engine is run, and the clock that it is told |
//! | `channel`, `star`, `keys` | message channels, StaR, the key service: features of those names |
//!
//! The protocol itself, without I/O, is the crate `rma-core`, and what an application does with a
//! portal is the crate `rma-app`; what a program needs of both is re-exported here.
//!
//! [`Metrics::prometheus`]: metrics::Metrics::prometheus
//! [`Metrics::alerts`]: metrics::Metrics::alerts
//! [`Metrics::is_healthy`]: metrics::Metrics::is_healthy

#[cfg(feature = "capture")]
pub mod capture;
pub mod config;
pub mod crypto;
pub mod device;
mod driver;
pub mod engine;
mod error;
mod host;
mod iv_blocks;
pub mod memory;
pub mod messages;
pub mod metrics;
pub mod ops;
mod random;
mod services;
pub mod tenant;
pub mod time;
pub mod transfer;

#[cfg(feature = "channel")]
pub mod channel;
#[cfg(feature = "keylog")]
pub mod keylog;
#[cfg(feature = "keys")]
pub mod keys;
#[cfg(feature = "star")]
pub mod star;

pub use driver::tenant::{Quotas, Tenant, TenantConfig};
pub use error::HostError;
pub use host::{Host, HostConfig, HostOf, InlineHost, engines::EngineInfo, gate::HostFor};

#[doc(inline)]
pub use rma_app::{
    BufferPool, Cells, Client, Portal, RegionBuf, TransferError, Transfers, WaitError,
};
#[doc(inline)]
pub use rma_core::{
    addr::{HostAddr, Pid},
    command::Completion,
    crypto::RegionKey,
    error::SubmitError,
    executor::{Call, CallStatus, Piece, Publish},
    gate,
    grant::Grant,
    op::{OpStatus, OpType},
    receive_queue::ReceiveQueue,
    region::{Permissions, RegisteredRegion},
};
#[doc(inline)]
pub use rma_shm::Region;
