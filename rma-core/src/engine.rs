//! The engine: the loop around a [`Service`] that plays the part of the hardware (not in the
//! paper).
//!
//! One turn moves bursts between a backend, the service and its applications. It reads the clock
//! once, does bounded work, and after the engine is built it neither allocates nor locks nor blocks
//! (P9). Threads, pinning and sleeping belong to whoever calls [`Engine::turn`].

mod loopback;
mod neighbours;

use arrayvec::ArrayVec;

use crate::{
    backend::{BATCH, Backend, RxFrame, RxPacket},
    one_rma::OneRma,
    packet::Frames,
    quantum::Quantum,
    service::Service,
    time::{Clock, Instant},
};
use loopback::Loopback;
pub use neighbours::{HandOvers, Neighbours, Share};

/// Frames in one burst, each way. Larger: better amortised, and later commands wait for longer
/// behind a flood of frames. Smaller: more system calls for the same traffic.
///
/// A packet is received whole: where packets come that have more frames than those before, a burst
/// may have more, those of [`BATCH`] packets at most.
pub const BURST: usize = 64;

/// Bytes received in one turn, and bytes sent: a first frame always, and others as long as one like
/// the last fits. Larger: what comes meanwhile waits for longer. Smaller: more system calls for the
/// same traffic (with half of it, `read_goodput_over_floor` was a tenth less when this was
/// written).
const QUANTUM: usize = 32 << 10;

/// Bytes sent in one turn while there are ops of the latency class about: 36 responses of 64 B, one
/// large frame, or four requests of the throughput class. A small read beside large ones waits for
/// that, and for what is received in the same turn, which takes less.
const QUANTUM_BESIDE_LATENCY: usize = 4 << 10;

/// For how long an op of the latency class keeps the quantum small. Longer than such an op takes on
/// a host that is slow, or small reads that were slow once would stay so.
const LATENCY_LASTS_NANOS: u64 = 1_000_000;

/// A service with a backend and a clock. The service is 1RMA, if no other is named.
#[derive(Debug)]
pub struct Engine<B, C, S = OneRma> {
    service: S,
    backend: B,
    clock: C,
    /// Frames from this host to itself.
    loopback: Loopback,
    /// The expectation of packets before they have been received.
    expected: Expected,
    /// The other engines of its host, if it has some.
    neighbours: Option<Box<Neighbours>>,
}

/// The expectation of packets that have not been received yet, so that a turn asks for no more of
/// them than it should handle.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Octets of the last one.
    len: usize,
    /// Frames of one: of the last that had the most, less a little for each since then.
    frames: usize,
    /// How many packets a turn asks for first. Known beforehand, as most turns find none, and
    /// should not divide for it.
    at_first: usize,
}

impl Expected {
    const NOTHING: Self = Self { len: 0, frames: 1, at_first: BATCH };

    /// How many packets to ask for where so many bytes and frames may still come.
    #[inline]
    fn packets(self, bytes: usize, frames: usize) -> usize {
        (bytes / self.len.max(1)).min(frames / self.frames).clamp(1, BATCH)
    }

    /// A packet has come.
    #[inline]
    fn note(&mut self, len: usize, frames: usize) {
        self.len = len;
        self.frames = frames.max(self.frames - self.frames.div_ceil(8)).max(1);
    }
}

impl<B: Backend, C: Clock, S: Service> Engine<B, C, S> {
    /// An engine. All memory that it will ever need is allocated here.
    #[must_use]
    pub fn new(service: S, backend: B, clock: C) -> Self {
        let (loopback, expected) = (Loopback::new(), Expected::NOTHING);
        Self { service, backend, clock, loopback, expected, neighbours: None }
    }

    /// The same, of a host that has others: it is given what they receive for it, and gives them
    /// what it receives for them.
    #[must_use]
    pub fn beside(mut self, neighbours: Neighbours) -> Self {
        self.neighbours = Some(Box::new(neighbours));
        self
    }

    /// The service that the engine turns for.
    #[must_use]
    pub const fn service(&self) -> &S {
        &self.service
    }

    /// The service, to configure it between turns.
    pub const fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// The device that the engine moves frames through.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// The backend, to configure it between turns.
    pub const fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// The engine's clock.
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// One turn of the busy-poll loop: receive a burst, take commands, expire, complete, transmit a
    /// burst, ring the doorbell, wake applications that sleep. Returns how much there was to do,
    /// requests that wait for others included; 0 if nothing.
    pub fn turn(&mut self) -> usize {
        let now = self.clock.now();
        let received = self.receive(now);
        let commands = self.service.take_commands(now);
        self.service.handle_timeout(now);
        let completed = self.service.complete();
        let sent = self.transmit(now);
        self.backend.flush(now);
        self.service.wake_sleepers();
        received + commands + completed + sent
    }

    /// Whether there is nothing to do before a frame arrives, a command is issued or a timeout
    /// passes: no application has a command waiting, and no frame waits for room in the device. To
    /// be asked after [`Engine::turn`] returned 0.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.loopback.is_empty()
            && !self.service.wants_transmit()
            && self.neighbours.as_ref().is_none_or(|it| it.is_idle())
            && self.service.is_idle()
    }

    /// Says to applications in other processes that this engine is going to sleep. The doorbell of
    /// those of this process follows
    /// ([`Doorbell::prepare_sleep`](rma_shm::Doorbell::prepare_sleep), whose fence is for all), and
    /// then [`Engine::is_idle`]. [`Engine::awake`] comes afterwards.
    pub fn announce_sleep(&self) {
        self.service.announce_sleep();
    }

    /// Says to applications in other processes that this engine no longer sleeps.
    pub fn awake(&self) {
        self.service.awake();
    }

    fn receive(&mut self, now: Instant) -> usize {
        let Self { service, backend, clock, loopback, expected, neighbours } = self;
        let mut handler = Handler { service, now, clock, neighbours: neighbours.as_deref_mut() };
        if handler.neighbours.is_some() {
            // Of regions that are rekeyed while no frames come, too.
            handler.service.take_keys();
        }
        let looped = loopback.drain(|frames| handler.handle(frames));
        let (mut received, mut bytes, mut wanted) = (0, 0, expected.at_first);
        loop {
            let count = backend.rx_burst(wanted, |packets| {
                bytes += packets.iter().map(|packet| packet.bytes.len()).sum::<usize>();
                received += handler.take_apart(packets, expected);
            });
            if count < wanted || received >= BURST || bytes + expected.len > QUANTUM {
                break;
            }
            wanted = expected.packets(QUANTUM - bytes, BURST - received);
        }
        if received > 0 {
            expected.at_first = expected.packets(QUANTUM, BURST);
        }
        looped + received + handler.exchange(received)
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut quantum = quantum(self.service.latency_class_seen_at(), now);
        let Self { service, backend, loopback, .. } = self;
        let (mut sent, mut gathers) = (0, false);
        loop {
            // As many buffers as there are frames: most turns have none, and many have one. The
            // device is asked also if there is none: it may hold something that it had no room for.
            // The rest of an op that has begun leaves in the same turn, however many there were.
            let most = BURST.saturating_sub(sent).max(usize::from(quantum.expects_rest()));
            let mut wanted = service.frames_waiting().min(most);
            if sent == 0 && wanted > 0 && service.gathers(now) {
                (wanted, gathers) = (0, true);
            }
            let mut filled = 0;
            let taken = backend.tx_burst(wanted, |frames| {
                // All of them may turn out to be for this host.
                let room = loopback.room().min(frames.len());
                let count = service.poll_transmits(now, &mut frames[..room], &mut quantum);
                for frame in &mut frames[..count] {
                    loopback.divert(service.addresses(), frame);
                }
                filled += count;
                count
            });
            sent += taken;
            let is_over = wanted == 0 || filled < wanted || sent >= BURST || !quantum.admits();
            let is_begun = filled > 0 && quantum.expects_rest();
            if (is_over && !is_begun) || !service.wants_transmit() {
                // Nobody goes to sleep over a request that waits for others.
                return sent.max(usize::from(gathers));
            }
        }
    }
}

/// The handling of frames that a turn has fetched.
struct Handler<'a, C, S> {
    service: &'a mut S,
    now: Instant,
    clock: &'a C,
    neighbours: Option<&'a mut Neighbours>,
}

impl<C: Clock, S: Service> Handler<'_, C, S> {
    /// Has the service handle the frames of received packets, [`BATCH`] at a time, whichever
    /// packets they came in. Returns how many there were, and notes what the packets were like. The
    /// end of a packet that is no frame counts as one.
    #[inline]
    fn take_apart(&mut self, packets: &mut [RxPacket<'_>], expected: &mut Expected) -> usize {
        if self.neighbours.is_some() {
            self.service.take_keys();
        }
        let mut received = 0;
        let mut batch: ArrayVec<RxFrame<'_>, BATCH> = ArrayVec::new();
        for packet in packets {
            let (port, len) = (packet.port, packet.bytes.len());
            let (mut frames, mut count) = (Frames::of(packet), 0);
            while let Some(frame) = frames.next(|octets| self.service.frame_len(port, octets)) {
                count += 1;
                match frame {
                    Ok(frame) => batch.push(frame),
                    Err(tail) => self.service.drop_tail(port, tail),
                }
                if batch.is_full() {
                    self.handle(&mut batch);
                }
            }
            self.service.note_packet(port, count);
            expected.note(len, count);
            received += count;
        }
        if !batch.is_empty() {
            self.handle(&mut batch);
        }
        received
    }

    /// Handles a batch of frames, which is empty then.
    #[inline]
    fn handle(&mut self, batch: &mut ArrayVec<RxFrame<'_>, BATCH>) {
        let Self { service, now, clock, neighbours } = self;
        match neighbours {
            None => service.handle_frames(*now, *clock, batch),
            Some(neighbours) => neighbours.deliver(*service, *now, *clock, batch),
        }
        batch.clear();
    }

    /// Handles what other engines have handed over, beside so many frames of this engine's own, and
    /// tells them of what was handed over to them. Returns how much it was.
    #[inline]
    fn exchange(&mut self, received: usize) -> usize {
        let Self { service, now, clock, neighbours } = self;
        let Some(neighbours) = neighbours else { return 0 };
        let taken = neighbours.receive(*service, *now, *clock, share(received));
        neighbours.publish();
        taken
    }
}

/// Returns the limit on a turn that begins now: less while ops of the latency class are about. The
/// service tells when one was last seen.
#[must_use]
pub fn quantum(latency_class_seen_at: Option<Instant>, now: Instant) -> Quantum {
    let lately =
        latency_class_seen_at.is_some_and(|seen_at| now.nanos_since(seen_at) < LATENCY_LASTS_NANOS);
    if lately { Quantum::beside_latency(QUANTUM_BESIDE_LATENCY) } else { Quantum::new(QUANTUM) }
}

/// Returns the most that a turn takes of what other engines have handed over, beside so many frames
/// of its own: as much as it may receive if there are none, and half of it otherwise.
#[must_use]
pub const fn share(received: usize) -> Share {
    let part = if received > 0 { 2 } else { 1 };
    Share { messages: BURST / part, octets: QUANTUM / part }
}

const _: () = assert!(share(1).octets >= crate::wire::FRAME_LEN_MAX, "the longest frame fits");

#[cfg(test)]
mod tests;
