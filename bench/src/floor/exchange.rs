//! The packets that hosts exchange to measure floors, and the rates.

use core::time::Duration;

use rma_core::addr::HostAddr;
use rma_xdp::device::xdp::SteeredSockets;

use crate::error::PairError;

/// One of the two hosts.
#[derive(Debug)]
pub struct Side<'a> {
    /// The sockets of its interface.
    pub sockets: &'a mut SteeredSockets,
    /// Its address.
    pub address: HostAddr,
    /// The hardware address of its interface.
    pub mac: [u8; 6],
    /// The core that its thread runs on; `None` leaves that to the scheduler.
    pub core: Option<usize>,
}

/// Both of them.
#[derive(Debug)]
pub struct Sides<'a> {
    /// The one that would read and write.
    pub client: Side<'a>,
    /// The one that would have the region.
    pub server: Side<'a>,
    /// The UDP port of both.
    pub port: u16,
}

/// The packets of an exchange: one packet there, some packets back.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// UDP payload of the request in bytes.
    pub request_len: usize,
    /// UDP payload of each response in bytes.
    pub response_len: usize,
    /// Responses to one request; at least 1.
    pub responses: usize,
}

/// The packets that arrived in a time.
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
