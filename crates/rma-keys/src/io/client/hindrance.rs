//! The hindrance of a fetch: no connection, or one that ends.
//!
//! Each is tried again as long as the fetch has time; the last of them is told.

use std::io::ErrorKind;

use crate::{
    cause::Cause, io::link::Ended, message::malformed::Malformed, tls::refused::CertificateRefused,
};

/// The hindrance of a fetch.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Hindrance {
    /// Its turn has not come.
    #[error("it has not been tried yet, because other addresses come first; give it more time")]
    Waiting,
    /// Nothing has, so far.
    #[error("it is connected, or about to be; give it more time")]
    Silent,
    /// No connection was made.
    #[error("cannot connect: {0}")]
    Connect(Cause),
    /// Something took too long.
    #[error("{0} took too long")]
    Time(&'static str),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Lost(ErrorKind),
    /// The service closed the connection.
    #[error("it closed the connection; see its log for the reason")]
    Closed,
    /// The service's certificate is not taken.
    #[error(transparent)]
    Certificate(Box<CertificateRefused>),
    /// The handshake failed, perhaps as the service does not take one's own certificate.
    #[error("TLS: {0}")]
    Tls(Box<rustls::Error>),
    /// It is no service of this protocol.
    #[error("it does not speak 1rma-keys/1; check that this address is a key service's")]
    Protocol,
    /// It sent too much that nobody had asked for.
    #[error(
        "it sends replies to requests that it was not asked, or has answered before; check that \
         this address is a key service's"
    )]
    Unasked,
    /// The peer sent a length that no message has.
    #[error(transparent)]
    Frame(Box<Malformed>),
}

impl From<Ended> for Hindrance {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Closed => Self::Closed,
            Ended::Lost(kind) => Self::Lost(kind),
            Ended::Tls(error) => match CertificateRefused::cause(&error) {
                Some(why) => Self::Certificate(Box::new(why.clone())),
                None => Self::Tls(Box::new(error)),
            },
            Ended::Frame(why) => Self::Frame(Box::new(why)),
        }
    }
}
