//! Many exchanges under way at once.

use core::time::Duration;

use super::{
    exchange::{Exchange, Rate, Side},
    wire::{Wire, clock, echoing, run},
};

/// Waits in a row in which nothing arrived, two seconds, after which the rest is given up. Not
/// earlier: the scheduler may have taken the server's core, and what is sent again for what comes
/// late makes the pipeline deeper.
const SILENT_MAX: u32 = 20;

/// Keeps `depth` exchanges under way until `count` have ended after `warm_up` others. Each side
/// sends what it owes for all that it found in its receive ring, with one doorbell.
///
/// Each side spins on its own thread. `port` is the UDP port that both sides were opened with.
///
/// # Panics
/// If a packet does not fit through the sockets, or a core cannot be had.
#[must_use]
pub fn pipeline(
    client: Side<'_>,
    server: Side<'_>,
    port: u16,
    exchange: Exchange,
    depth: u64,
    counts: (u64, u64),
) -> Rate {
    let lens = (exchange.request_len, exchange.response_len);
    let responses = exchange.responses as u64;
    run((client, server), port, lens, echoing(exchange), |wire| {
        wire.send(depth);
        // Responses to the exchange that was answered only in part so far.
        let mut parts = 0;
        keep_full(wire, depth * responses, counts, |wire, arrived| {
            parts += arrived;
            let done = parts / responses;
            parts %= responses;
            wire.send(done);
            Progress { done, ahead: parts }
        })
    })
}

/// The progress of some packets.
struct Progress {
    /// Exchanges that ended.
    done: u64,
    /// Packets that have come of an exchange that has not ended.
    ahead: u64,
}

/// Lets `answer` answer what arrives until enough exchanges have ended. `under_way` packets are to
/// arrive at any time, less those that are ahead.
fn keep_full(
    wire: &mut Wire<'_>,
    under_way: u64,
    (warm_up, count): (u64, u64),
    mut answer: impl FnMut(&mut Wire<'_>, u64) -> Progress,
) -> Rate {
    let (mut done, mut ahead, mut silent) = (0, 0, 0);
    let mut first: Option<(Duration, u64)> = None;
    while done < warm_up + count && silent < SILENT_MAX {
        let new = wire.receive(1);
        if new == 0 {
            silent += 1;
            continue;
        }
        silent = 0;
        let progress = answer(wire, new);
        (done, ahead) = (done + progress.done, progress.ahead);
        if first.is_none() && done >= warm_up {
            first = Some((clock(), done));
        }
    }
    let end = clock();
    // Those still under way are not counted, but it is seen whether one was lost on the way.
    let mut lost = under_way - ahead;
    while lost > 0 && silent < SILENT_MAX {
        lost = lost.saturating_sub(wire.receive(lost));
        silent += 1;
    }
    let (start, before) = first.unwrap_or((end, done));
    Rate { count: done - before, elapsed: end - start, lost }
}
