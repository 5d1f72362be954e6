//! Both ends over loopback: what is told, what is refused, and lanes that come back.

use core::{
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};
use std::{
    sync::mpsc,
    thread::{self, JoinHandle},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_keys::{
    io::clock,
    tls::{trust::Side, wall::Wall},
};
use rma_lab::udp_port_is_unused;
use rma_xdp::{
    HostConfig, InlineHost, OpType,
    keys::{InlineKeyServer, KeyServerConfig, OpSet},
};

use super::*;
use crate::{
    compare::{fetch::Fetches, remote::fetch_from},
    conditions::Conditions,
    inbox::Received,
    invite,
};

/// A region of so many bytes, without any behind it: keys are not asked for here.
const REGION_LEN: u64 = 1 << 20;

/// A server on a thread of its own, until it is dropped or asked for what it has refused.
struct Server {
    address: SocketAddr,
    invitation: invite::Invitation,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Server {
    fn start(lanes: u32) -> Self {
        let (tell, told) = mpsc::channel();
        let stops = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stops);
        let thread = thread::spawn(move || {
            let own = Ipv4Addr::from(0x7f00_0000 | std::process::id() << 1);
            let host = HostConfig::udp(own).with(|it| it.port = port());
            let mut host = InlineHost::open(host).unwrap();
            let invitation = invite::Invitation::new().unwrap();
            let credentials = invitation.credentials(Side::Server).unwrap();
            let region = "bench/region".parse().unwrap();
            let policy = invite::policy([(&region, OpSet::NONE.with(OpType::Read))]);
            let listen = (Ipv4Addr::LOCALHOST, 0).into();
            let config = KeyServerConfig::new(listen, credentials, policy);
            let mut keys = InlineKeyServer::open(&host, &config).unwrap();
            tell.send((keys.address(), invitation)).unwrap();
            let (mut sessions, mut meter) = (sessions(lanes), Meter::new(true));
            while !until.load(Relaxed) {
                let worked = host.turn() > 0;
                meter.turned(worked);
                let received = Received { messages: 3, bytes: 5 };
                let (sessions, usage) = (&mut sessions, &|| meter.usage(&host, received));
                keys.turn_beside(
                    &host,
                    &mut Serving { fill: &|_| (), sessions, usage, may_write: &|_| true },
                );
                thread::yield_now();
            }
            sessions.refused()
        });
        let (address, invitation) = told.recv().unwrap();
        Self { address, invitation, stops, thread: Some(thread) }
    }

    fn config(&self) -> Arc<ClientConfig> {
        let wall = Arc::new(Wall::new());
        wall.set(clock::now().wall);
        let credentials = self.invitation.credentials(Side::Client).unwrap();
        credentials.client(&wall, invite::identity(Side::Server))
    }

    fn session(&self) -> Session {
        Session::open(self.address, self.config()).unwrap()
    }

    fn wire(&self) -> Wire {
        Wire::open(self.address, self.config()).unwrap()
    }

    /// Ends it: how many messages it has refused.
    fn refused(mut self) -> u64 {
        self.stops.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn sessions(lanes: u32) -> Sessions {
    Sessions::new(hello(lanes)).with_doctor(Arc::new(findings))
}

/// More than a message holds, and one that none would.
fn findings() -> Vec<Finding> {
    let step = |id| rma_doctor::path::Step { id, interface: Some("eth1") };
    let many = (0..100).map(|_| step("some").mend("found", "w".repeat(500), "a command"));
    many.chain([step("long").ok("f".repeat(100_000), "why")]).collect()
}

/// A UDP port that nobody has.
fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() * 43 + NEXT.fetch_add(1, Relaxed) * 1000;
    let mut ports = (0..20_000).map(|it| (12_000 + (first + it) % 20_000) as u16);
    ports.find(|&it| udp_port_is_unused(it).unwrap()).unwrap()
}

fn hello(lanes: u32) -> Hello {
    Hello {
        boot: String::new(),
        versions: Versions::own(),
        port: 10_472,
        region: "bench/region".to_owned(),
        region_len: REGION_LEN,
        seed: u64::MAX,
        ops: vec!["READ".to_owned()],
        writable: Lane::default(),
        lanes,
        conditions: Conditions {
            device: "UDP".to_owned(),
            mtu: 1500,
            core: Some(3),
            fallbacks: vec!["it is slow".to_owned()],
            ..Conditions::default()
        },
    }
}

#[test]
fn a_client_is_told_what_is_served_and_what_it_has_cost() {
    let server = Server::start(2);
    let mut session = server.session();
    let writable = Lane { offset: REGION_LEN / 2, len: REGION_LEN / 2 };
    assert_eq!(*session.hello(), Hello { writable, ..hello(2) });
    let before = session.usage().unwrap();
    assert_eq!((before.messages, before.message_bytes), (3, 5));
    let after = session.usage().unwrap();
    assert!(after.elapsed_us >= before.elapsed_us, "{before:?} {after:?}");
    assert!(after.since(&before).drops.is_empty(), "{after:?}");
    assert_eq!(server.refused(), 0);
    let lost = session.usage().unwrap_err().to_string();
    assert!(lost.contains("is lost"), "{lost}");
}

#[test]
fn writers_have_lanes_apart_and_one_that_is_gone_leaves_its_own_to_others() {
    let server = Server::start(2);
    let [mut a, mut b, mut c] = [(); 3].map(|()| server.session());
    let half = REGION_LEN / 2;
    assert_eq!(a.lane(1000).unwrap(), Lane { offset: half, len: 1000 });
    assert_eq!(b.lane(64).unwrap(), Lane { offset: half + 1024, len: 64 });
    let none = c.lane(64).unwrap_err().to_string();
    assert!(none.contains("all 2 lanes") && none.contains("--lanes"), "{none}");
    let long = b.lane(half + 1).unwrap_err().to_string();
    assert!(long.contains("--region-len 1048704"), "{long}");
    let taken = b.lane(half).unwrap_err().to_string();
    assert!(taken.contains("other writers leave 523264 in a row"), "{taken}");
    assert_eq!(b.lane(64).unwrap(), Lane { offset: half + 1088, len: 64 });
    drop(a);
    // The server learns of it when its connection ends.
    let lane = loop {
        match c.lane(64) {
            Ok(lane) => break lane,
            Err(SessionError::Lanes { .. }) => thread::yield_now(),
            Err(why) => panic!("{why}"),
        }
    };
    // Not what its owner may still write to.
    assert_eq!(lane, Lane { offset: half + 1152, len: 64 });
    assert_eq!(server.refused(), 0, "what cannot be had is no fault");
}

#[test]
fn clients_are_told_what_the_server_finds_as_soon_as_that_is_known() {
    let server = Server::start(2);
    let mut clients = [(); 2].map(|()| server.session());
    for session in &mut clients {
        let found = loop {
            match session.findings().unwrap() {
                Some(found) => break found,
                None => thread::yield_now(),
            }
        };
        assert_eq!(found[..100], findings()[..100]);
        assert_eq!((found.len(), &*found[100].id), (101, "long"));
        assert!(found[100].found.len() < 1000, "of a length that a message holds");
    }
    assert_eq!(server.refused(), 0);
}

#[test]
fn two_versions_are_told_of_each_other_and_what_to_do() {
    let server = Server::start(2);
    let mut wire = server.wire();
    let own = Versions::own();
    let other_wire = message(kind::HELLO, &Versions { wire: 1, ..own.clone() });
    for asked in [&[0, kind::HELLO][..], &[2, 77, b'{'], &[VERSION ^ 0x40], &other_wire] {
        let reply = wire.exchange(asked).unwrap();
        assert_eq!(refusal(&reply), Some(Refusal::Versions(own.clone())), "{asked:?}");
    }
    // What a later one may say, with more than is known of it.
    let reply = br#"??{"versions":{"session":2,"wire":3,"program":"9.8.7","more":[1]}}"#;
    let reply = [&[2, kind::REFUSED], &reply[2..]].concat();
    let why = wire.understood::<Hello>(&reply, kind::HELLO).unwrap_err().to_string();
    for part in [&own.program, "9.8.7, with session 2 and frames 3", "install the same"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(server.refused(), 4);
}

#[test]
fn garbage_is_refused_and_counted_and_the_session_goes_on() {
    let server = Server::start(2);
    let mut session = server.session();
    let mut random = StdRng::seed_from_u64(7);
    let whole = [
        message(kind::HELLO, &Versions::own()),
        message(kind::LANE, &WantedLane { len: 64 }),
        [&[VERSION, kind::LANE][..], br#"{"len":18446744073709551616}"#].concat(),
        [&[VERSION, kind::LANE][..], &[b'['; 16_000]].concat(),
        [&[VERSION, kind::REFUSED][..], b"{}"].concat(),
        vec![VERSION],
    ];
    let mut faults = 0;
    for round in 0..600 {
        let mut asked = whole[round % whole.len()].clone();
        for _ in 0..round % 4 {
            let at = random.random_range(0..asked.len());
            asked[at] = random.random();
        }
        asked.truncate(random.random_range(1..=asked.len()));
        // The service's own.
        let is_map = asked[0] >> 5 == 5;
        let reply = session.wire.exchange(&asked).unwrap();
        assert_eq!(is_map, reply[0] >> 5 == 5, "{asked:?}: {reply:?}");
        let is_fault =
            matches!(refusal(&reply), Some(Refusal::Malformed {} | Refusal::Versions(_)));
        faults += u64::from(is_fault);
    }
    assert!(faults > 300, "{faults}");
    assert_eq!(session.lane(64).unwrap().len, 64);
    // And what a server might answer is no panic of the client.
    for reply in [&[VERSION, kind::USAGE][..], b"\x01\x03{}", b"\x01\x03[[", b"\x00\x00", b"?"] {
        let why = session.wire.understood::<Usage>(reply, kind::USAGE).unwrap_err().to_string();
        assert!(why.contains("is no usage of a session"), "{reply:?}: {why}");
    }
    assert_eq!(server.refused(), faults);
}

#[test]
fn ports_to_compare_with_are_four_and_one_that_is_gone_leaves_its_own_to_others() {
    let server = Server::start(2);
    let mut sessions: Vec<Session> = (0..4).map(|_| server.session()).collect();
    let mut fifth = server.session();
    let one = &mut sessions[0];
    assert_eq!(one.port(None, 0).unwrap(), Ok(None), "there was none");
    for size in [0, REGION_LEN, u64::MAX] {
        let why = one.port(Some(Way::Udp), size).unwrap().unwrap_err();
        assert_eq!(why, "there: answers of that size are not given");
    }
    let opened = one.port(Some(Way::Udp), 64).unwrap().unwrap().unwrap();
    let fetches = Fetches { size: 64, depth: 4, span: REGION_LEN, warm_up: 5, count: 200 };
    let fetched = fetch_from(&opened, Way::Udp, one.hello().seed, fetches).unwrap();
    assert!(fetched.elapsed > Duration::ZERO);
    // In place of what it had.
    let again = one.port(Some(Way::Udp), 64).unwrap().unwrap().unwrap();
    assert_ne!((again.at, again.token), (opened.at, opened.token));
    let why = loop {
        // Those that nobody has come to for a while are closed.
        for session in &mut sessions {
            _ = session.port(Some(Way::Tcp), 64).unwrap();
        }
        match fifth.port(Some(Way::Tcp), 64).unwrap() {
            Err(why) => break why,
            Ok(_) => assert_eq!(fifth.port(None, 0).unwrap(), Ok(None)),
        }
    };
    assert_eq!(why, "4 such ports are open there: wait until another client ends");
    drop(sessions);
    while fifth.port(Some(Way::Tcp), 64).unwrap().is_err() {
        thread::yield_now();
    }
    assert_eq!(server.refused(), 0, "what cannot be had is no fault");
}

#[test]
fn a_port_is_for_whoever_has_said_hello_and_asks_for_what_there_is() {
    let server = Server::start(2);
    let wanted = message(kind::PEER, &WantedPort { way: Some(Way::Tcp), size: 64 });
    let reply = server.wire().exchange(&wanted).unwrap();
    assert_eq!(refusal(&reply), Some(Refusal::NotAllowed {}), "no hello");
    let mut session = server.session();
    let bad: [&[u8]; 5] = [b"", b"{}", b"7", br#"{"way":"rdma","size":64}"#, br#"{"way":"tcp"}"#];
    for body in bad {
        let reply = session.wire.exchange(&[&[VERSION, kind::PEER][..], body].concat()).unwrap();
        assert_eq!(refusal(&reply), Some(Refusal::Malformed {}), "{body:?}");
    }
    session.port(Some(Way::Tcp), 64).unwrap().unwrap();
    // And what a server might answer is no panic of the client.
    for reply in [&b"\x01\x04"[..], b"\x01\x04{}", b"\x01\x04[]", b"\x01\x03null"] {
        let port = session.wire.understood::<Option<Opened>>(reply, kind::PEER);
        let why = port.unwrap_err().to_string();
        assert!(why.contains("is no port of a session"), "{reply:?}: {why}");
    }
    assert_eq!(server.refused(), 5);
}
