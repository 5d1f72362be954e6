//! Packets to sockets, several with one call.
//!
//! What must be sent is written into one buffer after the other and then leaves together. Frames
//! that share a packet stay where they are: the kernel gathers them. Packets of one length to one
//! destination go as a *run*, which it takes as one and cuts apart where it leaves (GSO), and the
//! runs of a socket by one `sendmmsg`. What it has no room for stays, and goes before anything
//! else. The frames of a packet that is too long for its path are sent alone: a host that has not
//! said what it receives may be behind a path that carries less than its device.

use std::{
    net::SocketAddr,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
};

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr,
    backend::{Transmit, TxFrame},
    nic::TenantIndex,
    packet::{FRAMES_MAX, Packets},
    port::SourcePort,
    tally::Tally,
};
use rustix::{
    io::Errno,
    net::{SendFlags, sendto},
};

#[cfg(feature = "capture")]
use crate::device::tap::Tap;
use crate::device::{
    paths::PathTable,
    traffic::{Dscp, TrafficClasses},
};

use super::{
    ancillary::SegmentLen, config::FRAME_LEN_MAX, counters::UdpCounters, name::Name,
    option::last_error, peers::Peers, socket::Socket,
};

/// The most frames that are written before they are sent: as many as are planned together.
pub(super) const SLOTS: usize = FRAMES_MAX;

/// The most bytes of a run: what IPv6 and UDP headers leave of the longest packet, which is less
/// than those of IPv4 leave.
const RUN_LEN_MAX: usize = 65_535 - 48;

/// For how many bursts a socket sends no runs after the kernel has refused one: a refusal costs a
/// call, and a device or a route that cannot do it seldom learns it.
const BURSTS_WITHOUT_RUNS: u32 = 1024;

/// A frame of a packet: where it lies, and its length.
#[derive(Clone, Copy, Debug)]
struct Part {
    slot: usize,
    len: usize,
    /// Whether it may be sent alone.
    opens_packet: bool,
}

/// A packet that waits for its socket.
#[derive(Clone, Debug)]
struct Packet {
    /// The index of its socket.
    socket: usize,
    destination: HostAddr,
    /// Its frames: which of the parts.
    parts: Range<usize>,
    /// Octets of all of them.
    len: usize,
    /// Whether it may go as one with others: its destination is known to be able to take them.
    may_run: bool,
    /// The run that it belongs to, in this attempt.
    run: usize,
    dscp: Dscp,
}

/// Packets of one socket to one destination, all of one length but the last, which may be shorter.
#[derive(Clone, Debug)]
struct Run {
    socket: usize,
    destination: HostAddr,
    /// The range of its packets, when they lie in the order of their runs.
    packets: Range<usize>,
    /// The length of the first.
    segment: usize,
    /// The length of all.
    len: usize,
    /// How many frames they have.
    frames: usize,
    /// Whether the last is as long as the others, so that another may follow it.
    is_open: bool,
    dscp: Dscp,
}

/// Packets that have been written and not yet been sent.
#[derive(Debug)]
pub(super) struct Outbox {
    /// A part of [`FRAME_LEN_MAX`] bytes for each slot.
    memory: Box<[u8]>,
    /// The longest frame that any of the sockets can send: what may be written into a buffer.
    pub(super) len_max: usize,
    /// The frames of all packets that were written together, packet by packet.
    parts: ArrayVec<Part, SLOTS>,
    packets: ArrayVec<Packet, SLOTS>,
    plan: Packets,
    traffic: TrafficClasses,
    #[cfg(feature = "capture")]
    pub(super) tap: Option<Box<Tap>>,
}

impl Outbox {
    pub(super) fn new(len_max: usize, traffic: TrafficClasses) -> Self {
        // Not zeros: the kernel gives memory for those when they are first written to.
        let memory = vec![0xff; SLOTS * FRAME_LEN_MAX].into_boxed_slice();
        let (parts, packets) = (ArrayVec::new(), ArrayVec::new());
        let plan = Packets::new().with_classes_apart(traffic.are_apart());
        Self {
            memory,
            len_max,
            parts,
            packets,
            plan,
            traffic,
            #[cfg(feature = "capture")]
            tap: None,
        }
    }

    /// Whether all that was written has been sent, or dropped and counted.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Has `fill` write into at most `max` buffers, and takes what can be sent.
    /// Returns how many were offered, and how many filled. To be called when the outbox is empty.
    pub(super) fn offer(
        &mut self,
        sockets: &[Socket],
        paths: &PathTable,
        peers: &mut Peers,
        max: usize,
        counters: &UdpCounters,
        mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize,
    ) -> (usize, usize) {
        debug_assert!(self.packets.is_empty(), "what was written before is gone");
        let len_max = self.len_max;
        let buffers = self.memory.chunks_exact_mut(FRAME_LEN_MAX).take(max);
        let mut frames: ArrayVec<TxFrame<'_>, SLOTS> =
            buffers.map(|buffer| TxFrame::new(&mut buffer[..len_max])).collect();
        let filled = fill(&mut frames);
        for frame in &mut frames[..filled] {
            let refusal = |it| refusal(sockets, it, len_max, counters);
            if let Some(reason) = frame.transmit.as_ref().and_then(refusal) {
                reason.add(1);
                frame.transmit = None;
            }
            if let Some(transmit) = &mut frame.transmit {
                // That of its socket, whatever was wished for, so it keeps no frames apart.
                transmit.source_port = SourcePort(transmit.port.0);
            }
        }
        let of = |it: &Transmit| position(sockets, it).map(|index| &sockets[index]);
        // Nothing is moved, so frames of any length may share.
        self.plan.plan(&frames[..filled], usize::MAX, |head, _| {
            of(head).map_or(0, |socket| socket.frame_len_max_to(head.destination, paths))
        });
        counters.tx_unpaid.add(self.plan.unpaid() as u64);
        self.parts.clear();
        for planned in self.plan.list() {
            let Some(head) = &frames[planned.first()].transmit else { continue };
            let Some(socket) = position(sockets, head) else { continue };
            let start = self.parts.len();
            let part = |slot: usize| {
                let Transmit { len, opens_packet, .. } = frames[slot].transmit?;
                Some(Part { slot, len, opens_packet })
            };
            self.parts.extend(self.plan.frames_of(planned).filter_map(part));
            self.packets.push(Packet {
                socket,
                destination: head.destination,
                parts: start..self.parts.len(),
                len: planned.octets(),
                may_run: sockets[socket].gso && peers.spend(head.destination),
                run: 0,
                dscp: self.traffic.of(head.class),
            });
        }
        (frames.len(), filled)
    }

    /// Gives the kernel what there is, `messages_max` runs with each call. What it has no room for
    /// stays in the outbox.
    pub(super) fn send(
        &mut self,
        sockets: &mut [Socket],
        messages_max: usize,
        counters: &UdpCounters,
        paths: &PathTable,
    ) {
        if self.packets.is_empty() {
            return;
        }
        for socket in &mut *sockets {
            socket.bursts_without_runs = socket.bursts_without_runs.saturating_sub(1);
        }
        while !self.packets.is_empty() {
            let runs = self.runs(sockets);
            match self.send_runs(sockets, &runs, messages_max, counters, paths) {
                Attempt::Over { sent } => {
                    self.packets.drain(..sent);
                    return;
                }
                Attempt::RunRefused { sent, socket, bursts } => {
                    self.packets.drain(..sent);
                    sockets[socket].bursts_without_runs = bursts;
                }
                Attempt::PacketTooLong { sent } => {
                    self.packets.drain(..sent);
                    self.split_first(counters);
                }
            }
        }
    }

    /// Makes packets of one frame each of the first one, which is too long for its path.
    fn split_first(&mut self, counters: &UdpCounters) {
        let Some(packet) = self.packets.pop_at(0) else { return };
        counters.tx_split.add(1);
        let mut at = 0;
        for index in packet.parts.clone() {
            let Part { len, opens_packet, .. } = self.parts[index];
            if !opens_packet {
                counters.tx_unpaid.add(1);
                continue;
            }
            // There is room: there are no more packets than frames.
            self.packets.insert(at, Packet { parts: index..index + 1, len, ..packet.clone() });
            at += 1;
        }
    }

    /// Puts the packets into the order of their runs. Within a destination their order stays.
    fn runs(&mut self, sockets: &[Socket]) -> ArrayVec<Run, SLOTS> {
        let mut runs: ArrayVec<Run, SLOTS> = ArrayVec::new();
        for packet in &mut self.packets {
            let &mut Packet { socket, destination, len, dscp, .. } = packet;
            let is_there =
                |run: &Run| (run.socket, run.destination, run.dscp) == (socket, destination, dscp);
            let may_run = packet.may_run && sockets[socket].bursts_without_runs == 0;
            // Only the last run to a destination, so that nothing is overtaken.
            packet.run = match may_run.then(|| runs.iter().rposition(is_there)).flatten() {
                Some(last) if runs[last].takes(len) => {
                    runs[last].add(packet);
                    last
                }
                _ => {
                    runs.push(Run::of(packet));
                    runs.len() - 1
                }
            };
        }
        let mut start = 0;
        for run in &mut runs {
            run.packets = start..start + run.packets.len();
            start = run.packets.end;
        }
        self.packets.sort_unstable_by_key(|packet| (packet.run, packet.parts.start));
        runs
    }

    /// Sends one run after the other.
    fn send_runs(
        &mut self,
        sockets: &[Socket],
        runs: &[Run],
        messages_max: usize,
        counters: &UdpCounters,
        paths: &PathTable,
    ) -> Attempt {
        let mut rest = runs;
        let mut was_refused = false;
        while let Some(run) = rest.first() {
            let sent = run.packets.start;
            let of_socket = rest.iter().take(messages_max);
            let alike = |it: &&Run| (it.socket, it.dscp) == (run.socket, run.dscp);
            let together = of_socket.take_while(alike).count();
            sockets[run.socket].mark(run.dscp);
            let errno = match self.give(&sockets[run.socket], &rest[..together]) {
                Ok(taken) => {
                    let taken = taken.clamp(1, together);
                    counters.tx_calls.add(1);
                    rest[..taken].iter().for_each(|run| self.count(run, sockets, counters));
                    rest = &rest[taken..];
                    was_refused = false;
                    continue;
                }
                Err(errno) => errno,
            };
            match errno {
                Errno::AGAIN | Errno::INTR => {
                    counters.tx_blocked.add(1);
                    return Attempt::Over { sent };
                }
                Errno::CONNREFUSED if !was_refused => {
                    // The error is an earlier packet's, reported and forgotten now; this one was
                    // not looked at.
                    counters.tx_refused.add(1);
                    was_refused = true;
                    continue;
                }
                _ => {}
            }
            if errno == Errno::MSGSIZE {
                // It has a place of its own at the kernel already, whoever's it is.
                paths.request(TenantIndex::HOST, run.destination);
            }
            if run.packets.len() > 1
                && let Some(bursts) = without_runs(errno)
            {
                counters.tx_gso_refused.add(1);
                return Attempt::RunRefused { sent, socket: run.socket, bursts };
            }
            if run.frames > 1 && errno == Errno::MSGSIZE {
                return Attempt::PacketTooLong { sent };
            }
            loss_counter(counters, errno).add(run.frames as u64);
            rest = &rest[1..];
            was_refused = false;
        }
        Attempt::Over { sent: self.packets.len() }
    }

    /// Gives runs of one socket to the kernel with one call. Returns how many it took: at least
    /// one; otherwise what it says about the first.
    fn give(&self, socket: &Socket, runs: &[Run]) -> Result<usize, Errno> {
        if let [run] = runs
            && let [packet] = &self.packets[run.packets.clone()]
            && let [part] = self.parts[packet.parts.clone()]
        {
            let destination = SocketAddr::new(run.destination.ip(), socket.port.0);
            let sent = sendto(&socket.fd, self.bytes(part), SendFlags::DONTWAIT, &destination);
            return sent.map(|_| 1);
        }
        let parts_of = |run: &Run| {
            let packets = &self.packets[run.packets.clone()];
            packets.iter().flat_map(|packet| &self.parts[packet.parts.clone()]).copied()
        };
        let slices = runs.iter().flat_map(parts_of).map(|part| self.bytes(part));
        let mut vectors: ArrayVec<libc::iovec, SLOTS> = slices
            .map(|bytes| libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            })
            .collect();
        let mut names: ArrayVec<Name, SLOTS> =
            runs.iter().map(|run| Name::new(run.destination.ip(), socket.port.0)).collect();
        let mut segments: ArrayVec<SegmentLen, SLOTS> =
            runs.iter().map(|run| SegmentLen::new(run.segment as u16)).collect();
        let mut headers: ArrayVec<libc::mmsghdr, SLOTS> = ArrayVec::new();
        let mut vectors = &mut vectors[..];
        for ((run, name), segment) in runs.iter().zip(&mut names).zip(&mut segments) {
            let (of_run, rest) = vectors.split_at_mut(run.frames);
            vectors = rest;
            // SAFETY: every field of it may be zero, pointers included: then they point to nothing.
            let mut header: libc::mmsghdr = unsafe { core::mem::zeroed() };
            let message = &mut header.msg_hdr;
            message.msg_namelen = name.len();
            message.msg_name = ptr::from_mut(name).cast();
            message.msg_iovlen = of_run.len() as _;
            message.msg_iov = of_run.as_mut_ptr();
            if run.packets.len() > 1 {
                message.msg_control = ptr::from_mut(segment).cast();
                message.msg_controllen = size_of::<SegmentLen>() as _;
            }
            headers.push(header);
        }
        send_messages(&socket.fd, &mut headers)
    }

    /// The kernel has taken a run.
    fn count(&mut self, run: &Run, _sockets: &[Socket], counters: &UdpCounters) {
        let count = run.packets.len() as u64;
        counters.tx_packets.add(count);
        counters.tx_frames.add(run.frames as u64);
        for packet in &self.packets[run.packets.clone()] {
            counters.tx_packet_sizes.count(packet.parts.len());
            tapped!(self.tap, tap => {
                let Socket { address, port, .. } = _sockets[packet.socket];
                let parts = &self.parts[packet.parts.clone()];
                let octets = parts.iter().map(|part| bytes(&self.memory, *part));
                let way = [address, packet.destination];
                tap.left_without_headers(way, [port.0; 2], parts.len(), octets);
            });
        }
        if count > 1 {
            counters.tx_gso_packets.add(count);
        }
    }

    /// The frames that wait, in the order in which they will be sent.
    #[cfg(test)]
    pub(super) fn written(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let parts = self.packets.iter().flat_map(|packet| &self.parts[packet.parts.clone()]);
        parts.map(|part| self.bytes(*part))
    }

    /// Returns the bytes that are written in a frame.
    fn bytes(&self, part: Part) -> &[u8] {
        bytes(&self.memory, part)
    }
}

/// The bytes of a frame in the memory of an outbox.
fn bytes(memory: &[u8], part: Part) -> &[u8] {
    &memory[part.slot * FRAME_LEN_MAX..][..part.len]
}

impl Run {
    const fn of(packet: &Packet) -> Self {
        let &Packet { socket, destination, len, ref parts, dscp, .. } = packet;
        let (packets, segment, frames, is_open) = (0..1, len, parts.end - parts.start, true);
        Self { socket, destination, packets, segment, len, frames, is_open, dscp }
    }

    /// Whether a packet of `len` bytes may follow the others.
    const fn takes(&self, len: usize) -> bool {
        self.is_open && 0 < len && len <= self.segment && self.len + len <= RUN_LEN_MAX
    }

    fn add(&mut self, packet: &Packet) {
        self.packets.end += 1;
        self.len += packet.len;
        self.frames += packet.parts.len();
        self.is_open = packet.len == self.segment;
    }
}

/// The result of an attempt to send.
enum Attempt {
    /// The first `sent` packets are gone; for the others there is no room now.
    Over { sent: usize },
    /// The first `sent` packets are gone; then a socket refused a run, and should send none for
    /// some bursts.
    RunRefused { sent: usize, socket: usize, bursts: u32 },
    /// The first `sent` packets are gone; the next one, of several frames, is longer than its path
    /// carries.
    PacketTooLong { sent: usize },
}

/// For how many bursts there should be no runs, if `errno` may be about a run as such: then its
/// packets are sent alone, and each gets what it deserves.
const fn without_runs(errno: Errno) -> Option<u32> {
    match errno {
        // No checksum offload, or encryption by IPsec; datagrams longer than the path's MTU on
        // kernels before 6.14; an option that the kernel does not know after all.
        Errno::IO | Errno::INVAL | Errno::NOPROTOOPT | Errno::OPNOTSUPP => {
            Some(BURSTS_WITHOUT_RUNS)
        }
        // This run's frames exceed the path's MTU; other runs may still be batched.
        Errno::MSGSIZE => Some(1),
        _ => None,
    }
}

/// The counter of frames that cannot be sent as this one cannot, if it cannot.
fn refusal<'c>(
    sockets: &[Socket],
    transmit: &Transmit,
    len_max: usize,
    counters: &'c UdpCounters,
) -> Option<&'c Tally> {
    if position(sockets, transmit).is_none() {
        return Some(&counters.tx_no_socket);
    }
    (transmit.len > len_max).then_some(&counters.tx_too_long)
}

/// The index of the socket that a frame leaves by.
fn position(sockets: &[Socket], transmit: &Transmit) -> Option<usize> {
    let same_family = transmit.source.version() == transmit.destination.version();
    let of_source = |socket: &Socket| {
        same_family && socket.address == transmit.source && socket.port == transmit.port
    };
    sockets.iter().position(of_source)
}

/// Sends what `headers` name. Returns how many of them the kernel has taken: at least one.
fn send_messages(fd: &OwnedFd, headers: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
    if let [header] = headers {
        // SAFETY: the descriptor is open, it is borrowed. The header names buffers, a name and
        // ancillary data by their true lengths, as `give` made it; all live across the call, and
        // the kernel only reads them.
        let sent =
            unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header.msg_hdr, libc::MSG_DONTWAIT) };
        return if sent < 0 { Err(last_error()) } else { Ok(1) };
    }
    let (first, count) = (headers.as_mut_ptr(), headers.len() as libc::c_uint);
    // SAFETY: as above, for as many headers as there are. The kernel writes into each how much of
    // it was sent, and nobody else refers to them.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), first, count, libc::MSG_DONTWAIT as _) };
    let Ok(sent) = usize::try_from(sent) else { return Err(last_error()) };
    Ok(sent)
}

/// The counter of packets lost because sending failed with `errno`.
pub(super) const fn loss_counter(counters: &UdpCounters, errno: Errno) -> &Tally {
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
