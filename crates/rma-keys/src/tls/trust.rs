//! Trusted roots: trust domains, each with roots of its own.
//!
//! With all roots in one store, a root of one domain could prove identities of another. So the
//! identity that a certificate names chooses the store, before its chain is looked at.

use std::{collections::BTreeMap, sync::Arc};

use rustls::{
    CertificateError, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime},
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use crate::{
    identity::{SCHEME, SpiffeId},
    tls::{
        CERTIFICATE_LEN_MAX, CHAIN_MAX,
        certificate::{Certificate, PublicKey},
        refused::CertificateRefused,
        wall::wall_time,
    },
};

/// Trust domains and their roots.
#[derive(Debug)]
pub struct Trust {
    domains: BTreeMap<Box<str>, Domain>,
    pub(super) provider: Arc<CryptoProvider>,
}

/// The roots of one trust domain.
#[derive(Debug)]
struct Domain {
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
}

/// The role of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that accepts connections.
    Server,
    /// The side that makes connections.
    Client,
}

/// The reason why certificates cannot be roots of a trust domain.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// There are none.
    #[error("the bundle of {domain} has no certificate")]
    Empty {
        /// The trust domain.
        domain: Box<str>,
    },
    /// One of them is no certificate.
    #[error("certificate {number} of the bundle of {domain} cannot be a root: {why}")]
    Root {
        /// The trust domain.
        domain: Box<str>,
        /// Its number in the bundle, from 1.
        number: usize,
        /// The fault.
        why: rustls::Error,
    },
    /// One of them has a key that nothing signed with is believed of.
    #[error(
        "certificate {number} of the bundle of {domain} has {key}, of which no signature is believed; RSA has 2048 to 8192 bits, ECDSA is on P-256 or P-384"
    )]
    Key {
        /// The trust domain.
        domain: Box<str>,
        /// Its number in the bundle, from 1.
        number: usize,
        /// The key that it has.
        key: PublicKey,
    },
    /// It has some already.
    #[error("there are two bundles of {domain}; put all of its roots into one")]
    Twice {
        /// The trust domain.
        domain: Box<str>,
    },
    /// Its name is none.
    #[error("{domain:?} is no name of a trust domain")]
    Name {
        /// The name.
        domain: Box<str>,
    },
}

impl Trust {
    /// Nobody is trusted.
    #[must_use]
    pub fn none() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Self { domains: BTreeMap::new(), provider }
    }

    /// Trusts identities of `domain` that a chain from one of `roots` proves.
    ///
    /// # Errors
    /// If there is none, one of them can be none, or the domain has some already.
    pub fn with(
        mut self,
        domain: &str,
        roots: Vec<CertificateDer<'static>>,
    ) -> Result<Self, TrustError> {
        let name = || domain.into();
        let member: Option<SpiffeId> = format!("{SCHEME}{domain}/-").parse().ok();
        if member.is_none_or(|it| it.domain() != domain) {
            return Err(TrustError::Name { domain: name() });
        }
        if self.domains.contains_key(domain) {
            return Err(TrustError::Twice { domain: name() });
        }
        let mut store = RootCertStore::empty();
        for (number, root) in (1..).zip(roots) {
            let key = Certificate::read(&root).map(|it| it.key);
            if let Some(key) = key.ok().filter(|it| !it.can_verify()) {
                return Err(TrustError::Key { domain: name(), number, key });
            }
            store.add(root).map_err(|why| TrustError::Root { domain: name(), number, why })?;
        }
        let roots = Arc::new(store);
        let provider = Arc::clone(&self.provider);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider)
            .clear_root_hint_subjects()
            .build()
            .or(Err(TrustError::Empty { domain: name() }))?;
        self.domains.insert(name(), Domain { roots, clients });
        Ok(self)
    }

    /// The names of the trust domains.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(AsRef::as_ref)
    }

    /// Verifies the chain that `side` has sent, and returns the identity in its first certificate.
    pub(super) fn verify(
        &self,
        side: Side,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<SpiffeId, CertificateRefused> {
        let is_root = |it: &CertificateDer<'_>| Certificate::read(it).is_ok_and(|it| it.is_root());
        let rest = match rest.split_last() {
            // Of no use: it is trusted as it is in the bundle, or not at all.
            Some((last, others)) if rest.len() >= CHAIN_MAX && is_root(last) => others,
            _ => rest,
        };
        if rest.len() >= CHAIN_MAX {
            return Err(CertificateRefused::ChainLength { count: rest.len() + 1 });
        }
        for (number, len) in (1..).zip([leaf].into_iter().chain(rest).map(|it| it.len())) {
            if len > CERTIFICATE_LEN_MAX {
                return Err(CertificateRefused::Length { number, len });
            }
        }
        let identity = Certificate::read(leaf)?.identity()?;
        let Some(domain) = self.domains.get(identity.domain()) else {
            return Err(CertificateRefused::Domain { identity });
        };
        let chain = match side {
            Side::Client => domain.clients.verify_client_cert(leaf, rest, now).map(drop),
            Side::Server => ParsedCertificate::try_from(leaf).and_then(|parsed| {
                let algorithms = self.provider.signature_verification_algorithms.all;
                let roots = &domain.roots;
                verify_server_cert_signed_by_trust_anchor(&parsed, roots, rest, now, algorithms)
            }),
        };
        match chain {
            Ok(()) => Ok(identity),
            Err(why) => Err(refusal(identity, why, now)),
        }
    }
}

/// Translates the verdict of `rustls` on a chain, by name and with the dates.
fn refusal(identity: SpiffeId, why: rustls::Error, now: UnixTime) -> CertificateRefused {
    let seen = wall_time(now);
    let why = match why {
        rustls::Error::InvalidCertificate(why) => why,
        _ => CertificateError::ApplicationVerificationFailure,
    };
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            CertificateRefused::Ended { identity, not_after: wall_time(not_after), seen }
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            CertificateRefused::NotYet { identity, not_before: wall_time(not_before), seen }
        }
        CertificateError::UnknownIssuer => CertificateRefused::Issuer { identity },
        why => CertificateRefused::Chain { identity, why },
    }
}
