//! Ways that carry less than the device: what a NIC asks and tells of them.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::*;
use crate::path_limits::{PathLimits, Paths};

/// One way for all, and what was told.
#[derive(Debug, Default)]
struct Way {
    packet_len_max: Option<usize>,
    told: Mutex<Vec<(&'static str, usize)>>,
}

impl PathLimits for Way {
    fn packet_len_max(&self, _: HostAddr) -> Option<usize> {
        self.packet_len_max
    }

    fn arrived(&self, _: HostAddr, len: usize) {
        self.told.lock().unwrap().push(("arrived", len));
    }

    fn lost(&self, _: HostAddr, len: usize) {
        self.told.lock().unwrap().push(("lost", len));
    }
}

fn pair(a: Option<usize>, b: Option<usize>, watching: bool) -> (Pair, [Arc<Way>; 2]) {
    let mut pair = Pair::new();
    let ways = [a, b].map(|packet_len_max| Arc::new(Way { packet_len_max, ..Way::default() }));
    for (host, way) in [&mut pair.a, &mut pair.b].into_iter().zip(&ways) {
        host.nic.set_paths(Paths::new(Arc::new(AtomicBool::new(watching)), way.clone()));
    }
    (pair, ways)
}

fn told(way: &Way) -> Vec<(&'static str, usize)> {
    core::mem::take(&mut way.told.lock().unwrap())
}

#[test]
fn a_request_says_what_the_way_back_carries() {
    let (mut pair, ways) = pair(Some(1252), None, true);
    let responses = pair.responses_of(pair.read(0, 0, 4096));
    assert!(responses.len() > 3 && responses.iter().all(|it| it.bytes.len() <= 1252));
    assert!(responses.iter().all(|it| it.transmit.packet_len_max <= 1252));
    responses.iter().for_each(|it| pair.deliver_to_a(it).unwrap());
    assert_eq!(pair.status(), OpStatus::Ok);
    pair.assert_arrived(0, 4096);
    let longest = responses.iter().map(|it| it.bytes.len()).max().unwrap();
    assert_eq!(told(&ways[0]), [("arrived", longest)]);
}

#[test]
fn a_solicitation_says_what_the_way_to_the_target_carries() {
    let (mut pair, ways) = pair(None, Some(1252), true);
    pair.issue(pair.write(0, 0, 4096));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let solicitation = pair.responses().remove(0);
    pair.deliver_to_a(&solicitation).unwrap();
    let data = pair.requests();
    assert!(data.len() > 3 && data.iter().all(|it| it.bytes.len() <= 1252));
    data.iter().for_each(|it| pair.deliver_to_b(it).unwrap());
    let acknowledgement = pair.responses().remove(0);
    pair.deliver_to_a(&acknowledgement).unwrap();
    assert_eq!(pair.status(), OpStatus::Ok);
    assert_eq!(told(&ways[0]), [("arrived", data[0].bytes.len())]);
}

#[test]
fn a_way_that_carries_next_to_nothing_is_asked_for_a_granule() {
    let (mut pair, _) = pair(Some(10), None, true);
    let responses = pair.responses_of(pair.read(0, 0, 128));
    let granule = wire::read::RESPONSE_OVERHEAD + 64;
    assert!(responses.iter().all(|it| it.bytes.len() == granule), "{responses:?}");
}

#[test]
fn an_op_that_times_out_tells_the_longest_frame_that_may_have_been_lost() {
    for watching in [false, true] {
        let (mut pair, ways) = pair(None, None, watching);
        let timeout = NicConfigBuilder::default().timing.timeout;
        pair.issue(pair.read(0, 0, 4096));
        let request = pair.requests().remove(0);
        pair.deliver_to_b(&request).unwrap();
        let lost = pair.responses();
        pair.advance(timeout);
        assert_eq!(pair.status(), OpStatus::Timeout);
        assert_eq!(told(&ways[0]), [("lost", lost[0].bytes.len())]);
        // Of a write whose solicitation did not come, short frames alone.
        pair.issue(pair.write(1, 0, 4096));
        pair.requests();
        pair.advance(timeout);
        assert_eq!(pair.status(), OpStatus::Timeout);
        assert_eq!(told(&ways[0]), [("lost", 0)]);
        // Of one that was solicited, its data.
        pair.issue(pair.write(2, 0, 4096));
        let request = pair.requests().remove(0);
        pair.deliver_to_b(&request).unwrap();
        let solicitation = pair.responses().remove(0);
        pair.deliver_to_a(&solicitation).unwrap();
        let lost = pair.requests();
        pair.advance(timeout);
        assert_eq!(pair.status(), OpStatus::Timeout);
        assert_eq!(told(&ways[0]), [("lost", lost[0].bytes.len())]);
        // An arrival is told while somebody wants to know.
        pair.issue(pair.read(3, 0, 64));
        pair.exchange();
        assert_eq!(pair.status(), OpStatus::Ok);
        let arrived = [("arrived", wire::read::RESPONSE_OVERHEAD + 64)];
        assert_eq!(told(&ways[0]), if watching { &arrived[..] } else { &[] });
    }
}

/// As over IPv6 at an MTU of 1500, where 4096 bytes are 1024 and then three times more.
#[test]
fn the_longest_frame_counts_where_the_first_is_shorter() {
    let (mut pair, ways) = pair(Some(1452), Some(1452), true);
    pair.issue(pair.read(0, 0, 4096));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let lost = pair.responses();
    let longest = |flights: &[Flight]| flights.iter().map(|it| it.bytes.len()).max().unwrap();
    assert!(lost[0].bytes.len() < longest(&lost), "{lost:?}");
    pair.advance(NicConfigBuilder::default().timing.timeout);
    assert_eq!(told(&ways[0]), [("lost", longest(&lost))]);
    assert_eq!(pair.status(), OpStatus::Timeout);
    pair.issue(pair.write(1, 0, 4096));
    let request = pair.requests().remove(0);
    pair.deliver_to_b(&request).unwrap();
    let solicitation = pair.responses().remove(0);
    pair.deliver_to_a(&solicitation).unwrap();
    let data = pair.requests();
    assert!(data[0].bytes.len() < longest(&data), "{data:?}");
    data.iter().for_each(|it| pair.deliver_to_b(it).unwrap());
    pair.responses().iter().for_each(|it| pair.deliver_to_a(it).unwrap());
    assert_eq!(told(&ways[0]), [("arrived", longest(&data))]);
}

/// Compares the lengths told of ops; the peer cuts its answers to the frames of its own device.
#[test]
fn an_op_with_a_peer_of_a_smaller_mtu_tells_the_same_when_it_is_ok_as_when_it_is_lost() {
    let (mut pair, ways) = pair(None, None, true);
    let other = NicConfigBuilder::default().timing.timeout;
    pair.path_len_max = 600;
    pair.issue(pair.read(0, 0, 4096));
    pair.requests();
    pair.advance(other);
    assert_eq!(pair.status(), OpStatus::Timeout);
    let lost = told(&ways[0]);
    let responses = pair.responses_of(pair.read(1, 0, 4096));
    responses.iter().for_each(|it| pair.deliver_to_a(it).unwrap());
    assert_eq!(pair.status(), OpStatus::Ok);
    let [("lost", asked)] = lost[..] else { panic!("{lost:?}") };
    assert!(responses.iter().all(|it| it.bytes.len() < asked), "{lost:?}");
    assert_eq!(told(&ways[0]), [("arrived", asked)]);
}

#[test]
fn a_way_is_not_asked_for_while_nobody_watches() {
    let watching = Arc::new(AtomicBool::new(false));
    let mut pair = Pair::new();
    let way = Arc::new(Way { packet_len_max: Some(1252), ..Way::default() });
    pair.a.nic.set_paths(Paths::new(watching.clone(), way));
    let longest = |pair: &mut Pair, slot| {
        let responses = pair.responses_of(pair.read(slot, 0, 4096));
        responses.iter().map(|it| it.bytes.len()).max().unwrap()
    };
    assert!(longest(&mut pair, 0) > 1252);
    watching.store(true, Relaxed);
    assert!(longest(&mut pair, 1) <= 1252);
}
