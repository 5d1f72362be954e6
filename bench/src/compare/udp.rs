//! Messages there and back over kernel UDP and TCP: one at a time, or many under way.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpStream, UdpSocket},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use super::{link::Sockets, waiting::spin};
use crate::{
    error::PairError,
    floor::{Rate, RoundTrips, StopOnDrop, clock, timed},
    pair::{cores, pin},
};

/// The kernel's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram each way.
    Udp,
    /// A few bytes each way on one connection, without Nagle's delay.
    Tcp,
}

/// One end of a pair of sockets, for messages of one length.
trait End: Send + Sync {
    fn send(&self, message: &[u8]) -> io::Result<usize>;
    fn receive(&self, message: &mut [u8]) -> io::Result<usize>;
}

impl End for UdpSocket {
    fn send(&self, message: &[u8]) -> io::Result<usize> {
        Self::send(self, message)
    }

    fn receive(&self, message: &mut [u8]) -> io::Result<usize> {
        self.recv(message)
    }
}

impl End for TcpStream {
    fn send(&self, message: &[u8]) -> io::Result<usize> {
        let mut stream = self;
        stream.write(message)
    }

    fn receive(&self, message: &mut [u8]) -> io::Result<usize> {
        let mut stream = self;
        match stream.read(message)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

/// Sends messages of `len` bytes there and back, one at a time: `warm_up` of them for nothing, then
/// `count`. Each side spins on its own thread.
///
/// # Errors
/// If the sockets cannot be had.
pub fn ping_pong(
    sockets: &Sockets,
    transport: Transport,
    len: usize,
    counts: (u64, u64),
) -> Result<RoundTrips, PairError> {
    Ok(match transport {
        Transport::Udp => ping_pong_over(sockets.udp()?, len, counts),
        Transport::Tcp => ping_pong_over(sockets.tcp()?, len, counts),
    })
}

fn ping_pong_over(ends: [impl End; 2], len: usize, counts: (u64, u64)) -> RoundTrips {
    let message = vec![0x5a; len];
    let mut answer = vec![0; len];
    answered(ends, len, |client| {
        timed(counts, || send(client, &message) && receive(client, &mut answer, || false))
    })
}

/// Keeps `depth` datagrams of `len` bytes on their way there and back until `count` have come back
/// after `warm_up` others: for each that comes another is sent. Each side spins on its own thread.
///
/// # Errors
/// If the sockets cannot be had.
pub fn echo(
    sockets: &Sockets,
    len: usize,
    depth: u64,
    (warm_up, count): (u64, u64),
) -> Result<Rate, PairError> {
    let message = vec![0x5a; len];
    let mut answer = vec![0; len];
    Ok(answered(sockets.udp()?, len, |client| {
        let mut sent = (0..depth).take_while(|_| send(client, &message)).count() as u64;
        let (mut done, mut start) = (0, clock());
        while done < warm_up + count && receive(client, &mut answer, || false) {
            done += 1;
            if done == warm_up {
                start = clock();
            }
            sent += u64::from(send(client, &message));
        }
        let elapsed = clock() - start;
        // Those still under way are not counted, but it is seen whether one was lost on the way.
        let mut back = done;
        while back < sent && receive(client, &mut answer, || false) {
            back += 1;
        }
        Rate { count: done.saturating_sub(warm_up), elapsed, lost: sent - back }
    }))
}

/// Runs `measure` on the client's thread while the server answers each message with one of the same
/// length on another.
fn answered<R: Send>(
    [client, server]: [impl End; 2],
    len: usize,
    measure: impl FnOnce(&dyn End) -> R + Send,
) -> R {
    let stop = &AtomicBool::new(false);
    let ready = &Barrier::new(2);
    let (client_core, server_core) = cores();
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(server_core);
            let mut message = vec![0; len];
            ready.wait();
            while !stop.load(Relaxed) {
                if receive(&server, &mut message, || stop.load(Relaxed)) {
                    send(&server, &message);
                }
            }
        });
        let measuring = scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(client_core);
            ready.wait();
            measure(&client)
        });
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sends a message, all of it. Says whether that worked.
fn send(end: &dyn End, message: &[u8]) -> bool {
    let mut sent = 0;
    while sent < message.len() {
        let Some(count) = spin(|| end.send(&message[sent..]), || false) else { return false };
        sent += count;
    }
    true
}

/// Receives a message, all of it. Says whether one came.
fn receive(end: &dyn End, message: &mut [u8], stop: impl Fn() -> bool + Copy) -> bool {
    let mut received = 0;
    while received < message.len() {
        let Some(count) = spin(|| end.receive(&mut message[received..]), stop) else {
            return false;
        };
        received += count;
    }
    true
}
