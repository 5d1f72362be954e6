//! The kernel's knowledge of the network, for frames that do not pass through the kernel.
//!
//! An AF_XDP frame carries its own Ethernet header, so somebody has to know which hardware address
//! leads to a host, from which address of ours, and how large a packet may be. The kernel knows and
//! keeps knowing: `NetMonitor` asks it by netlink, listens for changes, and keeps the answers in
//! a [`PathTable`] that an engine thread reads without system calls. `Interface` holds the facts
//! about one interface at one moment.
//!
//! This is not a routing daemon and not an ARP implementation: routes are whatever the kernel says,
//! and neighbours are resolved by the kernel, which goes on answering and asking as always.
//!
//! Invariant: the table holds a path only while the kernel has a route over the monitored interface
//! and a usable neighbour entry for its next hop, and the link is up.
//!
//! Without the feature `xdp` there is the table alone.
//!
//! Everything happens in the network namespace of the thread that opens or starts it.

#[cfg(feature = "xdp")]
mod error;
#[cfg(feature = "xdp")]
mod interface;
#[cfg(feature = "xdp")]
mod layers;
#[cfg(feature = "xdp")]
mod monitor;
#[cfg(feature = "xdp")]
mod netlink;
#[cfg(feature = "xdp")]
mod resolver;
#[cfg(feature = "xdp")]
mod xdp_features;
#[cfg(feature = "xdp")]
mod xsk_diag;

#[cfg(feature = "xdp")]
pub use error::{NetError, PathError};
#[cfg(feature = "xdp")]
pub use interface::Interface;
#[cfg(feature = "xdp")]
pub(crate) use interface::{Channels, channels, delivered, index_of, rx_queues_max};
#[cfg(feature = "xdp")]
pub(crate) use layers::{Layer, Master, elsewhere, layers, master_of};
#[cfg(feature = "xdp")]
pub use monitor::NetMonitor;
#[cfg(feature = "xdp")]
pub use netlink::InterfaceAddress;
#[cfg(feature = "xdp")]
pub(crate) use xdp_features::XdpFeatures;
#[cfg(feature = "xdp")]
pub(crate) use xsk_diag::socket_on;

pub use super::paths::{DESTINATIONS_MAX, LinkState, Path, PathTable, PathWriter, TableFull};
