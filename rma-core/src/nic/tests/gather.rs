//! The requests that wait for others, and those that do not.

use super::*;

const GATHERING_NANOS: u64 = 9_000;

/// Five reads of the throughput class under way, one answered just now, and one more that waits to
/// be sent.
fn gathering(settings: NicConfigBuilder) -> Pair {
    let mut pair = Pair::with(settings);
    for slot in 0..6 {
        pair.issue_bulk(slot);
        assert!(!pair.a.nic.gathers(pair.now), "nothing was answered yet");
    }
    let requests = pair.requests();
    pair.deliver_to_b(&requests[0]).unwrap();
    for response in pair.responses() {
        pair.deliver_to_a(&response).unwrap();
    }
    assert_eq!(pair.status(), OpStatus::Ok);
    pair.issue_bulk(7);
    assert!(pair.a.nic.gathers(pair.now));
    pair
}

impl Pair {
    fn issue_bulk(&mut self, slot: u16) {
        let read = self.read(slot, 0, 64);
        self.issue(Command { class: ClassOfService::Throughput, ..read });
    }
}

#[test]
fn a_request_waits_for_a_while_and_not_for_answers_that_do_not_come() {
    let mut pair = gathering(NicConfigBuilder::default());
    pair.advance(Duration::from_nanos(GATHERING_NANOS));
    assert!(pair.a.nic.gathers(pair.now));
    assert!(pair.a.nic.wants_transmit(), "nobody may sleep over it");
    pair.advance(Duration::from_micros(1));
    assert!(!pair.a.nic.gathers(pair.now));
    assert_eq!(pair.requests().len(), 1);
    // None of the others is answered any longer.
    pair.issue_bulk(0);
    assert!(!pair.a.nic.gathers(pair.now));
}

/// A peer that is gone gives no rhythm to wait for.
#[test]
fn the_end_of_an_op_that_timed_out_is_no_answer_to_wait_for_others_after() {
    let mut pair = Pair::new();
    let (timeout, later) =
        (pair.a.nic.config().settings().timing.timeout, Duration::from_micros(1));
    pair.issue_bulk(0);
    assert_eq!(pair.requests().len(), 1);
    pair.advance(timeout - later);
    for slot in 1..6 {
        pair.issue_bulk(slot);
    }
    assert_eq!(pair.requests().len(), 5);
    pair.advance(later);
    assert_eq!(pair.status(), OpStatus::Timeout);
    pair.issue_bulk(7);
    assert!(!pair.a.nic.gathers(pair.now), "five are under way, and none was answered");
}

#[test]
fn no_op_is_shed_because_its_request_waited() {
    let timing = Timing { dispatch_timeout: Duration::from_micros(10), ..Timing::default() };
    let mut pair = gathering(NicConfigBuilder { timing, ..NicConfigBuilder::default() });
    pair.advance(Duration::from_nanos(2_499));
    assert!(pair.a.nic.gathers(pair.now));
    pair.advance(Duration::from_nanos(1));
    assert!(!pair.a.nic.gathers(pair.now));
}

#[test]
fn on_a_network_with_a_shorter_round_trip_requests_wait_for_less() {
    let rtt = Duration::from_micros(3);
    let mut pair = gathering(NicConfigBuilder { rtt, ..NicConfigBuilder::default() });
    pair.advance(rtt);
    assert!(!pair.a.nic.gathers(pair.now));
}

#[test]
fn ops_that_others_have_asked_for_do_not_wait() {
    let mut pair = gathering(NicConfigBuilder::default());
    let (a, b) = (&pair.a, &pair.b);
    let binding =
        KeyBinding { initiator: b.addr, responder: a.addr, pid: PID, op_type: OpType::Read };
    let key = crate::crypto::RegionKeySchedule::new(&a.key).derive(&binding);
    let transfer = Transfer { local_region: b.region, ..pair.transfer(0, 64) };
    let (responder, remote_region, op) = (a.addr, a.region, CommandOp::Read(transfer));
    let read = Command { responder, remote_region, key, op, ..pair.read(0, 0, 64) };
    pair.b.nic.handle_command(pair.now, read).unwrap();
    for flight in pair.responses() {
        pair.deliver_to_a(&flight).unwrap();
    }
    assert!(!pair.a.nic.gathers(pair.now));
    assert_eq!(pair.requests().len(), 2, "the response, and the request along with it");
}

#[test]
fn solicited_data_does_not_wait() {
    let mut pair = gathering(NicConfigBuilder::default());
    let write = pair.write(6, 0, 64);
    pair.issue(Command { class: ClassOfService::Throughput, ..write });
    // They are sent for another reason, and the write's is answered.
    let requests = pair.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        pair.deliver_to_b(request).unwrap();
    }
    for answer in pair.responses() {
        pair.deliver_to_a(&answer).unwrap();
    }
    // Of requests there is one more to wait.
    assert_eq!(pair.completion().slot, CommandSlotId(7));
    pair.issue_bulk(7);
    assert!(!pair.a.nic.gathers(pair.now));
    assert_eq!(pair.requests().len(), 2, "the data, and the request along with it");
}

#[test]
fn an_op_of_the_latency_class_does_not_wait() {
    let mut pair = gathering(NicConfigBuilder::default());
    pair.issue(pair.read(6, 0, 64));
    assert!(!pair.a.nic.gathers(pair.now));
}

#[test]
fn ops_of_the_latency_class_that_are_under_way_are_no_reason_to_wait() {
    let mut pair = Pair::new();
    for slot in 0..6 {
        pair.issue(pair.read(slot, 0, 64));
    }
    pair.issue_bulk(6);
    // The classes take turns: the second request is the one of the throughput class.
    let requests = pair.requests();
    pair.deliver_to_b(&requests[1]).unwrap();
    for response in pair.responses() {
        pair.deliver_to_a(&response).unwrap();
    }
    assert_eq!(pair.completion().slot, CommandSlotId(6));
    pair.issue_bulk(7);
    assert!(!pair.a.nic.gathers(pair.now));
}
