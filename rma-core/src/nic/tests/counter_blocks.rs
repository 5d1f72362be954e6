//! A NIC whose counter values run out, and one that gets more in time.

use super::*;
use crate::crypto::CounterBlock;

fn host_with_values(addr: &str, counter_start: u64, counter_end: u64) -> Host {
    let addr: HostAddr = addr.parse().unwrap();
    let place = NicPlace { counter_start, counter_end, ..NicPlace::at(addr) };
    Host::at(addr, place, NicConfigBuilder::default())
}

fn pair_with_values(first: u64, end: u64) -> Pair {
    let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|addr| host_with_values(addr, first, end));
    Pair::of(a, b)
}

/// The counter of a frame, in clear.
fn counter_of(flight: &Flight) -> u64 {
    u64::from_be_bytes(flight.bytes[20..28].try_into().unwrap())
}

#[test]
fn without_counter_values_no_request_leaves_and_every_op_still_completes() {
    let mut pair = pair_with_values(5, 7);
    for slot in 0..4 {
        pair.issue(pair.read(slot, 0, 64));
    }
    assert!(pair.a.nic.wants_transmit());
    let counters: Vec<_> = pair.requests().iter().map(counter_of).collect();
    assert_eq!(counters, [5, 6]);
    assert_eq!(pair.a.nic.counter_values_left(), 0);
    assert!(pair.a.nic.counters().seals_refused() > 0, "it is not silent");
    assert!(!pair.a.nic.wants_transmit(), "an engine must not spin over what it cannot seal");
    assert_eq!(pair.a.nic.window_debited(), 2 * 64);

    pair.advance(Duration::from_secs(1));
    let mut statuses = [pair.completion(), pair.completion(), pair.completion(), pair.completion()];
    statuses.sort_by_key(|completion| completion.slot);
    let expected = [OpStatus::Timeout, OpStatus::Timeout]
        .into_iter()
        .chain([OpStatus::DispatchTimeout, OpStatus::DispatchTimeout]);
    assert!(statuses.iter().map(|completion| completion.status).eq(expected), "{statuses:?}");
    assert_eq!(pair.a.nic.window_debited(), 0);
}

#[test]
fn a_nic_goes_on_with_the_next_block_of_counter_values() {
    let mut pair = pair_with_values(100, 104);
    let mut sent = Vec::new();
    let mut read = |pair: &mut Pair| {
        pair.issue(pair.read(0, 0, 64));
        sent.extend(pair.requests().iter().map(counter_of));
        pair.advance(Duration::from_secs(1));
        let _ = pair.completion();
    };
    assert!(!pair.a.nic.wants_counter_block());
    read(&mut pair);
    read(&mut pair);
    assert!(pair.a.nic.wants_counter_block(), "half of the block is used up");
    let repeats = pair.a.nic.add_counter_block(CounterBlock::new(102, 200));
    assert_eq!(repeats, Err(CounterBlock::new(102, 200)));
    pair.a.nic.add_counter_block(CounterBlock::new(1000, 2000)).unwrap();
    assert_eq!(pair.a.nic.counter_values_left(), 1002);
    for _ in 0..4 {
        read(&mut pair);
    }
    assert_eq!(sent, [100, 101, 102, 103, 1000, 1001]);
    assert_eq!(pair.a.nic.counters().seals_refused(), 0);
}

#[test]
fn a_responder_without_counter_values_neither_answers_nor_refuses_and_serves_again_later() {
    let mut pair = Pair::new();
    pair.b = host_with_values("192.0.2.2", 0, 0);
    let bad = Command { key: DerivedRegionKey::from_bytes([9; 16]), ..pair.read(1, 0, 64) };
    pair.issue(pair.read(0, 0, 64));
    pair.issue(bad);
    for request in pair.requests() {
        let _ = pair.deliver_to_b(&request);
    }
    assert!(pair.responses().is_empty());
    assert_eq!(pair.b.nic.counters().drops(DropReason::RequestUnauthenticated), 1);
    assert_eq!(pair.b.nic.counters().seals_refused(), 1);

    pair.b.nic.add_counter_block(CounterBlock::new(7, 9)).unwrap();
    let answers = pair.responses();
    assert_eq!(answers.iter().map(counter_of).collect::<Vec<_>>(), [7, 8]);
    answers.iter().for_each(|answer| pair.deliver_to_a(answer).unwrap());
    let mut ends = [pair.completion(), pair.completion()];
    ends.sort_by_key(|end| end.slot);
    let statuses = ends.map(|end| end.status);
    assert_eq!(statuses, [OpStatus::Ok, OpStatus::RemoteAuthenticationFailure]);
}

/// However many values there are, and wherever they end, in the middle of whatever op: nothing
/// panics, no value is used twice, and every command completes.
#[test]
fn counter_values_may_end_anywhere() {
    for (at_a, at_b) in (0..16).flat_map(|a| (0..16).map(move |b| (a, b))) {
        let mut pair = Pair::new();
        pair.a = host_with_values("192.0.2.1", 100, 100 + at_a);
        pair.b = host_with_values("192.0.2.2", 500, 500 + at_b);
        let bad_key = DerivedRegionKey::from_bytes([9; 16]);
        let commands = [
            pair.read(0, 0, 3000),
            pair.write(1, 64, 3000),
            Command { key: bad_key, ..pair.read(2, 0, 64) },
            Command { key: bad_key, ..pair.write(3, 0, 64) },
            pair.read(4, u64::MAX, 64),
            pair.rekey(5, [8; 16]),
            pair.write(6, 0, 64),
            pair.read(7, 0, 64),
        ];
        commands.into_iter().for_each(|command| pair.issue(command));
        let (mut from_a, mut from_b) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let (requests, responses) = (pair.requests(), pair.responses());
            from_a.extend(requests.iter().map(counter_of));
            from_b.extend(responses.iter().map(counter_of));
            for flight in &requests {
                let _ = pair.deliver_to_b(flight);
            }
            for flight in &responses {
                let _ = pair.deliver_to_a(flight);
            }
            pair.advance(Duration::from_millis(40));
        }
        pair.advance(Duration::from_secs(1));
        for (mut counters, first, end) in [(from_a, 100, 100 + at_a), (from_b, 500, 500 + at_b)] {
            counters.sort_unstable();
            assert!(counters.windows(2).all(|two| two[0] != two[1]), "{counters:?}");
            assert!(counters.iter().all(|&counter| (first..end).contains(&counter)));
        }
        let completed = core::iter::from_fn(|| pair.a.nic.poll_completion()).count();
        assert_eq!(completed, commands.len(), "with {at_a} and {at_b} values");
        assert_eq!((pair.a.nic.window_debited(), pair.b.nic.window_debited()), (0, 0));
    }
}
