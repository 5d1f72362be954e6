//! A NIC's telemetry: delays of ops, and how full it is.

use super::{stage::Stage, *};

#[test]
fn delays_are_counted_by_type_of_op_and_only_of_ops_that_ended_with_ok() {
    let mut stage = Stage::new();
    stage.queue.post_all();
    let mut ops = stage.one_of_each(0);
    // Last, so that the others come under the key that it replaces.
    ops.sort_by_key(|it| it.op.op_type() == OpType::Rekey);
    let Stage { mut pair, .. } = stage;
    let waited = Duration::from_nanos(1_000);
    for command in ops {
        pair.issue(command);
        pair.now = pair.now + waited;
        let requests = pair.requests();
        pair.now = pair.now + waited;
        for flight in &requests {
            pair.deliver_to_b(flight).unwrap();
        }
        pair.exchange();
        assert_eq!(pair.status(), OpStatus::Ok, "{command:?}");
    }
    // Under the old key: refused.
    let stale =
        Command { key: pair.key_under(&RegionKey::from_bytes([7; 16]), OpType::Read), ..ops[0] };
    pair.issue(stale);
    pair.exchange();
    assert_eq!(pair.status(), OpStatus::RemoteAuthenticationFailure);
    let counters = pair.a.nic.counters();
    for op_type in OpType::ALL {
        let (issue, total) = (counters.issue_delay(op_type), counters.total_delay(op_type));
        assert_eq!((issue.count(), issue.sum_nanos), (1, 1_000), "{op_type}");
        assert_eq!((total.count(), total.sum_nanos), (1, 2_000), "{op_type}");
    }
    assert_eq!(counters.completions(OpStatus::Ok), 8);
}

#[test]
fn gauges_follow_an_op_through_both_nics_and_are_back_at_rest_after_it() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.nic.gauges(), pair.b.nic.gauges());
    assert_eq!((a.free_command_slots, a.window_debited), (a.command_slots, 0));
    let at_rest = |it: NicGauges| NicGauges { counter_values_left: 0, ..it };

    let bulk = ClassOfService::Throughput;
    pair.issue(Command { class: bulk, ..pair.read(0, 0, 4096) });
    pair.issue(pair.write(1, 0, 100));
    let now = pair.a.nic.gauges();
    assert_eq!((now.ops_waiting, now.free_command_slots), ([1, 1], a.command_slots - 2));
    let requests = pair.requests();
    let now = pair.a.nic.gauges();
    assert_eq!((now.ops_waiting, now.ops_in_service, now.window_debited), ([0, 0], 2, 4096));
    assert_eq!(a.counter_values_left - now.counter_values_left, 2);
    for flight in &requests {
        pair.deliver_to_b(flight).unwrap();
    }
    let now = pair.b.nic.gauges();
    assert_eq!((now.inbound_reads, now.inbound_read_bytes), ([0, 1], [0, 4096]));
    assert_eq!(now.pending_writes_used, [1, 0]);
    pair.exchange();
    // A completed op has its slot until the completion is polled.
    assert_eq!(pair.a.nic.gauges().free_command_slots, a.command_slots - 2);
    pair.completion();
    pair.completion();
    assert_eq!(at_rest(pair.a.nic.gauges()), at_rest(a));
    assert_eq!(at_rest(pair.b.nic.gauges()), at_rest(b));
}

#[test]
fn readers_of_the_counters_see_what_was_published_last() {
    let mut pair = Pair::new();
    assert_eq!(pair.a.nic.counters().gauges(), NicGauges::default());
    pair.issue(pair.read(0, 0, 64));
    pair.a.nic.publish_gauges();
    let published = pair.a.nic.gauges();
    pair.exchange();
    assert_eq!(pair.a.nic.counters().gauges(), published);
}
