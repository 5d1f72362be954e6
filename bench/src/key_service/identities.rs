//! Who takes part where a key service is measured: a root, a server and a client of one trust
//! domain with certificates of their own, the server's policy, and its audit log.
//!
//! Invariant: the files are where nothing waits for a disk if the machine has such a place, and
//! gone when this is dropped.

use core::num::NonZeroU32;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rma_keys::{
    audit::log::{Log, LogConfig},
    epoch::Life,
    policy::Policy,
    recorded::Recorded,
    service::{Rate, Service, ServiceConfig},
};
use rma_lab::Scratch;

/// Who the service is.
pub(crate) const SERVER: &str = "spiffe://example.org/kv/server";

/// Who all clients are.
const CLIENT: &str = "spiffe://example.org/kv/client/7";

const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read"]
"#;

/// Directories of credentials of both ends.
#[derive(Debug)]
pub(crate) struct Identities {
    folder: Scratch,
    pub(crate) server: PathBuf,
    pub(crate) client: PathBuf,
}

impl Identities {
    /// Makes a root and both certificates.
    ///
    /// # Panics
    /// If they cannot be written.
    pub(crate) fn new() -> Self {
        let folder = Scratch::new();
        let [server, client] = ["server", "client"].map(|it| folder.path().join(it));
        certificates(&[(&server, SERVER), (&client, CLIENT)]);
        Self { folder, server, client }
    }

    /// A service without regions, with a log. Its limits are out of the way.
    ///
    /// # Panics
    /// If the log cannot be written.
    pub(crate) fn service(&self) -> Recorded<Policy> {
        let policy = Policy::parse(POLICY).expect("it is one");
        let plenty = NonZeroU32::new(10_000_000).expect("not zero");
        let rate = Rate { per_second: plenty, burst: plenty.get() };
        let config = ServiceConfig { of_client: rate, of_all: rate, ..ServiceConfig::default() };
        let log = Log::open(&self.folder.path().join("audit"), LogConfig::default());
        let service = Service::new(Life([7; 8]), policy, config);
        Recorded::new(service, log.expect("a new file"))
    }
}

fn certificates(of: &[(&Path, &str)]) {
    let params = || {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2120, 1, 1);
        params
    };
    let key = || KeyPair::generate().expect("randomness");
    let mut root = params();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = CertifiedIssuer::self_signed(root, key()).expect("a root");
    for &(folder, identity) in of {
        let (mut params, key) = (params(), key());
        params.subject_alt_names = vec![SanType::URI(identity.try_into().expect("ASCII"))];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &root).expect("a certificate");
        fs::create_dir(folder).expect("a new directory");
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).expect("a new file");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its owner's");
        };
        write("cert.pem", certificate.pem());
        write("key.pem", key.serialize_pem());
        write("bundle.pem", root.pem());
    }
}
