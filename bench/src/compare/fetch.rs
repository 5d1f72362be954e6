//! Fetches over the kernel's sockets: what a READ does, by those who have none.
//!
//! A request of 16 octets names an offset and a length, and the answer has those bytes of the
//! server's memory. As many requests as fit are handed to the kernel at once, where it takes
//! several, and what has arrived is taken at once: messages share a call over TCP and in batches.
//! One answer of a hundred is compared, of long ones each: its first and its last line.
//!
//! Each side spins on its own thread. Answers come in the order of their requests, so a lost
//! datagram spoils the round.

use core::time::Duration;
#[cfg(feature = "quic")]
use std::net::UdpSocket;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rma_lab::Pattern;
use serde::{Deserialize, Serialize};

use super::{
    batched::Batched,
    end::{End, Tcp},
    link::Sockets,
    tls::Tls,
    waiting::spin,
};
#[cfg(feature = "quic")]
use super::{
    quic::{PATIENCE, Quic},
    tls::Identity,
};
use crate::{
    cpu,
    error::PairError,
    floor::{StopOnDrop, clock},
    latency::Latencies,
    pair::{cores, pin},
};

/// Octets of a request: offset and length, little-endian.
pub(super) const REQUEST: usize = 16;
/// Bytes that a side has room for, but for longer answers.
const ROOM: usize = 64 << 10;
/// Bytes of a line, and the distance of short fetches.
const LINE: usize = 64;

/// The way in which messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A datagram each, and a system call each.
    Udp,
    /// A datagram each, up to 32 of them in a call (`recvmmsg`, `sendmmsg`).
    UdpBatched,
    /// On one connection, without Nagle's delay.
    Tcp,
    /// On such a connection with TLS 1.3 (TLS_AES_128_GCM_SHA256), a record each, or several if it
    /// is long.
    Tls,
    /// On one stream of a QUIC connection, with the same cipher. Builds without the feature `quic`
    /// have none.
    Quic,
}

/// The error where this build has no QUIC.
#[cfg(not(feature = "quic"))]
pub(super) fn without_quic() -> PairError {
    PairError::Sockets(io::Error::other(WITHOUT_QUIC))
}

/// The way to have QUIC.
pub const WITHOUT_QUIC: &str = "built without QUIC: cargo build --features quic";

/// The fetches to make.
#[derive(Clone, Copy, Debug)]
pub struct Fetches {
    /// Bytes of each.
    pub size: usize,
    /// How many are under way at once.
    pub depth: usize,
    /// They go to random places of this many bytes.
    pub span: u64,
    /// How many for nothing, before.
    pub warm_up: u64,
    /// How many are measured.
    pub count: u64,
}

/// The record of fetches.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// How long each took, if one was under way at a time.
    pub latencies: Latencies,
    /// How long all took.
    pub elapsed: Duration,
    /// The processor time of the client's thread meanwhile.
    pub cpu: Duration,
}

/// The memory that is served.
#[derive(Debug)]
pub struct Memory {
    bytes: Vec<u8>,
    pattern: Pattern,
}

impl Memory {
    /// So many bytes of a pattern.
    #[must_use]
    pub fn new(len: usize, seed: u64) -> Self {
        let pattern = Pattern::new(seed);
        let mut bytes = vec![0; len];
        pattern.fill(0, &mut bytes);
        Self { bytes, pattern }
    }
}

/// Makes such fetches from `memory`, over sockets of their own.
///
/// # Errors
/// If the sockets cannot be had; [`PairError::SpoiledRound`] if an answer does not come; if a byte
/// is wrong.
pub fn fetch(
    sockets: &Sockets,
    way: Way,
    memory: &Memory,
    fetches: Fetches,
) -> Result<Fetched, PairError> {
    // Ends are made on their own threads: not all of them may leave one.
    match way {
        Way::Udp => {
            let [client, server] = sockets.udp()?;
            between(|| Ok(client), || Ok(server), memory, fetches)
        }
        Way::UdpBatched => {
            let [client, server] = sockets.udp()?;
            let client = || Ok(Batched::new(client, REQUEST, fetches.size));
            let server = || Ok(Batched::new(server, fetches.size, REQUEST));
            between(client, server, memory, fetches)
        }
        Way::Tcp => {
            let [client, server] = sockets.tcp()?;
            between(|| Ok(Tcp::new(client)), || Ok(Tcp::new(server)), memory, fetches)
        }
        Way::Tls => {
            let [client, server] = Tls::pair(sockets.tcp()?).map_err(PairError::Sockets)?;
            between(|| Ok(client), || Ok(server), memory, fetches)
        }
        #[cfg(feature = "quic")]
        Way::Quic => over_quic(sockets.udp()?, memory, fetches),
        #[cfg(not(feature = "quic"))]
        Way::Quic => Err(without_quic()),
    }
}

#[cfg(feature = "quic")]
fn over_quic(
    [client, server]: [UdpSocket; 2],
    memory: &Memory,
    fetches: Fetches,
) -> Result<Fetched, PairError> {
    let identity = Identity::new().map_err(|it| PairError::Sockets(io::Error::other(it)))?;
    let at = |it: &UdpSocket| it.local_addr().map_err(PairError::Sockets);
    let (at, from, certificate) = (at(&server)?, at(&client)?.ip(), identity.certificate.clone());
    let until = clock() + PATIENCE;
    let client = || Quic::client(client, at, &certificate, &[]);
    let server = || Quic::server(server, identity, from, &[], || clock() > until);
    between(client, server, memory, fetches)
}

/// Runs both sides.
fn between<C: End, S: End>(
    client: impl FnOnce() -> io::Result<C> + Send,
    server: impl FnOnce() -> io::Result<S> + Send,
    memory: &Memory,
    fetches: Fetches,
) -> Result<Fetched, PairError> {
    let stop = &AtomicBool::new(false);
    let ready = &Barrier::new(2);
    let (client_core, server_core) = cores();
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(server_core);
            ready.wait();
            let end = server();
            // Without it, the client says that no answer came.
            let Ok(mut end) = end else { return };
            while !stop.load(Relaxed) {
                serve(&mut end, memory, || stop.load(Relaxed));
            }
        });
        let measuring = scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(client_core);
            // Before the ends are made: one that is not asked does not go on by itself.
            ready.wait();
            let end = client();
            ask(&mut end.map_err(PairError::Sockets)?, memory.pattern, fetches)
        });
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Answers until nothing comes for a while, the other end has gone, or it is to stop. What there is
/// no answer to has none.
pub(super) fn serve(
    end: &mut impl End,
    memory: &Memory,
    stop: impl Fn() -> bool + Copy,
) -> Option<()> {
    let mut buffer = vec![0; ROOM];
    let mut filled = 0;
    loop {
        filled += spin(|| end.get(&mut buffer[filled..]), stop)?;
        let whole = filled / REQUEST * REQUEST;
        for request in buffer[..whole].chunks_exact(REQUEST) {
            let (offset, len) = request.split_at(REQUEST / 2);
            let [offset, len] = [offset, len].map(|it| {
                usize::try_from(u64::from_le_bytes(it.try_into().expect("half a request"))).ok()
            });
            let range = offset.zip(len).and_then(|(at, len)| Some(at..at.checked_add(len)?));
            if let Some(bytes) = range.and_then(|it| memory.bytes.get(it)) {
                put(end, bytes, stop)?;
            }
        }
        spin(|| end.flush(), stop)?;
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

/// Puts all of a message.
fn put(end: &mut impl End, mut message: &[u8], stop: impl Fn() -> bool + Copy) -> Option<()> {
    while !message.is_empty() {
        let count = spin(|| end.put(message), stop)?;
        message = &message[count..];
    }
    Some(())
}

/// Fetches, and measures.
pub(super) fn ask(
    end: &mut impl End,
    pattern: Pattern,
    fetches: Fetches,
) -> Result<Fetched, PairError> {
    let Fetches { size, depth, span, warm_up, count } = fetches;
    let stride = size.max(LINE) as u64;
    let places = (span / stride).max(1);
    let mut random = SmallRng::seed_from_u64(pattern.seed() ^ size as u64);
    let mut buffer = vec![0; ROOM.max(size)];
    let mut under_way = VecDeque::with_capacity(depth);
    let (mut sent, mut done, mut filled) = (0, 0, 0);
    let mut latencies = Latencies::new();
    let (mut start, mut cpu_start) = (clock(), cpu::exact());
    let lost = || PairError::SpoiledRound("an answer did not come".to_owned());
    while done < warm_up + count {
        while sent < warm_up + count && under_way.len() < depth {
            let offset = random.random_range(0..places) * stride;
            let mut request = [0; REQUEST];
            request[..REQUEST / 2].copy_from_slice(&offset.to_le_bytes());
            request[REQUEST / 2..].copy_from_slice(&(size as u64).to_le_bytes());
            let began = if depth == 1 { clock() } else { Duration::ZERO };
            put(end, &request, || false).ok_or_else(lost)?;
            under_way.push_back((offset, began));
            sent += 1;
        }
        spin(|| end.flush(), || false).ok_or_else(lost)?;
        filled += spin(|| end.get(&mut buffer[filled..]), || false).ok_or_else(lost)?;
        let whole = filled / size * size;
        for answer in buffer[..whole].chunks_exact(size) {
            let (offset, began) = under_way.pop_front().ok_or_else(lost)?;
            if depth == 1 && done >= warm_up {
                latencies.record(clock() - began);
            }
            if done % 100 == 0 || size > ROOM {
                compare(pattern, offset, answer)?;
            }
            done += 1;
            if done == warm_up {
                (start, cpu_start) = (clock(), cpu::exact());
            }
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
    Ok(Fetched { latencies, elapsed: clock() - start, cpu: cpu::exact() - cpu_start })
}

/// Compares the first and the last line of an answer.
fn compare(pattern: Pattern, offset: u64, answer: &[u8]) -> Result<(), PairError> {
    let len = answer.len().min(LINE);
    for at in [0, answer.len() - len] {
        let line = &answer[at..at + len];
        if let Some(at) = pattern.first_difference(offset + at as u64, line) {
            let why = format!("byte {at} of an answer is not what it should be; please report it");
            return Err(PairError::Sockets(io::Error::other(why)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    fn fetches(size: usize, depth: usize) -> Fetches {
        Fetches { size, depth, span: 1 << 20, warm_up: 5, count: 300 }
    }

    fn connection() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        [client, server].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        })
    }

    fn datagrams() -> [UdpSocket; 2] {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [one, other] = &sockets;
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        sockets.iter().for_each(|it| it.set_nonblocking(true).unwrap());
        sockets
    }

    #[test]
    fn bytes_are_fetched_in_each_way() {
        let memory = Memory::new(1 << 20, 7);
        for depth in [1, 5, 50] {
            let (short, long) = (fetches(64, depth), fetches(300_000, 2));
            let mut all = Vec::new();
            for of in [short, long] {
                let [a, b] = connection();
                all.push(between(|| Ok(Tcp::new(a)), || Ok(Tcp::new(b)), &memory, of).unwrap());
                let [a, b] = Tls::pair(connection()).unwrap();
                all.push(between(|| Ok(a), || Ok(b), &memory, of).unwrap());
                #[cfg(feature = "quic")]
                all.push(over_quic(datagrams(), &memory, of).unwrap());
            }
            let [a, b] = datagrams();
            all.push(between(|| Ok(a), || Ok(b), &memory, short).unwrap());
            let [a, b] = datagrams();
            let (a, b) = (|| Ok(Batched::new(a, REQUEST, 64)), || Ok(Batched::new(b, 64, REQUEST)));
            all.push(between(a, b, &memory, short).unwrap());
            for fetched in all {
                let timed = fetched.latencies.count();
                assert!(timed == 0 || timed == 300 && depth == 1, "{timed} at depth {depth}");
                assert!(fetched.elapsed > Duration::ZERO);
            }
        }
    }

    #[test]
    fn a_wrong_byte_of_an_answer_is_found() {
        let mut memory = Memory::new(1 << 20, 7);
        memory.bytes.iter_mut().for_each(|it| *it ^= 1);
        let [a, b] = datagrams();
        let error = between(|| Ok(a), || Ok(b), &memory, fetches(64, 1)).unwrap_err().to_string();
        assert!(error.contains("of an answer is not what it should be"), "{error}");
    }
}
