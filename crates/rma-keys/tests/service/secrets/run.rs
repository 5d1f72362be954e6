//! The run whose output is looked through.

use core::{
    fmt::{self, Debug, Write as _},
    net::Ipv4Addr,
    panic::AssertUnwindSafe,
    time::Duration,
};
use std::{
    fs,
    net::TcpListener,
    panic::catch_unwind,
    path::Path,
    sync::{Arc, Mutex},
};

use rma_core::{
    addr::{HostAddr, Pid},
    op::{OpStatus, OpType},
    region::RegionId,
};
use rma_keys::{
    audit::log::{Log, LogConfig},
    cache::GrantCache,
    catalog::Region,
    epoch::Life,
    io::{
        client::{Client, ClientLoop},
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
    ring::Holder,
    rotation::{Plan, Rotation, Schedule, Todo, Turn, Way},
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    tls::{directory::Directory, trust::Trust},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use tracing::{Event, Metadata, Subscriber, field::Field, span};

use crate::ca::{CLIENT, Ca, SERVER, lasting_params};

const PATIENCE: Duration = Duration::from_secs(30);

const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read", "write"]
"#;

/// Writes all events of all levels to the standard error.
struct Shows;

impl Subscriber for Shows {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            _ = write!(line, " {}={value:?}", field.name());
        });
        eprintln!("{}{line}", event.metadata().level());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Shows something in all ways, and panics with it.
fn show(what: &dyn Debug) {
    println!("{what:?}\n{what:#?}");
    let panicked = catch_unwind(AssertUnwindSafe(|| panic!("it is {what:?}")));
    assert!(panicked.is_err());
}

fn fails<T>(result: Result<T, impl fmt::Display + Debug>) {
    let error = result.err().expect("it cannot be right");
    println!("{error}");
    show(&error);
}

/// The keys of the run.
#[derive(Default)]
struct Keys {
    state: u64,
    hex: String,
}

impl Keys {
    fn add(&mut self, key: &[u8]) {
        key.iter().for_each(|octet| _ = write!(self.hex, "{octet:02x}"));
        self.hex.push('\n');
    }

    fn fresh(&mut self) -> RegionSecret {
        let mut octets: [u8; 16] = core::array::from_fn(|_| {
            self.state =
                self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.state >> 56) as u8
        });
        self.add(&octets);
        RegionSecret::new(&mut octets)
    }

    /// The number that the key of a certificate is.
    fn add_pem(&mut self, path: &Path) {
        let key = PrivateKeyDer::from_pem_file(path).unwrap();
        let der = key.secret_der();
        // An OCTET STRING of 32 octets.
        let at = der.windows(2).position(|it| it == [4, 32]).unwrap() + 2;
        self.add(&der[at..at + 16]);
        self.add(&der[at + 16..at + 32]);
    }

    fn add_reply(&mut self, reply: &Reply) {
        let Reply::Answers(answers) = reply else { return };
        for answer in answers {
            let Answer::Granted(granted) = answer else { continue };
            for keys in [Some(&granted.present), granted.next.as_ref()].into_iter().flatten() {
                keys.keys.iter().for_each(|(_, key)| self.add(key.derived_key().expose()));
            }
        }
    }
}

/// A service whose owner rotates its region, in one place with its lock.
struct Owner {
    answers: Answers<Policy>,
    rotation: Rotation,
    /// How much time it has let pass beside the clock's.
    skipped: Duration,
}

impl Owner {
    fn turn(&mut self, keys: &mut Keys, act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>)) {
        let mut now = clock::now();
        now.boot = now.boot + self.skipped;
        let Self { answers, rotation, .. } = self;
        answers.0.lock().unwrap().change(now, |service| {
            let mut fresh = || keys.fresh();
            let mut turn = Turn { now, service, fresh: &mut fresh, events: Vec::new() };
            act(rotation, &mut turn);
            println!("{turn:?}");
            ((), turn.events)
        });
    }

    /// The responder does what it is told, at once or not at all.
    fn drive(&mut self, keys: &mut Keys, status: OpStatus) {
        // The failed step is tried again by now.
        self.skipped += Duration::from_secs(20);
        self.turn(keys, |rotation, turn| {
            let todo = rotation.poll_todo(turn.now.boot, turn.service);
            println!("{todo:?}");
            if let Todo::Rekey { to, .. } = todo {
                rotation.handle_rekey(turn, to, status).unwrap();
            }
            show(rotation);
        });
    }
}

pub(crate) fn run(place: &Path) {
    tracing::subscriber::set_global_default(Shows).unwrap();
    let mut keys = Keys::default();
    let ca = Ca::new("root");
    let [server_at, client_at, stranger_at] =
        ["server", "client", "stranger"].map(|it| place.join(it));
    let write = |ca: &Ca, at: &Path, uri| ca.write_issued(at, &ca.issue(&lasting_params(uri)));
    write(&ca, &server_at, SERVER);
    write(&ca, &client_at, CLIENT);
    write(&Ca::new("stranger"), &stranger_at, CLIENT);
    for at in [&server_at, &client_at, &stranger_at] {
        keys.add_pem(&at.join("key.pem"));
    }

    // The owner.
    let policy = Policy::parse(POLICY).unwrap();
    let service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
    let log = Log::open(&place.join("audit.log"), LogConfig::default()).unwrap();
    let answers = Answers(Arc::new(Mutex::new(Recorded::new(service, log))));
    let plan = Plan { way: Way::Host, schedule: Schedule::default(), seed: 1 };
    let responders = HostAddr::from(Ipv4Addr::LOCALHOST).into();
    let region = Region { responders, id: RegionId::from_bits(5), len: 4096 };
    let now = clock::now();
    let first = keys.fresh();
    let rotation = answers.0.lock().unwrap().change(now, |service| {
        let mut fresh = || unreachable!("the first key is given");
        let mut turn = Turn { now, service, fresh: &mut fresh, events: Vec::new() };
        let name = "kv/index".parse().unwrap();
        let rotation = Rotation::publish(&mut turn, name, region, &first, plan).unwrap();
        (rotation, turn.events)
    });
    let mut owner = Owner { answers: answers.clone(), rotation, skipped: Duration::ZERO };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let turns =
        ServerLoop::from_directory(listener, &server_at, answers.clone(), Limits::default())
            .unwrap();
    show(&turns);
    let server = Server::start(turns).unwrap();
    show(&server);

    // A client, and what it holds.
    let client = Client::start(ClientLoop::from_directory(&client_at).unwrap()).unwrap();
    let fetcher = client.fetcher();
    let source = fetcher.source(vec![server.address()], SERVER.parse().unwrap());
    let holder = Holder { initiators: HostAddr::from(Ipv4Addr::LOCALHOST).into(), pid: Pid(7) };
    let mut cache = GrantCache::new(holder, 1);
    let from = cache.source();
    let ops: OpSet = [OpType::Read, OpType::Write].into_iter().collect();
    let ring = cache.region(from, "kv/index".parse().unwrap(), ops).unwrap();
    let fetches = |keys: &mut Keys, cache: &mut GrantCache| {
        let now = clock::now().boot;
        _ = cache.standing(now, ring);
        cache.handle_disconnected(now, from);
        let later = now + Duration::from_secs(3600);
        let wanted = cache.poll_fetch(later).expect("it checks");
        let fetch = fetcher.fetch(source, &wanted.request, PATIENCE);
        println!("{fetch:?}");
        let reply = fetch.wait().unwrap();
        keys.add_reply(&reply);
        show(&reply);
        println!("{:?}", reply.encode(Some(wanted.number)));
        cache.handle_reply(now, from, wanted.number, reply);
        show(cache);
        let keyed = cache.grant(now, ring, OpType::Read).unwrap();
        show(&keyed);
        _ = cache.on_outcome(now, ring, keyed.epoch, OpStatus::RemoteAuthenticationFailure);
    };
    fetches(&mut keys, &mut cache);
    for round in 0..4 {
        owner.turn(&mut keys, |rotation, turn| rotation.rotate(turn).unwrap());
        fetches(&mut keys, &mut cache);
        if round % 2 == 0 {
            owner.turn(&mut keys, |rotation, turn| rotation.withdraw(turn).unwrap());
        }
        owner.drive(&mut keys, OpStatus::DispatchTimeout);
        owner.turn(&mut keys, |rotation, turn| rotation.rotate(turn).unwrap());
        owner.drive(&mut keys, OpStatus::Ok);
        fetches(&mut keys, &mut cache);
    }
    answers.0.lock().unwrap().change(now, |service| {
        let reloaded = service.reload(now, Policy::parse(POLICY).unwrap());
        show(&reloaded);
        ((), vec![reloaded.event])
    });
    show(&*answers.0.lock().unwrap());

    // The things that go wrong: a region that nobody gives, noise, strangers, half replies, half
    // files.
    let nobody = Wanted { name: "no".parse().unwrap(), ops, have: None };
    let request = Request { initiators: holder.initiators, pid: holder.pid, regions: vec![nobody] };
    show(&fetcher.fetch(source, &request, PATIENCE).wait());
    let peer = rma_keys::peer::Peer {
        identity: CLIENT.parse().unwrap(),
        serial: rma_keys::peer::Serial::new(&[1]).unwrap(),
        not_after: rma_keys::time::WallTime::from_unix_millis(i64::MAX),
        address: Ipv4Addr::LOCALHOST.into(),
    };
    answers.0.lock().unwrap().change(clock::now(), |service| {
        let region = Wanted { name: "kv/index".parse().unwrap(), ops, have: None };
        let request = Request { regions: vec![region], ..request.clone() };
        let handled = service.handle(clock::now(), &peer, &request.encode(1));
        show(&handled);
        keys.add_reply(&Reply::decode(&handled.reply).unwrap());
        for len in 0..handled.reply.len() {
            let error = Reply::decode(&handled.reply[..len]).unwrap_err();
            println!("{error} {error:?}");
        }
        for at in 0..handled.reply.len() {
            let mut changed = handled.reply.to_vec();
            changed[at] ^= 0x40;
            if let Err(error) = Reply::decode(&changed) {
                println!("{error} {error:?}");
            }
        }
        ((), handled.events)
    });
    answers.0.lock().unwrap().handle(clock::now(), &peer, b"noise");
    let stranger = Client::start(ClientLoop::from_directory(&stranger_at).unwrap()).unwrap();
    let elsewhere = stranger.fetcher().source(vec![server.address()], CLIENT.parse().unwrap());
    fails(stranger.fetcher().fetch(elsewhere, &request, Duration::from_millis(300)).wait());
    let refused = Client::start({
        // It knows the service, and is not known to it.
        let credentials = Directory::open(&client_at).unwrap().1;
        show(&credentials);
        let key = PrivateKeyDer::from_pem_file(stranger_at.join("key.pem")).unwrap();
        let chain = vec![certificate(&stranger_at.join("cert.pem"))];
        let trust = Trust::none().with("example.org", vec![ca.root()]).unwrap();
        ClientLoop::new(rma_keys::tls::credentials::Credentials::new(chain, key, trust).unwrap())
            .unwrap()
    })
    .unwrap();
    let there = refused.fetcher().source(vec![server.address()], SERVER.parse().unwrap());
    let fetch = refused.fetcher().fetch(there, &request, PATIENCE);
    // Until the service has said why.
    while server.counters().ended(rma_keys::io::server::EndReason::CertificateIssuer) == 0 {
        std::thread::yield_now();
    }
    drop(refused);
    fails(fetch.wait());
    let pem = fs::read_to_string(client_at.join("key.pem")).unwrap();
    for len in [0, 30, pem.len() / 2, pem.len() - 20] {
        fs::write(client_at.join("key.pem"), &pem[..len]).unwrap();
        fails(Directory::open(&client_at));
    }
    fs::write(client_at.join("key.pem"), pem.replace("PRIVATE", "PUBLIC")).unwrap();
    fails(Directory::open(&client_at));
    fs::write(client_at.join("key.pem"), fs::read(stranger_at.join("key.pem")).unwrap()).unwrap();
    fails(Directory::open(&client_at));
    drop((client, stranger, server));
    fs::write(place.join("keys"), keys.hex).unwrap();
}

fn certificate(path: &Path) -> rustls::pki_types::CertificateDer<'static> {
    rustls::pki_types::CertificateDer::from_pem_file(path).unwrap()
}
