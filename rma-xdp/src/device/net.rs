//! What the kernel knows about the network, for frames that do not pass through the kernel.
//!
//! An AF_XDP frame carries its own Ethernet header, so somebody has to know which hardware address
//! leads to a host, from which address of ours, and how large a packet may be. The kernel knows and
//! keeps knowing: [`NetMonitor`] asks it by netlink, listens for changes, and keeps the answers in
//! a [`PathTable`] that an engine thread reads without system calls. [`Interface`] holds the facts
//! about one interface at one moment.
//!
//! This is not a routing daemon and not an ARP implementation: routes are whatever the kernel says,
//! and neighbours are resolved by the kernel, which goes on answering and asking as always.
//!
//! Invariant: the table holds a path only while the kernel has a route over the monitored interface
//! and a usable neighbour entry for its next hop, and the link is up.
//!
//! Everything happens in the network namespace of the thread that opens or starts it.

mod error;
mod interface;
mod layers;
mod monitor;
mod netlink;
mod paths;
mod resolver;
mod xdp_features;
mod xsk_diag;

pub use error::{NetError, PathError};
pub use interface::{Interface, InterfaceAddress};
pub(crate) use interface::{channels, delivered, index_of, rx_queues_max};
pub(crate) use layers::{Layer, Master, elsewhere, layers, master_of};
pub use monitor::NetMonitor;
pub use paths::{DESTINATIONS_MAX, LinkState, Path, PathTable, PathWriter, TableFull};
pub(crate) use xdp_features::XdpFeatures;
pub(crate) use xsk_diag::socket_on;
