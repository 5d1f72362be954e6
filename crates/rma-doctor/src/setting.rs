//! The settings of a kernel that a mend changes, each as a value that can be read, set, and
//! compared.

use serde::{Deserialize, Serialize};

/// A setting and the value that it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "setting", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Setting {
    /// An offload of an interface: `ethtool -K`.
    Feature {
        /// The interface.
        interface: String,
        /// The kernel's name of the feature, as `rx-lro`.
        name: String,
        /// Whether it is on.
        on: bool,
    },
    /// The length of the receive rings: `ethtool -G`.
    RxRing {
        /// The interface.
        interface: String,
        /// In descriptors.
        length: u32,
    },
    /// The number of queues: `ethtool -L`.
    Channels {
        /// The interface.
        interface: String,
        /// Receive queues that have no transmit queue, if the driver counts them apart.
        rx: Option<u32>,
        /// Transmit queues that have no receive queue, if the driver counts them apart.
        tx: Option<u32>,
        /// Pairs of both, if the driver has them.
        combined: Option<u32>,
    },
    /// The delay of receive interrupts: `ethtool -C`.
    Coalescing {
        /// The interface.
        interface: String,
        /// Whether the driver chooses the delay itself.
        adaptive: bool,
        /// The delay in microseconds.
        rx_usecs: u32,
    },
    /// The queues that packets are spread over evenly: `ethtool -X … equal`.
    RssEqual {
        /// The interface.
        interface: String,
        /// The first so many queues.
        queues: u32,
    },
    /// The fields that decide a datagram's queue: addresses and ports of both sides.
    RssFields {
        /// The interface.
        interface: String,
        /// IPv6 in place of IPv4.
        ipv6: bool,
    },
    /// Energy-efficient Ethernet: `ethtool --set-eee`.
    Eee {
        /// The interface.
        interface: String,
        /// Whether it is on.
        on: bool,
    },
    /// The largest packet: `ip link set … mtu`.
    Mtu {
        /// The interface.
        interface: String,
        /// In bytes, without the Ethernet header.
        mtu: u32,
    },
    /// The administrator's state: `ip link set … up`.
    Up {
        /// The interface.
        interface: String,
        /// Whether it is up.
        up: bool,
    },
    /// A file below `/proc` or `/sys`.
    File {
        /// The path, from the root.
        path: String,
        /// The text that it is to have.
        value: String,
    },
}
