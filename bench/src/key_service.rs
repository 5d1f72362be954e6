//! What a key service does in a second on one core: grants over connections that stay, and
//! connections that are made for one grant each.
//!
//! Shipped loops over sockets of loopback: the service's thread is on one core, all its clients are
//! turned by one thread on the other. The service answers from a policy and writes its audit log,
//! as it does anywhere; only its limits are out of the way. Invariant: every reply is looked at,
//! and holds the keys that were asked for.

use core::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    time::Duration,
};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rma_core::{
    addr::{HostAddr, Pid},
    op::OpType,
    region::RegionId,
};
use rma_keys::{
    audit::log::{Log, LogConfig},
    catalog::{Region, Term},
    epoch::Life,
    io::{
        client::{ClientLoop, Fetch, SourceId},
        clock,
        server::{Answers, Limits, Server, ServerLoop},
    },
    message::{
        reply::{Answer, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    policy::Policy,
    recorded::Recorded,
    secret::RegionSecret,
    service::{Rate, Service, ServiceConfig},
};
use rma_lab::Scratch;

use crate::{
    pair::{cores, pin, pinned},
    scale::median,
};

/// Clients at once.
pub const CLIENTS: usize = 8;

/// How long each round lasts.
const ROUND: Duration = Duration::from_millis(500);

/// How long a fetch may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(20);

const SERVER: &str = "spiffe://example.org/kv/server";
const CLIENT: &str = "spiffe://example.org/kv/client/7";
const REGION: &str = "kv/index";

const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read"]
"#;

/// What a service did in a second: medians of rounds.
#[derive(Clone, Copy, Debug)]
pub struct KeyRates {
    /// Regions granted, one a request, over connections that stay.
    pub grants: f64,
    /// Connections, each with a full handshake at both ends, one grant, and its end.
    pub handshakes: f64,
}

/// Measures so many rounds of each, after one that warms up.
///
/// # Panics
/// If there is no socket, directory or thread, or a fetch does not end with keys.
#[must_use]
pub fn measure(rounds: usize) -> KeyRates {
    let folder = Scratch::new();
    let [at_server, at_client] = ["server", "client"].map(|it| folder.path().join(it));
    certificates(&at_server, &at_client);
    let handler = Answers(Arc::new(Mutex::new(service(&folder.path().join("audit")))));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
    let turns = ServerLoop::from_directory(listener, &at_server, handler, Limits::default())
        .expect("its credentials are in order");
    let (near, far) = cores();
    // Its thread is on the core of the one that starts it.
    let server = pinned(far, || Server::start(turns).expect("a thread"));
    pinned(near, || {
        pin(near);
        let clients = |stay| Clients::new(&at_client, server.address(), stay);
        let rates = |mut clients: Clients| {
            let mut rates: Vec<f64> = (0..=rounds).map(|_| clients.round()).skip(1).collect();
            median(&mut rates)
        };
        KeyRates { grants: rates(clients(true)), handshakes: rates(clients(false)) }
    })
}

/// A service with one region, and a log.
fn service(log: &Path) -> Recorded<Policy> {
    let policy = Policy::parse(POLICY).expect("it is one");
    let plenty = NonZeroU32::new(10_000_000).expect("not zero");
    let rate = Rate { per_second: plenty, burst: plenty.get() };
    let config = ServiceConfig { of_client: rate, of_all: rate, ..ServiceConfig::default() };
    let mut service = Service::new(Life([7; 8]), policy, config);
    let (now, hour) = (clock::now(), Duration::from_secs(3600));
    let term = Term { announce_at: now.boot + hour, ends_at: now.boot + hour + hour / 10 };
    let responders = HostAddr::from(Ipv4Addr::LOCALHOST).into();
    let region = Region { responders, id: RegionId::from_bits(5), len: 4096 };
    let secret = RegionSecret::new(&mut [1; 16]);
    let name = REGION.parse().expect("a name");
    service.publish(now, name, region, &secret, term).expect("there is room");
    Recorded::new(service, Log::open(log, LogConfig::default()).expect("a new file"))
}

/// Directories of credentials of both ends.
fn certificates(at_server: &Path, at_client: &Path) {
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
    for (folder, identity) in [(at_server, SERVER), (at_client, CLIENT)] {
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

/// Clients of the service, which fetch all the time.
struct Clients {
    credentials: PathBuf,
    service: SocketAddr,
    /// Whether they keep their connections.
    stay: bool,
    request: Request,
    all: Vec<One>,
}

/// A client with its connection, and what it waits for.
struct One {
    turns: ClientLoop,
    source: SourceId,
    fetch: Fetch,
}

impl Clients {
    fn new(credentials: &Path, service: SocketAddr, stay: bool) -> Self {
        let ops = OpSet::NONE.with(OpType::Read);
        let wanted = Wanted { name: REGION.parse().expect("a name"), ops, have: None };
        let initiators = HostAddr::from(Ipv4Addr::LOCALHOST).into();
        let request = Request { initiators, pid: Pid(7), regions: vec![wanted] };
        let credentials = credentials.to_owned();
        let mut clients = Self { credentials, service, stay, request, all: Vec::new() };
        clients.all = (0..CLIENTS).map(|_| clients.connect()).collect();
        clients
    }

    fn connect(&self) -> One {
        let turns = ClientLoop::from_directory(&self.credentials).expect("they are in order");
        let expected = SERVER.parse().expect("an identity");
        let source = turns.fetcher().source(vec![self.service], expected);
        let fetch = turns.fetcher().fetch(source, &self.request, PATIENCE);
        One { turns, source, fetch }
    }

    /// Fetches for a round. Returns how many replies came in a second.
    fn round(&mut self) -> f64 {
        let start = clock::now().boot;
        let mut replies = 0_u64;
        loop {
            let now = clock::now();
            let passed = now.boot.since(start);
            if passed >= ROUND {
                return replies as f64 / passed.as_secs_f64();
            }
            for at in 0..self.all.len() {
                let one = &mut self.all[at];
                one.turns.turn(now);
                let Some(outcome) = one.fetch.take() else { continue };
                let is_granted = matches!(
                    &outcome,
                    Ok(Reply::Answers(answers)) if matches!(answers[..], [Answer::Granted(_)])
                );
                assert!(is_granted, "{outcome:?}");
                replies += 1;
                if self.stay {
                    one.fetch = one.turns.fetcher().fetch(one.source, &self.request, PATIENCE);
                } else {
                    self.all[at] = self.connect();
                }
            }
        }
    }
}
