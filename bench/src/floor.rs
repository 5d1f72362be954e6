//! The floor: what the AF_XDP sockets alone can do, without a protocol.
//!
//! The same sockets, rings, chunks and doorbells as the backend uses ([`rma_xdp::xdp::socket::Socket`]),
//! with UDP packets that are written once, before the clock starts, and never looked at again. Nothing
//! that uses these sockets can be faster; everything measured is printed beside it.
//!
//! It is not a benchmark of the protocol, and not reliable: a lost packet is counted and the exchange
//! is repeated, and a result with losses says so.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;
use rma_core::{addr::HostAddr, time::Instant};
use rma_xdp::xdp::{XdpBackend, packet::Headers, socket::Socket, umem::CHUNK_DATA};
use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

/// How long an answer may take before its exchange counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// Empty polls between two looks at the clock while waiting.
const POLLS_PER_LOOK: u32 = 4096;
/// Packets taken from the receive ring at once.
const BURST: usize = 64;

/// One of the two hosts.
#[derive(Debug)]
pub struct Side<'a> {
    /// Its sockets, opened on its interface.
    pub backend: &'a mut XdpBackend,
    /// Its address.
    pub address: HostAddr,
    /// The hardware address of its interface.
    pub mac: [u8; 6],
    /// The core that its thread runs on; `None` leaves that to the scheduler.
    pub core: Option<usize>,
}

/// What is exchanged: one packet there, some packets back.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// UDP payload of the request in bytes.
    pub request_len: usize,
    /// UDP payload of each response in bytes.
    pub response_len: usize,
    /// Responses to one request; at least 1.
    pub responses: usize,
}

/// What a mutation exchanges: one small packet there, one back, some with data there, one small one back.
#[derive(Clone, Copy, Debug)]
pub struct FourHops {
    /// UDP payload of each small packet in bytes.
    pub small_len: usize,
    /// UDP payload of each packet with data in bytes; more than `small_len` if there are several.
    pub data_len: usize,
    /// Packets with data; at least 1.
    pub data: usize,
}

/// Round-trip times of a [`ping_pong`], or of [`four_hops`].
#[derive(Debug)]
pub struct RoundTrips {
    /// In nanoseconds, from before a request is staged until its last response has been taken.
    pub times: Histogram<u64>,
    /// Exchanges that were given up and are not among `times`.
    pub lost: u64,
}

/// Packets that arrived within a time.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Packets that arrived, or exchanges that were completed.
    pub count: u64,
    /// In which time.
    pub elapsed: Duration,
}

impl Rate {
    /// Packets or exchanges in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }
}

/// Runs `count` exchanges after `warm_up` others, one at a time: `client` sends, `server` answers.
/// Each side spins on its own thread. `port` is the UDP port that both backends were opened with.
///
/// # Panics
/// If a packet does not fit through the sockets, or a core cannot be had.
#[must_use]
pub fn ping_pong(
    client: Side<'_>,
    server: Side<'_>,
    port: u16,
    exchange: Exchange,
    (warm_up, count): (u64, u64),
) -> RoundTrips {
    let answer = echoing(exchange);
    let lens = (exchange.request_len, exchange.response_len);
    run((client, server), port, lens, answer, |wire| {
        timed((warm_up, count), || {
            wire.send(1);
            wire.receive(exchange.responses as u64) >= exchange.responses as u64
        })
    })
}

/// Runs `count` exchanges of four hops after `warm_up` others, as [`ping_pong`] does.
///
/// # Panics
/// As [`ping_pong`].
#[must_use]
pub fn four_hops(
    client: Side<'_>,
    server: Side<'_>,
    port: u16,
    hops: FourHops,
    (warm_up, count): (u64, u64),
) -> RoundTrips {
    let FourHops { small_len, data_len, data } = hops;
    let small = Headers::len_for(client.address) + small_len;
    let mut arrived = 0;
    let answer = move |wire: &mut Wire<'_>| {
        let mut answers = 0;
        wire.socket.receive(BURST, |bytes, continued| {
            if continued {
                return;
            }
            if data == 1 || bytes.len() == small {
                // A first hop forgets an exchange that lost a packet.
                (answers, arrived) = (answers + 1, 0);
            } else {
                arrived += 1;
                if arrived == data {
                    (answers, arrived) = (answers + 1, 0);
                }
            }
        });
        wire.send(answers);
    };
    run((client, server), port, (data_len, small_len), answer, |wire| {
        let data_len = wire.packet_len;
        timed((warm_up, count), || {
            wire.packet_len = small;
            wire.send(1);
            wire.packet_len = data_len;
            wire.receive(1) >= 1 && {
                wire.send(data as u64);
                wire.receive(1) >= 1
            }
        })
    })
}

/// Times `exchange`, which says whether it got its answer: `warm_up` times for nothing, then `count` times.
fn timed((warm_up, count): (u64, u64), mut exchange: impl FnMut() -> bool) -> RoundTrips {
    let mut result = RoundTrips { times: histogram(), lost: 0 };
    for index in 0..warm_up + count {
        let start = clock();
        if !exchange() {
            result.lost += 1;
        } else if index >= warm_up {
            let time = u64::try_from((clock() - start).as_nanos()).unwrap_or(u64::MAX);
            result.times.saturating_record(time);
        }
    }
    result
}

/// A server that sends the responses to each request.
fn echoing(exchange: Exchange) -> impl FnMut(&mut Wire<'_>) + Send {
    move |wire| {
        let requests = wire.poll();
        wire.send(requests * exchange.responses as u64);
    }
}

/// Keeps `depth` exchanges under way for `duration`.
///
/// # Panics
/// As [`ping_pong`].
#[must_use]
pub fn echo(
    client: Side<'_>,
    server: Side<'_>,
    port: u16,
    exchange: Exchange,
    (depth, duration): (u64, Duration),
) -> Rate {
    let lens = (exchange.request_len, exchange.response_len);
    run((client, server), port, lens, echoing(exchange), |wire| {
        let responses = exchange.responses as u64;
        let start = clock();
        let (mut received, mut elapsed) = (0, Duration::ZERO);
        wire.send(depth);
        // Packets that were answered only in part so far.
        let mut parts = 0;
        while elapsed < duration {
            let new = wire.receive(1);
            received += new;
            parts += new;
            wire.send(parts / responses);
            parts %= responses;
            if new == 0 {
                // Whatever was under way is lost.
                wire.send(depth);
            }
            elapsed = clock() - start;
        }
        Rate { count: received / responses, elapsed }
    })
}

/// Sends packets of `len` bytes of UDP payload from `client` to `server` as fast as possible for
/// `duration`, and counts those that arrive.
///
/// # Panics
/// As [`ping_pong`].
#[must_use]
pub fn flood(
    client: Side<'_>,
    server: Side<'_>,
    port: u16,
    len: usize,
    duration: Duration,
) -> Rate {
    let stop = &AtomicBool::new(false);
    let ready = &Barrier::new(2);
    let from = (client.address, client.mac);
    let to = (server.address, server.mac);
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            pin(client.core);
            let mut wire = Wire::new(socket(client.backend), headers(from, to, port), len);
            ready.wait();
            let start = clock();
            while clock() - start < duration {
                wire.send(32);
            }
            let elapsed = clock() - start;
            stop.store(true, Ordering::Release);
            elapsed
        });
        let receiver = scope.spawn(move || {
            pin(server.core);
            let mut wire = Wire::new(socket(server.backend), headers(to, from, port), len);
            ready.wait();
            let mut count = 0;
            loop {
                // Asked first, so that what was sent before the stop is still counted.
                let stopped = stop.load(Ordering::Acquire);
                let new = wire.poll();
                count += new;
                if new == 0 && stopped {
                    break count;
                }
            }
        });
        let elapsed = sender.join().expect("the sender does not panic");
        Rate { count: receiver.join().expect("the receiver does not panic"), elapsed }
    })
}

/// Runs `measure` on the client's thread while the server answers on another. Of the packets' lengths, `lens` are
/// the client's and the server's.
fn run<R: Send>(
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
            let mut wire = Wire::new(socket(server.backend), headers, lens.1);
            ready.wait();
            while !stop.load(Ordering::Relaxed) {
                answer(&mut wire);
            }
        });
        let measuring = scope.spawn(move || {
            // Also when `measure` panics: the server must not spin for ever.
            let _stop = StopOnDrop(stop);
            pin(client.core);
            let headers = headers(from, to, port);
            let mut wire = Wire::new(socket(client.backend), headers, lens.0);
            ready.wait();
            measure(&mut wire)
        });
        measuring.join().expect("the client does not panic")
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn headers(from: (HostAddr, [u8; 6]), to: (HostAddr, [u8; 6]), port: u16) -> Headers {
    let (source, source_mac) = from;
    let (destination, next_hop_mac) = to;
    Headers { source_mac, next_hop_mac, source, destination, flow: 0, port }
}

fn socket(backend: &mut XdpBackend) -> &mut Socket {
    backend.socket_mut(0).expect("a backend has at least one queue")
}

/// A socket whose transmit chunks all hold the same packet already.
struct Wire<'a> {
    socket: &'a mut Socket,
    packet_len: usize,
}

impl<'a> Wire<'a> {
    fn new(socket: &'a mut Socket, headers: Headers, len: usize) -> Self {
        let packet_len = Headers::len_for(headers.destination) + len;
        let mut packet = vec![0x5a; packet_len];
        headers.write(&mut packet);
        let mut frames = Vec::new();
        socket.room();
        while let Some(mut frame) = socket.take() {
            let mut bytes = socket.bytes_mut(&mut frame);
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
    fn send(&mut self, count: u64) {
        if count == 0 {
            return;
        }
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
        self.socket.commit();
        self.socket.flush(Instant::ZERO);
        // Now, while an answer is on its way, not before the next request.
        self.socket.room();
    }

    /// How many packets have arrived since the last call.
    fn poll(&mut self) -> u64 {
        let mut count = 0;
        self.socket.receive(BURST, |_, continued| count += u64::from(!continued));
        count
    }

    /// Waits until at least `want` packets have arrived, or it has taken too long. Returns how many.
    fn receive(&mut self, want: u64) -> u64 {
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

/// One microsecond to ten seconds, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("the bounds are valid")
}

fn pin(core: Option<usize>) {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).expect("the core exists and this process may use it");
    }
}

/// Time since boot.
fn clock() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
