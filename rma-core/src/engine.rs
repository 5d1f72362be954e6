//! The engine: the loop around a [`Service`] that plays the part of the hardware (not in the
//! paper).
//!
//! One turn moves bursts between a backend, the service and its applications. It reads the clock
//! once, does bounded work, and after the engine is built it neither allocates nor locks nor blocks
//! (P9). Threads, pinning and sleeping belong to whoever calls [`Engine::turn`].

mod loopback;

use crate::{
    backend::{BATCH, Backend},
    nic::Quantum,
    one_rma::OneRma,
    service::Service,
    time::{Clock, Instant},
};
use loopback::Loopback;

/// Frames in one burst, each way. Larger: better amortised, and later commands wait for longer
/// behind a flood of frames. Smaller: more system calls for the same traffic.
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
    /// How long the last received frame was.
    received_len: usize,
}

impl<B: Backend, C: Clock, S: Service> Engine<B, C, S> {
    /// An engine. All memory that it will ever need is allocated here.
    #[must_use]
    pub fn new(service: S, backend: B, clock: C) -> Self {
        Self { service, backend, clock, loopback: Loopback::new(), received_len: 0 }
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
        self.loopback.is_empty() && !self.service.wants_transmit() && self.service.is_idle()
    }

    /// Says to applications in other processes that this engine is going to sleep. The doorbell of
    /// those of this process follows
    /// ([`Doorbell::prepare_sleep`](rma_shm::Doorbell::prepare_sleep), whose fence is for all), and
    /// then [`Engine::is_idle`]. [`Engine::awake`] comes afterwards.
    pub fn announce_sleep(&self) {
        self.service.announce_sleep();
    }

    /// Says to applications in other processes that this engine sleeps no more.
    pub fn awake(&self) {
        self.service.awake();
    }

    fn receive(&mut self, now: Instant) -> usize {
        let Self { service, backend, clock, loopback, received_len } = self;
        let looped = loopback.drain(|frames| service.handle_frames(now, clock, frames));
        let (mut received, mut bytes) = (0, 0);
        while received < BURST && (received == 0 || bytes + *received_len <= QUANTUM) {
            // How long frames are is seen when they are there: taken to be as long as the last one.
            let fit = (QUANTUM - bytes) / (*received_len).max(1);
            let wanted = fit.clamp(1, BATCH).min(BURST - received);
            let count = backend.rx_burst(wanted, |frames| {
                *received_len = frames.last().map_or(0, |frame| frame.bytes.len());
                bytes += frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
                service.handle_frames(now, clock, frames);
            });
            received += count;
            if count < wanted || bytes > QUANTUM {
                break;
            }
        }
        looped + received
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut quantum = quantum(self.service.latency_class_seen_at(), now);
        let Self { service, backend, loopback, .. } = self;
        let (mut sent, mut gathers) = (0, false);
        loop {
            // As many buffers as there are frames: most turns have none, and many have one. The
            // device is asked also if there is none: it may hold something that it had no room for.
            let mut wanted = service.frames_waiting().min(BURST - sent);
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
            if is_over || !service.wants_transmit() {
                // Nobody goes to sleep over a request that waits for others.
                return sent.max(usize::from(gathers));
            }
        }
    }
}

/// What may be sent in a turn that begins now: less while ops of the latency class are about. When
/// one was last seen, the service tells.
#[must_use]
pub fn quantum(latency_class_seen_at: Option<Instant>, now: Instant) -> Quantum {
    let lately =
        latency_class_seen_at.is_some_and(|seen_at| now.nanos_since(seen_at) < LATENCY_LASTS_NANOS);
    if lately { Quantum::beside_latency(QUANTUM_BESIDE_LATENCY) } else { Quantum::new(QUANTUM) }
}

#[cfg(test)]
mod tests;
