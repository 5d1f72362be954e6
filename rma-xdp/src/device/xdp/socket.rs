//! One AF_XDP socket: a receive queue of an interface, with its four rings and its UMEM.
//!
//! It moves packets from their Ethernet header on; it knows neither addresses nor frames of the
//! protocol. Chunks are split once into those that receive and those that transmit; a chunk never
//! changes sides. No ring can overflow: the rings that the kernel fills are as large as the chunks
//! that can be on them, and the ones that we fill twice as large. Twice, because the kernel hands
//! out chunks before it says that it took them (`xsk_flush` in
//! <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk.c>), so for a moment a chunk seems to
//! be on two rings.
//!
//! Invariant: a chunk taken from the receive ring goes back to the fill ring within the same call;
//! a chunk staged for transmission is on the transmit ring after [`Socket::commit`].
//!
//! Nothing here allocates, locks or blocks after `Socket::open`, and the only system call is the
//! doorbell.

use std::{
    fmt, io,
    num::NonZeroU32,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

use arrayvec::ArrayVec;
use rma_core::{backend, time::Instant};
use rma_shm::prefetch;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        xdp::{SocketAddrXdp, SocketAddrXdpFlags},
    },
};

use super::{
    arrivals::Arrivals,
    choice::Copying,
    counters::Counters,
    error::XdpError,
    flush::{FlushPolicy, Ring},
    queues::ReadSign,
    ring::{Desc, Rings, Sizes},
    sockopt::{self, XskStatistics},
    umem::{CHUNK_SIZE, Frame, Side, Umem},
};

/// Descriptors moved between a ring and userspace at once. Larger: more of them leave the
/// first-level cache before they are used. Smaller: more index updates, which are what costs.
const BATCH: usize = 64;
/// Bytes of a received chunk that are prefetched: headers and a small payload, or the first half of
/// what the longest frames have. Less: the cipher waits for lines, as another core has written
/// them (`read4096_over_floor` 1.81 with 256, 1.74 with 1024, 1.58 with 2048 when this was
/// written, `write_goodput_over_floor` 0.30, 0.32, 0.32). More: those lines wait for each other
/// (1.66 and 0.31 with 4096).
const PREFETCHED: usize = 2048;

/// Doorbells in one flush while each makes progress. The kernel sends 32 packets for each
/// (`TX_BATCH_SIZE` in <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk.c>), so this is
/// more than a burst.
const RINGS_MAX: u32 = 8;

/// The options that a [`Socket`] is opened with. The rules are checked by [`super::XdpConfig`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    /// The interface's name, for errors.
    pub(crate) interface: &'a str,
    /// The number by which the kernel knows it.
    pub(crate) index: u32,
    pub(crate) queue: u32,
    /// Size of the receive ring; the fill ring has twice this.
    pub(crate) rx_ring: u32,
    /// Size of the completion ring; the transmit ring has twice this.
    pub(crate) tx_ring: u32,
    /// Chunks for receiving, at most `rx_ring`.
    pub(crate) rx_chunks: u32,
    /// Chunks for transmitting, at most `tx_ring`.
    pub(crate) tx_chunks: u32,
    /// Whether for zero-copy.
    pub(crate) copying: Copying,
    /// Packets may span several chunks.
    pub(crate) multi_buffer: bool,
    /// Microseconds that the kernel may busy-poll the device in a system call of ours.
    pub(crate) busy_poll_us: Option<NonZeroU32>,
}

/// An AF_XDP socket bound to one receive queue. One thread at a time uses it.
pub struct Socket {
    // The kernel's socket ends when its descriptor is closed and its rings are unmapped, so both
    // come before the UMEM: fields are dropped in this order.
    fd: OwnedFd,
    rings: Rings,
    umem: Umem,
    queue: u32,
    zero_copy: bool,
    busy_poll: bool,
    /// Descriptors of one batch on the receive side.
    rx_batch: Box<[Desc; BATCH]>,
    /// The places of the next packets.
    arrivals: Arrivals,
    /// Tells the steering program that the receive ring is empty.
    read_sign: ReadSign,
    /// Addresses of one batch from the completion ring.
    completed: Box<[u64; BATCH]>,
    /// Descriptors staged for the transmit ring. Never longer than the number of transmit chunks.
    staged: Vec<Desc>,
    /// Free transmit chunks; the last one used is the next one taken, while it is still in the
    /// cache.
    free: Vec<Frame>,
    /// Transmit chunks with the kernel.
    in_flight: u32,
    flush: FlushPolicy,
    failure: Option<Errno>,
    counters: Arc<Counters>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("queue", &self.queue)
            .field("zero_copy", &self.zero_copy)
            .field("free", &self.free.len())
            .field("in_flight", &self.in_flight)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// A received chunk.
#[derive(Debug)]
pub struct Chunk<'f> {
    /// A packet, or part of one.
    pub bytes: &'f mut [u8],
    /// Whether the packet goes on in the next chunk.
    pub continued: bool,
}

impl Socket {
    /// Maps a UMEM and rings, fills the fill ring and binds a socket to the queue, in this order:
    /// drivers take chunks when they are bound. The caller puts the socket into the XSKMAP.
    ///
    /// # Errors
    /// [`XdpError::UmemAllocation`], [`XdpError::UmemLockedMemory`], [`XdpError::QueueInUse`], and
    /// those of [`XdpError::from_call`].
    pub(super) fn open(
        options: &Options<'_>,
        read_sign: ReadSign,
        counters: Arc<Counters>,
    ) -> Result<Self, XdpError> {
        let Options { interface, queue, .. } = *options;
        let chunk_count = options.rx_chunks + options.tx_chunks;
        let bytes = u64::from(chunk_count) * u64::from(CHUNK_SIZE);
        let umem_error = |errno: Errno| XdpError::from_umem(interface, bytes, errno.into());
        let system = |call| move |errno: Errno| XdpError::from_call(interface, call, errno.into());
        // A program that is started has neither the socket nor, with it, the queue.
        let (family, kind) = (AddressFamily::XDP, SocketType::RAW);
        let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(system("creating an AF_XDP socket"))?;
        let (umem, mut frames) = Umem::new(chunk_count).map_err(umem_error)?;
        umem.register(fd.as_fd()).map_err(umem_error)?;
        let sizes = Sizes {
            fill: 2 * options.rx_ring,
            completion: options.tx_ring,
            receive: options.rx_ring,
            transmit: 2 * options.tx_ring,
        };
        let rings = Rings::open(fd.as_fd(), sizes)
            .map_err(system("making the rings of an AF_XDP socket"))?;
        let tx_frames = frames.split_off(options.rx_chunks as usize);
        let mut socket = Self {
            fd,
            rings,
            umem,
            queue,
            zero_copy: false,
            busy_poll: options.busy_poll_us.is_some(),
            rx_batch: Box::new([Desc::default(); BATCH]),
            arrivals: Arrivals::new(frames.len()),
            read_sign,
            completed: Box::new([0; BATCH]),
            staged: Vec::with_capacity(tx_frames.len()),
            free: tx_frames,
            in_flight: 0,
            flush: FlushPolicy::default(),
            failure: None,
            counters,
        };
        socket.fill_with(frames);
        socket.bind(options)?;
        Ok(socket)
    }

    /// Binds it to its queue, in the mode that is asked for or, if either will do, the driver's.
    fn bind(&mut self, options: &Options<'_>) -> Result<(), XdpError> {
        let Options { interface, index, queue, .. } = *options;
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        match options.copying {
            Copying::Either => {}
            Copying::Copy(_) => flags |= SocketAddrXdpFlags::XDP_COPY,
            Copying::ZeroCopy => flags |= SocketAddrXdpFlags::XDP_ZEROCOPY,
        }
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, options.multi_buffer);
        rustix::net::bind(self.fd(), &SocketAddrXdp::new(flags, index, queue))
            .map_err(|errno| XdpError::from_bind(interface, queue, errno.into()))?;
        let system = |call| move |error| XdpError::from_call(interface, call, error);
        self.zero_copy = sockopt::is_zero_copy(self.fd())
            .map_err(system("asking for the socket's copy mode"))?;
        if let Some(us) = options.busy_poll_us {
            sockopt::prefer_busy_poll(self.fd(), us.get(), BATCH as u32)
                .map_err(system("switching on busy polling"))?;
        }
        Ok(())
    }

    /// Puts the receive chunks on the fill ring.
    fn fill_with(&mut self, mut frames: Vec<Frame>) {
        for frame in &mut frames {
            self.arrivals.note(self.umem.bytes_mut(frame));
        }
        let count = frames.len();
        let lent = frames.into_iter().map(|frame| self.umem.lend(frame, Side::Receive).addr);
        let filled = self.rings.fill.produce(lent);
        assert_eq!(filled, count, "the fill ring is larger than the receive chunks");
    }

    /// The queue it is bound to.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Whether the driver works on the UMEM itself.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// For polling, and for the XSKMAP.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the statistics of kernel and steering program. A system call: not for the engine
    /// thread.
    ///
    /// # Errors
    /// The error of the system call; it fails only for a socket whose interface is gone.
    pub fn statistics(&self) -> io::Result<XskStatistics> {
        let kernel = sockopt::statistics(self.fd())?;
        Ok(XskStatistics { rx_unread: self.read_sign.dropped(), ..kernel })
    }

    /// The error after which doorbells were given up, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        self.failure.map(Into::into)
    }

    /// Hands at most `max` received chunks to `on_chunk`, with whether the packet goes on in the
    /// next one, and gives each back to the kernel. Returns how many there were.
    #[inline]
    pub fn receive(&mut self, max: usize, mut on_chunk: impl FnMut(&mut [u8], bool)) -> usize {
        self.receive_some(max, |chunks| {
            for chunk in chunks {
                on_chunk(chunk.bytes, chunk.continued);
            }
        })
    }

    /// As [`Socket::receive`], some chunks at a time.
    #[inline]
    pub fn receive_some(
        &mut self,
        max: usize,
        mut on_chunks: impl FnMut(&mut [Chunk<'_>]),
    ) -> usize {
        let max = max.min(BATCH);
        let mut count = self.rings.receive.consume(&mut self.rx_batch[..max]);
        if count == 0 {
            // A look after this was told: then nothing that came before it is held for unread.
            self.read_sign.emptied();
            count = self.rings.receive.consume(&mut self.rx_batch[..max]);
        }
        if count > 0 {
            self.arrivals.prefetch(count);
        }
        let mut kept = 0;
        for first in (0..count).step_by(backend::BATCH) {
            // Lists are filled where they lie, here and in the backend: one that is collected or
            // given away is copied whole, however little is in it, which took 0.26 us of a READ.
            let mut frames: ArrayVec<Frame, { backend::BATCH }> = ArrayVec::new();
            for index in first..count.min(first + backend::BATCH) {
                match self.umem.reclaim(self.rx_batch[index], Side::Receive) {
                    Some(frame) => frames.push(frame),
                    None => self.counters.descriptors_refused.add(1),
                }
            }
            {
                let mut chunks: ArrayVec<Chunk<'_>, { backend::BATCH }> = ArrayVec::new();
                for frame in &mut frames {
                    let continued = frame.is_continued();
                    let bytes = self.umem.bytes_mut(frame);
                    // Another core has just written them. The lines of all together, not one after
                    // the other as headers are parsed and frames are opened; the processor sees by
                    // itself how a long packet goes on.
                    prefetch(&bytes[..bytes.len().min(PREFETCHED)]);
                    self.arrivals.note(bytes);
                    chunks.push(Chunk { bytes, continued });
                }
                on_chunks(&mut chunks);
            }
            for frame in frames.drain(..) {
                self.rx_batch[kept] = self.umem.lend(frame, Side::Receive);
                kept += 1;
            }
        }
        if kept > 0 {
            let lent = self.rx_batch[..kept].iter().map(|desc| desc.addr);
            let filled = self.rings.fill.produce(lent);
            if filled < kept {
                self.counters.chunks_lost.add((kept - filled) as u64);
            }
        }
        // The ring's index is looked at anew only after all that was seen has been taken.
        if count < max {
            self.read_sign.emptied();
        }
        // Only zero-copy drivers ever ask for this. Also when nothing came: a driver that ran out
        // of chunks sleeps until it is told that there are some.
        if (self.zero_copy && self.rings.fill.needs_wakeup()) || (self.busy_poll && count == 0) {
            self.wake_receive();
        }
        count
    }

    #[cold]
    fn wake_receive(&self) {
        // The answer is of no use: what arrived is on the ring, and what failed is asked again.
        let _: Result<_, Errno> = rustix::net::recv(self.fd(), &mut [0_u8; 0], RecvFlags::DONTWAIT);
    }

    /// How many chunks can be taken for transmission. Collects what the kernel is done with.
    #[inline]
    pub fn room(&mut self) -> usize {
        if self.in_flight > 0 {
            self.collect_completed();
        }
        self.free.len()
    }

    fn collect_completed(&mut self) {
        loop {
            let count = self.rings.completion.consume(&mut self.completed[..]);
            for &addr in &self.completed[..count] {
                let desc = Desc { addr, ..Desc::default() };
                match self.umem.reclaim(desc, Side::Transmit) {
                    Some(frame) => self.free.push(frame),
                    None => self.counters.descriptors_refused.add(1),
                }
            }
            self.in_flight = self.in_flight.saturating_sub(count as u32);
            if count < BATCH {
                break;
            }
        }
        self.flush.on_complete(self.in_flight);
    }

    /// How many chunks can be taken without asking the kernel for more.
    #[inline]
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// A free transmit chunk, as long as it can be. See [`Socket::room`].
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        let mut frame = self.free.pop()?;
        frame.set_len(usize::MAX);
        Some(frame)
    }

    /// The UMEM, and at most `max` of the chunks that are free, as long as they can be, to be
    /// written where they lie. The last one is the next to be taken. [`Socket::stage_free`] says
    /// which are sent.
    #[inline]
    pub(crate) fn free_chunks(&mut self, max: usize) -> (&Umem, &mut [Frame]) {
        let first = self.free.len().saturating_sub(max);
        let chunks = &mut self.free[first..];
        for chunk in &mut *chunks {
            chunk.set_len(usize::MAX);
        }
        (&self.umem, chunks)
    }

    /// Stages the first bytes of free chunks for sending, from the last one back: of each as many
    /// as the iterator says, or none, and then it stays free.
    #[inline]
    pub(crate) fn stage_free(&mut self, lens: impl Iterator<Item = Option<usize>>) {
        let mut index = self.free.len();
        for len in lens {
            index -= 1;
            if let Some(len) = len {
                let chunk = self.free.remove(index);
                self.stage(chunk, len, false);
            }
        }
    }

    /// Returns a chunk that was taken and is not sent.
    #[inline]
    pub fn give_back(&mut self, frame: Frame) {
        self.free.push(frame);
    }

    /// The bytes of a chunk that was taken from this socket.
    ///
    /// # Panics
    /// If `frame` is another socket's.
    #[inline]
    pub fn bytes_mut<'f>(&'f self, frame: &'f mut Frame) -> &'f mut [u8] {
        self.umem.bytes_mut(frame)
    }

    /// Stages the first `len` bytes of a chunk for sending; the packet goes on in the next one
    /// staged if it is `continued`. Nothing is sent before [`Socket::commit`].
    #[inline]
    pub fn stage(&mut self, mut frame: Frame, len: usize, continued: bool) {
        frame.set_len(len);
        frame.set_continued(continued);
        self.staged.push(self.umem.lend(frame, Side::Transmit));
    }

    /// Puts what is staged on the transmit ring. [`Socket::flush`] tells the kernel.
    #[inline]
    pub fn commit(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        let count = self.rings.transmit.produce(self.staged.iter().copied());
        // All or nothing. There is room, but if there were none, they would wait for the next call.
        if count > 0 {
            self.in_flight += count as u32;
            self.flush.on_submit(count as u32);
            self.staged.clear();
        }
    }

    /// Rings the doorbell if descriptors are waiting and the driver does not poll by itself.
    #[inline]
    pub fn flush(&mut self, now: Instant) {
        if self.flush.is_pending() {
            self.ring_doorbell(now);
        }
    }

    fn ring_doorbell(&mut self, now: Instant) {
        for _ in 0..RINGS_MAX {
            if !self.flush.wants_ring(now, self.rings.transmit.needs_wakeup()) {
                break;
            }
            let before = self.rings.transmit.room();
            self.counters.tx_wakeups.add(1);
            let ring = match rustix::net::send(self.fd(), &[], SendFlags::DONTWAIT) {
                Ok(_) => Ring::Taken,
                Err(errno) => self.on_wakeup_error(errno, before),
            };
            self.flush.on_ring(now, ring);
            if ring != Ring::Partly {
                break;
            }
        }
    }

    /// Not every error of a wake-up is one. A full ring or a busy driver is ordinary operation.
    #[cold]
    fn on_wakeup_error(&mut self, errno: Errno, room_before: usize) -> Ring {
        match errno {
            // These mean that the socket or the interface is gone, or that the call is wrong: no
            // repetition mends them. They are the only fatal ones.
            Errno::BADF
            | Errno::NOTSOCK
            | Errno::INVAL
            | Errno::OPNOTSUPP
            | Errno::NXIO
            | Errno::NODEV
            | Errno::PERM
            | Errno::ACCESS => {
                self.counters.tx_wakeups_failed.add(1);
                self.failure = Some(errno);
                Ring::Refused
            }
            Errno::NETDOWN => {
                self.counters.tx_wakeups_down.add(1);
                Ring::Refused
            }
            // EAGAIN: the kernel's budget for one call is used up, or its socket buffer is full.
            // EBUSY, ENOBUFS: the driver's queue or memory is full. EINTR: a signal came.
            _ => {
                self.counters.tx_wakeups_busy.add(1);
                if self.rings.transmit.room() > room_before { Ring::Partly } else { Ring::Busy }
            }
        }
    }
}
