//! The common parts of every floor: a socket full of packets that are written already, and a server
//! that answers.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rma_core::{
    addr::HostAddr,
    port::{Port, SourcePort},
    time::Instant,
};
use rma_xdp::device::{
    Dscp,
    xdp::{SteeredSockets, packet::Headers, socket::Socket, umem::CHUNK_DATA},
};
use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

use super::exchange::{Exchange, Side};

/// How long an answer may take before its exchange counts as lost. Longer: each packet that is lost
/// holds up the measurement for longer. Shorter: on a busy machine, where a thread may be kept from
/// its core for a tenth of a second, answers that only come late count as lost.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(2);
/// Packets taken from the receive ring at once.
pub(super) const BURST: usize = 64;
/// Empty polls between two looks at the clock while waiting.
const POLLS_PER_LOOK: u32 = 4096;

/// Runs `measure` on the client's thread while the server answers on another. Of the packets'
/// lengths, `lens` are the client's and the server's.
pub(super) fn run<R: Send>(
    (client, server): (Side<'_>, Side<'_>),
    port: u16,
    lens: (usize, usize),
    mut answer: impl FnMut(&mut Wire<'_>) + Send,
    measure: impl FnOnce(&mut Wire<'_>) -> R + Send,
) -> R {
    let stop = &AtomicBool::new(false);
    let ready = &Barrier::new(2);
    let from = (client.address, client.mac);
    let to = (server.address, server.mac);
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(server.core);
            let headers = headers(to, from, port);
            let mut wire = Wire::new(socket(server.sockets), headers, lens.1);
            ready.wait();
            while !stop.load(Ordering::Relaxed) {
                answer(&mut wire);
            }
        });
        let measuring = scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(client.core);
            let headers = headers(from, to, port);
            let mut wire = Wire::new(socket(client.sockets), headers, lens.0);
            ready.wait();
            measure(&mut wire)
        });
        measuring.join().expect("the client does not panic")
    })
}

/// A server that sends the responses to each request.
pub(super) fn echoing(exchange: Exchange) -> impl FnMut(&mut Wire<'_>) + Send {
    move |wire| {
        let requests = wire.poll();
        wire.send(requests * exchange.responses as u64);
    }
}

/// Sets a flag when it is dropped, also by a panic: whoever waits for the flag must not spin for
/// ever.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn headers(from: (HostAddr, [u8; 6]), to: (HostAddr, [u8; 6]), port: u16) -> Headers {
    let (source, source_mac) = from;
    let (destination, next_hop_mac) = to;
    Headers {
        source_mac,
        next_hop_mac,
        source,
        destination,
        source_port: SourcePort::FIRST,
        port: Port(port),
        dscp: Dscp::default(),
    }
}

pub(super) fn socket(sockets: &mut SteeredSockets) -> &mut Socket {
    sockets.socket_mut(0).expect("an interface has at least one queue")
}

/// A socket whose transmit chunks all hold the same packet already.
pub(super) struct Wire<'a> {
    pub(super) socket: &'a mut Socket,
    /// Bytes of each packet that is sent, from its Ethernet header on.
    pub(super) packet_len: usize,
}

impl<'a> Wire<'a> {
    pub(super) fn new(socket: &'a mut Socket, headers: Headers, len: usize) -> Self {
        let packet_len = Headers::len_for(headers.destination) + len;
        let mut packet = vec![0x5a; packet_len];
        headers.write(&mut packet);
        let mut frames = Vec::new();
        socket.room();
        while let Some(mut frame) = socket.take() {
            let bytes = socket.bytes_mut(&mut frame);
            // A packet of several chunks repeats its start in each: nobody looks at the payload.
            let first = packet_len.min(bytes.len());
            bytes[..first].copy_from_slice(&packet[..first]);
            frames.push(frame);
        }
        for frame in frames {
            socket.give_back(frame);
        }
        // Whatever an earlier measurement left on the ring is not ours.
        while socket.receive(BURST, |_, _| {}) > 0 {}
        Self { socket, packet_len }
    }

    /// Sends `count` packets and rings the doorbell. Waits for room.
    pub(super) fn send(&mut self, count: u64) {
        if count > 0 {
            self.stage(count);
            self.ring();
        }
    }

    /// Makes `count` packets ready to be sent. Waits for room.
    pub(super) fn stage(&mut self, count: u64) {
        let pieces = self.packet_len.div_ceil(CHUNK_DATA);
        for _ in 0..count {
            if self.socket.free() < pieces {
                self.socket.commit();
                while self.socket.room() < pieces {
                    self.socket.flush(Instant::ZERO);
                }
            }
            let mut rest = self.packet_len;
            while rest > 0 {
                let piece = rest.min(CHUNK_DATA);
                rest -= piece;
                let frame = self.socket.take().expect("there was room");
                self.socket.stage(frame, piece, rest > 0);
            }
        }
    }

    /// Sends what is ready, with one doorbell.
    pub(super) fn ring(&mut self) {
        self.socket.commit();
        self.socket.flush(Instant::ZERO);
        // Now, while an answer is on its way, not before the next request.
        self.socket.room();
    }

    /// Waits until the kernel is done with all that was sent, or it has taken too long.
    pub(super) fn settle(&mut self, chunks: usize) {
        let start = clock();
        while self.socket.room() < chunks && clock() - start < LOST_AFTER {
            self.socket.flush(Instant::ZERO);
        }
    }

    /// How many packets have arrived since the last call.
    pub(super) fn poll(&mut self) -> u64 {
        let mut count = 0;
        self.socket.receive(BURST, |_, continued| count += u64::from(!continued));
        count
    }

    /// Waits until at least `want` packets have arrived, or it has taken too long. Returns how
    /// many.
    pub(super) fn receive(&mut self, want: u64) -> u64 {
        let mut count = 0;
        let mut polls = 0;
        let mut start = None;
        while count < want {
            count += self.poll();
            polls += 1;
            if polls % POLLS_PER_LOOK == 0 {
                let now = clock();
                if now - *start.get_or_insert(now) > LOST_AFTER {
                    break;
                }
            }
            std::hint::spin_loop();
        }
        count
    }
}

pub(super) fn pin(core: Option<usize>) {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).expect("the core exists and this process may use it");
    }
}

/// Time since boot.
#[must_use]
pub fn clock() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
