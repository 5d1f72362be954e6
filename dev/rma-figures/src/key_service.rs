//! The work of a key service in a second on one core: grants over connections that stay, and
//! connections that are made for one grant each.
//!
//! Shipped loops over sockets of loopback: the service's thread is on one core, all its clients are
//! turned by one thread on the other. The service answers from a policy and writes its audit log,
//! as it does anywhere; only its limits are out of the way. Invariant: every reply is looked at,
//! and holds the keys that were asked for.

use core::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
};

use rma_bench::pair::{cores, pin, pinned};
use rma_core::{
    addr::{HostAddr, Pid},
    op::OpType,
    region::RegionId,
};
use rma_keys::{
    catalog::{Region, Term},
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
    tls::{credentials::Credentials, directory::Directory},
};

mod identities;

pub(crate) use identities::{Identities, SERVER};

use crate::scale::median;

/// Clients at once.
pub const CLIENTS: usize = 8;

/// How long each round lasts.
const ROUND: Duration = Duration::from_millis(500);

/// How long a fetch may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(20);

const REGION: &str = "kv/index";

/// The rates of a key service: medians of rounds.
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
    beside_service(|mut clients| {
        let mut rates = |stay| {
            clients.begin(stay, CLIENTS);
            let mut rates: Vec<f64> = (0..=rounds).map(|_| clients.round()).skip(1).collect();
            median(&mut rates)
        };
        KeyRates { grants: rates(true), handshakes: rates(false) }
    })
}

/// The times that a client takes to connect anew, with a full handshake, until it has a grant: so
/// many, in microseconds.
///
/// # Panics
/// As [`measure`].
pub(crate) fn reconnects(count: usize) -> Vec<f64> {
    beside_service(|clients| {
        let once = || {
            let start = clock::now().boot;
            let mut one = clients.connect();
            while !one.is_granted() {
                one.turns.turn(clock::now());
            }
            clock::now().boot.since(start).as_secs_f64() * 1e6
        };
        // The first one warms up.
        (0..=count).map(|_| once()).skip(1).collect()
    })
}

/// Runs `clients` on one core, beside a service on another.
fn beside_service<T: Send>(clients: impl FnOnce(Clients) -> T + Send) -> T {
    let identities = Identities::new();
    let handler = Answers(Arc::new(Mutex::new(with_region(&identities))));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
    let turns =
        ServerLoop::from_directory(listener, &identities.server, handler, Limits::default())
            .expect("its credentials are in order");
    let (near, far) = cores();
    // Its thread is on the core of the one that starts it.
    let server = pinned(far, || Server::start(turns).expect("a thread"));
    pinned(near, || {
        pin(near);
        let (_, credentials) = Directory::open(&identities.client).expect("they are in order");
        clients(Clients::new(&credentials, server.address()))
    })
}

/// A service with one region, and a log.
fn with_region(identities: &Identities) -> Recorded<Policy> {
    let mut recorded = identities.service();
    let (now, hour) = (clock::now(), Duration::from_secs(3600));
    let term = Term { announce_at: now.boot + hour, ends_at: now.boot + hour + hour / 10 };
    let responders = HostAddr::from(Ipv4Addr::LOCALHOST).into();
    let region = Region { responders, id: RegionId::from_bits(5), len: 4096 };
    let secret = RegionSecret::new(&mut [1; 16]);
    recorded.change(now, |service| {
        let name = REGION.parse().expect("a name");
        let published = service.publish(now, name, region, &secret, term);
        ((), vec![published.expect("there is room").1])
    });
    recorded
}

/// Clients of the service, which fetch all the time.
struct Clients {
    credentials: Credentials,
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

impl One {
    /// Whether what it asked for has come: the grant that it wanted.
    fn is_granted(&mut self) -> bool {
        let Some(outcome) = self.fetch.take() else { return false };
        let is_granted = matches!(
            &outcome,
            Ok(Reply::Answers(answers)) if matches!(answers[..], [Answer::Granted(_)])
        );
        assert!(is_granted, "{outcome:?}");
        true
    }
}

impl Clients {
    /// None yet.
    fn new(credentials: &Credentials, service: SocketAddr) -> Self {
        let ops = OpSet::NONE.with(OpType::Read);
        let wanted = Wanted { name: REGION.parse().expect("a name"), ops, have: None };
        let initiators = HostAddr::from(Ipv4Addr::LOCALHOST).into();
        let request = Request { initiators, pid: Pid(7), regions: vec![wanted] };
        let credentials = credentials.clone();
        Self { credentials, service, stay: true, request, all: Vec::new() }
    }

    /// Connects so many of them.
    fn begin(&mut self, stay: bool, count: usize) {
        self.stay = stay;
        self.all = (0..count).map(|_| self.connect()).collect();
    }

    fn connect(&self) -> One {
        let turns = ClientLoop::new(self.credentials.clone()).expect("there are files");
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
                if !one.is_granted() {
                    continue;
                }
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
