//! An owner of regions with its key service, and clients of it, with real TLS.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::missing_panics_doc, reason = "all of it panics where the host does not work")]

use core::time::Duration;
use std::{
    cell::Cell,
    fs,
    net::{IpAddr, SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::Arc,
};

use crate::hosts::Loopback;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rma_lab::Scratch;
use rma_xdp::{
    Client, Host, HostAddr, HostConfig, OpType, Permissions, Pid, RegisteredRegion,
    config::{NicConfigBuilder, Timing},
    keys::{
        Holder, KeyCache, KeyServer, KeyServerConfig, KeyedClient, KeyedError, KeyedRegion, OpSet,
        Schedule, Source,
    },
    time::{Clock, TscClock},
};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A period that no test waits for.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A time within which an op to a host that is gone ends.
pub const SHORT: Duration = Duration::from_millis(300);

/// The identity of the key service.
pub const SERVER: &str = "spiffe://example.org/kv/server";

/// The length of a region.
pub const LEN: u64 = 1 << 18;

/// The policy while nobody is shut out. On loopback connections come from another address than
/// frames.
pub const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read", "write"]
initiators = ["127.0.0.0/8", "192.0.2.0/24", "fd00::/8"]
"#;

/// How long a test has taken since it made this.
#[derive(Debug)]
pub struct Since(TscClock);

impl Since {
    /// Begins now.
    pub fn now() -> Self {
        Self(TscClock::new())
    }

    /// Returns the time since then.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.now().as_nanos())
    }
}

/// A trust domain, a policy and addresses, for one test.
#[expect(missing_debug_implementations, reason = "its issuer has none")]
pub struct World {
    /// The folder of certificates, policy and audit log.
    pub scratch: Scratch,
    root: CertifiedIssuer<'static, KeyPair>,
    client: HostConfig,
    server: HostConfig,
    /// The address of the key service, in all its lives.
    pub listen: SocketAddr,
    clients: Cell<u32>,
}

impl World {
    /// Over UDP on loopback.
    pub fn over_udp() -> Self {
        let Loopback { addresses: [client, server], port } = Loopback::unused();
        // No stall of a busy machine makes ops time out.
        let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(1));
        let host = |address: HostAddr, pid| {
            HostConfig::udp(address).with(|it| {
                (it.port, it.pid) = (port, pid);
                it.nic = NicConfigBuilder::default().with(|it| it.timing = timing);
            })
        };
        // A port that nobody else has there: the address is this process's own.
        let address = server.to_string().parse::<IpAddr>().unwrap();
        let listen = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap();
        Self::between([host(client, Pid(1000)), host(server, Pid(1))], listen)
    }

    /// Between these hosts, with the key service at `listen`.
    pub fn between([client, server]: [HostConfig; 2], listen: SocketAddr) -> Self {
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
        let (scratch, clients) = (Scratch::new(), Cell::new(0));
        let world = Self { scratch, root, client, server, listen, clients };
        world.allow(POLICY);
        world.issue("server", SERVER);
        world
    }

    /// Writes another policy.
    pub fn allow(&self, policy: &str) {
        fs::write(self.scratch.path().join("policy.toml"), policy).unwrap();
    }

    fn issue(&self, name: &str, id: &str) -> PathBuf {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(id.try_into().unwrap())];
        let key = KeyPair::generate().unwrap();
        let directory = self.scratch.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        let certificate = params.signed_by(&key, &self.root).unwrap().pem();
        fs::write(directory.join("cert.pem"), certificate).unwrap();
        fs::write(directory.join("bundle.pem"), self.root.pem()).unwrap();
        let path = directory.join("key.pem");
        fs::write(&path, key.serialize_pem()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        directory
    }

    /// Returns the settings of the host that serves.
    pub fn server_config(&self) -> HostConfig {
        self.server.clone()
    }

    /// Returns the settings of the host that reads and writes.
    pub fn client_config(&self) -> HostConfig {
        self.client.clone()
    }

    /// Returns the settings of the key service.
    pub fn keys_config(&self) -> KeyServerConfig {
        let path = |name| self.scratch.path().join(name);
        KeyServerConfig::new(self.listen, path("server"), path("policy.toml"))
            .with(|it| it.audit = Some(self.scratch.path().to_owned()))
    }

    /// The credentials of a client, who is another one each time.
    pub fn credentials(&self) -> (u32, PathBuf) {
        let number = self.clients.get();
        self.clients.set(number + 1);
        let id = format!("spiffe://example.org/kv/client/{number}");
        (number, self.issue(&format!("client-{number}"), &id))
    }

    /// A host with a region, `kv/index`, and the service of its keys.
    pub fn owner(&self, schedule: Schedule) -> Owner {
        let host = Arc::new(Host::open(self.server_config()).unwrap());
        let region = host.register(LEN as usize, Permissions::READ | Permissions::WRITE).unwrap();
        let regions = [("kv/index", &region, schedule)];
        let keys = KeyServer::start_with(Arc::clone(&host), &self.keys_config(), &regions).unwrap();
        Owner { keys: Some(keys), region, host }
    }

    /// A client on the other host, with keys of its own.
    pub fn client(&self, host: &Host) -> Peer {
        let (number, directory) = self.credentials();
        let holder = Holder { initiators: host.addresses(), pid: host.pid() };
        let grants = KeyCache::start(holder, &directory).unwrap();
        let source = grants.source(vec![self.listen], SERVER.parse().unwrap()).unwrap();
        let client = Client::start(host.transfers(16).unwrap()).unwrap();
        let client = KeyedClient::new(client, &grants);
        let id = format!("spiffe://example.org/kv/client/{number}");
        Peer { id, client, grants, source }
    }
}

/// The host that serves. Without keys: the service is gone, the host lives.
#[derive(Debug)]
pub struct Owner {
    /// The service of its keys.
    pub keys: Option<KeyServer>,
    /// The region under the name `kv/index`.
    pub region: RegisteredRegion,
    /// The host that has the region.
    pub host: Arc<Host>,
}

impl Owner {
    /// Returns the service, which must be there.
    pub fn keys(&self) -> &KeyServer {
        self.keys.as_ref().unwrap()
    }

    /// Returns how often the region's key was rotated.
    pub fn rotated(&self) -> u64 {
        self.keys().counters().keys.rotations.rotated
    }
}

/// The host that reads and writes.
#[derive(Debug)]
pub struct Peer {
    /// The identity.
    pub id: String,
    /// The client, whose ops name regions.
    pub client: KeyedClient,
    /// The keys that it was given.
    pub grants: KeyCache,
    /// The service that gives them.
    pub source: Source,
}

impl Peer {
    /// Returns the region of this name, for these ops.
    pub fn region(&self, name: &str, ops: &[OpType]) -> KeyedRegion {
        let ops: OpSet = ops.iter().copied().collect();
        self.grants.region(self.source, name.parse().unwrap(), ops).unwrap()
    }

    /// Returns the region `kv/index`.
    pub fn index(&self) -> KeyedRegion {
        self.region("kv/index", &[OpType::Read, OpType::Write])
    }

    /// Reads the first eight bytes.
    pub fn read(&self, host: &Host, name: &str, most: Duration) -> Result<[u8; 8], KeyedError> {
        let region = self.region(name, &[OpType::Read]);
        let pool = host.buffer_pool(1, 8).unwrap();
        let read = self.client.read(&region, 0, pool.try_acquire().unwrap()).timeout(most);
        let (result, buf) = self.client.block_on(read).unwrap();
        let mut bytes = [0; 8];
        buf.read(0, &mut bytes).unwrap();
        drop(buf);
        assert_eq!(pool.free(), 1);
        host.deregister(pool.region()).unwrap();
        result.map(|()| bytes)
    }
}

/// An owner starts again and again, each time with another region under the name, and is found by a
/// client that only goes on asking for that.
pub fn owners_come_and_go(peer: &Peer, host: &Host, start: impl Fn() -> Owner) {
    let index = peer.region("kv/index", &[OpType::Read]);
    let mut life = None;
    for round in 1..=3_u8 {
        let owner = start();
        owner.region.write(0, &[round; 8]).unwrap();
        // In each life the region has another name.
        for _ in 1..round {
            let other = owner.host.register(64, Permissions::NONE).unwrap();
            let again = owner.host.register(LEN as usize, Permissions::READ).unwrap();
            again.write(0, &[round; 8]).unwrap();
            owner.keys().publish("kv/index", &again, Schedule::every(HOUR)).unwrap();
            assert_ne!(other.id(), again.id());
        }
        assert_eq!(peer.read(host, "kv/index", PATIENCE).unwrap(), [round; 8]);
        let epoch = index.grant(OpType::Read).unwrap().epoch;
        assert_ne!(life.replace(epoch.life), Some(epoch.life));
        // Engine, regions and service go; the client's next op finds nobody.
        drop(owner);
        let error = peer.read(host, "kv/index", SHORT).unwrap_err();
        assert!(error.status().is_some(), "{error}");
    }
}
