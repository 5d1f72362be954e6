//! The error of a work request's future: [`WorkError`].

use rma_star::{library::PostError, verbs::WcStatus};
use thiserror::Error;

use crate::error::WaitError;

/// The reason why a work request of a future did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkError {
    /// It was not posted.
    #[error(transparent)]
    Refused(#[from] PostError),
    /// The buffer is not in the memory region that the queue pair's buffers are of. It was not
    /// posted.
    #[error(
        "the buffer is of another pool than this queue pair's memory region; take one from the \
         pool of that region"
    )]
    OtherMemory,
    /// It has failed, and its connection with it.
    #[error("{0}")]
    Failed(WcStatus),
    /// Nobody will ever tell: waiting is of no use.
    #[error(transparent)]
    Unfinished(#[from] WaitError),
}
