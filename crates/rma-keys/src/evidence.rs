//! The evidence that the end of an op gives about its key: the one table from which both ends of a
//! rotation conclude.
//!
//! It is not what becomes of the op: software retries what failed in passing. Invariant: only what
//! came sealed under a key proves that its responder has that key. A
//! REMOTE_AUTHENTICATION_FAILURE comes under the reserved key, which everybody knows (§4.2), so it
//! proves nothing: it may be forged.

use rma_core::op::OpStatus;

/// The evidence that an op gives about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Its responder had it: the answer was sealed under it.
    Holds,
    /// Its responder says that it has another. Or somebody else says so.
    Refused,
    /// Nothing came.
    Silence,
    /// Nothing: the op was never sent.
    Unsent,
}

impl Evidence {
    /// Returns the evidence that an op with this status gives about its key.
    pub(crate) const fn of(status: OpStatus) -> Self {
        match status {
            // A NACK, too, is sealed under the op's key.
            OpStatus::Ok
            | OpStatus::Nack
            | OpStatus::RemoteOutOfBounds
            | OpStatus::RemotePermissionDenied
            | OpStatus::RemoteNotReady => Self::Holds,
            OpStatus::RemoteAuthenticationFailure => Self::Refused,
            OpStatus::Timeout => Self::Silence,
            OpStatus::DispatchTimeout | OpStatus::InvalidCommand => Self::Unsent,
        }
    }
}
