//! Hosts of several engines behind a forwarder that picks the receive queue by a hash of its own:
//! answers land right once ports are learnt, and nothing is lost until then.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use rma_lab::evidence;
use rma_tests::{
    hostile_wire::patch_panel::{Hash, Patched},
    hosts::Hosts,
    messages, scenario,
};
use rma_xdp::{OpStatus, OpType, Permissions, Portal};

/// Ops of each engine: 1,000 until it has learnt, and as many that are counted.
const OPS: usize = 1000;

/// Frames that came to another engine of the client than the one that they are for.
fn handed_over(hosts: &Hosts) -> u64 {
    hosts.client.engines().iter().map(|it| it.handed_over).sum()
}

/// Reads so often through a portal at each of the client's engines. Returns how many answers that
/// were.
fn read(hosts: &Hosts, portals: &mut [Portal], ops: usize) -> u64 {
    let region = hosts.server().register(4096, Permissions::READ).unwrap();
    let sink = hosts.client.register(64, Permissions::NONE).unwrap();
    let grant = messages::grant(hosts, &region, OpType::Read);
    for _ in 0..ops {
        for portal in &mut *portals {
            portal.read(&grant, 0, &sink, 0, 64).unwrap();
        }
        for portal in &mut *portals {
            assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
        }
    }
    (ops * portals.len()) as u64
}

/// A portal at each engine of the client: one goes to the engine with most free slots.
fn portals(hosts: &Hosts) -> Vec<Portal> {
    let engines = hosts.client.engines();
    let portals: Vec<_> = engines.iter().map(|_| hosts.client.portal(8).unwrap()).collect();
    for engine in engines {
        assert!(portals.iter().any(|it| engine.slots.contains(&it.slots().start)));
    }
    portals
}

fn assert_lands_right(hosts: &Hosts, portals: &mut [Portal], when: &str) {
    let before = handed_over(hosts);
    let learning = read(hosts, portals, OPS);
    let learnt = handed_over(hosts);
    let answers = read(hosts, portals, OPS);
    let wrong = handed_over(hosts) - learnt;
    evidence::show(format_args!(
        "{when}: {} of {learning} answers landed wrong while ports were learnt, {wrong} of \
         {answers} afterwards",
        learnt - before
    ));
    // Of a random hash three of four would. An op that runs off on a busy machine forgets a port.
    assert!(wrong <= answers / 100, "{wrong} of {answers} {when}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn answers_land_right_behind_a_hash_that_nobody_knows_and_again_once_it_has_changed() {
    let Patched { hosts, panel, .. } = &Patched::new(4, Hash::Random(1));
    let mut portals = portals(hosts);
    assert_lands_right(hosts, &mut portals, "behind a random hash");
    panel.set_hash(Hash::Random(2));
    assert_lands_right(hosts, &mut portals, "after the hash has changed");
}

/// All scenarios but the one that sends from the lab of two namespaces.
fn everything(hosts: &Hosts) {
    scenario::reads_of_every_kind_of_size_arrive(hosts);
    scenario::both_classes_and_many_ops_at_once(hosts);
    scenario::many_portals_and_many_regions(hosts);
    scenario::a_refusal_by_the_responder_has_its_own_status(hosts);
    scenario::writes_of_every_kind_of_size_arrive_and_change_nothing_else(hosts);
    scenario::writes_and_reads_of_both_classes_at_once(hosts);
    scenario::a_rekey_fails_the_old_keys_of_its_region_alone(hosts);
    scenario::several_threads_each_with_a_portal(hosts);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_behind_a_random_hash_and_behind_one_without_ports() {
    for hash in [Hash::Random(3), Hash::WithoutPorts] {
        let patched = Patched::new(4, hash);
        everything(&patched.hosts);
        assert!(handed_over(&patched.hosts) > 0, "{hash:?}");
        drop(patched);
        for scenario in messages::SCENARIOS {
            scenario(&Patched::new(3, hash).hosts);
        }
    }
}

/// Runs `scenario` while the hash changes ten times a second.
#[expect(clippy::disallowed_methods, reason = "the hash is to change ten times a second")]
fn while_it_changes(patched: &Patched, scenario: impl FnOnce(&Hosts)) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in (5..).take_while(|_| !is_over.load(SeqCst)) {
                patched.panel.set_hash(Hash::Random(number));
                thread::sleep(Duration::from_millis(100));
            }
        });
        let _end = EndOnDrop(&is_over);
        scenario(&patched.hosts);
    });
}

/// Ends the thread beside a scenario, also of one that panics.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn everything_holds_while_the_hash_changes_ten_times_a_second() {
    let patched = Patched::new(4, Hash::Random(4));
    while_it_changes(&patched, everything);
    assert!(handed_over(&patched.hosts) > 0);
    drop(patched);
    for scenario in messages::SCENARIOS {
        while_it_changes(&Patched::new(4, Hash::Random(4)), scenario);
    }
}
