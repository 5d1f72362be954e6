//! Packets in one direction, as many as the sockets can carry.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    exchange::{Rate, Side},
    wire::{LOST_AFTER, StopOnDrop, Wire, clock, headers, pin, socket},
};

/// Packets for each doorbell. The kernel sends 32 in one call (`TX_BATCH_SIZE` in
/// <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk.c>): more take another call, fewer
/// share its cost among fewer.
const BATCH: u64 = 32;
/// Packets that may be under way, well below what the receive ring holds: while the scheduler has
/// taken the receiver's core, more would be lost, and losing them takes the sender as long as
/// sending them.
const WINDOW: u64 = 512;

/// Sends packets with `len` bytes of UDP payload from `from` to `to` as fast as possible: `warm_up`
/// of them for nothing, then `count`. What is counted are the packets that arrive, over the time
/// from the arrival of the first to that of the last of them.
///
/// Each side spins on its own thread. The sender knows from the receiver, through memory, how many
/// have arrived, and waits when it is too far ahead. `port` is the UDP port that both sides were
/// opened with.
///
/// # Panics
/// If a packet does not fit through the sockets, or a core cannot be had.
#[must_use]
pub fn flood(
    from: Side<'_>,
    to: Side<'_>,
    port: u16,
    len: usize,
    (warm_up, count): (u64, u64),
) -> Rate {
    let all_sent = &AtomicBool::new(false);
    let ready = &Barrier::new(2);
    let arrived = &AtomicU64::new(0);
    let (source, target) = ((from.address, from.mac), (to.address, to.mac));
    let total = warm_up + count;
    thread::scope(|scope| {
        scope.spawn(move || {
            let _all_sent = StopOnDrop(all_sent);
            pin(from.core);
            let mut wire = Wire::new(socket(from.sockets), headers(source, target, port), len);
            let chunks = wire.socket.free();
            ready.wait();
            let (mut sent, mut lost) = (0, 0);
            while sent < total {
                let batch = BATCH.min(total - sent);
                lost = wait_for_window(sent, batch, lost, arrived);
                wire.send(batch);
                sent += batch;
            }
            wire.settle(chunks);
        });
        let receiver = scope.spawn(move || {
            pin(to.core);
            let mut wire = Wire::new(socket(to.sockets), headers(target, source, port), len);
            ready.wait();
            receive(&mut wire, warm_up, total, all_sent, arrived)
        });
        receiver.join().expect("the receiver does not panic")
    })
}

/// Waits until at most a window of packets would be under way with `batch` more, of which `lost`
/// are taken not to be. Gives that number, which grows if it takes too long: what is lost must not
/// stop the rest.
fn wait_for_window(sent: u64, batch: u64, lost: u64, arrived: &AtomicU64) -> u64 {
    let mut start = None;
    loop {
        let gone = sent.saturating_sub(arrived.load(Ordering::Relaxed));
        if gone + batch <= WINDOW + lost {
            return lost;
        }
        let now = clock();
        if now - *start.get_or_insert(now) > LOST_AFTER {
            return gone;
        }
        std::hint::spin_loop();
    }
}

/// Counts what arrives until it is everything, or until no more comes.
fn receive(
    wire: &mut Wire<'_>,
    warm_up: u64,
    total: u64,
    all_sent: &AtomicBool,
    credit: &AtomicU64,
) -> Rate {
    let mut arrived = 0;
    // When the warm-up was over, and how many had arrived then.
    let mut first: Option<(Duration, u64)> = None;
    let mut last = Duration::ZERO;
    while arrived < total {
        // Asked first, so that what was sent before is still waited for.
        let stopped = all_sent.load(Ordering::Acquire);
        let mut new = wire.poll();
        if new == 0 && stopped {
            new = wire.receive(1);
            if new == 0 {
                break;
            }
        }
        if new == 0 {
            std::hint::spin_loop();
            continue;
        }
        arrived += new;
        credit.store(arrived, Ordering::Relaxed);
        last = clock();
        if first.is_none() && arrived > warm_up {
            first = Some((last, arrived));
        }
    }
    let (start, before) = first.unwrap_or((last, arrived));
    Rate { count: arrived - before, elapsed: last - start, lost: total.saturating_sub(arrived) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_waits_for_the_window_but_not_for_what_is_lost() {
        let arrived = AtomicU64::new(100);
        assert_eq!(wait_for_window(100 + WINDOW - BATCH, BATCH, 0, &arrived), 0);
        // Nobody receives: after a while all of them count as lost, and there is room for another
        // window.
        let lost = wait_for_window(100 + WINDOW, BATCH, 0, &arrived);
        assert_eq!(lost, WINDOW);
        assert_eq!(wait_for_window(100 + WINDOW, BATCH, lost, &arrived), lost);
    }
}
