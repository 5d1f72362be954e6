//! Each kind of bad input over sockets, against a service with a policy and a log: it is refused by
//! name, it has a counter, and others are served on.

use core::{net::Ipv4Addr, time::Duration};
use std::{
    fs,
    sync::{Arc, Mutex},
};

use rcgen::{ExtendedKeyUsagePurpose, KeyPair, SanType};
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    op::OpType,
    region::RegionId,
    time::Instant,
};
use rma_keys::{
    audit::log::{Log, LogConfig},
    catalog::{Region, Term},
    epoch::Life,
    io::server::{EndReason, Handler},
    message::{
        reply::{Answer, Refusal, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    peer::Peer,
    policy::Policy,
    recorded::Recorded,
    secret::RegionSecret,
    service::{Service, ServiceConfig, ServiceCounters},
    time::{Now, WallTime},
};
use rustls::{
    ClientConfig, client::ResolvesClientCert, pki_types::CertificateDer, sign::CertifiedKey,
};

use crate::{
    ca::{CLIENT, Ca, Issued, NOON_MS, SERVER, params, wall},
    tls::{
        certificates::{good_in, sends},
        directory::Scratch,
        server::{Client, Rig},
    },
};

const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read", "write"]

[[refuse]]
identity = "spiffe://example.org/kv/client/13"
"#;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A service with one region at loopback, and a client that it likes.
struct Field {
    rig: Rig,
    good: Client,
    service: Arc<Mutex<Recorded<Policy>>>,
    scratch: Scratch,
}

impl Field {
    fn new() -> Self {
        let policy = Policy::parse(POLICY).unwrap();
        let mut service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
        let [boot, announce_at, ends_at] =
            [0, 3000, 3600].map(|it| Instant::ZERO + Duration::from_secs(it));
        let now = Now { boot, wall: WallTime::from_unix_millis(NOON_MS) };
        let responders = HostAddr::from(Ipv4Addr::LOCALHOST).into();
        let region = Region { responders, id: RegionId::from_bits(5), len: 4096 };
        let name = "kv/index".parse().unwrap();
        let secret = RegionSecret::new(&mut [1; 16]);
        service.publish(now, name, region, &secret, Term { announce_at, ends_at }).unwrap();
        let scratch = Scratch::new();
        let log = Log::open(&scratch.path().join("audit.log"), LogConfig::default()).unwrap();
        let service = Arc::new(Mutex::new(Recorded::new(service, log)));
        let answers = Arc::clone(&service);
        let mut rig = Rig::new(move |now: Now, peer: &Peer, message: &[u8]| {
            answers.lock().unwrap().handle(now, peer, message)
        });
        let good = rig.client();
        Self { rig, good, service, scratch }
    }

    /// The good client is given its key.
    fn serves_on(&mut self, after: &str) {
        let Self { rig, good, .. } = self;
        let reply = Reply::decode(&rig.ask(good, &request().encode(1))).unwrap();
        let Reply::Answers(answers) = reply else { panic!("after {after}: {reply:?}") };
        assert!(matches!(answers[..], [Answer::Granted(_)]), "after {after}: {answers:?}");
    }

    /// A client tries to get in, and is refused for this reason.
    fn refuses(&mut self, config: ClientConfig, reason: EndReason) {
        let before = self.rig.ended(reason);
        let mut bad = self.rig.client_with(config, Ipv4Addr::LOCALHOST);
        self.rig.until(reason.name(), |rig| {
            bad.pump();
            rig.ended(reason) > before
        });
        self.serves_on(reason.name());
    }

    fn config_with(&self, resolver: Arc<dyn ResolvesClientCert>) -> ClientConfig {
        let mut config = self.rig.config();
        config.client_auth_cert_resolver = resolver;
        config
    }

    fn counters(&self) -> ServiceCounters {
        self.service.lock().unwrap().service().counters()
    }

    /// Returns the answer to one client.
    fn answer(&mut self, client: &mut Client, request: &Request) -> Answer {
        match Reply::decode(&self.rig.ask(client, &request.encode(1))).unwrap() {
            Reply::Answers(mut answers) if answers.len() == 1 => answers.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("audit.log")).unwrap()
    }
}

fn request() -> Request {
    let wanted = Wanted {
        name: "kv/index".parse().unwrap(),
        ops: OpSet::NONE.with(OpType::Read),
        have: None,
    };
    let initiators = HostAddr::from(Ipv4Addr::LOCALHOST).into();
    Request { initiators, pid: Pid(7), regions: vec![wanted] }
}

fn client_params(uris: &[&str]) -> rcgen::CertificateParams {
    params(uris)
}

/// A chain of about a mebibyte.
fn mebibyte(mut issued: Issued) -> Issued {
    let mut long = issued.chain[0].to_vec();
    long.resize(8 << 10, 0);
    issued.chain.extend((0..128).map(|_| CertificateDer::from(long.clone())));
    issued
}

#[test]
fn every_bad_certificate_has_a_counter_and_others_are_served_on() {
    let mut field = Field::new();
    let issue = |params: &rcgen::CertificateParams| field.rig.ca.issue(params);
    let mut only_dns = client_params(&[]);
    only_dns.subject_alt_names.push(SanType::DnsName("kv.example.org".try_into().unwrap()));
    let mut purpose = client_params(&[CLIENT]);
    purpose.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let mut long_chain = issue(&params(&[CLIENT]));
    long_chain.chain.extend((0..3).map(|_| field.rig.ca.intermediate("middle").root()));
    let garbage =
        Issued { chain: vec![CertificateDer::from(vec![0x30, 0])], ..issue(&params(&[CLIENT])) };
    let self_signed = {
        let key = KeyPair::generate().unwrap();
        let certificate = params(&[CLIENT]).self_signed(&key).unwrap();
        let (chain, chain_pem) = (vec![certificate.der().clone()], certificate.pem());
        Issued { chain, chain_pem, key_pem: key.serialize_pem() }
    };
    let bad = [
        (issue(&good_in(10..11, &[CLIENT])), EndReason::CertificateEnded),
        (issue(&good_in(12..13, &[CLIENT])), EndReason::CertificateNotYet),
        (issue(&params(&["spiffe://b.org/a"])), EndReason::CertificateDomain),
        (issue(&params(&[CLIENT, SERVER])), EndReason::CertificateIdentity),
        (issue(&params(&[])), EndReason::CertificateIdentity),
        (issue(&only_dns), EndReason::CertificateIdentity),
        (issue(&params(&["spiffe://example.org/a/../b"])), EndReason::CertificateIdentity),
        (issue(&purpose), EndReason::CertificateChain),
        (self_signed, EndReason::CertificateIssuer),
        (Ca::new("stranger").issue(&params(&[CLIENT])), EndReason::CertificateIssuer),
        (long_chain, EndReason::CertificateSize),
        (mebibyte(issue(&params(&[CLIENT]))), EndReason::CertificateSize),
        (garbage, EndReason::CertificateUnreadable),
    ];
    for (issued, reason) in bad {
        let config = field.config_with(sends(&issued));
        field.refuses(config, reason);
    }
    let nothing = field.config_with(Arc::new(Nothing));
    field.refuses(nothing, EndReason::NoCertificate);
    assert_eq!(field.rig.server.counters().handshakes, 1, "the good one's");
    assert_eq!(field.counters().granted, 14, "one for each that was refused");
}

/// Has a certificate, and does not send it.
#[derive(Debug)]
struct Nothing;

impl ResolvesClientCert for Nothing {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn an_identity_that_the_policy_refuses_gets_in_and_is_given_nothing() {
    let mut field = Field::new();
    let refused = field.rig.ca.credentials("spiffe://example.org/kv/client/13");
    let config = refused.client(&wall(Duration::ZERO), SERVER.parse().unwrap());
    let mut client = field.rig.client_as(ClientConfig::clone(&config));
    assert_eq!(field.answer(&mut client, &request()), Answer::Denied);
    assert_eq!(field.counters().denied, 1);
    assert!(field.log().contains("\"event\":\"denied\""), "{}", field.log());
    field.serves_on("a refused identity");
}

#[test]
fn a_malformed_message_is_answered_by_the_field_and_ends_nothing() {
    let mut field = Field::new();
    let whole = request().encode(1).to_vec();
    let mut bad = field.rig.client();
    let mut ask = |field: &mut Field, message: &[u8]| {
        Reply::decode(&field.rig.ask(&mut bad, message)).unwrap()
    };
    let wrong = |it: &Reply| matches!(it, Reply::Refused(Refusal::Wrong { .. }));
    for len in 1..whole.len() {
        let reply = ask(&mut field, &whole[..len]);
        assert!(wrong(&reply), "{len} octets: {reply:?}");
    }
    let named = |field: &str| Reply::Refused(Refusal::Wrong { field: field.into() });
    // 2^32 as a length; a name that climbs; nothing that was ever a message.
    let long =
        b"\xa5\0\x01\x01\x09\x02\x81\x44\x7f\0\0\x01\x03\x07\x04\x81\xa2\0\x7b\0\0\0\x01\0\0\0\0";
    assert_eq!(ask(&mut field, long), named("regions[0].name"));
    let climbs =
        b"\xa5\0\x01\x01\x09\x02\x81\x44\x7f\0\0\x01\x03\x07\x04\x81\xa2\0\x65kv/..\x01\x81\x01";
    assert_eq!(ask(&mut field, climbs), named("regions[0].name"));
    let regions = b"\xa5\0\x01\x01\x09\x02\x81\x44\x7f\0\0\x01\x03\x07\x04\x9a\xff\xff\xff\xff";
    assert_eq!(ask(&mut field, regions), named("regions"));
    assert_eq!(ask(&mut field, &[&whole[..], &[0]].concat()), named(""));
    let mut other = whole.clone();
    other[2] = 2;
    assert_eq!(ask(&mut field, &other), Reply::Refused(Refusal::Version));
    // A field that nobody knows, and the map is one longer.
    let mut more = [&whole[..], b"\x18\x63\xa1\x61x\x80"].concat();
    more[0] += 1;
    let reply = ask(&mut field, &more);
    assert!(matches!(&reply, Reply::Answers(_)), "{reply:?}");
    let counters = field.counters();
    assert_eq!(counters.malformed, whole.len() as u64 - 1 + 4);
    assert_eq!(counters.other_version, 1);
    let logged = field.log().lines().filter(|it| it.contains("\"malformed\"")).count() as u64;
    assert_eq!(logged, counters.malformed + counters.other_version);
    field.serves_on("noise");
    assert_eq!(field.rig.server.connections(), 2, "neither was cut off");
}

//= 1rma#3.1-key-of-one-client
//= type=test
#[test]
fn a_claim_is_believed_of_a_pid_and_not_of_an_address() {
    let mut field = Field::new();
    let mut client = field.rig.client();
    let mut claim = |field: &mut Field, address: &str, pid| {
        let initiators = LocalAddresses::from(address.parse::<HostAddr>().unwrap());
        field.answer(&mut client, &Request { initiators, pid: Pid(pid), ..request() })
    };
    // Another process of its own host: that process's very key, as docs/KEYS.md says.
    let schedule = RegionKeySchedule::new(&RegionKey::from_bytes([1; 16]));
    let here = HostAddr::from(Ipv4Addr::LOCALHOST);
    for pid in [7, 8, u32::MAX] {
        let Answer::Granted(granted) = claim(&mut field, "127.0.0.1", pid) else { panic!("{pid}") };
        let binding =
            KeyBinding { initiator: here, responder: here, pid: Pid(pid), op_type: OpType::Read };
        assert_eq!(granted.present.keys[0].1.derived_key(), schedule.derive(&binding));
    }
    assert!(field.log().contains("\"pid\":8"), "the log says for whom");
    // Another host, in the same network or not; and a family that the region's host has not.
    assert_eq!(claim(&mut field, "127.0.0.2", 7), Answer::Denied);
    assert_eq!(claim(&mut field, "192.0.2.1", 7), Answer::Denied);
    assert_eq!(claim(&mut field, "2001:db8::1", 7), Answer::NoAddressOfFamily);
    let counters = field.counters();
    assert_eq!((counters.granted, counters.denied, counters.no_address_of_family), (3, 2, 1));
    field.serves_on("claims");
}

#[test]
fn a_service_whose_wall_clock_is_stepped_by_a_day_judges_certificates_by_it_and_nothing_else() {
    let lifetime = |field: &mut Field| {
        let mut client = core::mem::replace(&mut field.good, field.rig.client());
        match field.answer(&mut client, &request()) {
            Answer::Granted(granted) => granted.present.lifetime,
            other => panic!("{other:?}"),
        }
    };
    let mut field = Field::new();
    let before = lifetime(&mut field);
    // A day ahead, all certificates have ended: the open connection is told what time it is here.
    field.rig.wall_step = DAY.as_millis() as i64;
    let reply = field.rig.ask(&mut field.good, &request().encode(1));
    let seen = WallTime::from_unix_millis(NOON_MS + DAY.as_millis() as i64);
    let ended = Reply::Refused(Refusal::CertificateEnded { seen });
    assert_eq!(Reply::decode(&reply).unwrap(), ended);
    let mut late = field.rig.client_with(field.rig.config(), Ipv4Addr::LOCALHOST);
    field.rig.until("it is refused", |rig| {
        late.pump();
        rig.ended(EndReason::CertificateEnded) == 1
    });
    // A day back, none is good yet for a new connection; the old one goes on as before.
    field.rig.wall_step = -(DAY.as_millis() as i64);
    let mut early = field.rig.client_with(field.rig.config(), Ipv4Addr::LOCALHOST);
    field.rig.until("it is refused", |rig| {
        early.pump();
        rig.ended(EndReason::CertificateNotYet) == 1
    });
    field.rig.wall_step = 0;
    assert_eq!(lifetime(&mut field), before);
    // The log has both times.
    let log = field.log();
    let at = |date: &str| log.lines().filter(|it| it.contains(date)).count();
    assert!(at("\"wall\":\"2026-11-24T12:00:00Z\"") == 1 && log.contains("\"boot_ns\":0"), "{log}");
}

#[test]
fn a_handler_is_called_for_whole_messages_of_clients_that_are_known_alone() {
    // The guarantee that an application's own handler may rely on.
    fn is_handler<H: Handler>(_: &H) {}
    let handler = |_: Now, peer: &Peer, _: &[u8]| {
        assert_eq!(peer.identity.as_str(), CLIENT);
        request().encode(1)
    };
    is_handler(&handler);
    let mut rig = Rig::new(handler);
    let mut half = rig.client();
    half.write(&[0, 0, 0, 9, 1, 2, 3]);
    rig.turn();
    assert_eq!(rig.server.counters().messages, 0);
    half.write(&[4, 5, 6, 7, 8, 9]);
    assert_eq!(rig.reply(&mut half), &request().encode(1)[..]);
    assert_eq!(rig.server.counters().messages, 1);
}
