//! A backend's attachment to an interface: the steering program on it, a socket for each receive
//! queue, their memory.
//!
//! It is made and dropped as a whole, on the control path: where the interface goes away, all of it
//! is of no use any longer, and one that comes back has another index, and perhaps other queues and
//! another MTU.
//!
//! Invariant: dropping it detaches the program before the sockets are closed, and closes the
//! sockets before their memory is unmapped, so traffic falls back to the kernel without a gap in
//! which it goes nowhere.

use core::ops::Range;
use std::{fmt, sync::Arc, thread, time::Duration};

use xsk_rs::config::QueueSize;

use super::{
    broken::Release,
    choice::{self, Copying, ModeReason, ZeroCopy},
    config::{AttachMode, XdpConfig},
    counters::Counters,
    description::{Description, Fallback, Feature},
    device::{Device, RxQueues},
    doubts::Doubts,
    error::{InterfaceName, Refusal, XdpError},
    linear::Linearizer,
    occupant,
    packet::{self, ETHERNET_LEN},
    port::ReservedPorts,
    queues::ReadSign,
    socket::{Options, Socket},
    steering::{Steered, Steering},
    umem::CHUNK_DATA,
    watch::Watched,
};
use crate::device::{
    monotonic::monotonic,
    net::{self, PathTable, XdpFeatures},
};
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

/// The same where no process is found that has it: then the kernel is still at it, which has taken
/// more than a second at a load of 17 on two cores.
const UNHELD_QUEUE_FREE_AFTER: Duration = Duration::from_secs(5);

/// The interface, as far as it is ours.
pub(super) struct Attachment {
    // Dropped in this order.
    steering: Steering,
    pub(super) watched: Watched,
    pub(super) queues: Box<[Queue]>,
    ports: Arc<ReservedPorts>,
    /// The interface's.
    index: u32,
    /// The longest IP packet that the buffers can hold.
    pub(super) mtu_max: u32,
    /// The buffers for frames whose packets may need several chunks: a buffer for each frame of a
    /// batch, as large as a packet, as a frame may be alone in one. `None` if no packet can.
    pub(super) tx_frames: Option<Box<[Box<[u8]>]>>,
    /// Transmit chunks that the longest packet needs.
    pub(super) chunks_max: usize,
    pub(super) description: Description,
}

/// The experience with earlier attachments to the same interface.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Learnt {
    /// One in generic mode lost frames.
    pub(super) generic_lost_frames: bool,
    pub(super) zero_copy: ZeroCopy,
    /// One to all receive queues was refused.
    pub(super) fewer_queues: Option<FewerQueues>,
}

/// To how many receive queues to attach, though there are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FewerQueues {
    pub(super) most: u32,
    pub(super) reason: Refusal,
}

impl FewerQueues {
    /// As many as were polled, as `error` says that the `added` ones, which are numbered from there
    /// on, cannot be had. `None` if it says something else, or there are none, or that is `known`:
    /// then it is tried again as it is.
    pub(super) fn after(error: &XdpError, added: Range<u32>, known: Option<Self>) -> Option<Self> {
        let errno = error.queue_errno().filter(|_| known.is_none() && !added.is_empty())?;
        let reason = Refusal::Errno { call: "an AF_XDP socket for each", errno };
        Some(Self { most: added.start, reason })
    }
}

/// A receive queue.
pub(super) struct Queue {
    pub(super) socket: Socket,
    pub(super) linearizer: Linearizer,
}

impl Attachment {
    /// Reserves the ports, attaches the steering program, binds a socket to each receive queue.
    /// Must be called in the network namespace of the interface. `learnt`: by attaching to
    /// it before.
    pub(super) fn open(
        config: &XdpConfig,
        paths: &PathTable,
        counters: &Arc<Counters>,
        learnt: Learnt,
    ) -> Result<Self, XdpError> {
        let index = paths.interface_index().map_or_else(|| index_of(&config.interface), Ok)?;
        let device = Device::open(index, &config.interface)?;
        let interface = &*device.name;
        if !device.is_up()? {
            return Err(XdpError::InterfaceDown { interface: interface.into() });
        }
        let mtu = paths.interface_mtu();
        check_mtu(config, mtu)?;
        let multi_buffer = mtu > SINGLE_BUFFER_MTU;

        let driver = device.driver();
        let driver = driver.as_deref();
        let candidates =
            choice::candidates(interface, config.mode, driver, learnt.generic_lost_frames)?;
        let mut fallbacks = Vec::new();
        let addresses = &config.local_addresses;
        let ports = config.ports()?;
        let reserved = ReservedPorts::reserve(interface, device.index, addresses, &ports)?;
        let queues_max = device.rx_queues_max()?;
        let steered = Steered {
            ports: &ports,
            addresses,
            queues: queues_max,
            rx_chunks: config.rx_chunks(),
            multi_buffer,
        };
        let mut steering = Steering::attach(interface, index, &steered, candidates)?;
        fallbacks.extend(steering.fallback());
        // Not before: attaching gives some interfaces more of them.
        let rx_queues = device.rx_queues()?;

        let mtu_max = if multi_buffer { mtu } else { SINGLE_BUFFER_MTU };
        let packet_max = LINK_HEADERS + mtu_max as usize;
        let most = match rx_queues {
            RxQueues::Exactly(queues) | RxQueues::AtMost(queues) => queues,
        };
        let (wanted, mode, release) = (config.mode, steering.mode(), Release::running());
        let copying = choice::copying(wanted, mode, driver, release, learnt.zero_copy);
        let why_copy = || why_copy(copying, &device, multi_buffer);
        let mut read_signs = steering.read_signs(interface, queues_max)?;
        let mut queues = Vec::new();
        let most = learnt.fewer_queues.map_or(most, |fewer| fewer.most.min(most));
        for (queue, read_sign) in (0..most).zip(&read_signs) {
            let options = options(config, interface, queue, copying, multi_buffer);
            let socket = match open_socket(&options, &device, read_sign, mtu, counters) {
                Ok(socket) => socket,
                // So the kernel says that there are no more, to whoever has one already.
                Err(XdpError::System { source, .. } | XdpError::MultiBuffer { source, .. })
                    if queue > 0
                        && matches!(rx_queues, RxQueues::AtMost(_))
                        && source.raw_os_error() == Some(libc::EINVAL) =>
                {
                    break;
                }
                Err(XdpError::System { interface, source, .. }) if copying == Copying::ZeroCopy => {
                    return Err(XdpError::ZeroCopy { interface, reason: why_copy(), source });
                }
                Err(error) => return Err(error),
            };
            let linearizer = Linearizer::new(if multi_buffer { packet_max } else { 0 });
            queues.push(Queue { socket, linearizer });
        }
        for Queue { socket, .. } in &queues {
            steering.redirect(interface, socket.queue(), socket.fd())?;
        }
        read_signs.truncate(queues.len());
        let queue_count = queues.len() as u32;
        let queues_there = match rx_queues {
            RxQueues::Exactly(queues) => queues,
            RxQueues::AtMost(_) => queue_count,
        };
        if let Some(FewerQueues { reason, .. }) = learnt.fewer_queues
            && queues_there > queue_count
        {
            let (wanted, got) = (Feature::AllQueues, Feature::SomeQueues);
            fallbacks.push(Fallback { wanted, got, reason });
        }
        // Frames until now went past the program, as they must.
        let _before = reserved.drain();

        if !device.has_its_name() {
            // Work done by its name may have been done to another interface that has it now.
            return Err(XdpError::UnknownInterface { interface: interface.into() });
        }
        let sockets = queues.iter().map(|queue: &Queue| queue.socket.fd());
        let watched = Watched::new(sockets, read_signs).map_err(|source| {
            XdpError::from_call(interface, "duplicating a socket's descriptor", source)
        })?;

        let zero_copy = queues.iter().all(|queue| queue.socket.is_zero_copy());
        if !zero_copy {
            let (wanted, got) = (Feature::ZeroCopy, Feature::Copy);
            fallbacks.push(Fallback { wanted, got, reason: why_copy() });
        }
        let description = Description {
            interface: interface.into(),
            mode: steering.mode(),
            mode_reason: steering.reason(),
            zero_copy,
            queues: queue_count,
            queues_there,
            multi_buffer,
            mtu,
            fallbacks,
        };
        Ok(Self {
            steering,
            watched,
            queues: queues.into_boxed_slice(),
            ports: Arc::new(reserved),
            index: device.index,
            mtu_max,
            tx_frames: multi_buffer.then(|| tx_frames(packet_max)),
            chunks_max: packet_max.div_ceil(CHUNK_DATA),
            description,
        })
    }

    /// Returns the mode in which the steering program is attached.
    pub(super) fn mode(&self) -> AttachMode {
        self.steering.mode()
    }

    /// Returns the doubts about the mode, if there would be another.
    pub(super) fn doubts(&self, learnt: Learnt, counters: &Arc<Counters>) -> Option<Doubts> {
        let Description { zero_copy, multi_buffer, .. } = self.description;
        if self.steering.reason() == ModeReason::FasterOnVeth {
            return Some(Doubts::of_generic(&self.ports, self.watched.watch(), multi_buffer));
        }
        Doubts::of_zero_copy(self.index, zero_copy, learnt.zero_copy, counters)
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

/// The index of an interface that nobody follows.
fn index_of(interface: &str) -> Result<u32, XdpError> {
    net::index_of(interface).map_err(|error| match error.raw_os_error() {
        // Longer than any name can be.
        Some(libc::ERANGE) => XdpError::UnknownInterface { interface: interface.into() },
        _ => XdpError::from_call(interface, "looking up the interface", error),
    })
}

fn options<'a>(
    config: &XdpConfig,
    interface: &'a str,
    queue: u32,
    copying: Copying,
    multi_buffer: bool,
) -> Options<'a> {
    let ring = |size| QueueSize::new(size).expect("the configuration was checked");
    let transmits = queue as usize == TX_QUEUE;
    Options {
        interface,
        queue,
        rx_ring: ring(config.rx_ring),
        tx_ring: ring(config.tx_ring),
        rx_chunks: config.rx_chunks(),
        tx_chunks: if transmits { config.tx_chunks() } else { 0 },
        copying,
        multi_buffer,
        busy_poll_us: config.busy_poll_us,
    }
}

fn open_socket(
    options: &Options<'_>,
    device: &Device,
    read_sign: &ReadSign,
    mtu: u32,
    counters: &Arc<Counters>,
) -> Result<Socket, XdpError> {
    let began = monotonic();
    let mut look_after = QUEUE_FREE_AFTER;
    let opened = loop {
        let waited = monotonic() - began;
        match Socket::open(options, read_sign.clone(), Arc::clone(counters)) {
            Err(XdpError::QueueInUse { .. }) if waited < look_after => {
                thread::park_timeout(Duration::from_millis(1));
            }
            Err(XdpError::QueueInUse { interface, queue, .. }) => {
                let holder = occupant::queue_holder(device.index, queue);
                if holder.is_some() || waited >= UNHELD_QUEUE_FREE_AFTER {
                    break Err(XdpError::QueueInUse { interface, queue, holder });
                }
                look_after = waited + QUEUE_FREE_AFTER;
            }
            opened => break opened,
        }
    };
    opened.map_err(|error| match error {
        // The errors by which kernels and drivers without multi-buffer support refuse the flag for
        // it.
        XdpError::System { interface, source, .. }
            if options.multi_buffer
                && options.copying != Copying::ZeroCopy
                && matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) =>
        {
            XdpError::MultiBuffer { interface, mtu, limit: SINGLE_BUFFER_MTU, source }
        }
        other => other,
    })
}

/// Returns the reason why sockets that were bound so work without zero-copy.
fn why_copy(copying: Copying, device: &Device, multi_buffer: bool) -> Refusal {
    let features = match copying {
        Copying::Copy(Refusal::GenericMode) => None,
        _ => XdpFeatures::of(device.index),
    };
    match (copying, features) {
        (_, Some(XdpFeatures { zero_copy: false, .. })) => Refusal::Driver,
        (Copying::Copy(reason), _) => reason,
        (_, Some(XdpFeatures { zero_copy_multi_buffer: false, .. })) if multi_buffer => {
            let interface = InterfaceName::new(&device.name);
            Refusal::OneBuffer { interface, limit: SINGLE_BUFFER_MTU }
        }
        (_, Some(_)) => Refusal::DriverHere,
        (_, None) => Refusal::DriverUntold,
    }
}

/// See [`Attachment::tx_frames`].
fn tx_frames(packet_len_max: usize) -> Box<[Box<[u8]>]> {
    (0..BATCH).map(|_| vec![0; packet_len_max].into_boxed_slice()).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// On an interface of four receive queues of which two were there at first.
    #[test]
    fn added_queues_that_cannot_be_had_are_given_up_once_and_other_errors_tried_again() {
        let interface: Box<str> = "eth9".into();
        let in_use = XdpError::QueueInUse { interface: interface.clone(), queue: 2, holder: None };
        let call = "bind";
        let system = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            XdpError::System { interface: interface.clone(), call, source }
        };
        for (error, errno) in [
            (in_use, libc::EBUSY),
            (
                XdpError::UmemLockedMemory { interface: interface.clone(), bytes: 4096 },
                libc::ENOBUFS,
            ),
            (system(libc::ENOMEM), libc::ENOMEM),
        ] {
            let fewer = FewerQueues::after(&error, 2..4, None);
            let reason = Refusal::Errno { call: "an AF_XDP socket for each", errno };
            assert_eq!(fewer, Some(FewerQueues { most: 2, reason }), "{error}");
            assert_eq!(FewerQueues::after(&error, 2..4, fewer), None, "it is known");
            assert_eq!(FewerQueues::after(&error, 4..4, None), None, "none was added");
        }
        let other = XdpError::NativeOnBond { interface };
        assert_eq!(FewerQueues::after(&other, 2..4, None), None, "no queue is to blame");
    }
}
