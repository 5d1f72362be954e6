//! The peers, what they do, and the figures that they can have.

use serde::Serialize;

use super::tools::Kind;
use crate::{aead, compare::fetch::Way};

/// Somebody to compare with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) how: How,
    /// The way in which its numbers are otherwise than those of others.
    pub(super) mark: Option<&'static str>,
}

/// The way in which it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// Packets without a protocol.
    Floor,
    /// 1RMA itself.
    OneRma,
    /// The kernel's sockets.
    Kernel(Way),
    /// The same, and each segment is sent by itself.
    KernelWithoutGso(Way),
    /// A program of others.
    Tool(Kind),
}

/// The services of a peer that not all have.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Does {
    /// Encrypts and authenticates all bytes.
    pub(super) encrypts: bool,
    /// Sends again what was lost.
    pub(super) recovers_losses: bool,
    /// Answers without the server's application.
    pub(super) spares_application: bool,
}

impl How {
    /// Its services.
    pub(super) const fn does(self) -> Does {
        let [encrypts, recovers_losses, spares_application] = match self {
            Self::Floor => [false, false, false],
            Self::OneRma => [aead::ENCRYPTS, true, true],
            Self::Kernel(way) | Self::KernelWithoutGso(way) => {
                let encrypts = matches!(way, Way::Tls | Way::Quic);
                [encrypts, encrypts || matches!(way, Way::Tcp), false]
            }
            Self::Tool(kind) => [false, !matches!(kind, Kind::Sockperf), false],
        };
        Does { encrypts, recovers_losses, spares_application }
    }
}

/// All of them, in the order of the table: name, words, and how.
pub(super) const PEERS: [Peer; 13] = {
    use How::{Floor, Kernel, KernelWithoutGso, OneRma, Tool};
    const fn peer(name: &'static str, words: &'static str, how: How) -> Peer {
        Peer { name, words, how, mark: None }
    }
    const fn marked(peer: Peer, mark: &'static str) -> Peer {
        Peer { mark: Some(mark), ..peer }
    }
    [
        peer("raw", "raw AF_XDP (floor)", Floor),
        peer("1rma", "1RMA", OneRma),
        peer("udp", "kernel UDP", Kernel(Way::Udp)),
        peer("udp-batched", "kernel UDP, recvmmsg and sendmmsg", Kernel(Way::UdpBatched)),
        peer("tcp", "kernel TCP", Kernel(Way::Tcp)),
        peer("tcp-no-gso", "kernel TCP, GSO off", KernelWithoutGso(Way::Tcp)),
        peer("tls", "TCP + TLS 1.3", Kernel(Way::Tls)),
        peer("tls-no-gso", "TCP + TLS 1.3, GSO off", KernelWithoutGso(Way::Tls)),
        marked(
            peer("quic", "QUIC", Kernel(Way::Quic)),
            "quinn; its runtime cannot spin, so each poll wakes it",
        ),
        marked(
            peer("ucx", "UCX over TCP", Tool(Kind::Ucx)),
            "tagged message there and back, of which it says half: doubled; both sides spin; no byte is compared",
        ),
        marked(
            peer("libfabric", "libfabric over TCP", Tool(Kind::Libfabric)),
            "message there and back, of which it says half: doubled; a mean, no median; no byte is compared",
        ),
        marked(
            peer("sockperf", "sockperf", Tool(Kind::Sockperf)),
            "UDP there and back, both sides spin; no byte is compared",
        ),
        marked(
            peer("iperf3", "iperf3", Tool(Kind::Iperf3)),
            "one TCP stream of any size, GSO on; it waits and does not spin; no byte is compared",
        ),
    ]
};
