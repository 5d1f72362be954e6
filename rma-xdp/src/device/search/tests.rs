//! The search by itself, on ways that carry so much and no more.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(100);

/// A way that drops what is longer than it carries, and an initiator that uses it with ops of 4
/// KiB, one after the other.
struct Scene {
    search: Search,
    peer: HostAddr,
    full: u32,
    carries: u32,
    now: Duration,
    lost: usize,
    findings: Vec<Finding>,
}

impl Scene {
    fn new(peer: &str, full: u32, carries: u32) -> Self {
        let peer = peer.parse().unwrap();
        let (search, now) = (Search::default(), SECOND);
        Self { search, peer, full, carries, now, lost: 0, findings: Vec::new() }
    }

    /// An op whose longest packet has `len` bytes, or as many as there may be.
    fn op(&mut self, len: u32) -> bool {
        let len = len.min(self.search.limit(self.peer).unwrap_or(self.full)).saturating_sub(16);
        let passes = len <= self.carries;
        let found = if passes {
            self.now += Duration::from_millis(10);
            self.search.heard(self.peer, len, self.now)
        } else {
            self.now += TIMEOUT;
            self.lost += 1;
            self.search.lost(self.peer, Lost { len, heard: 0, full: self.full }, self.now)
        };
        self.findings.extend(found);
        self.search.handle_timeout(self.now);
        passes
    }

    /// Short ops that are issued together, and share packets as long as there may be.
    fn burst(&mut self, ops: u32, len: u32) -> bool {
        let full = self.search.limit(self.peer).unwrap_or(self.full);
        let passes = full.min(ops * len) <= self.carries;
        self.now += if passes { Duration::from_millis(10) } else { TIMEOUT };
        for _ in 0..ops {
            let lost = Lost { len, heard: 0, full: self.full };
            self.findings.extend(if passes {
                self.search.heard(self.peer, len, self.now)
            } else {
                self.search.lost(self.peer, lost, self.now)
            });
        }
        self.search.handle_timeout(self.now);
        passes
    }

    fn ops(&mut self, for_long: Duration) {
        let end = self.now + for_long;
        while self.now < end {
            self.op(4172);
        }
    }
}

#[test]
fn a_way_that_drops_long_packets_without_a_word_is_found_after_two_losses() {
    for (peer, full, carries, found) in [
        ("192.0.2.1", 1500, 1300, 1280),
        ("192.0.2.1", 1500, 1000, 576),
        ("192.0.2.1", 9000, 1500, 1500),
        ("192.0.2.1", 9000, 1300, 1280),
        ("192.0.2.1", 65_536, 1500, 1500),
        ("2001:db8::1", 1500, 1300, 1280),
        ("2001:db8::1", 3400, 1500, 1500),
    ] {
        let mut scene = Scene::new(peer, full, carries);
        let mut failed = 0;
        while !scene.op(4172) {
            failed += 1;
            assert!(failed <= 6, "{peer} {full} {carries}");
        }
        assert_eq!(scene.findings, [], "the other host may have stood still");
        scene.ops(5 * SECOND);
        assert_eq!(scene.findings, [Finding::Narrow { mtu: found }], "{peer} {full} {carries}");
        assert_eq!(scene.search.limit(scene.peer), Some(found));
        assert!(scene.lost <= failed + 1, "and then nothing is lost any more");
    }
}

#[test]
fn a_way_that_widens_is_used_again_after_a_while_and_one_that_does_not_costs_one_op() {
    let mut scene = Scene::new("192.0.2.1", 1500, 1300);
    scene.ops(5 * SECOND);
    let lost = scene.lost;
    scene.ops(NARROW_FOR + SECOND);
    assert_eq!(scene.lost, lost + 1);
    assert_eq!(scene.search.limit(scene.peer), Some(1280));
    scene.carries = 1500;
    scene.ops(NARROW_FOR + SECOND);
    assert_eq!(scene.lost, lost + 1);
    assert_eq!(scene.findings.last(), Some(&Finding::Wide));
    assert!(scene.search.is_empty());
}

#[test]
fn a_host_that_stands_still_is_not_told_as_a_narrow_way() {
    let mut scene = Scene::new("192.0.2.1", 1500, 1500);
    for pause in 1..40 {
        scene.carries = 0;
        for _ in 0..pause {
            scene.op(4172);
        }
        scene.carries = 1500;
        scene.ops(3 * SECOND);
        assert_eq!(scene.search.limit(scene.peer), None, "after a pause of {pause} ops");
        assert!(!scene.findings.iter().any(|it| matches!(it, Finding::Narrow { .. })));
    }
}

#[test]
fn losses_among_packets_that_pass_say_nothing() {
    let mut scene = Scene::new("192.0.2.1", 1500, 1500);
    for round in 0..1000 {
        scene.carries = if round % 2 == 0 { 0 } else { 1500 };
        scene.op(4172);
        assert_eq!(scene.search.limit(scene.peer), None);
    }
}

#[test]
fn short_ops_that_live_do_not_hide_long_ones_that_die() {
    let mut scene = Scene::new("192.0.2.1", 1500, 1300);
    for _ in 0..4 {
        scene.op(200);
        scene.op(1100);
        scene.op(4172);
    }
    assert_eq!(scene.search.limit(scene.peer), Some(1280));
}

#[test]
fn a_dead_host_is_left_alone_and_is_forgotten() {
    let mut scene = Scene::new("192.0.2.1", 1500, 0);
    scene.ops(5 * SECOND);
    assert_eq!(scene.search.limit(scene.peer), None);
    assert_eq!(scene.findings, []);
    scene.now += SUSPECTED_FOR;
    scene.search.handle_timeout(scene.now);
    assert!(scene.search.is_empty());
}

#[test]
fn more_hosts_than_the_table_has_are_not_searched() {
    let mut search = Search::default();
    for number in 0..2 * DESTINATIONS_MAX as u32 {
        let peer = HostAddr::from(IpAddr::from(number.to_be_bytes()));
        search.lost(peer, Lost { len: 1500, heard: 0, full: 1500 }, SECOND);
        search.lost(peer, Lost { len: 1500, heard: 0, full: 1500 }, SECOND);
    }
    assert_eq!(search.ways.len(), DESTINATIONS_MAX);
}

#[test]
fn short_ops_that_share_packets_find_a_narrow_way_by_themselves() {
    for (peer, full, carries, found) in [
        ("192.0.2.1", 1500, 1300, 1280),
        ("192.0.2.1", 9000, 1500, 1500),
        ("2001:db8::1", 1500, 1300, 1280),
    ] {
        let mut scene = Scene::new(peer, full, carries);
        let (mut lost, end) = (0, scene.now + 5 * SECOND);
        while scene.now < end {
            lost += u32::from(!scene.burst(64, 150));
        }
        assert_eq!(scene.findings, [Finding::Narrow { mtu: found }], "{peer} {full} {carries}");
        assert_eq!((lost, scene.search.limit(scene.peer)), (3, Some(found)));
    }
    // One at a time, they are lost for another reason.
    let mut scene = Scene::new("192.0.2.1", 1500, 100);
    assert!((0..100).all(|_| !scene.burst(1, 150)));
    assert_eq!((scene.search.limit(scene.peer), scene.findings.len()), (None, 0));
}

#[test]
fn losses_that_come_together_are_one() {
    let mut scene = Scene::new("192.0.2.1", 1500, 0);
    for burst in 1..LOSSES {
        scene.burst(32, 1484);
        assert_eq!(scene.search.limit(scene.peer), None, "after {burst} bursts");
    }
    scene.burst(32, 1484);
    assert_eq!(scene.search.limit(scene.peer), Some(1280), "one plateau at a time");
    scene.burst(32, 1264);
    assert_eq!(scene.search.limit(scene.peer), Some(1280));
}

/// The other host stands still a second time, just when full length is asked about.
#[test]
fn a_loss_while_full_length_is_asked_about_says_nothing_unless_shorter_ones_live() {
    let mut scene = Scene::new("192.0.2.1", 1500, 0);
    scene.op(4172);
    scene.op(4172);
    scene.carries = 1500;
    while scene.search.limit(scene.peer).is_some() {
        assert!(scene.op(4172));
    }
    scene.carries = 0;
    for _ in 0..7 {
        scene.op(4172);
        assert_eq!(scene.search.known(scene.peer), None);
    }
    scene.carries = 1500;
    scene.ops(3 * SECOND);
    assert_eq!((scene.search.limit(scene.peer), scene.findings.len()), (None, 0));
}

#[test]
fn a_way_stays_known_as_narrow_while_full_length_is_asked_about_again() {
    let mut scene = Scene::new("192.0.2.1", 1500, 1300);
    scene.ops(5 * SECOND);
    let end = scene.now + NARROW_FOR + 5 * SECOND;
    while scene.now < end {
        scene.op(4172);
        assert_eq!(scene.search.known(scene.peer), Some(1280));
    }
    assert_eq!(scene.findings, [Finding::Narrow { mtu: 1280 }], "it is told once");
}

#[test]
fn a_host_that_stands_still_twice_in_ten_minutes_is_no_narrow_way() {
    let mut scene = Scene::new("192.0.2.1", 1500, 1500);
    for _ in 0..20 {
        scene.carries = 0;
        for _ in 0..4 {
            scene.burst(16, 100);
        }
        scene.carries = 1500;
        let end = scene.now + 60 * SECOND;
        while scene.now < end {
            // What is heard of are single ops, none of which is long.
            scene.burst(8, 100);
        }
        assert_eq!(scene.findings, []);
        assert!(scene.search.is_empty());
    }
}

#[test]
fn a_short_packet_that_is_lost_is_not_remembered() {
    let mut scene = Scene::new("192.0.2.1", 1500, 0);
    scene.op(200);
    assert!(scene.search.has(scene.peer), "more of its burst may come");
    scene.now += BURST;
    assert_eq!(scene.search.handle_timeout(scene.now), [scene.peer]);
    assert!(scene.search.is_empty());
}
