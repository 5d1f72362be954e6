//! Frames over plain kernel UDP sockets: the same wire, no privileges, no interface to take over.
//!
//! One socket for each of the host's ports and addresses, bound exclusively to both. It is here so
//! that everything runs where AF_XDP does not, and so that [`Backend`] is proven by two: an AF_XDP
//! host and a UDP host read from each other. It does not batch system calls.
//!
//! What is different from AF_XDP, because the kernel does it:
//!
//! - A bound socket has one source port, the service's, so [`Transmit::source_port`] is ignored:
//!   packets are not spread over ECMP paths or the peer's receive queues.
//! - Routes and neighbours are the kernel's, so [`Transmit::may_resolve`] is ignored too: a reply
//!   to a forged address may make the kernel ask for that neighbour. Its table is bounded
//!   (`net.ipv4.neigh.default.gc_thresh3`), and the NIC limits the rate of such replies.
//! - The kernel puts fragments together before a socket sees them. It tells of each datagram
//!   whether it did, and those are dropped and counted: no host sends any, and one that came in
//!   pieces was cut by somebody else (WIRE, section 1).
//! - [`RxPacket::reply_len_max`] follows from the device's MTU when the backend was opened, not
//!   from the path's. Frames are never fragmented: what the kernel knows to be too long for its
//!   path is dropped and counted.
//!
//! Invariant: after [`UdpBackend::open`] nothing here allocates, locks, logs or blocks, and every
//! frame is either handed on or counted under the reason why not.

mod config;
mod counters;
mod receive;
mod socket;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use receive::{Datagram, receive_datagram};
use rma_core::{
    addr::HostAddr,
    backend::{Backend, RxPacket, Transmit, TxFrame},
    nic::ReceiveLenMax,
    port::{Port, Ports, SourcePort},
    time::Instant,
    wire,
};
use rustix::{
    io::Errno,
    net::{SendFlags, sendto},
};

pub use self::{
    config::{UdpConfig, UdpError},
    counters::UdpCounters,
    socket::SocketDescription,
};
pub use rma_core::tally::Tally;

/// The largest frame that is sent or received, in bytes, however large the MTU: a 4 KiB op in one
/// frame, with room for headers to grow. Larger would only be larger buffers.
pub const FRAME_LEN_MAX: usize = 4096 + 128;

const _: () = assert!(FRAME_LEN_MAX >= wire::FRAME_LEN_MAX, "a whole op fits into a frame");

/// What was opened, for people and for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The UDP ports.
    pub ports: Ports,
    /// The sockets: one for each port and address.
    pub sockets: Vec<SocketDescription>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.ports.iter().count() == 1 { "port" } else { "ports" };
        write!(f, "kernel UDP sockets, {noun} {}", self.ports)?;
        self.sockets.iter().try_for_each(|socket| write!(f, "; {socket}"))
    }
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    address: HostAddr,
    port: Port,
    /// What its device's MTU leaves for a frame.
    frame_len_max: usize,
}

/// A host's frames over kernel UDP sockets.
#[derive(Debug)]
pub struct UdpBackend {
    /// For each port one or two, of different families.
    sockets: Vec<Socket>,
    /// Which socket is read first in the next burst, so that a flood on one does not starve the
    /// others.
    first: usize,
    /// The longest frame that any of the sockets can send: what may be written into `tx_buffer`.
    tx_len_max: usize,
    rx_buffer: Box<[u8; FRAME_LEN_MAX]>,
    /// The frame that is being sent; also the one held back, if any.
    tx_buffer: Box<[u8; FRAME_LEN_MAX]>,
    /// A frame in `tx_buffer` that the kernel had no room for. It goes before any other.
    held: Option<Transmit>,
    counters: Arc<UdpCounters>,
    description: Description,
}

impl UdpBackend {
    /// Binds the sockets. All memory that frames will ever need is allocated here.
    ///
    /// The sockets belong to the network namespace of the calling thread.
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the kernel refused, and what to do about it.
    /// Then nothing stays bound.
    pub fn open(config: &UdpConfig) -> Result<Self, UdpError> {
        let ports = config.check()?;
        let mut sockets = Vec::new();
        let mut description = Description { ports, sockets: Vec::new() };
        let both = ports.iter().flat_map(|port| config.addresses.iter().map(move |&it| (port, it)));
        for (port, address) in both {
            let (fd, described) = socket::open(config, address, port)?;
            let frame_len_max = config::payload_of(described.mtu, address).min(FRAME_LEN_MAX);
            sockets.push(Socket { fd, address, port, frame_len_max });
            description.sockets.push(described);
        }
        let tx_len_max = sockets.iter().map(|socket| socket.frame_len_max).max();
        Ok(Self {
            sockets,
            tx_len_max: tx_len_max.unwrap_or(0),
            first: 0,
            rx_buffer: Box::new([0; FRAME_LEN_MAX]),
            tx_buffer: Box::new([0; FRAME_LEN_MAX]),
            held: None,
            counters: Arc::default(),
            description,
        })
    }

    /// What was opened.
    #[must_use]
    pub const fn describe(&self) -> &Description {
        &self.description
    }

    /// What is counted. The engine thread writes, anybody may read.
    #[must_use]
    pub const fn counters(&self) -> &Arc<UdpCounters> {
        &self.counters
    }

    /// The largest frames that the devices can receive, going by their MTU when the backend was
    /// opened. A family without an address gets what the other's MTU would give it.
    #[must_use]
    pub fn receive_len_max(&self) -> ReceiveLenMax {
        let smallest = self.description.sockets.iter().map(|socket| socket.mtu).min();
        let of_smallest = ReceiveLenMax::of_mtu(smallest.unwrap_or(0) as usize);
        let of_family = |is_ipv4, other: usize| {
            let socket = self.sockets.iter().find(|socket| socket.address.is_ipv4() == is_ipv4);
            socket.map_or(other.min(FRAME_LEN_MAX), |socket| socket.frame_len_max)
        };
        ReceiveLenMax {
            ipv4: of_family(true, of_smallest.ipv4),
            ipv6: of_family(false, of_smallest.ipv6),
        }
    }

    /// The descriptors that become readable when a frame arrives, for an engine that sleeps.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|socket| socket.fd.as_fd())
    }

    /// Sends the frame that is held, if one is. Returns whether there is none any more.
    fn send_held(&mut self) -> bool {
        let Some(transmit) = self.held else { return true };
        match self.send(&transmit) {
            Sent::Gone => self.held = None,
            Sent::Blocked => self.counters.tx_blocked.add(1),
        }
        self.held.is_none()
    }

    /// Gives the frame in `tx_buffer` to the kernel, once, or counts why it was dropped.
    fn send(&self, transmit: &Transmit) -> Sent {
        let counters = &*self.counters;
        let same_family = transmit.source.version() == transmit.destination.version();
        let of_source = |socket: &&Socket| {
            same_family && socket.address == transmit.source && socket.port == transmit.port
        };
        let Some(socket) = self.sockets.iter().find(of_source) else {
            counters.tx_no_socket.add(1);
            return Sent::Gone;
        };
        let Some(frame) = self.tx_buffer[..self.tx_len_max].get(..transmit.len) else {
            counters.tx_too_long.add(1);
            return Sent::Gone;
        };
        let destination = SocketAddr::new(transmit.destination.ip(), transmit.port.0);
        let mut sent = sendto(&socket.fd, frame, SendFlags::DONTWAIT, &destination);
        if sent == Err(Errno::CONNREFUSED) {
            // The error is an earlier frame's, reported and forgotten now; this one was not looked
            // at.
            counters.tx_refused.add(1);
            sent = sendto(&socket.fd, frame, SendFlags::DONTWAIT, &destination);
        }
        let counter = match sent {
            Ok(_) => &counters.tx_frames,
            Err(Errno::AGAIN | Errno::INTR) => return Sent::Blocked,
            Err(errno) => loss_counter(counters, errno),
        };
        counter.add(1);
        Sent::Gone
    }
}

/// What became of a frame.
enum Sent {
    /// Sent, or dropped and counted.
    Gone,
    /// No room now.
    Blocked,
}

/// The counter of frames lost because sending failed with `errno`.
fn loss_counter(counters: &UdpCounters, errno: Errno) -> &Tally {
    match errno {
        Errno::MSGSIZE => &counters.tx_too_long,
        Errno::CONNREFUSED => &counters.tx_refused,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL => {
            &counters.tx_unreachable
        }
        Errno::NOBUFS | Errno::NOMEM => &counters.tx_no_buffers,
        Errno::PERM | Errno::ACCESS => &counters.tx_forbidden,
        _ => &counters.tx_failed,
    }
}

impl Backend for UdpBackend {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let Self { sockets, rx_buffer, counters, .. } = self;
        // Bounds the calls that bring something, also those whose datagram is dropped.
        let mut calls_left = max;
        let mut handed = 0;
        let (last, first) = sockets.split_at(self.first);
        for socket in first.iter().chain(last) {
            while calls_left > 0 {
                match receive(socket, rx_buffer, counters) {
                    Received::Nothing => break,
                    Received::Dropped => {}
                    Received::Frame { source, len } => {
                        handed += 1;
                        // One at a time: beside a system call for each, opening some side by side
                        // gains little.
                        on_packets(&mut [RxPacket {
                            source,
                            destination: socket.address,
                            port: socket.port,
                            // Whatever it was: a bound socket answers from its own.
                            source_port: SourcePort(socket.port.0),
                            reply_len_max: socket.frame_len_max,
                            link: None,
                            bytes: &mut rx_buffer[..len],
                        }]);
                    }
                }
                calls_left -= 1;
            }
        }
        self.first = (self.first + 1) % self.sockets.len();
        self.counters.rx_frames.add(handed as u64);
        handed
    }

    /// While a frame is held back, because the socket's send buffer is full, each call tries it
    /// first and returns at least 1: there is work, so the engine does not go to sleep over it.
    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let held = usize::from(self.held.is_some());
        let mut taken = 0;
        while self.send_held() && taken < max {
            let mut frame = [TxFrame::new(&mut self.tx_buffer[..self.tx_len_max])];
            if fill(&mut frame) == 0 {
                break;
            }
            taken += 1;
            self.held = frame[0].transmit;
        }
        taken.max(held)
    }

    /// Nothing to do: each frame was its own system call.
    fn flush(&mut self, _now: Instant) {}
}

/// What one receive call brought.
enum Received {
    Nothing,
    /// A datagram that is no frame. It has been counted.
    Dropped,
    /// The first `len` bytes of the buffer.
    Frame {
        source: HostAddr,
        len: usize,
    },
}

fn receive(socket: &Socket, buffer: &mut [u8; FRAME_LEN_MAX], counters: &UdpCounters) -> Received {
    let reason = match receive_datagram(socket.fd.as_fd(), &mut buffer[..]) {
        Err(Errno::AGAIN) => return Received::Nothing,
        Err(_) => &counters.rx_errors,
        Ok(Datagram { is_reassembled: true, .. }) => &counters.rx_fragments,
        Ok(Datagram { len, .. }) if len > buffer.len() => &counters.rx_truncated,
        Ok(Datagram { len, source, .. }) => match source {
            Some(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => &counters.rx_mapped_address,
            Some(source) => return Received::Frame { source: source.into(), len },
            None => &counters.rx_errors,
        },
    };
    reason.add(1);
    Received::Dropped
}

#[cfg(test)]
mod tests;
