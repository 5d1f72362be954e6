//! Certificates of trust domains that live as long as a test.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, date_time_ymd,
};
use rma_keys::{
    time::WallTime,
    tls::{credentials::Credentials, trust::Trust, wall::Wall},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// 2026-11-23, noon: when all tests are.
pub(crate) const NOON_MS: i64 = 1_795_435_200_000;

pub(crate) const SERVER: &str = "spiffe://example.org/kv/server";
pub(crate) const CLIENT: &str = "spiffe://example.org/kv/client/7";

/// A root of a trust domain.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its chain and key.
pub(crate) struct Issued {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
}

/// Makes the parameters of a certificate that proves `uris`: good for a day around noon.
pub(crate) fn params(uris: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names =
        uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
    params.not_before = date_time_ymd(2026, 11, 23);
    params.not_after = date_time_ymd(2026, 11, 24);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// As [`params`], good for as long as this test will be run.
pub(crate) fn lasting_params(uri: &str) -> CertificateParams {
    let mut params = params(&[uri]);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(authority(name), key).unwrap())
    }

    /// One that this one has signed.
    pub(crate) fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::signed_by(authority(name), key, &self.0).unwrap())
    }

    pub(crate) fn root(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let chain = vec![certificate.der().clone()];
        Issued { chain, chain_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }

    /// A certificate of a key that nobody has.
    pub(crate) fn sign(&self, params: &CertificateParams, key: &impl PublicKeyData) -> String {
        params.signed_by(key, &self.0).unwrap().pem()
    }

    /// Returns the trust of members of `example.org`, if this is its root.
    pub(crate) fn trust(&self) -> Trust {
        Trust::none().with("example.org", vec![self.root()]).unwrap()
    }

    /// Credentials that prove `uri`.
    pub(crate) fn credentials(&self, uri: &str) -> Credentials {
        self.issue(&params(&[uri])).credentials(self.trust()).unwrap()
    }

    /// The same, good for as long as this test will be run.
    pub(crate) fn lasting(&self, uri: &str) -> Credentials {
        self.issue(&lasting_params(uri)).credentials(self.trust()).unwrap()
    }

    /// Writes a directory of credentials.
    pub(crate) fn write(&self, directory: &Path, uri: &str) {
        self.write_issued(directory, &self.issue(&params(&[uri])));
    }

    /// Writes one with this certificate.
    pub(crate) fn write_issued(&self, directory: &Path, issued: &Issued) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("cert.pem"), &issued.chain_pem).unwrap();
        fs::write(directory.join("bundle.pem"), self.pem()).unwrap();
        let key = directory.join("key.pem");
        fs::write(&key, &issued.key_pem).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

impl Issued {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap()
    }

    pub(crate) fn credentials(
        &self,
        trust: Trust,
    ) -> Result<Credentials, rma_keys::tls::credentials::CredentialsError> {
        Credentials::new(self.chain.clone(), self.key(), trust)
    }
}

/// The date `since` noon.
pub(crate) fn wall(since: Duration) -> Arc<Wall> {
    let wall = Wall::new();
    wall.set(WallTime::from_unix_millis(NOON_MS + since.as_millis() as i64));
    Arc::new(wall)
}
