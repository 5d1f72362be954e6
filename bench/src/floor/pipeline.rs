//! Many exchanges under way at once.

use core::time::Duration;

use super::{
    Exchange, Rate, Side,
    wire::{Wire, clock, echoing, run},
};

/// Waits in a row in which nothing arrived, two seconds, after which the rest is given up. Not earlier: the scheduler
/// may have taken the server's core, and what is sent again for what comes late makes the pipeline deeper.
const SILENT_MAX: u32 = 20;

/// Keeps `depth` exchanges under way until `count` have ended after `warm_up` others. Each side sends what it owes
/// for all that it found in its receive ring, with one doorbell.
///
/// Each side spins on its own thread. `port` is the UDP port that both backends were opened with.
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
        keep_full(wire, responses, depth, counts)
    })
}

fn keep_full(
    wire: &mut Wire<'_>,
    responses: u64,
    depth: u64,
    (warm_up, count): (u64, u64),
) -> Rate {
    // Of the exchange that was answered only in part so far.
    let mut parts = 0;
    let (mut done, mut silent) = (0, 0);
    let mut first: Option<(Duration, u64)> = None;
    wire.send(depth);
    while done < warm_up + count && silent < SILENT_MAX {
        let new = wire.receive(1);
        if new == 0 {
            silent += 1;
            continue;
        }
        silent = 0;
        parts += new;
        wire.send(parts / responses);
        done += parts / responses;
        parts %= responses;
        if first.is_none() && done >= warm_up {
            first = Some((clock(), done));
        }
    }
    let end = clock();
    // Those still under way are not counted, but it is seen whether one was lost on the way.
    let mut missing = depth * responses - parts;
    while missing > 0 && silent < SILENT_MAX {
        missing = missing.saturating_sub(wire.receive(missing));
        silent += 1;
    }
    let lost = missing.div_ceil(responses);
    let (start, before) = first.unwrap_or((end, done));
    Rate { count: done - before, elapsed: end - start, lost }
}
