//! Messages there and back over kernel UDP and TCP: one at a time, or many under way.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use super::{
    end::{End, Tcp},
    link::Sockets,
    waiting::spin,
};
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
        Transport::Tcp => ping_pong_over(sockets.tcp()?.map(Tcp::new), len, counts),
    })
}

fn ping_pong_over(ends: [impl End + Send; 2], len: usize, counts: (u64, u64)) -> RoundTrips {
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
    [mut client, mut server]: [impl End + Send; 2],
    len: usize,
    measure: impl FnOnce(&mut dyn End) -> R + Send,
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
                if receive(&mut server, &mut message, || stop.load(Relaxed)) {
                    send(&mut server, &message);
                }
            }
        });
        let measuring = scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(client_core);
            ready.wait();
            measure(&mut client)
        });
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sends a message, all of it. Says whether that worked.
fn send(end: &mut dyn End, message: &[u8]) -> bool {
    let mut sent = 0;
    while sent < message.len() {
        let Some(count) = spin(|| end.put(&message[sent..]), || false) else { return false };
        sent += count;
    }
    spin(|| end.flush(), || false).is_some()
}

/// Receives a message, all of it. Says whether one came.
fn receive(end: &mut dyn End, message: &mut [u8], stop: impl Fn() -> bool + Copy) -> bool {
    let mut received = 0;
    while received < message.len() {
        let Some(count) = spin(|| end.get(&mut message[received..]), stop) else {
            return false;
        };
        received += count;
    }
    true
}
