//! Receive queues: what applications post, what senders are told, and what becomes of ops whose
//! queue changes under way.

use proptest::prelude::*;
use rma_shm::{Line, Producer};

use super::{
    stage::{ALL, RECEIVES, Stage, register_queue},
    *,
};
use crate::{
    command::RecordedOp,
    error::RegionError,
    receive_queue::{Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
};

fn layout(receives: u16, buffer_len: u32) -> ReceiveQueueLayout {
    ReceiveQueueLayout::new(receives, buffer_len).unwrap()
}

/// A stage whose queue has that layout, and another end of the ring of posts: that of an
/// application that breaks the rules.
fn stage_and_posts(receives: u16, buffer_len: u32) -> (Stage, Producer, ReceiveQueueMemory) {
    let (stage, rings) = Stage::of(Pair::new(), layout(receives, buffer_len));
    (stage, rings.posts().clone().into_producer(), rings)
}

fn post(number: u64) -> Line {
    Line([number, 0, 0, 0, 0, 0, 0, 0])
}

#[test]
fn a_message_longer_than_the_buffers_is_out_of_bounds_whatever_is_posted() {
    let (mut stage, ..) = stage_and_posts(2, 100);
    for _ in 0..2 {
        let refused = stage.run(stage.send(0, 101, 0));
        assert_eq!(refused.status, OpStatus::RemoteOutOfBounds);
        stage.queue.post_all();
    }
    assert_eq!(stage.run(stage.send(0, 100, 0)).status, OpStatus::Ok);
    assert_eq!(stage.event().len, 100);
    // Without buffers there are no messages, and there is all that needs none.
    let (mut stage, ..) = stage_and_posts(2, 0);
    stage.queue.post_all();
    assert_eq!(stage.run(stage.send(0, 1, 0)).status, OpStatus::RemoteOutOfBounds);
    assert_eq!(stage.run(stage.notify(0, 3)).status, OpStatus::Ok);
    assert_eq!(stage.run(stage.write_with_imm(0, 4096, false)).status, OpStatus::Ok);
    assert_eq!((stage.event().immediate, stage.event().len), (3, 4096));
    stage.assert_settled_down();
}

//= channels#2.2-hostile-posts
//= type=test
//= channels#P8-own-only
//= type=test
#[test]
fn posts_that_make_no_sense_are_counted_and_cost_no_receive() {
    let (mut stage, mut posts, _) = stage_and_posts(4, 4096);
    for number in [4, u64::MAX, 1 << 16, 2] {
        posts.push(&post(number)).unwrap();
    }
    assert_eq!(stage.run(stage.send(0, 64, 1)).status, OpStatus::Ok);
    assert_eq!(stage.pair.b.nic.counters().posts_refused(), 3);
    // Numbers that are posted already, as long as its event has not been published.
    for number in [3, 3, 3, 0x1_0001] {
        posts.push(&post(number)).unwrap();
    }
    let (_, data) = stage.solicited(stage.send(0, 4096, 2));
    stage.pair.deliver_to_b(&data[0]).unwrap();
    let refused = stage.run(stage.send(1, 64, 3));
    assert_eq!(refused.status, OpStatus::RemoteNotReady);
    data[1..].iter().for_each(|it| stage.pair.deliver_to_b(it).unwrap());
    stage.pair.exchange();
    assert_eq!(stage.pair.status(), OpStatus::Ok);
    assert_eq!(stage.pair.b.nic.counters().posts_refused(), 6);
    stage.assert_settled_down();
}

#[test]
fn garbage_without_end_takes_a_bounded_part_of_a_turn() {
    let (mut stage, mut posts, _) = stage_and_posts(64, 0);
    (0..63).for_each(|_| posts.push(&post(99)).unwrap());
    posts.push(&post(7)).unwrap();
    let statuses = [0; 3].map(|slot| stage.run(stage.notify(slot, 0)).status);
    let unready = OpStatus::RemoteNotReady;
    assert_eq!(statuses[0], unready, "the engine does not look through all of it for one op");
    assert_eq!(statuses[1], OpStatus::Ok);
    assert_eq!(statuses[2], unready);
    assert_eq!(stage.pair.b.nic.counters().posts_refused(), 63);
}

//= channels#2.2-room-for-events
//= type=test
#[test]
fn a_receiver_that_reads_no_events_stops_its_own_senders_and_nobody_else() {
    let (mut stage, mut posts, rings) = stage_and_posts(RECEIVES, 64);
    let (mut other, _) = register_queue(&mut stage.pair.b, layout(1, 64), None);
    let mut statuses = Vec::new();
    for number in 0..8_u64 {
        // It posts again what was consumed, and never looks at the events.
        posts.push(&post(number % 4)).unwrap();
        statuses.push(stage.run(stage.send(0, 64, number)).status);
        stage.pair.b.nic.assert_consistent();
        other.post_all();
        let elsewhere = Command { remote_region: other.id(), ..stage.send(1, 64, 77) };
        assert_eq!(stage.run(elsewhere).status, OpStatus::Ok);
        assert_eq!(other.poll().unwrap().immediate, 77);
        assert_eq!(stage.run(stage.pair.read(2, 0, 64)).status, OpStatus::Ok);
    }
    assert_eq!(statuses[..4], [OpStatus::Ok; 4]);
    assert_eq!(statuses[4..], [OpStatus::RemoteNotReady; 4]);
    assert_eq!(rings.events().tail(), 4, "the ring of events did not overflow");
    // An index that goes back, or too far, makes no room.
    for head in [u32::MAX, 5, 100] {
        rings.events().set_head(head);
        assert_eq!(stage.run(stage.send(0, 64, 9)).status, OpStatus::RemoteNotReady, "{head}");
    }
    rings.events().set_head(1);
    assert_eq!(stage.run(stage.send(0, 64, 9)).status, OpStatus::Ok);
    stage.assert_settled_down();
}

#[test]
fn the_second_of_two_messages_for_one_receive_is_told_so_after_its_data_and_is_not_applied() {
    for second in 1..5 {
        let mut stage = Stage::new();
        stage.queue.post(Receive(3)).unwrap();
        let before = stage.pair.target();
        let second = stage.recorded_ops(1)[second];
        stage.pair.issue(stage.send(0, 4096, 8));
        stage.pair.issue(second);
        for flight in stage.pair.requests() {
            stage.pair.deliver_to_b(&flight).unwrap();
        }
        for flight in stage.pair.responses() {
            stage.pair.deliver_to_a(&flight).unwrap();
        }
        let mut data = stage.pair.requests();
        data.sort_by_key(|flight| flight.bytes[12..14].to_vec());
        for flight in &data {
            let _ = stage.pair.deliver_to_b(flight);
            stage.pair.b.nic.assert_consistent();
        }
        stage.pair.exchange();
        let mut ends = [stage.pair.completion(), stage.pair.completion()];
        ends.sort_by_key(|it| it.slot);
        let statuses = ends.map(|it| it.status);
        assert_eq!(statuses, [OpStatus::Ok, OpStatus::RemoteNotReady], "{second:?}");
        assert!(ends[1].reached() && !ends[1].may_have_changed());
        assert!(stage.dropped(DropReason::NoReceiveLeft) > 0);
        assert_eq!(stage.event().immediate, 8);
        assert!(stage.queue.poll().is_none());
        assert_eq!(stage.pair.target(), before, "bytes of {second:?} land only with a receive");
        stage.assert_settled_down();
    }
}

//= channels#2.2-comes-back
//= type=test
#[test]
fn the_receive_of_an_op_that_comes_to_nothing_is_the_next_ops() {
    for which in [1, 2, 3] {
        for is_rekeyed in [false, true] {
            let mut stage = Stage::new();
            stage.queue.post(Receive(3)).unwrap();
            let command = stage.recorded_ops(0)[which];
            let (_, data) = stage.solicited(command);
            stage.pair.deliver_to_b(&data[0]).unwrap();
            let refused = stage.run(stage.send(1, 64, 1));
            assert_eq!(refused.status, OpStatus::RemoteNotReady, "it is bound to {command:?}");
            if is_rekeyed {
                stage.rekey(command.remote_region, [8; 16]);
                for frame in &data[1..] {
                    assert_eq!(stage.pair.deliver_to_b(frame), Err(DropReason::OldKey));
                }
                stage.pair.exchange();
                let status = stage.pair.completion().status;
                assert_eq!(status, OpStatus::RemoteAuthenticationFailure, "{command:?}");
            } else {
                assert_eq!(stage.time_out().status, OpStatus::Timeout);
            }
            // To the key that the others have.
            let key = *stage.pair.b.key.expose();
            stage.rekey(command.remote_region, key);
            assert_eq!(stage.run(stage.send(1, 64, 2)).status, OpStatus::Ok, "{command:?}");
            let event = stage.event();
            assert_eq!((event.receive, event.immediate), (Receive(3), 2));
            stage.assert_settled_down();
        }
    }
}

//= channels#2.2-own-queue
//= type=test
//= channels#P8-own-only
//= type=test
#[test]
fn events_of_a_region_go_to_the_queue_of_its_owner_that_it_names_and_to_no_other() {
    // As many rows as are used here, so that one that is freed is used again.
    let mut stage = Stage::with(NicConfigBuilder { regions: 5, ..Default::default() });
    let (memory, key) = (stage.pair.b.memory.clone(), stage.pair.b.key);
    let (mut other, _) = register_queue(&mut stage.pair.b, layout(2, 64), None);
    [&mut stage.queue, &mut other].into_iter().for_each(ReceiveQueue::post_all);
    // Of another owner, or no queue at all: such a region is not registered.
    let (queue, region) = (stage.queue.id(), stage.pair.b.region);
    for (owner, events) in [(Pid(78), queue), (PID, region)] {
        let entry = RegionEntry::new(memory.clone(), &key, ALL, owner).with_events(events);
        let (error, _) = stage.pair.b.nic.regions_mut().register(Box::new(entry)).unwrap_err();
        assert_eq!(error, RegionError::NotOwnQueue { queue: events, owner });
    }
    assert_eq!(stage.run(stage.write_with_imm(0, 64, false)).status, OpStatus::Ok);
    assert_eq!(stage.event().region, region);
    assert!(other.poll().is_none(), "which is not the one that it names");
    // Without a queue, and with one whose name is gone, though its row has become another's.
    let none = register(&mut stage.pair.b.nic, &memory, &key, ALL);
    let before = stage.pair.target();
    for gone in [false, true] {
        if gone {
            drop(stage.pair.b.nic.deregister(queue).unwrap());
            let (mut next, _) = register_queue(&mut stage.pair.b, layout(2, 64), None);
            next.post_all();
            assert_eq!(next.id().index(), queue.index(), "the same row");
        }
        let remote_region = if gone { region } else { none };
        for ordered in [false, true] {
            let denied = Command { remote_region, ..stage.write_with_imm(0, 64, ordered) };
            assert_eq!(stage.run(denied).status, OpStatus::RemotePermissionDenied);
        }
    }
    assert_eq!(stage.pair.target(), before);
    assert!(other.poll().is_none() && stage.queue.poll().is_none());
}

/// A change to the queue, or to the region that names it, while an op is under way.
#[derive(Clone, Copy, Debug)]
enum Change {
    RekeyQueue,
    RekeyRegion,
    DeregisterQueue,
    DeregisterRegion,
}

//= channels#P11-rekey
//= type=test
#[test]
fn an_op_whose_queue_goes_or_gets_another_key_ends_at_once_and_is_not_applied() {
    use Change::{DeregisterQueue, DeregisterRegion, RekeyQueue, RekeyRegion};
    for change in [RekeyQueue, RekeyRegion, DeregisterQueue, DeregisterRegion] {
        for which in 0..7 {
            for after_frames in 0..8 {
                let mut stage = Stage::new();
                stage.queue.post_all();
                stage.pair.fill();
                let command = stage.recorded_ops(0)[which];
                let (region, queue) = (stage.pair.b.region, stage.queue.id());
                stage.pair.issue(command);
                let (mut seen, mut is_changed) = (0, false);
                for _ in 0..12 {
                    let requests = stage.pair.requests().into_iter().map(|it| (true, it));
                    let requests: Vec<_> = requests.collect();
                    let responses = stage.pair.responses().into_iter().map(|it| (false, it));
                    let responses: Vec<_> = responses.collect();
                    for (to_b, flight) in requests.into_iter().chain(responses) {
                        if seen == after_frames {
                            is_changed = true;
                            let nic = &mut stage.pair.b.nic;
                            match change {
                                RekeyQueue => stage.rekey(queue, [8; 16]),
                                RekeyRegion => stage.rekey(region, [8; 16]),
                                DeregisterQueue => drop(nic.deregister(queue).unwrap()),
                                DeregisterRegion => drop(nic.deregister(region).unwrap()),
                            }
                        }
                        seen += 1;
                        let _ = if to_b {
                            stage.pair.deliver_to_b(&flight)
                        } else {
                            stage.pair.deliver_to_a(&flight)
                        };
                        stage.pair.b.nic.assert_consistent();
                    }
                }
                let completion = stage.pair.completion();
                let event = stage.queue.poll();
                let text = format!("{change:?} after {after_frames} of {command:?}");
                let uses_queue = command.remote_region == queue;
                let concerns_it = match change {
                    RekeyQueue => uses_queue,
                    DeregisterQueue => uses_queue || command.op.op_type() == OpType::WriteWithImm,
                    RekeyRegion | DeregisterRegion => !uses_queue,
                };
                let denied = matches!(change, DeregisterQueue) && !uses_queue && after_frames == 0;
                match completion.status {
                    OpStatus::Ok => {}
                    OpStatus::RemotePermissionDenied => assert!(denied, "{text}"),
                    OpStatus::RemoteAuthenticationFailure => {
                        assert!(concerns_it && is_changed, "{text}");
                    }
                    other => panic!("{other}: {text}"),
                }
                let is_of_queue = matches!(
                    command.op.op_type(),
                    OpType::Send | OpType::Notify | OpType::WriteWithImm
                );
                let is_event = completion.status == OpStatus::Ok && is_of_queue;
                assert_eq!(event.is_some(), is_event, "{text}");
                stage.pair.advance(stage.pair.timeout());
                stage.assert_settled_down();
            }
        }
    }
}

//= channels#2.2-bound-by-data
//= type=test
#[test]
fn replayed_requests_hold_no_receive_and_honest_messages_go_on() {
    let mut stage = Stage::with(NicConfigBuilder { pending_writes: 16, ..Default::default() });
    // Requests that were recorded on their way, and whose ops have ended long ago.
    let mut recorded = Vec::new();
    for round in 0..200_u16 {
        let which = usize::from(round % 7);
        stage.pair.issue(stage.recorded_ops(round % 4)[which]);
        recorded.append(&mut stage.pair.requests());
        assert_eq!(stage.time_out().status, OpStatus::Timeout);
    }
    stage.queue.post(Receive(0)).unwrap();
    let (mut ok, mut other) = (0, [0; OpStatus::ALL.len()]);
    for (round, request) in recorded.iter().enumerate() {
        let _ = stage.pair.deliver_to_b(request);
        let _ = stage.pair.responses();
        stage.pair.b.nic.assert_consistent();
        let (_, port) = stage.pair.b.nic.regions().ports().next().unwrap();
        assert_eq!(port.watch().posted, 1, "a request alone takes none");
        let hold = stage.pair.b.nic.config().hold();
        stage.pair.advance(hold);
        if round % 10 == 9 {
            let completion = stage.run(stage.send(7, 4096, round as u64));
            if completion.status == OpStatus::Ok {
                ok += 1;
                assert_eq!(stage.event().immediate, round as u64);
                stage.queue.post(Receive(0)).unwrap();
            } else {
                other[completion.status as usize] += 1;
            }
        }
    }
    assert_eq!(ok, 20, "{other:?}");
    stage.pair.advance(stage.pair.timeout());
    stage.assert_settled_down();
}

/// One step of a queue's life.
#[derive(Clone, Copy, Debug)]
enum Step {
    Post(u16),
    Garbage(u64),
    Poll,
    Send(u16),
    Notify,
    Write { ordered: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..6_u16).prop_map(Step::Post),
        1 => any::<u64>().prop_map(Step::Garbage),
        2 => Just(Step::Poll),
        3 => (1..200_u16).prop_map(Step::Send),
        1 => Just(Step::Notify),
        1 => any::<bool>().prop_map(|ordered| Step::Write { ordered }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Each op that is OK is one event, in their order, and the ring never overflows.
    #[test]
    fn each_op_that_is_ok_is_one_event_and_each_event_gives_its_receive_back(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        // Not a power of two: the rings have more entries than there are receives.
        let (mut stage, mut garbage, _) = stage_and_posts(5, 128);
        let mut unread = std::collections::VecDeque::new();
        let mut immediate = 0;
        let mut is_hostile = false;
        for step in steps {
            immediate += 1;
            let command = match step {
                Step::Post(number) => {
                    // Once there is garbage in the ring, the honest end does not know its place.
                    if is_hostile {
                        let _ = garbage.push(&post(number.into()));
                    } else {
                        let _ = stage.queue.post(Receive(number));
                    }
                    continue;
                }
                Step::Garbage(number) => {
                    if is_hostile || stage.queue.posted() == 0 && unread.is_empty() && immediate < 5
                    {
                        is_hostile = true;
                        let _ = garbage.push(&post(number));
                    }
                    continue;
                }
                Step::Poll if is_hostile => continue,
                Step::Poll => {
                    let event = stage.queue.poll();
                    prop_assert_eq!(event.map(|it| it.immediate), unread.pop_front());
                    continue;
                }
                Step::Send(size) => stage.send(0, size.into(), immediate),
                Step::Notify => stage.notify(0, immediate),
                Step::Write { ordered } => {
                    let transfer = stage.pair.transfer(0, 64);
                    stage.recorded(0, RecordedOp::WriteWithImm { transfer, immediate, ordered })
                }
            };
            let posted = stage.queue.posted().saturating_sub(unread.len());
            let completion = stage.run(command);
            let is_long = matches!(step, Step::Send(129..));
            match completion.status {
                OpStatus::Ok => unread.push_back(immediate),
                OpStatus::RemoteNotReady => prop_assert!(is_hostile || posted == 0),
                OpStatus::RemoteOutOfBounds => prop_assert!(is_long),
                other => prop_assert!(false, "{other}"),
            }
            prop_assert!(!is_long || completion.status == OpStatus::RemoteOutOfBounds);
            prop_assert!(unread.len() <= 8, "more than the ring holds");
            stage.assert_settled_down();
        }
    }
}
