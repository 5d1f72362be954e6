//! Why an application does not get what it waits for.

use rma_core::executor::{CallError, Outcome};
use thiserror::Error;

/// Why a client has no thread of its own. Exhaustive on purpose: the errors of hosts have a place
/// for each.
#[derive(Debug, Error)]
pub enum StartError {
    /// It would have nothing to wait for.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The system has no thread left.
    #[error("starting a client's thread: {0}; or poll in one of yours, with Client::poller")]
    Thread(#[from] std::io::Error),
}

/// Why a transfer is not done.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferError {
    /// It cannot be right, or there is no room for it: nothing was issued. The caller's doing,
    /// never the network's.
    #[error(transparent)]
    Refused(#[from] CallError),
    /// No place is free for it among the calls of its executor, and it was not to wait for one.
    /// Nothing was issued.
    #[error(
        "all places for such calls are taken ({calls} calls are under way, {waiting} transfers wait); try again when \
         some are over, or raise `calls` of the executor"
    )]
    Full {
        /// How many calls are not over.
        calls: usize,
        /// How many transfers wait for a place.
        waiting: usize,
    },
    /// It is over and not all bytes were transferred. The outcome tells which are missing;
    /// [`Outcome::remaining`] makes of it what to ask of another replica.
    #[error(
        "{} of region {} at {}: {}; {} bytes were transferred and {} are missing; ask another replica for those",
        .0.op_type, .0.region, .0.responder, .0.status, .0.bytes_done,
        .0.missing.iter().map(|missing| missing.len).sum::<u64>()
    )]
    Failed(Outcome),
    /// It is not over, and waiting for it would be of no use.
    #[error(transparent)]
    Unfinished(#[from] WaitError),
}

/// Why waiting for a completion ended without one.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// No op is in flight, and no call: there is nothing to wait for.
    #[error("nothing is in flight; issue an op or submit a call first")]
    NothingOutstanding,
    /// The engine is inline: it does nothing while its thread waits.
    #[error(
        "the engine is inline and cannot run while its thread waits; wait with the methods of InlineHost"
    )]
    InlineEngine,
    /// The portal is another host's, whose engine does not run here.
    #[error("this portal belongs to another host; wait with the host that it was allocated from")]
    AnotherHost,
    /// The engine thread is gone, and with it the op.
    #[error("the engine thread has ended; what is in flight will not complete")]
    EngineGone,
}
