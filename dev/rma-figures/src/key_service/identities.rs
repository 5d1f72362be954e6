//! The identities where a key service is measured: a root, a server and a client of one trust
//! domain with certificates of their own, the server's policy, and its audit log.
//!
//! Invariant: the files are where nothing waits for a disk if the machine has such a place, and
//! gone when this is dropped.

use core::num::NonZeroU32;
use std::path::PathBuf;

use rma_keys::{
    audit::log::{Log, LogConfig},
    epoch::Life,
    policy::Policy,
    recorded::Recorded,
    service::{Rate, Service, ServiceConfig},
};
use rma_kv::certificates;
use rma_lab::Scratch;

/// The identity of the service.
pub(crate) const SERVER: &str = "spiffe://example.org/kv/server";

/// The identity of all clients.
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
        let issued = certificates::issue(folder.path(), &[SERVER, CLIENT]).expect("new files");
        let [server, client] = issued.try_into().expect("a directory for each");
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
