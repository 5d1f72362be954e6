//! Errors of an application's waits.

use core::fmt;

use rma_core::executor::{CallError, CallStatus, Outcome};
use rma_shm::{Forked, Told};
use thiserror::Error;

/// The reason why a client has no thread of its own. Exhaustive on purpose: the errors of hosts
/// have a place for each.
#[derive(Debug, Error)]
pub enum StartError {
    /// It would have nothing to wait for.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The system has no thread left.
    #[error(
        "starting a client's thread: {}; or poll in one of yours, with Client::poller", Told::of_thread(.0)
    )]
    Thread(#[from] std::io::Error),
}

/// The reason why a transfer is not done.
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
    ///
    /// Of a recorded op, and of the one that was to publish a transfer: it was not applied, and
    /// never will be (but of a WRITE_WITH_IMM that is not ordered some bytes may have landed).
    #[error("{}", Failure(.0))]
    Failed(Box<Outcome>),
    /// It is over, and its recorded op, or the one that was to publish it, may have been applied,
    /// once, or not: its target did not say in time. Which of the two is final. Never issue it
    /// again blindly: ask by [`Outcome::in_doubt`] first, with [`Client::settle`] or
    /// [`Transfers::settle`], within a few timeouts.
    ///
    /// [`Client::settle`]: crate::Client::settle
    /// [`Transfers::settle`]: crate::Transfers::settle
    #[error(
        "{} of region {} at {}: {}; ask its target with `settle`, and do not issue it again before",
        .0.op_type, .0.region, .0.responder, .0.status
    )]
    Unknown(Box<Outcome>),
    /// It is not over, and waiting for it would be of no use. Of a recorded op nobody will ever
    /// tell whether it was applied.
    #[error(transparent)]
    Unfinished(#[from] WaitError),
}

impl TransferError {
    /// Whether a recorded op, or the one that was to publish a transfer, may have been applied all
    /// the same. If not, it was not and never will be: it may be issued again.
    ///
    /// ```
    /// # use rma_xdp::{TransferError, WaitError, transfer::CallError};
    /// let refused = TransferError::Refused(CallError::TooManyCalls { calls: 1 });
    /// assert!(!refused.may_have_been_applied());
    /// assert!(TransferError::Unfinished(WaitError::EngineGone).may_have_been_applied());
    /// ```
    #[must_use]
    pub const fn may_have_been_applied(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Unfinished(_) => true,
            Self::Refused(_) | Self::Full { .. } | Self::Failed(_) => false,
        }
    }
}

/// The sentence for a person about a call that failed.
struct Failure<'a>(&'a Outcome);

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { op_type, region, responder, status, bytes_done, missing, .. } = self.0;
        write!(f, "{op_type} of region {region} at {responder}: {status}; ")?;
        if op_type.shape().transfer.is_none() {
            return f.write_str("it was not applied, and will not be");
        }
        let missing: u64 = missing.iter().map(|missing| missing.len).sum();
        write!(f, "{bytes_done} bytes were transferred and {missing} are missing; ")?;
        f.write_str("ask another replica for those")?;
        match status {
            CallStatus::PeerSilent { .. } => {
                f.write_str(", or stay with this one for longer (`RetryPolicy::outlast`)")
            }
            _ => Ok(()),
        }
    }
}

impl WaitError {
    /// Whether nothing will ever be over, as there is no engine any longer.
    pub(crate) const fn is_for_good(self) -> bool {
        matches!(self, Self::EngineGone | Self::Forked(_))
    }
}

/// The reason why waiting for a completion ended without one.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// No op is in flight, and no call: there is nothing to wait for.
    #[error("nothing is in flight; issue an op or submit a call first")]
    NothingOutstanding,
    /// The engine is inline: it does nothing while its thread waits.
    #[error(
        "the engine is inline and cannot run while its thread waits; wait with InlineHost::wait"
    )]
    InlineEngine,
    /// The portal is another host's, whose engine does not run here.
    #[error("this portal belongs to another host; wait with the host that it was allocated from")]
    AnotherHost,
    /// The engine thread is gone, and with it the op.
    #[error("the engine thread has ended, so ops in flight will not complete; open the host anew")]
    EngineGone,
    /// The engine is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
}
