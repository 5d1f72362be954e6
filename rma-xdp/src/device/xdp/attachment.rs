//! What a backend has of an interface: the steering program on it, a socket for each receive queue,
//! their memory.
//!
//! It is made and dropped as a whole, on the control path: where the interface goes away, all of it
//! is of no use any more, and one that comes back has another index, and perhaps other queues and
//! another MTU.
//!
//! Invariant: dropping it detaches the program before the sockets are closed, and closes the
//! sockets before their memory is unmapped, so traffic falls back to the kernel without a gap in
//! which it goes nowhere.

use std::{fmt, sync::Arc, thread, time::Duration};

use xsk_rs::config::QueueSize;

use super::{
    choice::{self, ModeReason},
    config::{AttachMode, XdpConfig},
    counters::Counters,
    description::{Description, Fallback, Feature},
    device::Device,
    doubts::Doubts,
    error::{Refusal, XdpError},
    linear::Linearizer,
    packet::{self, ETHERNET_LEN},
    port::ReservedPorts,
    queues::ReadSign,
    socket::{Options, Socket},
    steering::{Steered, Steering},
    umem::CHUNK_DATA,
    watch::Watched,
};
use crate::device::{monotonic::monotonic, net::PathTable};
use rma_core::backend::BATCH;

/// Ethernet header and two VLAN tags: what a packet has besides its MTU.
const LINK_HEADERS: usize = ETHERNET_LEN + packet::VLAN_TAGS_MAX * packet::VLAN_TAG_LEN;
/// The largest MTU whose packets fit into one chunk.
pub(crate) const SINGLE_BUFFER_MTU: u32 = (CHUNK_DATA - LINK_HEADERS) as u32;
/// The smallest MTUs of a link, from RFC 1122 (576 octets) and RFC 8200 (1280).
const MTU_MIN_V4: u32 = 576;
const MTU_MIN_V6: u32 = 1280;
/// The queue that transmits.
pub(super) const TX_QUEUE: usize = 0;
/// How long a queue may take to become free. The kernel gives a queue back from a worker thread, a
/// moment after the socket on it was closed or its process killed (`xp_put_pool` in
/// <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk_buff_pool.c>), and the next start
/// should not fail for that. Longer only delays the error about a queue that is really in use.
const QUEUE_FREE_AFTER: Duration = Duration::from_secs(1);

/// The interface, as far as it is ours.
pub(super) struct Attachment {
    // Dropped in this order.
    steering: Steering,
    pub(super) watched: Watched,
    pub(super) queues: Box<[Queue]>,
    ports: Arc<ReservedPorts>,
    /// The longest IP packet that the buffers can hold.
    pub(super) mtu_max: u32,
    /// Where frames are written whose packets may need several chunks: a buffer for each frame of a
    /// batch, as large as a packet, as a frame may be alone in one. `None` if no packet can.
    pub(super) tx_frames: Option<Box<[Box<[u8]>]>>,
    /// Transmit chunks that the longest packet needs.
    pub(super) chunks_max: usize,
    pub(super) description: Description,
}

/// A receive queue.
pub(super) struct Queue {
    pub(super) socket: Socket,
    pub(super) linearizer: Linearizer,
}

impl Attachment {
    /// Reserves the ports, attaches the steering program, binds a socket to each receive queue.
    /// Must be called in the network namespace of the interface. `generic_lost_frames`: what was
    /// attached before in generic mode did.
    pub(super) fn open(
        config: &XdpConfig,
        paths: &PathTable,
        counters: &Arc<Counters>,
        generic_lost_frames: bool,
    ) -> Result<Self, XdpError> {
        let interface = &*config.interface;
        let device = Device::open(interface)?;
        let mtu = paths.interface_mtu();
        check_mtu(config, mtu)?;
        let multi_buffer = mtu > SINGLE_BUFFER_MTU;

        let driver = device.driver();
        let driver = driver.as_deref();
        let candidates = choice::candidates(interface, config.mode, driver, generic_lost_frames)?;
        let mut fallbacks = Vec::new();
        let queue_count = device.rx_queues(choice::has_ports(driver)).unwrap_or_else(|reason| {
            let (wanted, got) = (Feature::AllQueues, Feature::OneQueue);
            fallbacks.push(Fallback { wanted, got, reason });
            1
        });
        let addresses = &config.local_addresses;
        let ports = config.ports()?;
        let reserved = ReservedPorts::reserve(interface, device.index, addresses, &ports)?;
        let steered = Steered {
            ports: &ports,
            addresses,
            queues: queue_count,
            rx_chunks: config.rx_chunks(),
            multi_buffer,
        };
        let mut steering = Steering::attach(interface, device.index, &steered, candidates)?;
        fallbacks.extend(steering.fallback());

        let mtu_max = if multi_buffer { mtu } else { SINGLE_BUFFER_MTU };
        let packet_max = LINK_HEADERS + mtu_max as usize;
        let mut queues = Vec::with_capacity(queue_count as usize);
        let read_signs = steering.read_signs(interface, queue_count)?;
        for (queue, read_sign) in (0..queue_count).zip(&read_signs) {
            let generic = steering.mode() == AttachMode::Generic;
            let options = options(config, queue, generic, multi_buffer);
            let socket = open_socket(&options, read_sign, mtu, counters)?;
            let linearizer = Linearizer::new(if multi_buffer { packet_max } else { 0 });
            queues.push(Queue { socket, linearizer });
        }
        for Queue { socket, .. } in &queues {
            steering.redirect(interface, socket.queue(), socket.fd())?;
        }
        // Frames until now went past the program, as they must.
        let _before = reserved.drain();

        let sockets = queues.iter().map(|queue: &Queue| queue.socket.fd());
        let watched = Watched::new(sockets, read_signs).map_err(|source| {
            XdpError::from_call(interface, "duplicating a socket's descriptor", source)
        })?;

        let zero_copy = queues.iter().all(|queue| queue.socket.is_zero_copy());
        if !zero_copy {
            let reason = match steering.mode() {
                AttachMode::Native => Refusal::Driver,
                AttachMode::Generic => Refusal::GenericMode,
            };
            let (wanted, got) = (Feature::ZeroCopy, Feature::Copy);
            fallbacks.push(Fallback { wanted, got, reason });
        }
        let description = Description {
            interface: config.interface.clone(),
            mode: steering.mode(),
            mode_reason: steering.reason(),
            zero_copy,
            queues: queue_count,
            multi_buffer,
            mtu,
            fallbacks,
        };
        Ok(Self {
            steering,
            watched,
            queues: queues.into_boxed_slice(),
            ports: Arc::new(reserved),
            mtu_max,
            tx_frames: multi_buffer.then(|| tx_frames(packet_max)),
            chunks_max: packet_max.div_ceil(CHUNK_DATA),
            description,
        })
    }

    /// Where the steering program runs.
    pub(super) fn mode(&self) -> AttachMode {
        self.steering.mode()
    }

    /// What looks whether the mode was a good choice, if there would be another.
    pub(super) fn doubts(&self) -> Option<Doubts> {
        let watch = self.watched.watch();
        (self.steering.reason() == ModeReason::FasterOnVeth)
            .then(|| Doubts::new(&self.ports, watch, self.description.multi_buffer))
    }
}

impl fmt::Debug for Attachment {
    /// Thousands of chunks tell nobody anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("description", &self.description).finish_non_exhaustive()
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

fn options(config: &XdpConfig, queue: u32, generic: bool, multi_buffer: bool) -> Options<'_> {
    let ring = |size| QueueSize::new(size).expect("the configuration was checked");
    let transmits = queue as usize == TX_QUEUE;
    Options {
        interface: &config.interface,
        queue,
        rx_ring: ring(config.rx_ring),
        tx_ring: ring(config.tx_ring),
        rx_chunks: config.rx_chunks(),
        tx_chunks: if transmits { config.tx_chunks() } else { 0 },
        force_copy: generic,
        multi_buffer,
        busy_poll_us: config.busy_poll_us,
    }
}

fn open_socket(
    options: &Options<'_>,
    read_sign: &ReadSign,
    mtu: u32,
    counters: &Arc<Counters>,
) -> Result<Socket, XdpError> {
    let give_up = monotonic() + QUEUE_FREE_AFTER;
    let opened = loop {
        match Socket::open(options, read_sign.clone(), Arc::clone(counters)) {
            Err(XdpError::QueueInUse { .. }) if monotonic() < give_up => thread::yield_now(),
            opened => break opened,
        }
    };
    opened.map_err(|error| match error {
        // How kernels and drivers without multi-buffer support refuse the flag for it.
        XdpError::System { interface, source, .. }
            if options.multi_buffer
                && matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) =>
        {
            XdpError::MultiBuffer { interface, mtu, limit: SINGLE_BUFFER_MTU, source }
        }
        other => other,
    })
}

/// See [`Attachment::tx_frames`].
fn tx_frames(packet_len_max: usize) -> Box<[Box<[u8]>]> {
    (0..BATCH).map(|_| vec![0; packet_len_max].into_boxed_slice()).collect()
}
