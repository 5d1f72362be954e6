//! The floor: what the AF_XDP sockets alone can do, without a protocol.
//!
//! The same sockets, rings, chunks and doorbells as the backend uses
//! ([`rma_xdp::xdp::socket::Socket`]), with UDP packets that are written once, before the clock
//! starts, and never looked at again. Nothing that uses these sockets can be faster; everything
//! measured is printed beside it.
//!
//! It is not a benchmark of the protocol, and not reliable: a lost packet is counted and the
//! exchange is repeated, and a result with losses says so.
//!
//! Three kinds: one exchange at a time ([`ping_pong`], [`four_hops`]), for latencies; many under
//! way at once ([`pipeline`], [`pipelined_four_hops`]), for ops in a second; packets in one
//! direction ([`flood`]), for bytes in a second.

mod flood;
mod pingpong;
mod pipeline;
mod wire;

use core::time::Duration;

use rma_core::addr::HostAddr;
use rma_xdp::xdp::XdpBackend;

use crate::pair::PairError;

pub use self::{
    flood::flood,
    pingpong::{FourHops, RoundTrips, four_hops, ping_pong},
    pipeline::{pipeline, pipelined_four_hops},
};

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

/// What arrived in a time.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Packets that arrived, or exchanges that were completed.
    pub count: u64,
    /// In which time.
    pub elapsed: Duration,
    /// Packets that never arrived, in the whole run with its warm-up.
    pub lost: u64,
}

impl Rate {
    /// This rate, if nothing was lost: who waits for what never comes is slow, and no floor.
    ///
    /// # Errors
    /// [`PairError::SpoiledRound`], with `what` in words, such as `frames of the raw flood`.
    pub fn without_loss(self, what: &str) -> Result<Self, PairError> {
        match self.lost {
            0 => Ok(self),
            lost => Err(PairError::SpoiledRound(format!("{lost} {what} were lost"))),
        }
    }

    /// Packets or exchanges in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    /// Bytes in a second, where `len` of them count of each packet or exchange.
    #[must_use]
    pub fn bytes_per_second(&self, len: usize) -> f64 {
        self.per_second() * len as f64
    }
}
