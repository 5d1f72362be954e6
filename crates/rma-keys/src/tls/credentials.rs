//! One's own certificate and key, and whom to trust: what both sides of a handshake are set up by.
//!
//! A key that does not belong to its certificate, or a certificate that proves no identity, is
//! found here and not in the first handshake.

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
        certificate::Certificate,
        refused::CertificateRefused,
        trust::Trust,
        verifier::{Clients, Service},
        wall::Wall,
    },
};

/// An identity that can be proved, and whom its holder trusts.
#[derive(Clone, Debug)]
pub struct Credentials {
    identity: SpiffeId,
    not_after: WallTime,
    certified: Arc<SingleCertAndKey>,
    trust: Arc<Trust>,
}

/// Why a certificate and a key prove nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// There is no certificate, or there are too many.
    #[error("a chain of {count} certificates; 1 to {CHAIN_MAX} are sent, one's own first")]
    ChainLength {
        /// How many there are.
        count: usize,
    },
    /// The certificate proves no identity.
    #[error(transparent)]
    Certificate(#[from] CertificateRefused),
    /// The key is none, or not that of the certificate.
    #[error("the private key does not go with the certificate of {identity}: {why}")]
    Key {
        /// The certificate's identity.
        identity: SpiffeId,
        /// What is wrong with the key.
        why: rustls::Error,
    },
}

impl Credentials {
    /// Credentials of a chain, one's own certificate first, its key, and whom to trust.
    ///
    /// # Errors
    /// If the certificate names no identity, or the key is another's.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        trust: Trust,
    ) -> Result<Self, CredentialsError> {
        let count = chain.len();
        let leaf = chain.first().filter(|_| count <= CHAIN_MAX);
        let leaf = leaf.ok_or(CredentialsError::ChainLength { count })?;
        let leaf = Certificate::read(leaf).map_err(CertificateRefused::from)?;
        let (identity, not_after) =
            (leaf.identity().map_err(CertificateRefused::from)?, leaf.not_after);
        let certified = CertifiedKey::from_der(chain, key, &trust.provider)
            .map_err(|why| CredentialsError::Key { identity: identity.clone(), why })?;
        let certified = Arc::new(SingleCertAndKey::from(certified));
        Ok(Self { identity, not_after, certified, trust: Arc::new(trust) })
    }

    /// Whose they are.
    #[must_use]
    pub const fn identity(&self) -> &SpiffeId {
        &self.identity
    }

    /// When the certificate ends.
    #[must_use]
    pub const fn not_after(&self) -> WallTime {
        self.not_after
    }

    /// Whom they trust.
    #[must_use]
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// How a service accepts connections. Certificates are judged by `wall`.
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

    /// How a client connects to the service that is `expected`. Certificates are judged by `wall`.
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
