//! Shortage, slow networks, and applications that do odd things.

use super::*;

fn whole<'a>(grant: &'a Grant, local: &'a RegisteredRegion) -> Piece<'a> {
    Piece { grant, remote_offset: 0, local, local_offset: 0, len: local.len() }
}

#[test]
fn a_backlog_of_small_calls_does_not_starve_bulk() {
    let mut bench = Bench::new(16, fixed(64.0));
    let (large, small) = (local(1, 1 << 20), local(2, 64));
    let grant = grant("192.0.2.2", OpType::Read, 1 << 20);
    let mut bulk = 0;
    for _ in 0..64 {
        bench.submit(&[whole(&grant, &small)]);
    }
    bench.take();
    bench.submit(&[whole(&grant, &large)]);
    for _ in 0..1000 {
        bench.submit(&[whole(&grant, &small)]);
        bench.complete(OpStatus::Ok);
        bulk += bench.take().iter().filter(|c| transfer(c).local_region.to_bits() == 1).count();
        while bench.executor.poll_outcome().is_some() {}
    }
    assert!(bulk > 100, "bulk ops: {bulk} of 1000");
}

#[test]
fn bulk_paths_share_what_slots_they_may_have_when_slots_are_short() {
    let mut bench = Bench::new(16, fixed(64.0));
    let a = grant("192.0.2.2", OpType::Read, 64 << 20);
    let c = grant("192.0.2.3", OpType::Read, 64 << 20);
    let b = grant("192.0.2.4", OpType::Read, 64 << 20);
    let (la, lc, small) = (local(1, 64 << 20), local(3, 64 << 20), local(2, 64));
    bench.submit(&[whole(&a, &la)]);
    for _ in 0..64 {
        bench.submit(&[whole(&b, &small)]);
    }
    bench.submit(&[whole(&c, &lc)]);
    let mut counts = [0; 4];
    for _ in 0..2000 {
        for c in bench.take() {
            counts[transfer(&c).local_region.to_bits() as usize] += 1;
        }
        for _ in 0..3 {
            bench.complete(OpStatus::Ok);
        }
        bench.executor.poll(bench.now);
        while let Some(o) = bench.executor.poll_outcome() {
            assert_eq!(o.bytes_done, 64);
            bench.submit(&[whole(&b, &small)]);
        }
    }
    let diff = (counts[1] as i64 - counts[3] as i64).abs();
    assert!(diff < 100, "A {} B {} C {}", counts[1], counts[2], counts[3]);
}

#[test]
fn a_new_host_does_not_inherit_the_pace_of_a_forgotten_one() {
    let cc = CcConfigBuilder { remotes: 1, cwnd_initial: 0.01, ..CcConfigBuilder::software(RTT) };
    let mut bench = Bench::new(16, cc);
    let (large, small) = (local(1, 1 << 20), local(2, 64));
    let dead = grant("192.0.2.2", OpType::Read, 1 << 20);
    let alive = grant("192.0.2.3", OpType::Read, 1 << 20);
    let id = bench.submit(&[whole(&dead, &large)]);
    assert_eq!(bench.take().len(), 1);
    bench.executor.cancel(id);
    bench.complete(OpStatus::Timeout);
    bench.now = bench.now + Duration::from_nanos(50);
    bench.take();
    assert_eq!(bench.outcome().status, CallStatus::Cancelled);
    bench.submit(&[whole(&alive, &small)]);
    let n = bench.take().len();
    let at = bench.executor.poll_timeout();
    assert_eq!(n, 1, "waits until {at:?}, now {:?}", bench.now);
}

#[test]
fn a_call_behind_a_fence_begins_when_all_before_it_is_cancelled() {
    let mut bench = Bench::new(16, fixed(8.0));
    let small = local(2, 64);
    let g = grant("192.0.2.2", OpType::Read, 1 << 20);
    let first = bench.submit(&[whole(&g, &small)]);
    bench.executor.fence();
    bench.submit(&[whole(&g, &small)]);
    bench.executor.cancel(first);
    // No completion will ever come.
    assert_eq!(bench.executor.ops_outstanding(), 0);
    assert!(bench.executor.poll_timeout().is_some());
}

#[test]
fn a_call_whose_last_op_succeeds_after_it_was_cancelled_is_ok() {
    let mut bench = Bench::new(16, fixed(8.0));
    let small = local(2, 64);
    let g = grant("192.0.2.2", OpType::Read, 1 << 20);
    let id = bench.submit(&[whole(&g, &small)]);
    bench.take();
    bench.executor.cancel(id);
    bench.complete(OpStatus::Ok);
    bench.take();
    let o = bench.outcome();
    assert_eq!(o.missing.is_empty(), o.status == CallStatus::Ok, "{o:?}");
}

#[test]
fn the_id_of_another_executor_does_no_harm() {
    let small = local(2, 64);
    let g = grant("192.0.2.2", OpType::Read, 1 << 20);
    let mut big = Bench::new(16, fixed(8.0));
    big.submit(&[whole(&g, &small)]);
    let id = big.submit(&[whole(&g, &small)]);
    let mut one = Bench::with(4, ExecutorConfig { calls: 1, ..ExecutorConfig::default() });
    one.executor.cancel(id);
}

/// An engine whose remote sleeps after 1.05 ms without a frame: 60 us then, 8 us else. One op in
/// service costs 0.3 us.
fn sleepy(asleep: u64, awake: u64, warm: usize) -> (u64, f64) {
    let mut bench = Bench::new(64, CcConfigBuilder::software(RTT));
    let (large, small) = (local(1, 4 << 20), local(2, 64));
    let g = grant("192.0.2.2", OpType::Read, 4 << 20);
    let mut last = 0;
    let mut pending: VecDeque<(u64, Command, u64)> = VecDeque::new();
    let mut step = |bench: &mut Bench, until: &dyn Fn(&mut Bench) -> bool| {
        loop {
            for c in bench.take() {
                let now = bench.now.as_nanos();
                let delay = if now.saturating_sub(last) > 1_050_000 { asleep } else { awake };
                let at = (now + delay).max(pending.back().map_or(0, |p| p.0 + 1000));
                last = at;
                pending.push_back((at, c, now));
            }
            if until(bench) {
                return;
            }
            let next = pending.front().map(|p| p.0);
            let timer = bench.executor.poll_timeout().map(|i| i.as_nanos());
            let at = [next, timer].into_iter().flatten().min().unwrap();
            bench.now = Instant::from_nanos(at.max(bench.now.as_nanos()));
            while pending.front().is_some_and(|p| p.0 <= bench.now.as_nanos()) {
                let (at, c, from) = pending.pop_front().unwrap();
                bench.port.complete(&Completion::new(c.slot, OpStatus::Ok, 0, at - from));
            }
        }
    };
    for _ in 0..warm {
        bench.now = bench.now + Duration::from_millis(10);
        bench.submit(&[whole(&g, &small)]);
        step(&mut bench, &|b| b.executor.poll_outcome().is_some());
    }
    bench.now = bench.now + Duration::from_millis(10);
    bench.submit(&[whole(&g, &large)]);
    let start = bench.now;
    step(&mut bench, &|b| b.executor.poll_outcome().is_some());
    let took = bench.now.nanos_since(start);
    (took, bench.executor.congestion_control().local_cwnd())
}

#[test]
fn a_remote_that_sleeps_between_ops_does_not_collapse_for_ever() {
    let (took_never, _) = sleepy(60_000, 8_000, 0);
    let (took, _) = sleepy(60_000, 8_000, 20);
    assert!(
        took < 10 * took_never,
        "4 MiB took {} us, without calls before {} us",
        took / 1000,
        took_never / 1000
    );
}

#[test]
fn a_network_slower_than_configured_is_usable() {
    let (took_good, _) = sleepy(15_000, 15_000, 0);
    let (took, _) = sleepy(25_000, 25_000, 0);
    assert!(
        took < 10 * took_good,
        "4 MiB: rtt 25 us {} us, rtt 15 us {} us",
        took / 1000,
        took_good / 1000
    );
}

#[test]
fn one_op_at_a_time_does_not_open_the_window() {
    let mut bench = Bench::new(64, CcConfigBuilder::software(RTT));
    let l = local(1, 4096);
    let g = grant("192.0.2.2", OpType::Read, 4 << 20);
    for _ in 0..140_000 {
        bench.submit(&[whole(&g, &l)]);
        bench.take();
        bench.now = bench.now + Duration::from_micros(10);
        bench.complete(OpStatus::Ok);
        bench.executor.poll(bench.now);
        let _ = bench.outcome();
    }
    let cwnd = bench.executor.congestion_control().local_cwnd();
    assert!(cwnd < 20.0, "{cwnd}");
}

#[test]
fn a_submitted_call_is_work_for_the_next_poll() {
    let mut bench = Bench::new(16, fixed(8.0));
    let small = local(2, 64);
    let g = grant("192.0.2.2", OpType::Read, 1 << 20);
    bench.submit(&[whole(&g, &small)]);
    assert!(bench.executor.poll_timeout().is_some());
}

/// Would take minutes if each looked through all others.
#[test]
fn held_calls_expire_all_at_once() {
    let config = ExecutorConfig { calls: 65_534, cc: fixed(8.0), ..ExecutorConfig::default() };
    let mut bench = Bench::with(16, config);
    let small = local(2, 64);
    let g = grant("192.0.2.2", OpType::Read, 1 << 20);
    bench.submit(&[whole(&g, &small)]);
    bench.executor.fence();
    let deadline = Some(bench.now + Duration::from_millis(1));
    let pieces = [whole(&g, &small)];
    for _ in 0..20 {
        for _ in 0..65_533 {
            let call = Call { deadline, ..Call::of(&pieces) };
            bench.executor.submit(bench.now, &call).unwrap();
        }
        bench.now = bench.now + Duration::from_millis(2);
        bench.take();
        let ended = core::iter::from_fn(|| bench.executor.poll_outcome());
        assert_eq!(ended.filter(|it| it.status == CallStatus::DeadlineExceeded).count(), 65_533);
    }
    assert!(bench.executor.held.capacity() < 4 * 65_536, "those that were given up do not pile up");
}

#[test]
fn a_small_op_that_fits_the_window_goes_before_a_bulk_op_that_does_not() {
    // Window admits a small op, but not the bulk op at the head of the other class.
    let mut bench = Bench::new(64, fixed(1.5));
    let (large, small) = (local(1, 1 << 20), local(2, 64));
    let g = grant("192.0.2.2", OpType::Read, 1 << 20);
    bench.submit(&[whole(&g, &large)]);
    assert_eq!(bench.take().len(), 1);
    bench.submit(&[whole(&g, &small)]);
    let n = bench.take().len();
    assert_eq!(n, 1, "1024 of 6144 - 4096 fit");
}

#[test]
fn few_slots_leave_one_for_small_calls() {
    for slots in 2..8 {
        let mut bench = Bench::new(slots, fixed(64.0));
        let (large, small) = (local(1, 1 << 20), local(2, 64));
        let dead = grant("192.0.2.2", OpType::Read, 1 << 20);
        let alive = grant("192.0.2.3", OpType::Read, 1 << 20);
        bench.submit(&[whole(&dead, &large)]);
        bench.take();
        bench.submit(&[whole(&alive, &small)]);
        assert_eq!(bench.take().len(), 1, "{slots} slots");
    }
}

#[test]
fn paths_without_a_slot_are_not_asked_again_and_again() {
    let cc = CcConfigBuilder { remotes: 4096, ..fixed(64.0) };
    let config = ExecutorConfig { calls: 4096, cc, ..ExecutorConfig::default() };
    let mut bench = Bench::with(16, config);
    let large = local(1, 1 << 16);
    for host in 0..4000_u16 {
        let [high, low] = host.to_be_bytes();
        let g = grant(&format!("10.1.{high}.{low}"), OpType::Read, 1 << 16);
        bench.submit(&[whole(&g, &large)]);
    }
    assert_eq!(bench.take().len(), 14);
    assert!(bench.executor.paths.next().is_none(), "none is asked");
    assert_eq!(bench.executor.poll(bench.now), 0);
}

#[test]
fn another_bulk_call_is_not_stopped_by_a_dead_host() {
    let mut bench = Bench::new(32, fixed(64.0));
    let (large, other) = (local(1, 1 << 20), local(2, 1 << 20));
    let dead = grant("192.0.2.2", OpType::Read, 1 << 20);
    let alive = grant("192.0.2.3", OpType::Read, 1 << 20);
    bench.submit(&[whole(&dead, &large)]);
    bench.take();
    bench.submit(&[whole(&alive, &other)]);
    assert!(!bench.take().is_empty());
}

#[test]
fn the_rest_of_a_call_that_is_not_ok_is_never_empty() {
    let mut bench = Bench::new(16, fixed(8.0));
    let (small, p) = (local(2, 64), grant("192.0.2.2", OpType::Read, 1 << 20));
    let pieces = [whole(&p, &small)];
    let deadline = Some(bench.now + Duration::from_micros(10));
    bench.executor.submit(bench.now, &Call { deadline, ..Call::of(&pieces) }).unwrap();
    bench.take();
    bench.now = bench.now + Duration::from_micros(20);
    bench.executor.poll(bench.now);
    bench.complete(OpStatus::Ok);
    bench.executor.poll(bench.now);
    let o = bench.outcome();
    let again = bench.executor.submit(bench.now, &Call::of(&o.remaining(&pieces, |_| &p)));
    assert!(o.status == CallStatus::Ok || again.is_ok(), "{o:?}: {again:?}");
}

#[test]
fn a_slot_that_the_first_who_waited_does_not_take_is_for_the_next() {
    // Two slots: one for bulk.
    let mut bench = Bench::new(2, fixed(8.0));
    let local = local(1, 4096);
    let grants = ["192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|to| grant(to, OpType::Read, 4096));
    let mut submit = |grant| {
        let pieces = [whole(grant, &local)];
        let class = Some(ClassOfService::Throughput);
        bench.executor.submit(bench.now, &Call { class, ..Call::of(&pieces) }).unwrap()
    };
    let [_, second, _] = grants.each_ref().map(&mut submit);
    assert_eq!(bench.take().len(), 1);
    // Those who wait in the order of their hosts: the second gives up, and the slot comes free.
    bench.executor.cancel(second);
    bench.complete(OpStatus::Ok);
    let commands = bench.take();
    assert_eq!(commands.len(), 1, "nothing else will ever wake the third");
    assert_eq!(commands[0].responder, grants[2].responder);
}

#[test]
fn small_calls_do_not_wait_for_a_slot_that_a_bulk_call_of_their_host_waits_for() {
    // Two slots: one for bulk, which goes to a host that does not answer.
    let mut bench = Bench::new(2, fixed(8.0));
    let local = local(1, 1 << 20);
    let [dead, live] = ["192.0.2.2", "192.0.2.3"].map(|to| grant(to, OpType::Read, 1 << 20));
    bench.submit(&[whole(&dead, &local)]);
    assert_eq!(bench.take().len(), 1);
    let unanswered = bench.taken.pop_front().unwrap();
    bench.submit(&[whole(&live, &local)]);
    for offset in 0..20 {
        let piece = Piece {
            grant: &live,
            remote_offset: 64 * offset,
            local: &local,
            local_offset: 0,
            len: 64,
        };
        bench.submit(&[piece]);
    }
    let mut small = 0;
    while !bench.take().is_empty() {
        assert_eq!(bench.complete(OpStatus::Ok).responder, live.responder);
        small += 1;
    }
    assert_eq!(small, 20);
    bench.port.complete(&Completion::new(unanswered.slot, OpStatus::Timeout, 0, 5_000));
    assert_eq!(bench.take().len(), 1, "a bulk op has the slot");
}
