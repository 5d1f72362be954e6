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
//! doorbell. xsk-rs is used for what it does well (set-up, rings); its `wakeup` is not, because it
//! hides whether the kernel took everything, and without that answer frames would be left lying.

use std::{
    fmt, io,
    num::NonZeroU32,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
};

use arrayvec::ArrayVec;
use rma_core::{backend, time::Instant};
use rma_shm::prefetch;
use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    net::{RecvFlags, SendFlags},
};
use xsk_rs::{
    config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig},
    socket::{RxQueue, TxQueue},
    umem::{CompQueue, FillQueue, frame::FrameDesc},
};

use super::{
    arrivals::Arrivals,
    choice::Copying,
    counters::Counters,
    error::XdpError,
    flush::{FlushPolicy, Ring},
    queues::ReadSign,
    sockopt::{self, XskStatistics},
    umem::{Frame, FrameBytes, Side, Umem},
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
    pub(crate) interface: &'a str,
    pub(crate) queue: u32,
    /// Size of the receive ring; the fill ring has twice this.
    pub(crate) rx_ring: QueueSize,
    /// Size of the completion ring; the transmit ring has twice this.
    pub(crate) tx_ring: QueueSize,
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
    // The queues come before the UMEM: fields are dropped in this order, and the last queue closes
    // the socket. (xsk-rs keeps the memory mapped for as long as any queue lives, whatever the
    // order.)
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    umem: Umem,
    fd: RawFd,
    queue: u32,
    zero_copy: bool,
    busy_poll: bool,
    /// Descriptors of one batch on the receive side.
    rx_batch: Box<[FrameDesc; BATCH]>,
    /// The places of the next packets.
    arrivals: Arrivals,
    /// Tells the steering program that the receive ring is empty.
    read_sign: ReadSign,
    /// Descriptors of one batch from the completion ring.
    completed: Box<[FrameDesc; BATCH]>,
    /// Descriptors staged for the transmit ring. Never longer than the number of transmit chunks.
    staged: Vec<FrameDesc>,
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
    pub bytes: FrameBytes<'f>,
    /// Whether the packet goes on in the next chunk.
    pub continued: bool,
}

/// libxdp makes its sockets without it. A program that another thread starts between that and this,
/// some milliseconds, has the socket, and with it the queue, for as long as it runs.
fn close_on_exec(socket: &RxQueue) -> Result<(), Errno> {
    // SAFETY: the queue keeps its socket open for as long as it is borrowed, which is until the end
    // of this function.
    let socket = unsafe { BorrowedFd::borrow_raw(socket.fd().as_raw_fd()) };
    fcntl_setfd(socket, FdFlags::CLOEXEC)
}

impl Socket {
    /// Maps a UMEM, binds a socket to the queue and fills the fill ring. The caller puts the socket
    /// into the XSKMAP.
    ///
    /// # Errors
    /// Those of [`Umem::new`], [`XdpError::QueueInUse`], [`XdpError::System`].
    pub(super) fn open(
        options: &Options<'_>,
        read_sign: ReadSign,
        counters: Arc<Counters>,
    ) -> Result<Self, XdpError> {
        let Options { interface, queue, .. } = *options;
        let chunk_count = NonZeroU32::new(options.rx_chunks + options.tx_chunks)
            .expect("a configuration without chunks is refused");
        let twice = |ring: QueueSize| {
            QueueSize::new(ring.get() * 2).expect("twice a power of two is a power of two")
        };
        let (umem, mut frames) =
            Umem::new(interface, chunk_count, twice(options.rx_ring), options.tx_ring)?;

        let mut bind_flags = BindFlags::XDP_USE_NEED_WAKEUP;
        match options.copying {
            Copying::Either => {}
            Copying::Copy(_) => bind_flags |= BindFlags::XDP_COPY,
            Copying::ZeroCopy => bind_flags |= BindFlags::XDP_ZEROCOPY,
        }
        bind_flags.set(BindFlags::XDP_USE_SG, options.multi_buffer);
        let config = SocketConfig::builder()
            .rx_queue_size(options.rx_ring)
            .tx_queue_size(twice(options.tx_ring))
            .bind_flags(bind_flags)
            // The steering program is ours.
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .build();
        let name: Interface = interface.parse().map_err(|_nul: std::ffi::NulError| {
            XdpError::UnknownInterface { interface: interface.into() }
        })?;
        // SAFETY: the UMEM is not shared, it was made above.
        let bound = unsafe { xsk_rs::Socket::new(config, umem.inner(), &name, queue) };
        let (tx, rx, fill_and_completion) =
            bound.map_err(|error| XdpError::from_socket(interface, queue, &error))?;
        let (fill, completion) = fill_and_completion
            .expect("the first socket of a UMEM gets its fill and completion rings");

        let fd = rx.fd().as_raw_fd();
        close_on_exec(&rx).map_err(|errno| {
            XdpError::from_call(interface, "having the socket closed on exec", errno.into())
        })?;
        let tx_frames = frames.split_off(options.rx_chunks as usize);
        let mut socket = Self {
            rx,
            tx,
            fill,
            completion,
            umem,
            fd,
            queue,
            zero_copy: false,
            busy_poll: options.busy_poll_us.is_some(),
            rx_batch: Box::new([FrameDesc::default(); BATCH]),
            arrivals: Arrivals::new(frames.len()),
            read_sign,
            completed: Box::new([FrameDesc::default(); BATCH]),
            staged: Vec::with_capacity(tx_frames.len()),
            free: tx_frames,
            in_flight: 0,
            flush: FlushPolicy::default(),
            failure: None,
            counters,
        };
        let system = |call| move |error: io::Error| XdpError::from_call(interface, call, error);
        socket.zero_copy = sockopt::is_zero_copy(socket.fd())
            .map_err(system("asking for the socket's copy mode"))?;
        if let Some(us) = options.busy_poll_us {
            sockopt::prefer_busy_poll(socket.fd(), us.get(), BATCH as u32)
                .map_err(system("switching on busy polling"))?;
        }
        socket.fill_with(frames);
        Ok(socket)
    }

    /// Puts the receive chunks on the fill ring.
    fn fill_with(&mut self, mut frames: Vec<Frame>) {
        for frame in &mut frames {
            self.arrivals.note(&self.umem.bytes_mut(frame));
        }
        let descs: Vec<FrameDesc> =
            frames.into_iter().map(|frame| self.umem.lend(frame, Side::Receive)).collect();
        // SAFETY: the descriptors are of this UMEM, and lent to the receive side just now.
        let count = unsafe { self.fill.produce(&descs) };
        assert_eq!(count, descs.len(), "the fill ring is larger than the receive chunks");
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
        // SAFETY: the queues keep the socket open for as long as `self`, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
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
                on_chunk(&mut chunk.bytes, chunk.continued);
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
        // SAFETY: the descriptors are only written to.
        let mut count = unsafe { self.rx.consume(&mut self.rx_batch[..max]) };
        if count == 0 {
            // A look after this was told: then nothing that came before it is held for unread.
            self.read_sign.emptied();
            // SAFETY: as above.
            count = unsafe { self.rx.consume(&mut self.rx_batch[..max]) };
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
                    self.arrivals.note(&bytes);
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
            // SAFETY: the descriptors are of this UMEM, and lent to the receive side just now.
            let filled = unsafe { self.fill.produce(&self.rx_batch[..kept]) };
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
        if (self.zero_copy && self.fill.needs_wakeup()) || (self.busy_poll && count == 0) {
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
            // SAFETY: the descriptors are only written to.
            let count = unsafe { self.completion.consume(&mut self.completed[..]) };
            for desc in &self.completed[..count] {
                match self.umem.reclaim(*desc, Side::Transmit) {
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
        self.umem.set_len(&mut frame, usize::MAX);
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
            self.umem.set_len(chunk, usize::MAX);
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
    pub fn bytes_mut<'f>(&'f self, frame: &'f mut Frame) -> FrameBytes<'f> {
        self.umem.bytes_mut(frame)
    }

    /// Stages the first `len` bytes of a chunk for sending; the packet goes on in the next one
    /// staged if it is `continued`. Nothing is sent before [`Socket::commit`].
    #[inline]
    pub fn stage(&mut self, mut frame: Frame, len: usize, continued: bool) {
        // A completed descriptor has length zero, so the length is set for each transmission.
        self.umem.set_len(&mut frame, len);
        frame.set_continued(continued);
        self.staged.push(self.umem.lend(frame, Side::Transmit));
    }

    /// Puts what is staged on the transmit ring. [`Socket::flush`] tells the kernel.
    #[inline]
    pub fn commit(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        // SAFETY: the descriptors are of this UMEM, and lent to the transmit side when staged.
        let count = unsafe { self.tx.produce(&self.staged) };
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
            if !self.flush.wants_ring(now, self.tx.needs_wakeup()) {
                break;
            }
            let before = self.tx.nb_free_exact();
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
    fn on_wakeup_error(&mut self, errno: Errno, free_before: u32) -> Ring {
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
                if self.tx.nb_free_exact() > free_before { Ring::Partly } else { Ring::Busy }
            }
        }
    }
}
