//! The counters of the two kinds of device, as rows: a name, what it means, a number.
//!
//! The structs are taken apart field by field, so that a counter that is added and forgotten here
//! does not compile.

use std::sync::Arc;

use rma_core::{packet::sizes::PacketSizes, tally::Tally};

#[cfg(feature = "xdp")]
use super::xdp::{Counters, InterfaceWatch, XskStatistics};
use super::{
    status::InterfaceStatus,
    udp::UdpCounters,
    ways::{AddressStatus, NarrowPath, Ways},
};

/// One thing that a device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCounter {
    /// Its name for Prometheus, such as `rma_xdp_rx_packets_total`.
    pub name: &'static str,
    /// The help text of the counter.
    pub help: &'static str,
    /// How often that has happened so far, or how many there were.
    pub value: u64,
}

/// The metrics of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMetrics {
    /// The device in words.
    pub description: Arc<str>,
    /// The counters of the backend.
    pub counters: Box<[DeviceCounter]>,
    /// Packets that were sent, by their frames.
    pub packets_sent: PacketSizes,
    /// The statistics of kernel and steering program for AF_XDP sockets, over all queues, since
    /// they were attached. `None` over UDP, while the interface is gone, and once the host is.
    #[cfg(feature = "xdp")]
    pub xsk: Option<XskStatistics>,
    /// The state of the interface. `None` over UDP.
    pub interface: Option<InterfaceStatus>,
    /// The host's addresses, and whether the machine has them.
    pub addresses: Vec<AddressStatus>,
    /// The ways that carry less than the device.
    pub narrow_paths: Vec<NarrowPath>,
}

impl DeviceMetrics {
    /// All counters, those of the kernel among them.
    pub(crate) fn all(&self) -> Vec<DeviceCounter> {
        let counters = self.counters.to_vec();
        #[cfg(feature = "xdp")]
        let counters =
            [counters, self.xsk.as_ref().map(of_xsk).unwrap_or_default().into()].concat();
        counters
    }
}

/// The source of a device's metrics, on any thread.
#[derive(Clone, Debug)]
pub(crate) enum DeviceWatch {
    #[cfg(feature = "xdp")]
    Xdp(InterfaceWatch, Arc<Ways>),
    Udp(Arc<UdpCounters>, Arc<Ways>),
}

impl DeviceWatch {
    pub(crate) fn metrics(&self, opened: &Arc<str>) -> DeviceMetrics {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(watch, ways) => {
                let (counters, xsk) = (of_xdp(watch.counters()), watch.statistics());
                let mut packets_sent = PacketSizes::default();
                watch.counters().iter().for_each(|it| packets_sent += it.tx_packet_sizes.load());
                let interface = watch.status();
                // It may have come back as another.
                let description = interface.device.clone();
                let interface = Some(interface);
                let (addresses, narrow_paths) = (ways.addresses(), ways.narrow());
                DeviceMetrics {
                    description,
                    counters,
                    packets_sent,
                    xsk,
                    interface,
                    addresses,
                    narrow_paths,
                }
            }
            Self::Udp(counters, ways) => DeviceMetrics {
                description: opened.clone(),
                counters: of_udp(counters),
                packets_sent: counters.tx_packet_sizes.load(),
                #[cfg(feature = "xdp")]
                xsk: None,
                interface: None,
                addresses: ways.addresses(),
                narrow_paths: ways.narrow(),
            },
        }
    }
}

/// The rows of `$counters`, each `field: "what it counts"`; the name is the prefix and the field's.
/// What is no row stands behind a semicolon: it is told elsewhere.
macro_rules! rows {
    ($prefix:literal, $load:expr, $struct:ident { $($field:ident: $help:literal,)* $(; $($other:ident),+)? } = $counters:expr) => {{
        let $struct { $($field,)* $($($other: _,)+)? } = $counters;
        [$(DeviceCounter {
            name: concat!($prefix, stringify!($field), "_total"),
            help: $help,
            value: $load($field),
        },)*]
    }};
}

/// The counters of all engines, added up.
#[cfg(feature = "xdp")]
fn of_xdp(counters: &[Arc<Counters>]) -> Box<[DeviceCounter]> {
    let engines = counters.iter().map(|it| of_xdp_engine(it));
    let sum = engines.reduce(|mut sum, more| {
        sum.iter_mut().zip(more).for_each(|(row, it)| row.value = row.value.wrapping_add(it.value));
        sum
    });
    sum.unwrap_or_default()
}

#[cfg(feature = "xdp")]
fn of_xdp_engine(counters: &Counters) -> Box<[DeviceCounter]> {
    let rows = rows!(
        "rma_xdp_",
        Tally::load,
        Counters {
            rx_packets: "Packets handed to the engine.",
            rx_multi_buffer: "Received packets that lay in several chunks.",
            rx_too_long: "Dropped: longer than the largest packet that can arrive.",
            rx_not_local: "Dropped: the destination is none of the local addresses.",
            rx_truncated: "Dropped: too short for its headers.",
            rx_ether_type: "Dropped: not IP.",
            rx_ip_header: "Dropped: an IP header that cannot be, or with options.",
            rx_fragment: "Dropped: an IP fragment.",
            rx_protocol: "Dropped: not UDP.",
            rx_port: "Dropped: another UDP port.",
            rx_ip_length: "Dropped: an IP length that cannot be.",
            rx_udp_length: "Dropped: a UDP length that cannot be.",
            rx_mapped_address: "Dropped: an IPv4 address as an IPv6 source.",
            descriptors_refused: "Descriptors from the kernel that were not lent to it.",
            chunks_lost: "Receive chunks that are out of use.",
            tx_packets: "Packets put on the transmit ring.",
            tx_frames: "Frames in those packets.",
            tx_multi_buffer: "Transmitted packets that needed several chunks.",
            tx_moved: "Packets that had to be moved for other headers.",
            tx_no_path: "Dropped: no route, or no neighbour yet.",
            tx_no_interface: "Dropped: the interface was gone.",
            tx_link_return: "Notices without a path that went back the way their causes came.",
            tx_link_refused: "Dropped: notices that would go back to a group, to zero or to us.",
            tx_too_long: "Dropped: longer than the path's MTU, or than the buffer.",
            tx_family: "Dropped: source and destination of different families.",
            tx_unpaid: "Dropped: notices to strangers that found no packet to join.",
            tx_ring_full: "Times that all transmit chunks were with the kernel.",
            tx_wakeups: "Doorbells rung.",
            tx_wakeups_busy: "Doorbells that the kernel wants rung again.",
            tx_wakeups_down: "Doorbells refused as the interface was down.",
            tx_wakeups_failed: "Doorbells that failed for good.",
            zero_copy_mute: "Times that the device was found to be mute with zero-copy.",
            ; tx_packet_sizes
        } = counters
    );
    rows.into()
}

fn of_udp(counters: &UdpCounters) -> Box<[DeviceCounter]> {
    let rows = rows!(
        "rma_udp_",
        Tally::load,
        UdpCounters {
            rx_packets: "Packets handed to the engine.",
            rx_calls: "Receive calls that brought something.",
            rx_gro_packets: "Packets that the kernel handed over together with others (GRO).",
            rx_fragments: "Dropped: a datagram that came in fragments.",
            rx_truncated: "Dropped: a datagram longer than the largest frame.",
            rx_mapped_address: "Dropped: an IPv4 address as an IPv6 source.",
            rx_errors: "Receive calls that failed; no frame is lost by it.",
            tx_packets: "Packets that the kernel took.",
            tx_frames: "Frames in those packets.",
            tx_calls: "Send calls by which the kernel took something.",
            tx_gso_packets: "Packets that the kernel took together with others (GSO).",
            tx_gso_refused: "Times that several packets as one were refused; no frame is lost by it.",
            tx_blocked: "Times that a socket's send buffer was full; no frame is lost by it.",
            tx_split: "Packets longer than the path's MTU, whose frames were sent alone.",
            tx_too_long: "Dropped: longer than the path's MTU, or than the buffer.",
            tx_no_socket: "Dropped: a source that is none of the local addresses.",
            tx_refused: "ICMP said about an earlier frame that nobody listens there.",
            tx_unreachable: "Dropped: no way there.",
            tx_no_buffers: "Dropped: no memory, or no room in the device's queue.",
            tx_forbidden: "Dropped: forbidden by a firewall rule, or a broadcast address.",
            tx_failed: "Dropped: refused for another reason.",
            tx_unpaid: "Dropped: notices to strangers that found no packet to join.",
            ; tx_packet_sizes
        } = counters
    );
    rows.into()
}

/// The kernel's words for what it counts.
#[cfg(feature = "xdp")]
fn of_xsk(statistics: &XskStatistics) -> Box<[DeviceCounter]> {
    let rows = rows!(
        "rma_xsk_",
        u64::clone,
        XskStatistics {
            rx_dropped: "Packets that the kernel dropped for other reasons than those below.",
            rx_invalid_descs: "Fill descriptors that the kernel refused.",
            tx_invalid_descs: "Transmit descriptors that the kernel refused.",
            rx_ring_full: "Packets that the kernel dropped as the receive ring was full.",
            rx_fill_ring_empty_descs: "Packets that the kernel dropped as the fill ring was empty.",
            tx_ring_empty_descs: "Times that the kernel found nothing to send.",
            rx_unread: "Packets that the steering program dropped as the receive ring was not read.",
        } = statistics
    );
    rows.into()
}

#[cfg(all(test, feature = "xdp"))]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_all_engines_are_added_up_row_by_row() {
        let engines: [Arc<Counters>; 3] = Default::default();
        for (engine, count) in engines.iter().zip([1, 20, 300]) {
            engine.rx_packets.add(count);
            engine.tx_no_path.add(count * 2);
        }
        let of = |rows: &[DeviceCounter], name| {
            rows.iter().find(|row| row.name == name).map(|row| row.value)
        };
        let (all, one) = (of_xdp(&engines), of_xdp(&engines[..1]));
        assert_eq!(of(&all, "rma_xdp_rx_packets_total"), Some(321));
        assert_eq!(of(&all, "rma_xdp_tx_no_path_total"), Some(642));
        assert_eq!(of(&one, "rma_xdp_rx_packets_total"), Some(1));
        assert_eq!(all.len(), one.len());
    }
}
