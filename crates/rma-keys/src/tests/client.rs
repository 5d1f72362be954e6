//! The client's use of the keys that it is given, against a real service and a responder that has
//! one key.

use core::time::Duration;
use std::collections::BTreeMap;

use rma_core::{
    addr::Pid,
    crypto::{DerivedRegionKey, KeyBinding, RegionKeySchedule},
    grant::Grant,
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};

use super::{addresses, after, client, name, region, secret, term};
use crate::{
    cache::{CacheError, Fetch, GrantCache, RingId, Source},
    catalog::Region,
    epoch::{Epoch, Life},
    message::reply::{Answer, Refusal, Reply},
    name::RegionName,
    ops::OpSet,
    policy::Policy,
    ring::{GiveUp, Holder, Standing, Verdict},
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};

const ALLOW: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read", "write"]
"#;

const READ: OpSet = OpSet::NONE.with(OpType::Read);

/// An owner with one region, and a client of it.
pub(super) struct World {
    pub(super) now: Now,
    pub(super) service: Service<Policy>,
    /// The octet that the responder's key is made of.
    pub(super) key: u8,
    pub(super) cache: GrantCache,
    pub(super) source: Source,
    pub(super) ring: RingId,
}

pub(super) const HOLDER_PID: Pid = Pid(7);

pub(super) fn holder() -> Holder {
    Holder { initiators: addresses(&["192.0.2.1"]), pid: HOLDER_PID }
}

pub(super) fn service(life: u8, key: u8, now: Now) -> Service<Policy> {
    let policy = Policy::parse(ALLOW).unwrap();
    let mut service = Service::new(Life([life; 8]), policy, ServiceConfig::default());
    publish(&mut service, now, "kv/index", key);
    service
}

/// The region of a name has an id of its own.
fn id_of(region_name: &str) -> RegionId {
    let hash = |hash: u32, octet| hash.wrapping_mul(31).wrapping_add(u32::from(octet));
    match region_name {
        "kv/index" => region().id,
        other => RegionId::from_bits(other.bytes().fold(0, hash)),
    }
}

pub(super) fn publish(
    service: &mut Service<Policy>,
    now: Now,
    region_name: &str,
    key: u8,
) -> Epoch {
    let hour = term(now.boot + SECOND * 3000, now.boot + SECOND * 3600);
    let region = Region { id: id_of(region_name), len: 1 << 16, ..region() };
    service.publish(now, name(region_name), region, &secret(key), hour).unwrap().0
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn cold() -> Self {
        let now = after(1);
        let mut cache = GrantCache::new(holder(), 1);
        let source = cache.source();
        let ring = cache.region(source, name("kv/index"), READ).unwrap();
        Self { now, service: service(7, 1, now), key: 1, cache, source, ring }
    }

    pub(super) fn warm() -> Self {
        let mut world = Self::cold();
        assert_eq!(world.standing(), Standing::Waiting);
        assert_eq!(world.serve(), 1);
        assert_eq!(world.standing(), Standing::Ready);
        world
    }

    /// Another region, of which keys are wanted.
    fn another(&mut self, region: &str) -> RingId {
        publish(&mut self.service, self.now, region, 1);
        let ring = self.cache.region(self.source, name(region), READ).unwrap();
        assert_eq!(self.cache.standing(self.now.boot, ring), Standing::Waiting);
        ring
    }

    pub(super) fn standing(&mut self) -> Standing {
        self.cache.standing(self.now.boot, self.ring)
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now.boot = self.now.boot + time;
    }

    pub(super) fn fetch(&mut self) -> Option<Fetch> {
        self.cache.poll_fetch(self.now.boot)
    }

    pub(super) fn answer(&mut self, fetch: &Fetch) -> Reply {
        self.service.answer(self.now, &client(), &fetch.request).reply
    }

    pub(super) fn reply(&mut self, fetch: &Fetch, reply: Reply) {
        self.cache.handle_reply(self.now.boot, fetch.source, fetch.number, reply);
    }

    /// Answers all that the client asks, and tells how many requests that were.
    pub(super) fn serve(&mut self) -> usize {
        let mut served = 0;
        while let Some(fetch) = self.fetch() {
            let reply = self.answer(&fetch);
            self.reply(&fetch, reply);
            served += 1;
            assert!(served < 100, "it asks without end");
        }
        served
    }

    /// Ends an op under the client's present key, and returns that key's epoch with the status.
    pub(super) fn op(&mut self) -> (Epoch, OpStatus) {
        let now = self.now.boot;
        let keyed = self.cache.grant(now, self.ring, OpType::Read).expect("it has a key");
        (keyed.epoch, self.outcome(&keyed.grant, &keyed.grant.key))
    }

    /// Returns the status of an op under `key`, by the responder's own.
    pub(super) fn outcome(&self, grant: &Grant, key: &DerivedRegionKey) -> OpStatus {
        let (initiator, responder, pid) = (grant.initiator, grant.responder, grant.pid);
        let binding = KeyBinding { initiator, responder, pid, op_type: grant.op_type };
        let right = RegionKeySchedule::new(&secret(self.key).region_key()).derive(&binding);
        if *key == right { OpStatus::Ok } else { REFUSED }
    }

    pub(super) fn ends(&mut self, epoch: Epoch, status: OpStatus) -> Verdict {
        self.cache.on_outcome(self.now.boot, self.ring, epoch, status)
    }

    /// Runs an op until it ends well, and tells how often it was tried again. The first `forged`
    /// tries end with a notice that somebody has forged.
    fn run(&mut self, forged: u32) -> u32 {
        for tries in 0..20 {
            let (epoch, mut status) = self.op();
            if tries < forged {
                status = REFUSED;
            }
            match self.ends(epoch, status) {
                Verdict::Pass => return tries,
                Verdict::Retry => {}
                Verdict::Wait => {
                    for _ in 0..200 {
                        if self.serve() > 0 {
                            break;
                        }
                        self.pass(Duration::from_millis(5));
                    }
                    assert_eq!(self.standing(), Standing::Ready);
                }
                Verdict::GiveUp(why) => panic!("{why}"),
            }
        }
        panic!("it never ends");
    }

    pub(super) fn announce(&mut self, key: u8, lead: Duration) -> Epoch {
        let swap_at = self.now.boot + lead;
        let hour = term(swap_at + SECOND * 3000, swap_at + SECOND * 3600);
        let name = name("kv/index");
        self.service.announce(self.now, &name, &secret(key), swap_at, hour).unwrap().0
    }

    pub(super) fn install(&mut self, key: u8, epoch: Epoch) {
        self.key = key;
        self.service.install(self.now, &name("kv/index"), epoch).unwrap();
    }

    pub(super) fn fetches(&self) -> u64 {
        self.cache.counters().fetches
    }
}

pub(super) const REFUSED: OpStatus = OpStatus::RemoteAuthenticationFailure;

#[test]
fn nothing_is_asked_before_it_is_wanted_and_then_once_for_all() {
    let mut world = World::cold();
    assert!(world.fetch().is_none());
    let mut rings = vec![world.ring];
    for i in 0..39 {
        publish(&mut world.service, world.now, &format!("kv/{i}"), 1);
        rings.push(world.cache.region(world.source, name(&format!("kv/{i}")), READ).unwrap());
    }
    assert!(world.fetch().is_none());
    for &ring in rings.iter().chain(&rings) {
        assert_eq!(world.cache.standing(world.now.boot, ring), Standing::Waiting);
    }
    let first = world.fetch().expect("wanted");
    assert_eq!(first.request.regions.len(), 32);
    assert!(world.fetch().is_none(), "one at a time");
    let reply = world.answer(&first);
    world.reply(&first, reply);
    assert_eq!(world.serve(), 1, "the rest");
    for ring in rings {
        assert_eq!(world.cache.standing(world.now.boot, ring), Standing::Ready);
    }
    assert!(world.fetch().is_none());
    let refresh = world.cache.poll_timeout().expect("it refreshes").since(world.now.boot);
    assert!((3000..=3600).contains(&refresh.as_secs()), "{refresh:?}");
    assert_eq!(world.run(0), 0);
}

//= 1rma#5.2-predistributed
//= type=test
#[test]
fn a_key_that_was_handed_out_before_costs_one_retry_and_no_fetch() {
    let mut world = World::warm();
    world.pass(SECOND * 3000);
    let next = world.announce(2, SECOND * 600);
    world.pass(SECOND * 590);
    assert_eq!(world.serve(), 1, "it has come by meanwhile");
    assert_eq!(world.run(0), 0);
    world.install(2, next);
    let fetches = world.fetches();
    assert_eq!(world.run(0), 1);
    assert_eq!(world.run(0), 0);
    assert_eq!(world.fetches(), fetches);
}

//= 1rma#4.2-recovery
//= type=test
#[test]
fn a_key_that_has_changed_is_fetched_once_for_all_who_wait() {
    let mut world = World::warm();
    let (epoch, _) = world.op();
    let next = world.announce(2, Duration::ZERO);
    world.install(2, next);
    for _ in 0..10 {
        assert_eq!(world.ends(epoch, REFUSED), Verdict::Wait);
    }
    assert_eq!(world.standing(), Standing::Waiting, "others wait as well");
    assert_eq!(world.serve(), 1);
    assert_eq!(world.ends(epoch, REFUSED), Verdict::Retry, "somebody was faster");
    assert_eq!((world.run(0), world.fetches()), (0, 2));
}

#[test]
fn a_forged_notice_costs_two_retries_at_most_also_while_a_swap_is_announced() {
    let mut world = World::warm();
    assert_eq!(world.run(1), 1);
    assert_eq!(world.cache.counters().spurious, 1);
    world.pass(SECOND * 3000);
    let next = world.announce(2, SECOND * 600);
    world.pass(SECOND * 550);
    assert!(world.serve() > 0);
    // Of the present key, then of the next, which the responder does not have: both are kept.
    assert_eq!(world.run(1), 2);
    assert_eq!(world.run(0), 0);
    world.install(2, next);
    assert_eq!(world.run(0), 1);
}

#[test]
fn forged_notices_without_end_make_a_bounded_number_of_fetches() {
    let mut world = World::warm();
    let end = world.now.boot + SECOND * 60;
    let mut waits = 0;
    while world.now.boot < end {
        let (epoch, _) = world.op();
        waits += u32::from(world.ends(epoch, REFUSED) == Verdict::Wait);
        world.serve();
        while world.standing() == Standing::Waiting {
            world.pass(Duration::from_millis(1));
            world.serve();
        }
    }
    let fetches = world.fetches();
    assert!((60..=70).contains(&fetches) && waits > 50, "{fetches} fetches, {waits} waits");
    // Ten seconds without halve the wait, and an OK does not.
    assert_eq!(world.run(0), 0);
    world.pass(SECOND * 40);
    let (epoch, _) = world.op();
    assert_eq!(world.ends(epoch, REFUSED), Verdict::Wait);
    assert_eq!(world.serve(), 1);
    let (epoch, _) = world.op();
    assert_eq!(world.ends(epoch, REFUSED), Verdict::Wait);
    let wait = world.cache.poll_timeout().unwrap().since(world.now.boot);
    assert_eq!(wait, Duration::from_millis(125));
}

#[test]
fn notices_forged_for_one_region_hold_back_no_other() {
    let mut world = World::warm();
    let other = world.another("kv/other");
    assert_eq!(world.serve(), 1);
    // Until it is asked about once a second.
    for _ in 0..10 {
        let (epoch, _) = world.op();
        assert_eq!(world.ends(epoch, REFUSED), Verdict::Wait);
        while world.standing() == Standing::Waiting {
            world.pass(Duration::from_millis(1));
            world.serve();
        }
    }
    let (epoch, _) = world.op();
    assert_eq!(world.ends(epoch, REFUSED), Verdict::Wait);
    assert_eq!(world.serve(), 0, "its turn comes later");
    let now = world.now.boot;
    let keyed = world.cache.grant(now, other, OpType::Read).unwrap();
    assert_eq!(world.cache.on_outcome(now, other, keyed.epoch, REFUSED), Verdict::Wait);
    let fetch = world.fetch().expect("it has not been asked about before");
    assert_eq!(fetch.request.regions.len(), 1);
    let reply = world.answer(&fetch);
    world.reply(&fetch, reply);
    assert_eq!(world.cache.standing(now, other), Standing::Ready);
    assert_eq!(world.standing(), Standing::Waiting, "as long as before");
    let wait = world.cache.poll_timeout().unwrap().since(now);
    assert!((900..=1000).contains(&wait.as_millis()), "{wait:?}");
}

#[test]
fn notices_forged_for_hundreds_of_regions_leave_room_for_others_and_treat_all_alike() {
    let mut world = World::warm();
    let rings: Vec<RingId> = (0..400).map(|i| world.another(&format!("kv/{i}"))).collect();
    assert_eq!(world.serve(), 13, "all of them, in 13 requests");
    let mut asked = BTreeMap::<RegionName, u32>::new();
    let end = world.now.boot + SECOND * 30;
    for round in 0.. {
        let now = world.now.boot;
        if now >= end {
            break;
        }
        for &ring in &rings {
            if world.cache.standing(now, ring) == Standing::Ready {
                let keyed = world.cache.grant(now, ring, OpType::Read).unwrap();
                _ = world.cache.on_outcome(now, ring, keyed.epoch, REFUSED);
            }
        }
        let cold = (round % 1000 == 999).then(|| world.another(&format!("kv/cold-{round}")));
        let mut requests = 0;
        while let Some(fetch) = world.fetch() {
            for it in &fetch.request.regions {
                *asked.entry(it.name.clone()).or_default() += 1;
            }
            requests += 1;
            let reply = world.answer(&fetch);
            world.reply(&fetch, reply);
            if let Some(cold) = cold {
                assert_ne!(world.cache.standing(now, cold), Standing::Waiting, "by the first one");
            }
        }
        assert!(requests <= 13, "{requests} at {now:?}");
        world.pass(Duration::from_millis(5));
    }
    assert_eq!(world.cache.counters().refused, 0, "it stays within what it may ask");
    asked.retain(|name, _| !name.starts_with("kv/cold"));
    let (least, most) = (asked.values().min().unwrap(), asked.values().max().unwrap());
    let all: u32 = asked.values().sum();
    assert!(all <= 400 + 30 * 334, "{all} in 30 s");
    assert!(asked.len() == 400 && *least > 20 && most - least <= 2, "{least} to {most}");
}

#[test]
fn silence_is_checked_as_an_owner_that_has_started_again_may_not_be_able_to_refuse() {
    let mut world = World::warm();
    let (epoch, _) = world.op();
    for _ in 0..2 {
        assert_eq!(world.ends(epoch, OpStatus::Timeout), Verdict::Pass);
    }
    world.pass(SECOND);
    assert_eq!(world.serve(), 0, "frames are lost now and then");
    // A NACK is an answer under the key.
    assert_eq!(world.ends(epoch, OpStatus::Nack), Verdict::Pass);
    let mut gaps = Vec::new();
    let mut last = world.now.boot;
    for _ in 0..1_500 {
        assert_eq!(world.ends(epoch, OpStatus::Timeout), Verdict::Pass);
        world.pass(Duration::from_millis(100));
        if world.serve() > 0 {
            gaps.push(world.now.boot.since(last).as_secs());
            last = world.now.boot;
        }
    }
    assert_eq!(gaps, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
    // The owner is back, in another life.
    world.service = service(8, 5, world.now);
    world.key = 5;
    world.pass(SECOND * 31);
    assert!(world.serve() > 0);
    assert_eq!(world.ends(epoch, OpStatus::Timeout), Verdict::Retry, "its key is no more");
    assert_eq!(world.run(0), 0);
}

#[test]
fn a_lost_connection_to_the_service_is_a_reason_to_check() {
    let mut world = World::warm();
    world.service = service(8, 5, world.now);
    world.key = 5;
    world.cache.handle_disconnected(world.now.boot, world.source);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.serve(), 1);
    assert_eq!(world.run(0), 0);
}

#[test]
fn denied_is_remembered_for_a_second() {
    let mut world = World::warm();
    let deny = Policy::parse("allow = []").unwrap();
    world.service.reload(world.now, deny);
    let hour = term(world.now.boot + SECOND * 3000, world.now.boot + SECOND * 3600);
    let name = name("kv/index");
    let (epoch, _) = world.service.replace(world.now, &name, &secret(9), hour).unwrap();
    world.install(9, epoch);
    let (epoch, status) = world.op();
    assert_eq!(world.ends(epoch, status), Verdict::Wait);
    assert_eq!(world.serve(), 1);
    for _ in 0..10 {
        assert_eq!(world.standing(), Standing::GaveUp(GiveUp::Denied));
        world.pass(Duration::from_millis(90));
        assert_eq!(world.serve(), 0);
    }
    world.service.reload(world.now, Policy::parse(ALLOW).unwrap());
    world.pass(Duration::from_millis(100));
    assert_eq!(world.standing(), Standing::Waiting);
    assert_eq!(world.serve(), 1);
    assert_eq!(world.run(0), 0);
}

#[test]
fn an_owner_that_starts_again_and_has_not_published_yet_is_asked_again_soon_and_calls_wait() {
    for refused in [false, true] {
        let mut world = World::warm();
        world.cache.handle_disconnected(world.now.boot, world.source);
        // It listens, and fills its region before it publishes that.
        let policy = Policy::parse(ALLOW).unwrap();
        world.service = Service::new(Life([8; 8]), policy, ServiceConfig::default());
        world.key = 2;
        let began = world.now.boot;
        let (mut waits, mut denied) = (false, 0);
        while world.now.boot.since(began) < Duration::from_millis(300) {
            if refused && !waits && world.standing() == Standing::Ready {
                let (epoch, status) = world.op();
                assert_eq!(world.ends(epoch, status), Verdict::Wait);
                waits = true;
            }
            assert!(!matches!(world.standing(), Standing::GaveUp(_)), "calls wait");
            denied += world.serve();
            world.pass(Duration::from_millis(1));
        }
        assert!(denied >= 1, "it has been asked meanwhile");
        publish(&mut world.service, world.now, "kv/index", 2);
        let began = world.now.boot;
        loop {
            if world.standing() == Standing::Ready {
                let (epoch, status) = world.op();
                if world.ends(epoch, status) == Verdict::Pass {
                    break;
                }
            }
            world.serve();
            world.pass(Duration::from_millis(1));
            let took = world.now.boot.since(began);
            assert!(took < Duration::from_millis(800), "{took:?}, refused: {refused}");
        }
    }
}

#[test]
fn a_client_shut_out_while_the_service_starts_learns_of_it_in_two_seconds() {
    let mut world = World::warm();
    world.cache.handle_disconnected(world.now.boot, world.source);
    let policy = Policy::parse("allow = []").unwrap();
    world.service = Service::new(Life([8; 8]), policy, ServiceConfig::default());
    world.key = 2;
    let (epoch, status) = world.op();
    assert_eq!(world.ends(epoch, status), Verdict::Wait);
    let (began, mut asked) = (world.now.boot, 0);
    while world.standing() == Standing::Waiting {
        asked += world.serve();
        world.pass(Duration::from_millis(1));
        assert!(world.now.boot.since(began) < SECOND * 3);
    }
    assert_eq!(world.standing(), Standing::GaveUp(GiveUp::Denied));
    assert!(asked < 30, "{asked}");
}

#[test]
fn a_refusal_under_all_keys_is_told_once_as_a_sign_that_the_service_is_worth_a_try() {
    let mut world = World::warm();
    let (epoch, status) = world.op();
    _ = world.ends(epoch, status);
    assert_eq!(world.cache.poll_refused(), None);
    world.key = 2;
    for _ in 0..3 {
        _ = world.ends(epoch, OpStatus::RemoteAuthenticationFailure);
    }
    assert_eq!(world.cache.poll_refused(), Some(world.source));
    assert_eq!(world.cache.poll_refused(), None);
    // It is asked, and cannot be reached: forged refusals bring nothing more.
    let fetch = world.fetch().unwrap();
    for _ in 0..3 {
        _ = world.ends(epoch, OpStatus::RemoteAuthenticationFailure);
    }
    world.cache.handle_lost(world.now.boot, fetch.source, fetch.number);
    _ = world.ends(epoch, OpStatus::RemoteAuthenticationFailure);
    assert_eq!(world.cache.poll_refused(), None);
}

#[test]
fn keys_never_go_back() {
    let mut world = World::warm();
    world.pass(SECOND * 3000);
    let next = world.announce(2, SECOND * 600);
    world.pass(SECOND * 550);
    let fetch = world.fetch().expect("a refresh");
    let both = world.answer(&fetch);
    world.reply(&fetch, both);
    world.install(2, next);
    assert_eq!(world.run(0), 1);
    // An answer from before the swap, to a request of now.
    let Reply::Answers(answers) = world.service.answer(world.now, &client(), &fetch.request).reply
    else {
        panic!("refused")
    };
    let Ok([Answer::Granted(mut old)]) = <[_; 1]>::try_from(answers) else { panic!("no keys") };
    old.present.epoch.number -= 1;
    world.cache.handle_disconnected(world.now.boot, world.source);
    world.pass(SECOND);
    let check = world.fetch().expect("a check");
    world.reply(&check, Reply::Answers(vec![Answer::Granted(old)]));
    assert_eq!(world.op(), (next, OpStatus::Ok));
}

#[test]
fn an_answer_to_another_request_changes_nothing() {
    let mut world = World::cold();
    assert_eq!(world.standing(), Standing::Waiting);
    let first = world.fetch().unwrap();
    let reply = || Reply::Answers(vec![Answer::Denied]);
    world.cache.handle_lost(world.now.boot, world.source, first.number);
    world.reply(&first, reply());
    assert_eq!(world.standing(), Standing::Waiting);
    world.pass(SECOND);
    let second = world.fetch().expect("again");
    world.reply(&first, reply());
    let good = world.answer(&second);
    world.reply(&second, good);
    world.reply(&second, reply());
    assert_eq!((world.run(0), world.cache.counters().lost), (0, 1));
    assert_eq!(world.cache.counters().unasked, 3, "each of them is counted");
}

#[test]
fn a_service_that_cannot_be_reached_is_tried_more_and_more_seldom() {
    let mut world = World::cold();
    let mut tries = 0;
    for _ in 0..6_000 {
        assert_eq!(world.standing(), Standing::Waiting);
        if let Some(fetch) = world.fetch() {
            tries += 1;
            world.cache.handle_lost(world.now.boot, fetch.source, fetch.number);
        }
        world.pass(Duration::from_millis(100));
    }
    assert!((60..=200).contains(&tries), "every 5 s on average: {tries}");
    world.pass(SECOND * 10);
    assert_eq!(world.serve(), 1);
    assert_eq!(world.run(0), 0);
}

#[test]
fn a_client_that_is_turned_away_comes_back_when_it_is_told_to() {
    let mut world = World::cold();
    assert_eq!(world.standing(), Standing::Waiting);
    let fetch = world.fetch().unwrap();
    world.reply(&fetch, Reply::Refused(Refusal::NotNow { retry: SECOND * 3 }));
    assert_eq!(world.standing(), Standing::Waiting);
    assert_eq!(world.cache.poll_timeout(), Some(world.now.boot + SECOND * 3));
    assert!(world.fetch().is_none());
    world.pass(SECOND * 3);
    assert_eq!(world.serve(), 1);
}

#[test]
fn a_refused_request_is_told_with_its_reason() {
    let seen = WallTime::from_unix_millis(5);
    for (refusal, why) in [
        (Refusal::Version, GiveUp::NotUnderstood),
        (Refusal::Wrong { field: "pid".into() }, GiveUp::NotUnderstood),
        (Refusal::CertificateEnded { seen }, GiveUp::CertificateEnded { seen }),
    ] {
        let mut world = World::cold();
        assert_eq!(world.standing(), Standing::Waiting);
        let fetch = world.fetch().unwrap();
        world.reply(&fetch, Reply::Refused(refusal));
        assert_eq!(world.standing(), Standing::GaveUp(why));
        world.pass(SECOND);
        assert_eq!(world.standing(), Standing::Waiting);
        assert_eq!(world.serve(), 1);
    }
    // It has what there is, says a service to whoever has nothing.
    let mut world = World::cold();
    assert_eq!(world.standing(), Standing::Waiting);
    let fetch = world.fetch().unwrap();
    let current = Answer::Current { lifetime: SECOND, refresh: SECOND };
    world.reply(&fetch, Reply::Answers(vec![current]));
    assert_eq!(world.standing(), Standing::GaveUp(GiveUp::NotUnderstood));
}

#[test]
fn another_process_has_other_keys() {
    let mut world = World::warm();
    world.cache.handle_disconnected(world.now.boot, world.source);
    world.pass(SECOND);
    let old = world.fetch().expect("a check");
    world.cache.rebind(world.now.boot, Holder { pid: Pid(8), ..holder() });
    assert_eq!(world.standing(), Standing::Waiting);
    let fetch = world.fetch().expect("all anew");
    assert_eq!((fetch.request.pid, fetch.request.regions[0].have), (Pid(8), None));
    let late = world.answer(&old);
    world.reply(&old, late);
    assert_eq!(world.standing(), Standing::Waiting, "those were for another");
    let reply = world.answer(&fetch);
    world.reply(&fetch, reply);
    assert_eq!(world.run(0), 0);
}

#[test]
fn rings_are_bounded_and_those_in_use_stay() {
    let mut cache = GrantCache::with_rings(holder(), 1, 2);
    let source = cache.source();
    let [a, b, c] = ["a", "b", "c"].map(name);
    let first = cache.region(source, a.clone(), READ).unwrap();
    assert_eq!(cache.region(source, a.clone(), READ).unwrap(), first);
    let second = cache.region(source, b, READ).unwrap();
    let full = cache.region(source, c.clone(), READ).unwrap_err();
    assert_eq!(full, CacheError::Full { rings: 2, name: c.clone() });
    cache.release(first);
    assert!(cache.region(source, c.clone(), READ).is_err(), "it has another user");
    cache.release(first);
    let third = cache.region(source, c, READ).unwrap();
    assert_ne!(third, first);
    assert!(cache.grant(Instant::ZERO, first, OpType::Read).is_none());
    cache.release(first);
    cache.release(second);
    assert!(cache.region(source, a.clone(), READ).is_ok());
    let none = cache.region(source, a.clone(), OpSet::NONE).unwrap_err();
    assert_eq!(none, CacheError::NoOps { name: a });
}

#[test]
fn expired_keys_are_used_on_and_counted_and_no_key_is_ever_shown() {
    let mut world = World::warm();
    world.pass(SECOND * 3601);
    assert_eq!(world.op().1, OpStatus::Ok);
    assert_eq!(world.cache.counters().expired, 1);
    let keyed = world.cache.grant(world.now.boot, world.ring, OpType::Read).unwrap();
    let key = *keyed.grant.key.expose();
    let shown = format!("{:?} {keyed:?}", world.cache);
    let digits: String = key.iter().map(|it| format!("{it:02x}")).collect();
    let numbers = format!("{key:?}");
    assert!(!shown.contains(&digits) && !shown.contains(numbers.trim_matches(['[', ']'])));
}
