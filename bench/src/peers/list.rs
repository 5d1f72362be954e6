//! The peers, what they do, and the figures that they can have.

use serde::Serialize;

use crate::{aead, compare::fetch::Way, latency::Latencies};

/// Somebody to compare with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) how: How,
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
    /// Not at all, for this reason.
    Not(&'static str),
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
    /// Its services, if it is measured.
    pub(super) const fn does(self) -> Option<Does> {
        let [encrypts, recovers_losses, spares_application] = match self {
            Self::Floor => [false, false, false],
            Self::OneRma => [aead::ENCRYPTS, true, true],
            Self::Kernel(way) | Self::KernelWithoutGso(way) => {
                [matches!(way, Way::Tls), matches!(way, Way::Tcp | Way::Tls), false]
            }
            Self::Not(_) => return None,
        };
        Some(Does { encrypts, recovers_losses, spares_application })
    }
}

/// All of them, in the order of the table: name, words, and how.
pub(super) const PEERS: [Peer; 12] = {
    use How::{Floor, Kernel, KernelWithoutGso, Not, OneRma};
    const fn peer(name: &'static str, words: &'static str, how: How) -> Peer {
        Peer { name, words, how }
    }
    [
        peer("raw", "raw AF_XDP (floor)", Floor),
        peer("1rma", "1RMA", OneRma),
        peer("udp", "kernel UDP", Kernel(Way::Udp)),
        peer("udp-batched", "kernel UDP, recvmmsg and sendmmsg", Kernel(Way::UdpBatched)),
        peer("tcp", "kernel TCP", Kernel(Way::Tcp)),
        peer("tcp-no-gso", "kernel TCP, GSO off", KernelWithoutGso(Way::Tcp)),
        peer("tls-no-gso", "TCP + TLS 1.3, GSO off", KernelWithoutGso(Way::Tls)),
        peer("quic", "QUIC", Not("it needs an asynchronous runtime, which this program has not")),
        peer("ucx", "UCX over TCP", Not("ucx_perftest of the package ucx-utils does")),
        peer(
            "libfabric",
            "libfabric over TCP",
            Not("fi_pingpong of the package libfabric-bin does"),
        ),
        peer("sockperf", "sockperf", Not("a program of the package sockperf")),
        peer("iperf3", "iperf3", Not("a program of the package iperf3")),
    ]
};

/// The figures of a peer in a round; not a number where it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) ops_per_s: f64,
    /// Of the client's thread, with that many under way.
    pub(super) cpu_ns_per_op: f64,
    pub(super) payload_gbit_per_s: f64,
}

impl Values {
    pub(super) const NONE: Self = Self {
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        ops_per_s: f64::NAN,
        cpu_ns_per_op: f64::NAN,
        payload_gbit_per_s: f64::NAN,
    };

    pub(super) fn of(latencies: &Latencies) -> Self {
        let p99_us = latencies.percentile_us(0.99).unwrap_or(f64::NAN);
        Self { p50_us: latencies.quantile_us(0.5), p99_us, ..Self::NONE }
    }
}
