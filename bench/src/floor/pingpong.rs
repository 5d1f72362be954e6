//! One exchange at a time: how long packets take there and back.
//!
//! Not how many a second: that is `pipeline` and `flood`.

use hdrhistogram::Histogram;
use rma_xdp::device::xdp::packet::Headers;

use super::{
    exchange::{Exchange, Side},
    wire::{BURST, Wire, clock, echoing, run},
};

/// The packets of a mutation: one small packet there, one back, some with data there, one small one
/// back.
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

/// Runs `count` exchanges after `warm_up` others, one at a time: `client` sends, `server` answers.
/// Each side spins on its own thread. `port` is the UDP port that both sides were opened with.
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

/// Times `exchange`, which says whether it got its answer: `warm_up` times for nothing, then
/// `count` times.
pub(crate) fn timed(
    (warm_up, count): (u64, u64),
    mut exchange: impl FnMut() -> bool,
) -> RoundTrips {
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

/// One microsecond to ten seconds, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("the bounds are valid")
}
