//! The AF_XDP backend: one socket for each receive queue of an engine, and one program in front of
//! all engines'.
//!
//! It writes and reads headers and counts what it drops; what is in a frame is none of its
//! business. All its receive queues are polled in turn, so none starves. Everything is sent through
//! the first of them: one engine thread drives all of them, and one transmit queue means one
//! doorbell a turn.
//!
//! Its interface may go away and come back under it: see [`super::follower`]. Then it has no
//! [`Share`] of one for a while: nothing arrives, and what is sent is dropped and counted, so that
//! ops end by their timeouts as on any path that loses everything.
//!
//! Invariant: a share is made and dropped on other threads. Here it is only taken and given back.

mod held;
mod resend;
mod spread;

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr,
    backend::{BATCH, Backend, LINK_LEN, RxPacket, Transmit, TxFrame},
    nic::ReceiveLenMax,
    packet::{FRAMES_MAX, Packet, Packets, SMALL},
    port::Ports,
    time::Instant,
    wire,
};

use self::held::Held;
use super::{
    attachment::{Attachment, Learnt},
    config::{AttachMode, XdpConfig},
    counters::Counters,
    description::Description,
    error::XdpError,
    exchange::Exchange,
    linear::{Linear, Linearizer},
    link_return::{LinkReturn, NoReturn},
    packet::{self, ETHERNET_LEN, HEADERS_V4, HEADERS_V6, Headers, IPV4_LEN, IPV6_LEN, UDP_LEN},
    share::{Queue, Share, TX_QUEUE},
    socket::Chunk,
    sockopt::XskStatistics,
};
#[cfg(feature = "capture")]
use crate::device::tap::Tap;
use crate::device::{
    engines::Engines,
    net::{Path, PathTable},
    traffic::TrafficClasses,
};

/// Room for a frame that goes nowhere: a 4 KiB op in one frame, with its headers.
const NOWHERE_LEN: usize = wire::FRAME_LEN_MAX;

/// Frames over AF_XDP. One thread at a time drives it; it may be opened on another, inside the
/// network namespace of the interface.
pub struct XdpBackend {
    /// `None` while the interface is gone.
    share: Option<Box<Share>>,
    state: State,
    /// The grouping of frames that are written together into packets.
    packets: Box<Packets>,
    /// The queue that is polled first next time.
    next_queue: usize,
    /// The buffer for frames that are written while there is no interface to send them on.
    nowhere: Box<[u8]>,
    exchange: Arc<Exchange>,
    /// Whether the follower has been told that sending fails.
    failure_told: bool,
}

/// The state of both directions besides the sockets.
struct State {
    paths: Arc<PathTable>,
    counters: Arc<Counters>,
    local_addresses: Box<[HostAddr]>,
    ports: Ports,
    /// The longest IP packet that the buffers can hold.
    mtu_max: u32,
    /// Octets of headers of the last packet that was sent: a guess for the next one.
    headers_len: usize,
    /// The packets that wait for a path.
    held: Held,
    traffic: TrafficClasses,
    #[cfg(feature = "capture")]
    tap: Option<Box<Tap>>,
}

impl XdpBackend {
    /// Opens the interface for one engine: reserves the ports, attaches the steering program, binds
    /// a socket to each receive queue. Must be called in the network namespace of the interface.
    ///
    /// # Errors
    /// An [`XdpError`] for each cause, with the next step. Nothing stays attached or bound.
    pub fn open(config: &XdpConfig, paths: Arc<PathTable>) -> Result<Self, XdpError> {
        let config = XdpConfig { engines: Engines::One, ..config.clone() };
        Ok(Self::open_each(&config, &paths)?.pop().expect("one for the engine"))
    }

    /// The same for all engines that the configuration asks for, a backend for each, in their
    /// order: backend e of n has the receive queues whose numbers leave e when they are divided by
    /// n, and transmits on number e.
    ///
    /// # Errors
    /// As [`XdpBackend::open`], and if there are fewer queues than engines.
    pub fn open_each(config: &XdpConfig, paths: &Arc<PathTable>) -> Result<Vec<Self>, XdpError> {
        config.check()?;
        let attachment = Arc::new(Attachment::open(config, paths, Learnt::default())?);
        let counters: Vec<Arc<Counters>> =
            (0..attachment.engines).map(|_| Arc::default()).collect();
        let shares =
            Share::open_each(&attachment, config, &Vec::from_iter(counters.iter().map(Some)))?;
        let each = shares.into_iter().flatten().zip(counters);
        each.map(|(share, counters)| Self::of(share, config, paths.clone(), counters)).collect()
    }

    /// The backend of an engine, which has this share.
    fn of(
        share: Box<Share>,
        config: &XdpConfig,
        paths: Arc<PathTable>,
        counters: Arc<Counters>,
    ) -> Result<Self, XdpError> {
        let addresses = &config.local_addresses;
        let any_v4 = addresses.iter().any(|address| address.is_ipv4());
        let state = State {
            paths,
            counters,
            local_addresses: addresses.clone().into_boxed_slice(),
            ports: config.ports()?,
            mtu_max: share.mtu_max,
            headers_len: if any_v4 { HEADERS_V4 } else { HEADERS_V6 },
            held: Held::new(),
            traffic: config.traffic,
            #[cfg(feature = "capture")]
            tap: None,
        };
        let exchange = Exchange::new().map_err(|source| {
            XdpError::from_call(&config.interface, "creating an eventfd", source)
        })?;
        Ok(Self {
            share: Some(share),
            state,
            packets: Box::new(Packets::new().with_classes_apart(config.traffic.are_apart())),
            next_queue: 0,
            nowhere: vec![0; NOWHERE_LEN].into_boxed_slice(),
            exchange: Arc::new(exchange),
            failure_told: false,
        })
    }

    /// Describes the attachment, and what works less well than it could. `None` while the interface
    /// is gone.
    #[must_use]
    pub fn describe(&self) -> Option<&Description> {
        Some(self.share.as_ref()?.attachment.description())
    }

    /// Returns the mode in which the steering program is attached. `None` while the interface is
    /// gone.
    #[must_use]
    pub fn mode(&self) -> Option<AttachMode> {
        Some(self.share.as_ref()?.attachment.mode())
    }

    /// Returns the parts of this backend that a follower of the interface needs, before an engine
    /// has it: where shares change hands, and what it has now.
    pub(super) fn followed(&self) -> Option<(Arc<Exchange>, &Share)> {
        Some((self.exchange.clone(), self.share.as_ref()?))
    }

    /// Takes what a follower has made of the interface's news, and gives back what was there
    /// before. To be called now and then, and after [`XdpBackend::poll_fds`] became readable. It
    /// neither allocates nor frees.
    #[inline]
    pub(crate) fn follow(&mut self) {
        if self.exchange.is_waiting() {
            let Self { share, state, exchange, .. } = self;
            exchange.swap(share);
            tapped!(state.tap, tap => tap.interface_is(share.is_some()));
            if let Some(share) = share {
                state.mtu_max = share.mtu_max;
            }
            (self.next_queue, self.failure_told) = (0, false);
        } else if !self.failure_told && self.failure().is_some() {
            // Whether or not the kernel's news of the interface have come.
            self.failure_told = true;
            self.exchange.wake_follower();
        }
    }

    /// Has a tap copy packets, or none, and gives back the one that did before.
    #[cfg(feature = "capture")]
    pub(crate) const fn swap_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        core::mem::replace(&mut self.state.tap, tap)
    }

    /// The largest frames that can be received now. Follows the interface's MTU, as far as the
    /// buffers reach that were made when it was opened.
    #[must_use]
    #[inline]
    pub fn receive_len_max(&self) -> ReceiveLenMax {
        ReceiveLenMax::of_mtu(self.state.interface_mtu() as usize)
    }

    /// The ways to other hosts.
    pub(crate) const fn paths(&self) -> &Arc<PathTable> {
        &self.state.paths
    }

    /// Returns the backend's counters, for any thread to read.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.state.counters
    }

    /// Returns the kernel's statistics, over all its queues. System calls: not for the engine
    /// thread.
    ///
    /// # Errors
    /// The error of the system call; it fails only if the interface is gone.
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        let mut sum = XskStatistics::default();
        for Queue { socket, .. } in self.queues() {
            sum += socket.statistics()?;
        }
        Ok(sum)
    }

    fn queues(&self) -> &[Queue] {
        self.share.as_ref().map_or(&[], |share| &share.queues)
    }

    /// The error after which sending was given up, if there was one: the interface is gone, mostly.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        self.queues().iter().find_map(|queue| queue.socket.failure())
    }

    /// Whether packets wait for a path, which nobody wakes a sleeper for.
    #[must_use]
    pub const fn awaits_path(&self) -> bool {
        !self.state.held.is_empty()
    }

    /// Returns the descriptors to poll for input before sleeping: one descriptor for each queue,
    /// and one for news of the interface. Call [`Backend::flush`] first. In `ppoll` the kernel
    /// itself wakes a driver that waits for it, on both sides.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sockets = self.queues().iter().map(|queue| queue.socket.fd());
        core::iter::once(self.exchange.as_fd()).chain(sockets)
    }

    /// Has frames written into transmit chunks themselves, at most `max`. Returns how many were.
    /// Those that share a packet are moved into the chunk of its first.
    #[inline]
    fn transmit_chunks(
        share: &mut Share,
        state: &mut State,
        packets: &mut Packets,
        max: usize,
        fill: &mut impl FnMut(&mut [TxFrame<'_>]) -> usize,
    ) -> usize {
        let Share { queues, .. } = share;
        let socket = &mut queues[TX_QUEUE].socket;
        let (room, headers_len) = (state.packet_room(), state.headers_len);
        let (filled, alone): (usize, Option<Transmit>);
        let mut lens: ArrayVec<Option<usize>, FRAMES_MAX> = ArrayVec::new();
        {
            let (umem, chunks) = socket.free_chunks(max);
            let mut buffers: ArrayVec<&mut [u8], FRAMES_MAX> = ArrayVec::new();
            for chunk in chunks.iter_mut().rev() {
                buffers.push(umem.bytes_mut(chunk));
            }
            let mut transmits: ArrayVec<Option<Transmit>, FRAMES_MAX> = ArrayVec::new();
            {
                let mut frames: ArrayVec<TxFrame<'_>, FRAMES_MAX> = ArrayVec::new();
                for buffer in &mut buffers {
                    let room = room.min(buffer.len());
                    frames.push(TxFrame::new(&mut buffer[headers_len..room]));
                }
                filled = fill(&mut frames);
                let frames = &mut frames[..filled];
                // When latency counts there is one frame, and nothing to plan.
                alone = match frames {
                    [frame] => frame.transmit.filter(|transmit| transmit.opens_packet),
                    _ => None,
                };
                if alone.is_none() {
                    packets.plan(frames, SMALL, |transmit, head| {
                        state.packet_len_max(transmit).min(head.packet_room())
                    });
                    for _ in &*frames {
                        transmits.push(None);
                    }
                    for packet in packets.list() {
                        packets.gather(packet, frames);
                        let head = frames[packet.first()].transmit;
                        transmits[packet.first()] =
                            head.map(|it| Transmit { len: packet.octets(), ..it });
                    }
                }
            }
            if let (Some(transmit), Some(buffer)) = (&alone, buffers.first_mut()) {
                let room = room.min(buffer.len());
                lens.push(state.finish(&mut buffer[..room], headers_len, transmit, 1));
            }
            let mut planned = packets.list().iter();
            for (buffer, transmit) in buffers.iter_mut().zip(&transmits) {
                let Some(transmit) = transmit else {
                    lens.push(None);
                    continue;
                };
                let frames = planned.next().map_or(1, Packet::frames);
                let room = room.min(buffer.len());
                lens.push(state.finish(&mut buffer[..room], headers_len, transmit, frames));
            }
        }
        socket.stage_free(lens.iter().copied());
        if alone.is_none() {
            state.count_unpaid(packets);
        }
        filled
    }

    /// Has frames written that go nowhere, as there is no interface. They are taken nevertheless:
    /// those of this host to itself are among them, and ops whose requests are lost end by their
    /// timeouts.
    #[cold]
    fn transmit_nowhere(
        &mut self,
        max: usize,
        fill: &mut impl FnMut(&mut [TxFrame<'_>]) -> usize,
    ) -> usize {
        let mut frames = 0;
        while frames < max {
            let mut frame = [TxFrame::new(&mut self.nowhere)];
            if fill(&mut frame) == 0 {
                break;
            }
            frames += 1;
            self.state.counters.tx_no_interface.add(frame[0].transmit.is_some().into());
        }
        frames
    }
}

impl fmt::Debug for XdpBackend {
    /// Thousands of chunks tell nobody anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpBackend")
            .field("share", &self.share)
            .field("ports", &self.state.ports)
            .field("local_addresses", &self.state.local_addresses)
            .finish_non_exhaustive()
    }
}

impl Backend for XdpBackend {
    #[inline]
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let Self { share, state, next_queue, .. } = self;
        let Some(Share { queues, .. }) = share.as_deref_mut() else { return 0 };
        let count = queues.len();
        let mut frames = 0;
        for step in 0..count {
            let place = (*next_queue + step) % count;
            let Queue { socket, linearizer } = &mut queues[place];
            socket.receive_some(max - frames, |chunks| {
                let mut received: ArrayVec<RxPacket<'_>, BATCH> = ArrayVec::new();
                for Chunk { bytes, continued } in chunks {
                    if !*continued && linearizer.is_idle() {
                        if let Some(frame) = state.tap_received(place, bytes) {
                            received.push(frame);
                        }
                    } else if let Some(packet) = state.linearize(linearizer, bytes, *continued)
                        && let Some(frame) = state.tap_received(place, packet)
                    {
                        // Those before it first. The buffer that it lies in is used again for the
                        // next.
                        frames += received.len() + 1;
                        if !received.is_empty() {
                            on_packets(&mut received);
                            received.clear();
                        }
                        on_packets(&mut [frame]);
                        tapped!(state.tap, tap => tap.handled());
                    }
                }
                frames += received.len();
                if !received.is_empty() {
                    on_packets(&mut received);
                }
                tapped!(state.tap, tap => tap.handled());
            });
            if frames == max {
                break;
            }
        }
        *next_queue = (*next_queue + 1) % count;
        if frames > 0 {
            state.counters.rx_packets.add(frames as u64);
        }
        frames
    }

    #[inline]
    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let Self { share, state, packets, .. } = self;
        let Some(share) = share.as_deref_mut() else {
            return self.transmit_nowhere(max, &mut fill);
        };
        let mut room = share.queues[TX_QUEUE].socket.room();
        let mut frames = 0;
        while frames < max {
            if room < share.chunks_max {
                state.counters.tx_ring_full.add(1);
                break;
            }
            let (offered, filled) = if share.tx_frames.is_none() {
                let offered = FRAMES_MAX.min(max - frames).min(room);
                (offered, Self::transmit_chunks(share, state, packets, offered, &mut fill))
            } else {
                let offered = BATCH.min(max - frames).min(room / share.chunks_max);
                (offered, Self::transmit_spread(share, state, packets, offered, &mut fill))
            };
            frames += filled;
            if filled < offered {
                break;
            }
            room = share.queues[TX_QUEUE].socket.free();
        }
        share.queues[TX_QUEUE].socket.commit();
        frames
    }

    #[inline]
    fn flush(&mut self, now: Instant) {
        if let Some(share) = &mut self.share {
            let socket = &mut share.queues[TX_QUEUE].socket;
            if !self.state.held.is_empty() {
                self.state.send_held(socket, now);
            }
            socket.flush(now);
        } else if !self.state.held.is_empty() {
            self.state.drop_held(now);
        }
    }
}

impl State {
    /// Puts a packet of several chunks together. `None` until it is complete.
    #[cold]
    fn linearize<'l>(
        &self,
        linearizer: &'l mut Linearizer,
        chunk: &[u8],
        continued: bool,
    ) -> Option<&'l mut [u8]> {
        match linearizer.push(chunk, continued) {
            Linear::More => None,
            Linear::Packet(packet) => {
                self.counters.rx_multi_buffer.add(1);
                Some(packet)
            }
            Linear::TooLong => {
                self.counters.rx_too_long.add(1);
                None
            }
        }
    }

    /// As [`State::received`], past a tap, of what came by the queue of this place.
    #[inline]
    fn tap_received<'p>(&mut self, _place: usize, packet: &'p mut [u8]) -> Option<RxPacket<'p>> {
        tapped!(self.tap, tap => tap.came(_place, packet));
        let received = self.received(packet);
        if received.is_none() {
            tapped!(self.tap, tap => tap.refused());
        }
        received
    }

    /// Returns the packet received in `packet`. `None` after counting why it is dropped.
    #[inline]
    fn received<'p>(&self, packet: &'p mut [u8]) -> Option<RxPacket<'p>> {
        let datagram = match packet::parse(packet, &self.ports) {
            Ok(datagram) => datagram,
            Err(error) => {
                self.counters.packet_error(error).add(1);
                return None;
            }
        };
        if !self.local_addresses.contains(&datagram.destination) {
            self.counters.rx_not_local.add(1);
            return None;
        }
        let source = datagram.source;
        let mtu = self.paths.lookup(source).map_or_else(|| self.interface_mtu(), |path| path.mtu);
        let overhead = UDP_LEN + if source.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let (headers, rest) = packet.split_at_mut(datagram.payload.start);
        Some(RxPacket {
            source,
            destination: datagram.destination,
            port: datagram.port,
            source_port: datagram.source_port,
            reply_len_max: (mtu.min(self.mtu_max) as usize).saturating_sub(overhead),
            link: headers.first_chunk(),
            bytes: &mut rest[..datagram.payload.len()],
        })
    }

    /// The interface's MTU, as far as the buffers reach.
    #[inline]
    fn interface_mtu(&self) -> u32 {
        self.paths.interface_mtu().min(self.mtu_max)
    }

    /// How much of a transmit buffer a packet may use.
    #[inline]
    fn packet_room(&self) -> usize {
        // An interface may shrink below its headers at any time; the result must still be a buffer.
        (ETHERNET_LEN + self.interface_mtu() as usize).max(HEADERS_V6)
    }

    /// How long a packet may be on the way that `transmit` goes, without its headers.
    #[inline]
    fn packet_len_max(&self, transmit: &Transmit) -> usize {
        let path = self.paths.lookup(transmit.destination);
        let mtu = path.map_or_else(|| self.interface_mtu(), |path| path.mtu.min(self.mtu_max));
        let overhead = Headers::len_for(transmit.destination) - ETHERNET_LEN;
        (mtu as usize).saturating_sub(overhead)
    }

    /// Counts the frames that a plan left out.
    #[inline]
    fn count_unpaid(&self, packets: &Packets) {
        if packets.unpaid() > 0 {
            self.counters.tx_unpaid.add(packets.unpaid() as u64);
        }
    }

    /// Writes the headers of the packet that `transmit` describes, which has so many `frames` and
    /// lies in `packet` behind `written_at` bytes. Returns its length with them, or `None` after
    /// counting why it is dropped.
    #[inline]
    fn finish(
        &mut self,
        packet: &mut [u8],
        written_at: usize,
        transmit: &Transmit,
        frames: usize,
    ) -> Option<usize> {
        let frames = frames as u64;
        let &Transmit { source, destination, port, class, len, source_port, .. } = transmit;
        if source.is_ipv4() != destination.is_ipv4() {
            self.counters.tx_family.add(frames);
            return None;
        }
        let Some(Path { source_mac, next_hop_mac, mtu }) = self.paths.lookup(destination) else {
            return self.without_path(packet, written_at, transmit, frames);
        };
        let headers_len = Headers::len_for(destination);
        let written = len <= packet.len() - written_at;
        let packet_len = headers_len.saturating_add(len);
        if !written || packet_len > packet.len().min(ETHERNET_LEN + mtu as usize) {
            self.counters.tx_too_long.add(frames);
            return None;
        }
        if headers_len != written_at {
            // The guess was wrong: headers of the other family are 20 bytes longer or shorter, and
            // a packet cannot start anywhere else. Hosts that speak both families pay a copy when
            // they change over.
            packet.copy_within(written_at..written_at + len, headers_len);
            self.counters.tx_moved.add(1);
        }
        self.headers_len = headers_len;
        let dscp = self.traffic.of(class);
        let headers =
            Headers { source_mac, next_hop_mac, source, destination, source_port, port, dscp };
        headers.write(&mut packet[..packet_len]);
        self.counters.tx_packets.add(1);
        self.counters.tx_frames.add(frames);
        self.counters.tx_packet_sizes.count(frames as usize);
        tapped!(self.tap, tap => tap.left(&packet[..packet_len], frames as usize));
        Some(packet_len)
    }

    /// [`State::finish`] of a packet that there is no path for: it waits for one, if somebody looks
    /// for that.
    #[cold]
    fn without_path(
        &mut self,
        packet: &mut [u8],
        written_at: usize,
        transmit: &Transmit,
        frames: u64,
    ) -> Option<usize> {
        if transmit.may_resolve {
            self.paths.request(transmit.tenant, transmit.destination);
        }
        if transmit.link_behind {
            return self.finish_by_link(packet, written_at, transmit, frames);
        }
        let payload = packet.get(written_at..).and_then(|frame| frame.get(..transmit.len));
        let waits = payload.filter(|_| transmit.may_resolve && self.paths.has_monitor());
        if !waits.is_some_and(|payload| self.held.push(transmit, payload, frames as usize)) {
            self.counters.tx_no_path.add(frames);
        }
        None
    }

    /// [`State::finish`] of a packet that there is no path for, and that has behind it what the
    /// packet began with that it answers. The kernel is not asked, and nothing is kept.
    #[cold]
    fn finish_by_link(
        &mut self,
        packet: &mut [u8],
        written_at: usize,
        transmit: &Transmit,
        frames: u64,
    ) -> Option<usize> {
        let &Transmit { source, destination, port, class, len, source_port, .. } = transmit;
        let behind = packet.get(written_at..).and_then(|frame| frame.get(len..));
        let link: Option<&[u8; LINK_LEN]> = behind.and_then(<[u8]>::first_chunk);
        let own = self.paths.interface_mac();
        let back = match link.zip(own).map(|(link, own)| LinkReturn::of(link, own)) {
            Some(Ok(back)) => back,
            Some(Err(NoReturn::Source)) => {
                self.counters.tx_link_refused.add(frames);
                return None;
            }
            None | Some(Err(NoReturn::NotOurs)) => {
                self.counters.tx_no_path.add(frames);
                return None;
            }
        };
        let tags_len = back.tags_len();
        let headers_len = tags_len + Headers::len_for(destination);
        let packet_len = headers_len + len;
        let most = ETHERNET_LEN + tags_len + self.interface_mtu() as usize;
        if packet_len > packet.len().min(most) {
            self.counters.tx_too_long.add(frames);
            return None;
        }
        packet.copy_within(written_at..written_at + len, headers_len);
        // The tags come between the hardware addresses and the rest, which is written as if there
        // were none.
        let (source_mac, next_hop_mac) = ([0; 6], [0; 6]);
        let dscp = self.traffic.of(class);
        let headers =
            Headers { source_mac, next_hop_mac, source, destination, source_port, port, dscp };
        headers.write(&mut packet[tags_len..packet_len]);
        packet[..back.octets().len()].copy_from_slice(back.octets());
        self.counters.tx_link_return.add(1);
        self.counters.tx_packets.add(1);
        self.counters.tx_frames.add(frames);
        self.counters.tx_packet_sizes.count(frames as usize);
        tapped!(self.tap, tap => tap.left(&packet[..packet_len], frames as usize));
        Some(packet_len)
    }
}
