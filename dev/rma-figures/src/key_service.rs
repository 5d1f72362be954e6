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
        let clients = |stay| Clients::new(&credentials, server.address(), stay);
        let rates = |mut clients: Clients| {
            let mut rates: Vec<f64> = (0..=rounds).map(|_| clients.round()).skip(1).collect();
            median(&mut rates)
        };
        KeyRates { grants: rates(clients(true)), handshakes: rates(clients(false)) }
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

impl Clients {
    fn new(credentials: &Credentials, service: SocketAddr, stay: bool) -> Self {
        let ops = OpSet::NONE.with(OpType::Read);
        let wanted = Wanted { name: REGION.parse().expect("a name"), ops, have: None };
        let initiators = HostAddr::from(Ipv4Addr::LOCALHOST).into();
        let request = Request { initiators, pid: Pid(7), regions: vec![wanted] };
        let credentials = credentials.clone();
        let mut clients = Self { credentials, service, stay, request, all: Vec::new() };
        clients.all = (0..CLIENTS).map(|_| clients.connect()).collect();
        clients
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
