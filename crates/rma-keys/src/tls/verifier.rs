//! The answers to `rustls`'s questions about a peer's certificate, at either side of a handshake.
//!
//! It asks [`Trust`], and at the client's side besides whether the service is the one that is
//! expected. No certificate is taken that this refuses, and nothing else of this crate takes any.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use crate::{
    identity::SpiffeId,
    tls::{
        refused::CertificateRefused,
        trust::{Side, Trust},
    },
};

type Signature = Result<HandshakeSignatureValid, Error>;

/// Takes clients of all trust domains, as what they may have is asked later.
#[derive(Debug)]
pub(super) struct Clients(pub(super) Arc<Trust>);

/// Takes one service.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) trust: Arc<Trust>,
    pub(super) expected: SpiffeId,
}

impl From<CertificateRefused> for Error {
    fn from(why: CertificateRefused) -> Self {
        CertificateError::Other(OtherError(Arc::new(why))).into()
    }
}

impl Trust {
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

/// No handshake of this version is ever agreed on.
fn no_tls12() -> Signature {
    Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify(Side::Client, leaf, rest, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Signature {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Signature {
        verify_tls13_signature(message, leaf, signature, self.0.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.algorithms().supported_schemes()
    }
}

impl ServerCertVerifier for Service {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = self.trust.verify(Side::Server, leaf, rest, now)?;
        if found != self.expected {
            let expected = self.expected.clone();
            return Err(CertificateRefused::Unexpected { expected, found }.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Signature {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Signature {
        verify_tls13_signature(message, leaf, signature, self.trust.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.algorithms().supported_schemes()
    }
}
