//! Refusals of a peer's certificate.
//!
//! Each says which certificate it was, and by which date it was judged. The peer itself is told no
//! more than an alert of TLS.

use rustls::{CertificateError, Error, OtherError};

use crate::{
    certificate::{DerError, NoIdentity},
    identity::SpiffeId,
    time::WallTime,
    tls::{CERTIFICATE_LEN_MAX, CHAIN_MAX},
};

/// The reason why a certificate is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateRefused {
    /// The chain is too long.
    #[error("a chain of {count} certificates; at most {CHAIN_MAX} are looked at")]
    ChainLength {
        /// How many there are.
        count: usize,
    },
    /// A certificate is too long.
    #[error(
        "certificate {number} of the chain has {len} octets, and may have {CERTIFICATE_LEN_MAX}"
    )]
    Length {
        /// Its number in the chain, from 1: the peer's own.
        number: usize,
        /// Its length in octets.
        len: usize,
    },
    /// It cannot be read.
    #[error("the certificate cannot be read: {0}")]
    Unreadable(#[from] DerError),
    /// It names no identity.
    #[error(transparent)]
    NoIdentity(#[from] NoIdentity),
    /// There are no roots of its trust domain.
    #[error("no roots are known of the trust domain of {identity}; add its bundle")]
    Domain {
        /// The identity that it names.
        identity: SpiffeId,
    },
    /// Its chain ends at no root of its trust domain.
    #[error("the certificate of {identity} is not signed by a root of its trust domain")]
    Issuer {
        /// The identity that it names.
        identity: SpiffeId,
    },
    /// It has ended, or one of its chain has.
    #[error("the certificate of {identity} ended at {not_after}; it is {seen} here")]
    Ended {
        /// The identity that it names.
        identity: SpiffeId,
        /// When it ended.
        not_after: WallTime,
        /// The date here.
        seen: WallTime,
    },
    /// It is not good yet, or one of its chain is not.
    #[error("the certificate of {identity} is good from {not_before} on; it is {seen} here")]
    NotYet {
        /// The identity that it names.
        identity: SpiffeId,
        /// When it begins.
        not_before: WallTime,
        /// The date here.
        seen: WallTime,
    },
    /// It is somebody else's.
    #[error("the certificate is {found}'s, and {expected} was expected")]
    Unexpected {
        /// The expected identity.
        expected: SpiffeId,
        /// The identity that was found.
        found: SpiffeId,
    },
    /// Its chain is wrong in another way: a signature, a purpose, a constraint.
    #[error("the chain of {identity} does not hold: {why}")]
    Chain {
        /// The identity that it names.
        identity: SpiffeId,
        /// The fault.
        why: CertificateError,
    },
}

impl CertificateRefused {
    /// The refusal that made a handshake fail, if one did.
    #[must_use]
    pub fn cause(error: &Error) -> Option<&Self> {
        match error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
                why.downcast_ref()
            }
            _ => None,
        }
    }
}
