//! An engine's share of an attachment: a socket for each of its receive queues, and their memory.
//!
//! Engine e of n has the queues whose numbers leave e when they are divided by n, and transmits on
//! the first of them, number e.
//!
//! Invariant: where it is the last one its drop detaches the program before the sockets are closed,
//! and closes the sockets before their memory is unmapped, so traffic falls back to the kernel
//! without a gap in which it goes nowhere. Where others are left the kernel takes its sockets out
//! of the program's map, and frames on its queues go to the kernel.

use std::{fmt, sync::Arc, thread, time::Duration};

use rma_core::backend::BATCH;

use super::{
    attachment::{Attachment, LINK_HEADERS, SINGLE_BUFFER_MTU},
    choice::Copying,
    config::XdpConfig,
    counters::Counters,
    device::RxQueues,
    error::{BIND, XdpError},
    linear::Linearizer,
    occupant,
    socket::{Options, Socket},
    umem::CHUNK_DATA,
    watch::Watched,
};
use crate::device::{engines::queues_of, monotonic::monotonic};

/// The one of an engine's queues that transmits.
pub(super) const TX_QUEUE: usize = 0;
/// How long a queue may take to become free. The kernel gives a queue back from a worker thread, a
/// moment after the socket on it was closed or its process killed (`xp_put_pool` in
/// <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk_buff_pool.c>), and the next start
/// should not fail for that. Longer only delays the error about a queue that is really in use.
const QUEUE_FREE_AFTER: Duration = Duration::from_secs(1);

/// The same where no process is found that has it: then the kernel is still at it, which has taken
/// more than a second at a load of 17 on two cores.
const UNHELD_QUEUE_FREE_AFTER: Duration = Duration::from_secs(5);

/// The queues of an engine.
pub(super) struct Share {
    // Dropped in this order.
    pub(super) attachment: Arc<Attachment>,
    pub(super) watched: Watched,
    /// At least one.
    pub(super) queues: Box<[Queue]>,
    /// The longest IP packet that the buffers can hold.
    pub(super) mtu_max: u32,
    /// The buffers for frames whose packets may need several chunks: a buffer for each frame of a
    /// batch, as large as a packet, as a frame may be alone in one. `None` if no packet can.
    pub(super) tx_frames: Option<Box<[Box<[u8]>]>>,
    /// Transmit chunks that the longest packet needs.
    pub(super) chunks_max: usize,
}

/// A receive queue.
pub(super) struct Queue {
    pub(super) socket: Socket,
    pub(super) linearizer: Linearizer,
}

impl Share {
    /// Opens the shares of all engines for which there are counters, and has frames come to their
    /// sockets. The others may have theirs later.
    pub(super) fn open_each(
        attachment: &Arc<Attachment>,
        config: &XdpConfig,
        counters: &[Option<&Arc<Counters>>],
    ) -> Result<Vec<Option<Box<Self>>>, XdpError> {
        let each = (0..).zip(counters).map(|(engine, counters)| {
            counters.map(|counters| Self::open(attachment, config, engine, counters)).transpose()
        });
        let shares = each.collect::<Result<Vec<_>, _>>()?;
        attachment.begin(shares.iter().flatten().flat_map(|share| share.sockets()))?;
        Ok(shares)
    }

    /// Opens the share of an engine that could not have it when others got theirs.
    pub(super) fn open_late(
        attachment: &Arc<Attachment>,
        config: &XdpConfig,
        engine: u32,
        counters: &Arc<Counters>,
    ) -> Result<Box<Self>, XdpError> {
        let share = Self::open(attachment, config, engine, counters)?;
        share.sockets().try_for_each(|socket| attachment.redirect(socket))?;
        Ok(share)
    }

    /// Binds a socket to each of the engine's receive queues.
    fn open(
        attachment: &Arc<Attachment>,
        config: &XdpConfig,
        engine: u32,
        counters: &Arc<Counters>,
    ) -> Result<Box<Self>, XdpError> {
        let Attachment { multi_buffer, engines, there, most, read_signs, .. } = &**attachment;
        let mtu_max = attachment.mtu_max();
        let packet_max = LINK_HEADERS + mtu_max as usize;
        let mut queues = Vec::new();
        for queue in queues_of(engine, *engines, *most) {
            let opened = open_socket(attachment, config, queue, counters);
            let socket = match opened {
                Ok(socket) => socket,
                // So the kernel says that there are no more, to whoever has one already.
                Err(
                    XdpError::System { call: BIND, source, .. }
                    | XdpError::MultiBuffer { source, .. },
                ) if queue > 0
                    && matches!(there, RxQueues::AtMost(_))
                    && source.raw_os_error() == Some(libc::EINVAL) =>
                {
                    break;
                }
                Err(XdpError::System { interface, call: BIND, source })
                    if attachment.copying == Copying::ZeroCopy =>
                {
                    let reason = attachment.why_copy();
                    return Err(XdpError::ZeroCopy { interface, reason, source });
                }
                Err(error) => return Err(error),
            };
            let linearizer = Linearizer::new(if *multi_buffer { packet_max } else { 0 });
            queues.push(Queue { socket, linearizer });
        }
        if queues.is_empty() {
            return Err(XdpError::too_few_queues(&attachment.name, engine, engine, *engines));
        }
        let signs = queues_of(engine, *engines, *most).map(|it| read_signs[it as usize].clone());
        let watched = Watched::new(queues.iter().map(|it| it.socket.fd()).zip(signs));
        let watched = watched.map_err(|source| {
            XdpError::from_call(&attachment.name, "duplicating a socket's descriptor", source)
        })?;
        Ok(Box::new(Self {
            attachment: Arc::clone(attachment),
            watched,
            queues: queues.into_boxed_slice(),
            mtu_max,
            tx_frames: multi_buffer.then(|| tx_frames(packet_max)),
            chunks_max: packet_max.div_ceil(CHUNK_DATA),
        }))
    }

    fn sockets(&self) -> impl Iterator<Item = &Socket> + Clone {
        self.queues.iter().map(|queue| &queue.socket)
    }
}

impl fmt::Debug for Share {
    /// Thousands of chunks tell nobody anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("attachment", &self.attachment).finish_non_exhaustive()
    }
}

fn options<'a>(attachment: &'a Attachment, config: &XdpConfig, queue: u32) -> Options<'a> {
    // The first of its engine's.
    let transmits = queue < attachment.engines;
    Options {
        interface: &attachment.name,
        index: attachment.index,
        queue,
        rx_ring: config.rx_ring,
        tx_ring: config.tx_ring,
        rx_chunks: config.rx_chunks(),
        tx_chunks: if transmits { config.tx_chunks() } else { 0 },
        copying: attachment.copying,
        multi_buffer: attachment.multi_buffer,
        busy_poll_us: config.busy_poll_us,
    }
}

fn open_socket(
    attachment: &Attachment,
    config: &XdpConfig,
    queue: u32,
    counters: &Arc<Counters>,
) -> Result<Socket, XdpError> {
    let options = options(attachment, config, queue);
    let read_sign = &attachment.read_signs[queue as usize];
    let mtu = attachment.mtu;
    let began = monotonic();
    let mut look_after = QUEUE_FREE_AFTER;
    let opened = loop {
        let waited = monotonic() - began;
        match Socket::open(&options, read_sign.clone(), Arc::clone(counters)) {
            Err(XdpError::QueueInUse { .. }) if waited < look_after => {
                thread::park_timeout(Duration::from_millis(1));
            }
            Err(XdpError::QueueInUse { interface, queue, .. }) => {
                let holder = occupant::queue_holder(attachment.index, queue);
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
        XdpError::System { interface, call: BIND, source }
            if options.multi_buffer
                && options.copying != Copying::ZeroCopy
                && matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) =>
        {
            XdpError::MultiBuffer { interface, mtu, limit: SINGLE_BUFFER_MTU, source }
        }
        other => other,
    })
}

/// See [`Share::tx_frames`].
fn tx_frames(packet_len_max: usize) -> Box<[Box<[u8]>]> {
    (0..BATCH).map(|_| vec![0; packet_len_max].into_boxed_slice()).collect()
}
