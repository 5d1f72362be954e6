//! Transfers by CommandExecutors, as an application makes them: how much gets through, and what
//! small calls wait for beside large ones.
//!
//! The application, its executor and its inline engine share one thread. Before and after each
//! measurement every call is over.

use core::time::Duration;

use rma_bench::{client::Client, error::PairError, interrupt::Interrupt, latency::Latencies};
use rma_core::{
    cc::CcConfigBuilder,
    executor::{Call, CallStatus, CommandExecutor, Piece},
    op::ClassOfService,
    time::{Clock, Instant},
};
use rma_xdp::{InlineHost, OpType, Permissions, RegisteredRegion, ops::PortalLease};

use crate::error::TransferError;

/// Bytes of a large transfer.
pub const LARGE: u64 = 4 << 20;

/// Bytes of a small call.
pub const SMALL: u64 = 64;

/// Command slots of the executor's portal.
const SLOTS: u16 = 256;

/// Large transfers under way at once, so that one begins while the other ends.
pub const PIPELINED: u64 = 2;

/// An executor over a portal of a client's, and memory for its transfers.
#[derive(Debug)]
pub struct Transfers {
    executor: CommandExecutor,
    /// Of the slots of its portal.
    _lease: PortalLease,
    large: RegisteredRegion,
    small: RegisteredRegion,
}

/// The bytes that were moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Bytes of payload.
    pub bytes: u64,
    /// In this time.
    pub elapsed: Duration,
    /// Ops that had to be issued again.
    pub retries: u64,
}

impl Moved {
    /// Payload, in bytes a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

impl Transfers {
    /// An executor of `host` with the settings that suit it, but for those in `cc`.
    ///
    /// # Errors
    /// If slots or memory cannot be had.
    pub fn open(host: &mut InlineHost, cc: Option<CcConfigBuilder>) -> Result<Self, PairError> {
        let mut config = host.executor_config();
        config.cc = cc.unwrap_or(config.cc);
        let (portal, lease) = host.portal(SLOTS)?.into_parts();
        let executor = CommandExecutor::new(portal, config).map_err(TransferError::from)?;
        let large = host.register((PIPELINED * LARGE) as usize, Permissions::NONE)?;
        let small = host.register(SMALL as usize, Permissions::NONE)?;
        Ok(Self { executor, _lease: lease, large, small })
    }

    /// Moves `count` large transfers one way, all between the same bytes of the granted region and
    /// local memory.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn large(
        &mut self,
        client: &mut Client,
        op_type: OpType,
        counts: (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Moved, PairError> {
        self.of_len(client, (op_type, LARGE), counts, interrupt)
    }

    /// [`Transfers::large`] of `len` bytes each, at most [`LARGE`].
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn of_len(
        &mut self,
        client: &mut Client,
        (op_type, len): (OpType, u64),
        (count, at_once): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Moved, PairError> {
        let grant = client.grants.get(op_type)?;
        let piece = |index: u64| Piece {
            grant: &grant,
            remote_offset: index % PIPELINED * LARGE,
            local: &self.large,
            local_offset: index % PIPELINED * LARGE,
            len,
        };
        let start = client.clock.now();
        let (mut submitted, mut done, mut retries, mut looks) = (0, 0, 0, 0_u32);
        while done < count {
            let now = client.clock.now();
            if submitted < count && submitted - done < at_once {
                let pieces = [piece(submitted)];
                self.executor.submit(now, &Call::of(&pieces)).map_err(TransferError::from)?;
                submitted += 1;
            }
            client.host.turn();
            self.executor.poll(now);
            if let Some(outcome) = self.executor.poll_outcome() {
                if outcome.status != CallStatus::Ok {
                    return Err(TransferError::Failed { status: outcome.status }.into());
                }
                (done, retries) = (done + 1, retries + u64::from(outcome.retries));
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(4096) && interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
        }
        let elapsed = client.clock.now().since(start);
        Ok(Moved { bytes: count * len, elapsed, retries })
    }

    /// Reads 64 bytes again and again, `count` times, one after the other; with `beside`, while a
    /// large read is under way all the time. Returns how long each small call took, from before it
    /// is submitted until its outcome, and what the large reads moved meanwhile: the last of them
    /// is given up after the last small call.
    ///
    /// # Errors
    /// If a call fails.
    pub fn small(
        &mut self,
        client: &mut Client,
        count: u64,
        beside: Option<u64>,
        interrupt: &Interrupt,
    ) -> Result<(Latencies, Moved), PairError> {
        let grant = client.grants.get(OpType::Read)?;
        let large = [Piece {
            grant: &grant,
            remote_offset: 0,
            local: &self.large,
            local_offset: 0,
            len: beside.unwrap_or(LARGE),
        }];
        let small = [Piece { local: &self.small, len: SMALL, remote_offset: LARGE, ..large[0] }];
        let large = Call::of(&large).with(|it| it.class = Some(ClassOfService::Throughput));
        let small = Call::of(&small);
        let mut latencies = Latencies::new();
        let (mut background, mut foreground): (_, Option<(_, Instant)>) = (None, None);
        let (mut started, mut looks) = (0, 0_u32);
        let (mut bytes, mut retries) = (0, 0);
        let start = client.clock.now();
        while started < count || foreground.is_some() || background.is_some() {
            let now = client.clock.now();
            if beside.is_some() && background.is_none() && started < count {
                background = Some(self.executor.submit(now, &large).map_err(TransferError::from)?);
            }
            if foreground.is_none() && started < count {
                let call = self.executor.submit(now, &small).map_err(TransferError::from)?;
                foreground = Some((call, now));
                started += 1;
            }
            if let (Some(large), None) = (background, foreground) {
                self.executor.cancel(large);
            }
            self.executor.poll(now);
            client.host.turn();
            self.executor.poll(client.clock.now());
            while let Some(outcome) = self.executor.poll_outcome() {
                let is_large = background == Some(outcome.call);
                let given_up = is_large && outcome.status == CallStatus::Cancelled;
                if outcome.status != CallStatus::Ok && !given_up {
                    return Err(TransferError::Failed { status: outcome.status }.into());
                }
                if is_large {
                    background = None;
                    bytes += outcome.bytes_done;
                    retries += u64::from(outcome.retries);
                } else if let Some((_, since)) = foreground.take() {
                    latencies.record(client.clock.now().since(since));
                }
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(4096) && interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
        }
        let elapsed = client.clock.now().since(start);
        Ok((latencies, Moved { bytes, elapsed, retries }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rma_bench::pair::{Pair, PairConfig, Place};

    #[test]
    fn large_transfers_and_small_calls_beside_them_end_well_over_loopback() {
        let config = PairConfig {
            port: 20_000 + std::process::id() as u16 % 10_000,
            ..PairConfig::default()
        };
        let mut pair = Pair::open(Place::Loopback, &config).unwrap();
        let mut transfers = Transfers::open(&mut pair.client.host, None).unwrap();
        let interrupt = Interrupt::default();
        for op_type in [OpType::Read, OpType::Write] {
            let moved = pair
                .run(|client| transfers.large(client, op_type, (2, PIPELINED), &interrupt))
                .unwrap();
            assert_eq!(moved.bytes, 2 * LARGE);
        }
        for beside in [None, Some(LARGE)] {
            let run = |client: &mut Client| transfers.small(client, 300, beside, &interrupt);
            let (latencies, moved) = pair.run(run).unwrap();
            assert_eq!(latencies.count(), 300);
            assert_eq!(moved.bytes > 0, beside.is_some(), "{moved:?}");
        }
    }
}
