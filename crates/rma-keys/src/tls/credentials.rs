//! One's own certificate and key, and whom to trust: what both sides of a handshake are set up by.
//!
//! A key that does not belong to its certificate, or a certificate that proves no identity, is
//! found here and not in the first handshake. A chain may be in any order, and have its root with
//! it: what is sent is one's own certificate first, and no root.

use std::sync::Arc;

use rustls::{
    ClientConfig, ServerConfig,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::NoServerSessionStorage,
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};

use crate::{
    identity::SpiffeId,
    time::WallTime,
    tls::{
        ALPN, CHAIN_MAX,
        certificate::{Certificate, DerError, PublicKey},
        refused::CertificateRefused,
        trust::{Side, Trust},
        verifier::{Clients, Service},
        wall::{Wall, unix_time},
    },
};

/// An identity that can be proved, and whom its holder trusts.
#[derive(Clone, Debug)]
pub struct Credentials {
    identity: SpiffeId,
    not_after: WallTime,
    /// Since when all of the chain is good.
    begins: WallTime,
    chain: Vec<CertificateDer<'static>>,
    certified: Arc<SingleCertAndKey>,
    trust: Arc<Trust>,
}

/// The reason why a certificate and a key are no credentials.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// There is no certificate, or there are too many.
    #[error(
        "a chain of {count} certificates, the root aside; 1 to {CHAIN_MAX} are sent: one's own, and those between it and the root"
    )]
    ChainLength {
        /// How many there are.
        count: usize,
    },
    /// A certificate cannot be read.
    #[error("certificate {number}: {why}")]
    Unreadable {
        /// Its number, from 1.
        number: usize,
        /// The fault.
        why: DerError,
    },
    /// There are several that are nobody's authority.
    #[error(
        "certificates {first} and {second} are both somebody's own; leave one's own, and those between it and the root"
    )]
    TwoOwn {
        /// The one, from 1.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A certificate has nothing to do with the others.
    #[error(
        "certificate {number} has signed none of the others; take it out, or put in the one that is missing between"
    )]
    Stray {
        /// Its number, from 1.
        number: usize,
    },
    /// The certificate proves no identity.
    #[error(transparent)]
    Certificate(#[from] CertificateRefused),
    /// Nothing can be proved with such a key.
    #[error(
        "the certificate of {identity} has {key}; take ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 to 4096 bits"
    )]
    Weak {
        /// The certificate's identity.
        identity: SpiffeId,
        /// The key that it has.
        key: PublicKey,
    },
    /// The key is another certificate's.
    #[error(
        "the private key does not go with the certificate of {identity}: it is another certificate's; put those that were issued together"
    )]
    OtherKey {
        /// The certificate's identity.
        identity: SpiffeId,
    },
    /// The key is none.
    #[error("the private key for the certificate of {identity} cannot be used: {why}")]
    Key {
        /// The certificate's identity.
        identity: SpiffeId,
        /// The fault.
        why: rustls::Error,
    },
}

impl Credentials {
    /// Credentials of a chain, which is one's own certificate and those between it and the root, in
    /// any order; its key, and whom to trust. A root that is among them is not sent.
    ///
    /// # Errors
    /// If the certificate names no identity, another does not belong to it, or the key is
    /// another's.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        trust: Trust,
    ) -> Result<Self, CredentialsError> {
        let chain = in_order(chain)?;
        let (_, leaf) = &chain[0];
        let identity = leaf.identity().map_err(CertificateRefused::from)?;
        if !leaf.key.can_sign() {
            return Err(CredentialsError::Weak { identity, key: leaf.key });
        }
        let not_after = leaf.not_after;
        let begins = chain.iter().map(|(_, it)| it.not_before).max().unwrap_or(leaf.not_before);
        let chain: Vec<_> = chain.into_iter().map(|(der, _)| der).collect();
        let certified = CertifiedKey::from_der(chain.clone(), key, &trust.provider);
        let certified = certified.map_err(|why| match why {
            rustls::Error::InconsistentKeys(_) => {
                CredentialsError::OtherKey { identity: identity.clone() }
            }
            why => CredentialsError::Key { identity: identity.clone(), why },
        })?;
        let certified = Arc::new(SingleCertAndKey::from(certified));
        Ok(Self { identity, not_after, begins, chain, certified, trust: Arc::new(trust) })
    }

    /// Whether somebody who trusts the same roots takes the certificate at `date`, for what `side`
    /// is.
    ///
    /// # Errors
    /// If it has ended or is not good yet, the bundle of its own trust domain does not verify it,
    /// or it is for another purpose.
    pub fn verify(&self, side: Side, date: WallTime) -> Result<(), CertificateRefused> {
        let (leaf, rest) = self.chain.split_first().expect("there is one's own");
        self.trust.verify(side, leaf, rest, unix_time(date)).map(drop)
    }

    /// [`Self::verify`] for either side, at a date at which all of the chain has begun.
    pub(super) fn verify_chain(&self) -> Result<(), CertificateRefused> {
        let verify = |side| self.verify(side, self.begins);
        match verify(Side::Server).or_else(|_| verify(Side::Client)) {
            // A date at which all of them are good there may not be.
            Err(CertificateRefused::Ended { .. } | CertificateRefused::NotYet { .. }) => Ok(()),
            other => other,
        }
    }

    /// Returns the identity that they prove.
    #[must_use]
    pub const fn identity(&self) -> &SpiffeId {
        &self.identity
    }

    /// When the certificate ends.
    #[must_use]
    pub const fn not_after(&self) -> WallTime {
        self.not_after
    }

    /// Returns the roots that they trust.
    #[must_use]
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Makes the settings by which a service accepts connections. Certificates are judged by
    /// `wall`.
    ///
    /// # Panics
    /// Never: TLS 1.3 is what the provider has.
    #[must_use]
    pub fn server(&self, wall: &Arc<Wall>) -> Arc<ServerConfig> {
        let provider = Arc::clone(&self.trust.provider);
        let builder = ServerConfig::builder_with_details(provider, Arc::clone(wall) as _)
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3 is what the provider has");
        let clients = Arc::new(Clients(Arc::clone(&self.trust)));
        let certified = Arc::clone(&self.certified) as _;
        let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(certified);
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session asks no verifier.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Arc::new(config)
    }

    /// Makes the settings by which a client connects to the service that is `expected`.
    /// Certificates are judged by `wall`.
    ///
    /// # Panics
    /// Never: TLS 1.3 is what the provider has.
    #[must_use]
    pub fn client(&self, wall: &Arc<Wall>, expected: SpiffeId) -> Arc<ClientConfig> {
        let provider = Arc::clone(&self.trust.provider);
        let builder = ClientConfig::builder_with_details(provider, Arc::clone(wall) as _)
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3 is what the provider has");
        let service = Arc::new(Service { trust: Arc::clone(&self.trust), expected });
        let certified = Arc::clone(&self.certified) as _;
        let builder = builder.dangerous().with_custom_certificate_verifier(service);
        let mut config = builder.with_client_cert_resolver(certified);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Arc::new(config)
    }
}

/// Returns the identity in a chain's certificate, before it is known whom its holder trusts.
pub(super) fn identity(chain: &[CertificateDer<'static>]) -> Result<SpiffeId, CredentialsError> {
    let (_, own) = &in_order(chain.to_vec())?[0];
    Ok(own.identity().map_err(CertificateRefused::from)?)
}

/// A certificate, and what it says.
type Read = (CertificateDer<'static>, Certificate);

/// One's own certificate first, and then those between it and the root, whatever their order was.
fn in_order(chain: Vec<CertificateDer<'static>>) -> Result<Vec<Read>, CredentialsError> {
    let mut left: Vec<(usize, Read)> = Vec::with_capacity(chain.len());
    for (number, der) in (1..).zip(chain) {
        let read = Certificate::read(&der);
        let read = read.map_err(|why| CredentialsError::Unreadable { number, why })?;
        left.push((number, (der, read)));
    }
    let mut own = left.iter().filter(|(_, (_, it))| !it.is_authority).map(|(number, _)| *number);
    let (first, second) = (own.next(), own.next());
    if let (Some(first), Some(second)) = (first, second) {
        return Err(CredentialsError::TwoOwn { first, second });
    }
    let Some(at) = left.len().checked_sub(1).map(|_| first.map_or(0, |number| number - 1)) else {
        return Err(CredentialsError::ChainLength { count: 0 });
    };
    let mut ordered = vec![left.remove(at).1];
    let mut next = 0;
    while let Some((_, signed)) = ordered.get(next) {
        let issuer = signed.issuer.clone();
        let is_its = |(_, (_, it)): &(usize, Read)| it.subject == issuer;
        let (its, others) = left.into_iter().partition(is_its);
        left = others;
        let its: Vec<(usize, Read)> = its;
        ordered.extend(its.into_iter().map(|(_, read)| read));
        next += 1;
    }
    if let Some((number, _)) = left.first() {
        return Err(CredentialsError::Stray { number: *number });
    }
    let rest = ordered.split_off(1).into_iter().filter(|(_, it)| !it.is_root());
    ordered.extend(rest);
    let count = ordered.len();
    if count > CHAIN_MAX { Err(CredentialsError::ChainLength { count }) } else { Ok(ordered) }
}
