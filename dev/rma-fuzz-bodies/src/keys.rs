//! The key service's input: messages, policies, certificates, and what a client makes of replies.

use core::time::Duration;

use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};
use rma_keys::{
    cache::{Fetch, GrantCache, RingId, Source},
    catalog::{Region, Term},
    certificate::Certificate,
    epoch::{Epoch, Life},
    limits::{LIFETIME_MAX, SERIAL_LEN_MAX},
    message::{
        number,
        reply::{Answer, EpochKeys, Granted, Refusal, Reply},
        request::Request,
    },
    name::RegionName,
    ops::OpSet,
    peer::{Peer, Serial},
    policy::{Ask, Authorizer, Decision, Policy, PolicyError},
    ring::{Holder, Standing},
    secret::{GrantedKey, RegionSecret},
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
    tls::pem,
};

use crate::script::Script;

const ALLOW: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/**"
ops = ["read", "write"]
lifetime = "1h"
"#;

fn now() -> Now {
    Now { boot: Instant::ZERO, wall: WallTime::from_unix_millis(1_795_435_200_000) }
}

fn here() -> HostAddr {
    [192, 0, 2, 1].into()
}

fn peer() -> Peer {
    Peer {
        identity: "spiffe://example.org/kv/client/7".parse().expect("an identity"),
        serial: Serial::new(&[7]).expect("short"),
        not_after: WallTime::from_unix_millis(i64::MAX),
        address: here(),
    }
}

fn name(text: &str) -> RegionName {
    text.parse().expect("a name")
}

/// The events of a script for `keys`.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeysSeen {
    /// Messages that were read.
    pub read: u64,
    /// Regions that the service gave.
    pub granted: u64,
    /// Ops of a client that were OK.
    pub ok: u64,
    /// Other keys that a client has learned of.
    pub renewed: u64,
}

pub(super) fn run(script: &mut Script<'_>) -> KeysSeen {
    match script.number() % 3 {
        0 => ask(script.0),
        1 => reply(script.0),
        _ => Ring::new().run(script),
    }
}

/// Any octets as a request.
fn ask(octets: &[u8]) -> KeysSeen {
    let policy = Policy::parse(ALLOW).expect("a policy");
    let mut service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
    let [announce_at, ends_at] = [3000, 3600].map(|it| now().boot + Duration::from_secs(it));
    let responders = HostAddr::from([192, 0, 2, 2]).into();
    for (it, id) in [("kv/index", 5), ("secret", 6)] {
        let region = Region { responders, id: RegionId::from_bits(id), len: 4096 };
        let secret = RegionSecret::new(&mut [it.len() as u8; 16]);
        let term = Term { announce_at, ends_at };
        service.publish(now(), name(it), region, &secret, term).expect("it makes sense");
    }
    let handled = service.handle(now(), &peer(), octets);
    let reply = Reply::decode(&handled.reply).expect("a service sends replies");
    assert_eq!(number(&handled.reply), number(octets), "a reply repeats its request's number");
    handled.events.iter().for_each(|event| assert!(!event.to_string().contains('\n')));
    let counters = service.counters();
    let mut seen = KeysSeen { granted: counters.granted, ..KeysSeen::default() };
    match (Request::decode(octets), reply) {
        (Ok(request), Reply::Answers(answers)) => {
            assert_eq!(Request::decode(&request.encode(7)).as_ref(), Ok(&request));
            assert_eq!(answers.len(), request.regions.len(), "an answer for each");
            for (wanted, answer) in request.regions.iter().zip(answers) {
                let Answer::Granted(granted) = answer else { continue };
                let is_own = request.initiators.contains(here());
                let ops: OpSet = granted.present.keys.iter().map(|(op_type, _)| *op_type).collect();
                assert!(is_own && *wanted.name == *"kv/index" && ops == wanted.ops, "{wanted:?}");
                let may: OpSet = [OpType::Read, OpType::Write].into_iter().collect();
                assert_eq!(ops.and(may), ops, "what the policy allows");
                assert!(granted.present.lifetime <= Duration::from_secs(3600));
            }
            seen.read = 1;
        }
        (Err(why), Reply::Refused(Refusal::Wrong { field })) => {
            assert_eq!(why.field().map(|it| it.to_string()).unwrap_or_default(), *field);
            assert_eq!(counters.malformed, 1);
        }
        (Err(_), Reply::Refused(Refusal::Version)) => assert_eq!(counters.other_version, 1),
        (request, reply) => panic!("{request:?} is answered by {reply:?}"),
    }
    seen
}

/// Any octets as a reply.
fn reply(octets: &[u8]) -> KeysSeen {
    match Reply::decode(octets) {
        Ok(reply) => {
            if let Reply::Answers(answers) = &reply {
                for answer in answers {
                    let Answer::Granted(Granted { present, next, .. }) = answer else { continue };
                    let follows = |next: &EpochKeys| is_before(present.epoch, next.epoch);
                    assert!(next.as_ref().is_none_or(follows), "it would lead a client back");
                }
            }
            assert_eq!(Reply::decode(&reply.encode(Some(7))), Ok(reply));
            KeysSeen { read: 1, ..KeysSeen::default() }
        }
        Err(why) => {
            assert!(!why.to_string().is_empty());
            KeysSeen::default()
        }
    }
}

fn is_before(epoch: Epoch, other: Epoch) -> bool {
    epoch.life == other.life && epoch.number < other.number
}

/// A client with one region, whose service answers what it likes, and whose ops end as they like.
struct Ring {
    cache: GrantCache,
    source: Source,
    ring: RingId,
    now: Instant,
    fetch: Option<Fetch>,
    /// Under which epoch an op was answered last.
    proven: Option<Epoch>,
    seen: KeysSeen,
}

impl Ring {
    fn new() -> Self {
        let holder = Holder { initiators: LocalAddresses::from(here()), pid: Pid(7) };
        let mut cache = GrantCache::new(holder, 1);
        let source = cache.source();
        let read = OpSet::NONE.with(OpType::Read);
        let ring = cache.region(source, name("kv/index"), read).expect("room");
        let (now, fetch, proven) = (Instant::ZERO, None, None);
        Self { cache, source, ring, now, fetch, proven, seen: KeysSeen::default() }
    }

    fn run(mut self, script: &mut Script<'_>) -> KeysSeen {
        while let Some(step) = script.byte() {
            self.step(step, script);
            let standing = self.cache.standing(self.now, self.ring);
            let grant = self.cache.grant(self.now, self.ring, OpType::Read);
            if standing == Standing::Ready {
                let keyed = grant.expect("who is ready has a key");
                let goes_back = self.proven.is_some_and(|it| is_before(keyed.epoch, it));
                assert!(!goes_back, "{} after {:?}", keyed.epoch, self.proven);
                assert_eq!((keyed.grant.initiator, keyed.grant.pid), (here(), Pid(7)));
            }
            if standing == Standing::Waiting && self.fetch.is_none() {
                assert!(self.cache.poll_timeout().is_some(), "it waits for nothing");
            }
        }
        self.seen.renewed = self.cache.counters().renewed;
        self.seen
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        match step % 6 {
            0 | 1 => {
                if self.fetch.is_none() {
                    self.fetch = self.cache.poll_fetch(self.now);
                }
                let Some(fetch) = &self.fetch else { return };
                let (number, is_twice) = (fetch.number, step & 0x40 != 0);
                if step & 0x80 == 0 {
                    self.fetch = None;
                }
                for _ in 0..=u8::from(is_twice) {
                    // Through its octets, as a client has it.
                    let reply = answered(&mut *script);
                    match Reply::decode(&reply.encode(Some(number))) {
                        Ok(reply) => {
                            self.cache.handle_reply(self.now, self.source, number, reply);
                        }
                        Err(_) => self.cache.handle_lost(self.now, self.source, number),
                    }
                }
            }
            2 | 3 => {
                let Some(keyed) = self.cache.grant(self.now, self.ring, OpType::Read) else {
                    return;
                };
                let status = OpStatus::ALL[script.number() % OpStatus::ALL.len()];
                _ = self.cache.on_outcome(self.now, self.ring, keyed.epoch, status);
                self.seen.ok += u64::from(status == OpStatus::Ok);
                // An answer under a key, whatever it says, was answered by whoever has it.
                if let OpStatus::Ok
                | OpStatus::Nack
                | OpStatus::RemoteOutOfBounds
                | OpStatus::RemotePermissionDenied
                | OpStatus::RemoteNotReady = status
                {
                    self.proven = Some(keyed.epoch);
                }
            }
            4 => {
                self.now = self.now + Duration::from_millis(1 << (script.number() % 20));
                if step & 0x80 != 0 && self.fetch.is_none() {
                    self.fetch = self.cache.poll_fetch(self.now);
                }
            }
            _ => {
                if let Some(fetch) = self.fetch.take() {
                    self.cache.handle_lost(self.now, self.source, fetch.number);
                }
                if step & 0x80 != 0 {
                    self.cache.handle_disconnected(self.now, self.source);
                }
            }
        }
    }
}

/// Returns a service's answer, which need not know what it said before.
fn answered(script: &mut Script<'_>) -> Reply {
    let millis = |script: &mut Script<'_>| Duration::from_millis(1 << (script.number() % 26));
    let epoch =
        |code: usize| Epoch { life: Life([(code >> 6) as u8; 8]), number: (code & 0xf) as u64 };
    let keys = |epoch: Epoch, script: &mut Script<'_>| EpochKeys {
        epoch,
        lifetime: millis(script),
        keys: vec![(OpType::Read, GrantedKey::from_octets(&[epoch.number as u8; 16]))],
    };
    let kind = script.number();
    let answer = match kind % 8 {
        0..=3 => {
            let (present, next) = (epoch(script.number()), epoch(script.number()));
            Answer::Granted(Granted {
                responder: [192, 0, 2, 2].into(),
                region: RegionId::from_bits(5),
                region_len: 4096,
                present: keys(present, script),
                refresh: millis(script),
                next: (kind & 0x10 != 0).then(|| keys(next, script)),
            })
        }
        4 => Answer::Current { lifetime: millis(script), refresh: millis(script) },
        5 => Answer::Denied,
        6 => Answer::NoAddressOfFamily,
        _ => return Reply::Refused(Refusal::NotNow { retry: Duration::from_millis(kind as u64) }),
    };
    Reply::Answers(vec![answer])
}

pub(super) fn policy(octets: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(octets) else { return false };
    let policy = match Policy::parse(text) {
        Ok(policy) => policy,
        Err(why) => {
            let is_one_line = !why.to_string().contains('\n');
            assert!(is_one_line || matches!(why, PolicyError::Syntax(_)), "{why}");
            return false;
        }
    };
    let (peer, wall) = (peer(), now().wall);
    for region in ["kv/index", "kv/a/b", "x"].map(name) {
        assert!(!policy.withdraws(&policy, &region), "from itself");
        let most = policy.epoch_max(&region, wall);
        assert!(!most.is_zero() && most <= LIFETIME_MAX, "{most:?}");
        assert!(policy.lapses_at(&region, wall).is_none_or(|at| at > wall));
        for op_type in OpType::ALL {
            for initiator in [None, Some(here()), Some([198, 51, 100, 1].into())] {
                let ops = OpSet::NONE.with(op_type);
                let ask = Ask { peer: &peer, region: &region, ops, initiator };
                let decision = policy.decide(&ask, wall);
                if let Decision::Allowed { lifetime, rule } = decision {
                    assert!(!lifetime.is_zero() && lifetime >= most && rule.is_some());
                    // From any address, where from one.
                    let anywhere = policy.decide(&Ask { initiator: None, ..ask }, wall);
                    assert_ne!(anywhere, Decision::Denied);
                }
                let explained = policy.explain(&ask, wall);
                assert_eq!(explained.decision, decision);
                assert!(!explained.to_string().is_empty());
            }
        }
    }
    true
}

pub(super) fn certificate(octets: &[u8]) -> bool {
    in_file(octets) | alone(octets)
}

/// Octets as a file of certificates, or of a key.
fn in_file(octets: &[u8]) -> bool {
    let marked = ["\u{feff}".as_bytes(), octets].concat();
    if let Err(error) = pem::private_key(octets) {
        assert!(!error.to_string().contains('\n'));
    }
    match pem::certificates(octets) {
        Ok(read) => {
            assert!(!read.is_empty());
            assert!(read.iter().map(|it| it.len()).sum::<usize>() < octets.len());
            let sections = octets.windows(BEGIN.len()).filter(|it| *it == BEGIN).count();
            assert!(read.len() <= sections, "more than there are");
            assert_eq!(pem::certificates(&marked), Ok(read), "a mark changes nothing");
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            false
        }
    }
}

/// The line that begins a certificate in a file.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

fn alone(octets: &[u8]) -> bool {
    let Ok(read) = Certificate::read(octets) else { return false };
    let uris: usize = read.uris.iter().map(|it| it.len()).sum();
    assert!(uris <= octets.len(), "more than there is");
    assert!(read.serial.to_string().len() <= 2 * SERIAL_LEN_MAX);
    if let Ok(identity) = read.identity() {
        assert_eq!(read.uris.len(), 1);
        assert_eq!(identity.as_str(), &*read.uris[0]);
    }
    assert!(!read.to_string().is_empty());
    // The octets behind it are not its own.
    let followed = [octets, &[0x30, 0x80, 0xff]].concat();
    assert_eq!(Certificate::read(&followed).as_ref(), Ok(&read));
    true
}
