//! Datagrams in one direction, as many as the kernel's UDP carries with its segmentation offload.

use std::{
    io,
    net::UdpSocket,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

use super::{
    link::Sockets,
    waiting::{is_transient, spin},
};
use crate::{
    error::PairError,
    floor::{Rate, StopOnDrop, clock},
    pair::{cores, pin},
};

/// The most that a UDP datagram holds, and with it what is handed over in one call.
const CALL_MAX: usize = 65_507;
/// Segments that one call may have in old kernels (`UDP_MAX_SEGMENTS` in
/// <https://github.com/torvalds/linux/blob/v5.15/include/linux/udp.h>).
const SEGMENTS_MAX: usize = 64;
/// Bytes that may be under way, well below what the receiver's buffer holds.
const WINDOW: u64 = 1 << 20;

/// Sends datagrams of `len` bytes from the server's end to the client's as fast as possible, as
/// many in a call as fit (GSO), and receives one in a call: `warm_up` of them for nothing, then
/// `count`. What is counted are datagrams that arrive.
///
/// Not put together again by the kernel (GRO): over a veth pair 64 KiB would then be handed over by
/// reference, and no datagram would ever exist.
///
/// Each side spins on its own thread, and the sender knows through memory how many bytes have
/// arrived.
///
/// # Errors
/// If the sockets cannot be had, or the kernel has no segmentation offload for UDP (before 5.0).
pub fn segmented(
    sockets: &Sockets,
    len: usize,
    (warm_up, count): (u64, u64),
) -> Result<Rate, PairError> {
    let [client, server] = sockets.udp()?;
    let segment = i32::try_from(len).unwrap_or(i32::MAX);
    let option = setsockopt(&server, UdpGsoSegment, &segment);
    option.map_err(|errno| PairError::Sockets(io::Error::from(errno)))?;
    let each = (CALL_MAX / len).clamp(1, SEGMENTS_MAX);
    let (arrived, all_sent) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let ready = &Barrier::new(2);
    let (client_core, server_core) = cores();
    let (before, total) = (warm_up * len as u64, (warm_up + count) * len as u64);
    let rate = thread::scope(|scope| {
        scope.spawn(move || {
            let _all_sent = StopOnDrop(all_sent);
            pin(server_core);
            let buffer = vec![0x5a; each * len];
            ready.wait();
            send(&server, &buffer, total, arrived);
        });
        let receiver = scope.spawn(move || {
            pin(client_core);
            ready.wait();
            receive(&client, before, total, all_sent, arrived)
        });
        receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let datagrams = |bytes: u64| bytes / len as u64;
    Ok(Rate { count: datagrams(rate.count), lost: datagrams(rate.lost), ..rate })
}

/// Sends at least `total` bytes, a buffer in each call.
fn send(socket: &UdpSocket, buffer: &[u8], total: u64, arrived: &AtomicU64) {
    let (mut sent, each) = (0, buffer.len() as u64);
    while sent < total {
        let room = || {
            let under_way = sent - arrived.load(Ordering::Relaxed).min(sent);
            if under_way + each <= WINDOW { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        // A packet that never arrives must not stop the rest; it is seen at the end.
        if spin(room, || false).is_none() || spin(|| socket.send(buffer), || false).is_none() {
            return;
        }
        sent += each;
    }
}

/// Counts bytes until there are `total`, or no more come.
fn receive(
    socket: &UdpSocket,
    before: u64,
    total: u64,
    all_sent: &AtomicBool,
    credit: &AtomicU64,
) -> Rate {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut arrived = 0;
    let mut first = None;
    let mut last = clock();
    while arrived < total {
        let stopped = all_sent.load(Ordering::Acquire);
        match socket.recv(&mut buffer) {
            Ok(bytes) => arrived += bytes as u64,
            Err(error) if is_transient(&error) && !stopped => continue,
            Err(_) => match spin(|| socket.recv(&mut buffer), || false) {
                Some(bytes) => arrived += bytes as u64,
                None => break,
            },
        }
        credit.store(arrived, Ordering::Relaxed);
        last = clock();
        if first.is_none() && arrived > before {
            first = Some((last, arrived));
        }
    }
    let (start, counted_from) = first.unwrap_or((last, arrived));
    Rate {
        count: arrived - counted_from,
        elapsed: last - start,
        lost: total.saturating_sub(arrived),
    }
}
