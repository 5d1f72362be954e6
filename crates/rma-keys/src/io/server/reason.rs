//! The reasons why a service's connections end: a counter for each reason.

use rustls::{CertificateError, Error, InvalidMessage};

use crate::{io::link::Ended, tls::refused::CertificateRefused};

/// A row for each reason: its name, in logs and metrics, and what it means.
macro_rules! reasons {
    ($($reason:ident $name:literal $doc:literal)+) => {
        /// The reason why a connection has ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum EndReason {
            $(#[doc = $doc] $reason,)+
        }

        impl EndReason {
            /// All reasons, in the order of their counters.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$reason),+];

            /// Returns its name in logs and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)+
                }
            }
        }
    };
}

reasons! {
    Closed "closed" "The client closed it."
    Lost "lost" "It broke."
    ConnectionsFull "connections-full" "There were too many connections."
    ConnectionsOfAddress "connections-of-address" "Its address had too many connections."
    HandshakesFull "handshakes-full" "Too many handshakes were under way."
    HandshakesOfAddress "handshakes-of-address" "Too many handshakes of its address were under way."
    Silent "silent" "It had said nothing, and others wanted its place."
    HandshakeTime "handshake-time" "Its handshake took too long."
    Handshake "handshake" "Its handshake failed, and not for a certificate."
    Protocol "protocol" "It named no protocol of this service, or another one."
    NoCertificate "no-certificate" "It sent no certificate."
    CertificateEnded "certificate-ended" "Its certificate had ended."
    CertificateNotYet "certificate-not-yet" "Its certificate was not good yet."
    CertificateIssuer "certificate-issuer" "Its certificate came from no root of its trust domain."
    CertificateDomain "certificate-domain" "Its certificate was of a trust domain without roots."
    CertificateIdentity "certificate-identity" "Its certificate named no identity, or several."
    CertificateSize "certificate-size" "Its certificates were too long, or too many."
    CertificateUnreadable "certificate-unreadable" "Its certificate could not be read."
    CertificateChain "certificate-chain" "Its certificate's chain was wrong in another way."
    Tls "tls" "What came after the handshake was no TLS."
    FrameLength "frame-length" "It sent a message longer than messages are, or an empty one."
    FrameTime "frame-time" "A message was not whole in time."
    Unread "unread" "It did not read its replies."
    Replaced "replaced" "It had asked nothing for a while, and others wanted its place."
    Idle "idle" "It had asked nothing for too long."
    Age "age" "It had been open for as long as connections are."
}

impl From<&CertificateRefused> for EndReason {
    fn from(why: &CertificateRefused) -> Self {
        use CertificateRefused as Why;
        match why {
            Why::ChainLength { .. } | Why::Length { .. } => Self::CertificateSize,
            Why::Unreadable(_) => Self::CertificateUnreadable,
            Why::NoIdentity(_) => Self::CertificateIdentity,
            Why::Domain { .. } => Self::CertificateDomain,
            Why::Issuer { .. } => Self::CertificateIssuer,
            Why::Ended { .. } => Self::CertificateEnded,
            Why::NotYet { .. } => Self::CertificateNotYet,
            Why::Unexpected { .. } | Why::Chain { .. } => Self::CertificateChain,
        }
    }
}

impl EndReason {
    /// Returns the reason of a failed handshake.
    pub(super) fn of_handshake(error: &Error) -> Self {
        match (CertificateRefused::cause(error), error) {
            (Some(why), _) => why.into(),
            (None, Error::NoCertificatesPresented) => Self::NoCertificate,
            (None, Error::InvalidCertificate(CertificateError::BadEncoding)) => {
                Self::CertificateUnreadable
            }
            // Of what a client sends in a handshake only certificates are ever long.
            (
                None,
                Error::InvalidMessage(
                    InvalidMessage::CertificatePayloadTooLarge
                    | InvalidMessage::HandshakePayloadTooLarge,
                ),
            ) => Self::CertificateSize,
            _ => Self::Handshake,
        }
    }

    /// Returns the reason for which a link ended.
    pub(super) fn of_link(ended: &Ended, is_handshaking: bool) -> Self {
        match ended {
            Ended::Closed => Self::Closed,
            Ended::Lost(_) => Self::Lost,
            Ended::Tls(error) if is_handshaking => Self::of_handshake(error),
            Ended::Tls(_) => Self::Tls,
            Ended::Frame(_) => Self::FrameLength,
        }
    }
}
