//! Errors of serving keys, and of transfers by name.

use std::{io, net::SocketAddr};

use rma_app::{TransferError, WaitError};
use rma_core::{
    executor::{CallStatus, Outcome},
    gate::Refused,
};
use rma_keys::{
    catalog::CatalogError,
    io::{
        keeper::{KeeperError, PublishError},
        key_cache::NoKey,
        server::StartError,
    },
    name::NameError,
};
use rma_shm::{Forked, Told};
use thiserror::Error;

/// The reason why a [`KeyServer`](super::KeyServer) does not start, or does not do what it was
/// asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyServerError {
    /// It cannot listen.
    #[error("the key service cannot listen at {address}: {}", Told::of(source))]
    Listen {
        /// The address for it.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Its credentials are not in order, or the system has no thread for it.
    #[error(transparent)]
    Start(#[from] StartError),
    /// There is no policy, or its log cannot be written.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// The text names no region.
    #[error("{name:?} is no name of a region: {why}")]
    Name {
        /// The text.
        name: Box<str>,
        /// The fault.
        why: NameError,
    },
    /// The catalog has no such region, or no room for it.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The host did not change the region's key, for example as it is not registered there.
    /// [`Refused::why`] has the host's own error.
    #[error("the region's key cannot be changed: {0}")]
    Host(#[from] Refused),
    /// A region of another host is not kept, or the file of their keys is not in order.
    #[error(transparent)]
    Remote(Box<PublishError>),
}

impl From<PublishError> for KeyServerError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Host(error) => Self::Host(error),
            PublishError::Catalog(error) => Self::Catalog(error),
            PublishError::Random(error) => Self::Keeper(KeeperError::Random(error)),
            other => Self::Remote(Box::new(other)),
        }
    }
}

/// The reason why a transfer by name is not done.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum KeyedError {
    /// There is no key to go by, or to go on by.
    #[error("{why}{}", Before(.last.as_deref()))]
    NoKey {
        /// Of which region, of which service, and why.
        why: Box<NoKey>,
        /// The outcome of the last try, if there was one: with what is missing.
        last: Option<Box<Outcome>>,
    },
    /// It is over for another reason than keys.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

impl From<Forked> for KeyedError {
    fn from(forked: Forked) -> Self {
        Self::Transfer(WaitError::from(forked).into())
    }
}

/// The sentence for a person about a try before there was no key.
struct Before<'a>(Option<&'a Outcome>);

impl core::fmt::Display for Before<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Some(Outcome { op_type, responder, status, .. }) = self.0 else { return Ok(()) };
        write!(f, "; before, {op_type} at {responder} ended: {status}")
    }
}

impl KeyedError {
    /// Returns the status of the last try, if there was one: what [`Replicas::report`] is told.
    ///
    /// [`Replicas::report`]: rma_keys::replicas::Replicas::report
    #[must_use]
    pub fn status(&self) -> Option<CallStatus> {
        self.outcome().map(|it| it.status)
    }

    /// Returns the outcome of the last try, if there was one, with the pieces that it left missing:
    /// for [`KeyedTransfer::remaining`](super::KeyedTransfer::remaining). If there was none, all
    /// is.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::NoKey { last: Some(outcome), .. }
            | Self::Transfer(TransferError::Failed(outcome) | TransferError::Unknown(outcome)) => {
                Some(outcome)
            }
            _ => None,
        }
    }
}
