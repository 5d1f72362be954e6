//! The order of calls: shares of calls, classes and hosts; fences, deadlines, cancelling.

use super::*;

/// The whole of a local region, read from `grant`.
fn whole<'a>(grant: &'a Grant, local: &'a RegisteredRegion) -> Piece<'a> {
    Piece { grant, remote_offset: 0, local, local_offset: 0, len: local.len() }
}

fn regions(commands: &[Command]) -> Vec<u32> {
    commands.iter().map(|command| transfer(command).local_region.to_bits()).collect()
}

#[test]
fn a_small_call_waits_for_no_more_than_one_op_of_a_large_transfer() {
    // Also in its class, and when the window is full.
    for class in ClassOfService::ALL {
        let mut bench = Bench::new(64, fixed(8.0));
        let (large, small) = (local(1, 4 << 20), local(2, 64));
        let grant = grant("192.0.2.2", OpType::Read, 4 << 20);
        bench.submit(&[whole(&grant, &large)]);
        bench.take();
        let pieces = [whole(&grant, &small)];
        let call = Call { class: Some(class), ..Call::of(&pieces) };
        bench.executor.submit(bench.now, &call).unwrap();
        let mut waited = 0;
        while !regions(&bench.take()).contains(&2) {
            bench.complete(OpStatus::Ok);
            waited += 1;
            assert!(waited <= 2, "{class:?}");
        }
    }
}

#[test]
fn calls_of_one_class_share_a_path_evenly_and_so_do_paths() {
    let mut bench = Bench::new(16, fixed(8.0));
    let locals: Vec<_> = (0..4).map(|id| local(id, 4 << 20)).collect();
    let near = grant("192.0.2.2", OpType::Read, 4 << 20);
    let far = grant("192.0.2.3", OpType::Read, 4 << 20);
    for local in &locals[..3] {
        bench.submit(&[whole(&near, local)]);
    }
    bench.submit(&[whole(&far, &locals[3])]);
    let mut counts = [0_i32; 4];
    for _ in 0..600 {
        for region in regions(&bench.take()) {
            counts[region as usize] += 1;
        }
        bench.complete(OpStatus::Ok);
    }
    let [a, b, c, other] = counts;
    assert!(a.max(b).max(c) - a.min(b).min(c) <= 1, "{counts:?}");
    assert!((other - (a + b + c)).abs() <= 16, "the two hosts: {counts:?}");
}

#[test]
fn bulk_transfers_to_hosts_that_do_not_answer_leave_slots_for_small_calls() {
    let mut bench = Bench::new(16, fixed(64.0));
    let (large, small) = (local(1, 1 << 20), local(2, 64));
    let dead = grant("192.0.2.2", OpType::Read, 1 << 20);
    let alive = grant("192.0.2.3", OpType::Read, 1 << 20);
    bench.submit(&[whole(&dead, &large)]);
    assert_eq!(
        bench.take().len(),
        11,
        "of 14 that bulk may have, one host may have three quarters"
    );
    let other_dead = grant("192.0.2.4", OpType::Read, 1 << 20);
    let other_large = local(5, 1 << 20);
    bench.submit(&[whole(&other_dead, &other_large)]);
    assert_eq!(bench.take().len(), 3, "an eighth of all is left");
    bench.submit(&[whole(&alive, &small)]);
    assert_eq!(regions(&bench.take()), [2]);
    // A bulk call of a host that does answer has to wait, and does not stop the small ones behind
    // it.
    let bulk = local(3, 1 << 20);
    bench.submit(&[whole(&alive, &bulk)]);
    let other = local(4, 64);
    bench.submit(&[whole(&alive, &other)]);
    assert_eq!(regions(&bench.take()), [4]);
}

#[test]
fn a_call_behind_a_fence_waits_for_those_before_it_even_if_they_fail() {
    for status in [OpStatus::Ok, OpStatus::RemoteAuthenticationFailure] {
        let mut bench = Bench::new(16, fixed(8.0));
        let locals: Vec<_> = (0..5).map(|id| local(id, 20_000)).collect();
        let grant = grant("192.0.2.2", OpType::Write, 1 << 20);
        bench.executor.fence();
        bench.submit(&[whole(&grant, &locals[0])]);
        bench.submit(&[whole(&grant, &locals[1])]);
        bench.executor.fence();
        bench.executor.fence();
        bench.submit(&[whole(&grant, &locals[2])]);
        bench.executor.fence();
        bench.submit(&[whole(&grant, &locals[3])]);
        bench.submit(&[whole(&grant, &locals[4])]);
        let mut under_way: Vec<u32> = Vec::new();
        loop {
            under_way.extend(regions(&bench.take()));
            let group = |region: &u32| [0, 0, 1, 2, 2][*region as usize];
            let groups: std::collections::BTreeSet<_> = under_way.iter().map(group).collect();
            assert!(groups.len() <= 1, "{under_way:?}");
            if under_way.is_empty() {
                break;
            }
            let command = bench.complete(status);
            let region = transfer(&command).local_region.to_bits();
            let place = under_way.iter().position(|&it| it == region).unwrap();
            under_way.remove(place);
        }
        let outcomes: Vec<_> =
            core::iter::from_fn(|| bench.executor.poll_outcome()).map(|it| it.status).collect();
        let expected =
            if status == OpStatus::Ok { CallStatus::Ok } else { CallStatus::Failed(status) };
        assert_eq!(outcomes, [expected; 5]);
    }
}

#[test]
fn a_fenced_call_that_is_refused_leaves_no_fence() {
    let cc = CcConfigBuilder { remotes: 1, ..fixed(8.0) };
    let mut bench = Bench::with(16, ExecutorConfig { cc, calls: 3, ..ExecutorConfig::default() });
    let locals: Vec<_> = (0..3).map(|id| local(id, 64)).collect();
    let [near, far] = ["192.0.2.2", "192.0.2.3"].map(|host| grant(host, OpType::Read, 64));
    bench.submit(&[whole(&near, &locals[0])]);
    let outside = Piece { remote_offset: 1, ..whole(&near, &locals[1]) };
    for pieces in [&[] as &[_], &[outside], &[whole(&far, &locals[1])]] {
        assert!(bench.executor.submit_fenced(bench.now, &Call::of(pieces)).is_err());
    }
    bench.submit(&[whole(&near, &locals[1])]);
    assert_eq!(regions(&bench.take()), [0, 1], "nobody waits");
    let pieces = [whole(&near, &locals[2])];
    bench.executor.submit_fenced(bench.now, &Call::of(&pieces)).unwrap();
    let error = bench.executor.submit_fenced(bench.now, &Call::of(&pieces)).unwrap_err();
    assert_eq!(error, CallError::TooManyCalls { calls: 3 });
    assert_eq!(regions(&bench.take()), [], "it waits for the others");
    assert_eq!(regions(&bench.run(|_| OpStatus::Ok)), [2]);
    assert_eq!([(); 3].map(|()| bench.outcome().status), [CallStatus::Ok; 3]);
}

#[test]
fn calls_that_wait_are_counted_wherever_they_are() {
    let mut bench = Bench::with(16, ExecutorConfig { calls: 8, ..ExecutorConfig::default() });
    let grant = grant("192.0.2.2", OpType::Read, 64);
    let locals: Vec<_> = (0..8).map(|id| local(id, 64)).collect();
    assert_eq!(bench.executor.calls_waiting(), 0);
    let calls: Vec<_> = locals.iter().map(|local| bench.submit(&[whole(&grant, local)])).collect();
    assert_eq!(bench.executor.calls_waiting(), 8);
    // All are over but the last, and some of their outcomes are taken.
    calls[..7].iter().for_each(|&call| bench.executor.cancel(call));
    assert_eq!(bench.executor.calls_waiting(), 1);
    let _ = [(); 5].map(|()| bench.outcome());
    assert_eq!((bench.executor.calls(), bench.executor.calls_waiting()), (3, 1));
    bench.submit(&[whole(&grant, &locals[0])]);
    bench.executor.fence();
    bench.submit(&[whole(&grant, &locals[1])]);
    assert_eq!((bench.executor.calls(), bench.executor.calls_waiting()), (5, 3));
    bench.run(|_| OpStatus::Ok);
    assert_eq!((bench.executor.calls(), bench.executor.calls_waiting()), (5, 0));
}

#[test]
fn a_call_that_is_held_can_be_cancelled_and_holds_up_nobody() {
    let mut bench = Bench::new(16, fixed(8.0));
    let locals: Vec<_> = (0..3).map(|id| local(id, 64)).collect();
    let grant = grant("192.0.2.2", OpType::Read, 64);
    bench.submit(&[whole(&grant, &locals[0])]);
    bench.executor.fence();
    let held = bench.submit(&[whole(&grant, &locals[1])]);
    bench.executor.fence();
    bench.submit(&[whole(&grant, &locals[2])]);
    bench.executor.cancel(held);
    let outcome = bench.outcome();
    assert_eq!((outcome.call, outcome.status), (held, CallStatus::Cancelled));
    let nothing = Missing { piece: 0, offset: 0, len: 64, tried: None };
    assert_eq!(outcome.missing, [nothing]);
    assert_eq!(regions(&bench.run(|_| OpStatus::Ok)), [0, 2]);
    bench.executor.cancel(held);
    assert_eq!([(); 2].map(|()| bench.outcome().status), [CallStatus::Ok; 2]);
}

#[test]
fn a_deadline_ends_a_call_when_what_is_under_way_is_over() {
    let mut bench = Bench::new(16, fixed(4.0));
    let large = local(1, 1 << 20);
    let grant = grant("192.0.2.2", OpType::Write, 1 << 20);
    let pieces = [whole(&grant, &large)];
    let deadline = bench.now + Duration::from_millis(1);
    let call = Call { deadline: Some(deadline), ..Call::of(&pieces) };
    bench.executor.submit(bench.now, &call).unwrap();
    assert_eq!(bench.take().len(), 4);
    assert_eq!(bench.executor.poll_timeout(), Some(deadline));
    let first = transfer(&bench.complete(OpStatus::Ok)).op_size;
    bench.take();
    bench.now = deadline;
    assert!(bench.take().is_empty());
    assert!(bench.executor.poll_outcome().is_none(), "ops are under way");
    let second = transfer(&bench.complete(OpStatus::Timeout)).op_size;
    for _ in 0..3 {
        assert!(bench.take().is_empty());
        bench.complete(OpStatus::Ok);
    }
    bench.take();
    let outcome = bench.outcome();
    assert_eq!(outcome.status, CallStatus::DeadlineExceeded);
    let done = u64::from(first) * 4;
    assert_eq!(outcome.bytes_done, done);
    let (offset, len) = (u64::from(first), u64::from(second));
    let tried = Missing { piece: 0, offset, len, tried: Some(OpStatus::Timeout) };
    let rest = done + len;
    let untried = Missing { piece: 0, offset: rest, len: (1 << 20) - rest, tried: None };
    assert_eq!(outcome.missing, [tried, untried]);
}

#[test]
fn a_host_that_does_not_answer_costs_others_nothing() {
    let mut bench = Bench::new(32, CcConfigBuilder::software(RTT));
    let (large, other) = (local(1, 1 << 20), local(2, 1 << 20));
    let dead = grant("192.0.2.2", OpType::Read, 1 << 20);
    let alive = grant("192.0.2.3", OpType::Read, 1 << 20);
    bench.submit(&[whole(&dead, &large)]);
    bench.submit(&[whole(&alive, &other)]);
    let mut dead_ops: Vec<Command> = Vec::new();
    // The engine answers for one of them only; the other's ops time out much later.
    let mut rounds = 0;
    let outcome = loop {
        bench.take();
        let (of_dead, answered): (Vec<_>, Vec<_>) =
            bench.taken.drain(..).partition(|command| command.responder == dead.responder);
        dead_ops.extend(of_dead);
        for command in answered {
            bench.port.complete(&Completion::new(command.slot, OpStatus::Ok, 0, 10_000));
        }
        bench.now = bench.now + Duration::from_micros(10);
        rounds += 1;
        assert!(rounds < 1_000);
        if let Some(outcome) = bench.executor.poll_outcome() {
            break outcome;
        }
    };
    assert_eq!((outcome.status, outcome.bytes_done), (CallStatus::Ok, 1 << 20));
    assert!(!dead_ops.is_empty());
    // And its call ends when they have, as the host is silent.
    bench.taken = dead_ops.into();
    bench.now = bench.now + Duration::from_millis(300);
    while bench.taken.front().is_some() {
        bench.complete(OpStatus::Timeout);
    }
    assert!(bench.take().is_empty());
    let status = bench.outcome().status;
    assert!(matches!(status, CallStatus::PeerSilent { tried: 4.., .. }), "{status:?}");
}
