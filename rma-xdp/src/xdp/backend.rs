//! The AF_XDP backend: one socket for each receive queue of an interface, and one program in front.
//!
//! It writes and reads headers and counts what it drops; what is in a frame is none of its business.
//! All receive queues are polled in turn, so none starves. Everything is sent through the first queue:
//! one engine thread drives all of them, and one transmit queue means one doorbell a turn.
//!
//! Invariant: dropping a backend detaches the program before the sockets are closed, and closes the
//! sockets before their memory is unmapped, so traffic falls back to the kernel without a gap in
//! which it goes nowhere.

use std::{fmt, io, os::fd::BorrowedFd, sync::Arc, thread, time::Duration};

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr,
    backend::{BATCH, Backend, RxFrame, Transmit, TxFrame},
    nic::ReceiveLenMax,
    time::Instant,
};
use rustix::time::{ClockId, clock_gettime};
use xsk_rs::config::QueueSize;

use super::{
    config::XdpConfig,
    counters::Counters,
    description::{Description, Fallback, Feature},
    device::Device,
    error::{Refusal, XdpError},
    linear::{Linear, Linearizer},
    packet::{self, ETHERNET_LEN, HEADERS_V4, HEADERS_V6, Headers, IPV4_LEN, IPV6_LEN, UDP_LEN},
    port::ReservedPort,
    socket::{Chunk, Options, Socket, XskStatistics},
    steering::{AttachMode, Steering},
    umem::{CHUNK_DATA, FrameBytes},
    watch::{Watched, XskWatch},
};
use crate::net::{Path, PathTable};

/// Ethernet header and two VLAN tags: what a packet has besides its MTU.
const LINK_HEADERS: usize = ETHERNET_LEN + packet::VLAN_TAGS_MAX * packet::VLAN_TAG_LEN;
/// The largest MTU whose packets fit into one chunk.
const SINGLE_BUFFER_MTU: u32 = (CHUNK_DATA - LINK_HEADERS) as u32;
/// The smallest MTUs of a link, from RFC 1122 (576 octets) and RFC 8200 (1280).
const MTU_MIN_V4: u32 = 576;
const MTU_MIN_V6: u32 = 1280;
/// The queue that transmits.
const TX_QUEUE: usize = 0;
/// How long a queue may take to become free. The kernel gives a queue back from a worker thread, a
/// moment after the socket on it was closed or its process killed
/// (`xp_put_pool` in <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk_buff_pool.c>), and the next start
/// should not fail for that. Longer only delays the error about a queue that is really in use.
const QUEUE_FREE_AFTER: Duration = Duration::from_secs(1);

/// Frames over AF_XDP. One thread at a time drives it; it may be opened on another, inside the network
/// namespace of the interface.
pub struct XdpBackend {
    // Dropped in this order.
    steering: Steering,
    watched: Watched,
    queues: Box<[Queue]>,
    _port: ReservedPort,
    state: State,
    /// The queue that is polled first next time.
    next_queue: usize,
    /// Where frames are written that may need several chunks. Empty if none can.
    tx_scratch: Box<[u8]>,
    /// Transmit chunks that the longest frame needs.
    chunks_max: usize,
    description: Description,
}

/// A receive queue.
struct Queue {
    socket: Socket,
    linearizer: Linearizer,
}

/// What both directions need besides the sockets.
struct State {
    paths: Arc<PathTable>,
    counters: Arc<Counters>,
    local_addresses: Box<[HostAddr]>,
    port: u16,
    /// The longest IP packet that the buffers can hold.
    mtu_max: u32,
    /// The headers of the last frame that was sent: a guess for the next one, before it is written.
    headers_len: usize,
}

impl XdpBackend {
    /// Opens the interface: reserves the port, attaches the steering program, binds a socket to each
    /// receive queue. Must be called in the network namespace of the interface.
    ///
    /// # Errors
    /// An [`XdpError`] for each cause, with the next step. Nothing stays attached or bound.
    pub fn open(config: &XdpConfig, paths: Arc<PathTable>) -> Result<Self, XdpError> {
        config.check()?;
        let interface = &*config.interface;
        let device = Device::open(interface)?;
        let mtu = paths.interface_mtu();
        check_mtu(config, mtu)?;
        let multi_buffer = mtu > SINGLE_BUFFER_MTU;

        let mut fallbacks = Vec::new();
        let queue_count = device.rx_queues().unwrap_or_else(|reason| {
            let (wanted, got) = (Feature::AllQueues, Feature::OneQueue);
            fallbacks.push(Fallback { wanted, got, reason });
            1
        });
        let addresses = &config.local_addresses;
        let port = ReservedPort::reserve(interface, device.index, addresses, config.port)?;
        let mut steering =
            Steering::attach(interface, device.index, config.port, queue_count, config.mode)?;
        if let Some(reason) = steering.native_refusal().filter(|&r| r != Refusal::NotWanted) {
            let (wanted, got) = (Feature::NativeMode, Feature::GenericMode);
            fallbacks.push(Fallback { wanted, got, reason });
        }

        let mtu_max = if multi_buffer { mtu } else { SINGLE_BUFFER_MTU };
        let packet_max = LINK_HEADERS + mtu_max as usize;
        let counters = Arc::new(Counters::default());
        let mut queues = Vec::with_capacity(queue_count as usize);
        for queue in 0..queue_count {
            let generic = steering.mode() == AttachMode::Generic;
            let socket = open_socket(config, queue, generic, multi_buffer, mtu, &counters)?;
            let linearizer = Linearizer::new(if multi_buffer { packet_max } else { 0 });
            queues.push(Queue { socket, linearizer });
        }
        for Queue { socket, .. } in &queues {
            steering.redirect(interface, socket.queue(), socket.fd())?;
        }

        let sockets = queues.iter().map(|queue: &Queue| queue.socket.fd());
        let watched = Watched::new(sockets).map_err(|source| {
            XdpError::from_call(interface, "duplicating a socket's descriptor", source)
        })?;

        let zero_copy = queues.iter().all(|queue| queue.socket.is_zero_copy());
        if !zero_copy {
            let reason = match steering.mode() {
                AttachMode::Native => Refusal::Driver,
                AttachMode::Generic => Refusal::NotWanted,
            };
            let (wanted, got) = (Feature::ZeroCopy, Feature::Copy);
            fallbacks.push(Fallback { wanted, got, reason });
        }
        let description = Description {
            interface: config.interface.clone(),
            mode: steering.mode(),
            zero_copy,
            queues: queue_count,
            multi_buffer,
            mtu,
            fallbacks,
        };
        let any_v4 = addresses.iter().any(|address| address.is_ipv4());
        let state = State {
            paths,
            counters,
            local_addresses: addresses.clone().into_boxed_slice(),
            port: config.port,
            mtu_max,
            headers_len: if any_v4 { HEADERS_V4 } else { HEADERS_V6 },
        };
        Ok(Self {
            steering,
            watched,
            queues: queues.into_boxed_slice(),
            _port: port,
            state,
            next_queue: 0,
            tx_scratch: vec![0; if multi_buffer { packet_max } else { 0 }].into_boxed_slice(),
            chunks_max: packet_max.div_ceil(CHUNK_DATA),
            description,
        })
    }

    /// What was opened, and what works less well than it could.
    #[must_use]
    pub fn describe(&self) -> &Description {
        &self.description
    }

    /// Where the steering program runs.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.steering.mode()
    }

    /// The largest frames that can be received now. Follows the interface's MTU, as far as the buffers
    /// reach that were made when it was opened.
    #[must_use]
    #[inline]
    pub fn receive_len_max(&self) -> ReceiveLenMax {
        ReceiveLenMax::of_mtu(self.state.interface_mtu() as usize)
    }

    /// What the backend counts, for any thread to read.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.state.counters
    }

    /// What the kernel counts, over all queues. System calls: not for the engine thread.
    ///
    /// # Errors
    /// What the system call says; it fails only if the interface is gone.
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        let mut sum = XskStatistics::default();
        for Queue { socket, .. } in &self.queues {
            sum += socket.statistics()?;
        }
        Ok(sum)
    }

    /// Reads [`XdpBackend::statistics`] on other threads.
    #[must_use]
    pub fn watch(&self) -> XskWatch {
        self.watched.watch()
    }

    /// The error after which sending was given up, if there was one: the interface is gone, mostly.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        self.queues.iter().find_map(|queue| queue.socket.failure())
    }

    /// What to poll for input before sleeping: one descriptor for each queue. Call [`Backend::flush`]
    /// first. In `ppoll` the kernel itself wakes a driver that waits for it, on both sides.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.fd())
    }

    /// A queue's socket, to move packets without this backend: for measuring what the sockets alone
    /// can do. `None` if there is no such queue.
    pub fn socket_mut(&mut self, queue: usize) -> Option<&mut Socket> {
        self.queues.get_mut(queue).map(|queue| &mut queue.socket)
    }

    /// Has frames written into transmit chunks themselves, at most `max`. Returns how many were.
    #[inline]
    fn transmit_chunks(
        &mut self,
        max: usize,
        fill: &mut impl FnMut(&mut [TxFrame<'_>]) -> usize,
    ) -> usize {
        let Self { queues, state, .. } = self;
        let socket = &mut queues[TX_QUEUE].socket;
        let (room, headers_len) = (state.packet_room(), state.headers_len);
        let filled;
        let mut lens: ArrayVec<Option<usize>, BATCH> = ArrayVec::new();
        {
            let (umem, chunks) = socket.free_chunks(max);
            let mut packets: ArrayVec<FrameBytes<'_>, BATCH> = ArrayVec::new();
            for chunk in chunks.iter_mut().rev() {
                packets.push(umem.bytes_mut(chunk));
            }
            let mut transmits: ArrayVec<Option<Transmit>, BATCH> = ArrayVec::new();
            {
                let mut frames: ArrayVec<TxFrame<'_>, BATCH> = ArrayVec::new();
                for packet in &mut packets {
                    let room = room.min(packet.len());
                    frames.push(TxFrame::new(&mut packet[headers_len..room]));
                }
                filled = fill(&mut frames);
                for frame in &frames[..filled] {
                    transmits.push(frame.transmit);
                }
            }
            for (packet, transmit) in packets.iter_mut().zip(&transmits) {
                let room = room.min(packet.len());
                let finished = transmit
                    .as_ref()
                    .and_then(|transmit| state.finish(&mut packet[..room], headers_len, transmit));
                lens.push(finished);
            }
        }
        socket.stage_free(lens.iter().copied());
        filled
    }

    /// Writes a frame into the scratch buffer and spreads it over as many chunks as it needs. (A chunk
    /// cannot continue in its neighbour: xsk-rs starts each packet behind the kernel's headroom.)
    fn transmit_scratch(&mut self, fill: &mut impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let Self { queues, state, tx_scratch, .. } = self;
        let socket = &mut queues[TX_QUEUE].socket;
        let room = state.packet_room().min(tx_scratch.len());
        let packet = &mut tx_scratch[..room];
        let headers_len = state.headers_len;
        let mut frame = [TxFrame::new(&mut packet[headers_len..])];
        let filled = fill(&mut frame);
        let [TxFrame { transmit, .. }] = frame;
        let len = transmit.and_then(|transmit| state.finish(packet, headers_len, &transmit));
        let Some(len) = len else { return filled };
        let mut rest = &packet[..len];
        if len > CHUNK_DATA {
            state.counters.tx_multi_buffer.add(1);
        }
        while let Some((piece, more)) = rest.split_at_checked(rest.len().min(CHUNK_DATA))
            && !piece.is_empty()
        {
            let mut frame = socket.take().expect("the caller has checked that there is room");
            socket.bytes_mut(&mut frame)[..piece.len()].copy_from_slice(piece);
            socket.stage(frame, piece.len(), !more.is_empty());
            rest = more;
        }
        filled
    }
}

impl fmt::Debug for XdpBackend {
    /// Thousands of chunks tell nobody anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpBackend")
            .field("description", &self.description)
            .field("port", &self.state.port)
            .field("local_addresses", &self.state.local_addresses)
            .finish_non_exhaustive()
    }
}

impl Backend for XdpBackend {
    #[inline]
    fn rx_burst(&mut self, max: usize, mut on_frames: impl FnMut(&mut [RxFrame<'_>])) -> usize {
        let Self { queues, state, next_queue, .. } = self;
        let count = queues.len();
        let mut frames = 0;
        for step in 0..count {
            let Queue { socket, linearizer } = &mut queues[(*next_queue + step) % count];
            socket.receive_some(max - frames, |chunks| {
                let mut received: ArrayVec<RxFrame<'_>, BATCH> = ArrayVec::new();
                for Chunk { bytes, continued } in chunks {
                    if !*continued && linearizer.is_idle() {
                        if let Some(frame) = state.received(bytes) {
                            received.push(frame);
                        }
                    } else if let Some(packet) = state.linearize(linearizer, bytes, *continued)
                        && let Some(frame) = state.received(packet)
                    {
                        // Those before it first. The buffer that it lies in is used again for the next.
                        frames += received.len() + 1;
                        if !received.is_empty() {
                            on_frames(&mut received);
                            received.clear();
                        }
                        on_frames(&mut [frame]);
                    }
                }
                frames += received.len();
                if !received.is_empty() {
                    on_frames(&mut received);
                }
            });
            if frames == max {
                break;
            }
        }
        *next_queue = (*next_queue + 1) % count;
        if frames > 0 {
            state.counters.rx_frames.add(frames as u64);
        }
        frames
    }

    #[inline]
    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut room = self.queues[TX_QUEUE].socket.room();
        let mut frames = 0;
        while frames < max {
            if room < self.chunks_max {
                self.state.counters.tx_ring_full.add(1);
                break;
            }
            let (offered, filled) = if self.tx_scratch.is_empty() {
                let offered = BATCH.min(max - frames).min(room);
                (offered, self.transmit_chunks(offered, &mut fill))
            } else {
                (1, self.transmit_scratch(&mut fill))
            };
            frames += filled;
            if filled < offered {
                break;
            }
            room = self.queues[TX_QUEUE].socket.free();
        }
        self.queues[TX_QUEUE].socket.commit();
        frames
    }

    #[inline]
    fn flush(&mut self, now: Instant) {
        self.queues[TX_QUEUE].socket.flush(now);
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

    /// The frame in `packet`. `None` after counting why it is dropped.
    #[inline]
    fn received<'p>(&self, packet: &'p mut [u8]) -> Option<RxFrame<'p>> {
        let datagram = match packet::parse(packet, self.port) {
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
        Some(RxFrame {
            source,
            destination: datagram.destination,
            reply_len_max: (mtu.min(self.mtu_max) as usize).saturating_sub(overhead),
            bytes: &mut packet[datagram.payload],
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

    /// Writes the headers of the frame that `transmit` describes, which lies in `packet` behind
    /// `written_at` bytes. Returns the packet's length, or `None` after counting why it is dropped.
    #[inline]
    fn finish(
        &mut self,
        packet: &mut [u8],
        written_at: usize,
        transmit: &Transmit,
    ) -> Option<usize> {
        let &Transmit { source, destination, len, flow, may_resolve } = transmit;
        if source.is_ipv4() != destination.is_ipv4() {
            self.counters.tx_family.add(1);
            return None;
        }
        let Some(Path { source_mac, next_hop_mac, mtu }) = self.paths.lookup(destination) else {
            if may_resolve {
                self.paths.request(destination);
            }
            self.counters.tx_no_path.add(1);
            return None;
        };
        let headers_len = Headers::len_for(destination);
        let written = len <= packet.len() - written_at;
        let packet_len = headers_len.saturating_add(len);
        if !written || packet_len > packet.len().min(ETHERNET_LEN + mtu as usize) {
            self.counters.tx_too_long.add(1);
            return None;
        }
        if headers_len != written_at {
            // The guess was wrong: headers of the other family are 20 bytes longer or shorter, and a
            // packet cannot start anywhere else. Hosts that speak both families pay a copy when
            // they change over.
            packet.copy_within(written_at..written_at + len, headers_len);
            self.counters.tx_moved.add(1);
        }
        self.headers_len = headers_len;
        let headers =
            Headers { source_mac, next_hop_mac, source, destination, flow, port: self.port };
        headers.write(&mut packet[..packet_len]);
        self.counters.tx_frames.add(1);
        Some(packet_len)
    }
}

fn check_mtu(config: &XdpConfig, mtu: u32) -> Result<(), XdpError> {
    let any_v6 = config.local_addresses.iter().any(|address| !address.is_ipv4());
    let (version, minimum) = if any_v6 { (6, MTU_MIN_V6) } else { (4, MTU_MIN_V4) };
    if mtu < minimum {
        let interface = config.interface.clone();
        return Err(XdpError::MtuTooSmall { interface, mtu, version, minimum });
    }
    Ok(())
}

fn open_socket(
    config: &XdpConfig,
    queue: u32,
    generic: bool,
    multi_buffer: bool,
    mtu: u32,
    counters: &Arc<Counters>,
) -> Result<Socket, XdpError> {
    let ring = |size| QueueSize::new(size).expect("the configuration was checked");
    let transmits = queue as usize == TX_QUEUE;
    let options = Options {
        interface: &config.interface,
        queue,
        rx_ring: ring(config.rx_ring),
        tx_ring: ring(config.tx_ring),
        rx_chunks: config.rx_chunks(),
        tx_chunks: if transmits { config.tx_chunks() } else { 0 },
        force_copy: generic,
        multi_buffer,
        busy_poll_us: config.busy_poll_us,
    };
    let give_up = monotonic() + QUEUE_FREE_AFTER;
    let opened = loop {
        match Socket::open(&options, Arc::clone(counters)) {
            Err(XdpError::QueueInUse { .. }) if monotonic() < give_up => thread::yield_now(),
            opened => break opened,
        }
    };
    opened.map_err(|error| match error {
        // How kernels and drivers without multi-buffer support refuse the flag for it.
        XdpError::System { interface, source, .. }
            if multi_buffer
                && matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) =>
        {
            XdpError::MultiBuffer { interface, mtu, limit: SINGLE_BUFFER_MTU, source }
        }
        other => other,
    })
}

/// Time since boot; for the one deadline of start-up.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.try_into().unwrap_or_default())
}
