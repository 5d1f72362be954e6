//! What the end of an op says about the key that it was under: the one table from which both ends
//! of a rotation conclude.
//!
//! It is not what becomes of the op: software retries what failed in passing. Invariant: only what
//! came sealed under a key proves that its responder has that key. A
//! REMOTE_AUTHENTICATION_FAILURE comes under the reserved key, which everybody knows (§4.2), so it
//! proves nothing: it may be forged.

use rma_core::op::OpStatus;

/// What is known of a key after an op under it.
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
    /// What an op that ended so says of its key.
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
