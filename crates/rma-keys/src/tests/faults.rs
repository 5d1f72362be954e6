//! A service, or the owner of a region, that is gone for a while, as its clients see it.

use core::time::Duration;

use rma_core::{
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};

use super::{
    addresses,
    client::{REFUSED, SECOND, World, service},
    name, secret, term,
};
use crate::{
    catalog::Region,
    epoch::Life,
    policy::Policy,
    ring::{GiveUp, Standing, Verdict},
    service::{Service, ServiceConfig},
};

/// When the service is killed, and what the client holds then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Before,
    /// The next key is announced, and the client holds both.
    Announced,
    /// The same, and the responder goes by the next key already.
    Swapped,
    /// The responder goes by a key that the client has not.
    After,
}

impl World {
    /// Nobody answers, for so long. Returns how often the client tried.
    fn absence(&mut self, time: Duration) -> u32 {
        let end = self.now.boot + time;
        let mut tries = 0;
        while self.now.boot < end {
            if let Some(fetch) = self.fetch() {
                tries += 1;
                self.cache.handle_lost(self.now.boot, fetch.source, fetch.number);
            }
            self.pass(Duration::from_millis(50));
        }
        tries
    }

    /// Ops until one is OK, while the service answers. Returns how many were refused, and how long
    /// it took.
    fn recovers(&mut self) -> (u32, Duration) {
        let began = self.now.boot;
        let mut refused = 0;
        for _ in 0..2_000 {
            if self.standing() == Standing::Ready {
                let (epoch, status) = self.op();
                match self.ends(epoch, status) {
                    Verdict::Pass => return (refused, self.now.boot.since(began)),
                    Verdict::Retry | Verdict::Wait => refused += 1,
                    Verdict::GiveUp(why) => panic!("{why}"),
                }
            }
            self.serve();
            self.pass(Duration::from_millis(10));
        }
        panic!("it never recovers");
    }
}

/// A client, and a service that has been killed.
fn killed(when: Killed) -> World {
    let mut world = World::warm();
    if when != Killed::Before {
        world.pass(SECOND * 3000);
        let next = world.announce(2, SECOND * 600);
        if when != Killed::After {
            world.pass(SECOND * 550);
            assert!(world.serve() > 0, "it has come by");
        }
        if matches!(when, Killed::Swapped | Killed::After) {
            world.install(2, next);
        }
    }
    world.cache.handle_disconnected(world.now.boot, world.source);
    world
}

const ALL: [Killed; 4] = [Killed::Before, Killed::Announced, Killed::Swapped, Killed::After];

#[test]
fn a_service_that_is_killed_is_missed_by_those_alone_whose_key_does_not_hold() {
    for when in ALL {
        let mut world = killed(when);
        // Ops under keys that hold go on, for as long as it is gone.
        let mut tries = 0;
        for second in 0..600 {
            if when != Killed::After || second == 0 {
                let (epoch, status) = world.op();
                let verdict = world.ends(epoch, status);
                match (when, second) {
                    (Killed::After, _) => assert_eq!(verdict, Verdict::Wait),
                    // The key that it was given before.
                    (Killed::Swapped, 0) => assert_eq!(verdict, Verdict::Retry),
                    _ => assert_eq!((status, verdict), (OpStatus::Ok, Verdict::Pass), "{when:?}"),
                }
            }
            tries += world.absence(SECOND);
        }
        // No more than it takes to learn that the service is back; none where an OK has said all
        // that there is to know.
        let most = if when == Killed::Before { 0 } else { 150 };
        assert!(tries <= most, "{when:?}: {tries} tries in ten minutes");
    }
}

#[test]
fn a_service_that_is_back_with_the_same_keys_or_with_new_ones_is_gone_by_at_once() {
    for when in ALL {
        for is_same in [true, false] {
            let what = format!("{when:?}, the same keys: {is_same}");
            let mut world = killed(when);
            let (epoch, status) = world.op();
            _ = world.ends(epoch, status);
            world.absence(SECOND * 120);
            let before = world.fetches();
            // Another life: its numbers begin anew.
            if !is_same {
                world.key = 5;
            }
            world.service = service(8, world.key, world.now);
            let (refused, took) = world.recovers();
            assert!(refused <= 2, "{what}: {refused} refused");
            // The longest pause between two tries.
            assert!(took <= SECOND * 11, "{what}: {took:?}");
            let fetches = world.fetches() - before;
            assert!(fetches <= 2, "{what}: {fetches} fetches");
            // A key of the earlier life is as good as ever, if the responder has it still.
            let (epoch, status) = world.op();
            let is_new = epoch.life == Life([8; 8]);
            assert!(status == OpStatus::Ok && (is_new || is_same), "{what}: {epoch}");
        }
    }
}

/// An owner that has started again: another life, another key, another place.
fn another_owner(world: &mut World) {
    let policy = "[[allow]]\nregion = \"kv/*\"\nidentity = \"spiffe://example.org/kv/client/*\"\n\
                  ops = [\"read\"]\n";
    let policy = Policy::parse(policy).unwrap();
    let mut service = Service::new(Life([9; 8]), policy, ServiceConfig::default());
    let hour = term(world.now.boot + SECOND * 3000, world.now.boot + SECOND * 3600);
    let region =
        Region { responders: addresses(&["192.0.2.3"]), id: RegionId::from_bits(77), len: 1 << 12 };
    world.key = 6;
    service.publish(world.now, name("kv/index"), region, &secret(6), hour).unwrap();
    world.service = service;
}

#[test]
fn an_owner_that_has_started_again_is_found_whether_it_refuses_old_keys_or_is_silent() {
    for old_keys in [REFUSED, OpStatus::Timeout] {
        let mut world = World::warm();
        another_owner(&mut world);
        let mut ops = 0;
        let (grant, status) = loop {
            let now = world.now.boot;
            let keyed = world.cache.grant(now, world.ring, OpType::Read).expect("it has a key");
            let is_old = keyed.epoch.life == Life([7; 8]);
            let status =
                if is_old { old_keys } else { world.outcome(&keyed.grant, &keyed.grant.key) };
            ops += 1;
            assert!(ops < 20, "it is never found");
            match world.ends(keyed.epoch, status) {
                Verdict::Pass if !is_old => break (keyed.grant, status),
                Verdict::Pass | Verdict::Retry | Verdict::Wait => {}
                Verdict::GiveUp(why) => panic!("{why}"),
            }
            // As long as a timeout.
            world.pass(Duration::from_millis(100));
            world.serve();
        };
        assert_eq!((status, grant.region), (OpStatus::Ok, RegionId::from_bits(77)));
        assert_eq!((grant.responder, grant.region_len), ("192.0.2.3".parse().unwrap(), 1 << 12));
        // Silence is believed after three ops, and a refusal after one.
        let most = if old_keys == REFUSED { 2 } else { 5 };
        assert!(ops <= most, "{old_keys}: {ops} ops");
    }
}

#[test]
fn a_permission_that_is_withdrawn_while_the_next_key_is_announced_ends_with_neither_of_them() {
    let mut world = World::warm();
    world.pass(SECOND * 3000);
    world.announce(2, SECOND * 600);
    world.pass(SECOND * 550);
    assert!(world.serve() > 0);
    assert_eq!(world.cache.revision(world.ring), 2, "it holds both keys");
    // Shut out, for a key that was never announced.
    world.service.reload(world.now, Policy::parse("allow = []").unwrap());
    let hour = term(world.now.boot + SECOND * 3000, world.now.boot + SECOND * 3600);
    let (fresh, _) = world.service.replace(world.now, &name("kv/index"), &secret(3), hour).unwrap();
    world.install(3, fresh);
    let mut tried = Vec::new();
    let why = loop {
        let (epoch, status) = world.op();
        assert_eq!(status, REFUSED);
        tried.push(epoch.number);
        match world.ends(epoch, status) {
            Verdict::Retry => {}
            Verdict::Wait => {
                world.serve();
                match world.standing() {
                    Standing::GaveUp(why) => break why,
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((why, &tried[..]), (GiveUp::Denied, &[1, 2][..]));
    assert!(world.cache.grant(Instant::ZERO, world.ring, OpType::Read).is_none(), "none is kept");
}
