//! Frames over plain kernel UDP sockets: the same wire, no privileges, no interface to take over.
//!
//! One socket for each of the host's ports and addresses, bound exclusively to both. It is here so
//! that everything runs where AF_XDP does not, and so that [`Backend`] is proven by two: an AF_XDP
//! host and a UDP host read from each other.
//!
//! A turn's datagrams go and come with as few system calls as the kernel lets them: several with
//! one call (`sendmmsg`, `recvmmsg`), and those of one length to one host as one through the
//! kernel's network stack (GSO, GRO). Which of that there is, the kernel is asked when the backend
//! is opened, and [`Description`] tells. As one they go to hosts alone that have kernel sockets
//! too (`peers.rs`).
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
//! - Frames are never fragmented: what the kernel knows to be too long for its path is sent a frame
//!   at a time, and a frame that is too long is dropped; both are counted, and a thread asks the
//!   kernel then what that path carries (`keeper.rs`). From then on frames are cut to it.
//!
//! Invariant: after [`UdpBackend::open`] nothing here allocates, locks, logs or blocks, and every
//! frame is either handed on or counted under the reason why not.
//!
//! [`Transmit::source_port`]: rma_core::backend::Transmit::source_port
//! [`Transmit::may_resolve`]: rma_core::backend::Transmit::may_resolve

mod ancillary;
mod batching;
mod config;
mod counters;
mod keeper;
mod name;
pub(super) mod option;
mod peers;
mod receive;
mod send;
mod socket;

use std::{
    cell::Cell,
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use keeper::{DeviceMtus, Seed};
use peers::Peers;
use receive::Inbox;
use rma_core::{
    addr::LocalAddresses,
    backend::{Backend, RxPacket, TxFrame},
    nic::ReceiveLenMax,
    port::Ports,
    time::Instant,
    wire,
};
use send::{Outbox, SLOTS};

pub use self::{
    batching::{BatchingInUse, Mechanism, UdpBatching, Use},
    config::{FRAME_LEN_MAX, UdpConfig, UdpError},
    counters::UdpCounters,
    socket::SocketDescription,
};
pub use rma_core::tally::Tally;

pub(crate) use self::keeper::Keeper;
use self::socket::Socket;
use super::paths::{PathTable, Waker};
#[cfg(feature = "capture")]
use super::tap::Tap;

/// The description of the opened device, for people and for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The UDP ports.
    pub ports: Ports,
    /// The ways to move several datagrams at once, and whether they are in use.
    pub batching: BatchingInUse,
    /// The sockets: one for each port and address.
    pub sockets: Vec<SocketDescription>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.ports.iter().count() == 1 { "port" } else { "ports" };
        write!(f, "kernel UDP sockets, {noun} {}, {}", self.ports, self.batching)?;
        self.sockets.iter().try_for_each(|socket| write!(f, "; {socket}"))
    }
}

/// A number for each direction.
#[derive(Clone, Copy, Debug)]
struct Directions {
    receive: usize,
    send: usize,
}

/// A host's frames over kernel UDP sockets.
#[derive(Debug)]
pub struct UdpBackend {
    /// For each port one or two, of different families.
    sockets: Vec<Socket>,
    /// The socket that is read first in the next burst, so that a flood on one does not starve the
    /// others.
    first: usize,
    /// The most messages that are received, and sent, with one call.
    messages_max: Directions,
    /// The peers that can be sent several packets as one.
    peers: Peers,
    /// The packets that were received and have not been handed on.
    inbox: Box<Inbox>,
    /// The frames that were written and have not been sent: mostly nothing, as it leaves in the
    /// same burst; what the kernel has no room for goes before anything else.
    outbox: Box<Outbox>,
    counters: Arc<UdpCounters>,
    description: Description,
    /// How long packets may be to hosts whose way carries less than the device.
    paths: Arc<PathTable>,
    mtus: Arc<DeviceMtus>,
    /// The start of a keeper, until there is one.
    seed: Option<Seed>,
}

impl UdpBackend {
    /// Binds the sockets. All memory that frames will ever need is allocated here.
    ///
    /// The sockets belong to the network namespace of the calling thread.
    ///
    /// # Errors
    /// The error names the wrong setting or the refusal of the kernel, and the next step. Then
    /// nothing stays bound.
    pub fn open(config: &UdpConfig) -> Result<Self, UdpError> {
        let ports = config.check()?;
        let mut sockets = Vec::new();
        let mut described = Vec::new();
        let mut batching: Option<BatchingInUse> = None;
        let both = ports.iter().flat_map(|port| config.addresses.iter().map(move |&it| (port, it)));
        for (port, address) in both {
            let (fd, description) = socket::open(config, address, port)?;
            let in_use = BatchingInUse::ask(fd.as_fd(), config.batching);
            let frame_len_max = config::payload_of(description.mtu, address).min(FRAME_LEN_MAX);
            let gso = in_use.has(Mechanism::Gso);
            let bursts_without_runs = 0;
            let dscp = Cell::new(config.traffic.latency);
            let socket =
                Socket { fd, address, port, frame_len_max, gso, bursts_without_runs, dscp };
            sockets.push(socket);
            described.push(description);
            batching = Some(batching.map_or(in_use, |others| others.and(in_use)));
        }
        let batching = batching.ok_or(UdpError::NoAddress)?;
        let several = |mechanism| if batching.has(mechanism) { usize::MAX } else { 1 };
        let messages_max = Directions {
            receive: several(Mechanism::Recvmmsg),
            send: several(Mechanism::Sendmmsg),
        };
        let waker =
            Waker::new().map(Arc::new).map_err(|errno| UdpError::Descriptor(errno.into()))?;
        let of_family = |is_ipv4| {
            let of_it = |it: &&SocketDescription| it.address.is_ipv4() == is_ipv4;
            described.iter().find(of_it).map_or(socket::MTU_ASSUMED, |it| it.mtu)
        };
        let mtus = Arc::new(DeviceMtus::new(of_family));
        let mut addresses = LocalAddresses::default();
        for &address in &config.addresses {
            addresses.insert(address);
        }
        let (paths, writer) = PathTable::with_waker(mtus.of(true), Some(waker.clone()));
        let is_fixed = config.mtu.is_some();
        let seed = Some(Seed { writer, waker, mtus: mtus.clone(), addresses, is_fixed });
        let tx_len_max = sockets.iter().map(|socket| socket.frame_len_max).max();
        Ok(Self {
            paths,
            mtus,
            seed,
            sockets,
            messages_max,
            first: 0,
            peers: Peers::new(),
            inbox: Box::new(Inbox::new(config.batching.gro)),
            outbox: Box::new(Outbox::new(tx_len_max.unwrap_or(0), config.traffic)),
            counters: Arc::default(),
            description: Description { ports, batching, sockets: described },
        })
    }

    /// Starts what follows the device and the ways to other hosts. Without it everything stays as
    /// it was when the backend was opened.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub(crate) fn keep(&mut self) -> io::Result<Keeper> {
        Keeper::start(self.seed.take().expect("a backend has one keeper"))
    }

    /// How long packets may be to hosts whose way carries less than the device.
    pub(crate) const fn paths(&self) -> &Arc<PathTable> {
        &self.paths
    }

    /// Has a tap copy packets, or none, and gives back the one that did before.
    #[cfg(feature = "capture")]
    pub(crate) const fn swap_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        core::mem::replace(&mut self.outbox.tap, tap)
    }

    /// Follows the MTU of the devices. To be called now and then.
    pub(crate) fn follow(&mut self) {
        for socket in &mut self.sockets {
            let mtu = self.mtus.of(socket.address.is_ipv4());
            let len = config::payload_of(mtu, socket.address).min(FRAME_LEN_MAX);
            // Below that nothing fits, and what comes may still.
            socket.frame_len_max = len.max(wire::FRAME_LEN_MIN);
        }
        let longest = self.sockets.iter().map(|socket| socket.frame_len_max).max();
        self.outbox.len_max = longest.unwrap_or(0);
    }

    /// Describes the opened device.
    #[must_use]
    pub const fn describe(&self) -> &Description {
        &self.description
    }

    /// Returns the counters. The engine thread writes, anybody may read.
    #[must_use]
    pub const fn counters(&self) -> &Arc<UdpCounters> {
        &self.counters
    }

    /// The largest frames that the devices can receive, going by their MTU. A family without an
    /// address gets what the other's MTU would give it.
    #[must_use]
    pub fn receive_len_max(&self) -> ReceiveLenMax {
        let mtus = self.sockets.iter().map(|socket| self.mtus.of(socket.address.is_ipv4()));
        let of_smallest = ReceiveLenMax::of_mtu(mtus.min().unwrap_or(0) as usize);
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

    /// Gives the kernel what was written, as far as it has room.
    fn send(&mut self) {
        let Self { outbox, sockets, messages_max, counters, paths, .. } = self;
        outbox.send(sockets, messages_max.send, counters, paths);
    }
}

impl Backend for UdpBackend {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let Self { sockets, inbox, outbox: _outbox, peers, counters, messages_max, paths, .. } =
            self;
        let mut on_packets = |packets: &mut [RxPacket<'_>]| {
            tapped!(_outbox.tap, tap => tap.came_without_headers(packets));
            on_packets(packets);
            tapped!(_outbox.tap, tap => tap.handled());
        };
        let mut handed = inbox.hand_on(sockets, paths, max, &mut on_packets);
        // Bounds the calls, also those whose datagrams are all dropped.
        let mut left = max - handed;
        for index in (self.first..sockets.len()).chain(0..self.first) {
            let mut more = true;
            while more && left > 0 {
                let (socket, most) = (&sockets[index], messages_max.receive);
                let received = inbox.receive(index, socket, left, most, peers, counters);
                let count = inbox.hand_on(sockets, paths, left, &mut on_packets);
                handed += count;
                left = left.saturating_sub(count + received.dropped);
                more = received.more;
            }
        }
        self.first = (self.first + 1) % sockets.len();
        counters.rx_packets.add(handed as u64);
        handed
    }

    /// While the kernel has no room for what was written, because a socket's send buffer is full,
    /// each call tries that first and returns at least 1: there is work, so the engine does not go
    /// to sleep over it.
    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let held = usize::from(!self.outbox.is_empty());
        self.send();
        let mut taken = 0;
        while self.outbox.is_empty() && taken < max {
            let room = (max - taken).min(SLOTS);
            let Self { outbox, sockets, peers, counters, paths, .. } = self;
            let (offered, filled) = outbox.offer(sockets, paths, peers, room, counters, &mut fill);
            self.send();
            taken += filled;
            if filled < offered {
                break;
            }
        }
        taken.max(held)
    }

    /// Nothing to do: what a burst was filled with has been sent by it.
    fn flush(&mut self, _now: Instant) {}
}

#[cfg(test)]
mod tests;
