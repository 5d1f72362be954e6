//! Failures of the measurements of this crate. Those of hosts and of single ops are of
//! [`PairError`], into which these go.

use rma_bench::error::PairError;
use rma_core::executor::{CallError, CallStatus, ExecutorConfigError};
use rma_kv::demo::DemoError;
use rma_xdp::{
    channel,
    star::{ConnectError, CreateError, PostError, WcStatus, WqeOp},
};

/// A failure of a measurement of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// Instructions could not be counted.
    #[error("counting instructions with valgrind: {0}")]
    Valgrind(#[source] std::io::Error),
    /// Transfers could not be measured.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// Ops did not complete, which breaks promise P1.
    #[error(
        "{ops} ops have not completed long after their bound: this must never happen, please report it"
    )]
    NeverEnded {
        /// How many ops have no completion yet.
        ops: u64,
    },
    /// A server was started and has not granted anything.
    #[error(
        "a server that was started did not serve within {within:?}; look whether the machine is too busy"
    )]
    NotServed {
        /// How long it was given.
        within: core::time::Duration,
    },
    /// Queue pairs do not do what they should.
    #[error("queue pairs of StaR: {0}")]
    QueuePairs(#[from] QueuePairError),
    /// A channel does not do what it should.
    #[error("the channel {kind}: {why}")]
    Channel {
        /// The kind of channel.
        kind: channel::Kind,
        /// The error's text.
        why: String,
    },
    /// The servers of the cache could not be started.
    #[error(transparent)]
    Servers(#[from] DemoError),
    /// The cache does not do what it should.
    #[error("the cache: {0}")]
    Cache(String),
}

impl From<FigureError> for PairError {
    fn from(error: FigureError) -> Self {
        Self::Other(Box::new(error))
    }
}

/// An error that kept transfers from being measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// A setting does not work. A bug of the bench.
    #[error(transparent)]
    Config(#[from] ExecutorConfigError),
    /// A call was refused. A bug of the bench.
    #[error("a call was refused: {0}")]
    Call(#[from] CallError),
    /// A call did not end well.
    #[error("a transfer ended with {status}; look whether the machine is too busy")]
    Failed {
        /// The status that it ended with.
        status: CallStatus,
    },
}

impl From<TransferError> for PairError {
    fn from(error: TransferError) -> Self {
        FigureError::from(error).into()
    }
}

/// An error of queue pairs that do not do what they should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueuePairError {
    /// One was not made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Two were not connected.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A work request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A work request failed.
    #[error("a {opcode:?} ended with {status:?}")]
    Failed {
        /// The op.
        opcode: WqeOp,
        /// The status that it ended with.
        status: WcStatus,
    },
    /// A connection is not there in time.
    #[error("a connection is not set up after {patience:?}")]
    NotReady {
        /// For how long it was waited for.
        patience: core::time::Duration,
    },
}

impl From<QueuePairError> for PairError {
    fn from(error: QueuePairError) -> Self {
        FigureError::from(error).into()
    }
}
